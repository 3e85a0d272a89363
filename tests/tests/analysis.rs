//! Checks what the numbers mean. Views agree with each other and with DHAT, ranges tile the session, filters partition
//! it, leaks get a verdict, and known leaks are left out.
use heaptrack_tests::dhat;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::view::{column, print, rows, text, total, view};
use heaptrack_tests::{Folder, Outcome, Program};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const SUMS: [&str; 8] = [
    "allocations",
    "allocated_bytes",
    "deallocations",
    "freed_bytes",
    "temporary",
    "live_bytes",
    "peak_bytes",
    "leaked_allocations",
];

/// The bundled program with its four problems.
fn shop() -> Outcome {
    let folder = Folder::new();
    let path = folder.join("shop");
    let mut build = Command::new("g++");
    build.args(["-g", "-O1"]).arg(workspace().join("demo/shop.cpp")).arg("-o").arg(&path);
    assert!(build.status().unwrap().success());
    Program::new(&path).recorded()
}

/// All views of a trace must add up to the same totals.
fn agree(trace: &Path) {
    let profile = view(trace, "profile", &[]);
    let whole: Value = serde_json::from_str(&text(trace, &["--json"])).unwrap();
    for (cost, ours) in [("allocations", "allocations"), ("leaked_bytes", "leaked_bytes"), ("peak_bytes", "peak_bytes")]
    {
        assert_eq!(whole["totals"][cost].as_u64(), Some(total(&profile, ours)), "{cost}");
    }
    for cost in ["allocations", "freed_bytes", "peak_allocations", "live_bytes", "kept_bytes", "lifetime_ns"] {
        assert_eq!(column(&profile, cost), total(&profile, cost), "{cost}");
    }
    for options in
        [&[][..], &["--hide", "all-but-mine", "--merge", "line"], &["--merge", "module", "--collapse", "recursion"]]
    {
        for name in ["bottom-up", "top-down"] {
            let tree = view(trace, name, options);
            for cost in SUMS {
                assert_eq!(rows(&tree["roots"], &["total", cost]), total(&tree, cost), "{name} {options:?} {cost}");
            }
            check_tree(&tree["roots"]);
        }
        let callers = view(trace, "callers", options);
        for cost in SUMS {
            assert_eq!(
                rows(&callers["functions"], &["self", cost]),
                total(&callers, cost),
                "callers {options:?} {cost}"
            );
        }
    }
    for (cost, name) in
        [("peak", "peak_bytes"), ("leaked", "leaked_bytes"), ("allocations", "allocations"), ("temporary", "temporary")]
    {
        let flame = view(trace, "flame", &["--cost", cost]);
        assert_eq!(rows(&flame["folded"], &["value"]), total(&flame, name), "flame {cost}");
    }
    let sizes = view(trace, "sizes", &[]);
    for (name, cost) in
        [("allocations", "allocations"), ("allocated_bytes", "allocated_bytes"), ("peak_bytes", "peak_bytes")]
    {
        assert_eq!(column(&sizes, name), total(&sizes, cost), "sizes {name}");
    }
    let lifetimes = view(trace, "lifetimes", &[]);
    assert_eq!(column(&lifetimes, "freed_bytes"), total(&lifetimes, "freed_bytes"));
    assert_eq!(column(&lifetimes, "live_allocations"), total(&lifetimes, "live_allocations"));
    let threads = view(trace, "threads", &[]);
    for cost in SUMS {
        assert_eq!(rows(&threads["threads"], &["costs", cost]), total(&threads, cost), "threads {cost}");
    }
    check_timeline(&view(trace, "timeline", &["--points", "50", "--top", "3"]), &profile);
}

/// The cost of a row is its own cost plus the costs of its children.
fn check_tree(rows_of: &Value) {
    for row in rows_of.as_array().unwrap() {
        for cost in ["allocations", "peak_bytes", "live_bytes"] {
            let own = row["self"][cost].as_u64().unwrap();
            assert_eq!(row["total"][cost].as_u64().unwrap(), own + rows(&row["children"], &["total", cost]));
        }
        check_tree(&row["children"]);
    }
}

fn check_timeline(timeline: &Value, profile: &Value) {
    assert_eq!(timeline["time_ns"].as_array().unwrap().len(), 50);
    assert_eq!(column(timeline, "allocations"), total(profile, "allocations"));
    assert_eq!(column(timeline, "deallocations"), total(profile, "deallocations"));
    let numbers = |list: &Value| list.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers(&timeline["live_bytes"]).into_iter().max(), Some(total(profile, "peak_bytes")));
    assert_eq!(numbers(&timeline["live_bytes_end"]).last(), Some(&total(profile, "live_bytes")));
    for (column, values) in [("live_bytes", "live_bytes"), ("allocations", "allocations"), ("temporary", "temporary")] {
        let mut sums = numbers(&timeline["other"][values]);
        for band in timeline["bands"].as_array().unwrap() {
            sums.iter_mut().zip(numbers(&band[values])).for_each(|(sum, value)| *sum += value);
        }
        assert_eq!(sums, numbers(&timeline[column]), "bands and other add up: {column}");
    }
}

#[test]
fn views_of_the_demo_agree() {
    let outcome = shop();
    agree(&outcome.trace);
    let summary = view(&outcome.trace, "summary", &[]);
    let blamed = |list: &str| summary["lists"][list][0]["function"].as_str().unwrap().to_owned();
    assert!(blamed("peak").starts_with("import_catalogue"), "{}", summary["lists"]["peak"][0]);
    assert!(blamed("temporary").starts_with("label"), "{}", summary["lists"]["temporary"][0]);
    assert!(blamed("allocations").starts_with("label") || blamed("allocations").starts_with("answer"));
}

#[test]
fn views_of_python_sqlite_and_jq_agree() {
    let code = "import json; x = [json.loads('{\"a\": [1, 2, {\"b\": null}]}') for _ in range(200)]";
    // Python keeps its own allocator on top of malloc. If every object were a malloc block, the trees would be
    // gigabytes of text.
    agree(&Program::new("/usr/bin/python3").args(["-I", "-S", "-c", code]).recorded().trace);
    let sql = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 500) \
               insert into t select i, 'number ' || i from n; select count(*), max(b) from t;";
    agree(&Program::new("/usr/bin/sqlite3").args([":memory:", sql]).recorded().trace);
    agree(
        &Program::new("/usr/bin/jq").args(["-n", "[range(300)] | map({n: ., s: tostring}) | length"]).recorded().trace,
    );
}

#[test]
fn views_of_node_and_of_threads_agree() {
    agree(&Program::new("node").args(["-e", "for (let i = 0; i < 100; i++) Buffer.alloc(i)"]).recorded().trace);
    agree(&Program::target("threads").args(["4", "20000"]).recorded().trace);
}

/// Folded stacks, massif's file, the histogram and the view `profile` have the same numbers as DHAT.
#[test]
fn exports_have_the_numbers_of_dhat() {
    for name in ["plain", "kinds", "peak", "containers", "throwing", "boxes"] {
        let program = Program::target(name);
        let counts = dhat::run(&program).total;
        let outcome = program.recorded();
        let folder = Folder::new();
        let out = folder.join("out");
        let file = out.to_str().unwrap();
        let folded = |cost: &str| -> u64 {
            text(&outcome.trace, &["--disable-builtin-suppressions", "-F", file, "--flamegraph-cost-type", cost]);
            let lines = std::fs::read_to_string(&out).unwrap();
            lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
        };
        assert_eq!(folded("allocations"), counts.allocations, "{name}");
        assert_eq!(folded("peak"), counts.peak_bytes, "{name}");
        assert_eq!(folded("leaked"), counts.leaked_bytes, "{name}");
        assert_eq!(folded("allocated"), counts.allocated_bytes, "{name}");
        text(&outcome.trace, &["-M", file]);
        let massif = std::fs::read_to_string(&out).unwrap();
        let heap = massif.lines().filter_map(|line| line.strip_prefix("mem_heap_B=")?.parse::<u64>().ok());
        assert_eq!(heap.max(), Some(counts.peak_bytes), "{name}");
        text(&outcome.trace, &["-H", file]);
        let sizes = std::fs::read_to_string(&out).unwrap();
        let pairs = sizes.lines().map(|line| line.split_once('\t').unwrap());
        let pairs: Vec<(u64, u64)> =
            pairs.map(|(size, count)| (size.parse().unwrap(), count.parse().unwrap())).collect();
        assert!(pairs.is_sorted_by(|a, b| a.0 < b.0), "{name}");
        assert_eq!(pairs.iter().map(|(_, count)| count).sum::<u64>(), counts.allocations, "{name}");
        assert_eq!(pairs.iter().map(|(size, count)| size * count).sum::<u64>(), counts.allocated_bytes, "{name}");
        let profile = view(&outcome.trace, "profile", &[]);
        assert_eq!(total(&profile, "peak_allocations"), counts.peak_allocations, "{name}");
        assert_eq!(total(&profile, "live_allocations"), counts.leaked_allocations, "{name}");
    }
}

#[test]
fn adjacent_ranges_add_up_and_the_peak_is_one_moment() {
    let outcome = Program::target("leaky").recorded();
    let trace = outcome.trace.as_path();
    let whole = view(trace, "profile", &[]);
    let parts =
        [["--from", "start", "--to", "30%"], ["--from", "30%", "--to", "peak"], ["--from", "peak", "--to", "end"]];
    let parts: Vec<Value> = parts.iter().map(|part| view(trace, "profile", part)).collect();
    for cost in ["allocations", "allocated_bytes", "deallocations", "freed_bytes", "temporary", "lifetime_ns"] {
        assert_eq!(parts.iter().map(|part| total(part, cost)).sum::<u64>(), total(&whole, cost), "{cost}");
    }
    for pair in parts.windows(2) {
        assert_eq!(total(&pair[0], "live_bytes"), total(&pair[1], "base_bytes"));
    }
    let peak = view(trace, "profile", &["--at", "peak"]);
    assert_eq!(total(&peak, "live_bytes"), total(&whole, "peak_bytes"));
    assert_eq!(total(&peak, "live_allocations"), total(&whole, "peak_allocations"));
    assert_eq!(total(&peak, "allocations"), 0);
    // `start_up` keeps 7 blocks of 501 bytes. Each of the 200 rounds then allocates 101 + 201 + 301 + 401 bytes, and
    // the ring keeps 20 blocks of 201.
    assert_eq!(total(&whole, "peak_bytes"), 7 * 501 + 200 * 101 + 20 * 201 + 301 + 200 * 401);
    let kept = view(trace, "profile", &["--from", "50%", "--include", "function:forget"]);
    assert_eq!(total(&kept, "kept_allocations"), total(&kept, "allocations"));
    assert_eq!(total(&kept, "live_allocations"), 200);
}

#[test]
fn parts_of_a_filtered_trace_add_up_to_the_whole() {
    let outcome = Program::target("leaky").recorded();
    let trace = outcome.trace.as_path();
    let whole = view(trace, "profile", &[]);
    let ask = |options: &[&str]| view(trace, "profile", options);
    let both = |one: &Value, other: &Value, cost: &str| total(one, cost) + total(other, cost);
    let (with, without) = (ask(&["--include", "forget"]), ask(&["--exclude", "forget"]));
    let (small, large) = (ask(&["--size", "..201"]), ask(&["--size", "202.."]));
    let (short, long) = (ask(&["--lifetime", "..10ms"]), ask(&["--lifetime", "10000001ns.."]));
    for cost in ["allocations", "deallocations", "peak_bytes", "live_bytes", "temporary"] {
        assert_eq!(both(&with, &without, cost), total(&whole, cost), "{cost}");
        assert_eq!(both(&small, &large, cost), total(&whole, cost), "{cost}");
        assert_eq!(both(&short, &long, cost), total(&whole, cost), "{cost}");
    }
    assert_eq!((total(&with, "allocations"), total(&with, "live_bytes")), (200, 20200));
    let exact = ask(&["--size", "201..201"]);
    assert_eq!(
        (total(&exact, "allocations"), total(&exact, "deallocations"), total(&exact, "live_bytes")),
        (200, 180, 4020)
    );
    assert_eq!(total(&ask(&["--include", "/^(forget|tidy)$/"]), "allocations"), 400);
    assert_eq!(
        total(&ask(&["--include", "file:leaky.c", "--exclude", "function:tidy", "--size", "400.."]), "allocations"),
        7
    );
    assert_eq!(total(&ask(&["--include", "nowhere"]), "allocations"), 0);
}

#[test]
fn threads_add_up_to_the_whole() {
    let outcome = Program::target("threads").args(["3", "3000"]).recorded();
    let whole = view(&outcome.trace, "threads", &[]);
    let mut sum = 0;
    for row in whole["threads"].as_array().unwrap() {
        let index = row["index"].to_string();
        let part = view(&outcome.trace, "profile", &["--thread", &index]);
        assert_eq!(Some(total(&part, "allocations")), row["costs"]["allocations"].as_u64(), "thread {index}");
        sum += total(&part, "live_bytes");
    }
    assert_eq!(sum, total(&whole, "live_bytes"));
}

/// A block that is freed in the last 1.6 % of the run counts as freed at exit. The program runs for four seconds,
/// because 1.6 % of that is longer than a busy machine needs to end a program.
#[test]
fn every_leak_gets_a_verdict() {
    let outcome = Program::target("leaky").arg("20").recorded();
    let leaks = view(&outcome.trace, "leaks", &[]);
    let sites = leaks["sites"].as_array().unwrap();
    for (function, verdict, blocks, bytes) in [
        ("start_up", "once", 7, 3507),
        ("forget", "grows", 200, 20200),
        ("remember", "bounded", 20, 4020),
        ("in_flight", "tail", 1, 301),
        ("tidy", "exit", 0, 0),
    ] {
        let site =
            sites.iter().find(|site| site["function"] == function).unwrap_or_else(|| panic!("{function}: {leaks}"));
        assert_eq!(site["verdict"], verdict, "{function}: {}", site["reason"]);
        assert_eq!(
            (site["live_allocations"].as_u64(), site["live_bytes"].as_u64()),
            (Some(blocks), Some(bytes)),
            "{function}"
        );
        assert_eq!(site["sparkline"].as_array().unwrap().len(), 32);
    }
    let said = text(&outcome.trace, &["-l"]);
    assert!(said.contains("\nLEAKS, JUDGED\n") && said.contains("grows  forget"), "{said}");
}

#[test]
fn known_leaks_are_left_out() {
    let outcome = Program::target("suppressed").recorded();
    let trace = outcome.trace.as_path();
    let leaked = |options: &[&str]| {
        let profile = view(trace, "profile", options);
        (total(&profile, "leaked_bytes"), total(&profile, "suppressed_bytes"))
    };
    let all = leaked(&["--no-suppressions"]);
    assert_eq!(all.1, 0);
    let bare = ["--disable-builtin-suppressions", "--disable-embedded-suppressions"];
    assert_eq!(leaked(&bare), all);
    assert_eq!(leaked(&bare[..1]), (all.0 - 1, 1), "the program's own: leak:known");
    let folder = Folder::new();
    let list = folder.join("list");
    std::fs::write(&list, "# both\nleak:^known$\nleak:new\n").unwrap();
    let file = ["--suppressions", list.to_str().unwrap()];
    assert_eq!(leaked(&[&bare[..], &file].concat()), (all.0 - 3, 3));
    assert_eq!(leaked(&[&bare[..1], &file].concat()), (all.0 - 3, 3));
    let table = view(trace, "suppressions", &[&bare[..1], &file].concat());
    let rows = table["suppressions"].as_array().unwrap();
    let found: Vec<(&str, &str, u64)> = rows
        .iter()
        .map(|row| {
            (row["pattern"].as_str().unwrap(), row["source"].as_str().unwrap(), row["leaked_bytes"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(found, [("^known$", "file", 1), ("new", "file", 2)]);
    let said = text(trace, &[&bare[..1], &["--print-suppressions"]].concat());
    assert!(
        said.contains("\nsuppressed leaks: 1B\n") && said.contains("               1               1B known\n"),
        "{said}"
    );
    let exported = |options: &[&str]| -> u64 {
        let mut command = Command::new(heaptrack());
        let output = command.args(["export", "--to", "folded", "--cost", "leaked"]).args(options).arg(trace).output();
        let lines = String::from_utf8(output.unwrap().stdout).unwrap();
        lines.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!(exported(&["--no-suppressions"]), all.0);
    assert_eq!(exported(&[]), leaked(&[]).0);
    assert_eq!(exported(&bare[..1]), all.0 - 1);
    assert_eq!(exported(&[&bare[..], &file].concat()), all.0 - 3);
    std::fs::write(&list, "race:x\n").unwrap();
    let output = print(trace, &file);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1: `race:x` is not a suppression"));
    // Known leaks are reported next to the leaked bytes and are not part of them.
    let json: Value = serde_json::from_str(&text(trace, &["--json", "--disable-builtin-suppressions"])).unwrap();
    assert_eq!(
        (json["totals"]["leaked_bytes"].as_u64(), json["totals"]["suppressed_bytes"].as_u64()),
        (Some(all.0 - 1), Some(1))
    );
}

#[test]
fn colours_are_printed_only_where_they_are_wanted() {
    let outcome = Program::target("plain").recorded();
    assert!(!text(&outcome.trace, &[]).contains('\x1b'));
    let mut command = Command::new(heaptrack());
    let forced =
        command.arg("print").arg(&outcome.trace).env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR").output().unwrap();
    let forced = String::from_utf8(forced.stdout).unwrap();
    assert!(forced.contains("\x1b[1;36mAT THE PEAK, BY YOUR CODE") && forced.contains('█'), "{forced}");
    let mut command = Command::new(heaptrack());
    let plain =
        command.arg("print").arg(&outcome.trace).envs([("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).output().unwrap();
    assert!(!String::from_utf8(plain.stdout).unwrap().contains('\x1b'));
}

#[test]
fn wrong_values_give_one_sentence_and_exit_code_2() {
    let outcome = Program::target("hello").recorded();
    for options in [
        &["--at", "soon"][..],
        &["--at", "1s", "--from", "2s"],
        &["--include", "/(/"],
        &["--size", "9..3"],
        &["--view", "nothing"],
        &["--view", "diff"],
        &["--cost", "nothing", "--view", "flame"],
        &["--flamegraph-cost-type", "nothing", "-F", "/dev/null"],
        &["--diff", "/no/such/file"],
        &["--rules", "/no/such/file"],
        &["--suppressions", "/no/such/file"],
        &["-F", "/no/such/folder/file"],
        &["--event", "0"],
    ] {
        let output = print(&outcome.trace, options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(!said.is_empty() && !said.contains("panicked"), "{options:?}: {said}");
    }
}

#[test]
fn options_that_do_not_apply_give_one_sentence_and_exit_code_2() {
    let folder = Folder::new();
    let outcome = Program::target("hello").recorded();
    let trace = outcome.trace.to_str().unwrap();
    let new = folder.join("new.htz");
    let new = new.to_str().unwrap();
    let pid = std::process::id().to_string();
    for (line, named) in [
        (&["print", "--points", "3", trace][..], "--points"),
        (&["print", "--from", "80%", "--to", "20%", trace], "--from"),
        (&["print", "--at", "1h", trace], "--at"),
        (&["print", "--json", "--thread", "99", trace], "--thread"),
        (&["print", "-M", new, "--size", "1..", trace], "--size"),
        (&["diff", "--json", "--depth", "3", trace, trace], "--depth"),
        (&["diff", "--compare", "@1s", trace, trace], "--compare"),
        (&["export", "--to", "svg", "--massif-threshold", "3", trace], "--massif-threshold"),
        (&["symbolize", "--debug-path", "/no/such/folder", trace], "--debug-path"),
        (&["--sysroot", "/no/such/folder", "-o", new, "/bin/true"], "--sysroot"),
        (&["--no-symbols", "--sysroot", "/", "-o", new, "/bin/true"], "--sysroot"),
        (&["--on-full", "drop", "--max-stall", "1s", "-o", new, "/bin/true"], "--max-stall"),
        (&["attach", "--debug-path", "/no/such/folder", "-o", new, &pid], "--debug-path"),
    ] {
        let output = Command::new(heaptrack()).args(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
        assert!(
            said.starts_with("heaptrack: ") && said.contains(named) && said.lines().count() == 1,
            "{line:?}: {said}"
        );
        assert!(output.stdout.is_empty() && !Path::new(new).exists(), "{line:?}: nothing is written");
    }
}
