//! One trace of the server: opened in the background, then asked, and followed while it grows.
//!
//! ```text
//! Waiting -> Loading -> Open (ready, or live while the program runs)
//!                    \-> Failed (a sentence)
//! ```
//!
//! Must hold: a question never waits for a file that is being loaded. What could not be read is in `notes`.
use format::Domain;
use heaptrack_trace::{Growth, OpenOptions, OpenTrace};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// The time between two looks at a growing file.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

pub enum Stage {
    Waiting,
    Loading(Instant),
    Open(Box<OpenTrace>),
    Failed(String),
}

pub struct Trace {
    pub path: PathBuf,
    domain: Domain,
    /// True for a trace that the user named. False for one that was found in the same folder.
    pub is_given: bool,
    stage: RwLock<Stage>,
    /// Bytes that were read.
    read: AtomicU64,
    /// Bytes that the file has.
    size: AtomicU64,
    /// Incremented whenever answers may have changed.
    version: AtomicU64,
    started: Mutex<bool>,
}

impl Trace {
    pub fn new(path: &Path, domain: Domain, is_given: bool) -> Arc<Self> {
        Arc::new(Trace {
            path: path.to_owned(),
            domain,
            is_given,
            stage: RwLock::new(Stage::Waiting),
            read: AtomicU64::new(0),
            size: AtomicU64::new(0),
            version: AtomicU64::new(0),
            started: Mutex::new(false),
        })
    }

    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    pub fn stage(&self) -> RwLockReadGuard<'_, Stage> {
        self.stage.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the share of the file that is read, and an estimate of the time that is left. There is no estimate for
    /// the first percent.
    pub fn progress(&self, since: Instant) -> (f64, Option<Duration>) {
        let (read, size) = (self.read.load(Ordering::Relaxed), self.size.load(Ordering::Relaxed).max(1));
        let share = (read as f64 / size as f64).min(1.0);
        let left = (share > 0.01).then(|| since.elapsed().mul_f64((1.0 - share) / share));
        (share, left)
    }

    /// Starts to load the trace. Does nothing when it is called again.
    pub fn start(self: &Arc<Self>) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *started, true) {
            return;
        }
        // Set before the thread runs, so that the next request already sees that the trace is being read.
        self.set(Stage::Loading(Instant::now()));
        let trace = Arc::clone(self);
        let thread = std::thread::Builder::new().name("heaptrack-open".into());
        if let Err(error) = thread.spawn(move || trace.load()) {
            self.set(Stage::Failed(format!("The trace cannot be read, because no thread could be started: {error}")));
        }
    }

    /// Increments the version, by which the page sees that answers about this trace have changed.
    pub fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn set(&self, stage: Stage) {
        *self.stage.write().unwrap_or_else(PoisonError::into_inner) = stage;
        self.touch();
    }

    /// Loads the trace on this thread and does not follow it.
    pub fn load_now(&self) {
        let stage = match self.open() {
            Ok(open) if is_without_domain(&open) => {
                Stage::Failed(format!("{} has no blocks of custom allocators.", self.path.display()))
            }
            Ok(open) => Stage::Open(Box::new(open)),
            Err(error) => Stage::Failed(refusal(&self.path, &error)),
        };
        self.set(stage);
    }

    fn load(&self) {
        loop {
            self.load_now();
            if !self.follow() {
                return;
            }
        }
    }

    fn open(&self) -> Result<OpenTrace, format::Error> {
        self.size.store(std::fs::metadata(&self.path)?.len(), Ordering::Relaxed);
        let options = OpenOptions::new().domain(self.domain).indexed(true).followed(true);
        options.open(&self.path, |position, _| self.read.store(position, Ordering::Relaxed))
    }

    /// Reads what is added to the file until its writer is done. Returns true if another file was put in its place.
    fn follow(&self) -> bool {
        loop {
            {
                let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
                let Stage::Open(open) = &mut *stage else { return false };
                if !open.is_live() {
                    return false;
                }
                match open.read_more() {
                    Growth::Replaced => return true,
                    Growth::Grew => self.touch(),
                    Growth::Same => {}
                }
                if !open.is_live() {
                    self.touch();
                }
            }
            std::thread::sleep(FOLLOW_EVERY);
        }
    }
}

/// True if the trace has no blocks of the domain that was asked for, and no more will come.
fn is_without_domain(open: &OpenTrace) -> bool {
    open.domain() == Domain::Custom && !open.has_custom() && !open.is_live()
}

/// Returns sentences that a reader of the page should know before they trust the numbers.
pub fn notes(open: &OpenTrace) -> Vec<String> {
    let mut notes = Vec::new();
    let faults = open.engine().faults();
    let definitions = open.engine().definitions();
    let damaged = open.damage_count();
    if damaged > 0 {
        let places = if damaged == 1 { "place" } else { "places" };
        notes.push(format!("Parts of this file are damaged ({damaged} {places}); what could be read is shown."));
    }
    if faults.missing_allocations + faults.damaged_events > 0 {
        let (missing, events) = (faults.missing_allocations, faults.damaged_events);
        notes
            .push(format!("{missing} allocations are in lost parts of the file, {events} events refer to lost parts."));
    }
    if !open.is_finished() && !open.is_live() {
        notes.push("This trace was not finished: it ends where its writer was stopped or the file was cut.".into());
    }
    notes.extend(definitions.losses.sentences().into_iter().map(|sentence| format!("{sentence}.")));
    notes.extend(definitions.losses.note.clone());
    notes.extend(definitions.unseen.iter().map(|unseen| format!("Not recorded: {}", unseen.sentence)));
    if let Some(until) = definitions.folded_until_ns() {
        notes.push(format!(
            "To keep the file small (--max-size), the first {:.1} s are stored as sums and the blocks that were still live then. Numbers of the whole session are exact. For that time, the timeline shows only the peak and the blocks that stayed.",
            until as f64 / 1e9
        ));
    }
    if definitions.names.is_empty() && definitions.site_count() > 0 && !open.is_live() {
        notes.push("There are no function names in this trace: `heaptrack symbolize FILE` adds them.".into());
    }
    notes
}

fn refusal(path: &Path, error: &format::Error) -> String {
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or(&reason);
    format!("{} cannot be read: {reason}", path.display())
}
