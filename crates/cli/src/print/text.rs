//! The text of `print`: totals, then the stacks that matter most.
use super::Trace;
use super::json::{marker, ranked};
use analysis::{Costs, Level, Report};
use format::{Exit, SymbolState};
use std::collections::BTreeSet;
use std::io::{self, Write};

const STACKS: usize = 10;
/// Frames shown of a stack; the rest is counted.
const FRAMES: usize = 12;

pub fn report(out: &mut impl Write, trace: &Trace) -> io::Result<()> {
    let report = &trace.report;
    writeln!(out, "{}", command(report))?;
    writeln!(out, "{}", ending(trace))?;
    writeln!(out)?;
    totals(out, report)?;
    losses(out, trace)?;
    names(out, report)?;
    list(out, trace, "peak", |costs| (costs.peak_bytes, costs.peak_allocations))?;
    list(out, trace, left(report), |costs| (costs.leaked_bytes, costs.leaked_allocations))
}

fn command(report: &Report) -> String {
    let session = &report.session;
    let how = if session.attached { "attached to" } else { "recorded" };
    format!("{how} {} (pid {})", session.command.join(" "), session.pid)
}

/// What is left of an attached program is not leaked: it was allocated since the attach and not freed by the end of it.
fn left(report: &Report) -> &'static str {
    if report.session.attached { "still live at detach" } else { "leaked" }
}

fn ending(trace: &Trace) -> String {
    let Some(summary) = &trace.report.summary else {
        return "not finished: still being recorded, or cut".into();
    };
    let exit = match summary.exit {
        Exit::Unknown => "it is not known how the program ended".into(),
        Exit::Code(code) => format!("the program ended with code {code}"),
        Exit::Signal(signal) => format!("the program was ended by signal {signal}"),
        Exit::Detached => "the program ran on".into(),
    };
    if trace.complete() { exit } else { format!("{exit}; the trace is not complete") }
}

fn totals(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let totals = &report.totals;
    let seconds = totals.runtime_ns as f64 / 1e9;
    let blocks = |count: u64| format!("in {count} block{}", if count == 1 { "" } else { "s" });
    row(out, "runtime", format_args!("{seconds:.3} s"), "")?;
    row(out, "allocations", totals.allocations, format_args!("of {}", size(totals.allocated_bytes)))?;
    row(out, "deallocations", totals.deallocations, "")?;
    row(out, "temporary", totals.temporary, share(totals.temporary, totals.allocations))?;
    let when = format!("{}, at {:.3} s", blocks(totals.peak_allocations), totals.peak_time_ns as f64 / 1e9);
    row(out, "peak", size(totals.peak_bytes), when)?;
    row(out, left(report), size(totals.leaked_bytes), blocks(totals.leaked_allocations))?;
    if let Some(heap) = &report.heap_at_attach {
        let what = format!("at attach, {} of it resident; what was in it is not counted", size(heap.rss_bytes));
        row(out, "heap", size(heap.size_bytes), what)?;
    }
    if totals.peak_rss_bytes > 0 {
        let ours = format!("of which {} are ours", size(totals.overhead_bytes));
        row(out, "peak RSS", size(totals.peak_rss_bytes), ours)?;
    }
    Ok(())
}

fn losses(out: &mut impl Write, trace: &Trace) -> io::Result<()> {
    let report = &trace.report;
    let rows = [
        ("unknown frees", report.totals.unknown_frees, "of blocks that were there before"),
        ("implied frees", report.totals.implied_frees, "not seen, but the address came again"),
        ("lost events", report.totals.lost_events, "known not to be in the trace"),
        ("damage", trace.damage_count, "places in the file that cannot be read"),
        ("damaged", report.faults.damaged_events, "events that need what is lost"),
        ("missing", report.faults.missing_allocations, "allocations in lost parts of the file"),
    ];
    for (name, count, meaning) in rows {
        if count > 0 {
            row(out, name, count, meaning)?;
        }
    }
    if let Some(note) = &report.losses.note {
        writeln!(out, "\n{note}")?;
    }
    Ok(())
}

/// Modules whose names are not known for a reason that somebody can do something about.
fn names(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.names.is_empty() && !report.sites.is_empty() {
        return writeln!(out, "\nno names yet: `heaptrack symbolize FILE` adds them");
    }
    let mut said = BTreeSet::new();
    for names in report.names.modules().values() {
        let is_ours_to_say = matches!(names.state, SymbolState::Mismatch | SymbolState::Unreadable);
        if is_ours_to_say && said.insert(&names.note) {
            writeln!(out, "{}{}", if said.len() == 1 { "\n" } else { "" }, names.note)?;
        }
    }
    Ok(())
}

fn list(out: &mut impl Write, trace: &Trace, name: &str, cost: impl Fn(&Costs) -> (u64, u64)) -> io::Result<()> {
    let report = &trace.report;
    let sites = ranked(report, &cost);
    if sites.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{name}: {} of {} stacks", sites.len().min(STACKS), sites.len())?;
    for site in sites.iter().take(STACKS) {
        let (bytes, blocks) = cost(&site.costs);
        writeln!(out, "\n{:>12}  in {blocks} block{}", size(bytes), if blocks == 1 { "" } else { "s" })?;
        // The one to blame is shown, however deep it is.
        let blamed = trace.classes.blamed(report.levels(site.stack));
        let shown = FRAMES.max(blamed.map_or(0, |blamed| blamed + 3));
        let mut levels = report.levels(site.stack);
        for (at, level) in levels.by_ref().take(shown).enumerate() {
            let mark = if Some(at) == blamed { '>' } else { ' ' };
            writeln!(out, "            {mark} {}", place(&level))?;
        }
        let rest = levels.count();
        if rest > 0 {
            writeln!(out, "              and {rest} more")?;
        }
    }
    Ok(())
}

fn place(level: &Level<'_>) -> String {
    if let Some(marker) = marker(level.frame) {
        return marker.into();
    }
    let Some(name) = level.short else {
        return match level.module {
            Some(module) => format!("{module}+{:#x}", level.frame.offset()),
            None => format!("{:#x}", level.frame.offset()),
        };
    };
    match (level.file, level.line, level.module) {
        (Some(file), Some(line), _) => format!("{name}  {file}:{line}"),
        (Some(file), None, _) => format!("{name}  {file}"),
        (None, _, Some(module)) => format!("{name}  {module}"),
        (None, _, None) => name.into(),
    }
}

fn row(
    out: &mut impl Write,
    name: &str,
    value: impl std::fmt::Display,
    detail: impl std::fmt::Display,
) -> io::Result<()> {
    let width = 28usize.saturating_sub(name.len());
    let line = format!("  {name}{:>width$}  {detail}", value.to_string());
    writeln!(out, "{}", line.trim_end())
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// Bytes for people: three digits or so, in powers of 1024.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be printed as 1024.00 of one unit is 1.00 of the next.
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}
