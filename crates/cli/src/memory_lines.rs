//! The parts of the resident memory in five lines, for reports.
use format::{MemoryInstant, part_kind};

/// Returns labels and values. `size` formats a number of bytes.
pub fn memory_lines(instant: &MemoryInstant, size: impl Fn(u64) -> String) -> [(String, String); 5] {
    let of = |kind: &str| size(instant.rss_of(kind));
    let older = instant.rss_of(part_kind::OLDER);
    let older = if older > 0 { format!("; older than the attach, or free: {}", size(older)) } else { String::new() };
    let allocator = match instant.rss_of(part_kind::HEAP) {
        0 => format!(
            "{} resident of {} requested; added by the allocator: {}; free inside the allocator: {}{older}",
            of(part_kind::BLOCKS),
            size(instant.requested_bytes),
            of(part_kind::OVERHEAD),
            of(part_kind::FREE)
        ),
        heap => format!("not known, because blocks were sampled; the allocator's memory: {}{older}", size(heap)),
    };
    let others = [
        ("anonymous mappings", instant.rss_of_mappings()),
        ("stacks", instant.rss_of(part_kind::STACK)),
        ("files", instant.rss_of(part_kind::FILE)),
        ("shared memory", instant.rss_of(part_kind::SHARED)),
    ];
    let others = others.map(|(name, bytes)| format!("{name} {}", size(bytes))).join(", ");
    let rest = format!("{}; unattributed: {}", of(part_kind::RECORDER), of(part_kind::UNATTRIBUTED));
    let cache = instant.cgroup_cache_bytes.map(|bytes| format!(", page cache of the cgroup {}", size(bytes)));
    let limit = instant.cgroup_limit_bytes.map(|bytes| format!(", limit of the cgroup {}", size(bytes)));
    let beside = format!(
        "swap {}, page tables {}{}{}",
        size(instant.swap_bytes),
        size(instant.page_table_bytes),
        cache.unwrap_or_default(),
        limit.unwrap_or_default()
    );
    let seconds = instant.time_ns as f64 / 1e9;
    let whole = format!("{}, PSS {}", size(instant.rss_bytes), size(instant.pss_bytes));
    [
        (format!("resident memory at {seconds:.3}s"), whole),
        ("- live blocks".into(), allocator),
        ("- other memory".into(), others),
        ("- heaptrack's own".into(), rest),
        ("- beside it".into(), beside),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::MemoryPart;

    fn lines(instant: &MemoryInstant) -> [String; 5] {
        memory_lines(instant, |bytes| format!("{bytes}B")).map(|(label, value)| format!("{label}: {value}"))
    }

    #[test]
    fn every_kind_is_in_the_lines() {
        let part = |(kind, rss_bytes): (&&str, u64)| MemoryPart {
            kind: (*kind).to_owned(),
            rss_bytes,
            ..MemoryPart::default()
        };
        let instant = MemoryInstant {
            time_ns: 1_500_000_000,
            rss_bytes: 78,
            pss_bytes: 65,
            requested_bytes: 64,
            cgroup_limit_bytes: Some(1000),
            parts: part_kind::ALL.iter().filter(|kind| **kind != part_kind::HEAP).zip(1..).map(part).collect(),
            ..MemoryInstant::default()
        };
        let lines = lines(&instant);
        let expected = [
            "resident memory at 1.500s: 78B, PSS 65B",
            "- live blocks: 1B resident of 64B requested; added by the allocator: 2B; free inside the allocator: 3B; older than the attach, or free: 4B",
            "- other memory: anonymous mappings 11B, stacks 7B, files 8B, shared memory 9B",
            "- heaptrack's own: 11B; unattributed: 12B",
            "- beside it: swap 0B, page tables 0B, limit of the cgroup 1000B",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn live_blocks_are_not_known_if_they_were_sampled() {
        let heap = MemoryPart { kind: part_kind::HEAP.to_owned(), rss_bytes: 9, ..MemoryPart::default() };
        let instant = MemoryInstant { parts: vec![heap], ..MemoryInstant::default() };
        let expected = "- live blocks: not known, because blocks were sampled; the allocator's memory: 9B";
        assert_eq!(lines(&instant)[1], expected);
    }
}
