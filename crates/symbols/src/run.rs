//! Resolves many modules on several threads, within a time limit.
//!
//! Receives: work by module. Returns: Symbols, a piece at a time. Must hold: memory is bounded by the modules in work
//! and one piece for each. If a library panics on a module, only names of that module are missing. When the time is
//! over, the caller takes the pieces that come within 50 ms of each other, and continues.
use crate::debuginfod::Download;
use crate::finder::{Finder, Search};
use crate::jit::Jit;
use crate::resolver::{self, Frame, Function, Resolver, State};
use crate::store::Store;
use crate::target_files::Target;
use crate::wanted::ModuleWork;
use demangle::Name;
use format::{CodeLocation, IntMap, Module, SymbolState, Symbols, SymbolsBuilder};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// A piece is sent when it has this many bytes.
const PIECE: usize = 256 << 10;
/// A piece is also sent after this time, so that slow work is not lost when the time limit is reached.
const PIECE_TIME: Duration = Duration::from_millis(500);
/// How often a download is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// The number of frames between two checks of the limits.
const BATCH: usize = 64;
/// The data of a module's files is freed when it has this many bytes. If that happens after fewer batches than
/// `FEW_BATCHES`, the limit is doubled.
const ENOUGH: u64 = 16 << 20;
const FEW_BATCHES: u32 = 16;
/// The size of a thread's stack. Demanglers are recursive.
const STACK: usize = 8 << 20;

/// The limits of the work.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// 0, and also if none can be started: the calling thread does the work. It then ends the time limit only between pieces.
    pub threads: usize,
    /// `None`: until all is done.
    pub time: Option<Duration>,
    /// The debug information of a file is skipped if it is packed and takes more bytes when unpacked.
    pub memory: Option<u64>,
}

/// How much has been done, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
    pub left_modules: usize,
    /// A file that is being downloaded.
    pub download: Option<Download>,
}

struct Shared {
    works: Mutex<VecDeque<ModuleWork>>,
    search: Search,
    target: Option<Arc<Target>>,
    jit: Mutex<Option<Jit>>,
    memory: Option<u64>,
    stop: AtomicBool,
    done: AtomicUsize,
    left_modules: AtomicUsize,
}

/// Resolves as much as the time allows. Returns false if something is left. `sink` receives every piece, and is also
/// called without a piece during a download.
pub fn resolve_all(
    works: Vec<ModuleWork>,
    search: Search,
    target: Option<Arc<Target>>,
    jit: Option<Jit>,
    budget: Budget,
    mut sink: impl FnMut(Option<Symbols>, Progress),
) -> bool {
    let total = works.iter().map(|work| work.frames.len()).sum();
    let left_modules = AtomicUsize::new(works.len());
    let shared = Arc::new(Shared {
        works: Mutex::new(works.into()),
        search,
        target,
        jit: Mutex::new(jit),
        memory: budget.memory,
        stop: AtomicBool::new(false),
        done: AtomicUsize::new(0),
        left_modules,
    });
    let (sender, pieces) = mpsc::sync_channel(4);
    let end = budget.time.map(|time| Instant::now() + time);
    // Not joined, because a thread that reads a huge file must not delay the end.
    let started = (0..budget.threads).filter(|_| start(Arc::clone(&shared), sender.clone())).count();
    drop(sender);
    if started == 0 {
        // Not through the channel, which would be full after a few pieces.
        work(&shared, &mut |symbols| {
            sink(Some(symbols), shared.progress(total));
            shared.stop.store(end.is_some_and(|end| Instant::now() >= end), Ordering::Relaxed);
            true
        });
        return shared.done.load(Ordering::Relaxed) == total;
    }
    forward(&pieces, end, shared.search.debuginfod.is_some(), |symbols| sink(symbols, shared.progress(total)));
    shared.stop.store(true, Ordering::Relaxed);
    // Finished pieces are not thrown away.
    while let Ok(symbols) = pieces.recv_timeout(Duration::from_millis(50)) {
        sink(Some(symbols), shared.progress(total));
    }
    shared.done.load(Ordering::Relaxed) == total
}

/// Calls `sink` with every piece until all threads have ended or the time is over. `is_shown`: also calls it without a
/// piece from time to time, so that the progress of a download is shown.
fn forward(
    pieces: &mpsc::Receiver<Symbols>,
    end: Option<Instant>,
    is_shown: bool,
    mut sink: impl FnMut(Option<Symbols>),
) {
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        let wait = if is_shown { left.min(SHOW_EVERY) } else { left };
        let piece = match wait {
            Duration::MAX => pieces.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            wait => pieces.recv_timeout(wait),
        };
        match piece {
            Ok(symbols) => sink(Some(symbols)),
            Err(mpsc::RecvTimeoutError::Timeout) if end.is_none_or(|end| Instant::now() < end) => sink(None),
            Err(_) => return,
        }
    }
}

impl Shared {
    fn progress(&self, total: usize) -> Progress {
        Progress {
            done: self.done.load(Ordering::Relaxed),
            total,
            left_modules: self.left_modules.load(Ordering::Relaxed),
            download: self.search.debuginfod.as_ref().and_then(|servers| servers.download()),
        }
    }
}

/// Returns false if the thread cannot be started.
fn start(shared: Arc<Shared>, pieces: mpsc::SyncSender<Symbols>) -> bool {
    let builder = std::thread::Builder::new().name("heaptrack-names".into()).stack_size(STACK);
    builder.spawn(move || work(&shared, &mut |symbols| pieces.send(symbols).is_ok())).is_ok()
}

/// Resolves one module after the other, until none is left or `take` returns false.
fn work(shared: &Shared, take: &mut dyn FnMut(Symbols) -> bool) {
    while !shared.stop.load(Ordering::Relaxed) {
        let next = shared.works.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(work) = next else { return };
        let finder = Finder { search: &shared.search, target: shared.target.as_deref() };
        let jit = match work.module {
            None => shared.jit.lock().unwrap_or_else(PoisonError::into_inner).take(),
            Some(_) => None,
        };
        let is_over = || shared.stop.load(Ordering::Relaxed);
        let mut gone_on = true;
        let send = |symbols: Symbols, count: usize| {
            shared.done.fetch_add(count, Ordering::Relaxed);
            gone_on = gone_on && take(symbols);
            gone_on && !is_over()
        };
        // One of several processes: its JIT compiler wrote a map of its own.
        let process = work.module.as_ref().and_then(Module::code_of_process);
        match &work.module {
            None => resolve_jit(&work, jit.as_ref(), send),
            Some(_) if let Some(pid) = process => {
                resolve_jit(&work, Some(&Jit::after(pid, shared.search.ended, &finder)), send);
            }
            Some(module) => resolve_module(&work, module, finder, shared.memory, is_over, send),
        }
        shared.left_modules.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Resolves the frames of one module. The data of its files is freed from time to time, so that memory is bounded. If
/// that happens too often (one unit may be the whole program), the limit is doubled. If the limit is far above
/// `memory`, the rest is left for a run with more memory. When `is_over` returns true, the names found so far are sent
/// and the work ends.
pub fn resolve_module(
    work: &ModuleWork,
    module: &Module,
    finder: Finder<'_>,
    memory: Option<u64>,
    is_over: impl Fn() -> bool,
    mut send: impl FnMut(Symbols, usize) -> bool,
) {
    let mut left = work.frames.chunks(BATCH).peekable();
    let mut pieces = Pieces::default();
    let mut enough = ENOUGH;
    let is_too_much = |enough: u64| memory.is_some_and(|most| enough > most.max(ENOUGH).saturating_mul(4));
    while left.peek().is_some() && !is_too_much(enough) && !is_over() {
        let store = Store::bounded(memory, finder.kept());
        let mut batches = 0;
        let open = || {
            let expected: Vec<u64> = left.clone().flatten().map(|(_, key)| *key).collect();
            Resolver::open(&store, module, finder, &expected)
        };
        // `None` if a library panics on the file.
        let mut resolver = catch_unwind(AssertUnwindSafe(open)).ok();
        let state = resolver.as_ref().map_or_else(|| panicked(module), |resolver| resolver.state().clone());
        for batch in left.by_ref() {
            for (instance, key) in batch {
                pieces.add(*instance, &state, *key, &ask(&mut resolver, *key));
            }
            if pieces.is_due() {
                let (symbols, count) = pieces.take();
                if !send(symbols, count) {
                    return;
                }
            }
            batches += 1;
            if store.size() > enough || is_over() {
                break;
            }
        }
        if batches < FEW_BATCHES {
            enough *= 2;
        }
    }
    let (symbols, count) = pieces.take();
    send(symbols, count);
}

/// The starts of the functions that contain these frames, in the file's addresses. `keys`: the low 48 bits of frames.
pub fn starts(module: &Module, finder: Finder<'_>, memory: Option<u64>, keys: &[u64]) -> Vec<Option<u64>> {
    let find = || {
        let store = Store::bounded(memory, finder.kept());
        let mut resolver = Resolver::open(&store, module, finder, keys);
        keys.iter().map(|key| resolver.start(*key)).collect()
    };
    // If a library panics on the file, nothing is known.
    catch_unwind(AssertUnwindSafe(find)).unwrap_or_else(|_| vec![None; keys.len()])
}

/// The functions with `wanted` names that only the separate debug file of a module has.
pub fn separate_functions(
    module: &Module,
    finder: Finder<'_>,
    memory: Option<u64>,
    wanted: impl Fn(&[u8]) -> bool,
) -> Vec<Function> {
    let find = || {
        let store = Store::bounded(memory, finder.kept());
        resolver::separate_functions(&store, module, &finder, wanted)
    };
    // If a library panics on the file, nothing is known.
    catch_unwind(AssertUnwindSafe(find)).unwrap_or_default()
}

fn ask(resolver: &mut Option<Resolver<'_>>, key: u64) -> Vec<Frame> {
    let frames = resolver.as_mut().map(|found| catch_unwind(AssertUnwindSafe(|| found.frames(key))));
    match frames {
        Some(Ok(frames)) => frames,
        None => Vec::new(),
        Some(Err(_)) => {
            // After a panic the resolver may be inconsistent, so it is not used again.
            *resolver = None;
            Vec::new()
        }
    }
}

fn panicked(module: &Module) -> State {
    State { state: SymbolState::Unreadable, note: format!("{} cannot be read", module.path) }
}

/// Resolves JIT code, which belongs to no module.
pub fn resolve_jit(work: &ModuleWork, jit: Option<&Jit>, mut send: impl FnMut(Symbols, usize) -> bool) {
    let state = State { state: SymbolState::Symbols, note: String::new() };
    let mut pieces = Pieces::default();
    for (instance, key) in &work.frames {
        let exact = key >> 47 & 1;
        let address = (key & ((1 << 47) - 1)).saturating_sub(1 - exact);
        let code = jit.and_then(|jit| jit.find(address));
        let frames: Vec<Frame> = code
            .map(|code| Frame {
                name: Some(Arc::new(code.name.clone())),
                file: code.file.as_deref().map(Arc::from),
                line: code.line,
                inlined: false,
            })
            .into_iter()
            .collect();
        pieces.add(*instance, &state, *key, &frames);
    }
    let (symbols, count) = pieces.take();
    send(symbols, count);
}

/// Builds the pieces.
struct Pieces {
    builder: SymbolsBuilder,
    /// By the address of the name: the frames of one function share it, and names are long.
    functions: IntMap<u64, (Arc<Name>, u32)>,
    instance: Option<u16>,
    count: usize,
    started: Instant,
}

impl Default for Pieces {
    fn default() -> Self {
        Pieces {
            builder: SymbolsBuilder::default(),
            functions: IntMap::default(),
            instance: None,
            count: 0,
            started: Instant::now(),
        }
    }
}

impl Pieces {
    fn add(&mut self, instance: u16, state: &State, key: u64, frames: &[Frame]) {
        if self.instance != Some(instance) {
            self.instance = Some(instance);
            self.builder.module(instance, state.state, &state.note);
        }
        let (builder, functions) = (&mut self.builder, &mut self.functions);
        let mut function = |name: &Arc<Name>, builder: &mut SymbolsBuilder| {
            let new = || (Arc::clone(name), builder.function(&name.raw, &name.full, &name.short));
            functions.entry(Arc::as_ptr(name).addr() as u64).or_insert_with(new).1
        };
        let places = frames
            .iter()
            .map(|frame| CodeLocation {
                function: frame.name.as_ref().map(|name| function(name, builder)),
                file: frame.file.as_ref().map(|file| builder.string(file)),
                line: frame.line,
                inlined: frame.inlined,
            })
            .collect();
        builder.frame(key, places);
        self.count += 1;
    }

    fn is_due(&self) -> bool {
        self.builder.len() >= PIECE || self.started.elapsed() >= PIECE_TIME
    }

    fn take(&mut self) -> (Symbols, usize) {
        self.instance = None;
        self.functions.clear();
        self.started = Instant::now();
        (self.builder.take(), std::mem::take(&mut self.count))
    }
}
