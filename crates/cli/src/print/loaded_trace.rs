//! A trace with everything that the outputs of `print` need: the counted trace, its stacks, and the profile that the
//! query selects.
use super::options::Print;
use super::progress::Progress;
use super::text::Left;
use crate::check::all_rules;
use crate::trouble::{counted, unreadable, without_domain};
use analysis::view::{self, AllocatorRow, View};
use analysis::{CodeClasses, Intervals, Misfit, ProcessTree, Profile, Query, StackTable, When, why_empty};
use anyhow::Context;
use format::{Domain, Exit, Process};
use heaptrack_trace::lens::Lens;
use heaptrack_trace::{AskError, OpenOptions, OpenTrace, print_json};
use std::io::Write;
use std::path::Path;

pub struct LoadedTrace {
    pub trace: OpenTrace,
    /// Tells which frames are the user's own code.
    pub classes: CodeClasses,
    pub table: StackTable,
    pub profile: Profile,
    /// How certain the profile is. `None` if every block was recorded.
    pub intervals: Option<Intervals>,
    /// The same trace, loaded for the blocks that the program reported itself, if it reported any.
    pub custom: Option<Box<LoadedTrace>>,
}

impl LoadedTrace {
    pub fn new(path: &Path, options: &Print, query: &Query, progress: Progress) -> anyhow::Result<Self> {
        let mut asked = Self::of(query.domain, path, options, query, progress)?;
        if !asked.trace.has(query.domain) {
            return Err(without_domain(query.domain, path));
        }
        if query.domain == Domain::Malloc && asked.trace.has_custom() {
            asked.custom = Some(Box::new(Self::of(Domain::Custom, path, options, query, progress)?));
        }
        Ok(asked)
    }

    fn of(domain: Domain, path: &Path, options: &Print, query: &Query, progress: Progress) -> anyhow::Result<Self> {
        let trace = open(path, domain, progress).map_err(|error| unreadable(path, &error))?;
        let engine = trace.engine();
        let classes = code_classes(&trace, options.rules.as_deref())?;
        let table = trace.table(&classes, options.known.load(&engine.definitions().suppressions)?);
        // Only the domain that the query asks for must fit the query, because the other one may have its peak at
        // another time.
        if domain == query.domain {
            check_misfit(&trace, query)?;
        }
        let query = &query.within(engine);
        let whole = query.is_whole().then(|| engine.whole_profile()).flatten();
        let profile = match whole {
            Some(whole) => whole,
            None => trace.profile(query).map_err(|error| unreadable(path, &error))?,
        };
        let table = table.heeding(query).into_owned();
        let intervals = trace.intervals(query).map_err(|error| unreadable(path, &error))?;
        Ok(LoadedTrace { trace, classes, table, profile, intervals, custom: None })
    }

    /// Returns the error for this trace's file when it cannot be read a second time.
    pub fn unreadable(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        unreadable(self.trace.path(), error)
    }

    pub fn lens(&self, query: &Query) -> Lens<'_> {
        Lens::new(query, &self.classes)
    }

    /// Returns the profile of another moment or range of this trace, if the query compares with one.
    pub fn compared(&self, query: &Query) -> anyhow::Result<Option<Profile>> {
        let Some(before) = query.base() else { return Ok(None) };
        Ok(Some(self.trace.profile(&before).map_err(|error| self.unreadable(&error))?))
    }

    pub fn write_view(
        &self,
        view: View,
        query: &Query,
        base: Option<&LoadedTrace>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let base = base.map(|base| (&base.trace, &base.table));
        self.trace.answer(view, query, &self.table, base, out).map_err(|error| match error {
            AskError::Read(error) => self.unreadable(&error),
            AskError::Answer(error) => error.into(),
        })
    }

    pub fn write_json(&self, options: &Print, query: &Query, out: &mut impl Write) -> anyhow::Result<()> {
        let note = self.why_empty(query);
        let lens = self.lens(query);
        let custom = self.custom.as_deref().map(|custom| (custom, custom.lens(query)));
        let custom = custom.as_ref().map(|(custom, lens)| custom.json(query, options, lens));
        let tree = self.process_tree()?;
        let report = print_json::Report {
            custom: custom.as_ref(),
            note: note.as_deref(),
            tree: Some(&tree),
            allocators: self.allocators(query)?,
            ..self.json(query, options, &lens)
        };
        Ok(print_json::report(out, &report)?)
    }

    fn json<'a>(&'a self, query: &Query, options: &Print, lens: &'a Lens<'a>) -> print_json::Report<'a> {
        print_json::Report {
            trace: &self.trace,
            classes: &self.classes,
            profile: &self.profile,
            intervals: self.intervals.as_ref(),
            table: &self.table,
            lens,
            suppress: query.suppressions,
            limit: options.given_rows(),
            cost: query.cost,
            note: None,
            tree: None,
            allocators: Vec::new(),
            custom: None,
        }
    }

    /// The processes of the trace. Empty unless it is that of a tree of processes.
    pub fn process_tree(&self) -> anyhow::Result<ProcessTree> {
        if self.trace.engine().definitions().processes.is_empty() {
            return Ok(ProcessTree::default());
        }
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        self.trace.engine().process_tree(&mut blocks).map_err(|error| self.unreadable(&error))
    }

    /// The blocks by their allocator.
    pub fn allocators(&self, query: &Query) -> anyhow::Result<Vec<AllocatorRow>> {
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        let mut trace = self.trace.for_view(&self.table, &mut blocks);
        let query = query.within(self.trace.engine());
        view::allocator_rows(&mut trace, &query, &self.profile).map_err(|error| self.unreadable(&error))
    }

    pub fn why_empty(&self, query: &Query) -> Option<String> {
        why_empty(self.trace.engine(), &self.profile, query)
    }

    /// Returns the words for memory that was not freed.
    pub fn left(&self) -> Left {
        let range = &self.profile.range;
        let is_end = matches!(range.to, When::End) || range.to_ns >= self.trace.engine().runtime_ns();
        match is_end {
            false => Left::at(range.to_ns),
            true if self.runs_on() => Left::at_detach(),
            true => Left::leaked(),
        }
    }

    /// Returns true if the recording was attached and ended before the program, as far as is known. With `--follow`, the ends of all processes
    /// are in the trace.
    fn runs_on(&self) -> bool {
        let definitions = self.trace.engine().definitions();
        let has_ended = |process: &Process| process.end.is_some_and(|end| end.exit != Exit::Detached);
        let all_ended = !definitions.processes.is_empty() && definitions.processes.values().all(has_ended);
        definitions.session.attached && !all_ended
    }

    /// Returns the bytes and blocks that are live at the end of the range and are known leaks.
    pub fn suppressed(&self, profile: &Profile, query: &Query) -> (u64, u64) {
        let is_known = |site: u32| query.suppressions && self.table.stack(site).suppressed.is_some();
        let known = profile.stacks.iter().filter(|(site, _)| is_known(*site));
        known.fold((0, 0), |(bytes, blocks): (u64, u64), (_, costs)| {
            (bytes.saturating_add(costs.live_bytes), blocks.saturating_add(costs.live_allocations))
        })
    }
}

/// Returns the rules that tell which frames are the user's own code. `rules`: the file of `--rules`. Rules of
/// `heaptrack.toml` come after its rules.
pub fn code_classes(trace: &OpenTrace, rules: Option<&Path>) -> anyhow::Result<CodeClasses> {
    let mut classes = CodeClasses::new(&trace.engine().definitions().session.exe);
    if let Some(rules) = all_rules(rules)? {
        classes.add_rules(&rules.text).with_context(|| rules.name.clone())?;
    }
    Ok(classes)
}

/// Refuses a query that asks for something that the trace does not have.
pub fn check_misfit(trace: &OpenTrace, query: &Query) -> anyhow::Result<()> {
    let Some(Misfit { name, value, reason }) = query.misfit(trace.engine()) else { return Ok(()) };
    anyhow::bail!("--{name} {value} {reason} ({})", trace.path().display())
}

/// If something is missing in the trace, says so in one sentence on stderr.
pub fn warn_of_missing(trace: &OpenTrace) {
    let definitions = trace.engine().definitions();
    let name = trace.path().display();
    let faults = trace.engine().faults();
    if trace.damage_count() > 0 || !faults.is_empty() {
        crate::say(format_args!("heaptrack: {name} is damaged in places; what could be read is shown"));
    } else if definitions.losses.lost_events > 0 && definitions.has_ended() {
        let lost = counted(definitions.losses.lost_events, "event is", "events are");
        crate::say(format_args!("heaptrack: {lost} missing in {name}; what is there is shown"));
    } else if !trace.is_complete() && definitions.session.kde().is_none() {
        crate::say(format_args!("heaptrack: {name} is not complete; what is there is shown"));
    }
}

fn open(path: &Path, domain: Domain, mut progress: Progress) -> Result<OpenTrace, format::Error> {
    progress.start();
    let trace = OpenOptions::new().domain(domain).open(path, |position, size| progress.at(position, size));
    progress.end();
    trace
}
