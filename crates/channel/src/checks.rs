//! Checks of the capture library by itself, at every event, in a build with the feature `checks`.
//!
//! A check that fails stores its number in the header, where the collector finds it, and executes an illegal
//! instruction. The target ends at once, because nothing that a broken writer writes from then on can be trusted.
//! Without the feature no check is compiled. See decision 57.
use crate::header::Header;
use crate::numbered::numbered;
use crate::sync::Ordering;

numbered! {
    /// What is checked. Stored in `Header::failed_check`.
    pub enum Check: u32 {
        Owner = 1 => "a thread wrote to a slot of another thread",
        Head = 2 => "the head of a ring was not where its writer had left it",
        InFlight = 3 => "the events that were written were not those that were begun",
        RingSpace = 4 => "a ring held more words than it has room for",
        Limit = 5 => "a writer was allowed to overwrite words that the collector had not read",
        Stamp = 6 => "an event had an older stamp than the one before it",
        Intent = 7 => "an event was stamped before its thread had published the intent to write it",
        Record = 8 => "the words in the ring were not the records that were written",
        Memo = 9 => "a remembered stack was not the real stack",
        Modules = 10 => "the modules were not sorted, or overlapped",
        Frame = 11 => "a frame was not in the module that was found for it",
    }
    /// What is wrong if this check fails, as the end of a sentence.
    pub fn finding
}

impl Check {
    /// Returns `None` for 0, and for a number that no check has.
    pub fn from_word(word: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|check| *check as u32 == word)
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
        // SAFETY: control never leaves these two instructions, as `noreturn` asks. The illegal one ends the process by
        // SIGILL, or runs the program's handler for SIGILL. If that handler returns, it comes back to the same
        // instruction, or to the jump after it, which leads back.
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
