//! Numbers for the heaps of allocators that have live blocks in the sample. A number fits beside an address
//! (`live_blocks.rs`), so the blocks of a heap are found when the heap ends.
//!
//! Must hold: no loop without a bound. A heap that gets no number has no blocks in the sample; that is counted as a loss.
use super::{FACTOR, live_blocks};
use core::sync::atomic::{AtomicU64, Ordering};

const BITS: u32 = 10;
/// One more than the highest number. 0 is no heap.
pub(super) const NUMBERS: usize = (1 << BITS) + 1;
/// How many places are searched for a heap.
const PROBES: usize = 16;

/// The heap with each number, less one. 0 = the number is free.
static HEAPS: [AtomicU64; 1 << BITS] = [const { AtomicU64::new(0) }; 1 << BITS];

/// Returns the places where a heap may be, with their numbers.
fn places(heap: u64) -> impl Iterator<Item = (u16, &'static AtomicU64)> {
    let first = (heap.wrapping_mul(FACTOR) >> (u64::BITS - BITS)) as usize;
    (first..first + PROBES).filter_map(|place| {
        let place = place & (HEAPS.len() - 1);
        Some((place as u16 + 1, HEAPS.get(place)?))
    })
}

/// Returns the number of a heap, and gives it one if it has none. `None` if no number is free.
pub(crate) fn number(heap: u64) -> Option<u16> {
    if heap == 0 {
        return Some(0);
    }
    let known = places(heap).find(|(_, place)| place.load(Ordering::Acquire) == heap);
    let takes = |place: &AtomicU64| match place.compare_exchange(0, heap, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(other) => other == heap,
    };
    known.or_else(|| places(heap).find(|(_, place)| takes(place))).map(|(number, _)| number)
}

/// All blocks of the heap were freed.
pub(crate) fn end(heap: u64) {
    forget(heap, false);
}

/// The heap is gone, and its blocks are still there.
pub(crate) fn leave(heap: u64) {
    forget(heap, true);
}

fn forget(heap: u64, stay: bool) {
    if heap == 0 {
        return;
    }
    // Two threads may have given the heap a number at the same time.
    for (number, place) in places(heap).filter(|(_, place)| place.load(Ordering::Acquire) == heap) {
        live_blocks::end_heap(number, stay);
        let _ = place.compare_exchange(heap, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use live_blocks::tests::tables;

    #[test]
    fn a_heap_keeps_its_number_until_it_ends() {
        let _one = tables();
        let heap = 0x7f12_3456_7000;
        let first = number(heap);
        assert!(first.is_some_and(|number| number != 0 && usize::from(number) < NUMBERS));
        assert_eq!((number(heap), number(0)), (first, Some(0)));
        assert_ne!(number(heap + 0x40), first);
        end(heap);
        assert_eq!(places(heap).filter(|(_, place)| place.load(Ordering::Acquire) == heap).count(), 0);
        leave(heap + 0x40);
    }

    #[test]
    fn too_many_heaps_get_no_number() {
        let _one = tables();
        let heaps: Vec<u64> = (0..4096).map(|index| 0x7e00_0000_0000 + index * 0x1000).collect();
        let numbered = heaps.iter().filter(|heap| number(**heap).is_some()).count();
        assert!((512..=1024).contains(&numbered), "{numbered}");
        heaps.iter().for_each(|heap| end(*heap));
        assert!(heaps.iter().take(16).all(|heap| number(*heap).is_some()), "the numbers are free again");
        heaps.iter().for_each(|heap| end(*heap));
    }
}
