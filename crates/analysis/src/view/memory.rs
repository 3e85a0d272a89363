//! The parts of the resident memory at the instants at which the recorder measured them.
mod hints;
mod kinds;
mod mapped_names;

use super::Trace;
use super::keys::Row;
use super::summary::blamed_node;
use crate::definitions::{Definitions, SiteId};
use crate::engine::Engine;
use crate::query::Query;
use crate::stack_table::StackTable;
use format::{MemoryInstant, MemoryPart, MemoryParts, PinningSite};
pub use hints::{Gain, Hint, memory_hints};
use kinds::Kind;
pub(super) use mapped_names::caller_name;
pub use mapped_names::named_parts;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::cmp::Reverse;

#[derive(Serialize)]
pub(crate) struct Memory<'a> {
    /// The process whose memory it is. In a followed tree, that is the first one.
    pid: u32,
    /// The index of the instant with the highest RSS.
    highest: Option<usize>,
    /// Why there are no instants, if the recorder said why.
    reason: Option<&'a str>,
    instants: Vec<Instant<'a>>,
    kinds: Vec<Kind<'a>>,
    /// How often the program called mmap and its relatives, over the whole session.
    map_calls: Vec<Calls<'a>>,
    /// What to do about the last instant, and (below) its time.
    hints: Vec<Hint>,
    hints_time_ns: Option<u64>,
}

#[derive(Serialize)]
struct Calls<'a> {
    name: &'a str,
    calls: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Instant<'a> {
    time_ns: u64,
    rss_bytes: u64,
    pss_bytes: u64,
    swap_bytes: u64,
    page_table_bytes: u64,
    cgroup_cache_bytes: Option<u64>,
    cgroup_limit_bytes: Option<u64>,
    /// These three are null if blocks were sampled.
    live_blocks: Option<u64>,
    requested_bytes: Option<u64>,
    usable_bytes: Option<u64>,
    /// The sums of all parts, also of those that `limit` leaves out.
    parts_rss_bytes: u64,
    parts_pss_bytes: u64,
    parts: Vec<Part>,
    fragmentation: Fragments<'a>,
}

#[derive(Serialize)]
struct Fragments<'a> {
    trim_bytes: u64,
    /// Pages without a block in the pools of other allocators than glibc's.
    purge_bytes: u64,
    sparse_bytes: u64,
    sparse_live_bytes: u64,
    shared_bytes: u64,
    sites: Vec<Site<'a>>,
    other_sites: u64,
    others: Others,
    sizes: Vec<Fill>,
}

#[derive(Serialize)]
struct Others {
    blocks: u64,
    bytes: u64,
    pinned_bytes: u64,
    held_bytes: u64,
    shared_bytes: u64,
}

#[derive(Serialize)]
struct Fill {
    up_to_bytes: u64,
    resident_bytes: u64,
    live_bytes: u64,
}

/// A site that pins pages.
struct Site<'a> {
    table: &'a StackTable,
    /// `None` if the part of the file with its stack is lost.
    site: Option<SiteId>,
    pinning: &'a PinningSite,
    gives_back_bytes: u64,
    together_gives_back_bytes: u64,
}

impl Serialize for Site<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let level = self.site.and_then(|site| self.table.level(blamed_node(self.table, site)));
        Row::of(self.table, level).entries(&mut map)?;
        map.serialize_entry("stack", &self.site)?;
        map.serialize_entry("blocks", &self.pinning.blocks)?;
        map.serialize_entry("bytes", &self.pinning.bytes)?;
        map.serialize_entry("pinned_bytes", &self.pinning.pinned_bytes)?;
        map.serialize_entry("held_bytes", &self.pinning.held_bytes)?;
        map.serialize_entry("shared_bytes", &self.pinning.shared_bytes)?;
        map.serialize_entry("gives_back_bytes", &self.gives_back_bytes)?;
        map.serialize_entry("together_gives_back_bytes", &self.together_gives_back_bytes)?;
        map.end()
    }
}

/// What freeing all blocks of a site and `malloc_trim(0)` (or a purge of jemalloc) would return to the kernel.
pub const fn gives_back_bytes(instant: &MemoryInstant, site: &PinningSite) -> u64 {
    free_pages(instant).saturating_add(site.held_bytes)
}

/// The same for the blocks of a site and of all sites before it in the list.
pub const fn together_gives_back_bytes(instant: &MemoryInstant, site: &PinningSite) -> u64 {
    free_pages(instant).saturating_add(site.together_bytes)
}

/// Pages without a block that can be returned now.
const fn free_pages(instant: &MemoryInstant) -> u64 {
    instant.fragmentation.trim_bytes.saturating_add(instant.facts.empty_pool_bytes)
}

impl<'a> Fragments<'a> {
    fn new(instant: &'a MemoryInstant, definitions: &Definitions, table: &'a StackTable) -> Self {
        let fragmentation = &instant.fragmentation;
        let site = |pinning: &'a PinningSite| Site {
            table,
            site: definitions.site_of(pinning.stack),
            pinning,
            gives_back_bytes: gives_back_bytes(instant, pinning),
            together_gives_back_bytes: together_gives_back_bytes(instant, pinning),
        };
        let PinningSite { blocks, bytes, pinned_bytes, held_bytes, shared_bytes, .. } = fragmentation.others;
        let fill = |size: &format::SizeFill| Fill {
            up_to_bytes: size.up_to_bytes,
            resident_bytes: size.resident_bytes,
            live_bytes: size.live_bytes,
        };
        Fragments {
            trim_bytes: fragmentation.trim_bytes,
            purge_bytes: instant.facts.empty_pool_bytes,
            sparse_bytes: fragmentation.sparse_bytes,
            sparse_live_bytes: fragmentation.sparse_live_bytes,
            shared_bytes: fragmentation.shared_bytes,
            sites: fragmentation.sites.iter().map(site).collect(),
            other_sites: fragmentation.other_sites,
            others: Others { blocks, bytes, pinned_bytes, held_bytes, shared_bytes },
            sizes: fragmentation.sizes.iter().map(fill).collect(),
        }
    }
}

#[derive(Serialize)]
struct Part {
    kind: String,
    name: String,
    rss_bytes: u64,
    pss_bytes: u64,
    /// The same as `rss_bytes`.
    bytes: u64,
}

impl From<MemoryPart> for Part {
    fn from(MemoryPart { kind, name, rss_bytes, pss_bytes }: MemoryPart) -> Self {
        Part { kind, name, rss_bytes, pss_bytes, bytes: rss_bytes }
    }
}

impl<'a> Instant<'a> {
    fn new(instant: &'a MemoryInstant, definitions: &Definitions, table: &'a StackTable) -> Self {
        let known = |number: u64| instant.knows_blocks().then_some(number);
        Instant {
            time_ns: instant.time_ns,
            rss_bytes: instant.rss_bytes,
            pss_bytes: instant.pss_bytes,
            swap_bytes: instant.swap_bytes,
            page_table_bytes: instant.page_table_bytes,
            cgroup_cache_bytes: instant.cgroup_cache_bytes,
            cgroup_limit_bytes: instant.cgroup_limit_bytes,
            live_blocks: known(instant.live_blocks),
            requested_bytes: known(instant.requested_bytes),
            usable_bytes: known(instant.usable_bytes),
            parts_rss_bytes: memory_sums(instant).0,
            parts_pss_bytes: memory_sums(instant).1,
            parts: named_parts(instant, definitions).into_iter().map(Part::from).collect(),
            fragmentation: Fragments::new(instant, definitions, table),
        }
    }
}

/// With `at=T`: the last instant up to T. Otherwise all instants of the range.
pub fn memory_instants<'a>(engine: &'a Engine, query: &Query) -> Vec<&'a MemoryInstant> {
    let range = engine.range(query);
    let from_ns = if query.is_of_an_instant() { 0 } else { range.from_ns };
    let instants = engine.definitions().memory.instants.iter();
    let mut within: Vec<&MemoryInstant> =
        instants.filter(|instant| (from_ns..=range.to_ns).contains(&instant.time_ns)).collect();
    if query.is_of_an_instant() {
        within.drain(..within.len().saturating_sub(1));
    }
    within
}

/// Why there are no instants in a time.
pub fn why_no_memory(engine: &Engine) -> String {
    let MemoryParts { reason, instants } = &engine.definitions().memory;
    match (reason.as_str(), instants.is_empty()) {
        (_, false) => "the parts of the memory were not measured in this time".to_owned(),
        ("", true) if engine.definitions().session.sampling.is_some() => NOT_OF_SAMPLES.to_owned(),
        ("", true) => NEVER.to_owned(),
        (reason, true) => reason.to_owned(),
    }
}

/// RSS and PSS of all parts together.
pub fn memory_sums(instant: &MemoryInstant) -> (u64, u64) {
    let sum = |bytes: fn(&MemoryPart) -> u64| instant.parts.iter().map(bytes).sum();
    (sum(|part| part.rss_bytes), sum(|part| part.pss_bytes))
}

impl<'a> Memory<'a> {
    /// With `limit=N`: the N largest parts of each instant.
    pub(crate) fn new(trace: &Trace<'a>, query: &Query) -> Self {
        let definitions = trace.engine.definitions();
        let within = memory_instants(trace.engine, query);
        let kinds = kinds::kinds(&within);
        let hints_time_ns = within.last().map(|last| last.time_ns);
        let hints = within.last().map(|last| memory_hints(trace.engine, trace.table, last)).unwrap_or_default();
        let mut instants: Vec<Instant<'a>> =
            within.into_iter().map(|instant| Instant::new(instant, definitions, trace.table)).collect();
        if query.limit > 0 {
            for Instant { parts, .. } in &mut instants {
                parts.sort_by_key(|part| Reverse(part.rss_bytes));
                super::cut(parts, query.limit);
            }
        }
        // The first of several equal ones.
        let highest = (0..instants.len()).rev().max_by_key(|index| instants[*index].rss_bytes);
        let reason = Some(definitions.memory.reason.as_str()).filter(|reason| !reason.is_empty());
        let calls = definitions.map_calls.iter();
        let map_calls =
            calls.map(|calls| Calls { name: &calls.name, calls: calls.calls, bytes: calls.bytes }).collect();
        Memory { pid: definitions.session.pid, highest, reason, instants, kinds, map_calls, hints, hints_time_ns }
    }

    pub(crate) fn why_empty(&self, trace: &Trace<'_>) -> Option<String> {
        let definitions = trace.engine.definitions();
        if !self.instants.is_empty() {
            let follows = definitions.processes.len() > 1;
            return follows.then(|| "the parts are those of the first process only".to_owned());
        }
        Some(why_no_memory(trace.engine))
    }
}

/// The user did not ask for the parts.
const NOT_OF_SAMPLES: &str = "a recording with --sample has no parts of the resident memory, unless --memory-every says how often to measure them";
/// An older version recorded the trace, the program ended within the first 50 ms, or measuring was off.
pub(crate) const NEVER: &str = "the trace has no parts of the resident memory";
