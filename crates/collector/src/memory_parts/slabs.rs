//! Which pages jemalloc keeps as long as a block lives.
//!
//! Receives: the address and the size of a block. Returns: how large it is with what jemalloc adds, and the pages of its slab, or of its extent if it is large. Must hold: no memory of the program
//! is read; a block that does not lie as jemalloc places it has only its own pages.
//!
//! A slab has blocks of one size class. It is the smallest number of whole pages that blocks of this class fill without a rest, so the place of
//! a block in its page says which page of the slab that is. jemalloc returns a slab only if it has no block.
use super::block_cover::PAGE;
use std::ops::Range;

/// The largest class of small blocks.
const LARGEST_SMALL: u64 = 14 << 10;
const QUANTUM: u64 = 16;

/// Returns the size that jemalloc takes for a block: a multiple of 16, and above 128 one of four in each doubling.
const fn class_size(size: u64) -> u64 {
    if size <= QUANTUM / 2 {
        return QUANTUM / 2;
    }
    let step = if size <= 8 * QUANTUM { QUANTUM } else { 1 << (u64::BITS - 1 - (size - 1).leading_zeros() - 2) };
    match size.checked_next_multiple_of(step) {
        Some(class) => class,
        None => u64::MAX,
    }
}

/// The number of pages of a slab.
const fn slab_pages(class: u64) -> u64 {
    let (mut page, mut rest) = (PAGE, class);
    while rest > 0 {
        (page, rest) = (rest, page % rest);
    }
    class / page
}

/// Where jemalloc has put a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The first address after the block and what jemalloc adds to it.
    pub end: u64,
    /// The pages that stay as long as the block lives.
    pub keeps: Range<u64>,
}

/// Returns the place of a block.
pub fn slot(address: u64, size: u64) -> Slot {
    let class = class_size(size);
    let page = address / PAGE * PAGE;
    if class > LARGEST_SMALL {
        // A large block begins somewhere in the first page of its extent (`cache_oblivious`), which has a page more for that.
        let keeps = page..page.saturating_add(class).saturating_add(PAGE);
        return Slot { end: address.saturating_add(class), keeps };
    }
    let pages = slab_pages(class);
    let is_begin = |start: &u64| (address - start).is_multiple_of(class);
    let begin = (0..pages).filter_map(|before| page.checked_sub(before * PAGE)).find(is_begin);
    match begin {
        Some(begin) => Slot { end: address.saturating_add(class), keeps: begin..begin.saturating_add(pages * PAGE) },
        None => Slot { end: address.saturating_add(size), keeps: address..address.saturating_add(size) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_jemalloc() {
        let sizes = [0, 1, 8, 9, 16, 17, 100, 128, 129, 160, 161, 300, 320, 321, 1000, 1025, 4096, 4097, 14336, 14337];
        let classes =
            [8, 8, 8, 16, 16, 32, 112, 128, 160, 160, 192, 320, 320, 384, 1024, 1280, 4096, 5120, 14336, 16384];
        assert_eq!(sizes.map(class_size), classes);
        assert_eq!(class_size(u64::MAX), u64::MAX);
        let pages = [8, 16, 48, 80, 112, 128, 160, 192, 4096, 5120, 6144, 7168, 10240, 14336].map(slab_pages);
        assert_eq!(pages, [1, 1, 3, 5, 7, 1, 5, 3, 1, 5, 3, 7, 5, 7]);
    }

    #[test]
    fn every_block_of_a_slab_finds_it() {
        let start = 0x7f00_1234_5000;
        for size in [8, 40, 48, 72, 112, 160, 200, 320, 1000, 2048, 5000, 10_000, 14_000] {
            let class = class_size(size);
            let slab = start..start + slab_pages(class) * PAGE;
            for address in slab.clone().step_by(class as usize) {
                let expected = Slot { end: address + class, keeps: slab.clone() };
                assert_eq!(slot(address, size), expected, "{address:x} of {size}");
            }
        }
        let large = Slot { end: start + 64 + 20_480, keeps: start..start + 20_480 + PAGE };
        assert_eq!(slot(start + 64, 20_000), large);
        let own = Slot { end: start + 56, keeps: start + 8..start + 56 };
        assert_eq!(slot(start + 8, 48), own, "not at a place of its class");
        assert_eq!(slot(u64::MAX - 3, u64::MAX).end, u64::MAX);
    }
}
