//! `heaptrack check`: budgets that are kept, broken, or cannot be judged, and the formats of the result.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::view::view;
use heaptrack_tests::{Folder, Outcome, Program, Report, process};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// The numbers of tests/targets/leaky.c.
const FORGOTTEN: u64 = 20_200;
const RING: u64 = 20 * 201;
const TIDY: u64 = 200 * 401;

fn command(folder: &Path, words: &[&str], trace: &Path) -> Command {
    let mut command = Command::new(heaptrack());
    command.arg("check").args(words).arg(trace).current_dir(folder);
    command
}

fn check(folder: &Path, words: &[&str], trace: &Path) -> Output {
    command(folder, words, trace).output().expect("heaptrack runs")
}

/// The exit code, and the budgets of the JSON.
fn judge(folder: &Path, words: &[&str], trace: &Path) -> (i32, Vec<Value>) {
    let words: Vec<&str> = words.iter().copied().chain(["--to", "json"]).collect();
    let output = check(folder, &words, trace);
    let said = String::from_utf8_lossy(&output.stderr);
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"));
    let code = process::code(output.status);
    assert_eq!(json["kept"], code == 0);
    (code, json["files"][0]["budgets"].as_array().unwrap().clone())
}

/// The exit code, and the state and value of the only budget.
fn only(words: &[&str], trace: &Path) -> (i32, String, Option<u64>) {
    let folder = Folder::new();
    let (code, budgets) = judge(folder.path(), words, trace);
    assert_eq!(budgets.len(), 1, "{budgets:?}");
    (code, budgets[0]["state"].as_str().unwrap().to_owned(), budgets[0]["value"].as_u64())
}

fn leaky() -> Outcome {
    Program::target("leaky").arg("1").recorded()
}

fn kept(value: u64) -> (i32, String, Option<u64>) {
    (0, "kept".to_owned(), Some(value))
}

fn broken(value: u64) -> (i32, String, Option<u64>) {
    (1, "broken".to_owned(), Some(value))
}

fn unknown() -> (i32, String, Option<u64>) {
    (1, "unknown".to_owned(), None)
}

#[test]
fn each_budget_is_kept_up_to_its_limit_and_broken_above_it() {
    let run = leaky();
    let report = Report::of(&run.trace);
    for (option, total) in [
        ("--max-peak", "peak_bytes"),
        ("--max-leaked", "leaked_bytes"),
        ("--max-allocations", "allocations"),
        ("--max-rss", "peak_rss_bytes"),
    ] {
        let value = report.total(total);
        assert_eq!(only(&[option, &value.to_string()], &run.trace), kept(value), "{option}");
        assert_eq!(only(&[option, &(value - 1).to_string()], &run.trace), broken(value), "{option}");
    }
    for (site, metric, value) in [
        ("forget", "leaked", FORGOTTEN),
        ("forget", "peak", FORGOTTEN),
        ("function:/^tidy$/", "peak", TIDY),
        ("remember", "peak", RING),
        ("remember", "allocations", 200),
        ("file:leaky.c", "allocations", 807),
    ] {
        let budget = |limit: u64| format!("{site} {metric} {limit}");
        assert_eq!(only(&["--site", &budget(value)], &run.trace), kept(value), "{site}");
        assert_eq!(only(&["--site", &budget(value - 1)], &run.trace), broken(value), "{site}");
    }
    // The peak of a site is its own maximum, as the timeline shows it.
    let own = &view(&run.trace, "timeline", &["--include", "tidy"])["own_peak"]["bytes"];
    assert_eq!(own, TIDY);
    assert_eq!(only(&["--no-growth"], &run.trace), broken(1));
    let hello = Program::target("hello").recorded();
    assert_eq!(only(&["--no-growth"], &hello.trace), kept(0));
}

#[test]
fn a_share_of_temporary_allocations_is_exact() {
    let run = Program::target("inlined_callers").arg("10").arg("5").recorded();
    let report = Report::of(&run.trace);
    let (temporary, all) = (report.total("temporary"), report.total("allocations"));
    assert!(temporary > 0);
    assert_eq!(only(&["--max-temporary", &temporary.to_string()], &run.trace), kept(temporary));
    assert_eq!(only(&["--max-temporary", &(temporary - 1).to_string()], &run.trace), broken(temporary));
    let share = temporary as f64 * 100.0 / all as f64;
    assert_eq!(only(&["--max-temporary", &format!("{:.6}%", share + 0.000_01)], &run.trace), kept(temporary));
    assert_eq!(only(&["--max-temporary", &format!("{:.6}%", share - 0.000_01)], &run.trace), broken(temporary));
}

#[test]
fn what_cannot_be_judged_is_not_kept() {
    let run = leaky();
    let folder = Folder::new();
    assert_eq!(only(&["--site", "no_such_function peak 10M"], &run.trace), unknown());
    // A cut trace: too much is broken all the same, and enough may be too little.
    let cut = folder.join("cut.htz");
    let bytes = std::fs::read(&run.trace).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() * 6 / 10]).unwrap();
    assert!(!Report::of(&cut).complete());
    assert_eq!(only(&["--max-peak", "1G"], &cut), unknown());
    assert_eq!(only(&["--max-allocations", "3"], &cut).1, "broken");
    assert_eq!(only(&["--max-peak", "1G"], &run.trace).1, "kept");
    let (code, budgets) = judge(folder.path(), &["--baseline", cut.to_str().unwrap()], &run.trace);
    assert_eq!((code, budgets.len()), (1, 3));
    assert!(budgets.iter().all(|budget| budget["state"] == "unknown"), "{budgets:?}");
    // A heap profile that knows what lives and what was allocated, and no peak.
    let profile = folder.join("profile.heap");
    let mut export = Command::new(heaptrack());
    export.args(["export", "--to", "gperftools", "-o"]).arg(&profile).arg(&run.trace);
    assert!(export.status().unwrap().success());
    for option in ["--max-peak", "--max-rss", "--max-temporary"] {
        assert_eq!(only(&[option, "1G"], &profile), unknown(), "{option}");
    }
    assert_eq!(only(&["--no-growth"], &profile), unknown());
    assert_eq!(only(&["--site", "main peak 1G"], &profile), unknown());
    let allocations = Report::of(&run.trace).total("allocations");
    assert_eq!(only(&["--max-allocations", "1M"], &profile), kept(allocations));
    assert_eq!(only(&["--max-allocations", "3"], &profile), broken(allocations));
}

#[test]
fn known_leaks_do_not_count() {
    let run = leaky();
    let folder = Folder::new();
    std::fs::write(folder.join("known.txt"), "leak:forget\n").unwrap();
    let leaked = Report::of(&run.trace).total("leaked_bytes");
    let known = folder.join("known.txt");
    let words = ["--max-leaked", "0", "--suppressions", known.to_str().unwrap()];
    assert_eq!(only(&words, &run.trace), broken(leaked - FORGOTTEN));
    assert_eq!(only(&["--no-growth", "--suppressions", known.to_str().unwrap()], &run.trace), kept(0));
    let words = ["--no-growth", "--no-suppressions", "--suppressions", known.to_str().unwrap()];
    assert_eq!(only(&words, &run.trace), broken(1));
}

#[test]
fn settings_are_found_above_and_options_replace_them() {
    let run = leaky();
    let folder = Folder::new();
    let below = folder.join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let settings = "[check]\nmax-leaked = \"1M\"\nmax-peak = 5\nsuppressions = \"known.txt\"\n\n\
        [[check.site]]\nmatch = \"forget\"\nmax-leaked = 0\n";
    std::fs::write(folder.join("heaptrack.toml"), settings).unwrap();
    std::fs::write(folder.join("known.txt"), "leak:forget\n").unwrap();
    let (code, budgets) = judge(&below, &["--max-peak", "1G"], &run.trace);
    let states: Vec<(&str, &str, &str)> = budgets
        .iter()
        .map(|budget| {
            let origin = budget["origin"].as_str().unwrap();
            let origin = origin.rsplit('/').next().unwrap();
            (budget["name"].as_str().unwrap(), budget["state"].as_str().unwrap(), origin)
        })
        .collect();
    let expected = [
        ("peak", "kept", "--max-peak 1G"),
        ("leaked", "kept", "heaptrack.toml:2"),
        ("leaked of forget", "kept", "heaptrack.toml:8"),
    ];
    assert_eq!((code, states.as_slice()), (0, &expected[..]));
    let (code, budgets) = judge(&below, &["--no-config", "--max-peak", "1G"], &run.trace);
    assert_eq!((code, budgets.len()), (0, 1));
    // The site's leak is not known any more.
    std::fs::write(folder.join("known.txt"), "").unwrap();
    assert_eq!(judge(&below, &["--max-peak", "1G"], &run.trace).0, 1);
}

#[test]
fn a_baseline_catches_a_regression() {
    let folder = Folder::new();
    let before = Program::target("hello").recorded();
    let after = leaky();
    let base = before.trace.to_str().unwrap();
    let (code, budgets) = judge(folder.path(), &["--baseline", base], &before.trace);
    assert_eq!((code, budgets.len()), (0, 3));
    let (code, budgets) = judge(folder.path(), &["--baseline", base], &after.trace);
    assert_eq!(code, 1);
    let old = Report::of(&before.trace);
    for (budget, total) in budgets.iter().zip(["peak_bytes", "leaked_bytes", "allocations"]) {
        assert_eq!((&budget["state"], &budget["limit"]), (&json!("broken"), &json!(old.total(total))), "{budget}");
    }
    // The tolerance is a share of the baseline, rounded down.
    let allocations = Report::of(&after.trace).total("allocations");
    let words = ["--baseline", after.trace.to_str().unwrap(), "--tolerance", "2.5%"];
    let (code, budgets) = judge(folder.path(), &words, &after.trace);
    assert_eq!((code, &budgets[2]["limit"]), (0, &json!(allocations + allocations * 25 / 1000)));
    let said = check(folder.path(), &["--baseline", base, "--to", "markdown"], &after.trace);
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("| forget | 0 B | 20.2 kB | +20.2 kB |"), "{said}");
    assert!(said.contains("<summary>Flame graph: "), "{said}");
}

/// Budgets hold for all processes together, and `--process` selects.
#[test]
fn the_processes_of_a_tree_count_together() {
    let line = format!("{} 0; {}", target("leaky").display(), target("hello").display());
    let run = Program::new("/bin/sh").arg("-c").arg(&line).option("--follow").recorded();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let whole = Report::of(&run.trace);
    assert_eq!(only(&["--max-peak", "1G"], &run.trace), kept(whole.total("peak_bytes")));
    assert_eq!(only(&["--max-allocations", "1G"], &run.trace), kept(whole.total("allocations")));
    let (_, _, of_leaky) = only(&["--max-allocations", "1G", "--process", "leaky"], &run.trace);
    let (_, _, of_hello) = only(&["--max-allocations", "1G", "--process", "hello"], &run.trace);
    let (_, _, of_shell) = only(&["--max-allocations", "1G", "--process", "sh"], &run.trace);
    let (_, _, own_peak) = only(&["--max-peak", "1G", "--process", "leaky"], &run.trace);
    let (leaky, hello, shell) = (of_leaky.unwrap(), of_hello.unwrap(), of_shell.unwrap());
    assert_eq!(leaky + hello + shell, whole.total("allocations"));
    assert!(own_peak.unwrap() < whole.total("peak_bytes") && own_peak.unwrap() > FORGOTTEN + RING);
    assert_eq!(only(&["--max-rss", "1G", "--process", "leaky"], &run.trace), unknown());
    let folder = Folder::new();
    let output = check(folder.path(), &["--max-peak", "1", "--process", "nobody"], &run.trace);
    assert_eq!(process::code(output.status), 2);
}

/// Runs a Python script with the tools that tests/setup.sh installs.
fn python(script: &str, words: &[&Path]) -> String {
    let mut command = Command::new("/usr/bin/python3");
    let output = command.env("PYTHONPATH", workspace().join("target/python-tools")).args(["-c", script]).args(words);
    let output = output.output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const READ_JUNIT: &str = "
import json, sys
from junitparser import JUnitXml
suite, = JUnitXml.fromfile(sys.argv[1])
cases = [[case.name, [type(result).__name__ for result in case.result]] for case in suite]
print(json.dumps([suite.tests, suite.failures, suite.errors, cases]))
";

const READ_SARIF: &str = "
import json, sys
from sarif import loader
import sarif_pydantic
sarif_pydantic.Sarif.model_validate_json(open(sys.argv[1]).read())
file = loader.load_sarif_file(sys.argv[1])
print(json.dumps([[row['Code'], row['Severity'], row['Location'], row['Line']] for row in file.get_records()]))
";

#[test]
fn junit_and_sarif_are_read_by_tools_of_others() {
    // The sources of the program must be in the repository.
    let folder = Folder::new();
    std::fs::create_dir(folder.join(".git")).unwrap();
    std::fs::create_dir(folder.join("src & more")).unwrap();
    let source = folder.join("src & more/le<ak>.c");
    let code = "#include <stdlib.h>\nvoid *volatile kept;\nvoid lose(void) {\n    kept = malloc(1000);\n}\n\
        int main(void) {\n    lose();\n    kept = 0;\n    return 0;\n}\n";
    std::fs::write(&source, code).unwrap();
    let program = folder.join("program");
    assert!(Command::new("gcc").args(["-g", "-O0", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    let run = Program::new(&program).recorded();
    let words = ["--max-leaked", "999", "--max-peak", "1M", "--site", "a\"<&>'b peak 1", "--to", "junit=r.xml"];
    let words: Vec<&str> = words.into_iter().chain(["--to", "sarif=r.sarif", "--to", "github"]).collect();
    let output = check(folder.path(), &words, &run.trace);
    assert_eq!(process::code(output.status), 1);
    let junit: Value = serde_json::from_str(&python(READ_JUNIT, &[&folder.join("r.xml")])).unwrap();
    let cases = json!([["peak", []], ["leaked", ["Failure"]], ["peak of a\"<&>'b", ["Error"]]]);
    assert_eq!(junit, json!([3, 1, 1, cases]));
    let sarif: Value = serde_json::from_str(&python(READ_SARIF, &[&folder.join("r.sarif")])).unwrap();
    assert_eq!(sarif[0], json!(["heaptrack/leaked", "error", "src%20%26%20more/le%3Cak%3E.c", 4]));
    assert_eq!((sarif[1][0].as_str(), sarif.as_array().unwrap().len()), (Some("heaptrack/peak"), 2));
    let said = String::from_utf8_lossy(&output.stdout);
    let expected =
        "::error file=src & more/le<ak>.c,line=4,title=heaptrack%3A leaked::1.0 kB, above the limit of 999 B";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains("%0A1.0 kB  lose  src & more/le<ak>.c:4"), "{said}");
}

#[test]
fn several_files_are_checked_one_by_one() {
    let (one, two) = (Program::target("hello").recorded(), leaky());
    let folder = Folder::new();
    let mut both = command(folder.path(), &["--max-leaked", "10k"], &one.trace);
    let output = both.arg(&two.trace).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(process::code(output.status), 1);
    assert!(said.contains("kept     leaked: ") && said.contains("BROKEN   leaked: "), "{said}");
    assert!(said.ends_with("1 of 2 budgets broken\n"), "{said}");
}

/// The shell scripts of a file of `ci`, as YAML has them.
fn scripts(file: &str, select: &str) -> Vec<String> {
    let script =
        format!("import json, sys, yaml\nfile = yaml.safe_load(open(sys.argv[1]))\nprint(json.dumps({select}))");
    serde_json::from_str(&python(&script, &[&workspace().join(file)])).unwrap()
}

/// The scripts of the action for GitHub and of the template for GitLab do what docs/ci.md says.
#[test]
fn the_templates_record_check_and_report() {
    let action = "[step['run'] for step in file['runs']['steps'] if 'run' in step]";
    let jobs = [
        (scripts("ci/github/action.yml", action).join("\n"), "RUN", "OPTIONS", "GITHUB_STEP_SUMMARY"),
        (
            scripts("ci/gitlab/heaptrack.gitlab-ci.yml", "file['.heaptrack']['script']").join("\n"),
            "HEAPTRACK_RUN",
            "HEAPTRACK_OPTIONS",
            "NOTHING",
        ),
    ];
    for (script, run, options, summary) in jobs {
        for (limit, expected) in [("1M", 0), ("1", 1)] {
            let folder = Folder::new();
            std::os::unix::fs::symlink(heaptrack().canonicalize().unwrap(), folder.join("heaptrack")).unwrap();
            let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
            let mut shell = Command::new("bash");
            shell.args(["-e", "-c", &script]).current_dir(folder.path()).env("PATH", path);
            shell.env("HEAPTRACK", "heaptrack").env("TRACE", "t.htz").env("HEAPTRACK_TRACE", "t.htz");
            shell.env("RUNNER_TEMP", folder.path()).env(summary, folder.join("summary.md"));
            shell.env("BASELINE", "").env("HEAPTRACK_BASELINE", "missing.htz").env("LINK", "https://example.org/a");
            shell.env(run, format!("{} '0'", target("leaky").display()));
            shell.env(options, format!("--max-leaked {limit} --site 'function:main peak 1M'"));
            let output = shell.output().unwrap();
            let said = format!("{output:?}");
            assert_eq!(process::code(output.status), expected, "{said}");
            for file in ["t.htz", "heaptrack.svg", "heaptrack.html", "heaptrack.md"] {
                assert!(folder.join(file).exists(), "{file}: {said}");
            }
            if summary == "GITHUB_STEP_SUMMARY" {
                let text = std::fs::read_to_string(folder.join("summary.md")).unwrap();
                assert!(text.contains("(https://example.org/a)"), "{text}");
                assert_eq!(said.contains("::error "), expected == 1, "{said}");
            } else {
                let cases = python(READ_JUNIT, &[&folder.join("heaptrack.xml")]);
                assert!(cases.starts_with(&format!("[2, {expected}, 0")), "{cases}");
            }
        }
    }
}

/// DHAT knows what each stack held at the program's peak, which is not the most that a site ever held.
#[test]
fn the_peak_of_a_site_is_not_its_share_of_the_programs_peak() {
    let folder = Folder::new();
    let run = leaky();
    let profile = folder.join("dhat.out");
    let mut export = Command::new(heaptrack());
    assert!(export.args(["export", "--to", "dhat", "-o"]).arg(&profile).arg(&run.trace).status().unwrap().success());
    let peak = Report::of(&run.trace).total("peak_bytes");
    assert_eq!(only(&["--max-peak", "1G"], &profile), kept(peak));
    assert_eq!(only(&["--site", "forget peak 1G"], &profile), unknown());
    assert_eq!(only(&["--site", "forget leaked 1G"], &profile), kept(FORGOTTEN));
}

#[test]
fn the_peak_of_a_site_is_unknown_after_its_events_were_folded() {
    let run = Program::target("threads").arg("4").arg("800000").option("--max-size").option("1M").recorded();
    let json: Value =
        serde_json::from_str(&heaptrack_tests::view::text(&run.trace, &["--json", "--limit", "1"])).unwrap();
    assert!(json["folded_until_ns"].as_u64().is_some(), "nothing was folded");
    assert_eq!(only(&["--max-peak", "1G"], &run.trace), kept(json["totals"]["peak_bytes"].as_u64().unwrap()));
    assert_eq!(only(&["--site", "file:threads.c peak 1G"], &run.trace), unknown());
    assert_eq!(only(&["--site", "file:threads.c peak 1"], &run.trace).1, "broken");
}
