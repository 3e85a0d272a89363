//! Which pages of a process are resident, from `/proc/PID/pagemap`.
//!
//! Receives: a range of addresses. Returns: for each page whether it is resident. Must hold: a read covers at most 2 MB of addresses,
//! because the process cannot change its mappings meanwhile.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One read covers this many pages.
const PAGES: usize = 512;
/// The bits of an entry.
const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    Absent,
    Resident,
    /// The page is the kernel's page of zeros, which does not count as resident, or it is shared with a forked process.
    ZeroOrForked,
}

impl Residence {
    const fn of(entry: u64) -> Self {
        if entry & PRESENT == 0 {
            Residence::Absent
        } else if entry & (FILE_OR_SHARED | EXCLUSIVE) == 0 {
            Residence::ZeroOrForked
        } else {
            Residence::Resident
        }
    }
}

#[derive(Debug)]
pub struct PageMap {
    file: File,
    page_size: u64,
}

impl PageMap {
    pub fn open(process: &Path, page_size: u64) -> io::Result<Self> {
        Ok(PageMap { file: File::open(process.join("pagemap"))?, page_size })
    }

    /// Calls `look` with each page of `[start, end)`, in order. `start` must be the first address of a page.
    pub fn for_each(&self, start: u64, end: u64, mut look: impl FnMut(u64, Residence)) -> io::Result<()> {
        let mut buffer = [0; PAGES * 8];
        let mut address = start;
        while address < end {
            let wanted = ((end - address).div_ceil(self.page_size) as usize).min(PAGES) * 8;
            let length = self.file.read_at(&mut buffer[..wanted], address / self.page_size * 8)?;
            let (entries, _) = buffer[..length].as_chunks::<8>();
            if entries.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for entry in entries {
                look(address, Residence::of(u64::from_le_bytes(*entry)));
                address += self.page_size;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_parts::smaps;

    /// Compares with the kernel's own count, for all memory of this process that others do not share.
    #[test]
    fn pages_add_up_to_the_resident_size() {
        let ours = Path::new("/proc/self");
        let touched = vec![1u8; 3 << 20];
        let address = touched.as_ptr() as u64;
        let page = rustix::param::page_size() as u64;
        let map = PageMap::open(ours, page).unwrap();
        let ranges = smaps::read(ours).unwrap();
        let range = ranges.iter().find(|range| (range.start..range.end).contains(&address)).unwrap();
        let (mut pages, mut of_vector) = (0, 0);
        let is_in_vector = |at: u64| at >= address && at + page <= address + touched.len() as u64;
        map.for_each(range.start, range.end, |at, residence| {
            pages += (residence == Residence::Resident) as u64;
            of_vector += (residence == Residence::Resident && is_in_vector(at)) as u64;
        })
        .unwrap();
        assert!(of_vector >= (3 << 20) / page - 2, "{of_vector}");
        let difference = (pages * page).abs_diff(range.rss_bytes);
        assert!(difference <= 1 << 20, "{} and {}", pages * page, range.rss_bytes);
    }

    #[test]
    fn bits_are_understood() {
        assert_eq!(Residence::of(0), Residence::Absent);
        assert_eq!(Residence::of(1 << 62), Residence::Absent, "in swap");
        assert_eq!(Residence::of(PRESENT | EXCLUSIVE), Residence::Resident);
        assert_eq!(Residence::of(PRESENT | FILE_OR_SHARED), Residence::Resident);
        assert_eq!(Residence::of(PRESENT), Residence::ZeroOrForked);
    }
}
