//! The fuzzer of the command line (`fuzz/`, target `command_line`). Built only with `--cfg fuzzing`.
//!
//! The input has one word of a command line per line. Must hold: no panic. The program and its arguments are the last
//! words, unchanged, and any further word is one more argument of the program. A first word that is neither an option
//! nor the name of a subcommand is the program. A known command line always has the same meaning, whatever came before
//! it.
use crate::args::{Invocation, try_parse};
use crate::heaptrace;
use libfuzzer_sys::fuzz_target;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::OnceLock;

/// Words that mean something to us, but not after a program.
const FURTHER: [&str; 7] = ["--help", "-o", "--", "print", "record", "--no-such-option", "-"];

/// Words that mean something to us as the first word.
const SUBCOMMANDS: [&str; 21] = [
    "analyze",
    "tui",
    "attach",
    "cargo-runner",
    "check",
    "completions",
    "detach",
    "diff",
    "export",
    "heaptrace",
    "lib",
    "man",
    "mcp",
    "merge",
    "print",
    "record",
    "report",
    "symbolize",
    "test-sections",
    "trim",
    "viewer",
];

/// Names of this program that stand for a subcommand.
const NAMES: [&str; 4] = ["heaptrack_print", "heaptrace", "heaptrack_gui", "cargo-heaptrack"];

/// Every option has its default value in one of these.
const KNOWN: [&[&str]; 3] = [&["heaptrack", "program"], &["heaptrack", "print", "file"], &["heaptrack", "attach", "1"]];

fn meaning(words: &[&str]) -> String {
    format!("{:?}", try_parse(words.iter().map(OsString::from)))
}

/// Returns the program and its arguments, if the first word alone tells where they begin.
fn obvious(words: &[OsString]) -> Option<&[OsString]> {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    if name.is_some_and(|name| NAMES.iter().any(|known| name == *known)) {
        return None;
    }
    let first = words.get(1)?;
    if first == "--" {
        return words.get(2..).filter(|command| !command.is_empty());
    }
    let is_program = SUBCOMMANDS.iter().all(|known| first != *known)
        && (first == "-" || !first.as_encoded_bytes().starts_with(b"-"));
    is_program.then(|| &words[1..])
}

fn command_of(words: &[OsString]) -> Option<Vec<OsString>> {
    match try_parse(words.iter().cloned()).ok()? {
        Invocation::Record(record) => Some(record.command),
        Invocation::Heaptrace(words) => heaptrace::command_of(words),
        Invocation::Print(print) => {
            // The values of its options are parsed only when the query is made.
            let _ = print.query();
            None
        }
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    let words: Vec<OsString> =
        data.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec())).collect();
    static MEANINGS: OnceLock<Vec<String>> = OnceLock::new();
    let meanings = MEANINGS.get_or_init(|| KNOWN.map(meaning).to_vec());
    let command = command_of(&words);
    if let Some(obvious) = obvious(&words) {
        assert_eq!(command.as_deref(), Some(obvious), "{words:?}");
    }
    let known = data.len() % KNOWN.len();
    assert_eq!(meaning(KNOWN[known]), meanings[known], "after {words:?}");
    let Some(command) = command.filter(|command| !command.is_empty()) else { return };
    assert!(words.ends_with(&command), "{command:?} is not the end of {words:?}");
    for further in FURTHER {
        let longer: Vec<OsString> = words.iter().cloned().chain([further.into()]).collect();
        let expected: Vec<OsString> = command.iter().cloned().chain([further.into()]).collect();
        assert_eq!(command_of(&longer), Some(expected), "{longer:?}");
    }
});
