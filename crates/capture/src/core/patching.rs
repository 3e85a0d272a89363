//! Waiting until the profiler has patched the allocators of new modules.
//!
//! The thread that loads modules comes here before any code of them runs, with the loader's lock held. It asks through
//! the shared memory ([`LoadingStep`]). The profiler reads the symbol tables, which may be in other files, and writes
//! the patches. The thread only maps memory for it, near the modules.
//!
//! Must hold: the wait has a limit, and ends if the profiler is dead. If it ends early, the modules are not patched, and
//! the profiler writes nothing.
use super::Core;
use crate::follow;
use crate::sys;
use channel::Host;
use channel::{Loading, LoadingStep};
use core::sync::atomic::Ordering;

/// The thread looks this often whether its patience is over and whether the profiler is alive.
const LOOK_EVERY_MS: u64 = 100;
/// How long heaptrack may write. The waiting thread must not run code that is being changed, so this is longer than any
/// write takes.
const WRITING_MS: u64 = 30_000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
/// How many places near a module are tried.
const PLACES: u64 = 64;
const LOWEST: u64 = 1 << 16;

impl Core {
    /// Asks the profiler to patch the modules that were published since the last call, and waits for the answer.
    #[cold]
    pub(super) fn wait_for_patches(&self) {
        let header = self.header();
        let loading = &header.loading;
        let of_first = loading.patience_ms.load(Ordering::Acquire) as u64;
        // The modules of a forked child are patched like those of its parent. Which of them are new, the profiler does not
        // know, so it is not asked.
        let is_forked = header.origin.is_forked.load(Ordering::Relaxed) != 0;
        let patience = if of_first != 0 || is_forked { of_first } else { follow::loading_patience_ms() };
        if patience == 0 || !self.may_call() || !advance(loading, LoadingStep::Idle, LoadingStep::Asked) {
            return;
        }
        if of_first == 0 {
            follow::ring_starts();
        }
        let start = sys::now_ms();
        loop {
            let step = loading.step.load(Ordering::Acquire);
            if step == LoadingStep::Map as u32 {
                let at = map_below(loading.near.load(Ordering::Relaxed), loading.length.load(Ordering::Relaxed));
                loading.mapped_at.store(at, Ordering::Relaxed);
                advance(loading, LoadingStep::Map, LoadingStep::Mapped);
                continue;
            }
            if step == LoadingStep::Done as u32 {
                break;
            }
            let waited = sys::now_ms().saturating_sub(start);
            let is_alive = self.collector_alive().load(Ordering::Acquire) & FUTEX_OWNER_DIED == 0;
            if !is_alive || waited > patience.max(WRITING_MS) {
                break;
            }
            let may_give_up = step == LoadingStep::Asked as u32 || step == LoadingStep::Mapped as u32;
            if waited >= patience && may_give_up && exchange(loading, step, LoadingStep::Idle) {
                return;
            }
            sys::futex_wait(&loading.step, step, LOOK_EVERY_MS);
        }
        loading.step.store(LoadingStep::Idle as u32, Ordering::Release);
        sys::futex_wake(&loading.step);
    }
}

fn advance(loading: &Loading, from: LoadingStep, to: LoadingStep) -> bool {
    let is_done = exchange(loading, from as u32, to);
    sys::futex_wake(&loading.step);
    is_done
}

fn exchange(loading: &Loading, from: u32, to: LoadingStep) -> bool {
    loading.step.compare_exchange(from, to as u32, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Maps memory for code below a module, within reach of it. Above a program there is its heap, which must be able to
/// grow. Returns 0 if there is no free place.
fn map_below(start: u64, length: u64) -> u64 {
    const PAGE: u64 = 4096;
    const STEP: u64 = 8 << 20;
    let places = (0..PLACES).map_while(|i| (start & !(PAGE - 1)).checked_sub(length + PAGE + i * STEP));
    places.filter(|at| *at >= LOWEST).find_map(|at| sys::map_code_at(at, length as usize)).unwrap_or(0)
}
