//! Writing to read-only pages: the loader's code, a module's table of addresses, our own symbols.
//!
//! The bytes are written through /proc/self/mem, which does not change the protection of the page. If that fails, for
//! example without /proc, the page is made writable for a moment.
use crate::sys;

const READ: usize = 1;
const WRITE: usize = 2;
const EXEC: usize = 4;

/// What the page is used for. This determines its protection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Code,
    ReadOnlyData,
}

/// Writes to several places with one open file.
pub struct Patcher {
    memory: Option<i32>,
}

impl Patcher {
    pub fn open() -> Patcher {
        Patcher { memory: sys::open(b"/proc/self/mem\0") }
    }

    /// Writes the bytes. Returns false, and writes nothing, if neither way is allowed.
    ///
    /// # Safety
    /// `[at, at + bytes.len())` is mapped as `page` says, and no other thread uses these bytes meanwhile: either there
    /// is no other thread yet, or the loader's lock is held and only the loader uses them.
    pub unsafe fn write(&self, at: u64, bytes: &[u8], page: Page) -> bool {
        if self.memory.is_some_and(|memory| sys::write_at(memory, bytes, at as usize)) {
            return true;
        }
        let before = if page == Page::Code { READ | EXEC } else { READ };
        let start = at & !0xfff;
        let len = (at + bytes.len() as u64 - start) as usize;
        // SAFETY: the caller promises that the bytes are mapped in pages of the kind `page`, and that no other thread
        // uses them meanwhile. So the pages only gain a right, the writes are in bounds and race with no other thread,
        // and the pages get back the rights of their kind.
        unsafe {
            if !sys::protect(start, len, before | WRITE) {
                return false;
            }
            for (i, byte) in bytes.iter().enumerate() {
                (at as *mut u8).add(i).write_volatile(*byte);
            }
            sys::protect(start, len, before);
        }
        true
    }

    pub fn close(self) {
        if let Some(memory) = self.memory {
            sys::close(memory);
        }
    }
}
