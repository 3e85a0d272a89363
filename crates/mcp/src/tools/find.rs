//! Which traces there are.
use super::{Context, Tool};
use crate::arguments::Arguments;
use crate::page::Page;
use crate::rows::shortened;
use serde_json::{Value, json};
use std::fs::{self, DirEntry};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The deepest folder, and the most entries of all folders, that are looked at.
const DEEPEST: usize = 6;
const MOST_ENTRIES: usize = 20_000;

struct Search {
    found: Vec<(SystemTime, PathBuf, u64)>,
    entries: usize,
}

pub fn list_traces(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let mut search = Search { found: Vec::new(), entries: 0 };
    context.folders.paths().for_each(|folder| search.walk(folder, 0));
    let Search { mut found, entries } = search;
    found.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    found.dedup_by(|one, other| one.1 == other.1);
    let mut hasher = DefaultHasher::new();
    found.hash(&mut hasher);
    let folders: Vec<_> = context.folders.paths().map(|folder| folder.to_string_lossy()).collect();
    let mut answer = json!({ "folders": folders, "can_record": context.recorder.is_some() });
    if entries >= MOST_ENTRIES {
        answer["not_seen"] =
            json!([format!("The folders have more than {MOST_ENTRIES} entries; the rest was not looked at.")]);
    }
    Page::new(tool.name, arguments, hasher.finish())?.put(&mut answer, &found, |(time, path, size)| {
        let age = time.elapsed().map_or(0, |age| age.as_secs());
        json!({ "trace": shortened(&path.to_string_lossy()), "bytes": size, "modified_seconds_ago": age })
    });
    Ok(answer)
}

impl Search {
    /// Follows no symbolic link, so it stays below the folder.
    fn walk(&mut self, folder: &Path, depth: usize) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries >= MOST_ENTRIES {
                return;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < DEEPEST && !is_hidden(&entry) {
                self.walk(&entry.path(), depth + 1);
            } else if kind.is_file() && is_trace(&entry) {
                let Ok(metadata) = entry.metadata() else { continue };
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                self.found.push((modified, entry.path(), metadata.len()));
            }
        }
    }
}

fn is_hidden(entry: &DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// By name for traces, and by content for heap profiles, which have any name.
fn is_trace(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let is_packed = name.ends_with(".zst") || name.ends_with(".gz");
    let is_profile = || match heaptrack_trace::heap_profile_kind(entry.path()) {
        Ok(Some(kind)) => {
            kind.has_certain_beginning() || is_packed || [".pprof", ".pb"].iter().any(|end| name.ends_with(end))
        }
        _ => false,
    };
    name.ends_with(".htz") || name.starts_with("heaptrack.") && is_packed || is_profile()
}
