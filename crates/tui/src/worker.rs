//! The thread that owns the trace and answers questions, so that the screen never waits.
//!
//! ```text
//! screen --- Ask (only the latest counts) ---> worker: opens, follows, answers
//!        <-- Reply: progress, answers --------
//! ```
//!
//! Must hold: a question that a newer one has replaced is given up at the next block of events. While the trace grows,
//! the last question is answered again, but at least half of the time is left to others.
use crate::answer::{Answer, Asked, Chart, answer, chart, share_of_mine};
use crate::opening::{Opened, Settings};
use crate::question::Question;
use crate::views::ViewKind;
use analysis::{Blocks, Variances};
use format::{RawBlock, Totals};
use heaptrack_trace::{EventBlockReader, Growth};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two looks at a growing file.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The least time between two reports of progress.
const REPORT_EVERY: Duration = Duration::from_millis(100);

pub(crate) enum Reply {
    /// This share of the file is read.
    Reading(f64),
    Info(Box<Info>),
    /// This share of the events is counted for the latest question.
    Counting(f64),
    Answer(Box<Answer>),
    Chart(Box<Chart>),
    /// The question cannot be answered, as a sentence.
    Refused(String),
    /// The trace cannot be opened, as a sentence. The worker has ended.
    Failed(String),
}

/// What the first lines of the screen show about the trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Info {
    pub(crate) command: String,
    pub(crate) pid: u32,
    pub(crate) is_attached: bool,
    pub(crate) is_live: bool,
    pub(crate) is_complete: bool,
    pub(crate) totals: Totals,
    /// If blocks were sampled: how certain the totals are.
    pub(crate) errors: Option<Variances>,
    pub(crate) notes: Vec<String>,
}

struct Ask {
    number: u64,
    view: ViewKind,
    question: Question,
}

#[derive(Default)]
struct Inbox {
    ask: Option<Ask>,
    is_paused: bool,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    bell: Condvar,
    /// The number of the question whose answer is wanted.
    wanted: AtomicU64,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The screen's side.
pub(crate) struct Worker {
    shared: Arc<Shared>,
}

impl Worker {
    /// Starts the thread. `send` passes its replies on, and returns false when the screen has ended.
    pub(crate) fn start(settings: Settings, send: impl Fn(Reply) -> bool + Send + 'static) -> std::io::Result<Worker> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("heaptrack-ask".into()).spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| Desk { shared: &own, settings, send: &send }.run());
            if std::panic::catch_unwind(run).is_err() {
                send(Reply::Failed("an internal error: the trace could not be counted".into()));
            }
        })?;
        Ok(Worker { shared })
    }

    /// Asks a question. Earlier ones are given up.
    pub(crate) fn ask(&self, view: ViewKind, question: Question) {
        let mut inbox = self.shared.inbox();
        let number = self.shared.wanted.fetch_add(1, Ordering::AcqRel) + 1;
        inbox.ask = Some(Ask { number, view, question });
        self.shared.bell.notify_one();
    }

    /// Gives up the question that is being answered.
    pub(crate) fn cancel(&self) {
        let mut inbox = self.shared.inbox();
        self.shared.wanted.fetch_add(1, Ordering::AcqRel);
        inbox.ask = None;
    }

    /// Stops to follow a growing file, or goes on.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.shared.inbox().is_paused = is_paused;
        self.shared.bell.notify_one();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.inbox().is_over = true;
        self.shared.wanted.fetch_add(1, Ordering::AcqRel);
        self.shared.bell.notify_one();
    }
}

/// The thread's side.
struct Desk<'a> {
    shared: &'a Shared,
    settings: Settings,
    send: &'a dyn Fn(Reply) -> bool,
}

impl Desk<'_> {
    fn run(&self) {
        let Some(mut opened) = self.open(&self.settings.path) else { return };
        let mut base: Option<(PathBuf, Opened)> = None;
        let mut last: Option<Ask> = None;
        let mut charted: Option<Vec<(&'static str, String)>> = None;
        let mut rest = FOLLOW_EVERY;
        self.tell(&opened);
        loop {
            let (next, is_paused) = match self.next(opened.trace.is_live(), rest) {
                Some(next) => next,
                None => return,
            };
            let is_new = next.is_some();
            if let Some(ask) = next {
                last = Some(ask);
            } else if is_paused || !self.grow(&mut opened) {
                continue;
            } else {
                charted = None;
            }
            let Some(ask) = last.as_ref().filter(|ask| self.is_wanted(ask.number)) else { continue };
            let began = Instant::now();
            if !self.open_base(&opened, ask, &mut base, is_new) {
                continue;
            }
            self.answer(&opened, base.as_ref().map(|(_, base)| base), ask);
            if self.is_wanted(ask.number) && charted.as_ref() != Some(&ask.question.filters) && self.chart(&opened, ask)
            {
                charted = Some(ask.question.filters.clone());
            }
            rest = FOLLOW_EVERY.max(began.elapsed());
        }
    }

    /// Waits for a question. While the trace grows, waits at most for `rest` and returns without one. Returns `None`
    /// when the screen is gone.
    fn next(&self, is_live: bool, rest: Duration) -> Option<(Option<Ask>, bool)> {
        let mut inbox = self.shared.inbox();
        let end = Instant::now() + rest;
        loop {
            if inbox.is_over {
                return None;
            }
            if let Some(ask) = inbox.ask.take() {
                return Some((Some(ask), inbox.is_paused));
            }
            let left = end.saturating_duration_since(Instant::now());
            if is_live && left.is_zero() {
                return Some((None, inbox.is_paused));
            }
            inbox = match is_live {
                true => self.shared.bell.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0,
                false => self.shared.bell.wait(inbox).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn is_wanted(&self, number: u64) -> bool {
        self.shared.wanted.load(Ordering::Acquire) == number
    }

    fn open(&self, path: &Path) -> Option<Opened> {
        let mut reported = Instant::now();
        let progress = |read: u64, size: u64| {
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                (self.send)(Reply::Reading(read as f64 / size.max(1) as f64));
            }
        };
        match Opened::open(path, &self.settings, progress) {
            Ok(opened) => Some(opened),
            Err(sentence) => {
                (self.send)(Reply::Failed(sentence));
                None
            }
        }
    }

    /// Reads what was added to the file. Returns false if nothing was.
    fn grow(&self, opened: &mut Opened) -> bool {
        match opened.trace.read_more() {
            Growth::Same if opened.trace.is_live() => return false,
            Growth::Same | Growth::Grew => opened.refresh(&self.settings),
            Growth::Replaced => {
                let Some(again) = self.open(&self.settings.path) else { return false };
                *opened = again;
            }
        }
        self.tell(opened);
        true
    }

    fn tell(&self, opened: &Opened) {
        (self.send)(Reply::Info(Box::new(opened.info())));
    }

    /// Opens the trace that the question compares with. Returns false if that is not possible.
    fn open_base(&self, opened: &Opened, ask: &Ask, base: &mut Option<(PathBuf, Opened)>, is_new: bool) -> bool {
        let file = ask.question.compare.as_deref().filter(|compare| !compare.starts_with('@')).map(PathBuf::from);
        if ask.view != ViewKind::Compare || file.is_none() {
            *base = None;
            return true;
        }
        if base.as_ref().map(|(path, _)| path) == file.as_ref() && !is_new {
            return true;
        }
        let Some(file) = file else { return true };
        let other = Opened::open(&file, &self.settings, |_, _| ()).and_then(|other| {
            let engines = [opened.trace.engine(), other.trace.engine()];
            analysis::view::refuse_samples(engines).map_err(|bad| bad.to_string())?;
            Ok(other)
        });
        match other {
            Ok(other) => {
                *base = Some((file, other));
                true
            }
            Err(sentence) => {
                (self.send)(Reply::Refused(sentence));
                false
            }
        }
    }

    fn answer(&self, opened: &Opened, base: Option<&Opened>, ask: &Ask) {
        let result = self.with_blocks(opened, ask.number, |trace| {
            let mut base_blocks =
                base.map(|base| base.trace.blocks()).transpose().map_err(|error| error.to_string())?;
            let base = base.zip(base_blocks.as_mut()).map(|(base, blocks)| base.asked(blocks));
            answer(trace, base, ask.view, &ask.question, opened.mine).map_err(|error| error.to_string())
        });
        if !self.is_wanted(ask.number) {
            return;
        }
        (self.send)(match result {
            Ok(answer) => Reply::Answer(Box::new(answer)),
            Err(sentence) => Reply::Refused(sentence),
        });
    }

    /// Returns false if the chart was given up.
    fn chart(&self, opened: &Opened, ask: &Ask) -> bool {
        let made = self
            .with_blocks(opened, ask.number, |trace| chart(trace, &ask.question).map_err(|error| error.to_string()));
        let is_made = made.is_ok();
        if let Ok(chart) = made {
            (self.send)(Reply::Chart(Box::new(chart)));
        }
        is_made
    }

    fn with_blocks<T>(
        &self,
        opened: &Opened,
        number: u64,
        ask: impl FnOnce(&mut Asked<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let inner = opened.trace.blocks().map_err(|error| error.to_string())?;
        let count = inner.count();
        let mut blocks = Watched { desk: self, inner, number, count, reported: Instant::now() };
        ask(&mut opened.asked(&mut blocks))
    }
}

impl Opened {
    fn asked<'a>(&'a self, blocks: &'a mut dyn Blocks) -> Asked<'a> {
        Asked { engine: self.trace.engine(), table: &self.table, blocks, is_complete: self.trace.is_complete() }
    }

    /// Counts how much of the trace is in the user's own code.
    pub(crate) fn count_mine(&mut self) {
        if let Ok(mut blocks) = self.trace.blocks() {
            self.mine = share_of_mine(&mut self.asked(&mut blocks));
        }
    }
}

/// Blocks of events for one question. There are no more of them when the question is given up.
struct Watched<'a> {
    desk: &'a Desk<'a>,
    inner: EventBlockReader,
    number: u64,
    count: Option<usize>,
    reported: Instant,
}

impl Blocks for Watched<'_> {
    fn events(&mut self, number: usize) -> Option<&RawBlock> {
        if !self.desk.is_wanted(self.number) {
            return None;
        }
        if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            let share = self.count.map_or(0.0, |count| number as f64 / count.max(1) as f64);
            (self.desk.send)(Reply::Counting(share));
        }
        self.inner.events(number)
    }
}
