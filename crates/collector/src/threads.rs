//! The target's threads, numbered in the order of their first event.
//!
//! Receives: ThreadStart events by slot. Returns: the trace's thread index of a slot, and thread descriptions, which
//! must be written before they are used. Must hold: an index is never used again; a thread whose name becomes known
//! later is written again.
use crate::proc_files::Process;
use format::Thread;

#[derive(Debug, Default)]
pub struct Threads {
    /// Thread index by slot.
    by_slot: Vec<Option<u32>>,
    known: Vec<Thread>,
    /// The threads that are not known to be gone, and their processes.
    alive: Vec<(u32, u16)>,
    changed: Vec<Thread>,
}

impl Threads {
    /// From now on, the events of `slot` belong to thread `tid` of `process`.
    pub fn start(&mut self, slot: u32, (process, tid): (u16, u32), image: u32, name: Option<String>) -> u32 {
        let slot = slot as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        let index = self.known.len() as u32;
        let thread = Thread { index, tid, image, name: name.unwrap_or_default() };
        self.changed.push(thread.clone());
        self.known.push(thread);
        self.alive.push((index, process));
        if let Some(place) = self.by_slot.get_mut(slot) {
            *place = Some(index);
        }
        index
    }

    /// Returns `None` if the slot has not started a thread.
    pub fn of_slot(&self, slot: u32) -> Option<u32> {
        self.by_slot.get(slot as usize).copied().flatten()
    }

    /// Reads the names again, because a thread may name itself after its first allocation.
    pub fn refresh_names<'a>(&mut self, process_of: impl Fn(u16) -> Option<&'a Process>) {
        let (known, changed) = (&mut self.known, &mut self.changed);
        self.alive.retain(|&(index, process)| {
            let Some(thread) = known.get_mut(index as usize) else { return false };
            let name = process_of(process).and_then(|process| process.thread_name(thread.tid));
            let Some(name) = name else { return false };
            if thread.name != name {
                thread.name = name;
                changed.push(thread.clone());
            }
            true
        });
    }

    /// Returns the threads that are new or renamed since the last call.
    pub fn take(&mut self) -> Vec<Thread> {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_used_again_is_another_thread() {
        let mut threads = Threads::default();
        assert_eq!(threads.of_slot(3), None);
        assert_eq!(threads.start(3, (0, 100), 1, Some("a".into())), 0);
        assert_eq!(threads.start(1, (0, 101), 1, None), 1);
        assert_eq!(threads.start(3, (0, 102), 1, None), 2);
        assert_eq!((threads.of_slot(3), threads.of_slot(1)), (Some(2), Some(1)));
        let tids: Vec<_> = threads.take().iter().map(|thread| thread.tid).collect();
        assert_eq!(tids, [100, 101, 102]);
        assert!(threads.take().is_empty());
    }

    #[test]
    fn a_new_name_is_written_again() {
        let mut threads = Threads::default();
        let pid = std::process::id();
        threads.start(0, (0, pid), 1, Some("old".into()));
        threads.take();
        let process = Process::new(pid);
        threads.refresh_names(|_| Some(&process));
        let [thread] = &threads.take()[..] else { panic!("one thread") };
        assert_eq!(thread.name, Process::new(pid).thread_name(pid).unwrap());
    }
}
