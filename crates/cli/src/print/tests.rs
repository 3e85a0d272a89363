//! `print` on small traces that are made here.
#![allow(clippy::unwrap_used, reason = "a test")]
use super::{Print, write};
use analysis::view::View;
use format::{AllocClassEncoder, EventEncoder, FileWriter, Frame, Module, RawBlock, Session, StackEncoder, Summary};
use format::{CodeLocation, SymbolState, SymbolsBuilder};
use serde_json::{Value, json};
use std::fs;

/// Two stacks of a program, one of them through JIT code and a cut.
fn blocks() -> Vec<RawBlock> {
    let mut stacks = StackEncoder::new();
    let main = stacks.push(0, Frame::new(1, 0x1139, false));
    let cut = stacks.push(main, Frame::CUT);
    let jit = stacks.push(cut, Frame::new(0, 0x7f00_0000_1000, false));
    let mut alloc_classes = AllocClassEncoder::new();
    let (small, large) = (alloc_classes.push(10, main), alloc_classes.push(1000, jit));
    let mut events = EventEncoder::new();
    events.alloc(large);
    events.alloc(small);
    let third = events.alloc(small);
    events.free(third);
    let session =
        Session { command: vec!["./a \"b\"".into(), "c".into()], exe: "/bin/a".into(), pid: 77, ..Session::default() };
    let module = Module { instance: 1, path: "/bin/a".into(), ..Module::default() };
    vec![
        session.to_block(),
        Module::to_block(&[module]),
        stacks.take(),
        alloc_classes.take(),
        events.take(),
        Summary { complete: true, ..Summary::default() }.to_block(),
    ]
}

fn file(blocks: &[RawBlock]) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
    for block in blocks {
        writer.write(block).unwrap();
    }
    writer.finish().unwrap()
}

fn print(bytes: &[u8], options: &[&str]) -> String {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("heaptrack-print.{}.{number}.htz", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let words = ["print"].iter().chain(options).map(|word| (*word).into()).chain([path.clone().into_os_string()]);
    let mut out = Vec::new();
    write(&Print::from_words(words.collect()).unwrap(), &mut out).unwrap();
    fs::remove_file(path).unwrap();
    String::from_utf8(out).unwrap()
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_str(&print(bytes, &["--json"])).unwrap()
}

fn frame(function: Option<&str>, module: Option<&str>, offset: Option<u64>) -> Value {
    json!({
        "function": function, "short": function, "file": null, "line": null, "module": module, "offset": offset,
        "inlined": false, "class": offset.map(|_| if module.is_some() { "program" } else { "runtime" }),
    })
}

#[test]
fn json_is_the_contract() {
    let found = json_of(&file(&blocks()));
    assert_eq!(found["schema"], 1);
    assert_eq!(found["command"], json!(["./a \"b\"", "c"]));
    assert_eq!((&found["pid"], &found["attached"], &found["complete"]), (&json!(77), &json!(false), &json!(true)));
    assert_eq!(
        found["totals"],
        json!({
            "allocations": 3, "deallocations": 1, "allocated_bytes": 1020, "temporary": 1, "leaked_bytes": 1010,
            "leaked_allocations": 2, "peak_bytes": 1020, "peak_allocations": 3, "peak_time_ns": 0,
            "peak_rss_bytes": 0, "overhead_bytes": 0, "runtime_ns": 0, "unknown_frees": 0, "implied_frees": 0,
            "lost_events": 0, "suppressed_bytes": 0, "suppressed_allocations": 0,
        })
    );
    let program = json!({
        "allocations": 2, "allocated_bytes": 20, "temporary": 1, "leaked_bytes": 10, "leaked_allocations": 1,
        "suppressed_bytes": 0, "suppressed_allocations": 0, "peak_bytes": 20, "peak_allocations": 2, "blamed": 0, "frames": [frame(None, Some("/bin/a"), Some(0x1139))],
    });
    let deep = json!({
        "allocations": 1, "allocated_bytes": 1000, "temporary": 0, "leaked_bytes": 1000, "leaked_allocations": 1,
        "suppressed_bytes": 0, "suppressed_allocations": 0, "peak_bytes": 1000, "peak_allocations": 1, "blamed": 2, "frames": [
            frame(None, None, Some(0x7f00_0000_1000)),
            frame(Some("[frames left out]"), None, None),
            frame(None, Some("/bin/a"), Some(0x1139)),
        ],
    });
    assert_eq!(found["peak"], json!([deep, program]));
    assert_eq!(found["leaked"], json!([deep, program]));
    assert_eq!(found["allocations"], json!([program, deep]));
    assert_eq!(found["temporary"], json!([program, deep]), "all stacks are in all lists");
}

#[test]
fn named_frames_are_expanded_and_one_is_blamed() {
    let mut names = SymbolsBuilder::default();
    names.module(1, SymbolState::Debug, "");
    let inner = Some(names.function("_Z1f", "std::f(int)", "std::f"));
    let outer = Some(names.function("main", "main", "main"));
    let (library, own) = (Some(names.string("/usr/include/c++/12/f.h")), Some(names.string("/home/me/a.cc")));
    let places = vec![
        CodeLocation { function: inner, file: library, line: Some(3), inlined: true },
        CodeLocation { function: outer, file: own, line: Some(9), inlined: false },
    ];
    names.frame(0x1139, places);
    names.module(0, SymbolState::Symbols, "");
    let script = Some(names.function("JS:*go /x.js:2:1", "go", "go"));
    let at = Some(names.string("/x.js"));
    names.frame(0x7f00_0000_1000, vec![CodeLocation { function: script, file: at, line: Some(2), inlined: false }]);
    let mut blocks = blocks();
    blocks.push(names.take().to_block());
    let bytes = file(&blocks);
    let found = json_of(&bytes);
    assert_eq!((&found["complete"], &found["damage"]), (&json!(true), &json!([])));
    assert_eq!(found["temporary"][0]["blamed"], 1);
    assert_eq!(
        found["temporary"][0]["frames"],
        json!([
            { "function": "std::f(int)", "short": "std::f", "file": "/usr/include/c++/12/f.h", "line": 3,
              "module": "/bin/a", "offset": 0x1139, "inlined": true, "class": "runtime" },
            { "function": "main", "short": "main", "file": "/home/me/a.cc", "line": 9,
              "module": "/bin/a", "offset": 0x1139, "inlined": false, "class": "program" },
        ])
    );
    let text = print(&bytes, &["--full"]);
    let stack = "\ngo\n  at /x.js:2\n  in ??\n1000B consumed over 1 calls from:\n    [frames left out]\n    std::f(int)\n      \
                 at /usr/include/c++/12/f.h:3\n      in /bin/a\n    main\n      at /home/me/a.cc:9\n";
    assert!(text.contains(stack), "{text}");
}

#[test]
fn a_cut_file_is_told_up_to_there() {
    let bytes = file(&blocks()[..5]);
    let found = json_of(&bytes[..bytes.len() - 60]);
    assert_eq!((&found["complete"], &found["damage"]), (&json!(false), &json!([])));
    assert_eq!(found["totals"]["allocations"], 3);
}

#[test]
fn lost_definitions_are_told() {
    let mut blocks = blocks();
    blocks.remove(3);
    let found = json_of(&file(&blocks));
    assert_eq!(found["complete"], false);
    assert_eq!(found["damage"][0]["reason"], "4 events refer to parts that are lost");
    assert_eq!(found["totals"]["allocations"], 0);
}

#[test]
fn text_has_kdes_sections_and_totals() {
    let text = print(&file(&blocks()), &["-l"]);
    for part in [
        "\nDebuggee command was: ./a \"b\" c\n",
        "\nMOST CALLS TO ALLOCATION FUNCTIONS\n2 calls to allocation functions with 20B peak consumption from\n0x1139\n  in /bin/a\n",
        "\nPEAK MEMORY CONSUMERS\n1000B peak memory consumed over 1 calls from\n0x7f0000001000\n  in ??\n",
        "\nMEMORY LEAKS\n1000B leaked over 1 calls from\n",
        "\nMOST TEMPORARY ALLOCATIONS\n1 temporary allocations of 2 allocations in total (50.00%) from\n",
        "\ntotal runtime: 0.00s.\ncalls to allocation functions: 3 (3000/s)\ntemporary memory allocations: 1 (1000/s)\n\
         peak heap memory consumption: 1.02K\npeak RSS (including heaptrack overhead): 0B\ntotal memory leaked: 1.01K\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    assert!(!print(&file(&blocks()), &["-p0", "-a", "0"]).contains("CONSUMERS"));
}

#[test]
fn a_diff_with_itself_is_nothing() {
    let path = std::env::temp_dir().join(format!("heaptrack-print.{}.base.htz", std::process::id()));
    let bytes = file(&blocks());
    fs::write(&path, &bytes).unwrap();
    let text = print(&bytes, &["--full", "--diff", path.to_str().unwrap()]);
    let same = "\nMOST CALLS TO ALLOCATION FUNCTIONS\nnothing changed\n\nPEAK MEMORY CONSUMERS\nnothing changed\n\n";
    assert!(text.contains(same), "{text}");
    assert!(text.ends_with("total memory leaked: 0B\n") && text.contains("nothing changed"), "{text}");
    let totals = "total runtime: 0.00s.\ncalls to allocation functions: 0\ntemporary memory allocations: 0\n";
    assert!(text.contains(totals), "the runs are equally long, so there are no rates: {text}");
    fs::remove_file(path).unwrap();
}

#[test]
fn every_view_is_json_and_says_its_name() {
    let bytes = file(&blocks());
    for (name, view) in View::ALL {
        let compare: &[&str] = if view == View::Diff { &["--compare", "@start"] } else { &[] };
        let mut options = vec!["--view", name];
        options.extend(compare);
        let found: Value = serde_json::from_str(&print(&bytes, &options)).unwrap();
        assert_eq!((&found["view"], &found["totals"]["allocations"]), (&json!(name), &json!(3)), "{name}");
    }
}

#[test]
fn a_part_of_a_trace_has_its_own_numbers() {
    let found = json_of(&file(&blocks()));
    let bytes = file(&blocks());
    let part: Value = serde_json::from_str(&print(&bytes, &["--json", "--size", "..10"])).unwrap();
    assert_eq!((&part["totals"]["allocations"], &part["totals"]["peak_bytes"]), (&json!(2), &json!(20)));
    assert_eq!(part["peak"], json!([found["peak"][1]]));
    let at: Value = serde_json::from_str(&print(&bytes, &["--json", "--at", "end"])).unwrap();
    assert_eq!((&at["totals"]["allocations"], &at["totals"]["leaked_bytes"]), (&json!(0), &json!(1010)));
    let none: Value = serde_json::from_str(&print(&bytes, &["--json", "--include", "nowhere"])).unwrap();
    assert_eq!((&none["totals"]["allocations"], &none["peak"]), (&json!(0), &json!([])));
}

#[test]
fn one_screen_has_the_answers() {
    let text = print(&file(&blocks()), &[]);
    let (first, rest) = text.split_once('\n').unwrap();
    assert!(first.ends_with(": ./a \"b\" c"), "{first}");
    let expected = "\
ran for 0 s; it is not known how the program ended

allocated   1.02 kB in 3 allocations, 1 of them short-lived (33 %)
peak        1.02 kB in 3 blocks, at 0 s
not freed   1.01 kB in 2 blocks

AT THE PEAK, BY YOUR CODE
    1.02 kB  100 %  a+0x1139
";
    assert!(rest.starts_with(expected), "{text}");
    assert!(rest.contains("\nNOT FREED: LEAK OR NOT?\n    1.01 kB  100 %  one-time: a+0x1139\n"), "{text}");
    assert!(rest.contains("\nMOST ALLOCATIONS\n          3  100 %  a+0x1139, 33 % short-lived\n"), "{text}");
    let path = std::env::temp_dir().join(format!("heaptrack-screen.{}", std::process::id()));
    std::fs::write(&path, file(&blocks())).unwrap();
    let text = print(&file(&blocks()), &["--diff", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert!(text.contains("\npeak            1.02 kB     1.02 kB         0 B  +0.0 %\n"), "{text}");
    assert!(text.contains("\nWHAT CHANGED AT THE PEAK\nnothing changed\n"), "{text}");
}

/// Whatever a trace contains, the screen has room for it.
#[test]
fn one_screen_is_one_screen() {
    let mut names = SymbolsBuilder::default();
    names.module(1, SymbolState::Debug, "");
    let long = "x::".repeat(100);
    let function = Some(names.function("_Z1f", &long, &long));
    let at = Some(names.string(&format!("/home/me/{}.cc", "y".repeat(200))));
    names.frame(0x1139, vec![CodeLocation { function, file: at, line: Some(3), inlined: false }]);
    let mut blocks = blocks();
    blocks.push(names.take().to_block());
    for options in [&[][..], &["--at", "end"], &["--include", "nowhere"], &["--from", "start", "--size", "..10"]] {
        let text = print(&file(&blocks), options);
        // The commands have the path of the trace, whole, so that they can be copied.
        let is_command = |line: &&str| line.contains("heaptrack analyze ") || line.contains("heaptrack print --full ");
        let longest = text.lines().filter(|line| !is_command(line)).map(|line| line.chars().count()).max().unwrap();
        assert!(text.lines().count() <= 45 && text.lines().filter(is_command).count() == 2, "{text}");
        assert!(longest <= 100, "{longest}: {text}");
    }
}
