//! The processes of the part of a trace whose events are not written again, except for those of its live blocks (`trim`,
//! `--max-size`).
//!
//! ```text
//! old    +a +b  fork  -b (released)  +c -c    cut
//! new    +a +b  fork  -b (released)           cut
//! ```
//! Must hold: in the new trace, a process holds the same live blocks after the cut as in the old one. So a release of a
//! block that is live at the cut is written again, in its place among the allocations and the starts of processes.
use crate::{IntMap, Process, Processes};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A process freed a block that others still hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) sequence: u64,
    pub(crate) thread: u32,
    pub(crate) time_ns: u64,
    /// The number of the next allocation at that moment, and (below) the events before it.
    next_sequence: u64,
    event: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ProcessPast {
    /// The latest entry of each process, with the number of events before it of its first entry.
    entries: BTreeMap<u32, Process>,
    pub(crate) threads: BTreeMap<u32, u32>,
    /// Processes that start later: the events before each, and its index. The first one is last.
    waiting: Vec<(u64, u32)>,
    /// Process -> the number of the first allocation after its start.
    first_sequence: BTreeMap<u32, u64>,
    /// By live block.
    releases: IntMap<u64, Vec<Release>>,
}

impl ProcessPast {
    pub(crate) fn add(&mut self, added: Processes) {
        self.threads.extend(added.threads);
        for mut process in added.processes {
            match self.entries.get(&process.index) {
                Some(known) => process.events_before = known.events_before,
                None => self.waiting.push((process.events_before, process.index)),
            }
            self.entries.insert(process.index, process);
        }
        self.waiting.sort_by_key(|waiting| Reverse(*waiting));
    }

    /// Called before an event. `events`: the number of events before it, `next_sequence`: the number of the next
    /// allocation. Returns the index of a process that starts here. To be called until it returns `None`.
    #[inline]
    pub(crate) fn start_before(&mut self, events: u64, next_sequence: u64) -> Option<u32> {
        let (_, index) = self.waiting.pop_if(|(events_before, _)| *events_before <= events)?;
        self.first_sequence.insert(index, next_sequence);
        Some(index)
    }

    /// `events`: the number of events before it.
    pub(crate) fn release(&mut self, sequence: u64, thread: u32, time_ns: u64, next_sequence: u64, event: u64) {
        let release = Release { sequence, thread, time_ns, next_sequence, event };
        self.releases.entry(sequence).or_default().push(release);
    }

    /// The block is live no longer.
    #[inline]
    pub(crate) fn end(&mut self, sequence: u64) {
        if !self.releases.is_empty() {
            self.releases.remove(&sequence);
        }
    }

    pub(crate) fn end_all(&mut self) {
        self.releases.clear();
    }

    pub(crate) fn entry(&self, index: u32) -> Option<&Process> {
        self.entries.get(&index)
    }

    /// Ends the past. Returns the releases in their order, and the processes that have started. The events before a
    /// process are those of the new trace. `births`: the numbers of the blocks that are live, sorted.
    pub(crate) fn take(&mut self, births: &[u64]) -> (Vec<Release>, Vec<Process>) {
        let mut releases: Vec<Release> = std::mem::take(&mut self.releases).into_values().flatten().collect();
        releases.sort_unstable_by_key(|release| release.event);
        let mut started = Vec::new();
        for (index, first_sequence) in &self.first_sequence {
            let Some(process) = self.entries.get_mut(index) else { continue };
            let allocations = births.partition_point(|sequence| sequence < first_sequence);
            let released = releases.partition_point(|release| release.event < process.events_before);
            process.events_before = (allocations + released) as u64;
            started.push(process.clone());
        }
        (releases, started)
    }
}

impl ProcessPast {
    /// The processes that are known but start later.
    pub(crate) fn take_waiting(&mut self) -> Vec<Process> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().rev().filter_map(|(_, index)| self.entries.get(&index).cloned()).collect()
    }
}

/// Calls `birth` and `release` for the live blocks and their releases, in the order of the old trace.
pub(crate) fn in_order<T>(
    context: &mut T,
    births: &[u64],
    releases: &[Release],
    mut birth: impl FnMut(&mut T, u64),
    mut release: impl FnMut(&mut T, &Release),
) {
    let mut rest = releases.iter().peekable();
    for sequence in births {
        while let Some(next) = rest.next_if(|next| next.next_sequence <= *sequence) {
            release(context, next);
        }
        birth(context, *sequence);
    }
    rest.for_each(|next| release(context, next));
}
