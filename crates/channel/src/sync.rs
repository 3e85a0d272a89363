//! The atomics and the barriers: the machine's, or loom's when the protocol is model-checked. All other code of this crate is the
//! same in both.
#[cfg(not(loom))]
pub use core::hint::spin_loop;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub use loom::hint::spin_loop;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The writer's half of the barrier with which the collector looks at all threads.
///
/// On the machine it only stops the compiler: the collector's `membarrier` makes every thread of the target run a full fence. Loom
/// has no such call, so its writers run the fence here, each time.
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

/// Keeps the stores before it before the stores after it, for a signal handler on the same thread. Loom's threads run in the order
/// of the source; there it is a point at which a model's signal handler can interrupt the writer.
#[inline(always)]
pub fn order_for_handlers() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    crate::model_signal::point();
}
