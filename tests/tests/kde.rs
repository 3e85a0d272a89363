//! Import and export of KDE's files. KDE's `heaptrack_print` and ours print the same about the same file, whichever
//! tool recorded it.
use heaptrack_tests::kde::{self, COSTS};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, Program, Report, dhat, process, scale};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PYTHON: &str = "import json; print(len(json.dumps([{'a': i, 'b': str(i)} for i in range(3000)])))";
const SQLITE: &str = "create table t(a, b); with recursive n(i) as (select 1 union all select i+1 from n where i < 3000) \
                      insert into t select i, hex(i) from n; create index x on t(b); select count(*) from t where b > '5';";
const NODE: &str =
    "console.log([...Array(2000).keys()].map(i => JSON.stringify({i, s: 'x'.repeat(i % 50)})).join('').length)";

/// The command lines of the programs that are compared.
fn programs(folder: &Folder) -> Vec<(&'static str, Vec<String>)> {
    let churn = folder.join("churn");
    let mut build = Command::new("c++");
    build.args(["-g", "-O1", "-pthread"]).arg(workspace().join("bench/churn.cpp")).arg("-o").arg(&churn);
    assert!(build.status().unwrap().success());
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let millions = if scale::soak() { "8" } else { "1" };
    vec![
        ("python", words(&["/usr/bin/python3", "-c", PYTHON])),
        ("sqlite3", words(&["/usr/bin/sqlite3", ":memory:", SQLITE])),
        ("node", words(&["node", "-e", NODE])),
        ("churn", words(&[churn.to_str().unwrap(), "2", "16", millions])),
    ]
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(heaptrack()).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (process::code(output.status), text(&output.stdout), text(&output.stderr))
}

fn succeed(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn both_readers_agree_on_what_we_export() {
    let folder = Folder::new();
    for (name, program) in programs(&folder) {
        let trace = folder.join(&format!("{name}.htz"));
        let words: Vec<&str> = program.iter().map(String::as_str).collect();
        succeed(&[&["-q", "-o", text(&trace), "--"], &words[..]].concat());
        let exported = folder.join(&format!("{name}.zst"));
        succeed(&["export", "--to", "heaptrack", text(&trace), "-o", text(&exported)]);
        let agreed = kde::assert_agree(&exported);
        assert!(agreed.said.lists[&kde::Cost::Peak].len() > 5, "{name}");
        for cost in COSTS {
            assert_eq!(kde::folded_by_export(&exported, cost), agreed.right_folded[&cost], "{name}");
        }
        // Nothing that KDE's format can hold was lost in the export. Temporary blocks are counted by another rule
        // there, so they are not compared.
        let (before, after) = (Report::of(&trace), Report::of(&exported));
        for total in
            ["allocations", "deallocations", "allocated_bytes", "leaked_bytes", "leaked_allocations", "peak_bytes"]
        {
            assert_eq!(before.total(total), after.total(total), "{name}: {total}");
        }
        assert_eq!(before.total("peak_allocations"), after.total("peak_allocations"), "{name}");
        assert!(after.complete(), "{name}");
    }
}

#[test]
fn both_readers_agree_on_what_kde_records() {
    let programs_folder = Folder::new();
    for (name, program) in programs(&programs_folder) {
        let folder = Folder::new();
        let words: Vec<&str> = program.iter().map(String::as_str).collect();
        let file = kde::record(&folder, &[], &words);
        let agreed = kde::assert_agree(&file);
        for cost in COSTS {
            assert_eq!(kde::folded_by_export(&file, cost), agreed.right_folded[&cost], "{name}");
        }
        // Reading the file and exporting it again must change nothing.
        let again = folder.join("again.gz");
        succeed(&["export", "--to", "heaptrack", text(&file), "-o", text(&again)]);
        let (mut first, mut second) = (agreed.said, kde::theirs(&again));
        // The export numbers the allocation infos anew, and KDE's count of temporary blocks depends on these numbers.
        for said in [&mut first, &mut second] {
            said.totals.retain(|line| !line.starts_with("temporary"));
            said.lists.remove(&kde::Cost::Temporary);
            said.folded.remove(&kde::Cost::Temporary);
            said.lists.values_mut().for_each(|list| list.sort());
        }
        assert_eq!(first, second, "{name}");
    }
}

#[test]
fn a_raw_file_gets_its_names_from_us() {
    let folder = Folder::new();
    let program = target("named");
    let raw = kde::record(&folder, &["-r"], &[text(&program)]);
    assert!(text(&raw).ends_with(".raw.zst"));
    let interpreted = folder.join("interpreted");
    let pipe = format!(
        "zstd -dc < '{}' | /usr/lib/heaptrack/libexec/heaptrack_interpret > '{}' 2> /dev/null",
        raw.display(),
        interpreted.display()
    );
    assert!(Command::new("sh").args(["-c", &pipe]).status().unwrap().success());
    let (ours, theirs) = (Report::of(&raw), Report::of(&interpreted));
    for total in ["allocations", "deallocations", "allocated_bytes", "leaked_bytes", "peak_bytes", "peak_rss_bytes"] {
        assert_eq!(ours.total(total), theirs.total(total), "{total}");
    }
    let own = |report: &Report| {
        let lists = report.json()["allocations"].as_array().unwrap();
        let frames = lists.iter().flat_map(|site| site["frames"].as_array().unwrap());
        let own = frames.filter(|frame| frame["module"].as_str() == Some(text(&program)));
        let mut names: Vec<String> = own.filter_map(|frame| Some(frame["function"].as_str()?.to_owned())).collect();
        names.sort();
        names.dedup();
        names
    };
    let names = own(&ours);
    assert!(names.iter().any(|name| name == "main"), "{names:?}");
    for name in own(&theirs) {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    // As a trace in our format, next to the file.
    succeed(&["symbolize", text(&raw)]);
    let made = folder.join("kde.htz");
    assert_eq!(own(&Report::of(&made)), names);
    assert_eq!(Report::of(&made).total("allocations"), ours.total("allocations"));
    let (code, _, said) = run(&["symbolize", text(&raw)]);
    assert_eq!(code, 2);
    assert!(said.contains("kde.htz: it exists already"), "{said}");
    let (code, _, said) = run(&["symbolize", text(&interpreted)]);
    assert_eq!(code, 2);
    assert!(said.contains("was written by KDE's interpreter"), "{said}");
}

#[test]
fn recording_to_a_name_in_kdes_style_writes_kdes_format() {
    let folder = Folder::new();
    let hello = target("hello");
    for name in ["a.zst", "b.gz"] {
        let file = folder.join(name);
        let (code, _, said) = run(&["-o", text(&file), text(&hello)]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains(&format!("Next: heaptrack print {}", file.display())), "{said}");
        assert!(said.contains("is in KDE's format"), "{said}");
        kde::assert_agree(&file);
    }
    assert_eq!(folder.names(), ["a.zst", "b.gz"]);
    // If heaptrack is killed, the part that was recorded stays.
    let file = folder.join("c.zst");
    let mut recorder = Command::new(heaptrack());
    recorder.args(["-o", text(&file)]).arg(target("stops")).arg("60000").stdout(Stdio::null()).stderr(Stdio::null());
    let mut recorder = recorder.spawn().unwrap();
    let stays = folder.join("c.zst.htz");
    process::wait_for("the trace", || std::fs::metadata(&stays).ok().filter(|data| data.len() > 16));
    let program = process::target_of(recorder.id(), &target("stops"));
    process::signal("KILL", &[recorder.id(), program]);
    recorder.wait().unwrap();
    assert_eq!(folder.names(), ["a.zst", "b.gz", "c.zst.htz"]);
}

/// A trace of Python, and the same in another format.
fn exported_python(folder: &Folder, format: &str) -> (PathBuf, PathBuf) {
    let (trace, exported) = (folder.join("t.htz"), folder.join(format));
    succeed(&["-q", "-o", text(&trace), "/usr/bin/python3", "-c", PYTHON]);
    succeed(&["export", "--to", format, text(&trace), "-o", text(&exported)]);
    (trace, exported)
}

/// The highest number of heap bytes of any snapshot in a file for `ms_print`.
fn massif_peak(massif: &str) -> Option<u64> {
    massif.lines().filter_map(|line| line.strip_prefix("mem_heap_B=")?.parse().ok()).max()
}

#[test]
fn massif_is_read_by_ms_print() {
    let folder = Folder::new();
    let (trace, massif) = exported_python(&folder, "massif");
    let output = Command::new("ms_print").arg(&massif).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("(peak)") && shown.contains("PyMem_RawMalloc"), "{shown}");
    let written = std::fs::read_to_string(&massif).unwrap();
    assert_eq!(massif_peak(&written), Some(Report::of(&trace).total("peak_bytes")));
}

/// DHAT counts the same programs by other means. The sums of our exports must equal its numbers.
#[test]
fn what_is_exported_agrees_with_dhat() {
    for name in ["plain", "grow", "kinds", "peak", "containers", "throwing", "boxes", "growth"] {
        let program = Program::target(name);
        let dhat = dhat::run(&program).total;
        let trace = program.recorded();
        let exported =
            |to: &str, more: &[&str]| succeed(&[&["export", "--to", to], more, &[text(&trace.trace)]].concat());
        let sum = |cost: &str| -> u64 {
            let lines = exported("folded", &["--cost", cost]);
            lines.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        assert_eq!((sum("allocations"), sum("allocated")), (dhat.allocations, dhat.allocated_bytes), "{name}");
        assert_eq!((sum("peak"), sum("leaked")), (dhat.peak_bytes, dhat.leaked_bytes), "{name}");
        let massif = exported("massif", &[]);
        assert_eq!(massif_peak(&massif), Some(dhat.peak_bytes), "{name}");
        let (_, tree) = massif.split_once("heap_tree=peak\n").unwrap();
        let root: u64 = tree.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(root, dhat.peak_bytes, "{name}");
    }
}

#[test]
fn a_picture_is_well_formed() {
    let folder = Folder::new();
    let (_, picture) = exported_python(&folder, "svg");
    let check = "import sys, xml.dom.minidom as m; print(len(m.parse(sys.argv[1]).getElementsByTagName('rect')))";
    let output = Command::new("/usr/bin/python3").args(["-c", check, text(&picture)]).output().unwrap();
    let boxes: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!(boxes > 20, "{boxes}");
}

#[test]
fn trimmed_and_merged_traces_are_traces() {
    let folder = Folder::new();
    let name = |name: &str| folder.join(name);
    let (one, other) = (name("one.htz"), name("other.htz"));
    succeed(&["-q", "-o", text(&one), "/usr/bin/python3", "-c", PYTHON]);
    succeed(&["-q", "-o", text(&other), "/usr/bin/sqlite3", ":memory:", SQLITE]);
    succeed(&["merge", text(&one), text(&other), "-o", text(&name("both"))]);
    let (first, second, both) = (Report::of(&one), Report::of(&other), Report::of(&name("both.htz")));
    assert!(both.complete());
    for total in ["allocations", "deallocations", "allocated_bytes", "temporary", "leaked_bytes", "leaked_allocations"]
    {
        assert_eq!(both.total(total), first.total(total) + second.total(total), "{total}");
    }
    // The second run began after the first had ended, so both never used memory at the same time.
    for total in ["peak_bytes", "peak_rss_bytes"] {
        assert_eq!(both.total(total), first.total(total).max(second.total(total)), "{total}");
    }
    // A trace that is trimmed to its whole time stays the same.
    succeed(&["trim", text(&one), "-o", text(&name("all"))]);
    let all = Report::of(&name("all.htz"));
    assert!(all.complete());
    assert_eq!(all.json()["totals"], first.json()["totals"]);
    assert_eq!(all.json()["peak"], first.json()["peak"]);
    succeed(&["trim", text(&one), "--from", "50%", "--to", "80%", "-o", text(&name("part"))]);
    let part = Report::of(&name("part.htz"));
    assert!(part.complete());
    assert!(part.total("allocations") < first.total("allocations"));
    assert!(part.total("peak_bytes") <= first.total("peak_bytes"));
}

#[test]
fn what_cannot_be_done_is_refused_with_one_sentence() {
    let folder = Folder::new();
    let kde = kde::record(&folder, &[], &["/bin/true"]);
    let empty = folder.join("empty");
    std::fs::write(&empty, "").unwrap();
    let out = folder.join("out");
    let newer = folder.join("newer");
    std::fs::write(&newer, "v 20000 9\nX a\n").unwrap();
    let trace = folder.join("t.htz");
    succeed(&["-q", "-o", text(&trace), "/bin/true"]);
    let cases: &[(&[&str], &str)] = &[
        (&["merge", text(&kde), "-o", text(&out)], "does not say when it began"),
        (&["merge", text(&trace), "-o", text(&trace)], "it is an input of this command"),
        (&["trim", text(&trace), "-o", text(&trace)], "it is an input of this command"),
        (&["trim", text(&trace), "--from", "soon", "-o", text(&out)], "not a valid time"),
        (&["trim", text(&trace), "--from", "2s", "--to", "1s", "-o", text(&out)], "nothing would be left"),
        (&["export", "--to", "folded", text(&empty)], "it is empty"),
        (&["export", "--to", "heaptrack", "/etc/passwd"], "not a heaptrack trace"),
        (&["export", "--to", "svg", "/"], "it is a folder"),
        (&["export", "--to", "massif", text(&newer)], "format version 9"),
        (&["export", "--to", "folded", text(&trace), "-o", "/no/such/folder/x"], "cannot write"),
        (&["print", text(&newer)], "format version 9"),
    ];
    for (arguments, sentence) in cases {
        let (code, _, said) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {said}");
        assert!(said.contains(sentence) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    assert_eq!(folder.names().iter().filter(|name| name.contains("out") || name.contains("part")).count(), 0);
}

/// `print` of a KDE file that is cut or damaged anywhere succeeds, or fails with exit code 2 and one sentence.
#[test]
fn damaged_files_of_kdes_are_read_as_far_as_they_go() {
    let folder = Folder::new();
    let file = kde::record(&folder, &[], &["/bin/true"]);
    let bytes = std::fs::read(&file).unwrap();
    let cut: PathBuf = folder.join("cut");
    let mut chance = heaptrack_tests::Chance::new("damaged files");
    for _ in 0..scale::count(300) {
        let mut damaged = bytes.clone();
        if chance.between(0, 2) == 0 {
            damaged.truncate(chance.between(0, bytes.len() as u64) as usize);
        } else {
            let at = chance.between(0, bytes.len() as u64) as usize;
            damaged[at] ^= 1 << chance.between(0, 8);
        }
        std::fs::write(&cut, &damaged).unwrap();
        let (code, _, said) = run(&["print", text(&cut)]);
        assert!(code == 0 || code == 2 && said.lines().count() == 1, "{code}: {said}");
    }
}
