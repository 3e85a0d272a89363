//! Hints about the memory: each is given for a program that has its cause, and for no program that has not. A program that follows the hint
//! has gained what the hint said, within 20 %.
use format::{MemoryInstant, part_kind};
use heaptrack_tests::memory::{Watched, look_after, now_ns};
use heaptrack_tests::{process, targets};
use serde_json::Value;
use std::process::Command;

/// Hints by kind, with their gains.
fn hints(shown: &Value) -> Vec<(String, u64)> {
    let hint = |hint: &Value| {
        let text = hint["text"].as_str().expect("a text");
        assert!(text.ends_with('.'), "{text}");
        (hint["kind"].as_str().expect("a kind").to_owned(), hint["gain_bytes"].as_u64().expect("bytes"))
    };
    shown["hints"].as_array().expect("a list").iter().map(hint).collect()
}

/// Records a program until it says that it is ready, and returns what was measured then.
fn measured(command: &Command) -> (MemoryInstant, Value) {
    let measured = ready(command).measured();
    (measured.instant.clone(), measured.view())
}

fn ready(command: &Command) -> Watched {
    let mut watched = Watched::start(command, &[]);
    let mut line = watched.line();
    if line == "filled" {
        // The recorder has seen that the memory is the allocator's.
        look_after(&watched.trace, now_ns());
        process::signal("USR1", &[watched.target()]);
        line = watched.line();
    }
    assert_eq!(line, "ready");
    watched
}

fn causes(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(targets::target(name));
    command.args(words);
    command
}

fn within_20_percent(what: &str, said: u64, gained: u64) {
    assert!(said.abs_diff(gained) <= gained / 5, "{what}: the hint said {said}, and the gain is {gained}");
}

/// `with` has the cause, and gets this hint and no other. `without` has followed it, and gets no hint.
fn gains(kind: &str, with: &Command, without: &Command) {
    let (before, shown) = measured(with);
    let (after, none) = measured(without);
    let [(found, gain)] = &hints(&shown)[..] else { panic!("{}", shown["hints"]) };
    assert_eq!(found, kind, "{}", shown["hints"]);
    assert_eq!(hints(&none), [], "{kind}");
    within_20_percent(kind, *gain, before.rss_bytes.saturating_sub(after.rss_bytes));
}

#[test]
fn arenas() {
    let (before, shown) = measured(&causes("memory_causes", &["arenas"]));
    let mut followed = causes("memory_causes", &["arenas"]);
    let (after, none) = measured(followed.env("MALLOC_ARENA_MAX", "1"));
    let found = hints(&shown);
    let gain = found.iter().find(|(kind, _)| kind == "arenas").map(|(_, gain)| *gain).expect("the hint");
    within_20_percent("arenas", gain, before.rss_bytes - after.rss_bytes);
    assert!(hints(&none).iter().all(|(kind, _)| kind != "arenas"), "{}", none["hints"]);
    // The arenas are as many, and full.
    let (_, full) = measured(&causes("memory_causes", &["full"]));
    assert_eq!(hints(&full), []);
}

#[test]
fn the_top_of_the_heap() {
    let with = causes("memory_causes", &["top"]);
    gains("pinned_heap_top", &with, &causes("memory_causes", &["top", "without"]));
    // The text names the site of the block at the top.
    let text = ready(&with).measured().text(&["--full"]);
    let hint = text.lines().find(|line| line.starts_with("hint: "));
    assert!(hint.is_some_and(|hint| hint.contains("which keep allocated")), "{text}");
}

#[test]
fn stacks_of_threads() {
    gains("thread_stacks", &causes("memory_causes", &["stacks"]), &causes("memory_causes", &["stacks", "without"]));
}

#[test]
fn huge_pages() {
    gains("huge_pages", &causes("memory_causes", &["huge"]), &causes("memory_causes", &["huge", "without"]));
    let (dense, none) = measured(&causes("memory_causes", &["dense"]));
    assert!(dense.facts.huge_bytes >= 60 << 20, "{dense:?}");
    assert_eq!(hints(&none), []);
}

#[test]
fn pools_of_jemalloc() {
    let mut followed = causes("memory_causes_jemalloc", &["pools"]);
    followed.env("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0");
    gains("kept_by_pools", &causes("memory_causes_jemalloc", &["pools"]), &followed);
}

/// Bytes of live blocks that are resident, with what the allocator adds.
fn in_blocks(instant: &MemoryInstant) -> u64 {
    instant.rss_of(part_kind::BLOCKS)
}

/// Recorded as the hint says, the objects in the runtime's pools are blocks.
fn shows(kind: &str, with: &Command, without: &Command) {
    let (before, shown) = measured(with);
    let (after, none) = measured(without);
    let gain = hints(&shown).iter().find(|(found, _)| found == kind).map(|(_, gain)| *gain);
    within_20_percent(kind, gain.expect("the hint"), in_blocks(&after).saturating_sub(in_blocks(&before)));
    assert!(hints(&none).iter().all(|(found, _)| found != kind), "{}", none["hints"]);
}

#[test]
fn pools_of_python() {
    let script = "import time\nkept = [(n,) for n in range(150000)]\nprint('ready', flush=True)\ntime.sleep(600)\n";
    let python = || {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", script]);
        python
    };
    shows("pymalloc", &python(), python().env("PYTHONMALLOC", "malloc"));
    let mut small = Command::new("/usr/bin/python3");
    small.args(["-c", "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"]);
    assert_eq!(hints(&measured(&small).1), []);
}

#[test]
fn pools_of_php() {
    let script =
        "$kept = []; for ($n = 0; $n < 200000; $n++) $kept[] = str_repeat('x', 100).$n; echo \"ready\\n\"; sleep(600);";
    let php = || {
        let mut php = Command::new("php");
        php.args(["-r", script]);
        php
    };
    shows("php_pools", &php(), php().env("USE_ZEND_ALLOC", "0"));
    let mut small = Command::new("php");
    small.args(["-r", "echo \"ready\\n\"; sleep(600);"]);
    assert_eq!(hints(&measured(&small).1), []);
}

/// V8's own count of its heap is what the hint says.
#[test]
fn heap_of_v8() {
    let script = "const kept = []; for (let n = 0; n < 500000; n++) kept.push({ n, text: 'x' + n });
        global.gc(); console.log(process.memoryUsage().heapTotal); setInterval(() => kept.length, 100000);";
    let mut node = Command::new("node");
    node.args(["--expose-gc", "-e", script]);
    let mut watched = Watched::start(&node, &[]);
    let heap: u64 = watched.line().parse().expect("bytes");
    let found = hints(&watched.measured().view());
    let gain = found.iter().find(|(kind, _)| kind == "v8_heap").map(|(_, gain)| *gain);
    within_20_percent("v8_heap", gain.expect("the hint"), heap);
}
