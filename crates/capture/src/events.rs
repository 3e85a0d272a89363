//! What happens in a hook: find the thread's state, walk, stamp, write.
//!
//! An allocation is stamped after the real call, a free before it, so that of two threads that hand an address over
//! the free has the older stamp. The intent says "an event not older than this is on its way"; with it the collector
//! knows up to which stamp it has seen everything.
pub mod attached;
pub mod families;

use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE, COUNTING, Core, PAUSED};
use crate::entry::Range;
use crate::hooks::Hook;
use crate::local::{self, Level, Local, Slot, thread_pointer};
use crate::memo::{BROKEN, Memo, Place, UNSURE};
use crate::real;
use crate::sandbox::Calling;
use crate::sys;
use crate::walk::Walk;
use channel::{
    ALLOC_WORDS, FREE_WORDS, Intent, Kind, Loss, OnFull, PATH_HEAD_WORDS, Phase, Ring, SlotHeader, StackId, Stamp,
    encode_alloc, encode_free, encode_mark, encode_path,
};
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

pub mod custom;

/// A remembered walk that is patched together from more pieces than this is slow to compare. After so many comparisons of
/// such ones, one is walked afresh, to the root, and lies in one piece from then on.
const FEW_JUMPS: u32 = 1;
const PATIENCE: u32 = 64;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// About a millisecond.
const SPINS_A_MS: u32 = 40_000;
/// The longest that a thread spins for room where it must make no system call. The collector looks every millisecond then.
const MOST_SPIN_MS: u32 = 1000;

/// A hook whose guard is up: the thread's state, and which of its two rings it writes to.
///
/// What it hands out are single fields of the thread's state, never all of it: other threads may look at its identity, and
/// a signal handler that interrupts us uses the other level, proof and scratch, and no memo.
trait Writer {
    fn state(&self) -> *mut Local;
    fn is_nested(&self) -> bool;

    #[inline(always)]
    fn header(&self) -> &'static SlotHeader {
        // SAFETY: locals stay mapped (see `Local`). `Local::begin` set the field to the slot's header, which `Region::slot`
        // returned: a part of the shared mapping that stays mapped like the local.
        unsafe { &*(*self.state()).header }
    }

    #[inline(always)]
    fn level(&mut self) -> &mut Level {
        let local = self.state();
        // SAFETY: the calling thread's own, and only hooks of this level use it: the guard is up.
        unsafe { if self.is_nested() { &mut (*local).nested } else { &mut (*local).main } }
    }

    #[inline(always)]
    fn intent(&self) -> &'static AtomicU64 {
        let header = self.header();
        if self.is_nested() { &header.nested_intent } else { &header.intent }
    }

    #[inline(always)]
    fn begun(&self) -> &'static AtomicU64 {
        let header = self.header();
        if self.is_nested() { &header.nested_begun } else { &header.begun }
    }

    /// See `Local::inside`.
    #[inline(always)]
    fn set_inside(&mut self, allocator: Range) {
        // SAFETY: the calling thread's own; a handler that interrupts this store finds one range or the other.
        unsafe { (*self.state()).inside = allocator };
    }
}

/// Any hook.
struct Entered {
    local: *mut Local,
    nested: bool,
}

impl Writer for Entered {
    #[inline(always)]
    fn state(&self) -> *mut Local {
        self.local
    }

    #[inline(always)]
    fn is_nested(&self) -> bool {
        self.nested
    }
}

/// A hook of a known thread in which no other hook is at work: nearly all of them. The ring is known when this is
/// compiled, which makes a third of the code go away.
struct Quick {
    local: *mut Local,
}

impl Writer for Quick {
    #[inline(always)]
    fn state(&self) -> *mut Local {
        self.local
    }

    #[inline(always)]
    fn is_nested(&self) -> bool {
        false
    }
}

/// The guard goes up, if this thread is found at once and no hook of it is at work.
#[inline(always)]
fn enter_quickly(core: &Core, cfa: u64) -> Option<Quick> {
    let pointer = thread_pointer();
    let only = core.only.load(Ordering::Relaxed);
    // SAFETY: `Core::begin_thread` stores a local in `only`, and locals stay mapped (see `Local`). `identity` is atomic.
    let local = if !only.is_null() && unsafe { (*only).identity.is_mine(pointer) } {
        only
    } else {
        core.threads().find_near(pointer)?
    };
    // SAFETY: `is_mine` was true, so this is the calling thread's own local (see `Local`). A handler that interrupts us here
    // has left its hook, and taken the guard down, before we go on.
    let guard = unsafe { &mut (*local).main.guard };
    if *guard != 0 {
        return None;
    }
    *guard = cfa;
    compiler_fence(Ordering::SeqCst);
    Some(Quick { local })
}

/// The guard goes up. `None`: this event cannot be recorded (and is counted).
#[inline(always)]
fn enter(core: &Core, cfa: u64) -> Option<Entered> {
    let pointer = thread_pointer();
    let local = match core.threads().find(pointer) {
        Some(local) => local,
        None => begin_thread(core, pointer)?,
    };
    // SAFETY: `find` and `begin_thread` return the calling thread's own local (see `Local`). A handler that interrupts us
    // here has left its hook, and taken the guard down, before we go on.
    let guard = unsafe { &mut (*local).main.guard };
    if *guard != 0 {
        return enter_nested(core, local, cfa);
    }
    *guard = cfa;
    compiler_fence(Ordering::SeqCst);
    Some(Entered { local, nested: false })
}

/// A hook is at work below us, or it was left by a jump.
#[cold]
fn enter_nested(core: &Core, local: *mut Local, cfa: u64) -> Option<Entered> {
    let mut main = Entered { local, nested: false };
    let mut nested = Entered { local, nested: true };
    // SAFETY: `enter` passes the calling thread's own local (see `Local`). Copied, so that no reference stays.
    let inside = unsafe { (*local).inside };
    if cfa < main.level().guard && attached::is_inside(inside, cfa) {
        return None;
    }
    main.level().pace.hurry();
    // In a sandbox the kernel cannot be asked. A hook that is taken for gone though it is not would share its ring with this
    // one; a hook that is taken for alive though it is gone leaves this one the other ring.
    let on_signal_stack = !core.may_call() || sys::on_signal_stack();
    // A frame above the hook's, or in its very place: the hook's frame is gone. Not so on a signal stack, which may be
    // anywhere.
    if cfa >= main.level().guard && !on_signal_stack {
        // SAFETY: the hook that used the memo is gone.
        unsafe { (*local).memo.forget() };
        main.set_inside(Range::NONE);
        abandon(core, &mut main, true);
        abandon(core, &mut nested, false);
        nested.level().guard = 0;
        main.level().guard = cfa;
        return Some(main);
    }
    if nested.level().guard != 0 && (cfa < nested.level().guard || on_signal_stack) {
        core.lose(Loss::Nested);
        return None;
    }
    if nested.level().guard != 0 {
        abandon(core, &mut nested, true);
    }
    nested.level().guard = cfa;
    compiler_fence(Ordering::SeqCst);
    Some(nested)
}

/// The hook that was at work in this ring was left by a jump. `was_at_work`: it is known that there was one.
fn abandon(core: &Core, entered: &mut impl Writer, was_at_work: bool) {
    let (header, begun) = (entered.header(), entered.begun().load(Ordering::Relaxed));
    let head = if entered.is_nested() { &header.nested_head } else { &header.head }.load(Ordering::Relaxed);
    let level = entered.level();
    // The shared head is the truth: the hook had either committed or not.
    let is_committed = head != level.head;
    let unsettled = begun.wrapping_sub(level.settled);
    (level.head, level.settled) = (head, begun);
    if !is_committed {
        header.dropped.fetch_add(unsettled, Ordering::Relaxed);
        // A realloc that was left before it had begun to write is one lost event.
        core.lose_events(Loss::Abandoned, unsettled.max(was_at_work as u64));
    }
    entered.intent().store(0, Ordering::Release);
}

#[inline(always)]
fn leave(entered: &mut impl Writer) {
    compiler_fence(Ordering::SeqCst);
    entered.level().guard = 0;
}

/// Makes a slot for the calling thread, and shows what of its stack can be read, while it can still make system calls.
pub fn begin_early(core: &Core) {
    let pointer = thread_pointer();
    let Some(local) = core.threads().find(pointer).or_else(|| begin_thread(core, pointer)) else { return };
    let word = 0_u64;
    let in_use = &raw const word as u64;
    // SAFETY: the calling thread's own.
    let guard = unsafe { &mut (*local).main.guard };
    if *guard != 0 {
        // A handler that interrupted a hook: the hook uses the proof.
        return;
    }
    *guard = in_use;
    compiler_fence(Ordering::SeqCst);
    // libc puts the thread block at the upper end of the stack of every thread but the first.
    let is_first = sys::gettid() == sys::getpid();
    let top = if is_first { core.stack_top.load(Ordering::Relaxed) } else { pointer };
    // SAFETY: the calling thread's own; the guard is up, so a handler uses the other proof.
    unsafe { (*local).proof[0].prepare(in_use, top) };
    leave(&mut Quick { local });
}

/// A thread's first event.
#[cold]
#[inline(never)]
fn begin_thread(core: &Core, pointer: u64) -> Option<*mut Local> {
    let _calls = Calling::begin();
    if !core.may_call() {
        core.lose(Loss::NoSlot);
        return None;
    }
    core.check_clock();
    let tid = sys::gettid();
    let offset = local::find_tid(pointer, tid, core.tid_offset.load(Ordering::Relaxed));
    if offset != 0 {
        core.tid_offset.store(offset, Ordering::Relaxed);
    }
    let inherited = inherit(core, pointer, tid);
    let is_new = inherited.is_none();
    let Some((local, slot)) = inherited.or_else(|| take_slot(core, tid)) else {
        core.lose(Loss::NoSlot);
        return None;
    };
    // SAFETY: `inherit` or `take_slot` has just made the calling thread the owner of `slot` by a compare-and-swap of its
    // owner word, and returned that slot's local.
    unsafe { Local::begin(local, core, slot, pointer, offset) };
    if is_new && !core.threads().enter(pointer, local) {
        slot.header.bury(slot.owner);
        core.lose(Loss::NoSlot);
        return None;
    }
    core.begin_thread(local);
    announce(core, local, tid);
    Some(local)
}

/// Takes over the slot of a dead thread that had the same thread pointer.
fn inherit(core: &Core, pointer: u64, tid: u32) -> Option<(*mut Local, Slot)> {
    let (local, dead) = core.threads().last(pointer)?;
    // SAFETY: locals and their headers stay mapped.
    let header = unsafe { &*(*local).header };
    let owner = header.inherit(dead, tid)?;
    // SAFETY: the slot's number does not change with its owner.
    let index = unsafe { (*local).slot };
    let area = core.area(index)?;
    Some((local, Slot { index, owner, header, area }))
}

/// A free slot, mapped.
fn take_slot(core: &Core, tid: u32) -> Option<(*mut Local, Slot)> {
    let region = core.region();
    let image = core.header().image.load(Ordering::Relaxed);
    let taken = region.take_slot(tid, image);
    let (index, owner) = taken.or_else(|| {
        core.map_far_slots();
        region.take_slot(tid, image)
    })?;
    let header = region.slot(index)?;
    let Some(area) = core.area(index) else {
        header.bury(owner);
        return None;
    };
    Some((core.local(index, area), Slot { index, owner, header, area }))
}

/// The first records of a thread: who it is, and, from the first thread, which program image this is.
fn announce(core: &Core, local: *mut Local, tid: u32) {
    let mut entered = Entered { local, nested: false };
    entered.level().guard = u64::MAX;
    begin_events(&entered, 1);
    write(core, &mut entered, |stamp| encode_mark(Kind::ThreadStart, stamp, tid));
    if !core.announced.swap(true, Ordering::AcqRel) {
        let image = core.header().image.load(Ordering::Relaxed);
        begin_events(&entered, 1);
        write(core, &mut entered, |stamp| encode_mark(Kind::Image, stamp, image));
    }
    leave(&mut entered);
}

/// The ring of an entered hook.
#[inline(always)]
fn ring(entered: &mut impl Writer) -> Ring<'static> {
    let (nested, header) = (entered.is_nested(), entered.header());
    let level = entered.level();
    // SAFETY: `Level::new` took both from `Region::ring_words`, so they are a ring's words in this slot's area. The area is
    // mapped as long as its local is: locals stay mapped (see `Local`). The words are atomics.
    let words = unsafe { core::slice::from_raw_parts(level.words, level.words_len) };
    if nested {
        Ring::new(words, &header.nested_head, &header.nested_tail)
    } else {
        Ring::new(words, &header.head, &header.tail)
    }
}

/// The writer's side of the audit: so many events are about to be written, or counted as dropped. See `channel::SlotHeader`.
#[inline(always)]
fn begin_events(entered: &impl Writer, count: u64) {
    let begun = entered.begun();
    begun.store(begun.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// Events that were begun are not written. `why`: `None` when recording is over.
#[cold]
fn drop_events(core: &Core, entered: &mut impl Writer, count: u64, why: Option<Loss>) {
    if core.gate() & ACTIVE == 0 && why.is_none() {
        // A forked child, or the end of recording: its events are no longer counted.
        return;
    }
    entered.header().dropped.fetch_add(count, Ordering::Relaxed);
    entered.level().settled += count;
    if let Some(loss) = why {
        core.lose_events(loss, count);
    }
}

/// Publishes the intent, takes the stamp, writes the words that `make` gives for it, commits. One event was begun.
#[inline(always)]
fn write<const WORDS: usize>(core: &Core, entered: &mut impl Writer, make: impl FnOnce(Stamp) -> [u64; WORDS]) {
    let ring = ring(entered);
    if let Err(why) = has_room(core, entered, &ring, WORDS) {
        drop_events(core, entered, 1, why);
        return;
    }
    publish_intent(entered);
    let stamp = stamp(core, entered);
    let at = entered.level().head;
    commit(entered, &ring, at, make(stamp), 1);
}

/// As `write`, where nothing is in the way; false: nothing was written. It calls nobody, so that a hook that calls nobody
/// else saves no registers.
#[inline(always)]
fn write_quickly<const WORDS: usize>(
    core: &Core,
    entered: &mut Quick,
    make: impl FnOnce(Stamp) -> [u64; WORDS],
) -> bool {
    let level = entered.level();
    if level.head + WORDS as u64 > level.limit {
        return false;
    }
    publish_intent(entered);
    let level = entered.level();
    let is_clock_due = !level.pace.step(core.header());
    // Where stamps are not plain, nobody goes without the clock.
    if is_clock_due && !core.has_plain_stamps() {
        clear_intent(entered);
        return false;
    }
    let stamp = next_stamp(core, level, is_clock_due.then(|| core.plain_stamp()));
    let at = level.head;
    let ring = ring(entered);
    commit(entered, &ring, at, make(stamp), 1);
    true
}

/// The stamp of the event that was announced.
#[inline(always)]
fn stamp(core: &Core, entered: &mut impl Writer) -> Stamp {
    let level = entered.level();
    let last = level.last_stamp;
    let is_clock_due = !level.pace.step(core.header());
    next_stamp(core, level, is_clock_due.then(|| core.stamp_after(last)))
}

#[inline(always)]
fn next_stamp(core: &Core, level: &mut Level, clock: Option<Stamp>) -> Stamp {
    if let Some(now) = clock {
        level.pace.look(core, now);
    }
    level.last_stamp = clock.unwrap_or(level.last_stamp + 1);
    level.last_stamp
}

#[inline(always)]
fn publish_intent(entered: &mut impl Writer) {
    let since = entered.level().last_stamp;
    entered.intent().store(Intent::writing(since).0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

#[inline(always)]
fn clear_intent(entered: &mut impl Writer) {
    let level = entered.level();
    let next = if level.pace.is_due() { Intent::NONE } else { Intent::resting(level.last_stamp + 1) };
    entered.intent().store(next.0, Ordering::Release);
}

/// Stores the words behind `at` and makes everything up to them visible. Not in a child that was forked while the hook
/// was at work: the ring is its parent's. The shared head is the truth: a hook that is left by a jump at any point here
/// has either committed or not, and `abandon` takes the head from there. `count`: how many events they are.
#[inline(always)]
fn commit<const WORDS: usize>(entered: &mut impl Writer, ring: &Ring<'_>, at: u64, words: [u64; WORDS], count: u64) {
    if CORE.gate() & ACTIVE == 0 {
        return;
    }
    let mut head = at;
    for word in words {
        ring.put(head, word);
        head += 1;
    }
    ring.commit(head);
    compiler_fence(Ordering::SeqCst);
    let level = entered.level();
    level.head = head;
    level.settled += count;
    clear_intent(entered);
}

/// Why there is no room for an event: a loss, or `None` when recording is over.
type NoRoom = Option<Loss>;

#[inline(always)]
fn has_room(core: &Core, entered: &mut impl Writer, ring: &Ring<'_>, words: usize) -> Result<(), NoRoom> {
    let level = entered.level();
    if level.head + words as u64 <= level.limit {
        return Ok(());
    }
    let mut any = Entered { local: entered.state(), nested: entered.is_nested() };
    make_room(core, &mut any, ring, words as u64)
}

/// Visited at least twice per turn of the ring: looks at the reader, rings its bell, waits if need be.
#[cold]
#[inline(never)]
fn make_room(core: &Core, entered: &mut Entered, ring: &Ring<'_>, words: u64) -> Result<(), NoRoom> {
    let header = core.header();
    if header.phase.load(Ordering::Relaxed) == Phase::Stopped as u32 {
        core.shut();
        return Err(None);
    }
    let capacity = ring.capacity() as u64;
    let mut room = ring.room();
    let level = entered.level();
    // What the collector has not taken yet begins behind `refill_at`.
    if level.stalled_ms != 0 && level.head.wrapping_sub(capacity - room) >= level.refill_at {
        level.stalled_ms = 0;
    }
    if is_half_full(room, capacity) && header.collector_asleep.load(Ordering::Relaxed) != 0 && core.may_call() {
        header.doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&header.doorbell);
    }
    if room < words {
        room = wait_for_room(core, entered, ring, words)?;
    }
    let level = entered.level();
    level.limit = level.head + words_until_visit(room, capacity);
    Ok(())
}

/// A reader that sleeps is woken from here on. Exactly half counts: the next visit is at the ring's end.
const fn is_half_full(room: u64, capacity: u64) -> bool {
    room <= capacity / 2
}

/// How many words may be written before the reader is looked at again.
const fn words_until_visit(room: u64, capacity: u64) -> u64 {
    if is_half_full(room, capacity) { room } else { room - capacity / 2 }
}

/// Sleeps until the collector has made room, and returns the room. A collector that works is waited for as long as it takes.
/// One that does nothing (stopped, frozen, swapped out) is waited for until the thread's budget is spent; after that, events are
/// dropped without a wait until the collector has emptied the ring.
#[cold]
fn wait_for_room(core: &Core, entered: &mut Entered, ring: &Ring<'_>, words: u64) -> Result<u64, NoRoom> {
    const SLICE_MS: u64 = 100;
    let header = core.header();
    if header.on_full == OnFull::Drop as u32 {
        return Err(Some(Loss::RingFull));
    }
    if !core.may_call() {
        return spin_for_room(core, entered.level(), ring, words);
    }
    let waiting = &entered.header().waiting;
    let level = entered.level();
    loop {
        waiting.store(1, Ordering::SeqCst);
        let room = ring.room();
        if room >= words {
            waiting.store(0, Ordering::Relaxed);
            return Ok(room);
        }
        if header.collector_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0 {
            waiting.store(0, Ordering::Relaxed);
            core.shut();
            return Err(Some(Loss::NoCollector));
        }
        let budget = header.max_stall_ms.saturating_sub(level.stalled_ms) as u64;
        if budget == 0 {
            waiting.store(0, Ordering::Relaxed);
            return Err(Some(Loss::RingFull));
        }
        // A thread that forbids all of us system calls waits until we are gone from here.
        if !core.may_call() {
            waiting.store(0, Ordering::Relaxed);
            return spin_for_room(core, level, ring, words);
        }
        header.doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&header.doorbell);
        let (progress, since) = (header.progress.load(Ordering::Relaxed), sys::now_ms());
        sys::futex_wait(waiting, 1, SLICE_MS.min(budget));
        let is_stalled = header.progress.load(Ordering::Relaxed) == progress && ring.room() < words;
        if is_stalled {
            let waited = sys::now_ms().saturating_sub(since).max(1);
            level.stalled_ms = level.stalled_ms.saturating_add(waited as u32);
            level.refill_at = level.head;
        }
    }
}

/// Spins for room where the thread must not sleep. Once that was in vain, later events do not spin until there is room again.
#[cold]
fn spin_for_room(core: &Core, level: &mut Level, ring: &Ring<'_>, words: u64) -> Result<u64, NoRoom> {
    let header = core.header();
    let spins = header.max_stall_ms.min(MOST_SPIN_MS) * SPINS_A_MS;
    let mut patience = if level.dropping { 0 } else { spins };
    let is_alone = || header.collector_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0;
    while ring.room() < words && patience > 0 && !is_alone() {
        core::hint::spin_loop();
        patience -= 1;
    }
    let room = ring.room();
    level.dropping = room < words;
    if level.dropping { Err(Some(Loss::RingFull)) } else { Ok(room) }
}

/// What a memo says of a walk that is to be made anew, though it is known.
const ANEW: u64 = u64::MAX;

/// The stack's id from the memo, if the walk that was last found or remembered in its place still holds. Else what
/// `remembered_elsewhere` wants to know.
///
/// # Safety
/// `local` is the calling thread's own, and the guard of its main level is up: no other hook uses its memo. `context` is that
/// of the hook for which the guard is up.
#[inline(always)]
unsafe fn remembered(core: &Core, local: *mut Local, context: &Context) -> Result<StackId, u64> {
    // SAFETY: these are the main hook's fields (see `Local`), and the caller promises that this hook is the main one.
    let (memo, generation) = unsafe { (&mut (*local).memo, &mut (*local).generation) };
    if *generation != core.modules().generation() {
        memo.forget();
        *generation = core.modules().generation();
    }
    if memo.has_left_guesses(context.cfa()) {
        return Err(ANEW);
    }
    // SAFETY: `context` lies in the frame of the hook that is at work, so its caller is a frame of this thread that has not
    // returned. `has_left_guesses` was false, and walks of another generation were forgotten just now.
    match unsafe { memo.find_youngest(place(context)) } {
        Ok((number, jumps)) if jumps <= FEW_JUMPS => Ok(number),
        // SAFETY: one of the main hook's fields (see `Local`); the caller promises that this hook is the main one.
        Ok((number, _)) => patched_together(unsafe { &mut (*local).patched_together }, number),
        Err(differs) => Err(differs),
    }
}

#[inline(always)]
fn place(context: &Context) -> Place {
    Place { pc: context.ret, cfa: context.cfa(), rbp: context.rbp }
}

/// After `remembered` has failed with `differs`: among the others of the set. Else what the walk wants to know.
///
/// # Safety
/// What `remembered` asks for. `remembered` was called by the same hook, and failed with `differs`.
#[inline(never)]
unsafe fn remembered_elsewhere(local: *mut Local, context: &Context, differs: u64) -> Result<StackId, u64> {
    // SAFETY: one of the main hook's fields (see `Local`); the caller promises that this hook is the main one.
    let memo = unsafe { &mut (*local).memo };
    // SAFETY: `context` lies in the frame of the hook that is at work, so its caller is a frame of this thread that has not
    // returned. `remembered`, which failed before this, has looked at the guesses (if not: `ANEW`) and the generation.
    let found = unsafe {
        match differs {
            ANEW => return Err(ANEW),
            BROKEN => Err(BROKEN),
            UNSURE => memo.find(place(context), usize::MAX),
            differs => memo.find_older(place(context), differs),
        }
    };
    match found {
        Ok(tail) if tail.jumps <= FEW_JUMPS => Ok(tail.number),
        // SAFETY: one of the main hook's fields (see `Local`); the caller promises that this hook is the main one.
        Ok(tail) => patched_together(unsafe { &mut (*local).patched_together }, tail.number),
        Err(BROKEN) => Err(forget_broken(memo)),
        Err(differs) => Err(differs),
    }
}

/// The remembered stack of an entered hook. `Err`: it must be walked, and the walk wants to know this.
///
/// Every walk of the main level comes after this or after `remembered`, which forgets what was remembered of modules that
/// are gone.
#[inline(always)]
fn known_stack(core: &Core, entered: &Entered, context: &Context) -> Result<StackId, u64> {
    if entered.nested {
        return Err(0);
    }
    let local = entered.local;
    // SAFETY: an entered hook has the calling thread's own local, and (`nested` is false) the guard of its main level is up.
    unsafe { remembered(core, local, context).or_else(|differs| remembered_elsewhere(local, context, differs)) }
}

/// What is remembered makes no sense: it is forgotten, and the walk made anew.
#[cold]
fn forget_broken(memo: &mut Memo) -> u64 {
    memo.forget();
    CORE.lose(Loss::MemoBroken);
    ANEW
}

/// A walk that holds, in many pieces. Once in a while it is made anew. `count`: how many such walks there were since.
#[inline(always)]
fn patched_together(count: &mut u32, number: StackId) -> Result<StackId, u64> {
    *count += 1;
    if *count < PATIENCE {
        return Ok(number);
    }
    *count = 0;
    Err(ANEW)
}

/// Walks the stack, writes the path of its new frames and the words that `make` gives for the stamp and the stack, in
/// one commit. `count` events were begun. False when there was no room.
#[inline(never)]
fn walk_and_write<const WORDS: usize>(
    core: &Core,
    entered: &mut Entered,
    context: &Context,
    count: u64,
    make: impl FnOnce(Stamp, StackId) -> [u64; WORDS],
) -> bool {
    let ring = ring(entered);
    let local = entered.local;
    let may_ask = core.may_call();
    // SAFETY: the calling thread's own. Hooks of the main level use the first proof and scratch and the memo, nested ones the
    // second of each and no memo; the guard of this level is up. `Writer` hands out other fields.
    let mut walk = unsafe {
        let [scratch, inner_scratch] = &mut (*local).scratch;
        let [proof, inner_proof] = &mut (*local).proof;
        if entered.nested {
            Walk { core, scratch: inner_scratch, proof: inner_proof, memo: None, may_ask }
        } else {
            Walk { core, scratch, proof, memo: Some(&mut (*local).memo), may_ask }
        }
    };
    let found = walk.run(context);
    let frames = found.path_len();
    if let Err(why) = has_room(core, entered, &ring, PATH_HEAD_WORDS + frames + WORDS) {
        drop_events(core, entered, count, why);
        return false;
    }
    let numbers = found.numbers();
    let first = walk.memo.as_deref_mut().map_or(1, |memo| memo.number(numbers));
    let mut at = entered.level().head;
    for word in encode_path(first, frames, found.tail) {
        ring.put(at, word);
        at += 1;
    }
    for i in 0..frames {
        ring.put(at, walk.frame_key(&found, i).0);
        at += 1;
    }
    publish_intent(entered);
    let stamp = stamp(core, entered);
    commit(entered, &ring, at, make(stamp, first), count);
    walk.remember(&found, first);
    true
}

/// Before an allocation: fetches what the memo will compare into the cache while the real function works.
#[inline(always)]
pub fn allocating(context: &Context) {
    let local = CORE.only.load(Ordering::Relaxed);
    if !local.is_null() {
        // SAFETY: locals stay mapped for ever; only read, and only to fetch.
        unsafe { (*local).memo.fetch(context.ret, context.cfa()) };
    }
}

/// After an allocation that returned `address`.
#[inline(always)]
pub fn allocated(context: &mut Context, address: u64, size: u64) -> Next {
    if address == 0 {
        return Next::DONE;
    }
    let core = &CORE;
    if core.gate() & (ACTIVE | PAUSED | COUNTING) == ACTIVE
        && let Some(mut entered) = enter_quickly(core, context.cfa())
    {
        begin_events(&entered, 1);
        // SAFETY: `enter_quickly` returned the calling thread's own local, and put the guard of its main level up for us.
        let known = unsafe { remembered(core, entered.local, context) };
        if let Ok(stack) = known
            && write_quickly(core, &mut entered, |stamp| encode_alloc(stamp, address, size, stack))
        {
            leave(&mut entered);
            return Next::DONE;
        }
        context.arguments = [address, size, entered.local as u64];
        return match known {
            Ok(stack) => {
                context.differs = stack as u64;
                Next::then(allocated_without_room)
            }
            Err(differs) => {
                context.differs = differs;
                Next::then(allocated_elsewhere)
            }
        };
    }
    context.arguments = [address, size, 0];
    context.differs = 0;
    Next::then(allocated_slowly)
}

/// The youngest of its set is another stack. The guard is up. Arguments: the address, the size, the thread's state; where
/// the youngest differs.
extern "C" fn allocated_elsewhere(context: &mut Context) -> Next {
    let core = &CORE;
    let [address, size, local] = context.arguments;
    let mut entered = Quick { local: local as *mut Local };
    // SAFETY: `local` is what `enter_quickly` returned in `allocated`: the calling thread's own, with the guard of its main
    // level up for this hook until `leave`. There, `remembered` has failed with `differs`.
    match unsafe { remembered_elsewhere(entered.local, context, context.differs) } {
        Ok(stack) => {
            write(core, &mut entered, |stamp| encode_alloc(stamp, address, size, stack));
            leave(&mut entered);
            Next::DONE
        }
        Err(differs) => {
            context.differs = differs;
            Next::then(allocated_slowly)
        }
    }
}

/// As `allocated_elsewhere`, but the stack is known.
#[cold]
extern "C" fn allocated_without_room(context: &mut Context) -> Next {
    let [address, size, local] = context.arguments;
    let mut entered = Quick { local: local as *mut Local };
    let stack = context.differs as StackId;
    write(&CORE, &mut entered, |stamp| encode_alloc(stamp, address, size, stack));
    leave(&mut entered);
    Next::DONE
}

/// A thread's first event, a hook inside a hook, a stack that is not remembered, a test that counts.
/// Arguments: the address, the size, and the thread's state if the guard is up and the event was begun.
#[cold]
extern "C" fn allocated_slowly(context: &mut Context) -> Next {
    let core = &CORE;
    let [address, size, local] = context.arguments;
    let mut entered = if local != 0 {
        Entered { local: local as *mut Local, nested: false }
    } else {
        if core.gate_or_join() & (ACTIVE | PAUSED) != ACTIVE {
            return Next::DONE;
        }
        let Some(entered) = enter(core, context.cfa()) else { return Next::DONE };
        begin_events(&entered, 1);
        entered
    };
    let known = if local != 0 { Err(context.differs) } else { known_stack(core, &entered, context) };
    match known {
        Ok(stack) => write(core, &mut entered, |stamp| encode_alloc(stamp, address, size, stack)),
        Err(differs) => {
            context.differs = differs;
            walk_and_write(core, &mut entered, context, 1, |stamp, stack| encode_alloc(stamp, address, size, stack));
        }
    }
    leave(&mut entered);
    if core.gate() & COUNTING != 0 {
        core.counted();
    }
    Next::DONE
}

/// Before a free of `address`. `cfa`: the hook's caller's stack pointer.
#[inline(always)]
pub fn freeing(address: u64, cfa: u64) {
    if address == 0 {
        return;
    }
    let core = &CORE;
    if core.gate() & ACTIVE != 0
        && let Some(mut entered) = enter_quickly(core, cfa)
    {
        begin_events(&entered, 1);
        if write_quickly(core, &mut entered, |stamp| encode_free(Kind::Free, stamp, address)) {
            leave(&mut entered);
            return;
        }
        freed_without_room(address, entered.local);
        return;
    }
    freeing_slowly(address, cfa);
}

/// The guard is up and the event was begun.
#[cold]
#[inline(never)]
fn freed_without_room(address: u64, local: *mut Local) {
    let mut entered = Quick { local };
    write(&CORE, &mut entered, |stamp| encode_free(Kind::Free, stamp, address));
    leave(&mut entered);
}

#[cold]
#[inline(never)]
fn freeing_slowly(address: u64, cfa: u64) {
    let core = &CORE;
    if core.gate_or_join() & ACTIVE == 0 || families::free_inside(address, cfa) {
        return;
    }
    let Some(mut entered) = enter(core, cfa) else { return };
    begin_events(&entered, 1);
    write(core, &mut entered, |stamp| encode_free(Kind::Free, stamp, address));
    leave(&mut entered);
}

/// The whole of a realloc, the real call included: freed before, allocated after, and nothing if it failed.
#[inline(always)]
pub fn reallocate(hook: Hook, context: &mut Context, size: u64) -> Next {
    let [a, b, c] = context.arguments;
    let real = real::function(hook);
    let call = || real(a as usize, b as usize, c as usize) as u64;
    let core = &CORE;
    if core.gate_or_join() & ACTIVE == 0 {
        context.result = call();
        return Next::DONE;
    }
    if a == 0 {
        context.result = call();
        context.arguments = [context.result, size, 0];
        return Next::then(new_block);
    }
    let Some(mut entered) = enter(core, context.cfa()) else {
        context.result = call();
        return Next::DONE;
    };
    // The guard stays up, so a handler that interrupts the real function records in the other ring. The intent stays
    // up: whoever gets the old address must not be seen before this free.
    publish_intent(&mut entered);
    let freed_at = stamp(core, &mut entered);
    context.result = call();
    context.arguments = [a, size, freed_at];
    Next::then(reallocated)
}

/// realloc(NULL, size). Arguments: the address and the size.
extern "C" fn new_block(context: &mut Context) -> Next {
    let [address, size, _] = context.arguments;
    allocated(context, address, size)
}

/// The hook of this very frame, entered before.
#[inline(always)]
fn resume(core: &Core, cfa: u64) -> Option<Entered> {
    let local = core.threads().find(thread_pointer())?;
    // SAFETY: `find` returns the calling thread's own local (see `Local`).
    let nested = unsafe { (*local).main.guard } != cfa;
    Some(Entered { local, nested })
}

/// After the real realloc of a live block; the guard and the intent are up. Arguments: the old address, the new size,
/// the stamp of the free.
extern "C" fn reallocated(context: &mut Context) -> Next {
    let core = &CORE;
    if context.result == 0 {
        return Next::then(shrunk);
    }
    if core.gate() & PAUSED != 0 {
        return Next::then(custom::moved_while_paused);
    }
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    match known_stack(core, &entered, context) {
        Ok(stack) => moved(core, &mut entered, context, stack),
        Err(differs) => {
            context.differs = differs;
            Next::then(moved_slowly)
        }
    }
}

/// Realloc to zero bytes frees and returns null; any other null means that nothing happened.
#[cold]
extern "C" fn shrunk(context: &mut Context) -> Next {
    let core = &CORE;
    let [old, size, freed_at] = context.arguments;
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    if size == 0 {
        write_stamped_free(&mut entered, Kind::Free, old, freed_at);
    }
    clear_intent(&mut entered);
    leave(&mut entered);
    Next::DONE
}

/// Writes a free that was stamped before.
fn write_stamped_free(entered: &mut Entered, kind: Kind, address: u64, freed_at: Stamp) {
    begin_events(entered, 1);
    let ring = ring(entered);
    match has_room(&CORE, entered, &ring, FREE_WORDS) {
        Ok(()) => {
            let at = entered.level().head;
            commit(entered, &ring, at, encode_free(kind, freed_at, address), 1);
        }
        Err(why) => drop_events(&CORE, entered, 1, why),
    }
}

#[cold]
extern "C" fn moved_slowly(context: &mut Context) -> Next {
    let core = &CORE;
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    let (arguments, new) = (context.arguments, context.result);
    begin_events(&entered, 2);
    if !walk_and_write(core, &mut entered, context, 2, |stamp, stack| encode_move(arguments, new, stamp, stack)) {
        clear_intent(&mut entered);
    }
    leave(&mut entered);
    if core.gate() & COUNTING != 0 {
        core.counted();
    }
    Next::DONE
}

#[inline(always)]
fn moved(core: &Core, entered: &mut Entered, context: &Context, stack: StackId) -> Next {
    begin_events(entered, 2);
    let ring = ring(entered);
    match has_room(core, entered, &ring, MOVE_WORDS) {
        Ok(()) => {
            let stamp = stamp(core, entered);
            let at = entered.level().head;
            commit(entered, &ring, at, encode_move(context.arguments, context.result, stamp, stack), 2);
        }
        Err(why) => {
            drop_events(core, entered, 2, why);
            clear_intent(entered);
        }
    }
    leave(entered);
    if core.gate() & COUNTING != 0 {
        core.counted();
    }
    Next::DONE
}

const MOVE_WORDS: usize = FREE_WORDS + ALLOC_WORDS;

/// A realloc: freed then, allocated now. Arguments as for `reallocated`.
#[inline(always)]
fn encode_move(arguments: [u64; 3], new: u64, stamp: Stamp, stack: StackId) -> [u64; MOVE_WORDS] {
    let [old, size, freed_at] = arguments;
    let [f0, f1] = encode_free(Kind::FreeByRealloc, freed_at, old);
    let [a0, a1, a2] = encode_alloc(stamp, new, size, stack);
    [f0, f1, a0, a1, a2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frees are of two words: from an even place they meet the middle of the ring exactly.
    #[test]
    fn no_way_through_the_ring_passes_a_sleeping_reader_by() {
        for step in 1..=5 {
            for capacity in [64u64, 1 << 12] {
                let (mut room, mut limit, mut rings) = (capacity, 0, 0);
                while room >= step {
                    if limit < step {
                        rings += is_half_full(room, capacity) as u32;
                        limit = words_until_visit(room, capacity);
                    }
                    if limit < step {
                        break;
                    }
                    limit -= step;
                    room -= step;
                    assert!(rings > 0 || room + step > capacity / 2, "{step} of {capacity}: half is full, no bell");
                }
            }
        }
    }
}
