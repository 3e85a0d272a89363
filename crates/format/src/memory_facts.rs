//! What hints about the resident memory need besides its parts.
//!
//! Receives: what the recorder measured at an instant. Returns: bytes, and what was measured. Must hold: a number that this version does not know is
//! skipped, and one that is missing is 0.
use crate::wire::{Cursor, put};
use crate::{Fragmentation, Malformed, MemoryInstant};

/// The shares of the sites follow after so many numbers.
const NUMBERS: usize = 7;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// The stack that allocated the highest live blocks of the main heap (0: several stacks, or none), and (below) the resident pages
    /// without a block right below them.
    pub top_stack: u32,
    pub top_free_bytes: u64,
    /// Threads whose stacks were deeper before, and (below) the resident bytes of their stacks beyond the depth that they have now.
    pub deeper_threads: u64,
    pub deeper_bytes: u64,
    /// Anonymous memory in transparent huge pages, and (below) an estimate of the bytes of it in pages that hold nothing but zeros.
    pub huge_bytes: u64,
    pub huge_zero_bytes: u64,
    /// Resident pages without a live block, in the pools of allocators other than glibc's.
    pub empty_pool_bytes: u64,
}

impl MemoryFacts {
    const fn numbers(&self) -> [u64; NUMBERS] {
        [
            self.top_stack as u64,
            self.top_free_bytes,
            self.deeper_threads,
            self.deeper_bytes,
            self.huge_bytes,
            self.huge_zero_bytes,
            self.empty_pool_bytes,
        ]
    }

    /// Writes the facts of all instants and the shares of their sites, or nothing if all numbers are 0.
    pub(crate) fn encode_all(instants: &[MemoryInstant], out: &mut Vec<u8>) {
        let numbers = |instant: &MemoryInstant| {
            let mut numbers = instant.facts.numbers().to_vec();
            numbers.extend(instant.fragmentation.shares());
            let used = numbers.iter().rposition(|number| *number > 0).map_or(0, |last| last + 1);
            numbers.truncate(used);
            numbers
        };
        let all: Vec<Vec<u64>> = instants.iter().map(numbers).collect();
        if all.iter().all(Vec::is_empty) {
            return;
        }
        for numbers in all {
            put(out, numbers.len() as u64);
            numbers.iter().for_each(|number| put(out, *number));
        }
    }

    pub(crate) fn decode(cursor: &mut Cursor<'_>, fragmentation: &mut Fragmentation) -> Result<Self, Malformed> {
        let numbers = cursor.list(|cursor| cursor.u64())?;
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        fragmentation.set_shares(numbers.get(NUMBERS..).unwrap_or_default());
        Ok(MemoryFacts {
            top_stack: u32::try_from(number(0)).map_err(|_| Malformed::Count)?,
            top_free_bytes: number(1),
            deeper_threads: number(2),
            deeper_bytes: number(3),
            huge_bytes: number(4),
            huge_zero_bytes: number(5),
            empty_pool_bytes: number(6),
        })
    }
}
