//! Where the processes of a followed tree (`--follow`, `heaptrace`) get shared memory of their own.
//!
//! The hub is one page. Every followed process maps it, and its forked children inherit the mapping. The collector
//! keeps unused shared memory on offer. A process that needs some (a forked child, or a program after an exec) takes
//! one offer with a single compare-and-swap and opens it as `/proc/COLLECTOR/fd/N`. No answer of the collector is
//! needed, so the process decides for itself how long it waits for an offer.
use crate::starts::{STARTS, StartRequest, UNRECORDED, UnrecordedProgram};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub const HUB_MAGIC: u64 = u64::from_le_bytes(*b"HTHUB__1");
/// The room for the names of programs.
pub const NAMES: usize = 256;
/// The most offers at the same time.
pub const OFFERS: usize = 32;

/// One place for an offer.
///
/// ```text
///  63      32 31          0
/// | taker    | fd + 1      |     0: no offer
///
///        collector            target, one exchange         collector: the taker has joined
///   None ----------> Open(fd) ---------------------> Taken -------------------------------> None
///                       ^                              |
///                       +--- collector: the taker died before it joined
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

    /// Collector: offers the shared memory behind this descriptor.
    pub fn put(&self, fd: u32) {
        self.0.store(fd as u64 + 1, Ordering::Release);
    }

    /// Collector: empties the place, after the process that took the offer has joined.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Target: takes the offer. Returns the descriptor's number in the collector, or `None` if there is no offer or
    /// another process took it.
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
    /// T: futex, incremented for every offer that was taken. If `is_shared`, it takes the place of `Header::doorbell`.
    pub doorbell: AtomicU32,
    /// C, before the first target starts: nonzero = one thread collects the events of all processes. It waits for this
    /// doorbell.
    pub is_shared: u32,
    /// If `is_shared`, it takes the place of `Header::collector_asleep`.
    pub collector_asleep: AtomicU32,
    /// C: futex, incremented after new offers were made.
    pub served: AtomicU32,
    /// T: how many processes could not join and run unrecorded, for example because they found no offer.
    pub missed: AtomicU32,
    /// T: incremented for every process that joins.
    pub joined: AtomicU32,
    /// T: how long processes have waited for offers, in nanoseconds, summed over all processes.
    pub waited_ns: AtomicU64,
    pub offers: [Offer; OFFERS],
    /// C, before the first target starts: the names of the programs that are recorded, with commas between them and zeros
    /// after them. Empty = all programs.
    pub names: [u8; NAMES],
    /// C: nonzero while a thread of the profiler answers `starts`.
    pub answers_starts: AtomicU32,
    /// C: how long a thread of a process that has executed a program may wait until the profiler has patched modules, in
    /// milliseconds, if `Header::loading` does not say it. 0 = no thread asks.
    pub loading_patience_ms: AtomicU32,
    /// T: futex, incremented for every new request in `starts`, and for every question by `Header::loading`.
    pub starts_bell: AtomicU32,
    pub starts: [StartRequest; STARTS],
    /// T: the programs that ran unrecorded, and how many runs have no place there.
    pub unrecorded: [UnrecordedProgram; UNRECORDED],
    pub more_unrecorded: AtomicU32,
    /// T: what `served` was, plus one, when a process last waited for an offer in vain. Until new offers are made, a process
    /// that is about to end does not wait for one.
    pub vain: AtomicU32,
}

impl Hub {
    /// Returns true if a program of this name is recorded. `length` is the number of its bytes that count.
    pub fn wants(&self, name: &[u8], length: usize) -> bool {
        let end = self.names.iter().position(|byte| *byte == 0).unwrap_or(NAMES);
        let cut = |text: &'_ [u8]| text.len().min(length);
        let is_same = |known: &[u8]| known.get(..cut(known)) == name.get(..cut(name));
        end == 0 || self.names.get(..end).is_some_and(|names| names.split(|byte| *byte == b',').any(is_same))
    }

    /// Target: returns true for the first thread that finds the collector asleep.
    pub fn wants_bell(&self) -> bool {
        let asleep = &self.collector_asleep;
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }
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
