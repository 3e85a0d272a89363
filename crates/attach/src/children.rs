//! Children that the target forked while it was attached to.
//!
//! A forked child has a copy of the patches, of our code and of the journal, and has the shared memory mapped. Its gate
//! is shut, because the kernel has wiped that page. So the child works correctly, but is slower, and keeps the shared
//! memory mapped. Must hold: every such child whose memory can be opened is restored like its parent, or named in the
//! report. A process that only looks similar is left alone.
use crate::CHANNEL;
use crate::check::Checked;
use crate::error::Refusal;
use crate::journal::Journal;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::process::{self, Process};
use crate::repair;
use std::collections::HashSet;
use std::fs;

/// The most times that all processes are searched for children. One search is not enough, because children may fork
/// children meanwhile.
const ROUNDS: u32 = 10;

/// What became of the children.
#[derive(Debug, Default)]
pub struct Children {
    /// How many were restored.
    pub restored: usize,
    /// Those that were not restored, or not completely, and why.
    pub left: Vec<(u32, String)>,
}

/// Restores the children that were forked since the earliest recorder of these journals started. `image_id` is the id
/// of this build's image.
pub fn restore(parent: &Process, journals: &[Journal], image_id: u64) -> Children {
    let mut children = Children::default();
    // A journal without a recorder was never in force.
    let journals: Vec<Journal> = journals.iter().filter(|journal| journal.recorder != 0).cloned().collect();
    let Some(since) = journals.iter().map(|journal| journal.recorder_started).min() else { return children };
    let mut seen = HashSet::from([parent.pid, std::process::id()]);
    for _ in 0..ROUNDS {
        let found: Vec<Process> = younger(since).filter(|child| is_child(child, parent.pid, &journals)).collect();
        let new: Vec<&Process> = found.iter().filter(|child| seen.insert(child.pid)).collect();
        if new.is_empty() {
            break;
        }
        for child in new {
            match restore_child(child, parent, image_id) {
                Ok(0) => children.restored += 1,
                Ok(bytes) => {
                    children.left.push((child.pid, format!("{} kB of shared memory stay mapped", bytes >> 10)))
                }
                // A child that has exited or become another program needs no restoring.
                Err(Refusal::Exited { .. } | Refusal::Replaced { .. } | Refusal::NoProcess(_) | Refusal::Dead(_)) => (),
                Err(refusal) => children.left.push((child.pid, refusal.to_string())),
            }
        }
    }
    children
}

/// Returns all processes that started at this time or later.
fn younger(since: u64) -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |pid| process::started(*pid).is_some_and(|started| started >= since))
        .filter_map(|pid| Process::new(pid).ok())
}

/// Returns true if the process has a copy of one of these journals, which names another process as the target, and if
/// the session is still in force in it or its shared memory is still mapped.
fn is_child(child: &Process, parent: u32, journals: &[Journal]) -> bool {
    let Ok(memory) = Memory::open(&child.folder) else { return false };
    let Ok(maps) = Maps::of(&child.folder) else { return false };
    let is_shared = maps.0.iter().any(|mapping| mapping.name.starts_with(CHANNEL));
    let mut copies = journals.iter().filter_map(|journal| {
        maps.at(journal.at).filter(|mapping| mapping.is_anonymous() && mapping.start == journal.at)?;
        let copy = Journal::read(&memory, journal.at)?;
        let is_same = copy.target == journal.target && copy.target_started == journal.target_started;
        (is_same && copy.home == journal.home && !copy.is_about(child)).then_some(copy)
    });
    copies.any(|copy| is_shared || copy.is_in_force(&memory)) && !shares_memory(child.pid, parent)
}

/// Returns true if two processes share their memory, such as a child of vfork and its parent.
fn shares_memory(a: u32, b: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: with `KCMP_VM`, `kcmp` takes numbers only, touches no memory of ours and changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, a as libc::pid_t, b as libc::pid_t, KCMP_VM, 0, 0) == 0 }
}

/// Restores a child. Returns how many bytes of shared memory stay mapped. Does nothing and returns 0 if another
/// recorder has attached to the child itself.
fn restore_child(child: &Process, parent: &Process, image_id: u64) -> Result<u64, Refusal> {
    let checked = Checked::interruptible(child.pid, parent.interrupt.clone())?;
    let journals = Journal::find(&checked.maps, &checked.memory);
    if journals.iter().any(|journal| journal.is_recorded(&checked.process)) {
        return Ok(0);
    }
    let restored = crate::on_own_thread(|| repair::restore_one(&checked, &journals, image_id));
    restored.map(|restored| restored.shared_bytes).map_err(|refusal| checked.truth(refusal))
}
