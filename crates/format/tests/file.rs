//! Whole files: what is written is read again, from finished, unfinished, growing, truncated and damaged files.
#![allow(clippy::unwrap_used, reason = "a test")]
mod common;
use common::*;
use fastrand::Rng;
use format::*;
use std::io::{Cursor, Read};

#[test]
fn what_was_written_is_read() {
    let blocks = small_blocks();
    let reading = read(&write(&blocks, true)).unwrap();
    assert_eq!(reading.blocks[..blocks.len()], blocks);
    assert_eq!(reading.blocks.len(), blocks.len() + 1, "and the index");
    assert!(reading.finished);
    assert_eq!((reading.malformed, reading.damage, reading.unfinished), (0, vec![], 0));
}

#[test]
fn random_events_come_back() {
    for seed in 0..50 {
        let mut rng = Rng::with_seed(seed);
        let blocks = random_blocks(&mut rng, 3000);
        let reading = read(&write(&blocks, false)).unwrap();
        assert_eq!(reading.blocks, blocks, "seed {seed}");
        assert_eq!(reading.malformed, 0, "seed {seed}");
        assert!(reading.events > 1500, "seed {seed}");
    }
}

#[test]
fn the_index_finds_every_block() {
    let blocks = small_blocks();
    let bytes = write(&blocks, true);
    let mut reader = Reader::new(Cursor::new(&bytes)).unwrap();
    reader.next_block().unwrap();
    let index = reader.index().unwrap().unwrap();
    assert_eq!(reader.next_block().unwrap(), Some(&blocks[1]), "the position does not change");
    assert_eq!(index.entries.len(), blocks.len());
    for (entry, block) in index.entries.iter().zip(&blocks).rev() {
        reader.seek(entry.offset).unwrap();
        assert_eq!(reader.next_block().unwrap(), Some(block));
        assert_eq!(entry.kind, block.kind as u8);
    }
    assert_eq!(Reader::new(Cursor::new(&bytes[..bytes.len() - 1])).unwrap().index().unwrap(), None);
}

#[test]
fn every_cut_gives_a_prefix() {
    let blocks = small_blocks();
    let bytes = write(&blocks, true);
    let mut seen = 0;
    for cut in 0..=bytes.len() {
        match read(&bytes[..cut]) {
            Err(Error::Empty) => assert!(cut < FILE_HEADER_LEN),
            Err(error) => panic!("cut at {cut}: {error}"),
            Ok(reading) => {
                let count = reading.blocks.len().min(blocks.len());
                assert!(count >= seen, "cut at {cut}: more bytes, fewer blocks");
                seen = count;
                assert_eq!(reading.blocks[..count], blocks[..count], "cut at {cut}");
                assert_eq!(reading.damage, vec![], "cut at {cut}: a cut is no damage");
                assert_eq!(reading.finished, cut == bytes.len());
            }
        }
    }
    assert_eq!(seen, blocks.len());
}

#[test]
fn a_growing_file_is_read_as_it_grows() {
    /// Returns at most the bytes that have "been written" so far.
    struct Growing<'a>(&'a [u8], &'a std::cell::Cell<usize>, usize);
    impl Read for Growing<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = out.len().min(self.1.get() - self.2);
            out[..count].copy_from_slice(&self.0[self.2..self.2 + count]);
            self.2 += count;
            Ok(count)
        }
    }
    let blocks = small_blocks();
    let bytes = write(&blocks, true);
    let written = std::cell::Cell::new(FILE_HEADER_LEN);
    let mut reader = Reader::new(Growing(&bytes, &written, 0)).unwrap();
    let mut got = Vec::new();
    while written.get() < bytes.len() {
        written.set(written.get() + 1);
        while let Some(block) = reader.next_block().unwrap() {
            got.push(block.clone());
        }
    }
    assert_eq!(got[..blocks.len()], blocks);
    assert!(reader.finished());
    assert_eq!(reader.damage(), []);
}

#[test]
fn one_wrong_byte_costs_one_block() {
    let blocks = small_blocks();
    let clean = write(&blocks, true);
    for at in 0..clean.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = clean.clone();
            bytes[at] ^= flip;
            let reading = match read(&bytes) {
                Ok(reading) => reading,
                Err(Error::Newer(_)) => continue,
                Err(error) => panic!("byte {at}: {error}"),
            };
            let in_trailer = at >= clean.len() - TRAILER_LEN;
            let lost = blocks.len() + 1 - reading.blocks.len();
            assert_eq!(lost, usize::from(at >= FILE_HEADER_LEN && !in_trailer), "byte {at}");
            let told = !reading.damage.is_empty() || in_trailer && !reading.finished;
            assert!(told || (8..FILE_HEADER_LEN).contains(&at), "byte {at} is damaged and no damage is reported");
        }
    }
}

#[test]
fn garbage_between_blocks_is_skipped_and_told() {
    let blocks = small_blocks();
    let index = {
        let bytes = write(&blocks, true);
        Reader::new(Cursor::new(bytes)).unwrap().index().unwrap().unwrap()
    };
    let mut bytes = write(&blocks, true);
    let at = index.entries[4].offset as usize;
    let mut rng = Rng::with_seed(7);
    let garbage: Vec<u8> = (0..1_000_000).map(|_| rng.u8(..)).collect();
    bytes.splice(at..at, garbage);
    let reading = read(&bytes).unwrap();
    assert_eq!(reading.blocks[..blocks.len()], blocks);
    assert_eq!(reading.damage, [Damage { offset: at as u64, length: 1_000_000, reason: "bytes that are no block" }]);
}

#[test]
fn a_missing_block_is_told() {
    let blocks = small_blocks();
    let mut bytes = write(&blocks, true);
    let index = Reader::new(Cursor::new(bytes.clone())).unwrap().index().unwrap().unwrap();
    bytes.drain(index.entries[2].offset as usize..index.entries[3].offset as usize);
    let reading = read(&bytes).unwrap();
    assert_eq!(reading.blocks.len(), blocks.len());
    let at = index.entries[2].offset;
    assert_eq!(reading.damage, [Damage { offset: at, length: 0, reason: "blocks are missing" }]);
}

#[test]
fn bytes_lost_inside_the_last_block_do_not_hide_the_index() {
    let blocks = small_blocks();
    let mut bytes = write(&blocks, true);
    let index = Reader::new(Cursor::new(bytes.clone())).unwrap().index().unwrap().unwrap();
    let last = index.entries.last().unwrap();
    let inside = last.offset as usize + HEADER_LEN;
    bytes.drain(inside..inside + 5);
    let reading = read(&bytes).unwrap();
    assert_eq!(reading.blocks.len(), blocks.len());
    assert!(reading.finished);
    assert_eq!(reading.damage.len(), 1);
}

#[test]
fn what_is_no_trace_is_said_so() {
    assert!(matches!(read(b""), Err(Error::Empty)));
    assert!(matches!(read(b"#!/bin/sh\necho this is not a trace\n"), Err(Error::NotATrace)));
    let mut bytes = write(&[], false);
    bytes[8] = 2;
    assert!(matches!(read(&bytes), Err(Error::Newer(2))));
}

/// Every version ever written opens, and has the same content as when it was new.
#[test]
fn stored_files_of_every_version_open() {
    for version in 1..=VERSION {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
        let bytes = std::fs::read(format!("{folder}/v{version}.htz")).unwrap();
        let expected = std::fs::read_to_string(format!("{folder}/v{version}.txt")).unwrap();
        let reading = read(&bytes).unwrap();
        let found: String = reading.blocks.iter().map(text).collect();
        assert_eq!(found, expected, "version {version}");
        assert!(reading.finished && reading.damage.is_empty());
    }
}

/// Writes the stored file of a new version. Never run it again for an old one.
#[test]
#[ignore = "writes tests/data"]
fn store_a_file_of_this_version() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let path = format!("{folder}/v{VERSION}.htz");
    assert!(!std::path::Path::new(&path).exists(), "{path} exists and must not change");
    let bytes = write(&small_blocks(), true);
    let found: String = read(&bytes).unwrap().blocks.iter().map(text).collect();
    std::fs::write(path, bytes).unwrap();
    std::fs::write(format!("{folder}/v{VERSION}.txt"), found).unwrap();
}

fn more_symbols(line: u32) -> RawBlock {
    let mut builder = SymbolsBuilder::default();
    builder.module(2, SymbolState::Mismatch, "another file");
    let function = Some(builder.function("_Z1gv", "g()", "g"));
    builder.frame(0x2_6f00, vec![CodeLocation { function, file: None, line: Some(line), inlined: false }]);
    builder.frame(0x10, vec![]);
    builder.take().to_block()
}

/// A temporary file, open for reading and writing.
fn file_of(bytes: &[u8], name: &str) -> (std::path::PathBuf, std::fs::File) {
    let path = std::env::temp_dir().join(format!("heaptrack-format.{}.{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    (path, file)
}

#[test]
fn blocks_are_added_to_a_finished_file_and_every_cut_of_it_reads() {
    let blocks = small_blocks();
    let before = write(&blocks, true);
    let (path, file) = file_of(&before, "finished");
    let mut appender = Appender::new(file).unwrap();
    appender.write(&more_symbols(1)).unwrap();
    appender.write(&more_symbols(2)).unwrap();
    appender.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[..before.len()], before, "nothing is changed");
    let mut index = Reader::new(Cursor::new(&bytes)).unwrap().index().unwrap().unwrap();
    assert_eq!(index.entries.len(), blocks.len() + 2);
    assert_eq!(index.entries.pop().unwrap().kind, BlockKind::Symbols as u8);
    for cut in before.len()..=bytes.len() {
        let reading = read(&bytes[..cut]).unwrap();
        assert!(reading.finished, "cut at {cut}");
        assert_eq!((reading.damage, reading.malformed), (vec![], 0), "cut at {cut}");
        assert_eq!(reading.blocks[..blocks.len()], blocks, "cut at {cut}");
    }
    // The writer was killed inside the new index. Then another block is added.
    let (again, file) = file_of(&bytes[..bytes.len() - 30], "again");
    let mut appender = Appender::new(file).unwrap();
    appender.write(&more_symbols(3)).unwrap();
    appender.finish().unwrap();
    let bytes = std::fs::read(&again).unwrap();
    let reading = read(&bytes).unwrap();
    assert!(reading.finished && reading.damage.is_empty() && reading.unfinished == 0);
    let symbols = reading.blocks.iter().filter(|block| block.kind == BlockKind::Symbols).count();
    assert_eq!(symbols, 3);
    let index = Reader::new(Cursor::new(&bytes)).unwrap().index().unwrap().unwrap();
    assert_eq!(index.entries.len(), blocks.len() + 3);
    std::fs::remove_file(path).unwrap();
    std::fs::remove_file(again).unwrap();
}

#[test]
fn a_file_that_was_never_finished_stays_so() {
    let blocks = small_blocks();
    let before = write(&blocks, false);
    let (path, file) = file_of(&before[..before.len() - 7], "cut");
    let mut appender = Appender::new(file).unwrap();
    appender.write(&more_symbols(1)).unwrap();
    appender.finish().unwrap();
    let reading = read(&std::fs::read(&path).unwrap()).unwrap();
    assert!(!reading.finished);
    assert_eq!((reading.damage, reading.unfinished), (vec![], 0));
    assert_eq!(reading.blocks[..blocks.len() - 1], blocks[..blocks.len() - 1]);
    assert_eq!(reading.blocks.last(), Some(&more_symbols(1)));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn skipped_kinds_are_not_given_out() {
    let blocks = small_blocks();
    let bytes = write(&blocks, true);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    reader.skip(&[BlockKind::Events, BlockKind::AllocClasses]);
    let mut kinds = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        kinds.push(block.kind);
    }
    assert!(kinds.contains(&BlockKind::Stacks) && !kinds.contains(&BlockKind::Events));
    assert_eq!(kinds.len(), blocks.len() + 1 - 2);
    assert!(reader.finished() && reader.damage().is_empty());
}

#[test]
fn symbols_come_back() {
    let block = more_symbols(7);
    let Ok(Block::Symbols(symbols)) = block.decode() else { panic!("no symbols") };
    assert_eq!(symbols.to_block(), block);
    let module = &symbols.modules[0];
    assert_eq!((module.instance, module.state, module.note.as_str()), (2, SymbolState::Mismatch, "another file"));
    let place = module.frames[0].1[0];
    assert_eq!(symbols.strings[symbols.functions[place.function.unwrap() as usize].full as usize], "g()");
    assert_eq!((module.frames[1].0, module.frames[1].1.len()), (0x10, 0));
}

/// Reads all blocks with a reader that `set` has changed. Returns them, whether there were blocks of the custom domain,
/// and the number of damaged places.
fn read_in(bytes: &[u8], set: impl Fn(&mut Reader<&[u8]>)) -> (Vec<RawBlock>, bool, u64) {
    let mut reader = Reader::new(bytes).unwrap();
    set(&mut reader);
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        blocks.push(block.clone());
    }
    (blocks, reader.has(Domain::Custom), reader.damage_count())
}

#[test]
fn each_domain_is_a_whole_trace() {
    let malloc = small_blocks();
    // The same blocks again, as blocks of the custom domain and without the shared kinds.
    let custom: Vec<RawBlock> = malloc
        .iter()
        .map(|block| block.clone().of(Domain::Custom))
        .filter(|block| block.kind.domain().is_some())
        .collect();
    assert_eq!(custom.len(), 4);
    let mut all = malloc.clone();
    all.extend(custom.iter().cloned());
    let bytes = write(&all, false);
    let (seen, has_custom, damage) = read_in(&bytes, |_| ());
    assert_eq!((seen, has_custom, damage), (malloc.clone(), true, 0));
    let (seen, _, damage) = read_in(&bytes, |reader| reader.set_domain(Domain::Custom));
    let own = |block: &&RawBlock| block.kind.of(Domain::Custom) == block.kind;
    let shared: Vec<RawBlock> = malloc.iter().filter(own).cloned().collect();
    let moved = malloc.iter().filter(|block| !own(block)).cloned();
    assert_eq!((seen, damage), (shared.into_iter().chain(moved).collect(), 0));
    let (seen, _, _) = read_in(&bytes, |reader| reader.set_all_domains());
    assert_eq!(seen, all);
    let (_, has_custom, _) = read_in(&write(&malloc, false), |_| ());
    assert!(!has_custom);
}

/// Regression test of a finding by `fuzz/targets/trace.rs`: the sums of what two damaged traces claim must not
/// overflow.
#[test]
fn merged_claims_of_any_size_are_summed_up_to_the_largest_number() {
    let most = RssSample { time_ns: 1, rss_bytes: u64::MAX, overhead_bytes: u64::MAX };
    let losses = Losses {
        by_cause: vec![("ring full".into(), u64::MAX)],
        implied_frees: u64::MAX,
        lost_events: u64::MAX,
        note: None,
    };
    let bytes = write(&[session().to_block(), RssSample::to_block(&[most]), losses.to_block()], true);
    let source = || Source::new(std::io::Cursor::new(bytes.clone())).unwrap();
    let mut out = FileWriter::new(Vec::new(), 1).unwrap();
    let totals = merge(vec![source(), source()], "test", &mut out).unwrap().summary.totals;
    assert_eq!((totals.peak_rss_bytes, totals.overhead_bytes, totals.lost_events), (u64::MAX, u64::MAX, u64::MAX));
}

#[test]
fn waits_of_merged_sessions_add_up() {
    let merged = |times: &[u64]| {
        let trace = |waited_ns: u64| write(&[session().to_block(), Waits { waited_ns }.to_block()], true);
        let sources = times.iter().map(|ns| Source::new(std::io::Cursor::new(trace(*ns))).unwrap()).collect();
        let mut out = FileWriter::new(Vec::new(), 1).unwrap();
        merge(sources, "test", &mut out).unwrap();
        let blocks = read(&out.finish().unwrap()).unwrap().blocks;
        let waits = |block: &RawBlock| match block.decode() {
            Ok(Block::Waits(waits)) => Some(waits.waited_ns),
            _ => None,
        };
        blocks.iter().filter_map(waits).collect::<Vec<_>>()
    };
    assert_eq!(merged(&[1_000, 234]), [1_234]);
    assert_eq!(merged(&[u64::MAX, 1]), [u64::MAX]);
    assert_eq!(merged(&[0, 0]), [0u64; 0], "no thread waited");
}
