//! What the profiler reads and writes in the shared memory of a process that runs already.
//!
//! Receives: bytes of the target, or the profiler's own mapping of the shared memory. Returns: the hooks that threads
//! are in; or fills the table of modules. Must hold: nothing here runs in the target; addresses are the target's and
//! are never followed; the profiler is built from the same source as the capture library in the target
//! ([`super::AttachBlock::VERSION`]).
use super::{Private, is_ours};
use crate::local::{Identity, Level, Local};
use crate::modules::Description;
use channel::{Geometry, Region, Stamp};
use core::mem::offset_of;

/// The hooks that a thread is in, as the profiler reads them from the thread's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotGuards {
    pub thread_pointer: u64,
    /// In the target's own pid namespace.
    pub tid: u32,
    /// The CFA of the hook at work, and of a hook in a signal handler that interrupted it. 0 = none.
    pub guards: [u64; 2],
}

/// Decodes the geometry in the header of a channel, which was read from the target. Returns `None` if a channel of this
/// build cannot have it.
pub fn geometry_of(bytes: &[u8; size_of::<Geometry>()]) -> Option<Geometry> {
    let geometry = Geometry::from_bytes(bytes);
    is_ours(&geometry).then_some(geometry)
}

impl SlotGuards {
    /// How many bytes at the start of a slot's private area `parse` needs.
    pub const LENGTH: usize = offset_of!(Local, nested) + size_of::<Level>();

    /// Where the bytes that `parse` needs are in the channel's file.
    pub const fn offset(geometry: &Geometry, slot: u32) -> u64 {
        (geometry.slot_area_at(slot) + geometry.private_in_slot(slot)) as u64
    }

    /// Decodes bytes from the start of a slot's private area. The capture library in the target must be of the same
    /// build, because nothing else says where the fields are.
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> SlotGuards {
        const GUARD: usize = offset_of!(Level, guard);
        let word =
            |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
        SlotGuards {
            thread_pointer: word(Identity::THREAD_POINTER_AT),
            tid: word(Identity::TID_AT) as u32,
            guards: [word(offset_of!(Local, main) + GUARD), word(offset_of!(Local, nested) + GUARD)],
        }
    }
}

/// Fills the module table of a session that has not begun.
///
/// # Safety
/// `region` is the profiler's own mapping of the shared memory of a new session: it was never written, and no hook of a
/// target uses it yet.
pub unsafe fn adopt<'a>(region: &Region, modules: impl Iterator<Item = Description<'a>>, stamp: Stamp) {
    let private = region.private().cast::<Private>();
    // SAFETY: `region.private()` is mapped and page-aligned. It has room for a `Private`: the profiler makes channels
    // with `WRITER_MEMORY`, and an assertion below that constant proves that a `Private` fits. The caller promises
    // fresh memory, whose zeros are an empty table, and that no one else uses it. The two fields do not overlap.
    unsafe {
        let table = &(*private).modules;
        (*(*private).known_modules.get()).adopt(table, region, modules, stamp);
    }
}
