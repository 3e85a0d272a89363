//! Recognises glibc's arenas by the header at their start.
//!
//! Receives: an address at which an arena can begin. Returns: whether one begins there. Must hold: a page that the target has not touched
//! is not read, because a read would map it.
//!
//! ```text
//! struct _heap_info: | ar_ptr | prev | size | mprotect_size | ...      sizes in bytes, whole pages, at most 64 MB
//! ```
use super::block_cover::PAGE;
use super::resident_pages::{PageMap, Residence};
use super::smaps::ARENA;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[derive(Debug)]
pub struct ArenaHeaders {
    /// `None` if the target's memory cannot be read. Then an arena is recognised by its place alone.
    files: Option<(PageMap, File)>,
}

impl ArenaHeaders {
    pub fn open(process: &Path) -> Self {
        let pages = PageMap::open(process, PAGE);
        let memory = File::open(process.join("mem"));
        ArenaHeaders { files: pages.ok().zip(memory.ok()) }
    }

    /// `is_by_place`: the rest of the 64 MB is reserved, and nothing after it.
    pub fn is_arena(&self, start: u64, is_by_place: bool) -> bool {
        let Some((pages, memory)) = &self.files else { return is_by_place };
        let mut is_resident = false;
        let looked = pages.for_each(start, start + PAGE, |_, residence| is_resident |= residence != Residence::Absent);
        let mut bytes = [0; 32];
        match looked {
            Ok(()) if is_resident => {
                memory.read_exact_at(&mut bytes, start).map_or(is_by_place, |()| is_header(&bytes))
            }
            Ok(()) => false,
            Err(_) => is_by_place,
        }
    }
}

fn is_header(bytes: &[u8; 32]) -> bool {
    let (words, _) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>();
    let [owner, before, size, accessible] = words[..] else { return false };
    let is_size = |bytes: u64| bytes > 0 && bytes <= ARENA && bytes.is_multiple_of(PAGE);
    owner != 0
        && owner.is_multiple_of(16)
        && before.is_multiple_of(ARENA)
        && is_size(size)
        && is_size(accessible)
        && size <= accessible
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(words: [u64; 4]) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())).for_each(|(to, from)| *to = from);
        bytes
    }

    #[test]
    fn headers_are_told_from_other_memory() {
        assert!(is_header(&header([0x7f00_0000_0030, 0, 0x21000, 0x22000])));
        assert!(is_header(&header([0x7f00_0000_0030, 0x7f00_0400_0000, ARENA, ARENA])));
        for words in [[0; 4], [1; 4], [0x10, 0, 0x22000, 0x21000], [0x10, 8, 0x1000, 0x1000], [0x10, 0, 0x1001, 0x2000]]
        {
            assert!(!is_header(&header(words)), "{words:x?}");
        }
    }

    #[test]
    fn without_access_the_place_decides() {
        let headers = ArenaHeaders::open(Path::new("/proc/no such process"));
        assert!(headers.is_arena(0, true) && !headers.is_arena(0, false));
    }
}
