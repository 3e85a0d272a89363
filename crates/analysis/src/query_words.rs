//! The words of a query: what each looks like, what it means, which views heed it, and the function that reads it.
//!
//! The same words are options of `print` and parameters of the server's URLs. Must hold: a view refuses a word that it
//! does not heed, and never ignores it (`view/support.rs`). docs/views.md shows this table; a test compares the two.
use crate::code_class::CodeClass;
use crate::moment::When;
use crate::pattern::Pattern;
use crate::process_name::{NOT_A_PROCESS, ProcessName};
use crate::query::{By, CodeClassSet, Compare, Cost, Merge, NOT_A_TIME, Query, Span};
use crate::units::{parse_duration, parse_size};
use crate::view::View;
use format::Domain;

/// Puts the value of a word into the query. The error is the reason why the value is wrong.
type Read = fn(&mut Query, &str) -> Result<(), String>;

/// A word of a query.
#[derive(Debug)]
pub struct Word {
    pub name: &'static str,
    /// What its value looks like, in Markdown.
    pub value: &'static str,
    /// What it means, in Markdown.
    pub help: &'static str,
    /// The views that heed it.
    pub views: &'static [View],
    /// If it is given twice, both values count. Otherwise the later value replaces the earlier one.
    pub(crate) is_repeatable: bool,
    pub(crate) read: Read,
}

impl Word {
    pub(crate) fn find(name: &str) -> Option<&'static Word> {
        WORDS.iter().find(|word| word.name == name)
    }

    /// The place of a word in the table. Answers repeat the words in this order, so they do not depend on the order in
    /// which the words were given.
    pub(crate) fn rank(name: &str) -> usize {
        WORDS.iter().position(|word| word.name == name).unwrap_or(WORDS.len())
    }

    const fn repeatable(self) -> Self {
        Word { is_repeatable: true, ..self }
    }
}

const fn word(name: &'static str, value: &'static str, help: &'static str, views: &'static [View], read: Read) -> Word {
    Word { name, value, help, views, is_repeatable: false, read }
}

use View::{
    Allocators, BottomUp, Callers, Diff, Flame, Leaks, Map, Memory, Processes, Profile, Sizes, Source, Stacks, Summary,
    Threads, Timeline, TopDown,
};

pub(crate) const EVERY: &[View] = &View::VALUES;
/// Views that show the levels of stacks.
const LEVELS: &[View] = &[BottomUp, TopDown, Callers, Flame];
/// Views that name the owners of memory.
const OWNERS: &[View] = &[Summary, Stacks, Timeline, Sizes, Leaks, Diff];

pub const WORDS: &[Word] = &[
    word(
        "domain",
        "`malloc` (default), `custom`, `mapped`",
        "whose blocks: malloc's, those that the program's own allocators reported ([custom-allocators.md](custom-allocators.md)), or the mappings that the program made itself ([below](#mappings)); they are never added up",
        EVERY,
        |query, value| {
            let domains = Domain::ALL.map(|domain| (domain.name(), domain));
            query.domain = choose(value, &domains, "must be malloc, custom or mapped")?;
            Ok(())
        },
    ),
    word("at", "T", "what was live at T", EVERY, |query, value| {
        query.at = Some(time(value)?);
        Ok(())
    }),
    word("from", "T", "what happened after T; absent: from the start", EVERY, |query, value| {
        query.from = Some(time(value)?);
        Ok(())
    }),
    word("to", "T", "what happened up to and including T; absent: up to the end", EVERY, |query, value| {
        query.to = Some(time(value)?);
        Ok(())
    }),
    word(
        "include",
        "P, repeatable",
        "only stacks in which a level matches P; if repeated, all patterns must match",
        EVERY,
        |query, value| {
            query.include.push(Pattern::parse(value)?);
            Ok(())
        },
    )
    .repeatable(),
    word("exclude", "P, repeatable", "no stacks in which a level matches P", EVERY, |query, value| {
        query.exclude.push(Pattern::parse(value)?);
        Ok(())
    })
    .repeatable(),
    word(
        "thread",
        "index, repeatable",
        "only blocks that this thread allocated; if repeated, any of them",
        EVERY,
        |query, value| {
            query.threads.push(value.parse().map_err(|_| "must be the index of a thread (see --view threads)")?);
            Ok(())
        },
    )
    .repeatable(),
    word(
        "process",
        "pid, name or `#`index, repeatable",
        "only blocks that this process allocated; a name is the base name of the program or of the command's first word, an index is that of the view `processes`; if repeated, any of them",
        EVERY,
        |query, value| {
            query.processes.push(ProcessName::parse(value).ok_or(NOT_A_PROCESS)?);
            Ok(())
        },
    )
    .repeatable(),
    word(
        "allocator",
        "name, repeatable",
        "only blocks of this allocator: `malloc`, `jemalloc`, `mimalloc` and so on; if repeated, any of them",
        EVERY,
        |query, value| {
            query.allocators.push(value.to_owned());
            Ok(())
        },
    )
    .repeatable(),
    word(
        "size",
        "`MIN..MAX`",
        "only blocks of that many bytes, both ends included, either may be missing; `k`, `M`, `G` are powers of 1000, `Ki`, `Mi`, `Gi` powers of 1024",
        EVERY,
        |query, value| set_span(&mut query.size, value, parse_size, "not a range of sizes (example: 100..4k)"),
    ),
    word(
        "lifetime",
        "`MIN..MAX`",
        "only blocks with this lifetime (times, both ends included); the lifetime of a live block ends with the range",
        EVERY,
        |query, value| set_span(&mut query.lifetime, value, parse_duration, "not a range of times (example: 1ms..2s)"),
    ),
    word(
        "suppressions",
        "`on` (default), `off`",
        "whether known leaks are left out of `leaked_*`",
        EVERY,
        |query, value| {
            query.suppressions = choose(value, &[("on", true), ("off", false)], "must be on or off")?;
            Ok(())
        },
    ),
    word(
        "wrapper",
        "name, repeatable",
        "this function, and all that it calls, is a part of the allocator, so its caller owns the memory ([blame.md](blame.md)); `*` stands for any text",
        OWNERS,
        |query, value| {
            query.wrappers.push(value.to_owned());
            Ok(())
        },
    )
    .repeatable(),
    word(
        "not-wrapper",
        "name, repeatable",
        "this function is not a part of the allocator, although its name or its numbers look like it; `*` stands for any text",
        OWNERS,
        |query, value| {
            query.not_wrappers.push(value.to_owned());
            Ok(())
        },
    )
    .repeatable(),
    word(
        "cost",
        "see below",
        "the cost that trees, lists and flame graphs show and are sorted by",
        &[BottomUp, TopDown, Callers, Flame, Timeline, Threads, Allocators, Processes, Diff],
        |query, value| {
            let names = Cost::ALL.map(|(name, _)| name).join(", ");
            query.cost = Some(choose(value, &Cost::ALL, &format!("must be one of {names}"))?);
            Ok(())
        },
    ),
    word(
        "hide",
        "classes of code, comma separated: `runtime` (`std` is the same), `libc`, `dependency`, `kernel`; or `all-but-mine`",
        "levels of these classes are removed from the stacks; their costs stay",
        &[BottomUp, TopDown, Callers, Flame, Diff],
        |query, value| {
            let classes = parse_classes(value);
            query.hide = classes.ok_or("classes are runtime (or std), libc, dependency, kernel; or all-but-mine")?;
            Ok(())
        },
    ),
    word("collapse", "`recursion`", "a level that calls itself becomes one", LEVELS, |query, value| {
        let choices = [("recursion", true), ("", false), ("none", false)];
        query.collapse = choose(value, &choices, "only `recursion` can be collapsed")?;
        Ok(())
    }),
    word(
        "merge",
        "`function` (default), `line`, `module`, `namespace`",
        "what makes two levels of a tree the same",
        LEVELS,
        |query, value| {
            query.merge = choose(value, &Merge::ALL, "must be function, line, module or namespace")?;
            Ok(())
        },
    ),
    word("compare", "`FILE`, or `@T`, or `@T..T`", "the base of a diff", &[Profile, Diff], |query, value| {
        query.compare = Some(parse_compare(value).ok_or(NOT_A_TIME)?);
        Ok(())
    }),
    word(
        "limit",
        "number",
        "the most rows of a list; 0 or absent: all (`summary`: 20)",
        &[Summary, BottomUp, TopDown, Callers, Flame, Threads, Allocators, Processes, Memory, Map, Leaks, Diff],
        |query, value| {
            query.limit = number(value)?;
            Ok(())
        },
    ),
    word(
        "depth",
        "number",
        "the most levels of a stack that are shown, the root included; 0 or absent: all",
        &[BottomUp, TopDown, Flame],
        |query, value| {
            query.depth = number(value)?;
            Ok(())
        },
    ),
    word("points", "1 to 4096 (default 256)", "slices of a timeline", &[Timeline], |query, value| {
        let points = number(value)?;
        if !(1..=MOST_POINTS).contains(&points) {
            return Err("must be from 1 to 4096".into());
        }
        query.points = points;
        Ok(())
    }),
    word(
        "top",
        "number (default 10)",
        "the most bands of a timeline; the most functions per bucket of `sizes`",
        &[Timeline, Sizes],
        |query, value| {
            query.top = number(value)?;
            Ok(())
        },
    ),
    word(
        "by",
        "`blamed` (default), `function`, `process`, `command`",
        "bands, verdicts and diffs by blamed level, or by innermost function; the bands of a timeline also by process, or by the name of the process",
        &[Timeline, Sizes, Leaks, Diff],
        |query, value| {
            let choices =
                [("blamed", By::Blamed), ("function", By::Function), ("process", By::Process), ("command", By::Command)];
            query.by = choose(value, &choices, "must be blamed, function, process or command")?;
            Ok(())
        },
    ),
    word("function", "P", "the function whose callers and callees are shown", &[Callers], |query, value| {
        query.function = Some(Pattern::parse_function(value)?);
        Ok(())
    }),
    word("file", "text", "only source files with this text in their path", &[Source], |query, value| {
        query.file = Some(value.to_owned());
        Ok(())
    }),
];

const MOST_POINTS: usize = 4096;

fn time(value: &str) -> Result<When, String> {
    When::parse(value).ok_or_else(|| NOT_A_TIME.into())
}

fn number(value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| "must be a number".into())
}

fn set_span(
    span: &mut Option<Span>,
    value: &str,
    number: fn(&str) -> Option<u64>,
    otherwise: &str,
) -> Result<(), String> {
    *span = Some(Span::parse(value, number).ok_or(otherwise)?);
    Ok(())
}

fn choose<T: Copy>(value: &str, choices: &[(&str, T)], otherwise: &str) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|(_, choice)| *choice).ok_or_else(|| otherwise.into())
}

fn parse_classes(text: &str) -> Option<CodeClassSet> {
    let mut set = CodeClassSet::default();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "all-but-mine" => {
                let others = CodeClass::ALL.into_iter().filter(|class| *class != CodeClass::Program);
                others.for_each(|class| set.insert(class));
            }
            "std" => set.insert(CodeClass::Runtime),
            "program" => return None,
            _ => set.insert(CodeClass::ALL.into_iter().find(|class| class.name() == word)?),
        }
    }
    Some(set)
}

fn parse_compare(text: &str) -> Option<Compare> {
    let Some(time) = text.strip_prefix('@') else { return Some(Compare::File(text.to_owned())) };
    Some(match time.split_once("..") {
        Some((from, to)) => Compare::Range(When::parse(from)?, When::parse(to)?),
        None => Compare::At(When::parse(time)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_views_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/views.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        let rows = WORDS.iter().map(|word| format!("| `{}` | {} | {} |\n", word.name, word.value, word.help));
        let table: String = rows.collect();
        assert!(page.contains(&table), "docs/views.md must have these rows:\n{table}");
    }

    #[test]
    fn every_view_is_among_every_view_and_every_word_is_heeded_somewhere() {
        assert_eq!(EVERY, View::ALL.map(|(_, view)| view));
        for word in WORDS {
            assert!(!word.views.is_empty(), "{}", word.name);
        }
    }
}
