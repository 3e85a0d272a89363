//! `--follow`: what is made of the trace of a tree. With a size limit, cut, merged, exported or compared, every process keeps the numbers of
//! `print --json`, and so do all together.
use format::ProcessStart;
use heaptrack_tests::processes::{counts, processes};
use heaptrack_tests::replay::tables;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::view::{self, rows, view};
use heaptrack_tests::{Folder, Outcome, Program, Report};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const BOUND: u64 = 1_000_000;

fn bounded(program: &Program) -> Outcome {
    let outcome = program.clone().option("--follow").option("--max-size").option(BOUND.to_string()).recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let size = std::fs::metadata(&outcome.trace).expect("a trace").len();
    assert!(size <= BOUND, "{size} bytes");
    outcome
}

/// The sum of a number over the processes of a report.
fn sum(report: &Report, path: &[&str]) -> u64 {
    let list = report.json()["processes"].as_array().expect("processes").iter();
    list.filter_map(|process| path.iter().fold(process, |value, key| &value[*key]).as_u64()).sum()
}

/// The processes count their own calls. The trace has sums instead of most of their events.
#[test]
fn a_size_limit_holds_for_the_whole_tree_and_each_process_keeps_its_counts() {
    let outcome = bounded(&Program::target("family").args(["1", "2", "3", "200"]));
    let report = outcome.whole_report();
    assert!(report.json()["folded_until_ns"].as_u64().is_some(), "the limit was reached");
    let all = processes(&outcome.trace);
    let mut told: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
    let mut recorded: Vec<String> =
        all.values().filter_map(|process| Some(counts(process, process.end.as_ref()?))).collect();
    told.sort();
    recorded.sort();
    assert_eq!(recorded, told);
    assert!(all.values().any(|one| one.start == ProcessStart::Executed) && all.len() >= 13, "{} entries", all.len());
    for total in ["allocations", "allocated_bytes", "leaked_allocations", "leaked_bytes"] {
        assert_eq!(report.total(total), sum(&report, &["totals", total]), "{total}: left is all together");
    }
    // The view counts again, from the sums and from the events that remained.
    let counted = view(&outcome.trace, "processes", &[]);
    for row in counted["processes"].as_array().expect("processes") {
        for total in ["allocations", "allocated_bytes", "leaked_allocations", "leaked_bytes"] {
            assert_eq!(row["costs"][total], row["totals"][total], "{total} of {row}");
        }
    }
}

/// The processes share a lock, and know what all of them hold together.
#[test]
fn a_size_limit_does_not_change_the_combined_peak() {
    let outcome = bounded(&Program::target("family_peak").args(["3", "900"]));
    let report = outcome.whole_report();
    let until = report.json()["folded_until_ns"].as_u64().expect("the limit was reached");
    assert!(until > 0, "{until}");
    let keys = ["peak_bytes", "peak_allocations", "leaked_allocations", "leaked_bytes"];
    let told = outcome.stdout.split_whitespace().filter_map(|word| word.split_once('='));
    let told: Vec<u64> = told.map(|(_, number)| number.parse().expect("a number")).collect();
    assert_eq!(keys.map(|key| report.total(key)).to_vec(), told, "{keys:?}: left is print's");
    assert_eq!(sum(&report, &["peak", "bytes"]), report.total("peak_bytes"), "what each process held then");
}

/// A shell that starts families, which fork and execute, and becomes one itself.
fn tree(seed: u64) -> Outcome {
    let family = target("family");
    let line = format!("'{0}' {seed} 2 2; '{0}' {1} 1 2; exec '{0}' {2} 1 3", family.display(), seed + 1, seed + 2);
    let outcome = Program::new("/bin/sh").arg("-c").arg(line).option("--follow").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    outcome
}

fn heaptrack_made(words: &[&str], file: &Path) -> PathBuf {
    let mut command = Command::new(heaptrack());
    let output = command.args(words).arg("-o").arg(file).output().expect("heaptrack can be run");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    file.to_owned()
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// A process, as other traces know it.
type Key = (u64, String);

fn key(process: &Value) -> Key {
    (process["pid"].as_u64().expect("a pid"), process["start"].as_str().expect("a start").to_owned())
}

fn list(json: &Value) -> &Vec<Value> {
    json["processes"].as_array().expect("processes")
}

fn by_key(json: &Value) -> BTreeMap<Key, Value> {
    list(json).iter().map(|process| (key(process), process.clone())).collect()
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"))
}

#[test]
fn a_part_that_was_cut_out_has_the_numbers_of_that_part() {
    let (outcome, folder) = (tree(3), Folder::new());
    let trace = name(&outcome.trace);
    let whole = heaptrack_made(&["trim", trace], &folder.join("whole.htz"));
    let (cut, original) = (Report::of(&whole), outcome.whole_report());
    for part in ["processes", "combined_peak", "totals"] {
        assert_eq!(cut.json()[part], original.json()[part], "{part}");
    }
    let peak = format!("{}ns", original.total("peak_time_ns"));
    for (number_of_part, part) in
        [&["--from", "20%", "--to", "70%"][..], &["--from", &peak], &["--to", "30%"], &["--from", "10%"]]
            .into_iter()
            .enumerate()
    {
        let trimmed =
            heaptrack_made(&[&["trim", trace][..], part].concat(), &folder.join(&format!("part{number_of_part}.htz")));
        let (expected, found) = (view(&outcome.trace, "processes", part), view(&trimmed, "processes", &[]));
        let mut found_by_key = by_key(&found);
        for process in list(&expected) {
            let costs = &process["costs"];
            let of = |name: &str| number(costs, name);
            let mut wanted = vec![
                ("allocations", of("base_allocations") + of("allocations")),
                ("allocated_bytes", of("base_bytes") + of("allocated_bytes")),
                ("deallocations", of("deallocations")),
                ("freed_bytes", of("freed_bytes")),
                ("temporary", of("temporary")),
                ("peak_bytes", of("peak_bytes")),
            ];
            // Of a part that ends earlier, a block also counts as leaked if its process ended in the part.
            if !part.contains(&"--to") {
                wanted.push(("leaked_bytes", of("leaked_bytes")));
            }
            let Some(cut) = found_by_key.remove(&key(process)) else {
                assert!(wanted.iter().all(|(_, number)| *number == 0), "{part:?}: {process} is absent");
                continue;
            };
            for (name, wanted) in wanted {
                assert_eq!(number(&cut["costs"], name), wanted, "{part:?}: {name} of {process}");
            }
            assert_eq!(cut["command"], process["command"]);
        }
        assert!(found_by_key.is_empty(), "{part:?}: {found_by_key:?}");
        assert_eq!(found["totals"]["peak_bytes"], expected["totals"]["peak_bytes"], "{part:?}: all together");
    }
}

/// What does not depend on the time at which a recording began.
fn lasting(json: &Value) -> BTreeMap<Key, Value> {
    let parents: BTreeMap<u64, Key> = list(json).iter().map(|one| (number(one, "index"), key(one))).collect();
    let mut all = by_key(json);
    for process in all.values_mut() {
        let (start, end) = (number(process, "start_ns"), number(process, "end_ns"));
        let parent = process["parent"].as_u64().map(|parent| &parents[&parent].0);
        let totals = process["totals"].as_object().expect("totals").clone();
        let totals: serde_json::Map<String, Value> =
            totals.into_iter().filter(|(name, _)| !name.ends_with("_ns")).collect();
        *process = serde_json::json!({
            "parent": parent, "command": process["command"], "exit": process["exit"], "exe": process["exe"], "ran_ns": end - start,
            "inherited": [process["inherited_allocations"], process["inherited_bytes"]], "totals": totals,
        });
    }
    all
}

#[test]
fn merged_trees_have_the_processes_of_both() {
    let (first, second, folder) = (tree(3), tree(30), Folder::new());
    let (one, other) = (first.whole_report(), second.whole_report());
    let alone = Report::of(&heaptrack_made(&["merge", name(&first.trace)], &folder.join("alone.htz")));
    for part in ["processes", "combined_peak", "totals"] {
        assert_eq!(alone.json()[part], one.json()[part], "{part} of a tree that is merged with none");
    }
    let both = folder.join("both.htz");
    let both = Report::of(&heaptrack_made(&["merge", name(&first.trace), name(&second.trace)], &both));
    let mut expected = lasting(one.json());
    expected.extend(lasting(other.json()));
    assert_eq!(lasting(both.json()), expected);
    for total in ["allocations", "deallocations", "allocated_bytes", "temporary", "leaked_allocations", "leaked_bytes"]
    {
        assert_eq!(both.total(total), one.total(total) + other.total(total), "{total}");
    }
    // The one had ended before the other one started.
    assert_eq!(both.total("peak_bytes"), one.total("peak_bytes").max(other.total("peak_bytes")));
}

/// The sum of the numbers at the ends of lines.
fn folded(text: &str) -> u64 {
    text.lines().map(|line| line.rsplit(' ').next().expect("a word").parse::<u64>().expect("a number")).sum()
}

/// What exports say of the selected processes, in the names of the costs of a view.
fn exported(trace: &Path, select: &[&str]) -> BTreeMap<&'static str, u64> {
    let export = |format: &str, more: &[&str]| {
        let mut command = Command::new(heaptrack());
        command.args(["export", "--to", format]).args(more).args(select).arg(trace);
        let output = command.output().expect("heaptrack can be run");
        assert!(output.status.success(), "{format} {select:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let mut found = BTreeMap::new();
    for (cost, name) in [("peak", "peak_bytes"), ("leaked", "leaked_bytes"), ("deallocations", "deallocations")] {
        found.insert(name, folded(&export("folded", &["--cost", cost, "--no-suppressions"])));
    }
    let dhat: Value = serde_json::from_str(&export("dhat", &[])).expect("JSON");
    for (column, name) in [("tb", "allocated_bytes"), ("gbk", "peak_allocations"), ("ebk", "leaked_allocations")] {
        found.insert(name, rows(&dhat["pps"], &[column]));
    }
    let sites = export("jsonl", &["--no-suppressions"]);
    let sites: Value = sites.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect();
    found.insert("allocations", rows(&sites, &["allocations"]));
    found.insert("temporary", rows(&sites, &["temporary"]));
    found
}

#[test]
fn exports_of_each_process_have_the_numbers_of_print() {
    let outcome = tree(5);
    let processes = view(&outcome.trace, "processes", &["--no-suppressions"]);
    let wanted = |costs: &Value, found: &BTreeMap<&'static str, u64>| {
        found.keys().map(|name| (*name, number(costs, name))).collect::<BTreeMap<_, _>>()
    };
    let found = exported(&outcome.trace, &[]);
    assert_eq!(found, wanted(&processes["totals"], &found), "left are the exports of all processes");
    assert!(list(&processes).len() >= 12, "{processes}");
    for process in list(&processes) {
        let found = exported(&outcome.trace, &["--process", &format!("#{}", process["index"])]);
        assert_eq!(found, wanted(&process["costs"], &found), "left are the exports of {process}");
    }
    let report = outcome.whole_report();
    let peak = tables::peak(&outcome.trace, &report.json()["processes"]);
    let found = (report.total("peak_bytes"), report.total("peak_allocations"), report.total("peak_time_ns"));
    assert_eq!(found, (peak.bytes, peak.blocks, peak.ns), "left is print's, right is that of the tables");
    // All entries of one name are selected together.
    let of_family = view(&outcome.trace, "summary", &["--process", "family"]);
    let family = list(&processes).iter().filter(|one| one["name"] == "family");
    let allocations: u64 = family.map(|one| number(&one["costs"], "allocations")).sum();
    assert_eq!(view::total(&of_family, "allocations"), allocations);
}

/// Of all processes, and of those of one name.
#[test]
fn a_comparison_of_two_trees_is_the_difference_of_their_processes() {
    let (before, after) = (tree(3), tree(30));
    let base = format!("--diff={}", name(&before.trace));
    for select in [&[][..], &["--process", "family"], &["--process", "sh"], &["--process", "family", "--process", "sh"]]
    {
        for (cost, name) in [
            ("peak", "peak_bytes"),
            ("leaked", "leaked_bytes"),
            ("allocations", "allocations"),
            ("allocated", "allocated_bytes"),
            ("temporary", "temporary"),
        ] {
            let words = [select, &["--cost", cost, "--no-suppressions", base.as_str()]].concat();
            let diff = view(&after.trace, "diff", &words);
            let sum = |key: &str| {
                let rows = diff["functions"].as_array().expect("rows").iter();
                rows.map(|row| row[key].as_i64().expect("a number")).sum::<i64>()
            };
            let of = |trace: &Path| {
                let processes = view(trace, "processes", &["--no-suppressions"]);
                let chosen = list(&processes)
                    .iter()
                    .filter(|process| select.is_empty() || select.contains(&process["name"].as_str().expect("a name")));
                chosen.map(|process| number(&process["costs"], name)).sum::<u64>() as i64
            };
            let (old, new) = (of(&before.trace), of(&after.trace));
            assert_eq!((sum("before"), sum("after"), sum("delta")), (old, new, new - old), "{select:?}: {cost}");
        }
    }
    // A comparison with itself, which has the same processes.
    let own = format!("--diff={}", name(&after.trace));
    let text = view::text(&after.trace, &["--view", "diff", "--process", "family", &own]);
    let same: Value = serde_json::from_str(&text).expect("JSON");
    assert!(same["functions"].as_array().expect("rows").iter().all(|row| row["delta"] == 0), "{same}");
}
