//! Atomics and barriers: those of the machine, or those of loom when the protocol is model-checked. All other code of
//! this crate is the same in both builds.
#[cfg(not(loom))]
pub use core::hint::spin_loop;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub use loom::hint::spin_loop;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The writer's half of an asymmetric barrier; the collector's half is `membarrier`.
///
/// On the machine this only stops the compiler from reordering, because `membarrier` makes every thread of the target
/// run a full fence. Loom has no such call, so there the writers run the fence here each time.
#[inline(always)]
pub fn light_barrier() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    {
        loom::sync::atomic::fence(Ordering::SeqCst);
        crate::model_signal::point();
    }
}

/// Orders the stores before it and the stores after it for a signal handler on the same thread. Loom does not reorder
/// within a thread, so there it is a point at which a model's signal handler can interrupt the writer.
#[inline(always)]
pub fn order_for_handlers() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    crate::model_signal::point();
}
