//! Which bytes of which pages live blocks cover.
//!
//! Receives: the mappings of a process, then its live blocks in any order. Returns: for each page the bytes that blocks cover, which stack
//! allocated them, and to which area of the allocator the page belongs. Must hold: memory is 13 bytes for each page of a mapping with blocks; a block
//! outside of all mappings changes nothing.
use super::LiveBlock;
use super::owner_sets::{OwnerSets, PageOwner};
use super::slabs;
use super::smaps::{ARENA, MappedRange, is_malloc_name};
use format::IntMap;
use std::ops::Range;

pub const PAGE: u64 = channel::PAGE as u64;
/// A mapping with more pages than this gets no table. Such a mapping reserves addresses, and no allocator that we know uses it for blocks.
const MOST_PAGES: u64 = (256 << 30) / PAGE;

/// What live blocks cover of one page: bytes that were requested (13 bits), bytes that the allocator adds (13 bits), and the number of
/// blocks that begin in the page (6 bits; 63 means 63 or more).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageWord(u32);

impl PageWord {
    const FIELD: u32 = 0x1fff;
    const STARTS: u32 = 26;

    pub const fn requested(self) -> u64 {
        (self.0 & Self::FIELD) as u64
    }

    /// Together with `requested` at most a page. More is possible only if a block was counted that had been freed meanwhile.
    pub fn overhead(self) -> u64 {
        ((self.0 >> 13 & Self::FIELD) as u64).min(PAGE - self.requested())
    }

    pub const fn starts(self) -> u32 {
        self.0 >> Self::STARTS
    }

    fn plus(self, bytes: u64, shift: u32) -> Self {
        let sum = ((self.0 >> shift & Self::FIELD) as u64 + bytes).min(PAGE);
        PageWord(self.0 & !(Self::FIELD << shift) | (sum as u32) << shift)
    }

    const fn plus_start(self) -> Self {
        if self.starts() < 63 { PageWord(self.0 + (1 << Self::STARTS)) } else { self }
    }
}

const REQUESTED: u32 = 0;
const OVERHEAD: u32 = 13;

/// What a part of a mapping is, as far as its place tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `[heap]`, which grows by brk.
    MainHeap,
    /// One of glibc's arenas.
    Arena,
    Other,
}

/// A part of a mapping with the same `Place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    pub place: Place,
    /// Two blocks begin in the same page, so an allocator divides the area into blocks.
    pub is_divided: bool,
    pub has_blocks: bool,
}

/// A mapping in which blocks can lie.
#[derive(Debug)]
pub struct CoveredRange {
    pub start: u64,
    pub end: u64,
    pub areas: Vec<Area>,
    /// Empty as long as there is no block.
    /// Numbers, because zeroed memory for them is not touched.
    words: Vec<u32>,
    /// By page: the number of its owners, see `OwnerSets`.
    owners: Vec<u32>,
    /// By page: `LiveBlock::born` of the oldest block in it + 1. 0 if there is none.
    born: Vec<u32>,
    /// By page: the size class of the largest block in it.
    size_classes: Vec<u8>,
    /// By page: the stack of the chunk after which a header of a free chunk would reach into the page, as in `owners`.
    headers: IntMap<u64, u32>,
}

impl CoveredRange {
    fn new(range: &MappedRange, areas: Vec<Area>) -> Self {
        CoveredRange {
            start: range.start,
            end: range.end,
            areas,
            words: Vec::new(),
            owners: Vec::new(),
            born: Vec::new(),
            size_classes: Vec::new(),
            headers: IntMap::default(),
        }
    }

    pub fn has_blocks(&self) -> bool {
        !self.words.is_empty()
    }

    pub fn word(&self, address: u64) -> PageWord {
        PageWord(self.words.get(((address - self.start) / PAGE) as usize).copied().unwrap_or(0))
    }

    /// Returns whose blocks keep the page. A page without blocks is kept by the chunk before it if that ends right before the page, because the
    /// header of the free chunk that follows is in the page then.
    pub fn owner(&self, address: u64) -> PageOwner {
        let owner = self.owners.get(((address - self.start) / PAGE) as usize).copied().unwrap_or(0);
        let owner = if owner == 0 { self.headers.get(&(address / PAGE)).copied().unwrap_or(0) } else { owner };
        PageOwner::of(owner)
    }

    /// Returns n if the largest block in the page has at most 2^n bytes, and more than half of that.
    pub fn size_class(&self, address: u64) -> u8 {
        self.size_classes.get(((address - self.start) / PAGE) as usize).copied().unwrap_or(0)
    }

    /// Returns `LiveBlock::born` of the oldest block that keeps the page.
    pub fn oldest(&self, address: u64) -> Option<u32> {
        self.born.get(((address - self.start) / PAGE) as usize)?.checked_sub(1)
    }

    /// Takes note of the pages that a block keeps.
    fn own(&mut self, chunk: &Chunk, block: &LiveBlock, sets: &mut OwnerSets) {
        let Range { start: from, end: to } = chunk.keeps;
        let first = (from.max(self.start) - self.start) / PAGE;
        let end = (to.min(self.end).max(self.start) - self.start).div_ceil(PAGE);
        let pages = first as usize..end as usize;
        let size_class = (u64::BITS - block.size.saturating_sub(1).leading_zeros()) as u8;
        self.owners.get_mut(pages.clone()).into_iter().flatten().for_each(|owner| sets.add(owner, block.stack));
        let largest = |known: &mut u8| *known = size_class.max(*known);
        self.size_classes.get_mut(pages.clone()).into_iter().flatten().for_each(largest);
        let born = block.born.saturating_add(1);
        let oldest = |known: &mut u32| *known = if *known == 0 { born } else { born.min(*known) };
        self.born.get_mut(pages).into_iter().flatten().for_each(oldest);
        let after = to.saturating_add(Chunk::FREE_HEADER - 1) / PAGE;
        if chunk.has_header && to < self.end && after != (to - 1) / PAGE {
            sets.add(self.headers.entry(after).or_default(), block.stack);
        }
    }

    fn cover(&mut self, from: u64, to: u64, shift: u32) {
        if self.words.is_empty() {
            let pages = ((self.end - self.start) / PAGE) as usize;
            (self.words, self.owners, self.born) = (vec![0; pages], vec![0; pages], vec![0; pages]);
            self.size_classes = vec![0; pages];
        }
        let (mut at, to) = (from.max(self.start), to.min(self.end));
        while at < to {
            let next = (at / PAGE + 1) * PAGE;
            if let Some(word) = self.words.get_mut(((at - self.start) / PAGE) as usize) {
                *word = PageWord(*word).plus(to.min(next) - at, shift).0;
            }
            at = next;
        }
    }

    fn start_block(&mut self, address: u64) {
        let Some(word) = self.words.get_mut(((address - self.start) / PAGE) as usize) else { return };
        *word = PageWord(*word).plus_start().0;
        let is_divided = PageWord(*word).starts() > 1;
        if let Some(area) = self.areas.iter_mut().find(|area| address < area.end) {
            area.has_blocks = true;
            area.is_divided |= is_divided;
        }
    }
}

/// Divides a mapping at the places where glibc's arenas can begin. `after`: the next mapping. `is_arena` says whether an arena begins at an
/// address; it is told whether its place is that of an arena.
fn areas(range: &MappedRange, after: Option<&MappedRange>, is_arena: &impl Fn(u64, bool) -> bool) -> Vec<Area> {
    let area = |start, end, place| Area { start, end, place, is_divided: false, has_blocks: false };
    if range.name == "[heap]" {
        return vec![area(range.start, range.end, Place::MainHeap)];
    }
    if is_malloc_name(&range.name) {
        return vec![area(range.start, range.end, Place::Arena)];
    }
    if range.is_executable {
        return vec![area(range.start, range.end, Place::Other)];
    }
    let mut areas = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let next = (at / ARENA + 1) * ARENA;
        let end = next.min(range.end);
        let is_reserved = || after.is_some_and(|after| after.is_reserve() && after.start == end && after.end == next);
        let is_arena = at.is_multiple_of(ARENA) && is_arena(at, is_reserved());
        areas.push(area(at, end, if is_arena { Place::Arena } else { Place::Other }));
        at = end;
    }
    areas
}

/// The mappings in which blocks can lie, and all live blocks.
#[derive(Debug, Default)]
pub struct BlockCover {
    /// In the order of addresses.
    pub ranges: Vec<CoveredRange>,
    pub blocks: u64,
    pub requested_bytes: u64,
    pub usable_bytes: u64,
    pub by_stack: IntMap<u32, SiteBlocks>,
    pub sets: OwnerSets,
    /// The allocator is jemalloc, so the pages that a block keeps are known (`slabs.rs`).
    pub has_slabs: bool,
}

/// The live blocks of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteBlocks {
    pub blocks: u64,
    /// As many as were requested.
    pub bytes: u64,
}

impl BlockCover {
    /// `mappings` must be in the order of addresses. `is_arena` says whether an arena begins at an address; it is told whether its place is
    /// that of an arena.
    pub fn new(mappings: &[MappedRange], is_arena: impl Fn(u64, bool) -> bool) -> Self {
        let after = mappings.iter().skip(1).map(Some).chain([None]);
        let can_hold = |range: &MappedRange| {
            range.rss_bytes > 0
                && (range.name == "[heap]" || range.is_anonymous_data())
                && range.size() / PAGE <= MOST_PAGES
        };
        let pairs = mappings.iter().zip(after).filter(|(range, _)| can_hold(range));
        let ranges = pairs.map(|(range, after)| CoveredRange::new(range, areas(range, after, &is_arena))).collect();
        BlockCover { ranges, ..BlockCover::default() }
    }

    /// The areas that an allocator other than glibc's divides into blocks.
    pub fn pools(&self) -> Vec<Range<u64>> {
        let areas = self.ranges.iter().flat_map(|range| &range.areas);
        areas.filter(|area| area.place == Place::Other && area.is_divided).map(|area| area.start..area.end).collect()
    }

    /// Marks the areas that were pools before. `pools` must be in the order of addresses.
    pub fn mark_pools(&mut self, pools: &[Range<u64>]) {
        for area in self.ranges.iter_mut().flat_map(|range| &mut range.areas) {
            let first = pools.partition_point(|pool| pool.end <= area.start);
            let was_pool = pools.get(first).is_some_and(|pool| pool.start < area.end);
            area.is_divided |= area.place == Place::Other && was_pool;
        }
    }

    /// Adds a live block.
    pub fn add(&mut self, block: &LiveBlock) {
        let LiveBlock { address, size, stack, .. } = *block;
        let first = self.ranges.partition_point(|range| range.end <= address);
        let has_slabs = self.has_slabs;
        let chunk = self.ranges.get(first);
        let chunk = chunk.map_or(Chunk::plain(address, size), |range| Chunk::of(range, address, size, has_slabs));
        self.blocks += 1;
        self.requested_bytes = self.requested_bytes.saturating_add(size);
        self.usable_bytes = self.usable_bytes.saturating_add(chunk.end - chunk.start);
        let of_stack = self.by_stack.entry(stack).or_default();
        of_stack.blocks += 1;
        of_stack.bytes = of_stack.bytes.saturating_add(size);
        let end = address.saturating_add(size);
        let pieces = [(chunk.start, address, OVERHEAD), (address, end, REQUESTED), (end, chunk.end, OVERHEAD)];
        // A header may lie in the mapping before, if the kernel has divided the chunk.
        let before = first - usize::from(first > 0 && self.ranges[first - 1].end > chunk.start);
        for range in self.ranges.iter_mut().skip(before).take_while(|range| range.start < chunk.end) {
            for (from, to, shift) in pieces {
                if from < range.end && to > range.start {
                    range.cover(from, to, shift);
                }
            }
            if range.has_blocks() && chunk.start < range.end && chunk.end > range.start {
                range.own(&chunk, block, &mut self.sets);
            }
            if (range.start..range.end).contains(&address) {
                range.start_block(address);
            }
        }
    }
}

/// The addresses that a block takes together with what the allocator adds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    start: u64,
    end: u64,
    /// The allocator cannot return the pages of these addresses before the block is freed.
    keeps: Range<u64>,
    /// If the memory after it is free, it has a header that `malloc_trim` keeps.
    has_header: bool,
}

impl Chunk {
    /// glibc's header before a block, and (below) its smallest chunk and the unit of its chunks.
    const HEADER: u64 = 8;
    const SMALLEST: u64 = 32;
    const UNIT: u64 = 16;
    /// What `malloc_trim` keeps of a free chunk (`struct malloc_chunk`), counted from the end of the chunk before. Its first word belongs to
    /// that one.
    const FREE_HEADER: u64 = 48 - Self::HEADER;

    const fn plain(address: u64, size: u64) -> Self {
        Self::new(address, address.saturating_add(size), false)
    }

    const fn new(start: u64, end: u64, has_header: bool) -> Self {
        Chunk { start, end, keeps: start..end, has_header }
    }

    fn of(range: &CoveredRange, address: u64, size: u64, has_slabs: bool) -> Self {
        let place = range.areas.iter().find(|area| address < area.end).map_or(Place::Other, |area| area.place);
        let needed = size.saturating_add(Self::HEADER).next_multiple_of_or_max(Self::UNIT).max(Self::SMALLEST);
        // A block with a mapping of its own has two words before it, and takes whole pages.
        let has_own_mapping =
            address % PAGE == 2 * Self::HEADER && size >= PAGE && !matches!(place, Place::MainHeap | Place::Arena);
        match place {
            _ if has_own_mapping => {
                let start = address - 2 * Self::HEADER;
                let size = needed.saturating_add(Self::HEADER).next_multiple_of_or_max(PAGE);
                Self::new(start, start.saturating_add(size), false)
            }
            Place::MainHeap | Place::Arena => {
                let start = address.saturating_sub(Self::HEADER);
                Self::new(start, start.saturating_add(needed).max(address.saturating_add(size)), true)
            }
            Place::Other if has_slabs => {
                let slot = slabs::slot(address, size);
                Chunk { keeps: slot.keeps, ..Self::new(address, slot.end, false) }
            }
            // Other allocators have sizes of their own. What lies between their blocks counts as free.
            Place::Other => Self::plain(address, size),
        }
    }
}

trait NextMultiple {
    fn next_multiple_of_or_max(self, unit: u64) -> u64;
}

impl NextMultiple for u64 {
    fn next_multiple_of_or_max(self, unit: u64) -> u64 {
        self.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, name: &str) -> MappedRange {
        MappedRange {
            start,
            end,
            is_readable: true,
            is_writable: true,
            name: name.into(),
            rss_bytes: end - start,
            ..MappedRange::default()
        }
    }

    fn add(cover: &mut BlockCover, address: u64, size: u64) {
        cover.add(&LiveBlock { address, size, stack: 1, born: 0 });
    }

    const fn by_place(_: u64, is_by_place: bool) -> bool {
        is_by_place
    }

    #[test]
    fn blocks_and_headers_land_in_their_pages() {
        let mut cover = BlockCover::new(&[mapping(0x10000, 0x14000, "[heap]")], by_place);
        // 24 bytes fit into the smallest chunk, 25 do not.
        add(&mut cover, 0x10010, 24);
        add(&mut cover, 0x10030, 25);
        // Its header is in the page before.
        add(&mut cover, 0x12000, 0x1000 - 8);
        add(&mut cover, 0x99999000, 5);
        let heap = &cover.ranges[0];
        let word = |page: u64| (heap.word(page).requested(), heap.word(page).overhead(), heap.word(page).starts());
        assert_eq!(word(0x10000), (49, 8 + 23, 2));
        assert_eq!(word(0x11000), (0, 8, 0));
        assert_eq!(word(0x12000), (0xff8, 0, 1));
        assert_eq!(word(0x13000), (0, 0, 0));
        assert_eq!((cover.blocks, cover.requested_bytes), (4, 24 + 25 + 0xff8 + 5));
        assert_eq!(cover.usable_bytes, 32 + 48 + 0x1000 + 5);
        assert!(heap.areas[0].is_divided && heap.areas[0].has_blocks);
    }

    #[test]
    fn a_block_may_reach_over_several_mappings() {
        let mappings = [mapping(0x10000, 0x12000, ""), mapping(0x12000, 0x13000, ""), mapping(0x13000, 0x15000, "")];
        let mut cover = BlockCover::new(&mappings, by_place);
        add(&mut cover, 0x10010, 0x4000);
        let words = |range: usize, page| {
            (cover.ranges[range].word(page).requested(), cover.ranges[range].word(page).overhead())
        };
        assert_eq!(words(0, 0x10000), (0xff0, 0x10));
        assert_eq!(words(0, 0x11000), (0x1000, 0));
        assert_eq!(words(1, 0x12000), (0x1000, 0));
        assert_eq!(words(2, 0x14000), (0x10, 0xff0));
        assert!(cover.ranges.iter().flat_map(|range| &range.areas).all(|area| !area.is_divided));
        assert_eq!(cover.usable_bytes, 0x5000);
    }

    #[test]
    fn arenas_are_found_by_their_place() {
        let places = |ranges: &[MappedRange]| {
            let cover = BlockCover::new(ranges, by_place);
            cover.ranges[0].areas.iter().map(|area| (area.start, area.end, area.place)).collect::<Vec<_>>()
        };
        let reserve = |start, end| MappedRange { is_readable: false, is_writable: false, ..mapping(start, end, "") };
        let (first, second) = (4 * ARENA, 5 * ARENA);
        let arena = [mapping(first, first + 0x21000, ""), reserve(first + 0x21000, second)];
        assert_eq!(places(&arena), [(first, first + 0x21000, Place::Arena)]);
        // The kernel has joined other memory, a full arena, and one that is not full.
        let joined = [mapping(first - 0x3000, second + 0x5000, ""), reserve(second + 0x5000, second + ARENA)];
        let areas = BlockCover::new(&joined, |_, _| true).ranges.remove(0).areas;
        let found: Vec<_> = areas.iter().map(|area| (area.start, area.end, area.place)).collect();
        let expected = [
            (first - 0x3000, first, Place::Other),
            (first, second, Place::Arena),
            (second, second + 0x5000, Place::Arena),
        ];
        assert_eq!(found, expected);
        assert_eq!(places(&[mapping(first, first + 0x21000, "")]), [(first, first + 0x21000, Place::Other)]);
        let heap_of_java = [mapping(first, first + 0x21000, ""), reserve(first + 0x21000, second + ARENA)];
        assert_eq!(places(&heap_of_java), [(first, first + 0x21000, Place::Other)]);
    }

    #[test]
    fn a_hostile_block_changes_no_more_than_its_mapping() {
        let mut cover = BlockCover::new(&[mapping(0x10000, 0x12000, ""), mapping(0x20000, 0x21000, "")], by_place);
        for (address, size) in [(0x11fff, u64::MAX), (u64::MAX, u64::MAX), (0, 3), (0x10010, u64::MAX - 3)] {
            add(&mut cover, address, size);
        }
        assert_eq!(cover.ranges[0].word(0x11000).requested(), PAGE);
        assert_eq!(cover.blocks, 4);
    }
}
