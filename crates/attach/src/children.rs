//! Children that the target forked while it was attached to.
//!
//! A forked child has a copy of the patches, of our code and of the journal, and has the shared memory mapped. Its gate
//! is shut, because the kernel has wiped that page. So the child works correctly, but is slower, and keeps the shared
//! memory mapped. Must hold: every such child is restored like its parent, or named in the report. The only exception is
//! a child whose memory cannot be opened and whose parent has ended, because then nothing tells whose child it is. A
//! process that only looks similar is left alone.
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
use std::io::ErrorKind;

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
    /// Those whose memory cannot be opened, and why. They may have been forked before the recording began.
    pub hidden: Vec<(u32, String)>,
    /// Those that another recorder has attached to since, with its pid. It has restored them before, and will again.
    pub recorded: Vec<(u32, u32)>,
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
        let mut found: Vec<(Process, Kind)> =
            younger(since).filter_map(|child| kind(&child, parent.pid, &journals).map(|kind| (child, kind))).collect();
        found.retain(|(child, _)| seen.insert(child.pid));
        if found.is_empty() {
            break;
        }
        for (child, kind) in &found {
            if let Kind::Hidden(why) = kind {
                children.hidden.push((child.pid, why.to_string()));
                continue;
            }
            match restore_child(child, parent, image_id) {
                Ok(Became::Restored) => children.restored += 1,
                Ok(Became::Recorded(recorder)) => children.recorded.push((child.pid, recorder)),
                Ok(Became::Shared(bytes)) => {
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

enum Kind {
    /// A child that has to be restored.
    Forked,
    /// A child whose memory cannot be opened.
    Hidden(Refusal),
}

/// Returns the kind of a child, or `None` if the process is no child, or if nothing of ours is in it.
fn kind(child: &Process, parent: u32, journals: &[Journal]) -> Option<Kind> {
    match Memory::open(&child.folder) {
        Ok(memory) => has_copy(child, &memory, parent, journals).then_some(Kind::Forked),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let is_hidden = is_forked_from(child, parent) && !child.has_exited();
            is_hidden.then(|| Kind::Hidden(Refusal::seize(child, &error)))
        }
        Err(_) => None,
    }
}

/// Returns true if a process is a copy of another one that still exists: neither it nor a process between them has
/// executed a program. This needs no permission.
fn is_forked_from(child: &Process, parent: u32) -> bool {
    const MOST_GENERATIONS: usize = 64;
    let forked = |pid: &u32| process::is_fork(*pid).then(|| process::parent(*pid)).flatten();
    std::iter::successors(Some(child.pid), forked).skip(1).take(MOST_GENERATIONS).any(|pid| pid == parent)
}

/// Returns true if the process has a copy of one of these journals, which names another process as the target, and if
/// the session is still in force in it or its shared memory is still mapped.
fn has_copy(child: &Process, memory: &Memory, parent: u32, journals: &[Journal]) -> bool {
    let Ok(maps) = Maps::of(&child.folder) else { return false };
    let is_shared = maps.0.iter().any(|mapping| mapping.name.starts_with(CHANNEL));
    let mut copies = journals.iter().filter_map(|journal| {
        maps.at(journal.at).filter(|mapping| mapping.is_anonymous() && mapping.start == journal.at)?;
        let copy = Journal::read(memory, journal.at)?;
        let is_same = copy.target == journal.target && copy.target_started == journal.target_started;
        (is_same && copy.home == journal.home && !copy.is_about(child)).then_some(copy)
    });
    copies.any(|copy| is_shared || copy.is_in_force(memory)) && !shares_memory(child.pid, parent)
}

/// Returns true if two processes share their memory, such as a child of vfork and its parent.
fn shares_memory(a: u32, b: u32) -> bool {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: with `KCMP_VM`, `kcmp` takes numbers only, touches no memory of ours and changes nothing.
    unsafe { libc::syscall(libc::SYS_kcmp, a as libc::pid_t, b as libc::pid_t, KCMP_VM, 0, 0) == 0 }
}

/// What became of one child.
enum Became {
    Restored,
    /// This many bytes of shared memory stay mapped.
    Shared(u64),
    /// The recorder with this pid has attached to it. Nothing was done.
    Recorded(u32),
}

fn restore_child(child: &Process, parent: &Process, image_id: u64) -> Result<Became, Refusal> {
    let checked = Checked::interruptible(child.pid, parent.interrupt.clone())?;
    let journals = Journal::find(&checked.maps, &checked.memory);
    if let Some(journal) = journals.iter().find(|journal| journal.is_recorded(&checked.process)) {
        return Ok(Became::Recorded(journal.recorder));
    }
    let restored = crate::on_own_thread(|| repair::restore_one(&checked, &journals, image_id));
    match restored.map_err(|refusal| checked.truth(refusal))?.shared_bytes {
        0 => Ok(Became::Restored),
        bytes => Ok(Became::Shared(bytes)),
    }
}
