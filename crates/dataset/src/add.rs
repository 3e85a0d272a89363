//! `heaptrack dataset add`: turns traces into files of a dataset.
//!
//! Receives: traces, and what the user says about them. Returns: a line for each. Must hold: a trace is in the dataset
//! completely or not at all, and once. This holds if another process adds it at the same time, and if this process is killed.
use crate::data_file::{self, NewFile};
use crate::extract::{self, About, Dictionary};
use crate::manifest::{self, DataFile, Dataset, Entry, Kind, Partition};
use crate::partition_name::{check, check_date, date_of};
use crate::publish::Published;
use crate::schema::{EVENTS, FRAMES, SCHEMA, STACKS};
use crate::{out, say};
use anyhow::{Context, bail, ensure};
use clap::Parser;
use foldhash::HashSet;
use heaptrack_trace::Trace;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Adds traces to a dataset, which is created if it does not exist. A trace that it has already is left out.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset add", bin_name = "heaptrack dataset add")]
pub struct Add {
    /// The folder of the dataset. It may be a mounted object store.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Traces of heaptrack or of KDE's heaptrack, or heap profiles (pprof, DHAT, massif, gperftools, jemalloc).
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// The service that was recorded.
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// A label, which `report` sums up by; repeatable.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// The host on which it was recorded. Without it, this machine's name.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// The day of the recording (UTC), as 2026-11-18. Without it, the day on which the recording started.
    #[arg(long, value_name = "DATE")]
    pub date: Option<String>,
    /// The version of the service.
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    pub version: String,
    /// Also add every allocation and every free, as the table `events`.
    #[arg(long)]
    pub events: bool,
}

pub fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE".to_owned()),
    }
}

pub fn run(options: &Add) -> anyhow::Result<()> {
    check("service", &options.service)?;
    let host = match &options.host {
        Some(host) => host.clone(),
        None => rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    check("host", &host)?;
    options.date.as_deref().map(check_date).transpose()?;
    let mut labels = options.labels.clone();
    labels.sort();
    labels.dedup();
    for pair in labels.windows(2) {
        ensure!(pair[0].0 != pair[1].0, "the label `{}` is given twice, with different values", pair[0].0);
    }
    let dataset = Dataset::open_or_new(&options.folder)?;
    let mut adder = Adder {
        options,
        host,
        labels,
        known: dataset.known_sessions(),
        seen: dataset.last_change(),
        dictionary: read_dictionary(&dataset)?,
    };
    let mut failed = 0;
    for file in &options.files {
        let name = file.display();
        match adder.add(file) {
            Ok(Added::New) => out(&format!("{name}: added\n"))?,
            Ok(Added::Known) => out(&format!("{name}: already in the dataset\n"))?,
            Err(error) => {
                say(&error);
                failed += 1;
                // The next traces must not rely on frames that were not committed.
                adder.dictionary = read_dictionary(&Dataset::open_or_new(&options.folder)?)?;
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} traces were not added", options.files.len()),
    }
}

/// Returns the frames and stacks of all live batches. Those of batches that are not committed do not count, because their
/// files may be removed.
fn read_dictionary(dataset: &Dataset) -> anyhow::Result<Dictionary> {
    let mut dictionary = Dictionary::default();
    for (table, column, set) in [(&FRAMES, "frame", &mut dictionary.frames), (&STACKS, "stack", &mut dictionary.stacks)]
    {
        let at = table.index(column).unwrap_or(0);
        data_file::scan(
            dataset,
            table,
            &[column],
            |_| true,
            |_, rows| {
                set.extend((0..rows.len()).filter_map(|row| rows.int(at, row)));
                Ok(())
            },
        )?;
    }
    Ok(dictionary)
}

enum Added {
    New,
    Known,
}

struct Adder<'a> {
    options: &'a Add,
    host: String,
    labels: Vec<(String, String)>,
    known: HashSet<i64>,
    /// The number of the last change when the manifest was read.
    seen: u64,
    dictionary: Dictionary,
}

impl Adder<'_> {
    fn add(&mut self, path: &Path) -> anyhow::Result<Added> {
        let name = path.display();
        let hash = content_hash(path).with_context(|| format!("{name} cannot be read"))?;
        let session = extract::positive(hash as u64);
        if self.known.contains(&session) {
            return Ok(Added::Known);
        }
        let trace = Trace::open(path).with_context(|| format!("{name} cannot be read"))?;
        ensure!(
            !self.options.events || trace.sampled_every().is_none(),
            "{name} has only a sample of the blocks, so it has no table of all events: add it without --events"
        );
        let partition = Partition {
            service: self.options.service.clone(),
            date: self.date(&trace, path)?,
            host: self.host.clone(),
        };
        let entry = self.write(&trace, hash, session, partition)?;
        self.known.insert(session);
        match manifest::commit_add(&self.options.folder, &entry, self.seen)? {
            Published::New => Ok(Added::New),
            Published::Existed => {
                self.lose_race(&entry)?;
                Ok(Added::Known)
            }
        }
    }

    /// Writes all files of a trace. They do not count yet.
    fn write(&mut self, trace: &Trace, hash: u128, session: i64, partition: Partition) -> anyhow::Result<Entry> {
        let (root, options) = (&self.options.folder, self.options);
        let what = serde_json::to_vec(&(
            (SCHEMA, env!("CARGO_PKG_VERSION"), session),
            (&partition, &options.version, &self.labels, options.events),
        ))?;
        let about = About {
            batch: extract::positive(xxh3_64(&what)),
            session,
            trace: &format!("{hash:032x}"),
            version: &options.version,
            labels: &self.labels,
        };
        let mut files: Vec<DataFile> = Vec::new();
        for rows in extract::extract(trace, &about, &mut self.dictionary)? {
            files.push(data_file::publish(root, &rows, &partition, about.batch)?);
        }
        if options.events && !trace.is_heap_profile() {
            let mut file = NewFile::create(root, &EVENTS, &partition, about.batch)?;
            extract::events(trace, &about, |rows| file.write(rows))?;
            files.push(file.finish(root)?);
        }
        let (kind, sessions) = (Kind::Add, vec![session]);
        let (batch, replaces) = (about.batch, Vec::new());
        Ok(Entry { schema: SCHEMA, kind, batch, change: 0, partition, sessions, replaces, files })
    }

    /// Another writer has added the trace meanwhile. Removes our files, unless they are the same ones.
    fn lose_race(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let dataset = Dataset::open_or_new(&self.options.folder)?;
        let is_used = dataset.entries.iter().any(|(_, other)| other.batch == entry.batch);
        if !is_used {
            for file in &entry.files {
                fs::remove_file(self.options.folder.join(&file.path))?;
            }
            // What we wrote of the dictionary is gone with them.
            self.dictionary = read_dictionary(&dataset)?;
        }
        Ok(())
    }

    fn date(&self, trace: &Trace, path: &Path) -> anyhow::Result<String> {
        if let Some(date) = &self.options.date {
            return Ok(date.clone());
        }
        const DAY: u64 = 24 * 3600;
        let started = trace.session().started_unix_ns / 1_000_000_000;
        if started > 0 {
            return Ok(date_of((started / DAY) as i64));
        }
        let changed = fs::metadata(path)?.modified()?;
        let seconds = changed.duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Ok(date_of((seconds / DAY) as i64))
    }
}

fn content_hash(path: &Path) -> std::io::Result<u128> {
    let mut file = File::open(path)?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.digest128()),
            count => hash.update(&buffer[..count]),
        }
    }
}
