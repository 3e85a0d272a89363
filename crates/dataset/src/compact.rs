//! `heaptrack dataset compact` and `retain`: many small files become few, and old days are removed.
//!
//! Must hold: a new batch and the batches that it replaces are exchanged by one object of the manifest. Files of replaced
//! batches stay for a while, because an engine may be reading them. Frames and stacks are never removed, because other
//! batches may refer to them.
use crate::data_file::NewFile;
use crate::extract::positive;
use crate::manifest::{self, Dataset, Entry, Kind, Partition};
use crate::out;
use crate::parquet_file::TableReader;
use crate::partition_name::{check_date, date_of, days};
use crate::publish::{Published, UNFINISHED};
use crate::rows::{Cell, Rows};
use crate::schema::{EVENTS, FRAMES, Place, SCHEMA, STACKS, TABLES, Table};
use analysis::numbers::several;
use anyhow::{Context, bail};
use clap::Parser;
use foldhash::HashSet;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use xxhash_rust::xxh3::xxh3_64;

/// Batches are merged up to this many rows of sites, which bounds the memory that a merge needs.
const MOST_ROWS: u64 = 1_000_000;

/// How often a change is tried again if another process replaces batches at the same time.
const TRIES: usize = 100;

/// Merges the small files of each partition, and removes files that are no longer used.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset compact", bin_name = "heaptrack dataset compact")]
pub struct Compact {
    /// The folder of the dataset.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Remove files that are not used for this long, in seconds. Longer than any query and any `add` takes.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    pub grace: u64,
}

/// Removes the traces of old days.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset retain", bin_name = "heaptrack dataset retain")]
pub struct Retain {
    /// The folder of the dataset.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Keep this many days, up to the last day that the dataset has. Days after today do not count.
    #[arg(long, value_name = "N", conflicts_with = "before", required_unless_present = "before")]
    pub days: Option<u32>,
    /// Remove the days before this one, as 2026-11-18.
    #[arg(long, value_name = "DATE")]
    pub before: Option<String>,
    /// Only of this service.
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Remove files that are not used for this long, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    pub grace: u64,
}

pub fn compact(options: &Compact) -> anyhow::Result<()> {
    let (mut batches, mut files) = (0, 0);
    for _ in 0..TRIES {
        let dataset = Dataset::open(&options.folder)?;
        let mut change = dataset.last_change();
        let mut is_done = true;
        for group in groups(&dataset) {
            change += 1;
            if replace(&dataset, &group, Kind::Compact, change)? == Published::Existed {
                is_done = false;
                break;
            }
            batches += group.len();
            files += 1;
        }
        if is_done {
            let removed = vacuum(&Dataset::open(&options.folder)?, Duration::from_secs(options.grace))?;
            return out(&format!("{batches} batches became {files}, and {removed} unused files were removed\n"));
        }
    }
    bail!("other processes changed the dataset at the same time, {TRIES} times")
}

/// The batches that are to be merged, for each partition that has several small ones.
fn groups(dataset: &Dataset) -> Vec<Vec<&Entry>> {
    let mut partitions: BTreeMap<&Partition, Vec<&Entry>> = BTreeMap::new();
    for entry in dataset.live() {
        partitions.entry(&entry.partition).or_default().push(entry);
    }
    let groups = partitions.into_values().map(|mut entries| {
        entries.sort_by_key(|entry| (rows(entry), entry.batch));
        let mut total = 0;
        let small = entries.into_iter().take_while(|entry| {
            total += rows(entry);
            total <= MOST_ROWS
        });
        small.collect::<Vec<&Entry>>()
    });
    groups.filter(|group| group.len() > 1).collect()
}

fn rows(entry: &Entry) -> u64 {
    entry.files.iter().filter(|file| file.table != EVENTS.name).map(|file| file.rows).max().unwrap_or(0)
}

pub fn retain(options: &Retain) -> anyhow::Result<()> {
    options.before.as_deref().map(check_date).transpose()?;
    let today = today();
    for _ in 0..TRIES {
        let dataset = Dataset::open(&options.folder)?;
        // One trace of a host with a wrong clock must not make all others old.
        let dates = dataset.live().map(|entry| entry.partition.date.as_str());
        let last = dates.filter(|date| *date <= today.as_str()).max().and_then(days);
        let ahead = options.days.map_or_else(String::new, |_| text_about_future(&dataset, &today));
        let before = match (&options.before, options.days, last) {
            (Some(before), ..) => before.clone(),
            (None, Some(count), Some(last)) => date_of(last + 1 - i64::from(count)),
            _ => return out(&format!("nothing to remove\n{ahead}")),
        };
        let is_old = |entry: &&Entry| {
            let partition = &entry.partition;
            let is_service = options.service.as_ref().is_none_or(|service| *service == partition.service);
            !partition.date.is_empty() && partition.date < before && is_service
        };
        let group: Vec<&Entry> = dataset.live().filter(is_old).collect();
        let count: usize = group.iter().map(|entry| entry.sessions.len()).sum();
        if count == 0 || replace(&dataset, &group, Kind::Retain, dataset.last_change() + 1)? == Published::New {
            let removed = vacuum(&Dataset::open(&options.folder)?, Duration::from_secs(options.grace))?;
            return out(&format!("{count} traces before {before} were removed, and {removed} unused files\n{ahead}"));
        }
    }
    bail!("other processes changed the dataset at the same time, {TRIES} times")
}

/// The day, in UTC as all dates of a dataset.
fn today() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    date_of((since.as_secs() / (24 * 3600)) as i64)
}

/// A line about the traces that are dated after today, or nothing.
fn text_about_future(dataset: &Dataset, today: &str) -> String {
    let ahead = || dataset.live().filter(|entry| entry.partition.date.as_str() > today);
    let Some(last) = ahead().map(|entry| entry.partition.date.as_str()).max() else { return String::new() };
    let traces = several(ahead().map(|entry| entry.sessions.len() as u64).sum(), "trace");
    format!("{traces} dated after today, up to {last}: kept, and not counted as the last day\n")
}

/// Writes a batch with the rows of others, and exchanges them. Of a `retain`, only frames and stacks remain.
fn replace(dataset: &Dataset, group: &[&Entry], kind: Kind, change: u64) -> anyhow::Result<Published> {
    let mut replaces: Vec<i64> = group.iter().map(|entry| entry.batch).collect();
    replaces.sort_unstable();
    let batch = positive(xxh3_64(format!("{kind:?} {change} {replaces:?}").as_bytes()));
    let partition = match (kind, group.first()) {
        (Kind::Compact, Some(entry)) => entry.partition.clone(),
        _ => Partition::default(),
    };
    let mut files = Vec::new();
    for table in TABLES {
        let is_kept = kind == Kind::Compact || table.place == Place::Shared;
        if !is_kept || group.iter().all(|entry| entry.files_of(table.name).next().is_none()) {
            continue;
        }
        let mut file = NewFile::create(&dataset.root, table, &partition, batch)?;
        merge(dataset, group, table, batch, &mut file)?;
        files.push(file.finish(&dataset.root)?);
    }
    let sessions = group.iter().flat_map(|entry| entry.sessions.iter().copied()).collect();
    let entry = Entry { schema: SCHEMA, kind, batch, change, partition, sessions, replaces, files };
    manifest::commit(&dataset.root, &entry)
}

/// Writes the rows of all batches to one file. Events are copied a row group at a time, in the order of their traces;
/// all other tables are sorted as a whole.
fn merge(
    dataset: &Dataset,
    group: &[&Entry],
    table: &'static Table,
    batch: i64,
    out: &mut NewFile,
) -> anyhow::Result<()> {
    let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    let mut all = Rows::new(table);
    let mut seen: HashSet<(i64, i64)> = HashSet::default();
    let mut order: Vec<&&Entry> = group.iter().collect();
    order.sort_by_key(|entry| entry.sessions.first().copied());
    for file in order.iter().flat_map(|entry| entry.files_of(table.name)) {
        let reader = TableReader::open(table, &dataset.path(file))?;
        for part in 0..reader.groups() {
            let rows = reader.read(part, &columns)?;
            for row in 0..rows.len() {
                if table.place == Place::Shared && !seen.insert(key(table, &rows, row)) {
                    continue;
                }
                let mut cells: Vec<Cell<'_>> = (0..columns.len()).map(|at| rows.cell(at, row)).collect();
                cells[0] = batch.into();
                all.push(&cells);
            }
            if table.name == EVENTS.name {
                out.write(&all)?;
                all = Rows::new(table);
            }
        }
    }
    out.write(&all)
}

/// What makes rows of frames and stacks the same.
fn key(table: &Table, rows: &Rows, row: usize) -> (i64, i64) {
    debug_assert!(table.name == FRAMES.name || table.name == STACKS.name);
    let level = if table.name == STACKS.name { rows.int(2, row).unwrap_or(0) } else { 0 };
    (rows.int(1, row).unwrap_or(0), level)
}

/// Removes files of batches that were replaced, and files that belong to no batch, if they are older than `grace`.
/// Returns their number.
fn vacuum(dataset: &Dataset, grace: Duration) -> anyhow::Result<usize> {
    let used: HashSet<&str> =
        dataset.live().flat_map(|entry| entry.files.iter().map(|file| file.path.as_str())).collect();
    // A replaced batch is as old as the last change: a later one cannot have replaced it.
    let changes = dataset.entries.iter().filter(|(_, entry)| entry.change > 0);
    let manifest = dataset.root.join(manifest::FOLDER);
    let youngest = changes.filter_map(|(name, _)| age(&manifest.join(name))).min();
    let mut kept: HashSet<&str> = HashSet::default();
    if youngest.is_some_and(|age| age < grace) {
        kept.extend(dataset.entries.iter().flat_map(|(_, entry)| entry.files.iter().map(|file| file.path.as_str())));
    }
    let mut removed = 0;
    for table in TABLES {
        removed += sweep(
            &dataset.root,
            &dataset.root.join(table.name),
            &|path| !used.contains(path) && !kept.contains(path),
            grace,
        )?;
    }
    for (name, entry) in &dataset.entries {
        let path = manifest.join(name);
        if entry.change == 0 && !dataset.is_live(entry) && kept.is_empty() && age(&path).is_some_and(|age| age >= grace)
        {
            remove(&path)?;
        }
    }
    removed += sweep(&dataset.root, &manifest, &|path| !manifest::is_whole(&dataset.root.join(path)), grace)?;
    Ok(removed)
}

fn age(path: &Path) -> Option<Duration> {
    let changed = fs::metadata(path).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(changed).unwrap_or_default())
}

fn sweep(root: &Path, folder: &Path, is_unused: &dyn Fn(&str) -> bool, grace: Duration) -> anyhow::Result<usize> {
    let Ok(list) = fs::read_dir(folder) else { return Ok(0) };
    let mut removed = 0;
    for item in list {
        let path = item.with_context(|| folder.display().to_string())?.path();
        if path.is_dir() {
            removed += sweep(root, &path, is_unused, grace)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let is_data = (name.ends_with(".parquet") || name.ends_with(".json")) && is_unused(&name);
        if (is_data || name.ends_with(UNFINISHED)) && age(&path).is_some_and(|age| age >= grace) {
            remove(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}
