//! One trace: opened in the background, then asked, and followed while it grows.
//!
//! ```text
//! Waiting -> Loading -> Open (ready, or live while the program runs)
//!                    \-> Failed (a sentence)
//! ```
//!
//! What must hold: a question never waits for a load; what could not be read is said (`notes`).
use crate::event_blocks::{EventBlocks, FileBlocks, MemoryBlocks, Shared};
use crate::server::Refusal;
use analysis::{Blocks, Engine};
use format::{BlockKind, Domain, Reader, Source};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// How often a growing file is looked at.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// A file that did not grow for so long, and has no end, is not being written any more.
const QUIET: Duration = Duration::from_secs(10);

pub enum Stage {
    Waiting,
    Loading(Instant),
    Open(Box<Open>),
    Failed(String),
}

/// A trace that can be asked.
pub struct Open {
    pub engine: Engine,
    pub file: Arc<File>,
    pub again: EventBlocks,
    /// The writer came to its end.
    pub finished: bool,
    /// Somebody still writes to it.
    pub live: bool,
    pub damage: u64,
    pub domain: Domain,
    /// The program reported blocks of its own, which are a trace of their own.
    pub has_custom: bool,
}

impl Open {
    /// All that happened is in it.
    pub fn is_complete(&self) -> bool {
        self.engine.definitions().is_complete() && self.finished && self.damage == 0 && self.engine.faults().is_empty()
    }
}

/// How files are opened: who composes us knows how to find names for those that have none.
pub type Opener = fn(&Path) -> Result<Source, format::Error>;

pub struct Trace {
    pub path: PathBuf,
    opener: Opener,
    domain: Domain,
    /// Given on the command line, not only found beside.
    pub is_given: bool,
    stage: RwLock<Stage>,
    /// Bytes read and bytes there are.
    read: AtomicU64,
    size: AtomicU64,
    /// Counted up when there is more.
    version: AtomicU64,
    started: Mutex<bool>,
}

impl Trace {
    pub fn new(path: &Path, domain: Domain, is_given: bool, opener: Opener) -> Arc<Self> {
        Arc::new(Trace {
            path: path.to_owned(),
            opener,
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

    /// The share that is read, and the time that is left.
    pub fn progress(&self, since: Instant) -> (f64, Option<Duration>) {
        let (read, size) = (self.read.load(Ordering::Relaxed), self.size.load(Ordering::Relaxed).max(1));
        let share = (read as f64 / size as f64).min(1.0);
        let left = (share > 0.01).then(|| since.elapsed().mul_f64((1.0 - share) / share));
        (share, left)
    }

    /// Starts to load, once.
    pub fn start(self: &Arc<Self>) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *started, true) {
            return;
        }
        // Before the thread runs: who asks next sees that it is being read.
        self.set(Stage::Loading(Instant::now()));
        let trace = Arc::clone(self);
        let thread = std::thread::Builder::new().name("heaptrack-open".into());
        if let Err(error) = thread.spawn(move || trace.load()) {
            self.set(Stage::Failed(format!("no thread to read it: {error}")));
        }
    }

    /// Answers about it have changed.
    pub fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn set(&self, stage: Stage) {
        *self.stage.write().unwrap_or_else(PoisonError::into_inner) = stage;
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn show(&self, open: Open) {
        self.set(if open.is_without() {
            Stage::Failed(format!("{} has no blocks of custom allocators.", self.path.display()))
        } else {
            Stage::Open(Box::new(open))
        });
    }

    /// Loads here and now, and follows nothing.
    pub fn load_now(&self) {
        if let Err(error) = self.read_all() {
            self.set(Stage::Failed(refusal(&self.path, &error)));
        }
    }

    fn load(&self) {
        loop {
            let follower = match self.read_all() {
                Ok(Some(follower)) => follower,
                Ok(None) => return,
                Err(error) => return self.set(Stage::Failed(refusal(&self.path, &error))),
            };
            if !follower.follow(self) {
                return;
            }
        }
    }

    /// A recording with a bound on its size has put a shorter file in the place of this one.
    fn is_replaced(&self, file: &File) -> bool {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let there = std::fs::metadata(&self.path).map(identity);
        there.is_ok_and(|there| file.metadata().is_ok_and(|here| identity(here) != there))
    }

    fn read_all(&self) -> Result<Option<Follower>, format::Error> {
        let metadata = std::fs::metadata(&self.path)?;
        if metadata.is_dir() {
            return Err(format::Error::Folder);
        }
        if !metadata.is_file() {
            return Err(format::Error::NotAFile);
        }
        let file = Arc::new(File::open(&self.path)?);
        self.size.store(metadata.len(), Ordering::Relaxed);
        let mut kde = (self.opener)(&self.path)?;
        if kde.is_kde() {
            let mut blocks = Vec::new();
            let mut engine = Engine::indexed();
            while let Some(block) = kde.next_block()? {
                engine.add(block);
                if block.kind == BlockKind::Events {
                    blocks.push(block.clone());
                }
            }
            let (finished, damage) = (kde.finished(), kde.damage_count());
            let again = EventBlocks::Memory(Arc::new(blocks));
            let (domain, has_custom) = (self.domain, false);
            self.show(Open { engine, file, again, finished, live: false, damage, domain, has_custom });
            return Ok(None);
        }
        let mut reader = Reader::new(Shared::new(Arc::clone(&file)))?;
        reader.set_domain(self.domain);
        let mut open = Open {
            engine: Engine::indexed(),
            file,
            again: EventBlocks::Places(Vec::new()),
            finished: false,
            live: false,
            damage: 0,
            domain: self.domain,
            has_custom: false,
        };
        open.read(&mut reader, |at| self.read.store(at, Ordering::Relaxed))?;
        open.live = is_locked(&open.file) || !open.finished && is_recent(&metadata);
        self.show(open);
        Ok(Some(Follower { reader, quiet_since: Instant::now() }))
    }
}

impl Open {
    /// Nothing of the domain that was asked for is there, and nothing will come.
    fn is_without(&self) -> bool {
        self.domain == Domain::Custom && !self.has_custom && !self.live
    }

    /// Reads what there is, or what is new. True: there was something.
    fn read(&mut self, reader: &mut Reader<Shared>, told: impl Fn(u64)) -> Result<bool, format::Error> {
        let mut has_more = false;
        loop {
            let place = reader.offset();
            let Some(block) = reader.next_block()? else { break };
            has_more = true;
            if let (BlockKind::Events, EventBlocks::Places(places)) = (block.kind, &mut self.again) {
                places.push(place);
            }
            self.engine.add(block);
            told(reader.offset());
        }
        self.finished = reader.finished();
        self.damage = reader.damage_count();
        self.has_custom = reader.has_custom();
        Ok(has_more)
    }

    pub fn blocks(&self) -> Result<Box<dyn Blocks>, Refusal> {
        let places = match &self.again {
            EventBlocks::Memory(blocks) => return Ok(Box::new(MemoryBlocks(Arc::clone(blocks)))),
            EventBlocks::Places(places) => places.as_slice().into(),
        };
        FileBlocks::new(Arc::clone(&self.file), self.domain, places)
            .map(|blocks| Box::new(blocks) as Box<dyn Blocks>)
            .map_err(|error| Refusal::new(410, format!("The trace cannot be read any more: {error}.")))
    }

    /// What should be known before numbers are believed.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let faults = self.engine.faults();
        let definitions = self.engine.definitions();
        if self.damage > 0 {
            notes
                .push(format!("Parts of this file are damaged ({} places); what could be read is shown.", self.damage));
        }
        if faults.missing_allocations + faults.damaged_events > 0 {
            let (missing, events) = (faults.missing_allocations, faults.damaged_events);
            notes.push(format!(
                "{missing} allocations are in lost parts of the file, {events} events refer to lost parts."
            ));
        }
        if !self.finished && !self.live {
            notes.push("This trace was not finished: it ends where its writer was stopped or the file was cut.".into());
        }
        notes.extend(definitions.losses.sentences().into_iter().map(|sentence| format!("{sentence}.")));
        notes.extend(definitions.losses.note.clone());
        notes.extend(definitions.unseen.iter().map(|unseen| format!("Not recorded: {}", unseen.sentence)));
        if let Some(until) = definitions.folded_until_ns() {
            notes.push(format!(
                "To keep the file small (--max-size), of the first {:.1} s there are sums and what they left: the figures of the whole session are exact, the timeline shows of that time the peak and what survived.",
                until as f64 / 1e9
            ));
        }
        if definitions.names.is_empty() && definitions.site_count() > 0 && !self.live {
            notes.push("There are no function names in this trace: `heaptrack symbolize FILE` adds them.".into());
        }
        notes
    }
}

/// Goes on reading where the file grows.
struct Follower {
    reader: Reader<Shared>,
    quiet_since: Instant,
}

impl Follower {
    /// Until nobody writes to it any more. True: another file is in its place.
    fn follow(mut self, trace: &Trace) -> bool {
        loop {
            {
                let mut stage = trace.stage.write().unwrap_or_else(PoisonError::into_inner);
                let Stage::Open(open) = &mut *stage else { return false };
                if !open.live {
                    return false;
                }
                // Names may still come behind the end, as long as somebody holds the file.
                let is_written = is_locked(&open.file);
                let grew = open.read(&mut self.reader, |_| ()).unwrap_or(false);
                if !grew && trace.is_replaced(&open.file) {
                    return true;
                }
                if grew {
                    self.quiet_since = Instant::now();
                    trace.version.fetch_add(1, Ordering::AcqRel);
                }
                if !is_written && (open.finished || self.quiet_since.elapsed() > QUIET) {
                    open.live = false;
                    trace.version.fetch_add(1, Ordering::AcqRel);
                }
            }
            std::thread::sleep(FOLLOW_EVERY);
        }
    }
}

/// Who records holds a lock on the file.
fn is_locked(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(_) => true,
    }
}

fn is_recent(metadata: &std::fs::Metadata) -> bool {
    metadata.modified().ok().and_then(|time| time.elapsed().ok()).is_none_or(|age| age < QUIET)
}

fn refusal(path: &Path, error: &format::Error) -> String {
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or(&reason);
    format!("{} cannot be read: {reason}", path.display())
}
