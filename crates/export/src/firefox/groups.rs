//! Blocks in groups, because the Firefox Profiler cannot show millions of them: blocks of one stack that were allocated in
//! the same slice of time and freed in the same slice are one group.
//!
//! Receives: events. Must hold: the bytes of all groups add up to the bytes of all blocks; there are never much more than
//! `MOST` groups in all tracks, because slices become longer when there are too many.
use analysis::{BlockEvent, BlockEventKind, Range, SiteId};
use format::IntMap;

/// The most groups, unless the trace has more stacks than a quarter of that.
const MOST: usize = 200_000;
const PER_SITE: usize = 4;
/// The number of slices at the beginning. It is halved when there are too many groups.
const SLICES: u16 = 256;
/// The slice of blocks that were allocated before the range, and of blocks that are not freed.
pub(super) const OUTSIDE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) born: u16,
    pub(super) died: u16,
    pub(super) site: SiteId,
    pub(super) bytes: u64,
}

pub(super) struct Groups {
    range: Range,
    /// Slices per nanosecond at the beginning, times 2^64.
    per_ns: u128,
    most: usize,
    /// How often the number of slices was halved.
    halved: u32,
    /// Stack and slices -> bytes of the blocks that were freed.
    freed: IntMap<u64, u64>,
    /// Stack and slice -> bytes that were allocated.
    allocated: IntMap<u64, u64>,
}

impl Groups {
    /// `tracks`: how many of these there are at most. They share the number of groups.
    pub(super) fn new(range: Range, sites: usize, tracks: usize) -> Self {
        let most = MOST.max(sites.saturating_mul(PER_SITE)) / tracks.max(1);
        let per_ns = ((SLICES as u128) << 64) / (range.to_ns - range.from_ns).max(1) as u128;
        Groups { range, per_ns, most, halved: 0, freed: IntMap::default(), allocated: IntMap::default() }
    }

    #[inline]
    fn slice(&self, time_ns: u64) -> u16 {
        let at = (time_ns.saturating_sub(self.range.from_ns) as u128).wrapping_mul(self.per_ns) >> 64;
        (at.min(SLICES as u128 - 1) as u16) >> self.halved
    }

    /// The middle of a slice, in nanoseconds since the range began.
    pub(super) fn middle_ns(&self, slice: u16) -> u64 {
        let length = (self.range.to_ns - self.range.from_ns) as u128;
        (length * (2 * slice as u128 + 1) / (2 * (SLICES >> self.halved) as u128)) as u64
    }

    /// `is_older`: the block was allocated before the range.
    #[inline]
    pub(super) fn add(&mut self, event: &BlockEvent, is_older: bool) {
        let born = if is_older { OUTSIDE } else { self.slice(event.born_ns) };
        let bytes = match event.kind {
            BlockEventKind::Alloc => self.allocated.entry(key(event.site, born, OUTSIDE)).or_default(),
            BlockEventKind::Gone { leaked: true } => return,
            BlockEventKind::Free { .. } | BlockEventKind::Gone { .. } => {
                let died = self.slice(event.time_ns);
                self.freed.entry(key(event.site, born, died)).or_default()
            }
        };
        *bytes = bytes.saturating_add(event.size);
        if self.freed.len() + self.allocated.len() > self.most && SLICES >> self.halved > 1 {
            self.halve();
        }
    }

    /// Makes one slice out of two.
    fn halve(&mut self) {
        self.halved += 1;
        let wider = |slice: u16| if slice == OUTSIDE { OUTSIDE } else { slice / 2 };
        for map in [&mut self.freed, &mut self.allocated] {
            let old = std::mem::take(map);
            for (old_key, bytes) in old {
                let (site, born, died) = parts(old_key);
                let sum = map.entry(key(site, wider(born), wider(died))).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }

    /// All groups, in the order of their allocation.
    pub(super) fn list(&self) -> Vec<Group> {
        let mut left = self.allocated.clone();
        for (freed, bytes) in &self.freed {
            let (site, born, _) = parts(*freed);
            if let Some(left) = left.get_mut(&key(site, born, OUTSIDE)) {
                *left = left.saturating_sub(*bytes);
            }
        }
        let all = self.freed.iter().chain(&left).filter(|(_, bytes)| **bytes > 0);
        let mut list: Vec<Group> = all
            .map(|(key, bytes)| {
                let (site, born, died) = parts(*key);
                Group { born, died, site, bytes: *bytes }
            })
            .collect();
        list.sort_unstable();
        list
    }
}

const fn key(site: SiteId, born: u16, died: u16) -> u64 {
    (site as u64) << 32 | (born as u64) << 16 | died as u64
}

const fn parts(key: u64) -> (SiteId, u16, u16) {
    ((key >> 32) as SiteId, (key >> 16) as u16, key as u16)
}
