//! Where reports go: stderr, or a file for each process.
//!
//! Receives: a prefix, a pid and a name. Returns: a place to write to. Must hold: a report is written as a whole. A
//! file that cannot be written is reported once, and only its own reports are lost.
use crate::say;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

pub enum Output {
    Stderr,
    File {
        path: PathBuf,
        file: File,
    },
    /// The file could not be opened or written.
    Lost,
}

impl Output {
    pub fn open(prefix: Option<&Path>, pid: u32, name: &str) -> Self {
        let Some(prefix) = prefix else { return Output::Stderr };
        let mut path = prefix.as_os_str().to_owned();
        path.push(format!(".{pid}.{}", name.replace('/', "_")));
        let path = PathBuf::from(path);
        match File::create(&path) {
            Ok(file) => Output::File { path, file },
            Err(error) => lost(&path, &error),
        }
    }

    /// Writes a text. A closed stderr must not end the program, so its write error is ignored.
    pub fn put(&mut self, text: &str) {
        match self {
            Output::Stderr => drop(std::io::stderr().write_all(text.as_bytes())),
            Output::File { path, file } => {
                if let Err(error) = file.write_all(text.as_bytes()) {
                    *self = lost(path, &error);
                }
            }
            Output::Lost => (),
        }
    }
}

fn lost(path: &Path, error: &std::io::Error) -> Output {
    say(format_args!("heaptrace: {} cannot be written, its reports are lost: {error}", path.display()));
    Output::Lost
}
