//! Finds the block of a free if the file names only its size and stack.
//!
//! Receives: the allocation classes of allocations and frees, in order. Returns: for each free, the youngest live block
//! of that allocation class. Blocks of one allocation class are equal, so no cost depends on the choice. Must hold:
//! memory is bounded by live blocks, and blocks with adjacent numbers share one entry.
use crate::{PeakTracker, Totals};

const NONE: u32 = u32::MAX;
/// The most live blocks that we accept: a few bytes of a packed file can claim any number of them. Unit tests reach it with
/// a small file.
pub(crate) const MOST_LIVE: u64 = if cfg!(test) { 1000 } else { 1 << 28 };

/// An allocation class: its size and the entry of its youngest blocks.
#[derive(Clone, Copy)]
struct Known {
    size: u64,
    youngest: u32,
}

/// Blocks of one allocation class with consecutive sequence numbers, `first..first + count`.
#[derive(Clone, Copy)]
struct Run {
    first: u64,
    count: u32,
    /// The next older run of the same allocation class, or the next unused entry.
    older: u32,
}

pub(crate) struct Pairs {
    alloc_classes: Vec<Known>,
    runs: Vec<Run>,
    unused: u32,
    /// The allocation class of the last allocation, or 0 after any free, as KDE's reader keeps it for temporary blocks.
    last: u32,
    /// The time of the events that follow.
    pub(crate) now_ns: u64,
    pub(crate) heap: PeakTracker,
    /// All totals but those of `heap`, runtime and resident memory.
    pub(crate) totals: Totals,
}

impl Default for Pairs {
    fn default() -> Self {
        Pairs {
            alloc_classes: Vec::new(),
            runs: Vec::new(),
            unused: NONE,
            last: 0,
            now_ns: 0,
            heap: PeakTracker::default(),
            totals: Totals::default(),
        }
    }
}

/// The block that a free belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    Block(u64),
    /// All blocks of that allocation class are freed already.
    Unknown,
    /// There is no such allocation class.
    NoAllocClass,
}

impl Pairs {
    pub(crate) fn define(&mut self, size: u64) {
        self.alloc_classes.push(Known { size, youngest: NONE });
    }

    pub(crate) const fn alloc_classes(&self) -> usize {
        self.alloc_classes.len()
    }

    /// Loads the entries of these allocation classes into the cache, because they are needed soon.
    #[inline]
    pub(crate) fn touch(&self, alloc_classes: &[u32]) {
        let mut sum = 0;
        for alloc_class in alloc_classes {
            let youngest = self.alloc_classes.get(*alloc_class as usize).map_or(NONE, |known| known.youngest);
            sum ^= self.runs.get(youngest as usize).map_or(0, |run| run.count);
        }
        std::hint::black_box(sum);
    }

    /// Adds block `sequence` of `alloc_class`. Returns false if there is no such allocation class.
    #[inline]
    pub(crate) fn alloc(&mut self, alloc_class: u32, sequence: u64) -> bool {
        let Some(known) = self.alloc_classes.get_mut(alloc_class as usize) else { return false };
        self.last = alloc_class;
        let totals = &mut self.totals;
        totals.allocations += 1;
        // Only a file with wrong sizes can make this wrap, and the number that users see is the engine's own count.
        totals.allocated_bytes = totals.allocated_bytes.wrapping_add(known.size);
        self.heap.alloc_at(known.size, self.now_ns);
        if let Some(run) = self.runs.get_mut(known.youngest as usize)
            && run.first + run.count as u64 == sequence
            && run.count < u32::MAX
        {
            run.count += 1;
            return true;
        }
        let run = Run { first: sequence, count: 1, older: known.youngest };
        known.youngest = match self.runs.get_mut(self.unused as usize) {
            Some(entry) => {
                let place = self.unused;
                self.unused = entry.older;
                *entry = run;
                place
            }
            None => {
                self.runs.push(run);
                self.runs.len() as u32 - 1
            }
        };
        true
    }

    /// Frees the youngest block of `alloc_class`.
    #[inline]
    pub(crate) fn free(&mut self, alloc_class: u32) -> Freed {
        let Some(known) = self.alloc_classes.get_mut(alloc_class as usize) else { return Freed::NoAllocClass };
        let is_temporary = self.last == alloc_class;
        self.last = 0;
        let Some(run) = self.runs.get_mut(known.youngest as usize) else { return Freed::Unknown };
        run.count -= 1;
        let sequence = run.first + run.count as u64;
        if run.count == 0 {
            let place = known.youngest;
            known.youngest = run.older;
            run.older = self.unused;
            self.unused = place;
        }
        let totals = &mut self.totals;
        totals.deallocations += 1;
        totals.temporary += is_temporary as u64;
        self.heap.free(known.size);
        Freed::Block(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(sizes: &[u64]) -> Pairs {
        let mut pairs = Pairs::default();
        sizes.iter().for_each(|size| pairs.define(*size));
        pairs
    }

    #[test]
    fn the_youngest_block_of_an_allocation_class_goes_first() {
        let mut pairs = pairs(&[8, 16]);
        for (sequence, alloc_class) in [0, 0, 1, 0].into_iter().enumerate() {
            assert!(pairs.alloc(alloc_class, sequence as u64));
        }
        let freed: Vec<Freed> = [0, 0, 1, 0, 0, 2].into_iter().map(|alloc_class| pairs.free(alloc_class)).collect();
        let block = Freed::Block;
        assert_eq!(freed, [block(3), block(1), block(2), block(0), Freed::Unknown, Freed::NoAllocClass]);
        assert_eq!((pairs.heap.peak_bytes, pairs.heap.live_bytes, pairs.totals.allocated_bytes), (40, 0, 40));
        assert!(!pairs.alloc(2, 4));
    }

    #[test]
    fn entries_are_used_again() {
        let mut pairs = pairs(&[1, 1]);
        for sequence in 0..1000 {
            pairs.alloc(sequence as u32 % 2, sequence);
            assert_eq!(pairs.free(sequence as u32 % 2), Freed::Block(sequence));
        }
        assert_eq!(pairs.runs.len(), 1);
    }

    /// How KDE's reader counts: by allocation class and not by block, and class 0 after every free.
    #[test]
    fn temporary_is_what_kde_takes_for_it() {
        let count = |events: &[(char, u32)]| {
            let mut pairs = pairs(&[1; 6]);
            for (sequence, (what, alloc_class)) in events.iter().enumerate() {
                match what {
                    '+' => assert!(pairs.alloc(*alloc_class, sequence as u64)),
                    _ => assert!(matches!(pairs.free(*alloc_class), Freed::Block(_))),
                }
            }
            pairs.totals.temporary
        };
        assert_eq!(count(&[('+', 5), ('+', 5), ('-', 5), ('-', 5)]), 1);
        assert_eq!(count(&[('+', 0), ('+', 1), ('-', 1), ('-', 0)]), 2);
        assert_eq!(count(&[('+', 4), ('+', 5), ('-', 4), ('-', 5)]), 0);
    }
}
