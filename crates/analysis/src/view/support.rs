//! Which words of a query each view heeds. A word that a view does not heed is refused, never ignored.
//!
//! `heaptrack print` refuses options by the same table (`crates/cli/src/support.rs`), and docs/views.md shows it.
use super::View;
use crate::query::{BadQuery, By, Query};

const EVERY: &[View] = &[
    View::Summary,
    View::Stacks,
    View::Profile,
    View::BottomUp,
    View::TopDown,
    View::Callers,
    View::Flame,
    View::Timeline,
    View::Sizes,
    View::Lifetimes,
    View::Threads,
    View::Leaks,
    View::Source,
    View::Suppressions,
    View::Diff,
];
/// Views that show levels of stacks, one by one.
const LEVELS: &[View] = &[View::BottomUp, View::TopDown, View::Callers, View::Flame];

const TABLE: [(&str, &[View]); 22] = [
    ("domain", EVERY),
    ("at", EVERY),
    ("from", EVERY),
    ("to", EVERY),
    ("include", EVERY),
    ("exclude", EVERY),
    ("thread", EVERY),
    ("size", EVERY),
    ("lifetime", EVERY),
    ("suppressions", EVERY),
    ("cost", &[View::BottomUp, View::TopDown, View::Callers, View::Flame, View::Timeline, View::Threads, View::Diff]),
    ("hide", &[View::BottomUp, View::TopDown, View::Callers, View::Flame, View::Diff]),
    ("collapse", LEVELS),
    ("merge", LEVELS),
    ("compare", &[View::Profile, View::Diff]),
    (
        "limit",
        &[
            View::Summary,
            View::BottomUp,
            View::TopDown,
            View::Callers,
            View::Flame,
            View::Threads,
            View::Leaks,
            View::Diff,
        ],
    ),
    ("depth", &[View::BottomUp, View::TopDown, View::Flame]),
    ("points", &[View::Timeline]),
    ("top", &[View::Timeline, View::Sizes]),
    ("by", &[View::Timeline, View::Sizes, View::Leaks, View::Diff]),
    ("function", &[View::Callers]),
    ("file", &[View::Source]),
];

/// The views that heed a word of a query; none if there is no such word.
pub fn heeding(word: &str) -> &'static [View] {
    TABLE.iter().find(|(name, _)| *name == word).map_or(&[], |(_, views)| views)
}

/// Refuses what a view would ignore.
pub(super) fn check(view: View, query: &Query) -> Result<(), BadQuery> {
    let ignored = query.given().iter().find(|(word, _)| !heeding(word).contains(&view));
    if let Some((word, value)) = ignored {
        let name = view.name();
        let others: Vec<&str> = heeding(word).iter().map(|view| view.name()).collect();
        let others = others.join(", ");
        return Err(BadQuery::Whole(format!(
            "`{word}={value}` changes nothing in the view `{name}`; it is for {others}"
        )));
    }
    if view == View::Diff && query.by == By::Blamed && query.given().iter().any(|(word, _)| *word == "hide") {
        return Err(BadQuery::Whole("`hide` changes a diff only with `by=function`".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_query_has_a_row_and_every_view_a_place() {
        for (word, value) in [
            ("domain", "custom"),
            ("at", "1"),
            ("from", "1"),
            ("to", "1"),
            ("include", "x"),
            ("exclude", "x"),
            ("thread", "1"),
            ("size", "1"),
            ("lifetime", "1"),
            ("suppressions", "off"),
            ("cost", "live"),
            ("hide", "libc"),
            ("collapse", "recursion"),
            ("merge", "line"),
            ("compare", "@1"),
            ("limit", "1"),
            ("depth", "1"),
            ("points", "1"),
            ("top", "1"),
            ("by", "function"),
            ("function", "x"),
            ("file", "x"),
        ] {
            assert!(Query::default().set(word, value).is_ok(), "{word} is a word");
            assert!(!heeding(word).is_empty(), "{word} is heeded somewhere");
        }
        assert_eq!(EVERY, View::ALL.map(|(_, view)| view));
    }

    #[test]
    fn a_word_that_changes_nothing_is_refused() {
        let check =
            |view, pairs: &[(&str, &str)]| Query::new(pairs.iter().copied()).and_then(|query| check(view, &query));
        assert_eq!(check(View::Flame, &[("depth", "3"), ("cost", "live")]), Ok(()));
        let refused = check(View::Stacks, &[("depth", "3")]);
        let sentence = "`depth=3` changes nothing in the view `stacks`; it is for bottom-up, top-down, flame";
        assert_eq!(refused, Err(BadQuery::Whole(sentence.into())));
        assert!(check(View::Diff, &[("compare", "@1"), ("hide", "libc")]).is_err());
        assert_eq!(check(View::Diff, &[("compare", "@1"), ("hide", "libc"), ("by", "function")]), Ok(()));
    }
}
