//! The live blocks of a walk: maps a sequence number to the data that is kept of the block.
//!
//! Sequence numbers are dense and most blocks die young. So each of the youngest blocks has a slot in a ring, whose
//! index is computed from the number. Older blocks are moved into chunks of neighbouring numbers, which become smaller
//! as their blocks die.
//!
//! ```text
//! chunks 0 1 2 3 ... | the ring: `start` ... `start` + its length
//! ```
//! If numbers are missing (folded events, lost blocks), there are no chunks for them.
//!
//! Must hold: memory is bounded by [`LiveBlocks::most_bytes`].
use crate::IntMap;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
const WORDS: usize = CHUNK / 64;
/// The most slots of the ring. They take 1 MB if only the allocation class is kept, which stays in the CPU cache.
const RING: usize = 1 << 18;
/// With at most this many blocks left in a chunk, a list takes less memory than a map.
const FEW: u32 = 128;

/// What is kept of a live block.
pub trait Kept: Copy {
    /// The mark of a slot whose block is dead.
    const DEAD: Self;
    fn is_dead(&self) -> bool;
    fn alloc_class(&self) -> u32;
}

/// Only the allocation class.
impl Kept for u32 {
    const DEAD: u32 = u32::MAX;
    #[inline]
    fn is_dead(&self) -> bool {
        *self == Self::DEAD
    }
    #[inline]
    fn alloc_class(&self) -> u32 {
        *self
    }
}

/// A chunk changes its form as its blocks die:
///
/// ```text
/// Dense -> Mapped -> Listed -> removed
/// ```
/// In every form, dead blocks stay until they are a quarter of all. So a live block takes at most 4/3 of its own size,
/// and moving the others costs four moves per death.
enum Chunk<K> {
    Empty,
    /// A slot for each number.
    Dense {
        live: u32,
        places: Box<[K]>,
    },
    Mapped {
        live: u32,
        map: Box<Map>,
        values: Box<[K]>,
    },
    /// Sorted by place in the chunk.
    Listed {
        live: u32,
        pairs: Box<[(u16, K)]>,
    },
}

/// The places of a chunk that have a value, and the index of each value.
struct Map([MapWord; WORDS]);

/// 64 places. The bits and their rank are beside each other, so that a look-up touches one cache line.
#[derive(Clone, Copy, Default)]
struct MapWord {
    bits: u64,
    /// The number of bits in all words before.
    rank: u32,
}

impl Map {
    fn rank(&mut self) {
        let mut count = 0;
        for word in &mut self.0 {
            word.rank = count;
            count += word.bits.count_ones();
        }
    }

    #[inline]
    fn find(&self, place: usize) -> Option<usize> {
        let word = self.0[place / 64 % WORDS];
        let bit = 1u64 << (place % 64);
        (word.bits & bit != 0).then(|| word.rank as usize + (word.bits & (bit - 1)).count_ones() as usize)
    }

    fn each(&self, mut each: impl FnMut(u16)) {
        for (number, word) in self.0.iter().enumerate() {
            let mut bits = word.bits;
            while bits != 0 {
                each(number as u16 * 64 + bits.trailing_zeros() as u16);
                bits &= bits - 1;
            }
        }
    }
}

/// What malloc adds to each box.
const MALLOC: u64 = 16;
/// One part in this many is lost between the boxes that malloc hands out, because their sizes change. Measured: 1/20.
const FRAGMENTED: u64 = 8;

/// Dead blocks stay until they are a quarter of all.
const fn of_dead_too(bytes: u64) -> u64 {
    bytes / 3 * 4
}

/// If at most this many of `all` blocks are live, the dead ones are thrown out.
#[inline]
const fn is_thin(live: u32, all: usize) -> bool {
    live as usize <= all - all.div_ceil(4)
}

/// The live blocks, by sequence number.
pub struct LiveBlocks<K> {
    /// A slot for each of the youngest blocks, by sequence number modulo the length, which is a power of two.
    ring: Vec<K>,
    /// The first sequence number of the ring, a multiple of `CHUNK`. All chunks are before it.
    start: u64,
    /// By number of the chunk. A chunk whose blocks are all dead is removed.
    chunks: IntMap<u64, Chunk<K>>,
}

impl<K> Default for LiveBlocks<K> {
    fn default() -> Self {
        LiveBlocks { ring: Vec::new(), start: 0, chunks: IntMap::default() }
    }
}

impl<K: Kept> LiveBlocks<K> {
    /// The most memory that this map takes for a trace with this many allocations, of which at most `live` are live at
    /// the same time. It includes what malloc adds.
    pub fn most_bytes(live: u64, allocations: u64) -> u64 {
        // A slot of the hash map, while it grows: the old and the new table, of which the old one is 7/8 full.
        let slot = (size_of::<(u64, Chunk<K>)>() as u64 + 1) * 3 * 8 / 7;
        let chunks = live.min(allocations / CHUNK as u64 + 1);
        let listed = chunks.saturating_mul(FEW as u64).min(live);
        let mapped = chunks.min(live / FEW as u64);
        // A chunk is listed or mapped, and never both.
        let lists = of_dead_too(listed * (size_of::<(u16, K)>() - size_of::<K>()) as u64);
        let maps = mapped * (size_of::<Map>() as u64 + MALLOC);
        let values = of_dead_too(live.saturating_mul(size_of::<K>() as u64));
        let ring = 3 * (RING * size_of::<K>()) as u64 / 2;
        let all = values.saturating_add(chunks * (slot + MALLOC)).saturating_add(lists.max(maps));
        ring + all + all / FRAGMENTED
    }

    /// Returns false if the file is malformed: the number is live already, or it is the highest possible one.
    #[inline]
    pub fn insert(&mut self, sequence: u64, kept: K) -> bool {
        match self.young(sequence) {
            Some(slot) => put(slot, kept),
            None => self.insert_far(sequence, kept),
        }
    }

    /// Removes a block, and returns what was kept of it.
    #[inline]
    pub fn remove(&mut self, sequence: u64) -> Option<K> {
        let Some(slot) = self.young(sequence) else { return self.remove_old(sequence) };
        let kept = std::mem::replace(slot, K::DEAD);
        if kept.is_dead() { None } else { Some(kept) }
    }

    /// What is kept of a live block.
    pub fn get(&self, sequence: u64) -> Option<K> {
        let length = self.ring.len();
        if sequence.wrapping_sub(self.start) < length as u64 {
            let slot = self.ring.get(sequence as usize & length.wrapping_sub(1))?;
            return (!slot.is_dead()).then_some(*slot);
        }
        let (number, place) = split(sequence);
        let kept = match self.chunks.get(&number)? {
            Chunk::Empty => return None,
            Chunk::Dense { places, .. } => places.get(place)?,
            Chunk::Mapped { map, values, .. } => values.get(map.find(place)?)?,
            Chunk::Listed { pairs, .. } => {
                let at = pairs.binary_search_by_key(&(place as u16), |pair| pair.0).ok()?;
                &pairs.get(at)?.1
            }
        };
        (!kept.is_dead()).then_some(*kept)
    }

    /// The slot of this number in the ring. `None` if the ring does not contain the number.
    #[inline]
    fn young(&mut self, sequence: u64) -> Option<&mut K> {
        let length = self.ring.len();
        if sequence.wrapping_sub(self.start) >= length as u64 {
            return None;
        }
        self.ring.get_mut(sequence as usize & length.wrapping_sub(1))
    }

    /// Inserts a block after the ring, which then moves, or before it, which happens only in malformed files.
    #[cold]
    #[inline(never)]
    fn insert_far(&mut self, sequence: u64, kept: K) -> bool {
        if sequence >= self.start {
            return self.reach(sequence) && self.young(sequence).is_some_and(|slot| put(slot, kept));
        }
        let (number, place) = split(sequence);
        let chunk = self.chunks.entry(number).or_insert(Chunk::Empty);
        let mut places = vec![K::DEAD; CHUNK];
        chunk.each(|place, kept| places[place as usize % CHUNK] = kept);
        let is_new = put(&mut places[place], kept);
        *chunk = Chunk::of(places.into());
        is_new
    }

    /// Moves or enlarges the ring so that it contains a number after it. Returns false for the highest numbers, which
    /// cannot be contained.
    fn reach(&mut self, sequence: u64) -> bool {
        let Some(end) = (sequence | (CHUNK as u64 - 1)).checked_add(1) else { return false };
        if sequence - self.start >= 2 * RING as u64 {
            self.jump(sequence);
        }
        while self.ring.len() < RING && sequence - self.start >= self.ring.len() as u64 {
            self.grow();
        }
        let start = end.saturating_sub(self.ring.len() as u64);
        while self.start < start {
            self.leave();
        }
        true
    }

    /// The number is far after the ring. Starts the ring again there, with a small size, so that the next jump is
    /// cheap.
    fn jump(&mut self, sequence: u64) {
        for _ in 0..self.ring.len() / CHUNK {
            self.leave();
        }
        self.ring.truncate(CHUNK);
        self.start = sequence & !(CHUNK as u64 - 1);
    }

    fn grow(&mut self) {
        let length = self.ring.len();
        let new = (2 * length).max(CHUNK);
        let old = std::mem::replace(&mut self.ring, vec![K::DEAD; new]);
        for at in (0..length).step_by(CHUNK) {
            let sequence = self.start as usize + at;
            let from = sequence & length.wrapping_sub(1);
            let to = sequence & (new - 1);
            self.ring[to..to + CHUNK].copy_from_slice(&old[from..from + CHUNK]);
        }
    }

    /// Moves the oldest blocks of the ring into a chunk.
    fn leave(&mut self) {
        let from = self.start as usize & (self.ring.len() - 1);
        let places = &mut self.ring[from..from + CHUNK];
        let chunk = Chunk::of(places.into());
        if chunk.live() > 0 {
            places.fill(K::DEAD);
            self.chunks.insert(self.start >> CHUNK_BITS, chunk);
        }
        self.start += CHUNK as u64;
    }

    #[inline(never)]
    fn remove_old(&mut self, sequence: u64) -> Option<K> {
        let (number, place) = split(sequence);
        let chunk = self.chunks.get_mut(&number)?;
        let (live, slot, all) = match chunk {
            Chunk::Empty => return None,
            Chunk::Dense { live, places } => (live, places.get_mut(place)?, CHUNK),
            Chunk::Mapped { live, map, values } => {
                let all = values.len();
                (live, values.get_mut(map.find(place)?)?, all)
            }
            Chunk::Listed { live, pairs } => {
                let all = pairs.len();
                let at = pairs.binary_search_by_key(&(place as u16), |pair| pair.0).ok()?;
                (live, &mut pairs.get_mut(at)?.1, all)
            }
        };
        let kept = std::mem::replace(slot, K::DEAD);
        if kept.is_dead() {
            return None;
        }
        *live -= 1;
        if *live == 0 {
            self.chunks.remove(&number);
        } else if is_thin(*live, all) {
            chunk.thin_out();
        }
        Some(kept)
    }

    /// Calls `each` with all blocks from `first` on, sorted by sequence number.
    pub fn each_from(&self, first: u64, mut each: impl FnMut(u64, K)) {
        let mut numbers: Vec<u64> = self.chunks.keys().copied().filter(|number| *number >= split(first).0).collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(chunk) = self.chunks.get(&number) else { continue };
            let start = number << CHUNK_BITS;
            chunk.each(|place, kept| {
                let sequence = start + place as u64;
                if sequence >= first {
                    each(sequence, kept);
                }
            });
        }
        let length = self.ring.len() as u64;
        for sequence in first.max(self.start)..self.start.saturating_add(length) {
            let kept = self.ring[(sequence & (length - 1)) as usize];
            if !kept.is_dead() {
                each(sequence, kept);
            }
        }
    }

    /// Removes all blocks. The next sequence number is `next`.
    pub fn clear(&mut self, next: u64) {
        *self = LiveBlocks { start: next & !(CHUNK as u64 - 1), ..LiveBlocks::default() };
    }
}

/// Returns false if the slot has a live block already.
#[inline]
fn put<K: Kept>(slot: &mut K, kept: K) -> bool {
    let is_free = slot.is_dead() && !kept.is_dead();
    if is_free {
        *slot = kept;
    }
    is_free
}

impl<K: Kept> Chunk<K> {
    /// Makes a chunk in the smallest form for its blocks.
    fn of(places: Box<[K]>) -> Self {
        let live = places.iter().filter(|kept| !kept.is_dead()).count() as u32;
        let mut chunk = Chunk::Dense { live, places };
        if is_thin(live, CHUNK) {
            chunk.thin_out();
        }
        chunk
    }

    #[cold]
    #[inline(never)]
    fn thin_out(&mut self) {
        let live = self.live();
        *self = if live == 0 {
            Chunk::Empty
        } else if live <= FEW {
            let mut pairs = Vec::with_capacity(live as usize);
            self.each(|place, kept| pairs.push((place, kept)));
            Chunk::Listed { live, pairs: pairs.into() }
        } else {
            let mut map = Box::new(Map([MapWord::default(); WORDS]));
            let mut values = Vec::with_capacity(live as usize);
            self.each(|place, kept| {
                map.0[place as usize / 64 % WORDS].bits |= 1 << (place % 64);
                values.push(kept);
            });
            map.rank();
            Chunk::Mapped { live, map, values: values.into() }
        };
    }

    const fn live(&self) -> u32 {
        match self {
            Chunk::Empty => 0,
            Chunk::Dense { live, .. } | Chunk::Mapped { live, .. } | Chunk::Listed { live, .. } => *live,
        }
    }

    /// Calls `each` with the live blocks, sorted by place.
    fn each(&self, mut each: impl FnMut(u16, K)) {
        let mut living = |place: u16, kept: K| {
            if !kept.is_dead() {
                each(place, kept);
            }
        };
        match self {
            Chunk::Empty => {}
            Chunk::Dense { places, .. } => places.iter().zip(0u16..).for_each(|(kept, place)| living(place, *kept)),
            Chunk::Listed { pairs, .. } => pairs.iter().for_each(|(place, kept)| living(*place, *kept)),
            Chunk::Mapped { map, values, .. } => {
                let mut values = values.iter();
                map.each(|place| {
                    if let Some(kept) = values.next() {
                        living(place, *kept);
                    }
                });
            }
        }
    }
}

#[inline]
const fn split(sequence: u64) -> (u64, usize) {
    (sequence >> CHUNK_BITS, (sequence & (CHUNK as u64 - 1)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of all boxes, without what malloc adds.
    fn bytes<K>(live: &LiveBlocks<K>) -> u64 {
        let boxes = live.chunks.values().map(|chunk| match chunk {
            Chunk::Empty => 0,
            Chunk::Dense { places, .. } => size_of_val(&**places),
            Chunk::Mapped { map, values, .. } => size_of_val(&**map) + size_of_val(&**values),
            Chunk::Listed { pairs, .. } => size_of_val(&**pairs),
        });
        let table = live.chunks.capacity() * 8 / 7 * (size_of::<(u64, Chunk<K>)>() + 1);
        (boxes.sum::<usize>() + table + size_of_val(&live.ring[..])) as u64
    }

    /// `live` blocks, each of which is replaced by a new one at random, until there were `allocations`.
    fn churn(live: u64, allocations: u64) -> LiveBlocks<u32> {
        let mut blocks = LiveBlocks::default();
        let mut numbers: Vec<u64> = (0..live).collect();
        numbers.iter().for_each(|number| assert!(blocks.insert(*number, 7)));
        let mut state = 1u64;
        for number in live..allocations {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = ((state >> 33) % live) as usize;
            assert_eq!(blocks.remove(numbers[at]), Some(7));
            assert!(blocks.insert(number, 7));
            numbers[at] = number;
        }
        blocks
    }

    #[test]
    fn memory_is_bounded_by_live_blocks() {
        // From dense chunks to chunks with a few blocks.
        for (live, allocations) in [(600_000, 600_000), (600_000, 1_200_000), (300_000, 3_000_000), (2000, 3_000_000)] {
            let taken = bytes(&churn(live, allocations));
            let most = LiveBlocks::<u32>::most_bytes(live, allocations);
            assert!(taken <= most, "{live} of {allocations}: {taken} bytes, {most} expected");
        }
        let per_block = bytes(&churn(600_000, 1_800_000)) as f64 / 600_000.0;
        assert!(per_block < 8.0, "{per_block} bytes per block");
        // The figures that a trace of a billion events needs.
        assert_eq!(LiveBlocks::<u32>::most_bytes(100_000_000, 500_000_000) >> 20, 730);
    }

    #[test]
    fn a_block_dies_once() {
        let mut live = LiveBlocks::default();
        assert!(live.insert(5, 50u32));
        assert!(!live.insert(5, 51));
        assert_eq!(live.remove(4), None);
        assert_eq!(live.remove(5), Some(50));
        assert_eq!(live.remove(5), None);
        assert_eq!(live.remove(u64::MAX), None);
    }

    #[test]
    fn old_blocks_are_found_dense_and_packed() {
        let mut live = LiveBlocks::default();
        const COUNT: u64 = RING as u64 + 100_000;
        for sequence in 0..COUNT {
            assert!(live.insert(sequence, sequence as u32 * 3));
        }
        let left_ring = (COUNT - RING as u64).div_ceil(CHUNK as u64) as usize;
        let of_sort = |live: &LiveBlocks<u32>, is: fn(&Chunk<u32>) -> bool| {
            live.chunks.values().filter(|chunk| is(chunk)).count()
        };
        assert_eq!(of_sort(&live, |chunk| matches!(chunk, Chunk::Dense { .. })), left_ring, "all live");
        for sequence in (0..COUNT).filter(|n| n % 10 != 0) {
            assert_eq!(live.remove(sequence), Some(sequence as u32 * 3));
        }
        assert_eq!(of_sort(&live, |chunk| matches!(chunk, Chunk::Mapped { .. })), left_ring, "1 of 10 is left");
        assert_eq!((live.get(50), live.get(51), live.get(COUNT - 1)), (Some(150), None, None));
        for sequence in (0..COUNT).filter(|n| n % 10 == 0 && n % 100 != 0) {
            assert_eq!(live.remove(sequence), Some(sequence as u32 * 3));
        }
        assert_eq!(of_sort(&live, |chunk| matches!(chunk, Chunk::Listed { .. })), left_ring, "1 of 100 is left");
        let mut left = Vec::new();
        live.each_from(50_001, |sequence, _| left.push(sequence));
        assert_eq!(left, (501..COUNT.div_ceil(100)).map(|n| n * 100).collect::<Vec<_>>());
        for sequence in (0..COUNT).filter(|n| n % 100 == 0) {
            assert_eq!(live.remove(sequence), Some(sequence as u32 * 3));
        }
        assert!(live.chunks.is_empty(), "chunks of dead blocks are gone");
        live.each_from(0, |sequence, _| assert_eq!(sequence, 0, "all are dead"));
    }

    #[test]
    fn going_back_loses_nothing() {
        let mut live = LiveBlocks::default();
        for sequence in [0, 10_000, 1, 2_000_000, 10_001, 300] {
            assert!(live.insert(sequence, 7u32));
        }
        assert!(!live.insert(300, 7), "it is live, in a chunk");
        for sequence in [0, 1, 300, 10_000, 10_001, 2_000_000] {
            assert_eq!(live.remove(sequence), Some(7));
        }
        assert!(live.insert(0, 9), "a number that died may come again");
    }

    /// As after folded events: a few blocks far apart, then consecutive ones.
    #[test]
    fn numbers_may_be_left_out() {
        let mut live = LiveBlocks::default();
        let far = |n: u64| n * n * 1_000_003;
        for n in 0..3000 {
            assert!(live.insert(far(n), n as u32));
        }
        let first = far(3000);
        for n in 0..600_000 {
            assert!(live.insert(first + n, 7));
        }
        let mut seen = Vec::new();
        live.each_from(far(2990), |sequence, _| seen.push(sequence));
        assert_eq!(seen[..10], (2990..3000).map(far).collect::<Vec<_>>());
        assert_eq!(seen.len(), 600_010);
        for n in (0..3000).rev() {
            assert_eq!(live.remove(far(n)), Some(n as u32));
        }
        assert_eq!((live.remove(first), live.remove(first - 1)), (Some(7), None));
    }

    #[test]
    fn after_an_end_numbers_go_on() {
        let mut live = LiveBlocks::default();
        for sequence in 0..1_000_000 {
            assert!(live.insert(sequence, 1u32));
        }
        live.clear(1_000_000);
        assert_eq!((live.remove(5), live.remove(999_999)), (None, None));
        for sequence in 1_000_000..2_000_000 {
            assert!(live.insert(sequence, 2));
        }
        let (mut count, mut first) = (0, None);
        live.each_from(0, |sequence, _| {
            count += 1;
            first.get_or_insert(sequence);
        });
        assert_eq!((count, first), (1_000_000, Some(1_000_000)));
        assert_eq!(live.remove(1_000_000), Some(2));
    }

    #[test]
    fn the_last_number_is_refused() {
        let mut live = LiveBlocks::default();
        assert!(live.insert(3, 1u32));
        assert!(!live.insert(u64::MAX, 1));
        assert!(live.insert((1000 << CHUNK_BITS) + 5, 1));
        assert_eq!(live.remove(3), Some(1));
        live.clear(u64::MAX);
        assert!(!live.insert(u64::MAX, 1));
        live.each_from(0, |sequence, _| assert_eq!(sequence, 0, "there is none"));
    }
}
