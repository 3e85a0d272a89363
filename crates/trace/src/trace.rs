//! The public API: a trace that is opened once and then asked.
use crate::answers::{Block, Change, Event, EventKind, Leak, Level, Sampling, Session, Site, SiteId, TotalErrors};
use crate::costs::{Costs, Totals};
use crate::error::Error;
use crate::lens::Lens;
#[cfg(unix)]
use crate::open::OpenOptions;
use crate::open::OpenTrace;
use crate::print_json;
use crate::selection::Selection;
#[cfg(unix)]
use crate::trace_file::TraceFile;
use analysis::view;
use analysis::{
    BadQuery, CodeClass, CodeClasses, Cost, Pairing, ProcessTree, Query, Source, StackTable, Suppressions, why_empty,
};
#[cfg(unix)]
use format::Domain;
use std::collections::BTreeMap;
#[cfg(unix)]
use std::fs::File;
use std::path::Path;

/// An open trace, or a heap profile of another tool. [The crate's page](crate) has an example of each question.
///
/// Opening reads the whole file once. Its memory is bounded by the live blocks and the stacks, not by the events. The
/// trace stays the same if the file is replaced or deleted.
pub struct Trace {
    open: OpenTrace,
    classes: CodeClasses,
    table: StackTable,
}

#[cfg(unix)]
impl Trace {
    /// Opens a trace of this heaptrack or of KDE's heaptrack, or a heap profile of pprof, DHAT, massif, gperftools or
    /// jemalloc. A file that is damaged or was not finished opens, too: see [`Trace::not_seen`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::of(OpenTrace::open(path)?))
    }

    /// As [`Trace::open`], with an index that makes answers about any range of time fast. Opening takes longer.
    pub fn open_indexed(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::of(OpenOptions::new().indexed(true).open(path, |_, _| ())?))
    }

    /// As [`Trace::open`], for the blocks that the program reported itself through `heaptrack_api.h`.
    pub fn open_custom(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::of(OpenOptions::new().domain(Domain::Custom).open(path, |_, _| ())?))
    }

    /// As [`Trace::open_indexed`], for a file that is open already. `path` is its name in messages.
    pub fn open_file(file: File, path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = TraceFile::of(file, path.as_ref())?;
        Ok(Self::of(OpenOptions::new().indexed(true).open_file(file, |_, _| ())?))
    }
}

impl Trace {
    /// Known leaks are those of heaptrack's own list and those that the program names itself.
    #[doc(hidden)]
    pub fn of(open: OpenTrace) -> Self {
        let definitions = open.engine().definitions();
        let classes = CodeClasses::new(&definitions.session.exe);
        let mut known = Suppressions::new();
        known.add_builtin();
        known.add(&definitions.suppressions, Source::Embedded);
        let table = open.table(&classes, known);
        Trace { open, classes, table }
    }

    /// The path with which the trace was opened.
    pub fn path(&self) -> &Path {
        self.open.path()
    }

    /// The recorded program.
    pub fn session(&self) -> Session<'_> {
        let session = &self.open.engine().definitions().session;
        Session {
            command: &session.command,
            executable: &session.exe,
            pid: session.pid,
            started_unix_ns: session.started_unix_ns,
            is_attached: session.attached,
            tool: &session.tool,
            sampling: session.sampling.map(|sampling| Sampling {
                rate_bytes: sampling.rate,
                exact_above_bytes: Some(sampling.exact_above).filter(|bytes| *bytes > 0),
            }),
        }
    }

    /// The numbers of the whole session.
    pub fn totals(&self) -> Totals {
        let engine = self.open.engine();
        Totals::new(&engine.totals(), engine.definitions())
    }

    /// How certain the totals are: the numbers of 95 % of all recordings are within so much of the truth. `None` if every
    /// block was recorded.
    pub fn total_errors(&self) -> Option<TotalErrors> {
        self.open.engine().whole_intervals().map(|intervals| intervals.totals.into())
    }

    /// How many blocks of this size one block of [`Trace::each_event`] and [`Trace::each_block`] stands for: 1, or more if
    /// blocks were sampled.
    pub fn weight(&self, size: u64) -> f64 {
        let sampling = self.open.engine().definitions().session.sampling;
        sampling.map_or(1.0, |sampling| sampling.weight(size).blocks)
    }

    /// True if all events of the session are in the trace: the file was finished, and nothing is lost or damaged.
    pub fn is_complete(&self) -> bool {
        self.open.is_complete()
    }

    /// True for a heap profile of another tool, which has sums by stack and no events.
    pub fn is_heap_profile(&self) -> bool {
        self.open.engine().definitions().profile.is_some()
    }

    /// What could not be recorded or read, in sentences for people. Empty if nothing is known to be missing.
    pub fn not_seen(&self) -> Vec<String> {
        self.open.not_seen()
    }

    /// Every stack that has any cost in the selected part, in the order of their numbers.
    pub fn sites(&self, selection: &Selection) -> Result<Vec<Site>, Error> {
        let query = self.fitting(selection)?;
        let profile = self.open.profile(&query)?;
        let definitions = self.open.engine().definitions();
        let site = |&(id, costs): &(SiteId, analysis::Costs)| Site {
            id,
            costs: Costs::new(costs, definitions),
            is_suppressed: self.table.stack(id).suppressed.is_some(),
        };
        Ok(profile.stacks.iter().map(site).collect())
    }

    /// What each stack held at an instant, such as `1.5s`, `50%` or `peak`.
    pub fn live_at(&self, instant: &str) -> Result<Vec<Site>, Error> {
        let mut sites = self.sites(&Selection::new([("at", instant)])?)?;
        sites.retain(|site| site.costs.live_allocations() > Some(0));
        Ok(sites)
    }

    /// The number of stacks. They are numbered from 0.
    pub fn stack_count(&self) -> SiteId {
        self.table.stacks.len() as SiteId
    }

    /// The levels of a stack with their names, the innermost first. Empty if there is no stack of this number.
    pub fn stack(&self, site: SiteId) -> impl Iterator<Item = Level<'_>> {
        let table = &self.table;
        let level = |level: &analysis::StackTableLevel| Level {
            function: table.text(level.function),
            short: table.text(level.short),
            file: table.text(level.file),
            line: level.line,
            module: table.text(level.module),
            offset: level.offset,
            is_inlined: level.inlined,
            is_own_code: level.class == Some(CodeClass::Program),
        };
        table.path(table.stack(site).node).filter_map(|node| table.level(node)).map(level)
    }

    /// All places that hold blocks when the selected part ends, with a verdict. Those with the most bytes come first.
    pub fn leaks(&self, selection: &Selection) -> Result<Vec<Leak>, Error> {
        self.needs_events("leaks with verdicts")?;
        let query = self.fitting(selection)?;
        let mut blocks = self.open.blocks()?;
        let judged = view::judge(&mut self.open.for_view(&self.table, &mut blocks), &query);
        Ok(judged.map_err(analysis::AnswerError::from)?.into_iter().map(Leak::from).collect())
    }

    /// Calls `each` for every allocation and every free in the selected part, in their order. If blocks were sampled, these
    /// are the events of the blocks that were taken; [`Trace::weight`] says how many blocks each of them stands for.
    pub fn each_event(&self, selection: &Selection, mut each: impl FnMut(&Event)) -> Result<(), Error> {
        self.needs_events("events")?;
        let query = self.fitting(selection)?;
        let mut blocks = self.open.blocks()?;
        let walked = self.open.engine().each_block_event(&mut blocks, &query, &mut |event| each(&event.into()));
        walked.map_err(analysis::AnswerError::from)?;
        Ok(())
    }

    /// Calls `each` for every block that was allocated in the selected part: when it is freed, and at the end for those
    /// that are still live. Keeps only the live blocks in memory. For sampled blocks see [`Trace::each_event`].
    pub fn each_block(&self, selection: &Selection, mut each: impl FnMut(&Block)) -> Result<(), Error> {
        let mut live: BTreeMap<u64, Block> = BTreeMap::new();
        self.each_event(selection, |event| {
            let Event { block: number, site, size, allocated_ns, .. } = *event;
            if event.kind == EventKind::Alloc {
                live.insert(number, Block { number, site, size, allocated_ns, end: None });
            } else if let Some(block) = live.remove(&number) {
                each(&Block { end: Some((event.time_ns, event.kind)), ..block });
            }
        })?;
        live.values().for_each(each);
        Ok(())
    }

    /// What changed since another trace, by function, the largest change first. The word `cost` says in which cost.
    pub fn changes(&self, base: &Trace, selection: &Selection) -> Result<Vec<Change>, Error> {
        let (query, before) = (self.fitting(selection)?, base.fitting(selection)?);
        let cost = query.cost_of_diff();
        for trace in [self, base] {
            trace.knows(cost)?;
        }
        let (after, before) = (self.open.profile(&query)?, base.open.profile(&before)?);
        let pairing = Pairing::new(&self.table, &base.table);
        let rows = view::diff_functions((&after, &self.table), (&before, &base.table), &pairing, &query, cost);
        Ok(rows.into_iter().map(Change::from).collect())
    }

    /// A view of docs/views.md as JSON, such as `summary`, `timeline` or `leaks`. It is the same text that
    /// `heaptrack print --view NAME` prints.
    pub fn view(&self, name: &str, selection: &Selection) -> Result<String, Error> {
        self.compared_view(name, None, selection)
    }

    /// As [`Trace::view`], for the view `diff` with another trace as its base.
    pub fn diff_view(&self, base: &Trace, selection: &Selection) -> Result<String, Error> {
        let name = base.path().to_string_lossy().into_owned();
        self.compared_view("diff", Some(base), &selection.clone().with("compare", &name)?)
    }

    fn compared_view(&self, name: &str, base: Option<&Trace>, selection: &Selection) -> Result<String, Error> {
        let base = base.map(|base| (&base.open, &base.table));
        self.open.view(name, &selection.query, &self.table, base)
    }

    /// The report that `heaptrack print --json` prints, with at most `limit` entries in each list. Blocks that the program
    /// reported itself are not in it: their key, `custom`, is null.
    pub fn json(&self, selection: &Selection, limit: Option<usize>) -> Result<String, Error> {
        let query = self.fitting(selection)?;
        let engine = self.open.engine();
        let whole = query.is_whole().then(|| engine.whole_profile()).flatten();
        let profile = whole.map_or_else(|| self.open.profile(&query), Ok)?;
        let tree = match engine.definitions().processes.is_empty() {
            true => ProcessTree::default(),
            false => {
                let mut blocks = self.open.blocks()?;
                engine.process_tree(&mut blocks).map_err(analysis::AnswerError::from)?
            }
        };
        let mut blocks = self.open.blocks()?;
        let allocators = view::allocator_rows(&mut self.open.for_view(&self.table, &mut blocks), &query, &profile);
        let note = why_empty(engine, &profile, &query);
        let intervals = self.open.intervals(&query)?;
        let report = print_json::Report {
            trace: &self.open,
            classes: &self.classes,
            profile: &profile,
            intervals: intervals.as_ref(),
            table: &self.table,
            lens: &Lens::new(&query, &self.classes),
            suppress: query.suppressions,
            limit,
            cost: query.cost,
            note: note.as_deref(),
            tree: Some(&tree),
            allocators: allocators.map_err(analysis::AnswerError::from)?,
            custom: None,
        };
        let mut text = Vec::new();
        print_json::report(&mut text, &report).map_err(|error| Error::File(error.to_string()))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The parts below, for heaptrack's own programs. No promise is made about them.
    #[doc(hidden)]
    pub const fn parts(&self) -> (&OpenTrace, &StackTable) {
        (&self.open, &self.table)
    }

    /// The query of a selection, for heaptrack's own programs.
    #[doc(hidden)]
    pub fn query(&self, selection: &Selection) -> Result<Query, Error> {
        self.fitting(selection)
    }

    /// The query, or an error if it asks for something that this trace does not have.
    fn fitting(&self, selection: &Selection) -> Result<Query, Error> {
        let engine = self.open.engine();
        selection.query.check()?;
        if let Some(misfit) = selection.query.misfit(engine) {
            return Err(Error::Selection(misfit.to_string()));
        }
        if let Some(cost) = selection.query.cost {
            self.knows(cost)?;
        }
        Ok(selection.query.within(engine))
    }

    fn knows(&self, cost: Cost) -> Result<(), Error> {
        let path = self.path().display();
        match self.open.engine().definitions().knows(cost) {
            true => Ok(()),
            false => Err(BadQuery::Whole(format!("{path} does not know the cost `{}`", cost.name())).into()),
        }
    }

    fn needs_events(&self, what: &str) -> Result<(), Error> {
        match self.is_heap_profile() {
            false => Ok(()),
            true => {
                let path = self.path().display();
                Err(Error::Selection(format!("{what} need events, and {path} is a heap profile, which has only sums")))
            }
        }
    }
}
