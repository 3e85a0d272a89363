//! What is done before any code of the target is changed.
//!
//! Receives: a process that was checked. Returns: our memory in it, slots for the functions that will be patched, and
//! the shared memory. Must hold: at most one thread is stopped at a time, for some system calls, unless an earlier
//! recorder died and the target must be restored first. The target behaves as before, even if any of this fails or the
//! profiler dies.
use crate::check::Checked;
use crate::error::Refusal;
use crate::home;
use crate::image::{CoreAddresses, Image};
use crate::imports::Export;
use crate::interrupt::Patience;
use crate::journal::{self, Journal, Pad};
use crate::late::Separate;
use crate::loader::Loader;
use crate::maps::Maps;
use crate::plan::Plan;
use crate::process::Process;
use crate::ptrace::{self, Tid};
use crate::ready::{self, Written};
use crate::remote::{Gadgets, Remote};
use crate::repair::{self, Undo};
use crate::slots::{self, PAD, SLOT};
use crate::start::{Shared, SharedFrom};
use crate::world::{self, World};
use crate::{CHANNEL_NAME, frame};
use capture::core::WRITER_MEMORY;
use capture::entry::Range;
use channel::Geometry;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{OwnedFd, RawFd};
use std::thread::sleep;
use std::time::Duration;

/// A thread other than the first must have at least this much of its stack left to be used for system calls.
const STACK_LEFT: u64 = 64 << 10;
/// The ABI allows a function to use this much below its stack pointer.
const RED_ZONE: u64 = 128;
/// How long to wait for one thread to stop before another thread is tried.
const ONE_THREAD: Duration = Duration::from_millis(100);
const BETWEEN_TRIES: Duration = Duration::from_millis(5);
const REGISTER_GLOBAL_EXPEDITED: u64 = 4;

/// The target with our memory in it. If it is dropped, the shared memory is removed from the target.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) checked: Checked,
    pub(crate) journal: Journal,
    pub(crate) places: CoreAddresses,
    pub(crate) loader: Loader,
    pub(crate) written: Written,
    /// The exported names, by which words that are not bound yet are recognised.
    pub(crate) exports: Vec<Export>,
    /// The starts of the modules whose allocators will be hooked.
    pub(crate) hooked: Vec<u64>,
    pub(crate) region: u64,
    /// Where the hub is mapped, if the processes that the target starts are followed. Otherwise 0.
    pub(crate) hub: u64,
    pub(crate) geometry: Geometry,
    pub(crate) membarrier: bool,
    pub(crate) undo: Undo,
    /// The shared memory, if the target has created it. It contains only zeros.
    pub channel: Option<OwnedFd>,
    /// What cannot be recorded, as sentences for the user.
    pub notes: Vec<String>,
}

/// How many times allocators are searched in a process that has none yet, and the time in between: half a second in
/// total.
const LOOKS: u32 = 26;
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Prepared {
    /// `library` is the file that will be written to the target.
    pub fn new(checked: Checked, library: &[u8]) -> Result<Prepared, Refusal> {
        Self::with_symbols(checked, library, &|_| Vec::new())
    }

    /// As `new`. `separate` is asked about modules that have no symbol table besides that of their exports.
    pub fn with_symbols(checked: Checked, library: &[u8], separate: Separate<'_>) -> Result<Prepared, Refusal> {
        let image = Image::parse(library)?;
        let (process, memory) = (checked.process.clone(), checked.memory.clone());
        crate::on_own_thread(|| prepare(checked, &image, separate))
            .map_err(|refusal| refusal.checked(&process, Some(&memory)))
    }

    /// Lets the target map the hub of a followed tree. `path` is that of the hub in /proc, `inode` the number of its file.
    pub fn follow(&mut self, path: &str, inode: u64) -> Result<(), Refusal> {
        let (process, memory) = (self.checked.process.clone(), self.checked.memory.clone());
        let hub = crate::on_own_thread(|| {
            let gadgets = Gadgets::find(&self.checked.maps, &self.checked.memory)?;
            with_thread(&self.checked, gadgets, |remote| map_hub(remote, &self.checked, &self.journal, path, inode))
        });
        self.hub = hub.map_err(|refusal| refusal.checked(&process, Some(&memory)))?;
        Ok(())
    }

    /// Returns the memory that we have mapped into the target, besides the shared memory.
    pub fn own_ranges(&self) -> Vec<std::ops::Range<u64>> {
        let journal = &self.journal;
        let pads = journal.pads.iter().map(|pad| (pad.at, pad.length));
        let all = pads.chain([(journal.home, journal.home_length), (journal.table, journal.table_length)]);
        all.filter(|(at, length)| *at > 0 && *length > 0).map(|(at, length)| at..at + length).collect()
    }

    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub const fn process(&self) -> &Process {
        &self.checked.process
    }

    /// The whole command, for the trace.
    pub fn command(&self) -> Vec<String> {
        self.checked.process.command()
    }
}

/// Finds the allocators. A program that has only just started (`./server & heaptrack -p $!`) may not have its libraries
/// yet, so this waits for a moment.
fn find_allocators(checked: &mut Checked, separate: Separate<'_>) -> Result<(Gadgets, Loader, Plan), Refusal> {
    // A program that is held does not get any libraries meanwhile.
    let mut looks = if checked.process.hold.is_on() { 1 } else { LOOKS };
    loop {
        checked.maps = Maps::of(&checked.process.folder).map_err(|_| Refusal::Gone)?;
        looks -= 1;
        match look(checked, separate) {
            Err(Refusal::NoMalloc { .. } | Refusal::Gone) if looks > 0 => sleep(LOOK_EVERY),
            result => return result,
        }
    }
}

fn look(checked: &Checked, separate: Separate<'_>) -> Result<(Gadgets, Loader, Plan), Refusal> {
    let gadgets = Gadgets::find(&checked.maps, &checked.memory)?;
    let loader = Loader::find(&checked.process, &checked.memory).ok_or(Refusal::Gone)?;
    let plan = Plan::make(&checked.process, &checked.maps, &checked.memory, &loader, separate)?;
    Ok((gadgets, loader, plan))
}

/// Where the shared memory comes from.
#[derive(Clone, Copy, Debug)]
pub enum Channel<'a> {
    /// The target creates it. The target may be in other namespaces, so it could not open a file of ours.
    Created(Geometry),
    /// The target was started under the profiler, which has created it.
    Given(Shared<'a>),
}

impl Channel<'_> {
    const fn geometry(&self) -> Geometry {
        match self {
            Channel::Created(geometry) | Channel::Given(Shared { geometry, .. }) => *geometry,
        }
    }
}

/// Prepares a program that is held at its start.
pub fn held(checked: Checked, image: &Image, separate: Separate<'_>, shared: Shared<'_>) -> Result<Prepared, Refusal> {
    let undo = Undo::new(&checked.process, &checked.memory, image.id);
    build(checked, image, separate, Vec::new(), undo, Channel::Given(shared))
}

fn prepare(checked: Checked, image: &Image, separate: Separate<'_>) -> Result<Prepared, Refusal> {
    let pid = checked.process.pid;
    if checked.is_launched() {
        return Err(Refusal::Launched { pid });
    }
    let found = Journal::find(&checked.maps, &checked.memory);
    if let Some(journal) = found.iter().find(|journal| journal.is_recorded(&checked.process)) {
        return Err(Refusal::Recorded { pid, recorder: journal.recorder });
    }
    // If an earlier recorder died, first restore what it left.
    repair::restore(&checked, &found, image.id)?;
    let undo = Undo::new(&checked.process, &checked.memory, image.id);
    let geometry = if checked.process.limits_address_space() {
        Geometry::tight(WRITER_MEMORY)
    } else {
        Geometry::roomy(WRITER_MEMORY)
    };
    build(checked, image, separate, found, undo, Channel::Created(geometry))
}

/// Makes the memory, the slots and the shared memory, in a process in which no session is in force.
fn build(
    mut checked: Checked,
    image: &Image,
    separate: Separate<'_>,
    found: Vec<Journal>,
    undo: Undo,
    channel: Channel<'_>,
) -> Result<Prepared, Refusal> {
    let (gadgets, loader, plan) = find_allocators(&mut checked, separate)?;
    let old = found.into_iter().find(|journal| journal.image_id == image.id && journal.has_room());
    let old = old.map(|journal| Journal { imports: journal.kept(), ..journal });
    let mut mapped =
        with_thread(&checked, gadgets, |remote| map(remote, &checked, image, &plan, &loader, old, channel))?;
    let places = if mapped.is_new {
        home::fill(&checked.memory, &mut mapped.journal, image)?
    } else {
        home::places(&mapped.journal, image)?
    };
    let mut notes = plan.notes.clone();
    let written = ready::write_slots(&checked, &mut mapped.journal, &places, &plan, &loader, &mut notes)?;
    let words = plan.imports.len() + mapped.journal.kept().len();
    if words > journal::IMPORTS {
        notes.push(format!(
            "{} imports of functions that cannot be patched in place are not hooked: there are too many",
            words - journal::IMPORTS
        ));
    }
    Ok(Prepared {
        places,
        loader,
        written,
        hooked: plan.entries.iter().map(|entry| entry.module.start).collect(),
        exports: plan.exports,
        region: mapped.region,
        hub: 0,
        geometry: channel.geometry(),
        membarrier: mapped.membarrier,
        channel: mapped.channel,
        journal: mapped.journal,
        checked,
        undo,
        notes,
    })
}

/// What the target has mapped.
struct Mapped {
    journal: Journal,
    is_new: bool,
    region: u64,
    channel: Option<OwnedFd>,
    membarrier: bool,
}

fn map(
    remote: &mut Remote<'_>,
    checked: &Checked,
    image: &Image,
    plan: &Plan,
    loader: &Loader,
    old: Option<Journal>,
    channel: Channel<'_>,
) -> Result<Mapped, Refusal> {
    let is_new = old.is_none();
    let mut journal = match old {
        Some(journal) => journal,
        None => home::make(remote, &checked.memory, image)?,
    };
    // If the frame does not fit into the home, it stays on the thread's own stack, which has room for it.
    if remote.room() <= home::FRAMES_LENGTH {
        let moved = remote.move_to(journal.at + home::FRAMES);
        moved.map_err(|error| Refusal::Memory { pid: checked.process.pid, error })?;
    }
    let near_loader = (loader.changed != 0).then_some(Range { start: loader.changed, end: loader.changed + 1 });
    let modules = plan.entries.iter().map(|entry| entry.module).chain(near_loader);
    for module in modules {
        near(remote, checked, &mut journal, module)?;
    }
    map_table(remote, checked, &mut journal, plan)?;
    journal.write(&checked.memory).map_err(|error| Refusal::Memory { pid: checked.process.pid, error })?;
    close_forgotten(remote, checked);
    let (channel, region) = match channel {
        Channel::Created(geometry) => {
            share(remote, checked, &journal, geometry).map(|(channel, region)| (Some(channel), region))?
        }
        Channel::Given(shared) => (None, map_given(remote, checked, &journal, shared)?),
    };
    let registered = remote.call(libc::SYS_membarrier, [REGISTER_GLOBAL_EXPEDITED, 0, 0, 0, 0, 0]);
    Ok(Mapped { journal, is_new, region, channel, membarrier: registered.is_ok() })
}

/// Makes sure that there is memory for slots within reach of the module, and lets the target map some if there is none
/// yet.
fn near(remote: &mut Remote<'_>, checked: &Checked, journal: &mut Journal, module: Range) -> Result<(), Refusal> {
    if !journal.pads.iter().any(|pad| fits(pad, module)) {
        let at = map_near(remote, checked, PAD, libc::PROT_READ | libc::PROT_EXEC, module)?;
        journal.pads.push(Pad { at, length: PAD, used: 0 });
    }
    Ok(())
}

/// Maps and writes the unwind table for a program that has none of its own.
fn map_table(remote: &mut Remote<'_>, checked: &Checked, journal: &mut Journal, plan: &Plan) -> Result<(), Refusal> {
    let Some((table, module)) = &plan.table else { return Ok(()) };
    if journal.table != 0 && journal.table_length == table.length() {
        return Ok(());
    }
    let at = map_near(remote, checked, table.length().next_multiple_of(4096), libc::PROT_READ, *module)?;
    if let Some(bytes) = table.bytes(at) {
        checked.memory.write(at, &bytes).map_err(Refusal::memory(checked.process.pid))?;
        (journal.table, journal.table_length) = (at, table.length());
    }
    Ok(())
}

fn map_near(
    remote: &mut Remote<'_>,
    checked: &Checked,
    length: u64,
    protection: i32,
    module: Range,
) -> Result<u64, Refusal> {
    let maps = Maps::of(&checked.process.folder).map_err(|_| Refusal::Gone)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let mut last = None;
    for at in slots::places(&maps, length, module.start, module.end).into_iter().take(16) {
        match remote.map(at, length, protection, flags, -1) {
            Ok(got) if got == at => return Ok(at),
            // A kernel that does not know MAP_FIXED_NOREPLACE takes the address only as a hint.
            Ok(elsewhere) => drop(remote.unmap(elsewhere, length)),
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| std::io::ErrorKind::OutOfMemory.into());
    Err(Refusal::Call { what: "memory near its allocator", error })
}

fn fits(pad: &Pad, module: Range) -> bool {
    slots::reaches(pad.at, pad.length, module.start, module.end) && pad.used + SLOT * 64 <= pad.length
}

/// Closes descriptors that were left open by a recorder that died in the middle of `share`.
fn close_forgotten(remote: &mut Remote<'_>, checked: &Checked) {
    for fd in repair::forgotten(&checked.process) {
        let _ = remote.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    }
}

/// Lets the target map shared memory of ours. It keeps no descriptor.
fn map_given(
    remote: &mut Remote<'_>,
    checked: &Checked,
    journal: &Journal,
    shared: Shared<'_>,
) -> Result<u64, Refusal> {
    let descriptor = match shared.from {
        SharedFrom::Descriptor(descriptor) => descriptor,
        SharedFrom::Path(path) => {
            let place = journal.at + home::BOARD + 256;
            checked.memory.write(place, path).map_err(Refusal::memory(checked.process.pid))?;
            let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
            let opened = remote.call(libc::SYS_openat, [libc::AT_FDCWD as u64, place, flags, 0, 0, 0]);
            opened.map_err(Refusal::call("to open the shared memory"))? as RawFd
        }
    };
    let region = map_channel(remote, shared.geometry, descriptor);
    let _ = remote.call(libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0]);
    region
}

/// Lets the target map the hub. Returns its address.
fn map_hub(
    remote: &mut Remote<'_>,
    checked: &Checked,
    journal: &Journal,
    path: &str,
    inode: u64,
) -> Result<u64, Refusal> {
    let pid = checked.process.pid;
    let out_of_reach = |error| Refusal::OutOfReach { pid, error };
    let place = journal.at + home::BOARD + 256;
    checked.memory.write(place, format!("{path}\0").as_bytes()).map_err(Refusal::memory(pid))?;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
    let opened = remote.call(libc::SYS_openat, [libc::AT_FDCWD as u64, place, flags, 0, 0, 0]).map_err(out_of_reach)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let hub = remote.map(0, channel::PAGE as u64, protection, libc::MAP_SHARED, opened as RawFd);
    let _ = remote.call(libc::SYS_close, [opened, 0, 0, 0, 0, 0]);
    let hub = hub.map_err(out_of_reach)?;
    // Only keeps core dumps small, so a failure does not matter.
    let _ = remote.advise(hub, channel::PAGE as u64, libc::MADV_DONTDUMP);
    // In another pid namespace, the path may lead to another file.
    let maps = Maps::of(&checked.process.folder).map_err(|_| Refusal::Gone)?;
    if maps.at(hub).is_some_and(|mapping| mapping.inode == inode && mapping.name.starts_with(crate::CHANNEL)) {
        return Ok(hub);
    }
    let _ = remote.unmap(hub, channel::PAGE as u64);
    Err(out_of_reach(std::io::ErrorKind::NotFound.into()))
}

fn map_channel(remote: &mut Remote<'_>, geometry: Geometry, descriptor: RawFd) -> Result<u64, Refusal> {
    let length = geometry.fixed_len() as u64;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let region = remote.map(0, length, protection, libc::MAP_SHARED, descriptor);
    let region = region.map_err(Refusal::call("to map the shared memory"))?;
    // Only keeps core dumps small, so a failure does not matter.
    let _ = remote.advise(region, length, libc::MADV_DONTDUMP);
    Ok(region)
}

/// Lets the target create the shared memory.
fn share(
    remote: &mut Remote<'_>,
    checked: &Checked,
    journal: &Journal,
    geometry: Geometry,
) -> Result<(OwnedFd, u64), Refusal> {
    let pid = checked.process.pid;
    let name = journal.at + home::BOARD + 256;
    checked.memory.write(name, CHANNEL_NAME).map_err(Refusal::memory(pid))?;
    let flags = u64::from(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    let created = remote.call(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]);
    let fd = created.map_err(Refusal::call("shared memory"))?;
    let mut take = || {
        let path = checked.process.folder.join(format!("fd/{fd}"));
        let ours = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let ours = ours.map_err(|error| Refusal::Call { what: "its shared memory to us", error: error.into() })?;
        rustix::fs::ftruncate(&ours, geometry.total_len() as u64)
            .map_err(|error| Refusal::Call { what: "shared memory of that size", error: error.into() })?;
        let region = map_channel(remote, geometry, fd as RawFd)?;
        Ok((ours, region))
    };
    let taken = take();
    let _ = remote.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    taken
}

/// Runs `work` with a stopped thread of the target that can make system calls.
pub fn with_thread<T>(
    checked: &Checked,
    gadgets: Gadgets,
    work: impl FnOnce(&mut Remote<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let Checked { process, memory, .. } = checked;
    let (world, tid, room) = pick(checked)?;
    let mut remote = Remote::new(process, memory, gadgets, tid, room).map_err(Refusal::memory(process.pid))?;
    let result = work(&mut remote);
    drop(remote);
    drop(world);
    result
}

/// Stops a thread that can make system calls for the profiler, and returns the address where its signal frame can be
/// written. While the profiler waits for a thread in a call that cannot be interrupted, the other threads run.
fn pick(checked: &Checked) -> Result<(World, Tid, u64), Refusal> {
    let mut patience = Patience::new(&checked.process, world::PATIENCE);
    loop {
        match try_pick(checked, &patience) {
            Err(Refusal::Unstoppable { .. } | Refusal::Gone)
                if !patience.is_over() && !checked.process.has_exited() =>
            {
                patience.rest(BETWEEN_TRIES)?;
            }
            picked => return picked,
        }
    }
}

fn try_pick(checked: &Checked, patience: &Patience<'_>) -> Result<(World, Tid, u64), Refusal> {
    let process = &checked.process;
    let tids = process.threads().map_err(|_| Refusal::Gone)?;
    let mut tids: Vec<(Tid, bool)> = tids
        .into_iter()
        .filter_map(|tid| match process.thread_state(tid)? {
            'Z' | 'X' => None,
            state => Some((tid, state == 'D')),
        })
        .collect();
    // The first thread is preferred, because most is known of its stack. Threads in an uninterruptible sleep come last.
    tids.sort_by_key(|(tid, sleeps)| (*sleeps, *tid != process.pid));
    let mut last = Refusal::Gone;
    for (tid, _) in tids {
        match World::stop_one(process, tid, ONE_THREAD) {
            Ok(world) => match room_on_stack(tid, &checked.maps) {
                Some(room) => return Ok((world, tid, room)),
                None => last = Refusal::NoStack { tid },
            },
            // The thread may have ended, or be stuck. Another one can be used.
            Err(refusal @ (Refusal::Unstoppable { .. } | Refusal::Gone)) => last = refusal,
            Err(refusal) => return Err(refusal),
        }
        if patience.is_over() {
            break;
        }
    }
    Err(last)
}

/// Returns an address with room for a signal frame on a thread's own stack, or `None` if there is none. A stack that
/// the program made itself is not used, because there may be other data below the stack pointer.
fn room_on_stack(tid: Tid, maps: &Maps) -> Option<u64> {
    let registers = ptrace::registers(tid).ok()?;
    let mapping = maps.at(registers.rsp)?;
    let length = frame::room(ptrace::extended(tid).len());
    // Twice the length, because the frame may begin a little higher.
    let room = registers.rsp.checked_sub(RED_ZONE + 2 * length)? & !63;
    let is_thread = mapping.is_anonymous() && mapping.holds(registers.fs_base) && registers.fs_base > registers.rsp;
    let left = registers.rsp - mapping.start;
    let fits = mapping.name == "[stack]" && room > mapping.start || is_thread && left >= STACK_LEFT.max(4 * length);
    fits.then_some(room)
}
