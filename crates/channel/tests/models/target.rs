//! A target and its collector for the models. The code that ships makes all accesses to the shared memory. This file
//! only adds a clock, threads that begin and end, and a list of what the collector saw.
use channel::{
    Decoder, Event, Header, Host, Kind, ModelMemory, OnFull, Owner, Reaped, RingWriter, Stamp, WriterState,
    encode_alloc, encode_free, model_signal,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

pub const IMAGE: u32 = 1;
pub const FREE_WORDS: u32 = channel::FREE_WORDS as u32;

/// The process of the target.
pub struct Target {
    pub memory: ModelMemory,
    /// The time stamp counter. Its accesses are relaxed, because it orders nothing but stamps.
    clock: AtomicU64,
    threads_begun: AtomicU32,
    /// Bit `n` is set if the thread with tid `n` has ended.
    ended: AtomicU64,
    /// How often a thread slept.
    pub waits: AtomicU32,
    has_plain_stamps: bool,
}

/// What the collector chooses before the target starts.
pub struct Settings {
    pub slots: u32,
    pub ring_words: u32,
    pub on_full: OnFull,
    pub max_stall_ms: u32,
    /// If false, every event reads the clock.
    pub may_count: bool,
}

impl Settings {
    pub const WAITS: Settings =
        Settings { slots: 1, ring_words: 8, on_full: OnFull::Wait, max_stall_ms: 1000, may_count: false };
}

impl Target {
    pub fn new(settings: Settings) -> Arc<Target> {
        let Settings { slots, ring_words, on_full, max_stall_ms, may_count } = settings;
        let header =
            Header { on_full: on_full as u32, max_stall_ms, image: AtomicU32::new(IMAGE), ..Header::default() };
        Arc::new(Target {
            memory: ModelMemory::new(slots, ring_words, header),
            clock: AtomicU64::new(10),
            threads_begun: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            has_plain_stamps: may_count,
        })
    }

    /// Between two reads, the counter grows by more than the number of stamps that a thread makes without it.
    fn now(&self) -> Stamp {
        self.clock.fetch_add(100, Ordering::Relaxed)
    }
}

impl Host for Target {
    fn header(&self) -> &Header {
        self.memory.region().header()
    }

    fn is_recording(&self) -> bool {
        true
    }

    fn stop_recording(&self) {
        panic!("no model ends the recording");
    }

    fn has_plain_stamps(&self) -> bool {
        self.has_plain_stamps
    }

    fn plain_stamp(&self) -> Stamp {
        let now = self.now();
        model_signal::point();
        now
    }

    fn stamp_after(&self, _last: Stamp) -> Stamp {
        self.plain_stamp()
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn wake(&self, _futex: &AtomicU32) {}

    fn wait(&self, _futex: &AtomicU32, _value: u32, _most_ms: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
    }
}

/// A thread of the target that has a slot.
pub struct Thread {
    pub target: Arc<Target>,
    slot: u32,
    owner: Owner,
    main: WriterState,
    nested: WriterState,
}

// SAFETY: the writers' states point into the target's memory, which `target` keeps. Only one thread has the `Thread`.
unsafe impl Send for Thread {}

impl Thread {
    /// Begins a thread that takes a free slot.
    pub fn begin(target: &Arc<Target>, tid: u32) -> Thread {
        let (slot, owner) = target.memory.region().take_slot(tid, IMAGE).expect("a free slot");
        Thread::with_slot(target, slot, owner)
    }

    /// Begins a thread with the thread pointer of `dead`.
    pub fn begin_after(dead: Thread, tid: u32) -> Thread {
        let target = &dead.target;
        match target.memory.slot(dead.slot).inherit(dead.owner, tid) {
            Some(owner) => Thread::with_slot(target, dead.slot, owner),
            None => Thread::begin(target, tid),
        }
    }

    fn with_slot(target: &Arc<Target>, slot: u32, owner: Owner) -> Thread {
        let (region, area) = (target.memory.region(), target.memory.area(slot));
        // SAFETY: the area is a part of the target's memory, which the thread keeps, and the thread has just become the
        // owner.
        let state = |is_nested| unsafe {
            WriterState::new(&region, slot, target.memory.slot(slot), area, is_nested, target.now())
        };
        let (main, nested) = (state(false), state(true));
        region.header().begin_thread(&target.threads_begun, target.has_plain_stamps);
        Thread { target: Arc::clone(target), slot, owner, main, nested }
    }

    /// Ends the thread. Another thread can get its thread pointer only after that.
    pub fn end(&self) {
        self.target.ended.fetch_or(1u64 << self.owner.tid(), Ordering::Release);
    }

    pub fn writer(&mut self) -> RingWriter<'_, Target> {
        // SAFETY: `with_slot` made the state for this slot's ring, and this thread is its owner.
        unsafe { RingWriter::new(&self.target, self.target.memory.slot(self.slot), &mut self.main, false) }
    }

    /// The writer of a signal handler that interrupts a hook.
    pub fn nested_writer(&mut self) -> RingWriter<'_, Target> {
        // SAFETY: `with_slot` made the state for the nested ring of this slot, and this thread is its owner.
        unsafe { RingWriter::new(&self.target, self.target.memory.slot(self.slot), &mut self.nested, true) }
    }

    pub fn free(&mut self, address: u64) {
        free(&mut self.writer(), address);
    }

    pub fn allocate(&mut self, address: u64) {
        let mut writer = self.writer();
        writer.begin_events(1);
        let words = |stamp| encode_alloc(stamp, address, 8, 1);
        if !writer.write_quickly(words) {
            writer.write(words);
        }
    }
}

pub fn free(writer: &mut RingWriter<'_, Target>, address: u64) {
    writer.begin_events(1);
    let words = |stamp| encode_free(Kind::Free, stamp, address);
    if !writer.write_quickly(words) {
        writer.write(words);
    }
}

/// The parts of the collector that the models need. It empties all rings, and merges the events below the watermark in
/// the order of their stamps.
#[derive(Default)]
pub struct Collector {
    /// Events that were taken from the rings and are not below the watermark yet.
    waiting: Vec<Event>,
    /// The merged events, in the order of their stamps.
    pub merged: Vec<Event>,
    /// By ring: the tid of its last `ThreadStart`.
    tids: std::collections::HashMap<(u32, bool), u32>,
    /// The tid and the address of each event except `ThreadStart`.
    pub written_by: Vec<(u32, u64)>,
    pub arrived: u64,
}

impl Collector {
    /// Empties all rings. Returns the number of words.
    pub fn drain(&mut self, target: &Target) -> usize {
        let mut total = 0;
        for slot in 0..target.memory.region().slots_used() {
            for (is_nested, ring) in [false, true].into_iter().zip(target.memory.rings(slot)) {
                let mut words = Vec::new();
                total += ring.drain(&mut words).expect("an honest writer");
                self.decode((slot, is_nested), &words);
            }
        }
        if total > 0 {
            target.header().progress.fetch_add(1, Ordering::Release);
        }
        total
    }

    fn decode(&mut self, ring: (u32, bool), words: &[u64]) {
        let mut decoder = Decoder::new(words);
        while let Some(event) = decoder.decode().expect("whole records") {
            self.arrived += 1;
            if let Event::ThreadStart { tid, .. } = event {
                self.tids.insert(ring, tid);
            } else if let Event::Free { address, .. } | Event::Alloc { address, .. } = event {
                self.written_by.push((self.tids.get(&ring).copied().unwrap_or(0), address));
            }
            self.waiting.push(event);
        }
    }

    /// A whole round: computes the watermark, empties all rings, and merges the events below the watermark.
    pub fn round(&mut self, target: &Target) {
        let now = target.now();
        let watermark = target.memory.region().watermark(now, || fence(Ordering::SeqCst));
        self.drain(target);
        self.merge(watermark);
    }

    /// The last round, after all threads of the target have ended: merges all events.
    pub fn finish(&mut self, target: &Target) {
        self.drain(target);
        self.merge(Stamp::MAX);
    }

    fn merge(&mut self, watermark: Stamp) {
        let (mut ready, rest): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(|event| event.stamp() < watermark);
        self.waiting = rest;
        ready.sort_by_key(Event::stamp);
        let last = self.merged.last().map_or(0, Event::stamp);
        assert!(ready.iter().all(|event| event.stamp() >= last), "{ready:?} came late, after stamp {last}");
        self.merged.extend(ready);
    }

    /// Returns the index of the event with this kind and address among the merged ones.
    pub fn place_of(&self, is_alloc: bool, address: u64) -> Option<usize> {
        self.merged.iter().position(|event| match *event {
            Event::Alloc { address: at, .. } => is_alloc && at == address,
            Event::Free { address: at, .. } => !is_alloc && at == address,
            _ => false,
        })
    }

    /// Buries the slots of threads that have ended, and returns them once they are empty.
    pub fn reap(&mut self, target: &Target) {
        let region = target.memory.region();
        for index in 0..region.slots_used() {
            let slot = target.memory.slot(index);
            let is_alive = |tid: u32| target.ended.load(Ordering::Acquire) & (1u64 << tid) == 0;
            match region.reap(slot, is_alive) {
                Reaped::Dead(owner) if slot.is_drained() => region.give_slot_back(index, owner),
                Reaped::Ended { .. } => assert!(!is_alive(slot.owner().tid()), "a thread that lives was buried"),
                Reaped::Free | Reaped::Alive | Reaped::Dead(_) => (),
            }
        }
    }

    /// Audits slot 0, as if the target were killed now. Asserts that at most `most_in_flight` events have neither
    /// arrived nor are counted as dropped, and no event has arrived that was not begun.
    pub fn audit(&mut self, target: &Target, most_in_flight: u64) {
        let slot = target.memory.slot(0);
        let begun = slot.events_begun();
        self.drain(target);
        let settled = self.arrived + slot.dropped.load(Ordering::Acquire);
        assert!(begun <= settled + most_in_flight, "{begun} begun, {settled} arrived or dropped");
        assert!(settled <= slot.events_begun(), "{settled} arrived or dropped, fewer were begun");
    }
}
