//! The core of a process that runs already, as the profiler writes it into that process.
//!
//! Given: where things are in the target. Gives back: the [`Core`] that is to lie there, ready to record, and the module table
//! in the shared memory. What must hold: nothing here runs in the target; addresses are the target's and are never
//! followed; the profiler is built from the same source as the image, so both agree on the layout.
use super::{Core, MaybeUninit, Parts, Private, State, UnsafeCell, is_ours};
use crate::clock::{Source, StampClock};
use crate::elf::{Debug, Headers, ProgramHeader};
use crate::entry::Range;
use crate::environment::Carried;
use crate::local::{Identity, Level, Local};
use crate::modules::Description;
use channel::{Geometry, Region, Stamp};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

/// What the core must know. Addresses are those in the target.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    /// The fixed part of the shared memory.
    pub region: u64,
    pub geometry: Geometry,
    /// The page that reads as zero in a forked child.
    pub gate: u64,
    pub image: Range,
    /// The loader's board, or one that the profiler made for a program without a loader.
    pub debug: u64,
    pub program_headers: u64,
    pub program_header_count: u64,
    /// As the target itself knows it.
    pub pid: u32,
    pub membarrier: bool,
    /// The kernel trusts the time stamp counter, and threads may be asked whether they may read it.
    pub has_counter: bool,
    /// See `Core::stack_top`.
    pub stack_top: u64,
}

impl Attached {
    /// What the target's `CORE` must be.
    pub fn core(&self) -> Core {
        let region = self.region as *mut u8;
        // SAFETY: what `Region::new` asks for holds in the target, where `prepare.rs` of `attach` has mapped the region.
        // Here nothing follows an address: only `private` and `fixed_end` are computed from it.
        let region = unsafe { Region::new(region, self.geometry) };
        let parts = Parts {
            region,
            private: region.private().cast::<Private>(),
            debug: self.debug as *const Debug,
            program: Headers {
                first: self.program_headers as *const ProgramHeader,
                count: self.program_header_count as usize,
            },
            pid: self.pid,
        };
        Core {
            state: AtomicU32::new(State::Ready as u32),
            gate: AtomicPtr::new(self.gate as *mut AtomicU32),
            parts: UnsafeCell::new(MaybeUninit::new(parts)),
            clock: StampClock::new(Source::choose(self.has_counter, self.membarrier)),
            // Nothing is carried, and no address of ours may stand in the target.
            carried: UnsafeCell::new(Carried { variable: &[], ..Carried::EMPTY }),
            tid_offset: AtomicU32::new(0),
            stack_top: AtomicU64::new(self.stack_top),
            own: self.image,
            guessed: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            threads_begun: AtomicU32::new(0),
            only: AtomicPtr::new(core::ptr::null_mut()),
            stderr: AtomicU64::new(0),
            stops: [const { AtomicU64::new(0) }; super::STOPS],
            allocations: AtomicU64::new(0),
        }
    }
}

/// What a thread's slot says about hooks that the thread is in, as the profiler reads it out of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotGuards {
    pub thread_pointer: u64,
    /// In the target's own pid namespace.
    pub tid: u32,
    /// The CFA of the hook at work, and of the hook that a signal handler started inside of it; 0 = none.
    pub guards: [u64; 2],
}

/// The sizes that the header of a channel tells, read out of the target. `None` when they make no sense.
pub fn geometry_of(bytes: &[u8; size_of::<Geometry>()]) -> Option<Geometry> {
    let geometry = Geometry::from_bytes(bytes);
    is_ours(&geometry).then_some(geometry)
}

impl SlotGuards {
    /// How many bytes at the start of a slot's private area are needed.
    pub const LENGTH: usize = offset_of!(Local, nested) + size_of::<Level>();

    /// Where in the channel's file they are.
    pub const fn offset(geometry: &Geometry, slot: u32) -> u64 {
        (geometry.slot_area_at(slot) + geometry.private_in_slot(slot)) as u64
    }

    /// Only for an image that was built from the same source: nothing else says how the fields lie.
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
    // SAFETY: `region.private()` is mapped and page-aligned, with room for a `Private` (the assertion there,
    // `Geometry::check`). The caller promises fresh memory, whose zeros are an empty table, and that no one else uses it.
    // The two fields do not overlap.
    unsafe {
        let table = &(*private).modules;
        (*(*private).known_modules.get()).adopt(table, region, modules, stamp);
    }
}
