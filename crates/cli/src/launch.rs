//! The command that becomes the target.
//!
//! Receives: the program, the library, the channel's variable. Returns: a launch of the program, or of gdb. Must hold:
//! the program gets its own words and its own environment in its own order. Our variables are appended after it, where
//! the library cuts them off again.
use collector::{Launch, environment};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const CHANNEL: &str = "HEAPTRACK_CHANNEL";
/// The variable with the path of the hub, if a whole tree of processes is followed.
const FOLLOW: &str = "HEAPTRACK_FOLLOW";
const PRELOAD: &str = "LD_PRELOAD";

fn entry(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut entry = OsString::from(name);
    entry.push("=");
    entry.push(value);
    entry
}

/// Returns the value if this entry is the variable `name`.
fn value_of(entry: &OsStr, name: &str) -> Option<OsString> {
    let value = entry.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
    Some(OsString::from_vec(value.to_vec()))
}

/// Returns the value of the LD_PRELOAD that the loader uses, which is the last of several.
fn last_preload(environment: &[OsString]) -> Option<OsString> {
    environment.iter().rev().find_map(|entry| value_of(entry, PRELOAD))
}

/// Puts our library before those that the user preloads.
fn before(library: &Path, theirs: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(theirs) = theirs.filter(|theirs| !theirs.is_empty()) {
        value.push(":");
        value.push(theirs);
    }
    value
}

/// Makes a launch of the program, unrecorded.
pub fn plain(program: &Path, words: &[OsString]) -> io::Result<Launch> {
    Launch::new(program, words.to_vec(), environment())
}

/// Makes a launch of a program that is patched when it is executed.
pub fn patched(program: &Path, words: &[OsString]) -> io::Result<Launch> {
    let mut entries = environment();
    // If heaptrace follows us, it must not follow what the program starts.
    entries.retain(|entry| value_of(entry, FOLLOW).is_none());
    Launch::new(program, words.to_vec(), entries)
}

/// Makes a launch of the program that records it. A user's own LD_PRELOAD stays where it is. Ours is a second entry at
/// the end, which the loader uses and our library removes.
pub fn recorded(program: &Path, words: &[OsString], library: &Path, channel: &str) -> io::Result<Launch> {
    let mut entries = environment();
    // If heaptrace follows us, it must not follow the program that we record.
    entries.retain(|entry| value_of(entry, FOLLOW).is_none());
    let theirs = last_preload(&entries);
    entries.push(entry(PRELOAD, before(library, theirs)));
    entries.push(entry(CHANNEL, channel));
    Launch::new(program, words.to_vec(), entries)
}

/// Makes a launch of a program that is followed with everything that it starts.
pub fn followed(program: &Path, words: &[OsString], library: &Path, channel: &str, hub: &str) -> io::Result<Launch> {
    let mut entries = environment();
    entries.retain(|entry| value_of(entry, FOLLOW).is_none());
    let theirs = last_preload(&entries);
    entries.push(entry(PRELOAD, before(library, theirs)));
    entries.push(entry(FOLLOW, hub));
    entries.push(entry(CHANNEL, channel));
    Launch::new(program, words.to_vec(), entries)
}

/// Makes a launch of gdb, in which `run` starts the recorded program. gdb itself and its helpers are not recorded.
pub fn under_gdb(gdb: &Path, program: &Path, words: &[OsString], library: &Path, channel: &str) -> io::Result<Launch> {
    let entries = environment();
    let mut line = vec![OsString::from("gdb")];
    let mut set = |name: &str, value: &OsStr| {
        let mut command = OsString::from(format!("set environment {name} "));
        command.push(value);
        line.extend(["-iex".into(), command]);
    };
    set(PRELOAD, &before(library, last_preload(&entries)));
    set(CHANNEL, OsStr::new(channel));
    // gdb must not start a shell, because the first process that has the variables is taken for the program.
    line.extend(["-iex", "set startup-with-shell off", "--args"].map(OsString::from));
    line.push(program.into());
    line.extend(words.iter().skip(1).cloned());
    Launch::new(gdb, line, entries)
}
