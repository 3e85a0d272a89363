//! `heaptrack print`: a trace as text for people or JSON for machines, on stdout.
//!
//! Works on what is there: a finished trace, one that is being written, one that was cut or damaged, one of KDE's. What was lost is
//! said in the output; only a file that is no trace at all is an error (one sentence, exit code 2).
mod entry;
mod event_blocks;
mod extra_sections;
mod json;
mod lens;
mod open;
mod options;
mod paint;
mod text;
mod units;

pub use options::{Print, Wrong, with_values};

use crate::destination::{Content, Destination, named_after, to_stdout};
use crate::trouble::{counted, unreadable};
use analysis::view::{self, View};
use analysis::{
    BadQuery, Compare, Cost, Costs, Lookup, Pairing, Profile, Query, StackTable, When, to_signed, why_empty,
    why_none_of,
};
use anyhow::{Context, anyhow};
use entry::{Numbers, difference, difference_of_one, merged, of_profile};
use format::{Domain, Source};
use lens::Lens;
use open::Opened;
use paint::Paint;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use text::{Ending, Left, Section, Style, seconds};

/// A trace with all that is needed to answer.
struct LoadedTrace {
    opened: Opened,
    table: StackTable,
    profile: Profile,
    /// The same of the blocks that the program reported itself, if it did.
    custom: Option<Box<LoadedTrace>>,
}

pub fn run(options: &Print) -> anyhow::Result<ExitCode> {
    to_stdout(|mut out| write(options, &mut out))?;
    Ok(ExitCode::SUCCESS)
}

/// The files that `-H`, `-F` and `-M` name.
struct Files {
    histogram: Option<Destination>,
    flamegraph: Option<Destination>,
    massif: Option<Destination>,
}

impl Files {
    fn of(options: &Print) -> anyhow::Result<Self> {
        let inputs = [Some(options.file()), options.diff.as_ref(), options.rules.as_ref()];
        let inputs = inputs.into_iter().chain([options.known.suppressions.as_ref()]).flatten();
        let inputs: Vec<&Path> = inputs.map(|path| path.as_path()).collect();
        let find = |option: &Option<PathBuf>, ending: &str| {
            let name = named_after(options.file(), ending);
            option.as_ref().map(|path| Destination::new(path, &name, Content::Other, &inputs)).transpose()
        };
        Ok(Files {
            histogram: find(&options.print_histogram, ".histogram")?,
            flamegraph: find(&options.print_flamegraph, ".folded")?,
            massif: find(&options.print_massif, ".massif")?,
        })
    }
}

pub(crate) fn write(options: &Print, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(number) = options.event {
        return write_event(options.file(), number, out);
    }
    let query = options.query().map_err(|bad| anyhow!(as_option(&bad)))?;
    let cost = options.flamegraph_cost_type.as_str();
    let flame_cost = Cost::ALL.iter().find(|(name, _)| *name == cost).map(|(_, cost)| *cost);
    let flame_cost = flame_cost.ok_or_else(|| {
        anyhow!("--flamegraph-cost-type {cost}: must be one of {}", Cost::ALL.map(|(name, _)| name).join(", "))
    })?;
    let files = Files::of(options)?;
    let mut asked = LoadedTrace::new(options.file(), options, &query)?;
    let view = match (options.view, &options.diff) {
        (None, Some(_)) if options.json => Some(View::Diff),
        (view, _) => view,
    };
    let mut base = match &query.compare {
        Some(Compare::File(file)) => Some(LoadedTrace::new(Path::new(file), options, &query)?),
        _ => None,
    };
    if let Some(view) = view {
        return asked.write_view(view, &query, base.as_mut(), out);
    }
    asked.warn();
    if options.json {
        asked.write_json(options, &query, out)?;
    } else {
        let paint = Paint::for_stdout();
        let before = asked.compared(&query)?;
        match (&base, &before) {
            (None, None) => asked.write_text(options, &query, paint, out)?,
            (Some(base), _) => asked.write_difference(Before::Other(base), options, &query, paint, out)?,
            (None, Some(before)) => asked.write_difference(Before::Same(before), options, &query, paint, out)?,
        }
    }
    asked.write_files(options, &files, &query, flame_cost)
}

/// What is wrong with a query, in the words of the command line.
fn as_option(bad: &BadQuery) -> String {
    match bad {
        BadQuery::Word { name, value, reason } => {
            let option = if name == "file" { "source-file" } else { name };
            let value = if value.is_empty() { "''" } else { value };
            format!("--{option} {value}: {reason}")
        }
        whole => whole.to_string(),
    }
}

/// What a trace is compared with.
#[derive(Clone, Copy)]
enum Before<'a> {
    /// Another trace.
    Other(&'a LoadedTrace),
    /// Another point or range of the same one.
    Same(&'a Profile),
}

fn write_event(path: &Path, number: u64, out: &mut impl Write) -> anyhow::Result<()> {
    let read = |error: format::Error| unreadable(path, &error);
    let none = || anyhow!("--event {number}: {} has no allocation of this number", path.display());
    let first = || anyhow!("--event 0: allocations are numbered from 1");
    let mut lookup = Lookup::new(number.checked_sub(1).ok_or_else(first)?);
    let mut source = crate::source::open(path).map_err(read)?;
    while let Some(block) = source.next_block().map_err(read)? {
        // A malformed block is as good as a lost one here.
        lookup.add(block).ok();
    }
    Ok(json::allocation(out, &lookup.finish().ok_or_else(none)?)?)
}

impl LoadedTrace {
    fn new(path: &Path, options: &Print, query: &Query) -> anyhow::Result<Self> {
        let mut asked = Self::of(query.domain, path, options, query)?;
        if query.domain == Domain::Custom && !asked.opened.has_custom {
            anyhow::bail!("--domain custom: the program of {} reported no blocks of custom allocators", path.display());
        }
        if query.domain == Domain::Malloc && asked.opened.has_custom {
            asked.custom = Some(Box::new(Self::of(Domain::Custom, path, options, query)?));
        }
        Ok(asked)
    }

    /// Only the domain that the query asks for must fit it: the other one may have its peak at another time.
    fn of(domain: Domain, path: &Path, options: &Print, query: &Query) -> anyhow::Result<Self> {
        let mut opened = Opened::open(path, domain).map_err(|error| unreadable(path, &error))?;
        if let Some(file) = &options.rules {
            let rules = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
            opened.classes.add_rules(&rules).with_context(|| format!("{}", file.display()))?;
        }
        let table = StackTable::new(
            opened.engine.definitions(),
            &opened.classes,
            options.known.load(&opened.engine.definitions().suppressions)?,
        );
        if domain == query.domain
            && let Some(misfit) = query.misfit(&opened.engine)
        {
            let analysis::Misfit { name, value, reason } = misfit;
            anyhow::bail!("--{name} {value} {reason} ({})", path.display());
        }
        let query = &query.within(&opened.engine);
        let whole = query.is_whole().then(|| opened.engine.whole_profile()).flatten();
        let profile = match whole {
            Some(whole) => whole,
            None => {
                let mut again = opened.again().map_err(|error| unreadable(path, &error))?;
                opened.engine.profile(&mut again, query).map_err(|error| unreadable(path, &error))?
            }
        };
        Ok(LoadedTrace { opened, table, profile, custom: None })
    }

    /// The other point or range of the same trace that the query compares with.
    fn compared(&self, query: &Query) -> anyhow::Result<Option<Profile>> {
        let Some(before) = query.base() else { return Ok(None) };
        let gone = |error: &dyn std::fmt::Display| unreadable(&self.opened.path, error);
        let mut again = self.opened.again().map_err(|error| gone(&error))?;
        Ok(Some(self.opened.engine.profile(&mut again, &before).map_err(|error| gone(&error))?))
    }

    fn write_json(&self, options: &Print, query: &Query, out: &mut impl Write) -> anyhow::Result<()> {
        let note = self.why_empty(query);
        let lens = Lens::new(query, &self.opened.classes);
        let custom = self.custom.as_deref().map(|custom| (custom, Lens::new(query, &custom.opened.classes)));
        let custom = custom.as_ref().map(|(custom, lens)| custom.json(query, options, lens));
        let report =
            json::Report { custom: custom.as_ref(), note: note.as_deref(), ..self.json(query, options, &lens) };
        Ok(json::report(out, &report)?)
    }

    fn json<'a>(&'a self, query: &Query, options: &Print, lens: &'a Lens<'a>) -> json::Report<'a> {
        let LoadedTrace { opened, table, profile, .. } = self;
        json::Report {
            opened,
            profile,
            table,
            lens,
            suppress: query.suppressions,
            limit: options.given_rows(),
            cost: query.cost,
            note: None,
            custom: None,
        }
    }

    fn why_empty(&self, query: &Query) -> Option<String> {
        why_empty(&self.opened.engine, &self.profile, query)
    }

    /// One sentence about what is missing.
    fn warn(&self) {
        let definitions = self.opened.engine.definitions();
        let name = self.opened.path.display();
        let faults = self.opened.engine.faults();
        if self.opened.damage_count > 0 || !faults.is_empty() {
            crate::say(format_args!("heaptrack: {name} is damaged in places; what could be read is shown"));
        } else if definitions.losses.lost_events > 0 && definitions.has_ended() {
            let lost = counted(definitions.losses.lost_events, "event is", "events are");
            crate::say(format_args!("heaptrack: {lost} missing in {name}; what is there is shown"));
        } else if !self.opened.complete() && definitions.session.kde().is_none() {
            crate::say(format_args!("heaptrack: {name} is not complete; what is there is shown"));
        }
    }

    fn write_view(
        &mut self,
        view: View,
        query: &Query,
        base: Option<&mut LoadedTrace>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let again = |asked: &LoadedTrace| asked.opened.again().map_err(|error| unreadable(&asked.opened.path, &error));
        let mut blocks = again(self)?;
        let mut base_blocks = base.as_ref().map(|base| again(base)).transpose()?;
        let mut trace = view::Trace {
            engine: &self.opened.engine,
            table: &self.table,
            blocks: &mut blocks,
            complete: self.opened.complete(),
        };
        let mut other = match (&base, &mut base_blocks) {
            (Some(base), Some(blocks)) => Some(view::Trace {
                engine: &base.opened.engine,
                table: &base.table,
                blocks,
                complete: base.opened.complete(),
            }),
            _ => None,
        };
        Ok(view::answer(view, query, &mut trace, other.as_mut(), out)?)
    }

    fn write_text(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        let definitions = self.opened.engine.definitions();
        let style = Style::new(options, paint);
        let lens = Lens::new(query, &self.opened.classes);
        header(out, &[self])?;
        writeln!(out, "{}\n", extra_sections::ending(&self.opened))?;
        let left = self.left();
        if let Some(note) = self.why_empty(query) {
            writeln!(out, "{note}\n")?;
        } else {
            let entries = merged(of_profile(definitions, &lens, &self.profile, &self.table, query));
            for cost in lists(options, query) {
                self.section(cost, &left, query).write(out, &entries, &style)?;
            }
            self.write_blamed(options, query, &left, paint, out)?;
            if options.print_leaks {
                self.write_verdicts(options, query, paint, out)?;
            }
        }
        self.ending(query).write(out)?;
        if !self.profile.range.instant {
            let leaked_blocks = self.profile.totals.live_allocations - self.suppressed(&self.profile, query).1;
            extra_sections::details(out, &self.opened, &self.profile, &left, leaked_blocks)?;
        }
        extra_sections::missing(out, &self.opened)?;
        if let Some(custom) = &self.custom {
            custom.write_custom(options, query, paint, out)?;
        }
        if options.print_suppressions {
            extra_sections::suppressions(out, &view::suppression_rows(&self.profile, &self.table))?;
        }
        Ok(())
    }

    fn write_blamed(
        &self,
        options: &Print,
        query: &Query,
        left: &Left,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let mut costs = vec![(Cost::Peak, "AT THE PEAK".to_owned())];
        costs.retain(|_| options.print_peaks);
        if options.print_leaks {
            costs.push((Cost::Leaked, left.short_heading.clone()));
        }
        if (query.cost.is_some() || query.at.is_some()) && !costs.iter().any(|(cost, _)| *cost == query.cost()) {
            costs.push((query.cost(), self.heading(query.cost(), left)));
        }
        let costs: Vec<_> = costs.into_iter().map(|(cost, what)| (cost, format!("IN YOUR OWN CODE, {what}"))).collect();
        Ok(extra_sections::blamed(out, &self.profile, &self.table, query, &costs, options.rows(), paint)?)
    }

    fn write_verdicts(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        let mut blocks = self.opened.again().map_err(|error| unreadable(&self.opened.path, &error))?;
        let mut trace = view::Trace {
            engine: &self.opened.engine,
            table: &self.table,
            blocks: &mut blocks,
            complete: self.opened.complete(),
        };
        // Rows are counted here: what is suppressed is not among them.
        let mut all = query.within(&self.opened.engine);
        all.limit = 0;
        let leaks = view::judge(&mut trace, &all).map_err(|error| unreadable(&self.opened.path, &error))?;
        Ok(extra_sections::verdicts(out, &leaks, &self.table, options.given_rows(), paint)?)
    }

    /// Behind malloc's: what the program's own allocators did.
    fn write_custom(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        let style = Style::new(options, paint);
        let lens = Lens::new(query, &self.opened.classes);
        writeln!(out, "\n{}", paint.heading("CUSTOM ALLOCATORS"))?;
        writeln!(out, "blocks that the program reported itself, not counted above\n")?;
        let left = self.left();
        let mut costs = lists(options, query);
        costs.retain(|cost| *cost != Cost::Temporary || query.cost == Some(Cost::Temporary));
        if !costs.contains(&Cost::Leaked) && query.cost.is_none() && query.at.is_none() {
            costs.push(Cost::Leaked);
        }
        let entries = of_profile(self.opened.engine.definitions(), &lens, &self.profile, &self.table, query);
        let entries = merged(entries);
        if let Some(note) = self.why_empty(query) {
            writeln!(out, "{note}\n")?;
            costs.clear();
        }
        for cost in costs {
            self.section(cost, &left, query).write(out, &entries, &style)?;
        }
        Ok(self.ending(query).write(out)?)
    }

    fn write_difference(
        &self,
        before: Before<'_>,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let style = Style::new(options, paint);
        let definitions = self.opened.engine.definitions();
        let lens = Lens::new(query, &self.opened.classes);
        let after = of_profile(definitions, &lens, &self.profile, &self.table, query);
        let other_lens;
        let entries = match before {
            Before::Other(base) => {
                header(out, &[self, base])?;
                other_lens = Lens::new(query, &base.opened.classes);
                let other_book = base.opened.engine.definitions();
                let before = of_profile(other_book, &other_lens, &base.profile, &base.table, query);
                difference(after, &before, &Pairing::new(&self.table, &base.table))
            }
            Before::Same(profile) => {
                header(out, &[self])?;
                difference_of_one(after, &of_profile(definitions, &lens, profile, &self.table, query))
            }
        };
        writeln!(out)?;
        let entries = merged(entries);
        let left = self.left();
        for cost in lists(options, query) {
            let section = self.section(cost, &left, query);
            Section { if_empty: "nothing changed".into(), ..section }.write(out, &entries, &style)?;
        }
        for cost in changes(options, query) {
            let rows = self.changed_functions(before, query, cost);
            let heading = format!("WHAT CHANGED {}", change_heading(cost));
            extra_sections::changes(out, &heading, &rows, cost, options.given_rows(), paint)?;
        }
        let base = match before {
            Before::Other(base) => base.ending(query),
            Before::Same(profile) => self.ending_of(profile, query),
        };
        Ok(self.ending(query).minus(&base).write(out)?)
    }

    fn changed_functions(&self, before: Before<'_>, query: &Query, cost: Cost) -> Vec<view::FunctionDiff> {
        match before {
            Before::Same(profile) => view::diff_of_one(&self.profile, profile, &self.table, query, cost),
            Before::Other(base) => {
                let pairing = Pairing::new(&self.table, &base.table);
                let (after, before) = ((&self.profile, &self.table), (&base.profile, &base.table));
                view::diff_functions(after, before, &pairing, query, cost)
            }
        }
    }

    /// What memory that was not freed is called.
    fn left(&self) -> Left {
        let range = &self.profile.range;
        let is_end = matches!(range.to, When::End) || range.to_ns >= self.opened.engine.runtime_ns();
        match is_end {
            false => Left::at(range.to_ns),
            true if self.opened.engine.definitions().session.attached => Left::at_detach(),
            true => Left::leaked(),
        }
    }

    fn section(&self, cost: Cost, left: &Left, query: &Query) -> Section {
        let none = why_none_of(cost, &self.profile, &self.table, query);
        Section {
            heading: self.heading(cost, left),
            cost,
            left: left.words.clone(),
            if_empty: none.unwrap_or_default(),
        }
    }

    fn heading(&self, cost: Cost, left: &Left) -> String {
        match cost {
            Cost::Allocations => "MOST CALLS TO ALLOCATION FUNCTIONS".into(),
            Cost::Peak => "PEAK MEMORY CONSUMERS".into(),
            Cost::Leaked => left.heading.clone(),
            Cost::Temporary => "MOST TEMPORARY ALLOCATIONS".into(),
            Cost::Live => format!("LIVE AT {}", seconds(self.profile.range.to_ns)),
            Cost::Allocated => "MOST MEMORY ALLOCATED".into(),
            Cost::Deallocations => "MOST DEALLOCATIONS".into(),
            Cost::Kept => "ALLOCATED IN THIS TIME AND STILL LIVE".into(),
            Cost::Growth => "GROWTH".into(),
        }
    }

    /// Bytes and blocks that are live at the end of the range and known leaks.
    fn suppressed(&self, profile: &Profile, query: &Query) -> (u64, u64) {
        let is_known = |site: u32| query.suppressions && self.table.stack(site).suppressed.is_some();
        let known = profile.stacks.iter().filter(|(site, _)| is_known(*site));
        known.fold((0, 0), |(bytes, blocks): (u64, u64), (_, costs)| {
            (bytes.saturating_add(costs.live_bytes), blocks.saturating_add(costs.live_allocations))
        })
    }

    fn ending(&self, query: &Query) -> Ending {
        self.ending_of(&self.profile, query)
    }

    fn ending_of(&self, profile: &Profile, query: &Query) -> Ending {
        let Profile { totals: costs, range, .. } = profile;
        let (suppressed, suppressed_blocks) = self.suppressed(profile, query);
        let live = Numbers::of(costs, Cost::Live, false);
        let leaked = to_signed(costs.live_bytes - suppressed);
        let is_leaked = query.cost() == Cost::Leaked;
        Ending {
            runtime_ns: to_signed(range.to_ns - range.from_ns),
            numbers: Numbers {
                leaked,
                value: if is_leaked { leaked } else { live.value },
                blocks: if is_leaked { live.blocks - to_signed(suppressed_blocks) } else { live.blocks },
                ..live
            },
            peak_rss_bytes: to_signed(self.opened.engine.totals().peak_rss_bytes),
            suppressed_bytes: to_signed(suppressed),
            left: self.left().state,
            instant_ns: query.is_of_an_instant().then_some(range.to_ns),
            is_change: false,
        }
    }

    /// What `-H`, `-F` and `-M` ask for.
    fn write_files(&self, options: &Print, files: &Files, query: &Query, cost: Cost) -> anyhow::Result<()> {
        if let Some(file) = &files.histogram {
            let mut blocks = self.opened.again().map_err(|error| unreadable(&self.opened.path, &error))?;
            let sizes = self.opened.engine.histogram(&mut blocks, &query.within(&self.opened.engine));
            let sizes = sizes.map_err(|error| unreadable(&self.opened.path, &error))?;
            file.write(Content::Other, |out| {
                sizes.iter().try_for_each(|(size, count)| Ok(writeln!(out, "{size}\t{count}")?))
            })?;
        }
        if files.flamegraph.is_none() && files.massif.is_none() {
            return Ok(());
        }
        let report = self.report(query.suppressions && cost == Cost::Leaked);
        if let Some(file) = &files.flamegraph {
            let lens = Lens::new(query, &self.opened.classes);
            let value = |costs: &Costs| cost.of(costs, false).max(0) as u64;
            let rows = export::folded::rows_of(&report, value, |levels| {
                lens.shown(levels).levels.into_iter().map(|(_, level)| level).collect()
            });
            file.write(Content::Other, |out| Ok(export::folded::write(&rows, out)?))?;
        }
        if let Some(file) = &files.massif {
            let massif = export::massif::Options {
                threshold: options.massif_threshold,
                detailed_every: options.massif_detailed_freq,
                ..export::massif::Options::default()
            };
            let open = || {
                let mut source = Source::open(self.opened.held.path())?;
                source.set_domain(query.domain);
                Ok(source)
            };
            file.write(Content::Other, |out| Ok(export::massif::write(&open, &report, &massif, out)?))?;
        }
        Ok(())
    }

    /// As exports want it. `suppress`: what is suppressed does not count as live, because only what leaked is asked for.
    fn report(&self, suppress: bool) -> analysis::Report {
        let definitions = self.opened.engine.definitions();
        let sites = self.profile.stacks.iter().map(|(site, costs)| {
            let mut costs = *costs;
            if suppress && self.table.stack(*site).suppressed.is_some() {
                (costs.live_bytes, costs.live_allocations) = (0, 0);
            }
            analysis::SiteCosts { stack: definitions.stack_of(*site), costs }
        });
        analysis::Report {
            definitions: definitions.clone(),
            totals: self.opened.engine.totals(),
            faults: self.opened.engine.faults(),
            sites: sites.collect(),
        }
    }
}

/// The lists of the text report, in their order.
fn lists(options: &Print, query: &Query) -> Vec<Cost> {
    let switches = [
        (options.print_allocators, Cost::Allocations),
        (options.print_peaks, Cost::Peak),
        (options.print_leaks, Cost::Leaked),
        (options.print_temporary, Cost::Temporary),
    ];
    let mut lists: Vec<Cost> = switches.iter().filter(|(is_on, _)| *is_on).map(|(_, cost)| *cost).collect();
    let asked = query.cost.or_else(|| query.is_of_an_instant().then_some(Cost::Live));
    lists.extend(asked.filter(|cost| !lists.contains(cost)));
    lists
}

/// The costs by which the text of a diff lists functions.
fn changes(options: &Print, query: &Query) -> Vec<Cost> {
    if query.cost.is_some() || query.is_of_an_instant() {
        return lists(options, query);
    }
    let switches =
        [(options.print_peaks, Cost::Peak), (true, Cost::Leaked), (options.print_allocators, Cost::Allocations)];
    switches.iter().filter(|(is_on, _)| *is_on).map(|(_, cost)| *cost).collect()
}

const fn change_heading(cost: Cost) -> &'static str {
    match cost {
        Cost::Peak => "AT THE PEAK",
        Cost::Leaked => "IN LEAKED MEMORY",
        Cost::Live => "IN LIVE MEMORY",
        Cost::Allocations => "IN ALLOCATIONS",
        Cost::Temporary => "IN TEMPORARY ALLOCATIONS",
        Cost::Allocated => "IN ALLOCATED MEMORY",
        Cost::Deallocations => "IN DEALLOCATIONS",
        Cost::Kept => "IN MEMORY THAT STAYED",
        Cost::Growth => "IN GROWTH",
    }
}

fn header(out: &mut impl Write, all: &[&LoadedTrace]) -> io::Result<()> {
    for (at, asked) in all.iter().enumerate() {
        let what = if at == 0 { "file" } else { "diff file" };
        let path = asked.opened.path.display();
        writeln!(out, "reading {what} \"{path}\" - please wait, this might take some time...")?;
    }
    for asked in all {
        writeln!(out, "Debuggee command was: {}", asked.opened.engine.definitions().session.command.join(" "))?;
    }
    writeln!(out, "finished reading file, now analyzing data:\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use format::{
        AllocClassEncoder, EventEncoder, FileWriter, Frame, Module, RawBlock, Session, StackEncoder, Summary,
    };
    use format::{CodeLocation, SymbolState, SymbolsBuilder};
    use serde_json::{Value, json};

    /// Two stacks of a program, one of them through JIT code and a cut.
    fn blocks() -> Vec<RawBlock> {
        let mut stacks = StackEncoder::new();
        let main = stacks.push(0, Frame::new(1, 0x1139, false));
        let cut = stacks.push(main, Frame::CUT);
        let jit = stacks.push(cut, Frame::new(0, 0x7f00_0000_1000, false));
        let mut alloc_classes = AllocClassEncoder::new();
        let (small, large) = (alloc_classes.push(10, main), alloc_classes.push(1000, jit));
        let mut events = EventEncoder::new();
        events.alloc(large);
        events.alloc(small);
        let third = events.alloc(small);
        events.free(third);
        let session = Session {
            command: vec!["./a \"b\"".into(), "c".into()],
            exe: "/bin/a".into(),
            pid: 77,
            ..Session::default()
        };
        let module = Module { instance: 1, path: "/bin/a".into(), ..Module::default() };
        vec![
            session.to_block(),
            Module::to_block(&[module]),
            stacks.take(),
            alloc_classes.take(),
            events.take(),
            Summary { complete: true, ..Summary::default() }.to_block(),
        ]
    }

    fn file(blocks: &[RawBlock]) -> Vec<u8> {
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        for block in blocks {
            writer.write(block).unwrap();
        }
        writer.finish().unwrap()
    }

    fn print(bytes: &[u8], options: &[&str]) -> String {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("heaptrack-print.{}.{number}.htz", std::process::id()));
        fs::write(&path, bytes).unwrap();
        let words = ["print"].iter().chain(options).map(|word| (*word).into()).chain([path.clone().into_os_string()]);
        let mut out = Vec::new();
        write(&Print::from_words(words.collect()).unwrap(), &mut out).unwrap();
        fs::remove_file(path).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json_of(bytes: &[u8]) -> Value {
        serde_json::from_str(&print(bytes, &["--json"])).unwrap()
    }

    fn frame(function: Option<&str>, module: Option<&str>, offset: Option<u64>) -> Value {
        json!({
            "function": function, "short": function, "file": null, "line": null, "module": module, "offset": offset,
            "inlined": false, "class": offset.map(|_| if module.is_some() { "program" } else { "runtime" }),
        })
    }

    #[test]
    fn json_is_the_contract() {
        let found = json_of(&file(&blocks()));
        assert_eq!(found["schema"], 1);
        assert_eq!(found["command"], json!(["./a \"b\"", "c"]));
        assert_eq!((&found["pid"], &found["attached"], &found["complete"]), (&json!(77), &json!(false), &json!(true)));
        assert_eq!(
            found["totals"],
            json!({
                "allocations": 3, "deallocations": 1, "allocated_bytes": 1020, "temporary": 1, "leaked_bytes": 1010,
                "leaked_allocations": 2, "peak_bytes": 1020, "peak_allocations": 3, "peak_time_ns": 0,
                "peak_rss_bytes": 0, "overhead_bytes": 0, "runtime_ns": 0, "unknown_frees": 0, "implied_frees": 0,
                "lost_events": 0, "suppressed_bytes": 0, "suppressed_allocations": 0,
            })
        );
        let program = json!({
            "allocations": 2, "allocated_bytes": 20, "temporary": 1, "leaked_bytes": 10, "leaked_allocations": 1,
            "suppressed_bytes": 0, "suppressed_allocations": 0, "peak_bytes": 20, "peak_allocations": 2, "blamed": 0, "frames": [frame(None, Some("/bin/a"), Some(0x1139))],
        });
        let deep = json!({
            "allocations": 1, "allocated_bytes": 1000, "temporary": 0, "leaked_bytes": 1000, "leaked_allocations": 1,
            "suppressed_bytes": 0, "suppressed_allocations": 0, "peak_bytes": 1000, "peak_allocations": 1, "blamed": 2, "frames": [
                frame(None, None, Some(0x7f00_0000_1000)),
                frame(Some("[frames left out]"), None, None),
                frame(None, Some("/bin/a"), Some(0x1139)),
            ],
        });
        assert_eq!(found["peak"], json!([deep, program]));
        assert_eq!(found["leaked"], json!([deep, program]));
        assert_eq!(found["allocations"], json!([program, deep]));
        assert_eq!(found["temporary"], json!([program, deep]), "all stacks are in all lists");
    }

    #[test]
    fn named_frames_are_expanded_and_one_is_blamed() {
        let mut names = SymbolsBuilder::default();
        names.module(1, SymbolState::Debug, "");
        let inner = Some(names.function("_Z1f", "std::f(int)", "std::f"));
        let outer = Some(names.function("main", "main", "main"));
        let (library, own) = (Some(names.string("/usr/include/c++/12/f.h")), Some(names.string("/home/me/a.cc")));
        let places = vec![
            CodeLocation { function: inner, file: library, line: Some(3), inlined: true },
            CodeLocation { function: outer, file: own, line: Some(9), inlined: false },
        ];
        names.frame(0x1139, places);
        names.module(0, SymbolState::Symbols, "");
        let script = Some(names.function("JS:*go /x.js:2:1", "go", "go"));
        let at = Some(names.string("/x.js"));
        names.frame(0x7f00_0000_1000, vec![CodeLocation { function: script, file: at, line: Some(2), inlined: false }]);
        let mut blocks = blocks();
        blocks.push(names.take().to_block());
        let bytes = file(&blocks);
        let found = json_of(&bytes);
        assert_eq!((&found["complete"], &found["damage"]), (&json!(true), &json!([])));
        assert_eq!(found["temporary"][0]["blamed"], 1);
        assert_eq!(
            found["temporary"][0]["frames"],
            json!([
                { "function": "std::f(int)", "short": "std::f", "file": "/usr/include/c++/12/f.h", "line": 3,
                  "module": "/bin/a", "offset": 0x1139, "inlined": true, "class": "runtime" },
                { "function": "main", "short": "main", "file": "/home/me/a.cc", "line": 9,
                  "module": "/bin/a", "offset": 0x1139, "inlined": false, "class": "program" },
            ])
        );
        let text = print(&bytes, &[]);
        let stack = "\ngo\n  at /x.js:2\n  in ??\n1000B consumed over 1 calls from:\n    [frames left out]\n    std::f(int)\n      \
                     at /usr/include/c++/12/f.h:3\n      in /bin/a\n    main\n      at /home/me/a.cc:9\n";
        assert!(text.contains(stack), "{text}");
    }

    #[test]
    fn a_cut_file_is_told_up_to_there() {
        let bytes = file(&blocks()[..5]);
        let found = json_of(&bytes[..bytes.len() - 60]);
        assert_eq!((&found["complete"], &found["damage"]), (&json!(false), &json!([])));
        assert_eq!(found["totals"]["allocations"], 3);
    }

    #[test]
    fn lost_definitions_are_told() {
        let mut blocks = blocks();
        blocks.remove(3);
        let found = json_of(&file(&blocks));
        assert_eq!(found["complete"], false);
        assert_eq!(found["damage"][0]["reason"], "4 events refer to parts that are lost");
        assert_eq!(found["totals"]["allocations"], 0);
    }

    #[test]
    fn text_has_kdes_sections_and_totals() {
        let text = print(&file(&blocks()), &["-l"]);
        for part in [
            "\nDebuggee command was: ./a \"b\" c\n",
            "\nMOST CALLS TO ALLOCATION FUNCTIONS\n2 calls to allocation functions with 20B peak consumption from\n0x1139\n  in /bin/a\n",
            "\nPEAK MEMORY CONSUMERS\n1000B peak memory consumed over 1 calls from\n0x7f0000001000\n  in ??\n",
            "\nMEMORY LEAKS\n1000B leaked over 1 calls from\n",
            "\nMOST TEMPORARY ALLOCATIONS\n1 temporary allocations of 2 allocations in total (50.00%) from\n",
            "\ntotal runtime: 0.00s.\ncalls to allocation functions: 3 (3000/s)\ntemporary memory allocations: 1 (1000/s)\n\
             peak heap memory consumption: 1.02K\npeak RSS (including heaptrack overhead): 0B\ntotal memory leaked: 1.01K\n",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        assert!(!print(&file(&blocks()), &["-p0", "-a", "0"]).contains("CONSUMERS"));
    }

    #[test]
    fn a_diff_with_itself_is_nothing() {
        let path = std::env::temp_dir().join(format!("heaptrack-print.{}.base.htz", std::process::id()));
        let bytes = file(&blocks());
        fs::write(&path, &bytes).unwrap();
        let text = print(&bytes, &["--diff", path.to_str().unwrap()]);
        let same =
            "\nMOST CALLS TO ALLOCATION FUNCTIONS\nnothing changed\n\nPEAK MEMORY CONSUMERS\nnothing changed\n\n";
        assert!(text.contains(same), "{text}");
        assert!(text.ends_with("total memory leaked: 0B\n") && text.contains("nothing changed"), "{text}");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn every_view_is_json_and_says_its_name() {
        let bytes = file(&blocks());
        for (name, view) in View::ALL {
            let compare: &[&str] = if view == View::Diff { &["--compare", "@start"] } else { &[] };
            let mut options = vec!["--view", name];
            options.extend(compare);
            let found: Value = serde_json::from_str(&print(&bytes, &options)).unwrap();
            assert_eq!((&found["view"], &found["totals"]["allocations"]), (&json!(name), &json!(3)), "{name}");
        }
    }

    #[test]
    fn a_part_of_a_trace_has_its_own_numbers() {
        let found = json_of(&file(&blocks()));
        let bytes = file(&blocks());
        let part: Value = serde_json::from_str(&print(&bytes, &["--json", "--size", "..10"])).unwrap();
        assert_eq!((&part["totals"]["allocations"], &part["totals"]["peak_bytes"]), (&json!(2), &json!(20)));
        assert_eq!(part["peak"], json!([found["peak"][1]]));
        let at: Value = serde_json::from_str(&print(&bytes, &["--json", "--at", "end"])).unwrap();
        assert_eq!((&at["totals"]["allocations"], &at["totals"]["leaked_bytes"]), (&json!(0), &json!(1010)));
        let none: Value = serde_json::from_str(&print(&bytes, &["--json", "--include", "nowhere"])).unwrap();
        assert_eq!((&none["totals"]["allocations"], &none["peak"]), (&json!(0), &json!([])));
    }
}
