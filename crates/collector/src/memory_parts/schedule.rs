//! When to look at the target's memory.
//!
//! Receives: the time, the resident memory, and what the last look cost. Returns: whether a look is due. Must hold: looks take at most 0.5 % of
//! one CPU; a recording of any length has a few thousand looks, so that a trace stays small.
use std::time::Duration;

/// A look that took some CPU time is followed by this many times as long without one.
const COST: u64 = 200;
/// The first look at a program that was launched.
const FIRST_NS: u64 = 50_000_000;
/// Regular looks are at least this part of the time so far apart.
const PART: u64 = 256;
/// A new maximum must be higher than the last by this part, and by this many bytes.
const HIGHER: u64 = 50;
const HIGHER_BYTES: u64 = 1 << 20;
/// How often the resident memory is compared with the highest so far.
const CHECK_NS: u64 = 10_000_000;

#[derive(Debug)]
pub struct Schedule {
    every_ns: Option<u64>,
    next_ns: u64,
    not_before_ns: u64,
    highest_rss: u64,
    is_waiting: bool,
    /// The resident memory is read again at this time.
    next_check_ns: u64,
}

impl Schedule {
    /// `every`: the time between regular looks, or `None` for no looks.
    pub fn new(every: Option<Duration>, is_attached: bool) -> Self {
        Schedule {
            every_ns: every.map(|every| every.as_nanos().try_into().unwrap_or(u64::MAX)),
            // What an attached program had before is known only at once.
            next_ns: if is_attached { 0 } else { FIRST_NS },
            not_before_ns: 0,
            highest_rss: 0,
            is_waiting: false,
            next_check_ns: 0,
        }
    }

    /// True from `begin_if_due` to `end`.
    pub const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Returns true if a look is due, which then must begin. `rss_bytes` reads the resident memory.
    pub fn begin_if_due(&mut self, time_ns: u64, rss_bytes: impl FnOnce() -> u64) -> bool {
        if self.every_ns.is_none() || self.is_waiting || time_ns < self.not_before_ns || time_ns < self.next_check_ns {
            return false;
        }
        self.next_check_ns = time_ns.saturating_add(CHECK_NS);
        let rss_bytes = rss_bytes();
        let enough = self.highest_rss + self.highest_rss / HIGHER + HIGHER_BYTES;
        let is_higher = self.highest_rss > 0 && rss_bytes > enough;
        if time_ns < self.next_ns && !is_higher {
            return false;
        }
        self.is_waiting = true;
        self.highest_rss = self.highest_rss.max(rss_bytes);
        true
    }

    /// The look took this much CPU time.
    pub fn end(&mut self, time_ns: u64, cost_ns: u64) {
        self.is_waiting = false;
        self.not_before_ns = time_ns.saturating_add(cost_ns.saturating_mul(COST));
        self.next_ns = time_ns.saturating_add(self.every_ns.unwrap_or(u64::MAX).max(time_ns / PART));
    }

    /// No look from now on.
    pub const fn stop(&mut self) {
        self.every_ns = None;
        self.is_waiting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn looks_are_regular_and_at_new_maxima() {
        let due = |schedule: &mut Schedule, time_ns, rss_bytes| schedule.begin_if_due(time_ns, || rss_bytes);
        let mut schedule = Schedule::new(Some(Duration::from_secs(1)), false);
        assert!(!due(&mut schedule, 0, 10 << 20) && due(&mut schedule, FIRST_NS, 10 << 20));
        assert!(schedule.is_waiting() && !due(&mut schedule, 9 * SECOND, 99 << 20));
        schedule.end(FIRST_NS, 100_000);
        assert!(!due(&mut schedule, FIRST_NS + 19_000_000, 12 << 20), "200 times the cost is not over");
        assert!(!due(&mut schedule, FIRST_NS + 500_000_000, 11 << 20), "only a little higher");
        assert!(!due(&mut schedule, FIRST_NS + 501_000_000, 12 << 20), "compared a millisecond before");
        assert!(due(&mut schedule, FIRST_NS + 510_000_000, 12 << 20), "a new maximum");
        schedule.end(FIRST_NS + 510_000_000, 100_000);
        assert!(!due(&mut schedule, FIRST_NS + SECOND, 12 << 20));
        assert!(due(&mut schedule, FIRST_NS + SECOND + 510_000_000, 1 << 20), "a second later");
        schedule.stop();
        assert!(!due(&mut schedule, u64::MAX, u64::MAX));
        assert!(due(&mut Schedule::new(Some(Duration::from_secs(1)), true), 0, 0));
        assert!(!due(&mut Schedule::new(None, true), u64::MAX, u64::MAX));
    }

    #[test]
    fn a_long_recording_has_few_looks_and_they_cost_little() {
        let week = 7 * 24 * 3600 * SECOND;
        for cost_ns in [100_000, SECOND] {
            let mut schedule = Schedule::new(Some(Duration::from_secs(1)), false);
            let (mut looks, mut time_ns) = (0u64, 0);
            while time_ns < week {
                if schedule.begin_if_due(time_ns, || 1) {
                    looks += 1;
                    schedule.end(time_ns, cost_ns);
                }
                time_ns += SECOND;
            }
            assert!((500..4000).contains(&looks), "{looks}");
            assert!(looks * cost_ns <= week / 200, "{looks} looks of {cost_ns} ns");
        }
    }
}
