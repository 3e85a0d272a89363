//! The target's memory as the kernel sees it: the allocator's part, and the whole.
//!
//! Receives: a pid. Returns: bytes. Must hold: if the target is gone, the last values stay; regular looks take at most
//! a hundredth of the time, because the target's page faults may have to wait for a look.
use crate::memory_parts::smaps::{self, MappedRange};
use format::HeapAtAttach;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(1);
const COST: u32 = 100;

/// Sizes in bytes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The mappings from which malloc takes small blocks: `[heap]` and the arenas of threads.
    pub allocator_virtual: u64,
    pub allocator_resident: u64,
    pub virtual_size: u64,
    pub resident: u64,
    pub shared: u64,
    /// The time of the look, since the session's start; 0 if there was none.
    pub time_ns: u64,
    /// True if the look was made when the target ended, or when heaptrack detached from it.
    pub is_last: bool,
}

/// Reads the sizes of the target's memory regularly, so that something is known of a target that ends without notice.
#[derive(Debug)]
pub struct Looks {
    pub last: Memory,
    pub name: String,
    next: Instant,
    pause: Duration,
}

impl Looks {
    pub fn new() -> Self {
        Looks { last: Memory::default(), name: String::new(), next: Instant::now(), pause: FIRST }
    }

    /// Looks again if enough time has passed.
    pub fn now_and_then(&mut self, pid: u32, time_ns: u64) {
        if Instant::now() >= self.next {
            self.look(pid, time_ns);
        }
    }

    /// Returns false if nothing could be read.
    pub fn look(&mut self, pid: u32, time_ns: u64) -> bool {
        let began = Instant::now();
        let seen = read(pid, time_ns);
        self.last = seen.unwrap_or(self.last);
        if let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) {
            self.name = name.trim_end().to_owned();
        }
        self.pause = (self.pause * 10).min(EVERY);
        self.next = Instant::now() + self.pause.max(began.elapsed() * COST);
        seen.is_some()
    }
}

fn read(pid: u32, time_ns: u64) -> Option<Memory> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let page = rustix::param::page_size() as u64;
    let mut pages = statm.split(' ').map(|word| word.parse::<u64>().unwrap_or(0) * page);
    let mut next = || pages.next().unwrap_or(0);
    let (virtual_size, resident, shared) = (next(), next(), next());
    // A process that is ending has no memory left.
    if virtual_size == 0 {
        return None;
    }
    // Unlike `statm`, `smaps` can be read only if we may inspect the target. After the target has changed its user, for
    // instance, we may not, and the allocator's sizes are 0.
    let heap = heap_of(Path::new(&format!("/proc/{pid}"))).unwrap_or_default();
    Some(Memory {
        allocator_virtual: heap.size_bytes,
        allocator_resident: heap.rss_bytes,
        virtual_size,
        resident,
        shared,
        time_ns,
        is_last: false,
    })
}

/// Reads the size of `[heap]` and of malloc's arenas from `smaps` in the process's folder in /proc. Returns `None` if
/// that file cannot be read.
pub fn heap_of(process: &Path) -> Option<HeapAtAttach> {
    let mappings = smaps::read(process).ok()?;
    let heap = || mappings.iter().filter(|range| range.is_heap_or_arena());
    Some(HeapAtAttach {
        size_bytes: heap().map(MappedRange::size).sum(),
        rss_bytes: heap().map(|range| range.rss_bytes).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_have_memory_ourselves() {
        let mut looks = Looks::new();
        looks.look(std::process::id(), 5);
        let memory = looks.last;
        assert!(memory.allocator_virtual > 0 && memory.allocator_virtual < memory.virtual_size);
        assert!(memory.resident > 0 && memory.time_ns == 5 && !looks.name.is_empty());
        looks.look(u32::MAX >> 2, 6);
        assert_eq!(looks.last, memory);
    }
}
