//! The answers that views draw. Every number comes from `analysis`.
use crate::question::{Levels, Question};
use crate::views::ViewKind;
use analysis::view::{
    self, Blamed, Direction, FunctionDiff, LazyTree, Leak, LifetimeBucket, ProcessCosts, SizeBucket, SourceFile, Sum,
    ThreadRow, TimelineColumns, Trace,
};
use analysis::{
    AnswerError, Blocks, Cost, Engine, Pairing, Profile, Query, StackTable, to_signed, why_empty, why_none_of,
};
use format::MemoryInstant;
use std::borrow::Cow;
use std::sync::Arc;

/// What a view shows.
pub(crate) enum Data {
    Summary(Vec<SummaryList>),
    Flame(LazyTree),
    Tree(LazyTree),
    Mine(Vec<Blamed>),
    Leaks(Vec<Leak>),
    Sizes(Vec<SizeBucket>),
    Lifetimes(Vec<LifetimeBucket>),
    Threads(Vec<ThreadRow>),
    Processes(Vec<ProcessCosts>),
    /// Of a moment, at most one instant.
    Memory {
        instants: Vec<MemoryInstant>,
        /// About the last instant.
        hints: Vec<String>,
    },
    Source(Vec<SourceFile>),
    Compare(Comparison),
}

/// A list of the summary.
pub(crate) struct SummaryList {
    pub(crate) title: &'static str,
    pub(crate) cost: Cost,
    /// The sum of all rows, also of those that are not shown.
    pub(crate) total: i64,
    pub(crate) rows: Vec<Blamed>,
}

pub(crate) struct Comparison {
    pub(crate) cost: Cost,
    pub(crate) rows: Vec<FunctionDiff>,
    pub(crate) before: i64,
    pub(crate) after: i64,
}

pub(crate) struct Answer {
    pub(crate) view: ViewKind,
    pub(crate) question: Question,
    pub(crate) data: Data,
    pub(crate) table: Arc<StackTable>,
    pub(crate) totals: Sum,
    pub(crate) peak_time_ns: u64,
    /// Why the answer is empty, or which part of the question does not fit the trace.
    pub(crate) note: Option<String>,
    /// Whether only levels of the user's own code are shown.
    pub(crate) is_mine: bool,
}

/// The course of the whole session, for the blocks that the filters select.
pub(crate) struct Chart {
    pub(crate) columns: TimelineColumns,
}

/// The slices of a chart. A screen has fewer columns than that, and shows the highest of several slices.
const SLICES: usize = 512;

/// A trace that can be asked, with its table of stacks.
pub(crate) struct Asked<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) table: &'a Arc<StackTable>,
    pub(crate) blocks: &'a mut dyn Blocks,
    pub(crate) is_complete: bool,
}

impl Asked<'_> {
    fn for_view(&mut self) -> Trace<'_> {
        Trace { engine: self.engine, table: self.table, blocks: self.blocks, complete: self.is_complete }
    }

    fn profile(&mut self, query: &Query) -> Result<Profile, AnswerError> {
        Ok(self.engine.profile(self.blocks, &query.within(self.engine))?)
    }
}

/// Answers a question. `base`: the trace that it compares with, if that is another one.
pub(crate) fn answer(
    trace: &mut Asked<'_>,
    base: Option<Asked<'_>>,
    view: ViewKind,
    question: &Question,
    mine: f64,
) -> Result<Answer, AnswerError> {
    let is_mine = match question.levels {
        Levels::Auto => mine >= 0.5,
        levels => levels == Levels::Mine,
    };
    // A part of the session says little about leaks, so the verdicts are always those of the whole session.
    let query = if view == ViewKind::Leaks { question.selection(false)? } else { question.query(is_mine)? };
    let query = query.within(trace.engine);
    let table = match trace.table.heeding(&query) {
        Cow::Borrowed(_) => Arc::clone(trace.table),
        Cow::Owned(table) => Arc::new(table),
    };
    let (engine, blocks, is_complete) = (trace.engine, &mut *trace.blocks, trace.is_complete);
    let trace = &mut Asked { engine, table: &table, blocks, is_complete };
    let profile = Arc::new(trace.profile(&query)?);
    let misfit = query.misfit(trace.engine).map(|misfit| misfit.to_string());
    let mut note = misfit.or_else(|| why_empty(trace.engine, &profile, &query));
    let mut totals = Sum::default();
    for (site, costs) in &profile.stacks {
        totals.add(costs, query.suppressions && trace.table.stack(*site).suppressed.is_some());
    }
    let tree = |direction| LazyTree::new(Arc::clone(&profile), Arc::clone(trace.table), &query, direction);
    let data = match view {
        ViewKind::Summary => Data::Summary(summary(&profile, trace.table, &query, question)),
        ViewKind::Flame => Data::Flame(tree(Direction::TopDown)),
        ViewKind::TopDown => Data::Tree(tree(Direction::TopDown)),
        ViewKind::BottomUp => Data::Tree(tree(Direction::BottomUp)),
        ViewKind::Mine => Data::Mine(view::by_blamed(&profile, trace.table, &query, query.cost())),
        ViewKind::Leaks => Data::Leaks(view::judge(&mut trace.for_view(), &query)?),
        ViewKind::Sizes => Data::Sizes(view::sizes(&mut trace.for_view(), &query)?),
        ViewKind::Lifetimes => Data::Lifetimes(view::lifetimes(&mut trace.for_view(), &query)?),
        ViewKind::Threads => Data::Threads(view::threads(&mut trace.for_view(), &query)?),
        ViewKind::Processes => Data::Processes(view::processes(&mut trace.for_view(), &query)?),
        ViewKind::Memory => {
            let definitions = trace.engine.definitions();
            let named = |instant: &MemoryInstant| MemoryInstant {
                parts: view::named_parts(instant, definitions),
                ..instant.clone()
            };
            let instants = view::memory_instants(trace.engine, &query);
            let hints = instants.last().map(|last| view::memory_hints(trace.engine, trace.table, last));
            let hints = hints.unwrap_or_default().into_iter().map(|hint| hint.text).collect();
            Data::Memory { instants: instants.into_iter().map(named).collect(), hints }
        }
        ViewKind::Source => Data::Source(view::source_files(&profile, trace.table, &query)),
        ViewKind::Compare => Data::Compare(compare(trace, base, question, &profile)?),
    };
    if matches!(view, ViewKind::Flame | ViewKind::TopDown | ViewKind::BottomUp | ViewKind::Mine) {
        note = note.or_else(|| why_none_of(query.cost(), &profile, trace.table, &query));
    }
    if let Data::Memory { instants, .. } = &data {
        note = instants.is_empty().then(|| view::why_no_memory(trace.engine));
    }
    Ok(Answer {
        view,
        question: question.clone(),
        data,
        table: Arc::clone(trace.table),
        totals,
        peak_time_ns: profile.peak_time_ns,
        note: note.map(capital),
        is_mine,
    })
}

/// A sentence of the engine, which begins with a small letter, as one that stands alone.
fn capital(sentence: String) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn summary(profile: &Profile, table: &StackTable, query: &Query, question: &Question) -> Vec<SummaryList> {
    use crate::question::Mode;
    let lists: &[(&str, Cost)] = match question.mode() {
        Mode::Session => &[
            ("Held at the peak", Cost::Peak),
            ("Most allocations", Cost::Allocations),
            ("Not freed", Cost::Leaked),
            ("Temporary", Cost::Temporary),
        ],
        Mode::Range => &[
            ("Held at the range's peak", Cost::Peak),
            ("Most allocations", Cost::Allocations),
            ("Kept", Cost::Kept),
            ("Temporary", Cost::Temporary),
        ],
        Mode::Moment => &[("Live", Cost::Live)],
    };
    let list = |(title, cost): &(&'static str, Cost)| {
        let rows = view::by_blamed(profile, table, query, *cost);
        let total = rows.iter().map(|row| row.value).fold(0, i64::saturating_add);
        SummaryList { title, cost: *cost, total, rows }
    };
    lists.iter().map(list).collect()
}

fn compare(
    trace: &mut Asked<'_>,
    base: Option<Asked<'_>>,
    question: &Question,
    profile: &Profile,
) -> Result<Comparison, AnswerError> {
    let Some(query) = question.difference()? else {
        return Ok(Comparison { cost: question.cost(), rows: Vec::new(), before: 0, after: 0 });
    };
    let cost = query.cost_of_diff();
    let rows = match (base, query.base()) {
        (Some(mut base), _) => {
            let before = base.profile(&query)?;
            let pairing = Pairing::new(trace.table, base.table);
            view::diff_functions((profile, trace.table), (&before, base.table), &pairing, &query, cost)
        }
        (None, Some(earlier)) => {
            let before = trace.profile(&earlier)?;
            view::diff_of_one(profile, &before, trace.table, &query, cost)
        }
        (None, None) => Vec::new(),
    };
    let sum = |value: fn(&FunctionDiff) -> i64| rows.iter().map(value).fold(0, i64::saturating_add);
    let (before, after) = (sum(|row| row.before), sum(|row| row.after));
    Ok(Comparison { cost, rows, before, after })
}

/// The course of the whole session.
pub(crate) fn chart(trace: &mut Asked<'_>, question: &Question) -> Result<Chart, AnswerError> {
    let mut query = question.selection(false)?;
    query.points = SLICES;
    query.top = 0;
    let columns = view::timeline_columns(&mut trace.for_view(), &query)?;
    Ok(Chart { columns })
}

/// The share of the allocations and live blocks whose stacks have a level of the user's own code.
pub(crate) fn share_of_mine(trace: &mut Asked<'_>) -> f64 {
    let Ok(profile) = trace.profile(&Query::default()) else { return 1.0 };
    let (mut mine, mut all) = (0i64, 0i64);
    for (site, costs) in &profile.stacks {
        let amount = to_signed(costs.allocations.saturating_add(costs.live_allocations));
        all = all.saturating_add(amount);
        if trace.table.stack(*site).blamed.is_some() {
            mine = mine.saturating_add(amount);
        }
    }
    if all > 0 { mine as f64 / all as f64 } else { 1.0 }
}
