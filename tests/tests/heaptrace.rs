//! `heaptrace`: its report, with exact numbers and in the original's layout, its signals and its options.
use heaptrack_tests::heaptrace::{Dump, Heaptrace, Part, Traced, dumps, files, parse};
use heaptrack_tests::process::{signal, target_of, wait_for};
use heaptrack_tests::targets::target;
use heaptrack_tests::{Chance, Folder, Program};
use std::collections::BTreeMap;
use std::path::Path;

fn trace(words: &[&str], name: &str) -> Traced {
    Heaptrace::new(words).target(name).run()
}

/// The functions of a backtrace, without addresses and source positions.
fn functions(dump: &Dump, number: usize) -> Vec<String> {
    let plain = |symbol: &str| symbol.split(" (").next().unwrap_or_default().to_owned();
    let frames = &dump.lists[0].1[number].frames;
    frames.iter().map(|line| line.symbol.as_deref().map(plain).unwrap_or_default()).collect()
}

#[test]
fn the_example_of_the_original() {
    let words = ["--top", "3", "--sort", "count", "node", "--expose-gc", "-e", "gc()"];
    let traced = Heaptrace::new(words).run();
    assert_eq!((traced.code, traced.stdout.as_str()), (0, ""));
    let parts = traced.parts();
    let [Part::Initialized(pid, name), Part::Finalized(..), Part::Dump(dump)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((name.as_str(), dump.name.as_str(), dump.pid), ("node", "node", *pid));
    let [(key, list)] = &dump.lists[..] else { panic!("one list") };
    assert_eq!((key.as_str(), list.len()), ("count", 3));
    assert!(list.is_sorted_by_key(|trace| std::cmp::Reverse(trace.count)));
    for (index, trace) in list.iter().enumerate() {
        let is_inlined = |symbol: &str| symbol.contains(" (inlined");
        let real = trace.frames.iter().filter(|line| !line.symbol.as_deref().is_some_and(is_inlined)).count();
        assert_eq!(trace.number, index + 1);
        assert!((1..=8).contains(&real), "{trace:?}");
        assert!(trace.count <= trace.peak_count && trace.bytes <= trace.peak_bytes && trace.age_ns > 0);
        let named = trace.frames.iter().filter(|line| line.symbol.is_some()).count();
        assert!(named * 4 >= trace.frames.len() * 3, "names are at least as good as the original's: {trace:?}");
    }
    assert!(dump.backtraces >= 3 && dump.bytes > 0);
    assert!(0 < dump.resident && dump.resident <= dump.virtual_bytes && dump.virtual_bytes < dump.statm[0]);
    assert!(dump.statm[2] <= dump.statm[1] && dump.statm[1] <= dump.statm[0]);
    assert!(dump.notes.is_empty(), "{:?}", dump.notes);
}

#[test]
fn live_blocks_at_the_end_are_reported_exactly() {
    let traced = trace(&["-s", "size,count"], "trace_sites");
    assert_eq!(traced.code, 9);
    let [dump] = &traced.dumps()[..] else { panic!("{}", traced.stderr) };
    assert_eq!((dump.backtraces, dump.bytes), (3, 40_640));
    let numbers = |list: usize| {
        let of = |t: &heaptrack_tests::heaptrace::Backtrace| (t.count, t.peak_count, t.bytes, t.peak_bytes);
        dump.lists[list].1.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(numbers(0), [(1, 1, 30_000, 30_000), (10, 10, 10_000, 10_000), (10, 100, 640, 6_400)]);
    assert_eq!(numbers(1), [(10, 10, 10_000, 10_000), (10, 100, 640, 6_400), (1, 1, 30_000, 30_000)]);
    assert_eq!((dump.lists[0].0.as_str(), dump.lists[1].0.as_str()), ("size", "count"));
    assert_eq!(functions(dump, 0)[..2], ["grown", "main"]);
    // Offsets are in bytes and point to the instruction after the call.
    let leaf = &dump.lists[0].1[1].frames[0];
    assert!(leaf.symbol.as_deref().is_some_and(|symbol| symbol.contains("trace_sites.c:")), "{leaf:?}");
    let (_, offset) = leaf.module.clone().unwrap();
    assert_eq!(leaf.address & 0xfff, offset & 0xfff);
    assert!(leaf.from_start.is_some_and(|bytes| (1..64).contains(&bytes)));
}

#[test]
fn a_program_that_frees_everything_gets_no_report() {
    let traced = Heaptrace::new([""; 0]).target("trace_sites").arg("nothing").run();
    assert_eq!(traced.code, 9);
    let parts = traced.parts();
    assert!(matches!(&parts[..], [Part::Initialized(..), Part::Finalized(..)]), "{}", traced.stderr);
}

#[test]
fn live_bytes_equal_those_of_a_recording() {
    for name in ["trace_sites", "peak", "containers", "reuse", "kinds"] {
        let recorded = Program::target(name).recorded();
        let report = recorded.whole_report();
        // Folded stacks hold exact bytes, and contain all stacks and all frames.
        let traced = trace(&["--flame-graph"], name);
        assert_eq!(traced.code, recorded.code, "{name}");
        let mut folded: Vec<u64> = traced.stderr.lines().map(bytes_of).collect();
        let mut leaked: Vec<u64> = report.list("leaked").iter().map(|site| site.leaked_bytes).collect();
        // A block of 0 bytes has a stack with no bytes.
        leaked.retain(|bytes| *bytes > 0);
        folded.retain(|bytes| *bytes > 0);
        folded.sort_unstable();
        leaked.sort_unstable();
        assert_eq!(folded, leaked, "{name}");
        assert_eq!(folded.iter().sum::<u64>(), report.total("leaked_bytes"), "{name}");
        let text = trace(&["--top", "100000", "--depth", "0"], name);
        let counts: u64 = text.dumps().iter().flat_map(|dump| &dump.lists[0].1).map(|trace| trace.count).sum();
        assert_eq!(counts, report.total("leaked_allocations"), "{name}");
    }
}

/// The number at the end of a folded stack.
fn bytes_of(line: &str) -> u64 {
    let (stack, bytes) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    assert!(!stack.is_empty(), "{line}");
    bytes.parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn every_way_to_end_gives_a_report() {
    let ways =
        [("return", 5), ("exit", 6), ("_exit", 7), ("quick_exit", 8), ("abort", 134), ("segv", 139), ("term", 143)];
    for (way, code) in ways {
        let traced = Heaptrace::new([""; 0]).target("ways_out").arg(way).run();
        assert_eq!(traced.code, code, "{way}");
        let [dump] = &traced.dumps()[..] else { panic!("{way}: {}", traced.stderr) };
        assert_eq!(dump.of("main"), (6, 738), "{way}");
        let is_said = dump.notes.iter().any(|(label, _)| label == "memory was looked at");
        assert_eq!(is_said, !matches!(way, "return" | "exit"), "{way}: {:?}", dump.notes);
    }
}

#[test]
fn signals_in_the_middle_are_exact() {
    let traced = trace(&[], "trace_moments");
    assert_eq!(traced.code, 0, "{}", traced.stderr);
    let dumps = traced.dumps();
    let said: Vec<_> = dumps.iter().map(|dump| (dump.lists[0].0.as_str(), dump.of("keep"), dump.bytes)).collect();
    assert_eq!(said, [("size", (10, 1000), 1000), ("count", (12, 1200), 1200), ("size", (4, 400), 400)]);
    assert_eq!(dumps[1].lists[0].1[0].peak_count, 15);
}

/// Asks for a report in three ways: SIGUSR1 and SIGUSR2 to heaptrace, and SIGUSR1 to the program.
#[test]
fn live_sets_equal_the_programs_own_counters() {
    let mut chance = Chance::new("live_sets");
    let seed = chance.between(1, 1 << 30).to_string();
    let folder = Folder::new();
    let prefix = folder.join("log");
    let program = target("trace_counters");
    let heaptrace = Heaptrace::new(["--outfile"]).arg(&prefix).arg(&program).arg(&seed);
    let out = folder.join("stdout");
    let mut command = heaptrace.command();
    command.stdout(std::fs::File::create(&out).unwrap());
    let child = command.spawn().unwrap();
    let counters = wait_for("the counters", || std::fs::read_to_string(&out).ok().filter(|text| text.ends_with('\n')));
    let words: Vec<&str> = counters.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let expected = [(number(1), number(2)), (number(4), number(5))];
    let target = target_of(child.id(), &program);
    for (sent, (name, pid)) in [("USR1", child.id()), ("USR2", child.id()), ("USR1", target)].into_iter().enumerate() {
        signal(name, &[pid]);
        let dump = wait_for("a report", || {
            let (_, _, text) = files(&folder, "log").pop()?;
            // A report is written in one call, but the test may read the file in the middle of it.
            let is_whole = text.matches("\n====").count() + usize::from(text.starts_with("====")) == 2 * (sent + 1);
            is_whole.then(|| dumps(parse(&text)).pop()).flatten()
        });
        assert_eq!([dump.of("small"), dump.of("large")].map(|(count, _)| count), expected.map(|(count, _)| count));
        assert_eq!(dump.of("small").1, expected[0].1, "exact, as it is below a megabyte");
        assert!(dump.of("large").1.abs_diff(expected[1].1) < 10_000);
        assert_eq!(dump.lists[0].0, if name == "USR1" { "size" } else { "count" });
    }
    signal("TERM", &[child.id()]);
    let traced = Traced::of(child);
    assert_eq!(traced.code, 143);
}

#[test]
fn a_program_keeps_its_own_signals() {
    let folder = Folder::new();
    let program = target("trace_own_signal");
    let out = folder.join("stdout");
    let mut command = Heaptrace::new(["--outfile"]).arg(folder.join("log")).arg(&program).command();
    command.stdout(std::fs::File::create(&out).unwrap());
    let child = command.spawn().unwrap();
    wait_for("the program", || std::fs::read_to_string(&out).ok().filter(|text| text.contains("ready")));
    let target = target_of(child.id(), &program);
    signal("USR1", &[target]);
    signal("USR2", &[target]);
    signal("USR1", &[child.id()]);
    let reported = || files(&folder, "log").first().is_some_and(|(_, _, text)| text.contains("\n[heaptrace] statm"));
    wait_for("a report", || reported().then_some(()));
    signal("TERM", &[target]);
    assert_eq!(Traced::of(child).code, 0);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "ready\nhandled 1\n");
    let (_, name, text) = files(&folder, "log").remove(0);
    assert_eq!(name, "trace_own_signa", "the kernel truncates the name");
    let dumps = dumps(parse(&text));
    assert_eq!(
        dumps.len(),
        2,
        "one for the signal to heaptrace, none for the program's own signal, one at the end: {text}"
    );
    assert!(dumps.iter().all(|dump| dump.of("main") == (10, 3210)));
}

#[test]
fn flame_graphs_are_drawn_by_others() {
    let traced = trace(&["--flame-graph"], "trace_sites");
    let mut options = inferno::flamegraph::Options::default();
    let mut svg = Vec::new();
    inferno::flamegraph::from_lines(&mut options, traced.stderr.lines(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    for text in ["grown+0x", "mostly+0x", "kept+0x", "main+0x"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("all (40,640 samples"), "live bytes are the samples");
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for line in traced.stderr.lines() {
        let leaf = line.rsplit_once(' ').unwrap().0.rsplit(';').next().unwrap().split('+').next().unwrap().to_owned();
        *sums.entry(leaf).or_default() += bytes_of(line);
        assert!(line.split(';').next().unwrap().starts_with("_start+0x"), "the root comes first: {line}");
    }
    assert_eq!(sums, [("grown", 30_000), ("kept", 10_000), ("mostly", 640)].map(|(k, v)| (k.to_owned(), v)).into());
}

#[test]
fn bad_options_start_nothing() {
    let folder = Folder::new();
    let mark = folder.join("started");
    let touch = format!("echo > '{}'", mark.display());
    let empty = folder.join("rules");
    std::fs::write(&empty, "x\n").unwrap();
    let cases: &[&[&str]] = &[
        &["--top", "x"],
        &["--sort", "weight"],
        &["-s", "size,"],
        &["--ignore", "/no/such/rules"],
        &["--outfile", "/no/such/folder/out"],
        &["--outfile", "/proc/out"],
        &["--depth", "-3"],
        &["--interval", "never"],
        &["--no-such-option"],
        &["--watch"],
    ];
    for words in cases {
        let traced = Heaptrace::new(*words).arg("sh").arg("-c").arg(&touch).run();
        assert_eq!(traced.code, 64, "{words:?}: {}", traced.stderr);
        let parts = traced.parts();
        assert!(matches!(&parts[..], [Part::Sentence(_)]), "{words:?}: {}", traced.stderr);
        assert!(!mark.exists(), "{words:?} started the program");
    }
    for (variable, value) in [("HEAPTRACE_NUM_TOP_BACKTRACE", "ten"), ("HEAPTRACE_IGNORE", "/no/such/rules")] {
        let traced = Heaptrace::new(["true"]).env(variable, value).run();
        assert_eq!((traced.code, traced.parts().len()), (64, 1), "{variable}");
    }
    assert_eq!(Heaptrace::new([""; 0]).run().code, 64, "no program");
    assert_eq!(Heaptrace::new(["/no/such/program"]).run().code, 127);
    assert_eq!(Heaptrace::new(["/etc/passwd"]).run().code, 126);
    let help = Heaptrace::new(["--help"]).run();
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert!(help.stdout.contains("--flame-graph") && help.stdout.contains("Examples:"));
}

#[test]
fn options_and_variables_do_what_they_say() {
    let variables = Heaptrace::new([""; 0])
        .env("HEAPTRACE_NUM_TOP_BACKTRACE", "2")
        .env("HEAPTRACE_SORT_KEYS", "count")
        .target("trace_sites")
        .run();
    let [dump] = &variables.dumps()[..] else { panic!("{}", variables.stderr) };
    assert_eq!((dump.lists[0].0.as_str(), dump.lists[0].1.len(), dump.backtraces), ("count", 2, 3));
    let flat = trace(&["--depth", "1"], "trace_sites").dumps().remove(0);
    assert!(flat.lists[0].1.iter().all(|trace| trace.frames.len() == 1));
    let folder = Folder::new();
    let rules = folder.join("rules");
    std::fs::write(&rules, "\nmostly (\n").unwrap();
    let words = ["--ignore".as_ref(), rules.as_os_str()];
    let ignored = Heaptrace::new(words).target("trace_sites").run().dumps().remove(0);
    assert_eq!((ignored.lists[0].1.len(), ignored.backtraces, ignored.bytes), (2, 3, 40_640));
    assert_eq!(ignored.of("mostly"), (0, 0));
}

#[test]
fn reports_come_by_themselves() {
    let folder = Folder::new();
    let heaptrace = Heaptrace::new(["--interval", "20ms", "--outfile"]).arg(folder.join("log"));
    let child = heaptrace.target("trace_own_signal").start();
    let count = || files(&folder, "log").first().map_or(0, |(_, _, text)| text.matches("num of backtrace").count());
    wait_for("three reports", || (count() >= 3).then_some(()));
    signal("TERM", &[child.id()]);
    assert_eq!(Traced::of(child).code, 0);
    let (_, _, text) = files(&folder, "log").remove(0);
    for dump in dumps(parse(&text)).iter().skip(1) {
        assert_eq!(dump.of("main"), (10, 3210));
    }
}

#[test]
fn the_live_table_is_drawn_in_a_terminal() {
    let folder = Folder::new();
    let (heaptrack, program) = (heaptrack_tests::run::heaptrack(), target("trace_own_signal"));
    let screen = folder.join("screen");
    let line = format!("stty rows 20 cols 150; '{}' heaptrace --watch '{}'", heaptrack.display(), program.display());
    let mut command = std::process::Command::new("script");
    command.args(["-q", "-f", "-e", "-c", &line]).arg(&screen);
    let mut child = command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let drawn =
        |text: &str| text.contains("3.210 KB") && text.contains("main") && text.contains("▇") | text.contains("█");
    wait_for("the table", || drawn(&std::fs::read_to_string(&screen).unwrap_or_default()).then_some(()));
    let target = wait_for("the program", || find_below(child.id(), &program));
    signal("TERM", &[target]);
    assert!(child.wait().unwrap().success());
    let text = std::fs::read_to_string(&screen).unwrap();
    let (_, after) = text.rsplit_once("\x1b[?1049l").expect("the terminal returns to the first screen");
    let report: Vec<&str> = after.lines().filter(|line| !line.starts_with("Script done")).collect();
    assert!(report.iter().any(|line| line.contains("[count/peak: 10/10] [size/peak: 3.210 KB/3.210 KB]")), "{after}");
}

/// Returns the descendant of `pid` that runs this file.
fn find_below(pid: u32, program: &Path) -> Option<u32> {
    let is_it = heaptrack_tests::process::executable(pid).as_deref() == Some(program);
    let mut below = heaptrack_tests::process::children(pid).into_iter();
    if is_it { Some(pid) } else { below.find_map(|child| find_below(child, program)) }
}

#[test]
fn a_running_process_is_watched_and_let_go() {
    let folder = Folder::new();
    let out = folder.join("stdout");
    let mut command = std::process::Command::new(target("trace_attach"));
    let mut program = command.stdout(std::fs::File::create(&out).unwrap()).spawn().unwrap();
    let said = |word: &str| wait_for(word, || std::fs::read_to_string(&out).ok().filter(|text| text.contains(word)));
    said("ready");
    let pid = program.id().to_string();
    let child = Heaptrace::new(["--outfile"]).arg(folder.join("log")).args(["-p", &pid]).start();
    let log = || files(&folder, "log").pop().map_or(String::new(), |(_, _, text)| text);
    wait_for("the attach", || log().contains("initialized").then_some(()));
    signal("USR1", &[program.id()]);
    said("kept");
    signal("USR1", &[child.id()]);
    wait_for("a report", || log().contains("statm").then_some(()));
    signal("INT", &[child.id()]);
    let traced = Traced::of(child);
    assert_eq!(traced.code, 0, "{}", traced.stderr);
    let dumps = dumps(parse(&log()));
    assert_eq!(dumps.iter().map(|dump| dump.of("keep")).collect::<Vec<_>>(), [(10, 5550), (10, 5550)]);
    assert!(dumps.iter().all(|dump| dump.notes.is_empty()), "{dumps:?}");
    signal("TERM", &[program.id()]);
    assert_eq!(program.wait().unwrap().code(), Some(6), "it lives on");
    let refused = Heaptrace::new(["-p", &pid]).run();
    assert_eq!((refused.code, refused.parts().len()), (3, 1), "{}", refused.stderr);
}
