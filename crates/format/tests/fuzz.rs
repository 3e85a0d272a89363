//! Hostile bytes, for `HEAPTRACK_FUZZ_SECONDS` (default 3). The reader must not panic, loop endlessly or make huge
//! allocations. A failure prints its seed, and `HEAPTRACK_FUZZ_SEED` runs that seed first.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;
use common::*;
use fastrand::Rng;
use format::*;
use std::time::{Duration, Instant};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + rng.usize(..4) {
        let at = rng.usize(..bytes.len().max(1));
        let end = (at + 1 + rng.usize(..64)).min(bytes.len());
        match rng.usize(..9) {
            _ if bytes.is_empty() => bytes.push(rng.u8(..)),
            0 => bytes[at] ^= 1 << rng.usize(..8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.usize(..5)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = rng.usize(..bytes.len().max(1));
                bytes.splice(to..to, copy);
            }
            5 => bytes[at..end].fill(0xff),
            6 => {
                let garbage: Vec<u8> = (at..end).map(|_| rng.u8(..)).collect();
                bytes.splice(at..end, garbage);
            }
            7 => {
                let magic = *b"\xb5HTB";
                bytes.splice(at..at, magic);
            }
            _ => {
                // A varint that is larger than the rest of the block.
                bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x7f]);
            }
        }
    }
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

fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[test]
fn hostile_bytes_are_harmless() {
    let files: Vec<Vec<RawBlock>> = [small_blocks(), vec![session().to_block(), symbols()]]
        .into_iter()
        .chain((0..8).map(|n| random_blocks(&mut Rng::with_seed(n), 300)))
        .collect();
    if let Some(seed) = number("HEAPTRACK_FUZZ_SEED") {
        round(seed, &files);
    }
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let end = Instant::now() + Duration::from_secs(number("HEAPTRACK_FUZZ_SECONDS").unwrap_or(3));
    let mut rng = Rng::with_seed(clock);
    let mut rounds = 0u64;
    eprintln!("first seed {clock}");
    while Instant::now() < end {
        let seed = rng.u64(..);
        let start = cpu_time();
        let result = std::panic::catch_unwind(|| round(seed, &files));
        assert!(result.is_ok(), "HEAPTRACK_FUZZ_SEED={seed}");
        assert!(cpu_time() - start < Duration::from_secs(10), "slow: HEAPTRACK_FUZZ_SEED={seed}");
        rounds += 1;
    }
    eprintln!("{rounds} rounds");
    assert!(peak_memory_kb() < 512 << 10, "{} kB", peak_memory_kb());
}

/// A file of headers with valid sums and lengths up to the end must not cost quadratic time.
#[test]
fn false_headers_do_not_cost_the_square_of_the_file() {
    let unit = {
        // Headers of the largest possible block, repeated, without the bytes of the block.
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
