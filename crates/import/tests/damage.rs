//! Small files of every format: their numbers, and what happens to thousands of damaged copies of each.
#![allow(clippy::unwrap_used, reason = "a test")]
use import::{HeapProfile, Kind, Value, recognise, unpacked};

/// A file with which the fuzzer begins, its kind, and some of its totals.
type Example = (&'static str, Kind, &'static [(Value, u64)]);

const FILES: [Example; 7] = [
    ("gperftools", Kind::Gperftools, &[(Value::LiveBytes, 1040), (Value::Allocations, 3)]),
    ("sampled", Kind::Gperftools, &[(Value::LiveBytes, 829_411), (Value::LiveAllocations, 1)]),
    ("jemalloc", Kind::Jemalloc, &[(Value::LiveBytes, 1040), (Value::AllocatedBytes, 1080)]),
    ("massif", Kind::Massif, &[(Value::PeakBytes, 1040), (Value::LiveBytes, 1040)]),
    ("dhat", Kind::Dhat, &[(Value::PeakAllocations, 1), (Value::AllocatedBytes, 1000)]),
    ("pprof", Kind::Pprof, &[(Value::AllocatedBytes, 1080), (Value::LiveBytes, 1000)]),
    ("pprof.gz", Kind::Pprof, &[(Value::AllocatedBytes, 1080), (Value::LiveBytes, 1000)]),
];

fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../fuzz/corpus/profile/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn read(bytes: &[u8]) -> Option<Result<HeapProfile, import::Error>> {
    let bytes = unpacked(bytes, 1 << 20).ok()?;
    recognise(&bytes).map(|kind| import::read(kind, &bytes))
}

/// The names of a stack's functions, innermost first.
fn names(profile: &HeapProfile, stack: usize) -> Vec<&str> {
    let frames = profile.stacks[stack].frames.iter().map(|frame| &profile.frames[*frame as usize]);
    let lines = frames.flat_map(|frame| &frame.lines);
    lines.map(|line| profile.text(profile.functions[line.function as usize].name)).collect()
}

#[test]
fn files_are_recognised_and_have_their_numbers() {
    for (name, kind, totals) in FILES {
        let profile = read(&file(name)).unwrap().unwrap();
        assert_eq!(profile.kind, kind, "{name}");
        for (value, total) in totals {
            assert!(profile.known.contains(value), "{name}: {value:?} is not known");
            assert_eq!(profile.total(*value), *total, "{name}: {value:?}");
        }
    }
    let known = |name: &str| read(&file(name)).unwrap().unwrap().known;
    assert!(!known("massif").contains(&Value::Allocations) && !known("pprof").contains(&Value::PeakBytes));
    assert!(!known("sampled").contains(&Value::Allocations), "the sampler repeats the live blocks");
    for name in ["pprof", "dhat", "massif"] {
        assert_eq!(names(&read(&file(name)).unwrap().unwrap(), 0), ["fill", "main"], "{name}");
    }
    for other in ["", "\n", "{}", "{\"a\": 1}", "heap", "v 10300 3\nX ls\n", "desc: x\n"] {
        assert!(read(other.as_bytes()).is_none(), "{other:?}");
    }
}

/// massif marks a peak only when memory shrinks, and it has no tree of every snapshot.
#[test]
fn the_highest_snapshot_with_a_tree_is_the_peak_of_massif() {
    let snapshot = |number: u64, bytes: u64, kind: &str| {
        let tree = if kind == "empty" { String::new() } else { format!("n0: {bytes} 0x1: f (a.c:1)\n") };
        format!("snapshot={number}\ntime={number}\nmem_heap_B={bytes}\nheap_tree={kind}\n{tree}")
    };
    let file = |snapshots: &[(u64, &str)]| {
        let snapshots = (0..).zip(snapshots).map(|(number, (bytes, kind))| snapshot(number, *bytes, kind));
        format!("desc: x\ncmd: ./a\ntime_unit: i\n{}", snapshots.collect::<String>())
    };
    let read = |snapshots: &[(u64, &str)]| import::read(Kind::Massif, file(snapshots).as_bytes());
    for (snapshots, peak, live, note) in [
        (&[(10, "detailed"), (30, "detailed")][..], 30, Some(30), None),
        (&[(10, "detailed"), (40, "peak"), (20, "detailed")], 40, Some(20), None),
        (&[(30, "peak"), (40, "detailed"), (5, "empty")], 40, None, None),
        (
            &[(30, "peak"), (70, "empty")],
            30,
            None,
            Some("massif has no stacks of its highest snapshot, only of one with 30 of 70 bytes"),
        ),
    ] {
        let profile = read(snapshots).unwrap();
        assert_eq!(profile.total(Value::PeakBytes), peak, "{snapshots:?}");
        assert_eq!(
            profile.known.contains(&Value::LiveBytes).then(|| profile.total(Value::LiveBytes)),
            live,
            "{snapshots:?}"
        );
        assert_eq!(profile.note.as_deref(), note, "{snapshots:?}");
    }
    let error = read(&[(30, "empty")]).unwrap_err().to_string();
    assert_eq!(error, "a profile of massif, but none of its snapshots has a tree");
}

/// A program that frees nothing has as many live blocks as allocations. Only tcmalloc's sampler repeats its live blocks.
#[test]
fn all_allocations_are_known_if_nothing_was_freed() {
    let has_all = |text: &str| read(text.as_bytes()).unwrap().unwrap().known.contains(&Value::Allocations);
    let gperftools = |kind: &str| {
        format!("heap profile:      2:  16 [     2:  16] @ {kind}\n     2:  16 [     2:  16] @ 0x10 0x20\n")
    };
    let jemalloc = |all: &str| format!("heap_v2/1\n  t*: 2: 16 [{all}]\n@ 0x10 0x20\n  t*: 2: 16 [{all}]\n");
    assert!(has_all(&gperftools("heapprofile")) && !has_all(&gperftools("heap_v2/524288")));
    assert!(has_all(&jemalloc("2: 16")) && !has_all(&jemalloc("0: 0")));
}

/// tcmalloc's sampler writes a line for each block. A block of 64 bytes stands for 256.5 blocks of a sample in 16384 bytes.
#[test]
fn fractions_of_sampled_blocks_are_added_up() {
    let line = |address: &str| format!("     1:       64 [     1:       64] @ {address}\n");
    let header = "heap profile:      3:  192 [     3:  192] @ heap_v2/16384\n";
    let profile =
        read(format!("{header}{}{}{}", line("0x10"), line("0x20"), line("0x10")).as_bytes()).unwrap().unwrap();
    let blocks: Vec<u64> = profile.stacks.iter().map(|stack| stack.values[Value::LiveAllocations as usize]).collect();
    assert_eq!(blocks, [513, 256]);
}

/// Texts of which each line is a field of the right kind: the line's end or its first letter is the number of the field,
/// the next letter the length.
#[test]
fn a_text_is_no_pprof_profile() {
    let lines = |first: &str, line: &str| format!("{first}{}", line.repeat(5));
    let rows = lines("", &format!("\n0{}", "7".repeat(48)));
    let unit = lines(&format!("Z {}", "o".repeat(32)), &format!("\n!{}", "x".repeat(33)));
    let strings = lines(&format!("\n {}", " ".repeat(32)), &format!("2 {}", "y".repeat(32)));
    for text in [rows, unit, strings] {
        assert!(recognise(text.as_bytes()).is_none(), "{text:?}");
    }
    // The same fields with bytes of a type in the first one are a profile, and so is one that begins with its unit.
    let names = "2\u{2}ab".repeat(3);
    for first in ["\n\u{4}\u{8}\u{1}\u{10}\u{2}", "\n\u{2}\u{8}\u{1}", "Z\u{4}\u{8}\u{1}\u{10}\u{2}"] {
        assert_eq!(recognise(format!("{first}{names}").as_bytes()), Some(Kind::Pprof), "{first:?}");
    }
}

/// Everything that a profile refers to must be there.
fn check(profile: &HeapProfile) {
    assert!(
        profile.stacks.iter().flat_map(|stack| &stack.frames).all(|frame| (*frame as usize) < profile.frames.len())
    );
    for frame in &profile.frames {
        assert!(frame.module.is_none_or(|module| module < profile.modules.len()));
        for line in &frame.lines {
            let function = profile.functions[line.function as usize];
            let texts = [function.name, function.system_name, function.file];
            assert!(texts.iter().all(|text| (*text as usize) < profile.strings.len()));
        }
    }
}

#[test]
fn damaged_files_are_read_or_refused() {
    // A fixed sequence of numbers, so that a failure can be repeated.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut chance = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut counts = (0, 0);
    for (name, ..) in FILES {
        let whole = file(name);
        for length in 0..whole.len() {
            read(&whole[..length]).and_then(Result::ok).iter().for_each(check);
        }
        for _ in 0..5_000 {
            let mut bytes = whole.clone();
            for _ in 0..=chance(4) {
                let at = chance(bytes.len());
                match chance(3) {
                    0 => bytes[at] = chance(256) as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, chance(256) as u8),
                }
            }
            match read(&bytes) {
                Some(Ok(profile)) => {
                    check(&profile);
                    counts.0 += 1;
                }
                Some(Err(error)) => {
                    assert!(!error.to_string().contains('\n'), "{error}");
                    counts.1 += 1;
                }
                None => {}
            }
        }
    }
    assert!(counts.0 > 1_000 && counts.1 > 1_000, "read and refused: {counts:?}");
}

/// A small file can refer to a long text a million times. It must not be copied that often.
#[test]
fn a_text_that_is_used_often_is_kept_once() {
    let number = |mut value: u64| {
        let mut out = Vec::new();
        while value >= 128 {
            out.push(value as u8 | 128);
            value >>= 7;
        }
        out.push(value as u8);
        out
    };
    let field = |tag: u8, content: &[u8]| [&[tag << 3 | 2][..], &number(content.len() as u64), content].concat();
    let mut bytes = Vec::new();
    bytes.extend(field(1, &[8, 1, 16, 2]));
    for text in ["", "inuse_space", "bytes", &"x".repeat(1 << 20)] {
        bytes.extend(field(6, text.as_bytes()));
    }
    for id in 1..20_000 {
        bytes.extend(field(5, &[&[8][..], &number(id), &[16, 3]].concat()));
        bytes.extend(field(4, &[&[8][..], &number(id), &field(4, &[&[8][..], &number(id)].concat())].concat()));
    }
    let profile = read(&bytes).map(|_| import::read(Kind::Pprof, &bytes).unwrap()).unwrap();
    assert_eq!((profile.functions.len(), profile.frames.len(), profile.strings.len()), (19_999, 19_999, 4));
}
