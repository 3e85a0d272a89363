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
use crate::local::{self, Level, Local, thread_pointer};
use crate::memo::{Place, UNSURE};
use crate::real;
use crate::sys;
use crate::walk::Walk;
use channel::{
    ALLOC_WORDS, FREE_WORDS, Intent, Kind, Loss, OnFull, PATH_HEAD_WORDS, Phase, Ring, StackId, Stamp, encode_alloc,
    encode_free, encode_mark, encode_path,
};
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

pub mod custom;

/// A remembered walk that is patched together from more pieces than this is slow to compare. After so many comparisons of
/// such ones, one is walked afresh, to the root, and lies in one piece from then on.
const FEW_JUMPS: u32 = 1;
const PATIENCE: u32 = 64;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// About 50 us.
const SPINS: u32 = 2000;

/// A hook whose guard is up: the thread's state, and which of its two rings it writes to.
trait Writer {
    fn state(&self) -> *mut Local;
    fn is_nested(&self) -> bool;

    #[inline(always)]
    fn local(&mut self) -> &mut Local {
        // SAFETY: the calling thread's own; a handler that interrupts us uses the other level and no memo.
        unsafe { &mut *self.state() }
    }

    #[inline(always)]
    fn level(&mut self) -> &mut Level {
        let nested = self.is_nested();
        let local = self.local();
        if nested { &mut local.nested } else { &mut local.main }
    }

    #[inline(always)]
    fn intent(&mut self) -> &'static AtomicU64 {
        let nested = self.is_nested();
        let header = self.local().header();
        if nested { &header.nested_intent } else { &header.intent }
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
    // SAFETY: locals stay mapped for ever.
    let local = if !only.is_null() && unsafe { (*only).is_mine(pointer) } {
        only
    } else {
        core.threads().find_near(pointer)?
    };
    // SAFETY: the calling thread's own.
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
    // SAFETY: the calling thread's own.
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
    // SAFETY: the calling thread's own.
    let local_ref = unsafe { &mut *local };
    if cfa < local_ref.main.guard && attached::is_inside(local_ref.inside, cfa) {
        return None;
    }
    local_ref.main.pace.hurry();
    let on_signal_stack = core.may_call() && sys::on_signal_stack();
    // A frame above the hook's, or in its very place: the hook's frame is gone. Not so on a signal stack, which may be
    // anywhere.
    if cfa >= local_ref.main.guard && !on_signal_stack {
        core.lose(Loss::Abandoned);
        let header = local_ref.header();
        local_ref.memo.forget();
        local_ref.inside = Range::NONE;
        local_ref.main.head = header.head.load(Ordering::Relaxed);
        header.intent.store(0, Ordering::Release);
        local_ref.nested.head = header.nested_head.load(Ordering::Relaxed);
        local_ref.nested.guard = 0;
        header.nested_intent.store(0, Ordering::Release);
        local_ref.main.guard = cfa;
        return Some(Entered { local, nested: false });
    }
    if local_ref.nested.guard != 0 && (cfa < local_ref.nested.guard || on_signal_stack) {
        core.lose(Loss::Nested);
        return None;
    }
    if local_ref.nested.guard != 0 {
        core.lose(Loss::Abandoned);
        local_ref.nested.head = local_ref.header().nested_head.load(Ordering::Relaxed);
    }
    local_ref.nested.guard = cfa;
    compiler_fence(Ordering::SeqCst);
    Some(Entered { local, nested: true })
}

#[inline(always)]
fn leave(entered: &mut impl Writer) {
    compiler_fence(Ordering::SeqCst);
    entered.level().guard = 0;
}

/// A thread's first event.
#[cold]
#[inline(never)]
fn begin_thread(core: &Core, pointer: u64) -> Option<*mut Local> {
    if !core.may_call() {
        core.lose(Loss::NoSlot);
        return None;
    }
    let tid = sys::gettid();
    let offset = local::find_tid(pointer, tid, core.tid_offset.load(Ordering::Relaxed));
    if offset != 0 {
        core.tid_offset.store(offset, Ordering::Relaxed);
    }
    let tid_at = if offset == 0 { 0 } else { pointer + offset as u64 };
    let inherited = core.threads().last(pointer).filter(|&last| inherit(last, pointer, tid));
    let local = match inherited {
        Some(local) => local,
        None => match claim(core, tid) {
            Some(local) => local,
            None => {
                core.lose(Loss::NoSlot);
                return None;
            }
        },
    };
    // SAFETY: claimed: ours alone.
    unsafe { (*local).begin(core, pointer, tid, tid_at) };
    if inherited.is_none() && !core.threads().enter(pointer, local) {
        core.lose(Loss::NoSlot);
        return None;
    }
    core.begin_thread(local);
    announce(core, local, tid);
    Some(local)
}

/// Takes over the slot of a dead thread that had the same thread pointer.
fn inherit(last: *mut Local, pointer: u64, tid: u32) -> bool {
    // SAFETY: locals stay mapped; if it is not ours, the header's owner word says so.
    let last = unsafe { &*last };
    last.thread_pointer == pointer && last.header().inherit(last.tid, tid)
}

/// A free slot, mapped.
fn claim(core: &Core, tid: u32) -> Option<*mut Local> {
    let region = core.region();
    for index in 0..region.geometry().slots {
        let header = region.slot(index)?;
        if !header.claim(tid) {
            continue;
        }
        let Some(area) = core.area(index) else {
            header.bury(tid);
            return None;
        };
        header.image.store(core.header().image.load(Ordering::Relaxed), Ordering::Relaxed);
        core.header().slot_count.fetch_max(index + 1, Ordering::AcqRel);
        let local = core.local(area);
        // SAFETY: mapped, and the slot is ours.
        unsafe {
            (*local).header = header;
            (*local).area = area;
            (*local).slot = index;
        }
        return Some(local);
    }
    None
}

/// The first records of a thread: who it is, and, from the first thread, which program image this is.
fn announce(core: &Core, local: *mut Local, tid: u32) {
    let mut entered = Entered { local, nested: false };
    entered.level().guard = u64::MAX;
    write(core, &mut entered, |stamp| encode_mark(Kind::ThreadStart, stamp, tid));
    if !core.announced.swap(true, Ordering::AcqRel) {
        let image = core.header().image.load(Ordering::Relaxed);
        write(core, &mut entered, |stamp| encode_mark(Kind::Image, stamp, image));
    }
    leave(&mut entered);
}

/// The ring of an entered hook.
#[inline(always)]
fn ring(core: &Core, entered: &mut impl Writer) -> Ring<'static> {
    let nested = entered.is_nested();
    let local = entered.local();
    // SAFETY: the area was mapped when the slot was claimed and stays.
    unsafe { core.region().ring(local.header(), local.area, nested) }
}

/// Publishes the intent, takes the stamp, writes the words that `make` gives for it, commits.
#[inline(always)]
fn write<const WORDS: usize>(core: &Core, entered: &mut impl Writer, make: impl FnOnce(Stamp) -> [u64; WORDS]) {
    let ring = ring(core, entered);
    if !has_room(core, entered, &ring, WORDS) {
        return;
    }
    publish_intent(entered);
    let stamp = stamp(core, entered);
    let at = entered.level().head;
    commit(entered, &ring, at, make(stamp));
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
    let ring = ring(core, entered);
    commit(entered, &ring, at, make(stamp));
    true
}

/// The stamp of the event that was announced.
#[inline(always)]
fn stamp(core: &Core, entered: &mut impl Writer) -> Stamp {
    let level = entered.level();
    let is_clock_due = !level.pace.step(core.header());
    next_stamp(core, level, is_clock_due.then(|| core.stamp()))
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
/// has either committed or not, and whoever clears its guard takes the head from there.
#[inline(always)]
fn commit<const WORDS: usize>(entered: &mut impl Writer, ring: &Ring<'_>, at: u64, words: [u64; WORDS]) {
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
    entered.level().head = head;
    clear_intent(entered);
}

#[inline(always)]
fn has_room(core: &Core, entered: &mut impl Writer, ring: &Ring<'_>, words: usize) -> bool {
    let level = entered.level();
    level.head + words as u64 <= level.limit || {
        let mut any = Entered { local: entered.state(), nested: entered.is_nested() };
        make_room(core, &mut any, ring, words as u64)
    }
}

/// Visited at least twice per turn of the ring: looks at the reader, rings its bell, waits if need be.
#[cold]
#[inline(never)]
fn make_room(core: &Core, entered: &mut Entered, ring: &Ring<'_>, words: u64) -> bool {
    let header = core.header();
    if header.phase.load(Ordering::Relaxed) == Phase::Stopped as u32 {
        core.shut();
        return false;
    }
    let capacity = ring.capacity() as u64;
    let mut room = ring.room();
    if is_half_full(room, capacity) && header.collector_asleep.load(Ordering::Relaxed) != 0 && core.may_call() {
        header.doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&header.doorbell);
    }
    if room < words {
        room = wait_for_room(core, entered, ring, words);
    }
    if room < words {
        return false;
    }
    let level = entered.level();
    level.limit = level.head + words_until_visit(room, capacity);
    true
}

/// A reader that sleeps is woken from here on. Exactly half counts: the next visit is at the ring's end.
const fn is_half_full(room: u64, capacity: u64) -> bool {
    room <= capacity / 2
}

/// How many words may be written before the reader is looked at again.
const fn words_until_visit(room: u64, capacity: u64) -> u64 {
    if is_half_full(room, capacity) { room } else { room - capacity / 2 }
}

/// Sleeps until the collector has made room. The room, which is too little if it is dead, too slow, or may not be
/// waited for; the event is then counted as lost.
#[cold]
fn wait_for_room(core: &Core, entered: &mut Entered, ring: &Ring<'_>, words: u64) -> u64 {
    let header = core.header();
    if header.on_full == OnFull::Drop as u32 || !core.may_call() {
        return hope_for_room(core, entered, ring, words);
    }
    let deadline = sys::now_ms() + header.max_stall_ms as u64;
    let waiting = &entered.local().header().waiting;
    loop {
        waiting.store(1, Ordering::SeqCst);
        if ring.room() >= words {
            waiting.store(0, Ordering::Relaxed);
            return ring.room();
        }
        header.doorbell.fetch_add(1, Ordering::Release);
        sys::futex_wake(&header.doorbell);
        if header.collector_alive.load(Ordering::Relaxed) & FUTEX_OWNER_DIED != 0 {
            core.lose(Loss::NoCollector);
            core.shut();
            return 0;
        }
        sys::futex_wait(waiting, 1, 100);
        if sys::now_ms() > deadline {
            core.lose(Loss::RingFull);
            return ring.room();
        }
    }
}

/// Where nobody may wait: some time for the collector, once, until it has made room again.
#[cold]
fn hope_for_room(core: &Core, entered: &mut Entered, ring: &Ring<'_>, words: u64) -> u64 {
    let level = entered.level();
    let mut patience = if level.dropping { 0 } else { SPINS };
    while ring.room() < words && patience > 0 {
        core::hint::spin_loop();
        patience -= 1;
    }
    let room = ring.room();
    level.dropping = room < words;
    if level.dropping {
        core.lose(Loss::RingFull);
    }
    room
}

/// What a memo says of a walk that is to be made anew, though it is known.
const ANEW: u64 = u64::MAX;

/// The stack's id from the memo, if the walk that was last found or remembered in its place still holds. Else what
/// `remembered_elsewhere` wants to know.
#[inline(always)]
fn remembered(core: &Core, local: &mut Local, context: &Context) -> Result<StackId, u64> {
    if local.generation != core.modules().generation() {
        local.memo.forget();
        local.generation = core.modules().generation();
    }
    // SAFETY: our own stack, and we are in the call that `context` describes.
    match unsafe { local.memo.find_youngest(place(context)) } {
        Ok((number, jumps)) if jumps <= FEW_JUMPS => Ok(number),
        Ok((number, _)) => patched_together(local, number),
        Err(differs) => Err(differs),
    }
}

#[inline(always)]
fn place(context: &Context) -> Place {
    Place { pc: context.ret, cfa: context.cfa(), rbp: context.rbp }
}

/// After `remembered` has failed with `differs`: among the others of the set. Else what the walk wants to know.
#[inline(never)]
fn remembered_elsewhere(local: &mut Local, context: &Context, differs: u64) -> Result<StackId, u64> {
    if differs == ANEW {
        return Err(ANEW);
    }
    // SAFETY: as in `remembered`.
    let tail = unsafe {
        match differs {
            UNSURE => local.memo.find(place(context), usize::MAX)?,
            differs => local.memo.find_older(place(context), differs)?,
        }
    };
    if tail.jumps <= FEW_JUMPS { Ok(tail.number) } else { patched_together(local, tail.number) }
}

/// A walk that holds, in many pieces. Once in a while it is made anew.
#[inline(always)]
fn patched_together(local: &mut Local, number: StackId) -> Result<StackId, u64> {
    local.patched_together += 1;
    if local.patched_together < PATIENCE {
        return Ok(number);
    }
    local.patched_together = 0;
    Err(ANEW)
}

/// Walks the stack, writes the path of its new frames and the words that `make` gives for the stamp and the stack, in
/// one commit. False when there was no room.
#[inline(never)]
fn walk_and_write<const WORDS: usize>(
    core: &Core,
    entered: &mut Entered,
    context: &Context,
    make: impl FnOnce(Stamp, StackId) -> [u64; WORDS],
) -> bool {
    let ring = ring(core, entered);
    let nested = entered.nested;
    let local: *mut Local = entered.local;
    // SAFETY: the calling thread's own; what `entered` gives out below are other fields of it.
    let Local { memo, probe: [probe, inner_probe], scratch: [scratch, inner_scratch], .. } = unsafe { &mut *local };
    let may_ask = core.may_call();
    let mut walk = if nested {
        Walk { core, scratch: inner_scratch, probe: inner_probe, memo: None, may_ask }
    } else {
        Walk { core, scratch, probe, memo: Some(memo), may_ask }
    };
    let found = walk.run(context);
    let count = found.path_len();
    if !has_room(core, entered, &ring, PATH_HEAD_WORDS + count + WORDS) {
        return false;
    }
    let first = walk.memo.as_deref_mut().map_or(1, |memo| memo.number(count));
    let mut at = entered.level().head;
    for word in encode_path(first, count, found.tail) {
        ring.put(at, word);
        at += 1;
    }
    for i in 0..count {
        ring.put(at, walk.frame_key(&found, i).0);
        at += 1;
    }
    publish_intent(entered);
    let stamp = stamp(core, entered);
    commit(entered, &ring, at, make(stamp, first));
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
        let known = remembered(core, entered.local(), context);
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
    match remembered_elsewhere(entered.local(), context, context.differs) {
        Ok(stack) => {
            write(core, &mut entered, |stamp| encode_alloc(stamp, address, size, stack));
            leave(&mut entered);
            Next::DONE
        }
        Err(differs) => {
            leave(&mut entered);
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
/// Arguments: the address and the size.
#[cold]
extern "C" fn allocated_slowly(context: &mut Context) -> Next {
    let core = &CORE;
    let [address, size, _] = context.arguments;
    if core.gate_or_join() & (ACTIVE | PAUSED) != ACTIVE {
        return Next::DONE;
    }
    let Some(mut entered) = enter(core, context.cfa()) else { return Next::DONE };
    walk_and_write(core, &mut entered, context, |stamp, stack| encode_alloc(stamp, address, size, stack));
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
        let is_written = write_quickly(core, &mut entered, |stamp| encode_free(Kind::Free, stamp, address));
        leave(&mut entered);
        if is_written {
            return;
        }
    }
    freeing_slowly(address, cfa);
}

#[cold]
#[inline(never)]
fn freeing_slowly(address: u64, cfa: u64) {
    let core = &CORE;
    if core.gate_or_join() & ACTIVE == 0 || families::free_inside(address, cfa) {
        return;
    }
    let Some(mut entered) = enter(core, cfa) else { return };
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
    // SAFETY: the calling thread's own.
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
    let known = if entered.nested {
        Err(0)
    } else {
        let local = entered.local();
        remembered(core, local, context).or_else(|differs| remembered_elsewhere(local, context, differs))
    };
    match known {
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
    let ring = ring(core, &mut entered);
    if size == 0 && has_room(core, &mut entered, &ring, FREE_WORDS) {
        let at = entered.level().head;
        commit(&mut entered, &ring, at, encode_free(Kind::Free, freed_at, old));
    }
    clear_intent(&mut entered);
    leave(&mut entered);
    Next::DONE
}

#[cold]
extern "C" fn moved_slowly(context: &mut Context) -> Next {
    let core = &CORE;
    let Some(mut entered) = resume(core, context.cfa()) else { return Next::DONE };
    let (arguments, new) = (context.arguments, context.result);
    if !walk_and_write(core, &mut entered, context, |stamp, stack| encode_move(arguments, new, stamp, stack)) {
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
    let ring = ring(core, entered);
    if has_room(core, entered, &ring, MOVE_WORDS) {
        let stamp = stamp(core, entered);
        let at = entered.level().head;
        commit(entered, &ring, at, encode_move(context.arguments, context.result, stamp, stack));
    } else {
        clear_intent(entered);
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
