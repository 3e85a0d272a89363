//! All processes of the tree: who comes, who goes, who is asked when.
//!
//! Given: the first process. Gives back: how it ended, when everything is told. What must hold: this loop never waits for a
//! disk, a terminal or a debug file (`Teller` does that, on a thread of its own), so that there is an offer for every new
//! process at once.
use super::options::{Key, Options};
use super::process::{Id, Process};
use super::signals::{Signals, Told};
use super::teller::{Job, Teller};
use crate::record::{wait_for, why_not};
use crate::say;
use collector::{Ask, End, Hub, Joined, Reason, Recording};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a process can be gone, or a snapshot wait, before it is noticed.
const TICK: Duration = Duration::from_millis(10);
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Reports that wait for a slow terminal; then no more are asked for.
const MOST_WAITING: usize = 32;

/// Numbers under which snapshots are asked for.
const BY_SIZE: u32 = 1;
const BY_COUNT: u32 = 2;
const BY_INTERVAL: u32 = 3;
const TO_WATCH: u32 = 4;

pub struct Tree {
    hub: Hub,
    signals: Signals,
    teller: Teller,
    sort: Vec<Key>,
    pause: Option<(Duration, u32)>,
    processes: Vec<Process>,
    next_id: Id,
    is_stopped: bool,
}

impl Tree {
    pub fn new(options: Options, hub: Hub, signals: Signals) -> Self {
        let pause =
            if options.watch { Some((WATCH_EVERY, TO_WATCH)) } else { options.interval.map(|t| (t, BY_INTERVAL)) };
        signals.wake(hub.bell());
        let sort = options.sort.clone();
        let teller = Teller::start(options);
        Tree { hub, signals, teller, sort, pause, processes: Vec::new(), next_id: 0, is_stopped: false }
    }

    /// Until the first process is gone, and all others that joined.
    pub fn watch(mut self, root: u32, recording: Recording) -> End {
        let _stands = self.hub.stand();
        self.add(root, recording);
        let (sender, ended) = mpsc::channel();
        let bell = self.hub.bell();
        let wait = move || {
            let _ = sender.send(wait_for(root));
            bell.ring();
        };
        // Without a second thread we look for its end ourselves.
        let waiter = std::thread::Builder::new().name("heaptrace-wait".into()).spawn(wait);
        let mut end = waiter.is_err().then(|| wait_for(root));
        let mut next = self.pause.map(|(pause, _)| Instant::now() + pause);
        loop {
            self.hub.wait(TICK);
            if end.is_none() {
                end = ended.try_recv().ok();
                if end.is_some() {
                    self.signals.keep();
                    self.say_who_is_left(root);
                }
            }
            self.welcome();
            self.serve_told();
            if let (Some((pause, number)), Some(due)) = (self.pause, next)
                && Instant::now() >= due
            {
                next = Some(due.max(Instant::now() - pause) + pause);
                self.ask_all(Ask::Snapshot(number));
            }
            self.tell_snapshots();
            self.bury(root, end);
            if let Some(end) = end.filter(|_| self.processes.is_empty() || self.is_stopped) {
                self.leave();
                return end;
            }
        }
    }

    fn add(&mut self, pid: u32, recording: Recording) {
        self.next_id += 1;
        self.processes.push(Process::new(self.next_id, pid, recording));
    }

    /// Those that took an offer. One that we know already has executed another program.
    fn welcome(&mut self) {
        for Joined { pid, recording } in self.hub.joined() {
            while let Some(at) = self.processes.iter().position(|process| process.pid == pid) {
                let old = self.processes.swap_remove(at);
                self.teller.tell(Job::Forget { id: old.id });
                old.finish(End::default());
            }
            self.add(pid, recording);
        }
        self.hub.offer(self.processes.len());
        for process in self.processes.iter_mut().filter(|process| !process.is_announced && process.has_started()) {
            if let Some(name) = process.name() {
                process.is_announced = true;
                self.teller.tell(Job::Begin { id: process.id, pid: process.pid, name });
            }
        }
    }

    fn serve_told(&mut self) {
        for told in self.signals.told().collect::<Vec<_>>() {
            match told {
                Told::BySize => self.ask_all(Ask::Snapshot(BY_SIZE)),
                Told::ByCount => self.ask_all(Ask::Snapshot(BY_COUNT)),
                Told::Window => self.ask_all(Ask::Window),
                Told::Stop => self.is_stopped = true,
            }
        }
    }

    fn ask_all(&self, what: Ask) {
        if self.teller.waiting() < MOST_WAITING {
            self.processes.iter().filter(|process| process.is_announced).for_each(|process| process.ask(what));
        }
    }

    fn tell_snapshots(&mut self) {
        for process in self.processes.iter().filter(|process| process.is_announced) {
            if self.teller.waiting() >= MOST_WAITING {
                return;
            }
            while let Some(snapshot) = process.snapshot() {
                let keys = match snapshot.reason {
                    Reason::BySize | Reason::Asked(BY_SIZE) => vec![Key::Size],
                    Reason::ByCount | Reason::Asked(BY_COUNT) => vec![Key::Count],
                    Reason::Asked(TO_WATCH) => {
                        self.teller.tell(Job::Watch { id: process.id, snapshot: Box::new(snapshot) });
                        continue;
                    }
                    Reason::Window => continue,
                    Reason::Asked(_) | Reason::End => self.sort.clone(),
                };
                self.teller.tell(Job::Dump { id: process.id, snapshot: Box::new(snapshot), keys });
            }
        }
    }

    /// Tells the ends of those that are gone.
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
            self.tell_end(process, end);
        }
    }

    fn tell_end(&mut self, process: Process, end: End) {
        let (id, pid, is_announced) = (process.id, process.pid, process.is_announced);
        while let Some(snapshot) = process.snapshot() {
            if matches!(snapshot.reason, Reason::BySize | Reason::ByCount) {
                let keys = vec![if snapshot.reason == Reason::BySize { Key::Size } else { Key::Count }];
                self.teller.tell(Job::Dump { id, snapshot: Box::new(snapshot), keys });
            }
        }
        let Some(outcome) = process.finish(end) else {
            say(format_args!("heaptrace: watching {pid} failed, there is no report"));
            return;
        };
        let Some(last) = outcome.last.filter(|_| outcome.started) else {
            say(format_args!("heaptrace: {pid} was not watched, {}", why_not(outcome.refusal)));
            return;
        };
        if !is_announced {
            let name = last.name.split_whitespace().next().unwrap_or("?").to_owned();
            self.teller.tell(Job::Begin { id, pid, name });
        }
        self.teller.tell(Job::End { id, snapshot: Box::new(last) });
    }

    fn say_who_is_left(&self, root: u32) {
        let left: Vec<String> =
            self.processes.iter().filter(|p| p.pid != root && !p.is_gone()).map(|p| p.pid.to_string()).collect();
        if !left.is_empty() {
            let list = left.join(", ");
            say(format_args!(
                "heaptrace: the program has ended, what it started runs on ({list}); Ctrl-C ends watching"
            ));
        }
    }

    /// What still runs is told as it is now.
    fn leave(mut self) {
        for process in std::mem::take(&mut self.processes) {
            self.tell_end(process, End::default());
        }
        self.teller.finish();
        match self.hub.missed() {
            0 => (),
            missed => say(format_args!("heaptrace: {missed} more processes ran unwatched: they could not join")),
        }
    }
}
