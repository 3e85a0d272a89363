//! The live blocks: sequence number -> what is kept of a block.
//!
//! Sequence numbers are dense and most blocks die young, so a table in chunks of neighbours is both small and fast:
//! a chunk is dropped when its last block dies, and packed when few are left.
const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
const WORDS: usize = CHUNK / 64;
/// With so few blocks left in a chunk, a list takes less room than a map.
const FEW: u32 = 32;
/// Chunks that may be left out in a file: a hole of 16 G allocations. A file with a larger one lies.
const HOLES: usize = 1 << 22;

/// What is kept of a live block.
pub(crate) trait Kept: Copy {
    /// The mark of a place whose block is dead.
    const DEAD: Self;
    /// With so few blocks left in a chunk, a map takes less room than places.
    const MANY: u32;
    fn is_dead(&self) -> bool;
    fn info(&self) -> u32;
}

/// Only the info.
impl Kept for u32 {
    const DEAD: u32 = u32::MAX;
    const MANY: u32 = 256;
    #[inline]
    fn is_dead(&self) -> bool {
        *self == u32::MAX
    }
    #[inline]
    fn info(&self) -> u32 {
        *self
    }
}

/// A chunk grows old:
///
/// ```text
/// Dense -> Mapped -> Listed -> Empty
/// ```
/// In the last two but one, dead blocks stay until they are half of all.
enum Chunk<K> {
    Empty,
    /// A place for each.
    Dense {
        live: u32,
        places: Box<[K]>,
    },
    Mapped {
        live: u32,
        map: Box<Map>,
        values: Vec<K>,
    },
    /// By place in the chunk.
    Listed {
        live: u32,
        pairs: Vec<(u16, K)>,
    },
}

/// Which places of a chunk have a value, and which value.
struct Map {
    bits: [u64; WORDS],
    /// Bits in all words before.
    ranks: [u16; WORDS],
}

impl Map {
    fn rank(&mut self) {
        let mut count = 0;
        for (rank, bits) in self.ranks.iter_mut().zip(&self.bits) {
            *rank = count;
            count += bits.count_ones() as u16;
        }
    }

    #[inline]
    fn find(&self, place: usize) -> Option<usize> {
        let word = place / 64 % WORDS;
        let bits = self.bits[word];
        let bit = 1u64 << (place % 64);
        (bits & bit != 0).then(|| self.ranks[word] as usize + (bits & (bit - 1)).count_ones() as usize)
    }

    fn each(&self, mut each: impl FnMut(u16)) {
        for (word, bits) in self.bits.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                each(word as u16 * 64 + bits.trailing_zeros() as u16);
                bits &= bits - 1;
            }
        }
    }
}

pub(crate) struct Live<K> {
    /// By number.
    chunks: Vec<Chunk<K>>,
    holes: usize,
    /// The chunk that allocations go to now.
    current: usize,
}

impl<K> Default for Live<K> {
    fn default() -> Self {
        Live { chunks: Vec::new(), holes: 0, current: 0 }
    }
}

impl<K: Kept> Live<K> {
    /// False: that number is live already, or far beyond what can be, so the file lies.
    #[inline]
    pub(crate) fn insert(&mut self, sequence: u64, kept: K) -> bool {
        let (number, place) = split(sequence);
        if let Some(Chunk::Dense { live, places }) = self.chunks.get_mut(number)
            && let Some(slot) = places.get_mut(place)
        {
            if !slot.is_dead() || kept.is_dead() {
                return false;
            }
            *slot = kept;
            *live += 1;
            return true;
        }
        self.open(number) && self.insert(sequence, kept)
    }

    /// What was kept of the block that dies.
    #[inline]
    pub(crate) fn remove(&mut self, sequence: u64) -> Option<K> {
        let (number, place) = split(sequence);
        let Some(Chunk::Dense { live, places }) = self.chunks.get_mut(number) else {
            return self.remove_old(number, place);
        };
        let slot = places.get_mut(place)?;
        if slot.is_dead() {
            return None;
        }
        let kept = std::mem::replace(slot, K::DEAD);
        *live -= 1;
        if *live <= K::MANY && number != self.current {
            self.thin_out(number);
        }
        Some(kept)
    }

    /// From a chunk in which few are left.
    #[inline(never)]
    fn remove_old(&mut self, number: usize, place: usize) -> Option<K> {
        let (live, slot, half) = match self.chunks.get_mut(number)? {
            Chunk::Empty | Chunk::Dense { .. } => return None,
            Chunk::Mapped { live, map, values } => {
                let half = values.len() as u32 / 2;
                (live, values.get_mut(map.find(place)?)?, half)
            }
            Chunk::Listed { live, pairs } => {
                let half = pairs.len() as u32 / 2;
                let at = pairs.binary_search_by_key(&(place as u16), |pair| pair.0).ok()?;
                (live, &mut pairs.get_mut(at)?.1, half)
            }
        };
        if slot.is_dead() {
            return None;
        }
        let kept = std::mem::replace(slot, K::DEAD);
        *live -= 1;
        if *live <= half {
            self.thin_out(number);
        }
        Some(kept)
    }

    /// All blocks, by sequence number, from `first` on.
    pub(crate) fn each_from(&self, first: u64, mut each: impl FnMut(u64, K)) {
        for (number, chunk) in self.chunks.iter().enumerate().skip(split(first).0) {
            let start = (number as u64) << CHUNK_BITS;
            chunk.each(|place, kept| {
                let sequence = start + place as u64;
                if sequence >= first {
                    each(sequence, kept);
                }
            });
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Live { holes: self.holes, ..Live::default() };
    }

    /// Makes a chunk as small as its blocks allow.
    #[cold]
    #[inline(never)]
    fn thin_out(&mut self, number: usize) {
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        let live = chunk.live();
        if live == 0 {
            *chunk = Chunk::Empty;
        } else if live <= FEW {
            let mut pairs = Vec::with_capacity(live as usize);
            chunk.each(|place, kept| pairs.push((place, kept)));
            *chunk = Chunk::Listed { live, pairs };
        } else {
            let mut map = Box::new(Map { bits: [0; WORDS], ranks: [0; WORDS] });
            let mut values = Vec::with_capacity(live as usize);
            chunk.each(|place, kept| {
                map.bits[place as usize / 64 % WORDS] |= 1 << (place % 64);
                values.push(kept);
            });
            map.rank();
            *chunk = Chunk::Mapped { live, map, values };
        }
    }

    /// Makes `number` the dense chunk that allocations go to.
    #[cold]
    #[inline(never)]
    fn open(&mut self, number: usize) -> bool {
        let gap = number.saturating_sub(self.chunks.len());
        if gap > HOLES - self.holes {
            return false;
        }
        self.holes += gap;
        let before = std::mem::replace(&mut self.current, number);
        if before != number && self.chunks.get(before).is_some_and(Chunk::is_thin) {
            self.thin_out(before);
        }
        if self.chunks.len() <= number {
            self.chunks.resize_with(number + 1, || Chunk::Empty);
        }
        let mut places = vec![K::DEAD; CHUNK].into_boxed_slice();
        let mut live = 0;
        // Only a file that lies goes back to a chunk.
        if let Some(chunk) = self.chunks.get(number) {
            chunk.each(|place, kept| {
                if let Some(slot) = places.get_mut(place as usize) {
                    *slot = kept;
                    live += 1;
                }
            });
        }
        let Some(slot) = self.chunks.get_mut(number) else { return false };
        *slot = Chunk::Dense { live, places };
        true
    }
}

impl<K: Kept> Chunk<K> {
    fn is_thin(&self) -> bool {
        matches!(self, Chunk::Dense { live, .. } if *live <= K::MANY)
    }

    const fn live(&self) -> u32 {
        match self {
            Chunk::Empty => 0,
            Chunk::Dense { live, .. } | Chunk::Mapped { live, .. } | Chunk::Listed { live, .. } => *live,
        }
    }

    /// Living blocks by place.
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
const fn split(sequence: u64) -> (usize, usize) {
    ((sequence >> CHUNK_BITS) as usize, (sequence & (CHUNK as u64 - 1)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_dies_once() {
        let mut live = Live::default();
        assert!(live.insert(5, 50u32));
        assert!(!live.insert(5, 51));
        assert_eq!(live.remove(4), None);
        assert_eq!(live.remove(5), Some(50));
        assert_eq!(live.remove(5), None);
        assert_eq!(live.remove(u64::MAX), None);
    }

    #[test]
    fn old_blocks_are_found_dense_and_packed() {
        let mut live = Live::default();
        for sequence in 0..100_000u64 {
            assert!(live.insert(sequence, sequence as u32 * 3));
        }
        for sequence in (0..100_000u64).filter(|n| n % 100 != 0) {
            assert_eq!(live.remove(sequence), Some(sequence as u32 * 3));
        }
        let packed = live.chunks.iter().filter(|chunk| matches!(chunk, Chunk::Mapped { .. })).count();
        assert_eq!(packed, 100_000 / CHUNK, "all but the chunk that allocations go to");
        let mut left = Vec::new();
        live.each_from(50_001, |sequence, _| left.push(sequence));
        assert_eq!(left, (501..1000).map(|n| n * 100).collect::<Vec<_>>());
        for sequence in (0..100_000u64).filter(|n| n % 100 == 0) {
            assert_eq!(live.remove(sequence), Some(sequence as u32 * 3));
        }
        assert_eq!(
            live.chunks.iter().filter(|chunk| !matches!(chunk, Chunk::Empty)).count(),
            1,
            "chunks of dead blocks are gone"
        );
        live.each_from(0, |sequence, _| assert_eq!(sequence, 0, "all are dead"));
    }

    #[test]
    fn going_back_loses_nothing() {
        let mut live = Live::default();
        for sequence in [0, 10_000, 1, 20_000, 10_001, 300] {
            assert!(live.insert(sequence, 7u32));
        }
        for sequence in [0, 1, 300, 10_000, 10_001, 20_000] {
            assert_eq!(live.remove(sequence), Some(7));
        }
        assert!(live.insert(0, 9), "a number that died may come again");
    }

    #[test]
    fn a_number_far_away_is_refused() {
        let mut live = Live::default();
        assert!(live.insert(3, 1u32));
        assert!(!live.insert(u64::MAX, 1));
        assert!(live.insert((1000 << CHUNK_BITS) + 5, 1));
        assert_eq!(live.remove(3), Some(1));
    }
}
