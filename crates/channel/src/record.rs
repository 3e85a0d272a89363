//! The words of a ring record.
//!
//! ```text
//!          63                                   3 2  0
//! word 0  |  stamp (61 bits)                     | kind |
//!
//! Alloc   | size 15..0 | C |  address (47 bits)         |   word 1
//!         | size 47..16 (32)     | stack id (32)         |   word 2
//! Free    | 0          | C |  address (47 bits)         |   word 1
//! FreeByRealloc: as Free. ThreadStart, Image:
//!         |  value                                      |   word 1
//! Image, of a fork:
//!         | 1 | number of the fork (31) | pid of the child (32) |   word 1
//! Image, of the end of the process: as of a fork, with the number 0 and its exit code in place of the pid
//! Image, of a heap (`HeapMark`):
//!         | 0 | 1 | mark (14) | address of the heap (48) |   word 1
//! AllocBy: as Alloc, but the size is smaller than 2^40. Its bits 46..40 are the `AllocatorId`; bit 47 is set if the
//! block is in the heap that the `HeapMark` before it names.
//! Its bits 46..40 are a `MapCall` instead if the event is about a mapping of the program. The size is then in pages, and
//! C is set.
//! Skip    (no further word)
//!
//!          63       48 47            16 15      3 2  0
//! Path    | 0         | first number   | count    | kind |   word 0
//!         | tail number                                  |   word 1
//!         | frame, leaf first                            |   words 2 .. 2 + count
//! ```
//!
//! A Path defines new stacks, before the first event that uses them. Its frame `i` is the leaf of stack `first + i`.
//! The caller of that frame is the leaf of stack `first + i + 1`. The caller of the last frame is the leaf of stack
//! `tail`, or there is none if `tail` is 0. Each ring has its own numbers. The numbers of a thread's main ring rise,
//! and an event refers only to one of the latest 2^15, so a reader keeps that many stacks. The nested ring begins at 1
//! again with every path.
//!
//! Sizes are those that the program asked for. An allocation that succeeded is smaller than 2^47 bytes on this
//! architecture.
//!
//! C is the domain of the block: 0 = malloc's, 1 = the program reported it itself ([`CUSTOM`]). It is a part of the
//! address everywhere, because a block of a pool and the malloc block around it may begin at the same address and are
//! two blocks.
use crate::numbered::numbered;

/// The number of a stack of one ring, see Path above. 0 = unknown.
pub type StackId = u32;

/// A point in the order of events, in cycles of the time stamp counter or in ticks (`Clock`).
pub type Stamp = u64;

pub const ALLOC_WORDS: usize = 3;
pub const FREE_WORDS: usize = 2;
pub const PATH_HEAD_WORDS: usize = 2;
/// The most frames of a Path.
pub const MAX_PATH: usize = 4000;
pub const MAX_SIZE: u64 = (1 << 48) - 1;
const ADDRESS_MASK: u64 = (1 << 48) - 1;
pub const KIND_BITS: u32 = 3;
/// Set in the address of a block that the program reported itself. No address of user space has this bit.
pub const CUSTOM: u64 = 1 << 47;
/// Set in the value of an `Image` that is a fork.
pub const FORK: u64 = 1 << 63;
/// Set in the value of an `Image` that is about a heap.
const HEAP: u64 = 1 << 62;
const HEAP_MARK_AT: u32 = 48;
/// The `pid` of a fork that failed.
pub const FORK_FAILED: u32 = u32::MAX;

numbered! {
    pub enum Kind: u64 {
        /// A word without meaning. The target never writes one.
        Skip = 0,
        Alloc = 1,
        Free = 2,
        /// The events that follow belong to the thread whose tid is the value.
        ThreadStart = 3,
        /// A program image starts here: the first one, or the next one after an exec. All earlier blocks are gone. The
        /// value is the image's number. Or, if the upper bit of the value is set: the process forks. That is only written
        /// if its children are followed, once before the fork, and once after it. If the number of the fork is 0: the process ends.
        /// Or, if the next bit is set: a `HeapMark`.
        Image = 4,
        /// The free half of a realloc.
        FreeByRealloc = 5,
        /// New stacks.
        Path = 6,
        /// An allocation by another allocator than malloc.
        AllocBy = 7,
    }
}

numbered! {
    /// The allocator whose function the program called for a block.
    pub enum AllocatorId: u8 {
        /// A function under one of libc's plain names, or an operator of C++ that no other allocator defines.
        Malloc = 0 => "malloc",
        Jemalloc = 1 => "jemalloc",
        Tcmalloc = 2 => "tcmalloc",
        Mimalloc = 3 => "mimalloc",
        Snmalloc = 4 => "snmalloc",
        Rpmalloc = 5 => "rpmalloc",
        Tbbmalloc = 6 => "tbbmalloc",
    }
    pub fn name
}

numbered! {
    /// What a record says about a heap: a part of an allocator whose blocks can be freed all at once, such as mimalloc's
    /// heaps and jemalloc's arenas.
    pub enum HeapMark: u64 {
        /// The next tagged allocation of this ring is in the heap.
        In = 0,
        /// All blocks of the heap are freed.
        Ended = 1,
        /// The heap is gone, but its blocks are not: they belong to another heap now, which is never ended.
        Left = 2,
        /// The heap of the last `In` of this ring is a part of this heap.
        PartOf = 3,
        /// From now on the heap also gets blocks that are not marked.
        Mixed = 4,
        /// Blocks were freed, but it is not known which.
        UnknownEnded = 5,
    }
}

impl HeapMark {
    const fn of(number: u64) -> Option<HeapMark> {
        Some(match number {
            0 => HeapMark::In,
            1 => HeapMark::Ended,
            2 => HeapMark::Left,
            3 => HeapMark::PartOf,
            4 => HeapMark::Mixed,
            5 => HeapMark::UnknownEnded,
            _ => return None,
        })
    }

    /// Returns the value of a record that is about the heap at `heap`.
    pub const fn value(self, heap: u64) -> u64 {
        HEAP | (self as u64) << HEAP_MARK_AT | heap & ADDRESS_MASK
    }

    /// The reverse of `value`.
    pub const fn from_value(value: u64) -> Option<(HeapMark, u64)> {
        if value & (FORK | HEAP) != HEAP {
            return None;
        }
        match HeapMark::of(value >> HEAP_MARK_AT & 0x3fff) {
            Some(mark) => Some((mark, value & ADDRESS_MASK)),
            None => None,
        }
    }
}

/// The size of a page, in which `MapCall` counts: 2 to this power.
pub const PAGE_BITS: u32 = 12;

numbered! {
    /// A call by which the program changes its mappings. It stands where an allocation has its allocator.
    pub enum MapCall: u8 {
        Mmap = 64 => "mmap",
        Munmap = 65 => "munmap",
        /// The two halves of an mremap: what it moves, stamped before the call, and what it makes, stamped after it.
        MremapFrom = 66 => "mremap from",
        Mremap = 67 => "mremap",
        Shmat = 68 => "shmat",
        /// The size is not known here: it is that of the mapping at the address.
        Shmdt = 69 => "shmdt",
        /// `madvise`, which frees pages and keeps the mapping.
        DontNeed = 70 => "madvise(MADV_DONTNEED)",
        Free = 71 => "madvise(MADV_FREE)",
    }
    pub fn name
}

impl MapCall {
    /// Returns the call whose number a decoded size has in place of the allocator.
    #[inline]
    pub fn of(size: u64) -> Option<MapCall> {
        let number = split_size(size).1.checked_sub(MapCall::Mmap as u8)?;
        MapCall::ALL.get(number as usize).copied()
    }

    /// The size of an event of this call, for `encode_alloc`.
    #[inline]
    pub const fn size(self, bytes: u64) -> u64 {
        tagged(bytes.saturating_add((1 << PAGE_BITS) - 1) >> PAGE_BITS & ((1 << TAG_AT) - 1), self as u8)
    }
}

/// Returns true for the size of an event of a `MapCall`, as `MapCall::size` has made it.
#[inline(always)]
pub const fn is_map_call(size: u64) -> bool {
    size >> 61 == TAGGED >> 61 && size >> TAG_AT & MapCall::Mmap as u64 != 0
}

/// Set in the number of the allocator if the block is in a heap. See `HeapMark::In`.
pub const IN_HEAP: u8 = 1 << 7;

/// Where a tagged size has its allocator, for `encode_alloc`: in the bits 47..40. `TAGGED` is set then.
const TAG_AT: u32 = 40;
const TAGGED: u64 = 6 << 61;

/// Puts the allocator into the size of an allocation, for `encode_alloc`. A block of 1 TB or more keeps no allocator.
#[inline(always)]
pub const fn tagged(size: u64, allocator: u8) -> u64 {
    if allocator == 0 || size >> TAG_AT != 0 { size } else { size | (allocator as u64) << TAG_AT | TAGGED }
}

/// Returns true if the allocator that `tagged` has put into this size has `IN_HEAP`.
pub const fn is_tagged_in_heap(size: u64) -> bool {
    size >> 61 == TAGGED >> 61 && !is_map_call(size) && (size >> TAG_AT) as u8 & IN_HEAP != 0
}

/// Where the size of a decoded allocation has its allocator.
const ALLOCATOR_AT: u32 = 56;

/// Takes the size of a decoded allocation apart: the size itself, and the number of the allocator.
#[inline(always)]
pub const fn split_size(size: u64) -> (u64, u8) {
    (size & ((1 << ALLOCATOR_AT) - 1), (size >> ALLOCATOR_AT) as u8 & !IN_HEAP)
}

/// Returns true if the size of a decoded allocation says that the block is in a heap.
#[inline(always)]
pub const fn is_in_heap(size: u64) -> bool {
    (size >> ALLOCATOR_AT) as u8 & IN_HEAP != 0
}

/// Moves the allocator of an `AllocBy` to where `split_size` expects it. `mask` is all ones for an `AllocBy`, 0 for
/// others.
#[inline(always)]
const fn separate(size: u64, mask: u64) -> u64 {
    let allocator = size & mask & 0xff << TAG_AT;
    size ^ allocator | allocator << (ALLOCATOR_AT - TAG_AT)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Alloc {
        stamp: Stamp,
        address: u64,
        /// With the number of the allocator, see [`split_size`].
        size: u64,
        stack: u32,
    },
    /// `by_realloc`: this is the free half of a realloc. The Alloc of the new block normally follows in the same ring.
    /// None follows while recording is paused, or if the program itself reported the resize and does not report the new
    /// block.
    Free {
        stamp: Stamp,
        address: u64,
        by_realloc: bool,
    },
    ThreadStart {
        stamp: Stamp,
        tid: u32,
    },
    Image {
        stamp: Stamp,
        image: u32,
    },
    Fork {
        stamp: Stamp,
        /// Counted by each process from 1, in 31 bits. Stored before the fork, so that the child knows it too.
        fork: u32,
        /// 0 before the fork. After it the pid of the child, or `FORK_FAILED`.
        pid: u32,
    },
    /// The process is about to end itself, and has no other thread. Nothing of it follows. Only written if its tree is
    /// followed. A process that is killed, or has several threads, ends without it.
    Exit {
        stamp: Stamp,
        code: u8,
    },
    Heap {
        stamp: Stamp,
        mark: HeapMark,
        heap: u64,
    },
}

impl Event {
    pub const fn stamp(&self) -> Stamp {
        match *self {
            Event::Alloc { stamp, .. }
            | Event::Free { stamp, .. }
            | Event::ThreadStart { stamp, .. }
            | Event::Image { stamp, .. }
            | Event::Fork { stamp, .. }
            | Event::Exit { stamp, .. }
            | Event::Heap { stamp, .. } => stamp,
        }
    }
}

/// New stacks of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    pub first: StackId,
    pub tail: StackId,
    /// `FrameKey`s, leaf first.
    pub frames: &'a [u64],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Event(Event),
    Path(Path<'a>),
}

/// The target wrote words that are no record. The rest of its ring cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The record needs more words than were committed.
    Cut,
}

#[inline(always)]
pub const fn encode_alloc(stamp: Stamp, address: u64, size: u64, stack: u32) -> [u64; ALLOC_WORDS] {
    // `Alloc`, or `AllocBy` if the size is tagged: the two bits of `TAGGED` are the upper bits of the kind.
    let kind = size >> 61 | Kind::Alloc as u64;
    [stamp << KIND_BITS | kind, address & ADDRESS_MASK | size << 48, stack as u64 | (size >> 16) << 32]
}

const _: () = assert!(TAGGED >> 61 | Kind::Alloc as u64 == Kind::AllocBy as u64);

/// `kind` is `Free` or `FreeByRealloc`.
#[inline(always)]
pub const fn encode_free(kind: Kind, stamp: Stamp, address: u64) -> [u64; FREE_WORDS] {
    [stamp << KIND_BITS | kind as u64, address & ADDRESS_MASK]
}

/// `kind` is `ThreadStart` or `Image`. `value` is the tid or the number of the image.
#[inline]
pub const fn encode_mark(kind: Kind, stamp: Stamp, value: u32) -> [u64; 2] {
    [stamp << KIND_BITS | kind as u64, value as u64]
}

#[inline]
pub const fn encode_fork(stamp: Stamp, fork: u32, pid: u32) -> [u64; 2] {
    [stamp << KIND_BITS | Kind::Image as u64, FORK | (fork as u64) << 32 & !FORK | pid as u64]
}

#[inline]
pub const fn encode_exit(stamp: Stamp, code: u8) -> [u64; 2] {
    encode_fork(stamp, 0, code as u32)
}

#[inline]
pub const fn encode_heap(stamp: Stamp, mark: HeapMark, heap: u64) -> [u64; 2] {
    [stamp << KIND_BITS | Kind::Image as u64, mark.value(heap)]
}

/// The words before a path's frames.
#[inline]
pub const fn encode_path(first: StackId, count: usize, tail: StackId) -> [u64; PATH_HEAD_WORDS] {
    [(first as u64) << 16 | (count as u64) << KIND_BITS | Kind::Path as u64, tail as u64]
}

/// If `word` is the first word of a path, returns how many frames the path has.
pub(crate) const fn path_frames(word: u64) -> Option<u64> {
    if word & ((1 << KIND_BITS) - 1) == Kind::Path as u64 { Some(word >> KIND_BITS & 0x1fff) } else { None }
}

/// An allocation or a free, with few differences between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// `stamp (61) | kind (3)`, as in the ring, but an `AllocBy` is an `Alloc` here.
    pub head: u64,
    pub address: u64,
    /// The size, with the number of the allocator (`split_size`). 0 for a free, as is `stack`.
    pub size: u64,
    pub stack: StackId,
}

impl Plain {
    #[inline(always)]
    const fn is_kind(head: u64) -> bool {
        const KINDS: u64 = 1 << Kind::Alloc as u64
            | 1 << Kind::AllocBy as u64
            | 1 << Kind::Free as u64
            | 1 << Kind::FreeByRealloc as u64;
        KINDS >> (head & ((1 << KIND_BITS) - 1)) & 1 != 0
    }

    #[inline(always)]
    const fn is_alloc_kind(head: u64) -> bool {
        const KINDS: u64 = 1 << Kind::Alloc as u64 | 1 << Kind::AllocBy as u64;
        KINDS >> (head & ((1 << KIND_BITS) - 1)) & 1 != 0
    }

    #[inline(always)]
    pub const fn is_alloc(&self) -> bool {
        Self::is_alloc_kind(self.head)
    }
}

/// What an `Image` record says.
#[cold]
const fn rare_event(stamp: Stamp, value: u64) -> Event {
    if value >> 32 == FORK >> 32 {
        Event::Exit { stamp, code: value as u8 }
    } else if value & FORK != 0 {
        Event::Fork { stamp, fork: (value >> 32) as u32 & 0x7fff_ffff, pid: value as u32 }
    } else if let Some((mark, heap)) = HeapMark::from_value(value) {
        Event::Heap { stamp, mark, heap }
    } else {
        Event::Image { stamp, image: value as u32 }
    }
}

/// Decodes the committed words of a ring. They must be a copy, because the target may still change the ring itself.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    words: &'a [u64],
}

impl<'a> Decoder<'a> {
    pub const fn new(words: &'a [u64]) -> Self {
        Decoder { words }
    }

    /// Words not yet decoded.
    pub const fn remaining(&self) -> usize {
        self.words.len()
    }

    /// Returns the next event, or `None` at the end. Skips paths.
    #[inline]
    pub fn decode(&mut self) -> Result<Option<Event>, RecordError> {
        loop {
            match self.record()? {
                Some(Record::Event(event)) => return Ok(Some(event)),
                Some(Record::Path(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next record if it is an allocation or a free, without taking it. The code has no branch that depends on
    /// which of the two it is, because no processor can predict that. `None` also near the end of the words, where the
    /// record must be decoded by `record`.
    #[inline(always)]
    pub fn plain(&self) -> Option<Plain> {
        let [head, first, second, ..] = *self.words else { return None };
        if !Plain::is_kind(head) {
            return None;
        }
        let mask = (Plain::is_alloc_kind(head) as u64).wrapping_neg();
        let by = (head & ((1 << KIND_BITS) - 1) == Kind::AllocBy as u64) as u64;
        let by = by.wrapping_neg();
        Some(Plain {
            head: head ^ (by & (Kind::Alloc as u64 ^ Kind::AllocBy as u64)),
            address: first & ADDRESS_MASK,
            size: separate((first >> 48 | (second >> 32) << 16) & mask, by),
            stack: (second & mask) as u32,
        })
    }

    /// Takes the record that `plain` returned.
    #[inline(always)]
    pub fn take_plain(&mut self, plain: &Plain) {
        self.words = self.words.get(FREE_WORDS + plain.is_alloc() as usize..).unwrap_or_default();
    }

    /// Returns the next record, or `None` at the end. Inlined, because the merge of one ring calls it for every event and looks at the
    /// kind once more, which then costs nothing.
    #[inline(always)]
    pub fn record(&mut self) -> Result<Option<Record<'a>>, RecordError> {
        loop {
            let Some((&first, rest)) = self.words.split_first() else { return Ok(None) };
            let stamp = first >> KIND_BITS;
            let kind = first & ((1 << KIND_BITS) - 1);
            let event = match (kind, rest) {
                (0, _) => {
                    self.words = rest;
                    continue;
                }
                (1 | 7, [w1, w2, rest @ ..]) => {
                    self.words = rest;
                    Event::Alloc {
                        stamp,
                        address: w1 & ADDRESS_MASK,
                        size: separate(w1 >> 48 | (w2 >> 32) << 16, if kind == 7 { u64::MAX } else { 0 }),
                        stack: *w2 as u32,
                    }
                }
                (2 | 5, [w1, rest @ ..]) => {
                    self.words = rest;
                    Event::Free { stamp, address: *w1 & ADDRESS_MASK, by_realloc: kind == 5 }
                }
                (3, [w1, rest @ ..]) => {
                    self.words = rest;
                    Event::ThreadStart { stamp, tid: *w1 as u32 }
                }
                (4, [w1, rest @ ..]) => {
                    self.words = rest;
                    rare_event(stamp, *w1)
                }
                (6, [tail, rest @ ..]) => return self.path(first, *tail, rest).map(Some),
                _ => return Err(RecordError::Cut),
            };
            return Ok(Some(Record::Event(event)));
        }
    }

    #[cold]
    fn path(&mut self, head: u64, tail: u64, rest: &'a [u64]) -> Result<Record<'a>, RecordError> {
        let count = (head >> KIND_BITS) as usize & 0x1fff;
        let (frames, rest) = rest.split_at_checked(count).ok_or(RecordError::Cut)?;
        self.words = rest;
        Ok(Record::Path(Path { first: (head >> 16) as u32, tail: tail as u32, frames }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_kind_comes_back_as_it_went_in() {
        let mut words = Vec::new();
        words.extend(encode_alloc(77, 0x7fff_1234_5670, 0x1234_5678_9abc, 0xdead_beef));
        words.push(Kind::Skip as u64);
        words.extend(encode_free(Kind::Free, 78, 0x7fff_1234_5670));
        words.extend(encode_mark(Kind::ThreadStart, 79, 4242));
        words.extend(encode_mark(Kind::Image, 80, 2));
        words.extend(encode_fork(81, 3, 4243));
        words.extend(encode_heap(82, HeapMark::PartOf, 0x7fff_1234_5000));
        words.extend(encode_exit(83, 7));
        let mut decoder = Decoder::new(&words);
        let mut events = Vec::new();
        while let Ok(Some(event)) = decoder.decode() {
            events.push(event);
        }
        assert_eq!(
            events,
            [
                Event::Alloc { stamp: 77, address: 0x7fff_1234_5670, size: 0x1234_5678_9abc, stack: 0xdead_beef },
                Event::Free { stamp: 78, address: 0x7fff_1234_5670, by_realloc: false },
                Event::ThreadStart { stamp: 79, tid: 4242 },
                Event::Image { stamp: 80, image: 2 },
                Event::Fork { stamp: 81, fork: 3, pid: 4243 },
                Event::Heap { stamp: 82, mark: HeapMark::PartOf, heap: 0x7fff_1234_5000 },
                Event::Exit { stamp: 83, code: 7 },
            ]
        );
        assert_eq!(decoder.remaining(), 0);
    }

    #[test]
    fn a_path_comes_back_and_is_passed_over_by_those_who_want_events() {
        let mut words = Vec::from(encode_path(u32::MAX, 3, 7));
        words.extend([10, 20, 30]);
        words.extend(encode_free(Kind::Free, 78, 0x7fff_1234_5670));
        let path = Path { first: u32::MAX, tail: 7, frames: &[10, 20, 30] };
        assert_eq!(Decoder::new(&words).record(), Ok(Some(Record::Path(path))));
        let free = Event::Free { stamp: 78, address: 0x7fff_1234_5670, by_realloc: false };
        assert_eq!(Decoder::new(&words).decode(), Ok(Some(free)));
        assert_eq!(Decoder::new(&words[..4]).record(), Err(RecordError::Cut));
    }

    #[test]
    fn plain_events_are_those_that_record_finds() {
        let mut words = Vec::new();
        words.extend(encode_alloc(77, 0x7fff_1234_5670, 0x1234_5678_9abc, 0xdead_beef));
        words.extend(encode_free(Kind::Free, 78, 0x7fff_1234_5670));
        words.extend(encode_free(Kind::FreeByRealloc, 79, CUSTOM | 0x10));
        words.extend(encode_alloc(80, 0x20, tagged(5000, 3), 9));
        words.extend(encode_mark(Kind::Image, 81, 2));
        words.extend(encode_free(Kind::Free, 82, 0x20));
        let (mut decoder, mut plain) = (Decoder::new(&words), Vec::new());
        while let Some(next) = decoder.plain() {
            let Ok(Some(Record::Event(event))) = decoder.clone().record() else { panic!("no event") };
            let (address, size, stack) = match event {
                Event::Alloc { address, size, stack, .. } => (address, size, stack),
                Event::Free { address, .. } => (address, 0, 0),
                _ => panic!("a mark"),
            };
            assert_eq!(
                (next.head >> KIND_BITS, next.address, next.size, next.stack),
                (event.stamp(), address, size, stack)
            );
            assert_eq!(next.is_alloc(), matches!(event, Event::Alloc { .. }));
            decoder.take_plain(&next);
            plain.push(event.stamp());
        }
        assert_eq!((plain, decoder.remaining()), (std::vec![77, 78, 79, 80], 4), "up to the mark");
        let mut end = Decoder::new(&words[12..]);
        assert_eq!(end.plain(), None, "too few words to look at an allocation");
        assert_eq!(end.decode(), Ok(Some(Event::Free { stamp: 82, address: 0x20, by_realloc: false })));
    }

    #[test]
    fn the_allocator_comes_back_with_the_size() {
        let largest = (1 << TAG_AT) - 1;
        for (size, allocator, expected) in [(0, 6, 6), (77, 0, 0), (largest, 1, 1), (largest + 1, 1, 0)] {
            let words = encode_alloc(5, 0x7fff_0000_0010, tagged(size, allocator), 3);
            let Ok(Some(Event::Alloc { stamp: 5, address: 0x7fff_0000_0010, size: both, stack: 3 })) =
                Decoder::new(&words).decode()
            else {
                panic!("{words:x?}")
            };
            assert_eq!((split_size(both), is_in_heap(both)), ((size, expected), false));
            let in_heap = encode_alloc(5, 0x7fff_0000_0010, tagged(size, allocator | IN_HEAP), 3);
            let Ok(Some(Event::Alloc { size: both_in_heap, .. })) = Decoder::new(&in_heap).decode() else {
                panic!("{in_heap:x?}")
            };
            let is_tagged = size >> TAG_AT == 0;
            assert_eq!((split_size(both_in_heap), is_in_heap(both_in_heap)), ((size, expected), is_tagged));
            let plain = Decoder::new(&words).plain().map(|plain| (plain.head, plain.size));
            assert_eq!(plain, Some((5 << KIND_BITS | 1, both)));
        }
    }

    #[test]
    fn a_map_call_comes_back_with_its_pages() {
        for (index, call) in MapCall::ALL.into_iter().enumerate() {
            let bytes = 4096 * index as u64 + 1;
            let words = encode_alloc(5, CUSTOM | 0x7fff_0000_0000, call.size(bytes), 3);
            let Ok(Some(Event::Alloc { size, .. })) = Decoder::new(&words).decode() else { panic!("{words:x?}") };
            assert_eq!((MapCall::of(size), split_size(size).0), (Some(call), index as u64 + 1));
            assert!(is_map_call(call.size(bytes)) && !is_map_call(bytes) && !is_map_call(tagged(bytes, 6)));
        }
        assert_eq!(
            (MapCall::of(4096), MapCall::of(6 << ALLOCATOR_AT), MapCall::of(72 << ALLOCATOR_AT)),
            (None, None, None)
        );
    }

    #[test]
    fn garbage_is_an_error() {
        assert_eq!(Decoder::new(&[7]).decode(), Err(RecordError::Cut));
        assert_eq!(Decoder::new(&[1, 2]).decode(), Err(RecordError::Cut));
    }
}
