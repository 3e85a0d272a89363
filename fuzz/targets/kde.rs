//! Files of KDE's heaptrack, as text or compressed.
//!
//! The input is a file. Must hold: no panic. Every block that is made from it can be decoded and replayed without a
//! fault. The summary counts the same as the events. The events of any prefix of a text are a prefix of the events of
//! the whole text. A file that is read again in small pieces has the same events and damage, and if it is a text the
//! same blocks. Only lines with valid numbers are events, and all of them are, unless there is damage or a line with a
//! command. Events that are counted by allocation class count
//! the same as events whose frees are paired with allocations.
#![no_main]
use analysis::{Engine, Report};
use format::{Block, Counting, Damage, Error, Event, Freed, KdeReader, RawBlock, Source, Summary, Totals};
use heaptrack_fuzz::check_blocks;
use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Read, Seek, SeekFrom};

/// The most blocks of a file. A compressed input can expand to gigabytes of text. Files with more blocks are not
/// checked here, but in the tests of `format`.
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
    damage: Vec<Damage>,
}

/// Returns at most seven bytes at a time, so that pieces end in the middle of lines.
struct Pieces<'a>(Cursor<&'a [u8]>);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = out.len().min(7);
        self.0.read(&mut out[..most])
    }
}

impl Seek for Pieces<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

fn read(file: impl Read + Seek) -> Result<Reading, Error> {
    let mut source = Source::new(file)?;
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
    reading.damage = source.damage().to_vec();
    Ok(reading)
}

/// True if the line has this letter, and after it a number as KDE's recorder writes it.
fn is_event(line: &[u8], letter: u8) -> bool {
    let [first, b' ', rest @ ..] = line else { return false };
    let number = rest.split(|byte| *byte == b' ').next().and_then(|word| std::str::from_utf8(word).ok());
    let is_lower = |number: &&str| number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    *first == letter && number.filter(is_lower).is_some_and(|number| u64::from_str_radix(number, 16).is_ok())
}

/// Compares the events with the lines of the text.
fn check_lines(text: &[u8], reading: &Reading) {
    // The last line counts only if it ends with a line feed.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = || text[..whole].split(|byte| *byte == b'\n');
    let is_free = |event: &Event| matches!(event, Event::Free { how: Freed::Call, .. } | Event::UnknownFree);
    let allocations = reading.events.iter().filter(|event| matches!(event, Event::Alloc { .. })).count();
    let frees = reading.events.iter().filter(|event| is_free(event)).count();
    let lines_of = |letter: u8| lines().filter(|line| is_event(line, letter)).count();
    let (plus, minus) = (lines_of(b'+'), lines_of(b'-'));
    assert!(allocations <= plus && frees <= minus, "{allocations} of {plus}, {frees} of {minus}");
    // A line after the command (`X`) may be a part of the command, which may contain line feeds.
    let is_strict = reading.damage.is_empty() && !lines().any(|line| line.starts_with(b"X"));
    assert!(!is_strict || (allocations, frees) == (plus, minus), "{allocations} of {plus}, {frees} of {minus}");
}

/// Counts the events by allocation class, and compares with the numbers of the paired events.
fn check_counts(data: &[u8], whole: &Reading, report: &Report) {
    let mut reader = KdeReader::new(data, &data[..data.len().min(8)]).expect("a file that was opened before");
    reader.count_classes();
    let mut engine = Engine::new();
    while let Some(block) = reader.next_block().expect("bytes in memory") {
        engine.add(block);
    }
    if let Some(counts) = reader.take_counts() {
        engine.add_kde_counts(counts);
    }
    assert_eq!(reader.damage(), whole.damage);
    assert_eq!(reader.finished(), whole.is_finished);
    assert_eq!(engine.totals(), report.totals);
    assert!(engine.into_report().expect("it has no index").sites == report.sites, "the costs of stacks differ");
}

fuzz_target!(|data: &[u8]| {
    let Ok(whole) = read(Cursor::new(data)) else { return };
    let is_text = data.first().is_some_and(u8::is_ascii_alphabetic);
    // The file may be refused in one of the two ways only, because only a zero byte in the bytes that are read first
    // counts.
    if let Ok(in_pieces) = read(Pieces(Cursor::new(data))) {
        assert!(whole.events == in_pieces.events, "the events differ when the file is read in pieces");
        assert_eq!(whole.damage, in_pieces.damage);
        assert_eq!(whole.is_finished, in_pieces.is_finished);
        // A compressed input can be a large text, which may be divided into blocks at other lines. An input that is
        // text is too small for that.
        assert!(!is_text || whole.blocks == in_pieces.blocks, "the blocks differ when the file is read in pieces");
    }
    let report = check_blocks(&whole.blocks);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    check_counts(data, &whole, &report);
    let count = |wanted: fn(&Event) -> bool| whole.events.iter().filter(|event| wanted(event)).count() as u64;
    let allocations = count(|event| matches!(event, Event::Alloc { .. }));
    let frees = count(|event| matches!(event, Event::Free { .. }));
    if let Some(summary) = whole.summary {
        assert_eq!(summary.totals.allocations, allocations);
        assert_eq!(summary.totals.deallocations, frees);
        assert_eq!(summary.totals.leaked_allocations, allocations - frees);
        assert_eq!(summary.totals.unknown_frees, count(|event| *event == Event::UnknownFree));
        // The replay counts the same from the events.
        let numbers =
            |totals: &Totals| (totals.temporary, totals.leaked_bytes, totals.peak_bytes, totals.implied_frees);
        assert_eq!(numbers(&summary.totals), numbers(&report.totals));
    }
    if is_text {
        check_lines(data, &whole);
    }
    if data.first().is_some_and(|byte| byte.is_ascii_graphic()) {
        // Half of the text, and all but its last byte.
        for length in [data.len() / 2, data.len() - 1] {
            let Ok(part) = read(Cursor::new(&data[..length])) else { continue };
            if part.counting == whole.counting {
                let is_prefix = whole.events.starts_with(&part.events);
                assert!(is_prefix, "the events of the first {length} bytes differ");
                assert!(part.alloc_classes <= whole.alloc_classes && part.nodes <= whole.nodes);
            }
        }
    }
});
