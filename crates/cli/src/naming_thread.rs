//! Names while recording: a thread of the lowest priority reads the growing trace and resolves its new frames.
//!
//! Receives: the trace's file, and a sender for blocks. Returns: Symbols blocks, within seconds of a frame's first use,
//! and at the end what it knows about the target's files. Must hold: recording never waits for this thread. Its memory
//! is bounded. It keeps the target's files open, so that they can be read after they were deleted or the target has
//! ended.
use collector::TracePath;
use format::{BlockKind, RawBlock, Reader};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use symbols::{Finder, Jit, ModuleWork, SKIPPED, Search, Target, Wanted};

/// The time between two reads of the trace. It is short, so that files that the target maps are opened soon.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time after which frames are resolved for the first time, so that little is left for the end of a program that
/// runs for a few seconds. A shorter program gets all its names at its end.
const FIRST: Duration = Duration::from_millis(1500);
/// The time between two rounds of resolving after that.
const RESOLVE_EVERY: Duration = Duration::from_secs(4);
/// Stacks are not read before the first round, because a program that ends earlier has them read once, at its end.
const SKIPPED_AT_FIRST: &[BlockKind] = &[
    BlockKind::Events,
    BlockKind::AllocClasses,
    BlockKind::Samples,
    BlockKind::Checkpoint,
    BlockKind::Stacks,
    BlockKind::Symbols,
];
/// The most bytes of debug information in memory. Files that need more are left to the end. Large sections are kept
/// until the second round, so that a program that ends before need not unpack them again.
const MOST_MEMORY: u64 = 24 << 20;
const LOWEST: i32 = 19;
/// A large stack, because demanglers are recursive.
const STACK: usize = 8 << 20;

/// The thread, and the state that it shares with the end of the recording.
pub struct Names {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    target: Mutex<Option<Arc<Target>>>,
    jit: Mutex<Jit>,
}

/// What the thread knows when the recording ends.
#[derive(Default)]
pub struct Known {
    pub target: Option<Arc<Target>>,
    pub jit: Option<Jit>,
}

impl Names {
    /// Returns `None` if the file cannot be opened a second time. Names then come at the end. `target` is the process,
    /// if its files are open already.
    pub fn start(
        place: Arc<TracePath>,
        blocks: mpsc::Sender<RawBlock>,
        search: Search,
        target: Option<Arc<Target>>,
    ) -> Option<Self> {
        let file = place.open().ok()?;
        let shared = Arc::new(Shared { target: Mutex::new(target), ..Shared::default() });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("heaptrack-names".into()).stack_size(STACK);
        builder.spawn(move || work(&place, file, &blocks, search, &theirs)).ok()?;
        Some(Names { shared })
    }

    /// Tells the thread to stop. Does not wait for it, because it may be in the middle of a large file.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Called after the target's end. Returns what the thread knows, including the rest of what a JIT compiler wrote.
    pub fn known(self) -> Known {
        self.stop();
        let target = self.shared.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut jit = std::mem::take(&mut *self.shared.jit.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(target) = &target {
            jit.finish(target);
        }
        Known { target, jit: Some(jit).filter(|jit| !jit.is_empty()) }
    }
}

/// Reads from the file, and after its end what is added later.
struct Growing {
    file: File,
    at: u64,
}

impl Read for Growing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

fn work(place: &TracePath, file: File, blocks: &mpsc::Sender<RawBlock>, search: Search, shared: &Shared) -> Option<()> {
    let _ = rustix::process::setpriority_process(None, LOWEST);
    let mut reader = loop {
        match Reader::new(Growing { file: file.try_clone().ok()?, at: 0 }) {
            Ok(reader) => break reader,
            Err(format::Error::Empty) if !shared.stop.load(Ordering::Acquire) => std::thread::sleep(LOOK_EVERY),
            Err(_) => return None,
        }
    };
    reader.skip(SKIPPED_AT_FIRST);
    let mut wanted = Wanted::new();
    let mut search = search;
    let target = loop {
        read(&mut reader, &mut wanted, shared)?;
        if let Some(session) = &wanted.session {
            search.started_unix_ns = session.started_unix_ns;
            let mut known = shared.target.lock().unwrap_or_else(PoisonError::into_inner);
            break Arc::clone(known.get_or_insert_with(|| Arc::new(Target::new(session.pid))));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    target.keep_unpacked(MOST_MEMORY);
    let next = Instant::now() + FIRST;
    let mut watcher = Watcher { place, file, reader, wanted, blocks, shared, next, is_first: true };
    let finder = Finder { search: &search, target: Some(&target) };
    loop {
        watcher.round(finder)?;
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Reads the new blocks. Returns `None` if the thread must stop.
fn read<R: Read>(reader: &mut Reader<R>, wanted: &mut Wanted, shared: &Shared) -> Option<()> {
    while let Some(block) = reader.next_block().ok()? {
        wanted.add(block);
        if shared.stop.load(Ordering::Acquire) {
            return None;
        }
    }
    (!shared.stop.load(Ordering::Acquire)).then_some(())
}

struct Watcher<'a> {
    place: &'a TracePath,
    /// The file of `reader`.
    file: File,
    reader: Reader<Growing>,
    wanted: Wanted,
    blocks: &'a mpsc::Sender<RawBlock>,
    shared: &'a Shared,
    next: Instant,
    is_first: bool,
}

impl Watcher<'_> {
    /// Returns `None` if the thread must stop.
    fn round(&mut self, finder: Finder<'_>) -> Option<()> {
        self.keep_up()?;
        read(&mut self.reader, &mut self.wanted, self.shared)?;
        let is_due = Instant::now() >= self.next;
        if is_due && self.is_first {
            self.begin_again()?;
            read(&mut self.reader, &mut self.wanted, self.shared)?;
        }
        if let Some(target) = finder.target {
            for module in self.wanted.new_modules() {
                target.hold(module.instance, module.start, Path::new(&module.path));
            }
            let mut jit = self.shared.jit.lock().unwrap_or_else(PoisonError::into_inner);
            if self.wanted.has_jit() {
                jit.refresh(target);
            } else if self.is_first {
                jit.open(target);
            }
        }
        if is_due {
            for work in self.wanted.take() {
                self.resolve(&work, finder)?;
            }
            if let Some(target) = finder.target.filter(|_| !self.is_first) {
                target.keep_unpacked(0);
            }
            self.is_first = false;
            self.next = Instant::now() + RESOLVE_EVERY;
        }
        Some(())
    }

    /// Changes to the new file if there is one. A recording with a limited size replaces its file by a shorter one,
    /// which contains the names so far.
    fn keep_up(&mut self) -> Option<()> {
        if self.place.is(&self.file).unwrap_or(true) {
            return Some(());
        }
        self.file = self.place.open().ok()?;
        self.begin_again()
    }

    /// Lets the next read start at the beginning of the file. Forgets the frames that were read.
    fn begin_again(&mut self) -> Option<()> {
        self.reader = Reader::new(Growing { file: self.file.try_clone().ok()?, at: 0 }).ok()?;
        self.reader.skip(SKIPPED);
        self.wanted = Wanted::new();
        Some(())
    }

    fn resolve(&mut self, work: &ModuleWork, finder: Finder<'_>) -> Option<()> {
        let (blocks, shared) = (self.blocks, self.shared);
        let is_over = || shared.stop.load(Ordering::Acquire);
        let send = |piece: format::Symbols, _: usize| blocks.send(piece.to_block()).is_ok() && !is_over();
        match &work.module {
            None => {
                // The JIT compiler may not have written their names to its file yet.
                let jit = shared.jit.lock().unwrap_or_else(PoisonError::into_inner);
                if !jit.is_empty() {
                    symbols::resolve_jit(work, Some(&jit), send);
                }
            }
            Some(module) => symbols::resolve_module(work, module, finder, Some(MOST_MEMORY), is_over, send),
        }
        (!is_over()).then_some(())
    }
}
