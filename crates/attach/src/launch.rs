//! Programs that heaptrack launched. They have its library loaded, and another process records them.
use crate::CHANNEL;
use crate::check::Checked;
use crate::journal::Journal;
use crate::maps::{Mapping, Maps};
use std::fs;
use std::path::Path;

/// Finds the memory that a launched program shares with its recorder. A program that was executed in the tree of an attached
/// process has memory with the same name as that process, but no journal.
fn channel(checked: &Checked) -> Option<&Mapping> {
    let maps = &checked.maps.0;
    let is_channel = |name: &str| name.starts_with("/memfd:heaptrack") && !name.starts_with(CHANNEL);
    if let Some(launched) = maps.iter().find(|mapping| is_channel(&mapping.name)) {
        return Some(launched);
    }
    let executed = maps.iter().find(|mapping| mapping.name.starts_with(CHANNEL))?;
    Journal::find(&checked.maps, &checked.memory).is_empty().then_some(executed)
}

pub fn is_launched(checked: &Checked) -> bool {
    channel(checked).is_some()
}

/// Returns the pid of the process that records a launched program. Returns `None` if heaptrack did not launch the
/// program, and `Some(None)` if its recorder has ended.
pub fn recorder_of(checked: &Checked) -> Option<Option<u32>> {
    let ours = channel(checked)?;
    let own = fs::metadata("/proc/self/exe").ok();
    let is_heaptrack = |pid: u32| {
        let name = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let is_same = fs::metadata(format!("/proc/{pid}/exe")).ok().zip(own.as_ref()).is_some_and(|(a, b)| {
            use std::os::unix::fs::MetadataExt;
            (a.dev(), a.ino()) == (b.dev(), b.ino())
        });
        is_same || name.file_name().is_some_and(|name| name.to_string_lossy().starts_with("heaptrac"))
    };
    let maps_it = |pid: u32| {
        let maps = Maps::of(Path::new(&format!("/proc/{pid}"))).unwrap_or_default();
        maps.0
            .iter()
            .any(|mapping| mapping.inode == ours.inode && mapping.device == ours.device && mapping.name == ours.name)
    };
    let entries = fs::read_dir("/proc").ok()?;
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    Some(pids.find(|pid| *pid != checked.process.pid && is_heaptrack(*pid) && maps_it(*pid)))
}
