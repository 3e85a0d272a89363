//! Where the processes of one tree get shared memory of their own.
//!
//! One page, mapped by every process that is followed and inherited by what it forks. The collector offers shared memory
//! that nobody uses yet; a process that finds itself in need (a forked child, a program that was executed) takes one offer by
//! one exchange and opens it as `/proc/COLLECTOR/fd/N`. Nobody answers for it, so nobody can be waited for longer than the
//! taker likes.
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub const HUB_MAGIC: u64 = u64::from_le_bytes(*b"HTHUB__1");
/// Offers that can stand at the same time.
pub const OFFERS: usize = 32;

/// One place for an offer.
///
/// ```text
///  63      32 31          0
/// | taker    | fd + 1      |     0: no offer
///
///          collector             target, one exchange       collector: its session has begun, or the taker is gone
///   None ------------> Open(fd) ----------------------> Taken ---------------------------------------------------> None
/// ```
#[repr(transparent)]
pub struct Offer(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferState {
    None,
    Open { fd: u32 },
    Taken { fd: u32, pid: u32 },
}

impl Offer {
    pub fn state(&self) -> OfferState {
        let word = self.0.load(Ordering::Acquire);
        match ((word as u32).checked_sub(1), (word >> 32) as u32) {
            (None, _) => OfferState::None,
            (Some(fd), 0) => OfferState::Open { fd },
            (Some(fd), pid) => OfferState::Taken { fd, pid },
        }
    }

    /// Collector: puts an offer up.
    pub fn put(&self, fd: u32) {
        self.0.store(fd as u64 + 1, Ordering::Release);
    }

    /// Collector: takes it down.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Target: the descriptor's number in the collector, if the offer is now the caller's.
    pub fn take(&self, pid: u32) -> Option<u32> {
        let word = self.0.load(Ordering::Acquire);
        let fd = (word as u32).checked_sub(1)?;
        let taken = word | (pid as u64) << 32;
        let is_open = word >> 32 == 0;
        (is_open && self.0.compare_exchange(word, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()).then_some(fd)
    }
}

/// "C" = written by the collector, "T" = by targets.
#[repr(C)]
pub struct Hub {
    /// C, before the first target starts.
    pub magic: u64,
    pub version: u32,
    pub collector_pid: u32,
    /// C: robust futex; the kernel sets `FUTEX_OWNER_DIED` when the collector dies.
    pub collector_alive: AtomicU32,
    /// T: futex, one more for every offer that was taken.
    pub doorbell: AtomicU32,
    /// C: futex, one more for every offer that was put up.
    pub served: AtomicU32,
    /// T: processes that got nothing and run unwatched.
    pub missed: AtomicU32,
    pub offers: [Offer; OFFERS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Hub>() <= crate::geometry::PAGE);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_taken_once() {
        let offer = Offer(AtomicU64::new(0));
        assert_eq!((offer.state(), offer.take(7)), (OfferState::None, None));
        offer.put(0);
        assert_eq!(offer.state(), OfferState::Open { fd: 0 });
        assert_eq!((offer.take(7), offer.take(8)), (Some(0), None));
        assert_eq!(offer.state(), OfferState::Taken { fd: 0, pid: 7 });
        offer.clear();
        assert_eq!(offer.state(), OfferState::None);
    }
}
