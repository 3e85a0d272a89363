//! `--sample`: what a sample says about all blocks, and how often it is right.
use channel::SamplingSetup;
use heaptrack_tests::attach::Target;
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::sampled::{Coverage, TOTALS, cover_stacks, cover_totals, report, resample, total};
use heaptrack_tests::server::Server;
use heaptrack_tests::targets::target;
use heaptrack_tests::view::{text, view};
use heaptrack_tests::{Folder, Program, process, scale};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

const LISTS: &str =
    "x=[bytes(i%3000) for i in range(40000)]; y={i: str(i)*(i%30) for i in range(40000)}; z=sorted(y.values())";
const SQL: &str = "create table t(a,b); with recursive n(i) as (select 1 union all select i+1 from n where i<20000) insert into t select i, hex(randomblob(i%200)) from n; select count(*), max(length(b)) from t group by a%97;";
const PERL: &str = "my %h; for my $i (1..40000) { push @{$h{$i % 500}}, 'y' x ($i % 200) } print scalar keys %h";

/// How many stacks of a program are compared: those with the most allocations.
const STACKS: usize = 200;

/// Six programs with different heaps. Each makes the same calls in every run.
fn programs() -> Vec<(&'static str, Program)> {
    vec![
        ("python", Program::new("/usr/bin/python3").env("PYTHONHASHSEED", "0").env("PYTHONMALLOC", "malloc").args(["-c", LISTS])),
        ("sqlite", Program::new("sqlite3").args([":memory:", SQL])),
        ("perl", Program::new("perl").env("PERL_HASH_SEED", "0").args(["-e", PERL])),
        ("jq", Program::new("jq").args(["-n", "[range(6000) | {a: ., b: (tostring * 5)}] | map(.b) | length"])),
        ("sort", Program::new("bash").args(["-c", "for i in {1..8000}; do a[i]=$((i*7919%10007))x; done; echo ${#a[@]}"])),
        ("mawk", Program::new("mawk").args(["BEGIN { for (i = 0; i < 30000; i++) { a[i] = sprintf(\"%d-%d\", i, i * i); b = b a[i] } print length(b) }"])),
    ]
}

/// A rate at which about this many blocks are taken.
fn rate_for(exact: &Value, samples: u64) -> u64 {
    (total(exact, "allocated_bytes") / samples).clamp(64, 1_000_000)
}

fn assert_between(name: &str, coverage: Coverage, (least, most): (f64, f64)) {
    let percent = coverage.percent();
    println!("{name}: {percent:.1} % of {}", coverage.tried);
    assert!((least..=most).contains(&percent), "{name}: {percent:.1} % of {} intervals hold the truth", coverage.tried);
}

/// Few seeds say less: five standard errors below the 94 % that all of them give.
fn least_of_few(tried: u64) -> f64 {
    94.0 - 500.0 * (0.94 * 0.06 / tried as f64).sqrt()
}

/// The sampler of the target, applied to exact traces of six programs with many seeds. The intervals that `print --json`
/// shows hold the truth as often as they claim to.
#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let folder = Folder::new();
    let mut covered: HashMap<String, Coverage> = HashMap::new();
    for (name, program) in programs() {
        let exact = program.recorded();
        assert_eq!(exact.code, 0, "{name}: {}", exact.stderr);
        let truth = report(&exact.trace, STACKS);
        let rate = rate_for(&truth, 1500);
        for seed in 0..scale::count(200) {
            let sampled = folder.join("sampled.htz");
            resample(&exact.trace, &sampled, SamplingSetup { rate, exact_above: 0, seed });
            let estimate = report(&sampled, 0);
            cover_totals(&truth, &estimate, &mut covered);
            cover_stacks(&truth, &estimate, rate, &mut covered);
        }
    }
    let mut names: Vec<_> = covered.keys().cloned().collect();
    names.sort();
    for name in names {
        let bounds = match scale::soak() {
            true => (93.0, if name.contains("small") { 100.0 } else { 97.0 }),
            false => (least_of_few(covered[&name].tried), 100.0),
        };
        assert_between(&name, covered[&name], bounds);
    }
}

/// Recordings that really sample: their intervals, too, hold the numbers of an exact recording.
#[test]
fn live_samples_agree_with_an_exact_recording() {
    let mut covered: HashMap<String, Coverage> = HashMap::new();
    for (name, program) in programs() {
        let truth = report(&program.recorded().trace, 1);
        let rate = rate_for(&truth, 1500);
        for seed in 0..scale::count(10) {
            let seed = seed.to_string();
            let run =
                program.clone().option("--sample").option(rate.to_string()).env("HEAPTRACK_TEST_SAMPLE_SEED", &seed);
            let outcome = run.recorded();
            assert_eq!(outcome.code, 0, "{name}: {}", outcome.stderr);
            let estimate = report(&outcome.trace, 1);
            for lost in ["lost_events", "unknown_frees", "implied_frees"] {
                assert_eq!(total(&estimate, lost), 0, "{name}: {lost}");
            }
            assert_eq!(estimate["sampling"]["rate_bytes"], rate);
            cover_totals(&truth, &estimate, &mut covered);
        }
    }
    let mut all = Coverage::default();
    covered.values().for_each(|coverage| all.merge(*coverage));
    // The totals of one run depend on each other, so few runs may be far from 95 %.
    assert_between("live", all, if scale::soak() { (89.0, 100.0) } else { (70.0, 100.0) });
}

fn refusal(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(heaptrack()).args(arguments).output().expect("heaptrack");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn sampled_trace(folder: &Folder) -> std::path::PathBuf {
    let program = Program::new("perl").args(["-e", PERL]).option("--sample").option("10k");
    let outcome = program.recorded();
    let path = folder.join("sampled.htz");
    std::fs::copy(&outcome.trace, &path).expect("copied");
    path
}

/// With `--exact-above 1` every block is taken, so a recording that samples has the numbers of one that does not. The
/// static program is patched, and decides after the real call.
#[test]
fn a_sample_of_all_blocks_is_exact() {
    for name in ["sampled_calls", "sampled_calls_static"] {
        let program = Program::target(name);
        let exact = program.recorded();
        let sampled = program.clone().option("--sample").option("16M").option("--exact-above").option("1").recorded();
        assert_eq!((sampled.code, &sampled.stdout), (0, &exact.stdout), "{name}: {}", sampled.stderr);
        let (exact, sampled) = (report(&exact.trace, 1), report(&sampled.trace, 1));
        for (total_name, _) in TOTALS {
            assert_eq!(total(&sampled, &format!("{total_name}_error")), 0, "{name}: {total_name}");
        }
        for of_all in
            ["allocations", "deallocations", "allocated_bytes", "temporary", "leaked_bytes", "leaked_allocations"]
        {
            assert_eq!(total(&sampled, of_all), total(&exact, of_all), "{name}: {of_all}");
        }
        for missing in ["lost_events", "unknown_frees", "implied_frees"] {
            assert_eq!(total(&sampled, missing), 0, "{name}: {missing}");
        }
    }
}

/// A realloc that cannot be recorded leaves its block among those whose free will be recorded. Otherwise the block would look leaked.
#[test]
fn a_realloc_that_is_lost_does_not_make_its_block_a_leak() {
    let program =
        Program::target("sampled_refused").option("--sample").option("16M").option("--exact-above").option("1");
    let outcome = program.same_output();
    assert_eq!(outcome.stdout, "in place\n", "{}", outcome.stderr);
    let report = outcome.report();
    let site = report.of_size(100_000);
    assert_eq!((site.allocations, site.leaked_allocations), (1, 0));
    assert_eq!((report.total("lost_events"), report.total("unknown_frees")), (1, 0));
}

/// What needs every block refuses a sample, with a sentence.
#[test]
fn what_needs_every_block_refuses_a_sample() {
    let folder = Folder::new();
    let trace = sampled_trace(&folder);
    let (trace, out) = (trace.to_str().expect("text"), folder.join("out"));
    let out = out.to_str().expect("text");
    for (arguments, words) in [
        (vec!["merge", trace, trace, "-o", out], "its blocks were sampled"),
        (vec!["diff", trace, trace], "a comparison needs every block"),
        (vec!["analyze", "--no-browser", trace, "--compare", trace], "a comparison needs every block"),
        (vec!["check", "--max-peak", "1G", trace], "a budget needs every block"),
        (vec!["export", "--to", "heaptrack", trace, "-o", out], "--to heaptrack needs every block"),
        (vec!["export", "--to", "massif", trace, "-o", out], "--to massif needs every block"),
        (vec!["print", "--view", "diff", "--diff", trace, trace], "a comparison needs every block"),
        (vec!["--sample", "512k", "--follow", "true"], "cannot be used with"),
        (vec!["--sample", "512k", "-p", "1"], "cannot be used with"),
        (vec!["--sample", "0", "true"], "must be at least 1"),
        (vec!["--sample", "1G", "true"], "must be at most 16.0 MB"),
        (vec!["--exact-above", "64k", "true"], "--sample"),
    ] {
        let (code, stderr) = refusal(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
}

/// A place of which fewer than 6 live blocks were taken has no verdict, whatever they look like.
#[test]
fn few_samples_of_a_place_give_no_verdict() {
    let folder = Folder::new();
    let exact = folder.join("exact.htz");
    let mut command = with_default_signals(heaptrack());
    command.args(["-q", "-o"]).arg(&exact).arg(target("ledger"));
    let mut program = Target::spawn(&mut command);
    assert_eq!(program.line(), "ready");
    assert_eq!(program.tell("+60 100"), "60 6000");
    assert_eq!(program.finish().0, 0);
    let of_hold = |trace: &Path| {
        let leaks = view(trace, "leaks", &[]);
        leaks["sites"].as_array().unwrap().iter().find(|site| site["function"] == "hold").cloned()
    };
    assert_ne!(of_hold(&exact).expect("the place")["verdict"], "unclear");
    let setup = SamplingSetup { rate: 1000, exact_above: 0, seed: 0 };
    let weight = format::Sampling { rate: setup.rate, exact_above: 0 }.bytes_of_one(100);
    let (mut clear, mut unclear) = (0, 0);
    for seed in 0..30 {
        let sampled = folder.join("sampled.htz");
        resample(&exact, &sampled, SamplingSetup { seed, ..setup });
        let Some(site) = of_hold(&sampled) else { continue };
        let taken = site["live_bytes"].as_u64().unwrap() / weight;
        let is_unclear = site["verdict"] == "unclear";
        assert_eq!(is_unclear, taken < 6, "seed {seed}: {site}");
        let reason = format!("{taken} of its live blocks {} sampled", if taken == 1 { "was" } else { "were" });
        assert!(!is_unclear || site["reason"].as_str().unwrap().starts_with(&reason), "{site}");
        *(if is_unclear { &mut unclear } else { &mut clear }) += 1;
    }
    assert!(clear > 3 && unclear > 3, "{clear} and {unclear}");
}

/// Without all blocks, it is not known how much of the allocator's memory is free.
#[test]
fn memory_of_a_sample_is_not_divided_into_live_and_free() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut command = with_default_signals(heaptrack());
    command.args(["-q", "--sample", "4k", "--memory-every", "20ms", "-o"]).arg(&trace).arg(target("ledger"));
    let mut program = Target::spawn(&mut command);
    assert_eq!(program.line(), "ready");
    assert_eq!(program.tell("+3000 1000"), "3000 3000000");
    let instant = process::wait_for("a look at the memory", || {
        let memory = view(&trace, "memory", &[]);
        let heap = |instant: &Value| -> u64 {
            let parts = instant["parts"].as_array().unwrap().iter().filter(|part| part["kind"] == "heap");
            parts.map(|part| part["rss_bytes"].as_u64().unwrap()).sum()
        };
        memory["instants"].as_array().unwrap().iter().find(|instant| heap(instant) >= 3_000_000).cloned()
    });
    for part in instant["parts"].as_array().unwrap() {
        assert!(!["blocks", "overhead", "free"].contains(&part["kind"].as_str().unwrap()), "{part}");
    }
    let sum: u64 = instant["parts"].as_array().unwrap().iter().map(|part| part["rss_bytes"].as_u64().unwrap()).sum();
    assert_eq!(instant["rss_bytes"], sum);
    for unknown in ["live_blocks", "requested_bytes", "usable_bytes"] {
        assert_eq!(instant[unknown], Value::Null, "{unknown}");
    }
    assert_eq!(program.finish().0, 0);
    assert!(text(&trace, &[]).contains("the allocator's "), "{}", text(&trace, &[]));
    assert!(view(&trace, "map", &[])["note"].is_string(), "there is no map");
}

/// The page's server: each trace says that its numbers are estimates, how certain the totals are, and that it cannot be
/// compared. Every view says so, too.
#[test]
fn the_server_says_that_numbers_are_estimates() {
    let folder = Folder::new();
    let sampled = sampled_trace(&folder);
    let exact = folder.join("exact.htz");
    std::fs::copy(&Program::target("leaky").recorded().trace, &exact).unwrap();
    let server = Server::start(&[sampled.clone(), exact], &[]);
    let status = server.get("status", &[]).1;
    let report = report(&sampled, 1);
    let of_sample = &status["traces"][0]["session"]["sampling"];
    assert_eq!(of_sample["rate_bytes"], 10_000);
    for (name, _) in TOTALS {
        assert_eq!(of_sample["totals_error"][name], report["totals"][format!("{name}_error")], "{name}");
    }
    assert_eq!(status["traces"][1]["session"]["sampling"], Value::Null);
    let note = status["traces"][0]["notes"][0].as_str().unwrap();
    assert!(note.starts_with("Blocks were sampled, once in 10.0 kB on average"), "{note}");
    for (base, trace) in [("0", "1"), ("1", "0")] {
        let (code, answer) = server.get("pairs", &[("compare", base.to_owned()), ("trace", trace.to_owned())]);
        assert_eq!(code, 400, "{answer}");
        assert!(answer.to_string().contains("a comparison of traces needs every block"), "{answer}");
    }
    for name in ["summary", "profile", "bottom-up", "timeline", "leaks", "sizes", "lifetimes", "threads"] {
        let answer = server.get(name, &[("trace", "0".to_owned())]).1;
        assert_eq!(answer["sampling"]["rate_bytes"], 10_000, "{name}");
        assert_eq!(server.get(name, &[("trace", "1".to_owned())]).1.get("sampling"), None, "{name}");
        assert_eq!(view(&sampled, name, &[])["sampling"]["rate_bytes"], 10_000, "{name}");
    }
    let errors = view(&sampled, "summary", &[])["totals_error"].clone();
    assert_eq!(errors, of_sample["totals_error"]);
}

/// `--live`: the page of a recording that samples.
#[test]
fn the_live_page_of_a_sample_has_its_estimates() {
    let folder = Folder::new();
    let trace = folder.join("ledger.htz");
    let mut command = with_default_signals(heaptrack());
    let (read, write) = std::io::pipe().unwrap();
    command.args(["--live", "--sample", "1k", "-o"]).arg(&trace).arg(target("ledger"));
    let mut program = Target::spawn(command.env_remove("DISPLAY").stderr(write));
    drop(command);
    let mut lines = BufReader::new(read).lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line.strip_prefix("heaptrack: http://")?.to_owned()));
    let server = Server::at(&address.expect("an address"));
    assert_eq!(program.line(), "ready");
    assert_eq!(program.tell("+1000 100"), "1000 100000");
    let status = process::wait_for("the page to follow", || {
        let status = server.get("status", &[("trace", "0".to_owned())]).1;
        let session = &status["traces"][0]["session"];
        (session["events"].as_u64() > Some(500)).then(|| session.clone())
    });
    assert_eq!(status["sampling"]["rate_bytes"], 1000);
    assert!(status["sampling"]["totals_error"]["leaked_bytes"].as_u64() > Some(0));
}

/// A part of a sampled trace has the numbers that the whole trace has for that part.
#[test]
fn a_part_of_a_sampled_trace_is_a_sampled_trace() {
    let folder = Folder::new();
    let trace = sampled_trace(&folder);
    let part = folder.join("part.htz");
    let (code, stderr) = refusal(&["trim", trace.to_str().unwrap(), "--to", "50%", "-o", part.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{stderr}");
    let json = |path: &Path, more: &[&str]| -> serde_json::Value {
        let output =
            Command::new(heaptrack()).args(["print", "--json"]).args(more).arg(path).output().expect("heaptrack");
        serde_json::from_slice(&output.stdout).expect("json")
    };
    let (whole, part) = (json(&trace, &["--to", "50%"]), json(&part, &[]));
    assert_eq!(part["sampling"], whole["sampling"]);
    for name in TOTALS.iter().flat_map(|(name, _)| [name.to_string(), format!("{name}_error")]) {
        assert_eq!(part["totals"][&name], whole["totals"][&name], "{name}");
    }
}
