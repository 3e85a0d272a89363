//! The command that becomes the target.
//!
//! Given: the program, the library, the channel's variable. Gives back: a command, or the same under gdb. What must
//! hold: the program gets its own words, environment and terminal; only the two variables that the library takes away
//! again are added.
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub const CHANNEL: &str = "HEAPTRACK_CHANNEL";
/// Where a whole tree of processes is followed: the path of its hub.
const FOLLOW: &str = "HEAPTRACK_FOLLOW";
const PRELOAD: &str = "LD_PRELOAD";

/// Ours in front of what was there.
fn preload(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(old) = std::env::var_os(PRELOAD).filter(|old| !old.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// The program as it was called, unrecorded.
pub fn plain(program: &Path, words: &[OsString]) -> Command {
    let mut command = Command::new(program);
    if let Some((name, rest)) = words.split_first() {
        command.arg0(name).args(rest);
    }
    command
}

pub fn recorded(program: &Path, words: &[OsString], library: &Path, channel: &str) -> Command {
    let mut command = plain(program, words);
    // Whoever follows us does not follow what we record.
    command.env(PRELOAD, preload(library)).env(CHANNEL, channel).env_remove(FOLLOW);
    command
}

/// The same for a program that is watched with everything that it starts.
pub fn followed(program: &Path, words: &[OsString], library: &Path, channel: &str, hub: &str) -> Command {
    let mut command = recorded(program, words, library, channel);
    command.env(FOLLOW, hub);
    command
}

/// gdb, in which `run` starts the recorded program; gdb itself and its helpers stay as they are.
pub fn under_gdb(program: &Path, words: &[OsString], library: &Path, channel: &str) -> Command {
    let mut command = Command::new("gdb");
    let mut set = |name: &str, value: &OsStr| {
        let mut line = OsString::from(format!("set environment {name} "));
        line.push(value);
        command.arg("-iex").arg(line);
    };
    set(PRELOAD, &preload(library));
    set(CHANNEL, OsStr::new(channel));
    // Without a shell in between: the first process that has the variables is the program.
    command.args(["-iex", "set startup-with-shell off", "--args"]).arg(program);
    command.args(words.iter().skip(1));
    command
}
