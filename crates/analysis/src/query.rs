//! A question about a trace: which part of it, and how to look. docs/views.md has the words.
//!
//! The same words are options of `print` and parameters of the server's URLs; both come in through `Query::set`.
use crate::code_class::CodeClass;
use crate::costs::{Costs, to_signed};
use crate::moment::When;
use crate::pattern::Pattern;
use crate::units::{parse_duration, parse_size};
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

    fn parse(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Span> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let end = |text: &str, missing: u64| if text.is_empty() { Some(missing) } else { number(text) };
        let span = Span { min: end(min, 0)?, max: end(max, u64::MAX)? };
        (span.min <= span.max).then_some(span)
    }
}

/// What makes two levels of a tree the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    #[default]
    Function,
    Line,
    Module,
    Namespace,
}

/// What trees and lists are sorted by and flame graphs are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    Peak,
    Leaked,
    Live,
    Allocations,
    Temporary,
    Allocated,
    Deallocations,
    Kept,
    Growth,
}

impl Cost {
    pub const ALL: [(&'static str, Cost); 9] = [
        ("peak", Cost::Peak),
        ("leaked", Cost::Leaked),
        ("live", Cost::Live),
        ("allocations", Cost::Allocations),
        ("temporary", Cost::Temporary),
        ("allocated", Cost::Allocated),
        ("deallocations", Cost::Deallocations),
        ("kept", Cost::Kept),
        ("growth", Cost::Growth),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, cost)| *cost == self).map_or("", |(name, _)| name)
    }

    /// `suppressed`: a known leak, which is none.
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

/// Classes of levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeClassSet(u8);

impl CodeClassSet {
    pub const fn contains(self, class: CodeClass) -> bool {
        self.0 & 1 << class as u8 != 0
    }
    const fn insert(&mut self, class: CodeClass) {
        self.0 |= 1 << class as u8;
    }
}

/// The base of a diff.
#[derive(Clone, Debug, PartialEq)]
pub enum Compare {
    /// Another trace.
    File(String),
    /// Another instant of the same one.
    At(When),
    /// Another range of the same one.
    Range(When, When),
}

/// What bands of a timeline are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The innermost level in the user's own code.
    #[default]
    Blamed,
    /// The innermost level.
    Function,
}

#[derive(Clone, Debug)]
pub struct Query {
    /// Whose blocks: who opens a trace reads only these.
    pub domain: Domain,
    pub at: Option<When>,
    pub from: Option<When>,
    pub to: Option<When>,
    pub include: Vec<Pattern>,
    pub exclude: Vec<Pattern>,
    pub threads: Vec<u32>,
    pub size: Option<Span>,
    pub lifetime: Option<Span>,
    pub hide: CodeClassSet,
    pub collapse: bool,
    pub merge: Merge,
    pub suppressions: bool,
    pub cost: Option<Cost>,
    pub compare: Option<Compare>,
    /// Most rows; 0: all.
    pub limit: usize,
    /// Most levels of a tree; 0: all.
    pub depth: usize,
    /// Slices of a timeline.
    pub points: usize,
    /// Bands of a timeline, functions of a bucket.
    pub top: usize,
    pub by: By,
    /// Whose callers and callees.
    pub function: Option<Pattern>,
    /// Whose lines.
    pub file: Option<String>,
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
            size: None,
            lifetime: None,
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

/// As the server of the page says it; `heaptrack print` names the option instead of the word.
impl std::fmt::Display for BadQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadQuery::Word { name, value, reason } => write!(f, "`{name}={value}`: {reason}"),
            BadQuery::Whole(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for BadQuery {}

/// What is said of a text that is not a time.
pub const NOT_A_TIME: &str = "not a valid time (examples: 1.5s, 200ms, 2min, 50%, start, peak, end)";
const MOST_POINTS: usize = 4096;

impl Query {
    /// A query of names and values, as a URL has them.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Query, BadQuery> {
        let mut query = Query::default();
        for (name, value) in pairs {
            query.set(name, value)?;
        }
        query.check()?;
        Ok(query)
    }

    /// Things that cannot be asked together.
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

    /// One word of the query; repeatable ones add up, others are replaced.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), BadQuery> {
        let bad = |reason: &str| BadQuery::word(name, value, reason);
        let when = || When::parse(value).ok_or_else(|| bad(NOT_A_TIME));
        let number = || value.parse::<usize>().map_err(|_| bad("must be a number"));
        let pattern = || Pattern::parse(value).map_err(|error| bad(&error));
        let name: &'static str = match name {
            "domain" => {
                self.domain = match value {
                    "malloc" => Domain::Malloc,
                    "custom" => Domain::Custom,
                    _ => return Err(bad("must be malloc or custom")),
                };
                "domain"
            }
            "at" => (self.at = Some(when()?), "at").1,
            "from" => (self.from = Some(when()?), "from").1,
            "to" => (self.to = Some(when()?), "to").1,
            "include" => (self.include.push(pattern()?), "include").1,
            "exclude" => (self.exclude.push(pattern()?), "exclude").1,
            "thread" => {
                (
                    self.threads
                        .push(value.parse().map_err(|_| bad("must be the index of a thread (see --view threads)"))?),
                    "thread",
                )
                    .1
            }
            "size" => {
                let span = Span::parse(value, parse_size);
                self.size = Some(span.ok_or_else(|| bad("not a range of sizes (example: 100..4k)"))?);
                "size"
            }
            "lifetime" => {
                let span = Span::parse(value, parse_duration);
                self.lifetime = Some(span.ok_or_else(|| bad("not a range of times (example: 1ms..2s)"))?);
                "lifetime"
            }
            "hide" => {
                self.hide = parse_classes(value)
                    .ok_or_else(|| bad("classes are runtime (or std), libc, dependency, kernel; or all-but-mine"))?;
                "hide"
            }
            "collapse" => {
                self.collapse = match value {
                    "recursion" => true,
                    "" | "none" => false,
                    _ => return Err(bad("only `recursion` can be collapsed")),
                };
                "collapse"
            }
            "merge" => {
                self.merge = match value {
                    "function" => Merge::Function,
                    "line" => Merge::Line,
                    "module" => Merge::Module,
                    "namespace" => Merge::Namespace,
                    _ => return Err(bad("must be function, line, module or namespace")),
                };
                "merge"
            }
            "suppressions" => {
                self.suppressions = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(bad("must be on or off")),
                };
                "suppressions"
            }
            "cost" => {
                let found = Cost::ALL.iter().find(|(name, _)| *name == value);
                let names = || Cost::ALL.map(|(name, _)| name).join(", ");
                self.cost = Some(found.ok_or_else(|| bad(&format!("must be one of {}", names())))?.1);
                "cost"
            }
            "compare" => {
                self.compare = Some(parse_compare(value).ok_or_else(|| bad(NOT_A_TIME))?);
                "compare"
            }
            "limit" => (self.limit = number()?, "limit").1,
            "depth" => (self.depth = number()?, "depth").1,
            "points" => {
                self.points = number()?;
                if !(1..=MOST_POINTS).contains(&self.points) {
                    return Err(bad("must be from 1 to 4096"));
                }
                "points"
            }
            "top" => (self.top = number()?, "top").1,
            "by" => {
                self.by = match value {
                    "blamed" => By::Blamed,
                    "function" => By::Function,
                    _ => return Err(bad("must be blamed or function")),
                };
                "by"
            }
            "function" => {
                self.function = Some(Pattern::parse_function(value).map_err(|error| bad(&error))?);
                "function"
            }
            "file" => (self.file = Some(value.to_owned()), "file").1,
            _ => return Err(BadQuery::Whole(format!("`{name}` is not a word of a query"))),
        };
        if !matches!(name, "include" | "exclude" | "thread") {
            self.given.retain(|(known, _)| *known != name);
        }
        self.given.push((name, value.to_owned()));
        Ok(())
    }

    /// What was given, as it was written.
    pub fn given(&self) -> &[(&'static str, String)] {
        &self.given
    }

    /// The cost that was asked for. The default is the peak, or what was live if an instant is asked for or compared with.
    pub fn cost(&self) -> Cost {
        self.cost.unwrap_or(if self.is_of_an_instant() { Cost::Live } else { Cost::Peak })
    }

    /// The same query of the other point or range of the trace that `compare` names; `None` if it names none.
    pub fn base(&self) -> Option<Query> {
        let (at, from, to) = match self.compare {
            Some(Compare::At(when)) => (Some(when), None, None),
            Some(Compare::Range(from, to)) => (None, Some(from), Some(to)),
            _ => return None,
        };
        Some(Query { at, from, to, ..self.clone() })
    }

    /// One of the profiles that the query needs has only what was live at one instant.
    pub const fn is_of_an_instant(&self) -> bool {
        self.at.is_some() || matches!(self.compare, Some(Compare::At(_)))
    }

    /// The same for a diff: a moment has nothing but what lives then.
    pub fn cost_of_diff(&self) -> Cost {
        match self.compare {
            Some(Compare::At(_)) => self.cost.unwrap_or(Cost::Live),
            _ => self.cost(),
        }
    }

    /// Blocks are picked by what only the events know.
    pub const fn picks_blocks(&self) -> bool {
        !self.threads.is_empty() || self.size.is_some() || self.lifetime.is_some()
    }

    /// Anything that changes numbers, not only how they are shown.
    pub const fn is_whole(&self) -> bool {
        let of_time = self.at.is_some() || self.from.is_some() || self.to.is_some();
        !of_time && self.include.is_empty() && self.exclude.is_empty() && !self.picks_blocks()
    }
}

fn parse_classes(text: &str) -> Option<CodeClassSet> {
    let mut set = CodeClassSet::default();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "all-but-mine" => {
                CodeClass::ALL
                    .into_iter()
                    .filter(|class| *class != CodeClass::Program)
                    .for_each(|class| set.insert(class));
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
