//! Compares `docs/format.md`, which draws the bytes, with the code.
#![allow(clippy::unwrap_used, reason = "a test")]
mod common;
use common::*;
use format::*;

fn document() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md")).unwrap()
}

/// The bytes of the document's example: hexadecimal before each `#` in the block marked `hex`.
fn example_bytes() -> Vec<u8> {
    let document = document();
    let example = document.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let hex = example.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
    hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// The blocks that the document's example holds.
fn example_blocks() -> Vec<RawBlock> {
    let session = Session {
        version: 1,
        command: vec!["ls".into(), "-l".into()],
        exe: "/bin/ls".into(),
        pid: 1234,
        attached: false,
        started_unix_ns: 1_700_000_000_000_000_000,
        hostname: "box".into(),
        page_size: 4096,
        system_memory: 1 << 33,
        tool: "heaptrack".into(),
        counting: Counting::Thread,
        sampling: None,
    };
    let module = Module {
        instance: 1,
        image: 1,
        start: 0x40_0000,
        end: 0x42_3000,
        bias: 0x3f_f000,
        path: "/bin/ls".into(),
        build_id: vec![0xab, 0xcd],
        loaded_ns: 10,
        unloaded_ns: Some(300_000),
    };
    let mut stacks = StackEncoder::new();
    let root = stacks.push(0, Frame::new(1, 0x1139, false));
    let leaf = stacks.push(root, Frame::new(1, 0x1250, false));
    let mut alloc_classes = AllocClassEncoder::new();
    alloc_classes.push(24, leaf);
    alloc_classes.push(300, root);
    let mut events = EventEncoder::new();
    events.image(1);
    events.alloc(0);
    events.alloc(1);
    events.time(200_000);
    events.free(1);
    events.free_by_realloc(0);
    events.alloc(65_280);
    let totals = Totals {
        allocations: 1,
        deallocations: 2,
        allocated_bytes: 3,
        temporary: 4,
        leaked_bytes: 5,
        leaked_allocations: 6,
        peak_bytes: 7,
        peak_allocations: 8,
        peak_time_ns: 9,
        peak_rss_bytes: 10,
        overhead_bytes: 11,
        runtime_ns: 12,
        unknown_frees: 13,
        implied_frees: 14,
        lost_events: 15,
    };
    let checkpoint = Checkpoint {
        events: 5,
        next_sequence: 3,
        time_ns: 200_000,
        image: 1,
        totals,
        live: vec![(7, 1)],
        blocks: Some(vec![(2, 7)]),
    };
    vec![
        session.to_block(),
        Suppressions("leak:x".into()).to_block(),
        Module::to_block(&[module]),
        Thread::to_block(&[Thread { index: 0, tid: 1234, image: 1, name: "ls".into() }]),
        stacks.take(),
        alloc_classes.take(),
        events.take(),
        RssSample::to_block(&[
            RssSample { time_ns: 0, rss_bytes: 8192, overhead_bytes: 4096 },
            RssSample { time_ns: 100, rss_bytes: 4096, overhead_bytes: 4096 },
        ]),
        Losses { by_cause: vec![("full".into(), 2)], implied_frees: 0, lost_events: 2, note: Some("two lost".into()) }
            .to_block(),
        checkpoint.to_block(),
        symbols().to_block(),
        Summary { complete: true, exit: Exit::Code(3), totals }.to_block(),
    ]
}

fn symbols() -> Symbols {
    let mut builder = SymbolsBuilder::default();
    builder.module(1, SymbolState::Debug, "");
    let file = Some(builder.string("a.cc"));
    let inner = builder.function("_Z1fv", "f()", "f");
    let outer = builder.function("main", "main", "main");
    builder.frame(
        0x1139,
        vec![
            CodeLocation { function: Some(inner), file, line: Some(3), inlined: true },
            CodeLocation { function: Some(outer), file, line: Some(9), inlined: false },
        ],
    );
    builder.frame(0x1250, vec![]);
    builder.take()
}

#[test]
fn the_example_is_what_the_writer_writes() {
    assert_eq!(example_bytes(), write(&example_blocks(), true));
}

#[test]
fn the_example_is_what_the_reader_reads() {
    let reading = read(&example_bytes()).unwrap();
    let blocks = example_blocks();
    assert_eq!(reading.blocks[..blocks.len()], blocks);
    assert!(reading.finished && reading.damage.is_empty() && reading.malformed == 0);
}

#[test]
fn the_table_of_kinds_is_that_of_the_code() {
    let document = document();
    let mut drawn = Vec::new();
    for line in document.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, number, name, ..] = cells[..]
            && let Ok(number) = number.parse::<u8>()
        {
            drawn.push((number, name.to_owned()));
        }
    }
    let coded: Vec<(u8, String)> = BlockKind::ALL.iter().map(|kind| (*kind as u8, format!("{kind:?}"))).collect();
    assert_eq!(drawn, coded);
}

#[test]
fn the_limits_are_those_of_the_code() {
    let document = document();
    for (what, number) in [
        ("block header", HEADER_LEN as u64),
        ("file header", FILE_HEADER_LEN as u64),
        ("trailer", TRAILER_LEN as u64),
        ("largest block", MAX_RAW as u64),
        ("most events in a block", MAX_EVENTS),
        ("version", VERSION as u64),
    ] {
        assert!(document.contains(&format!("{what}: {number}")), "docs/format.md should say `{what}: {number}`");
    }
}

/// Writes the example's bytes to a file, for a change of the document.
#[test]
#[ignore = "writes a file for a change of the document"]
fn example_file() {
    std::fs::write(std::env::var("HEAPTRACK_EXAMPLE").unwrap(), write(&example_blocks(), true)).unwrap();
}
