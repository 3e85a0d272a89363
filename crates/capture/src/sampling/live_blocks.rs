//! The addresses of the live blocks that were taken, so that a free of any other block can be passed on at once.
//!
//! There are two tables. [`FILTER`] counts the live blocks that were taken, by a hash of their address. A free looks
//! there first, and nearly always finds 0. The buckets hold the addresses themselves, in one of two places.
//!
//! Must hold: a block that is in a bucket is counted in the filter. It is counted before it is in a bucket, and until it
//! is in none. It gets into both before the program gets its address. So the free of a block that was taken is never
//! overlooked. Only the thread that removed an address from its bucket counts it down.
use super::FACTOR;
use super::heaps::NUMBERS;
use crate::core::CORE;
use crate::sys;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};

const BITS: u32 = 16;
/// How far the hash of an address is shifted to the right for its place in the filter.
pub const FILTER_SHIFT: u32 = 64 - BITS;
const PLACES: usize = 1 << BITS;
/// How many addresses a bucket holds: a cache line.
const WAYS: usize = 8;
/// A count never gets as far as to wrap: more threads than exist would have to add to it at the same moment.
const MOST: u16 = 60_000;

pub static FILTER: [AtomicU16; PLACES] = [const { AtomicU16::new(0) }; PLACES];
const HEAP_SHIFT: u32 = 48;
const ADDRESS: u64 = (1 << HEAP_SHIFT) - 1;
/// How many blocks in `BUCKETS` are in each heap, by its number.
static IN_HEAP: [AtomicU32; NUMBERS] = [const { AtomicU32::new(0) }; NUMBERS];
static BUCKETS: AtomicPtr<Buckets> = AtomicPtr::new(core::ptr::null_mut());

/// An address, with the number of its heap (`heaps.rs`) in the upper 16 bits. 0 = free.
type Bucket = [AtomicU64; WAYS];
type Buckets = [Bucket; PLACES];

/// Returns the buckets, and maps them if that was not done yet. `None` if it is not possible.
fn buckets() -> Option<&'static Buckets> {
    let buckets = BUCKETS.load(Ordering::Acquire);
    if buckets.is_null() {
        return if CORE.may_call() { map() } else { None };
    }
    // SAFETY: not null, so it is what `map` has mapped with this size, page-aligned and zeroed, which are empty buckets. It
    // stays mapped, and consists of atomics.
    unsafe { buckets.as_ref() }
}

/// Maps the buckets, unless another thread does it first.
#[cold]
fn map() -> Option<&'static Buckets> {
    let mapped = sys::map_private(size_of::<Buckets>())?.cast::<Buckets>();
    sys::keep_out_of_dumps(mapped.cast(), size_of::<Buckets>());
    let null = core::ptr::null_mut();
    let buckets = match BUCKETS.compare_exchange(null, mapped, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => mapped,
        Err(other) => {
            // SAFETY: `map_private` has just mapped this range, and no other code knows it.
            unsafe { sys::unmap(mapped.cast(), size_of::<Buckets>()) };
            other
        }
    };
    // SAFETY: either we or another thread have mapped it, as `buckets` says.
    unsafe { buckets.as_ref() }
}

/// Maps the buckets while the process can make system calls.
pub(super) fn prepare() {
    let _ = buckets();
}

/// Returns the places of an address. The first one is also its place in the filter.
const fn places(address: u64) -> (usize, usize) {
    let hash = address.wrapping_mul(FACTOR);
    ((hash >> FILTER_SHIFT) as usize, (hash >> (FILTER_SHIFT - BITS)) as usize & (PLACES - 1))
}

fn ways(buckets: &Buckets, (first, second): (usize, usize)) -> impl Iterator<Item = &AtomicU64> {
    [buckets.get(first), buckets.get(second)].into_iter().flatten().flatten()
}

/// Adds one to the number of blocks in a heap, or takes one away.
fn count_in_heap(heap: u16, change: i32) {
    if heap != 0
        && let Some(count) = IN_HEAP.get(heap as usize)
    {
        count.fetch_add(change as u32, Ordering::AcqRel);
    }
}

/// Adds a block that was taken. `heap` is the number of its heap, 0 = none. Returns false if there is no room for it. No
/// program gets an address of more than 48 bits unless it asks for one.
pub(crate) fn insert(address: u64, heap: u16) -> bool {
    if address & !ADDRESS != 0 {
        return false;
    }
    let word = address | (heap as u64) << HEAP_SHIFT;
    let places = places(address);
    let (Some(buckets), Some(count)) = (buckets(), FILTER.get(places.0)) else { return false };
    // It may be there already: another thread has moved the block that had this address, and is about to remove it. So
    // an address may be in the buckets several times.
    let is_counted = count.fetch_add(1, Ordering::AcqRel) < MOST;
    let is_in = is_counted
        && ways(buckets, places).any(|way| way.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if is_in {
        count_in_heap(heap, 1);
    } else {
        count.fetch_sub(1, Ordering::AcqRel);
    }
    is_in
}

/// Returns true if a block was taken.
pub(crate) fn has(address: u64) -> bool {
    let places = places(address);
    FILTER.get(places.0).is_some_and(|count| count.load(Ordering::Acquire) != 0)
        && buckets()
            .is_some_and(|buckets| ways(buckets, places).any(|way| way.load(Ordering::Acquire) & ADDRESS == address))
}

/// Removes a block that is about to be freed. Returns the number of its heap, or `None` if it was not taken.
pub fn remove(address: u64) -> Option<u16> {
    let places = places(address);
    let count = FILTER.get(places.0)?;
    if address == 0 || count.load(Ordering::Acquire) == 0 {
        return None;
    }
    let heap = ways(buckets()?, places).find_map(|way| take(way, address))?;
    count.fetch_sub(1, Ordering::AcqRel);
    count_in_heap(heap, -1);
    Some(heap)
}

/// Empties a way if it has this address. Returns the number of the heap that it had.
fn take(way: &AtomicU64, address: u64) -> Option<u16> {
    let mut word = way.load(Ordering::Acquire);
    // A second time, because another thread may have just deleted the heap, which changes the number.
    for _ in 0..2 {
        if word & ADDRESS != address {
            return None;
        }
        match way.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Some((word >> HEAP_SHIFT) as u16),
            Err(now) => word = now,
        }
    }
    None
}

/// Removes the blocks of a heap that has ended. If `stay`, they stay, but are in no heap any more.
///
/// This looks at up to 4 MB, but only if the heap has blocks that were taken. A block that another thread has got at one
/// of the addresses since the heap ended is not of this heap, and is left alone.
pub(super) fn end_heap(heap: u16, stay: bool) {
    let Some(left) = IN_HEAP.get(heap as usize).filter(|_| heap != 0) else { return };
    if left.load(Ordering::Acquire) == 0 {
        return;
    }
    let Some(buckets) = buckets() else { return };
    for way in buckets.iter().flatten() {
        let word = way.load(Ordering::Acquire);
        if (word >> HEAP_SHIFT) as u16 != heap {
            continue;
        }
        let address = word & ADDRESS;
        let new = if stay { address } else { 0 };
        if way.compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        if !stay && let Some(count) = FILTER.get(places(address).0) {
            count.fetch_sub(1, Ordering::AcqRel);
        }
        if left.fetch_sub(1, Ordering::AcqRel) <= 1 {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// The tables are those of the process, so one test uses them at a time.
    static TABLES: Mutex<()> = Mutex::new(());

    /// There is no recording here that could say whether system calls are allowed, so the buckets are mapped first.
    pub(in crate::sampling) fn tables() -> MutexGuard<'static, ()> {
        let one = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        if BUCKETS.load(Ordering::Acquire).is_null() {
            map().unwrap();
        }
        one
    }

    fn count_of(address: u64) -> u16 {
        FILTER[places(address).0].load(Ordering::SeqCst)
    }

    #[test]
    fn a_block_that_was_taken_is_found_once() {
        let _one = tables();
        let address = 0x7f00_1234_5670;
        assert_eq!(remove(address), None);
        assert!(insert(address, 0) && insert(address, 7));
        assert_eq!(count_of(address), 2);
        assert_eq!([remove(address), remove(address), remove(address)], [Some(0), Some(7), None]);
        assert_eq!(count_of(address), 0);
    }

    #[test]
    fn blocks_end_with_their_heap() {
        let _one = tables();
        let block = |number: u64| 0x5500_0000_0000 + 0x40 * number;
        for number in 0..30 {
            assert!(insert(block(number), (number % 3) as u16));
        }
        end_heap(1, false);
        end_heap(2, true);
        // Nothing is left in either heap.
        end_heap(1, false);
        end_heap(2, false);
        for number in 0..30 {
            let left = (number % 3 != 1).then_some(0);
            assert_eq!((remove(block(number)), count_of(block(number))), (left, 0), "{number}");
        }
    }

    #[test]
    fn threads_lose_no_block() {
        let _one = tables();
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                std::thread::spawn(move || {
                    let mut live = HashSet::new();
                    let mut random = worker + 1;
                    for _ in 0..100_000 {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                        let address = 0x10_0000_0000 * (worker + 1) + (random >> 50 << 4);
                        if live.remove(&address) {
                            assert!(count_of(address) > 0 && remove(address).is_some());
                        } else {
                            assert!(insert(address, (random >> 60) as u16));
                            live.insert(address);
                        }
                    }
                    live.into_iter().for_each(|address| assert!(remove(address).is_some()));
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }

    #[test]
    fn full_buckets_are_said() {
        let _one = tables();
        // Each step doubles the number of right digits.
        let inverse = (0..6).fold(FACTOR, |x, _| x.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(x))));
        // All of these have the same two places. A program's addresses have at most 47 bits.
        let with_places = (1..1 << 32).map(|low| (0x1234_5678_0000_0000u64 | low).wrapping_mul(inverse));
        let addresses: Vec<u64> = with_places.filter(|address| address >> 47 == 0).take(17).collect();
        assert!(addresses.iter().all(|address| places(*address) == (0x1234, 0x5678)));
        assert_eq!(addresses.iter().map(|address| insert(*address, 0)).filter(|is_in| *is_in).count(), 16);
        assert_eq!(addresses.iter().map(|address| remove(*address)).filter(Option::is_some).count(), 16);
        assert_eq!(count_of(addresses[0]), 0);
    }
}
