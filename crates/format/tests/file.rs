//! Whole files: what goes in comes out, from finished, unfinished, growing, cut and damaged ones.
#![allow(clippy::unwrap_used, reason = "a test")]
mod common;
use common::*;
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
        let mut rng = Rng(seed);
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
    assert_eq!(reader.next_block().unwrap(), Some(&blocks[1]), "the place stays");
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
    /// Gives at most what has "been written" so far.
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
            assert!(told || (8..FILE_HEADER_LEN).contains(&at), "byte {at} is damaged and nobody says so");
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
    let mut rng = Rng(7);
    let garbage: Vec<u8> = (0..1_000_000).map(|_| rng.next() as u8).collect();
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

/// Every version ever written opens, and says the same as when it was new.
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

/// Makes the stored file of a new version; never run again for an old one.
#[test]
#[ignore = "writes tests/data"]
fn store_a_file_of_this_version() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let path = format!("{folder}/v{VERSION}.htz");
    assert!(!std::path::Path::new(&path).exists(), "{path} is there and must stay");
    let bytes = write(&small_blocks(), true);
    let found: String = read(&bytes).unwrap().blocks.iter().map(text).collect();
    std::fs::write(path, bytes).unwrap();
    std::fs::write(format!("{folder}/v{VERSION}.txt"), found).unwrap();
}
