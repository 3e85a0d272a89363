//! The audit of one slot: compares the events that its threads began to write with those that arrived, so that no loss
//! is silent.
//!
//! Receives the counters of `channel::SlotHeader`, which no slot ever resets, and how many events were merged. Returns
//! how many events are missing.
//!
//! Must hold: an event that a thread was in the middle of when it was killed is not missing, it is in flight. A thread
//! can be in the middle of at most one call. A thread that is gone with an unfinished call is in doubt: it was killed
//! together with its process, or its event was lost. If the process lives on, the event was lost.

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

/// The most events of one call: a `realloc` is two.
const MOST_IN_FLIGHT: u64 = 2;

/// The result of the last comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    missing: u64,
    /// Events of calls that their threads could not finish. They are no longer counted as open.
    forgiven: u64,
    /// The thread was ended by an exec, perhaps in the middle of a call.
    may_forgive: bool,
    /// Events of unfinished calls of threads that are gone. They are among the forgiven ones until `settle` decides.
    in_doubt: u64,
    /// What `settle` found to be lost.
    lost: u64,
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
            AtWork::No => {
                self.forgiven += open;
                self.in_doubt += open;
                self.missing = 0;
            }
        }
        if at_work == AtWork::No {
            self.may_forgive = false;
        }
    }

    /// Must be called when an exec ends the thread.
    pub fn forgive(&mut self) {
        self.may_forgive = true;
    }

    pub const fn is_in_doubt(&self) -> bool {
        self.in_doubt != 0
    }

    /// Decides about the calls in doubt. `lived_on`: the process did something after their threads were gone.
    pub const fn settle(&mut self, lived_on: bool) {
        if lived_on {
            self.lost += self.in_doubt;
        }
        self.in_doubt = 0;
    }

    pub const fn missing(&self) -> u64 {
        self.missing + self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(begun: u64, arrived: u64, dropped: u64) -> Counts {
        Counts { begun, arrived, dropped }
    }

    #[test]
    fn a_thread_that_is_gone_owes_every_event_if_its_process_lives_on() {
        let mut audited = Audited::default();
        audited.compare(counts(10, 8, 2), AtWork::No);
        assert_eq!((audited.missing(), audited.is_in_doubt()), (0, false));
        audited.compare(counts(20, 17, 2), AtWork::No);
        assert_eq!((audited.missing(), audited.is_in_doubt()), (0, true));
        audited.settle(true);
        assert_eq!((audited.missing(), audited.is_in_doubt()), (1, false));
        // The counters are never reset, so what was missing stays missing.
        audited.compare(counts(30, 27, 2), AtWork::No);
        assert_eq!((audited.missing(), audited.is_in_doubt()), (1, false));
    }

    #[test]
    fn a_thread_that_is_killed_with_its_process_owes_nothing() {
        let mut audited = Audited::default();
        audited.compare(counts(20, 19, 0), AtWork::No);
        audited.settle(false);
        assert_eq!((audited.missing(), audited.is_in_doubt()), (0, false));
        // No call is more than two events.
        audited.compare(counts(30, 26, 0), AtWork::No);
        assert_eq!(audited.missing(), 3);
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
        audited.settle(true);
        assert_eq!(audited.missing(), 1);
    }
}
