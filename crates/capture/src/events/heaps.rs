//! Functions about a whole heap: mimalloc's heaps, jemalloc's arenas, rpmalloc's heaps, pools of TBB. One call can free all
//! blocks of a heap.
//!
//! The target does not know which blocks are live. So it only says in which heap each block is (`HeapMark::In`, before the
//! allocation), and the collector knows which blocks end with the heap.
use super::attached::{Call, come_back, go_inside, real};
use super::entering::{AtWork, Entered, enter, leave};
use crate::allocators::{Effect, Meaning};
use crate::context::Next;
use crate::core::{ACTIVE, CORE};
use crate::entry::{Entry, Range};
use crate::local::thread_pointer;
use crate::sampling::heaps as sampled_heaps;
use channel::{HeapMark, Stamp, encode_heap};

/// The bits of jemalloc's flags above this one are the arena plus one, or 0.
const ARENA_SHIFT: u32 = 20;
/// No jemalloc has more arenas.
const MOST_ARENAS: u64 = 4096;

/// Returns the number by which an arena of jemalloc is known. A process can have several jemallocs, each in its module,
/// and modules begin at pages.
const fn arena(module: Range, index: u64) -> u64 {
    if index < MOST_ARENAS { module.start + index } else { 0 }
}

/// Returns the heap that the function's arguments name, or 0.
pub fn argument(call: &Call, entry: &Entry) -> u64 {
    heap_of(entry, call.argument(entry.meaning.heap & !Meaning::FLAGS))
}

/// As `argument`. `value` is the argument that `Meaning::heap` says.
pub fn heap_of(entry: &Entry, value: u64) -> u64 {
    if entry.meaning.heap & Meaning::FLAGS == 0 {
        return value;
    }
    match (value as u32 >> ARENA_SHIFT).checked_sub(1) {
        Some(index) => arena(entry.module, index as u64),
        None => 0,
    }
}

/// Says in which heap the next block of the hook is.
pub(super) fn mark_in(entered: &mut Entered, heap: u64) {
    entered.writer(&CORE).note_heap(HeapMark::In, heap);
    entered.level().heap = heap;
}

/// As `mark_in`, for a hook that is not entered. Returns false if this hook cannot write. `cfa` is the CFA of the hook.
#[inline(never)]
pub fn enter_and_mark_in(cfa: u64, heap: u64) -> bool {
    if CORE.gate() & ACTIVE == 0 {
        return false;
    }
    let Some(mut entered) = enter(&CORE, cfa) else { return false };
    mark_in(&mut entered, heap);
    leave(&mut entered);
    true
}

/// What a call is going to do.
#[derive(Clone, Copy)]
enum Plan {
    /// It frees all blocks of the heap. `true`: the heap, too.
    End(u64, bool),
    Delete(u64),
    Part(u64),
    Use(u64),
    /// It makes this arena, whose number is at the address, the one of the calling thread.
    UseArena(*const u32),
    EndUnknown,
    Other,
}

/// A function about a heap, including the call of the real function.
pub fn call(call: &mut Call, entry: &Entry) -> Next {
    if CORE.gate_or_join() & ACTIVE == 0 {
        call.result = real(call, entry);
        return Next::DONE;
    }
    let plan = plan(call, entry);
    let Some(mut entered) = enter(&CORE, call.context.cfa()) else {
        if let Plan::Delete(heap) = plan {
            note_deleted(heap);
        }
        let outer = go_inside(entry.module);
        call.result = real(call, entry);
        come_back(outer);
        return Next::DONE;
    };
    let outer = entered.replace_inside(entry.module);
    let is_ending = matches!(plan, Plan::End(..));
    // SAFETY: the calling thread's own local (see `Local`). The field has no reference.
    unsafe { (*entered.local).deleted_heap = 0 };
    let mut ended_at = 0;
    if is_ending {
        // The intent stays published during the real call, as in `events::reallocate`: another thread may get the
        // address of a block that ends here.
        let mut writer = entered.writer(&CORE);
        writer.publish_intent();
        ended_at = writer.stamp();
    }
    call.result = real(call, entry);
    entered.set_inside(outer);
    // SAFETY: the calling thread's own local (see `Local`). The field has no reference.
    let deleted = unsafe { (*entered.local).deleted_heap };
    // jemalloc's functions return 0, or an error.
    let is_control = matches!(entry.meaning.effect, Effect::Control | Effect::ControlByMib);
    let plan = if is_control && call.result as u32 != 0 { Plan::Other } else { plan };
    match plan {
        // The allocator has found that the heap must not be destroyed, and has deleted it instead.
        Plan::End(heap, _) if deleted == heap => leave_heap(&mut entered, heap),
        Plan::End(heap, is_gone) => {
            sampled_heaps::end(heap);
            write_stamped(&mut entered, heap, ended_at);
            if is_gone {
                entered.writer(&CORE).note_heap(HeapMark::Left, heap);
            }
        }
        Plan::Delete(heap) => leave_heap(&mut entered, heap),
        Plan::Part(heap) if call.result != 0 => {
            entered.writer(&CORE).note_heap(HeapMark::In, call.result);
            entered.writer(&CORE).note_heap(HeapMark::PartOf, heap);
        }
        Plan::Use(heap) => entered.writer(&CORE).note_heap(HeapMark::Mixed, heap),
        Plan::UseArena(number) => {
            // SAFETY: jemalloc has read the number from there and returned success, and its caller has not got control
            // back.
            let heap = arena(entry.module, unsafe { number.read_unaligned() } as u64);
            entered.writer(&CORE).note_heap(HeapMark::Mixed, heap);
        }
        Plan::EndUnknown => entered.writer(&CORE).note_heap(HeapMark::UnknownEnded, 0),
        Plan::Part(_) | Plan::Other => (),
    }
    if is_ending {
        entered.writer(&CORE).clear_intent();
    }
    leave(&mut entered);
    Next::DONE
}

/// Says that the blocks of a heap are in no heap any more.
fn leave_heap(entered: &mut Entered, heap: u64) {
    sampled_heaps::leave(heap);
    entered.writer(&CORE).note_heap(HeapMark::Left, heap);
}

/// Writes that a heap has ended, with a stamp that was taken before the call.
fn write_stamped(entered: &mut Entered, heap: u64, ended_at: Stamp) {
    let mut writer = entered.writer(&CORE);
    writer.begin_events(1);
    let words = encode_heap(ended_at, HeapMark::Ended, heap);
    if writer.has_room_or_drops(words.len(), 1) {
        writer.commit(writer.head(), words, 1);
    }
}

/// Remembers that the allocator has deleted a heap, for the hook of this thread that waits for the allocator's function.
fn note_deleted(heap: u64) {
    if let Some(local) = CORE.threads().find(thread_pointer()) {
        // SAFETY: `find` returns the calling thread's own local (see `Local`). The field has no reference.
        unsafe { (*local).deleted_heap = heap };
    }
}

fn plan(call: &Call, entry: &Entry) -> Plan {
    let heap = call.argument(0);
    match entry.meaning.effect {
        Effect::EndUnknown => Plan::EndUnknown,
        Effect::Control => control(call, entry),
        Effect::ControlByMib => control_by_mib(call, entry),
        _ if heap == 0 => Plan::Other,
        Effect::ResetHeap => Plan::End(heap, false),
        Effect::DestroyHeap if is_main(entry, heap) => Plan::Other,
        Effect::DestroyHeap => Plan::End(heap, true),
        Effect::DeleteHeap => Plan::Delete(heap),
        Effect::PartOfHeap => Plan::Part(heap),
        Effect::UseHeap => Plan::Use(heap),
        _ => Plan::Other,
    }
}

/// Returns true if a heap is the main heap, which mimalloc 3 does not destroy. The program's own function returns that heap, and does nothing
/// else.
fn is_main(entry: &Entry, heap: u64) -> bool {
    if entry.nothrow == 0 {
        return false;
    }
    // SAFETY: the profiler has written the address of the module's mi_heap_main into `nothrow`, and an entry never changes
    // once a patch leads to it (`entry.rs`).
    let main: extern "C" fn() -> u64 = unsafe { core::mem::transmute(entry.nothrow) };
    main() == heap
}

/// A name that mallctl knows. It is read byte by byte, up to the first byte that does not fit.
struct Name(*const u8);

impl Name {
    /// Takes one byte if `is` accepts it.
    fn take(&mut self, is: impl Fn(u8) -> bool) -> Option<u8> {
        // SAFETY: the program has passed a string that ends with a zero byte, because mallctl reads it too. Only bytes
        // that were not zero were taken, so this one is in the string.
        let byte = unsafe { *self.0 };
        (byte != 0 && is(byte)).then(|| {
            self.0 = self.0.wrapping_add(1);
            byte
        })
    }

    /// Takes `text` if it comes next.
    fn starts_with(&mut self, text: &[u8]) -> bool {
        text.iter().all(|wanted| self.take(|byte| byte == *wanted).is_some())
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = None;
        while let Some(digit) = self.take(|byte| byte.is_ascii_digit()) {
            let next = number.unwrap_or(0u64).wrapping_mul(10).wrapping_add(digit.wrapping_sub(b'0') as u64);
            number = Some(if next < MOST_ARENAS { next } else { return None });
        }
        number
    }

    /// Returns true if the rest of the name is `text`.
    fn is(&self, text: &[u8]) -> bool {
        let mut rest = Name(self.0);
        // SAFETY: `starts_with` has taken bytes that were not zero, so the next one is in the string.
        rest.starts_with(text) && unsafe { *rest.0 } == 0
    }
}

/// `mallctl(name, oldp, oldlenp, newp, newlen)`.
fn control(call: &Call, entry: &Entry) -> Plan {
    let [name, _, _, new, length, _] = call.arguments;
    let mut name = Name(name as *const u8);
    if name.0.is_null() {
        return Plan::Other;
    }
    if name.is(b"thread.arena") {
        return use_arena(new, length);
    }
    let index = if name.starts_with(b"arena.") { name.number() } else { None };
    match index {
        Some(index) if name.is(b".reset") => Plan::End(arena(entry.module, index), false),
        Some(index) if name.is(b".destroy") => Plan::End(arena(entry.module, index), true),
        _ => Plan::Other,
    }
}

fn use_arena(new: u64, length: u64) -> Plan {
    if new != 0 && length == 4 { Plan::UseArena(new as *const u32) } else { Plan::Other }
}

/// `mallctlbymib(mib, miblen, oldp, oldlenp, newp, newlen)`. The numbers of a name differ between versions, so the program's
/// own function is asked for those of the names that matter. It is one that the program may call here as well.
fn control_by_mib(call: &Call, entry: &Entry) -> Plan {
    let [mib, length, _, _, new, new_length] = call.arguments;
    let mib = mib as *const u64;
    if mib.is_null() || entry.nothrow == 0 {
        return Plan::Other;
    }
    // SAFETY: the program has passed a list of `length` numbers, because mallctlbymib reads them too.
    let at = |index: usize| unsafe { mib.add(index).read_unaligned() };
    let is_arenas =
        |name: &core::ffi::CStr| numbers(entry, name).is_some_and(|[first, _, third]| first == at(0) && third == at(2));
    let is_threads =
        || numbers(entry, c"thread.arena").is_some_and(|[first, second, _]| [first, second] == [at(0), at(1)]);
    match length {
        2 if new != 0 && is_threads() => use_arena(new, new_length),
        3 if is_arenas(c"arena.0.reset") => Plan::End(arena(entry.module, at(1)), false),
        3 if is_arenas(c"arena.0.destroy") => Plan::End(arena(entry.module, at(1)), true),
        _ => Plan::Other,
    }
}

/// Returns the numbers of a name, from the program's mallctlnametomib.
fn numbers(entry: &Entry, name: &core::ffi::CStr) -> Option<[u64; 3]> {
    type Function = extern "C" fn(*const core::ffi::c_char, *mut u64, *mut u64) -> i32;
    // SAFETY: the profiler has written the address of the module's mallctlnametomib into `nothrow`, and an entry never
    // changes once a patch leads to it (`entry.rs`).
    let function: Function = unsafe { core::mem::transmute(entry.nothrow) };
    let mut numbers = [0; 3];
    let mut length = numbers.len() as u64;
    (function(name.as_ptr(), numbers.as_mut_ptr(), &raw mut length) == 0).then_some(numbers)
}
