//! Hostile bytes, for `HEAPTRACK_FUZZ_SECONDS` (default 3). The reader must not panic, loop endlessly or make huge
//! allocations. A failure prints its seed, and `HEAPTRACK_FUZZ_SEED` runs that seed first.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;
use common::fuzzing::fuzz;
use common::{Change, peak_memory_kb, random_blocks, read, session, small_blocks, write};
use fastrand::Rng;
use format::*;
use std::time::{Duration, Instant};

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let special: [Change; 3] = [
        |bytes, range| bytes[range].fill(0xff),
        |bytes, range| drop(bytes.splice(range.start..range.start, *b"\xb5HTB")),
        // A varint that is larger than the rest of the block.
        |bytes, range| drop(bytes.splice(range.start..range.start, [0xff, 0xff, 0xff, 0xff, 0x7f])),
    ];
    common::mutate(rng, bytes, &[0, 1, 0x7f, 0x80, 0xff], &special);
}

/// One round: changes bytes of a file, and changes payloads and seals them again, so that the checksum does not hide
/// the change.
fn round(seed: u64, files: &[Vec<RawBlock>]) {
    let mut rng = Rng::with_seed(seed);
    let blocks = &files[rng.usize(..files.len())];
    let mut bytes = write(blocks, rng.usize(..2) == 0);
    mutate(&mut rng, &mut bytes);
    if let Ok(reading) = read(&bytes) {
        assert!(reading.blocks.len() <= blocks.len() * 2 + 2);
    }
    let bent: Vec<RawBlock> = blocks
        .iter()
        .map(|block| {
            let mut block = block.clone();
            mutate(&mut rng, &mut block.payload);
            if rng.usize(..8) == 0 {
                block.kind = BlockKind::ALL[rng.usize(..BlockKind::ALL.len())];
            }
            block
        })
        .collect();
    let reading = read(&write(&bent, true)).unwrap();
    assert_eq!(reading.blocks[..bent.len()], bent);
}

fn symbols() -> RawBlock {
    let mut builder = SymbolsBuilder::default();
    for module in 1..4 {
        builder.module(module, SymbolState::Debug, "a note");
        for frame in 0..20u64 {
            let function = Some(builder.function(&format!("_Z{frame}"), &format!("f{frame}()"), &format!("f{frame}")));
            let file = Some(builder.string(&format!("/src/{}.cc", frame % 3)));
            let place = CodeLocation { function, file, line: Some(frame as u32 * 7), inlined: frame % 2 == 1 };
            builder.frame(frame * 1000, vec![place; (frame % 4) as usize]);
        }
    }
    builder.take().to_block()
}

/// The CPU time of this thread, so that other load on the machine makes no round slow.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn hostile_bytes_are_harmless() {
    let files: Vec<Vec<RawBlock>> = [small_blocks(), vec![session().to_block(), symbols()]]
        .into_iter()
        .chain((0..8).map(|n| random_blocks(&mut Rng::with_seed(n), 300)))
        .collect();
    fuzz(3, |seed| {
        let start = cpu_time();
        round(seed, &files);
        assert!(cpu_time() - start < Duration::from_secs(10), "slow");
    });
    assert!(peak_memory_kb() < 512 << 10, "{} kB", peak_memory_kb());
}

/// The file consists only of block headers with valid header sums. For each header, the reader hashes the 4 MB that it
/// claims, in vain. The reader must end this early enough that its time is not quadratic in the length of the file.
#[test]
fn false_headers_do_not_cost_the_square_of_the_file() {
    let unit = {
        // The header of a block of 4 MB, without the bytes of the block.
        let block = RawBlock { kind: BlockKind::Symbols, payload: incompressible(4 << 20) };
        let bytes = write(&[block], false);
        bytes[FILE_HEADER_LEN..FILE_HEADER_LEN + HEADER_LEN].to_vec()
    };
    let mut bytes = write(&[], false);
    while bytes.len() < 16 << 20 {
        bytes.extend_from_slice(&unit);
    }
    let start = Instant::now();
    let reading = read(&bytes).unwrap();
    assert_eq!(reading.blocks, vec![]);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

fn incompressible(len: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(1);
    (0..len).map(|_| rng.u8(..)).collect()
}
