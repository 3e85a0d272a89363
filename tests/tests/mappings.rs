//! The program's own mappings: calls and bytes are those that strace sees, and malloc's numbers do not change.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::memory::Watched;
use heaptrack_tests::{Folder, Program, run, targets, view};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

const PAGE: u64 = 4096;

/// Calls and bytes, by function.
type Calls = BTreeMap<String, (u64, u64)>;

fn recorded_calls(trace: &Path) -> Calls {
    let memory = view::view(trace, "memory", &[]);
    let row = |row: &Value| {
        let number = |key: &str| row[key].as_u64().expect("a number");
        (row["name"].as_str().expect("a name").to_owned(), (number("calls"), number("bytes")))
    };
    memory["map_calls"].as_array().expect("a list").iter().map(row).collect()
}

fn mapped_total(trace: &Path, cost: &str) -> u64 {
    view::total(&view::view(trace, "profile", &["--domain", "mapped"]), cost)
}

/// What `maps.c` says of itself.
fn calls_of_maps() -> Calls {
    let row = |name: &str, calls: u64, pages: u64| (name.to_owned(), (3 * calls, 3 * pages * PAGE));
    Calls::from([
        row("mmap", 4, 33),
        row("munmap", 3, 6),
        row("mremap", 1, 40),
        row("shmat", 1, 7),
        row("shmdt", 1, 7),
        row("madvise(MADV_DONTNEED)", 1, 6),
        row("madvise(MADV_FREE)", 1, 2),
    ])
}

const LEFT_BY_MAPS: u64 = 3 * (16 + 40 + 3) * PAGE;

#[test]
fn every_call_of_a_launched_program_is_recorded_with_its_stack() {
    let outcome = Program::target("maps").same_output();
    assert_eq!(recorded_calls(&outcome.trace), calls_of_maps());
    assert_eq!(mapped_total(&outcome.trace, "leaked_bytes"), LEFT_BY_MAPS);
    let profile = view::view(&outcome.trace, "bottom-up", &["--domain", "mapped"]);
    let of = |name: &str| {
        let row = |row: &&Value| row["function"].as_str() == Some(name);
        profile["roots"].as_array().expect("rows").iter().find(row).map(|row| row["total"]["leaked_bytes"].clone())
    };
    assert_eq!(of("reserve").expect("a function"), 3 * 12 * PAGE, "what MAP_FIXED and munmap left of it");
    assert_eq!(of("grow").expect("a function"), 3 * 40 * PAGE);
}

#[test]
fn every_call_of_an_attached_program_is_recorded() {
    for name in ["maps", "maps_jemalloc", "maps_mimalloc"] {
        let mut target = Target::start(name, &["wait"]);
        assert_eq!(target.line(), "ready");
        let session = Session::attach(target.pid, &[]);
        assert_eq!(target.tell("go"), "done");
        let ended = session.detach();
        assert_eq!(recorded_calls(&ended.trace), calls_of_maps(), "{name}");
        assert_eq!(mapped_total(&ended.trace, "leaked_bytes"), LEFT_BY_MAPS, "{name}");
        target.send("end");
        assert_eq!(target.finish().0, 0);
    }
}

#[test]
fn what_an_allocator_maps_for_itself_is_not_recorded() {
    for name in ["maps_jemalloc", "maps_mimalloc", "maps_musl"] {
        let outcome = Program::target(name).same_output();
        assert_eq!(recorded_calls(&outcome.trace), calls_of_maps(), "{name}");
        assert_eq!(mapped_total(&outcome.trace, "leaked_bytes"), LEFT_BY_MAPS, "{name}");
    }
}

/// What an allocator in the program itself maps and gives back while it frees is its own, and what the program does right after a free is not.
#[test]
fn what_a_free_in_the_program_itself_maps_is_not_recorded() {
    let of_program = Calls::from([("mmap".to_owned(), (100, 100 * PAGE)), ("munmap".to_owned(), (99, 99 * PAGE))]);
    let exact = Program::target("maps_in_free");
    let sampled = exact.clone().option("--sample").option("16M");
    for (how, program) in [("exact", exact), ("sampled", sampled)] {
        let outcome = program.same_output();
        assert_eq!(outcome.code, 0, "{how}: {}", outcome.stderr);
        assert_eq!(recorded_calls(&outcome.trace), of_program, "{how}");
        assert_eq!(mapped_total(&outcome.trace, "leaked_bytes"), PAGE, "{how}");
    }
    let mut target = Target::start("maps_in_free", &["wait"]);
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "done");
    assert_eq!(recorded_calls(&session.detach().trace), of_program, "attached");
    target.send("end");
    assert_eq!(target.finish().0, 0);
}

/// A jemalloc that is linked into the program gives back every page at once, or never.
#[test]
fn what_a_jemalloc_in_the_program_gives_back_is_not_recorded() {
    for decay in [0, -1] {
        let options = format!("dirty_decay_ms:{decay},muzzy_decay_ms:{decay}");
        let outcome = Program::target("maps_own_jemalloc").env("MALLOC_CONF", options).same_output();
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        assert_eq!(recorded_calls(&outcome.trace), calls_of_maps(), "decay {decay}");
    }
}

/// Replaces a text in a file by one of the same length.
fn replace_in(file: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(file).expect("a file");
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the text");
    bytes[at..at + from.len()].copy_from_slice(to);
    std::fs::write(file, bytes).expect("written");
}

/// musl has no symbol `mmap64` since 1.2.4, but old programs call it. Such a libc is made here from any musl: its symbol gets another name.
#[test]
fn mmap64_of_a_libc_without_it_is_mmap() {
    let folder = Folder::new();
    let [program, libc] = ["program", "libc"].map(|name| folder.join(name));
    std::fs::copy(targets::target("maps_64_musl"), &program).expect("a copy");
    std::fs::copy("/lib/ld-musl-x86_64.so.1", &libc).expect("a copy");
    replace_in(&program, b"/lib/ld-musl-x86_64.so.1\0", b"./libc\0-musl-x86_64.so.1\0");
    if std::fs::read(&libc).expect("a file").windows(8).any(|window| window == b"\0mmap64\0") {
        replace_in(&libc, b"\0mmap64\0", b"\0mmap6_\0");
    }
    let outcome = Program::new(&program).current_dir(folder.path()).recorded();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "failed with 22\n"), "{}", outcome.stderr);
    assert_eq!(recorded_calls(&outcome.trace), Calls::from([("mmap".to_owned(), (1, 3 * PAGE))]));
}

/// The program prints how often it called mmap and munmap.
#[test]
fn calls_at_hard_places_are_all_recorded() {
    for place in ["early", "handler", "sandbox", "jump"] {
        let outcome = Program::target("maps_hard").arg(place).recorded();
        assert_eq!(outcome.code, 0, "{place}: {}", outcome.stderr);
        let said: Vec<u64> = outcome.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let recorded = recorded_calls(&outcome.trace);
        let summary = view::view(&outcome.trace, "summary", &[]);
        assert_eq!(summary["lost_events"], 0, "{place}: {summary}");
        assert_eq!([recorded["mmap"].0, recorded["munmap"].0], said[..], "{place}");
        assert_eq!(mapped_total(&outcome.trace, "leaked_bytes"), 0, "{place}");
    }
}

/// Runs `heaptrack` and returns what it prints on stderr.
fn said(arguments: &[&std::ffi::OsStr]) -> String {
    let output = Command::new(run::heaptrack()).args(arguments).output().expect("heaptrack");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    stderr
}

/// The numbers of mappings in a range of time are the same in the trace and in a trace of that range.
#[test]
fn a_part_of_a_trace_has_its_mappings_and_the_parts_of_its_memory() {
    let folder = Folder::new();
    let outcome = Program::target("maps").arg("slow").option("--memory-every").option("20ms").recorded();
    let memory = view::view(&outcome.trace, "memory", &[]);
    assert_ne!(memory["instants"], Value::Array(Vec::new()), "{memory}");
    let whole = view::view(&outcome.trace, "summary", &[]);
    let runtime = whole["runtime_ns"].as_u64().expect("a time");
    let costs = ["allocations", "allocated_bytes", "deallocations", "live_bytes", "peak_bytes", "base_bytes"];
    for (number, part) in [(0, 100), (0, 40), (30, 70), (55, 100)].into_iter().enumerate() {
        let (from, to) = (runtime / 100 * part.0, runtime / 100 * part.1);
        let short = folder.join(&format!("part{number}.htz"));
        let (from, to) = (format!("{from}ns"), if part.1 == 100 { "end".to_owned() } else { format!("{to}ns") });
        let from = if part.0 == 0 { "start".to_owned() } else { from };
        let words = ["--from", &from, "--to", &to, "-o"].map(std::ffi::OsStr::new);
        let mut arguments = vec!["trim".as_ref(), outcome.trace.as_os_str()];
        arguments.extend(words);
        arguments.push(short.as_os_str());
        assert!(!said(&arguments).contains("left out"));
        let range = ["--domain", "mapped", "--from", &from, "--to", &to];
        let in_whole = view::view(&outcome.trace, "bottom-up", &range);
        let in_part = view::view(&short, "bottom-up", &range);
        for cost in costs {
            assert_eq!(in_part["totals"][cost], in_whole["totals"][cost], "{cost} of {part:?}");
        }
        assert_eq!(in_part["roots"], in_whole["roots"], "{part:?}");
        let instants = |trace: &Path| view::view(trace, "memory", &["--from", &from, "--to", &to])["instants"].clone();
        assert_eq!(instants(&short), instants(&outcome.trace), "{part:?}");
        // How often a function was called is known for the whole session only.
        let calls = if part == (0, 100) { calls_of_maps() } else { Calls::new() };
        assert_eq!(recorded_calls(&short), calls, "{part:?}");
    }
    let both = folder.join("both.htz");
    let merge =
        ["merge".as_ref(), outcome.trace.as_os_str(), outcome.trace.as_os_str(), "-o".as_ref(), both.as_os_str()];
    assert!(said(&merge).contains("the mappings of the programs are left out"));
    assert_eq!(view::view(&both, "memory", &[])["instants"], Value::Array(Vec::new()));
}

#[test]
fn a_program_that_defines_mmap_itself_runs_as_before() {
    let outcome = Program::target("maps_own").same_output();
    assert_eq!(recorded_calls(&outcome.trace), Calls::new(), "its own functions are not libc's");
}

#[test]
fn with_no_mmap_there_are_no_mappings_and_malloc_has_the_same_numbers() {
    let with = Program::target("maps").recorded();
    let without = Program::target("maps").option("--no-mmap").recorded();
    assert_eq!(recorded_calls(&without.trace), Calls::new());
    let refused = view::print(&without.trace, &["--domain", "mapped"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no mappings of the program"), "{refused:?}");
    for cost in ["allocations", "allocated_bytes", "leaked_bytes", "leaked_allocations"] {
        let malloc = |trace: &Path| view::total(&view::view(trace, "profile", &[]), cost);
        assert_eq!(malloc(&with.trace), malloc(&without.trace), "{cost}");
    }
}

/// One system call as strace prints it, and the modules of its stack, innermost first.
struct Traced {
    text: String,
    modules: Vec<String>,
}

/// The calls of `strace -f -k` that succeeded, by process.
fn traced(log: &str) -> HashMap<u32, Vec<Traced>> {
    let mut calls: HashMap<u32, Vec<Traced>> = HashMap::new();
    let mut begun: HashMap<u32, String> = HashMap::new();
    let mut last = None;
    for line in log.lines() {
        if let Some(frame) = line.strip_prefix(" > ") {
            let module = frame.split('(').next().unwrap_or_default().trim_end().to_owned();
            if let Some(call) = last.and_then(|pid| calls.get_mut(&pid)).and_then(|calls| calls.last_mut()) {
                call.modules.push(module);
            }
            continue;
        }
        last = None;
        let Some((pid, text)) = line.split_once(' ') else { continue };
        let (Ok(pid), text) = (pid.parse::<u32>(), text.trim_start()) else { continue };
        if let Some(text) = text.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, text.to_owned());
            continue;
        }
        let whole = match text.strip_prefix("<... ") {
            Some(rest) => {
                begun.remove(&pid).unwrap_or_default() + rest.split_once("resumed>").map_or("", |(_, rest)| rest)
            }
            None => text.to_owned(),
        };
        if let Some((_, result)) = whole.rsplit_once(" = ") {
            let is_failure = result.starts_with("-1");
            calls.entry(pid).or_default().push(Traced { text: whole, modules: Vec::new() });
            last = Some(pid);
            if is_failure && let Some(call) = calls.get_mut(&pid).and_then(|calls| calls.last_mut()) {
                call.text.clear();
            }
        }
    }
    calls
}

/// The calls that code outside of libc made through libc. Those of the recorder come from its own library.
fn seen_by_strace(calls: &[Traced]) -> Calls {
    let is_libc = |module: &str| module.ends_with("/libc.so.6");
    let is_hidden = |module: &str| is_libc(module) || module.contains("/ld-linux");
    let is_ours = |module: &str| module.contains("/heaptrack-") && module.ends_with(".so");
    let mut seen = Calls::new();
    for Traced { text, modules } in calls {
        let [first, rest @ ..] = modules.as_slice() else { continue };
        let caller = rest.iter().find(|module| !is_ours(module));
        if text.is_empty() || !is_libc(first) || caller.is_none_or(|caller| is_hidden(caller)) {
            continue;
        }
        let (name, arguments) = text.split_once('(').expect("a call");
        let arguments: Vec<&str> = arguments.split(", ").collect();
        let name = match (name, arguments.get(2).map(|last| last.split(')').next().unwrap_or_default())) {
            ("madvise", Some(advice @ ("MADV_DONTNEED" | "MADV_FREE"))) => format!("madvise({advice})"),
            ("madvise", _) => continue,
            _ => name.to_owned(),
        };
        let size = arguments[if name == "mremap" { 2 } else { 1 }].split(')').next().expect("a size");
        let bytes: u64 = size.parse().unwrap_or_else(|_| panic!("{text}"));
        let (count, sum) = seen.entry(name).or_default();
        *count += 1;
        *sum += bytes.next_multiple_of(PAGE);
    }
    seen
}

/// Records a program under strace. Returns what both saw of its mappings, and how many calls they did not have in common because
/// libc and the loader made them.
fn compare_with_strace(command: &[&str]) -> (Calls, u64) {
    let folder = Folder::new();
    let (trace, log) = (folder.join("trace.htz"), folder.join("strace.log"));
    let traced_calls = "trace=mmap,munmap,mremap,madvise";
    let output = Command::new("strace")
        .args(["-f", "-k", "-q", "-e", traced_calls, "-o"])
        .arg(&log)
        .arg(run::heaptrack())
        .args(["-q", "--no-symbols", "--memory-every", "off", "-o"])
        .arg(&trace)
        .args(command)
        .output()
        .expect("strace");
    assert!(output.status.success(), "{output:?}");
    let session = view::view(&trace, "summary", &[]);
    let pid = session["pid"].as_u64().unwrap_or_else(|| panic!("{session}")) as u32;
    let mut by_thread = traced(&std::fs::read_to_string(&log).expect("strace's log"));
    // The threads of the program are those whose calls went through our library, and its first thread.
    let is_ours = |module: &String| module.contains("/heaptrack-") && module.ends_with(".so");
    by_thread.retain(|thread, calls| *thread == pid || calls.iter().any(|call| call.modules.iter().any(is_ours)));
    let all: Vec<Traced> = by_thread.into_values().flatten().collect();
    let expected = seen_by_strace(&all);
    // strace does not know the size of shared memory.
    let recorded: Calls = recorded_calls(&trace).into_iter().filter(|(name, _)| !name.starts_with("shm")).collect();
    assert_eq!(recorded, expected);
    let seen: u64 = expected.values().map(|(calls, _)| calls).sum();
    (expected, all.len() as u64 - seen)
}

/// A program that makes the system call itself: the memory is `anonymous`, and the trace says that no call explains it.
#[test]
fn mappings_that_no_call_explains_are_listed_as_unseen() {
    for (how, kind) in [("syscall", "anonymous"), ("mmap", "mapped")] {
        let mut command = Command::new(targets::target("maps_unseen"));
        let mut watched = Watched::start(command.arg(how), &[]);
        assert_eq!(watched.line(), "ready");
        let measured = watched.measured();
        let zeroed_bytes = if kind == "anonymous" { 4 << 20 } else { 0 };
        let found = measured.instant.rss_of(kind) - zeroed_bytes;
        assert!((24 << 20..25 << 20).contains(&found), "{how}: {:?}", measured.instant);
        let is_zeroed = |name: &str| name.starts_with(".bss of ") && name.ends_with("/maps_unseen");
        let zeroed = measured.instant.parts.iter().find(|part| is_zeroed(&part.name)).expect("a part");
        assert!((4 << 20..(4 << 20) + 16_384).contains(&zeroed.rss_bytes), "{zeroed:?}");
        let unseen = view::view(&measured.trace, "summary", &[])["unseen"].clone();
        let mut listed = unseen.as_array().expect("a list").iter().filter(|one| one["kind"] == "mappings");
        let sentence = listed.next().map(|one| one["sentence"].as_str().expect("a sentence").to_owned());
        assert_eq!(sentence.is_some(), how == "syscall", "{unseen}");
        let text = view::text(&measured.trace, &["--full"]);
        let is_said = text.contains("no recorded call explains 25.");
        assert_eq!(is_said, how == "syscall", "{text}");
    }
}

#[test]
fn calls_and_bytes_are_those_of_strace() {
    let maps = targets::target("maps");
    let (seen, unseen) = compare_with_strace(&[maps.to_str().expect("a path")]);
    let own: Calls = calls_of_maps().into_iter().filter(|(name, _)| !name.starts_with("shm")).collect();
    assert_eq!(seen, own);
    assert!(unseen > 3, "libc maps the stacks of threads: {unseen}");
    let script = "import mmap\nx = [object() for _ in range(200000)]\nm = mmap.mmap(-1, 1 << 20)\nm.close()\ndel x\n";
    let (seen, _) = compare_with_strace(&["/usr/bin/python3", "-I", "-S", "-c", script]);
    assert!(seen["mmap"].0 >= 4 && seen["munmap"].0 > 0, "{seen:?}");
    let (seen, _) = compare_with_strace(&["node", "-e", "const a = []; for (let i = 0; i < 1e5; i++) a.push({ i });"]);
    assert!(seen["mmap"].0 > 10 && seen["munmap"].0 > 10, "{seen:?}");
}
