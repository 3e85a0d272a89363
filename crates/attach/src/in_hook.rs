//! Whether a thread may still need the shared memory of a session that is over.
//!
//! A hook reads the gate before it uses shared memory. After the gate was shut while all threads were stopped, only a
//! hook that had read the gate before still needs the memory. Our image is the capture library in the target. A hook
//! that still needs the memory is recognised by one of these:
//!
//! - Its guard is up, in its thread's slot in the shared memory. This holds on any stack, and also while the hook calls
//!   the real function.
//! - The thread is at an instruction of our image. That is so between the gate and the guard, and in the notification
//!   function for the loader, which has no guard.
//! - A signal handler has interrupted the thread at an instruction of our image. A signal frame on its stack says so.
//!
//! - It is in libc's `fork` or `execve`, called by our image, which counts such threads (`capture::follow::BUSY_AT`).
//!
//! Return addresses into our image prove nothing, because a large frame of the program may keep old ones for ever. They
//! count only if the slots cannot be used: those of another build of heaptrack, which cannot be read, and those in a
//! forked child, which are its parent's. A part of a stack that was not read (`is_cut`) may have any of these words.
use crate::check::Checked;
use crate::journal::Journal;
use crate::maps::{Mapping, Maps};
use crate::memory::Memory;
use crate::scan::{self, Thread};
use crate::{CHANNEL, process::Process};
use capture::core::{SlotGuards, geometry_of};
use capture::follow::BUSY_AT;
use channel::{Geometry, HUB_MAGIC, Header, MAGIC};
use std::mem::offset_of;

/// Returns true if a thread is in a hook, or if that cannot be excluded. All threads are stopped. `image_id` is the id
/// of this build's image.
pub fn is_possible(checked: &Checked, journals: &[Journal], maps: &Maps, threads: &[Thread], image_id: u64) -> bool {
    let Checked { process, memory, .. } = checked;
    let is_image = |address: u64| {
        journals.iter().any(|journal| (journal.image..journal.home + journal.home_length).contains(&address))
    };
    if threads.iter().any(|thread| is_image(thread.registers.rip)) {
        return true;
    }
    let is_calling = |journal: &Journal| {
        journal.following != 0 && memory.word(journal.following + BUSY_AT as u64).map_or(true, |count| count != 0)
    };
    if journals.iter().any(is_calling) {
        return true;
    }
    let catches_signals = process.status().map_or(true, |status| status.caught != 0);
    let is_interrupted = |thread: &Thread| thread.is_cut || thread.is_interrupted_in(is_image);
    if catches_signals && threads.iter().any(is_interrupted) {
        return true;
    }
    let is_known = journals.iter().all(|journal| journal.image_id == image_id);
    let is_child = journals.iter().any(|journal| journal.target != 0 && !journal.is_about(process));
    if is_child {
        // In a forked child, the slots are those of its parent's threads. Of these threads it has only the one that
        // called fork. No hook calls fork, but a signal handler that interrupted a hook may have.
        let is_in_handler = |thread: &Thread| thread.is_interrupted_in(|_| true);
        let is_in_hook = |thread: &Thread| thread.may_return_to(is_image) && is_in_handler(thread);
        if threads.iter().any(|thread| thread.is_cut || is_in_hook(thread)) {
            return true;
        }
        // If its tree is followed, it has a session of its own.
        let own = sessions(maps).filter(|session| session.target(memory).is_some_and(|pid| is_pid_of(process, pid)));
        return own.into_iter().any(|session| is_any_at_work(&session, process, maps, threads, memory, is_image));
    }
    if !is_known {
        return threads.iter().any(|thread| thread.is_cut || thread.may_return_to(is_image));
    }
    sessions(maps).any(|session| is_any_at_work(&session, process, maps, threads, memory, is_image))
}

/// Returns true if a hook of this session is at work, or if that cannot be excluded.
fn is_any_at_work(
    session: &Session<'_>,
    process: &Process,
    maps: &Maps,
    threads: &[Thread],
    memory: &Memory,
    is_image: impl Fn(u64) -> bool + Copy,
) -> bool {
    match session.guards(memory) {
        Some(guards) => guards.iter().any(|slot| is_at_work(slot, process, maps, threads)),
        None => threads.iter().any(|thread| thread.is_cut || thread.may_return_to(is_image)),
    }
}

/// Returns true if this is the process's pid in its own namespace.
fn is_pid_of(process: &Process, pid: u32) -> bool {
    process.status().is_ok_and(|status| status.namespace_pids.last() == Some(&pid))
}

/// The mappings of one channel: its fixed part and its slots.
struct Session<'a> {
    maps: Vec<&'a Mapping>,
}

/// Returns each channel that is mapped.
fn sessions(maps: &Maps) -> impl Iterator<Item = Session<'_>> {
    let shared = || maps.0.iter().filter(|mapping| mapping.name.starts_with(CHANNEL));
    let mut inodes: Vec<u64> = shared().map(|mapping| mapping.inode).collect();
    inodes.sort_unstable();
    inodes.dedup();
    inodes.into_iter().map(move |inode| Session { maps: shared().filter(|mapping| mapping.inode == inode).collect() })
}

impl Session<'_> {
    /// Returns the address at which a part of the channel's file is mapped.
    fn at(&self, offset: u64, length: usize) -> Option<u64> {
        let fits =
            |mapping: &&&Mapping| offset >= mapping.offset && offset + length as u64 <= mapping.offset + mapping.len();
        self.maps.iter().find(fits).map(|mapping| mapping.start + (offset - mapping.offset))
    }

    fn read<const N: usize>(&self, memory: &Memory, offset: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        memory.read(self.at(offset as u64, N)?, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the pid of the process that records into the channel.
    fn target(&self, memory: &Memory) -> Option<u32> {
        Some(u32::from_ne_bytes(self.read(memory, offset_of!(Header, target_pid))?))
    }

    /// Returns the guards of all slots that were ever used, or `None` if this build cannot read the channel.
    fn guards(&self, memory: &Memory) -> Option<Vec<SlotGuards>> {
        match u64::from_ne_bytes(self.read(memory, offset_of!(Header, magic))?) {
            MAGIC => (),
            // The recorder died before it had filled in the header, so no hook has ever run.
            0 => return Some(Vec::new()),
            // The hub of a followed tree has no slots.
            HUB_MAGIC => return Some(Vec::new()),
            _ => return None,
        }
        const GEOMETRY: usize = size_of::<Geometry>();
        let geometry = geometry_of(&self.read::<GEOMETRY>(memory, offset_of!(Header, geometry))?)?;
        let count = u32::from_ne_bytes(self.read(memory, offset_of!(Header, slot_count))?).min(geometry.slots);
        // A slot that is not mapped has no thread.
        let slot = |slot| self.read(memory, SlotGuards::offset(&geometry, slot) as usize);
        Some((0..count).filter_map(slot).map(|bytes| SlotGuards::parse(&bytes)).collect())
    }
}

/// Returns true if a hook of this slot is at work, or if that cannot be excluded.
fn is_at_work(slot: &SlotGuards, process: &Process, maps: &Maps, threads: &[Thread]) -> bool {
    if slot.guards == [0, 0] {
        return false;
    }
    let own_tid = |thread: &Thread| {
        let status = process.thread_status(thread.tid).ok()?;
        status.namespace_pids.last().copied()
    };
    // If a thread has ended in a hook, its guard stays up.
    let Some(thread) = threads.iter().find(|thread| own_tid(thread) == Some(slot.tid)) else { return false };
    if thread.registers.fs_base != slot.thread_pointer {
        return true;
    }
    slot.guards.iter().any(|guard| *guard != 0 && !was_left(*guard, thread, maps))
}

/// Returns true if a jump (`siglongjmp`) has left the hook. Then its thread is on the same stack, above the hook's
/// frame, whose address is `guard`.
fn was_left(guard: u64, thread: &Thread, maps: &Maps) -> bool {
    let rsp = thread.registers.rsp;
    let here = maps.at(rsp).filter(|mapping| scan::is_home(mapping, maps, thread.registers.fs_base));
    here.is_some_and(|mapping| mapping.holds(guard - 1)) && rsp >= guard
}
