//! Why the memo did not find a stack.

/// Why the memo did not find a stack. One word: a CFA, or one of the values below, which are no CFA of a user's stack.
///
/// This is a number and not an enum, because the quick path of a hook keeps it in a single register.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss(u64);

impl Miss {
    /// No remembered walk starts at this frame.
    pub const NO_WALK: Miss = Miss(0);
    /// A comparison took more jumps than a walk can have, so the memo contradicts itself.
    pub const BROKEN: Miss = Miss(u64::MAX - 2);
    /// `find_youngest` would have to call a function to compare the walk. Only `find` can tell whether it differs.
    pub const UNSURE: Miss = Miss(u64::MAX - 1);
    /// The stack must be walked to its root without the memo.
    pub const WALK_ANEW: Miss = Miss(u64::MAX);

    /// A remembered walk differs from the stack at the frame with this CFA.
    #[inline(always)]
    pub const fn differs_at(cfa: u64) -> Miss {
        Miss(cfa)
    }

    /// Returns true if it makes sense to look for the frame with this CFA in the memo. It does not for the frames up to
    /// the one that differs, and for no frame at all after `BROKEN`, `UNSURE` and `WALK_ANEW`.
    #[inline(always)]
    pub const fn may_know(self, cfa: u64) -> bool {
        cfa > self.0
    }

    /// Of two misses, the one that rules out more frames.
    #[inline(always)]
    pub const fn or_higher(self, other: Miss) -> Miss {
        if other.0 > self.0 { other } else { self }
    }

    /// The word, for [`crate::resume_state::ResumeState`].
    #[inline(always)]
    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn from_word(word: u64) -> Miss {
        Miss(word)
    }
}
