//! The addresses of the live blocks that were taken, so that a free of any other block can be passed on at once.
//!
//! There are two tables. [`FILTER`] counts the live blocks that were taken, by a hash of their address. A free looks
//! there first, and nearly always finds 0. The buckets hold the addresses themselves, in one of two places.
//!
//! Must hold: a block that is in a bucket is counted in the filter. It is counted before it is in a bucket, and until it
//! is in none. It gets into both before the program gets its address. So the free of a block that was taken is never
//! overlooked. Only the thread that removed an address from its bucket counts it down.
use super::FACTOR;
use crate::core::CORE;
use crate::sys;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering};

const BITS: u32 = 16;
/// How far the hash of an address is shifted to the right for its place in the filter.
pub const FILTER_SHIFT: u32 = 64 - BITS;
const PLACES: usize = 1 << BITS;
/// How many addresses a bucket holds: a cache line.
const WAYS: usize = 8;
/// A count never gets as far as to wrap: more threads than exist would have to add to it at the same moment.
const MOST: u16 = 60_000;

pub static FILTER: [AtomicU16; PLACES] = [const { AtomicU16::new(0) }; PLACES];
static BUCKETS: AtomicPtr<Buckets> = AtomicPtr::new(core::ptr::null_mut());

/// An address, 0 = free.
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

/// Adds a block that was taken. Returns false if there is no room for it.
pub(crate) fn insert(address: u64) -> bool {
    let places = places(address);
    let (Some(buckets), Some(count)) = (buckets(), FILTER.get(places.0)) else { return false };
    // It may be there already: another thread has moved the block that had this address, and is about to remove it. So
    // an address may be in the buckets several times.
    let is_counted = count.fetch_add(1, Ordering::AcqRel) < MOST;
    let is_in = is_counted
        && ways(buckets, places)
            .any(|way| way.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if !is_in {
        count.fetch_sub(1, Ordering::AcqRel);
    }
    is_in
}

/// Returns true if a block was taken.
pub(crate) fn has(address: u64) -> bool {
    let places = places(address);
    FILTER.get(places.0).is_some_and(|count| count.load(Ordering::Acquire) != 0)
        && buckets().is_some_and(|buckets| ways(buckets, places).any(|way| way.load(Ordering::Acquire) == address))
}

/// Removes a block that is about to be freed. Returns false if it was not taken.
pub fn remove(address: u64) -> bool {
    let places = places(address);
    let Some(count) = FILTER.get(places.0) else { return false };
    if count.load(Ordering::Acquire) == 0 {
        return false;
    }
    let Some(buckets) = buckets() else { return false };
    let is_removed =
        ways(buckets, places).any(|way| way.compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if is_removed {
        count.fetch_sub(1, Ordering::AcqRel);
    }
    is_removed
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// The tables are those of the process, so one test uses them at a time.
    static TABLES: Mutex<()> = Mutex::new(());

    /// There is no recording here that could say whether system calls are allowed, so the buckets are mapped first.
    fn tables() -> MutexGuard<'static, ()> {
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
        assert!(!remove(address));
        assert!(insert(address) && insert(address));
        assert_eq!(count_of(address), 2);
        assert!(remove(address) && remove(address) && !remove(address));
        assert_eq!(count_of(address), 0);
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
                            assert!(count_of(address) > 0 && remove(address));
                        } else {
                            assert!(insert(address));
                            live.insert(address);
                        }
                    }
                    live.into_iter().for_each(|address| assert!(remove(address)));
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
        // All of these have the same two places.
        let addresses: Vec<u64> = (1..=17).map(|low| (0x1234_5678_0000_0000u64 | low).wrapping_mul(inverse)).collect();
        assert!(addresses.iter().all(|address| places(*address) == (0x1234, 0x5678)));
        assert_eq!(addresses.iter().map(|address| insert(*address)).filter(|is_in| *is_in).count(), 16);
        assert_eq!(addresses.iter().map(|address| remove(*address)).filter(|was_in| *was_in).count(), 16);
        assert_eq!(count_of(addresses[0]), 0);
    }
}
