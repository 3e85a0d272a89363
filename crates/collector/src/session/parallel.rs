//! A merge on several threads.
//!
//! The collecting thread starts them for a merge that has much to do, and goes on when they are gone. Between two merges everything belongs
//! to the collecting thread, so nothing else needs to know about them.
use super::Collector;
use super::members::Members;
use crate::merge::{Consumer, Item, Learner, Ordering, Patience, RecentFrees, Verdict};
use crate::numbering::Definitions;
use crate::recorder::Recorder;
use crate::stats::Stats;
use crate::writer::Writer;
use channel::Stamp;
use std::sync::atomic;

/// With fewer queued words than this, the merge takes less time than it takes to start a thread.
pub(super) const MUCH: usize = 1 << 16;

impl Collector {
    /// What the threads leave is taken by the collecting thread alone.
    pub(super) fn merge_in_parallel(&mut self, watermark: Stamp, patience: Patience) {
        let Collector { cores, merge, recorder, writer, drain, members, header, unmerged, .. } = self;
        let writer: &Writer = writer;
        let mut numbering = recorder.lend_numbering();
        let mut recording = Recording { recorder, writer };
        let relieve = |ordering: &mut Ordering| {
            header.progress.fetch_add(1, atomic::Ordering::Relaxed);
            // The modules of these events are read before the next merge, which is the first that takes them.
            let others = members.iter_mut().flat_map(Members::drains);
            for drain in std::iter::once(&mut *drain).chain(others) {
                *unmerged += drain.relieve_rings(ordering).map_or(0, |drained| drained.words);
            }
            writer.has_room()
        };
        let merged =
            merge.run_in_parallel(cores.threads(), (watermark, patience), &mut numbering, &mut recording, relieve);
        self.recorder.return_numbering(numbering);
        // If no thread can be started (no memory, too many processes), nothing is lost.
        if let Ok(threads) = merged {
            Stats::set(&self.stats.threads, Stats::get(&self.stats.threads).max(threads as u64));
        }
    }
}

pub(super) fn write_pending(recorder: &mut Recorder, writer: &Writer) {
    let events = recorder.event_count();
    recorder.take_blocks(|block| writer.put(block, events));
}

/// The recorder on a thread of its own.
struct Recording<'a> {
    recorder: &'a mut Recorder,
    writer: &'a Writer,
}

impl Consumer for Recording<'_> {
    fn wants_slices(&self) -> bool {
        true
    }

    fn take(&mut self, item: &Item) -> Verdict {
        self.recorder.take(item)
    }

    fn take_all(&mut self, items: &[Item], frees: &mut RecentFrees) -> (usize, Verdict) {
        self.recorder.take_all(items, frees)
    }

    fn force(&mut self, item: &Item) {
        self.recorder.force(item);
    }

    fn is_full(&self) -> bool {
        self.recorder.is_full()
    }
}

impl Learner for Recording<'_> {
    fn learn(&mut self, definitions: &mut Definitions) {
        self.recorder.learn(definitions);
    }

    fn end_slice(&mut self) {
        if self.recorder.is_full() {
            write_pending(self.recorder, self.writer);
        }
    }
}
