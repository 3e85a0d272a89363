//! What the dynamic section of a program's file tells before the program is executed: which functions it exports, and which
//! libraries it needs.
//!
//! The file may be damaged. Every step reads a few bytes at a computed place of it, and there is a limit to their number.
use crate::sys;

const PROGRAM_HEADER: usize = 56;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const SYMBOL: u64 = 24;
/// The most entries of the section, and of a chain of the hash table, that are looked at.
const MOST_ENTRIES: u64 = 512;
const MOST_LINKS: u64 = 4096;
/// How much of a library's name is looked at.
const NAME: usize = 64;

/// The sanitizers that must be loaded before all other libraries: a function that each defines in the program, and parts of
/// the names of its libraries (GCC's and Clang's).
const SANITIZERS: [&[u8]; 3] = [b"__asan_init", b"__hwasan_init", b"__msan_init"];
const SANITIZER_LIBRARIES: [&[u8]; 4] = [b"asan.so", b"clang_rt.asan", b"clang_rt.hwasan", b"clang_rt.msan"];

/// The dynamic section of an open file. Positions are those in the file.
pub struct DynamicSection<'a> {
    file: i32,
    /// The start of the file.
    head: &'a [u8],
    at: u64,
    strings: u64,
    symbols: u64,
    hash: u64,
}

impl<'a> DynamicSection<'a> {
    /// Returns `None` if the file has none, or none that is complete. `head` is the start of an ELF file.
    pub fn find(file: i32, head: &'a [u8]) -> Option<Self> {
        let mut found = DynamicSection { file, head, at: 0, strings: 0, symbols: 0, hash: 0 };
        let section = found.segments().find(|segment| segment.kind == PT_DYNAMIC)?;
        found.at = section.offset;
        for i in 0..MOST_ENTRIES {
            let [tag, value] = found.entry(i);
            match tag {
                0 => break,
                DT_STRTAB => found.strings = found.position(value)?,
                DT_SYMTAB => found.symbols = found.position(value)?,
                DT_GNU_HASH => found.hash = found.position(value)?,
                _ => (),
            }
        }
        (found.strings != 0).then_some(found)
    }

    /// Returns true if a library that is preloaded would keep the program from running.
    pub fn is_sanitized(&self) -> bool {
        SANITIZERS.iter().any(|name| self.defines(name)) || self.needs_any(&SANITIZER_LIBRARIES)
    }

    fn needs_any(&self, parts: &[&[u8]]) -> bool {
        let entries = (0..MOST_ENTRIES).map(|i| self.entry(i)).take_while(|[tag, _]| *tag != 0);
        let needed = entries.filter(|[tag, _]| *tag == DT_NEEDED);
        needed.into_iter().any(|[_, name]| {
            let mut text = [0; NAME];
            self.read(self.strings.wrapping_add(name), &mut text);
            let text = text.split(|byte| *byte == 0).next().unwrap_or(&[]);
            parts.iter().any(|part| text.windows(part.len()).any(|window| window == *part))
        })
    }

    /// Returns true if the program exports a function of this name, which has fewer than 16 bytes.
    pub fn defines(&self, name: &[u8]) -> bool {
        self.hash != 0 && self.symbols != 0 && self.look_up(name).is_some()
    }

    /// Looks a name up in the table that linkers write for loaders. Returns the index of its symbol.
    fn look_up(&self, name: &[u8]) -> Option<u64> {
        let hash = name.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(*byte as u32)) as u64;
        let buckets = self.number::<4>(self.hash);
        let first = self.number::<4>(self.hash.wrapping_add(4));
        let words = self.number::<4>(self.hash.wrapping_add(8));
        let shift = self.number::<4>(self.hash.wrapping_add(12)) & 31;
        let filter = self.hash.wrapping_add(16);
        let word = self.number::<8>(filter.wrapping_add((hash / 64).checked_rem(words)? * 8));
        if word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1 == 0 {
            return None;
        }
        let bucket = filter.wrapping_add(words * 8);
        let start = self.number::<4>(bucket.wrapping_add(hash.checked_rem(buckets)? * 4));
        let chain = bucket.wrapping_add(buckets * 4);
        for index in start..start + MOST_LINKS {
            let link = self.number::<4>(chain.wrapping_add(index.checked_sub(first)? * 4));
            if link | 1 == hash | 1 && self.is_defined(index, name) {
                return Some(index);
            }
            if link & 1 != 0 {
                return None;
            }
        }
        None
    }

    fn is_defined(&self, index: u64, name: &[u8]) -> bool {
        let symbol = self.symbols.wrapping_add(index * SYMBOL);
        let mut text = [0; 16];
        self.read(self.strings.wrapping_add(self.number::<4>(symbol)), &mut text);
        let section = self.number::<2>(symbol.wrapping_add(6));
        section != 0 && text.split(|byte| *byte == 0).next() == Some(name)
    }

    fn entry(&self, i: u64) -> [u64; 2] {
        let at = self.at.wrapping_add(i * 16);
        [self.number::<8>(at), self.number::<8>(at.wrapping_add(8))]
    }

    /// The position of an address in the file.
    fn position(&self, address: u64) -> Option<u64> {
        let segment = self
            .segments()
            .find(|segment| segment.kind == PT_LOAD && address.wrapping_sub(segment.address) < segment.length)?;
        Some(address - segment.address + segment.offset)
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let at = |at: usize| number(self.head.get(at..at + 8).unwrap_or(&[0; 8]));
        let (start, count) = (at(32), at(56) & 0xffff);
        (0..count.min(MOST_ENTRIES)).map(move |i| {
            let mut header = [0; PROGRAM_HEADER];
            self.read(start.wrapping_add(i * PROGRAM_HEADER as u64), &mut header);
            let word = |at: usize| number(header.get(at..at + 8).unwrap_or(&[0; 8]));
            Segment { kind: word(0) & 0xffff_ffff, offset: word(8), address: word(16), length: word(32) }
        })
    }

    fn number<const N: usize>(&self, at: u64) -> u64 {
        let mut bytes = [0; N];
        self.read(at, &mut bytes);
        number(&bytes)
    }

    /// Bytes that are missing stay 0.
    fn read(&self, at: u64, bytes: &mut [u8]) {
        sys::read_at(self.file, bytes, at as usize);
    }
}

struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    /// In the file.
    length: u64,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | *byte as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look<T>(path: &[u8], at: impl FnOnce(&DynamicSection<'_>) -> T) -> Option<T> {
        let file = sys::open_read(path)?;
        let mut head = [0; 4096];
        let length = sys::read_at(file, &mut head, 0);
        let found = DynamicSection::find(file, &head[..length]).map(|section| at(&section));
        sys::close(file);
        found
    }

    #[test]
    fn exports_are_found() {
        let exports = |section: &DynamicSection<'_>| [section.defines(b"malloc"), section.defines(b"no_such")];
        assert_eq!(look(b"/lib/x86_64-linux-gnu/libc.so.6\0", exports), Some([true, false]));
        assert_eq!(look(b"/lib/x86_64-linux-gnu/libm.so.6\0", exports), Some([false, false]));
        assert_eq!(look(b"/bin/sh\0", exports), Some([false, false]), "it imports malloc");
        assert_eq!(look(b"/etc/passwd\0", exports), None);
    }

    #[test]
    fn needed_libraries_are_found() {
        let needs = |part: &'static [u8]| look(b"/bin/sh\0", move |section| section.needs_any(&[part]));
        assert_eq!((needs(b"libc.so"), needs(b"asan.so")), (Some(true), Some(false)));
        assert_eq!(look(b"/bin/sh\0", |section| section.is_sanitized()), Some(false));
    }
}
