//! The trace reader, and everything that is computed from a trace: replay, views, trim, fold, merge.
//!
//! The input is a file. Three of four mutations change blocks or their order and seal them again, so that checksums and
//! compression do not hide the changes. Must hold: no panic, no endless walk. A sealed block is read as it was written.
//! The totals are the sums of the sites, and the totals of a folded trace are those of the whole one.
#![no_main]
use analysis::view::{self, View};
use analysis::{AnswerError, BlocksInMemory, CodeClasses, Engine, Lookup, Query, StackTable, Suppressions};
use format::{BlockKind, Domain, FileWriter, RawBlock, Reader, Source, Totals, fold, merge, trim};
use heaptrack_fuzz::{Input, check_blocks};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::io::Cursor;

/// Larger files only make the fuzzer slow.
const MOST_BLOCKS: usize = 64;

struct Reading {
    blocks: Vec<RawBlock>,
    is_damaged: bool,
}

fn read(bytes: &[u8], domain: Option<Domain>) -> Option<Reading> {
    let mut reader = Reader::new(bytes).ok()?;
    match domain {
        Some(domain) => reader.set_domain(domain),
        None => reader.set_all_domains(),
    }
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block().expect("memory can be read") {
        blocks.push(block.clone());
    }
    Some(Reading { blocks, is_damaged: reader.damage_count() > 0 })
}

fn write(blocks: &[RawBlock]) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), 1).expect("memory can be written");
    for block in blocks {
        writer.write(block).expect("memory can be written");
    }
    writer.finish().expect("memory can be written")
}

/// Requests a random view. The answer is JSON, or a sentence about the question.
fn ask(blocks: &[RawBlock], choice: &mut Input<'_>) {
    let finely = choice.u8() % 2 == 0;
    let mut engine = if finely { Engine::indexed_finely(4, 1 << 10) } else { Engine::new() };
    blocks.iter().for_each(|block| engine.add(block));
    let table = StackTable::new(engine.definitions(), &CodeClasses::new("/a"), Suppressions::new());
    let (_, view) = View::ALL[choice.u8() as usize % View::ALL.len()];
    let times = ["start", "end", "peak", "0s", "1ms", "50%"];
    let mut time = || times[choice.u8() as usize % times.len()];
    let words = match view {
        View::Callers => vec![("function", "main")],
        View::Source => vec![("file", "a.c")],
        View::Diff => vec![("compare", "@50%")],
        _ => vec![("from", time()), ("to", time())],
    };
    let query = Query::new(words).expect("a query that makes sense");
    let mut blocks = BlocksInMemory::new(blocks.iter().cloned());
    let mut trace = view::Trace { engine: &engine, table: &table, blocks: &mut blocks, complete: false };
    let mut out = Vec::new();
    match analysis::answer(view, &query, &mut trace, None, &mut out) {
        Ok(()) => drop(serde_json::from_slice::<serde_json::Value>(&out).expect("JSON")),
        Err(AnswerError::Query(_)) => {}
        Err(error) => panic!("{view:?}: {error}"),
    }
}

/// Folds, trims or merges the input, and checks that the result can be read. A folded trace must have the counts of the
/// whole one.
fn rewrite(bytes: &[u8], whole: &Reading, choice: &mut Input<'_>) {
    let mut out = FileWriter::new(Vec::new(), 1).expect("memory can be written");
    match choice.u8() % 3 {
        0 => {
            let mut reader = Reader::new(bytes).expect("it was read before");
            let cut = choice.u8() as u64 * bytes.len() as u64 / 255;
            if fold(&mut reader, cut, bytes.len() as u64, &mut out).is_err() {
                return;
            }
            let folded = read(&out.finish().expect("memory can be written"), Some(Domain::Malloc)).expect("our own");
            assert!(!folded.is_damaged);
            let (before, after) = (check_blocks(&whole.blocks), check_blocks(&folded.blocks));
            if before.faults.is_empty() && !whole.is_damaged && !has_sums(&whole.blocks) {
                // A fold keeps only the highest memory sample, so the last one may be missing.
                let counted = |totals: Totals| Totals { runtime_ns: 0, ..totals };
                assert_eq!(counted(before.totals), counted(after.totals), "folded at {cut}");
            }
        }
        1 => {
            // If the beginning of the input is damaged, `Source` may take it for a file of KDE's heaptrack and refuse
            // it.
            let Ok(mut source) = Source::new(Cursor::new(bytes)) else { return };
            let runtime = check_blocks(&whole.blocks).totals.runtime_ns;
            let part = |share: u8| (runtime as u128 * share as u128 / 255) as u64;
            let (from, to) = (part(choice.u8()), part(choice.u8()));
            if trim(&mut source, Some(from).filter(|from| *from > 0), to, &mut out).is_ok() {
                let trimmed = read(&out.finish().expect("memory can be written"), Some(Domain::Malloc));
                check_blocks(&trimmed.expect("our own").blocks);
            }
        }
        _ => {
            let (Ok(one), Ok(other)) = (Source::new(Cursor::new(bytes)), Source::new(Cursor::new(bytes))) else {
                return;
            };
            if merge(vec![one, other], "fuzz", &mut out).is_ok() {
                let merged = read(&out.finish().expect("memory can be written"), Some(Domain::Malloc));
                check_blocks(&merged.expect("our own").blocks);
            }
        }
    }
}

/// True if the trace has blocks whose sums a replay takes from the file without a check: sums of folded events, or a
/// summary.
fn has_sums(blocks: &[RawBlock]) -> bool {
    blocks.iter().any(|block| matches!(block.kind, BlockKind::Folded | BlockKind::Summary))
}

fuzz_target!(|data: &[u8]| {
    let Some(all) = read(data, None) else { return };
    if all.blocks.len() > MOST_BLOCKS {
        return;
    }
    for block in &all.blocks {
        let _ = block.decode();
    }
    assert_eq!(read(&write(&all.blocks), None).expect("our own").blocks[..all.blocks.len()], all.blocks);
    // The questions are derived from the file, so that the same file always has the same questions.
    let sum = xxhash_rust::xxh3::xxh3_64(data).to_le_bytes();
    let mut choice = Input(&sum);
    if let Some(custom) = read(data, Some(Domain::Custom)) {
        check_blocks(&custom.blocks);
    }
    let Some(malloc) = read(data, Some(Domain::Malloc)) else { return };
    check_blocks(&malloc.blocks);
    ask(&malloc.blocks, &mut choice);
    rewrite(data, &malloc, &mut choice);
    let mut lookup = Lookup::new(choice.u8() as u64);
    for block in &malloc.blocks {
        let _ = lookup.add(block);
    }
    if let Some(found) = lookup.finish() {
        found.definitions.frames(found.stack).count();
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let blocks = read(&data[..size], None).map(|reading| reading.blocks).unwrap_or_default();
    if seed % 4 == 0 || blocks.is_empty() {
        return fuzzer_mutate(data, size, max_size);
    }
    let changed = write(&change(blocks, seed / 4));
    if changed.len() > max_size {
        return size;
    }
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
});

fn change(mut blocks: Vec<RawBlock>, seed: u32) -> Vec<RawBlock> {
    // The writer makes an index of its own.
    blocks.retain(|block| block.kind != BlockKind::Index);
    if blocks.is_empty() {
        return blocks;
    }
    let (at, other) = (seed as usize / 16 % blocks.len(), seed as usize / 4096 % blocks.len());
    match seed % 16 {
        0 => drop(blocks.remove(at)),
        1 => blocks.swap(at, other),
        2 => {
            let copy = blocks[at].clone();
            blocks.insert(other, copy);
        }
        3 => blocks[at].kind = BlockKind::ALL[seed as usize / 4096 % BlockKind::ALL.len()],
        4 => blocks[at].kind = blocks[at].kind.of(Domain::ALL[seed as usize / 4096 % Domain::ALL.len()]),
        _ => {
            let payload = &mut blocks[at].payload;
            let length = payload.len();
            payload.resize(length + 64, 0);
            let length = fuzzer_mutate(payload, length, length + 64);
            payload.truncate(length);
        }
    }
    blocks
}
