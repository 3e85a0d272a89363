//! What a look at the memory says if blocks are sampled.
//!
//! The blocks that were taken show which mappings are the allocator's. How much of these is in live blocks is not known, so
//! live blocks, what the allocator adds to them, and free memory become one part. No fact that depends on it is kept.
use format::{MemoryFacts, MemoryInstant, MemoryPart, part_kind};

/// Replaces what only all live blocks could tell.
pub(super) fn without_blocks(instant: &mut MemoryInstant) {
    let mut heap: Vec<MemoryPart> = Vec::new();
    let mut others = Vec::new();
    for part in std::mem::take(&mut instant.parts) {
        if ![part_kind::BLOCKS, part_kind::OVERHEAD, part_kind::FREE].contains(&part.kind.as_str()) {
            others.push(part);
            continue;
        }
        match heap.iter_mut().find(|known| known.name == part.name) {
            Some(known) => {
                known.rss_bytes = known.rss_bytes.saturating_add(part.rss_bytes);
                known.pss_bytes = known.pss_bytes.saturating_add(part.pss_bytes);
            }
            None => heap.push(MemoryPart { kind: part_kind::HEAP.to_owned(), ..part }),
        }
    }
    heap.sort_by(|a, b| (b.rss_bytes, &a.name).cmp(&(a.rss_bytes, &b.name)));
    instant.parts = heap.into_iter().chain(others).collect();
    instant.facts = MemoryFacts { top_stack: 0, top_free_bytes: 0, empty_pool_bytes: 0, ..instant.facts };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocators_memory_is_one_part_and_the_sum_stays() {
        let part = |kind: &str, name: &str, bytes: u64| MemoryPart {
            kind: kind.to_owned(),
            name: name.to_owned(),
            rss_bytes: bytes,
            pss_bytes: bytes / 2,
        };
        let mut instant = MemoryInstant {
            parts: vec![
                part(part_kind::BLOCKS, "arena 1", 10),
                part(part_kind::BLOCKS, "main heap", 20),
                part(part_kind::OVERHEAD, "main heap", 2),
                part(part_kind::FREE, "main heap", 300),
                part(part_kind::STACK, "", 40),
            ],
            facts: MemoryFacts { top_free_bytes: 9, top_stack: 3, huge_bytes: 7, ..MemoryFacts::default() },
            ..MemoryInstant::default()
        };
        without_blocks(&mut instant);
        let heap = part_kind::HEAP;
        let expected = [part(heap, "main heap", 322), part(heap, "arena 1", 10), part(part_kind::STACK, "", 40)];
        assert_eq!(instant.parts, expected);
        assert_eq!(instant.facts, MemoryFacts { huge_bytes: 7, ..MemoryFacts::default() });
    }
}
