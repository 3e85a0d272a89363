//! The traces that were opened last.
//!
//! Must hold: a file that changed since it was opened is opened again. Few traces are kept, so memory is bounded by those.
use crate::folders::{Folders, Found};
use crate::rows::shortened;
use heaptrack_trace::Trace;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How many traces stay open. A comparison needs two.
const KEPT: usize = 3;

#[derive(Default)]
pub struct Traces(Vec<Opened>);

struct Opened {
    path: PathBuf,
    state: u64,
    trace: Rc<Trace>,
}

/// A trace, and a number that changes when its file does.
pub struct Asked {
    pub trace: Rc<Trace>,
    pub path: PathBuf,
    pub state: u64,
}

impl Traces {
    /// Opens a trace below the folders, or returns the one that is open. The error is a sentence.
    pub fn get(&mut self, folders: &Folders, asked: &str) -> Result<Asked, String> {
        let Found { file, path } = folders.open(asked)?;
        let state = state(&file, &path).map_err(|error| format!("`{}`: {error}", shortened(asked)))?;
        if let Some(at) = self.0.iter().position(|opened| opened.path == path && opened.state == state) {
            let opened = self.0.remove(at);
            self.0.insert(0, opened);
        } else {
            self.0.retain(|opened| opened.path != path);
            self.0.truncate(KEPT - 1);
            let trace = Trace::open_file(file, &path).map_err(|error| format!("`{}`: {error}", shortened(asked)))?;
            self.0.insert(0, Opened { path: path.clone(), state, trace: Rc::new(trace) });
        }
        let opened = self.0.first().ok_or("no trace is open")?;
        Ok(Asked { trace: Rc::clone(&opened.trace), path, state })
    }
}

fn state(file: &File, path: &Path) -> std::io::Result<u64> {
    let metadata = file.metadata()?;
    let mut hasher = DefaultHasher::new();
    (path, metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
    Ok(hasher.finish())
}
