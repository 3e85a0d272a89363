//! The answers for a trace whose numbers are known: instants, empty results, and times and threads that do not exist.
use super::made::Files;
use super::{run, words};
use serde_json::{Value, json};

fn text(files: &Files, line: &str) -> String {
    run(files, &words(line)).unwrap_or_else(|sentence| panic!("{line}: {sentence}")).stdout
}

fn answer(files: &Files, line: &str) -> Value {
    serde_json::from_str(&text(files, line)).unwrap()
}

fn refused(files: &Files, line: &str) -> String {
    run(files, &words(line)).map_or_else(|sentence| sentence, |written| panic!("{line}: {}", written.stdout))
}

#[test]
fn an_instant_is_what_was_live() {
    let files = Files::new("instants");
    let said = text(&files, "--full --at 2s");
    assert!(said.contains("\nLIVE AT 2.000s\n100B live in 1 block from\nqsort\n  in /usr/lib/libc.so.6\n"), "{said}");
    assert!(said.contains("\n80B live in 4 blocks from\nfill()\n"), "{said}");
    assert!(said.contains("IN YOUR OWN CODE, LIVE AT 2.000s\n      100B"), "{said}");
    assert!(said.contains("\ntotal memory live at 2.000s: 290B in 7 blocks\n"), "{said}");
    for wrong in ["PEAK", "peak", "leaked", "0 calls", "TEMPORARY", "deallocations"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
    let same = answer(&files, "--json --at 2s");
    let totals = |name: &str| same["totals"][name].as_u64().unwrap();
    assert_eq!(totals("leaked_bytes") + totals("suppressed_bytes"), 290);
    assert_eq!(totals("leaked_allocations") + totals("suppressed_allocations"), 7);
    assert_eq!((totals("leaked_bytes"), totals("suppressed_bytes")), (180, 110));
    assert_eq!(same["leaked"][0]["leaked_bytes"], 100);
    assert_eq!(answer(&files, "--json --at 2s --cost live")["live"][0]["value"], 100);
}

#[test]
fn views_of_an_instant_have_no_peak() {
    let files = Files::new("instant-views");
    let sum = |list: &Value| list.as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).sum::<u64>();
    let sizes = answer(&files, "--view sizes --at 1500ms");
    assert_eq!((sum(&sizes["live_bytes"]), sum(&sizes["peak_bytes"])), (5220, 0));
    let threads = answer(&files, "--view threads --at 1500ms");
    let costs: Vec<_> = threads["threads"].as_array().unwrap().iter().map(|row| &row["costs"]).collect();
    let of = |name: &str| costs.iter().map(|costs| costs[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!((of("live_bytes"), of("peak_bytes"), of("allocations")), (vec![5110, 110], vec![0, 0], vec![0, 0]));
    let diff = answer(&files, "--view diff --compare @500ms");
    assert_eq!((&diff["cost"], &diff["base_total"]), (&json!("live"), &json!(110)));
    assert!(refused(&files, "--view diff --compare @500ms --cost peak").contains("--cost peak"));
    assert!(refused(&files, "--at 2s --cost peak").contains("--cost peak"));
}

#[test]
fn a_range_that_ends_early_leaks_nothing() {
    let files = Files::new("ranges");
    let said = text(&files, "--to 2s -l");
    assert!(
        said.contains("\nSTILL LIVE AT 2.000s\n") && said.contains("total memory still live at 2.000s: 180B"),
        "{said}"
    );
    assert!(!said.contains("LEAKS\n") && !said.contains("memory leaked"), "{said}");
    assert!(text(&files, "-l").contains("\nMEMORY LEAKS\n"), "the whole session");
    assert_eq!(answer(&files, "--json --to 1h"), answer(&files, "--json"), "no later than the end");
}

/// The trace has every section that the screen can have, except for what was not seen.
#[test]
fn every_section_fits_on_one_screen() {
    let files = Files::new("screen");
    for line in ["", "--from 500ms", "--at 2s", "--no-suppressions"] {
        let said = text(&files, line);
        assert!(said.lines().count() <= 45 && said.contains("\nNext:       heaptrack analyze "), "{line}: {said}");
        for heading in ["PROCESSES: 2", "ALLOCATORS", "REPORTED BY THE PROGRAM ITSELF, NOT COUNTED ABOVE"] {
            assert!(said.contains(&format!("\n{heading}\n")), "{line}: {heading} is missing: {said}");
        }
    }
    let memory = "\nMEMORY BEYOND THE HEAP\n  8.19 kB resident at 2.000 s: files 7.90 kB, live blocks 290 B\n";
    assert!(text(&files, "").contains(memory), "{}", text(&files, ""));
}

#[test]
fn two_moments_are_compared_in_text() {
    let files = Files::new("moments");
    let screen = text(&files, "--compare @1s");
    assert!(screen.contains("\nlive            5.22 kB       290 B    -4.93 kB  -94.4 %\n"), "{screen}");
    assert!(!screen.contains("peak") && screen.contains("WHAT CHANGED IN LIVE MEMORY\n"), "{screen}");
    let said = text(&files, "--full --compare @1s");
    assert!(said.contains("WHAT CHANGED IN LIVE MEMORY\n"), "{said}");
    assert!(said.contains("\n      5.22K        290B      -4.93K             all\n"), "{said}");
    assert!(said.contains("\nchange of memory live at 4.000s: -4.93K in 2 blocks\n"), "{said}");
    assert!(said.contains("\nLIVE AT 4.000s\n-5.00K live in -1 blocks from\nqsort\n"), "{said}");
}

#[test]
fn levels_are_shown_as_asked() {
    let files = Files::new("levels");
    let said = text(&files, "--include parse --hide all-but-mine");
    assert!(said.contains("text::parse()\n") && !said.contains("fill()"), "{said}");
    let said = text(&files, "--include grow --depth 2 --cost peak");
    assert!(said.contains("5.10K peak memory consumed over 2 calls from\nqsort\n"), "{said}");
    assert!(said.contains("\n    and 2 outer levels (--depth)\n") && !said.contains("main\n"), "{said}");
    let said = text(&files, "--cost allocations --merge function --include parse");
    assert!(said.contains("5 calls to allocation functions with 10B peak consumption from\nfill()\n"), "{said}");
    assert_eq!(said.matches("text::parse()").count(), 1, "one stack: {said}");
    let said = text(&files, "--cost allocations --merge module --include parse");
    assert!(said.contains("from\n/usr/lib/libfill.so\n") && said.contains("\n    /home/me/app/app\n"), "{said}");
    let found = answer(&files, "--json --limit 1 --depth 1 --hide libc");
    assert_eq!(found["peak"].as_array().unwrap().len(), 1);
    assert_eq!(found["peak"][0]["frames"].as_array().unwrap().len(), 1);
    assert_eq!(found["peak"][0]["frames"][0]["line"], 6);
    assert_eq!((&found["peak"][0]["levels_left_out"], &found["peak"][0]["blamed"]), (&json!(2), &json!(0)));
    assert_eq!(answer(&files, "--json -n 0")["peak"], json!([]), "only totals");
}

#[test]
fn an_empty_result_says_why() {
    let files = Files::new("empty");
    for (line, note) in [
        ("--include nowhere", "no stack matches `include nowhere`"),
        ("--filter-bt-function nowhere", "no stack matches `nowhere`"),
        ("--at start", "nothing was live at 0.0 ms"),
        ("--size 7..8", "nothing was allocated, freed or live that matches `size 7..8`"),
        (
            "--from 2500ms --to 2700ms --include load",
            "nothing was allocated, freed or live between 2.500 s and 2.700 s that matches `include load`",
        ),
    ] {
        let full = text(&files, &format!("--full {line}"));
        assert!(full.contains(&format!("\n{note}\n")), "{line}: {full}");
        let screen = text(&files, line).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            screen.contains(note) && (screen.contains(&format!("; only {line}")) || line.starts_with("--at")),
            "{line}: {screen}"
        );
        for form in ["--json", "--view flame", "--view sizes", "--view leaks", "--view threads", "--view callers"] {
            assert_eq!(answer(&files, &format!("{form} {line}"))["note"], note, "{form} {line}");
        }
    }
    assert!(
        text(&files, "--full --from 3500ms --include grow")
            .contains("\nMOST TEMPORARY ALLOCATIONS\nno allocation was temporary\n")
    );
    for (line, note) in [
        ("--view callers --function nowhere", "no function in these stacks matches `nowhere`"),
        ("--view source --source-file nowhere", "no source file in these stacks has `nowhere` in its path"),
        ("--view flame --cost temporary --include grow", "no allocation was temporary"),
        ("--view suppressions --include parse", "no suppression matches anything that is live"),
    ] {
        assert_eq!(answer(&files, line)["note"], note, "{line}");
    }
    for line in
        ["--json", "--view flame", "--view leaks", "--view callers --function parse", "--view diff --compare @1s"]
    {
        assert_eq!(answer(&files, line)["note"], Value::Null, "{line}");
    }
}

#[test]
fn what_a_trace_does_not_have_is_refused() {
    let files = Files::new("misfits");
    for form in ["", "--json ", "--view flame ", "--view timeline ", "--view leaks ", "-H /dev/null "] {
        for (line, sentence) in [
            ("--from 3s --to 1s", "--from 3s is not before the end of the range, 1s: nothing would be left ("),
            ("--from 80% --to 1s", "--from 80% is not before the end of the range, 1s: nothing would be left ("),
            ("--from 9s", "--from 9s is after the end of the trace, which is 4.000 s long ("),
            ("--thread 9", "--thread 9 is not in the trace, which has threads 0 to 1 ("),
            ("--process 9", "--process 9 is not in the trace, which has 2 processes: app, worker ("),
            ("--process #2", "--process #2 is not in the trace, which has 2 processes: app, worker ("),
        ] {
            let said = refused(&files, &format!("{form}{line}"));
            assert!(said.starts_with(sentence), "{form}{line}: {said}");
        }
    }
    assert!(refused(&files, "--at 9s").starts_with("--at 9s is after the end of the trace"));
    assert!(refused(&files, "--compare @9s").starts_with("--compare @9s is after the end of the trace"));
    assert!(refused(&files, "--compare @3s..1s").starts_with("--compare @3s..1s ends before it begins"));
    assert_eq!(refused(&files, "--event 0"), "--event 0: allocations are numbered from 1");
    assert!(refused(&files, "--event 99").starts_with("--event 99: "));
}

#[test]
fn processes_are_shown_as_a_tree_and_can_be_asked_for() {
    let files = Files::new("processes");
    let said = text(&files, "--full");
    let tree = "\nPROCESSES\n      peak     leaked      calls    at peak  ended      command\n     1.38K       180B         10       110B  runs       ./app (7)\n     5.11K       110B          3      5.11K  runs         ./worker 1 (8)\nall processes together held most at 1.000s: 5.22K in 5 blocks; 2 were alive then\n";
    assert!(said.contains(tree), "{said}");
    let said = text(&files, "--limit 1");
    assert!(said.contains("\n           and 1 more process, with peaks of at most 5.11K\n"), "{said}");
    let only = text(&files, "--full --process worker");
    assert!(only.contains("./worker 1 (8)\n") && !only.contains("./app (7)"), "{only}");
    let whole = answer(&files, "--json");
    let totals = |name: &str| -> Vec<u64> {
        let rows = whole["processes"].as_array().unwrap();
        rows.iter().map(|row| row["totals"][name].as_u64().unwrap()).collect()
    };
    assert_eq!((totals("allocations"), totals("leaked_bytes")), (vec![10, 3], vec![180, 110]));
    assert_eq!(whole["totals"]["allocations"], 13);
    let peak = &whole["combined_peak"];
    assert_eq!((&peak["time_ns"], &peak["bytes"]), (&json!(1_000_000_000), &json!(5220)));
    let held = |row: &Value| (row["name"].clone(), row["bytes"].clone());
    let held: Vec<_> = peak["processes"].as_array().unwrap().iter().map(held).collect();
    assert_eq!(held, [(json!("worker"), json!(5110)), (json!("app"), json!(110))]);
    for line in ["--process 8", "--process worker", "--process #1", "--thread 1"] {
        let part = answer(&files, &format!("--json {line}"));
        assert_eq!(part["totals"]["allocations"], 3, "{line}");
        assert_eq!(part["totals"]["peak_bytes"], 5110, "{line}");
    }
    let both = answer(&files, "--json --process worker --process 7");
    assert_eq!(both["totals"], whole["totals"]);
    let view = answer(&files, "--view processes --include parse");
    let costs = |row: &Value| row["costs"]["allocations"].as_u64().unwrap();
    assert_eq!(view["processes"].as_array().unwrap().iter().map(costs).collect::<Vec<_>>(), [5, 0]);
    assert_eq!(view["commands"][0]["name"], "app");
    let lanes = answer(&files, "--view timeline --by process --points 4");
    let lane = |at: usize| (lanes["bands"][at]["pid"].clone(), lanes["bands"][at]["live_bytes"].clone());
    assert_eq!(lane(0), (json!(8), json!([5110, 5110, 110, 110])));
    assert_eq!(lane(1).0, json!(7));
    assert_eq!(answer(&files, "--view timeline --by command")["bands"][0]["name"], "worker");
    assert!(refused(&files, "--view leaks --by process").contains("--by process"));
}

#[test]
fn the_other_domain_may_have_its_peak_at_another_time() {
    let files = Files::new("peaks");
    // The peak of malloc's blocks is at 1 s, the peak of the custom blocks is at the start.
    let said = text(&files, "--full --from 500ms --to peak");
    assert!(said.contains("\ntotal runtime: 0.50s.\n"), "{said}");
    let refusal = refused(&files, "--from 500ms --to peak --domain custom");
    assert!(refusal.starts_with("--from 500ms is not before the end of the range, peak"), "{refusal}");
}
