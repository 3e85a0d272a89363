//! Files of KDE's heaptrack, as text or compressed.
//!
//! The input is a file. Must hold: no panic. Every block that is made from it can be decoded and replayed without a
//! fault. The summary counts the same as the events. The events of any prefix of a text are a prefix of the events of
//! the whole text.
#![no_main]
use format::{Block, Counting, Error, Event, RawBlock, Source, Summary};
use heaptrack_fuzz::check_blocks;
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

/// A compressed file of this many bytes can expand to gigabytes of text. The tests of `format` cover those.
const MOST_BLOCKS: usize = 4096;

#[derive(Default)]
struct Reading {
    blocks: Vec<RawBlock>,
    events: Vec<Event>,
    alloc_classes: usize,
    nodes: usize,
    summary: Option<Summary>,
    counting: Option<Counting>,
    is_finished: bool,
}

fn read(bytes: &[u8]) -> Result<Reading, Error> {
    let mut source = Source::new(Cursor::new(bytes))?;
    let mut reading = Reading::default();
    if !source.is_kde() {
        return Err(Error::NotATrace);
    }
    while let Some(block) = source.next_block()? {
        match block.decode().expect("a block of our own") {
            Block::Stacks(stacks) => {
                assert_eq!(stacks.first as usize, reading.nodes + 1);
                reading.nodes += stacks.nodes.len();
            }
            Block::AllocClasses(alloc_classes) => {
                assert_eq!(alloc_classes.first as usize, reading.alloc_classes);
                reading.alloc_classes += alloc_classes.alloc_classes.len();
            }
            Block::Events(mut events) => {
                while let Some(event) = events.read().expect("events of our own") {
                    reading.events.push(event);
                }
            }
            Block::Summary(summary) => reading.summary = Some(summary),
            Block::Session(session) => reading.counting = Some(session.counting),
            _ => {}
        }
        reading.blocks.push(block.clone());
        if reading.blocks.len() > MOST_BLOCKS {
            return Err(Error::NotATrace);
        }
    }
    reading.is_finished = source.finished();
    Ok(reading)
}

fuzz_target!(|data: &[u8]| {
    let Ok(whole) = read(data) else { return };
    let report = check_blocks(&whole.blocks);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let count = |wanted: fn(&Event) -> bool| whole.events.iter().filter(|event| wanted(event)).count() as u64;
    let allocations = count(|event| matches!(event, Event::Alloc { .. }));
    let frees = count(|event| matches!(event, Event::Free { .. }));
    if let Some(summary) = whole.summary {
        assert_eq!(summary.totals.allocations, allocations);
        assert_eq!(summary.totals.deallocations, frees);
        assert_eq!(summary.totals.leaked_allocations, allocations - frees);
        assert_eq!(summary.totals.unknown_frees, count(|event| *event == Event::UnknownFree));
    }
    if data.first().is_some_and(|byte| byte.is_ascii_graphic()) {
        // Half of the text, and all but its last byte.
        for length in [data.len() / 2, data.len() - 1] {
            let Ok(part) = read(&data[..length]) else { continue };
            if part.counting == whole.counting {
                let is_prefix = whole.events.starts_with(&part.events);
                assert!(is_prefix, "the events of the first {length} bytes differ");
                assert!(part.alloc_classes <= whole.alloc_classes && part.nodes <= whole.nodes);
            }
        }
    }
});
