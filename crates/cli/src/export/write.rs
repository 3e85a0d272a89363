//! Writes each of the formats.
use super::selection::{Selection, trace_file};
use super::{Export, Format, Rows, kde, segment};
use crate::print::{Lens, write_massif};
use crate::trouble::unreadable;
use analysis::view::{Leak, judge};
use analysis::{Cost, Costs, Details, Query, When};
use anyhow::anyhow;
use export::events::EventTable;
use export::{
    Packed, Packing, TableFormat, dhat, firefox, folded, gperftools, heaptrack, massif, pprof, sites, speedscope, svg,
};
use format::{Domain, IntMap, IntSet};
use heaptrack_trace::Reading;
use std::io::Write;

/// Refuses a cost that the format cannot show.
pub fn check_cost(options: &Export, query: &Query) -> anyhow::Result<()> {
    let Some(cost) = query.cost else { return Ok(()) };
    let can_be = match options.format() {
        Format::Pprof if pprof_value(cost).is_none() => "pprof has peak, live, allocations, allocated and temporary",
        _ if cost == Cost::Growth => "growth can be negative, which this format cannot show",
        _ => return Ok(()),
    };
    anyhow::bail!("--cost {}: {can_be}", cost.name())
}

/// The value of pprof's samples that is this cost.
const fn pprof_value(cost: Cost) -> Option<&'static str> {
    Some(match cost {
        Cost::Peak => "peak_space",
        Cost::Live => "inuse_space",
        Cost::Allocations => "alloc_objects",
        Cost::Allocated => "alloc_space",
        Cost::Temporary => "temporary_objects",
        Cost::Leaked | Cost::Deallocations | Cost::Kept | Cost::Growth => return None,
    })
}

/// `is_packed`: what is written will be compressed.
pub fn write(options: &Export, query: &Query, is_packed: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if !matches!(options.format(), Format::Pprof | Format::Speedscope | Format::Folded | Format::Svg) {
        crate::sampled::refuse(&options.file, &format!("--to {}", options.format().name()))?;
    }
    let read_again = |error: export::Error| match error {
        export::Error::Read(error) => unreadable(&options.file, &error),
        write => write.into(),
    };
    if options.format() == Format::Heaptrack {
        let file = trace_file(options, query.domain, Reading::Session)?;
        let threads = threads(options, query)?;
        kde::say_changes(&heaptrack::write(&|| file.source(), threads.as_ref(), out).map_err(read_again)?);
        return Ok(());
    }
    let selection = Selection::open(options, query)?;
    match options.format() {
        Format::Heaptrack => {}
        Format::Folded => folded::write(&rows(selection)?, out)?,
        Format::Svg => {
            let (title, unit) = caption(selection.query.cost());
            let title = format!("{title}: {}", selection.trace.engine().definitions().session.command.join(" "));
            svg::write(&rows(selection)?, svg::Caption { title: &title, unit }, out)?;
        }
        Format::Massif => {
            say_folded(&selection, "snapshots of that time show only the blocks that stayed");
            let (threshold, detailed_every) = (options.massif_threshold, options.massif_detailed_freq);
            let massif = massif::Options { threshold, detailed_every, ..massif::Options::default() };
            write_massif(&selection.trace, &selection.query, &massif, out)?;
        }
        Format::Pprof => write_pprof(&selection, is_packed, out)?,
        Format::Speedscope => {
            let details = selection.costs()?;
            speedscope::write(&selection.selected(&details), selection.query.cost(), out)?;
        }
        Format::Firefox => write_firefox(&selection, out)?,
        Format::Dhat => {
            say_folded(&selection, "stacks have no peaks of their own from that time");
            let details = selection.details(false)?;
            dhat::write(&selection.selected(&details), out)?;
        }
        Format::Gperftools => {
            let details = selection.costs()?;
            gperftools::write(&selection.selected(&details), &segment::find, out)?;
        }
        Format::Csv => write_table(&selection, options.rows, TableFormat::Csv, out)?,
        Format::Jsonl => write_table(&selection, options.rows, TableFormat::JsonLines, out)?,
    }
    Ok(())
}

/// The threads of the processes that were asked for, if any were.
fn threads(options: &Export, query: &Query) -> anyhow::Result<Option<IntSet<u32>>> {
    if query.processes.is_empty() {
        return Ok(None);
    }
    let selection = Selection::open(options, query)?;
    Ok(selection.trace.engine().threads_of(query))
}

/// Readers of pprof's format expect that it is compressed.
fn write_pprof(selection: &Selection, is_packed: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let details = selection.by_thread_and_allocator()?;
    let shown_first = selection.query.cost.and_then(pprof_value).unwrap_or("inuse_space");
    let selected = selection.selected(&details);
    if is_packed {
        return Ok(pprof::write(&selected, shown_first, out)?);
    }
    let mut packed = Packed::new(out, Packing::Gzip)?;
    pprof::write(&selected, shown_first, &mut packed)?;
    packed.finish()?;
    Ok(())
}

/// Judges leaks on a thread of its own, because both that and the groups of blocks need a walk over all events.
fn write_firefox(selection: &Selection, out: &mut dyn Write) -> anyhow::Result<()> {
    say_folded(selection, "they are not in the profile");
    let details = selection.costs()?;
    let (events, leaks) = std::thread::scope(|scope| {
        let judge = std::thread::Builder::new().name("heaptrack-leaks".into());
        let leaks = judge.spawn_scoped(scope, || leaks(selection))?;
        let events = grouped_events(selection, &details)?;
        anyhow::Ok((events, leaks.join().map_err(|_| anyhow!("leaks cannot be judged"))??))
    })?;
    Ok(firefox::write(&selection.selected(&details), events, &leaks, out)?)
}

fn grouped_events<'a>(selection: &'a Selection, details: &Details) -> anyhow::Result<firefox::Events<'a>> {
    let engine = selection.trace.engine();
    let definitions = engine.definitions();
    let bases = bases(selection, details)?;
    let mut events = firefox::Events::new(definitions, details.range, bases);
    let mut blocks = selection.trace.blocks().map_err(|error| selection.unreadable(&error))?;
    let walked = engine.each_block_event(&mut blocks, &selection.query, &mut |event| events.add(event));
    walked.map_err(|error| selection.unreadable(&error))?;
    Ok(events)
}

/// The bytes that were live when the range began, by the index of the process that allocated them. Only a tree of processes
/// needs another walk for that.
fn bases(selection: &Selection, details: &Details) -> anyhow::Result<IntMap<Option<u32>, u64>> {
    let definitions = selection.trace.engine().definitions();
    let is_split = !definitions.processes.is_empty() && details.rows.iter().any(|row| row.costs.base_bytes > 0);
    let by_thread = is_split.then(|| selection.by_thread()).transpose()?;
    let mut bases = IntMap::default();
    for row in by_thread.as_ref().unwrap_or(details).rows.iter().filter(|row| row.costs.base_bytes > 0) {
        let process = row.thread.and_then(|thread| definitions.process_of_thread.get(&thread)).copied();
        let sum: &mut u64 = bases.entry(process).or_default();
        *sum = sum.saturating_add(row.costs.base_bytes);
    }
    Ok(bases)
}

/// The places that hold blocks at the end of the range and are no known leaks.
fn leaks(selection: &Selection) -> anyhow::Result<Vec<Leak>> {
    let mut blocks = selection.trace.blocks().map_err(|error| selection.unreadable(&error))?;
    let mut trace = selection.trace.for_view(&selection.table, &mut blocks);
    let mut leaks = judge(&mut trace, &selection.query).map_err(|error| selection.unreadable(&error))?;
    leaks.retain(|leak| leak.suppressed.is_none() && leak.live_allocations > 0);
    Ok(leaks)
}

fn write_table(selection: &Selection, rows: Rows, format: TableFormat, out: &mut dyn Write) -> anyhow::Result<()> {
    if rows == Rows::Sites {
        say_folded(selection, "stacks have no peaks of their own from that time");
        let details = selection.details(false)?;
        return Ok(sites::write(&selection.selected(&details), format, out)?);
    }
    say_folded(selection, "they are not in the table");
    let engine = selection.trace.engine();
    let mut blocks = selection.trace.blocks().map_err(|error| selection.unreadable(&error))?;
    let mut table = EventTable::new(engine.definitions(), selection.trace.domain() == Domain::Malloc, format, out)?;
    let walked = engine.each_block_event(&mut blocks, &selection.query, &mut |event| table.add(event));
    walked.map_err(|error| selection.unreadable(&error))?;
    Ok(table.finish()?)
}

/// The stacks as flame graphs show them.
fn rows(selection: Selection) -> anyhow::Result<Vec<folded::Row>> {
    let cost = selection.query.cost();
    let suppress = selection.query.suppressions && cost == Cost::Leaked;
    let (report, classes, query) = selection.into_report(suppress)?;
    let lens = Lens::new(&query, &classes);
    let value = |costs: &Costs| cost.of(costs, false).max(0) as u64;
    Ok(folded::rows_of(&report, value, |levels| {
        lens.shown(levels).levels.into_iter().map(|(_, level)| level).collect()
    }))
}

/// Says on stderr if the part that is exported has events of which the trace has only sums.
fn say_folded(selection: &Selection, consequence: &str) {
    let from_ns = match selection.query.from {
        Some(When::Ns(ns)) => ns,
        _ => 0,
    };
    if selection.trace.engine().definitions().folded_until_ns().is_some_and(|until| from_ns < until) {
        crate::say(format_args!(
            "heaptrack: the trace has only sums of its oldest events (--max-size, --keep-last); {consequence}"
        ));
    }
}

const fn caption(cost: Cost) -> (&'static str, &'static str) {
    match cost {
        Cost::Peak => ("Memory at its peak", "bytes"),
        Cost::Leaked => ("Memory that was not freed", "bytes"),
        Cost::Live => ("Memory that is live", "bytes"),
        Cost::Allocations => ("Allocations", "allocations"),
        Cost::Temporary => ("Temporary allocations", "allocations"),
        Cost::Allocated => ("All memory that was allocated", "bytes"),
        Cost::Deallocations => ("Deallocations", "deallocations"),
        Cost::Kept => ("Memory that was allocated in the range and is live at its end", "bytes"),
        Cost::Growth => ("Growth", "bytes"),
    }
}
