//! The block: the unit that is compressed, checked and recovered. Every block can be read without any other.
use crate::wire::Cursor;
use crate::{
    AllocClasses, Allocators, Checkpoint, Events, Folded, Gone, HeapAtAttach, Index, Losses, Malformed, MapCalls,
    MemoryMap, MemoryParts, Module, Processes, RssSample, Session, Stacks, Summary, Suppressions, Symbols, Thread,
    Unseen, Waits,
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Defines `BlockKind`, and `BlockKind::ALL` with all its variants.
macro_rules! block_kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)*) => {
        /// What a block contains. Numbers never change: a new meaning gets a new number.
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BlockKind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl BlockKind {
            pub const ALL: [BlockKind; [$($number),*].len()] = [$(BlockKind::$kind),*];
        }
    };
}

block_kinds! {
    Session = 1,
    Suppressions = 2,
    Modules = 3,
    Threads = 4,
    Stacks = 5,
    AllocClasses = 6,
    Events = 7,
    Samples = 8,
    Losses = 9,
    Checkpoint = 10,
    /// Names of frames.
    Symbols = 11,
    Summary = 12,
    /// Where the other blocks are in the file.
    Index = 13,
    /// This kind, the next three and `CustomFolded` belong to the custom domain, see `Domain`.
    CustomAllocClasses = 14,
    CustomEvents = 15,
    CustomCheckpoint = 16,
    CustomSummary = 17,
    /// The size of the heap when we attached to the program.
    HeapAtAttach = 18,
    /// The sums of events that were removed to keep the file below its size limit.
    Folded = 19,
    CustomFolded = 20,
    /// What could not be recorded, and why.
    Unseen = 21,
    /// Of a merged trace: allocations that were live when their process called exec, or exited before the last process.
    Gone = 22,
    /// How long threads of the program waited for the recorder.
    Waits = 23,
    /// The processes of a followed tree, and which threads are theirs.
    Processes = 24,
    /// The allocation classes of allocators other than malloc.
    Allocators = 25,
    /// The parts of the resident memory, at instants.
    MemoryParts = 26,
    /// This kind and the next four belong to the domain of mappings.
    MappedAllocClasses = 27,
    MappedEvents = 28,
    MappedCheckpoint = 29,
    MappedSummary = 30,
    MappedFolded = 31,
    /// How often the program called mmap and its relatives.
    MapCalls = 32,
    /// A map of the address space, at one instant.
    MemoryMap = 33,
}

impl BlockKind {
    /// All kinds except `Events`, for a reader that skips everything else.
    pub const NOT_EVENTS: [BlockKind; Self::ALL.len() - 1] = {
        let mut others = [BlockKind::Session; Self::ALL.len() - 1];
        let (mut from, mut to) = (0, 0);
        while from < Self::ALL.len() {
            if !matches!(Self::ALL[from], BlockKind::Events) {
                others[to] = Self::ALL[from];
                to += 1;
            }
            from += 1;
        }
        others
    };

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A block's content before compression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawBlock {
    pub kind: BlockKind,
    pub payload: Vec<u8>,
}

/// A block's content, decoded. Events stay encoded; a replay walks over them.
#[derive(Clone, Debug)]
pub enum Block<'a> {
    Session(Session),
    Suppressions(Suppressions),
    Modules(Vec<Module>),
    Threads(Vec<Thread>),
    Stacks(Stacks),
    AllocClasses(AllocClasses),
    Events(Events<'a>),
    Samples(Vec<RssSample>),
    Losses(Losses),
    Checkpoint(Box<Checkpoint>),
    Symbols(Symbols),
    Summary(Summary),
    Index(Index),
    /// A block of another domain than malloc's, not decoded. Only a reader of all domains returns its kind unchanged. A
    /// reader of that domain returns the plain kind (`BlockKind::in_domain`), which is decoded into another variant.
    OtherDomain(BlockKind),
    HeapAtAttach(HeapAtAttach),
    Folded(Box<Folded>),
    Unseen(Vec<Unseen>),
    Gone(Gone),
    Waits(Waits),
    Processes(Processes),
    Allocators(Allocators),
    MemoryParts(MemoryParts),
    MapCalls(Vec<MapCalls>),
    MemoryMap(MemoryMap),
}

impl RawBlock {
    /// Returns the next sequence number and the time at the start of an Events block. Returns zeros for all other
    /// kinds, and for a malformed block.
    pub(crate) fn first_event(&self) -> (u64, u64) {
        match self.kind {
            BlockKind::Events | BlockKind::CustomEvents | BlockKind::MappedEvents => {
                match Events::decode(&self.payload) {
                    Ok(events) => (events.first_sequence(), events.time_ns()),
                    Err(_) => (0, 0),
                }
            }
            _ => (0, 0),
        }
    }

    pub fn decode(&self) -> Result<Block<'_>, Malformed> {
        let bytes = self.payload.as_slice();
        Ok(match self.kind {
            BlockKind::Session => Block::Session(Session::decode(bytes)?),
            BlockKind::Suppressions => Block::Suppressions(Suppressions::decode(bytes)?),
            BlockKind::Modules => Block::Modules(Module::decode(bytes)?),
            BlockKind::Threads => Block::Threads(Thread::decode(bytes)?),
            BlockKind::Stacks => Block::Stacks(Stacks::decode(bytes)?),
            BlockKind::AllocClasses => Block::AllocClasses(AllocClasses::decode(bytes)?),
            BlockKind::Events => Block::Events(Events::decode(bytes)?),
            BlockKind::Samples => Block::Samples(RssSample::decode(bytes)?),
            BlockKind::Losses => Block::Losses(Losses::decode(bytes)?),
            BlockKind::Checkpoint => Block::Checkpoint(Box::new(Checkpoint::decode(bytes)?)),
            BlockKind::Symbols => Block::Symbols(Symbols::decode(bytes)?),
            BlockKind::Summary => Block::Summary(Summary::decode(bytes)?),
            BlockKind::Index => Block::Index(Index::decode(bytes)?),
            BlockKind::CustomAllocClasses
            | BlockKind::CustomEvents
            | BlockKind::CustomCheckpoint
            | BlockKind::CustomSummary
            | BlockKind::CustomFolded
            | BlockKind::MappedAllocClasses
            | BlockKind::MappedEvents
            | BlockKind::MappedCheckpoint
            | BlockKind::MappedSummary
            | BlockKind::MappedFolded => Block::OtherDomain(self.kind),
            BlockKind::MapCalls => Block::MapCalls(MapCalls::decode(bytes)?),
            BlockKind::MemoryMap => Block::MemoryMap(MemoryMap::decode(bytes)?),
            BlockKind::HeapAtAttach => Block::HeapAtAttach(HeapAtAttach::decode(bytes)?),
            BlockKind::Waits => Block::Waits(Waits::decode(bytes)?),
            BlockKind::Processes => Block::Processes(Processes::decode(bytes)?),
            BlockKind::Folded => Block::Folded(Box::new(Folded::decode(bytes)?)),
            BlockKind::Unseen => Block::Unseen(Unseen::decode(bytes)?),
            BlockKind::Gone => Block::Gone(Gone::decode(bytes)?),
            BlockKind::Allocators => Block::Allocators(Allocators::decode(bytes)?),
            BlockKind::MemoryParts => Block::MemoryParts(MemoryParts::decode(bytes)?),
        })
    }
}

pub(crate) const MAGIC: [u8; 4] = *b"\xb5HTB";
pub const HEADER_LEN: usize = 32;
/// The largest block, compressed or not. It bounds the memory that a hostile length can make a reader allocate.
pub const MAX_RAW: usize = 64 << 20;
pub(crate) const FLAG_ZSTD: u8 = 1;

/// The header before a block's stored bytes. All numbers are little endian.
///
/// ```text
///  0      4      5       6      8          12            16        20            24         32
/// | magic | kind | flags | zero | raw len  | stored len  | ordinal | header sum  | checksum | stored bytes ...
/// ```
/// `header sum`: low half of xxh3-64 over the first 20 bytes, so that no wrong length is used. `checksum`: xxh3-64 over
/// the first 24 bytes and the stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// A reader skips a kind that it does not know.
    pub kind: u8,
    pub flags: u8,
    pub raw_len: u32,
    pub stored_len: u32,
    /// The number of the block in its file, from 0. A gap in these numbers shows that blocks are missing.
    pub ordinal: u32,
    pub checksum: u64,
}

impl BlockHeader {
    /// Encodes the header of `stored`, with its sums.
    pub(crate) fn encode(&self, stored: &[u8]) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind;
        bytes[5] = self.flags;
        bytes[8..12].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.ordinal.to_le_bytes());
        let sum = xxh3_64(&bytes[..20]) as u32;
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        let checksum = checksum(&bytes, stored);
        bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns `None` if these bytes are not a header.
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        if cursor.array::<4>().ok()? != MAGIC {
            return None;
        }
        let [kind, flags, zero0, zero1] = cursor.array::<4>().ok()?;
        let mut u32 = || cursor.array::<4>().ok().map(u32::from_le_bytes);
        let (raw_len, stored_len, ordinal, sum) = (u32()?, u32()?, u32()?, u32()?);
        let checksum = u64::from_le_bytes(cursor.array().ok()?);
        let fits = raw_len as usize <= MAX_RAW && stored_len as usize <= MAX_RAW;
        let whole = sum == xxh3_64(&bytes[..20]) as u32;
        if !fits || !whole || zero0 != 0 || zero1 != 0 {
            return None;
        }
        Some(BlockHeader { kind, flags, raw_len, stored_len, ordinal, checksum })
    }
}

pub(crate) fn checksum(header: &[u8; HEADER_LEN], stored: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&header[..24]);
    hash.update(stored);
    hash.digest()
}
