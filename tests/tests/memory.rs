//! The parts of the resident memory: they add up to what the kernel says, at random instants at which the program is stopped.
use format::{MemoryInstant, part_kind};
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::heaptrace::Heaptrace;
use heaptrack_tests::memory::{Watched, compare, instants, look_after, now_ns};
use heaptrack_tests::process::{self, KilledOnFailure};
use heaptrack_tests::{Chance, Program, scale, view};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MB: u64 = 1 << 20;

fn named(instant: &MemoryInstant, kind: &str, is_wanted: impl Fn(&str) -> bool) -> u64 {
    let parts = instant.parts.iter().filter(|part| part.kind == kind && is_wanted(&part.name));
    parts.map(|part| part.rss_bytes).sum()
}

/// What `memory_kinds.c` says about itself.
fn has_every_kind(instant: &MemoryInstant, data: &Path, anonymous_mb: u64) {
    let path = data.to_str().expect("a path");
    assert_eq!(named(instant, part_kind::FILE, |name| name == path), 3 * MB);
    assert_eq!(named(instant, part_kind::SHARED, |name| name.contains("own-memory")), 5 * MB);
    let anonymous = instant.rss_of_mappings();
    assert!((anonymous_mb * MB..(anonymous_mb + 1) * MB).contains(&anonymous), "{anonymous}");
    let stacks = named(instant, part_kind::STACK, |name| name == "other threads");
    assert!((64 * 100_000..64 * 150_000).contains(&stacks), "{stacks}");
    assert!(instant.rss_of(part_kind::RECORDER) > 0);
    assert!(instant.page_table_bytes > 0);
}

/// The parts of the allocator, for a program that was recorded from its start.
fn allocator_is_right(instant: &MemoryInstant) {
    // Of the two large blocks, 4 MB are resident: the page of zeros is not. All other blocks are resident.
    let large = named(instant, part_kind::BLOCKS, |name| name == "own mappings");
    assert!((4 * MB..4 * MB + 16_384).contains(&large), "{large}");
    let resident = instant.requested_bytes - (24 + 8) * MB + 4 * MB;
    assert!(instant.rss_of(part_kind::BLOCKS).abs_diff(resident) < 16_384, "{resident} in {instant:?}");
    // Each thread holds 150 blocks of 1001, 1003 ... bytes. Most threads have one of the arenas, and others share the main heap.
    let in_arenas = |kind| named(instant, kind, |name| name.starts_with("arena "));
    let of_threads: u64 = 64 * (0..150u64).map(|n| 1001 + 2 * n).sum::<u64>();
    let main = named(instant, part_kind::BLOCKS, |name| name == "main heap");
    let both = in_arenas(part_kind::BLOCKS) + main;
    assert!(in_arenas(part_kind::BLOCKS) > of_threads / 2 && in_arenas(part_kind::FREE) > 100_000, "{instant:?}");
    assert!((4000 * 1350..4000 * 1650).contains(&(both - of_threads)), "{both}");
    // A chunk has a header of 8 bytes and a size that is a multiple of 16.
    let overhead = instant.rss_of(part_kind::OVERHEAD);
    let blocks = instant.live_blocks;
    assert!((blocks * 8..blocks * 24).contains(&overhead), "{overhead} bytes for {blocks} blocks");
    assert_eq!(instant.rss_of(part_kind::OLDER), 0);
}

fn data_file(folder: &heaptrack_tests::Folder) -> std::path::PathBuf {
    let data = folder.join("data");
    std::fs::write(&data, vec![1; 3 << 20]).expect("a file");
    data.canonicalize().expect("a path")
}

/// Waits for the last memory that `memory_kinds.c` touches.
fn everything_is_there(pid: u32) {
    process::wait_for("the shared memory", || {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let rss = smaps.split("own-memory").nth(1)?.lines().find(|line| line.starts_with("Rss:"))?;
        rss.contains(" 5120 kB").then_some(())
    });
}

#[test]
fn parts_of_a_launched_program_add_up() {
    let mut chance = Chance::new("memory, launched");
    let folder = heaptrack_tests::Folder::new();
    let data = data_file(&folder);
    let program = Program::target("memory_kinds").arg(&data).option("--memory-every").option("20ms");
    let running = program.start();
    let pid = running.target_with_library(&program);
    let _killed = KilledOnFailure(pid);
    everything_is_there(pid);
    let measured = compare(pid, &running.trace, &mut chance);
    for instant in &measured {
        has_every_kind(instant, &data, 7);
        assert_eq!(instant.rss_of(part_kind::MAPPED), 7 * MB, "what the program mapped itself");
        allocator_is_right(instant);
    }
    process::signal("KILL", &[pid]);
    let outcome = running.finish();
    // A replay of the events finds the same live blocks at the same times.
    let last = measured.last().expect("instants");
    let at = format!("{}ns", last.time_ns);
    let replayed = view::view(&outcome.trace, "profile", &["--at", &at]);
    assert_eq!(replayed["totals"]["live_bytes"], last.requested_bytes);
    assert_eq!(replayed["totals"]["live_allocations"], last.live_blocks);
    let shown = view::view(&outcome.trace, "memory", &["--at", &at]);
    let instants = shown["instants"].as_array().expect("a list");
    assert_eq!(instants.len(), 1);
    let mapped = instants[0]["parts"].as_array().expect("parts").iter().find(|part| part["kind"] == "mapped");
    assert_eq!(mapped.expect("a part")["name"], "main in memory_kinds");
    assert_eq!(instants[0]["rss_bytes"], last.rss_bytes);
    let sum: u64 =
        instants[0]["parts"].as_array().expect("parts").iter().filter_map(|part| part["bytes"].as_u64()).sum();
    assert_eq!(sum, last.rss_bytes);
}

#[test]
fn parts_of_an_attached_program_add_up() {
    let mut chance = Chance::new("memory, attached");
    let folder = heaptrack_tests::Folder::new();
    let data = data_file(&folder);
    let mut target = Target::start("memory_kinds", &[data.to_str().expect("a path")]);
    assert_eq!(target.line(), "ready");
    let pid = target.pid;
    let _killed = KilledOnFailure(pid);
    let session = Session::attach(pid, &["--memory-every", "20ms", "--no-symbols"]);
    let measured = compare(pid, &session.trace, &mut chance);
    for instant in &measured {
        // The large block is older than the attach. It cannot be told from other mappings.
        has_every_kind(instant, &data, 11);
        // The blocks of the threads are older than the attach, and those of the main thread are renewed.
        let older = named(instant, part_kind::OLDER, |name| name.starts_with("arena "));
        assert!(older > 64 * 150 * 1000 / 2, "{older}");
        assert_eq!(named(instant, part_kind::BLOCKS, |name| name.starts_with("arena ")), 0);
    }
    let ended = session.detach();
    let (_, all) = instants(&ended.trace);
    let last = all.last().expect("instants");
    assert!(
        last.time_ns > measured.last().expect("instants").time_ns,
        "the recorder looks a last time when it detaches"
    );
    let main = named(last, part_kind::BLOCKS, |name| name == "main heap");
    assert!(main > 4000 * 1300, "{main}");
}

/// A program in another language, which allocates most of its memory in mappings of its own.
fn compare_script(command: &mut Command, is_huge: impl Fn(&MemoryInstant) -> bool) {
    let mut chance = Chance::new("memory of a script");
    let folder = heaptrack_tests::Folder::new();
    let trace = folder.join("trace.htz");
    let words: Vec<_> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(ToOwned::to_owned).collect();
    let mut heaptrack = Command::new(heaptrack_tests::run::heaptrack());
    heaptrack.args(["-q", "--no-symbols", "--memory-every", "20ms", "-o"]).arg(&trace).args(words);
    let mut recorder = heaptrack.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("heaptrack");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(recorder.stdout.take().expect("piped")), &mut line)
        .expect("a line");
    let pid: u32 = line.trim().parse().expect("the pid");
    let _killed = KilledOnFailure(pid);
    for instant in compare(pid, &trace, &mut chance) {
        assert!(is_huge(&instant), "{instant:?}");
    }
    process::signal("KILL", &[pid]);
    recorder.wait().expect("heaptrack ends");
}

#[test]
fn parts_of_python_add_up() {
    let script = "import os, time\nsmall = [object() for _ in range(1000000)]\nlarge = bytearray(30 << 20)\nprint(os.getpid(), flush=True)\nwhile True:\n    x = [bytes(n) for n in range(2000)]\n    time.sleep(0.001)\n";
    // pymalloc's pools are mappings, and the large object is a block.
    let is_huge = |instant: &MemoryInstant| {
        instant.rss_of(part_kind::MAPPED) > 16_000_000 && instant.rss_of(part_kind::BLOCKS) > 30 * MB
    };
    compare_script(Command::new("python3").arg("-c").arg(script), is_huge);
}

#[test]
fn parts_of_node_add_up() {
    let script = "const kept = []; for (let i = 0; i < 400000; i++) kept.push({ i, text: 'x' + i });
        const buffers = Buffer.alloc(20 << 20, 1); console.log(process.pid);
        setInterval(() => { for (let i = 0; i < 1000; i++) kept[i] = { i, text: 'y' + i + buffers[i] }; }, 1);";
    // V8's heap is mapped, and the content of a buffer is a block.
    let is_huge = |instant: &MemoryInstant| {
        instant.rss_of(part_kind::MAPPED) > 20_000_000 && instant.rss_of(part_kind::BLOCKS) > 20 * MB
    };
    compare_script(Command::new("node").arg("-e").arg(script), is_huge);
}

/// The recorder looks 50 ms after the start. The program ends about then, or executes itself again.
#[test]
fn a_program_that_ends_during_a_look_leaves_no_cut_instant() {
    let mut chance = Chance::new("memory, ends");
    for round in 0..scale::count(100) {
        let is_exec = round % 2 == 0;
        let microseconds = chance.between(30_000, 70_000).to_string();
        let program = Program::target("memory_ends").option("--memory-every").option("10ms").option("--no-symbols");
        let program = program.arg(if is_exec { "exec" } else { "exit" }).arg(&microseconds);
        let running = program.start();
        if is_exec {
            let pid = running.target_with_library(&program);
            let _killed = KilledOnFailure(pid);
            std::thread::sleep(Duration::from_millis(chance.between(100, 300)));
            process::signal("KILL", &[pid]);
        }
        let outcome = running.finish();
        let (_, instants) = instants(&outcome.trace);
        for instant in instants {
            let sum = |bytes: fn(&format::MemoryPart) -> u64| instant.parts.iter().map(bytes).sum::<u64>();
            assert_eq!(sum(|part| part.rss_bytes), instant.rss_bytes, "the parts add up");
            // The stack of the main thread is at the end of the list of mappings.
            assert!(named(&instant, part_kind::STACK, |name| name == "main thread") > 0, "a cut list: {instant:?}");
            let unattributed = instant.rss_of(part_kind::UNATTRIBUTED);
            assert!(unattributed * 50 <= instant.rss_bytes, "after {microseconds} us: {instant:?}");
        }
    }
    // The same program is measured if it does not end.
    let program = Program::target("memory_ends").option("--memory-every").option("10ms").option("--no-symbols");
    let program = program.arg("exit").arg("60000000");
    let running = program.start();
    let pid = running.target_with_library(&program);
    let _killed = KilledOnFailure(pid);
    // The program may run before the trace has its name.
    let has_instants = || running.trace.exists() && !instants(&running.trace).1.is_empty();
    process::wait_for("a look that was finished", || has_instants().then_some(()));
    process::signal("KILL", &[pid]);
    let _ended = running.finish();
}

/// The cells of the map: they are in order, have the resident memory of the parts, and say what the parts say.
fn map_is_right(map: &Value, instant: &MemoryInstant) {
    assert_eq!(number(&map["rss_bytes"]), instant.rss_bytes);
    let cells = map["cells"].as_array().expect("cells");
    assert!(cells.len() > 50 && cells.len() <= 2048, "{}", cells.len());
    let mut end = 0;
    let (mut resident, mut by_kind) = (0, std::collections::BTreeMap::<String, u64>::new());
    for cell in cells {
        let [start, bytes, inside, live] =
            ["start", "bytes", "resident_bytes", "live_bytes"].map(|name| number(&cell[name]));
        assert!(start >= end && inside > 0 && inside <= bytes && live <= inside, "{cell}");
        end = start + bytes;
        resident += inside;
        let owner = &map["owners"][number(&cell["owner"]) as usize];
        *by_kind.entry(owner["kind"].as_str().expect("a kind").to_owned()).or_default() += inside;
    }
    assert!(resident.abs_diff(instant.rss_bytes) <= instant.rss_bytes / 50, "{resident} of {}", instant.rss_bytes);
    for kind in [part_kind::MAPPED, part_kind::ANONYMOUS, part_kind::STACK, part_kind::FILE, part_kind::SHARED] {
        let (drawn, expected) = (by_kind.get(kind).copied().unwrap_or(0), instant.rss_of(kind));
        // A cell has one kind, and 64 kB.
        assert!(drawn.abs_diff(expected) <= expected / 20 + (256 << 10), "{kind}: {drawn} instead of {expected}");
    }
}

#[test]
fn the_map_shows_the_resident_memory_by_owner_fill_and_age() {
    let folder = heaptrack_tests::Folder::new();
    let data = data_file(&folder);
    let program = Program::target("memory_kinds").arg(&data).option("--memory-every").option("20ms");
    let running = program.start();
    let pid = running.target_with_library(&program);
    let _killed = KilledOnFailure(pid);
    everything_is_there(pid);
    look_after(&running.trace, now_ns());
    process::signal("KILL", &[pid]);
    let outcome = running.finish();
    let (_, measured) = instants(&outcome.trace);
    let highest = measured.iter().max_by_key(|instant| instant.rss_bytes).expect("instants");
    let last = measured.last().expect("instants");
    let map = view::view(&outcome.trace, "map", &[]);
    map_is_right(&map, highest);
    let at_end = view::view(&outcome.trace, "map", &["--at", "end"]);
    assert_eq!(number(&at_end["time_ns"]), last.time_ns);
    map_is_right(&at_end, last);
    // What the program mapped itself is named by the caller, blocks by the function that allocated them.
    let owners = at_end["owners"].as_array().expect("owners");
    let has =
        |kind: &str, key: &str, value: &str| owners.iter().any(|owner| owner["kind"] == kind && owner[key] == value);
    assert!(has("mapped", "name", "main in memory_kinds"), "{owners:?}");
    assert!(owners.iter().any(|owner| owner["kind"] == "blocks" && owner["function"].is_string()), "{owners:?}");
    let ages = at_end["cells"].as_array().expect("cells").iter().filter_map(|cell| cell["age_ns"].as_u64());
    let ages: Vec<u64> = ages.collect();
    assert!(ages.len() > 10 && ages.iter().all(|age| *age <= last.time_ns), "{ages:?}");
    let few = view::view(&outcome.trace, "map", &["--limit", "7"]);
    assert_eq!(few["cells"].as_array().expect("cells").len(), 7);
    let text = view::text(&outcome.trace, &["--full"]);
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("address space at ")).collect();
    assert!(lines[0].contains(", 8 of ") && lines[1..9].iter().all(|line| line.starts_with("- ")), "{text}");
    assert!(lines[1..9].iter().any(|line| line.contains("blocks (main heap), ")), "{text}");
    let off = Program::target("hello").option("--memory-every").option("off").recorded();
    assert_eq!(note(&view::view(&off.trace, "map", &[])), "the trace has no parts of the resident memory");
}

/// Returns the fragmentation at an instant, and the site in it with this function.
fn pinning_site(trace: &Path, instant: &MemoryInstant, function: &str) -> (Value, Value) {
    let shown = view::view(trace, "memory", &["--at", &format!("{}ns", instant.time_ns)]);
    let last = shown["instants"].as_array().and_then(|instants| instants.last()).expect("instants").clone();
    let sites = last["fragmentation"]["sites"].as_array().expect("a list").clone();
    let site = sites.into_iter().find(|site| site["function"] == function);
    (last["fragmentation"].clone(), site.unwrap_or(Value::Null))
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// All but every hundredth block were freed. Freeing the others and `malloc_trim(0)` return what was predicted, within 5 %.
#[test]
fn the_site_that_pins_pages_is_named_and_what_freeing_it_returns_is_predicted() {
    let count = scale::count(1_000_000);
    let folder = heaptrack_tests::Folder::new();
    let trace = folder.join("trace.htz");
    let mut heaptrack = Command::new(heaptrack_tests::run::heaptrack());
    heaptrack
        .args(["-q", "--memory-every", "20ms", "-o"])
        .arg(&trace)
        .arg(heaptrack_tests::targets::target("memory_pinned"));
    let mut target = Target::spawn(heaptrack.arg(count.to_string()));
    assert_eq!(target.line(), "ready");
    let ready_ns = now_ns();
    let measured = look_after(&trace, ready_ns);
    let trimmed: u64 = target.tell("go on").parse().expect("bytes");
    let gained: u64 = target.line().parse().expect("bytes");
    assert_eq!(target.finish().0, 0);
    let (fragmentation, site) = pinning_site(&trace, &measured, "session");
    assert_eq!(number(&site["blocks"]), count / 100, "{fragmentation}");
    assert_eq!(number(&site["bytes"]), count * 2);
    // 100 chunks of 208 bytes take five pages, so each block that stays has a page of its own. If it reaches over the end of its page, or if the
    // header of the free chunk after it does, it has two.
    let expected = count / 100 * (4096 + 208 + 40);
    assert!(number(&site["pinned_bytes"]).abs_diff(expected) <= expected / 20, "{fragmentation}");
    let predicted = number(&site["gives_back_bytes"]);
    assert!(predicted.abs_diff(gained) <= gained / 20, "{predicted} instead of {gained}: {fragmentation}");
    assert_eq!(predicted, number(&fragmentation["trim_bytes"]) + number(&site["held_bytes"]));
    let trim = number(&fragmentation["trim_bytes"]);
    assert!(trim.abs_diff(trimmed) <= trimmed / 20, "{trim} instead of {trimmed}: {fragmentation}");
    assert_eq!(trim, measured.fragmentation.trim_bytes);
    let hints = view::view(&trace, "memory", &["--at", &format!("{}ns", measured.time_ns)])["hints"].clone();
    assert_eq!(
        (&hints[0]["kind"], &hints[0]["gain_bytes"]),
        (&Value::from("kept_by_malloc"), &Value::from(trim)),
        "{hints}"
    );
    // 100 chunks of 5008 bytes fill their pages, and are not mentioned.
    assert_eq!(pinning_site(&trace, &measured, "other").1, Value::Null);
    let until = format!("{}ns", measured.time_ns);
    let screen = view::text(&trace, &["--to", &until]).split_whitespace().collect::<Vec<_>>().join(" ");
    let named = format!(" after freeing the {} blocks of session", count / 100);
    assert!(screen.replace(',', "").contains(&named), "{screen}");
    let text = view::text(&trace, &["--full", "--to", &until]);
    let line = text.lines().find(|line| line.starts_with("- pinned by session: "));
    let line = line.expect("the line about the site");
    assert!(line.contains(&format!(" in {} blocks, alone in ", count / 100)), "{line}");
    assert!(text.contains("\nmostly free pages at "), "{text}");
}

/// What the allocators themselves count: malloc's chunks in use (mallinfo2, malloc_info), jemalloc's stats.allocated, the blocks that
/// mimalloc visits.
#[test]
fn live_blocks_are_those_that_allocators_count() {
    for name in ["memory_stats", "memory_stats_jemalloc", "memory_stats_mimalloc"] {
        let mut watched = Watched::start(&Command::new(heaptrack_tests::targets::target(name)), &["--no-symbols"]);
        let said: u64 = watched.line().parse().expect("bytes");
        let instant = watched.measured().instant;
        let usable = instant.usable_bytes;
        assert!(usable.abs_diff(said) <= said / 50, "{name}: {usable} instead of {said}");
        let resident = instant.rss_of(part_kind::BLOCKS) + instant.rss_of(part_kind::OVERHEAD);
        assert!(resident.abs_diff(said) <= said / 50, "{name}: {resident} resident instead of {said}");
    }
}

/// A program that frees nothing pins nothing.
#[test]
fn a_program_without_free_pages_has_no_pinned_pages() {
    let recorded = Program::new("sleep").arg("0.6").recorded();
    assert!(!view::text(&recorded.trace, &["--full"]).contains("mostly free pages"));
    assert!(!view::text(&recorded.trace, &[]).contains("malloc_trim"));
    assert_eq!(view::view(&recorded.trace, "memory", &[])["hints"], Value::Array(Vec::new()));
}

#[test]
fn heaptrace_and_the_text_report_show_the_parts() {
    let traced = Heaptrace::new(["sleep", "0.6"]).run();
    let dumps = traced.dumps();
    let labels: Vec<&str> = dumps[0].memory.iter().map(|(label, _)| label.as_str()).collect();
    assert!(labels[0].starts_with("resident memory at "), "{labels:?}");
    assert_eq!(labels[1..], ["- live blocks", "- other memory", "- heaptrack's own", "- beside it"]);
    let recorded = Program::new("sleep").arg("0.6").recorded();
    let text = view::text(&recorded.trace, &["--full"]);
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("resident memory at ")).collect();
    assert!(
        lines[1].starts_with("- live blocks: ") && lines[1].contains(" requested; added by the allocator: "),
        "{text}"
    );
    assert!(lines[3].contains("unattributed: 0B"), "{text}");
}

fn note(view: &Value) -> &str {
    view["note"].as_str().unwrap_or("")
}

#[test]
fn a_trace_without_parts_says_so() {
    let off = Program::target("hello").option("--memory-every").option("off").recorded();
    let shown = view::view(&off.trace, "memory", &[]);
    assert_eq!(note(&shown), "the trace has no parts of the resident memory");
    assert_eq!(shown["instants"], Value::Array(Vec::new()));
    let refused = Program::target("hello").option("--memory-every").option("1ms").recorded();
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("must be at least 10ms, or off"), "{}", refused.stderr);
}
