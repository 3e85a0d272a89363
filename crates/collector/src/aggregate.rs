//! What is live now, by site: the numbers of the live front end.
//!
//! Receives: allocations and frees, paired. Returns: at any time, every site's live blocks and bytes, and the most that
//! it ever had. Must hold: memory is bounded by live blocks, `MOST_SITES` and `MOST_FRAMES`, however many stacks the
//! target has and however long it runs; every allocation is in exactly one site.
//!
//! A site is the set of all stacks whose first `depth` frames, leaf first, are equal. A site without live blocks keeps
//! its peaks until there are too many sites; then all such sites are removed but those with the highest peaks. If even
//! that makes no room, new stacks are counted as [`OTHER`].
use crate::alloc_classes::AllocClasses;
use crate::blocks::{Block, Blocks};
use crate::stacks::{self, Stacks};
use channel::Stamp;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

const MOST_SITES: usize = 1 << 17;
const MOST_FRAMES: usize = 2 << 20;
/// When sites must be removed, at most this many sites without a live block keep their peaks.
const KEPT_PEAKS: usize = 1024;
/// Below this number, allocation classes without a live block are not searched for.
const FEW_ALLOC_CLASSES: usize = 1 << 16;
/// The site of all stacks that found no room.
const OTHER: u32 = 0;
/// A block's birth is kept in units of 2^8 ns, of which 47 bits count one year.
const BIRTH_SHIFT: u32 = 8;
/// A stamp counts as at most this far after the last time mark, so that a hostile one cannot overflow. Real marks are
/// closer.
const LONGEST_STEP: u64 = 1 << 31;

/// Frames differ in many bits already, so one multiplication for each word is enough. A target that provokes collisions
/// slows only itself down.
#[derive(Debug, Default)]
struct FrameHasher(u64);

impl Hasher for FrameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64(*byte as u64));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_usize(&mut self, length: usize) {
        self.write_u64(length as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[derive(Clone, Debug, Default)]
struct Site {
    frames: Arc<[u64]>,
    count: u64,
    bytes: u64,
    peak_count: u64,
    peak_bytes: u64,
}

/// A site that has live blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSite {
    /// `channel::FrameKey`s, leaf first.
    pub frames: Arc<[u64]>,
    pub count: u64,
    pub bytes: u64,
    pub peak_count: u64,
    pub peak_bytes: u64,
    /// When its oldest live block was allocated, since the session's start.
    pub oldest_ns: u64,
    /// True for the site of all stacks that found no room.
    pub is_other: bool,
}

/// Nanoseconds between two time marks: `ns + (stamp - since) * scale / 2^32`.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    since: Stamp,
    ns: u64,
    scale: u64,
}

#[derive(Debug)]
pub struct Aggregate {
    depth: usize,
    most_sites: usize,
    sites: Vec<Site>,
    by_frames: HashMap<Arc<[u64]>, u32, BuildHasherDefault<FrameHasher>>,
    /// Places in `sites` that are free again.
    unused: Vec<u32>,
    frames_kept: usize,
    /// The site + 1 of each stack; 0 if it was not looked up yet.
    by_stack: Vec<u32>,
    by_alloc_class: Vec<u32>,
    /// How many new sites will be refused before `fold` is tried again.
    refusals: usize,
    next_sweep: usize,
    clock: Clock,
    allocations: u64,
    events: u64,
}

impl Aggregate {
    /// Stacks are told apart by their first `depth` frames.
    pub fn new(depth: usize) -> Self {
        Self::bounded(depth, MOST_SITES)
    }

    fn bounded(depth: usize, most_sites: usize) -> Self {
        Aggregate {
            depth,
            most_sites,
            sites: vec![Site::default()],
            by_frames: HashMap::default(),
            unused: Vec::new(),
            frames_kept: 0,
            by_stack: Vec::new(),
            by_alloc_class: Vec::new(),
            refusals: 0,
            next_sweep: FEW_ALLOC_CLASSES,
            clock: Clock::default(),
            allocations: 0,
            events: 0,
        }
    }

    /// Forgets everything but the time. The recorder forgets its blocks and allocation classes.
    pub fn clear(&mut self) {
        let clock = self.clock;
        *self = Aggregate { clock, ..Self::bounded(self.depth, self.most_sites) };
    }

    pub const fn allocations(&self) -> u64 {
        self.allocations
    }

    pub const fn events(&self) -> u64 {
        self.events
    }

    pub fn time(&mut self, stamp: Stamp, ns: u64, stamps_in_ms: u64) {
        let scale = (1_000_000u64 << 32).checked_div(stamps_in_ms).unwrap_or(0);
        self.clock = Clock { since: stamp, ns, scale: scale.min(1 << 32) };
    }

    #[inline(always)]
    pub fn birth(&self, stamp: Stamp) -> u64 {
        let Clock { since, ns, scale } = self.clock;
        let step = stamp.saturating_sub(since).min(LONGEST_STEP);
        (ns + ((step * scale) >> 32)) >> BIRTH_SHIFT
    }

    #[inline(always)]
    pub fn site_of(&mut self, stack: u32, stacks: &Stacks, alloc_classes: &mut AllocClasses) -> u32 {
        match self.by_stack.get(stack as usize) {
            Some(&site) if site != 0 => site - 1,
            _ => self.find_site(stack, stacks, alloc_classes),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_site(&mut self, stack: u32, stacks: &Stacks, alloc_classes: &mut AllocClasses) -> u32 {
        if stack == stacks::OTHER {
            return OTHER;
        }
        let frames: Arc<[u64]> = stacks.frames(stack).take(self.depth).collect();
        let site = match self.by_frames.get(&frames) {
            Some(site) => *site,
            None => self.new_site(frames, alloc_classes),
        };
        let at = stack as usize;
        if self.by_stack.len() <= at {
            self.by_stack.resize(at + 1, 0);
        }
        if let Some(place) = self.by_stack.get_mut(at) {
            *place = site + 1;
        }
        site
    }

    fn is_full(&self) -> bool {
        self.by_frames.len() >= self.most_sites || self.frames_kept >= MOST_FRAMES
    }

    fn new_site(&mut self, frames: Arc<[u64]>, alloc_classes: &mut AllocClasses) -> u32 {
        if self.is_full() {
            if self.refusals > 0 {
                self.refusals -= 1;
                return OTHER;
            }
            self.fold(alloc_classes);
            if self.is_full() {
                return OTHER;
            }
        }
        self.frames_kept += frames.len();
        let site = Site { frames: Arc::clone(&frames), ..Site::default() };
        let index = match self.unused.pop() {
            Some(index) => index,
            None => {
                self.sites.push(Site::default());
                self.sites.len() as u32 - 1
            }
        };
        if let Some(place) = self.sites.get_mut(index as usize) {
            *place = site;
        }
        self.by_frames.insert(frames, index);
        index
    }

    /// Makes room: removes the sites without a live block, except those with the highest peaks.
    fn fold(&mut self, alloc_classes: &mut AllocClasses) {
        alloc_classes.forget_dead();
        let mut idle: Vec<u32> = self.by_frames.values().copied().filter(|site| self.is_idle(*site)).collect();
        idle.sort_unstable_by_key(|site| Reverse(self.sites.get(*site as usize).map_or(0, |site| site.peak_bytes)));
        for index in idle.into_iter().skip(KEPT_PEAKS.min(self.most_sites / 16)) {
            let Some(site) = self.sites.get_mut(index as usize) else { continue };
            let gone = std::mem::take(site);
            self.frames_kept -= gone.frames.len();
            self.by_frames.remove(&gone.frames);
            self.unused.push(index);
        }
        // Some entries lead to sites that were removed. The others are found again by their frames.
        self.by_stack.clear();
        // Otherwise, while nearly all sites are live, every new stack would search all sites for a single free place.
        self.refusals = self.most_sites / 8;
    }

    fn is_idle(&self, site: u32) -> bool {
        self.sites.get(site as usize).is_some_and(|site| site.count == 0)
    }

    /// Must be called when stacks get other ids.
    pub fn stacks_moved(&mut self) {
        self.by_stack.clear();
    }

    pub fn new_alloc_class(&mut self, alloc_classes: &mut AllocClasses, size: u64, site: u32) -> u32 {
        if alloc_classes.known() >= self.next_sweep {
            alloc_classes.forget_dead();
            self.next_sweep = (alloc_classes.known() * 2).max(FEW_ALLOC_CLASSES);
        }
        let index = alloc_classes.next_index();
        alloc_classes.add(size, site, index);
        if self.by_alloc_class.len() <= index as usize {
            self.by_alloc_class.resize(index as usize + 1, OTHER);
        }
        if let Some(place) = self.by_alloc_class.get_mut(index as usize) {
            *place = site;
        }
        index
    }

    #[inline(always)]
    fn site_mut(&mut self, alloc_class: u32) -> Option<&mut Site> {
        let site = *self.by_alloc_class.get(alloc_class as usize)?;
        self.sites.get_mut(site as usize)
    }

    #[inline(always)]
    pub fn alloc(&mut self, alloc_class: u32, size: u64) {
        self.allocations += 1;
        self.events += 1;
        let Some(site) = self.site_mut(alloc_class) else { return };
        site.count += 1;
        site.bytes += size;
        site.peak_count = site.peak_count.max(site.count);
        site.peak_bytes = site.peak_bytes.max(site.bytes);
    }

    #[inline(always)]
    pub fn free(&mut self, alloc_class: u32, size: u64) {
        self.events += 1;
        let Some(site) = self.site_mut(alloc_class) else { return };
        site.count -= 1;
        site.bytes -= size;
    }

    /// Returns every site that has live blocks, in no order.
    pub fn live(&self, blocks: &Blocks) -> Vec<LiveSite> {
        let mut oldest = vec![u64::MAX; self.sites.len()];
        blocks.for_each(|_, Block { sequence: birth, alloc_class }| {
            let site = self.by_alloc_class.get(alloc_class as usize).copied().unwrap_or(OTHER);
            if let Some(place) = oldest.get_mut(site as usize) {
                *place = birth.min(*place);
            }
        });
        let found = self.sites.iter().zip(oldest).enumerate().filter(|(_, (site, _))| site.count > 0);
        found
            .map(|(index, (site, birth))| LiveSite {
                frames: Arc::clone(&site.frames),
                count: site.count,
                bytes: site.bytes,
                peak_count: site.peak_count,
                peak_bytes: site.peak_bytes,
                oldest_ns: birth << BIRTH_SHIFT,
                is_other: index == OTHER as usize,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::Path;

    /// Does what the recorder does, for one ring.
    struct Bench {
        aggregate: Aggregate,
        stacks: Stacks,
        alloc_classes: AllocClasses,
        blocks: Blocks,
    }

    impl Bench {
        fn new(depth: usize, most_sites: usize) -> Self {
            Bench {
                aggregate: Aggregate::bounded(depth, most_sites),
                stacks: Stacks::unwritten(),
                alloc_classes: AllocClasses::default(),
                blocks: Blocks::new(),
            }
        }
        fn alloc(&mut self, stamp: u64, address: u64, size: u64, frames: &[u64]) {
            self.stacks.define(0, &Path { first: 1, tail: 0, frames });
            let stack = self.stacks.id(0, 1);
            let site = self.aggregate.site_of(stack, &self.stacks, &mut self.alloc_classes);
            let known = self.alloc_classes.find(size, site);
            let alloc_class =
                known.unwrap_or_else(|| self.aggregate.new_alloc_class(&mut self.alloc_classes, size, site));
            let sequence = self.aggregate.birth(stamp);
            self.blocks.insert(address, Block { sequence, alloc_class }).unwrap();
            self.alloc_classes.usage_mut(alloc_class).unwrap().live += 1;
            self.aggregate.alloc(alloc_class, size);
        }
        fn free(&mut self, address: u64) {
            let block = self.blocks.remove(address).unwrap();
            let usage = self.alloc_classes.usage_mut(block.alloc_class).unwrap();
            usage.live -= 1;
            self.aggregate.free(block.alloc_class, usage.size);
        }
        fn live(&self) -> Vec<LiveSite> {
            let mut live = self.aggregate.live(&self.blocks);
            live.sort_by_key(|site| Reverse(site.bytes));
            live
        }
    }

    #[test]
    fn peaks_survive_and_age_is_that_of_the_oldest_block() {
        let mut bench = Bench::new(8, 100);
        bench.aggregate.time(1000, 1 << 20, 1_000_000);
        bench.alloc(1000, 16, 100, &[3, 2, 1]);
        bench.alloc(1000 + (1 << 12), 32, 50, &[3, 2, 1]);
        bench.free(16);
        let [site] = &bench.live()[..] else { panic!("one site") };
        assert_eq!((site.count, site.bytes, site.peak_count, site.peak_bytes), (1, 50, 2, 150));
        assert_eq!(site.oldest_ns, (1 << 20) + (1 << 12));
        assert_eq!(site.frames[..], [3, 2, 1]);
        bench.free(32);
        assert_eq!(bench.live(), []);
        bench.alloc(9000, 48, 7, &[3, 2, 1]);
        assert_eq!((bench.live()[0].count, bench.live()[0].peak_bytes), (1, 150), "kept while nothing lived");
    }

    #[test]
    fn stacks_are_told_apart_by_their_first_frames() {
        let mut bench = Bench::new(2, 100);
        for n in 0..10 {
            bench.alloc(0, 16 * (n + 1), 8, &[7, 6, 100 + n]);
        }
        bench.alloc(0, 1600, 1, &[7]);
        let live = bench.live();
        assert_eq!((live.len(), live[0].count, &live[0].frames[..]), (2, 10, &[7, 6][..]));
    }

    #[test]
    fn too_many_live_stacks_are_counted_as_other() {
        let mut bench = Bench::new(8, 64);
        for n in 0..1000 {
            bench.alloc(0, 16 * (n + 1), n, &[1000 + n, 1]);
        }
        let live = bench.live();
        assert_eq!(live.len(), 65);
        let other: Vec<_> = live.iter().filter(|site| site.is_other).collect();
        assert_eq!((other.len(), other[0].count), (1, 1000 - 64));
        assert_eq!(live.iter().map(|site| site.bytes).sum::<u64>(), (0..1000).sum());
        for n in 0..1000 {
            bench.free(16 * (n + 1));
        }
        assert_eq!(bench.live(), []);
    }

    #[test]
    fn stacks_that_come_and_go_leave_nothing_behind_but_the_highest_peaks() {
        let mut bench = Bench::new(8, 64);
        bench.alloc(0, 8, 1_000_000, &[5]);
        bench.free(8);
        for n in 0..200_000u64 {
            bench.alloc(0, 16, n % 1000, &[1000 + n, 1]);
            bench.free(16);
        }
        assert!(bench.aggregate.sites.len() <= 65 && bench.alloc_classes.known() <= FEW_ALLOC_CLASSES);
        bench.alloc(0, 8, 1, &[5]);
        assert_eq!(bench.live()[0].peak_bytes, 1_000_000);
        assert_eq!((bench.aggregate.allocations(), bench.aggregate.events()), (200_002, 400_003));
    }
}
