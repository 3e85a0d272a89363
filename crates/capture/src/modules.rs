//! The modules of the target. They are found in the loader's list, published in the shared table, and searched for
//! every new frame.
//!
//! There is one writer at a time: the thread that holds the loader's lock, in the loader's own notification, or a
//! thread in `dl_find_object::alone`. There are many readers, which take no lock. There are two sorted indexes: readers
//! use number `generation & 1`, and the writer changes the other one. If the generation is unchanged after a search,
//! the writer did not change the index meanwhile.
mod checked;

use crate::cfi::Tables;
use crate::elf::{self, Debug, Headers, LinkMap};
use crate::environment::{Value, bytes};
use crate::families;
use crate::imports;
use crate::opening;
use crate::real;
use channel::{Loss, ModuleFlags, Region, Stamp};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Memory in which a path is composed. It is not on the stack, because a forked child may come here on a small one.
struct PathBuffer(UnsafeCell<Value>);

// SAFETY: only `register` uses it, and its callers promise that there is one writer of the table at a time.
unsafe impl Sync for PathBuffer {}

static PATH_BUFFER: PathBuffer = PathBuffer(UnsafeCell::new(Value::EMPTY));

/// The highest number of modules that can be known at the same time. Frames in further modules are recorded without a
/// module.
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

/// What the writer remembers of a loaded module, to tell it from another one at the same address.
#[repr(C)]
#[derive(Clone, Copy)]
struct Known {
    map: u64,
    dynamic: u64,
    instance: u32,
    seen: u32,
}

/// The index that every thread may search.
#[repr(C)]
pub struct Modules {
    generation: AtomicU32,
    indexes: [Index; 2],
}

/// The modules that are loaded. Only the writer uses it.
#[repr(C)]
pub struct KnownModules {
    count: u32,
    /// Not 0 in an attached process. There the current folder must not be asked for: the profiler has checked only that
    /// the process's seccomp filters allow a fixed list of system calls, and getcwd is not one of them.
    is_adopted: u32,
    /// The highest number of modules that `known` had no room for at the same time. All of them are counted as losses.
    left_out: u32,
    known: [Known; LIVE],
}

/// A longer list of the loader is taken for broken, and the rest of it is left out.
const MOST_MAPS: u32 = 1 << 16;
/// If the index changes this many times during one search, the frame is recorded without a module.
const MOST_SEARCHES: u32 = 1 << 8;

/// What a walk needs to know of a module.
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

/// The name that glibc uses for the kernel's own object (the vDSO).
pub const KERNEL_OBJECT: &[u8] = b"linux-vdso.so.1";

/// Which system calls may be made about new modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelQueries {
    /// None, because in a sandbox any call may end the program.
    Forbidden,
    /// All except for the current folder. The modules were loaded some time ago, and the program may have changed its
    /// folder since.
    WithoutFolder,
    /// All. The modules were loaded just now, so their relative paths begin at the current folder.
    WithFolder,
}

/// How many modules were loaded and unloaded since the last look at the loader's list.
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

    /// Makes every thread forget its remembered walks. The generation grows by two, so the current index stays current.
    pub fn forget(&self) {
        self.generation.fetch_add(2, Ordering::AcqRel);
    }

    /// Returns the module that holds `address`.
    pub fn find(&self, region: &Region, address: u64) -> Option<Found> {
        for _ in 0..MOST_SEARCHES {
            let generation = self.generation.load(Ordering::Acquire);
            let found = self.indexes.get(generation as usize & 1).and_then(|index| index.search(address));
            let found = found.and_then(|instance| describe(region, instance));
            if self.generation.load(Ordering::Acquire) == generation {
                return found.filter(|f| address >= f.start && address < f.end);
            }
        }
        None
    }

    /// Builds the other index and makes it current. There is one writer, the owner of `known`.
    fn publish(&self, region: &Region, known: &[Known]) {
        let next = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        let Some(index) = self.indexes.get(next as usize & 1) else { return };
        let mut count = 0usize;
        for known in known {
            let Some(found) = describe(region, known.instance) else { continue };
            index.insert(count, &found, known.instance);
            count += 1;
        }
        index.count.store(count as u64, Ordering::Relaxed);
        self.generation.store(next, Ordering::Release);
    }
}

impl KnownModules {
    fn all(&self) -> &[Known] {
        self.known.get(..self.count as usize).unwrap_or(&[])
    }

    fn all_mut(&mut self) -> &mut [Known] {
        self.known.get_mut(..self.count as usize).unwrap_or(&mut [])
    }

    /// Compares the loader's list with the known modules, and publishes what was loaded and unloaded. In a sandbox new
    /// modules are left out, because system calls are needed for them. Their frames are recorded without a module.
    ///
    /// # Safety
    /// The caller is the only writer of the table. `debug` is the loader's `r_debug`, and its lists do not change
    /// meanwhile: the loader's lock is held, or there is no other thread. `program` are the program's own headers.
    pub unsafe fn refresh(
        &mut self,
        table: &Modules,
        region: &Region,
        debug: *const Debug,
        program: Headers,
        stamp: Stamp,
        queries: KernelQueries,
    ) -> Change {
        let mut change = Change::default();
        let mut left_out = 0;
        for known in self.all_mut() {
            known.seen = 0;
        }
        let mut board = debug;
        let mut left = MOST_MAPS;
        // SAFETY: `board` is null, the loader's `r_debug`, or the next one of its list, all of which stay by the
        // caller's promise.
        while let Some(d) = unsafe { board.as_ref() } {
            let is_other_namespace = !core::ptr::eq(board, debug);
            let mut map = d.maps;
            // SAFETY: `map` is null or an entry of the list of this `r_debug`, which is stable by the caller's promise.
            while let Some(m) = unsafe { map.as_ref() }.filter(|_| left > 0) {
                left -= 1;
                let is_listed_twice = is_other_namespace && self.is_mapped(m);
                let is_new = !self.is_known(m) && !is_listed_twice && queries != KernelQueries::Forbidden;
                left_out += (is_new && self.is_full()) as u32;
                // SAFETY: the caller promises to be the only writer. `m` is an entry of the stable list: listed maps
                // are whole (see `LinkMap`).
                if is_new && unsafe { self.meet(region, m, program, stamp, queries) } {
                    change.loaded += 1;
                    // SAFETY: `d` is an `r_debug` whose list is stable, and `m` an entry of that list, both by the
                    // caller's promise.
                    unsafe { self.look_for_other_mallocs(region, d, m, program, is_other_namespace) };
                }
                map = m.next;
            }
            board = if d.version >= 2 && left > 0 { d.next } else { core::ptr::null() };
        }
        self.count_left_out(region, left_out);
        change.unloaded = self.drop_unseen(region, stamp);
        if change != Change::default() {
            table.publish(region, self.all());
        }
        change
    }

    /// Marks a new module whose allocations are not recorded: the first one of a namespace that has a malloc of its
    /// own, and a library that is bound to another malloc than our shim. `map` must be the module that was added last.
    ///
    /// # Safety
    /// `map` is an entry of the list of `debug`, an `r_debug` of the loader. As for `refresh`, the list does not change
    /// meanwhile.
    #[inline(never)]
    unsafe fn look_for_other_mallocs(
        &self,
        region: &Region,
        debug: &Debug,
        map: &LinkMap,
        program: Headers,
        is_other_namespace: bool,
    ) {
        let flag = if is_other_namespace {
            // SAFETY: the caller promises that the list of this `r_debug` is stable, which is what `find_anywhere` asks
            // for.
            let has_malloc = unsafe { real::find_anywhere(debug.maps, b"malloc") }.is_some();
            if core::ptr::eq(debug.maps, map) && has_malloc { ModuleFlags::NAMESPACE } else { 0 }
        } else if opening::is_deep() {
            // SAFETY: the caller promises that `map` is an entry of the list of this `r_debug`, and that the loader's
            // lock is held or there is no other thread, which is what `bind_deep` asks for.
            let bound = unsafe { imports::bind_deep(map, debug.maps, debug.loader_base, program) };
            if bound == imports::Bound::Elsewhere { ModuleFlags::BYPASSES } else { 0 }
        } else {
            0
        };
        let last = self.all().last().map_or(0, |known| known.instance);
        if let Some(module) = region.modules().get((last as usize).wrapping_sub(1)) {
            module.flags.fetch_or(flag, Ordering::Relaxed);
        }
    }

    /// Adds a module that the loader did not announce. Known modules at the same addresses must have been unloaded.
    ///
    /// # Safety
    /// The caller is the only writer of the table. `map` is the entry of an object that stays mapped meanwhile.
    pub unsafe fn add(&mut self, table: &Modules, region: &Region, map: &LinkMap, program: Headers, stamp: Stamp) {
        let Some((start, end)) = headers_of(map, program).and_then(|headers| headers.bounds(map.bias)) else { return };
        for known in self.all_mut() {
            let overlaps = describe(region, known.instance).is_some_and(|old| old.start < end && start < old.end);
            known.seen = !overlaps as u32;
        }
        self.drop_unseen(region, stamp);
        // SAFETY: the caller promises to be the only writer, and that the object of `map` stays, which is what `meet`
        // asks for.
        unsafe { self.meet(region, map, program, stamp, KernelQueries::WithoutFolder) };
        table.publish(region, self.all());
    }

    /// Returns true if the module is known, and marks it as seen.
    fn is_known(&mut self, map: &LinkMap) -> bool {
        let (address, dynamic) = (map as *const LinkMap as u64, map.dynamic as u64);
        let mut known = self.all_mut().iter_mut();
        let found = known.find(|known| known.map == address && known.dynamic == dynamic);
        found.map(|known| known.seen = 1).is_some()
    }

    /// Returns true if the object is known through another entry. The loader itself is mapped once, but listed in every
    /// namespace.
    fn is_mapped(&self, map: &LinkMap) -> bool {
        self.all().iter().any(|known| known.seen != 0 && known.dynamic == map.dynamic as u64)
    }

    fn is_full(&self) -> bool {
        self.count as usize >= self.known.len()
    }

    /// Counts the modules that `known` has no room for. A module that stays loaded is left out again at every look at
    /// the loader's list, so only an increase is counted.
    fn count_left_out(&mut self, region: &Region, now: u32) {
        let more = now.saturating_sub(self.left_out);
        region.header().losses[Loss::ModuleFull as usize].fetch_add(more as u64, Ordering::Relaxed);
        self.left_out += more;
    }

    /// Adds a new module. Returns false, and publishes nothing, if it cannot be used or if there is no room for it.
    ///
    /// # Safety
    /// The caller is the only writer of the table. `map` is the entry of an object that stays mapped meanwhile.
    unsafe fn meet(
        &mut self,
        region: &Region,
        map: &LinkMap,
        program: Headers,
        stamp: Stamp,
        queries: KernelQueries,
    ) -> bool {
        let (address, dynamic) = (map as *const LinkMap as u64, map.dynamic as u64);
        let may_ask_folder = queries == KernelQueries::WithFolder && self.is_adopted == 0;
        let Some(place) = self.known.get_mut(self.count as usize) else { return false };
        // SAFETY: the caller promises to be the only writer, and that the object of `map` stays, which is what
        // `register` asks for.
        let Some(instance) = (unsafe { register(region, map, program, stamp, may_ask_folder) }) else { return false };
        *place = Known { map: address, dynamic, instance, seen: 1 };
        self.count += 1;
        true
    }

    /// Adds the modules that the profiler found in a process that runs already.
    pub fn adopt<'a>(
        &mut self,
        table: &Modules,
        region: &Region,
        modules: impl Iterator<Item = Description<'a>>,
        stamp: Stamp,
    ) {
        self.is_adopted = 1;
        let mut left_out = 0;
        for module in modules {
            let Some(place) = self.known.get_mut(self.count as usize) else {
                left_out += 1;
                continue;
            };
            let Some(instance) = module.publish(region, stamp) else { continue };
            *place = Known { map: module.map, dynamic: module.dynamic, instance, seen: 1 };
            self.count += 1;
        }
        self.count_left_out(region, left_out);
        table.publish(region, self.all());
    }

    /// In a forked child of a process that the profiler has patched: takes over the modules of the parent. Some of them
    /// are known only from the profiler, such as those of a program without a loader.
    pub fn inherit(&mut self, table: &Modules, region: &Region, parent: &Region, stamp: Stamp) {
        let count = parent.header().module_count.load(Ordering::Acquire) as usize;
        let modules = parent.modules().get(..count).unwrap_or(&[]);
        let loaded = modules.iter().filter(|module| module.unloaded.load(Ordering::Relaxed) == 0);
        self.adopt(table, region, loaded.map(|module| Description::of(parent, module)), stamp);
    }

    fn drop_unseen(&mut self, region: &Region, stamp: Stamp) -> u32 {
        let mut kept = 0;
        let mut gone = 0;
        for i in 0..self.count as usize {
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
        self.count = kept as u32;
        gone
    }
}

impl Index {
    /// Inserts a module into the sorted index. Insertion sort is enough, because the loader's list is short and mostly
    /// in order.
    fn insert(&self, count: usize, found: &Found, instance: u32) {
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

    fn set(&self, at: usize, start: u64, end: u64, instance: u64) {
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

fn has_name(map: &LinkMap) -> bool {
    // SAFETY: listed maps are whole (see `LinkMap`): the name is a NUL-terminated string, so it has at least one byte.
    !map.name.is_null() && unsafe { *map.name } != 0
}

/// Returns the program headers of a loaded object. A program that is not position independent has no ELF header at its
/// bias, so its headers are passed in.
pub(crate) fn headers_of(map: &LinkMap, program: Headers) -> Option<Headers> {
    if is_program(map, program) { Some(program) } else { Headers::at(map.bias) }
}

/// Returns true for the program's own entry. The name does not tell: glibc's list has no name for the program, but
/// musl's has one, and none for the kernel's object.
fn is_program(map: &LinkMap, program: Headers) -> bool {
    program.dynamic(map.bias).unwrap_or(0) == map.dynamic as u64
}

/// Returns true if a module of the table is the object of `map`: it has the same address, name and build-id.
///
/// # Safety
/// `map` is the entry of an object that stays mapped meanwhile.
pub unsafe fn is_same(region: &Region, instance: u16, map: &LinkMap, program: Headers) -> bool {
    let Some(module) = region.modules().get((instance as usize).wrapping_sub(1)) else { return false };
    let Some(headers) = headers_of(map, program) else { return false };
    let mut build_id = [0; channel::BUILD_ID_MAX / 8];
    let len = headers.build_id(map.bias, &mut build_id);
    let same_build = module.build_id_len.load(Ordering::Relaxed) as usize == len
        && module.build_id.iter().zip(build_id).all(|(known, word)| known.load(Ordering::Relaxed) == word);
    // SAFETY: listed maps are whole (see `LinkMap`): the name is NUL-terminated, and stays as long as the map, as the
    // caller promises.
    let name = if map.name.is_null() { &[] } else { unsafe { bytes(map.name) } };
    module.bias.load(Ordering::Relaxed) == map.bias && same_build && is_name(region, module, name)
}

/// Returns true if the stored name equals the loader's name, or is the absolute path of it.
fn is_name(region: &Region, module: &channel::Module, name: &[u8]) -> bool {
    let (at, len) = (module.name_at.load(Ordering::Relaxed) as usize, module.name_len.load(Ordering::Relaxed) as usize);
    let Some(folder) = len.checked_sub(name.len()) else { return false };
    let ends_with = name.iter().enumerate().all(|(i, &byte)| {
        region.names().get(at + folder + i).is_some_and(|stored| stored.load(Ordering::Relaxed) == byte)
    });
    ends_with && (folder == 0 || is_relative(name))
}

/// Returns true for a relative path. The name of the kernel's own object is no path.
fn is_relative(name: &[u8]) -> bool {
    name.first() != Some(&b'/') && name.contains(&b'/')
}

/// What is written to the shared table about a module.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// The loader's entry, and its dynamic section.
    pub map: u64,
    pub dynamic: u64,
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    pub eh_frame_hdr: u64,
    pub build_id: [u64; channel::BUILD_ID_MAX / 8],
    pub build_id_len: u32,
    /// `channel::ModuleFlags`.
    pub flags: u32,
    pub name: &'a [u8],
}

impl<'a> Description<'a> {
    /// Describes a module of a table. The loader's entry is not in the table.
    fn of(region: &Region<'a>, module: &channel::Module) -> Self {
        let at = module.name_at.load(Ordering::Relaxed) as usize;
        let end = at + module.name_len.load(Ordering::Relaxed) as usize;
        let name = region.names().get(at..end).unwrap_or(&[]);
        let mut build_id = [0; channel::BUILD_ID_MAX / 8];
        for (place, word) in build_id.iter_mut().zip(&module.build_id) {
            *place = word.load(Ordering::Relaxed);
        }
        Description {
            map: 0,
            dynamic: 0,
            start: module.start.load(Ordering::Relaxed),
            end: module.end.load(Ordering::Relaxed),
            bias: module.bias.load(Ordering::Relaxed),
            eh_frame_hdr: module.eh_frame_hdr.load(Ordering::Relaxed),
            build_id,
            build_id_len: module.build_id_len.load(Ordering::Relaxed),
            flags: module.flags.load(Ordering::Relaxed),
            // SAFETY: an `AtomicU8` is one byte. A name is written before its module is published, and never changes.
            name: unsafe { core::slice::from_raw_parts(name.as_ptr().cast(), name.len()) },
        }
    }

    /// Writes the description to the shared table. Returns the instance number of the module, or `None` if the table is
    /// full.
    pub fn publish(&self, region: &Region, stamp: Stamp) -> Option<u32> {
        let header = region.header();
        let index = header.module_count.load(Ordering::Relaxed);
        let Some(module) = region.modules().get(index as usize) else {
            header.losses[Loss::ModuleFull as usize].fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let (name_at, name_len) = store_name(region, self.name);
        module.start.store(self.start, Ordering::Relaxed);
        module.end.store(self.end, Ordering::Relaxed);
        module.bias.store(self.bias, Ordering::Relaxed);
        module.eh_frame_hdr.store(self.eh_frame_hdr, Ordering::Relaxed);
        module.loaded.store(stamp, Ordering::Relaxed);
        module.name_at.store(name_at, Ordering::Relaxed);
        module.name_len.store(name_len, Ordering::Relaxed);
        module.image.store(header.image.load(Ordering::Relaxed), Ordering::Relaxed);
        module.build_id_len.store(self.build_id_len, Ordering::Relaxed);
        module.flags.store(self.flags, Ordering::Relaxed);
        for (place, word) in module.build_id.iter().zip(self.build_id) {
            place.store(word, Ordering::Relaxed);
        }
        header.module_count.store(index + 1, Ordering::Release);
        Some(index + 1)
    }
}

/// Publishes a new module. Returns its instance number, or `None` if it cannot be used or the table is full.
///
/// # Safety
/// The caller is the only writer of the table. `map` is the entry of an object that stays mapped meanwhile.
unsafe fn register(
    region: &Region,
    map: &LinkMap,
    program: Headers,
    stamp: Stamp,
    may_ask_folder: bool,
) -> Option<u32> {
    let has_name = has_name(map);
    let headers = headers_of(map, program)?;
    let (start, end) = headers.bounds(map.bias)?;
    crate::api::fill(headers, map.bias);
    let mut build_id = [0; channel::BUILD_ID_MAX / 8];
    let build_id_len = headers.build_id(map.bias, &mut build_id) as u32;
    let eh_frame_hdr = headers.find(elf::PT_GNU_EH_FRAME).map_or(0, |h| map.bias.wrapping_add(h.vaddr));
    // SAFETY: only this function uses `PATH_BUFFER`, and the caller promises to be the only writer, so there is no
    // other reference.
    let buffer = unsafe { &mut *PATH_BUFFER.0.get() };
    // SAFETY: listed maps are whole (see `LinkMap`): the name is NUL-terminated, and stays while the caller keeps the
    // object.
    let name = if has_name { unsafe { bytes(map.name) } } else { &[] };
    // Absolute paths are resolved here, because a program that runs briefly may be gone before the collector can ask
    // for its path, or for its current folder when it loaded `./libx.so`.
    let is_told = if !has_name {
        is_program(map, program) && buffer.read_link(b"/proc/self/exe\0")
    } else {
        may_ask_folder && is_relative(name) && buffer.join_folder(name)
    };
    let name = if has_name || is_program(map, program) { name } else { KERNEL_OBJECT };
    let name = if is_told { buffer.get() } else { name };
    let (address, dynamic) = (map as *const LinkMap as u64, map.dynamic as u64);
    let flags = if families::is_hooked(start) { ModuleFlags::HOOKED } else { 0 };
    Description { map: address, dynamic, start, end, bias: map.bias, eh_frame_hdr, build_id, build_id_len, flags, name }
        .publish(region, stamp)
}

/// Copies a text into the channel's `names`. Only one thread may call this at a time. Returns the offset and the length
/// of the copy, or zeros if there is no room.
pub fn store_name(region: &Region, text: &[u8]) -> (u32, u32) {
    let header = region.header();
    let at = header.names_used.load(Ordering::Relaxed);
    for (i, &byte) in text.iter().enumerate() {
        match region.names().get(at as usize + i) {
            None => return (0, 0),
            Some(place) => place.store(byte, Ordering::Relaxed),
        }
    }
    header.names_used.store(at + text.len() as u32, Ordering::Release);
    (at, text.len() as u32)
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests")]
mod tests;
