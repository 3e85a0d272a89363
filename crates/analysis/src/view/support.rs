//! Refuses a word of a query that a view does not heed. No word is ever ignored.
//!
//! Which views heed a word is in the table of words (`query_words.rs`). `heaptrack print` refuses options by the same
//! table (`crates/cli/src/support.rs`).
use super::View;
use crate::query::{BadQuery, By, Query};
use crate::query_words::Word;

/// The views that heed a word of a query. Empty if there is no such word.
pub fn heeding(word: &str) -> &'static [View] {
    Word::find(word).map_or(&[], |word| word.views)
}

/// Refuses words that the view would have to ignore.
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
    if matches!(query.by, By::Process | By::Command) && view != View::Timeline {
        let name = view.name();
        let sentence = format!("`by=process` and `by=command` are for the view `timeline`, not for `{name}`");
        return Err(BadQuery::Whole(sentence));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_query_is_read_and_heeded() {
        for (word, value) in [
            ("domain", "custom"),
            ("at", "1"),
            ("from", "1"),
            ("to", "1"),
            ("include", "x"),
            ("exclude", "x"),
            ("thread", "1"),
            ("process", "1"),
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
