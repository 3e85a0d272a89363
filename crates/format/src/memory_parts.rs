//! The parts of a program's resident memory, at instants of its run.
//!
//! Receives: what the recorder measured. Returns: a block, and the instants of a block. Must hold: the parts of an instant add up to
//! its `rss_bytes` and `pss_bytes`; a reader shows kinds of parts that it does not know under their names.
use crate::wire::{Cursor, put, put_str};
use crate::{BlockKind, Fragmentation, Malformed, MemoryFacts, RawBlock};

/// What a part is. In the file each kind is written as its name.
pub mod part_kind {
    /// Bytes of live blocks, as many as the program asked for.
    pub const BLOCKS: &str = "blocks";
    /// What the allocator adds to live blocks: headers and rounding.
    pub const OVERHEAD: &str = "overhead";
    /// Memory of the allocator that no live block covers.
    pub const FREE: &str = "free";
    /// If blocks were sampled: memory of the allocator, in live blocks or free.
    pub const HEAP: &str = "heap";
    /// Of an attached program: memory that the allocator had at the attach and that no block allocated since then covers.
    pub const OLDER: &str = "older";
    /// Anonymous mappings that the program made itself with a call that was recorded. The name is `#` and the number of the call's stack.
    pub const MAPPED: &str = "mapped";
    /// Other anonymous mappings besides the allocator's.
    pub const ANONYMOUS: &str = "anonymous";
    pub const STACK: &str = "stack";
    pub const FILE: &str = "file";
    pub const SHARED: &str = "shared";
    /// Pages that the kernel maps into every process.
    pub const KERNEL: &str = "kernel";
    /// What exists only because of the recording.
    pub const RECORDER: &str = "recorder";
    /// Resident memory of which the recorder does not know what it is.
    pub const UNATTRIBUTED: &str = "unattributed";

    /// In the order in which they are shown.
    pub const ALL: [&str; 13] =
        [BLOCKS, OVERHEAD, FREE, HEAP, OLDER, MAPPED, ANONYMOUS, STACK, FILE, SHARED, KERNEL, RECORDER, UNATTRIBUTED];
}

/// All instants of one block, or the reason why there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryParts {
    /// Why nothing could be measured, as a sentence. Empty if it could.
    pub reason: String,
    pub instants: Vec<MemoryInstant>,
}

/// The resident memory of one process at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryInstant {
    /// The time since the session's start.
    pub time_ns: u64,
    pub rss_bytes: u64,
    pub pss_bytes: u64,
    /// These stand beside the sum: they are not resident memory of the program.
    pub swap_bytes: u64,
    pub page_table_bytes: u64,
    /// The page cache of the program's cgroup, and (below) the cgroup's limit. `None` if there is none.
    pub cgroup_cache_bytes: Option<u64>,
    pub cgroup_limit_bytes: Option<u64>,
    /// All live blocks, resident or not: their number, the bytes that were requested, and these with what the allocator adds.
    /// 0 if blocks were sampled.
    pub live_blocks: u64,
    pub requested_bytes: u64,
    pub usable_bytes: u64,
    pub parts: Vec<MemoryPart>,
    pub fragmentation: Fragmentation,
    pub facts: MemoryFacts,
}

impl MemoryPart {
    /// The stack of the call that made a part of the kind `mapped`.
    pub fn stack(&self) -> Option<u32> {
        if self.kind == part_kind::MAPPED { self.name.strip_prefix('#')?.parse().ok() } else { None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPart {
    /// One of `part_kind`.
    pub kind: String,
    /// Which of its kind: the path of a file, an arena.
    pub name: String,
    pub rss_bytes: u64,
    pub pss_bytes: u64,
}

impl MemoryInstant {
    /// False if blocks were sampled: which memory of the allocator is in live blocks is not known then.
    pub fn knows_blocks(&self) -> bool {
        self.parts.iter().all(|part| part.kind != part_kind::HEAP)
    }

    /// Returns the resident bytes of all anonymous mappings besides the allocator's, whether a call of the program explains them or not.
    pub fn rss_of_mappings(&self) -> u64 {
        self.rss_of(part_kind::MAPPED).saturating_add(self.rss_of(part_kind::ANONYMOUS))
    }

    /// Returns the resident bytes of all parts of a kind.
    pub fn rss_of(&self, kind: &str) -> u64 {
        self.parts.iter().filter(|part| part.kind == kind).map(|part| part.rss_bytes).fold(0, u64::saturating_add)
    }
}

impl MemoryParts {
    pub fn to_block(&self) -> RawBlock {
        let mut names: Vec<&str> = Vec::new();
        let mut body = Vec::new();
        put(&mut body, self.instants.len() as u64);
        for instant in &self.instants {
            instant.encode(&mut names, &mut body);
        }
        let mut out = Vec::new();
        put_str(&mut out, &self.reason);
        put(&mut out, names.len() as u64);
        names.iter().for_each(|name| put_str(&mut out, name));
        out.extend_from_slice(&body);
        MemoryFacts::encode_all(&self.instants, &mut out);
        RawBlock { kind: BlockKind::MemoryParts, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let reason = cursor.str()?;
        let names = cursor.list(|cursor| cursor.str())?;
        let mut instants = cursor.list(|cursor| MemoryInstant::decode(cursor, &names))?;
        // Older versions wrote no facts.
        if !cursor.is_empty() {
            for instant in &mut instants {
                instant.facts = MemoryFacts::decode(&mut cursor, &mut instant.fragmentation)?;
            }
        }
        cursor.end()?;
        Ok(MemoryParts { reason, instants })
    }
}

/// Returns the index of a name, and adds it if it is new. An instant has few names.
fn index_of<'a>(names: &mut Vec<&'a str>, name: &'a str) -> u64 {
    let known = names.iter().position(|known| *known == name);
    known.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    }) as u64
}

/// A number that may be missing, as 0, or the number + 1.
const fn plus_one(number: Option<u64>) -> u64 {
    match number {
        Some(number) => number.saturating_add(1),
        None => 0,
    }
}

impl MemoryInstant {
    fn encode<'a>(&'a self, names: &mut Vec<&'a str>, out: &mut Vec<u8>) {
        for number in [
            self.time_ns,
            self.rss_bytes,
            self.pss_bytes,
            self.swap_bytes,
            self.page_table_bytes,
            plus_one(self.cgroup_cache_bytes),
            plus_one(self.cgroup_limit_bytes),
            self.live_blocks,
            self.requested_bytes,
            self.usable_bytes,
            self.parts.len() as u64,
        ] {
            put(out, number);
        }
        for part in &self.parts {
            put(out, index_of(names, &part.kind));
            put(out, index_of(names, &part.name));
            put(out, part.rss_bytes);
            put(out, part.pss_bytes);
        }
        self.fragmentation.encode(out);
    }

    fn decode(cursor: &mut Cursor<'_>, names: &[String]) -> Result<Self, Malformed> {
        let [time_ns, rss_bytes, pss_bytes, swap_bytes, page_table_bytes, cache, limit, live_blocks, requested, usable] =
            cursor.numbers()?;
        let parts = cursor.list(|cursor| {
            let [kind, name, rss_bytes, pss_bytes] = cursor.numbers()?;
            let text = |index: u64| names.get(index as usize).cloned().ok_or(Malformed::Count);
            Ok(MemoryPart { kind: text(kind)?, name: text(name)?, rss_bytes, pss_bytes })
        })?;
        Ok(MemoryInstant {
            time_ns,
            rss_bytes,
            pss_bytes,
            swap_bytes,
            page_table_bytes,
            cgroup_cache_bytes: cache.checked_sub(1),
            cgroup_limit_bytes: limit.checked_sub(1),
            live_blocks,
            requested_bytes: requested,
            usable_bytes: usable,
            parts,
            fragmentation: Fragmentation::decode(cursor)?,
            facts: MemoryFacts::default(),
        })
    }
}

/// Drops every second instant until at most `most` (at least 4) are left. The one with the highest RSS always stays.
pub fn thin_out(instants: &mut Vec<MemoryInstant>, most: usize) {
    while instants.len() > most.max(4) {
        let highest = instants.iter().enumerate().max_by_key(|(_, instant)| instant.rss_bytes).map(|(at, _)| at);
        let mut numbers = 0..;
        instants.retain(|_| numbers.next().is_some_and(|at| at % 2 == 0 || Some(at) == highest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PinningSite, SizeFill};

    fn instant(time_ns: u64, rss_bytes: u64) -> MemoryInstant {
        let part = |kind: &str, name: &str, bytes: u64| MemoryPart {
            kind: kind.into(),
            name: name.into(),
            rss_bytes: bytes,
            pss_bytes: bytes / 2,
        };
        MemoryInstant {
            time_ns,
            rss_bytes,
            pss_bytes: 5,
            swap_bytes: 6,
            page_table_bytes: 7,
            cgroup_cache_bytes: Some(0),
            cgroup_limit_bytes: None,
            live_blocks: 8,
            requested_bytes: 9,
            usable_bytes: 10,
            parts: vec![part(part_kind::FILE, "/lib/x", 11), part(part_kind::FILE, "file", 12)],
            fragmentation: Fragmentation {
                trim_bytes: 13,
                sparse_bytes: 14,
                sparse_live_bytes: 15,
                shared_bytes: 16,
                sites: vec![PinningSite {
                    stack: 17,
                    blocks: 18,
                    bytes: 19,
                    pinned_bytes: 20,
                    held_bytes: 21,
                    shared_bytes: 33,
                    together_bytes: 34,
                }],
                other_sites: 22,
                others: PinningSite {
                    stack: 0,
                    blocks: 23,
                    bytes: 24,
                    pinned_bytes: 25,
                    held_bytes: 26,
                    shared_bytes: 35,
                    together_bytes: 0,
                },
                sizes: vec![SizeFill { up_to_bytes: 27, resident_bytes: 28, live_bytes: 29 }],
            },
            facts: MemoryFacts { top_stack: 30, top_free_bytes: 31, empty_pool_bytes: 32, ..MemoryFacts::default() },
        }
    }

    #[test]
    fn a_block_reads_back_as_it_was() {
        for parts in [
            MemoryParts { reason: String::new(), instants: vec![instant(1, 2), instant(u64::MAX, u64::MAX)] },
            MemoryParts { reason: "no permission".into(), instants: Vec::new() },
        ] {
            let block = parts.to_block();
            assert_eq!(MemoryParts::decode(&block.payload).ok().as_ref(), Some(&parts));
            // Without its facts, a block reads as one of an older version.
            let plain = parts.instants.iter().map(|instant| {
                let mut plain = MemoryInstant { facts: MemoryFacts::default(), ..instant.clone() };
                plain.fragmentation.set_shares(&[]);
                plain
            });
            let plain = MemoryParts { reason: parts.reason.clone(), instants: plain.collect() };
            let plain_length = plain.to_block().payload.len();
            assert_eq!(MemoryParts::decode(&block.payload[..plain_length]).ok(), Some(plain));
            for length in (0..block.payload.len()).filter(|length| *length != plain_length) {
                assert!(MemoryParts::decode(&block.payload[..length]).is_err(), "{length}");
            }
        }
        assert_eq!(instant(1, 2).rss_of(part_kind::FILE), 23);
    }

    #[test]
    fn a_name_that_is_not_there_is_malformed() {
        let plain =
            MemoryInstant { fragmentation: Fragmentation::default(), facts: MemoryFacts::default(), ..instant(1, 2) };
        let mut payload = MemoryParts { reason: String::new(), instants: vec![plain] }.to_block().payload;
        // A fragmentation without lists has 12 numbers.
        let last_part = payload.len() - 12 - 4;
        payload[last_part] = 99;
        assert!(MemoryParts::decode(&payload).is_err());
    }

    #[test]
    fn thinning_keeps_the_highest() {
        let mut instants: Vec<MemoryInstant> = (0..1000).map(|n| instant(n, if n == 501 { 9999 } else { n })).collect();
        thin_out(&mut instants, 64);
        assert!(instants.len() <= 64 && instants.len() > 20, "{}", instants.len());
        assert!(instants.iter().any(|instant| instant.rss_bytes == 9999));
        assert!(instants.is_sorted_by_key(|instant| instant.time_ns));
    }
}
