//! Recognises an allocator in a file without symbols, by the messages that it would print.
//!
//! Receives: the path of a module. Returns: the name of the allocator. Must hold: only texts that no other code has count.
use object::Endianness;
use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The beginning of a message, and the allocator that prints it. The other allocators that are hooked print none.
const MESSAGES: [(&[u8], &str); 3] =
    [(b"mimalloc: warning: ", "mimalloc"), (b"<jemalloc>: ", "jemalloc"), (b"tcmalloc: large alloc", "tcmalloc")];

/// The bytes of a section that are read at a time, and how many of them are read again with the next ones.
const PIECE: usize = 1 << 20;
const OVERLAP: usize = 32;

/// Returns the allocator whose messages are in the file's read-only data.
pub fn find(path: &Path) -> Option<&'static str> {
    let file = File::open(path).ok()?;
    let data = ReadCache::new(&file);
    let header = elf::FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let (_, section) = sections.section_by_name(endian, b".rodata")?;
    let (start, size) = section.file_range(endian)?;
    let mut buffer = vec![0; PIECE.min(usize::try_from(size).ok()?)];
    let mut at = 0u64;
    while at < size {
        let length = buffer.len().min(usize::try_from(size - at).ok()?);
        let piece = buffer.get_mut(..length)?;
        file.read_exact_at(piece, start.checked_add(at)?).ok()?;
        let found = MESSAGES.iter().find(|(text, _)| memchr::memmem::find(piece, text).is_some());
        if let Some((_, family)) = found {
            return Some(family);
        }
        at += if length > OVERLAP { (length - OVERLAP) as u64 } else { length as u64 };
        if length < buffer.len() || at + OVERLAP as u64 >= size {
            break;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_is_known_by_its_messages() {
        let library = |name: &str| Path::new("/usr/lib/x86_64-linux-gnu").join(name);
        assert_eq!(find(&library("libjemalloc.so.2")), Some("jemalloc"));
        assert_eq!(find(&library("libmimalloc.so.2")), Some("mimalloc"));
        assert_eq!(find(&library("libc.so.6")), None);
        assert_eq!(find(Path::new("/no/such")), None);
    }
}
