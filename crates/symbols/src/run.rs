//! Many modules, on several threads, within a time.
//!
//! Given: work by module. Gives back: Symbols, a piece at a time. What must hold: memory is that of the modules in work
//! and of one piece each; a module that makes a library panic costs its own names and nothing else; when the time is
//! over the caller goes on at once.
use crate::debuginfod::Download;
use crate::demangle::Name;
use crate::finder::{Finder, Search};
use crate::jit::Jit;
use crate::resolver::{Frame, Resolver, State};
use crate::store::Store;
use crate::target_files::Target;
use crate::wanted::ModuleWork;
use format::{CodeLocation, IntMap, Module, SymbolState, Symbols, SymbolsBuilder};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// A piece is written when it has so many bytes.
const PIECE: usize = 256 << 10;
/// Or after so long: what is slow to find is not lost when the time is over.
const PIECE_TIME: Duration = Duration::from_millis(500);
/// How often a download is shown.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Frames between two looks at the clock.
const BATCH: usize = 64;
/// Bytes that are kept of a module's files, and the least work that must come between two times of giving them back.
const ENOUGH: u64 = 16 << 20;
const FEW_BATCHES: u32 = 16;
/// Demanglers go down by recursion.
const STACK: usize = 8 << 20;

/// How long and how wide.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub threads: usize,
    /// `None`: until it is done.
    pub time: Option<Duration>,
    /// Files with more bytes of debug information are left out.
    pub memory: Option<u64>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub total: usize,
    pub left_modules: usize,
    /// A file that a server sends.
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

/// Resolves everything that the time allows. Returns false if something is left. `sink` gets every piece, and is also called
/// without one while a server sends.
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
    for _ in 0..budget.threads.max(1) {
        // Not joined: one that reads a huge file must not hold up the end.
        start(Arc::clone(&shared), sender.clone());
    }
    drop(sender);
    let end = budget.time.map(|time| Instant::now() + time);
    let progress = || Progress {
        done: shared.done.load(Ordering::Relaxed),
        total,
        left_modules: shared.left_modules.load(Ordering::Relaxed),
        download: shared.search.debuginfod.as_ref().and_then(|servers| servers.download()),
    };
    let is_done = || shared.done.load(Ordering::Relaxed) == total;
    loop {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        let wait = if shared.search.debuginfod.is_some() { left.min(SHOW_EVERY) } else { left };
        let piece = match wait {
            Duration::MAX => pieces.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            wait => pieces.recv_timeout(wait),
        };
        match piece {
            Ok(symbols) => sink(Some(symbols), progress()),
            Err(mpsc::RecvTimeoutError::Disconnected) => return is_done(),
            Err(mpsc::RecvTimeoutError::Timeout) if end.is_none_or(|end| Instant::now() < end) => {
                sink(None, progress());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                shared.stop.store(true, Ordering::Relaxed);
                // What is ready is not thrown away.
                while let Ok(symbols) = pieces.recv_timeout(Duration::from_millis(50)) {
                    sink(Some(symbols), progress());
                }
                return is_done();
            }
        }
    }
}

fn start(shared: Arc<Shared>, pieces: mpsc::SyncSender<Symbols>) {
    let (theirs, to) = (Arc::clone(&shared), pieces.clone());
    let builder = std::thread::Builder::new().name("heaptrack-names".into()).stack_size(STACK);
    if builder.spawn(move || work(&theirs, &to)).is_err() {
        work(&shared, &pieces);
    }
}

fn work(shared: &Shared, pieces: &mpsc::SyncSender<Symbols>) {
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
            gone_on = gone_on && pieces.send(symbols).is_ok();
            gone_on && !is_over()
        };
        match &work.module {
            None => resolve_jit(&work, jit.as_ref(), send),
            Some(module) => resolve_module(&work, module, finder, shared.memory, is_over, send),
        }
        shared.left_modules.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The frames of one module. What was read of its files is given back in between, so that it does not grow without end. Where that
/// happens too often (one unit may be the whole program), more is kept; where this is far more than `memory`, the rest is left to
/// whoever has it. `is_over`: what is known by then is sent, and that is all.
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
        // `None`: the file makes a library panic.
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

/// Where the functions begin that have these frames, in the file's addresses. `keys`: low bits of frames.
pub fn starts(module: &Module, finder: Finder<'_>, memory: Option<u64>, keys: &[u64]) -> Vec<Option<u64>> {
    let find = || {
        let store = Store::bounded(memory, finder.kept());
        let mut resolver = Resolver::open(&store, module, finder, keys);
        keys.iter().map(|key| resolver.start(*key)).collect()
    };
    // A file that makes a library panic tells nothing.
    catch_unwind(AssertUnwindSafe(find)).unwrap_or_else(|_| vec![None; keys.len()])
}

fn ask(resolver: &mut Option<Resolver<'_>>, key: u64) -> Vec<Frame> {
    let frames = resolver.as_mut().map(|found| catch_unwind(AssertUnwindSafe(|| found.frames(key))));
    match frames {
        Some(Ok(frames)) => frames,
        None => Vec::new(),
        Some(Err(_)) => {
            // After a panic the resolver may be half changed, so it is not used again.
            *resolver = None;
            Vec::new()
        }
    }
}

fn panicked(module: &Module) -> State {
    State { state: SymbolState::Unreadable, note: format!("{} cannot be read", module.path) }
}

/// Code of no module, by what a JIT compiler says about it.
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

/// Builds a piece.
struct Pieces {
    builder: SymbolsBuilder,
    /// By where it is: frames of one function share their name, and names are long.
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
