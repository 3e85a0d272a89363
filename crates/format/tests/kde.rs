//! KDE's files: every format, kind and compression, the counts, and files that are truncated at every byte or changed
//! at random (`HEAPTRACK_FUZZ_SECONDS`, default 3; `HEAPTRACK_FUZZ_SEED` runs one seed first).
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]
mod common;

use common::fuzzing::fuzz;
use common::peak_memory_kb;
use fastrand::Rng;
use format::*;
use std::io::{Cursor, Read, Write};
use std::time::{Duration, Instant};

/// A small interpreted file: inlined functions, `operator new`, an unknown stack, temporary blocks by KDE's rule.
const INTERPRETED: &str = "v 10400 3
X ./a  two
I 1000 400
S b leak:foobar
s 6 /bin/a
s 4 main
s 6 /s/a.c
s 3 foo
s 1b operator new(unsigned long)
s 9 /lib/c.so
i 5000 1 2 3 9
t 1 0
i 5010 1 4 3 5 2 3 a
t 2 1
i 7f0000001000 6 5
t 3 2
i 7f0000002000 0
t 4 3
a 10 2
a 20 3
a 30 0
a 40 4
+ 0
+ 1
c a
R 10
+ 1
- 1
- 0
+ 2
+ 3
c 14
R 8
- 2
- 1

# strings: 6
# ips: 4
";

fn raw_text() -> String {
    let lines = [
        "v 10400 3",
        "x 6 /bin/a",
        "X ./a",
        "I 1000 400",
        "A",
        "m 1 -",
        "m 1 x 1000 0 100 200 100",
        "m 9 /lib/c.so 9000 0 1000",
        "t 1050 0",
        "t 9010 1",
        "+ 20 2 7f10",
        "+ 20 1 7f20",
        "- 7f10",
        "- 7f20",
        "- 1234",
        "c 5",
        "+ 8 0 7f30",
        "+ 8 0 7f30",
        "",
    ];
    lines.join("\n")
}

#[derive(Debug, Default, PartialEq)]
struct Reading {
    session: Session,
    suppressions: String,
    modules: Vec<Module>,
    nodes: Vec<StackNode>,
    alloc_classes: Vec<AllocClass>,
    events: Vec<Event>,
    samples: Vec<RssSample>,
    /// `function file:line` of all code locations of a frame.
    names: Vec<(u64, Vec<String>)>,
    summary: Option<Summary>,
    finished: bool,
    damage: Vec<&'static str>,
}

fn read<R: Read>(mut source: Source<R>) -> Result<Reading, Error> {
    let mut reading = Reading::default();
    while let Some(block) = source.next_block()? {
        match block.decode().unwrap() {
            Block::Session(session) => reading.session = session,
            Block::Suppressions(text) => reading.suppressions = text.0,
            Block::Modules(modules) => reading.modules.extend(modules),
            Block::Stacks(stacks) => {
                assert_eq!(stacks.first as usize, reading.nodes.len() + 1);
                reading.nodes.extend(stacks.nodes);
            }
            Block::AllocClasses(alloc_classes) => {
                assert_eq!(alloc_classes.first as usize, reading.alloc_classes.len());
                reading.alloc_classes.extend(alloc_classes.alloc_classes);
            }
            Block::Events(mut events) => {
                while let Some(event) = events.read().unwrap() {
                    reading.events.push(event);
                }
            }
            Block::Samples(samples) => reading.samples.extend(samples),
            Block::Summary(summary) => reading.summary = Some(summary),
            Block::Symbols(symbols) => add_names(&mut reading.names, &symbols),
            other => panic!("no such block is made: {other:?}"),
        }
    }
    reading.finished = source.finished();
    reading.damage = source.damage().iter().map(|damage| damage.reason).collect();
    Ok(reading)
}

fn add_names(names: &mut Vec<(u64, Vec<String>)>, symbols: &Symbols) {
    let text = |index: Option<u32>| index.map_or("", |index| &symbols.strings[index as usize]).to_owned();
    for module in &symbols.modules {
        for (key, places) in &module.frames {
            let name = |place: &CodeLocation| {
                let function = place.function.map(|index| symbols.functions[index as usize].full);
                let mark = if place.inlined { " inlined" } else { "" };
                format!("{} {}:{}{mark}", text(function), text(place.file), place.line.unwrap_or(0))
            };
            names.push(((module.instance as u64) << 48 | key, places.iter().map(name).collect()));
        }
    }
}

fn of(bytes: &[u8]) -> Result<Reading, Error> {
    read(Source::new(Cursor::new(bytes.to_vec()))?)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Writes the blocks of a KDE file as a trace of ours; `change` may replace each of them.
fn as_trace(text: &str, change: impl Fn(&RawBlock) -> RawBlock) -> Vec<u8> {
    let mut source = Source::new(Cursor::new(text.as_bytes().to_vec())).unwrap();
    let mut out = FileWriter::new(Vec::new(), 1).unwrap();
    while let Some(block) = source.next_block().unwrap() {
        out.write(&change(block)).unwrap();
    }
    out.finish().unwrap()
}

/// A Session as it was written before it had the field `counting`: without its last byte.
fn without_counting(block: &RawBlock) -> RawBlock {
    let mut block = block.clone();
    if block.kind == BlockKind::Session {
        block.payload.pop();
    }
    block
}

fn trimmed(trace: &[u8], from: Option<u64>) -> (Vec<u8>, Summary) {
    let mut out = FileWriter::new(Vec::new(), 1).unwrap();
    let mut source = Source::new(Cursor::new(trace.to_vec())).unwrap();
    let trimmed = trim(&mut source, from, u64::MAX, &mut out).unwrap();
    (out.finish().unwrap(), trimmed.summary)
}

/// The content of a trace of ours, without its index.
fn of_trace(bytes: Vec<u8>) -> Reading {
    let mut source = Source::new(Cursor::new(bytes)).unwrap();
    source.skip(&[BlockKind::Index]);
    read(source).unwrap()
}

#[test]
fn a_trace_names_its_rule_and_an_old_one_has_that_of_its_tool() {
    for (text, counting, temporary) in [(INTERPRETED, Counting::AllocClass, 2), (&*raw_text(), Counting::Block, 0)] {
        let new = of_trace(as_trace(text, RawBlock::clone));
        assert_eq!(new.session.counting, counting);
        let old = as_trace(text, without_counting);
        assert_eq!(of_trace(old.clone()), new);
        // A trimmed trace names the rule and counts by it, also if the old one did not name it.
        let (trace, summary) = trimmed(&old, None);
        assert_eq!(of_trace(trace).session, new.session);
        assert_eq!(summary.totals.temporary, temporary);
    }
}

#[test]
fn later_fields_of_a_session_and_later_rules_are_ignored() {
    let session = of(INTERPRETED.as_bytes()).unwrap().session;
    let mut longer = session.to_block();
    // Without samples, their rate is 0 if later fields follow.
    longer.payload.extend_from_slice(b"\0\0something new");
    assert!(matches!(longer.decode(), Ok(Block::Session(found)) if found == session));
    let mut unknown = session.to_block();
    *unknown.payload.last_mut().unwrap() = 99;
    let ours = Session { counting: Counting::Thread, ..session };
    assert!(matches!(unknown.decode(), Ok(Block::Session(found)) if found == ours));
}

/// KDE's reader forgets the latest allocation at a free of an unknown block, wherever the trace is cut.
#[test]
fn trim_counts_temporary_blocks_as_the_translation_does() {
    let text = "v 10400 3\nX ./a\nI 1000 400\ns 6 /bin/a\ni 5000 1\nt 1 0\na 10 1\na 20 1\na 30 1\n\
                c a\n+ 1\n- 2\nc 14\n- 1\n+ 1\n- 1\n\n# strings: 1\n# ips: 1\n";
    let found = of(text.as_bytes()).unwrap();
    assert_eq!(found.summary.unwrap().totals.temporary, 1);
    let trace = as_trace(text, RawBlock::clone);
    for from in [None, Some(9_000_000), Some(10_000_000), Some(15_000_000)] {
        assert_eq!(trimmed(&trace, from).1.totals.temporary, 1, "from {from:?}");
    }
}

#[test]
fn an_interpreted_file_is_translated_whole() {
    let found = of(INTERPRETED.as_bytes()).unwrap();
    assert_eq!(found.session.command, ["./a", "", "two"]);
    assert_eq!((&*found.session.exe, &*found.session.tool), ("/bin/a", "KDE heaptrack 1.4.0 (interpreted)"));
    assert_eq!((found.session.page_size, found.session.system_memory), (4096, 0x40_0000));
    assert_eq!(found.session.counting, Counting::AllocClass);
    assert_eq!(found.suppressions, "leak:foobar\n");
    let main = Frame::new(1, 0x5000, true);
    let foo = Frame::new(1, 0x5010, true);
    let unknown = Frame::new(0, 0x7f00_0000_2000, true);
    // `operator new` is replaced by its caller.
    assert_eq!(
        found.nodes,
        [
            StackNode { parent: 0, frame: main },
            StackNode { parent: 1, frame: foo },
            StackNode { parent: 2, frame: unknown }
        ]
    );
    assert_eq!(
        found.alloc_classes.iter().map(|alloc_class| (alloc_class.size, alloc_class.stack)).collect::<Vec<_>>(),
        [(0x10, 2), (0x20, 2), (0x30, 0), (0x40, 3)]
    );
    let paths: Vec<&str> = found.modules.iter().map(|module| &*module.path).collect();
    assert_eq!(paths, ["/bin/a", "/lib/c.so"]);
    let new = vec!["operator new(unsigned long) :0".to_owned()];
    assert_eq!(
        found.names,
        [
            (unknown.0, vec![]),
            (main.0, vec!["main /s/a.c:9".into()]),
            (foo.0, vec!["foo /s/a.c:5 inlined".into(), "main /s/a.c:10".into()]),
            (Frame::new(2, 0x7f00_0000_1000, true).0, new),
        ]
    );
    let (alloc, free) = (
        |sequence, alloc_class| Event::Alloc { sequence, alloc_class },
        |sequence| Event::Free { sequence, how: Freed::Call },
    );
    assert_eq!(
        found.events,
        [
            alloc(0, 0),
            alloc(1, 1),
            Event::Time(10_000_000),
            alloc(2, 1),
            free(2),
            free(0),
            alloc(3, 2),
            alloc(4, 3),
            Event::Time(20_000_000),
            free(3),
            free(1),
        ]
    );
    let totals = found.summary.unwrap().totals;
    assert_eq!((totals.allocations, totals.deallocations, totals.temporary), (5, 4, 2));
    assert_eq!((totals.leaked_bytes, totals.leaked_allocations), (0x40, 1));
    assert_eq!((totals.peak_bytes, totals.peak_allocations, totals.peak_time_ns), (0x90, 3, 10_000_000));
    assert_eq!((totals.runtime_ns, totals.peak_rss_bytes, totals.allocated_bytes), (21_000_000, 0x1_0000, 0xc0));
    assert!(found.finished && found.summary.unwrap().complete);
    assert_eq!(found.damage, Vec::<&str>::new());
}

#[test]
fn every_packing_is_told_by_its_first_bytes() {
    let plain = of(INTERPRETED.as_bytes()).unwrap();
    assert_eq!(of(&gzip(INTERPRETED.as_bytes())).unwrap(), plain);
    assert_eq!(of(&zstd::encode_all(INTERPRETED.as_bytes(), 3).unwrap()).unwrap(), plain);
    let path = std::env::temp_dir().join(format!("heaptrack-kde-test.{}", std::process::id()));
    for bytes in [INTERPRETED.as_bytes().to_vec(), gzip(INTERPRETED.as_bytes())] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(read(Source::open(&path).unwrap()).unwrap(), plain);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_raw_file_keeps_identity_and_modules() {
    let found = of(raw_text().as_bytes()).unwrap();
    assert_eq!((&*found.session.exe, found.session.attached), ("/bin/a", true));
    assert_eq!(found.session.counting, Counting::Block);
    let module = &found.modules[1];
    assert_eq!((&*module.path, module.bias, module.start, module.end), ("/lib/c.so", 0x9000, 0x9000, 0xa000));
    assert_eq!(found.nodes[1], StackNode { parent: 1, frame: Frame::new(2, 0x10, true) });
    assert_eq!(found.names, vec![]);
    // The text alone does not say that it is complete.
    assert!(!found.finished && of(&gzip(raw_text().as_bytes())).unwrap().finished);
    assert_eq!(
        found.events,
        [
            Event::Alloc { sequence: 0, alloc_class: 0 },
            Event::Alloc { sequence: 1, alloc_class: 1 },
            Event::Free { sequence: 0, how: Freed::Call },
            Event::Free { sequence: 1, how: Freed::Call },
            Event::UnknownFree,
            Event::Time(5_000_000),
            Event::Alloc { sequence: 2, alloc_class: 2 },
            Event::Free { sequence: 2, how: Freed::Implied },
            Event::Alloc { sequence: 3, alloc_class: 2 },
        ]
    );
    assert_eq!(found.damage, Vec::<&str>::new());
}

#[test]
fn older_formats_are_read_by_their_own_rules() {
    // Strings without length; no version line, or one without a format; frees by address.
    let old = "X a\ns /bin/a\ns main with space\ni 10 1 2\nt 1 0\n+ 20 1 7f\n+ 20 1 8f\n- 7f\n- 9f\n";
    for head in ["", "v 10000\n"] {
        let found = of(format!("{head}{old}").as_bytes()).unwrap();
        assert_eq!(found.names[0].1, ["main with space :0"]);
        assert_eq!(found.alloc_classes, [AllocClass { size: 0x20, stack: 1 }]);
        assert_eq!(found.events[2..], [Event::Free { sequence: 0, how: Freed::Call }, Event::UnknownFree]);
        assert_eq!(found.session.counting, Counting::Block);
    }
    let newer = "X a\ns /bin/a\ns main with space\ni 10 1 2\nt 1 0\na 20 1\n+ 0\n- 0\n";
    for head in ["v 10200\n", "v 10000 1\n", "v 10100 2\n"] {
        let found = of(format!("{head}{newer}").as_bytes()).unwrap();
        assert_eq!(found.names[0].1, ["main with space :0"]);
        assert_eq!(found.events[1], Event::Free { sequence: 0, how: Freed::Call });
    }
    let raw = "v 10100 2\nx /bin/a\nX a\nm -\nm x 1000 0 100\nt 1010 0\n+ 8 1 7f\n";
    let found = of(raw.as_bytes()).unwrap();
    assert_eq!((&*found.modules[0].path, found.nodes[0].frame), ("/bin/a", Frame::new(1, 0x10, true)));
    assert!(matches!(of(b"v 10900 4\nX a\n"), Err(Error::Newer(4))));
}

/// Regression test: such a line shifted the sizes of all later allocations.
#[test]
fn an_allocation_class_in_a_file_that_frees_by_address_is_no_line_of_it() {
    for sound in [raw_text(), "v 10000\nX a\nt 1 0\n+ 20 1 7f\n+ 30 1 8f\n".to_owned()] {
        let (found, sound) =
            (of(sound.replacen("\n+", "\na 99 0\n+", 1).as_bytes()).unwrap(), of(sound.as_bytes()).unwrap());
        assert_eq!((&found.alloc_classes, &found.events), (&sound.alloc_classes, &sound.events));
        assert_eq!(found.damage, ["a line that makes no sense"]);
    }
}

/// KDE's recorder does not escape line feeds in the words of the command.
#[test]
fn a_command_of_several_lines_is_no_damage() {
    let command = "python3 -c import json\n\nx = 5\ns=json\nfor i in range(3):\n    m - 1\n# + 0\nc = 7";
    let text = INTERPRETED.replace("X ./a  two", &format!("X {command}"));
    let (found, sound) = (of(text.as_bytes()).unwrap(), of(INTERPRETED.as_bytes()).unwrap());
    assert_eq!(found.session.command.join(" "), command);
    assert_eq!(found.damage, Vec::<&str>::new());
    assert_eq!((found.events, found.names, found.alloc_classes), (sound.events, sound.names, sound.alloc_classes));
}

/// Found by `fuzz/targets/kde.rs`: events that are read several at a time did not end the command.
#[test]
fn the_command_ends_at_the_first_event() {
    let found = of(b"v 10400 3\na 10 0\nX a\n+ 0\n+ 0\n+ 0\n- 0\nzz zz\n+ 0\n").unwrap();
    assert_eq!(found.session.command, ["a"]);
    assert_eq!(found.damage, ["a line that makes no sense"]);
}

/// Found by `fuzz/targets/kde.rs`: address 0 also stood for "no allocation since the last free".
#[test]
fn a_block_at_address_0_is_temporary_only_right_after_its_allocation() {
    for (frees, temporary) in [("- 8\n- 0\n", 1), ("- 0\n- 8\n", 0)] {
        let text = format!("v 10400 3\nx 6 /bin/x\nX prog\nt 1050 0\n+ 10 1 0\n+ 20 1 8\n{frees}");
        let totals = of(&gzip(text.as_bytes())).unwrap().summary.unwrap().totals;
        assert_eq!((totals.temporary, totals.deallocations), (temporary, 2), "{frees}");
    }
}

#[test]
fn two_pointers_with_one_address_stay_two() {
    let text = "v 10400 3\nX a\ns 1 a\ns 1 b\ni 0 0 1\ni 0 0 2\nt 1 0\nt 2 0\n";
    let found = of(text.as_bytes()).unwrap();
    assert_ne!(found.nodes[0].frame, found.nodes[1].frame);
    assert_eq!(found.names.iter().map(|name| name.1.concat()).collect::<Vec<_>>(), ["a :0", "b :0"]);
}

#[test]
fn what_makes_no_sense_is_told_and_the_rest_counts() {
    let bad = ["+ 9", "- 9", "+", "- x", "+ A", "c 1", "c 0", "i zz", "Xyz", "\u{e4} 1", "X again", "v 10400 3"];
    let text = INTERPRETED.replace("- 2\n", &format!("{}\n- 2\n", bad.join("\n")));
    let (found, sound) = (of(text.as_bytes()).unwrap(), of(INTERPRETED.as_bytes()).unwrap());
    assert_eq!(found.damage, ["a line that makes no sense"]);
    assert_eq!(
        (&found.events, &found.alloc_classes, &found.nodes),
        (&sound.events, &sound.alloc_classes, &sound.nodes)
    );
    assert!(!found.summary.unwrap().complete);
    // More frees than blocks.
    let found = of(INTERPRETED.replace("- 2\n", "- 2\n- 2\n- 2\n").as_bytes()).unwrap();
    assert_eq!(found.events.iter().filter(|event| **event == Event::UnknownFree).count(), 2);
}

#[test]
fn what_is_no_trace_is_refused() {
    for bytes in [&b"root:x:0:0:root:/root:/bin/sh\n"[..], b"hello\n", &gzip(b"hello\n"), &gzip(b""), &gzip(&[0; 500])]
    {
        assert!(of(bytes).is_err(), "{bytes:?}");
    }
    assert!(matches!(of(b""), Err(Error::Empty)));
    assert!(matches!(of(&gzip(b"")), Err(Error::Empty)));
    assert!(matches!(Source::open("/"), Err(Error::Folder)));
    assert!(matches!(Source::open("/dev/null"), Err(Error::NotAFile)));
}

/// A prefix of a file gives a prefix of the whole file's content, in every packing.
#[test]
fn cut_at_every_byte() {
    for text in [INTERPRETED.to_owned(), raw_text()] {
        let whole = of(text.as_bytes()).unwrap();
        let packed = [text.as_bytes().to_vec(), gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 3).unwrap()];
        for (sort, bytes) in packed.iter().enumerate() {
            for length in 0..bytes.len() {
                let Ok(found) = of(&bytes[..length]) else { continue };
                assert!(whole.events.starts_with(&found.events), "{length} of sort {sort}");
                assert!(whole.alloc_classes.starts_with(&found.alloc_classes) && whole.nodes.starts_with(&found.nodes));
                assert!(!found.finished, "{length} of sort {sort}");
            }
        }
    }
}

/// Decompression bombs: an endless line, endless names, endless blocks.
#[test]
fn what_unpacks_to_gigabytes_takes_little_memory() {
    let head = b"v 10400 3\nX a\ns 1 a\ni 1 1 1\nt 1 0\na 10 1\n";
    let endless = |unit: &[u8], bytes: u64| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(head).unwrap();
        let piece = unit.repeat((1 << 20) / unit.len());
        for _ in 0..bytes / piece.len() as u64 {
            encoder.write_all(&piece).unwrap();
        }
        encoder.finish().unwrap()
    };
    let before = peak_memory_kb();
    for (unit, bytes) in [(&b"x"[..], 1u64 << 30), (b"\0", 1 << 30), (b"zzzz\n", 256 << 20)] {
        let found = of(&endless(unit, bytes)).unwrap();
        assert_eq!((found.events.len(), found.finished), (0, false));
    }
    assert!(peak_memory_kb() - before < 128 << 10, "{} kB", peak_memory_kb());
}

fn random(rng: &mut Rng) -> (String, Totals) {
    let mut text = String::from("v 10400 3\nX a\nI 1000 10\ns 1 a\ni 1 1 1\nt 1 0\n");
    let (mut sizes, mut live) = (Vec::new(), Vec::new());
    let (mut totals, mut now, mut last) = (Totals::default(), 0, 0);
    for _ in 0..rng.usize(..400) {
        match rng.usize(..10) {
            0 | 1 => {
                let bits = 1 + rng.usize(..40);
                let size = rng.usize(..1 << bits) as u64;
                sizes.push(size);
                live.push(0u64);
                text += &format!("a {size:x} {}\n", rng.usize(..2));
            }
            2 => {
                now += rng.usize(..50) as u64;
                text += &format!("c {now:x}\nR {:x}\n", rng.usize(..100));
            }
            choice if !sizes.is_empty() => {
                let alloc_class = rng.usize(..sizes.len());
                if choice < 7 {
                    text += &format!("+ {alloc_class:x}\n");
                    live[alloc_class] += 1;
                    totals.allocations += 1;
                    totals.allocated_bytes += sizes[alloc_class];
                    totals.leaked_bytes += sizes[alloc_class];
                    last = alloc_class;
                    if totals.leaked_bytes > totals.peak_bytes {
                        totals.peak_bytes = totals.leaked_bytes;
                        totals.peak_time_ns = now * 1_000_000;
                    }
                } else if live[alloc_class] > 0 {
                    text += &format!("- {alloc_class:x}\n");
                    live[alloc_class] -= 1;
                    totals.deallocations += 1;
                    totals.temporary += (last == alloc_class) as u64;
                    totals.leaked_bytes -= sizes[alloc_class];
                    last = 0;
                }
            }
            _ => (),
        }
    }
    text += "\n# strings: 1\n# ips: 1\n";
    totals.leaked_allocations = live.iter().sum();
    totals.runtime_ns = (now + 1) * 1_000_000;
    (text, totals)
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    common::mutate(
        rng,
        bytes,
        b"0af \n+-tsiamxX#\0\xff",
        &[|bytes, range| {
            drop(bytes.splice(range, b"ffffffffffffffff".iter().copied()));
        }],
    );
}

fn round(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (text, mut expected) = random(&mut rng);
    let found = of(text.as_bytes()).unwrap();
    let totals = found.summary.unwrap().totals;
    (expected.peak_allocations, expected.peak_rss_bytes) = (totals.peak_allocations, totals.peak_rss_bytes);
    assert_eq!((totals, found.damage), (expected, vec![]));
    let mut bytes = [text, INTERPRETED.to_owned(), raw_text()][rng.usize(..3)].clone().into_bytes();
    let is_packed_first = rng.usize(..2) == 0;
    let pack = |bytes: &[u8], sort| if sort == 0 { gzip(bytes) } else { zstd::encode_all(bytes, 1).unwrap() };
    let sort = rng.usize(..3);
    if is_packed_first && sort < 2 {
        bytes = pack(&bytes, sort);
    }
    mutate(&mut rng, &mut bytes);
    if !is_packed_first && sort < 2 {
        bytes = pack(&bytes, sort);
    }
    // Whatever the file contains, the reader must not panic, and its blocks must decode.
    let _ = of(&bytes);
}

#[test]
fn random_files_count_right_and_bent_ones_are_harmless() {
    fuzz(3, |seed| {
        let start = Instant::now();
        round(seed);
        assert!(start.elapsed() < Duration::from_secs(10), "slow");
    });
}
