//! One trace of the server: opened in the background, then asked, and followed while it grows.
//!
//! ```text
//! Waiting -> Loading -> Open (ready, or live while the program runs)
//!                    \-> Failed (a sentence)
//! ```
//!
//! If descriptors or memory are missing, `Failed` is not the end: the trace is opened again every second.
//!
//! Must hold: a question never waits for a file that is being loaded. While a trace is followed, a question waits at
//! most until the new blocks are read, and not for another question, unless that one takes longer than
//! `FOLLOW_PATIENCE`. What could not be read is in [`OpenTrace::not_seen`].
use analysis::StackTable;
use format::Domain;
use heaptrack_trace::{Growth, OpenOptions, OpenTrace};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

/// The time between two looks at a growing file.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// The time between two attempts to read it while questions are being answered.
const FOLLOW_RETRY: Duration = Duration::from_millis(10);

/// The time between two attempts to open it while descriptors or memory are missing.
const OPEN_RETRY: Duration = Duration::from_secs(1);

/// The longest time for which questions can keep the follower from reading a growing file.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(10);

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
    /// The latest table of stacks, and the version for which it was made.
    pub table: Mutex<Option<(u64, Arc<StackTable>)>>,
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
            table: Mutex::new(None),
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
        if let Err(error) = thread.spawn(move || trace.load(|| trace.open())) {
            self.set(Stage::Failed(format!("The trace cannot be read, because no thread could be started: {error}")));
        }
    }

    /// Increments the version, by which the page sees that answers about this trace have changed.
    pub fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the stage when no question uses it.
    ///
    /// `RwLock::write` would block all new questions, even for the status, until the slowest question that runs has its
    /// answer. `try_write` blocks none, but overlapping questions could make it fail forever. So after `patience`
    /// the follower waits in line. Then it gets the lock when the questions that run have their answers, because std's
    /// lock lets no new reader pass a waiting writer on Linux.
    fn stage_to_grow(&self, patience: Duration) -> RwLockWriteGuard<'_, Stage> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            match self.stage.try_write() {
                Ok(stage) => return stage,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(FOLLOW_RETRY),
            }
        }
        self.stage.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: Stage) {
        *self.stage.write().unwrap_or_else(PoisonError::into_inner) = stage;
        self.touch();
    }

    /// Loads the trace on this thread and does not follow it.
    pub fn load_now(&self) {
        self.show(self.open());
    }

    fn show(&self, opened: Result<OpenTrace, format::Error>) {
        let stage = match opened {
            Ok(open) if is_without_domain(&open) => {
                let what = if open.domain() == Domain::Mapped { "mappings" } else { "blocks of custom allocators" };
                Stage::Failed(format!("{} has no {what}.", self.path.display()))
            }
            Ok(open) => Stage::Open(Box::new(open)),
            Err(error) => Stage::Failed(refusal(&self.path, &error)),
        };
        self.set(stage);
    }

    fn load(&self, open: impl Fn() -> Result<OpenTrace, format::Error>) {
        loop {
            let opened = open();
            let may_succeed_later = opened.as_ref().err().is_some_and(is_shortage);
            self.show(opened);
            if may_succeed_later {
                std::thread::sleep(OPEN_RETRY);
            } else if !self.follow() {
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
                let mut stage = self.stage_to_grow(FOLLOW_PATIENCE);
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
    !open.has(open.domain()) && !open.is_live()
}

/// True if the process or the system has no more descriptors or no more memory at the moment.
fn is_shortage(error: &format::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error, format::Error::Io(error) if matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE)))
}

fn refusal(path: &Path, error: &format::Error) -> String {
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or(&reason);
    format!("{} cannot be read: {reason}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    fn trace() -> Arc<Trace> {
        Trace::new(Path::new("x.htz"), Domain::Malloc, true)
    }

    #[test]
    fn a_shortage_ends_and_a_file_that_is_no_trace_stays_one() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../format/tests/data/v1.htz"));
        let trace = Trace::new(path, Domain::Malloc, true);
        let attempts = AtomicU64::new(0);
        let open = |error: fn() -> format::Error| match attempts.fetch_add(1, Ordering::Relaxed) {
            0 => Err(error()),
            _ => trace.open(),
        };
        trace.load(|| open(|| std::io::Error::from_raw_os_error(24).into()));
        assert!(matches!(&*trace.stage(), Stage::Open(_)), "too many open files");
        assert_eq!(attempts.swap(0, Ordering::Relaxed), 2);
        trace.load(|| open(|| format::Error::NotATrace));
        assert!(matches!(&*trace.stage(), Stage::Failed(_)));
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_follower_that_waits_for_a_slow_question_delays_no_other_question() {
        let trace = trace();
        let slow = trace.stage();
        let follower = Arc::clone(&trace);
        let follower = std::thread::spawn(move || drop(follower.stage_to_grow(Duration::from_secs(600))));
        std::thread::sleep(FOLLOW_RETRY * 5);
        let other = Arc::clone(&trace);
        let (done, is_done) = mpsc::channel();
        let other = std::thread::spawn(move || {
            drop(other.stage());
            done.send(()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_secs(10)).is_ok(), "the other question waits");
        drop(slow);
        follower.join().unwrap();
        other.join().unwrap();
    }

    #[test]
    fn overlapping_questions_do_not_starve_the_follower() {
        let trace = trace();
        let started = Instant::now();
        let is_over = Arc::new(AtomicBool::new(false));
        let questions: Vec<_> = (0..3)
            .map(|number| {
                let (trace, is_over) = (Arc::clone(&trace), Arc::clone(&is_over));
                std::thread::spawn(move || {
                    std::thread::sleep(FOLLOW_RETRY * number);
                    while !is_over.load(Ordering::Relaxed) && started.elapsed() < Duration::from_secs(20) {
                        let _stage = trace.stage();
                        std::thread::sleep(FOLLOW_RETRY * 3);
                    }
                })
            })
            .collect();
        std::thread::sleep(FOLLOW_RETRY * 5);
        drop(trace.stage_to_grow(Duration::from_millis(100)));
        assert!(started.elapsed() < Duration::from_secs(10), "the follower waited until there were no questions");
        is_over.store(true, Ordering::Relaxed);
        questions.into_iter().for_each(|question| question.join().unwrap());
    }
}
