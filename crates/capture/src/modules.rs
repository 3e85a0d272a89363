//! The modules of the target: found in the loader's list, published in the shared table, searched on every new frame.
//!
//! One writer: the thread that holds the loader's lock, in the loader's own notification. Many readers, lock-free:
//! there are two sorted indexes; the one with `generation & 1` is in force, the other is the writer's. A reader that
//! finds the generation unchanged after its search has searched an index that nobody touched.
use crate::cfi::Tables;
use crate::elf::{self, Debug, Headers, LinkMap};
use channel::{Loss, Region, Stamp};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Modules that can be loaded at the same time.
const LIVE: usize = 2048;

#[repr(C)]
struct Entry {
    start: AtomicU64,
    end: AtomicU64,
    instance: AtomicU64,
}

#[repr(C)]
struct Index {
    count: AtomicU64,
    entries: [Entry; LIVE],
}

/// What the writer remembers of a live module, to tell it from another one at the same place.
#[repr(C)]
#[derive(Clone, Copy)]
struct Known {
    map: u64,
    dynamic: u64,
    instance: u32,
    seen: u32,
}

#[repr(C)]
pub struct Modules {
    generation: AtomicU32,
    known_count: u32,
    indexes: [Index; 2],
    known: [Known; LIVE],
}

/// A module as a frame needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub instance: u16,
    pub bias: u64,
    pub eh_frame_hdr: u64,
    pub start: u64,
    pub end: u64,
}

impl Found {
    pub fn tables(&self) -> Option<Tables> {
        (self.eh_frame_hdr != 0).then_some(Tables { eh_frame_hdr: self.eh_frame_hdr, start: self.start, end: self.end })
    }
}

/// What a look at the loader's list found.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Change {
    pub loaded: u32,
    pub unloaded: u32,
}

impl Modules {
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes every thread forget its walks. By two: the index in force stays in force.
    pub fn forget(&self) {
        self.generation.fetch_add(2, Ordering::AcqRel);
    }

    /// The module that holds `address`.
    pub fn find(&self, region: &Region, address: u64) -> Option<Found> {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let found = self.indexes.get(generation as usize & 1).and_then(|index| index.search(address));
            let found = found.and_then(|instance| describe(region, instance));
            if self.generation.load(Ordering::Acquire) == generation {
                return found.filter(|f| address >= f.start && address < f.end);
            }
        }
    }

    /// Looks through the loader's list and publishes what is new and what is gone. New ones only where we `may_ask` the
    /// kernel about them: in a sandbox their frames stay without a module.
    ///
    /// # Safety
    /// The caller is the only writer, and the list does not change meanwhile (the loader's lock, or its notification).
    pub unsafe fn refresh(
        &mut self,
        region: &Region,
        debug: *const Debug,
        program: Headers,
        stamp: Stamp,
        may_ask: bool,
    ) -> Change {
        let mut change = Change::default();
        for known in self.known.iter_mut().take(self.known_count as usize) {
            known.seen = 0;
        }
        let mut board = debug;
        // SAFETY: the loader's structures, stable by the caller's promise.
        while let Some(d) = unsafe { board.as_ref() } {
            let mut map = d.maps;
            // SAFETY: as above.
            while let Some(m) = unsafe { map.as_ref() } {
                // SAFETY: as above.
                change.loaded +=
                    (!self.is_known(m) && may_ask && unsafe { self.meet(region, m, program, stamp) }) as u32;
                map = m.next;
            }
            board = if d.version >= 2 { d.next } else { core::ptr::null() };
        }
        change.unloaded = self.drop_unseen(region, stamp);
        if change != Change::default() {
            self.publish(region);
        }
        change
    }

    /// True when the map is one that we have; it is then marked as seen.
    fn is_known(&mut self, map: &LinkMap) -> bool {
        let (address, dynamic) = (map as *const LinkMap as u64, map.dynamic as u64);
        let mut known = self.known.iter_mut().take(self.known_count as usize);
        let found = known.find(|known| known.map == address && known.dynamic == dynamic);
        found.map(|known| known.seen = 1).is_some()
    }

    /// Takes a new map in. False when it is no module of use.
    ///
    /// # Safety
    /// As `refresh`.
    unsafe fn meet(&mut self, region: &Region, map: &LinkMap, program: Headers, stamp: Stamp) -> bool {
        let (address, dynamic) = (map as *const LinkMap as u64, map.dynamic as u64);
        // SAFETY: a mapped object of the loader.
        let Some(instance) = (unsafe { register(region, map, program, stamp) }) else { return false };
        let place = self.known_count as usize;
        let Some(known) = self.known.get_mut(place) else { return false };
        *known = Known { map: address, dynamic, instance, seen: 1 };
        self.known_count += 1;
        true
    }

    fn drop_unseen(&mut self, region: &Region, stamp: Stamp) -> u32 {
        let mut kept = 0;
        let mut gone = 0;
        for i in 0..self.known_count as usize {
            let Some(&known) = self.known.get(i) else { break };
            if known.seen == 0 {
                gone += 1;
                if let Some(module) = region.modules().get((known.instance as usize).wrapping_sub(1)) {
                    module.unloaded.store(stamp, Ordering::Relaxed);
                }
            } else if let Some(place) = self.known.get_mut(kept) {
                *place = known;
                kept += 1;
            }
        }
        self.known_count = kept as u32;
        gone
    }

    /// Builds the other index and puts it in force.
    fn publish(&mut self, region: &Region) {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        let Some(index) = self.indexes.get_mut(next as usize & 1) else { return };
        let mut count = 0usize;
        for known in self.known.iter().take(self.known_count as usize) {
            let Some(found) = describe(region, known.instance) else { continue };
            index.insert(count, &found, known.instance);
            count += 1;
        }
        index.count.store(count as u64, Ordering::Relaxed);
        self.generation.store(next, Ordering::Release);
    }
}

impl Index {
    /// Insertion sort: the loader's list is short and mostly in order.
    fn insert(&mut self, count: usize, found: &Found, instance: u32) {
        let mut at = count;
        while at > 0 {
            let Some(before) = self.entries.get(at - 1) else { return };
            let start = before.start.load(Ordering::Relaxed);
            if start <= found.start {
                break;
            }
            let (end, moved) = (before.end.load(Ordering::Relaxed), before.instance.load(Ordering::Relaxed));
            self.set(at, start, end, moved);
            at -= 1;
        }
        self.set(at, found.start, found.end, instance as u64);
    }

    fn set(&mut self, at: usize, start: u64, end: u64, instance: u64) {
        if let Some(entry) = self.entries.get(at) {
            entry.start.store(start, Ordering::Relaxed);
            entry.end.store(end, Ordering::Relaxed);
            entry.instance.store(instance, Ordering::Relaxed);
        }
    }

    fn search(&self, address: u64) -> Option<u32> {
        let (mut low, mut high) = (0usize, (self.count.load(Ordering::Relaxed) as usize).min(LIVE));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entries.get(middle)?.start.load(Ordering::Relaxed) <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let entry = self.entries.get(low.checked_sub(1)?)?;
        (address < entry.end.load(Ordering::Relaxed)).then(|| entry.instance.load(Ordering::Relaxed) as u32)
    }
}

fn describe(region: &Region, instance: u32) -> Option<Found> {
    let module = region.modules().get((instance as usize).checked_sub(1)?)?;
    Some(Found {
        instance: instance as u16,
        bias: module.bias.load(Ordering::Relaxed),
        eh_frame_hdr: module.eh_frame_hdr.load(Ordering::Relaxed),
        start: module.start.load(Ordering::Relaxed),
        end: module.end.load(Ordering::Relaxed),
    })
}

/// Writes a new module into the shared table. Its instance number, or `None` when it is no module of use.
///
/// # Safety
/// As `Modules::refresh`.
unsafe fn register(region: &Region, map: &LinkMap, program: Headers, stamp: Stamp) -> Option<u32> {
    // SAFETY: the loader's string.
    let has_name = !map.name.is_null() && unsafe { *map.name } != 0;
    // The program itself has no name in the list and, when not position independent, no header at its bias.
    let headers = if has_name { Headers::at(map.bias)? } else { program };
    let (start, end) = headers.bounds(map.bias)?;
    crate::api::fill(headers, map.bias);
    let header = region.header();
    let index = header.module_count.load(Ordering::Relaxed);
    let Some(module) = region.modules().get(index as usize) else {
        header.losses[Loss::ModuleFull as usize].fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let mut build_id = [0; channel::BUILD_ID_MAX / 8];
    let build_id_len = headers.build_id(map.bias, &mut build_id);
    let eh_frame_hdr = headers.find(elf::PT_GNU_EH_FRAME).map_or(0, |h| map.bias.wrapping_add(h.vaddr));
    // SAFETY: the loader's string.
    let (name_at, name_len) = if has_name { unsafe { store_name(region, map.name) } } else { store_program(region) };
    module.start.store(start, Ordering::Relaxed);
    module.end.store(end, Ordering::Relaxed);
    module.bias.store(map.bias, Ordering::Relaxed);
    module.eh_frame_hdr.store(eh_frame_hdr, Ordering::Relaxed);
    module.loaded.store(stamp, Ordering::Relaxed);
    module.name_at.store(name_at, Ordering::Relaxed);
    module.name_len.store(name_len, Ordering::Relaxed);
    module.image.store(header.image.load(Ordering::Relaxed), Ordering::Relaxed);
    module.build_id_len.store(build_id_len as u32, Ordering::Relaxed);
    for (place, word) in module.build_id.iter().zip(build_id) {
        place.store(word, Ordering::Relaxed);
    }
    header.module_count.store(index + 1, Ordering::Release);
    Some(index + 1)
}

/// The program's own path. A short program may be gone before anybody else can ask; nothing without /proc. It is read to
/// where it stays: a forked child comes here on whatever stack it has.
fn store_program(region: &Region) -> (u32, u32) {
    let header = region.header();
    let at = header.names_used.load(Ordering::Relaxed);
    let Some(room) = region.names().get(at as usize..) else { return (0, 0) };
    // SAFETY: behind what was published, so nobody reads it yet; the only writer is us. Atomic bytes are bytes.
    let room = unsafe { core::slice::from_raw_parts_mut(room.as_ptr().cast_mut().cast::<u8>(), room.len()) };
    let len = crate::sys::read_link(b"/proc/self/exe\0", room) as u32;
    // A path that fills all the room may be cut.
    if len as usize == room.len() {
        return (0, 0);
    }
    header.names_used.store(at + len, Ordering::Release);
    (at, len)
}

/// Copies a NUL-terminated string into the names. Where, and how long; nothing when they are full.
///
/// # Safety
/// `text` is NUL-terminated; the caller is the only writer.
pub unsafe fn store_name(region: &Region, text: *const u8) -> (u32, u32) {
    let header = region.header();
    let at = header.names_used.load(Ordering::Relaxed);
    let mut len = 0u32;
    loop {
        // SAFETY: not past the NUL.
        let byte = unsafe { *text.add(len as usize) };
        let place = region.names().get(at as usize + len as usize);
        match (byte, place) {
            (0, _) => break,
            (_, None) => return (0, 0),
            (_, Some(place)) => place.store(byte, Ordering::Relaxed),
        }
        len += 1;
    }
    header.names_used.store(at + len, Ordering::Release);
    (at, len)
}
