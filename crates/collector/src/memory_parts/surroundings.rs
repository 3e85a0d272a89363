//! What the kernel tells about a process besides its mappings: where its threads' stacks are, its page tables, its cgroup.
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The stack pointers of threads. A running thread has none, so the last one that was seen is kept.
#[derive(Debug, Default)]
pub struct StackPointers {
    by_thread: HashMap<u32, u64>,
}

impl StackPointers {
    /// Returns an address in the stack of each thread, as far as it is known, in ascending order.
    pub fn read(&mut self, process: &Path) -> Vec<u64> {
        let threads = fs::read_dir(process.join("task")).into_iter().flatten().filter_map(Result::ok);
        let mut seen = HashMap::new();
        for thread in threads {
            let Some(tid) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let now = fs::read_to_string(thread.path().join("syscall")).ok().and_then(|text| stack_pointer(&text));
            if let Some(pointer) = now.or_else(|| self.by_thread.get(&tid).copied()) {
                seen.insert(tid, pointer);
            }
        }
        self.by_thread = seen;
        let mut pointers: Vec<u64> = self.by_thread.values().copied().collect();
        pointers.sort_unstable();
        pointers
    }
}

/// The last but one word is the stack pointer. A running thread has only the word `running`.
fn stack_pointer(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace().rev();
    words.next()?;
    u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()
}

/// Returns the size of the page tables, in bytes.
pub fn page_table_bytes(process: &Path) -> u64 {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    kilobytes.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// A cgroup of version 2, if the process is in one that we can read.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    pub fn of(process: &Path) -> Option<Self> {
        let text = fs::read_to_string(process.join("cgroup")).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let folder = Path::new("/sys/fs/cgroup").join(path);
        folder.join("memory.stat").exists().then_some(Cgroup { folder })
    }

    /// Returns the size of the page cache, which counts towards the limit.
    pub fn cache_bytes(&self) -> Option<u64> {
        let stat = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        stat.lines().find_map(|line| line.strip_prefix("file "))?.parse().ok()
    }

    /// Returns the lowest limit of the cgroup and those that contain it.
    pub fn limit_bytes(&self) -> Option<u64> {
        let limit = |folder: &Path| fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse::<u64>().ok();
        self.folder.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup")).filter_map(limit).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_pointers_are_in_the_stacks() {
        assert_eq!(stack_pointer("running\n"), None);
        assert_eq!(stack_pointer("7 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd99 0x7f66\n"), Some(0x7f_fd99));
        assert_eq!(stack_pointer("-1 0x7ffd99 0x7f66\n"), Some(0x7f_fd99));
        assert_eq!(stack_pointer(""), None);
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let (tell, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let here = 0u8;
            tell.send(std::ptr::from_ref(&here) as u64).unwrap();
            let _ = wait.recv();
        });
        let address = address.recv().unwrap();
        let near = |pointer: &u64| pointer.abs_diff(address) < 64 << 10;
        let mut pointers = StackPointers::default();
        // The thread goes to sleep soon.
        while !pointers.read(Path::new("/proc/self")).iter().any(near) {
            std::thread::yield_now();
        }
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn page_tables_have_a_size() {
        assert!(page_table_bytes(Path::new("/proc/self")) > 0);
        assert_eq!(page_table_bytes(Path::new("/proc/no such process")), 0);
    }
}
