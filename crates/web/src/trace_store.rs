//! All traces of a server, and the answers about them.
//!
//! Receives: files. Returns: JSON. Must hold: an address names a trace by its number, never by a path. The numbers are
//! those of the given files and of the traces in the same folders. Of all other files, only those that an open trace
//! names are read: sources, and for a raw file of KDE's heaptrack the object files with their debug information.
use crate::address;
use crate::server::{Answers, Refusal};
use crate::sources;
use crate::trace::{Stage, Trace};
use analysis::view::{AnswerError, View};
use analysis::{CodeClasses, Costs, KnownCosts, Query, Source, StackTable, Suppressions};
use format::Domain;
use heaptrack_trace::{AskError, OpenTrace};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The most traces of the same folders that are offered.
const MOST_BESIDE: usize = 200;

/// The text of one of the user's files, and the name by which messages call that file.
#[derive(Clone, Debug)]
pub struct NamedText {
    pub name: String,
    pub text: String,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// A rules file, which tells which code is the user's.
    pub rules: Option<NamedText>,
    /// The user's suppressions, in LeakSanitizer's format.
    pub suppressions: Vec<NamedText>,
    /// Whether heaptrack's own suppressions are used.
    pub builtin: bool,
    /// Whether the suppressions that are built into the recorded program are used.
    pub embedded: bool,
    /// The name and version of heaptrack.
    pub tool: String,
}

/// A line of the user's files that is no rule or no suppression.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadOptions(String);

impl Options {
    /// Everything that uses rules and suppressions later ignores invalid lines, so they must be refused here.
    pub(crate) fn check(&self) -> Result<(), BadOptions> {
        if let Some(NamedText { name, text }) = &self.rules {
            CodeClasses::new("").add_rules(text).map_err(|bad| BadOptions(format!("{name}: {bad}")))?;
        }
        for NamedText { name, text } in &self.suppressions {
            check_suppressions(text).map_err(|bad| BadOptions(format!("{name}, {bad}")))?;
        }
        Ok(())
    }

    fn classes(&self, exe: &str) -> Result<CodeClasses, analysis::BadRule> {
        let mut classes = CodeClasses::new(exe);
        if let Some(rules) = &self.rules {
            classes.add_rules(&rules.text)?;
        }
        Ok(classes)
    }
}

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
}

/// A file, which has a trace for each domain. The trace of custom allocators is read when it is first asked for.
struct StoredTrace {
    malloc: Arc<Trace>,
    custom: Arc<Trace>,
}

impl StoredTrace {
    fn new(path: &Path, is_given: bool) -> Self {
        let trace = |domain| Trace::new(path, domain, is_given);
        StoredTrace { malloc: trace(Domain::Malloc), custom: trace(Domain::Custom) }
    }

    const fn of(&self, domain: Domain) -> &Arc<Trace> {
        match domain {
            Domain::Malloc => &self.malloc,
            Domain::Custom => &self.custom,
        }
    }
}

impl TraceStore {
    /// Returns an error if the rules or the suppressions are invalid, or if there is only one file and it cannot be
    /// opened. With several files, the page shows which one cannot be opened.
    pub fn new(files: &[&Path], options: Options) -> Result<Arc<Self>, OpenError> {
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
            None => Ok(Self::with(files, options)),
        }
    }

    /// For a recording that has just started, whose file may still be empty. Neither the file nor the options are
    /// checked.
    pub fn growing(path: &Path, options: Options) -> Arc<Self> {
        Self::with(&[path], options)
    }

    fn with(files: &[&Path], options: Options) -> Arc<Self> {
        let mut places: Vec<StoredTrace> = files.iter().map(|path| StoredTrace::new(path, true)).collect();
        places.extend(beside(files).iter().map(|path| StoredTrace::new(path, false)));
        Arc::new(TraceStore { places, options: RwLock::new(options) })
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

    fn ask(&self, view: View, number: usize, query: &Query) -> Result<Vec<u8>, Refusal> {
        let trace = self.trace(number, query.domain)?;
        let stage = trace.stage();
        let open = opened(&stage)?;
        let table = self.table(trace, open);
        answer(view, open, &table, query)
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

pub(crate) fn table(open: &OpenTrace, options: &Options) -> StackTable {
    let definitions = open.engine().definitions();
    let exe = &definitions.session.exe;
    // Never the fallback, because `Options::check` has parsed the same rules.
    let classes = options.classes(exe).unwrap_or_else(|_| CodeClasses::new(exe));
    // The order is the one of `print`, because a leak that several suppressions match is attributed to the first one.
    let mut suppressions = Suppressions::new();
    if options.builtin {
        suppressions.add_builtin();
    }
    for file in &options.suppressions {
        suppressions.add(&file.text, Source::File);
    }
    if options.embedded {
        suppressions.add(&definitions.suppressions, Source::Embedded);
    }
    open.table(&classes, suppressions)
}

pub(crate) fn answer(view: View, open: &OpenTrace, table: &StackTable, query: &Query) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    match open.answer(view, query, table, None, &mut out) {
        Ok(()) => Ok(out),
        Err(AskError::Answer(AnswerError::Query(bad))) => Err(Refusal::new(400, bad.to_string())),
        Err(AskError::Answer(error)) => Err(Refusal::new(410, format!("The trace changed under us: {error}."))),
        Err(AskError::Read(error)) => Err(cannot_be_read(&error)),
    }
}

/// The refusal for a file that could be read when it was opened, but cannot be read a second time.
pub(crate) fn cannot_be_read(error: &format::Error) -> Refusal {
    Refusal::new(410, format!("The trace cannot be read any more: {error}."))
}

fn check_suppressions(text: &str) -> Result<usize, String> {
    let mut list = Suppressions::new();
    match list.add(text, Source::File).first() {
        Some(bad) => Err(bad.to_string()),
        None => Ok(list.list().len()),
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
    let (state, progress, remaining, error) = match &*stage {
        Stage::Waiting => ("waiting", 0.0, None, None),
        Stage::Loading(since) => {
            let (share, left) = trace.progress(*since);
            ("loading", share, left.map(|left| left.as_nanos() as u64), None)
        }
        Stage::Open(open) => (if open.is_live() { "live" } else { "ready" }, 1.0, None, None),
        Stage::Failed(sentence) => ("failed", 0.0, None, Some(sentence.as_str())),
    };
    let open = opened(&stage).ok();
    json!({
        "name": trace.name(),
        "path": trace.path.to_string_lossy(),
        "state": state,
        "progress": progress,
        "remaining_ns": remaining,
        "error": error,
        "version": trace.version(),
        "custom": open.is_some_and(|open| open.has_custom()),
        "notes": open.map(OpenTrace::not_seen).unwrap_or_default(),
        "session": open.map(session),
    })
}

/// The costs that a heap profile of another tool knows, by their names on the page.
fn known_costs(known: KnownCosts) -> Vec<&'static str> {
    let names = Costs::NAMES.iter().chain(&["leaked_bytes", "leaked_allocations"]);
    names.copied().filter(|name| known.has(name)).collect()
}

fn session(open: &OpenTrace) -> Value {
    let (definitions, totals) = (open.engine().definitions(), open.engine().totals());
    json!({
        "command": definitions.session.command,
        "pid": Some(definitions.session.pid).filter(|pid| *pid != 0),
        "processes": definitions.processes.len(),
        "allocators": definitions.allocators().collect::<Vec<_>>(),
        "attached": definitions.session.attached,
        "complete": open.is_complete(),
        "runtime_ns": totals.runtime_ns,
        "system_memory": Some(definitions.session.system_memory).filter(|bytes| *bytes > 0),
        "events": totals.allocations.saturating_add(totals.deallocations),
        "folded_until_ns": definitions.folded_until_ns(),
        "lost_events": totals.lost_events,
        "peak_rss_bytes": totals.peak_rss_bytes,
        "overhead_bytes": totals.overhead_bytes,
        "exit": definitions.summary.map(|summary| format!("{:?}", summary.exit)),
        "known": definitions.profile.map(known_costs),
        "tool": definitions.session.tool,
    })
}

impl Answers for TraceStore {
    fn answer(&self, view: &str, query: &str) -> Result<Vec<u8>, Refusal> {
        let pairs = address::decode(query)?;
        let number = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.parse::<usize>());
        let trace = match number("trace") {
            None => 0,
            Some(Ok(number)) => number,
            Some(Err(_)) => return Err(Refusal::new(400, "`trace` is a number.")),
        };
        let text = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match view {
            "status" => {
                let domain = if text("domain") == Some("custom") { Domain::Custom } else { Domain::Malloc };
                return Ok(self.status(trace, domain).to_string().into_bytes());
            }
            "source-text" => return self.source_text(trace, text("file").unwrap_or_default()),
            _ => {}
        }
        let view = View::parse(view).ok_or_else(|| Refusal::new(404, format!("There is no view `{view}`.")))?;
        let asked = pairs.iter().filter(|(key, _)| !matches!(key.as_str(), "trace" | "token" | "v"));
        let query = Query::new(asked.map(|(key, value)| (key.as_str(), value.as_str())))
            .map_err(|bad| Refusal::new(400, bad.to_string()))?;
        self.ask(view, trace, &query)
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
        }
        Ok(json!({ "added": added }).to_string().into_bytes())
    }
}
