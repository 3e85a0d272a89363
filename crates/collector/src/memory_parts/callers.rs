//! Which call of the program made a page: the mappings that `mapped.rs` knows, for pages in ascending order.
use super::parts::Ratio;
use super::resident_pages::{PageMap, Residence};
use super::smaps::MappedRange;
use std::collections::BTreeMap;

/// A mapping that the program made itself, and the stack of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedBy {
    pub start: u64,
    pub end: u64,
    pub stack: u32,
}

/// Finds the calls that made pages. The pages must come in ascending order.
pub struct Callers<'a> {
    /// In the order of addresses.
    calls: &'a [MappedBy],
    at: usize,
}

impl<'a> Callers<'a> {
    /// For pages from `start` on.
    pub fn from(calls: &'a [MappedBy], start: u64) -> Self {
        Callers { calls, at: calls.partition_point(|call| call.end <= start) }
    }

    /// Returns the stack of the call that made the page at `address`, or `None` if no call is known.
    pub fn of(&mut self, address: u64) -> Option<u32> {
        while self.calls.get(self.at).is_some_and(|call| call.end <= address) {
            self.at += 1;
        }
        self.calls.get(self.at).filter(|call| call.start <= address).map(|call| call.stack)
    }
}

/// The resident bytes of each caller: those that are sure to count as resident, and the others.
#[derive(Debug, Default)]
pub struct ByCaller {
    bytes: BTreeMap<Option<u32>, (u64, u64)>,
}

impl ByCaller {
    pub fn add(&mut self, caller: Option<u32>, is_sure: bool, bytes: u64) {
        let (sure, unsure) = self.bytes.entry(caller).or_default();
        *(if is_sure { sure } else { unsure }) += bytes;
    }

    /// The bytes of each caller, scaled to those that the kernel says are resident.
    pub fn scaled(&self, of_sure: Ratio, of_unsure: Ratio) -> impl Iterator<Item = (Option<u32>, u64)> {
        self.bytes.iter().map(move |(caller, (sure, unsure))| (*caller, of_sure.of(*sure) + of_unsure.of(*unsure)))
    }
}

/// The pages of a mapping without a known call that is more times larger than its resident pages are not read.
pub const MOST_SPARSE: u64 = 64;

/// Returns the resident bytes of a mapping without blocks by caller. They add up to `rss_bytes` at most. They are less if the program
/// has unmapped pages since, whose calls are not known any more. `None` if the pages cannot be read.
pub fn divide(
    mapping: &MappedRange,
    calls: &[MappedBy],
    pages: Option<&PageMap>,
    page: u64,
) -> Option<Vec<(Option<u32>, u64)>> {
    let first = calls.partition_point(|call| call.end <= mapping.start);
    let call = calls.get(first).filter(|call| call.start < mapping.end);
    match call {
        Some(call) if call.start <= mapping.start && call.end >= mapping.end => {
            return Some(vec![(Some(call.stack), mapping.rss_bytes)]);
        }
        None if pages.is_none() || mapping.size() / MOST_SPARSE > mapping.rss_bytes => return None,
        _ => {}
    }
    let (mut callers, mut by_caller) = (Callers::from(calls, mapping.start), ByCaller::default());
    let (mut sure, mut unsure) = (0, 0);
    let mut add = |address: u64, residence: Residence| {
        let is_sure = residence == Residence::Resident;
        if residence != Residence::Absent {
            by_caller.add(callers.of(address), is_sure, page);
            *(if is_sure { &mut sure } else { &mut unsure }) += page;
        }
    };
    if let Some(pages) = pages {
        pages.for_each(mapping.start, mapping.end, add).ok()?;
    } else if mapping.rss_bytes == mapping.size() {
        (mapping.start..mapping.end).step_by(page as usize).for_each(|address| add(address, Residence::Resident));
    } else {
        return None;
    }
    let of_unsure = Ratio(mapping.rss_bytes.saturating_sub(sure), unsure);
    Some(by_caller.scaled(Ratio(mapping.rss_bytes, sure), of_unsure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_belong_to_the_calls_that_made_them() {
        let call = |start: u64, end: u64, stack| MappedBy { start: start << 12, end: end << 12, stack };
        let calls = [call(10, 14, 1), call(14, 16, 2), call(20, 30, 3)];
        let mut callers = Callers::from(&calls, 12 << 12);
        let found: Vec<Option<u32>> = (12..22).map(|page| callers.of(page << 12)).collect();
        assert_eq!(found[..4], [Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(found[4..], [None, None, None, None, Some(3), Some(3)]);
        let mapping = |start: u64, end: u64| MappedRange {
            start: start << 12,
            end: end << 12,
            rss_bytes: (end - start) << 12,
            ..MappedRange::default()
        };
        let divided = |start, end| divide(&mapping(start, end), &calls, None, 4096);
        assert_eq!(divided(16, 20), None);
        assert_eq!(divided(21, 24), Some(vec![(Some(3), 3 << 12)]));
        let expected = vec![(None, 4 << 12), (Some(1), 2 << 12), (Some(2), 2 << 12), (Some(3), 1 << 12)];
        assert_eq!(divided(12, 21), Some(expected));
        let partly = MappedRange { rss_bytes: 4096, ..mapping(12, 21) };
        assert_eq!(divide(&partly, &calls, None, 4096), None, "its pages cannot be read");
    }
}
