//! The mappings of a process with their resident memory, as `/proc/PID/smaps` lists them.
//!
//! Receives: a process's folder in /proc. Returns: its mappings in the order of their addresses. Must hold: a list that the kernel cut
//! is an error; a line that is not understood is skipped. While the kernel writes a few mappings of the list, the process cannot change its
//! mappings, so each read is small.
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// glibc's arenas begin at multiples of this (HEAP_MAX_SIZE).
pub const ARENA: u64 = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappedRange {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub is_writable: bool,
    pub is_executable: bool,
    pub is_shared: bool,
    /// The path, or the kernel's name in brackets. Empty if there is none.
    pub name: String,
    pub rss_bytes: u64,
    pub pss_bytes: u64,
    pub swap_bytes: u64,
    /// In transparent huge pages.
    pub huge_bytes: u64,
}

impl MappedRange {
    pub const fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Returns true if the memory is private, writable, and of no file.
    pub fn is_anonymous_data(&self) -> bool {
        self.is_writable && !self.is_shared && (self.name.is_empty() || self.name.starts_with("[anon:"))
    }

    /// Returns true if the range can be neither read, written nor executed, so that it only keeps addresses free.
    pub const fn is_reserve(&self) -> bool {
        !self.is_readable && !self.is_writable && !self.is_executable
    }

    /// Returns true if glibc's malloc takes small blocks from this mapping: it is `[heap]`, glibc has named it as an arena, or it has
    /// no name, is private and writable, and begins where an arena can begin.
    pub fn is_heap_or_arena(&self) -> bool {
        match self.name.as_str() {
            "" => self.is_anonymous_data() && !self.is_executable && self.start.is_multiple_of(ARENA),
            "[heap]" => true,
            name => is_malloc_name(name),
        }
    }
}

/// Returns true for the name that glibc gives to the mappings of its malloc.
pub fn is_malloc_name(name: &str) -> bool {
    name.starts_with("[anon:") && name.contains("glibc: malloc")
}

/// The list of one address space. If the process ends or executes a program, the list stays that of the address space that it had when the
/// list was opened.
#[derive(Debug)]
pub struct Smaps {
    file: File,
}

impl Smaps {
    pub fn open(process: &Path) -> io::Result<Self> {
        Ok(Smaps { file: File::open(process.join("smaps"))? })
    }

    /// Reads all mappings. If the process ends or executes a program meanwhile, the kernel ends the list early and reports no error. That is
    /// an error here.
    pub fn read(&self) -> io::Result<Vec<MappedRange>> {
        let ranges = parse(BufReader::with_capacity(64 << 10, &self.file))?;
        self.is_alive().then_some(ranges).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns true if a process still uses the address space. Once that is no longer so, the kernel lists no mapping. An address space does not come
    /// back, so if this is true after a read, nothing was missing in it.
    pub fn is_alive(&self) -> bool {
        matches!(self.file.read_at(&mut [0], 0), Ok(1))
    }
}

/// Reads all mappings of the process.
pub fn read(process: &Path) -> io::Result<Vec<MappedRange>> {
    Smaps::open(process)?.read()
}

fn parse(mut text: impl BufRead) -> io::Result<Vec<MappedRange>> {
    let mut ranges: Vec<MappedRange> = Vec::new();
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line)? > 0 {
        let words = line.strip_suffix(b"\n").unwrap_or(&line);
        // Names of fields begin with a capital, the first line of a mapping with a hexadecimal digit in lower case.
        if words.first().is_some_and(u8::is_ascii_uppercase) {
            if let Some(range) = ranges.last_mut() {
                add_field(range, words);
            }
        } else if let Some(range) = first_line(words) {
            ranges.push(range);
        }
        line.clear();
    }
    Ok(ranges)
}

fn add_field(range: &mut MappedRange, line: &[u8]) {
    let bytes = |name: &[u8]| {
        let kilobytes = std::str::from_utf8(line.strip_prefix(name)?).ok()?.trim().strip_suffix(" kB")?;
        kilobytes.parse::<u64>().ok()?.checked_mul(1024)
    };
    if let Some(rss) = bytes(b"Rss:") {
        range.rss_bytes = rss;
    } else if let Some(pss) = bytes(b"Pss:") {
        range.pss_bytes = pss;
    } else if let Some(swap) = bytes(b"Swap:") {
        range.swap_bytes = swap;
    } else if let Some(huge) = bytes(b"AnonHugePages:") {
        range.huge_bytes = huge;
    }
}

/// `START-END PERMISSIONS OFFSET DEVICE INODE NAME`. The name may contain spaces.
fn first_line(line: &[u8]) -> Option<MappedRange> {
    let mut rest = line;
    let mut word = || {
        let length = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        rest = after.trim_ascii_start();
        std::str::from_utf8(word).ok()
    };
    let (start, end) = word()?.split_once('-')?;
    let permissions = word()?.as_bytes();
    for _ in 0..3 {
        word()?;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    (start < end).then(|| MappedRange {
        start,
        end,
        is_readable: permissions.first() == Some(&b'r'),
        is_writable: permissions.get(1) == Some(&b'w'),
        is_executable: permissions.get(2) == Some(&b'x'),
        is_shared: permissions.get(3) == Some(&b's'),
        name: String::from_utf8_lossy(rest).into_owned(),
        ..MappedRange::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
5581c0000000-5581c0021000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  12 kB
Pss:                   6 kB
Pss_Dirty:             1 kB
Shared_Clean:          7 kB
Swap:                  8 kB
SwapPss:               3 kB
ProtectionKey:         0
VmFlags: rd wr mr mw me ac
7f0a14000000-7f0a14021000 rw-p 00000000 00:00 0
Rss:                   8 kB
7f0a14021000-7f0a18000000 ---p 00000000 00:00 0
7f0a20000000-7f0a20021000 r-xs 00001000 fe:01 918273                     /tmp/a b (deleted)
Rss:                   x kB
nonsense
";

    #[test]
    fn the_lines_of_a_mapping_are_understood() {
        let ranges = parse(SMAPS.as_bytes()).unwrap();
        let [heap, arena, reserve, file] = ranges.as_slice() else { panic!("{ranges:?}") };
        assert_eq!((heap.start, heap.end, heap.name.as_str()), (0x5581_c000_0000, 0x5581_c002_1000, "[heap]"));
        assert_eq!((heap.rss_bytes, heap.pss_bytes, heap.swap_bytes), (12 << 10, 6 << 10, 8 << 10));
        assert!(heap.is_readable && heap.is_writable && !heap.is_executable && !heap.is_shared);
        assert!(heap.is_heap_or_arena() && arena.is_heap_or_arena() && arena.is_anonymous_data());
        assert!(reserve.is_reserve() && !reserve.is_heap_or_arena());
        assert_eq!((file.name.as_str(), file.rss_bytes), ("/tmp/a b (deleted)", 0));
        assert!(file.is_shared && file.is_executable && !file.is_anonymous_data() && !file.is_heap_or_arena());
    }

    #[test]
    fn our_own_mappings_hold_our_own_memory() {
        let ranges = read(Path::new("/proc/self")).unwrap();
        let on_heap = Box::new(1u8);
        let address = std::ptr::from_ref(&*on_heap) as u64;
        assert!(ranges.iter().any(|range| (range.start..range.end).contains(&address) && range.rss_bytes > 0));
        assert!(ranges.is_sorted_by_key(|range| range.start));
        assert!(read(Path::new("/proc/no such process")).is_err());
    }

    /// The process is killed after some of its mappings were read. The reads go on until the kernel says that there are no more.
    #[test]
    fn a_list_that_ends_with_its_process_is_an_error() {
        let mut cut = 0;
        for pieces in 0..6 {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
            let process = std::path::PathBuf::from(format!("/proc/{}", child.id()));
            let is_asleep =
                || std::fs::read_to_string(process.join("wchan")).is_ok_and(|text| text.contains("nanosleep"));
            while !is_asleep() {
                std::thread::yield_now();
            }
            let all = read(&process).unwrap();
            assert!(all.iter().any(|range| range.name == "[stack]"));
            let smaps = Smaps::open(&process).unwrap();
            assert!(smaps.is_alive());
            let mut text = Vec::new();
            for _ in 0..pieces {
                let mut piece = [0; 1000];
                let length = std::io::Read::read(&mut &smaps.file, &mut piece).unwrap();
                text.extend_from_slice(&piece[..length]);
            }
            child.kill().unwrap();
            // The process is not reaped yet, so the kernel reports no error.
            while std::fs::read_to_string(process.join("stat")).unwrap().rsplit(')').next().unwrap().get(1..2)
                != Some("Z")
            {
                std::thread::yield_now();
            }
            assert_eq!(smaps.read().unwrap_err().kind(), io::ErrorKind::NotFound);
            std::io::Read::read_to_end(&mut &smaps.file, &mut text).unwrap();
            cut += usize::from(parse(text.as_slice()).unwrap().len() < all.len());
            assert!(!smaps.is_alive());
            child.wait().unwrap();
            assert!(!smaps.is_alive() && read(&process).is_err());
        }
        assert_eq!(cut, 6, "without the check the lists were too short");
    }
}
