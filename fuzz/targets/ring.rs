//! A hostile target, which writes arbitrary data into the shared memory while the collector reads it.
//!
//! The input is a list of steps: events of a valid thread, words that are no records, wrong counters, any bytes at any
//! address, and rounds of the collector. Must hold: no panic, no endless loop. The resulting trace has no damage, and
//! its totals are the collector's own. If only valid threads have written, all their events arrive.
#![no_main]
use channel::{CUSTOM, Geometry, Kind, encode_alloc, encode_free, encode_mark, encode_path};
use collector::fuzzing::{Collector, Round, Sums};
use format::{Domain, RawBlock, Totals};
use heaptrack_fuzz::{Input, check_blocks};
use libfuzzer_sys::fuzz_target;
use rustix::io::pwrite;

const GEOMETRY: Geometry = Geometry::tight(channel::WriterMemory::NONE);
const SLOTS: u32 = 4;
const SLOT_HEADER: usize = 128;
/// The offsets of the fields in a slot's header (`channel::SlotHeader`).
const HEAD: usize = 0;
const INTENT: usize = 8;
const NESTED_HEAD: usize = 16;
const BEGUN: usize = 32;
const NESTED_BEGUN: usize = 40;
const OWNER: usize = 80;

/// The target's side. It writes through the file, as another process would through its own mapping.
struct Target {
    collector: Collector,
    stamp: u64,
    /// The head of each ring.
    heads: [u64; SLOTS as usize * 2],
    begun: [u64; SLOTS as usize * 2],
    allocations: u64,
    frees: u64,
    /// True if only records of valid threads have been written.
    is_honest: bool,
    names: u32,
    modules: u32,
}

impl Target {
    fn write(&self, at: usize, bytes: &[u8]) {
        let at = at.min(GEOMETRY.total_len() - bytes.len());
        pwrite(self.collector.mapping().fd(), bytes, at as u64).expect("shared memory can be written");
    }

    fn set(&self, slot: u32, field: usize, value: u64) {
        self.write(GEOMETRY.slot_headers_at() + slot as usize * SLOT_HEADER + field, &value.to_le_bytes());
    }

    /// Writes words at the head of a ring and commits them.
    fn push(&mut self, ring: u8, words: &[u64]) {
        let (slot, nested) = (ring as u32 / 2 % SLOTS, ring % 2 == 1);
        let length = if nested { GEOMETRY.nested_words } else { GEOMETRY.ring_words_of(slot) } as u64;
        let area = GEOMETRY.slot_area_at(slot) + if nested { GEOMETRY.nested_in_slot(slot) } else { 0 };
        let ring = ring as usize % self.heads.len();
        for word in words {
            self.write(area + (self.heads[ring] % length) as usize * 8, &word.to_le_bytes());
            self.heads[ring] += 1;
        }
        self.set(slot, if nested { NESTED_HEAD } else { HEAD }, self.heads[ring]);
    }

    fn event(&mut self, ring: u8, words: &[u64]) {
        let index = ring as usize % self.begun.len();
        self.begun[index] += 1;
        let field = if index % 2 == 1 { NESTED_BEGUN } else { BEGUN };
        self.set(index as u32 / 2, field, self.begun[index]);
        self.push(index as u8, words);
    }

    fn next_stamp(&mut self, step: u8) -> u64 {
        self.stamp += step as u64;
        self.stamp
    }

    /// Advances the clock of tick stamps, which is a word in the header.
    fn tick(&self) {
        self.collector.mapping().region().header().ticks.store(self.stamp + 1, std::sync::atomic::Ordering::Release);
    }
}

fn address(byte: u8) -> u64 {
    (byte as u64 & 0x7f) << 4 | if byte & 0x80 != 0 { CUSTOM } else { 0 }
}

fn step(target: &mut Target, input: &mut Input<'_>) {
    let op = input.u8();
    let ring = op >> 4 & 7;
    match op & 15 {
        0..=3 => {
            let (stamp, at) = (input.u8(), input.u8());
            let (size, stack) = (input.u16() as u64, input.u8() as u32);
            let stamp = target.next_stamp(stamp);
            target.allocations += 1;
            target.event(ring, &encode_alloc(stamp, address(at), size, stack));
        }
        4..=6 => {
            let (stamp, at) = (input.u8(), input.u8());
            let stamp = target.next_stamp(stamp);
            target.frees += 1;
            let kind = if op & 15 == 6 { Kind::FreeByRealloc } else { Kind::Free };
            target.event(ring, &encode_free(kind, stamp, address(at)));
        }
        7 => {
            let (first, tail) = (input.u8() as u32, input.u8() as u32);
            let frames: Vec<u64> = input.bytes(op as usize >> 4).iter().map(|byte| (*byte as u64) << 40 | 7).collect();
            target.push(ring, &encode_path(first, frames.len(), tail));
            target.push(ring, &frames);
        }
        8 => {
            let kind = if input.u8() % 2 == 0 { Kind::ThreadStart } else { Kind::Image };
            let stamp = target.next_stamp(1);
            let value = input.u8() as u32;
            target.event(ring, &encode_mark(kind, stamp, value));
        }
        9 | 10 => {
            target.tick();
            let flags = input.u8();
            let round =
                Round { patience: flags as u64 >> 3, is_periodic: flags & 1 != 0, takes_blocks: flags & 2 != 0 };
            target.collector.round(round);
        }
        _ => {
            target.is_honest = false;
            lie(target, op, input);
        }
    }
}

/// Steps that no valid target makes.
fn lie(target: &mut Target, op: u8, input: &mut Input<'_>) {
    let ring = op >> 4 & 7;
    let slot = ring as u32 / 2 % SLOTS;
    match op & 15 {
        11 => {
            let count = input.u8() % 16;
            let words: Vec<u64> = (0..count).map(|_| input.u64()).collect();
            target.push(ring, &words);
        }
        12 => {
            let field = input.u8() as usize % (SLOT_HEADER / 8) * 8;
            target.set(slot, field, input.u64());
        }
        13 => {
            let at = input.u32() as usize % GEOMETRY.fixed_len();
            target.write(at, &input.u64().to_le_bytes());
        }
        14 => {
            target.modules += 1;
            let entry = GEOMETRY.modules_at() + (target.modules as usize - 1) % GEOMETRY.modules as usize * 104;
            let fields = input.bytes(104);
            target.write(entry, fields);
            let name = input.bytes(op as usize >> 4);
            target.write(GEOMETRY.names_at() + target.names as usize, name);
            target.names += name.len() as u32;
            if name.is_empty() {
                // The entry has its bytes from the input, also those that say where the name is.
                publish_module(target);
                return;
            }
            target.write(entry + 48, &(target.names - name.len() as u32).to_le_bytes());
            target.write(entry + 52, &(name.len() as u32).to_le_bytes());
            publish_module(target);
        }
        _ => {
            let stamp = input.u8() as u64;
            target.set(slot, INTENT, target.stamp.wrapping_sub(stamp) | (input.u8() as u64 & 1) << 63);
        }
    }
}

fn publish_module(target: &Target) {
    let header = target.collector.mapping().region().header();
    header.module_count.store(target.modules, std::sync::atomic::Ordering::Release);
}

/// The totals that a replay of the trace must reproduce. The others are about time and memory.
fn counted(totals: &Totals) -> [u64; 11] {
    [
        totals.allocations,
        totals.deallocations,
        totals.allocated_bytes,
        totals.temporary,
        totals.leaked_bytes,
        totals.leaked_allocations,
        totals.peak_bytes,
        totals.peak_allocations,
        totals.peak_time_ns,
        totals.unknown_frees,
        totals.implied_frees,
    ]
}

fn check_trace(blocks: &[RawBlock], sums: &Sums) {
    for (domain, totals) in
        [(Domain::Malloc, Some(sums.totals)), (Domain::Custom, sums.custom), (Domain::Mapped, sums.mapped)]
    {
        let of = |block: &RawBlock| {
            let kind = block.kind.in_domain(domain)?;
            Some(RawBlock { kind, payload: block.payload.clone() })
        };
        let blocks: Vec<RawBlock> = blocks.iter().filter_map(of).collect();
        let report = check_blocks(&blocks);
        assert!(report.faults.is_empty(), "{domain:?}: {:?}", report.faults);
        assert_eq!(counted(&report.totals), counted(&totals.unwrap_or_default()), "{domain:?}");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let options = input.u8();
    let is_live = options & 1 != 0;
    // The most words that the collector keeps in memory. If that is 64, the rest goes through the spill file.
    let words = if options & 2 != 0 { 64 } else { 3 << 20 };
    let collector = Collector::new(is_live, words).expect("shared memory");
    let mut target = Target {
        collector,
        stamp: 1,
        heads: [0; SLOTS as usize * 2],
        begun: [0; SLOTS as usize * 2],
        allocations: 0,
        frees: 0,
        is_honest: true,
        names: 0,
        modules: 0,
    };
    let header = target.collector.mapping().region().header();
    header.slot_count.store(SLOTS, std::sync::atomic::Ordering::Release);
    for slot in 0..SLOTS {
        // Slots in use by threads 1000 and so on. There is no such process, so the first periodic round finds these
        // threads dead.
        target.set(slot, OWNER, (1000 + slot as u64) << 32 | 1);
    }
    while !input.is_empty() {
        step(&mut target, &mut input);
    }
    target.tick();
    let sums = target.collector.finish();
    if is_live {
        let sites = &sums.live_sites;
        assert_eq!(sites.iter().map(|site| site.count).sum::<u64>(), sums.totals.leaked_allocations);
        assert_eq!(sites.iter().map(|site| site.bytes).sum::<u64>(), sums.totals.leaked_bytes);
    } else {
        check_trace(&target.collector.blocks, &sums);
    }
    if target.is_honest {
        let told = (sums.merged, sums.missing, sums.broken_words, sums.stopped_slots);
        assert_eq!(told, (target.begun.iter().sum(), 0, 0, 0));
    }
    if target.is_honest && !is_live {
        // Every call is counted once. A free ends a block, or is counted as the free of an unknown block.
        let domains = [sums.totals, sums.custom.unwrap_or_default()];
        let frees = |totals: &Totals| totals.deallocations - totals.implied_frees + totals.unknown_frees;
        assert_eq!(domains.iter().map(|totals| totals.allocations).sum::<u64>(), target.allocations);
        assert_eq!(domains.iter().map(frees).sum::<u64>(), target.frees);
    }
});
