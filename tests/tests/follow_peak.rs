//! `--follow`: the combined peak of a tree is what its processes held together, to the byte.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::replay::tables;
use heaptrack_tests::replay::tree::{self, Peak};
use heaptrack_tests::{Folder, Outcome, Program, Report, scale};
use std::fmt::Write as _;
use std::path::Path;

fn recorded_peak(report: &Report) -> Peak {
    Peak {
        bytes: report.total("peak_bytes"),
        blocks: report.total("peak_allocations"),
        ns: report.total("peak_time_ns"),
    }
}

/// The peak of the report is that of a replay by hand, and what the processes held at it adds up to it.
fn compare(name: &str, trace: &Path) -> Report {
    let report = Report::of(trace);
    assert_eq!(recorded_peak(&report), tree::peak(trace), "{name}: left is print's, right is the replay's");
    let of = |key: &str| -> u64 {
        let all = report.json()["processes"].as_array().expect("processes");
        all.iter().filter_map(|process| process["peak"][key].as_u64()).sum()
    };
    let peak = recorded_peak(&report);
    assert_eq!((of("bytes"), of("allocations")), (peak.bytes, peak.blocks), "{name}: what each process held");
    report
}

fn follow(program: &Program) -> Outcome {
    let outcome = program.clone().option("--follow").option("--no-symbols").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    outcome
}

/// A parent that has waited for a child goes on at once. What the child held must not count any more then.
#[test]
fn a_process_that_has_ended_holds_nothing() {
    let children = if scale::soak() { "2000" } else { "80" };
    let check = |name: &str, trace: &Path| {
        let report = compare(name, trace);
        let all = report.json()["processes"].as_array().expect("processes");
        assert!(all.iter().all(|process| process["exit"] == "code 0"), "{name}: every end is known");
        let left = report.json()["processes"][0]["totals"]["leaked_bytes"].as_u64().expect("a number");
        assert_eq!(report.total("peak_bytes"), 1_000_000 + left, "{name}: one block of each child, at different times");
    };
    for name in ["ends", "ends_musl", "ends_static", "ends_musl_static"] {
        check(name, &follow(&Program::target(name).arg(children)).trace);
        let mut target = Target::start(name, &[children, "wait"]);
        target.settle();
        let session = Session::attach(target.pid, &["--follow", "--no-symbols"]);
        target.send("");
        assert_eq!(target.finish().0, 0);
        let ended = session.wait();
        assert_eq!(ended.code, 0, "{}", ended.text);
        let report = compare(name, &ended.trace);
        assert_eq!(report.total("peak_bytes"), 1_000_000, "{name}, attached: one block of each child");
    }
}

/// Processes that count what all of them hold together, under a lock.
#[test]
fn the_combined_peak_is_what_the_processes_themselves_count() {
    for seed in 1..=scale::count(200).max(5) {
        let outcome = follow(&Program::target("family_peak").arg(seed.to_string()));
        let report = compare("family_peak", &outcome.trace);
        let told = outcome.stdout.split_whitespace().filter_map(|word| word.split_once('='));
        let found = told.map(|(name, told)| {
            let key = match name {
                "peak" => "peak_bytes",
                "blocks" => "peak_allocations",
                "left" => "leaked_allocations",
                _ => "leaked_bytes",
            };
            (key, told.parse().expect("a number"), report.total(key))
        });
        for (key, told, found) in found {
            let (told, found): (u64, u64) = (told, found);
            assert_eq!(found, told, "{key}, seed {seed}");
        }
    }
}

/// A project of C files with a Makefile.
fn project(folder: &Folder, files: usize) {
    let mut makefile = "all: main\nmain:".to_owned();
    for number in 0..files {
        let _ = write!(makefile, " f{number}.o");
        let main = if number == 0 { "int main(void) { return 0; }\n" } else { "" };
        let source = format!("#include <stdio.h>\nint f{number}(void) {{ return puts(\"{number}\"); }}\n{main}");
        std::fs::write(folder.join(&format!("f{number}.c")), source).expect("writable");
    }
    makefile += "\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n";
    std::fs::write(folder.join("Makefile"), makefile).expect("writable");
}

/// Compares the peak with that of the tables of single processes, too.
fn compare_twice(name: &str, trace: &Path) {
    let report = compare(name, trace);
    let by_tables = tables::peak(trace, &report.json()["processes"]);
    assert_eq!(recorded_peak(&report), by_tables, "{name}: left is print's, right is that of the tables");
}

#[test]
fn the_combined_peak_of_real_trees_equals_two_replays_by_hand() {
    let script = "for i in 1 2 3; do ls -l /usr/share > /dev/null; (cat /etc/passwd | sort | wc -l); done; \
                  x=$(awk 'BEGIN { for (i = 0; i < 9999; i++) a[i] = i \"x\"; print length(a) }'); echo $x";
    let outcome = follow(&Program::new("/bin/sh").arg("-c").arg(script));
    compare_twice("sh", &outcome.trace);
    let folder = Folder::new();
    project(&folder, if scale::soak() { 30 } else { 4 });
    let outcome = follow(&Program::new("/usr/bin/make").arg("-j2").current_dir(folder.path()));
    compare_twice("make", &outcome.trace);
    let python = "import multiprocessing as mp\n\
                  def work(count): return len([bytearray(1000 * count) for _ in range(count)])\n\
                  with mp.get_context('fork').Pool(3) as pool: print(sum(pool.map(work, range(100))))\n";
    let outcome = follow(&Program::new("/usr/bin/python3").arg("-c").arg(python));
    compare_twice("python", &outcome.trace);
}
