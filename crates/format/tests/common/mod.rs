//! Shared by the tests of this crate: a small trace, a full reading, and what randomized tests need.
#![allow(dead_code, clippy::print_stderr, reason = "each test uses its own part")]
pub mod fuzzing;

use fastrand::Rng;
use format::*;
use std::ops::Range;

pub fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Changes a range of bytes.
pub type Change = fn(&mut Vec<u8>, Range<usize>);

/// Changes one to four places of the bytes: single bits, single bytes (one of `odd`), cuts, copies and garbage, or one
/// of the `special` changes of a range.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, odd: &[u8], special: &[Change]) {
    for _ in 0..1 + rng.usize(..4) {
        let at = rng.usize(..bytes.len().max(1));
        let end = (at + 1 + rng.usize(..64)).min(bytes.len());
        match rng.usize(..6 + special.len()) {
            _ if bytes.is_empty() => bytes.push(rng.u8(..)),
            0 => bytes[at] ^= 1 << rng.usize(..8),
            1 => bytes[at] = odd[rng.usize(..odd.len())],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = rng.usize(..bytes.len().max(1));
                bytes.splice(to..to, copy);
            }
            5 => {
                let garbage: Vec<u8> = (at..end).map(|_| rng.u8(..)).collect();
                bytes.splice(at..end, garbage);
            }
            case => special[case - 6](bytes, at..end),
        }
    }
}

/// One block of each of the kinds 1 to 10, and a Summary, in an order in which a recording can write them.
pub fn small_blocks() -> Vec<RawBlock> {
    let mut stacks = StackEncoder::new();
    let main = stacks.push(0, Frame::new(1, 0x1139, false));
    let leaf = stacks.push(main, Frame::new(1, 0x1250, false));
    let handler = stacks.push(main, Frame::new(2, 0x2_6f00, true));
    let cut = stacks.push(handler, Frame::CUT);
    stacks.push(cut, Frame::new(0, 0x7f12_3456_7890, false));
    let mut alloc_classes = AllocClassEncoder::new();
    let small = alloc_classes.push(24, leaf);
    let large = alloc_classes.push(1 << 20, handler);
    let empty = alloc_classes.push(0, 0);
    let mut events = EventEncoder::new();
    events.image(1);
    let first = events.alloc(small);
    let second = events.alloc(large);
    events.time(300_000);
    events.thread(1);
    events.alloc(empty);
    events.free(first);
    events.unknown_free();
    events.free_by_realloc(second);
    let third = events.alloc(large);
    events.free_implied(third);
    events.alloc(small);
    let checkpoint = Checkpoint {
        events: 9,
        next_sequence: 5,
        time_ns: 300_000,
        image: 1,
        totals: totals(),
        live: vec![(0, 1), (2, 1)],
        blocks: Some(vec![(2, 2), (4, 0)]),
    };
    vec![
        session().to_block(),
        Suppressions("leak:known_leaky\n".into()).to_block(),
        Module::to_block(&modules()),
        Thread::to_block(&threads()),
        stacks.take(),
        alloc_classes.take(),
        events.take(),
        RssSample::to_block(&[
            RssSample { time_ns: 0, rss_bytes: 4 << 20, overhead_bytes: 1 << 20 },
            RssSample { time_ns: 10_000_000, rss_bytes: 3 << 20, overhead_bytes: 1 << 20 },
        ]),
        Losses {
            by_cause: vec![("ring full".into(), 3), ("nested".into(), 0)],
            implied_frees: 1,
            lost_events: 3,
            note: Some("three events were lost".into()),
        }
        .to_block(),
        checkpoint.to_block(),
        Summary { complete: true, exit: Exit::Signal(11), totals: totals() }.to_block(),
    ]
}

pub fn session() -> Session {
    Session {
        version: VERSION,
        command: vec!["/usr/bin/true".into(), "--flag".into()],
        exe: "/usr/bin/true".into(),
        pid: 4242,
        attached: false,
        started_unix_ns: 1_700_000_000_000_000_000,
        hostname: "host".into(),
        page_size: 4096,
        system_memory: 8 << 30,
        tool: "heaptrack 0.1.0".into(),
        counting: Counting::Thread,
        sampling: None,
    }
}

fn modules() -> Vec<Module> {
    let program = Module {
        instance: 1,
        image: 1,
        start: 0x5555_0000_0000,
        end: 0x5555_0000_4000,
        bias: 0x5555_0000_0000,
        path: "/usr/bin/true".into(),
        build_id: vec![0xab; 20],
        loaded_ns: 0,
        unloaded_ns: None,
    };
    let library = Module {
        instance: 2,
        start: 0x7fff_0000_0000,
        end: 0x7fff_0020_0000,
        bias: 0x7fff_0000_0000,
        path: "/lib/libc.so.6".into(),
        build_id: vec![],
        unloaded_ns: Some(200_000),
        ..program.clone()
    };
    vec![program, library]
}

fn threads() -> Vec<Thread> {
    vec![
        Thread { index: 0, tid: 4242, image: 1, name: "true".into() },
        Thread { index: 1, tid: 4243, image: 1, name: String::new() },
    ]
}

pub fn totals() -> Totals {
    Totals {
        allocations: 5,
        deallocations: 3,
        allocated_bytes: 2_097_200,
        temporary: 0,
        leaked_bytes: 24,
        leaked_allocations: 2,
        peak_bytes: 1_048_600,
        peak_allocations: 2,
        peak_time_ns: 0,
        peak_rss_bytes: 4 << 20,
        overhead_bytes: 1 << 20,
        runtime_ns: 10_000_000,
        unknown_frees: 1,
        implied_frees: 1,
        lost_events: 3,
    }
}

pub fn write(blocks: &[RawBlock], finish: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = FileWriter::new(&mut bytes, 3).unwrap();
    for block in blocks {
        writer.write(block).unwrap();
    }
    if finish {
        writer.finish().unwrap();
    }
    bytes
}

/// Random events in blocks of random lengths, after the definitions that they refer to. `count` is the number of random
/// steps, most of which add an event.
pub fn random_blocks(rng: &mut Rng, count: usize) -> Vec<RawBlock> {
    let mut blocks = vec![session().to_block()];
    let mut stacks = StackEncoder::new();
    let mut alloc_classes = AllocClassEncoder::new();
    let mut events = EventEncoder::new();
    let mut live = Vec::new();
    let (mut known_stacks, mut known_alloc_classes) = (0, 0);
    for _ in 0..count {
        match rng.usize(..16) {
            0..7 => {
                if known_alloc_classes == 0 || rng.usize(..20) == 0 {
                    let frame = Frame::new(rng.usize(..4) as u16, rng.u64(..) >> 40, false);
                    known_stacks = stacks.push(rng.usize(..known_stacks as usize + 1) as u32, frame);
                    known_alloc_classes = alloc_classes.push(rng.u64(..) >> 50, known_stacks) + 1;
                }
                live.push(events.alloc(rng.u32(..known_alloc_classes)));
            }
            7..13 if !live.is_empty() => {
                let at = rng.usize(..live.len());
                let sequence = live.swap_remove(at);
                match rng.usize(..10) {
                    0 => events.free_by_realloc(sequence),
                    1 => events.free_implied(sequence),
                    _ => events.free(sequence),
                }
            }
            13 => events.thread(rng.usize(..4) as u32),
            14 => events.time(events.next_sequence() * 10_000),
            15 if rng.usize(..8) == 0 => events.unknown_free(),
            15 if rng.usize(..50) == 0 => {
                blocks.extend([stacks.take(), alloc_classes.take(), events.take()]);
            }
            _ => {}
        }
    }
    blocks.extend([stacks.take(), alloc_classes.take(), events.take()]);
    blocks
}

/// Everything that a reader returns for some bytes, with every event decoded.
#[derive(Default)]
pub struct Reading {
    pub blocks: Vec<RawBlock>,
    pub malformed: usize,
    pub events: u64,
    pub finished: bool,
    pub damage: Vec<Damage>,
    pub unfinished: usize,
}

pub fn read(bytes: &[u8]) -> Result<Reading, Error> {
    let mut reader = Reader::new(bytes)?;
    reader.set_all_domains();
    let mut reading = Reading::default();
    while let Some(block) = reader.next_block()? {
        match walk(block) {
            Ok(events) => reading.events += events,
            Err(_) => reading.malformed += 1,
        }
        reading.blocks.push(block.clone());
    }
    reading.finished = reader.finished();
    reading.damage = reader.damage().to_vec();
    reading.unfinished = reader.unfinished_bytes();
    Ok(reading)
}

pub fn walk(block: &RawBlock) -> Result<u64, Malformed> {
    let mut count = 0;
    // A block of another domain has the same content as one of malloc's.
    let plain = block.kind.domain().and_then(|domain| block.kind.in_domain(domain)).unwrap_or(block.kind);
    let block = RawBlock { kind: plain, payload: block.payload.clone() };
    if let Block::Events(mut events) = block.decode()? {
        while events.read()?.is_some() {
            count += 1;
        }
    }
    Ok(count)
}

/// A block's content as text, with a line for each event.
pub fn text(block: &RawBlock) -> String {
    match block.decode() {
        Ok(Block::Events(mut events)) => {
            let mut lines = format!("Events of thread {} at {}\n", events.thread(), events.time_ns());
            while let Ok(Some(event)) = events.read() {
                lines += &format!("  {event:?}\n");
            }
            lines
        }
        Ok(other) => format!("{other:?}\n"),
        Err(error) => format!("{error}\n"),
    }
}
