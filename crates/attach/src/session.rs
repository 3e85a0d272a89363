//! The begin and the end of a recording.
//!
//! ```text
//! Prepared --begin: all threads stopped for about a millisecond--> Attached --end: stopped again--> (as before)
//! ```
//! Must hold: patches are written while all threads are stopped, and only if the code at their places is still the code
//! that the plan was made for. A thread that is inside this code is moved to the slot first. The gate is opened last
//! and shut first, so a hook does nothing while a session is only partly set up or partly removed. If the profiler is
//! killed at any of these moments, the program runs on.
use crate::check::Checked;
use crate::children::{self, Children};
use crate::error::Refusal;
use crate::files::Object;
use crate::filter;
use crate::home;
use crate::image::CoreAddresses;
use crate::imports::{self, Import};
use crate::journal::{IMPORTS, Journal, Redirect};
use crate::late::Patcher;
use crate::loader::Loader;
use crate::maps::Maps;
use crate::prepare::Prepared;
use crate::process::{self, Process};
use crate::ptrace;
use crate::ready::Ready;
use crate::repair::{self, Restored, Undo};
use crate::reports;
use crate::scan;
use crate::world::World;
use capture::api::{ENTRIES, Located};
use capture::core::{ACTIVE, AttachBlock, EARLY, EXACT, PassedOn};
use capture::modules::Description;
use channel::{Clock, Fence, ModuleFlags, Phase, Region, Stamp};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// How many times to stop the target. The recording cannot begin if a thread will return into code that is displaced,
/// or if modules or filters have changed.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// A session that records. If it is dropped without `end`, the target is restored, but not its children.
#[derive(Debug)]
pub struct Attached {
    checked: Checked,
    /// Shared with the patcher, which adds what it patches.
    journal: Arc<Mutex<Journal>>,
    /// Where the journal's gate is in the target.
    gate: u64,
    places: CoreAddresses,
    region: u64,
    /// The tables through which the program reports blocks of its own, and the functions that they were filled with.
    tables: Vec<Located>,
    reports: [u64; ENTRIES],
    /// How long all threads were stopped.
    pub pause: Duration,
    /// How many functions are hooked, including the loader's notification function.
    pub functions: usize,
    undo: Undo,
}

/// Whether a session is still in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Recording,
    /// Another process, the program itself or the capture library has ended it.
    Detached,
    /// The process has exited, or has become another program.
    Over,
}

impl Prepared {
    /// Begins the recording. `region` is the profiler's own mapping of the channel, with a header that is filled in.
    /// `stamp` is the current time stamp.
    /// `passed_on` is for a followed process.
    pub fn begin(
        mut self,
        region: &Region,
        stamp: Stamp,
        passed_on: Option<PassedOn<'_>>,
    ) -> Result<Attached, Refusal> {
        let (process, memory) = (self.checked.process.clone(), self.checked.memory.clone());
        let begun = crate::on_own_thread(|| match begin(&mut self, region, stamp, passed_on) {
            Ok((pause, tables)) => {
                let functions = self.written.ready.len() + self.written.hooks.len();
                let Prepared { checked, journal, region, places, undo, .. } = self;
                let (gate, reports) = (journal.gate, places.reports);
                let journal = Arc::new(Mutex::new(journal));
                Ok(Attached { checked, journal, gate, places, region, tables, reports, pause, functions, undo })
            }
            Err(refusal) => Err(refusal),
        });
        begun.map_err(|refusal| refusal.checked(&process, Some(&memory)))
    }
}

/// Begins the recording of a program that is held at its start. The program has no end of its recording before its own,
/// so nothing of the session has to be kept.
pub fn begin_held(
    mut prepared: Prepared,
    region: &Region,
    stamp: Stamp,
    passed_on: Option<PassedOn<'_>>,
) -> Result<(), Refusal> {
    begin(&mut prepared, region, stamp, passed_on)?;
    prepared.undo.forget();
    Ok(())
}

/// Returns how long all threads were stopped, and the tables for reports that were filled.
fn begin(
    prepared: &mut Prepared,
    region: &Region,
    stamp: Stamp,
    passed_on: Option<PassedOn<'_>>,
) -> Result<(Duration, Vec<Located>), Refusal> {
    let process = prepared.checked.process.clone();
    let fence = if prepared.membarrier { Fence::Membarrier } else { Fence::InTarget };
    let header = region.header();
    header.fence.store(fence as u32, Ordering::Release);
    header.image.store(1, Ordering::Release);
    let mut known = Known::of(prepared)?;
    for attempt in 0..TRIES {
        if attempt > 0 {
            sleep(BETWEEN_TRIES);
        }
        let world = World::stop(&process)?;
        if known.is_old(prepared) {
            drop(world);
            known = Known::of(prepared)?;
            continue;
        }
        // A thread may have entered a sandbox since the check. No hook was there to notice it.
        if filter::modes(&process) != prepared.checked.seccomp_modes {
            drop(world);
            prepared.checked.check_filters()?;
            continue;
        }
        let maps = Maps::of(&process.folder).map_err(|_| Refusal::Gone)?;
        let threads = scan::threads(&world.tids, &maps, &prepared.checked.memory);
        if !stands_well(prepared, &threads)? {
            continue;
        }
        move_threads(&prepared.written.ready, &threads)?;
        let tables = open(prepared, region, &known, stamp, passed_on)?;
        let pause = world.elapsed();
        drop(world);
        header.phase.store(Phase::Recording as u32, Ordering::Release);
        return Ok((pause, tables));
    }
    Err(Refusal::Busy)
}

/// What is known of the modules, found while the target runs.
struct Known {
    list: Vec<crate::loader::Listed>,
    modules: Vec<crate::loader::Module>,
    imports: Vec<Import>,
}

impl Known {
    fn of(prepared: &Prepared) -> Result<Known, Refusal> {
        let Prepared { checked, journal, loader, exports, .. } = prepared;
        let Checked { process, memory, .. } = checked;
        let list = loader.list(memory);
        let modules = loader.describe(process, memory, &list, home::fake_map(journal), journal.table);
        let functions: Vec<u64> = prepared.written.hooks.iter().map(|hook| hook.function).collect();
        let mut imports = Vec::new();
        if !functions.is_empty() {
            let maps = Maps::of(&process.folder).map_err(|_| Refusal::Gone)?;
            let objects = Object::all(process, &maps, memory);
            imports = imports::find(memory, &objects, loader, &list, exports, &functions);
        }
        Ok(Known { list, modules, imports })
    }

    /// Returns true if modules were loaded or unloaded and their imports matter. Then `Known` must be made again while
    /// the target runs, because a search for imports takes too long while all threads are stopped.
    fn is_old(&self, prepared: &Prepared) -> bool {
        !prepared.written.hooks.is_empty() && prepared.loader.list(&prepared.checked.memory) != self.list
    }

    /// Returns the words to redirect, and the journal's entries that only keep a slot. A word that has changed since
    /// the search is left out, unless it now holds the address of the hooked function.
    fn redirects(&self, prepared: &Prepared) -> Vec<Redirect> {
        let kept = prepared.journal.kept();
        let redirects = self.imports.iter().filter_map(|import| {
            let hook = prepared.written.hooks.iter().find(|hook| hook.function == import.function)?;
            let original = prepared.checked.memory.word(import.at).ok()?;
            let is_expected = original == import.value || original == import.function;
            is_expected.then_some(Redirect { at: import.at, slot: hook.slot, original, function: import.function })
        });
        let room = IMPORTS.saturating_sub(kept.len());
        redirects.take(room).chain(kept.iter().copied()).collect()
    }
}

/// Returns true if no signal handler will return into the middle of the displaced instructions. Fails if the code is no
/// longer the code that the plan was made for.
fn stands_well(prepared: &Prepared, threads: &[scan::Thread]) -> Result<bool, Refusal> {
    let memory = &prepared.checked.memory;
    for ready in &prepared.written.ready {
        let mut bytes = ready.patch.original;
        memory.read(ready.patch.at, &mut bytes).map_err(|_| Refusal::Gone)?;
        if bytes != ready.patch.original {
            return Err(Refusal::Busy);
        }
    }
    let is_inside = |address: u64| prepared.written.ready.iter().any(|ready| inside(ready, address));
    Ok(!threads.iter().any(|thread| thread.is_interrupted_in(is_inside)))
}

fn inside(ready: &Ready, address: u64) -> bool {
    address > ready.patch.at && address < ready.patch.at + ready.length
}

/// Moves threads that are in the middle of the displaced instructions to the same instructions in the slots.
fn move_threads(ready: &[Ready], threads: &[scan::Thread]) -> Result<(), Refusal> {
    for thread in threads {
        let Some(ready) = ready.iter().find(|ready| inside(ready, thread.registers.rip)) else { continue };
        let distance = thread.registers.rip - ready.patch.at;
        let place = ready.places.iter().find(|(old, _)| *old == distance).ok_or(Refusal::Busy)?;
        let registers = libc::user_regs_struct { rip: place.1, ..thread.registers };
        ptrace::set_registers(thread.tid, &registers).map_err(|_| Refusal::Gone)?;
    }
    Ok(())
}

/// Writes everything to the target that makes it record, in the order of this function. All threads are stopped. The
/// gate is opened last.
fn open(
    prepared: &mut Prepared,
    region: &Region,
    known: &Known,
    stamp: Stamp,
    passed_on: Option<PassedOn<'_>>,
) -> Result<Vec<Located>, Refusal> {
    let tables = adopt_modules(prepared, region, known, stamp);
    let redirects = known.redirects(prepared);
    let Checked { process, memory, .. } = &prepared.checked;
    let loader = &prepared.loader;
    let failed = |error| Refusal::Memory { pid: process.pid, error };
    let debug = match loader.debug {
        0 => home::make_board(memory, &prepared.journal, loader.bias).map_err(failed)?,
        debug => debug,
    };
    let block = attach_block(process, prepared, loader, debug, region);
    let core = block.to_core_bytes(passed_on);
    let core = core.ok_or(Refusal::Image("the embedded capture library is from another build"))?;
    memory.write(prepared.places.core, &core).map_err(failed)?;
    let journal = &mut prepared.journal;
    journal.recorder = std::process::id();
    journal.recorder_started = process::started(journal.recorder).unwrap_or(0);
    (journal.target, journal.target_started) = (process.pid, process.started);
    journal.imports = redirects;
    if prepared.hub != 0 {
        (journal.following, journal.left_lists) = (prepared.places.following, prepared.places.left_lists);
        memory.write_words(journal.following, &[prepared.hub, 1]).map_err(failed)?;
    }
    journal.write(memory).map_err(failed)?;
    for ready in &prepared.written.ready {
        memory.write(ready.patch.at, &ready.patch.ours).map_err(failed)?;
    }
    for import in journal.imports.iter().filter(|import| import.at != 0) {
        memory.write_words(import.at, &[import.slot]).map_err(failed)?;
    }
    reports::fill(memory, &tables, &prepared.places.reports).map_err(failed)?;
    // The first thread of a program that is held has no thread pointer yet, and no hook may use one.
    let open = if region.header().sampling.rate.load(Ordering::Relaxed) == 0 { ACTIVE | EXACT } else { ACTIVE };
    let gate = if process.hold.is_on() { EARLY } else { open };
    memory.write_words(journal.gate, &[u64::from(gate)]).map_err(failed)?;
    Ok(tables)
}

const AT_RANDOM: u64 = 25;

fn attach_block(process: &Process, prepared: &Prepared, loader: &Loader, debug: u64, region: &Region) -> AttachBlock {
    let own_pid = process.status().ok().and_then(|status| status.namespace_pids.last().copied());
    let has_counter = prepared.checked.may_ask_for_counter && region.header().clock == Clock::Tsc as u32;
    AttachBlock {
        version: prepared.places.version,
        region: prepared.region,
        geometry: *region.geometry(),
        gate: prepared.journal.gate,
        image_start: prepared.journal.image,
        image_end: prepared.journal.home + prepared.journal.home_length,
        debug,
        program_headers: loader.headers,
        program_header_count: loader.header_count,
        pid: own_pid.unwrap_or(process.pid),
        has_membarrier: prepared.membarrier.into(),
        has_counter: has_counter.into(),
        // The kernel's random bytes are above all frames of the first thread.
        stack_top: process.auxiliary(AT_RANDOM).unwrap_or(0),
    }
}

/// Fills the module table. The loader's list is read again, because it may have changed. Returns the tables through
/// which the program reports blocks of its own (`heaptrack_api.h`).
fn adopt_modules(prepared: &Prepared, region: &Region, known: &Known, stamp: Stamp) -> Vec<Located> {
    let memory = &prepared.checked.memory;
    let list = prepared.loader.list(memory);
    let Prepared { checked, journal, loader, .. } = prepared;
    let describe = || loader.describe(&checked.process, memory, &list, home::fake_map(journal), journal.table);
    let fresh = (list != known.list).then(describe);
    let modules = fresh.as_ref().unwrap_or(&known.modules);
    let flags = |start: u64| if prepared.hooked.contains(&start) { ModuleFlags::HOOKED } else { 0 };
    let described = modules.iter().map(|module| Description { flags: flags(module.start), ..module.description() });
    // SAFETY: `Prepared::begin` asks its caller for the profiler's own mapping of the channel. The target has it mapped
    // too, but does not use it yet: all its threads stand still (the `World` of `begin`), and `open` writes the core
    // and opens the gate later.
    unsafe { capture::core::adopt(region, described, stamp) };
    modules.iter().flat_map(|module| module.tables.iter().copied()).collect()
}

impl Attached {
    /// Ends the recording and restores the target.
    pub fn end(mut self) -> Result<Restored, Refusal> {
        self.undo.forget();
        let restored = crate::on_own_thread(|| {
            self.clear_tables();
            let journal = self.journal();
            repair::restore(&self.checked, std::slice::from_ref(&journal), journal.image_id)
        });
        restored.map_err(|refusal| self.checked.truth(refusal))
    }

    /// Restores the forked children of a program that has exited.
    pub fn end_children(self) -> Children {
        let journal = self.journal();
        let Attached { checked, mut undo, .. } = self;
        undo.forget();
        children::restore(&checked.process, std::slice::from_ref(&journal), journal.image_id)
    }

    fn journal(&self) -> Journal {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what patches the modules that the program loads from now on. It must not be used after `end`.
    pub fn patcher(&self) -> Patcher {
        let Checked { process, memory, .. } = &self.checked;
        Patcher::attached(process.clone(), memory.clone(), self.places, Arc::clone(&self.journal))
    }

    /// Clears the tables for reports. A failure does not matter, because the functions in them find the gate shut.
    fn clear_tables(&self) {
        if !self.tables.is_empty()
            && let Ok(_world) = World::stop(&self.checked.process)
        {
            reports::clear(&self.checked.memory, &self.tables, &self.reports);
        }
    }

    /// Returns false if the process has exited.
    pub fn is_alive(&self) -> bool {
        !self.checked.process.has_exited()
    }

    /// Returns whether the session is still in force. Takes two reads.
    pub fn standing(&self) -> Standing {
        if !self.checked.memory.is_alive(self.region) {
            return Standing::Over;
        }
        match self.checked.memory.word(self.gate) {
            Ok(0) => Standing::Detached,
            Ok(_) => Standing::Recording,
            Err(_) => Standing::Over,
        }
    }
}
