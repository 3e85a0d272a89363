//! All traces of a server, and the answers about them.
//!
//! Receives: files. Returns: JSON. Must hold: an address names a trace by its number, never by a path. The numbers are
//! those of the given files and of the traces in the same folders. Of all other files, only those that an open trace
//! names are read: sources, and for a raw file of KDE's heaptrack the object files with their debug information.
use crate::server::{Answers, Saved};
use crate::single_file::ReportError;
use crate::sources;
use crate::trace::{Stage, Trace};
use crate::with_engine::{FindViewer, report};
use analysis::view::View;
use analysis::{Query, StackTable};
use answers::{
    BadOptions, NamedText, Options, Question, Refusal, State, TraceStatus, answer, check_suppressions, pairs, question,
    table,
};
use format::Domain;
use heaptrack_trace::OpenTrace;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The size that a saved report should not exceed, which is the default of `heaptrack report`.
const SAVED_BYTES: u64 = 24_000_000;

/// The most traces of the same folders that are offered.
const MOST_BESIDE: usize = 200;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0}: {1}")]
    File(PathBuf, String),
    #[error(transparent)]
    Options(#[from] BadOptions),
}

pub struct TraceStore {
    places: Vec<StoredTrace>,
    options: RwLock<Options>,
    /// For reports that the user saves.
    find_viewer: FindViewer,
}

/// A file, which has a trace for each domain. All but malloc's are read when they are first asked for.
struct StoredTrace {
    malloc: Arc<Trace>,
    custom: Arc<Trace>,
    mapped: Arc<Trace>,
}

impl StoredTrace {
    fn new(path: &Path, is_given: bool) -> Self {
        let trace = |domain| Trace::new(path, domain, is_given);
        StoredTrace { malloc: trace(Domain::Malloc), custom: trace(Domain::Custom), mapped: trace(Domain::Mapped) }
    }

    const fn of(&self, domain: Domain) -> &Arc<Trace> {
        match domain {
            Domain::Malloc => &self.malloc,
            Domain::Custom => &self.custom,
            Domain::Mapped => &self.mapped,
        }
    }
}

impl TraceStore {
    /// Returns an error if the rules or the suppressions are invalid, or if there is only one file and it cannot be
    /// opened. With several files, the page shows which one cannot be opened.
    pub fn new(files: &[&Path], options: Options, find_viewer: FindViewer) -> Result<Arc<Self>, OpenError> {
        options.check()?;
        let mut failed = None;
        for path in files {
            if let Err(error) = look(path) {
                let reason = error.to_string();
                let reason = reason.split(" (os error").next().unwrap_or(&reason).to_owned();
                failed = failed.or(Some(OpenError::File((*path).to_owned(), reason))).filter(|_| files.len() == 1);
                if failed.is_some() {
                    break;
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Self::with(files, options, find_viewer)),
        }
    }

    /// For a recording that has just started, whose file may still be empty. Neither the file nor the options are
    /// checked.
    pub fn growing(path: &Path, options: Options, find_viewer: FindViewer) -> Arc<Self> {
        Self::with(&[path], options, find_viewer)
    }

    fn with(files: &[&Path], options: Options, find_viewer: FindViewer) -> Arc<Self> {
        let mut places: Vec<StoredTrace> = files.iter().map(|path| StoredTrace::new(path, true)).collect();
        places.extend(beside(files).iter().map(|path| StoredTrace::new(path, false)));
        Arc::new(TraceStore { places, options: RwLock::new(options), find_viewer })
    }

    /// Starts to load all given traces, each on a thread of its own.
    pub fn start(&self) {
        self.places.iter().map(|place| &place.malloc).filter(|trace| trace.is_given).for_each(Trace::start);
    }

    fn options(&self) -> Options {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn trace(&self, number: usize, domain: Domain) -> Result<&Arc<Trace>, Refusal> {
        let place = self.places.get(number);
        let place = place
            .ok_or_else(|| Refusal::new(404, format!("There is no trace number {}.", number.saturating_add(1))))?;
        let trace = place.of(domain);
        // A request for a trace of the same folder counts as consent to open it.
        trace.start();
        Ok(trace)
    }

    /// The table of stacks of a trace. It is made again when the trace has grown or the suppressions have changed, and
    /// then only questions about this trace wait for it.
    fn table(&self, trace: &Trace, open: &OpenTrace) -> Arc<StackTable> {
        let mut latest = trace.table.lock().unwrap_or_else(PoisonError::into_inner);
        let version = trace.version();
        match &*latest {
            Some((known, table)) if *known == version => Arc::clone(table),
            _ => {
                let table = Arc::new(table(open, &self.options()));
                *latest = Some((version, Arc::clone(&table)));
                table
            }
        }
    }

    /// Calls `look` with the first trace, as far as it was read, and the table of its stacks.
    pub fn look<T>(&self, look: impl FnOnce(&OpenTrace, &StackTable) -> T) -> Result<T, Refusal> {
        let trace = self.trace(0, Domain::Malloc)?;
        let stage = trace.stage();
        let open = opened(&stage)?;
        let table = self.table(trace, open);
        Ok(look(open, &table))
    }

    /// The table of a trace that is open and that can be compared. Its lock is not held afterwards, so several tables can
    /// be used together.
    fn comparable_table(&self, number: usize, domain: Domain) -> Result<Arc<StackTable>, Refusal> {
        let trace = self.trace(number, domain)?;
        let stage = trace.stage();
        let open = opened(&stage)?;
        answers::refuse_samples([open])?;
        Ok(self.table(trace, open))
    }

    fn pairs(&self, base: usize, runs: &[usize], domain: Domain) -> Result<Vec<u8>, Refusal> {
        let base = self.comparable_table(base, domain)?;
        let runs: Vec<_> = runs.iter().map(|run| self.comparable_table(*run, domain)).collect::<Result<_, _>>()?;
        pairs(&base, &runs.iter().map(|run| &**run).collect::<Vec<_>>())
    }

    fn ask(&self, view: View, number: usize, query: &Query, beside: Option<usize>) -> Result<Vec<u8>, Refusal> {
        let trace = self.trace(number, query.domain)?;
        let stage = trace.stage();
        let open = opened(&stage)?;
        let table = self.table(trace, open);
        match beside {
            Some(other) => {
                let other = self.comparable_table(other, query.domain)?;
                answer(view, open, &table, &table.beside(&other, query))
            }
            None => answer(view, open, &table, query),
        }
    }

    /// Returns the state of all traces, and starts to load the one that is asked for. A trace of the same folder that
    /// no request has asked for is only listed under `beside`.
    fn status(&self, asked: usize, domain: Domain) -> Value {
        if let Some(place) = self.places.get(asked) {
            place.of(domain).start();
        }
        let traces = || {
            let of = |number: usize| if number == asked { domain } else { Domain::Malloc };
            self.places.iter().enumerate().map(move |(number, place)| (number, place.of(of(number))))
        };
        let is_open = |trace: &Trace| trace.is_given || !matches!(*trace.stage(), Stage::Waiting);
        let entry = |trace: &Arc<Trace>| if is_open(trace) { status_of(trace) } else { Value::Null };
        let offered = traces().filter(|(_, trace)| !is_open(trace));
        let beside: Vec<Value> =
            offered.map(|(number, trace)| json!({ "index": number, "name": trace.name() })).collect();
        json!({
            "tool": self.options().tool,
            "traces": traces().map(|(_, trace)| entry(trace)).collect::<Vec<_>>(),
            "beside": beside,
            "compare": null,
            "report": null,
            "can_save": true,
        })
    }

    /// Returns the text of a source file, if trace `number` names that file.
    fn source_text(&self, number: usize, file: &str) -> Result<Vec<u8>, Refusal> {
        let trace = self.trace(number, Domain::Malloc)?;
        let stage = trace.stage();
        let open = opened(&stage)?;
        let table = self.table(trace, open);
        let is_named = table.levels.iter().any(|level| table.text(level.file) == Some(file));
        if !is_named {
            return Err(Refusal::new(403, "That file is no source of this trace."));
        }
        let text = sources::read(Path::new(file)).map_err(|reason| Refusal::new(404, format!("{file} {reason}.")))?;
        Ok(json!({ "file": file, "text": text }).to_string().into_bytes())
    }
}

pub(crate) fn opened(stage: &Stage) -> Result<&OpenTrace, Refusal> {
    match stage {
        Stage::Open(open) => Ok(open),
        Stage::Failed(sentence) => Err(Refusal::new(422, sentence.clone())),
        Stage::Waiting | Stage::Loading(_) => Err(Refusal::new(503, "This trace is still being read.")),
    }
}

/// Reads only the beginning of the file, to know whether it is a trace.
fn look(path: &Path) -> Result<(), format::Error> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(format::Error::Folder);
    }
    match heaptrack_trace::heap_profile_kind(path)? {
        // Damage in it is noticed when it is read.
        Some(_) => Ok(()),
        None => format::Source::open(path).map(drop),
    }
}

/// The other traces in the folders of the given ones, sorted by path, at most `MOST_BESIDE`.
fn beside(files: &[&Path]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        files.iter().filter_map(|path| Some(path.canonicalize().ok()?.parent()?.to_owned())).collect();
    folders.sort();
    folders.dedup();
    let given: Vec<PathBuf> = files.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with('.')
            && (name.ends_with(".htz")
                || name.starts_with("heaptrack.") && (name.ends_with(".zst") || name.ends_with(".gz")))
    };
    let mut found: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| is_trace(path) && !given.contains(path) && path.is_file())
        .collect();
    found.sort();
    found.truncate(MOST_BESIDE);
    found
}

pub(crate) fn status_of(trace: &Trace) -> Value {
    let stage = trace.stage();
    let state = match &*stage {
        Stage::Waiting => State::Waiting,
        Stage::Loading(since) => {
            let (share, left) = trace.progress(*since);
            State::Loading(share, left)
        }
        Stage::Open(open) => State::Open(open),
        Stage::Failed(sentence) => State::Failed(sentence),
    };
    let (name, path, version) = (trace.name(), trace.path.to_string_lossy(), trace.version());
    answers::status_of(&TraceStatus { name: &name, path: &path, state, version })
}

impl Answers for TraceStore {
    fn answer(&self, view: &str, query: &str) -> Result<Vec<u8>, Refusal> {
        match question(view, query)? {
            Question::Status { trace, domain } => Ok(self.status(trace, domain).to_string().into_bytes()),
            Question::Pairs { trace, base, earlier, domain } => {
                self.pairs(base, &[earlier, vec![trace]].concat(), domain)
            }
            Question::SourceText { trace, file } => self.source_text(trace, &file),
            Question::View { trace, view, query, beside } => self.ask(view, trace, &query, beside),
        }
    }

    fn report(&self, number: usize) -> Result<Saved, Refusal> {
        let trace = self.trace(number, Domain::Malloc)?;
        let refused = |error: ReportError| Refusal::new(400, error.to_string());
        let page = report(&trace.path, &self.options(), SAVED_BYTES, self.find_viewer).map_err(refused)?;
        Ok(Saved { name: format!("{}.html", trace.name()), html: page.html })
    }

    fn suppress(&self, text: &str) -> Result<Vec<u8>, Refusal> {
        let added = check_suppressions(text).map_err(|bad| Refusal::new(400, bad))?;
        {
            let mut options = self.options.write().unwrap_or_else(PoisonError::into_inner);
            options.suppressions.push(NamedText { name: "the posted file".to_owned(), text: text.to_owned() });
        }
        // The versions are incremented after the options have changed. A question that sees the new version therefore
        // makes its table with the new suppressions.
        for place in &self.places {
            place.malloc.touch();
            place.custom.touch();
            place.mapped.touch();
        }
        Ok(json!({ "added": added }).to_string().into_bytes())
    }
}
