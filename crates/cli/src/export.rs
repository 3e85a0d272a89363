//! `heaptrack export`: a trace in another tool's format.
//!
//! Given: a trace, a format, a name. Gives back: a file, or bytes on stdout. What must hold: a file is there whole or not at all.
use crate::args::{Cost, Export, Format};
use crate::destination::{Content, Destination, named_after};
use crate::trouble::{counted, unreadable};
use analysis::{Costs, Report};
use export::{folded, heaptrack, massif, svg};
use format::{Domain, Source};
use heaptrack_trace::{OpenOptions, TraceFile, has_custom};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(options: &Export) -> anyhow::Result<ExitCode> {
    let inputs: Vec<&Path> = [Some(&options.file), options.known.suppressions.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| path.as_path())
        .collect();
    let name = named_after(&options.file, ending(options.to));
    let output = Destination::new(&options.output, &name, Content::Other, &inputs)?;
    output.write(Content::Other, |out| write(options, out))?;
    Ok(ExitCode::SUCCESS)
}

/// Of a file in a folder.
const fn ending(format: Format) -> &'static str {
    match format {
        Format::Heaptrack => ".zst",
        Format::Folded => ".folded",
        Format::Svg => ".svg",
        Format::Massif => ".massif",
    }
}

fn write(options: &Export, out: &mut dyn Write) -> anyhow::Result<()> {
    let read = |error: format::Error| unreadable(&options.file, &error);
    let read_again = |error: export::Error| match error {
        export::Error::Read(error) => read(error),
        write => write.into(),
    };
    let file = trace_file(options)?;
    match options.to {
        Format::Heaptrack => say_changes(&heaptrack::write(&|| file.source(), out).map_err(read_again)?),
        Format::Folded => folded::write(&folded::rows(&without_known(options, file)?.0, cost(options.cost)), out)?,
        Format::Svg => {
            let (report, _) = without_known(options, file)?;
            let (title, unit) = caption(options.cost);
            let title = format!("{title}: {}", report.session.command.join(" "));
            svg::write(&folded::rows(&report, cost(options.cost)), svg::Caption { title: &title, unit }, out)?;
        }
        Format::Massif => {
            let (report, file) = without_known(options, file)?;
            if report.folded_until_ns().is_some() {
                crate::say(format_args!(
                    "heaptrack: the trace has only sums of its oldest events (--max-size); the snapshots before that show what survived"
                ));
            }
            let (threshold, detailed_every) = (options.massif_threshold, options.massif_detailed_freq);
            let options = massif::Options { threshold, detailed_every, ..massif::Options::default() };
            massif::write(&|| file.source(), &report, &options, out).map_err(read_again)?;
        }
    }
    Ok(())
}

/// The file, of which the domain that was asked for is read.
fn trace_file(options: &Export) -> anyhow::Result<TraceFile> {
    let read = |error: format::Error| unreadable(&options.file, &error);
    let file = TraceFile::open(&options.file).map_err(read)?;
    if options.custom && !has_custom(&options.file).map_err(read)? {
        let file = options.file.display();
        anyhow::bail!("the program of {file} reported no blocks of custom allocators: leave out --custom");
    }
    Ok(file.with_domain(domain(options)))
}

const fn domain(options: &Export) -> Domain {
    if options.custom { Domain::Custom } else { Domain::Malloc }
}

/// Counts the trace. Known leaks do not count as leaked, as in `print`.
fn without_known(options: &Export, file: TraceFile) -> anyhow::Result<(Report, TraceFile)> {
    let trace = OpenOptions::new().domain(domain(options)).open_file(file, |_, _| ());
    let (mut report, file) = trace.map_err(|error| unreadable(&options.file, &error))?.into_report();
    if !options.known.no_suppressions {
        let known = options.known.load(&report.suppressions)?;
        report.suppress(known);
    }
    Ok((report, file))
}

/// The cost that was asked for.
fn cost(cost: Cost) -> fn(&Costs) -> u64 {
    match cost {
        Cost::Peak => |costs| costs.peak_bytes,
        Cost::Leaked => |costs| costs.live_bytes,
        Cost::Allocations => |costs| costs.allocations,
        Cost::Temporary => |costs| costs.temporary,
        Cost::Allocated => |costs| costs.allocated_bytes,
    }
}

const fn caption(cost: Cost) -> (&'static str, &'static str) {
    match cost {
        Cost::Peak => ("Memory at its peak", "bytes"),
        Cost::Leaked => ("Memory that was not freed", "bytes"),
        Cost::Allocations => ("Allocations", "allocations"),
        Cost::Temporary => ("Temporary allocations", "allocations"),
        Cost::Allocated => ("All memory that was allocated", "bytes"),
    }
}

/// KDE's format for a recording whose name asks for it: `name.zst` out of `name.zst.htz`, which is removed then.
pub fn convert(trace: &Path) -> anyhow::Result<PathBuf> {
    let target = trace.with_extension("");
    let output = Destination::new(&target, OsStr::new("trace.zst"), Content::Other, &[trace])?;
    output.write(Content::Other, |out| {
        heaptrack::write(&|| Source::open(trace), out)?;
        Ok(())
    })?;
    // KDE's format has one domain; what it cannot hold is not thrown away.
    if has_custom(trace)? {
        let (kept, target) = (trace.display(), target.display());
        crate::say(format_args!("heaptrack: {kept} stays: {target} cannot hold its blocks of custom allocators"));
    } else {
        let _ = fs::remove_file(trace);
    }
    Ok(target)
}

fn say_changes(written: &heaptrack::Written) {
    let counts = [
        (
            written.ended_by_exec,
            "block that went when the program replaced itself is freed there in KDE's file",
            "blocks that went when the program replaced itself are freed there in KDE's file",
        ),
        (
            written.ended_with_process,
            "block that was not freed when its process ended is freed there in KDE's file, which has one process: its leaks are those of the processes that ended last",
            "blocks that were not freed when their process ended are freed there in KDE's file, which has one process: its leaks are those of the processes that ended last",
        ),
        (
            written.unknown_frees,
            "free of a block whose allocation was not recorded is not in KDE's file",
            "frees of blocks whose allocation was not recorded are not in KDE's file",
        ),
        (
            written.folded,
            "event of which the trace has a sum only (--max-size) is not in KDE's file",
            "events of which the trace has sums only (--max-size) are not in KDE's file",
        ),
        (
            written.damaged,
            "event that needs a lost part of the trace is not in KDE's file",
            "events that need lost parts of the trace are not in KDE's file",
        ),
    ];
    for (count, one, several) in counts.into_iter().filter(|(count, ..)| *count > 0) {
        crate::say(format_args!("heaptrack: {}", counted(count, one, several)));
    }
}
