//! Divides the resident memory of a process into parts.
//!
//! Receives: the mappings, what live blocks cover of them, and which pages are resident. Returns: parts that add up to the resident and the
//! proportional size of all mappings. Must hold: no part is what is left over. If pages and mappings were not read at the same
//! instant, the difference is `unattributed`.
use super::Found;
use super::address_map::{AddressMap, Owner as MapOwner, Pages};
use super::block_cover::{Area, BlockCover, CoveredRange, PAGE, Place};
use super::callers::{self, ByCaller, Callers, MOST_SPARSE, MappedBy};
use super::owner_sets::PageOwner;
use super::resident_pages::{PageMap, Residence};
use super::smaps::MappedRange;
use format::{MemoryFacts, MemoryPart, part_kind};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The most parts of one kind. The smaller ones are added up.
const MOST_OF_A_KIND: usize = 24;
/// The most callers of mmap. Several of them may have one name.
const MOST_CALLERS: usize = 128;
/// Less zeroed data of a module is not worth a name.
const NOTABLE_ZEROED: u64 = 256 << 10;
/// Less of a stack is not worth mentioning.
const NOTABLE_DEPTH: u64 = 64 << 10;
const CHANGED: &str = "changed while it was read";

/// What the recorder knows besides the mappings.
#[derive(Debug, Default)]
pub struct Known {
    /// An address in the stack of each thread, in ascending order.
    pub stack_pointers: Vec<u64>,
    /// Memory that the recorder has mapped into an attached program.
    pub own_ranges: Vec<Range<u64>>,
    /// Of an attached program: the memory without a file that it had at the attach, in the order of addresses.
    pub older: Vec<Range<u64>>,
    /// The mappings that the program made itself, in the order of addresses.
    pub mapped: Vec<MappedBy>,
}

/// The sums of parts.
#[derive(Debug, Default)]
struct Sums {
    by_name: HashMap<(&'static str, String), Bytes>,
    facts: MemoryFacts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    rss: u64,
    pss: u64,
}

impl Sums {
    fn add(&mut self, kind: &'static str, name: &str, rss: u64, pss: u64) {
        if rss == 0 && pss == 0 {
            return;
        }
        let sum = self.by_name.entry((kind, name.to_owned())).or_default();
        sum.rss += rss;
        sum.pss += pss;
    }

    /// Adds resident bytes that a call of the program made, or that belong to `otherwise` if no call is known. Returns what is left of `left`.
    fn add_called(
        &mut self,
        caller: Option<u32>,
        otherwise: (&'static str, &str),
        bytes: u64,
        share: Ratio,
        left: Bytes,
    ) -> Bytes {
        let pss = share.of(bytes);
        match caller {
            Some(stack) => self.add(part_kind::MAPPED, &format!("#{stack}"), bytes, pss),
            None => self.add(otherwise.0, otherwise.1, bytes, pss),
        }
        Bytes { rss: left.rss.saturating_sub(bytes), pss: left.pss.saturating_sub(pss) }
    }

    /// Returns the parts by kind, and the largest first in each kind.
    fn into_parts(self) -> Vec<MemoryPart> {
        let mut parts = Vec::new();
        for kind in part_kind::ALL {
            let of_kind = self.by_name.iter().filter(|((of, _), _)| *of == kind);
            let mut of_kind: Vec<(&str, Bytes)> = of_kind.map(|((_, name), bytes)| (name.as_str(), *bytes)).collect();
            of_kind.sort_by(|a, b| (b.1.rss, a.0).cmp(&(a.1.rss, b.0)));
            let most = if kind == part_kind::MAPPED { MOST_CALLERS } else { MOST_OF_A_KIND };
            let smaller = of_kind.split_off(most.min(of_kind.len()));
            let part = |name: &str, bytes: Bytes| MemoryPart {
                kind: kind.to_owned(),
                name: name.to_owned(),
                rss_bytes: bytes.rss,
                pss_bytes: bytes.pss,
            };
            parts.extend(of_kind.into_iter().map(|(name, bytes)| part(name, bytes)));
            if !smaller.is_empty() {
                let sum = smaller.iter().fold(Bytes::default(), |sum, (_, bytes)| Bytes {
                    rss: sum.rss + bytes.rss,
                    pss: sum.pss + bytes.pss,
                });
                parts.push(part(&format!("{} smaller", smaller.len()), sum));
            }
        }
        parts
    }
}

/// `pages`: `None` if the resident pages cannot be read. `found` gets all resident pages.
pub fn divide(
    mappings: &[MappedRange],
    cover: &BlockCover,
    pages: Option<&PageMap>,
    known: &Known,
    found: &mut Found,
) -> (Vec<MemoryPart>, MemoryFacts) {
    let mut sums = Sums::default();
    let mut covered = cover.ranges.iter().peekable();
    let modules: HashSet<&str> =
        mappings.iter().filter(|mapping| mapping.is_executable).map(|mapping| mapping.name.as_str()).collect();
    let mut before: Option<&MappedRange> = None;
    for mapping in mappings {
        let module = before.replace(mapping).filter(|before| is_zeroed_data(before, mapping, &modules));
        while covered.next_if(|range| range.end <= mapping.start).is_some() {}
        if mapping.rss_bytes == 0 {
            continue;
        }
        found.map.next_mapping();
        let is_ours = known.own_ranges.iter().any(|own| own.contains(&mapping.start)) || is_ours(&mapping.name);
        let with_blocks = covered.next_if(|range| range.start == mapping.start);
        let with_blocks = with_blocks.filter(|range| range.has_blocks() || range.areas.iter().any(is_allocators));
        let (kind, name) = whole(mapping, module, known);
        let what = (kind, name.as_ref());
        match with_blocks {
            Some(range) if !is_ours => divide_pages((mapping, what), range, pages, known, &mut sums, found),
            _ if is_ours => {
                sums.add(part_kind::RECORDER, "heaptrack", mapping.rss_bytes, mapping.pss_bytes);
                map_whole(mapping, (part_kind::RECORDER, "heaptrack"), None, known, &mut found.map);
            }
            _ => add_whole((mapping, what), pages, known, &mut sums, &mut found.map),
        }
    }
    found.pinned.add_facts(&mut sums.facts);
    let facts = sums.facts;
    (sums.into_parts(), facts)
}

/// Adds the resident memory of a stack beyond the depth that its thread has now. Pages of a stack stay resident once they were used.
fn add_depth(mapping: &MappedRange, pages: Option<&PageMap>, known: &Known, facts: &mut MemoryFacts) {
    let first = known.stack_pointers.partition_point(|pointer| *pointer < mapping.start);
    let pointer = known.stack_pointers.get(first).filter(|pointer| **pointer < mapping.end);
    let (Some(pointer), Some(pages)) = (pointer, pages) else { return };
    // A function may use 128 bytes below the stack pointer.
    let end = pointer.saturating_sub(128) / PAGE * PAGE;
    if mapping.rss_bytes < NOTABLE_DEPTH || end <= mapping.start {
        return;
    }
    let mut resident = 0;
    let looked = pages.for_each(mapping.start, end, |_, residence| {
        resident += if residence == Residence::Resident { PAGE } else { 0 };
    });
    if looked.is_ok() && resident >= NOTABLE_DEPTH {
        facts.deeper_threads += 1;
        facts.deeper_bytes += resident;
    }
}

/// Returns true if a mapping is the zeroed data (.bss) of the module whose data ends where it begins.
fn is_zeroed_data(before: &MappedRange, mapping: &MappedRange, modules: &HashSet<&str>) -> bool {
    before.end == mapping.start
        && before.is_writable
        && !before.is_shared
        && mapping.name.is_empty()
        && mapping.is_anonymous_data()
        && !mapping.is_executable
        && mapping.rss_bytes >= NOTABLE_ZEROED
        && before.name.starts_with('/')
        && modules.contains(before.name.as_str())
}

/// Adds a mapping in which no block lies. If it is anonymous, it is divided by the calls that made it.
fn add_whole(
    (mapping, (kind, name)): (&MappedRange, (&'static str, &str)),
    pages: Option<&PageMap>,
    known: &Known,
    sums: &mut Sums,
    map: &mut AddressMap,
) {
    map_whole(mapping, (kind, name), pages, known, map);
    if kind == part_kind::STACK {
        add_depth(mapping, pages, known, &mut sums.facts);
    }
    let is_anonymous = kind == part_kind::ANONYMOUS;
    let divided = is_anonymous.then(|| callers::divide(mapping, &known.mapped, pages, PAGE)).flatten();
    let Some(divided) = divided else { return sums.add(kind, name, mapping.rss_bytes, mapping.pss_bytes) };
    let mut left = Bytes { rss: mapping.rss_bytes, pss: mapping.pss_bytes };
    let share = Ratio(mapping.pss_bytes, mapping.rss_bytes);
    for (caller, bytes) in divided {
        left = sums.add_called(caller, (kind, name), bytes, share, left);
    }
    sums.add(part_kind::UNATTRIBUTED, CHANGED, left.rss, left.pss);
}

/// Draws a mapping in which no block lies on the map. Which pages are resident is read if the mapping is not much larger than they are.
fn map_whole(mapping: &MappedRange, what: (&str, &str), pages: Option<&PageMap>, known: &Known, map: &mut AddressMap) {
    let owner = MapOwner { kind: map.name(what.0), name: map.name(what.1), stack: 0 };
    let called = what.0 == part_kind::ANONYMOUS;
    let mapped =
        if called { MapOwner { kind: map.name(part_kind::MAPPED), name: map.name(""), stack: 0 } } else { owner };
    let mut callers = Callers::from(&known.mapped, mapping.start);
    let mut owner_of = |address: u64| match callers.of(address).filter(|_| called) {
        Some(stack) => MapOwner { stack, ..mapped },
        None => owner,
    };
    let is_whole = mapping.rss_bytes == mapping.size();
    let is_sparse = mapping.size() / MOST_SPARSE > mapping.rss_bytes;
    let Some(pages) = pages.filter(|_| called && !is_sparse && !is_whole) else {
        let owner = owner_of(mapping.start);
        return map.add_evenly(mapping.start, mapping.end, mapping.rss_bytes, owner);
    };
    // What cannot be read is missing on the map.
    let _ = pages.for_each(mapping.start, mapping.end, |address, residence| {
        if residence == Residence::Resident {
            map.add(&Pages::one(address), owner_of(address));
        }
    });
}

/// The shared memory and the library of the recorder.
fn is_ours(name: &str) -> bool {
    let is_library = || {
        let mut folders = name.rsplit('/');
        folders.next().is_some_and(|file| file.len() == 19 && file.ends_with(".so"))
            && folders.next().is_some_and(|folder| folder.starts_with("heaptrack-"))
    };
    name.starts_with("/memfd:heaptrack") || is_library()
}

/// Returns the kind and the name of what no block and no allocator has in a mapping. `module`: the module whose zeroed data the mapping is.
fn whole<'a>(mapping: &'a MappedRange, module: Option<&MappedRange>, known: &Known) -> (&'static str, Cow<'a, str>) {
    let (kind, name) = by_name(mapping, known);
    match module {
        Some(module) if kind == part_kind::ANONYMOUS => (kind, Cow::Owned(format!(".bss of {}", module.name))),
        _ => (kind, Cow::Borrowed(name)),
    }
}

fn by_name<'a>(mapping: &'a MappedRange, known: &Known) -> (&'static str, &'a str) {
    const IN_MEMORY: [&str; 4] = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"];
    const OF_KERNEL: [&str; 4] = ["[vdso]", "[vvar", "[vsyscall]", "[uprobes]"];
    let name = mapping.name.as_str();
    if IN_MEMORY.iter().any(|start| name.starts_with(start)) || name.starts_with("[anon_shmem:") {
        (part_kind::SHARED, name)
    } else if name.starts_with('/') || name.contains(":[") || name.starts_with("anon_inode:") {
        (part_kind::FILE, name)
    } else if name == "[stack]" {
        (part_kind::STACK, "main thread")
    } else if OF_KERNEL.iter().any(|start| name.starts_with(start)) {
        (part_kind::KERNEL, name)
    } else if name.starts_with("[stack") || name.contains("pthread stack") || holds_a_stack(mapping, known) {
        (part_kind::STACK, "other threads")
    } else if name.is_empty() {
        (part_kind::ANONYMOUS, if mapping.is_executable { "unnamed, executable" } else { "unnamed" })
    } else {
        (part_kind::ANONYMOUS, name)
    }
}

fn holds_a_stack(mapping: &MappedRange, known: &Known) -> bool {
    let first = known.stack_pointers.partition_point(|pointer| *pointer < mapping.start);
    mapping.is_writable && known.stack_pointers.get(first).is_some_and(|pointer| *pointer < mapping.end)
}

/// True if the allocator's memory is recognised by its place alone, or was seen to be the allocator's before.
fn is_allocators(area: &Area) -> bool {
    matches!(area.place, Place::MainHeap | Place::Arena) || area.is_divided
}

/// Bytes of the resident pages of one area.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    requested: u64,
    overhead: u64,
    free: u64,
    older: u64,
}

impl Fill {
    fn sum(&self) -> u64 {
        self.requested + self.overhead + self.free + self.older
    }

    fn scaled(&self, by: Ratio) -> Self {
        Fill {
            requested: by.of(self.requested),
            overhead: by.of(self.overhead),
            free: by.of(self.free),
            older: by.of(self.older),
        }
    }

    fn plus(self, other: Fill) -> Self {
        Fill {
            requested: self.requested + other.requested,
            overhead: self.overhead + other.overhead,
            free: self.free + other.free,
            older: self.older + other.older,
        }
    }
}

/// At most 1.
#[derive(Clone, Copy, Debug)]
pub struct Ratio(pub u64, pub u64);

impl Ratio {
    pub fn of(self, bytes: u64) -> u64 {
        if self.0 >= self.1 { bytes } else { (bytes as u128 * self.0 as u128 / self.1 as u128) as u64 }
    }
}

/// `otherwise`: the kind and the name of what is not the allocator's and what no call made.
fn divide_pages(
    (mapping, otherwise): (&MappedRange, (&'static str, &str)),
    range: &CoveredRange,
    pages: Option<&PageMap>,
    known: &Known,
    sums: &mut Sums,
    found: &mut Found,
) {
    let mut called = ByCaller::default();
    let Some(fills) = fills((mapping, otherwise), range, pages, known, found, &mut called) else {
        sums.add(part_kind::UNATTRIBUTED, "pages that cannot be read", mapping.rss_bytes, mapping.pss_bytes);
        return;
    };
    let sure: u64 = fills.iter().map(|(sure, _)| sure.sum()).sum();
    let unsure: u64 = fills.iter().map(|(_, unsure)| unsure.sum()).sum();
    // Pages of zeros do not count as resident. How many of the unsure pages are such pages, the resident size tells.
    let of_unsure = Ratio(mapping.rss_bytes.saturating_sub(sure), unsure);
    let of_sure = Ratio(mapping.rss_bytes, sure);
    let mut left = Bytes { rss: mapping.rss_bytes, pss: mapping.pss_bytes };
    let share = Ratio(mapping.pss_bytes, mapping.rss_bytes);
    for (area, (sure, unsure)) in range.areas.iter().zip(&fills) {
        let fill = sure.scaled(of_sure).plus(unsure.scaled(of_unsure));
        let owner = owner_of(area);
        let name = owner.name(area);
        let name = name.as_str();
        // What lies between blocks that are mappings of their own is not the allocator's.
        let (free, older) = if owner == Owner::Blocks { (0, 0) } else { (fill.free, fill.older) };
        for (kind, bytes) in [
            (part_kind::BLOCKS, fill.requested),
            (part_kind::OVERHEAD, fill.overhead),
            (part_kind::FREE, free),
            (part_kind::OLDER, older),
        ] {
            left = sums.add_called(None, (kind, name), bytes, share, left);
        }
    }
    for (caller, bytes) in called.scaled(of_sure, of_unsure) {
        left = sums.add_called(caller, otherwise, bytes, share, left);
    }
    sums.add(part_kind::UNATTRIBUTED, CHANGED, left.rss, left.pss);
}

/// To whom an area belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    MainHeap,
    Arena,
    /// An allocator other than glibc's.
    Pool,
    /// Only the blocks in it are the allocator's, each with its whole pages.
    Blocks,
}

fn owner_of(area: &Area) -> Owner {
    match area.place {
        Place::MainHeap => Owner::MainHeap,
        Place::Arena => Owner::Arena,
        Place::Other if area.is_divided => Owner::Pool,
        Place::Other => Owner::Blocks,
    }
}

impl Owner {
    fn name(self, area: &Area) -> String {
        match self {
            Owner::MainHeap => "main heap".to_owned(),
            Owner::Arena => format!("arena {:x}", area.start),
            Owner::Pool => "pools".to_owned(),
            Owner::Blocks => "own mappings".to_owned(),
        }
    }
}

/// What pages of a mapping with blocks are on the map.
struct MapKinds {
    blocks: u32,
    free: u32,
    older: u32,
    mapped: MapOwner,
    otherwise: MapOwner,
}

impl MapKinds {
    fn of(otherwise: (&str, &str), map: &mut AddressMap) -> Self {
        MapKinds {
            blocks: map.name(part_kind::BLOCKS),
            free: map.name(part_kind::FREE),
            older: map.name(part_kind::OLDER),
            mapped: MapOwner { kind: map.name(part_kind::MAPPED), name: map.name(""), stack: 0 },
            otherwise: MapOwner { kind: map.name(otherwise.0), name: map.name(otherwise.1), stack: 0 },
        }
    }
}

/// Returns for each area what its resident pages hold, and what pages hold of which it is not sure that they count as resident. `called` gets
/// what lies between blocks that are mappings of their own.
fn fills(
    (mapping, otherwise): (&MappedRange, (&str, &str)),
    range: &CoveredRange,
    pages: Option<&PageMap>,
    known: &Known,
    found: &mut Found,
    called: &mut ByCaller,
) -> Option<Vec<(Fill, Fill)>> {
    let kinds = MapKinds::of(otherwise, &mut found.map);
    let (mut named_area, mut area_name) = (None, 0);
    let mut callers = Callers::from(&known.mapped, mapping.start);
    let mut fills = vec![(Fill::default(), Fill::default()); range.areas.len()];
    let (mut area, mut older) = (0, known.older.partition_point(|older| older.end <= mapping.start));
    let mut add = |address: u64, residence: Residence| {
        while range.areas.get(area).is_some_and(|area| area.end <= address) {
            area += 1;
        }
        while known.older.get(older).is_some_and(|older| older.end <= address) {
            older += 1;
        }
        let Some((sure, unsure)) = fills.get_mut(area) else { return };
        let fill = match residence {
            Residence::Absent => return,
            Residence::Resident => sure,
            Residence::ZeroOrForked => unsure,
        };
        let word = range.word(address);
        let gap = PAGE - word.requested() - word.overhead();
        fill.requested += word.requested();
        fill.overhead += word.overhead();
        let is_older = known.older.get(older).is_some_and(|older| older.contains(&address));
        *(if is_older { &mut fill.older } else { &mut fill.free }) += gap;
        let is_between = range.areas.get(area).is_some_and(|area| owner_of(area) == Owner::Blocks);
        let caller = callers.of(address).filter(|_| is_between);
        if gap > 0 && is_between {
            called.add(caller, residence == Residence::Resident, gap);
        }
        // Which blocks are in an older page is not known. A page of zeros in a large block does not count as resident.
        if let Some(area) = range.areas.get(area)
            && !is_older
            && (residence == Residence::Resident || area.place != Place::Other || area.is_divided)
        {
            found.pinned.add(area, range, address);
        }
        if residence == Residence::Resident {
            let live_bytes = word.requested() + word.overhead();
            if named_area != Some(area) {
                named_area = Some(area);
                area_name = range.areas.get(area).map_or(0, |area| found.map.name(&owner_of(area).name(area)));
            }
            let stack = match range.owner(address) {
                PageOwner::Stack(stack) => stack,
                _ => 0,
            };
            let owner = match () {
                () if live_bytes > 0 => MapOwner { kind: kinds.blocks, name: area_name, stack },
                () if is_older => MapOwner { kind: kinds.older, name: area_name, stack: 0 },
                () if !is_between => MapOwner { kind: kinds.free, name: area_name, stack },
                () => match caller {
                    Some(stack) => MapOwner { stack, ..kinds.mapped },
                    None => kinds.otherwise,
                },
            };
            found.map.add(&Pages { live_bytes, born: range.oldest(address), ..Pages::one(address) }, owner);
        }
    };
    if mapping.rss_bytes == mapping.size() {
        (mapping.start..mapping.end).step_by(PAGE as usize).for_each(|address| add(address, Residence::Resident));
    } else {
        pages?.for_each(mapping.start, mapping.end, add).ok()?;
    }
    Some(fills)
}
