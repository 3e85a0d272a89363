//! The live blocks: sequence number -> info.
//!
//! Sequence numbers are dense and most blocks die young, so a table in chunks of neighbours is both small and fast:
//! a chunk is dropped when its last block dies, and packed when few are left.
use crate::map::IntMap;

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
/// With so few blocks left, pairs take less room than places.
const FEW: u32 = 256;
const DEAD: u32 = u32::MAX;

enum Chunk {
    Dense {
        live: u32,
        infos: Box<[u32]>,
    },
    /// By place in the chunk.
    Packed(Vec<(u16, u32)>),
}

#[derive(Default)]
pub(crate) struct Live {
    chunks: IntMap<u64, Chunk>,
    /// The chunk that allocations go to now; apart from the map because nearly every event is about it.
    current: u64,
    young: Option<Box<[u32]>>,
    young_live: u32,
}

impl Live {
    /// False: that number is live already, so the file lies.
    #[inline]
    pub(crate) fn insert(&mut self, sequence: u64, info: u32) -> bool {
        let (number, place) = split(sequence);
        if number != self.current || self.young.is_none() {
            self.open(number);
        }
        let Some(slot) = self.young.as_mut().and_then(|young| young.get_mut(place)) else { return false };
        if *slot != DEAD || info == DEAD {
            return false;
        }
        *slot = info;
        self.young_live += 1;
        true
    }

    /// The info of the block that dies.
    #[inline]
    pub(crate) fn remove(&mut self, sequence: u64) -> Option<u32> {
        let (number, place) = split(sequence);
        if number != self.current {
            return self.remove_old(number, place);
        }
        let slot = self.young.as_mut()?.get_mut(place)?;
        let info = std::mem::replace(slot, DEAD);
        if info == DEAD {
            return None;
        }
        self.young_live -= 1;
        Some(info)
    }

    pub(crate) fn clear(&mut self) {
        *self = Live::default();
    }

    fn remove_old(&mut self, number: u64, place: usize) -> Option<u32> {
        let chunk = self.chunks.get_mut(&number)?;
        let (info, left) = match chunk {
            Chunk::Packed(pairs) => {
                let at = pairs.binary_search_by_key(&(place as u16), |pair| pair.0).ok()?;
                (pairs.remove(at).1, pairs.len() as u32)
            }
            Chunk::Dense { live, infos } => {
                let info = std::mem::replace(infos.get_mut(place)?, DEAD);
                if info == DEAD {
                    return None;
                }
                *live -= 1;
                (info, *live)
            }
        };
        if left == 0 {
            self.chunks.remove(&number);
        } else if left == FEW {
            self.pack(number);
        }
        Some(info)
    }

    /// Makes `number` the current chunk.
    fn open(&mut self, number: u64) {
        if let Some(infos) = self.young.take()
            && self.young_live > 0
        {
            self.chunks.insert(self.current, Chunk::Dense { live: self.young_live, infos });
            if self.young_live <= FEW {
                self.pack(self.current);
            }
        }
        self.current = number;
        // Only a file that lies goes back to a chunk.
        match self.chunks.remove(&number) {
            Some(Chunk::Dense { live, infos }) => {
                self.young = Some(infos);
                self.young_live = live;
            }
            Some(Chunk::Packed(pairs)) => {
                let mut infos = vec![DEAD; CHUNK].into_boxed_slice();
                self.young_live = pairs.len() as u32;
                for (place, info) in pairs {
                    if let Some(slot) = infos.get_mut(place as usize) {
                        *slot = info;
                    }
                }
                self.young = Some(infos);
            }
            None => {
                self.young = Some(vec![DEAD; CHUNK].into_boxed_slice());
                self.young_live = 0;
            }
        }
    }

    fn pack(&mut self, number: u64) {
        let Some(chunk) = self.chunks.get_mut(&number) else { return };
        if let Chunk::Dense { infos, .. } = chunk {
            let live = infos.iter().enumerate().filter(|(_, info)| **info != DEAD);
            *chunk = Chunk::Packed(live.map(|(place, info)| (place as u16, *info)).collect());
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

    #[test]
    fn a_block_dies_once() {
        let mut live = Live::default();
        assert!(live.insert(5, 50));
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
        assert!(live.chunks.values().all(|chunk| matches!(chunk, Chunk::Packed(_))));
        for sequence in (0..100_000u64).filter(|n| n % 100 == 0) {
            assert_eq!(live.remove(sequence), Some(sequence as u32 * 3));
        }
        assert!(live.chunks.is_empty(), "chunks of dead blocks are gone");
    }

    #[test]
    fn going_back_to_a_chunk_loses_nothing() {
        let mut live = Live::default();
        live.insert(1, 10);
        live.insert(1 << 40, 20);
        live.insert(2, 30);
        assert_eq!((live.remove(1), live.remove(2), live.remove(1 << 40)), (Some(10), Some(30), Some(20)));
    }
}
