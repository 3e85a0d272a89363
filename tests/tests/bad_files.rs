//! Files that are no trace, or only a part of one. `print` refuses them with one sentence and exit code 2, or shows the
//! intact part with a warning.
use heaptrack_tests::view::print;
use heaptrack_tests::{Chance, Folder, Outcome, Program, scale};
use serde_json::Value;
use std::path::Path;

/// Returns the number of allocations that `print` shows for a file, or `None` if it refuses the file.
fn shown(file: &Path, what: &str) -> Option<u64> {
    let output = print(file, &["--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{what}: {said}");
    match output.status.code() {
        Some(0) => {
            let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{what}: not JSON"));
            if json["complete"] != true {
                assert_eq!(said.lines().count(), 1, "{what}: one sentence: {said}");
            }
            json["totals"]["allocations"].as_u64()
        }
        code => {
            assert_eq!((code, said.lines().count()), (Some(2), 1), "{what}: {said}");
            assert!(output.stdout.is_empty(), "{what}: only the sentence is printed");
            None
        }
    }
}

/// An intact trace, its bytes, and the number of allocations in it.
fn whole_trace() -> (Outcome, Vec<u8>, u64) {
    let outcome = Program::target("hello").option("--no-symbols").recorded();
    let all = shown(&outcome.trace, "the whole trace").unwrap();
    let whole = std::fs::read(&outcome.trace).unwrap();
    (outcome, whole, all)
}

#[test]
fn a_trace_cut_anywhere_is_shown_up_to_there() {
    let (outcome, whole, all) = whole_trace();
    let file = outcome.trace.with_file_name("cut.htz");
    let mut chance = Chance::new("cut");
    // Cuts at every byte in a soak, and otherwise at every tenth byte, from a random one on.
    let step = if scale::soak() { 1 } else { 10 };
    let mut most = 0;
    for length in (chance.between(0, step) as usize..whole.len()).step_by(step as usize) {
        std::fs::write(&file, &whole[..length]).unwrap();
        let now = shown(&file, &format!("cut at {length}"));
        // Everything that can be read from a shorter part can be read from a longer one.
        assert!(now.unwrap_or(0) >= most && now.unwrap_or(0) <= all, "cut at {length}");
        most = now.unwrap_or(0);
        assert!(now.is_some() || length < 16, "a file with a header can be read; cut at {length}");
    }
    assert_eq!(most, all, "the events come before the index");
}

#[test]
fn flipped_bits_change_no_number_silently() {
    let (outcome, whole, all) = whole_trace();
    let file = outcome.trace.with_file_name("flipped.htz");
    let mut chance = Chance::new("flips");
    for _ in 0..scale::count(3000) {
        let mut bytes = whole.clone();
        let (at, bit) = (chance.between(0, whole.len() as u64) as usize, chance.between(0, 8));
        bytes[at] ^= 1 << bit;
        std::fs::write(&file, &bytes).unwrap();
        let what = format!("bit {bit} of byte {at}");
        let output = print(&file, &["--json"]);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{what}");
        if output.status.code() == Some(0) {
            let json: Value = serde_json::from_slice(&output.stdout).unwrap();
            let is_whole = json["totals"]["allocations"].as_u64() == Some(all);
            assert!(is_whole || json["complete"] == false, "{what}: {}", json["totals"]);
        }
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = Folder::new();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let (_, whole, _) = whole_trace();
    let mut newer = whole.clone();
    newer[8] = 99;
    let refused = [
        (file("empty.htz", b""), "is empty"),
        (file("text.htz", b"this is a text, no trace\n"), "not a heaptrack trace"),
        (file("zeros.htz", &[0; 100_000]), "not a heaptrack trace"),
        (file("newer.htz", &newer), "version 99 is newer"),
        (folder.path().to_owned(), "it is a folder"),
        (folder.join("nothing.htz"), "No such file"),
        ("/dev/null".into(), ""),
        ("/dev/zero".into(), ""),
    ];
    for (path, reason) in refused {
        let output = print(&path, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{}: {said}", path.display());
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("heaptrack: cannot read ") && said.contains(reason), "{said}");
        assert!(output.stdout.is_empty(), "{}", path.display());
    }
    // Without its first bytes it is still a trace.
    assert!(shown(&file("headless.htz", &whole[8..]), "without its magic").is_some());
}
