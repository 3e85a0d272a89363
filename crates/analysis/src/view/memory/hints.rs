//! What the user can do about the resident memory, with the gain that the measured numbers promise.
//!
//! Receives: an instant, and the trace that it is of. Returns: hints, those that make RSS smaller first, and the larger gains first. Must hold: a
//! hint is given only if the numbers of the instant show its cause, and its gain is a number that was measured.
use super::super::flame::label;
use super::super::summary::blamed_node;
use super::mapped_names::{Caller, caller};
use crate::engine::Engine;
use crate::numbers::bytes;
use crate::stack_table::StackTable;
use format::{MemoryInstant, part_kind};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A hint is given only if it gains at least this much.
const LEAST_BYTES: u64 = 4 << 20;
/// And this part of the resident memory: one in so many bytes.
const LEAST_SHARE: u64 = 20;

/// What a hint gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gain {
    /// RSS gets smaller.
    Rss,
    /// RSS stays, and as many bytes of objects get their callers.
    Seen,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    pub kind: &'static str,
    pub text: String,
    pub gain: Gain,
    pub gain_bytes: u64,
}

/// The hints so far.
struct Hints<'a> {
    instant: &'a MemoryInstant,
    found: Vec<Hint>,
}

impl Hints<'_> {
    /// Adds a hint if its gain matters. `text` gets the gain in words.
    fn add(&mut self, kind: &'static str, gain: Gain, gain_bytes: u64, text: impl FnOnce(&str) -> String) {
        if gain_bytes >= LEAST_BYTES && gain_bytes >= self.instant.rss_bytes / LEAST_SHARE {
            self.found.push(Hint { kind, text: text(&size(gain_bytes)), gain, gain_bytes });
        }
    }
}

fn size(number: u64) -> String {
    bytes(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Returns the hints for an instant of a trace.
pub fn memory_hints(engine: &Engine, table: &StackTable, instant: &MemoryInstant) -> Vec<Hint> {
    let definitions = engine.definitions();
    let top = definitions.site_of(instant.facts.top_stack);
    let top = top.map(|site| label(table, table.level(blamed_node(table, site))));
    hints(instant, engine.totals().peak_bytes, top.as_deref(), |stack| caller(stack, definitions))
}

/// `peak_bytes`: the most that all live blocks had together. `top`: the name of the site of `facts.top_stack`.
fn hints<'d>(
    instant: &MemoryInstant,
    peak_bytes: u64,
    top: Option<&str>,
    caller: impl Fn(u32) -> Caller<'d>,
) -> Vec<Hint> {
    let mut hints = Hints { instant, found: Vec::new() };
    kept_by_malloc(&mut hints, top);
    arenas(&mut hints, peak_bytes);
    let facts = instant.facts;
    hints.add("kept_by_pools", Gain::Rss, facts.empty_pool_bytes, |gain| {
        format!(
            "{gain} of the allocator's pools are resident and hold no block. An allocator such as jemalloc returns them when it is told to purge (MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0, or MEMORY PURGE in redis; MIMALLOC_PURGE_DELAY=0)."
        )
    });
    hints.add("thread_stacks", Gain::Rss, facts.deeper_bytes, |gain| {
        let threads = if facts.deeper_threads == 1 { "1 thread".to_owned() } else { format!("{} threads", facts.deeper_threads) };
        format!(
            "The stacks of {threads} keep {gain} resident beyond their present depth, because the threads were deeper in their calls before. The end of a thread returns its stack: let a short-lived thread make the deep calls, or use fewer threads."
        )
    });
    hints.add("huge_pages", Gain::Rss, facts.huge_zero_bytes, |gain| {
        format!(
            "{} are in transparent huge pages, and about {gain} of them hold only zeros: one touched byte makes 2 MB resident. Without huge pages (prctl(PR_SET_THP_DISABLE), madvise(MADV_NOHUGEPAGE)) these pages are not resident.",
            size(facts.huge_bytes)
        )
    });
    runtimes(&mut hints, caller);
    let mut found = hints.found;
    found.sort_by_key(|hint| (hint.gain, Reverse(hint.gain_bytes)));
    found
}

/// Free pages of glibc's heap: those below the highest blocks, and all others.
fn kept_by_malloc(hints: &mut Hints<'_>, top: Option<&str>) {
    let facts = hints.instant.facts;
    let below = facts.top_free_bytes.min(hints.instant.fragmentation.trim_bytes);
    let before = hints.found.len();
    hints.add("pinned_heap_top", Gain::Rss, below, |gain| {
        let owner = top.map_or_else(String::new, |top| format!(", which {top} allocated"));
        format!(
            "{gain} of the heap are free, but the blocks above{owner}, keep malloc from returning them. malloc_trim(0) returns them, and so does malloc itself once these blocks are freed."
        )
    });
    let is_said = hints.found.len() > before;
    let kept = hints.instant.fragmentation.trim_bytes - if is_said { below } else { 0 };
    hints.add("kept_by_malloc", Gain::Rss, kept, |gain| {
        format!(
            "The program has freed {gain} that malloc keeps resident, in whole pages. malloc_trim(0) returns them to the kernel."
        )
    });
}

/// Free memory in the arenas of threads, which other threads do not use. One arena would not need more than all live blocks together needed
/// at their peak.
fn arenas(hints: &mut Hints<'_>, peak_bytes: u64) {
    let instant = hints.instant;
    if instant.rss_of(part_kind::OLDER) > 0 {
        // Blocks that are older than the attach are not in the peak.
        return;
    }
    let is_arena = |name: &str| name.starts_with("arena ");
    let (mut names, mut free, mut resident) = (BTreeSet::new(), 0u64, 0u64);
    for part in &instant.parts {
        let is_heap = [part_kind::BLOCKS, part_kind::OVERHEAD, part_kind::FREE].contains(&part.kind.as_str());
        if is_heap && (is_arena(&part.name) || part.name == "main heap") {
            resident = resident.saturating_add(part.rss_bytes);
        }
        if is_heap && is_arena(&part.name) {
            names.insert(part.name.as_str());
            free = free.saturating_add(if part.kind == part_kind::FREE { part.rss_bytes } else { 0 });
        }
    }
    let usable = u128::from(peak_bytes) * u128::from(instant.usable_bytes) / u128::from(instant.requested_bytes.max(1));
    let usable = u64::try_from(usable).unwrap_or(u64::MAX).max(peak_bytes);
    let gain = free.min(resident.saturating_sub(usable));
    if names.len() < 2 {
        return;
    }
    hints.add("arenas", Gain::Rss, gain, |gain| {
        format!(
            "malloc has {} arenas besides the main heap, and {} in them are free for their own threads only. All live blocks together never needed more than {}, so MALLOC_ARENA_MAX=1 saves about {gain}; threads then wait for each other more often.",
            names.len(),
            size(free),
            size(usable)
        )
    });
}

/// Pools of language runtimes, in which no block is seen.
fn runtimes<'d>(hints: &mut Hints<'_>, caller: impl Fn(u32) -> Caller<'d>) {
    let (mut python, mut php, mut v8) = (0u64, 0u64, 0u64);
    for part in &hints.instant.parts {
        let Some(stack) = part.stack() else { continue };
        let caller = caller(stack);
        let sum = match () {
            () if caller.is_pymalloc() => &mut python,
            () if caller.is_php() => &mut php,
            () if caller.is_v8() => &mut v8,
            () => continue,
        };
        *sum = sum.saturating_add(part.rss_bytes);
    }
    hints.add("pymalloc", Gain::Seen, python, |gain| {
        format!(
            "{gain} are pools of Python's own allocator, which hide objects of up to 512 bytes. Recorded with PYTHONMALLOC=malloc, each of them is a block with its callers."
        )
    });
    hints.add("php_pools", Gain::Seen, php, |gain| {
        format!(
            "{gain} are pools of PHP's own allocator, which hide its objects. Recorded with USE_ZEND_ALLOC=0, each of them is a block with its callers."
        )
    });
    hints.add("v8_heap", Gain::Seen, v8, |gain| {
        format!(
            "{gain} are V8's heap. Its objects are JavaScript's and not malloc's: a heap snapshot (node --heapsnapshot-signal=SIGUSR2) shows them, and --max-old-space-size limits them."
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{Fragmentation, MemoryFacts, MemoryPart};

    const MB: u64 = 1 << 20;

    fn kinds(instant: &MemoryInstant, peak_bytes: u64, caller: Caller<'static>) -> Vec<(&'static str, u64)> {
        let found = hints(instant, peak_bytes, Some("open_session"), |_| caller);
        found.iter().map(|hint| (hint.kind, hint.gain_bytes / MB)).collect()
    }

    #[test]
    fn a_hint_needs_a_gain_that_matters() {
        let kinds = |rss_mb: u64, trim_mb: u64, top_mb: u64| {
            let fragmentation = Fragmentation { trim_bytes: trim_mb * MB, ..Fragmentation::default() };
            let facts = MemoryFacts { top_free_bytes: top_mb * MB, ..MemoryFacts::default() };
            let instant = MemoryInstant { rss_bytes: rss_mb * MB, fragmentation, facts, ..MemoryInstant::default() };
            kinds(&instant, 0, Caller::default())
        };
        assert_eq!(kinds(80, 4, 3), [("kept_by_malloc", 4)]);
        assert_eq!((kinds(10, 3, 0), kinds(100, 4, 0)), (vec![], vec![]));
        assert_eq!(kinds(80, 30, 20), [("pinned_heap_top", 20), ("kept_by_malloc", 10)]);
        assert_eq!(kinds(80, 20, 19), [("pinned_heap_top", 19)]);
    }

    fn part(kind: &str, name: &str, mb: u64) -> MemoryPart {
        MemoryPart { kind: kind.into(), name: name.into(), rss_bytes: mb * MB, pss_bytes: 0 }
    }

    #[test]
    fn arenas_save_what_the_peak_did_not_need() {
        let instant = |parts: Vec<MemoryPart>| MemoryInstant {
            rss_bytes: 100 * MB,
            requested_bytes: 10,
            usable_bytes: 12,
            parts,
            ..MemoryInstant::default()
        };
        let two = [
            part("blocks", "main heap", 5),
            part("free", "arena 1", 30),
            part("blocks", "arena 1", 5),
            part("free", "arena 2", 40),
        ];
        let of = |instant: &MemoryInstant, peak_mb: u64| kinds(instant, peak_mb * MB, Caller::default());
        assert_eq!(of(&instant(two.to_vec()), 50), [("arenas", 20)], "80 MB instead of 60");
        assert_eq!(of(&instant(two.to_vec()), 70), []);
        assert_eq!(of(&instant(two[..3].to_vec()), 1), [], "one arena");
        let mut older = two.to_vec();
        older.push(part("older", "arena 3", 1));
        assert_eq!(of(&instant(older), 50), []);
    }

    #[test]
    fn runtimes_are_recognised_by_the_caller_of_their_pools() {
        let instant =
            MemoryInstant { rss_bytes: 90 * MB, parts: vec![part("mapped", "#7", 40)], ..MemoryInstant::default() };
        let of = |function, module| kinds(&instant, 0, Caller { function, module });
        assert_eq!(of(Some("_PyObject_ArenaMmap"), Some("python3.11")), [("pymalloc", 40)]);
        assert_eq!(of(None, Some("libpython3.12.so.1.0")), [("pymalloc", 40)]);
        assert_eq!(of(Some("mmap_read"), Some("python3.11")), []);
        assert_eq!(of(None, Some("php8.2")), [("php_pools", 40)]);
        assert_eq!(of(Some("zend_mm_alloc_huge"), Some("libphp.so")), [("php_pools", 40)]);
        assert_eq!(of(Some("v8::base::OS::Allocate"), Some("node")), [("v8_heap", 40)]);
        assert_eq!(of(Some("main"), Some("node")), []);
    }

    #[test]
    fn gains_of_rss_come_first() {
        let facts = MemoryFacts {
            deeper_threads: 3,
            deeper_bytes: 5 * MB,
            huge_bytes: 60 * MB,
            huge_zero_bytes: 50 * MB,
            empty_pool_bytes: 6 * MB,
            ..MemoryFacts::default()
        };
        let parts = vec![part("mapped", "#7", 40)];
        let instant = MemoryInstant { rss_bytes: 90 * MB, facts, parts, ..MemoryInstant::default() };
        let v8 = Caller { function: Some("v8::base::OS::Allocate"), module: Some("node") };
        let expected = [("huge_pages", 50), ("kept_by_pools", 6), ("thread_stacks", 5), ("v8_heap", 40)];
        assert_eq!(kinds(&instant, 0, v8), expected);
    }
}
