//! The audit of one slot: compares the events that its threads began to write with those that arrived, so that no loss
//! is silent.
//!
//! Receives: the counters of `channel::SlotHeader`, which are never reset, and the number of merged events. Returns:
//! how many events are missing. Must hold: an event that a thread was writing when it was killed counts as in flight,
//! not as missing; each thread has at most one such call.

/// Event counts of a slot since it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub begun: u64,
    pub arrived: u64,
    pub dropped: u64,
}

/// Whether the thread can be in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtWork {
    No,
    Perhaps,
}

/// A `realloc` is two events.
const MOST_IN_FLIGHT: u64 = 2;

/// The result of the last comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    missing: u64,
    /// Events of calls that their threads could not finish, as far as they are known.
    forgiven: u64,
    /// The thread was ended from outside, perhaps in the middle of a call.
    may_forgive: bool,
}

impl Audited {
    pub fn compare(&mut self, counts: Counts, at_work: AtWork) {
        let seen = counts.arrived.wrapping_add(counts.dropped).wrapping_add(self.forgiven);
        // `begun` was read before `seen`, so `seen` may be larger.
        let open = counts.begun.wrapping_sub(seen) as i64;
        let open = if open > 0 { open as u64 } else { 0 };
        match at_work {
            _ if open > MOST_IN_FLIGHT => self.missing = open,
            AtWork::Perhaps => self.missing = 0,
            AtWork::No if self.may_forgive => {
                self.forgiven += open;
                self.missing = 0;
            }
            AtWork::No => self.missing = open,
        }
        if at_work == AtWork::No {
            self.may_forgive = false;
        }
    }

    /// Must be called when an exec ends the thread.
    pub fn forgive(&mut self) {
        self.may_forgive = true;
    }

    pub const fn missing(&self) -> u64 {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(begun: u64, arrived: u64, dropped: u64) -> Counts {
        Counts { begun, arrived, dropped }
    }

    #[test]
    fn a_thread_that_is_gone_owes_every_event() {
        let mut audited = Audited::default();
        audited.compare(counts(10, 8, 2), AtWork::No);
        assert_eq!(audited.missing(), 0);
        audited.compare(counts(20, 17, 2), AtWork::No);
        assert_eq!(audited.missing(), 1);
        // The counters are never reset, so what was missing stays missing.
        audited.compare(counts(30, 27, 2), AtWork::No);
        assert_eq!(audited.missing(), 1);
    }

    #[test]
    fn one_call_of_a_thread_at_work_is_in_flight() {
        let mut audited = Audited::default();
        audited.compare(counts(10, 9, 0), AtWork::Perhaps);
        assert_eq!(audited.missing(), 0);
        audited.compare(counts(10, 7, 0), AtWork::Perhaps);
        assert_eq!(audited.missing(), 3);
        audited.compare(counts(10, 12, 0), AtWork::Perhaps);
        assert_eq!(audited.missing(), 0, "more has arrived since");
    }

    #[test]
    fn what_an_exec_cut_off_is_forgiven_once() {
        let mut audited = Audited::default();
        audited.forgive();
        audited.compare(counts(10, 9, 0), AtWork::No);
        assert_eq!(audited.missing(), 0);
        audited.compare(counts(20, 19, 0), AtWork::No);
        assert_eq!(audited.missing(), 0);
        audited.compare(counts(30, 28, 0), AtWork::No);
        assert_eq!(audited.missing(), 1);
    }
}
