//! The program's own mappings, as a domain of the trace.
//!
//! Receives: the calls of mmap and its relatives, in order. Returns: raw blocks of the domain `mapped`, the number of calls, and the
//! mappings that exist. Must hold: the live bytes of the domain are those of the mappings that calls have made and no call has ended.
//!
//! A block of this domain is one mapping. If a part of it is unmapped or replaced, the block ends as in a realloc, and each
//! part that is left becomes a block with the same stack.
use crate::blocks::Block;
use crate::domain_recorder::DomainRecorder;
use crate::memory_parts::callers::MappedBy;
use crate::sink::Sink;
use channel::{CUSTOM, MapCall, PAGE_BITS};
use format::{Domain, MapCalls, Totals};
use std::collections::BTreeMap;
use std::ops::Range;

/// No address space is larger. Only a hostile ring has larger mappings.
const MOST_BYTES: u64 = CUSTOM - 1;
const PAGE_MASK: u64 = !((1 << PAGE_BITS) - 1);

/// A mapping that exists.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    end: u64,
    block: Block,
    stack: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    calls: u64,
    bytes: u64,
}

pub struct MappedRecorder {
    pub domain: DomainRecorder,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
    /// By call, in the order of `MapCall::ALL`.
    counts: [Count; MapCall::COUNT],
}

impl MappedRecorder {
    pub fn new() -> Self {
        MappedRecorder {
            domain: DomainRecorder::new(Domain::Mapped, Sink::trace()),
            mappings: BTreeMap::new(),
            counts: [Count::default(); MapCall::COUNT],
        }
    }

    /// The totals of the domain, or `None` if no call was recorded.
    pub fn totals(&self) -> Option<Totals> {
        self.is_used().then(|| self.domain.totals())
    }

    pub fn is_used(&self) -> bool {
        self.counts.iter().any(|count| count.calls > 0)
    }

    /// All calls that were recorded, by function. An mremap is counted once, with its new size.
    pub fn calls(&self) -> Vec<MapCalls> {
        let calls = MapCall::ALL.into_iter().zip(self.counts);
        let calls = calls.filter(|(call, count)| count.calls > 0 && *call != MapCall::MremapFrom);
        calls.map(|(call, Count { calls, bytes })| MapCalls { name: call.name().to_owned(), calls, bytes }).collect()
    }

    /// The mappings that exist, in the order of addresses.
    pub fn mappings(&self) -> impl Iterator<Item = MappedBy> {
        self.mappings.iter().map(|(start, mapping)| MappedBy { start: *start, end: mapping.end, stack: mapping.stack })
    }

    /// Takes a call. The domain must know the thread and the time. `address` and `pages` are those of the event.
    pub fn take(&mut self, call: MapCall, address: u64, pages: u64, stack: u32) {
        let start = address & MOST_BYTES & PAGE_MASK;
        let mut bytes = (pages << PAGE_BITS).min(MOST_BYTES & PAGE_MASK);
        match call {
            MapCall::Mmap | MapCall::Mremap | MapCall::Shmat => {
                self.end(start..start + bytes);
                self.begin(start..start + bytes, stack);
            }
            MapCall::Munmap | MapCall::MremapFrom => self.end(start..start + bytes),
            MapCall::Shmdt => {
                bytes = self.mappings.get(&start).map_or(0, |mapping| mapping.end - start);
                self.end(start..start + bytes);
            }
            MapCall::DontNeed | MapCall::Free => (),
        }
        if let Some(count) = self.counts.get_mut(call as usize - MapCall::Mmap as usize) {
            count.calls += 1;
            count.bytes = count.bytes.saturating_add(bytes);
        }
    }

    /// Forgets all mappings: the program has replaced itself.
    pub fn clear(&mut self) {
        self.mappings.clear();
    }

    fn begin(&mut self, range: Range<u64>, stack: u32) {
        if range.is_empty() {
            return;
        }
        let class = self.domain.class_of(range.end - range.start, stack);
        let block = self.domain.next_block(class);
        self.domain.alloc(block);
        self.mappings.insert(range.start, Mapping { end: range.end, block, stack });
    }

    /// Ends everything that is known to be mapped in a range.
    fn end(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.mappings.range(..range.start).next_back().filter(|(_, mapping)| mapping.end > range.start);
        let first = before.map_or(range.start, |(start, _)| *start);
        let touched: Vec<(u64, Mapping)> =
            self.mappings.range(first..range.end).map(|(start, mapping)| (*start, *mapping)).collect();
        for (start, Mapping { end, block, stack }) in touched {
            self.mappings.remove(&start);
            let rest = [start..range.start, range.end..end];
            let is_divided = rest.iter().any(|rest| !rest.is_empty());
            self.domain.free(block, is_divided);
            rest.into_iter().for_each(|rest| self.begin(rest, stack));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const PAGE: u64 = 1 << PAGE_BITS;

    fn live(recorder: &MappedRecorder) -> Vec<(u64, u64, u32)> {
        let pages = |(start, mapping): (&u64, &Mapping)| (start / PAGE, mapping.end / PAGE, mapping.stack);
        recorder.mappings.iter().map(pages).collect()
    }

    #[test]
    fn parts_of_mappings_end() {
        let mut recorder = MappedRecorder::new();
        let mut take = |call, page: u64, pages, stack| {
            recorder.take(call, CUSTOM | (page * PAGE), pages, stack);
            let totals = recorder.domain.totals();
            (live(&recorder), totals.leaked_bytes / PAGE, totals.allocations)
        };
        assert_eq!(take(MapCall::Mmap, 100, 10, 1), (vec![(100, 110, 1)], 10, 1));
        assert_eq!(
            take(MapCall::Munmap, 90, 12, 0),
            (vec![(102, 110, 1)], 8, 2),
            "its head, and pages of no known mapping"
        );
        assert_eq!(take(MapCall::Munmap, 104, 2, 0), (vec![(102, 104, 1), (106, 110, 1)], 6, 4), "its middle");
        assert_eq!(take(MapCall::Mmap, 103, 4, 2).0, [(102, 103, 1), (103, 107, 2), (107, 110, 1)], "over both");
        assert_eq!(take(MapCall::DontNeed, 103, 4, 3).1, 8);
        let moved = take(MapCall::MremapFrom, 103, 4, 0);
        assert_eq!(moved.0, [(102, 103, 1), (107, 110, 1)]);
        assert_eq!(take(MapCall::Mremap, 200, 6, 4).0, [(102, 103, 1), (107, 110, 1), (200, 206, 4)]);
        assert_eq!(take(MapCall::Munmap, 0, 1 << 40, 0).0, []);
        assert_eq!(take(MapCall::Shmat, 300, 5, 5).1, 5);
        assert_eq!((take(MapCall::Shmdt, 301, 0, 0).1, take(MapCall::Shmdt, 300, 0, 0).1), (5, 0));
        let calls: Vec<(String, u64, u64)> =
            recorder.calls().into_iter().map(|call| (call.name, call.calls, call.bytes / PAGE)).collect();
        let call = |name: &str, calls, pages| (name.to_owned(), calls, pages);
        assert_eq!(calls[0], call("mmap", 2, 14));
        assert_eq!((calls[1].1, calls[2].clone()), (3, call("mremap", 1, 6)));
        assert_eq!(calls[3..], [call("shmat", 1, 5), call("shmdt", 2, 5), call("madvise(MADV_DONTNEED)", 1, 4)]);
    }

    /// Compares with a table of single pages.
    #[test]
    fn behaves_like_pages() {
        for seed in 1..=50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut recorder, mut model) = (MappedRecorder::new(), HashMap::new());
            for stack in 1..300 {
                let (page, pages) = (rng.u64(1..64), rng.u64(0..16));
                let call = rng.choice([MapCall::Mmap, MapCall::Munmap]).unwrap_or(MapCall::Mmap);
                recorder.take(call, CUSTOM | (page * PAGE), pages, stack);
                for page in page..page + pages {
                    _ = if call == MapCall::Mmap { model.insert(page, stack) } else { model.remove(&page) };
                }
                let mut found = HashMap::new();
                for (start, end, stack) in live(&recorder) {
                    (start..end).for_each(|page| assert_eq!(found.insert(page, stack), None, "seed {seed}"));
                }
                assert_eq!(found, model, "seed {seed}");
                assert_eq!(recorder.domain.totals().leaked_bytes, model.len() as u64 * PAGE, "seed {seed}");
            }
        }
    }
}
