//! The word that one part of a hook leaves for the next part.
use crate::memo::Miss;
use channel::StackId;

/// One word of the [`crate::context::Context`], which the first part of a hook writes and the next part reads.
///
/// The word has no tag. The function that runs next knows its meaning, because a part of a hook writes the word just
/// before it returns that function as the next part.
///
/// | written by | read by | meaning |
/// |---|---|---|
/// | `of_miss` | `allocated_elsewhere`, `allocated_slowly`, `Walk::run` | why the memo did not know the stack |
/// | `of_stack` | `allocated_without_room` | the stack, which is known; only its event is not written yet |
/// | `of_flags` | `sampled::reallocated` | whether the new block is taken, whether the old one is the thread's latest, and the number of its heap |
/// | `of_guard` | the half of a hook after the allocator's own function | what the half before it did with the guard |
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct ResumeState(u64);

/// What the half of a hook before the allocator's own function did with the thread's guard.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GuardState(u64);

impl GuardState {
    /// Nothing: recording is off, or the call does nothing.
    pub const UNGUARDED: GuardState = GuardState(0);
    /// It raised the guard, and the half after the function must lower it.
    pub const GUARDED: GuardState = GuardState(1);
    /// Nothing, because another function of the allocator made the call, or because the call cannot be recorded. The
    /// half after the function must not record it.
    pub const NOT_RECORDED: GuardState = GuardState(2);
    /// As `GUARDED`, and it has interrupted a hook that is calling a function of the same libc (`events/nesting.rs`).
    pub const GUARDED_INSIDE: GuardState = GuardState(3);
}

impl ResumeState {
    /// Nothing is known of the stack yet.
    pub const NOTHING: ResumeState = ResumeState(0);

    #[inline(always)]
    pub const fn of_miss(miss: Miss) -> ResumeState {
        ResumeState(miss.to_word())
    }

    #[inline(always)]
    pub const fn miss(self) -> Miss {
        Miss::from_word(self.0)
    }

    #[inline(always)]
    pub const fn of_stack(stack: StackId) -> ResumeState {
        ResumeState(stack as u64)
    }

    #[inline(always)]
    pub const fn stack(self) -> StackId {
        self.0 as StackId
    }

    pub const fn of_flags(first: bool, second: bool, heap: u16) -> ResumeState {
        ResumeState(first as u64 | (second as u64) << 1 | (heap as u64) << 2)
    }

    pub const fn flags(self) -> (bool, bool, u16) {
        (self.0 & 1 != 0, self.0 & 2 != 0, (self.0 >> 2) as u16)
    }

    #[inline(always)]
    pub const fn of_guard(guard: GuardState) -> ResumeState {
        ResumeState(guard.0)
    }

    #[inline(always)]
    pub const fn guard(self) -> GuardState {
        GuardState(self.0)
    }
}

const _: () = assert!(size_of::<ResumeState>() == 8);
