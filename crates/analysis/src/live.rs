//! The live blocks: sequence number -> what is kept of a block.
//!
//! Sequence numbers are dense and most blocks die young, so a table in chunks of neighbours is both small and fast:
//! a chunk is dropped when its last block dies, and packed when few are left.
const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
/// Chunks that may be left out in a file: a hole of 16 G allocations. A file with a larger one lies.
const HOLES: usize = 1 << 22;

/// What is kept of a live block.
pub(crate) trait Kept: Copy {
    /// The mark of a place whose block is dead.
    const DEAD: Self;
    /// With so few blocks left in a chunk, pairs take less room than places, enough to be worth the search.
    const FEW: u32;
    fn is_dead(&self) -> bool;
    fn info(&self) -> u32;
}

/// Only the info.
impl Kept for u32 {
    const DEAD: u32 = u32::MAX;
    const FEW: u32 = 256;
    #[inline]
    fn is_dead(&self) -> bool {
        *self == u32::MAX
    }
    #[inline]
    fn info(&self) -> u32 {
        *self
    }
}

enum Chunk<K> {
    Dense {
        live: u32,
        places: Box<[K]>,
    },
    /// By place in the chunk; dead ones stay until they are half of all.
    Packed {
        live: u32,
        pairs: Vec<(u16, K)>,
    },
}

pub(crate) struct Live<K> {
    /// By number; no chunk where nothing lives.
    chunks: Vec<Option<Box<Chunk<K>>>>,
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
        if let Some(Some(chunk)) = self.chunks.get_mut(number)
            && let Chunk::Dense { live, places } = &mut **chunk
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
        let chunk = self.chunks.get_mut(number)?.as_deref_mut()?;
        match chunk {
            Chunk::Dense { live, places } => {
                let slot = places.get_mut(place)?;
                if slot.is_dead() {
                    return None;
                }
                let kept = std::mem::replace(slot, K::DEAD);
                *live -= 1;
                if *live <= K::FEW && number != self.current {
                    self.thin_out(number);
                }
                Some(kept)
            }
            Chunk::Packed { live, pairs } => {
                let at = pairs.binary_search_by_key(&(place as u16), |pair| pair.0).ok()?;
                let slot = &mut pairs.get_mut(at)?.1;
                if slot.is_dead() {
                    return None;
                }
                let kept = std::mem::replace(slot, K::DEAD);
                *live -= 1;
                if *live as usize <= pairs.len() / 2 {
                    self.thin_out(number);
                }
                Some(kept)
            }
        }
    }

    /// All blocks, by sequence number, from `first` on.
    pub(crate) fn iter_from(&self, first: u64) -> impl Iterator<Item = (u64, K)> {
        let chunks = self.chunks.iter().enumerate().skip(split(first).0);
        chunks
            .flat_map(|(number, chunk)| chunk.iter().flat_map(move |chunk| chunk.blocks(number)))
            .skip_while(move |(sequence, _)| *sequence < first)
    }

    pub(crate) fn clear(&mut self) {
        *self = Live { holes: self.holes, ..Live::default() };
    }

    #[cold]
    #[inline(never)]
    fn thin_out(&mut self, number: usize) {
        let Some(place) = self.chunks.get_mut(number) else { return };
        let Some(chunk) = place else { return };
        match &mut **chunk {
            Chunk::Dense { live: 0, .. } | Chunk::Packed { live: 0, .. } => *place = None,
            Chunk::Packed { pairs, .. } => {
                pairs.retain(|(_, kept)| !kept.is_dead());
                pairs.shrink_to_fit();
            }
            Chunk::Dense { live, places } => {
                let pairs = places.iter().enumerate().filter(|(_, kept)| !kept.is_dead());
                let pairs = pairs.map(|(place, kept)| (place as u16, *kept)).collect();
                **chunk = Chunk::Packed { live: *live, pairs };
            }
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
        if before != number && self.chunks.get(before).and_then(Option::as_deref).is_some_and(|chunk| chunk.is_thin()) {
            self.thin_out(before);
        }
        if self.chunks.len() <= number {
            self.chunks.resize_with(number + 1, || None);
        }
        let mut places = vec![K::DEAD; CHUNK].into_boxed_slice();
        let mut live = 0;
        // Only a file that lies goes back to a chunk.
        if let Some(Some(chunk)) = self.chunks.get(number) {
            for (sequence, kept) in chunk.blocks(number) {
                if let Some(slot) = places.get_mut(split(sequence).1) {
                    *slot = kept;
                    live += 1;
                }
            }
        }
        let Some(slot) = self.chunks.get_mut(number) else { return false };
        *slot = Some(Box::new(Chunk::Dense { live, places }));
        true
    }
}

impl<K: Kept> Chunk<K> {
    fn is_thin(&self) -> bool {
        matches!(self, Chunk::Dense { live, .. } if *live <= K::FEW)
    }

    fn blocks(&self, number: usize) -> impl Iterator<Item = (u64, K)> {
        let first = (number as u64) << CHUNK_BITS;
        let (dense, packed): (&[K], &[(u16, K)]) = match self {
            Chunk::Dense { places, .. } => (places, &[]),
            Chunk::Packed { pairs, .. } => (&[], pairs),
        };
        let dense = dense.iter().enumerate().filter(|(_, kept)| !kept.is_dead());
        let dense = dense.map(move |(place, kept)| (first + place as u64, *kept));
        let packed = packed.iter().filter(|(_, kept)| !kept.is_dead());
        dense.chain(packed.map(move |(place, kept)| (first + *place as u64, *kept)))
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
        let packed = live.chunks.iter().flatten().filter(|chunk| matches!(***chunk, Chunk::Packed { .. })).count();
        assert_eq!(packed, 100_000 / CHUNK, "all but the chunk that allocations go to");
        let left: Vec<u64> = live.iter_from(50_001).map(|(sequence, _)| sequence).collect();
        assert_eq!(left, (501..1000).map(|n| n * 100).collect::<Vec<_>>());
        for sequence in (0..100_000u64).filter(|n| n % 100 == 0) {
            assert_eq!(live.remove(sequence), Some(sequence as u32 * 3));
        }
        assert_eq!(live.chunks.iter().flatten().count(), 1, "chunks of dead blocks are gone");
        assert_eq!(live.iter_from(0).count(), 0);
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
