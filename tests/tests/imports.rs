//! Heap profiles of other tools, made by these tools. Each has the numbers that its own reader prints; what it does not know is
//! absent; and damaged files are refused with one sentence.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Chance, Folder, Program, process, profilers, scale};
use heaptrack_trace::{Selection, Trace};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn json(file: &Path) -> Value {
    serde_json::from_str(&heaptrack_tests::view::text(file, &["--json"])).unwrap()
}

/// Totals by name; `None` for those that are null.
fn totals<const N: usize>(report: &Value, names: [&str; N]) -> [Option<u64>; N] {
    names.map(|name| {
        assert!(report["totals"].get(name).is_some(), "no total {name}");
        report["totals"][name].as_u64()
    })
}

const LIVE: [&str; 2] = ["leaked_bytes", "leaked_allocations"];
const ALL: [&str; 2] = ["allocated_bytes", "allocations"];
const PEAK: [&str; 2] = ["peak_bytes", "peak_allocations"];

/// A number as other tools write it: `5,279`.
fn plain(text: &str) -> u64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn dhat(folder: &Folder) -> PathBuf {
    profilers::dhat(&Program::target("exported"), folder)
}

fn massif(folder: &Folder) -> PathBuf {
    profilers::massif(&Program::target("exported"), folder)
}

fn gperftools(folder: &Folder) -> PathBuf {
    profilers::gperftools(&Program::target("exported"), folder)
}

fn jemalloc(folder: &Folder) -> PathBuf {
    profilers::jemalloc(&Program::target("exported"), folder)
}

const GO: &str = "
package main

import (
	\"os\"
	\"runtime\"
	\"runtime/pprof\"
)

var kept [][]byte

func hold() {
	for i := 0; i < 20; i++ {
		kept = append(kept, make([]byte, 1<<20))
	}
}

func main() {
	runtime.MemProfileRate = 1
	hold()
	runtime.GC()
	file, _ := os.Create(os.Args[1])
	pprof.Lookup(\"heap\").WriteTo(file, 0)
	file.Close()
}
";

fn go_heap(folder: &Folder) -> PathBuf {
    let (source, program, file) = (folder.join("main.go"), folder.join("program"), folder.join("heap.pb.gz"));
    std::fs::write(&source, GO).unwrap();
    let mut build = Command::new("go");
    build
        .env("GO111MODULE", "off")
        .env("GOCACHE", folder.join("cache"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(&source);
    output(&mut build);
    output(Command::new(&program).arg(&file));
    file
}

#[test]
fn a_heap_profile_of_go_has_the_numbers_of_go_tool_pprof() {
    let folder = Folder::new();
    let file = go_heap(&folder);
    let report = json(&file);
    let raw = output(Command::new("go").args(["tool", "pprof", "-raw"]).arg(&file));
    let mut sums = [0u64; 4];
    for line in raw.lines().skip_while(|line| *line != "Samples:").take_while(|line| *line != "Locations") {
        let Some((values, _)) = line.split_once(": ") else { continue };
        let values: Vec<u64> = values.split_whitespace().filter_map(|value| value.parse().ok()).collect();
        if let Ok(values) = <[u64; 4]>::try_from(values) {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    let [all, all_bytes, live, live_bytes] = sums.map(Some);
    assert_eq!(totals(&report, ALL), [all_bytes, all]);
    assert_eq!(totals(&report, LIVE), [live_bytes, live]);
    assert_eq!(totals(&report, ["peak_bytes", "temporary", "runtime_ns"]), [None; 3], "Go does not know them");
    assert_eq!((&report["peak"], &report["temporary"]), (&Value::Null, &Value::Null));
    let held = &report["leaked"][0];
    assert_eq!((&held["frames"][0]["function"], &held["peak_bytes"]), (&json!("main.hold"), &Value::Null));
    assert!(held["leaked_bytes"].as_u64().unwrap() >= 20 << 20);
    let csv = output(Command::new(heaptrack()).args(["export", "--to", "csv"]).arg(&file));
    let (header, row) = (csv.lines().next().unwrap(), csv.lines().nth(1).unwrap());
    let cell = |name: &str| row.split(',').nth(header.split(',').position(|column| column == name).unwrap()).unwrap();
    assert_eq!((cell("peak_bytes"), cell("lifetime_ns"), cell("temporary")), ("", "", ""));
    assert!(!cell("live_bytes").is_empty() && !cell("allocations").is_empty());
}

#[test]
fn a_profile_of_dhat_has_the_numbers_of_its_viewer() {
    let folder = Folder::new();
    let file = dhat(&folder);
    let script = heaptrack_tests::targets::workspace().join("tests/exports/dhat.mjs");
    let viewer = "/usr/libexec/valgrind/dh_view.js";
    let read: Value = serde_json::from_str(&output(Command::new("node").arg(script).arg(viewer).arg(&file))).unwrap();
    let report = json(&file);
    for (names, numbers) in [(ALL, "total"), (PEAK, "peak"), (LIVE, "end")] {
        assert_eq!(json!(totals(&report, names)), read["root"][numbers], "{numbers}");
    }
    assert_eq!(report["totals"]["temporary"], Value::Null);
    // DHAT and we say the same of the same program.
    let ours = Program::target("exported").recorded();
    let ours = json(&ours.trace);
    for names in [ALL, PEAK, LIVE] {
        assert_eq!(totals(&report, names), totals(&ours, names), "{names:?}");
    }
}

#[test]
fn a_profile_of_massif_has_the_numbers_of_ms_print() {
    let folder = Folder::new();
    let file = massif(&folder);
    let said = output(Command::new("ms_print").args(["--threshold=0"]).arg(&file));
    let report = json(&file);
    // The lines "99.89% (5,279B) (heap allocation functions)" of the snapshots with trees.
    let heaps: Vec<u64> = said
        .lines()
        .filter(|line| line.contains("(heap allocation functions)"))
        .filter_map(|line| Some(plain(line.split_once('(')?.1.split_once("B)")?.0)))
        .collect();
    assert_eq!(totals(&report, PEAK), [heaps.iter().max().copied(), None], "bytes, but no blocks");
    assert_eq!(totals(&report, LIVE), [heaps.last().copied(), None]);
    assert_eq!(totals(&report, ALL), [None, None]);
    let peak = report["peak"].as_array().unwrap();
    let of = |function: &str| -> u64 {
        let is_called = |entry: &&Value| entry["frames"][0]["function"].as_str().unwrap_or("").starts_with(function);
        peak.iter().filter(is_called).map(|entry| entry["peak_bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!((of("hand_over"), of("keep"), of("lose")), (2000, 3000, 7));
}

/// The total that `google-pprof` or `jeprof` prints: "Total: 24479 B" or "Total: 5 objects".
fn total_of(tool: &str, option: &str, file: &Path) -> u64 {
    total_by(tool, option, &target("exported"), file)
}

fn total_by(tool: &str, option: &str, program: &Path, file: &Path) -> u64 {
    let mut command = Command::new(tool);
    let said = output(command.args(["--text", "--show_bytes", option]).arg(program).arg(file));
    let line = said.lines().find_map(|line| line.strip_prefix("Total: ")?.split(' ').next());
    line.map(plain).unwrap_or_else(|| panic!("{tool} {option}: {said}"))
}

#[test]
fn heap_profiles_of_gperftools_and_jemalloc_have_the_numbers_of_their_tools() {
    for (tool, make) in [("google-pprof", gperftools as fn(&Folder) -> PathBuf), ("jeprof", jemalloc)] {
        let folder = Folder::new();
        let file = make(&folder);
        let report = json(&file);
        let total = |name: &str| report["totals"][name].as_u64().unwrap();
        assert_eq!(total("leaked_bytes"), total_of(tool, "--inuse_space", &file), "{tool}");
        assert_eq!(total("leaked_allocations"), total_of(tool, "--inuse_objects", &file), "{tool}");
        assert_eq!(total("allocated_bytes"), total_of(tool, "--alloc_space", &file), "{tool}");
        assert_eq!(total("allocations"), total_of(tool, "--alloc_objects", &file), "{tool}");
        assert_eq!(totals(&report, PEAK), [None, None], "{tool}");
        // Names come from the program's file. jemalloc counts 64 bytes for 64, and 48 for 40.
        let of = |function: &str| -> u64 {
            let entries = report["allocations"].as_array().unwrap().iter();
            let is_called = |entry: &&Value| {
                let frames = entry["frames"].as_array().unwrap();
                frames.iter().any(|frame| frame["function"].as_str().is_some_and(|name| name.starts_with(function)))
            };
            entries.filter(is_called).map(|entry| entry["allocations"].as_u64().unwrap()).sum()
        };
        assert_eq!((of("quick"), of("hand_over"), of("lose")), (300, 50, 1), "{tool}");
    }
}

/// docs/formats.md says which tools count what. By function: allocations, their bytes, their bytes in jemalloc's size classes,
/// and the live bytes.
#[test]
fn the_tools_and_we_say_the_same_of_the_same_program() {
    let ours = Program::target("exported").recorded();
    let folders: [Folder; 4] = std::array::from_fn(|_| Folder::new());
    let [dhat, massif] = [dhat(&folders[0]), massif(&folders[1])];
    let [gperftools, jemalloc] = [gperftools(&folders[2]), jemalloc(&folders[3])];
    for (function, allocations, bytes, in_classes, live) in [
        ("quick", 300, 19_200, 19_200, 0),
        ("fill", 3, 3000, 3 * 1024, 3000),
        ("hand_over", 50, 2000, 50 * 48, 0),
        ("lose", 1, 7, 8, 7),
    ] {
        let of = |file: &Path| -> Value {
            let text = heaptrack_tests::view::text(file, &["--json", "--include", &format!("function:{function}")]);
            serde_json::from_str(&text).unwrap()
        };
        for file in [&ours.trace, &dhat, &gperftools] {
            let report = of(file);
            assert_eq!(totals(&report, ALL), [Some(bytes), Some(allocations)], "{function} in {}", file.display());
            assert_eq!(totals(&report, ["leaked_bytes"]), [Some(live)], "{function} in {}", file.display());
        }
        assert_eq!(totals(&of(&jemalloc), ALL), [Some(in_classes), Some(allocations)], "{function}, jemalloc");
        // massif's last snapshot may be a few frees before the end, but its peak is the peak.
        let peak = totals(&of(&ours.trace), ["peak_bytes"]);
        assert_eq!(totals(&of(&massif), ["peak_bytes"]), peak, "{function}, massif");
        assert_eq!(totals(&of(&dhat), ["peak_bytes"]), peak, "{function}, DHAT");
    }
}

/// A part of a profile of tcmalloc's sampler, and one of jemalloc, with rates at which the scale is known.
#[test]
fn sampled_profiles_are_scaled() {
    let folder = Folder::new();
    let file = folder.join("sampled.heap");
    let scale = 1.0 / (1.0 - (-1.0f64).exp());
    let expected = [(524_288.0 * 3.0 * scale) as u64, (3.0 * scale) as u64].map(Some);
    for text in [
        "heap profile:      3:  1572864 [     3:  1572864] @ heap_v2/524288\n     3:  1572864 [     3:  1572864] @ 0x10 0x20\n",
        "heap profile:      3:  1572864 [     3:  1572864] @ heap/1048576\n     3:  1572864 [     3:  1572864] @ 0x10 0x20\n",
        "heap_v2/524288\n  t*: 3: 1572864 [0: 0]\n@ 0x10 0x20\n  t*: 3: 1572864 [0: 0]\n  t0: 3: 1572864 [0: 0]\n",
    ] {
        std::fs::write(&file, text).unwrap();
        let report = json(&file);
        assert_eq!(totals(&report, LIVE), expected, "{text}");
        assert_eq!(totals(&report, ALL), [None, None], "all allocations are not known: {text}");
        assert_eq!(report["losses"]["note"], "sampled, on average once in 524288 bytes: the numbers are estimates");
    }
}

/// The live bytes and blocks of a profile of the older text format, by `go tool pprof -raw`.
fn live_by_go(file: &Path) -> [u64; 2] {
    let sums = heaptrack_tests::pprof::sums_by_go(file);
    ["space", "objects"].map(|name| sums[name] as u64)
}

/// Blocks of 64 bytes to 512 KiB, one sample in 16 KiB: small blocks are scaled up 256 times, large ones hardly.
#[test]
fn a_profile_of_tcmallocs_sampler_has_the_numbers_of_its_tools() {
    let folder = Folder::new();
    let file = profilers::tcmalloc_sampler(&folder, 16 << 10);
    let report = json(&file);
    assert_eq!(report["losses"]["note"], "sampled, on average once in 16384 bytes: the numbers are estimates");
    assert_eq!(totals(&report, ALL), [None, None], "the sampler knows only live blocks");
    // google-pprof cuts off fractions of the total, we those of each stack, and Go those of each line.
    let (lines, stacks) = (std::fs::read_to_string(&file).unwrap().matches('@').count() as u64 - 1, 3);
    assert_eq!(report["leaked"].as_array().unwrap().len() as u64, stacks);
    let options = ["--inuse_space", "--inuse_objects"];
    for ((name, option), go) in LIVE.into_iter().zip(options).zip(live_by_go(&file)) {
        let ours = report["totals"][name].as_u64().unwrap();
        let google = total_by("google-pprof", option, &target("heap_sample"), &file);
        assert!(google >= ours && google - ours < stacks, "{name}: {ours}, google-pprof has {google}");
        assert!(ours >= go && ours - go < lines, "{name}: {ours}, Go has {go}");
    }
    // The program holds 4000 * 64 + 400 * 4096 + 8 * 524288 bytes. Every large block is taken.
    let of = |function: &str| -> Value {
        let text = heaptrack_tests::view::text(&file, &["--json", "--include", &format!("function:{function}")]);
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(totals(&of("large"), LIVE), [Some(8 * 524_288), Some(8)]);
    let medium = totals(&of("medium"), ["leaked_bytes"])[0].unwrap();
    assert!((800_000..3_200_000).contains(&medium), "{medium} of 1638400 bytes");
    assert!(totals(&of("freed"), LIVE) == [Some(0), Some(0)]);
}

fn jemalloc_pprof() -> PathBuf {
    heaptrack_tests::targets::workspace().join("tests/imports/jemalloc_pprof/heap.pb.gz")
}

/// tests/imports/jemalloc_pprof made the file: 20 blocks of 1000 bytes, and 3 of 100,000, in size classes of jemalloc.
#[test]
fn a_profile_of_the_crate_jemalloc_pprof_has_the_numbers_of_go_tool_pprof() {
    let file = jemalloc_pprof();
    let report = json(&file);
    let go = heaptrack_tests::pprof::sums_by_go(&file);
    assert_eq!(go.keys().collect::<Vec<_>>(), ["inuse_space"], "the crate writes no number of blocks");
    assert_eq!(totals(&report, LIVE), [Some(go["inuse_space"] as u64), None]);
    assert_eq!((totals(&report, ALL), totals(&report, PEAK)), ([None, None], [None, None]));
    let of = |function: &str| -> Value {
        let text = heaptrack_tests::view::text(&file, &["--json", "--include", &format!("function:{function}")]);
        serde_json::from_str(&text).unwrap()
    };
    for (function, size, blocks) in
        [("jemalloc_pprof_example::keep", 1000, 20), ("jemalloc_pprof_example::hold", 100_000, 3)]
    {
        let bytes = blocks * profilers::size_class(size);
        assert_eq!(totals(&of(function), LIVE), [Some(bytes), None], "{function}");
    }
}

/// By stack: functions, files and lines, innermost first, and the costs that both sides know.
fn stacks(report: &Value, costs: &[&str]) -> BTreeMap<String, Vec<u64>> {
    let mut stacks = BTreeMap::new();
    for entry in report["allocations"].as_array().unwrap() {
        let level =
            |frame: &Value| format!("{} {}:{} {}", frame["function"], frame["file"], frame["line"], frame["inlined"]);
        let key: Vec<String> = entry["frames"].as_array().unwrap().iter().map(level).collect();
        let sum = stacks.entry(key.join("\n")).or_insert_with(|| vec![0; costs.len()]);
        sum.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += entry[*cost].as_u64().unwrap());
    }
    stacks
}

#[test]
fn what_we_export_for_others_we_read_too() {
    let outcome = Program::target("exported").recorded();
    let folder = Folder::new();
    let ours = json(&outcome.trace);
    for (format, costs) in [
        (
            "pprof",
            vec!["allocations", "allocated_bytes", "temporary", "peak_bytes", "peak_allocations", "leaked_bytes"],
        ),
        ("gperftools", vec!["allocations", "allocated_bytes", "leaked_bytes", "leaked_allocations"]),
    ] {
        let file = folder.join(format);
        let mut export = Command::new(heaptrack());
        output(export.args(["export", "--to", format]).arg(&outcome.trace).arg("-o").arg(&file));
        let read = json(&file);
        assert_eq!(stacks(&read, &costs), stacks(&ours, &costs), "{format}");
        // And a profile of a profile is the same profile.
        let again = folder.join("again");
        let mut export = Command::new(heaptrack());
        output(export.args(["export", "--to", "pprof"]).arg(&file).arg("-o").arg(&again));
        assert_eq!(stacks(&json(&again), &costs), stacks(&ours, &costs), "{format}, again");
    }
    let changes = heaptrack_tests::view::text(&outcome.trace, &["--diff", folder.join("pprof").to_str().unwrap()]);
    assert_eq!(changes.matches("nothing changed").count(), 4, "live, peak, allocated, allocations: {changes}");
}

fn refused(words: &[&str]) -> String {
    let done = Command::new(heaptrack()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!((process::code(done.status), done.stdout.len(), said.lines().count()), (2, 0, 1), "{words:?}: {said}");
    said
}

#[test]
fn what_needs_events_is_refused() {
    let folder = Folder::new();
    let file = dhat(&folder);
    let (file, new) = (file.to_str().unwrap(), folder.join("new"));
    let new = new.to_str().unwrap();
    for (words, reason) in [
        (vec!["print", "--at", "1s", file], "--at 1s needs events"),
        (vec!["print", "--size", "..10", file], "--size ..10 needs events"),
        (vec!["print", "--view", "timeline", file], "--view timeline needs events"),
        (vec!["print", "-l", file], "--print-leaks needs events"),
        (vec!["print", "-M", new, file], "--print-massif needs events"),
        (vec!["print", "--cost", "temporary", file], "does not know it"),
        (vec!["export", "--to", "firefox", file], "this format needs events"),
        (vec!["export", "--to", "csv", "--rows", "events", file], "--rows events needs events"),
        (vec!["export", "--to", "heaptrack", file], "it is a profile of DHAT, which has no events"),
        (vec!["export", "--to", "folded", "--cost", "temporary", file], "does not know it"),
        (vec!["print", "--view", "leaks", file], "--view leaks needs events"),
        (vec!["trim", file, "-o", new], "which has no events"),
    ] {
        assert!(refused(&words).contains(reason), "{words:?}: {}", refused(&words));
    }
    let flame = heaptrack_tests::view::view(Path::new(file), "flame", &["--include", "quick", "--cost", "allocations"]);
    assert_eq!(heaptrack_tests::view::rows(&flame["folded"], &["value"]), 300);
}

/// A small file of each format that is read, made by its tool, and its name. Names of modules are made wrong, because looking
/// them up would take most of the time.
fn small_files(folder: &Folder) -> Vec<(&'static str, Vec<u8>)> {
    let exported = Program::target("exported");
    let few = ["--max-snapshots=10", "--detailed-freq=5", "--threshold=10"];
    let kde = folder.join("kde.heaptrack");
    let mut convert = Command::new(heaptrack());
    output(convert.args(["export", "--to", "heaptrack"]).arg(exported.recorded().trace).arg("-o").arg(&kde));
    let made = |name, make: &dyn Fn(&Folder) -> PathBuf| {
        let own = Folder::new();
        let mut bytes = std::fs::read(make(&own)).unwrap();
        (1..bytes.len()).for_each(|at| bytes[at] = if bytes[at - 1..=at] == *b" /" { b'~' } else { bytes[at] });
        (name, bytes)
    };
    vec![
        made("dhat", &dhat),
        made("massif", &|own| profilers::massif_with(&exported, own, &few)),
        made("gperftools", &gperftools),
        made("tcmalloc", &|own| profilers::tcmalloc_sampler(own, 512 << 10)),
        made("jemalloc", &jemalloc),
        made("go", &go_heap),
        made("jemalloc_pprof", &|_| jemalloc_pprof()),
        made("kde", &|_| kde.clone()),
    ]
}

/// Every file is cut at every tenth byte, and in a soak at every one. The library that `print` uses reads the parts in this
/// process, so a panic fails the test.
#[test]
fn profiles_that_are_cut_anywhere_are_read_or_refused_with_one_sentence() {
    let folder = Folder::new();
    let (cut, everything) = (folder.join("cut"), Selection::everything());
    for (name, whole) in small_files(&folder) {
        let mut counts = (0, 0);
        for length in (0..whole.len()).step_by(if scale::soak() { 1 } else { 10 }) {
            std::fs::write(&cut, &whole[..length]).unwrap();
            match Trace::open(&cut).and_then(|trace| trace.json(&everything, Some(20))) {
                Ok(text) => {
                    serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{name} {length}: {error}"));
                    counts.0 += 1;
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(!said.is_empty() && !said.contains('\n'), "{name}, cut at {length}: {said}");
                    counts.1 += 1;
                }
            }
        }
        println!("{name}: {} bytes, {} parts are read, {} are refused", whole.len(), counts.0, counts.1);
        assert!(counts.1 > 0, "{name}: an empty file is refused");
    }
}

/// The most memory that the command may map for a file of at most some hundred kilobytes, in KiB. Before it has read a byte,
/// a debug build with its libraries has mapped 40 MiB.
const MOST_KIB: u64 = 100 << 10;

/// `heaptrack WORDS`, with a limit on its memory (RLIMIT_AS). It must end by itself, and say at most one sentence.
fn bounded(words: &[&str], what: &str) -> (i32, Vec<u8>) {
    let mut command = Command::new("sh");
    let done = command
        .args(["-c", "ulimit -v $0; exec \"$@\"", &MOST_KIB.to_string()])
        .arg(heaptrack())
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!said.contains("panicked") && said.lines().count() <= 1, "{what}: {said}");
    let code = process::code(done.status);
    assert!(code == 0 || (code == 2 && done.stdout.is_empty() && !said.is_empty()), "{what}: {code} {said}");
    (code, done.stdout)
}

/// The command, with a limit on its memory: files that are cut, and files of which one byte is another one. `report` reads
/// them for the page, and says the same about each.
#[test]
fn damaged_profiles_are_read_or_refused_in_bounded_memory() {
    let folder = Folder::new();
    let (damaged, page) = (folder.join("damaged"), folder.join("page.html"));
    let mut chance = Chance::new("damaged profiles");
    for (name, whole) in small_files(&folder) {
        let print = |bytes: &[u8], what: String| {
            std::fs::write(&damaged, bytes).unwrap();
            let (code, text) = bounded(&["print", "--json", damaged.to_str().unwrap()], &what);
            if code == 0 {
                serde_json::from_slice::<Value>(&text).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            code
        };
        let parts = scale::count(200) as usize;
        for length in (0..whole.len()).step_by(whole.len() / parts + 1) {
            let what = format!("{name}, cut at {length}");
            let code = print(&whole[..length], what.clone());
            if length % 4 == 0 {
                let words = ["report", "--summary-only", damaged.to_str().unwrap(), "-o", page.to_str().unwrap()];
                assert_eq!(bounded(&words, &what).0, code, "report, {what}");
            }
        }
        for _ in 0..scale::count(300) {
            let mut bytes = whole.clone();
            let at = chance.between(0, whole.len() as u64) as usize;
            bytes[at] = chance.between(0, 256) as u8;
            print(&bytes, format!("{name}, byte {at}"));
        }
    }
}
