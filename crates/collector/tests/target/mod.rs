//! Plays the target: threads of this process that write records as the library in a real program would.
#![allow(dead_code, clippy::unwrap_used)]
use channel::{Fence, Header, Kind, Phase, SlotHeader, encode_alloc, encode_free, encode_mark, encode_path};
use collector::{Mapping, Plan, RecorderThreads, Setup, SlotArea};
use rustix::thread::futex;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// So many threads of the recorder.
pub fn exactly(threads: usize) -> RecorderThreads {
    RecorderThreads::Exactly(NonZero::new(threads).unwrap())
}

pub fn plan(path: &Path, clock: channel::Clock) -> Plan {
    Plan {
        setup: Setup {
            geometry: channel::Geometry::roomy(channel::WriterMemory::NONE),
            clock,
            on_full: channel::OnFull::Wait,
            max_stall_ms: 30_000,
            lsan_symbol: 0,
            watched: false,
            reads_every_clock: false,
            records_maps: false,
            sampling: Default::default(),
        },
        file: std::fs::File::create(path).unwrap(),
        bound: None,
        folder: std::env::temp_dir(),
        command: vec!["program".into(), "--flag".into()],
        exe: "/bin/program".into(),
        tool: "test".into(),
        follows: None,
        memory_every: None,
        threads: exactly(1),
    }
}

/// Does what the library does when it starts.
pub fn start(mapping: &Mapping) {
    let header = mapping.region().header();
    header.target_pid.store(std::process::id(), Ordering::Release);
    let registered = rustix::thread::membarrier(rustix::thread::MembarrierCommand::RegisterGlobalExpedited);
    assert!(registered.is_ok());
    header.fence.store(Fence::Membarrier as u32, Ordering::Release);
    header.image.store(1, Ordering::Release);
    header.phase.store(Phase::Recording as u32, Ordering::Release);
}

/// Wakes the collector.
pub fn wake(mapping: &Mapping) {
    let doorbell = &mapping.region().header().doorbell;
    doorbell.fetch_add(1, Ordering::AcqRel);
    let _ = futex::wake(doorbell, futex::Flags::empty(), 1);
}

pub fn stamp() -> u64 {
    // SAFETY: the instruction exists on all processors this is built for.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// A thread of the target and its slot.
pub struct Thread {
    mapping: Arc<Mapping>,
    index: u32,
    area: SlotArea,
    head: u64,
    room: u64,
    capacity: u64,
}

impl Thread {
    pub fn new(mapping: &Arc<Mapping>, index: u32) -> Self {
        let slot = mapping.region().slot(index).unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(slot.claim(tid, 1).is_some());
        let header = mapping.region().header();
        header.slot_count.fetch_max(index + 1, Ordering::AcqRel);
        let area = mapping.slot_area(index).unwrap();
        let capacity = area.rings()[0].capacity() as u64;
        let head = slot.head.load(Ordering::Relaxed);
        let mut thread = Thread { mapping: Arc::clone(mapping), index, area, head, room: 0, capacity };
        thread.write(|stamp| encode_mark(Kind::ThreadStart, stamp, tid));
        thread
    }

    fn header(&self) -> &Header {
        self.mapping.region().header()
    }

    fn slot(&self) -> &SlotHeader {
        self.mapping.region().slot(self.index).unwrap()
    }

    pub fn alloc(&mut self, address: u64, size: u64, stack: u32) {
        self.write(|stamp| encode_alloc(stamp, address, size, stack));
    }

    /// An allocation with a stack that is defined in the same commit: frames leaf first, numbered from `first` on.
    pub fn alloc_new(&mut self, address: u64, size: u64, first: u32, tail: u32, frames: &[u64]) {
        self.slot().intent.store(stamp(), Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        let mut words = encode_path(first, frames.len(), tail).to_vec();
        words.extend(frames);
        words.extend(encode_alloc(stamp(), address, size, first));
        self.put(&words);
        self.slot().intent.store(0, Ordering::Release);
    }

    pub fn free(&mut self, address: u64) {
        self.write(|stamp| encode_free(Kind::Free, stamp, address));
    }

    pub fn realloc_free(&mut self, address: u64) {
        self.write(|stamp| encode_free(Kind::FreeByRealloc, stamp, address));
    }

    pub fn image(&mut self, image: u32) {
        self.write(|stamp| encode_mark(Kind::Image, stamp, image));
    }

    #[inline]
    pub fn write<const N: usize>(&mut self, record: impl FnOnce(u64) -> [u64; N]) {
        // As the real writer does: a thread that waits for room promises nothing, so that it holds up no other thread's events.
        if self.room < N as u64 {
            self.wait(N as u64);
        }
        self.slot().intent.store(stamp(), Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        let words = record(stamp());
        self.put(&words);
        self.slot().intent.store(0, Ordering::Release);
    }

    /// Writes a record whose stamp the caller chose.
    pub fn put(&mut self, words: &[u64]) {
        if self.room < words.len() as u64 {
            self.wait(words.len() as u64);
        }
        let [ring, _] = self.area.rings();
        for word in words {
            ring.put(self.head, *word);
            self.head += 1;
        }
        self.room -= words.len() as u64;
        self.slot().begun.fetch_add(1, Ordering::Relaxed);
        ring.commit(self.head);
        let half = self.capacity / 2;
        let passed = self.head / half != (self.head - words.len() as u64) / half;
        if passed && self.header().collector_asleep.load(Ordering::Relaxed) != 0 {
            wake(&self.mapping);
        }
    }

    fn wait(&mut self, words: u64) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            let [ring, _] = self.area.rings();
            self.room = ring.room();
            if self.room >= words {
                return;
            }
            self.slot().waiting.store(1, Ordering::SeqCst);
            if ring.room() < words {
                let _ = futex::wait(&self.slot().waiting, futex::Flags::empty(), 1, Some(&timeout));
            }
        }
    }

    pub fn stop_inside(&self, since: u64) {
        self.slot().intent.store(since, Ordering::SeqCst);
    }
}
