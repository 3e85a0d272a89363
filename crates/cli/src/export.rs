//! `heaptrack export`: a trace in another tool's format.
//!
//! Given: a trace, a format, a name. Gives back: a file, or bytes on stdout. What must hold: a file is there whole or not at all.
use crate::args::{Cost, Export, Format};
use crate::unfinished::Unfinished;
use analysis::{Costs, Replay, Report};
use anyhow::Context;
use export::{Packed, Packing, folded, heaptrack, massif, svg};
use format::{Domain, Source};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(options: &Export) -> anyhow::Result<ExitCode> {
    let read = || options.file.display().to_string();
    if options.output == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        let written = write(options, &mut out).and_then(|()| Ok(out.flush()?));
        return match written {
            // `heaptrack export | head` is no mistake.
            Err(error) if is_broken_pipe(&error) => {
                drop(out.into_parts());
                Ok(ExitCode::SUCCESS)
            }
            other => other.with_context(read).map(|()| ExitCode::SUCCESS),
        };
    }
    to_file(&options.output, |out| write(options, out).with_context(read))?;
    Ok(ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(is_pipe)
        || matches!(error.downcast_ref(), Some(export::Error::Write(error)) if is_pipe(error))
}

fn write(options: &Export, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut trace = crate::source::Trace::new(&options.file)?;
    if options.custom {
        if !crate::source::has_custom(&options.file)? {
            anyhow::bail!("its program reported no blocks of custom allocators; leave out --custom");
        }
        trace.set_domain(Domain::Custom);
    }
    let open = || trace.open();
    match options.to {
        Format::Heaptrack => say_changes(&heaptrack::write(&open, out)?),
        Format::Folded => folded::write(&folded::rows(&without_known(options, open()?)?, cost(options.cost)), out)?,
        Format::Svg => {
            let report = without_known(options, open()?)?;
            let (title, unit) = caption(options.cost);
            let title = format!("{title}: {}", report.session.command.join(" "));
            svg::write(&folded::rows(&report, cost(options.cost)), svg::Caption { title: &title, unit }, out)?;
        }
        Format::Massif => {
            let report = without_known(options, open()?)?;
            if report.folded_until_ns().is_some() {
                crate::say(format_args!(
                    "heaptrack: the trace has only sums of its oldest events (--max-size); the snapshots before that show what survived"
                ));
            }
            let (threshold, detailed_every) = (options.massif_threshold, options.massif_detailed_freq);
            let options = massif::Options { threshold, detailed_every, ..massif::Options::default() };
            massif::write(&open, &report, &options, out)?;
        }
    }
    Ok(())
}

/// What is known to leak is not leaked, as `print` has it.
fn without_known(options: &Export, source: Source) -> anyhow::Result<Report> {
    let mut report = report(source)?;
    if !options.known.no_suppressions {
        let known = options.known.load(&report.suppressions)?;
        report.suppress(known);
    }
    Ok(report)
}

/// What the whole session cost.
pub fn report(mut source: Source) -> Result<Report, format::Error> {
    let mut replay = Replay::new();
    while let Some(block) = source.next_block()? {
        replay.add(block);
    }
    Ok(replay.finish())
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
    to_file(&target, |out| {
        heaptrack::write(&|| Source::open(trace), out)?;
        Ok(())
    })?;
    // KDE's format has one domain; what it cannot hold is not thrown away.
    if crate::source::has_custom(trace)? {
        let (kept, target) = (trace.display(), target.display());
        crate::say(format_args!("heaptrack: {kept} stays: {target} cannot hold its blocks of custom allocators"));
    } else {
        let _ = fs::remove_file(trace);
    }
    Ok(target)
}

fn say_changes(written: &heaptrack::Written) {
    for (count, meaning) in [
        (written.ended_by_exec, "blocks that went when the program replaced itself are freed there in KDE's file"),
        (written.unknown_frees, "frees of blocks whose allocation was not recorded are not in KDE's file"),
        (written.folded, "events of which the trace has sums only (--max-size) are not in KDE's file"),
        (written.damaged, "events that need lost parts of the trace are not in KDE's file"),
    ] {
        if count > 0 {
            crate::say(format_args!("heaptrack: {count} {meaning}"));
        }
    }
}

/// Writes to a file beside it first.
pub fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let (unfinished, file) = Unfinished::create(path).with_context(cannot)?;
    let mut out = Packed::new(BufWriter::with_capacity(1 << 17, file), Packing::of(path))?;
    write(&mut out)?;
    out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    unfinished.finish().with_context(cannot)
}
