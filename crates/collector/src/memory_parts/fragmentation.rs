//! Which resident pages of the allocator are mostly free, and which stacks allocated the blocks that keep them resident.
//!
//! Receives: the resident pages of the allocator, in the order of their addresses, with the live blocks in them. Returns: what
//! `malloc_trim(0)` would return to the kernel now, and what it would return once the blocks of a stack were freed. Must hold: the result has at most
//! `MOST_SITES` sites and one row for each power of two.
//!
//! `malloc_trim` of glibc returns whole pages inside free chunks. The header of a free chunk stays, and so does the top of an arena
//! besides the main heap ([decision 80](../../../../docs/decisions/0080-pages-that-blocks-pin.md)).
use super::block_cover::{Area, BlockCover, CoveredRange, PAGE, Place, SiteBlocks};
use super::owner_sets::PageOwner;
use format::{Fragmentation, IntMap, MemoryFacts, PinningSite, SizeFill};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most sites of an instant. All others are added up.
const MOST_SITES: usize = 16;
/// Slabs of jemalloc have up to 28 kB, pages of mimalloc 64 kB or 512 kB.
const LONGEST_SLAB: u64 = 512 << 10;

/// The sums over all pages so far.
#[derive(Debug, Default)]
pub struct PinnedPages {
    sums: Fragmentation,
    /// By stack: pinned and held bytes.
    by_stack: IntMap<u32, (u64, u64)>,
    /// The same of pages with several stacks, by set.
    by_set: IntMap<u32, (u64, u64)>,
    /// The slabs of the pools are known.
    has_slabs: bool,
    /// By the power of two: resident and live bytes.
    by_size: BTreeMap<u8, (u64, u64)>,
    /// Resident pages without a block since the last page with one, in the area that begins here.
    unpinned_bytes: u64,
    area: Option<Area>,
    /// The highest pages of the main heap with blocks that lie side by side and have one owner.
    top: Top,
    /// Pages side by side without a block, in the pools of an allocator other than glibc's.
    empty_run: Range<u64>,
    empty_pool_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Top {
    /// 0 for several stacks.
    stack: u32,
    /// Resident pages without a block right below.
    free_bytes: u64,
}

impl PinnedPages {
    /// Adds a resident page. Pages must come in the order of their addresses.
    pub fn add(&mut self, area: &Area, range: &CoveredRange, address: u64) {
        if self.area.is_none_or(|before| before.start != area.start) {
            self.end_area();
            self.area = Some(*area);
        }
        let word = range.word(address);
        let live = word.requested() + word.overhead();
        let is_sparse = live * 2 <= PAGE;
        let is_glibcs = matches!(area.place, Place::MainHeap | Place::Arena);
        let owner = range.owner(address);
        if live > 0 || (!is_glibcs && owner != PageOwner::None) {
            let (resident, filled) = self.by_size.entry(range.size_class(address)).or_default();
            *resident += PAGE;
            *filled += live;
        }
        if !is_glibcs && area.is_divided {
            self.add_pool_page(address, owner == PageOwner::None);
        }
        // The first page has memory of the allocator itself.
        if (is_glibcs && address == area.start) || (!is_glibcs && owner == PageOwner::None) {
            return;
        }
        if owner == PageOwner::None {
            self.unpinned_bytes += PAGE;
            return;
        }
        if area.place == Place::MainHeap {
            let stack = if let PageOwner::Stack(stack) = owner { stack } else { 0 };
            if self.unpinned_bytes > 0 || stack != self.top.stack {
                self.top = Top { stack, free_bytes: self.unpinned_bytes };
            }
        }
        // Only the top of the main heap is returned, and this is not the top.
        self.sums.trim_bytes += std::mem::take(&mut self.unpinned_bytes);
        // A large block fills its pages. It has a mapping of its own, which ends with it.
        let is_own_mapping = !is_glibcs && !area.is_divided;
        let is_sparse = is_sparse && !is_own_mapping;
        if is_sparse {
            self.sums.sparse_bytes += PAGE;
            self.sums.sparse_live_bytes += live;
        }
        if is_sparse && !matches!(owner, PageOwner::Stack(_)) {
            self.sums.shared_bytes += PAGE;
        }
        let (pinned, held) = match owner {
            PageOwner::Stack(stack) => self.by_stack.entry(stack).or_default(),
            PageOwner::Set(set) => self.by_set.entry(set).or_default(),
            PageOwner::None | PageOwner::Several => return,
        };
        *pinned += if is_sparse { PAGE } else { 0 };
        *held += if is_glibcs || is_own_mapping || self.has_slabs { PAGE } else { 0 };
    }

    /// An allocator divides its memory into slabs, and returns a slab only if it has no block. If slabs are not known, a free page may be a part of
    /// a slab with blocks. So only runs of free pages count that are longer than slabs are.
    fn add_pool_page(&mut self, address: u64, is_empty: bool) {
        if !is_empty || self.empty_run.end != address {
            self.end_empty_run();
            self.empty_run = address..address;
        }
        if is_empty {
            self.empty_run.end = address + PAGE;
        }
    }

    fn end_empty_run(&mut self) {
        let run = std::mem::take(&mut self.empty_run);
        let least = if self.has_slabs { PAGE } else { LONGEST_SLAB };
        self.empty_pool_bytes += if run.end - run.start >= least { run.end - run.start } else { 0 };
    }

    /// Adds what can be returned once the blocks of a site and of those before it are freed: the pages in which only their blocks live.
    fn add_together(&self, sites: &mut [PinningSite], cover: &BlockCover) {
        let ranks: IntMap<u32, usize> = sites.iter().enumerate().map(|(rank, site)| (site.stack, rank)).collect();
        for site in sites.iter_mut() {
            site.together_bytes = site.held_bytes;
        }
        for (set, (_, held)) in &self.by_set {
            // The last of its stacks, or none if one of them is not a site.
            let ranks = cover.sets.members(*set).iter().map(|stack| ranks.get(stack).copied());
            let last = ranks.reduce(|last, rank| last.zip(rank).map(|(last, rank)| last.max(rank))).flatten();
            if let Some(site) = last.and_then(|last| sites.get_mut(last)) {
                site.together_bytes += held;
            }
        }
        let mut sum = 0;
        for site in sites {
            sum += site.together_bytes;
            site.together_bytes = sum;
        }
    }

    fn end_area(&mut self) {
        self.end_empty_run();
        let bytes = std::mem::take(&mut self.unpinned_bytes);
        if self.area.is_some_and(|area| area.place == Place::MainHeap) {
            self.sums.trim_bytes += bytes;
        }
    }

    /// Adds what hints need to know about pages.
    pub fn add_facts(&mut self, facts: &mut MemoryFacts) {
        self.end_area();
        facts.top_stack = self.top.stack;
        facts.top_free_bytes = self.top.free_bytes;
        facts.empty_pool_bytes = self.empty_pool_bytes;
    }

    pub fn new(has_slabs: bool) -> Self {
        PinnedPages { has_slabs, ..PinnedPages::default() }
    }

    pub fn finish(mut self, cover: &BlockCover) -> Fragmentation {
        self.end_area();
        // A page with several stacks counts for each of them in part.
        let mut shares: IntMap<u32, u64> = IntMap::default();
        for (set, (pinned, _)) in &self.by_set {
            let members = cover.sets.members(*set);
            members.iter().for_each(|stack| *shares.entry(*stack).or_default() += pinned / members.len() as u64);
        }
        let mut sites: Vec<PinningSite> = Vec::with_capacity(cover.by_stack.len());
        for (stack, of_stack) in &cover.by_stack {
            let (pinned_bytes, held_bytes) = self.by_stack.get(stack).copied().unwrap_or_default();
            let SiteBlocks { blocks, bytes } = *of_stack;
            let shared_bytes = shares.get(stack).copied().unwrap_or(0);
            let site =
                PinningSite { stack: *stack, blocks, bytes, pinned_bytes, held_bytes, shared_bytes, together_bytes: 0 };
            sites.push(site);
        }
        let pins = |site: &PinningSite| site.pinned_bytes + site.shared_bytes;
        sites.sort_unstable_by_key(|site| (Reverse(pins(site)), Reverse(site.held_bytes), site.stack));
        let pinning = sites.iter().take(MOST_SITES).take_while(|site| pins(site) >= PAGE).count();
        let others = sites.split_off(pinning);
        self.add_together(&mut sites, cover);
        self.sums.other_sites = others.len() as u64;
        for site in others {
            let sum = &mut self.sums.others;
            sum.blocks += site.blocks;
            sum.bytes = sum.bytes.saturating_add(site.bytes);
            sum.pinned_bytes += site.pinned_bytes;
            sum.held_bytes += site.held_bytes;
            sum.shared_bytes += site.shared_bytes;
        }
        self.sums.sites = sites;
        let fill = |(power, (resident_bytes, live_bytes)): (u8, (u64, u64))| SizeFill {
            up_to_bytes: 1u64.checked_shl(power.into()).unwrap_or(u64::MAX),
            resident_bytes,
            live_bytes,
        };
        self.sums.sizes = self.by_size.into_iter().map(fill).collect();
        self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::LiveBlock;
    use super::super::block_cover::BlockCover;
    use super::super::smaps::{ARENA, MappedRange};
    use super::*;

    fn fragmentation(name: &str, start: u64, pages: u64, blocks: &[(u64, u64, u32)]) -> Fragmentation {
        let (pinned, cover) = pinned(name, start, pages, blocks);
        pinned.finish(&cover)
    }

    /// Adds all pages of a mapping that is wholly resident.
    fn pinned(name: &str, start: u64, pages: u64, blocks: &[(u64, u64, u32)]) -> (PinnedPages, BlockCover) {
        let mapping = MappedRange {
            start,
            end: start + pages * PAGE,
            is_readable: true,
            is_writable: true,
            name: name.into(),
            rss_bytes: pages * PAGE,
            ..MappedRange::default()
        };
        let mut cover = BlockCover::new(&[mapping], |_, _| true);
        for (address, size, stack) in blocks {
            cover.add(&LiveBlock { address: start + address, size: *size, stack: *stack, born: 0 });
        }
        let mut pinned = PinnedPages::new(false);
        let range = &cover.ranges[0];
        for page in 0..pages {
            pinned.add(&range.areas[0], range, start + page * PAGE);
        }
        (pinned, cover)
    }

    /// Pages 0 to 9. Stack 7 has a small block in page 2 and one in page 4, stack 8 fills page 5 and has a block in page 7, beside one of 7.
    const BLOCKS: [(u64, u64, u32); 5] = [
        (2 * PAGE + 0x10, 24, 7),
        (4 * PAGE + 0x10, 40, 7),
        (5 * PAGE + 0x10, 4000, 8),
        (7 * PAGE + 0x10, 24, 8),
        (7 * PAGE + 0x30, 24, 7),
    ];

    #[test]
    fn pages_belong_to_the_only_stack_that_has_blocks_in_them() {
        let found = fragmentation("[heap]", 0x10_0000, 10, &BLOCKS);
        // Pages 1, 3, 6, and the top: 8 and 9. The first page is the allocator's.
        assert_eq!(found.trim_bytes, 5 * PAGE);
        assert_eq!((found.sparse_bytes, found.sparse_live_bytes), (3 * PAGE, 32 + 48 + 64));
        assert_eq!(found.shared_bytes, PAGE);
        let seven = PinningSite {
            stack: 7,
            blocks: 3,
            bytes: 88,
            pinned_bytes: 2 * PAGE,
            held_bytes: 2 * PAGE,
            shared_bytes: PAGE / 2,
            together_bytes: 2 * PAGE,
        };
        assert_eq!(found.sites, [seven]);
        let eight = PinningSite {
            stack: 0,
            blocks: 2,
            bytes: 4024,
            held_bytes: PAGE,
            shared_bytes: PAGE / 2,
            ..PinningSite::default()
        };
        assert_eq!((found.other_sites, found.others), (1, eight));
        let sizes: Vec<_> =
            found.sizes.iter().map(|size| (size.up_to_bytes, size.resident_bytes, size.live_bytes)).collect();
        assert_eq!(sizes, [(32, 2 * PAGE, 32 + 64), (64, PAGE, 48), (4096, PAGE, 4016)]);
        // The top of another arena stays.
        assert_eq!(fragmentation("", 4 * ARENA, 10, &BLOCKS).trim_bytes, 3 * PAGE);
    }

    #[test]
    fn sites_that_share_pages_give_them_back_together() {
        // Page 2 is only of stack 7. Pages 3 to 6 are of 7 and 8, page 7 of 8 and 9, page 8 of 9, page 9 of nine stacks.
        let block = |page: u64, place: u64, stack| (page * PAGE + 0x10 + 0x20 * place, 24, stack);
        let mut blocks = vec![block(2, 0, 7), block(7, 0, 8), block(7, 1, 9), block(8, 0, 9)];
        for page in 3..7 {
            blocks.extend([block(page, 0, 7), block(page, 1, 8), block(page, 2, 7)]);
        }
        blocks.extend((0..9).map(|stack| block(9, stack.into(), 100 + stack)));
        let found = fragmentation("[heap]", 0x10_0000, 12, &blocks);
        let rows: Vec<_> = found
            .sites
            .iter()
            .map(|site| [site.stack.into(), site.pinned_bytes, site.shared_bytes, site.together_bytes])
            .map(|[stack, rest @ ..]: [u64; 4]| (stack, rest.map(|bytes| 2 * bytes / PAGE)))
            .collect();
        // In halves of pages: alone, its share, and what it returns with those before it.
        assert_eq!(rows, [(7, [2, 4, 2]), (8, [0, 5, 10]), (9, [2, 1, 14])]);
        assert_eq!(found.shared_bytes, 6 * PAGE, "with the page of nine");
        assert_eq!((found.other_sites, found.others.shared_bytes), (9, 0));
    }

    #[test]
    fn the_header_of_a_free_chunk_keeps_its_page() {
        // The chunk ends 32 bytes before page 2, then 48 bytes before.
        let end_at = |end: u64| fragmentation("[heap]", 0x10_0000, 4, &[(PAGE + 0x10, end - PAGE - 0x10, 7)]);
        let (near, far) = (end_at(2 * PAGE - 24), end_at(2 * PAGE - 40));
        assert_eq!((near.trim_bytes, near.sites[0].held_bytes), (PAGE, 2 * PAGE));
        assert_eq!((far.trim_bytes, far.others.held_bytes), (2 * PAGE, PAGE));
    }

    fn facts(name: &str, pages: u64, blocks: &[(u64, u64, u32)]) -> MemoryFacts {
        let mut facts = MemoryFacts::default();
        pinned(name, 0x10_0000, pages, blocks).0.add_facts(&mut facts);
        facts
    }

    #[test]
    fn free_pages_below_the_highest_blocks_are_known() {
        let top = |blocks: &[(u64, u64, u32)]| {
            let facts = facts("[heap]", 20, blocks);
            (facts.top_stack, facts.top_free_bytes / PAGE)
        };
        let low = (PAGE + 0x10, 24, 7);
        // Pages 2 to 9 are free. The free pages after the block are the top of the heap, which malloc returns itself.
        assert_eq!(top(&[low, (10 * PAGE + 0x10, 24, 8)]), (8, 8));
        assert_eq!(top(&[low, (10 * PAGE + 0x10, 24, 8), (11 * PAGE + 0x10, 24, 8)]), (8, 8), "two pages of one site");
        assert_eq!(top(&[low, (10 * PAGE + 0x10, 24, 8), (11 * PAGE + 0x10, 24, 9)]), (9, 0), "of two sites");
        assert_eq!(top(&[low, (10 * PAGE + 0x10, 24, 8), (12 * PAGE + 0x10, 24, 8)]), (8, 1), "the nearest ones");
        assert_eq!(facts("[heap]", 20, &[low]).empty_pool_bytes, 0);
    }

    #[test]
    fn free_slabs_of_other_allocators_are_long_runs_of_pages() {
        let slab = LONGEST_SLAB / PAGE;
        let empty = |last: u64| {
            let blocks = [(0x10, 24, 7), (0x40, 24, 7), (last * PAGE + 0x10, 24, 7)];
            facts("", 3 * slab, &blocks).empty_pool_bytes / PAGE
        };
        assert_eq!(empty(slab + 1), 3 * slab - 2, "before and after the last block");
        assert_eq!(empty(slab), 2 * slab - 1, "the run before it is too short");
        assert_eq!(facts("", 3 * slab, &[(0x10, 24, 7)]).empty_pool_bytes, 0, "no allocator divides this mapping");
    }

    #[test]
    fn there_are_at_most_sixteen_sites() {
        let blocks: Vec<_> = (0..40).map(|n| (n * PAGE + 0x1010, 24, n as u32)).collect();
        let found = fragmentation("[heap]", 0x10_0000, 50, &blocks);
        assert_eq!((found.sites.len(), found.other_sites), (MOST_SITES, 24));
        assert_eq!(found.others.pinned_bytes, 24 * PAGE);
        assert_eq!(found.sites[0].stack, 0);
    }
}
