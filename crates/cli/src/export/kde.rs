//! Traces in the format of KDE's heaptrack.
use crate::destination::{Content, Destination};
use crate::trouble::counted;
use export::heaptrack;
use format::Source;
use heaptrack_trace::has_custom;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Converts a recording whose name asks for KDE's format: makes `name.zst` from `name.zst.htz`. The latter is then
/// removed, unless it has blocks of custom allocators.
pub fn convert(trace: &Path) -> anyhow::Result<PathBuf> {
    let target = trace.with_extension("");
    let output = Destination::new(&target, OsStr::new("trace.zst"), Content::Other, &[trace])?;
    output.write(Content::Other, |out| {
        heaptrack::write(&|| Source::open(trace), None, out)?;
        Ok(())
    })?;
    // KDE's format has only one domain. The blocks of the other one must not be lost.
    if has_custom(trace)? {
        let (kept, target) = (trace.display(), target.display());
        crate::say(format_args!("heaptrack: {kept} stays: {target} cannot hold its blocks of custom allocators"));
    } else {
        let _ = fs::remove_file(trace);
    }
    Ok(target)
}

pub(super) fn say_changes(written: &heaptrack::Written) {
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
            "event of which the trace has a sum only (--max-size, --keep-last) is not in KDE's file",
            "events of which the trace has sums only (--max-size, --keep-last) are not in KDE's file",
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
