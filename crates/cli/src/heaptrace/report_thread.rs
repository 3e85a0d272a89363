//! The thread that finds names and writes reports.
//!
//! Receives: jobs, in order. Returns: reports, each written as a whole. Must hold: a thread that hands in a job does
//! not wait.
use super::frame_names::{Answers, Names};
use super::options::{Key, Options};
use super::output::Output;
use super::watch::Watch;
use super::watched_process::Id;
use super::{flame, live_report};
use collector::Snapshot;
use format::Unseen;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// A large stack, because debug information is read recursively.
const STACK: usize = 8 << 20;

pub enum Job {
    Begin {
        id: Id,
        pid: u32,
        name: String,
    },
    Dump {
        id: Id,
        snapshot: Box<Snapshot>,
        keys: Vec<Key>,
    },
    Watch {
        id: Id,
        snapshot: Box<Snapshot>,
    },
    End {
        id: Id,
        snapshot: Box<Snapshot>,
        unseen: Vec<Unseen>,
    },
    /// The process continues as another program (`exec`).
    Forget {
        id: Id,
    },
}

/// The sender of jobs. Every thread may have one.
#[derive(Clone)]
pub struct Letterbox {
    jobs: mpsc::Sender<Job>,
    waiting: Arc<AtomicUsize>,
}

impl Letterbox {
    pub fn tell(&self, job: Job) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = self.jobs.send(job);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

pub struct Teller {
    pub letterbox: Letterbox,
    thread: Option<JoinHandle<()>>,
}

impl Teller {
    pub fn start(options: Options) -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let work = move || {
            let mut desk = Reporter {
                watch: options.watch.then(Watch::new),
                options,
                processes: HashMap::new(),
                answers: Rc::default(),
            };
            for job in inbox {
                desk.work(job);
                left.fetch_sub(1, Ordering::AcqRel);
            }
        };
        let builder = std::thread::Builder::new().name("heaptrace-tell".into()).stack_size(STACK);
        Teller { letterbox: Letterbox { jobs, waiting }, thread: builder.spawn(work).ok() }
    }

    /// Waits until all reports are written. All other senders must have been dropped.
    pub fn finish(self) {
        drop(self.letterbox);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

/// What the thread knows about a process.
struct Reported {
    pid: u32,
    name: String,
    names: Names,
    output: Output,
}

struct Reporter {
    options: Options,
    processes: HashMap<Id, Reported>,
    watch: Option<Watch>,
    answers: Rc<RefCell<Answers>>,
}

impl Reporter {
    fn work(&mut self, job: Job) {
        match job {
            Job::Begin { id, pid, name } => self.begin(id, pid, name),
            Job::Dump { id, snapshot, keys } => self.dump(id, &snapshot, &keys),
            Job::Watch { id, snapshot } => {
                if let (Some(watch), Some(process)) = (&mut self.watch, self.processes.get_mut(&id)) {
                    watch.show(&snapshot, &process.name, &mut process.names);
                }
            }
            Job::End { id, snapshot, unseen } => self.end(id, &snapshot, &unseen),
            Job::Forget { id } => drop(self.processes.remove(&id)),
        }
    }

    fn begin(&mut self, id: Id, pid: u32, name: String) {
        let mut output = Output::open(self.options.outfile.as_deref(), pid, &name);
        if !self.options.flame_graph && self.watch.is_none() {
            output.put(&format!("[heaptrace] initialized for /proc/{pid}/maps ({name})\n"));
        }
        self.processes.insert(id, Reported { pid, name, names: Names::new(pid, Rc::clone(&self.answers)), output });
    }

    fn dump(&mut self, id: Id, snapshot: &Snapshot, keys: &[Key]) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let text = if self.options.flame_graph {
            flame::text(snapshot, keys, &self.options, &mut process.names)
        } else {
            live_report::text(snapshot, &process.name, keys, &self.options, &mut process.names)
        };
        process.output.put(&text);
    }

    fn end(&mut self, id: Id, snapshot: &Snapshot, unseen: &[Unseen]) {
        if let Some(watch) = &mut self.watch {
            watch.close();
        }
        if let Some(process) = self.processes.get_mut(&id) {
            // The process may have changed its name.
            if let Some(name) = snapshot.name.split_whitespace().next() {
                name.clone_into(&mut process.name);
            }
            if !self.options.flame_graph {
                let Reported { pid, name, output, .. } = process;
                output.put(&format!("[heaptrace]   finalized for /proc/{pid}/maps ({name})\n"));
            }
        }
        self.dump(id, snapshot, &self.options.sort.clone());
        // Other programs read the lines of a flame graph, so no further lines are added.
        if let Some(mut process) = self.processes.remove(&id).filter(|_| !self.options.flame_graph) {
            unseen.iter().for_each(|one| process.output.put(&format!("heaptrace: not seen: {}\n", one.sentence)));
        }
    }
}
