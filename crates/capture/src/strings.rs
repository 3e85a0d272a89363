//! Whether the strings that a program passes to exec can be read.
//!
//! Receives: the pointer to a string or to a list of strings. Returns: whether all of it can be read up to its end.
//! Must hold: nothing is read before the kernel has shown that the page can be read. A program may pass any pointer.
//! The kernel refuses a bad one with EFAULT, and the program runs on.
use crate::sys;

const PAGE: usize = 4096;
/// The kernel refuses a longer string (MAX_ARG_STRLEN).
const LONGEST: usize = 128 << 10;
/// More pointers than this exceed the kernel's limit for all arguments together.
const MOST: usize = 1 << 20;

/// The last page that was shown to be readable.
struct Page(usize);

impl Page {
    const NONE: Page = Page(0);

    fn holds(&mut self, at: usize) -> bool {
        let page = at & !(PAGE - 1);
        if page != self.0 && sys::is_readable(page) {
            self.0 = page;
        }
        page == self.0 && page != 0
    }

    fn has_string(&mut self, text: *const u8) -> bool {
        for i in 0..LONGEST {
            let at = (text as usize).wrapping_add(i);
            if !self.holds(at) {
                return false;
            }
            // SAFETY: `holds` has just asked the kernel for this page, or had before in this call.
            if unsafe { *(at as *const u8) } == 0 {
                return true;
            }
        }
        false
    }
}

/// Returns true if a whole string can be read at `text`. Reads at most `LONGEST` bytes.
pub fn is_string(text: *const u8) -> bool {
    let mut strings = Page::NONE;
    strings.has_string(text)
}

/// Returns true if `list` is null, or a list of strings that ends with a null, and all of it can be read.
pub fn is_list(list: *const *const u8) -> bool {
    let (mut lists, mut strings) = (Page::NONE, Page::NONE);
    for i in 0..if list.is_null() { 0 } else { MOST } {
        let at = (list as usize).wrapping_add(8 * i);
        if !lists.holds(at) || !lists.holds(at.wrapping_add(7)) {
            return false;
        }
        // SAFETY: the kernel has shown the pages of all eight bytes to be readable.
        let entry = unsafe { (at as *const *const u8).read_unaligned() };
        if entry.is_null() {
            return true;
        }
        if !strings.has_string(entry) {
            return false;
        }
    }
    list.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_no_string() {
        assert!(is_string(c"text".as_ptr().cast()) && is_string(c"".as_ptr().cast()));
        for bad in [0, 1, 8, 1 << 46, usize::MAX, usize::MAX - 4096] {
            assert!(!is_string(bad as *const u8), "{bad:#x}");
            assert_eq!(is_list(bad as *const *const u8), bad == 0, "{bad:#x}");
            let list = [c"A=1".as_ptr().cast(), bad as *const u8, core::ptr::null()];
            assert_eq!(is_list(list.as_ptr()), bad == 0, "{bad:#x}");
        }
        assert!(!is_string(vec![b'x'; LONGEST + 1].as_ptr()), "too long for the kernel");
    }

    #[test]
    fn a_string_must_end_before_the_page_that_cannot_be_read() {
        let Some(pages) = sys::map_private(2 * PAGE) else { panic!("no memory") };
        // SAFETY: two pages of this test, of which the first stays.
        unsafe {
            core::slice::from_raw_parts_mut(pages, PAGE).fill(b'x');
            sys::unmap(pages.add(PAGE), PAGE);
        }
        let last = pages.wrapping_add(PAGE - 1);
        assert!(!is_string(last));
        // SAFETY: in the first page.
        unsafe { *last = 0 };
        assert!(is_string(last) && is_string(pages));
        // SAFETY: the first page is this test's, and nothing uses it any more.
        unsafe { sys::unmap(pages, PAGE) };
    }
}
