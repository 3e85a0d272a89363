//! The thread that patches allocators in modules before their code runs.
//!
//! Receives: the shared memory, through which a thread of the target says that modules were loaded. Returns nothing; the
//! target's module table then says which modules are hooked. Must hold: the target waits for a limited time. Nothing is
//! written once its thread has stopped to wait. Separate debug files are looked for as the user said.
use crate::library;
use attach::{Loaded, Patcher, SeparateFunction, Waiting};
use channel::{BUILD_ID_MAX, LoadingStep, ModuleFlags, Region};
use collector::Mapping;
use format::Module;
use rustix::thread::futex;
use std::collections::HashSet;
use std::os::linux::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use symbols::{Finder, Search, Target};

/// How long a thread of the target waits for us, in milliseconds. Reading the symbols of a library of 200 MB takes less
/// than a second.
const PATIENCE_MS: u32 = 5_000;
/// The same if files may come from a server.
const SERVER_PATIENCE_MS: u32 = 60_000;
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The most bytes of a debug file that are unpacked.
const MOST_MEMORY: u64 = 100 << 20;
/// How long the target may take to map memory for us.
const MAPPING: Duration = Duration::from_secs(5);

/// The thread, until it is stopped.
pub struct Patching {
    stop: Arc<AtomicBool>,
    mapping: Arc<Mapping>,
    notes: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// How the target got the capture library.
pub enum Way {
    /// The loader loads this file.
    Launched(PathBuf),
    Attached(Box<Patcher>),
}

impl Patching {
    /// Starts the thread. Returns `None` if that fails; then nothing is patched. For a program that is launched, this
    /// must be called before it starts.
    pub fn start(mapping: &Arc<Mapping>, way: Way, search: Search, may_ask_servers: bool) -> Option<Patching> {
        let stop = Arc::new(AtomicBool::new(false));
        let notes = Arc::new(Mutex::new(Vec::new()));
        // The modules that were there when we attached are patched already.
        let seen = match &way {
            Way::Launched(_) => 0,
            Way::Attached(_) => mapping.region().header().module_count.load(Ordering::Acquire),
        };
        let mut work = Work { seen, ..Work::new(Arc::clone(mapping), way, search, Arc::clone(&notes), Arc::default()) };
        let stopped = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name("heaptrack-patch".into());
        let thread = builder.spawn(move || work.run(&stopped)).ok()?;
        let patience = patience_ms(may_ask_servers);
        mapping.region().header().loading.patience_ms.store(patience, Ordering::Release);
        Some(Patching { stop, mapping: Arc::clone(mapping), notes, thread: Some(thread) })
    }

    /// Stops the thread. From then on the target does not wait any more. Returns what could not be patched.
    pub fn stop(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        let region = self.mapping.region();
        let loading = &region.header().loading;
        loading.patience_ms.store(0, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        let _ = futex::wake(&loading.step, futex::Flags::empty(), u32::MAX >> 1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        end_question(&region);
    }
}

impl Drop for Patching {
    fn drop(&mut self) {
        self.end();
    }
}

/// A thread that has asked must not wait until its patience is over.
pub fn end_question(region: &Region<'_>) {
    let step = &region.header().loading.step;
    let asked = (LoadingStep::Asked as u32, LoadingStep::Done as u32);
    let _ = step.compare_exchange(asked.0, asked.1, Ordering::AcqRel, Ordering::Acquire);
    let _ = futex::wake(step, futex::Flags::empty(), u32::MAX >> 1);
}

/// How long a thread of the target waits for us.
pub const fn patience_ms(may_ask_servers: bool) -> u32 {
    if may_ask_servers { SERVER_PATIENCE_MS } else { PATIENCE_MS }
}

/// The modules of one process that are patched.
pub struct Work {
    mapping: Arc<Mapping>,
    way: Way,
    search: Search,
    /// How many modules of the table are done.
    seen: u32,
    /// The image that `patcher` is for.
    image: u32,
    patcher: Option<Patcher>,
    notes: Arc<Mutex<Vec<String>>>,
    plain_files: Arc<PlainFiles>,
}

/// Files in which nothing has to be patched, so that they are read once for all processes of a tree.
#[derive(Default)]
pub struct PlainFiles(Mutex<HashSet<FileId>>);

#[derive(PartialEq, Eq, Hash)]
struct FileId {
    path: String,
    build_id: Vec<u8>,
    is_hooked: bool,
    file: (u64, u64, i64, i64),
}

impl FileId {
    /// Returns `None` for a module without a file.
    fn of(module: &Loaded) -> Option<FileId> {
        let status = std::fs::metadata(&module.path).ok()?;
        let file = (status.st_dev(), status.st_ino(), status.st_ctime(), status.st_ctime_nsec());
        Some(FileId { path: module.path.clone(), build_id: module.build_id.clone(), is_hooked: module.is_hooked, file })
    }
}

impl PlainFiles {
    fn lock(&self) -> MutexGuard<'_, HashSet<FileId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, module: &Loaded) -> bool {
        // The kernel's own module has no file, and no allocator.
        !module.path.starts_with('/') || FileId::of(module).is_some_and(|file| self.lock().contains(&file))
    }

    fn add(&self, module: &Loaded) {
        if let Some(file) = FileId::of(module) {
            self.lock().insert(file);
        }
    }
}

impl Work {
    pub fn new(
        mapping: Arc<Mapping>,
        way: Way,
        search: Search,
        notes: Arc<Mutex<Vec<String>>>,
        plain_files: Arc<PlainFiles>,
    ) -> Work {
        Work { mapping, way, search, seen: 0, image: 0, patcher: None, notes, plain_files }
    }

    /// Answers the thread of the process that waits. Returns false, and does nothing, if something may have to be patched.
    pub fn answer_if_plain(&mut self) -> bool {
        let mapping = Arc::clone(&self.mapping);
        let region = mapping.region();
        let seen = self.seen;
        let is_plain = self.new_modules(&region).iter().all(|module| self.plain_files.has(module));
        if is_plain {
            Thread { region: &region, step: LoadingStep::Asked }.done();
        } else {
            self.seen = seen;
        }
        is_plain
    }

    /// Answers if a thread of the process waits.
    pub fn answer_if_asked(&mut self) {
        let mapping = Arc::clone(&self.mapping);
        let region = mapping.region();
        if region.header().loading.step.load(Ordering::Acquire) == LoadingStep::Asked as u32 {
            self.answer(&region);
        }
    }

    pub fn pid(&self) -> u32 {
        self.mapping.region().header().target_pid.load(Ordering::Acquire)
    }

    fn run(&mut self, stop: &AtomicBool) {
        let mapping = Arc::clone(&self.mapping);
        let region = mapping.region();
        let step = &region.header().loading.step;
        while !stop.load(Ordering::Acquire) {
            let now = step.load(Ordering::Acquire);
            if now == LoadingStep::Asked as u32 {
                self.answer(&region);
                continue;
            }
            let _ = wait(step, now, LOOK_EVERY);
        }
    }

    fn answer(&mut self, region: &Region<'_>) {
        let mut waiting = Thread { region, step: LoadingStep::Asked };
        let mut modules = self.new_modules(region);
        modules.retain(|module| !self.plain_files.has(module));
        if modules.is_empty() {
            waiting.done();
            return;
        }
        let mut plain = Vec::new();
        let image = region.header().image.load(Ordering::Acquire);
        if self.patcher.is_none() || image != self.image {
            self.image = image;
            self.patcher = self.make_patcher(region);
        }
        if let Some(patcher) = &self.patcher {
            let pid = region.header().target_pid.load(Ordering::Acquire);
            let symbols = DebugSymbols::new(pid, self.search.clone());
            match patcher.patch(&modules, &|module| symbols.of(module), &mut waiting) {
                Ok(patched) => {
                    mark(region, &patched.modules);
                    let is_plain = |module: &&Loaded| !patched.modules.contains(&module.start);
                    if patched.notes.is_empty() {
                        plain.extend(modules.iter().filter(is_plain));
                    }
                    self.note(patched.notes);
                }
                Err(error) => self.note(vec![format!("modules that were loaded could not be patched: {error}")]),
            }
        }
        // If the thread has given up waiting, nothing was patched.
        if waiting.done() {
            plain.into_iter().for_each(|module| self.plain_files.add(module));
        }
    }

    fn note(&self, notes: Vec<String>) {
        let mut all = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        for note in notes {
            if !all.contains(&note) {
                all.push(note);
            }
        }
    }

    /// Returns the modules that were loaded since the last call.
    fn new_modules(&mut self, region: &Region<'_>) -> Vec<Loaded> {
        let count = region.header().module_count.load(Ordering::Acquire).min(region.geometry().modules);
        let new = region.modules().get(self.seen as usize..count as usize).unwrap_or_default();
        self.seen = count;
        new.iter().filter_map(|module| read(region, module)).collect()
    }

    fn make_patcher(&self, region: &Region<'_>) -> Option<Patcher> {
        let path = match &self.way {
            Way::Attached(patcher) => return Some(Patcher::clone(patcher)),
            Way::Launched(path) => path.to_string_lossy().into_owned(),
        };
        let pid = region.header().target_pid.load(Ordering::Acquire);
        let modules = region.modules().get(..self.seen as usize).unwrap_or_default();
        let ours = modules.iter().rev().find(|module| read(region, module).is_some_and(|known| known.path == path))?;
        Patcher::launched(pid, library::CONTENT, ours.bias.load(Ordering::Acquire)).ok()
    }
}

/// Reads an entry of the module table.
fn read(region: &Region<'_>, module: &channel::Module) -> Option<Loaded> {
    let name = (module.name_at.load(Ordering::Relaxed), module.name_len.load(Ordering::Relaxed));
    let mut build_id: Vec<u8> =
        module.build_id.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    build_id.truncate((module.build_id_len.load(Ordering::Relaxed) as usize).min(BUILD_ID_MAX));
    Some(Loaded {
        start: module.start.load(Ordering::Relaxed),
        path: collector::name_of(region, name.0, name.1)?,
        build_id,
        is_hooked: module.flags.load(Ordering::Relaxed) & ModuleFlags::HOOKED != 0,
    })
}

/// Marks the modules whose allocators are hooked now.
fn mark(region: &Region<'_>, starts: &[u64]) {
    for start in starts {
        let last = region.modules().iter().rev().find(|module| module.start.load(Ordering::Relaxed) == *start);
        if let Some(module) = last {
            module.flags.fetch_or(ModuleFlags::HOOKED, Ordering::Relaxed);
        }
    }
}

/// The separate debug files of a process.
pub struct DebugSymbols {
    search: Search,
    target: Target,
}

impl DebugSymbols {
    pub fn new(pid: u32, search: Search) -> DebugSymbols {
        DebugSymbols { search, target: Target::new(pid) }
    }

    /// Returns the functions of allocators that the debug file of a module names.
    pub fn of(&self, module: &Loaded) -> Vec<SeparateFunction> {
        let Loaded { start, path, build_id, .. } = module.clone();
        let module = Module { start, path, build_id, ..Module::default() };
        let finder = Finder { search: &self.search, target: Some(&self.target) };
        let found = symbols::separate_functions(&module, finder, Some(MOST_MEMORY), attach::is_wanted);
        let convert = |function: symbols::Function| {
            let symbols::Function { name, address, size, is_local } = function;
            SeparateFunction { name, address, size, is_local }
        };
        found.into_iter().map(convert).collect()
    }
}

/// The thread of the target that waits for an answer.
struct Thread<'a> {
    region: &'a Region<'a>,
    /// The last step.
    step: LoadingStep,
}

impl Thread<'_> {
    /// Makes a step of ours. Returns false if the thread does not wait any more.
    fn advance(&mut self, to: LoadingStep) -> bool {
        let step = &self.region.header().loading.step;
        let done = step.compare_exchange(self.step as u32, to as u32, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let _ = futex::wake(step, futex::Flags::empty(), u32::MAX >> 1);
        if done {
            self.step = to;
        }
        done
    }

    fn done(&mut self) -> bool {
        self.advance(LoadingStep::Done)
    }
}

impl Waiting for Thread<'_> {
    fn map(&mut self, near: u64, length: u64) -> Option<u64> {
        let loading = &self.region.header().loading;
        loading.near.store(near, Ordering::Relaxed);
        loading.length.store(length, Ordering::Relaxed);
        if !self.advance(LoadingStep::Map) {
            return None;
        }
        let end = Instant::now() + MAPPING;
        while loading.step.load(Ordering::Acquire) == LoadingStep::Map as u32 && Instant::now() < end {
            let _ = wait(&loading.step, LoadingStep::Map as u32, LOOK_EVERY);
        }
        if loading.step.load(Ordering::Acquire) != LoadingStep::Mapped as u32 {
            return None;
        }
        self.step = LoadingStep::Mapped;
        Some(loading.mapped_at.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    fn begin_writing(&mut self) -> bool {
        self.advance(LoadingStep::Writing)
    }
}

fn wait(word: &AtomicU32, expected: u32, time: Duration) -> rustix::io::Result<()> {
    let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.as_nanos() as _ };
    futex::wait(word, futex::Flags::empty(), expected, Some(&timeout))
}
