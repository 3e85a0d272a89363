//! All processes of the tree: which ones join, which ones end, and when each is asked for a snapshot.
//!
//! Receives: the first process. Returns: how it ended, after all reports are written. Must hold: this loop never waits
//! for a disk, a terminal, a debug file or the end of a session, which other threads do. So offers that were taken are
//! replaced soon.
use super::options::{Key, Options};
use super::report_thread::{Job, Letterbox, Teller};
use super::signals::{Signals, Told};
use super::watched_process::{Id, Process};
use crate::attach::{tell_children, tell_left};
use crate::record::{has_ended, wait_for, why_not};
use crate::recorder_limits::RecorderLimits;
use crate::{say, status};
use attach::{Attached, Standing};
use collector::{Ask, Bell, End, Hub, Joined, Reason, Recording, Snapshot};
use format::Waits;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time until the loop notices that a process has ended or a snapshot is ready.
const TICK: Duration = Duration::from_millis(10);
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// If this many reports wait for a slow terminal, `--interval` and `--watch` ask for no more.
const MOST_WAITING: usize = 32;

/// The numbers of the requests for snapshots.
const BY_SIZE: u32 = 1;
const BY_COUNT: u32 = 2;
const BY_INTERVAL: u32 = 3;
const TO_WATCH: u32 = 4;

/// How the loop learns that the first process has ended.
enum Waiter {
    /// A thread waits for it, and rings the bell.
    Thread(mpsc::Receiver<End>),
    /// No thread could be started, so the loop asks the kernel each time.
    Loop,
}

impl Waiter {
    fn start(root: u32, bell: Bell) -> Waiter {
        let (sender, ended) = mpsc::channel();
        let wait = move || {
            let _ = sender.send(wait_for(root));
            bell.ring();
        };
        let thread = std::thread::Builder::new().name("heaptrace-wait".into()).spawn(wait);
        thread.map_or(Waiter::Loop, |_| Waiter::Thread(ended))
    }

    /// Returns how the process ended, or `None` if it still runs.
    fn look(&self, root: u32) -> Option<End> {
        match self {
            Waiter::Thread(ended) => ended.try_recv().ok(),
            Waiter::Loop => has_ended(root),
        }
    }

    fn wait(&self, root: u32) -> End {
        match self {
            Waiter::Thread(ended) => ended.recv().unwrap_or_default(),
            Waiter::Loop => wait_for(root),
        }
    }
}

pub struct Tree {
    hub: Hub,
    signals: Signals,
    reports: Teller,
    sort: Vec<Key>,
    pause: Option<(Duration, u32)>,
    next: Instant,
    processes: Vec<Process>,
    next_id: Id,
    is_stopped: bool,
    /// The CPU time that we may use is nearly over.
    is_limited: bool,
    /// Requests of signals that are not answered yet.
    told: Vec<Told>,
    /// Sessions that are being ended.
    ending: Vec<JoinHandle<()>>,
    started: Instant,
    /// How long the threads of processes that have ended waited for us, in nanoseconds.
    waited_ns: Arc<AtomicU64>,
    /// The options that limit us.
    limits: String,
}

impl Tree {
    pub fn new(options: Options, hub: Hub, signals: Signals) -> Self {
        let pause =
            if options.watch { Some((WATCH_EVERY, TO_WATCH)) } else { options.interval.map(|t| (t, BY_INTERVAL)) };
        signals.wake(hub.bell());
        let (sort, limits) = (options.sort.clone(), options.recorder.words());
        let reports = Teller::start(options);
        Tree {
            hub,
            signals,
            reports,
            sort,
            next: Instant::now() + pause.map_or(Duration::ZERO, |(pause, _)| pause),
            pause,
            processes: Vec::new(),
            next_id: 0,
            is_stopped: false,
            is_limited: false,
            told: Vec::new(),
            ending: Vec::new(),
            started: Instant::now(),
            waited_ns: Arc::default(),
            limits,
        }
    }

    /// Runs until the first process and all others that joined have ended.
    pub fn watch(mut self, root: u32, recording: Recording) -> End {
        let _stands = self.hub.stand();
        self.add(root, recording);
        let waiter = Waiter::start(root, self.hub.bell());
        let mut end = None;
        let mut is_said = false;
        loop {
            self.hub.wait(TICK);
            if end.is_none() {
                end = waiter.look(root);
                if end.is_some() {
                    self.signals.keep();
                }
            }
            self.welcome();
            self.serve();
            self.bury(root, end);
            if end.is_some() && !is_said && !self.processes.is_empty() {
                is_said = true;
                self.say_who_is_left();
            }
            if let Some(end) = end.filter(|_| self.processes.is_empty() || self.is_stopped) {
                self.leave();
                return end;
            }
            if self.is_limited {
                say(format_args!(
                    "heaptrace: the CPU time that heaptrace may use (ulimit -t) is over: the watching ends here, all programs continue"
                ));
                self.leave();
                return end.unwrap_or_else(|| waiter.wait(root));
            }
        }
    }

    /// Watches a process that was already running, whose children are not followed. Returns when the process has ended,
    /// when the user stops us, or when another heaptrack has detached from it.
    pub fn watch_attached(mut self, pid: u32, recording: Recording, attached: Attached, limits: &RecorderLimits) {
        self.add(pid, recording);
        loop {
            self.hub.wait(TICK);
            self.announce();
            self.serve();
            let is_gone = self.processes.iter().all(Process::is_gone) || attached.standing() == Standing::Over;
            if is_gone {
                tell_children("heaptrace", &attached.end_children(), true);
                break;
            }
            if self.is_stopped || self.is_limited || attached.standing() == Standing::Detached {
                match limits.without_share(|| attached.end()) {
                    Ok(restored) => {
                        tell_left("heaptrace", pid, restored.shared_bytes);
                        tell_children("heaptrace", &restored.children, true);
                    }
                    Err(refusal) => say(format_args!(
                        "heaptrace: not everything could be put back: {refusal}; `heaptrack detach {pid}` tries again"
                    )),
                }
                break;
            }
        }
        self.leave();
    }

    /// Handles all pending requests.
    fn serve(&mut self) {
        self.serve_told();
        if let Some((pause, number)) = self.pause.filter(|_| Instant::now() >= self.next) {
            self.next = Instant::now() + pause;
            if self.letterbox().waiting() < MOST_WAITING {
                self.ask_all(Ask::Snapshot(number));
            }
        }
        self.tell_snapshots();
    }

    fn add(&mut self, pid: u32, recording: Recording) {
        self.next_id += 1;
        self.processes.push(Process::new(self.next_id, pid, recording));
    }

    /// Adds the processes that accepted an offer. A process that is known already has executed another program.
    fn welcome(&mut self) {
        for Joined { pid, recording } in self.hub.joined() {
            while let Some(at) = self.processes.iter().position(|process| process.pid == pid) {
                let old = self.processes.swap_remove(at);
                self.letterbox().tell(Job::Forget { id: old.id });
                let waited_ns = Arc::clone(&self.waited_ns);
                self.aside(move |_| {
                    if let Some(outcome) = old.finish(End::default()) {
                        waited_ns.fetch_add(outcome.waits.waited_ns, Ordering::Relaxed);
                    }
                });
            }
            self.add(pid, recording);
        }
        self.hub.offer(self.processes.len());
        self.announce();
    }

    /// Tells the report thread which processes have begun to record.
    fn announce(&mut self) {
        for process in self.processes.iter_mut().filter(|process| !process.is_announced && process.has_started()) {
            if let Some(name) = process.name() {
                process.is_announced = true;
                self.reports.letterbox.tell(Job::Begin { id: process.id, pid: process.pid, name });
            }
        }
    }

    fn serve_told(&mut self) {
        self.told.extend(self.signals.told());
        self.is_stopped |= self.told.contains(&Told::Stop);
        self.is_limited |= self.told.contains(&Told::CpuLimit);
        // A signal that arrives before the first process records is answered as soon as it does.
        if !self.processes.iter().any(|process| process.is_announced) {
            return;
        }
        for told in std::mem::take(&mut self.told) {
            match told {
                Told::BySize => self.ask_all(Ask::Snapshot(BY_SIZE)),
                Told::ByCount => self.ask_all(Ask::Snapshot(BY_COUNT)),
                Told::Window => self.ask_all(Ask::Window),
                Told::Stop | Told::CpuLimit => (),
            }
        }
    }

    fn ask_all(&self, what: Ask) {
        self.processes.iter().filter(|process| process.is_announced).for_each(|process| process.ask(what));
    }

    fn tell_snapshots(&mut self) {
        for process in self.processes.iter().filter(|process| process.is_announced) {
            if self.letterbox().waiting() >= MOST_WAITING {
                return;
            }
            while let Some(snapshot) = process.snapshot() {
                let keys = match snapshot.reason {
                    Reason::BySize | Reason::Asked(BY_SIZE) => vec![Key::Size],
                    Reason::ByCount | Reason::Asked(BY_COUNT) => vec![Key::Count],
                    Reason::Asked(TO_WATCH) => {
                        self.letterbox().tell(Job::Watch { id: process.id, snapshot: Box::new(snapshot) });
                        continue;
                    }
                    Reason::Window => continue,
                    Reason::Asked(_) | Reason::End => self.sort.clone(),
                };
                self.letterbox().tell(Job::Dump { id: process.id, snapshot: Box::new(snapshot), keys });
            }
        }
    }

    /// Reports the processes that have ended.
    fn bury(&mut self, root: u32, end: Option<End>) {
        let mut at = 0;
        while let Some(process) = self.processes.get(at) {
            let is_gone = if process.pid == root { end.is_some() } else { process.is_gone() };
            if !is_gone {
                at += 1;
                continue;
            }
            let process = self.processes.swap_remove(at);
            let end = end.filter(|_| process.pid == root).unwrap_or_default();
            let waited_ns = Arc::clone(&self.waited_ns);
            self.aside(move |letterbox| tell_end(letterbox, process, end, &waited_ns));
        }
    }

    fn letterbox(&self) -> &Letterbox {
        &self.reports.letterbox
    }

    /// Runs `work` on a thread of its own, if one can be started.
    fn aside(&mut self, work: impl FnOnce(&Letterbox) + Send + 'static) {
        self.ending.retain(|thread| !thread.is_finished());
        let letterbox = self.letterbox().clone();
        let (sender, receiver) = mpsc::channel::<Work>();
        let run = move || {
            if let Ok(work) = receiver.recv() {
                work(&letterbox);
            }
        };
        match std::thread::Builder::new().name("heaptrace-end".into()).spawn(run) {
            Ok(thread) => {
                let _ = sender.send(Box::new(work));
                self.ending.push(thread);
            }
            Err(_) => work(self.letterbox()),
        }
    }

    fn say_who_is_left(&self) {
        let left: Vec<String> = self.processes.iter().map(|process| process.pid.to_string()).collect();
        let list = left.join(", ");
        say(format_args!(
            "heaptrace: the program has ended, but processes that it started are still running ({list}); press Ctrl-C to stop"
        ));
    }

    /// Reports the processes that are still running, as they are now.
    fn leave(mut self) {
        for process in std::mem::take(&mut self.processes) {
            let waited_ns = Arc::clone(&self.waited_ns);
            self.aside(move |letterbox| tell_end(letterbox, process, End::default(), &waited_ns));
        }
        for thread in self.ending {
            let _ = thread.join();
        }
        self.reports.finish();
        // Without a limit nothing is said: scripts read this output, and it should not depend on how busy the machine was.
        if !self.limits.is_empty() {
            // Processes also wait for their sessions when they start.
            let waited_ns = self.waited_ns.load(Ordering::Relaxed).saturating_add(self.hub.waited_ns());
            let runtime_ns = self.started.elapsed().as_nanos() as u64;
            if let Some(sentence) = status::waits(Waits { waited_ns }, runtime_ns, &self.limits) {
                say(format_args!("heaptrace: {sentence}"));
            }
        }
        match self.hub.missed() {
            0 => (),
            1 => say(format_args!("heaptrace: 1 more process ran unwatched: it could not join")),
            missed => say(format_args!("heaptrace: {missed} more processes ran unwatched: they could not join")),
        }
    }
}

type Work = Box<dyn FnOnce(&Letterbox) + Send>;

/// Ends a session and writes its last report.
fn tell_end(letterbox: &Letterbox, process: Process, end: End, waited_ns: &AtomicU64) {
    let (id, pid, is_announced) = (process.id, process.pid, process.is_announced);
    let Some(outcome) = process.finish(end) else {
        say(format_args!("heaptrace: watching {pid} failed, there is no report"));
        return;
    };
    waited_ns.fetch_add(outcome.waits.waited_ns, Ordering::Relaxed);
    if let Some(check) = outcome.failed_check {
        say(format_args!("heaptrace: {pid}: {check}"));
    }
    if outcome.unanswered > 0 {
        let reports = match outcome.unanswered {
            1 => format!("1 report of {pid} is"),
            count => format!("{count} reports of {pid} are"),
        };
        say(format_args!(
            "heaptrace: {reports} missing, because reports were asked for faster than they could be written"
        ));
    }
    let Some(last) = outcome.last.filter(|_| outcome.started) else {
        say(format_args!("heaptrace: {pid} was not watched, {}", why_not(outcome.refusal)));
        return;
    };
    if !is_announced {
        letterbox.tell(Job::Begin { id, pid, name: name_of(&last) });
    }
    for snapshot in outcome.unread {
        let keys = match snapshot.reason {
            Reason::BySize | Reason::Asked(BY_SIZE) => vec![Key::Size],
            Reason::ByCount | Reason::Asked(BY_COUNT) => vec![Key::Count],
            _ => continue,
        };
        letterbox.tell(Job::Dump { id, snapshot: Box::new(snapshot), keys });
    }
    letterbox.tell(Job::End { id, snapshot: Box::new(last), unseen: outcome.unseen });
}

/// Returns the kernel's name of the process. If the process ended before that could be read, returns the name of its
/// file, cut to the same length.
fn name_of(snapshot: &Snapshot) -> String {
    const LONGEST: usize = 15;
    let file = snapshot.modules.first().and_then(|module| module.path.rsplit('/').next()).unwrap_or("?");
    let file: String = file.chars().take(LONGEST).collect();
    snapshot.name.split_whitespace().next().map_or(file, str::to_owned)
}
