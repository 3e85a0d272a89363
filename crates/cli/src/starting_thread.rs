//! The thread that patches programs which processes of a followed tree execute, and into which no library can be preloaded. It also
//! patches allocators with names of their own in the modules of all other programs of the tree.
//!
//! Receives: requests of processes that are about to execute such a program (`channel::StartRequest`). Returns: at the end,
//! the programs that could not be recorded. Must hold: a process that asks waits for a limited time. A program that
//! cannot be patched runs unrecorded. Tracing ends before the first instruction of the program.
use crate::library;
use crate::patching_thread::{DebugSymbols, PlainFiles, Way, Work as Modules, end_question, patience_ms};
use crate::record::inherits_orphans;
use attach::{Executing, Means, NotStarted, PassedOn, Recorder, Shared, SharedFrom};
use channel::{Region, StartRequest, StartStep};
use collector::{Mapping, Offered, TreeHub};
use rustix::thread::futex;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Scope};
use std::time::Duration;
use symbols::Search;

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Programs that could not be patched: name and reason, and how many times.
pub type NotPatched = BTreeMap<(String, String), u64>;

/// The thread, until it is stopped.
pub struct Starting {
    stop: Arc<AtomicBool>,
    hub: TreeHub,
    not_patched: Arc<Mutex<NotPatched>>,
    notes: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

/// What a new program needs.
struct Work {
    hub: TreeHub,
    /// The value of `HEAPTRACK_FOLLOW`.
    variable: String,
    library: PathBuf,
    search: Search,
    not_patched: Arc<Mutex<NotPatched>>,
    notes: Arc<Mutex<Vec<String>>>,
    plain_files: Arc<PlainFiles>,
}

/// The modules of a process that has some to patch.
struct Served {
    modules: Mutex<Modules>,
    is_busy: AtomicBool,
}

impl Starting {
    /// Starts the thread. Returns `None` if that fails, or if `record::wait_for` would take the events of traced processes;
    /// then such programs run unrecorded.
    pub fn start(
        hub: TreeHub,
        variable: String,
        library: PathBuf,
        search: Search,
        may_ask_servers: bool,
    ) -> Option<Starting> {
        let own = rustix::process::getpid();
        if inherits_orphans() || rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).is_err() {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let not_patched = Arc::default();
        let notes = Arc::default();
        let work = Work {
            hub: hub.clone(),
            variable,
            library,
            search,
            not_patched: Arc::clone(&not_patched),
            notes: Arc::clone(&notes),
            plain_files: Arc::default(),
        };
        let stopped = Arc::clone(&stop);
        let builder = Builder::new().name("heaptrack-starts".into());
        let thread = builder.spawn(move || work.run(&stopped)).ok()?;
        hub.hub().answers_starts.store(1, Ordering::Release);
        hub.hub().loading_patience_ms.store(patience_ms(may_ask_servers), Ordering::Release);
        Some(Starting { stop, hub, not_patched, notes, thread: Some(thread) })
    }

    /// Stops the thread. Returns the programs that could not be patched, and sentences about modules.
    pub fn stop(mut self) -> (NotPatched, Vec<String>) {
        self.end();
        let not_patched = std::mem::take(&mut *self.not_patched.lock().unwrap_or_else(PoisonError::into_inner));
        (not_patched, std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn end(&mut self) {
        let hub = self.hub.hub();
        hub.answers_starts.store(0, Ordering::Release);
        hub.loading_patience_ms.store(0, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        hub.starts_bell.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&hub.starts_bell, futex::Flags::empty(), 1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // A process that has asked meanwhile must not wait until its patience is over.
        hub.starts.iter().for_each(refuse);
        let (_, asking) = self.hub.wait_for_questions(Duration::ZERO, |_| false);
        asking.iter().for_each(|mapping| end_question(&mapping.region()));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs `work` on a new thread, or on this one if no thread can be started: then other processes wait meanwhile.
fn run_on_thread<'scope>(
    scope: &'scope Scope<'scope, '_>,
    builder: Builder,
    work: impl FnOnce() + Clone + Send + 'scope,
) {
    if builder.spawn_scoped(scope, work.clone()).is_err() {
        work();
    }
}

fn wake(request: &StartRequest) {
    let _ = futex::wake(&request.step, futex::Flags::empty(), 1);
}

/// Tells a process that its program is not patched. If the process has given up, its place becomes free.
fn refuse(request: &StartRequest) {
    let refused = [StartStep::Asked, StartStep::Seen].iter().any(|from| request.advance(*from, StartStep::Refused));
    if !refused && request.is_at(StartStep::GaveUp) {
        request.free();
    }
    wake(request);
}

impl Served {
    /// Returns true while the process runs.
    fn exists(&self) -> bool {
        let pid = self.modules.lock().unwrap_or_else(PoisonError::into_inner).pid();
        std::fs::exists(format!("/proc/{pid}")).unwrap_or(true)
    }
}

impl Work {
    fn run(&self, stop: &AtomicBool) {
        let mut served: HashMap<*const Mapping, Arc<Served>> = HashMap::new();
        std::thread::scope(|scope| {
            while !stop.load(Ordering::Acquire) {
                let is_busy = |mapping: &Arc<Mapping>| {
                    served.get(&Arc::as_ptr(mapping)).is_some_and(|one| one.is_busy.load(Ordering::Acquire))
                };
                let (requests, asking) = self.hub.wait_for_questions(LOOK_EVERY, is_busy);
                for request in requests {
                    let builder = Builder::new().name("heaptrack-start".into());
                    if builder.spawn_scoped(scope, || self.answer(request)).is_err() {
                        refuse(request);
                    }
                }
                // Shared memory is kept as long as its process is served.
                served.retain(|_, one| one.is_busy.load(Ordering::Acquire) || one.exists());
                for mapping in asking {
                    let Some(one) = self.served(&mut served, mapping) else { continue };
                    one.is_busy.store(true, Ordering::Release);
                    let builder = Builder::new().name("heaptrack-patch".into());
                    run_on_thread(scope, builder, move || {
                        one.modules.lock().unwrap_or_else(PoisonError::into_inner).answer_if_asked();
                        one.is_busy.store(false, Ordering::Release);
                    });
                }
            }
        });
    }

    /// Returns the modules of a process that asks. Returns `None` if nothing has to be patched; then the process has its answer.
    fn served(&self, served: &mut HashMap<*const Mapping, Arc<Served>>, mapping: Arc<Mapping>) -> Option<Arc<Served>> {
        let key = Arc::as_ptr(&mapping);
        if let Some(one) = served.get(&key) {
            return Some(Arc::clone(one));
        }
        let way = Way::Launched(self.library.clone());
        let (notes, plain_files) = (Arc::clone(&self.notes), Arc::clone(&self.plain_files));
        let mut modules = Modules::new(mapping, way, self.search.clone(), notes, plain_files);
        if modules.answer_if_plain() {
            return None;
        }
        let one = Arc::new(Served { modules: Mutex::new(modules), is_busy: AtomicBool::new(false) });
        served.insert(key, Arc::clone(&one));
        Some(one)
    }

    /// Patches the program of one process.
    fn answer(&self, request: &StartRequest) {
        let pid = request.pid.load(Ordering::Acquire);
        let Some(offered) = self.hub.take(pid) else {
            self.note(pid, "all shared memory is in use");
            return refuse(request);
        };
        let is_held = AtomicBool::new(false);
        let go = || {
            is_held.store(request.advance(StartStep::Seen, StartStep::Held), Ordering::Release);
            wake(request);
            is_held.load(Ordering::Acquire)
        };
        let executing = Executing {
            pid,
            go: &go,
            has_failed: &|| request.is_at(StartStep::GaveUp),
            patched: &|| join(&offered, pid),
            refused: &|why| self.note(pid, &why.to_string()),
        };
        if self.patch(executing, &offered).is_err() {
            if offered.mapping().region().header().module_count.load(Ordering::Acquire) == 0 {
                offered.give_back();
                if is_held.load(Ordering::Acquire) && !request.is_at(StartStep::GaveUp) {
                    self.hub.has_left(pid);
                }
            } else {
                // The memory was used already. The process joins, without an event, and its end releases the memory.
                join(&offered, pid);
            }
        }
        if is_held.load(Ordering::Acquire) || request.is_at(StartStep::GaveUp) {
            request.free();
            wake(request);
        } else {
            refuse(request);
        }
    }

    fn patch(&self, executing: Executing<'_>, offered: &Offered) -> Result<attach::Started, NotStarted> {
        let region: Region<'_> = offered.mapping().region();
        let path = format!("{}\0", offered.path());
        let symbols = DebugSymbols::new(executing.pid, self.search.clone());
        let means = Means {
            library: library::CONTENT,
            separate: &|module| symbols.of(module),
            shared: Shared { from: SharedFrom::Path(path.as_bytes()), geometry: *region.geometry() },
            region: &region,
            stamp: self.hub.now(),
            passed_on: Some(PassedOn {
                library: self.library.as_os_str().as_bytes(),
                to: Recorder::Hub(self.variable.as_bytes()),
            }),
        };
        attach::start_executed(executing, means)
    }

    fn note(&self, pid: u32, why: &str) {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let name = exe.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut all = self.not_patched.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry((name, why.to_owned())).or_default() += 1;
    }
}

/// The program is patched, and none of its instructions has run.
fn join(offered: &Offered, pid: u32) {
    let region = offered.mapping().region();
    let origin = &region.header().origin;
    let store = |bytes: &[u8]| {
        let (at, length) = capture::modules::store_name(&region, bytes);
        u64::from(at) << 32 | u64::from(length)
    };
    // The process may have ended when the collector asks the kernel.
    origin.command.store(store(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()), Ordering::Relaxed);
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    origin.exe.store(store(exe.as_os_str().as_bytes()), Ordering::Relaxed);
    offered.join(pid, attach::parent(pid).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn work_is_done_once_with_and_without_a_thread() {
        // No address space has room for this stack, so the thread cannot be started.
        for (stack, is_here) in [(1 << 20, false), (1 << 60, true)] {
            let (done, here) = (AtomicUsize::new(0), std::thread::current().id());
            std::thread::scope(|scope| {
                run_on_thread(scope, Builder::new().stack_size(stack), || {
                    done.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(std::thread::current().id() == here, is_here);
                });
            });
            assert_eq!(done.into_inner(), 1);
        }
    }
}
