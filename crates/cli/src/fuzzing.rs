//! The fuzzer of the command line (`fuzz/`, target `command_line`). Built only with `--cfg fuzzing`.
//!
//! The input has one word of a command line per line. Must hold: no panic. The program and its arguments are the last
//! words, unchanged, and any further word is one more argument of the program.
use crate::args::{Invocation, try_parse};
use crate::heaptrace;
use libfuzzer_sys::fuzz_target;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Words that mean something to us, but not after a program.
const FURTHER: [&str; 6] = ["--help", "-o", "--", "print", "--no-such-option", "-"];

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
    let Some(command) = command_of(&words).filter(|command| !command.is_empty()) else { return };
    assert!(words.ends_with(&command), "{command:?} is not the end of {words:?}");
    for further in FURTHER {
        let longer: Vec<OsString> = words.iter().cloned().chain([further.into()]).collect();
        let expected: Vec<OsString> = command.iter().cloned().chain([further.into()]).collect();
        assert_eq!(command_of(&longer), Some(expected), "{longer:?}");
    }
});
