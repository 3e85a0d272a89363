//! How recording begins in a program that heaptrack has patched before its first instruction.
//!
//! A thread finds its state by its thread pointer, which such a program does not have yet: libc sets it up before
//! `main`. Until then fs is 0, and a read through it would be a segmentation fault. So the gate is `EARLY` at first, and
//! hooks ask the kernel for the thread pointer. No libc allocates before; a program with an allocator of its own may.
use super::{Core, EARLY};
use crate::environment::Variable;
use crate::{follow, sys};
use channel::Loss;
use core::sync::atomic::Ordering;

impl Core {
    /// Opens the gate if the calling thread has a thread pointer. Returns the gate. Only the program's first thread
    /// calls this: a program can start others only with a libc that has made its thread pointer, or without any. A
    /// thread without one is never recorded.
    #[cold]
    pub(super) fn open_early(&self) -> u32 {
        if sys::fs_base() == 0 {
            return 0;
        }
        // SAFETY: the gate is mapped (see `Core`). It is `EARLY` only in a program that the profiler has patched, where
        // it is a page that can be written.
        let gate = unsafe { &*self.gate.load(Ordering::Relaxed) };
        self.find_hub_if_followed();
        // A child that was forked meanwhile finds 0 in its copy of the page, and leaves it.
        let _ = gate.compare_exchange(EARLY, self.open_bits(), Ordering::AcqRel, Ordering::Relaxed);
        self.gate()
    }

    /// If a tree of processes is followed, maps its hub, so that forked children can join.
    fn find_hub_if_followed(&self) {
        // SAFETY: the profiler has written `carried` before the program's first instruction, and nothing writes it later.
        let carried = unsafe { &*self.carried.get() };
        if carried.variable == Variable::Follow && !follow::is_on() && follow::find_hub(carried.value.as_c_string()) {
            follow::joined();
        }
    }

    /// Called for an allocation that is not recorded because the gate is not open.
    pub fn note_early(&self) {
        if self.gate() == EARLY {
            self.lose(Loss::NoThreadPointer);
        }
    }
}
