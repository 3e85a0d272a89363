//! Children that the target forked while it was attached to.
//!
//! A forked child has a copy of the patches, of our code and of the journal, and the shared memory is mapped in it. Its
//! gate is shut: the kernel has wiped that page. So it runs right, but slower, and keeps the memory. What must hold:
//! every such child is put back as its parent is, or named; a process that only looks similar is left alone.
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

/// Children fork children while we work: so many times all processes are looked at.
const ROUNDS: u32 = 10;

/// What became of them.
#[derive(Debug, Default)]
pub struct Children {
    /// Put back.
    pub restored: usize,
    /// Not put back, or not wholly, and why.
    pub left: Vec<(u32, String)>,
}

/// Puts back all that were forked since the recorders of these journals started. `image_id`: our own build.
pub fn restore(parent: &Process, journals: &[Journal], image_id: u64) -> Children {
    let mut children = Children::default();
    // Whatever has happened to the processes, a journal with no recorder was never in force.
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
                // A child that has ended or become another program has nothing of ours.
                Err(Refusal::Exited { .. } | Refusal::Replaced { .. } | Refusal::NoProcess(_) | Refusal::Dead(_)) => (),
                Err(refusal) => children.left.push((child.pid, refusal.to_string())),
            }
        }
    }
    children
}

/// All processes that started then or later.
fn younger(since: u64) -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |pid| process::started(*pid).is_some_and(|started| started >= since))
        .filter_map(|pid| Process::new(pid).ok())
}

/// It has a copy of one of these journals, which is about another process, and something of the session is still in it.
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

/// True for a process that has no memory of its own, such as the child of a vfork.
fn shares_memory(a: u32, b: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: with `KCMP_VM`, `kcmp` takes numbers only, touches no memory of ours and changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, a as libc::pid_t, b as libc::pid_t, KCMP_VM, 0, 0) == 0 }
}

/// Bytes of shared memory that stay.
fn restore_child(child: &Process, parent: &Process, image_id: u64) -> Result<u64, Refusal> {
    let checked = Checked::interruptible(child.pid, parent.interrupt.clone())?;
    let journals = Journal::find(&checked.maps, &checked.memory);
    if journals.iter().any(|journal| journal.is_recorded(&checked.process)) {
        return Ok(0);
    }
    let restored = crate::on_own_thread(|| repair::restore_one(&checked, &journals, image_id));
    restored.map(|restored| restored.shared_bytes).map_err(|refusal| checked.truth(refusal))
}
