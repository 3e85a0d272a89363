//! A question about a trace: which part of it, and how to look at it.
//!
//! `Query::set` takes its words one by one, as options of `print` or as parameters of the server's URLs. The table of
//! words is in `query_words.rs`.
use crate::code_class::CodeClass;
use crate::costs::{Costs, to_signed};
use crate::moment::When;
use crate::named_enum::named_enum;
use crate::pattern::Pattern;
use crate::process_name::ProcessName;
use crate::query_words::Word;
use format::Domain;

/// Numbers from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub min: u64,
    pub max: u64,
}

impl Span {
    pub const fn contains(&self, value: u64) -> bool {
        self.min <= value && value <= self.max
    }

    pub(crate) fn parse(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Span> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let end = |text: &str, missing: u64| if text.is_empty() { Some(missing) } else { number(text) };
        let span = Span { min: end(min, 0)?, max: end(max, u64::MAX)? };
        (span.min <= span.max).then_some(span)
    }
}

named_enum! {
    /// What makes two levels of a tree the same.
    #[derive(Default)]
    pub enum Merge {
        #[default]
        Function = "function",
        Line = "line",
        Module = "module",
        Namespace = "namespace",
    }
}

named_enum! {
    /// What trees and lists are sorted by and flame graphs are made of.
    pub enum Cost {
        Peak = "peak",
        Leaked = "leaked",
        Live = "live",
        Allocations = "allocations",
        Temporary = "temporary",
        Allocated = "allocated",
        Deallocations = "deallocations",
        Kept = "kept",
        Growth = "growth",
    }
}

impl Cost {
    /// The value of this cost. `suppressed`: the stack is a known leak, so nothing of it counts as leaked.
    pub fn of(self, costs: &Costs, suppressed: bool) -> i64 {
        let value = match self {
            Cost::Peak => costs.peak_bytes,
            Cost::Leaked if suppressed => 0,
            Cost::Leaked | Cost::Live => costs.live_bytes,
            Cost::Allocations => costs.allocations,
            Cost::Temporary => costs.temporary,
            Cost::Allocated => costs.allocated_bytes,
            Cost::Deallocations => costs.deallocations,
            Cost::Kept => costs.kept_bytes,
            Cost::Growth => return costs.growth_bytes(),
        };
        to_signed(value)
    }

    /// At one instant nothing is allocated or freed, and there is no peak.
    pub const fn is_known_at_an_instant(self) -> bool {
        matches!(self, Cost::Live | Cost::Leaked)
    }

    pub const fn is_bytes(self) -> bool {
        !matches!(self, Cost::Allocations | Cost::Temporary | Cost::Deallocations)
    }
}

/// A set of classes of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeClassSet(u8);

impl CodeClassSet {
    pub const fn contains(self, class: CodeClass) -> bool {
        self.0 & 1 << class as u8 != 0
    }

    pub(crate) const fn insert(&mut self, class: CodeClass) {
        self.0 |= 1 << class as u8;
    }
}

/// The base of a diff.
#[derive(Clone, Debug, PartialEq)]
pub enum Compare {
    /// Another trace.
    File(String),
    /// Another instant of the same trace.
    At(When),
    /// Another range of the same trace.
    Range(When, When),
}

/// What timelines, sizes, verdicts and diffs group stacks by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The innermost level in the user's own code.
    #[default]
    Blamed,
    /// The innermost level.
    Function,
    /// The process that allocated.
    Process,
    /// The name of the process that allocated.
    Command,
}

#[derive(Clone, Debug)]
pub struct Query {
    /// Whose blocks. The caller that opens the trace reads only these; the engine does not look at it.
    pub domain: Domain,
    pub at: Option<When>,
    pub from: Option<When>,
    pub to: Option<When>,
    pub include: Vec<Pattern>,
    pub exclude: Vec<Pattern>,
    pub threads: Vec<u32>,
    pub processes: Vec<ProcessName>,
    /// Names of allocators.
    pub allocators: Vec<String>,
    pub size: Option<Span>,
    pub lifetime: Option<Span>,
    /// Names of functions that count as a part of the allocator, and of functions that do not.
    pub wrappers: Vec<String>,
    pub not_wrappers: Vec<String>,
    /// The full names of wrappers that were found in a trace that this one is compared with. No word sets it
    /// (`StackTable::beside`).
    pub(crate) found_wrappers: Vec<String>,
    pub hide: CodeClassSet,
    pub collapse: bool,
    pub merge: Merge,
    pub suppressions: bool,
    pub cost: Option<Cost>,
    pub compare: Option<Compare>,
    /// The most rows of a list; 0: all, or the default of the view `summary`.
    pub limit: usize,
    /// The most levels of a stack that are shown; 0: all.
    pub depth: usize,
    /// The number of slices of a timeline.
    pub points: usize,
    /// View timeline: the largest number of bands. View sizes: the largest number of functions per bucket.
    pub top: usize,
    pub by: By,
    /// The function whose callers and callees are asked for.
    pub function: Option<Pattern>,
    /// A part of the paths of the files whose lines are asked for.
    pub file: Option<String>,
    /// The words that were set, and their values as they were written.
    given: Vec<(&'static str, String)>,
}

impl Default for Query {
    fn default() -> Self {
        Query {
            domain: Domain::Malloc,
            at: None,
            from: None,
            to: None,
            include: Vec::new(),
            exclude: Vec::new(),
            threads: Vec::new(),
            processes: Vec::new(),
            allocators: Vec::new(),
            size: None,
            lifetime: None,
            wrappers: Vec::new(),
            not_wrappers: Vec::new(),
            found_wrappers: Vec::new(),
            hide: CodeClassSet::default(),
            collapse: false,
            merge: Merge::Function,
            suppressions: true,
            cost: None,
            compare: None,
            limit: 0,
            depth: 0,
            points: 256,
            top: 10,
            by: By::Blamed,
            function: None,
            file: None,
            given: Vec::new(),
        }
    }
}

/// A query that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadQuery {
    /// One of its words has a wrong value.
    Word { name: String, value: String, reason: String },
    /// A sentence about the query as a whole.
    Whole(String),
}

impl BadQuery {
    fn word(name: &str, value: &str, reason: impl Into<String>) -> Self {
        BadQuery::Word { name: name.to_owned(), value: value.to_owned(), reason: reason.into() }
    }
}

/// The wording of the page's server. `heaptrack print` names the option instead of the word.
impl std::fmt::Display for BadQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadQuery::Word { name, value, reason } => write!(f, "`{name}={value}`: {reason}"),
            BadQuery::Whole(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for BadQuery {}

/// The reason why a text that is not a time is refused.
pub const NOT_A_TIME: &str = "not a valid time (examples: 1.5s, 200ms, 2min, 50%, start, peak, end)";

impl Query {
    /// A query made of names and values, as a URL has them.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Query, BadQuery> {
        let mut query = Query::default();
        for (name, value) in pairs {
            query.set(name, value)?;
        }
        query.check()?;
        Ok(query)
    }

    /// Refuses words that contradict each other.
    pub fn check(&self) -> Result<(), BadQuery> {
        if self.at.is_some() && (self.from.is_some() || self.to.is_some()) {
            let sentence = "`at` is one instant, `from` and `to` are a range: give one or the other";
            return Err(BadQuery::Whole(sentence.into()));
        }
        if let Some(cost) = self.cost.filter(|cost| self.is_of_an_instant() && !cost.is_known_at_an_instant()) {
            let reason = "of one instant only `live` and `leaked` are known; ask for a range instead";
            return Err(BadQuery::word("cost", cost.name(), reason));
        }
        Ok(())
    }

    /// Adds one word to the query. Repeatable words add up, others are replaced.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), BadQuery> {
        let Some(word) = Word::find(name) else {
            return Err(BadQuery::Whole(format!("`{name}` is not a word of a query")));
        };
        (word.read)(self, value).map_err(|reason| BadQuery::word(name, value, reason))?;
        if !word.is_repeatable {
            self.given.retain(|(known, _)| *known != word.name);
        }
        let place = self.given.partition_point(|(known, _)| Word::rank(known) <= Word::rank(word.name));
        self.given.insert(place, (word.name, value.to_owned()));
        Ok(())
    }

    /// The words that were set, and their values as they were written.
    pub fn given(&self) -> &[(&'static str, String)] {
        &self.given
    }

    /// The cost that was asked for. The default is `live` if an instant is asked for or compared with, else `peak`.
    pub fn cost(&self) -> Cost {
        self.cost.unwrap_or(if self.is_of_an_instant() { Cost::Live } else { Cost::Peak })
    }

    /// The same query for the instant or range that `compare` names. `None` if there is no `compare`, or it names a
    /// file.
    pub fn base(&self) -> Option<Query> {
        let (at, from, to) = match self.compare {
            Some(Compare::At(when)) => (Some(when), None, None),
            Some(Compare::Range(from, to)) => (None, Some(from), Some(to)),
            _ => return None,
        };
        Some(Query { at, from, to, ..self.clone() })
    }

    /// Whether one of the profiles that the query needs is that of an instant, and so knows only live blocks.
    pub const fn is_of_an_instant(&self) -> bool {
        self.at.is_some() || matches!(self.compare, Some(Compare::At(_)))
    }

    /// The cost of a diff. If the base is an instant, only live blocks are known.
    pub fn cost_of_diff(&self) -> Cost {
        match self.compare {
            Some(Compare::At(_)) => self.cost.unwrap_or(Cost::Live),
            _ => self.cost(),
        }
    }

    /// Whether the query picks blocks by thread, process, allocator, size or lifetime, which needs a walk over the events.
    pub const fn picks_blocks(&self) -> bool {
        !self.threads.is_empty()
            || !self.processes.is_empty()
            || !self.allocators.is_empty()
            || self.size.is_some()
            || self.lifetime.is_some()
    }

    /// Whether the query is about all blocks of the whole session. How they are shown does not matter.
    pub const fn is_whole(&self) -> bool {
        let of_time = self.at.is_some() || self.from.is_some() || self.to.is_some();
        !of_time && self.include.is_empty() && self.exclude.is_empty() && !self.picks_blocks()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_meaning() {
        let query = Query::new([
            ("from", "1s"),
            ("to", "50%"),
            ("include", "a"),
            ("include", "b"),
            ("thread", "3"),
            ("size", "1Ki..2Mi"),
            ("lifetime", "..1ms"),
            ("hide", "std,libc"),
            ("merge", "line"),
            ("cost", "leaked"),
            ("compare", "@1s..2s"),
            ("from", "2s"),
            ("domain", "custom"),
        ])
        .unwrap();
        assert_eq!((query.from, query.to), (Some(When::Ns(2_000_000_000)), Some(When::Percent(50.0))));
        assert_eq!((query.domain, Query::default().domain), (Domain::Custom, Domain::Malloc));
        assert_eq!((query.include.len(), query.threads.as_slice()), (2, &[3][..]));
        assert_eq!(query.size, Some(Span { min: 1024, max: 2 << 20 }));
        assert_eq!(query.lifetime, Some(Span { min: 0, max: 1_000_000 }));
        assert!(query.hide.contains(CodeClass::Runtime) && query.hide.contains(CodeClass::Libc));
        assert!(!query.hide.contains(CodeClass::Program) && !query.hide.contains(CodeClass::Dependency));
        assert_eq!((query.merge, query.cost()), (Merge::Line, Cost::Leaked));
        assert_eq!(query.compare, Some(Compare::Range(When::Ns(1_000_000_000), When::Ns(2_000_000_000))));
        assert_eq!(query.given().iter().filter(|(name, _)| *name == "from").count(), 1);
        assert!(query.picks_blocks() && !query.is_whole() && Query::default().is_whole());
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        for (name, value) in [
            ("at", "soon"),
            ("size", "5..3"),
            ("size", "x"),
            ("lifetime", "1..x"),
            ("hide", "program"),
            ("hide", "mine"),
            ("merge", "x"),
            ("domain", "x"),
            ("cost", "x"),
            ("thread", "-1"),
            ("process", ""),
            ("process", "#x"),
            ("points", "0"),
            ("include", "/[/"),
            ("nothing", "1"),
            ("compare", "@x"),
        ] {
            let error = Query::new([(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(Query::new([("at", "1s"), ("from", "0")]).is_err());
    }
}
