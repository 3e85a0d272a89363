//! How large the heap of a process already is.
use crate::process::Process;
use std::fs;

/// The size of `[heap]` and of the memory that malloc has mapped for its arenas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    pub size_bytes: u64,
    pub rss_bytes: u64,
}

/// glibc's arenas begin at multiples of this.
const ARENA: u64 = 64 << 20;

/// Reads the size from /proc/PID/smaps, without touching the process. Returns `None` if there is no such file.
pub fn heap_of(process: &Process) -> Option<Heap> {
    let text = fs::read(process.folder.join("smaps")).ok()?;
    Some(sum(&String::from_utf8_lossy(&text)))
}

fn sum(smaps: &str) -> Heap {
    let mut heap = Heap::default();
    let mut counts = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((start, _)) = first.split_once('-') {
            counts = is_heap(line, u64::from_str_radix(start, 16).unwrap_or(1));
        } else if counts {
            let kilobytes = |name| {
                line.strip_prefix(name).and_then(|rest: &str| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok())
            };
            heap.size_bytes += kilobytes("Size:").unwrap_or(0) * 1024;
            heap.rss_bytes += kilobytes("Rss:").unwrap_or(0) * 1024;
        }
    }
    heap
}

fn is_heap(line: &str, start: u64) -> bool {
    let is_private_data = line.split(' ').nth(1) == Some("rw-p");
    let is_anonymous = line.split_whitespace().count() == 5;
    line.ends_with("[heap]") || is_private_data && is_anonymous && start.is_multiple_of(ARENA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_and_arenas_count_and_nothing_else() {
        let smaps = "\
55d0c8a01000-55d0c8a22000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  12 kB
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
Size:                200 kB
Rss:                 100 kB
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
Size:              65404 kB
Rss:                   0 kB
7f35e2e01000-7f35e2e27000 rw-p 00001000 fe:01 918273                     /usr/lib/libx.so
Size:                  4 kB
Rss:                   4 kB
";
        assert_eq!(sum(smaps), Heap { size_bytes: 332 << 10, rss_bytes: 112 << 10 });
    }
}
