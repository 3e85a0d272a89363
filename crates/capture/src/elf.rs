//! ELF files in memory: program headers, build-id, dynamic symbols.
//!
//! All functions read what the loader has mapped, and trust it as the loader does. Nothing is allocated.
use crate::sys;

pub const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
pub const PT_NOTE: u32 = 4;
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub const PT_GNU_RELRO: u32 = 0x6474_e552;
pub const PF_X: u32 = 1;
pub const PF_W: u32 = 2;

const DT_HASH: u64 = 4;
pub const DT_STRTAB: u64 = 5;
pub const DT_SYMTAB: u64 = 6;
pub const DT_DEBUG: u64 = 21;
/// The tags of the two tables of relocations and of their sizes: DT_RELA and DT_RELASZ, DT_JMPREL and DT_PLTRELSZ.
pub const RELOCATION_TABLES: [(u64, u64); 2] = [(7, 8), (23, 2)];
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const STT_GNU_IFUNC: u8 = 10;
const VERSYM_HIDDEN: u16 = 0x8000;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProgramHeader {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub vaddr: u64,
    pub paddr: u64,
    pub filesz: u64,
    pub memsz: u64,
    pub align: u64,
}

/// An entry of a symbol table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Symbol {
    name: u32,
    pub info: u8,
    pub other: u8,
    /// 0 = not defined here.
    pub section: u16,
    pub value: u64,
    size: u64,
}

impl Symbol {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `self` is alive for the borrow, and a `Symbol` is 24 bytes of integers without padding, so all of
        // them are initialised.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Symbol>()) }
    }
}

/// A relocation with an addend. It says what the loader writes into a word of a module.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Relocation {
    pub offset: u64,
    info: u64,
    pub addend: i64,
}

impl Relocation {
    pub fn kind(&self) -> u32 {
        self.info as u32
    }

    /// The index of the symbol whose address is written to the word. 0 = none.
    pub fn symbol(&self) -> usize {
        (self.info >> 32) as usize
    }
}

/// The loader's list entry (`struct link_map`), its public part.
///
/// **Listed maps are whole**: code makes a `&LinkMap` only of an entry of the loader's list, while the list is stable,
/// or of an object that stays because its code is on the stack. Then the object is mapped, `name` is null or
/// NUL-terminated, and `dynamic` is null or the object's dynamic section, ended by a zero tag. All of them stay as long
/// as the reference is used.
#[repr(C)]
pub struct LinkMap {
    pub bias: u64,
    pub name: *const u8,
    pub dynamic: *const [u64; 2],
    pub next: *const LinkMap,
    pub prev: *const LinkMap,
}

/// The loader's `struct r_debug`, through which it tells debuggers what it has loaded.
#[repr(C)]
pub struct Debug {
    pub version: i32,
    pub maps: *const LinkMap,
    /// The function that the loader calls before and after it changes the list.
    pub changed: u64,
    /// 0 = consistent, 1 = adding, 2 = deleting.
    pub state: i32,
    pub loader_base: u64,
    /// From version 2 on: the next linker namespace (dlmopen).
    pub next: *const Debug,
}

/// Returns the address of this library's own dynamic section, which identifies it in the loader's list. 0 in a program
/// without one.
pub fn own_dynamic() -> u64 {
    let address;
    // SAFETY: only computes an address, and reads and writes no memory. The linker defines `_DYNAMIC`, or leaves it 0
    // if it is weak.
    unsafe {
        core::arch::asm!(
            ".weak _DYNAMIC",
            ".hidden _DYNAMIC",
            "lea {}, [rip + _DYNAMIC]",
            out(reg) address,
            options(nomem, nostack, preserves_flags),
        );
    }
    address
}

/// The program headers of a mapped file; `count` may be 0. The `count` headers at `first` stay mapped while the value
/// is used: `at` has checked them in a mapped page, or the kernel's auxiliary vector names the program's own, which
/// stay. In the bytes that `attach_block.rs` makes, they are addresses of the target, which only the target follows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Headers {
    pub first: *const ProgramHeader,
    pub count: usize,
}

impl Headers {
    pub fn iter(self) -> impl Iterator<Item = ProgramHeader> {
        // SAFETY: `i` is below `count`, and that many headers are mapped at `first` (see `Headers`).
        (0..self.count).map(move |i| unsafe { *self.first.add(i) })
    }

    /// Returns the headers of the file whose first page is mapped at `base`, if it is an ELF file and all its headers
    /// are in that page.
    pub fn at(base: u64) -> Option<Headers> {
        if base == 0 || base & 0xfff != 0 || !sys::is_readable(base as usize) {
            return None;
        }
        // SAFETY: the page at `base` is readable, asked for above, and `base` is page-aligned, so the three fields are
        // aligned and lie in it.
        let (magic, offset, count) = unsafe {
            let magic = (base as *const u32).read();
            let offset = ((base + 32) as *const u64).read();
            let count = ((base + 56) as *const u16).read();
            (magic, offset, count)
        };
        let end = offset.checked_add(count as u64 * size_of::<ProgramHeader>() as u64)?;
        if magic != u32::from_le_bytes(*b"\x7fELF") || end > 4096 {
            return None;
        }
        Some(Headers { first: (base + offset) as *const ProgramHeader, count: count as usize })
    }

    /// Returns the difference between addresses in memory and addresses in the file, and whether it is certain.
    ///
    /// It is certain if one of the headers is PT_PHDR. musl's loader has no such header, and if it is run as a command,
    /// it is the program that the kernel started. The difference is then computed from the address of the file's first
    /// page. If the headers are not in that page, the result is 0.
    pub fn bias(self) -> (u64, bool) {
        const PT_PHDR: u32 = 6;
        let first = self.first as u64;
        if let Some(own) = self.find(PT_PHDR) {
            return (first.wrapping_sub(own.vaddr), true);
        }
        let base = first & !0xfff;
        let is_start = Headers::at(base).is_some_and(|found| found.first == self.first);
        let start = self.iter().find(|header| header.kind == PT_LOAD && header.offset == 0).filter(|_| is_start);
        (start.map_or(0, |start| base.wrapping_sub(start.vaddr)), false)
    }

    /// Returns the address of the dynamic section.
    pub fn dynamic(self, bias: u64) -> Option<u64> {
        self.find(PT_DYNAMIC).map(|header| bias.wrapping_add(header.vaddr))
    }

    /// Returns the addresses `(start, end)` of the loaded segments, in whole pages.
    pub fn bounds(self, bias: u64) -> Option<(u64, u64)> {
        let (mut low, mut high) = (u64::MAX, 0);
        for header in self.iter().filter(|h| h.kind == PT_LOAD) {
            low = low.min(header.vaddr & !0xfff);
            high = high.max(header.vaddr.wrapping_add(header.memsz));
        }
        (low < high).then(|| (bias.wrapping_add(low), bias.wrapping_add(high).wrapping_add(0xfff) & !0xfff))
    }

    pub fn find(self, kind: u32) -> Option<ProgramHeader> {
        self.iter().find(|h| h.kind == kind)
    }

    /// Calls `look` with each note: its name with the NUL, its kind, its content.
    pub fn for_each_note(self, bias: u64, mut look: impl FnMut(&[u8], u32, &[u8])) {
        for note in self.iter().filter(|h| h.kind == PT_NOTE) {
            let (mut at, end) = (bias.wrapping_add(note.vaddr), bias.wrapping_add(note.vaddr).wrapping_add(note.memsz));
            while at.wrapping_add(12) <= end {
                // SAFETY: the twelve bytes lie below the end of the segment, checked by the loop. The object is mapped
                // with its notes, from which the loader itself reads properties: `bias` is that of the object of these
                // headers.
                let [name_len, len, kind] = unsafe { (at as *const [u32; 3]).read_unaligned() };
                let name = at + 12;
                let content = name + ((name_len as u64 + 3) & !3);
                let next = content + ((len as u64 + 3) & !3);
                if next > end {
                    break;
                }
                // SAFETY: both lie below `next`, which is inside the same mapped segment, checked above. A note segment
                // is read-only, so it does not change while `look` has the slices.
                unsafe {
                    let name = core::slice::from_raw_parts(name as *const u8, name_len as usize);
                    look(name, kind, core::slice::from_raw_parts(content as *const u8, len as usize));
                }
                at = next;
            }
        }
    }

    /// Copies the build-id, at most `channel::BUILD_ID_MAX` bytes of it. Returns the number of bytes, or 0 if there is
    /// none.
    pub fn build_id(self, bias: u64, into: &mut [u64; channel::BUILD_ID_MAX / 8]) -> usize {
        const NT_GNU_BUILD_ID: u32 = 3;
        let mut found = 0;
        self.for_each_note(bias, |name, kind, content| {
            if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && found == 0 {
                found = copy_build_id(content, into);
            }
        });
        found
    }
}

fn copy_build_id(from: &[u8], into: &mut [u64; channel::BUILD_ID_MAX / 8]) -> usize {
    let from = from.get(..channel::BUILD_ID_MAX).unwrap_or(from);
    for (i, byte) in from.iter().enumerate() {
        if let Some(word) = into.get_mut(i / 8) {
            *word |= (*byte as u64) << (i % 8 * 8);
        }
    }
    from.len()
}

/// Returns the value of a tag in a dynamic section.
///
/// # Safety
/// `dynamic` is null or a mapped dynamic section, ended by a zero tag.
pub unsafe fn dynamic_value(mut dynamic: *const [u64; 2], tag: u64) -> Option<u64> {
    if dynamic.is_null() {
        return None;
    }
    loop {
        // SAFETY: an entry of the section that the caller promises: the loop has not met the zero tag that ends it.
        let [found, value] = unsafe { *dynamic };
        if found == tag {
            return Some(value);
        }
        if found == 0 {
            return None;
        }
        // SAFETY: the entry was not the zero tag that ends the section, so another one follows.
        dynamic = unsafe { dynamic.add(1) };
    }
}

/// Returns true if the NUL-terminated string at `a` equals `b`.
///
/// # Safety
/// `a` points to a NUL-terminated string.
pub unsafe fn string_is(a: *const u8, b: &[u8]) -> bool {
    for (i, &byte) in b.iter().enumerate() {
        // SAFETY: the bytes before were those of `b`, a name without a NUL, so the NUL that the caller promises comes
        // here or later.
        if unsafe { *a.add(i) } != byte {
            return false;
        }
    }
    // SAFETY: the bytes before were those of `b`, a name without a NUL, so the NUL that the caller promises comes here
    // or later.
    unsafe { *a.add(b.len()) == 0 }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381u32, |h, &c| h.wrapping_mul(33).wrapping_add(c as u32))
}

/// Calls `look` with every relocation in the two tables of a loaded object.
///
/// # Safety
/// `map` is an entry of the loader's list whose object is mapped, so listed maps are whole (see [`LinkMap`]).
pub unsafe fn for_each_relocation(map: &LinkMap, mut look: impl FnMut(&Relocation)) {
    // SAFETY: listed maps are whole (see `LinkMap`), so `dynamic` is null or ends with a zero tag.
    let get = |tag| unsafe { dynamic_value(map.dynamic, tag) };
    for (table, size) in RELOCATION_TABLES {
        let (Some(at), Some(bytes)) = (get(table), get(size)) else { continue };
        // Some loaders relocate these pointers in place, others do not. See `Symbols::of`.
        let first = if at < map.bias { at.wrapping_add(map.bias) } else { at } as *const Relocation;
        for i in 0..bytes as usize / size_of::<Relocation>() {
            // SAFETY: the dynamic section says where the table is and how many bytes it has, and `i` counts its
            // entries. The loader relocates the object by the same table, which is mapped with it.
            look(unsafe { &*first.add(i) });
        }
    }
}

/// The dynamic symbols of one loaded object.
///
/// **Tables are the loader's**: `of` takes the pointers from the object's dynamic section, by which the loader itself
/// looks symbols up. So they are null or point to tables of the ELF layout, which stay mapped as long as the object,
/// and users of a `Symbols` are done before the object can go.
pub struct Symbols {
    bias: u64,
    symbols: *const Symbol,
    strings: *const u8,
    versions: *const u16,
    gnu_hash: *const u32,
    hash: *const u32,
}

impl Symbols {
    /// # Safety
    /// `map` is an entry of the loader's list whose object is mapped, and stays mapped while the result is used.
    pub unsafe fn of(map: &LinkMap) -> Option<Symbols> {
        // glibc's loader relocates these pointers in place. musl and the kernel (vdso) do not.
        let get = |tag| {
            // SAFETY: listed maps are whole (see `LinkMap`), so `dynamic` is null or ends with a zero tag.
            let value = unsafe { dynamic_value(map.dynamic, tag) }?;
            Some(if value < map.bias { value.wrapping_add(map.bias) } else { value })
        };
        Some(Symbols {
            bias: map.bias,
            symbols: get(DT_SYMTAB)? as *const Symbol,
            strings: get(DT_STRTAB)? as *const u8,
            versions: get(DT_VERSYM).unwrap_or(0) as *const u16,
            gnu_hash: get(DT_GNU_HASH).unwrap_or(0) as *const u32,
            hash: get(DT_HASH).unwrap_or(0) as *const u32,
        })
    }

    /// Returns the address of a defined function or object. If there are several versions, it is the default one.
    pub fn find(&self, name: &[u8]) -> Option<u64> {
        self.find_version(name).map(|(address, _)| address)
    }

    /// As `find`, but returns only a default version. Programs that are linked now, and `dlsym`, find no other.
    pub fn find_default(&self, name: &[u8]) -> Option<u64> {
        self.find_version(name).filter(|(_, is_default)| *is_default).map(|(address, _)| address)
    }

    /// Returns the address of a defined function or object, and whether it is the default version.
    fn find_version(&self, name: &[u8]) -> Option<(u64, bool)> {
        if !self.gnu_hash.is_null() {
            return self.find_gnu(name);
        }
        if !self.hash.is_null() {
            return self.find_sysv(name);
        }
        None
    }

    fn find_gnu(&self, name: &[u8]) -> Option<(u64, bool)> {
        let hash = gnu_hash(name);
        // SAFETY: tables are the loader's (see `Symbols`): four words, `bloom` words of a filter, `buckets` buckets,
        // and a chain for every symbol from `offset` on. All indices are below these counts, and the last entry of a
        // bucket's chain has its lowest bit set.
        unsafe {
            let [buckets, offset, bloom, shift] = (self.gnu_hash as *const [u32; 4]).read();
            // The Bloom filter rules out nearly every name that the object does not define.
            let word = (hash / 64).checked_rem(bloom)?;
            let filter = self.gnu_hash.add(4).cast::<u64>().add(word as usize).read_unaligned();
            if buckets == 0 || filter >> (hash % 64) & filter >> (hash.wrapping_shr(shift) % 64) & 1 == 0 {
                return None;
            }
            let table = self.gnu_hash.add(4 + bloom as usize * 2);
            let chains = table.add(buckets as usize);
            let mut index = *table.add(hash.checked_rem(buckets)? as usize);
            if index < offset {
                return None;
            }
            let mut hidden = None;
            loop {
                let chain = *chains.add(index.wrapping_sub(offset) as usize);
                if (chain ^ hash) >> 1 == 0 {
                    match self.matches(index as usize, name) {
                        Some((address, true)) => return Some((address, true)),
                        found => hidden = hidden.or(found),
                    }
                }
                if chain & 1 != 0 {
                    return hidden;
                }
                index = index.wrapping_add(1);
            }
        }
    }

    fn find_sysv(&self, name: &[u8]) -> Option<(u64, bool)> {
        // SAFETY: tables are the loader's (see `Symbols`): the second word of a hash table is the number of symbols.
        let count = unsafe { *self.hash.add(1) } as usize;
        let found = || (0..count).filter_map(|i| self.matches(i, name));
        found().find(|(_, is_default)| *is_default).or_else(|| found().next())
    }

    /// Returns the entry with this name in the object's symbol table, whether it is defined now or not. It finds only
    /// names that were defined when the object was linked, because only those are in the hash table.
    pub fn entry(&self, name: &[u8]) -> Option<*mut Symbol> {
        if self.gnu_hash.is_null() {
            return None;
        }
        // SAFETY: tables are the loader's (see `Symbols`). The chains, which follow the buckets, are as long as the
        // symbols that can be looked up, and the last entry of a bucket's chain has its lowest bit set.
        unsafe {
            let [buckets, offset, bloom, _] = (self.gnu_hash as *const [u32; 4]).read();
            let hash = gnu_hash(name);
            let table = self.gnu_hash.add(4 + bloom as usize * 2);
            let mut index = *table.add(hash.checked_rem(buckets)? as usize);
            if index < offset {
                return None;
            }
            loop {
                let chain = *table.add(buckets as usize + index.wrapping_sub(offset) as usize);
                if (chain ^ hash) >> 1 == 0 && self.has_name(index as usize, name) {
                    return Some(self.symbols.add(index as usize).cast_mut());
                }
                if chain & 1 != 0 {
                    return None;
                }
                index = index.wrapping_add(1);
            }
        }
    }

    /// Returns an entry by its index.
    ///
    /// # Safety
    /// The index is one that the object's own relocations have, so it is within the table.
    pub unsafe fn at(&self, index: usize) -> *mut Symbol {
        // SAFETY: tables are the loader's (see `Symbols`), and the caller promises an index of the object's own
        // relocations.
        unsafe { self.symbols.add(index).cast_mut() }
    }

    /// Returns true if the entry with this index has this name.
    ///
    /// # Safety
    /// The index is within the table: it comes from the object's own relocations or its hash table.
    pub unsafe fn has_name(&self, index: usize, name: &[u8]) -> bool {
        // SAFETY: tables are the loader's (see `Symbols`), and the caller promises an index within the table. Names are
        // offsets into the object's strings, each of which ends with a NUL.
        unsafe { string_is(self.strings.add((*self.symbols.add(index)).name as usize), name) }
    }

    /// If the symbol is defined and has this name, returns its address, and whether it is the default version.
    fn matches(&self, index: usize, name: &[u8]) -> Option<(u64, bool)> {
        // SAFETY: tables are the loader's (see `Symbols`), and `index` is from the object's own hash table. A resolver
        // of an indirect function is called as the loader calls it; the callers run when all modules are relocated.
        unsafe {
            let symbol = *self.symbols.add(index);
            if symbol.section == 0 || symbol.value == 0 || !string_is(self.strings.add(symbol.name as usize), name) {
                return None;
            }
            let mut address = self.bias.wrapping_add(symbol.value);
            if symbol.info & 0xf == STT_GNU_IFUNC {
                let resolve: extern "C" fn() -> u64 = core::mem::transmute(address);
                address = resolve();
            }
            let default = self.versions.is_null() || *self.versions.add(index) & VERSYM_HIDDEN == 0;
            Some((address, default))
        }
    }
}

/// What the kernel told the program at its start, in the auxiliary vector.
#[derive(Clone, Copy)]
pub struct Auxiliary {
    pub headers: Headers,
    /// The kernel's random bytes, which lie above all frames of the first thread's stack. 0 if it named none.
    pub random: u64,
}

impl Auxiliary {
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    const AT_RANDOM: u64 = 25;

    /// Reads the auxiliary vector from /proc/self/auxv.
    pub fn from_proc() -> Option<Auxiliary> {
        let mut words = [[0u64; 2]; 40];
        let fd = sys::open_read(b"/proc/self/auxv\0")?;
        // SAFETY: the 640 bytes of `words`, which is not used while `bytes` lives. Integers have no padding, and any
        // bytes are valid integers.
        let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(&words)) };
        let n = sys::read(fd, bytes) / 16;
        sys::close(fd);
        Self::from_words(words.iter().take(n).copied())
    }

    /// Reads the auxiliary vector from the program's initial stack.
    ///
    /// # Safety
    /// `stack_end` points to argc on the initial stack, where the kernel put it. Entries may have been removed from the
    /// environment.
    pub unsafe fn from_stack(stack_end: *const u64) -> Option<Auxiliary> {
        // SAFETY: at `stack_end` the kernel put argc, argv, a null, the environment, a null, and pairs that end with
        // the tag 0: the ABI. The loops stop at these ends, and the initial stack stays mapped.
        unsafe {
            let mut at = stack_end.add(*stack_end as usize + 2);
            while *at != 0 {
                at = at.add(1);
            }
            // If variables were removed, more than one null follows. No pair begins with a zero tag except the last.
            while *at == 0 {
                at = at.add(1);
            }
            let pairs = at.cast::<[u64; 2]>();
            Self::from_words((0..64).map(|i| *pairs.add(i)).take_while(|pair| pair[0] != 0))
        }
    }

    fn from_words(pairs: impl Iterator<Item = [u64; 2]>) -> Option<Auxiliary> {
        let (mut first, mut count, mut random) = (0, 0, 0);
        for [tag, value] in pairs {
            match tag {
                Self::AT_PHDR => first = value,
                Self::AT_PHNUM => count = value,
                Self::AT_RANDOM => random = value,
                _ => {}
            }
        }
        let headers = Headers { first: first as *const ProgramHeader, count: count as usize };
        (first != 0 && count != 0).then_some(Auxiliary { headers, random })
    }
}
