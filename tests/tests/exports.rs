//! Every format of `heaptrack export`, read by a tool that is not from this project. Its numbers are those of `print --json`.
use heaptrack_tests::pprof::sums_by_go;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Chance, Folder, Outcome, Program, Report, process, scale};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Parts of the trace, as options of `print` and of `export`.
const PARTS: [&[&str]; 8] = [
    &[],
    &["--include", "hand_over"],
    &["--exclude", "quick", "--size", "40.."],
    &["--thread", "1"],
    &["--to", "peak"],
    &["--from", "peak"],
    &["--lifetime", "1ns.."],
    &["--include", "file:exported.cpp", "--size", "..64"],
];

/// The program `exported`, recorded.
fn recorded() -> Outcome {
    let outcome = Program::target("exported").same_output();
    let report = outcome.whole_report();
    for (size, allocations, leaked) in [(64, 300, 0), (1000, 3, 3), (40, 50, 0), (7, 1, 1)] {
        assert_eq!(of_size(&report, size), (allocations, leaked), "blocks of {size} bytes");
    }
    outcome
}

/// The allocations and leaks of all stacks whose blocks have this size.
fn of_size(report: &Report, size: u64) -> (u64, u64) {
    let sites = report.sites();
    let same = sites.iter().filter(|site| site.allocated_bytes == size * site.allocations);
    same.fold((0, 0), |sum, site| (sum.0 + site.allocations, sum.1 + site.leaked_allocations))
}

fn print(trace: &Path, options: &[&str]) -> Value {
    serde_json::from_str(&heaptrack_tests::view::text(trace, &[&["--json"], options].concat())).unwrap()
}

/// Exports to a file in the folder and returns its path.
fn export(folder: &Folder, trace: &Path, format: &str, options: &[&str]) -> PathBuf {
    let out = folder.join(&format!("exported.{format}"));
    let mut command = Command::new(heaptrack());
    command.args(["export", "--to", format]).args(options).arg(trace).arg("-o").arg(&out);
    let done = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{command:?}");
    assert_eq!(process::code(done.status), 0, "{command:?}");
    out
}

/// Runs a tool and returns its output.
fn output(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Runs a script of tests/exports and returns the JSON that it prints.
fn script(name: &str, words: &[&Path]) -> Value {
    let mut command = Command::new("node");
    command.arg(workspace().join("tests/exports").join(name)).args(words);
    serde_json::from_str(&output(&mut command)).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// The name of a level of `print --json`, as exports write it.
fn name(frame: &Value) -> String {
    let module = || text(&frame["module"]).rsplit('/').next().unwrap().to_owned();
    let unnamed = || format!("{}+{:#x}", module(), number(&frame["offset"]));
    frame["function"].as_str().map_or_else(unnamed, str::to_owned)
}

/// The sums of costs by stack: a list of levels, innermost first.
type Stacks = BTreeMap<Vec<String>, Vec<u64>>;

fn add(stacks: &mut Stacks, stack: Vec<String>, costs: &[u64]) {
    let sum = stacks.entry(stack).or_insert_with(|| vec![0; costs.len()]);
    sum.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
}

/// The stacks of `print --json`. `level` is the text of a level.
fn printed(report: &Value, level: impl Fn(&Value) -> String, costs: &[&str]) -> Stacks {
    let mut stacks = Stacks::new();
    for entry in list(&report["allocations"]) {
        let cost = |name: &&str| match *name {
            "live_bytes" => number(&entry["leaked_bytes"]) + number(&entry["suppressed_bytes"]),
            "live_allocations" => number(&entry["leaked_allocations"]) + number(&entry["suppressed_allocations"]),
            name => number(&entry[name]),
        };
        let costs: Vec<u64> = costs.iter().map(cost).collect();
        if costs.iter().any(|cost| *cost > 0) {
            add(&mut stacks, list(&entry["frames"]).iter().map(&level).collect(), &costs);
        }
    }
    stacks
}

fn with_line(frame: &Value) -> String {
    let (file, line) = (frame["file"].as_str().unwrap_or(""), frame["line"].as_u64().unwrap_or(0));
    format!("{} {file}:{line}", name(frame))
}

/// The values of pprof's samples, by their names, and the costs that they are.
const PPROF: [(&str, &str); 7] = [
    ("alloc_objects", "allocations"),
    ("alloc_space", "allocated_bytes"),
    ("temporary_objects", "temporary"),
    ("peak_objects", "peak_allocations"),
    ("peak_space", "peak_bytes"),
    ("inuse_objects", "live_allocations"),
    ("inuse_space", "live_bytes"),
];

/// The period of a sample is its rate, and the values are the estimates of `print --json`.
#[test]
fn pprof_has_the_rate_and_the_estimates_of_a_sample() {
    let folder = Folder::new();
    let sampled = Program::target("exported").option("--sample").option("1000").recorded();
    for (trace, period) in [(&sampled.trace, 1000), (&recorded().trace, 1)] {
        let file = export(&folder, trace, "pprof", &[]);
        let raw = output(Command::new("go").args(["tool", "pprof", "-raw"]).arg(&file));
        assert!(raw.contains("\nPeriodType: space bytes\n"), "{raw}");
        assert!(raw.contains(&format!("\nPeriod: {period}\n")), "{raw}");
        let said = raw.contains("sampled, on average once in 1000 bytes: the numbers are estimates");
        assert_eq!(said, period == 1000, "{raw}");
        let (report, sums) = (print(trace, &["--no-suppressions"]), sums_by_go(&file));
        for (value, cost) in PPROF {
            let sum: i64 = match cost {
                "live_bytes" => number(&report["totals"]["leaked_bytes"]) as i64,
                "live_allocations" => number(&report["totals"]["leaked_allocations"]) as i64,
                cost => list(&report["allocations"]).iter().map(|entry| number(&entry[cost]) as i64).sum(),
            };
            assert_eq!(sums[value], sum, "{value}, period {period}");
        }
        assert!(sums["alloc_objects"] > 0);
    }
}

#[test]
fn pprof_is_read_by_the_npm_package_pprof_format() {
    let outcome = recorded();
    let folder = Folder::new();
    for part in PARTS {
        let read = script("pprof.mjs", &[&export(&folder, &outcome.trace, "pprof", part)]);
        let mut stacks = Stacks::new();
        for sample in list(&read["samples"]) {
            let lines = list(&sample["stack"]).iter().flat_map(|location| list(&location["lines"]));
            let level =
                |line: &Value| format!("{} {}:{}", text(&line["function"]), text(&line["file"]), number(&line["line"]));
            let costs: Vec<u64> = PPROF.iter().map(|(name, _)| number(&sample["values"][name])).collect();
            add(&mut stacks, lines.map(level).collect(), &costs);
        }
        let costs = PPROF.map(|(_, cost)| cost);
        assert_eq!(stacks, printed(&print(&outcome.trace, part), with_line, &costs), "{part:?}");
    }
    let read = script("pprof.mjs", &[&export(&folder, &outcome.trace, "pprof", &[])]);
    let names: Vec<&str> = list(&read["values"]).iter().map(|value| text(&value[0])).collect();
    assert_eq!(names, PPROF.map(|(name, _)| name));
    assert_eq!((&read["period"], &read["shown"]), (&json!(["space", "bytes", 1]), &json!("inuse_space")));
    assert!(list(&read["comments"]).iter().any(|comment| text(comment).ends_with("exported")), "{}", read["comments"]);
    assert_eq!(read["duration"], print(&outcome.trace, &[])["range"]["to_ns"]);
}

#[test]
fn pprof_has_threads_modules_and_inlined_functions() {
    let outcome = recorded();
    let folder = Folder::new();
    let read = script("pprof.mjs", &[&export(&folder, &outcome.trace, "pprof", &["--cost", "peak"])]);
    assert_eq!(read["shown"], "peak_space");
    let samples = list(&read["samples"]);
    let calls = |location: &Value| -> Vec<String> {
        list(&location["lines"]).iter().map(|line| text(&line["function"]).to_owned()).collect()
    };
    let with = |function: &str| -> Vec<&Value> {
        let is_leaf = |sample: &&Value| calls(&sample["stack"][0])[0].starts_with(function);
        samples.iter().filter(is_leaf).collect()
    };
    // One location, innermost function first.
    assert!(with("keep").iter().all(|sample| calls(&sample["stack"][0]) == ["keep", "fill()"]), "{samples:?}");
    assert_eq!(with("keep").len(), list(&print(&outcome.trace, &["--include", "keep"])["peak"]).len());
    let tid = |function: &str| number(&with(function)[0]["labels"]["tid"]);
    assert_eq!((tid("lose"), tid("hand_over")), (tid("hand_over"), tid("lose")));
    assert_ne!(tid("lose"), tid("quick"));
    // The first mapping is the program, and every mapping has the build-id that readelf finds.
    let program = target("exported");
    assert_eq!(text(&read["mappings"][0]["path"]), program.to_str().unwrap());
    for mapping in list(&read["mappings"]) {
        let notes = output(Command::new("readelf").args(["-n", text(&mapping["path"])]));
        assert!(notes.contains(&format!("Build ID: {}", text(&mapping["build_id"]))), "{mapping}: {notes}");
    }
    // Each address lies within its mapping, and addr2line finds there the line of the outermost function.
    let leaf = &with("quick")[0]["stack"][0];
    let mapping = &read["mappings"][0];
    let offset = number(&leaf["address"]) - number(&mapping["start"]);
    assert!(number(&leaf["address"]) < number(&mapping["limit"]));
    let found = output(Command::new("addr2line").arg("-e").arg(&program).arg(format!("{offset:#x}")));
    let line = &leaf["lines"][0];
    assert!(found.starts_with(&format!("{}:{}", text(&line["file"]), number(&line["line"]))), "{found}: {leaf}");
}

/// The columns of a profile, added up by Go.
fn go_raw(file: &Path) -> BTreeMap<String, u64> {
    sums_by_go(file).into_iter().map(|(name, sum)| (name, u64::try_from(sum).unwrap())).collect()
}

#[test]
fn pprof_and_gperftools_are_read_by_go() {
    let outcome = recorded();
    let folder = Folder::new();
    for part in PARTS {
        let report = print(&outcome.trace, part);
        let totals = |name: &str| match name {
            "live_bytes" => number(&report["totals"]["leaked_bytes"]) + number(&report["totals"]["suppressed_bytes"]),
            "live_allocations" => {
                number(&report["totals"]["leaked_allocations"]) + number(&report["totals"]["suppressed_allocations"])
            }
            name => number(&report["totals"][name]),
        };
        let all: BTreeMap<String, u64> = PPROF.iter().map(|(name, cost)| ((*name).to_owned(), totals(cost))).collect();
        assert_eq!(go_raw(&export(&folder, &outcome.trace, "pprof", part)), all, "{part:?}");
        let four = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
        let of_gperftools = go_raw(&export(&folder, &outcome.trace, "gperftools", part));
        // If every block is live, or none was allocated in the range, Go has only two columns.
        let expected = four.iter().map(|name| ((*name).to_owned(), all[*name]));
        let is_same = all["alloc_objects"] == 0 || all["alloc_objects"] == all["inuse_objects"];
        let short = |name: &str| name.trim_start_matches("inuse_").to_owned();
        let expected: BTreeMap<String, u64> = match is_same {
            false => expected.collect(),
            true => {
                expected.filter(|(name, _)| name.starts_with("inuse")).map(|(name, sum)| (short(&name), sum)).collect()
            }
        };
        assert_eq!(of_gperftools, expected, "{part:?}");
    }
    let at_peak = go_raw(&export(&folder, &outcome.trace, "pprof", &["--at", "peak"]));
    let peak = number(&print(&outcome.trace, &[])["totals"]["peak_bytes"]);
    assert_eq!((at_peak.len(), at_peak["inuse_space"]), (2, peak), "of an instant nothing else is known");
    let top = Command::new("go")
        .args(["tool", "pprof", "-top", "-unit=B", "-sample_index=alloc_space", "-nodecount=1"])
        .arg(export(&folder, &outcome.trace, "pprof", &[]))
        .output()
        .unwrap();
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(
        top.lines().last().unwrap().trim_start().starts_with("19200B") && top.trim_end().ends_with("quick()"),
        "{top}"
    );
}

#[test]
fn gperftools_is_read_by_the_pprof_of_gperftools() {
    let outcome = recorded();
    let folder = Folder::new();
    let file = export(&folder, &outcome.trace, "gperftools", &[]);
    let report = outcome.report();
    for (option, total) in
        [("--alloc_space", report.total("allocated_bytes")), ("--inuse_space", report.total("leaked_bytes"))]
    {
        let mut command = Command::new("google-pprof");
        let said = output(command.args(["--text", "--show_bytes", option]).arg(target("exported")).arg(&file));
        assert!(said.starts_with(&format!("Total: {total} B\n")), "{option}: {said}");
        let flat = |function: &str| -> u64 {
            let line = said.lines().find(|line| line.ends_with(&format!("% {function}")));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        // The names come from the program's file, by the addresses and the map of the heap profile.
        let expected = if option == "--alloc_space" { (19200, 2000, 7) } else { (0, 0, 7) };
        assert_eq!((flat("quick"), flat("hand_over"), flat("lose")), expected, "{option}: {said}");
    }
}

#[test]
fn speedscope_is_read_by_its_own_importer() {
    let outcome = recorded();
    let folder = Folder::new();
    let profiles = [
        ("Bytes at the peak", "bytes", "peak_bytes"),
        ("Bytes not freed", "bytes", "leaked_bytes"),
        ("Allocations", "none", "allocations"),
        ("Temporary allocations", "none", "temporary"),
        ("Bytes allocated", "bytes", "allocated_bytes"),
    ];
    for part in PARTS {
        let options = [part, &["--cost", "allocated"]].concat();
        let read = script("speedscope.mjs", &[&export(&folder, &outcome.trace, "speedscope", &options)]);
        let report = print(&outcome.trace, part);
        assert_eq!(read["shown"], 4, "--cost allocated is the last one");
        assert_eq!(list(&read["profiles"]).len(), profiles.len());
        for (profile, (title, unit, cost)) in list(&read["profiles"]).iter().zip(profiles) {
            assert_eq!((&profile["name"], &profile["unit"]), (&json!(title), &json!(unit)));
            let mut stacks = Stacks::new();
            for (stack, weight) in profile["stacks"].as_object().unwrap() {
                add(&mut stacks, stack.rsplit(';').map(str::to_owned).collect(), &[number(weight)]);
            }
            assert_eq!(stacks, printed(&report, name, &[cost]), "{title} {part:?}");
            assert_eq!(profile["total"], report["totals"][cost], "{title} {part:?}");
        }
    }
    let read = script("speedscope.mjs", &[&export(&folder, &outcome.trace, "speedscope", &["--include", "keep"])]);
    let frames = list(&read["profiles"][0]["frames"]);
    let is_there = |name: &str, line: u64| {
        frames.iter().any(|frame| frame[0] == name && frame[2] == line && text(&frame[1]).ends_with("exported.cpp"))
    };
    let lines: Vec<u64> = list(&print(&outcome.trace, &["--include", "keep"])["peak"][0]["frames"])
        .iter()
        .take(2)
        .map(|frame| number(&frame["line"]))
        .collect();
    assert!(is_there("keep", lines[0]) && is_there("fill()", lines[1]), "{frames:?}");
}

/// The leaves of the tree that DHAT's viewer makes: functions, innermost first, and the numbers.
fn dhat_leaves(node: &Value, outer: &[String], leaves: &mut Vec<(Vec<String>, Value)>) {
    let function = |frame: &Value| {
        let text = text(frame);
        let called = text.split_once(": ").map_or(text, |(_, called)| called);
        called.rsplit_once(" (").map_or(called, |(called, _)| called).to_owned()
    };
    let frames: Vec<String> = list(&node["frames"]).iter().map(function).filter(|name| name != "[root]").collect();
    let whole = [outer, &frames].concat();
    if list(&node["kids"]).is_empty() {
        leaves.push((whole, node.clone()));
    } else {
        list(&node["kids"]).iter().for_each(|kid| dhat_leaves(kid, &whole, leaves));
    }
}

fn dh_view(file: &Path) -> Value {
    script("dhat.mjs", &[Path::new("/usr/libexec/valgrind/dh_view.js"), file])
}

#[test]
fn dhat_is_read_by_the_viewer_of_valgrind() {
    let outcome = recorded();
    let folder = Folder::new();
    for part in PARTS {
        let read = dh_view(&export(&folder, &outcome.trace, "dhat", part));
        let report = print(&outcome.trace, part);
        let total = |names: [&str; 2]| names.map(|name| number(&report["totals"][name]));
        let root = &read["root"];
        assert_eq!(root["total"], json!(total(["allocated_bytes", "allocations"])), "{part:?}");
        assert_eq!(root["peak"], json!(total(["peak_bytes", "peak_allocations"])), "{part:?}");
        assert_eq!(root["end"], json!(total(["leaked_bytes", "leaked_allocations"])), "{part:?}");
        let mut leaves = Vec::new();
        dhat_leaves(root, &[], &mut leaves);
        let mut stacks = Stacks::new();
        for (stack, node) in leaves {
            let costs = [&node["total"], &node["peak"], &node["end"]].map(|pair| [number(&pair[0]), number(&pair[1])]);
            add(&mut stacks, stack, costs.as_flattened());
        }
        let costs =
            ["allocated_bytes", "allocations", "peak_bytes", "peak_allocations", "live_bytes", "live_allocations"];
        let function = |frame: &Value| frame["function"].as_str().unwrap_or("???").to_owned();
        assert_eq!(stacks, printed(&report, function, &costs), "{part:?}");
    }
}

/// A stack's own peak, and its lifetimes, are not in `print --json`. DHAT itself says what they are.
#[test]
fn dhat_says_the_same_of_its_own_recording() {
    let outcome = recorded();
    let folder = Folder::new();
    let own = folder.join("dhat.out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--tool=dhat", "--run-libc-freeres=no", "--run-cxx-freeres=no", "--num-callers=200"]);
    output(valgrind.arg(format!("--dhat-out-file={}", own.display())).arg(target("exported")));
    let of = |file: &Path, function: &str| -> Vec<Value> {
        let mut leaves = Vec::new();
        dhat_leaves(&dh_view(file)["root"], &[], &mut leaves);
        let is_called = |stack: &[String]| stack.iter().any(|name| name.split('(').next() == Some(function));
        let nodes = leaves.into_iter().filter(|(stack, _)| is_called(stack)).map(|(_, node)| node);
        let mut found: Vec<Value> = nodes.map(|node| json!([node["total"], node["max"], node["end"]])).collect();
        found.sort_by_key(Value::to_string);
        found
    };
    let exported = export(&folder, &outcome.trace, "dhat", &[]);
    for function in ["quick", "hand_over", "lose", "fill"] {
        assert_eq!(of(&exported, function), of(&own, function), "{function}");
        assert!(!of(&own, function).is_empty(), "{function}");
    }
    // 50 blocks of 40 bytes, all of them live at once.
    assert_eq!(of(&exported, "hand_over"), [json!([[2000, 50], [2000, 50], [0, 0]])]);
    // Blocks that stay live until the end: their lifetimes are nearly those of the thread.
    let mut leaves = Vec::new();
    dhat_leaves(&dh_view(&exported)["root"], &[], &mut leaves);
    let lost = leaves.iter().find(|(stack, _)| stack[0].starts_with("lose")).unwrap();
    let entry = &print(&outcome.trace, &[])["range"]["to_ns"];
    assert!(number(&lost.1["lifetimes"]) > 0 && number(&lost.1["lifetimes"]) <= number(entry) / 1000, "{lost:?}");
}

#[test]
fn firefox_is_read_by_the_profiler_of_firefox() {
    let outcome = recorded();
    let folder = Folder::new();
    let file = export(&folder, &outcome.trace, "firefox", &[]);
    let read = script("firefox.mjs", &[&file, Path::new("exported")]);
    let report = print(&outcome.trace, &[]);
    let total = |name: &str| number(&report["totals"][name]);
    let live = total("leaked_bytes") + total("suppressed_bytes");
    let freed = total("allocated_bytes") - live;
    for (kind, bytes) in [
        ("timing", total("allocated_bytes")),
        ("native-allocations", total("allocated_bytes")),
        ("native-retained-allocations", live),
        ("native-deallocations-memory", freed),
    ] {
        assert_eq!(
            number(&read["of"][kind]["samples"]["categoryBreakdown"]["totalSamples"]).abs_diff(bytes),
            0,
            "{kind}"
        );
    }
    // By function, without callees. The innermost levels of `print --json` are the same functions.
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for entry in list(&report["allocations"]) {
        *expected.entry(name(&entry["frames"][0])).or_default() += number(&entry["allocated_bytes"]);
    }
    let functions = list(&read["of"]["native-allocations"]["functions"]["functions"]);
    let own = functions.iter().map(|function| {
        let name = text(&function["nameWithLibrary"]);
        (name.split_once('!').map_or(name, |(_, name)| name).to_owned(), number(&function["selfSamples"]))
    });
    let own: BTreeMap<String, u64> = own.filter(|(_, bytes)| *bytes > 0).collect();
    assert_eq!(own, expected);
    // The memory track has the peak, and a marker for each place that was not freed.
    let counter = &read["info"]["processes"][0]["counters"][0];
    assert_eq!(counter["stats"][0]["value"], json!(total("peak_bytes")), "{counter}");
    let markers = markers(&read["markers"]["flatMarkers"]);
    assert_eq!(markers, not_freed(&outcome.trace));
    let has = |place: &str, bytes: u64| markers.iter().any(|marker| (marker.0.as_str(), marker.1) == (place, bytes));
    assert!(has("keep", 3000) && has("lose()", 7), "{markers:?}");
}

/// The highest moment of what is selected, not what that held at the program's peak. A table of events has the same blocks.
#[test]
fn the_peak_of_massif_is_that_of_the_selected_blocks() {
    let outcome = recorded();
    let folder = Folder::new();
    let mut is_higher = false;
    for part in [&[] as &[&str], &["--size", "..64"], &["--include", "quick"], &["--thread", "1", "--lifetime", "..1s"]]
    {
        let events =
            std::fs::read_to_string(export(&folder, &outcome.trace, "jsonl", &[part, &["--rows", "events"]].concat()));
        let (mut live, mut highest) = (0, 0);
        for row in events.unwrap().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let size = number(&row["size"]);
            live = if row["event"] == "alloc" { live + size } else { live - size };
            highest = live.max(highest);
        }
        let file = export(&folder, &outcome.trace, "massif", part);
        let printed = output(Command::new("ms_print").arg(file));
        // Rows have a number, a time, and the bytes in total, of the heap, beside it, and of the stacks.
        let rows = printed.lines().map(|line| line.split_whitespace().map(|word| word.replace(',', "").parse::<u64>()));
        let rows = rows.map(|words| words.collect::<Result<Vec<_>, _>>()).filter_map(Result::ok);
        let found = rows.filter(|row| row.len() == 6).map(|row| row[2]).max().unwrap();
        assert_eq!(found, highest, "{part:?}");
        is_higher |= found > number(&print(&outcome.trace, part)["totals"]["peak_bytes"]);
    }
    assert!(is_higher, "no part has a higher moment than at the program's peak");
}

/// A place that was not freed: its name, bytes, blocks and verdict.
type NotFreed = (String, u64, u64, String);

/// The markers that the profiler of Firefox lists.
fn markers(found: &Value) -> Vec<NotFreed> {
    let of = |marker: &Value| {
        let fields = list(&marker["fields"]);
        let value = |key: &str| fields.iter().find(|field| field["key"] == key).unwrap()["value"].clone();
        let words = |key: &str| text(&value(key)).to_owned();
        (words("place"), number(&value("bytes")), number(&value("blocks")), words("verdict"))
    };
    sorted(list(found).iter().map(of))
}

/// What `print --view leaks` says of the same trace. A verdict about a run of milliseconds depends on how long they take, so
/// no verdict is expected in advance.
fn not_freed(trace: &Path) -> Vec<NotFreed> {
    let view = heaptrack_tests::view::view(trace, "leaks", &["--limit", "100000"]);
    let sites = list(&view["sites"]).iter().filter(|site| site["suppressed"].is_null());
    let of = |site: &Value| {
        (name(site), number(&site["live_bytes"]), number(&site["live_allocations"]), text(&site["verdict"]).to_owned())
    };
    sorted(sites.map(of).filter(|site| site.2 > 0))
}

fn sorted(found: impl Iterator<Item = NotFreed>) -> Vec<NotFreed> {
    let mut found: Vec<NotFreed> = found.collect();
    found.sort();
    found
}

/// A tree of three processes with allocations. One of them is replaced by another program, which keeps its number.
#[test]
fn firefox_has_a_track_for_each_process() {
    let folder = Folder::new();
    let trace = folder.join("tree.htz");
    let line = format!("{0}; exec {0}", target("exported").display());
    output(Command::new(heaptrack()).args(["-q", "--follow", "-o"]).arg(&trace).args(["--", "sh", "-c", &line]));
    let view = heaptrack_tests::view::view(&trace, "processes", &[]);
    let mut wanted: Vec<(String, String, u64, u64)> = Vec::new();
    for process in list(&view["processes"]).iter().filter(|process| number(&process["costs"]["allocations"]) > 0) {
        let (pid, costs) = (process["pid"].to_string(), &process["costs"]);
        let is_used = wanted.iter().any(|(other, ..)| *other == pid);
        let pid = if is_used { format!("{pid}.2") } else { pid };
        let bytes = |name: &str| number(&costs[name]);
        wanted.push((pid, text(&process["name"]).to_owned(), bytes("allocated_bytes"), bytes("live_bytes")));
    }
    let names: Vec<&str> = wanted.iter().map(|(_, name, ..)| name.as_str()).collect();
    assert_eq!(names, ["sh", "exported", "exported"]);
    assert_eq!(wanted.iter().filter(|(pid, ..)| pid.ends_with(".2")).count(), 1, "{wanted:?}");
    let read = script("firefox.mjs", &[&export(&folder, &trace, "firefox", &[]), Path::new("tree")]);
    let mut tracks = list(&read["tracks"]).clone();
    tracks.sort_by_key(|track| number(&track["threadIndex"]));
    let found: Vec<(String, String, u64, u64)> = tracks
        .iter()
        .map(|track| {
            let (pid, name) = (text(&track["pid"]).to_owned(), text(&track["processName"]).to_owned());
            (pid, name, number(&track["allocated"]), number(&track["retained"]))
        })
        .collect();
    assert_eq!(found, wanted);
    // Every place has one marker.
    let holds = |track: &Value, place: &str| markers(&track["markers"]).iter().any(|marker| marker.0 == place);
    assert_eq!(tracks.iter().map(|track| holds(track, "keep")).collect::<Vec<_>>(), [false, true, false]);
    let all = tracks.iter().flat_map(|track| markers(&track["markers"]));
    assert_eq!(sorted(all), not_freed(&trace));
    // The highest point of all processes together, and of each.
    let counters = list(&read["info"]["processes"]).iter().flat_map(|process| list(&process["counters"]));
    let mut counters: Vec<(u64, &str, u64)> = counters
        .map(|counter| {
            let track = number(&counter["mainThreadIndex"]);
            (track, text(&counter["label"]), number(&counter["stats"][0]["value"]))
        })
        .collect();
    counters.sort();
    let processes = list(&view["processes"]).iter().filter(|process| number(&process["costs"]["allocations"]) > 0);
    let peaks = processes.map(|process| number(&process["totals"]["peak_bytes"]));
    let mut peaks: Vec<(u64, &str, u64)> = peaks.enumerate().map(|(at, peak)| (at as u64, "Memory", peak)).collect();
    peaks.insert(1, (0, "Memory of all processes", number(&view["totals"]["peak_bytes"])));
    assert_eq!(counters, peaks);
    // A range in which blocks of all processes are live when it begins: what each allocates and holds adds up, too.
    let part: &[&str] = &["--from", "peak"];
    let view = heaptrack_tests::view::view(&trace, "processes", part);
    let own = Folder::new();
    let read = script("firefox.mjs", &[&export(&own, &trace, "firefox", part), Path::new("part")]);
    let sum = |column: &str| list(&read["tracks"]).iter().map(|track| number(&track[column])).sum::<u64>();
    assert_eq!(sum("allocated"), number(&view["totals"]["allocated_bytes"]));
}

/// The sums of a table's columns, by name, and the number of rows, by Python's own readers.
const PYTHON: &str = "
import csv, json, sys
path, format = sys.argv[1:]
with open(path, newline='') as file:
    rows = list(csv.DictReader(file)) if format == 'csv' else [json.loads(line) for line in file]
sums = {}
for row in rows:
    for name, value in row.items():
        if value not in ('', None) and (isinstance(value, int) or str(value).isdigit()):
            sums[name] = sums.get(name, 0) + int(value)
    if 'event' in row:
        key = row['event'] + ' ' + str(row['site'])
        sums[key] = sums.get(key, 0) + int(row['size'])
print(json.dumps({'rows': len(rows), 'sums': sums}))
";

fn table(file: &Path, format: &str) -> Value {
    let mut command = Command::new("/usr/bin/python3");
    serde_json::from_str(&output(command.args(["-c", PYTHON]).arg(file).arg(format))).unwrap()
}

#[test]
fn tables_are_read_by_python() {
    let outcome = recorded();
    let folder = Folder::new();
    for part in PARTS {
        let profile = heaptrack_tests::view::view(&outcome.trace, "profile", part);
        let report = print(&outcome.trace, part);
        for format in ["csv", "jsonl"] {
            let sites = table(&export(&folder, &outcome.trace, format, part), format);
            assert_eq!(number(&sites["rows"]), list(&profile["stack"]).len() as u64, "{format} {part:?}");
            for cost in profile.as_object().unwrap().keys().filter(|name| profile[*name].is_array() && *name != "stack")
            {
                let column = heaptrack_tests::view::column(&profile, cost);
                assert_eq!(number(&sites["sums"][cost]), column, "{format} {cost} {part:?}");
            }
            for name in ["leaked_bytes", "leaked_allocations", "suppressed_bytes", "suppressed_allocations"] {
                assert_eq!(sites["sums"][name], report["totals"][name], "{format} {name} {part:?}");
            }
            let options = [part, &["--rows", "events"]].concat();
            let events = table(&export(&folder, &outcome.trace, format, &options), format);
            let columns = ["allocations", "deallocations"].map(|cost| heaptrack_tests::view::column(&profile, cost));
            assert_eq!(number(&events["rows"]), columns.iter().sum::<u64>(), "{format} {part:?}");
            for (at, site) in list(&profile["stack"]).iter().enumerate() {
                let size = |event: &str| events["sums"][format!("{event} {site}")].as_u64().unwrap_or(0);
                let cost = |name: &str| number(&profile[name][at]);
                assert_eq!((size("alloc"), size("free")), (cost("allocated_bytes"), cost("freed_bytes")), "{part:?}");
            }
        }
    }
}

#[test]
fn tables_are_read_by_duckdb() {
    let outcome = recorded();
    let folder = Folder::new();
    let report = print(&outcome.trace, &[]);
    for (format, reader) in [("csv", "read_csv"), ("jsonl", "read_json")] {
        let events = folder.join(&format!("events.{format}"));
        std::fs::rename(export(&folder, &outcome.trace, format, &["--rows", "events"]), &events).unwrap();
        let sites = export(&folder, &outcome.trace, format, &[]);
        let query = format!(
            "select sum(e.size) filter (e.event = 'alloc'), count(*) filter (e.event = 'free'), \
             (select sum(peak_bytes) from {reader}('{0}')) from {reader}('{1}') e join {reader}('{0}') s on e.site = s.site",
            sites.display(),
            events.display()
        );
        let code = "import duckdb, sys; print([int(value) for value in duckdb.sql(sys.argv[1]).fetchall()[0]])";
        let mut command = Command::new("/usr/bin/python3");
        command.env("PYTHONPATH", workspace().join("target/duckdb")).args(["-c", code]).arg(query);
        let found: Value = serde_json::from_str(&output(&mut command)).unwrap();
        let totals = &report["totals"];
        assert_eq!(
            found,
            json!([totals["allocated_bytes"], totals["deallocations"], totals["peak_bytes"]]),
            "{format}"
        );
    }
}

/// A trace that was cut, or in which bits are flipped, is exported as far as it can be read, or refused with one sentence.
#[test]
fn damaged_traces_are_exported_as_far_as_they_go() {
    let outcome = recorded();
    let folder = Folder::new();
    let whole = std::fs::read(&outcome.trace).unwrap();
    let mut chance = Chance::new("damaged exports");
    let file = folder.join("damaged.htz");
    for round in 0..scale::count(100) {
        let mut bytes = whole.clone();
        let at = chance.between(0, whole.len() as u64) as usize;
        if round % 2 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << chance.between(0, 8);
        }
        std::fs::write(&file, &bytes).unwrap();
        for format in ["pprof", "speedscope", "firefox", "dhat", "gperftools", "csv", "jsonl", "massif"] {
            let mut command = Command::new(heaptrack());
            let done = command.args(["export", "--to", format]).arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.lines().count() <= 1 && !said.contains("panicked"), "byte {at}, {format}: {said}");
            match done.status.code() {
                Some(0) if matches!(format, "speedscope" | "firefox" | "dhat") => {
                    serde_json::from_slice::<Value>(&done.stdout)
                        .unwrap_or_else(|error| panic!("{at} {format}: {error}"));
                }
                Some(0) => assert!(!done.stdout.is_empty() || format == "jsonl", "byte {at}, {format}"),
                code => assert_eq!((code, done.stdout.len()), (Some(2), 0), "byte {at}, {format}: {said}"),
            }
        }
    }
}

/// By the value of a label: the sum of `alloc_objects`.
fn allocations_by(read: &Value, label: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for sample in list(&read["samples"]) {
        let value = &sample["labels"][label];
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        *sums.entry(value).or_default() += number(&sample["values"]["alloc_objects"]);
    }
    sums
}

/// The sums by tag that `go tool pprof -tags` prints: lines of `510 (20.00%): jemalloc` below `allocator: Total 2550`.
fn tags(file: &Path, tag: &str) -> BTreeMap<String, u64> {
    let printed = output(Command::new("go").args(["tool", "pprof", "-tags", "-sample_index=alloc_objects"]).arg(file));
    let part = printed.split("\n\n").find(|part| part.trim_start().starts_with(&format!("{tag}: Total")));
    let part = part.unwrap_or_else(|| panic!("no tag {tag}: {printed}"));
    let row = |line: &str| {
        let (value, name) = line.split_once("): ")?;
        Some((name.trim().to_owned(), value.trim().split(['(', ' ']).next()?.parse::<f64>().ok()? as u64))
    };
    part.lines().filter_map(row).collect()
}

#[test]
fn pprof_and_tables_have_the_allocator_of_each_block() {
    let outcome = Program::target("own_names").recorded();
    let folder = Folder::new();
    let file = export(&folder, &outcome.trace, "pprof", &[]);
    let found = allocations_by(&script("pprof.mjs", &[&file]), "allocator");
    assert_eq!((found["jemalloc"], found["mimalloc"], found["snmalloc"], found["rpmalloc"]), (510, 700, 200, 200));
    assert_eq!(found.values().sum::<u64>(), number(&print(&outcome.trace, &[])["totals"]["allocations"]));
    assert_eq!(tags(&file, "allocator"), found);
    // A filter keeps the other allocators out, and so does a range of time that adds up with the rest.
    let only = allocations_by(
        &script("pprof.mjs", &[&export(&folder, &outcome.trace, "pprof", &["--allocator", "mimalloc"])]),
        "allocator",
    );
    assert_eq!(only, BTreeMap::from([("mimalloc".to_owned(), 700)]));
    for (rows, is_wanted) in [("sites", "allocations"), ("events", "alloc")] {
        let table = export(&folder, &outcome.trace, "jsonl", &["--rows", rows]);
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for line in std::fs::read_to_string(table).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let count = if rows == "sites" { number(&row[is_wanted]) } else { (row["event"] == is_wanted) as u64 };
            *sums.entry(text(&row["allocator"]).to_owned()).or_default() += count;
        }
        assert_eq!(sums, found, "{rows}");
    }
}

#[test]
fn pprof_and_tables_have_the_process_of_each_block() {
    let folder = Folder::new();
    let program = target("exported");
    let trace = folder.join("tree.htz");
    let line = format!("{0}; {0}", program.display());
    output(Command::new(heaptrack()).args(["-q", "--follow", "-o"]).arg(&trace).args(["--", "sh", "-c", &line]));
    let view = heaptrack_tests::view::view(&trace, "processes", &[]);
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for process in list(&view["processes"]) {
        *wanted.entry(process["pid"].to_string()).or_default() += number(&process["costs"]["allocations"]);
    }
    wanted.retain(|_, allocations| *allocations > 0);
    assert!(wanted.len() >= 2, "{wanted:?}");
    let file = export(&folder, &trace, "pprof", &[]);
    let read = script("pprof.mjs", &[&file]);
    assert_eq!(allocations_by(&read, "pid"), wanted);
    let names = allocations_by(&read, "process");
    assert_eq!(
        names["exported"],
        2 * number(&print(&Program::target("exported").recorded().trace, &[])["totals"]["allocations"])
    );
    assert_eq!(tags(&file, "process"), names);
    let events = export(&folder, &trace, "csv", &["--rows", "events"]);
    let events = std::fs::read_to_string(events).unwrap();
    let at = |column: &str| events.lines().next().unwrap().split(',').position(|name| name == column).unwrap();
    let (event, process) = (at("event"), at("process"));
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for cells in events.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()) {
        *sums.entry(cells[process].to_owned()).or_default() += (cells[event] == "alloc") as u64;
    }
    sums.retain(|_, allocations| *allocations > 0);
    assert_eq!(sums, wanted);
}
