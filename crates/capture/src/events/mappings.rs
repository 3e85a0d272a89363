//! Events of the program's own mappings: mmap and its relatives.
//!
//! A mapping is recorded as an allocation is, with its stack; a `MapCall` stands in the place of the allocator. The end of
//! a mapping has its size too, because a program may unmap any part of what it has mapped. As with malloc and free, an end
//! is stamped before the real call and a beginning after it.
//!
//! Calls that an allocator makes for itself are not recorded. They come from the module that has malloc, from a function
//! that a hook of the same thread has called (`entering.rs`), or from the code of an allocator that changes mappings
//! (`Entry::mapping_code`): a patched free has no hook at work while it runs.
use super::entering::{AtWork, enter, leave};
use super::{allocated, attached};
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE};
use crate::entry::Entry;
use crate::mappings::is_by_allocator;
use crate::sandbox::Calling;
use crate::sys;
use channel::{ALLOC_WORDS, CUSTOM, MapCall, encode_alloc};

const MADV_DONTNEED: u32 = 4;
const MADV_FREE: u32 = 8;
const MREMAP_DONTUNMAP: u32 = 4;
/// Results from here on are errors.
const ERRORS: u64 = -4095i64 as u64;

/// Returns true if a call that returns to `caller` is to be recorded. `entry` is that of a patched function.
fn is_wanted(caller: u64, entry: Option<&Entry>) -> bool {
    CORE.gate() & ACTIVE != 0
        && CORE.header().records_maps != 0
        && !entry.map_or_else(|| is_by_allocator(caller), |entry| entry.is_by_allocator(caller))
        && !attached::is_by_last_allocator(caller)
}

/// The program has made a mapping, or has freed pages of one. `address` is that of an event, or one that is no address.
fn made(context: &mut Context, entry: Option<&Entry>, call: MapCall, address: u64, bytes: u64) -> Next {
    if address >= CUSTOM || !is_wanted(context.ret, entry) {
        return Next::DONE;
    }
    allocated(context, address | CUSTOM, call.size(bytes))
}

/// Called after `mmap`.
pub fn mapped(context: &mut Context, entry: Option<&Entry>, address: u64, bytes: u64) -> Next {
    made(context, entry, MapCall::Mmap, address, bytes)
}

/// Called after `madvise`.
pub fn advised(context: &mut Context, entry: Option<&Entry>, result: u64, [address, bytes, advice]: [u64; 3]) -> Next {
    let call = match advice as u32 {
        MADV_DONTNEED => MapCall::DontNeed,
        MADV_FREE => MapCall::Free,
        _ => return Next::DONE,
    };
    made(context, entry, call, if result as u32 == 0 { address } else { ERRORS }, bytes)
}

/// Called after `shmat`.
pub fn attached_shared(context: &mut Context, entry: Option<&Entry>, address: u64, id: u64) -> Next {
    if address >= CUSTOM || !is_wanted(context.ret, entry) {
        return Next::DONE;
    }
    // A sandbox may allow shmat and not shmctl. The size is then not known. The guard is not up yet.
    let calls = Calling::begin();
    let bytes = if CORE.may_call() { sys::shared_segment_bytes(id as u32) } else { None };
    drop(calls);
    made(context, entry, MapCall::Shmat, address, bytes.unwrap_or(0))
}

/// `munmap`, including the call of the real function. Returns its result.
pub fn unmap(context: &Context, entry: Option<&Entry>, [address, bytes]: [u64; 2], real: impl Fn() -> u64) -> u64 {
    ending(context, entry, MapCall::Munmap, [address, bytes], real, |result| result as u32 == 0)
}

/// `shmdt`, including the call of the real function. Returns its result.
pub fn detach_shared(context: &Context, entry: Option<&Entry>, address: u64, real: impl Fn() -> u64) -> u64 {
    ending(context, entry, MapCall::Shmdt, [address, 0], real, |result| result as u32 == 0)
}

/// `mremap`, including the call of the real function. Returns its result, and the next part.
pub fn remap(
    context: &mut Context,
    entry: Option<&Entry>,
    [old, old_bytes, bytes]: [u64; 3],
    flags: u64,
    real: impl Fn() -> u64,
) -> (u64, Next) {
    // With a size of 0, or with this flag, the old mapping stays.
    let stays = old_bytes == 0 || flags as u32 & MREMAP_DONTUNMAP != 0;
    let result = if stays {
        real()
    } else {
        ending(context, entry, MapCall::MremapFrom, [old, old_bytes], real, |result| result < ERRORS)
    };
    (result, made(context, entry, MapCall::Mremap, result, bytes))
}

/// Calls a function that ends a mapping. If it succeeds, records the end with a stamp from before the call, because another
/// thread may get the address at once.
fn ending(
    context: &Context,
    entry: Option<&Entry>,
    call: MapCall,
    [address, bytes]: [u64; 2],
    real: impl Fn() -> u64,
    succeeds: impl Fn(u64) -> bool,
) -> u64 {
    let core = &CORE;
    if address >= CUSTOM || !is_wanted(context.ret, entry) {
        return real();
    }
    let Some(mut entered) = enter(core, context.cfa()) else { return real() };
    let mut writer = entered.writer(core);
    writer.publish_intent();
    let stamp = writer.stamp();
    let result = real();
    if succeeds(result) {
        let mut writer = entered.writer(core);
        writer.begin_events(1);
        if writer.has_room_or_drops(ALLOC_WORDS, 1) {
            writer.commit(writer.head(), encode_alloc(stamp, address | CUSTOM, call.size(bytes), 0), 1);
        }
    }
    entered.writer(core).clear_intent();
    leave(&mut entered);
    result
}
