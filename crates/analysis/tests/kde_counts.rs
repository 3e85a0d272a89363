//! Two ways to open a file of KDE's heaptrack: its events are counted by allocation class, or each free is paired with an allocation first. Both
//! must return the same numbers, for random files and for files that are changed at random (`HEAPTRACK_FUZZ_SECONDS`, default 2;
//! `HEAPTRACK_FUZZ_SEED` runs one seed first).
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
#[path = "../../format/tests/common/fuzzing.rs"]
mod fuzzing;

use analysis::{BlocksInMemory, CodeClasses, Engine, Query, StackTable, Suppressions};
use fastrand::Rng;
use format::{BlockKind, Damage, Error, KdeReader, RawBlock, Source};
use fuzzing::fuzz;
use std::fmt::Write;
use std::io::Cursor;

struct Opened {
    engine: Engine,
    events: Vec<RawBlock>,
    damage: Vec<Damage>,
    is_finished: bool,
    is_counted: bool,
}

/// Opens a file in the one way or in the other.
fn open(text: &[u8], by_alloc_class: bool) -> Result<Opened, Error> {
    let mut reader = KdeReader::new(Cursor::new(text), text.get(..8).unwrap_or(text))?;
    if by_alloc_class {
        reader.count_classes();
    }
    let (mut engine, mut events) = (Engine::new(), Vec::new());
    while let Some(block) = reader.next_block()? {
        engine.add(block);
        if block.kind == BlockKind::Events {
            events.push(block.clone());
        }
    }
    let counts = reader.take_counts();
    let is_counted = counts.is_some();
    if let Some(counts) = counts {
        engine.add_kde_counts(counts);
    }
    let (damage, is_finished) = (reader.damage().to_vec(), reader.finished());
    Ok(Opened { engine, events, damage, is_finished, is_counted })
}

/// Every stack with the names of its levels.
fn stacks(engine: &Engine) -> Vec<Vec<String>> {
    let table = StackTable::new(engine.definitions(), &CodeClasses::new("/bin/a"), Suppressions::new());
    let name = |node| table.level(node).map(|level| format!("{:?} {:?}", table.text(level.function), level.line));
    table.stacks.iter().map(|stack| table.path(stack.node).filter_map(name).collect()).collect()
}

/// Compares both ways. Returns false if the file cannot be opened or has no allocation classes.
fn check(text: &[u8]) -> bool {
    let (Ok(paired), Ok(counted)) = (open(text, false), open(text, true)) else {
        assert!(open(text, false).is_err() && open(text, true).is_err());
        return false;
    };
    assert_eq!((&counted.damage, counted.is_finished), (&paired.damage, paired.is_finished));
    let (ours, other) = (&counted.engine, &paired.engine);
    assert_eq!(ours.totals(), other.totals());
    assert_eq!(ours.faults(), other.faults());
    assert_eq!(ours.definitions().session, other.definitions().session);
    assert_eq!(ours.definitions().summary, other.definitions().summary);
    assert_eq!(ours.definitions().samples, other.definitions().samples);
    assert_eq!(ours.definitions().names.modules(), other.definitions().names.modules());
    assert_eq!(stacks(ours), stacks(other));
    let (rows, expected) = (ours.whole_profile().unwrap(), other.whole_profile().unwrap());
    assert_eq!((rows.stacks, rows.peak_time_ns), (expected.stacks, expected.peak_time_ns));
    assert!(!counted.is_counted || counted.events.is_empty());
    for query in [
        &[("from", "20%"), ("to", "70%")][..],
        &[("at", "peak")],
        &[("to", "peak")],
        &[("at", "60%")],
        &[("lifetime", "1ms..30ms")],
    ] {
        let query = Query::new(query.iter().copied()).unwrap();
        let of = |engine: &Engine| engine.profile(&mut BlocksInMemory::new(paired.events.clone()), &query).unwrap();
        let (rows, expected) = (of(ours), of(other));
        assert_eq!((rows.stacks, rows.peak_time_ns), (expected.stacks, expected.peak_time_ns));
    }
    counted.is_counted
}

/// Lines of an interpreted file. Some refer to classes that are not defined, free more than was allocated, or are no lines at all.
fn random_text(rng: &mut Rng) -> String {
    let mut text = String::from("v 10400 3\nX ./a\nI 1000 10\ns 6 /bin/a\ns 4 main\ns 3 foo\n");
    text += "i 10 1 2\ni 20 1 3 1 7\nt 1 0\nt 2 1\n";
    let (mut classes, mut now, is_wild) = (0u64, 0, rng.usize(..4) == 0);
    for _ in 0..rng.usize(..600) {
        let limit = classes.max(1) + (rng.usize(..200) == 0) as u64;
        let class = rng.u64(..limit);
        match rng.usize(..100) {
            0..5 => {
                let size = rng.u64(..) >> if is_wild { 14 + rng.usize(..3) } else { 24 + rng.usize(..40) };
                writeln!(text, "a {size:x} {}", rng.usize(..4)).unwrap();
                classes += 1;
            }
            5..8 => {
                now += rng.usize(..50);
                writeln!(text, "c {now:x}\nR {:x}", rng.usize(..100)).unwrap();
            }
            8 => writeln!(text, "t {} {}", rng.usize(..4), rng.usize(..3)).unwrap(),
            9 => text += ["\n", "zz\n", "+\n", "- \n", "+ 1A\n", "- 100000000\n", "m 1 -\n"][rng.usize(..7)],
            10 => writeln!(text, "+ {class:x} ").unwrap(),
            11 => writeln!(text, "- {class:012x}").unwrap(),
            12 => text += &format!("+ {class:x}\n- {class:x}\n").repeat(rng.usize(..40)),
            13 => text += &format!("- {class:x}\n").repeat(rng.usize(..4)),
            14..60 => writeln!(text, "+ {class:x}").unwrap(),
            _ => writeln!(text, "- {class:x}").unwrap(),
        }
    }
    text + if rng.usize(..4) == 0 { "+ 0" } else { "\n# strings: 3\n# ips: 2\n" }
}

fn mutate(rng: &mut Rng, text: &mut Vec<u8>) {
    for _ in 0..rng.usize(..4) {
        let at = rng.usize(..text.len());
        match rng.usize(..3) {
            0 => text[at] = b"0af \n+-tsiamxX#\0\xff"[rng.usize(..17)],
            1 => text.truncate(at.max(1)),
            _ => drop(text.splice(at..at, b"\n+ 1\n- 1\nm 1 -\n".iter().copied())),
        }
    }
}

#[test]
fn counting_by_class_gives_the_numbers_of_pairing() {
    fuzz(2, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut text = random_text(&mut rng).into_bytes();
        check(&text);
        mutate(&mut rng, &mut text);
        check(&text);
    });
}

/// More live bytes than 64 bits can hold. The sums stop there, and frees are subtracted from that.
#[test]
fn sums_that_saturate_are_the_same() {
    let mut text = String::from("v 10400 3\nX ./a\ns 6 /bin/a\ni 10 1\nt 1 0\na 1000000000000 1\na 10 1\n");
    text += &"+ 0\n".repeat(70_000);
    text += "+ 1\n";
    text += &"- 0\n".repeat(69_000);
    text += "- 1\n- 1\n+ 1\n";
    assert!(check(text.as_bytes()));
}

/// A file of many pieces is read by three threads.
#[test]
fn threads_give_the_same_numbers() {
    let mut rng = Rng::with_seed(1);
    let mut text = String::from("v 10400 3\nX ./a\ns 6 /bin/a\ni 10 1\nt 1 0\n");
    for class in 0..5000u32 {
        writeln!(text, "a {:x} 1", class % 700).unwrap();
        for _ in 0..100 {
            let sign = if rng.usize(..5) < 3 { '+' } else { '-' };
            writeln!(text, "{sign} {:x}", rng.u32(..class + 1)).unwrap();
        }
    }
    text += "\n# strings: 1\n# ips: 1\n";
    assert!(text.len() > 2 << 20 && check(text.as_bytes()));
    let path = std::env::temp_dir().join(format!("heaptrack-kde-counts.{}", std::process::id()));
    std::fs::write(&path, &text).unwrap();
    let mut source = Source::open_counted(&path, str::to_owned).unwrap();
    let mut engine = Engine::new();
    while let Some(block) = source.next_block().unwrap() {
        assert_ne!(block.kind, BlockKind::Events);
        engine.add(block);
    }
    engine.add_kde_counts(source.take_counts().unwrap());
    std::fs::remove_file(&path).unwrap();
    let expected = open(text.as_bytes(), false).unwrap().engine;
    assert_eq!(engine.totals(), expected.totals());
    assert_eq!(engine.whole_profile().unwrap().stacks, expected.whole_profile().unwrap().stacks);
    assert!(source.finished() && source.damage().is_empty());
}

/// Files that free by address are translated as before, also if that becomes known late.
#[test]
fn files_with_addresses_are_not_counted_by_class() {
    let raw = "v 10400 3\nX ./a\nc 5\n+ 1\n- 7f10\nm 1 -\nm 1 x 1000 0 100\nt 1050 0\n+ 20 1 7f10\n- 7f10\n- 1234\n";
    let old = "v 10000\nX a\nt 1 0\n+ 20 1 7f\n+ 30 1 8f\n- 7f\n";
    for text in [raw, &raw.replacen("X ./a", "x 6 /bin/a\nX ./a", 1), old] {
        assert!(!check(text.as_bytes()));
        assert_eq!(open(text.as_bytes(), true).unwrap().engine.totals().deallocations, 1);
    }
}
