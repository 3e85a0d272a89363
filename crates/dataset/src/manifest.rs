//! The manifest: which files belong to the dataset.
//!
//! Every change is one object in `manifest/`, a line of JSON that is created once and never changed. It names a batch,
//! the files of that batch, and the batches that it replaces. A batch is live if it has an object and no object replaces
//! it. Every row has the number of its batch, so an engine finds the live rows by
//! `batch IN (SELECT batch FROM live)`, whatever other files it sees.
//!
//! An added trace has an object that is named after the trace. An object that replaces batches (`compact`, `retain`) is
//! named by a number, one higher than the last one. If two processes replace batches at the same time, the second one
//! finds its number taken, and starts again with the manifest as it is then.
//!
//! An object that does not end in a line break was cut when its writer was killed (see `publish`). It does not count, as if
//! the writer had been killed before it.
//!
//! Must hold: all files of a batch are complete before its object exists. A file is deleted only some time after its
//! batch was replaced. Numbered objects are never deleted, so a trace that was added once is known for ever.
use crate::publish::{self, Published};
use crate::schema::SCHEMA;
use anyhow::{Context, bail, ensure};
use foldhash::HashSet;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

pub const FOLDER: &str = "manifest";

/// How the names of objects begin that replace batches.
const CHANGE: &str = "change-";

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct DataFile {
    pub table: String,
    /// Below the dataset's folder.
    pub path: String,
    pub rows: u64,
    pub bytes: u64,
}

/// Service, date and host.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub service: String,
    pub date: String,
    pub host: String,
}

impl Partition {
    pub fn folder(&self) -> String {
        format!("service={}/date={}/host={}", self.service, self.date, self.host)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Add,
    Compact,
    Retain,
}

/// One object of the manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub schema: u32,
    pub kind: Kind,
    pub batch: i64,
    /// The number of an object that replaces batches, otherwise 0.
    pub change: u64,
    #[serde(flatten)]
    pub partition: Partition,
    /// The sessions of this batch, and of `retain` those that were removed.
    pub sessions: Vec<i64>,
    pub replaces: Vec<i64>,
    pub files: Vec<DataFile>,
}

impl Entry {
    /// The name of the object. That of an added trace follows from the trace alone, so a second writer of the same trace
    /// finds it taken.
    pub fn name(&self) -> String {
        match (self.kind, self.sessions.as_slice()) {
            (Kind::Add, [session]) => format!("{session:016x}.json"),
            _ => format!("{CHANGE}{:08}.json", self.change),
        }
    }

    pub fn files_of<'a>(&'a self, table: &'a str) -> impl Iterator<Item = &'a DataFile> {
        self.files.iter().filter(move |file| file.table == table)
    }
}

/// A dataset as it was when its manifest was read.
pub struct Dataset {
    pub root: PathBuf,
    /// All objects, with their names.
    pub entries: Vec<(String, Entry)>,
    replaced: HashSet<i64>,
}

impl Dataset {
    /// Reads the manifest. A dataset that does not exist yet has none.
    pub fn open_or_new(root: &Path) -> anyhow::Result<Self> {
        let folder = root.join(FOLDER);
        let mut entries = Vec::new();
        let list = match fs::read_dir(&folder) {
            Ok(list) => list,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Dataset { root: root.to_owned(), entries, replaced: HashSet::default() });
            }
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", folder.display())),
        };
        for item in list {
            let name = item.with_context(|| folder.display().to_string())?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".json") && !name.starts_with('.') {
                // An object that was replaced may be deleted while the list is read.
                if let Some(entry) = read(&folder.join(&name))? {
                    entries.push((name, entry));
                }
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let replaced = entries.iter().flat_map(|(_, entry)| entry.replaces.iter().copied()).collect();
        Ok(Dataset { root: root.to_owned(), entries, replaced })
    }

    pub fn open(root: &Path) -> anyhow::Result<Self> {
        let name = root.display();
        let metadata = fs::metadata(root).with_context(|| format!("{name} cannot be read"))?;
        ensure!(metadata.is_dir(), "{name} is no folder");
        let dataset = Self::open_or_new(root)?;
        ensure!(
            !dataset.entries.is_empty(),
            "{name} is no dataset: it has no {FOLDER}/ (heaptrack dataset add makes one)"
        );
        Ok(dataset)
    }

    /// The entries that count, in a fixed order.
    pub fn live(&self) -> impl Iterator<Item = &Entry> {
        let mut seen: HashSet<i64> = HashSet::default();
        let live = self.entries.iter().map(|(_, entry)| entry).filter(|entry| !self.replaced.contains(&entry.batch));
        live.filter(move |entry| seen.insert(entry.batch))
    }

    pub fn is_live(&self, entry: &Entry) -> bool {
        !self.replaced.contains(&entry.batch)
    }

    /// The number of the last object that replaced batches.
    pub fn last_change(&self) -> u64 {
        self.entries.iter().map(|(_, entry)| entry.change).max().unwrap_or(0)
    }

    /// The sessions that the dataset has, or had before `retain`.
    pub fn known_sessions(&self) -> HashSet<i64> {
        self.entries.iter().flat_map(|(_, entry)| entry.sessions.iter().copied()).collect()
    }

    pub fn path(&self, file: &DataFile) -> PathBuf {
        self.root.join(&file.path)
    }
}

fn read(path: &Path) -> anyhow::Result<Option<Entry>> {
    let name = path.display();
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{name} cannot be read")),
    };
    if !text.ends_with(b"\n") {
        return Ok(None);
    }
    // The version is looked at first, because a newer object may have a form that does not parse.
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let version: Version = serde_json::from_slice(&text).with_context(|| format!("{name} is damaged"))?;
    if version.schema > SCHEMA {
        bail!(
            "{name} has version {} of the schema, and this heaptrack knows {SCHEMA}: a newer one is needed",
            version.schema
        );
    }
    let entry: Entry = serde_json::from_slice(&text).with_context(|| format!("{name} is damaged"))?;
    let is_inside = |file: &DataFile| !file.path.starts_with('/') && !file.path.split('/').any(|part| part == "..");
    ensure!(entry.files.iter().all(is_inside), "{name} names a file outside of the dataset");
    Ok(Some(entry))
}

/// Creates the object: this moment makes the batch a part of the dataset.
///
/// For an added trace: if the trace was added, compacted and its first object removed since `seen`, the object is taken
/// back.
pub fn commit_add(root: &Path, entry: &Entry, seen: u64) -> anyhow::Result<Published> {
    let published = commit(root, entry)?;
    let mut change = seen + 1;
    while let Some(later) = read(&root.join(FOLDER).join(format!("{CHANGE}{change:08}.json")))? {
        let has_other = later.sessions.iter().any(|session| entry.sessions.contains(session));
        if has_other && published == Published::New && !later.replaces.contains(&entry.batch) {
            fs::remove_file(root.join(FOLDER).join(entry.name()))?;
            return Ok(Published::Existed);
        }
        change += 1;
    }
    Ok(published)
}

/// Creates the object, if its name is free.
pub fn commit(root: &Path, entry: &Entry) -> anyhow::Result<Published> {
    let mut text = serde_json::to_vec(entry)?;
    text.push(b'\n');
    publish::publish(&root.join(FOLDER).join(entry.name()), &text, is_whole)
}

/// False for an object that was cut.
pub fn is_whole(object: &Path) -> bool {
    fs::read(object).is_ok_and(|text| text.ends_with(b"\n"))
}
