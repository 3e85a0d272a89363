//! Answers as JSON, for `print --json --view NAME` and the page's server. docs/views.md is the contract.
//!
//! Receives: an engine, the table of its stacks, its blocks, a query. Returns: JSON. Must hold: trees, flame graphs,
//! callers and callees are sums over the same costs per stack, so they agree with each other to the last byte.
mod allocators;
mod bands;
mod callers;
mod diff;
mod flame;
mod keys;
mod lazy_tree;
mod leaks;
mod lifetimes;
mod memory;
mod memory_map;
mod paths;
mod processes;
mod sizes;
mod source;
mod stacks;
mod sum;
mod summary;
mod support;
mod threads;
mod timeline;
mod tree;
mod wrapper_rows;

pub use allocators::{AllocatorRow, allocator_rows};
pub use diff::{FunctionDiff, State, functions as diff_functions, functions_of_one as diff_of_one};
pub use flame::{folded, label};
pub use keys::namespace;
pub use lazy_tree::{LazyNodeId, LazyTree};
pub use leaks::{Leak, Verdict, judge};
pub use lifetimes::{LifetimeBucket, lifetimes};
pub use memory::{
    Gain, Hint, gives_back_bytes, memory_hints, memory_instants, memory_sums, named_parts, together_gives_back_bytes,
    why_no_memory,
};
pub use memory_map::{MapOwner, MapRegion, highest_map, map_regions};
pub use paths::Paths;
pub use processes::{ProcessCosts, combined_peak, exit_words, process_rows, processes};
pub use sizes::{SizeBucket, sizes};
pub use source::{SourceFile, SourceLine, source_files};
pub use sum::Sum;
pub use summary::{Blamed, SuppressionRow, blamed_node, by_blamed, suppression_rows, unseen};
pub use support::heeding;
pub use threads::{ThreadRow, threads};
pub use timeline::{TimelineColumns, timeline_columns};
pub use tree::Direction;
pub use wrapper_rows::{WrapperRow, wrapper_rows};

use crate::emptiness::{why_empty, why_none_of};
use crate::engine::Engine;
use crate::intervals::Variances;
use crate::named_enum::named_enum;
use crate::pass::{Blocks, Gone};
use crate::profile::{Profile, Range};
use crate::query::{BadQuery, Compare, Query};
use crate::query_words::Word;
use crate::stack_table::StackTable;
use format::Sampling;
use keys::Keys;
use serde::{Serialize, Serializer};
use std::io::{self, Write};
use sum::Totals;

/// A trace that can be asked.
pub struct Trace<'a> {
    pub engine: &'a Engine,
    pub table: &'a StackTable,
    pub blocks: &'a mut dyn Blocks,
    /// The trace has all events of the session.
    pub complete: bool,
}

named_enum! {
    pub enum View {
        Summary = "summary",
        Stacks = "stacks",
        Profile = "profile",
        BottomUp = "bottom-up",
        TopDown = "top-down",
        Callers = "callers",
        Flame = "flame",
        Timeline = "timeline",
        Sizes = "sizes",
        Lifetimes = "lifetimes",
        Threads = "threads",
        Allocators = "allocators",
        Processes = "processes",
        Memory = "memory",
        Map = "map",
        Leaks = "leaks",
        Source = "source",
        Suppressions = "suppressions",
        Diff = "diff",
    }
}

#[derive(Debug)]
pub enum AnswerError {
    Gone(Gone),
    Query(BadQuery),
    Io(io::Error),
}

impl std::fmt::Display for AnswerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnswerError::Gone(gone) => gone.fmt(f),
            AnswerError::Query(bad) => bad.fmt(f),
            AnswerError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AnswerError {}

impl From<Gone> for AnswerError {
    fn from(gone: Gone) -> Self {
        AnswerError::Gone(gone)
    }
}

impl From<BadQuery> for AnswerError {
    fn from(bad: BadQuery) -> Self {
        AnswerError::Query(bad)
    }
}

/// Writes the answer to `out`. `base`: the trace of `compare=FILE`, which the caller has to open.
pub fn answer(
    view: View,
    query: &Query,
    trace: &mut Trace<'_>,
    base: Option<&mut Trace<'_>>,
    out: &mut dyn Write,
) -> Result<(), AnswerError> {
    query.check()?;
    support::check(view, query)?;
    if let Some(base) = &base {
        refuse_samples([trace.engine, base.engine])?;
    }
    let mut within = query.within(trace.engine);
    if let Some(known) = trace.engine.definitions().profile {
        within = known.check(view, &within)?;
    }
    let (asked, query) = (query, &within);
    let table = trace.table.heeding(query);
    let trace = &mut Trace { engine: trace.engine, table: &table, blocks: trace.blocks, complete: trace.complete };
    let profile = trace.engine.profile(trace.blocks, query)?;
    let mut envelope = Envelope::new(view, query, trace, &profile, out);
    let table = trace.table;
    let none_of_cost = || why_none_of(query.cost(), &profile, table, query);
    let keys = || Keys::new(table, query);
    match view {
        View::Summary => {
            let tree = trace.engine.process_tree(trace.blocks)?;
            let allocators = allocators::allocator_rows(trace, query, &profile)?;
            envelope.errors = trace.engine.intervals(trace.blocks, query)?.map(|intervals| Errors(intervals.totals));
            envelope.write(summary::Summary::new(trace, &profile, query, (tree, allocators)), None)
        }
        View::Stacks => envelope.write(stacks::Stacks(table), None),
        View::Profile => write_profile(&mut envelope, trace, &profile, query),
        View::BottomUp => {
            envelope.write(tree::Tree::new(&profile, table, &keys(), query, tree::Direction::BottomUp), none_of_cost())
        }
        View::TopDown => {
            envelope.write(tree::Tree::new(&profile, table, &keys(), query, tree::Direction::TopDown), none_of_cost())
        }
        View::Callers => {
            let keys = keys();
            let callers = callers::Callers::new(&profile, table, &keys, query);
            let note = callers.why_none_selected(query).or_else(none_of_cost);
            envelope.write(callers, note)
        }
        View::Flame => envelope.write(flame::Flame { folded: flame::folded(&profile, table, query) }, none_of_cost()),
        View::Timeline => envelope.write(timeline::Timeline::new(trace, query)?, None),
        View::Sizes => envelope.write(sizes::Sizes::new(trace, query)?, None),
        View::Lifetimes => envelope.write(lifetimes::Lifetimes::new(trace, query)?, None),
        View::Threads => envelope.write(threads::Threads::new(trace, query)?, None),
        View::Allocators => envelope.write(allocators::Allocators::new(trace, query, &profile)?, None),
        View::Processes => {
            let processes = processes::Processes::new(trace, query)?;
            let note = processes.why_empty();
            envelope.write(processes, note)
        }
        View::Memory => {
            let memory = memory::Memory::new(trace, query);
            let note = memory.why_empty(trace);
            envelope.write(memory, note)
        }
        View::Map => {
            let map = memory_map::Map::new(trace, query);
            let note = map.why_empty(trace);
            envelope.write(map, note)
        }
        View::Leaks => write_leaks(&mut envelope, trace, query),
        View::Source => {
            let source = source::Source::new(&profile, table, query);
            let note = source.why_empty(query);
            envelope.write(source, note)
        }
        View::Suppressions => write_suppressions(&mut envelope, table, &profile),
        View::Diff => {
            let diff = diff::Diff::new(trace, base, &profile, asked, query)?;
            // One side may be empty. That is a difference and not an empty answer.
            envelope.note = query.misfit(trace.engine).map(|misfit| misfit.to_string());
            let note = diff.why_empty();
            envelope.write(diff, note)
        }
    }
}

/// Refuses to compare traces if the blocks of one of them were sampled: their difference may be chance.
pub fn refuse_samples<'a>(engines: impl IntoIterator<Item = &'a Engine>) -> Result<(), BadQuery> {
    match engines.into_iter().any(|engine| engine.definitions().session.sampling.is_some()) {
        true => Err(BadQuery::Whole(
            "a comparison of traces needs every block, and those of one of them were sampled (--sample)".into(),
        )),
        false => Ok(()),
    }
}

fn write_profile(
    envelope: &mut Envelope<'_>,
    trace: &mut Trace<'_>,
    profile: &Profile,
    query: &Query,
) -> Result<(), AnswerError> {
    let Some(base) = base_profile(trace, query)? else {
        return envelope.write(stacks::Columns(profile), None);
    };
    let base_totals = Totals::new(&base, trace.table, query);
    envelope.write(stacks::Compared { profile, base: &base, base_totals }, None)
}

fn write_leaks(envelope: &mut Envelope<'_>, trace: &mut Trace<'_>, query: &Query) -> Result<(), AnswerError> {
    let sites = leaks::judge(trace, query)?;
    let note = sites.is_empty().then(|| "nothing is live at the end of this time".to_owned());
    envelope.write(leaks::Leaks { table: trace.table, sites }, note)
}

fn write_suppressions(envelope: &mut Envelope<'_>, table: &StackTable, profile: &Profile) -> Result<(), AnswerError> {
    let suppressions = summary::suppression_rows(profile, table);
    let note = suppressions.is_empty().then(|| "no suppression matches anything that is live".to_owned());
    envelope.write(summary::SuppressionTable { suppressions }, note)
}

/// The profile of the other point or range of the same trace. Another trace has other stacks, so `compare=FILE` is
/// refused.
fn base_profile(trace: &mut Trace<'_>, query: &Query) -> Result<Option<Profile>, AnswerError> {
    if let Some(Compare::File(_)) = query.compare {
        return Err(
            BadQuery::Whole("`compare=FILE` is for the view `diff`; here, compare with @T or @T..T".into()).into()
        );
    }
    let before = query.base().map(|before| before.within(trace.engine));
    let before = before.map(|before| trace.engine.profile(trace.blocks, &before));
    Ok(before.transpose()?)
}

struct Envelope<'a> {
    view: View,
    query: &'a Query,
    range: Range,
    totals: Totals,
    /// How blocks were sampled. Then all numbers of blocks and bytes are estimates.
    sampling: Option<Sampled>,
    /// Half the widths of the intervals of the totals. Only in the view `summary`.
    errors: Option<Errors>,
    /// Why the answer is empty, or which word of the query does not fit the trace.
    note: Option<String>,
    out: &'a mut dyn Write,
}

impl<'a> Envelope<'a> {
    fn new(view: View, query: &'a Query, trace: &Trace<'_>, profile: &Profile, out: &'a mut dyn Write) -> Self {
        let note = query.misfit(trace.engine).map(|misfit| misfit.to_string());
        Envelope {
            view,
            query,
            range: profile.range,
            totals: Totals::new(profile, trace.table, query),
            sampling: trace.engine.definitions().session.sampling.map(Sampled::from),
            errors: None,
            note: note.or_else(|| why_empty(trace.engine, profile, query)),
            out,
        }
    }
}

impl Envelope<'_> {
    /// `note`: the view's own note, used if there is no other one.
    fn write(&mut self, body: impl Serialize, note: Option<String>) -> Result<(), AnswerError> {
        #[derive(Serialize)]
        struct Times {
            from_ns: u64,
            to_ns: u64,
        }
        #[derive(Serialize)]
        struct Whole<'a, T: Serialize> {
            view: &'static str,
            query: Given<'a>,
            range: Times,
            totals: &'a Totals,
            #[serde(skip_serializing_if = "Option::is_none")]
            sampling: Option<&'a Sampled>,
            #[serde(skip_serializing_if = "Option::is_none")]
            totals_error: Option<&'a Errors>,
            note: Option<&'a str>,
            #[serde(flatten)]
            body: T,
        }
        let whole = Whole {
            view: self.view.name(),
            query: Given(self.query),
            range: Times { from_ns: self.range.from_ns, to_ns: self.range.to_ns },
            totals: &self.totals,
            sampling: self.sampling.as_ref(),
            totals_error: self.errors.as_ref(),
            note: self.note.as_deref().or(note.as_deref()),
            body,
        };
        serde_json::to_writer(&mut *self.out, &whole).map_err(|error| AnswerError::Io(error.into()))?;
        self.out.write_all(b"\n").map_err(AnswerError::Io)
    }
}

/// How blocks were sampled, as JSON outputs say it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sampled {
    pub rate_bytes: u64,
    /// Blocks of at least this size were all taken. Null if no size is large enough.
    pub exact_above_bytes: Option<u64>,
}

impl From<Sampling> for Sampled {
    fn from(sampling: Sampling) -> Self {
        let exact_above_bytes = Some(sampling.exact_above).filter(|bytes| *bytes > 0);
        Sampled { rate_bytes: sampling.rate, exact_above_bytes }
    }
}

/// Half the widths of the 95 % intervals, by the names of the totals.
#[derive(Clone, Debug)]
pub struct Errors(pub Variances);

impl Serialize for Errors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.errors().map(|(name, error)| (name.trim_end_matches("_error"), error)))
    }
}

/// The words of the query as they were written. Repeatable words are lists.
struct Given<'a>(&'a Query);

impl Serialize for Given<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let given = self.0.given();
        let mut map = serializer.serialize_map(None)?;
        for (at, (name, value)) in given.iter().enumerate() {
            if given[..at].iter().any(|(known, _)| known == name) {
                continue;
            }
            if Word::find(name).is_some_and(|word| word.is_repeatable) {
                let all: Vec<&str> =
                    given.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
                map.serialize_entry(name, &all)?;
            } else {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

/// Cuts a list to its first `limit` entries; 0 keeps all.
fn cut<T>(list: &mut Vec<T>, limit: usize) {
    if limit > 0 {
        list.truncate(limit);
    }
}
