//! Which resident pages of the allocator are mostly free, and which allocation sites keep them resident.
//!
//! Receives: what the recorder measured. Returns: bytes, and what was measured. Must hold: the size is bounded, however many sites there are.
use crate::Malformed;
use crate::wire::{Cursor, put};

/// The resident pages of the allocator at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Resident pages without any live block that `malloc_trim(0)` would return to the kernel.
    pub trim_bytes: u64,
    /// Resident pages with live blocks that are at least half free, and (below) the bytes of live blocks in them.
    pub sparse_bytes: u64,
    pub sparse_live_bytes: u64,
    /// Those of the sparse pages in which blocks of several sites live.
    pub shared_bytes: u64,
    /// The sites that pin most, in this order.
    pub sites: Vec<PinningSite>,
    /// The number of all other sites with live blocks, and (below) their sums.
    pub other_sites: u64,
    pub others: PinningSite,
    /// In the order of sizes.
    pub sizes: Vec<SizeFill>,
}

/// The live blocks of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinningSite {
    /// The number of the stack; 0 for a sum of several.
    pub stack: u32,
    pub blocks: u64,
    /// As many as were requested.
    pub bytes: u64,
    /// Sparse pages in which only blocks of this stack live.
    pub pinned_bytes: u64,
    /// All resident pages of glibc or jemalloc in which only blocks of this stack live. They can be returned once its blocks are freed.
    pub held_bytes: u64,
    /// Its share of the sparse pages in which blocks of several stacks live.
    pub shared_bytes: u64,
    /// Pages as for `held_bytes` in which only blocks of this stack and of the sites before it in the list live.
    pub together_bytes: u64,
}

/// The resident pages whose largest block has a size of this class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeFill {
    /// The highest size of the class, a power of two. Its sizes are more than half of that.
    pub up_to_bytes: u64,
    pub resident_bytes: u64,
    /// Bytes of live blocks in these pages, with what the allocator adds.
    pub live_bytes: u64,
}

impl PinningSite {
    const fn numbers(&self) -> [u64; 5] {
        [self.stack as u64, self.blocks, self.bytes, self.pinned_bytes, self.held_bytes]
    }

    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let stack = cursor.u32()?;
        let [blocks, bytes, pinned_bytes, held_bytes] = cursor.numbers()?;
        Ok(PinningSite { stack, blocks, bytes, pinned_bytes, held_bytes, ..PinningSite::default() })
    }
}

impl Fragmentation {
    /// What blocks of older versions lack: two numbers for each site, and one for the others.
    pub(crate) fn shares(&self) -> Vec<u64> {
        let of_sites = self.sites.iter().flat_map(|site| [site.shared_bytes, site.together_bytes]);
        of_sites.chain([self.others.shared_bytes]).collect()
    }

    pub(crate) fn set_shares(&mut self, shares: &[u64]) {
        let mut shares = shares.iter().copied();
        for site in &mut self.sites {
            site.shared_bytes = shares.next().unwrap_or(0);
            site.together_bytes = shares.next().unwrap_or(0);
        }
        self.others.shared_bytes = shares.next().unwrap_or(0);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut put_all = |numbers: &[u64]| numbers.iter().for_each(|number| put(out, *number));
        put_all(&[self.trim_bytes, self.sparse_bytes, self.sparse_live_bytes, self.shared_bytes]);
        put_all(&[self.sites.len() as u64]);
        self.sites.iter().for_each(|site| put_all(&site.numbers()));
        put_all(&[self.other_sites]);
        put_all(&self.others.numbers());
        put_all(&[self.sizes.len() as u64]);
        self.sizes.iter().for_each(|size| put_all(&[size.up_to_bytes, size.resident_bytes, size.live_bytes]));
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let [trim_bytes, sparse_bytes, sparse_live_bytes, shared_bytes] = cursor.numbers()?;
        let sites = cursor.list(PinningSite::decode)?;
        let other_sites = cursor.u64()?;
        let others = PinningSite::decode(cursor)?;
        let sizes = cursor.list(|cursor| {
            let [up_to_bytes, resident_bytes, live_bytes] = cursor.numbers()?;
            Ok(SizeFill { up_to_bytes, resident_bytes, live_bytes })
        })?;
        Ok(Fragmentation {
            trim_bytes,
            sparse_bytes,
            sparse_live_bytes,
            shared_bytes,
            sites,
            other_sites,
            others,
            sizes,
        })
    }
}
