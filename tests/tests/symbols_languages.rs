//! Names of languages that are compiled to C.
use heaptrack_tests::symbols::line_of;
use heaptrack_tests::{Folder, Program, targets};
use serde_json::Value;
use std::process::Command;

#[test]
fn nim_procedures_have_their_module_and_line() {
    let folder = Folder::new();
    let source = targets::sources().join("shelf.nim");
    let program = folder.join("shelf");
    let mut nim = Command::new("nim");
    nim.args(["c", "--hints:off", "-d:release", "-d:useMalloc", "--mm:orc", "--debugger:native"]);
    nim.arg(format!("--nimcache:{}", folder.join("cache").display())).arg(format!("-o:{}", program.display()));
    let built = nim.arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let outcome = Program::new(&program).same_output();
    assert_eq!(outcome.stdout, "100\n");
    let report = outcome.whole_report();
    let list = report.json()["allocations"].as_array().unwrap();
    let named = |site: &Value, name: &str| {
        let frames = site["frames"].as_array().unwrap();
        frames.iter().find(|frame| frame["function"] == name).cloned()
    };
    // One string for each book and one for each number.
    let filled: Vec<&Value> = list.iter().filter(|site| named(site, "shelf.fill").is_some()).collect();
    let strings = |site: &&&Value| site["allocations"] == 100;
    assert_eq!(filled.iter().filter(strings).count(), 2);
    for site in filled {
        for (name, line) in [("shelf.fill", "fill"), ("shelf.build", "build"), ("NimMainModule", "module")] {
            let frame = named(site, name).unwrap_or_else(|| panic!("no {name}: {site}"));
            assert_eq!((&frame["file"], &frame["class"]), (&source.to_string_lossy().into(), &"program".into()));
            // gcc assigns a call that makes the sequence grow to the line of the loop.
            let exact = name != "shelf.fill" || site["allocations"] == 100;
            assert!(!exact || frame["line"] == line_of(&source, line), "{frame}");
        }
        assert_eq!(site["frames"][site["blamed"].as_u64().unwrap() as usize]["function"], "shelf.fill");
    }
    // No name of the program has a suffix of Nim's own numbering.
    for frame in list.iter().flat_map(|site| site["frames"].as_array().unwrap()) {
        let name = frame["function"].as_str().unwrap_or_default();
        let tail = name.rsplit('_').next().unwrap_or_default();
        assert!(!name.contains("__") || tail.parse::<u32>().is_err(), "{name}");
    }
}
