//! The collector without threads, files and real time, for `fuzz/targets/ring.rs`. Built with `--cfg fuzzing`, and with
//! the unit tests so that it always compiles.
//!
//! Receives: shared memory into which a hostile target writes between two rounds. Returns: what the collector made of
//! it.
use crate::aggregate::{Aggregate, LiveSite};
use crate::clock::Timeline;
use crate::drain::Drain;
use crate::mapping::{Mapping, Setup};
use crate::merge::{Merge, Patience, Stopped};
use crate::modules::text;
use crate::proc_files::Process;
use crate::queue::Store;
use crate::recorder::Recorder;
use crate::sink::Sink;
use crate::spill::Spill;
use channel::{Clock, Geometry, OnFull, Stamp, WriterMemory};
use format::{RawBlock, Totals};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How much of the real collector's work a round does.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// How long an allocation waits for the free before it, and a free for its allocation, in stamps.
    pub patience: u64,
    /// Also look for threads that are gone and for modules that were unloaded.
    pub is_periodic: bool,
    /// Write pending events even if there are few.
    pub takes_blocks: bool,
}

pub struct Collector {
    mapping: Arc<Mapping>,
    drain: Drain,
    merge: Merge,
    recorder: Recorder,
    is_live: bool,
    /// All blocks that the recorder would have written to the file, in order.
    pub blocks: Vec<RawBlock>,
}

/// The sums at the end.
#[derive(Clone, Debug)]
pub struct Sums {
    pub totals: Totals,
    pub custom: Option<Totals>,
    pub mapped: Option<Totals>,
    pub live_sites: Vec<LiveSite>,
    /// The number of merged events of all rings.
    pub merged: u64,
    pub missing: u64,
    pub broken_words: u64,
    pub stopped_slots: u64,
    pub corrupt_stacks: u64,
}

impl Collector {
    /// All queues together hold `words` words in memory before they spill.
    pub fn new(is_live: bool, words: usize) -> Option<Self> {
        let setup = Setup {
            reads_every_clock: false,
            records_maps: true,
            sampling: Default::default(),
            geometry: Geometry::tight(WriterMemory::NONE),
            clock: Clock::Ticks,
            on_full: OnFull::Drop,
            max_stall_ms: 0,
            lsan_symbol: 0,
            watched: is_live,
        };
        let mapping = Arc::new(Mapping::create(&setup).ok()?);
        let sink = if is_live { Sink::Live(Box::new(Aggregate::new(8))) } else { Sink::trace() };
        let timeline = Timeline::new(Clock::Ticks, Instant::now(), mapping.region().header());
        Some(Collector {
            drain: Drain::new(Arc::clone(&mapping), 0),
            merge: Merge::new(Store::new(Spill::new(std::env::temp_dir()), words)),
            recorder: Recorder::new(Arc::clone(&mapping), timeline, Process::new(0), "/program".to_owned(), sink),
            is_live,
            blocks: Vec::new(),
            mapping,
        })
    }

    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub fn round(&mut self, round: Round) {
        let now = self.recorder.timeline.sample(self.mapping.region().header());
        let watermark = self.drain.watermark(now);
        self.drain.empty_rings(self.merge.ordering());
        self.merge_to(watermark, round.patience);
        if round.is_periodic {
            self.drain.reap(&self.recorder.process, &self.merge);
            self.recorder.refresh();
        }
        if round.takes_blocks {
            self.take_blocks();
        }
    }

    fn merge_to(&mut self, watermark: Stamp, patience: u64) {
        self.recorder.read_modules();
        let patience = Patience { free: patience, alloc: patience };
        loop {
            match self.merge.run(watermark, patience, &mut self.recorder) {
                Stopped::Done | Stopped::Waiting => return,
                Stopped::Paused => {
                    self.drain.relieve_rings(self.merge.ordering());
                }
                Stopped::Full => {
                    if self.is_live {
                        self.recorder.compact();
                    }
                    self.take_blocks();
                }
            }
        }
    }

    fn take_blocks(&mut self) {
        let blocks = &mut self.blocks;
        self.recorder.take_blocks(|block| blocks.push(block));
    }

    /// Does what `session::ending` does, and takes everything that would be written.
    pub fn finish(&mut self) -> Sums {
        let mapping = Arc::clone(&self.mapping);
        let header = mapping.region().header();
        self.recorder.timeline.sample(header);
        let begun = self.drain.begun();
        loop {
            let drained = self.drain.empty_rings(self.merge.ordering());
            self.merge_to(Stamp::MAX, 0);
            if drained.words == 0 && self.merge.is_empty() {
                break;
            }
        }
        self.drain.audit_all(&self.merge, &begun);
        self.recorder.refresh();
        self.take_blocks();
        let place = header.suppressions.text.load(Ordering::Acquire);
        let _ = text(&self.mapping.region(), (place >> 32) as u32, place as u32);
        Sums {
            totals: self.recorder.totals(),
            custom: self.recorder.custom_totals(),
            mapped: self.recorder.mapped_totals(),
            live_sites: self.recorder.live_sites(),
            merged: (0..begun.len() as u32 * 2).map(|source| self.merge.taken(source)).sum(),
            missing: self.drain.missing(),
            broken_words: self.merge.broken_words(),
            stopped_slots: self.drain.stopped_slots(),
            corrupt_stacks: self.recorder.corrupt_stacks(),
        }
    }
}
