//! Checks of the capture library by itself, at every event, in a build with the feature `checks`.
//!
//! A check that fails stores its number in the header, where the collector finds it, and executes an illegal
//! instruction. The target ends at once, because nothing that a broken writer writes from then on can be trusted.
//! Without the feature no check is compiled. See decision 57.
use crate::header::Header;
use crate::sync::Ordering;

/// What is checked. Stored in `Header::failed_check`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Owner = 1,
    Head = 2,
    InFlight = 3,
    RingSpace = 4,
    Limit = 5,
    Stamp = 6,
    Intent = 7,
    Record = 8,
    Memo = 9,
    Modules = 10,
    Frame = 11,
}

impl Check {
    pub const ALL: [Check; 11] = [
        Check::Owner,
        Check::Head,
        Check::InFlight,
        Check::RingSpace,
        Check::Limit,
        Check::Stamp,
        Check::Intent,
        Check::Record,
        Check::Memo,
        Check::Modules,
        Check::Frame,
    ];

    /// Returns `None` for 0, and for a number that no check has.
    pub fn from_word(word: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|check| *check as u32 == word)
    }

    /// What is wrong if this check fails, as the end of a sentence.
    pub const fn finding(self) -> &'static str {
        match self {
            Check::Owner => "a thread wrote to a slot of another thread",
            Check::Head => "the head of a ring was not where its writer had left it",
            Check::InFlight => "the events that were written were not those that were begun",
            Check::RingSpace => "a ring held more words than it has room for",
            Check::Limit => "a writer was allowed to overwrite words that the collector had not read",
            Check::Stamp => "an event had an older stamp than the one before it",
            Check::Intent => "an event was stamped before it was announced",
            Check::Record => "the words in the ring were not the records that were written",
            Check::Memo => "a remembered stack was not the stack",
            Check::Modules => "the modules were not sorted, or overlapped",
            Check::Frame => "a frame was not in the module that was found for it",
        }
    }
}

impl Header {
    /// In a build with checks, ends the target if `holds` returns false.
    #[inline(always)]
    pub fn require(&self, check: Check, holds: impl FnOnce() -> bool) {
        if cfg!(feature = "checks") && !holds() {
            self.fail(check);
        }
    }

    /// Only the first failure is stored, because later ones may follow from it.
    #[cold]
    #[inline(never)]
    fn fail(&self, check: Check) -> ! {
        let _ = self.failed_check.compare_exchange(0, check as u32, Ordering::Release, Ordering::Relaxed);
        // SAFETY: an illegal instruction ends the process by SIGILL, or runs the program's handler for SIGILL. If that
        // handler returns, it comes back to the same instruction, so nothing after it is ever executed.
        unsafe { core::arch::asm!("2:", "ud2", "jmp 2b", options(noreturn, nostack)) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_number_of_its_own() {
        for (index, check) in Check::ALL.into_iter().enumerate() {
            assert_eq!((check as usize, Check::from_word(check as u32)), (index + 1, Some(check)));
        }
        assert_eq!((Check::from_word(0), Check::from_word(12)), (None, None));
    }
}
