//! The two environment variables through which the capture library is loaded and finds its channel, and their removal.
//!
//! The program and its children must not see them. So they are removed from the environment before `main`. If the target
//! itself calls exec, or if a tree of processes is followed and any of them does, they are added for the new program (see
//! [`Carried`]).

pub const CHANNEL: &[u8] = b"HEAPTRACK_CHANNEL=";
pub const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The path of the hub, if a whole tree of processes is followed. If the `execve` inside libc could not be patched
/// (`exec_site.rs`), this variable and LD_PRELOAD stay in the environment, because `system` and `popen` pass the
/// environment on without another call that is hooked.
pub const FOLLOW: &[u8] = b"HEAPTRACK_FOLLOW=";
/// Tests only: numbers of allocations after which the target stops itself.
pub const STOP_AT: &[u8] = b"HEAPTRACK_TEST_STOP_AT=";

const VALUE_MAX: usize = 1024;

/// A copy of a variable's value. The memory of the original belongs to the program.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    bytes: [u8; VALUE_MAX],
    len: usize,
}

impl Value {
    /// For a profiler that writes a value from outside: how long it may be, with its terminating zero, and where its
    /// fields are.
    pub const LENGTH: usize = VALUE_MAX;
    pub const BYTES_AT: usize = core::mem::offset_of!(Value, bytes);
    pub const LEN_AT: usize = core::mem::offset_of!(Value, len);

    pub const EMPTY: Value = Value { bytes: [0; VALUE_MAX], len: 0 };

    /// Without the terminating zero.
    pub fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // One byte is kept for the terminating zero.
            if self.len + 1 < VALUE_MAX
                && let Some(place) = self.bytes.get_mut(self.len)
            {
                *place = byte;
                self.len += 1;
            }
        }
    }

    /// Stores the target of a symbolic link. `path` is NUL-terminated. Returns false if it is no symbolic link.
    pub fn read_link(&mut self, path: &[u8]) -> bool {
        let room = self.bytes.get_mut(..VALUE_MAX - 1).unwrap_or(&mut []);
        self.len = crate::sys::read_link(path, room).min(VALUE_MAX - 1);
        if let Some(end) = self.bytes.get_mut(self.len) {
            *end = 0;
        }
        self.len != 0
    }

    /// Stores the absolute path of a relative one. Returns false if it is too long, or the current folder has no path.
    pub fn join_folder(&mut self, relative: &[u8]) -> bool {
        self.len = crate::sys::folder(&mut self.bytes);
        let is_whole = self.get().first() == Some(&b'/') && self.len + 1 + relative.len() < VALUE_MAX;
        if self.len > 1 {
            self.push(b"/");
        }
        self.push(relative);
        is_whole
    }

    /// With the terminating zero.
    pub fn as_c_string(&self) -> &[u8] {
        self.bytes.get(..self.len + 1).unwrap_or(&[0])
    }
}

/// Which of our variables names the recorder. A number and no string, so that a `Core` holds no pointer to a string.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// `CHANNEL`.
    Channel = 0,
    /// `FOLLOW`.
    Follow = 1,
}

impl Variable {
    /// With the equals sign.
    #[inline(never)]
    pub const fn name(self) -> &'static [u8] {
        match self {
            Variable::Channel => CHANNEL,
            Variable::Follow => FOLLOW,
        }
    }
}

/// What an exec of the target must pass on to the new program.
#[repr(C)]
pub struct Carried {
    /// The path of our library, as in LD_PRELOAD.
    pub library: Value,
    pub variable: Variable,
    /// The value of `variable`. For `Channel` it is `-,PATH`: the path of the shared memory, and `-` in place of the
    /// number of a descriptor, because the new program inherits none. For `Follow` it is the path of the hub.
    pub value: Value,
}

impl Carried {
    pub const EMPTY: Carried = Carried { library: Value::EMPTY, variable: Variable::Channel, value: Value::EMPTY };
}

/// Splits a list as in LD_PRELOAD into its first entry and the rest.
pub fn split_preload(list: &[u8]) -> (&[u8], &[u8]) {
    let end = list.iter().position(|&b| b == b':' || b == b' ').unwrap_or(list.len());
    (list.get(..end).unwrap_or(&[]), list.get(end + 1..).unwrap_or(&[]))
}

/// Returns the length of a NUL-terminated string.
///
/// # Safety
/// `text` points to a NUL-terminated string.
pub unsafe fn length(text: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: every byte before was not the NUL that the caller promises, so this one is still in the string.
    while unsafe { *text.add(n) } != 0 {
        n += 1;
    }
    n
}

/// Returns the bytes of a NUL-terminated string.
///
/// # Safety
/// `text` points to a NUL-terminated string, which stays and is not changed for `'a`.
pub unsafe fn bytes<'a>(text: *const u8) -> &'a [u8] {
    // SAFETY: `length` bytes lie before the NUL, and the caller promises that they stay unchanged for `'a`.
    unsafe { core::slice::from_raw_parts(text, length(text)) }
}

/// The program's list of `NAME=value` strings: pointers to NUL-terminated strings, then a null.
#[derive(Clone, Copy)]
pub struct Environment(pub *mut *mut u8);

impl Environment {
    /// Returns the index of the last entry before `end` that starts with `prefix`. Our variables come after those of
    /// the program.
    ///
    /// # Safety
    /// The list is the process's initial one, and no other thread uses it. It has at least `end` entries, or ends
    /// before.
    unsafe fn find(self, prefix: &[u8], end: usize) -> Option<usize> {
        let mut found = None;
        for i in 0..end {
            // SAFETY: the caller promises the initial list (see `Environment`), and the loop stops at the null that
            // ends it.
            let entry = unsafe { *self.0.add(i) };
            if entry.is_null() {
                break;
            }
            // SAFETY: an entry of the list is NUL-terminated (see `Environment`), and no other thread uses it, which
            // the caller promises.
            if unsafe { bytes(entry) }.starts_with(prefix) {
                found = Some(i);
            }
        }
        found
    }

    /// Copies a variable's value and removes the variable.
    ///
    /// # Safety
    /// As `find`: the initial list, which no other thread uses. Its strings are writable, as they are on the stack.
    pub unsafe fn take(self, prefix: &[u8]) -> Value {
        let mut value = Value::EMPTY;
        // SAFETY: the caller promises the initial list with writable strings. `at` is the index of an entry, because
        // `find` returned it.
        unsafe {
            let Some(at) = self.find(prefix, usize::MAX) else { return value };
            let text = bytes(*self.0.add(at));
            value.push(text.get(prefix.len()..).unwrap_or(&[]));
            self.remove(at);
        }
        value
    }

    /// Copies a variable's value. The variable stays.
    ///
    /// # Safety
    /// As `find`: the initial list, which no other thread uses.
    pub unsafe fn copy(self, prefix: &[u8]) -> Value {
        let mut value = Value::EMPTY;
        // SAFETY: the caller promises the initial list. `at` is the index of an entry, because `find` returned it.
        unsafe {
            if let Some(at) = self.find(prefix, usize::MAX) {
                value.push(bytes(*self.0.add(at)).get(prefix.len()..).unwrap_or(&[]));
            }
        }
        value
    }

    /// Copies the path of our library, the first one in LD_PRELOAD. The variable stays.
    ///
    /// # Safety
    /// As `find`: the initial list, which no other thread uses.
    pub unsafe fn library(self) -> Value {
        let mut value = Value::EMPTY;
        // SAFETY: the caller promises the initial list. `at` is the index of an entry, because `find` returned it.
        unsafe {
            if let Some(at) = self.find(PRELOAD, usize::MAX) {
                value.push(split_preload(bytes(*self.0.add(at)).get(PRELOAD.len()..).unwrap_or(&[])).0);
            }
        }
        value
    }

    /// Removes an entry. Its text is overwritten by zeros, so that /proc/PID/environ does not show it either.
    ///
    /// # Safety
    /// As `find`: the initial list, which no other thread uses. `at` is the index of an entry, whose text is writable.
    unsafe fn remove(self, mut at: usize) {
        // SAFETY: the caller promises that `at` is the index of an entry and that its text is writable. `length` stops
        // before its NUL.
        unsafe {
            let text = *self.0.add(at);
            for i in 0..length(text) {
                *text.add(i) = 0;
            }
        }
        loop {
            // SAFETY: `at` is the index of an entry, first by the caller's promise, then because `next` was not null.
            // So `at + 1` is at most the null that ends the list, and no other thread uses it.
            unsafe {
                let next = *self.0.add(at + 1);
                *self.0.add(at) = next;
                if next.is_null() {
                    return;
                }
            }
            at += 1;
        }
    }

    /// Removes our library, the first one of the last LD_PRELOAD, from the environment and returns its path. What the
    /// user preloads stays: either it has an entry of its own before ours, or our entry is changed into the user's.
    ///
    /// # Safety
    /// As `find`: the initial list, which no other thread uses. Its strings are writable, as they are on the stack.
    pub unsafe fn take_library(self) -> Value {
        let mut value = Value::EMPTY;
        // SAFETY: the caller promises the initial list with writable strings. `at` and `before` are indices of entries,
        // because `find` returned them. `PRELOAD` is written right before `theirs`, over the end of what stood there.
        // That is inside the same string, because the string begins with `PRELOAD`, too.
        unsafe {
            let Some(at) = self.find(PRELOAD, usize::MAX) else { return value };
            let entry = *self.0.add(at);
            let list = bytes(entry).get(PRELOAD.len()..).unwrap_or(&[]);
            let (ours, theirs) = split_preload(list);
            value.push(ours);
            let before = self.find(PRELOAD, at).map(|before| bytes(*self.0.add(before)));
            let is_there = before.and_then(|before| before.get(PRELOAD.len()..)) == Some(theirs);
            if theirs.is_empty() || is_there {
                self.remove(at);
            } else {
                // "LD_PRELOAD=ours:theirs" becomes "LD_PRELOAD=theirs", written over its own middle.
                let start = entry.add(ours.len() + 1);
                for (i, &byte) in PRELOAD.iter().enumerate() {
                    *start.add(i) = byte;
                }
                *self.0.add(at) = start;
            }
        }
        value
    }
}

/// Parses a decimal number at the start of `text`. Returns it, and how many digits it had.
pub fn number(text: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut digits = 0;
    for &byte in text {
        if !byte.is_ascii_digit() {
            break;
        }
        value = value.checked_mul(10)?.checked_add((byte - b'0') as u64)?;
        digits += 1;
    }
    (digits != 0).then_some((value, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(entries: &[&str], test: impl FnOnce(Environment, &dyn Fn() -> Vec<String>)) {
        let mut strings: Vec<Vec<u8>> = entries.iter().map(|e| [e.as_bytes(), b"\0"].concat()).collect();
        // Without room to spare, so that AddressSanitizer (`make soak-address`) sees any access past the null.
        let entries = strings.iter_mut().map(|s| s.as_mut_ptr()).chain([core::ptr::null_mut()]);
        let mut list: Box<[*mut u8]> = entries.collect();
        let environment = Environment(list.as_mut_ptr());
        let show = || {
            let mut all = Vec::new();
            for i in 0.. {
                // SAFETY: `list` above has a null at its end, at which the loop stops.
                let entry = unsafe { *environment.0.add(i) };
                if entry.is_null() {
                    break;
                }
                // SAFETY: an entry of `strings` above, each of which ends with a NUL.
                all.push(String::from_utf8_lossy(unsafe { bytes(entry) }).into_owned());
            }
            all
        };
        test(environment, &show);
    }

    #[test]
    fn our_library_leaves_and_theirs_stays() {
        with(&["A=1", "LD_PRELOAD=/tmp/ours.so:/lib/theirs.so", "B=2"], |environment, show| {
            // SAFETY: `with` has made the list and its strings, and no other thread knows them.
            let library = unsafe { environment.take_library() };
            assert_eq!(library.get(), b"/tmp/ours.so");
            assert_eq!(show(), ["A=1", "LD_PRELOAD=/lib/theirs.so", "B=2"]);
        });
        with(&["LD_PRELOAD=/tmp/ours.so", "B=2"], |environment, show| {
            // SAFETY: `with` has made the list and its strings, and no other thread knows them.
            let library = unsafe { environment.take_library() };
            assert_eq!(library.get(), b"/tmp/ours.so");
            assert_eq!(show(), ["B=2"]);
        });
    }

    #[test]
    fn what_was_there_before_ours_stays_untouched() {
        for theirs in [
            &["LD_PRELOAD=/lib/a.so"][..],
            &["LD_PRELOAD=/lib/b.so", "", "LD_PRELOAD=/lib/a.so", "X"],
            &["LD_PRELOAD=/lib/a.so", "LD_PRELOAD="],
            &["B=1", "B=2", "=", "bare"],
            &[],
        ] {
            let last = theirs.iter().rev().find_map(|entry| entry.strip_prefix("LD_PRELOAD="));
            let ours = match last {
                Some(last) if !last.is_empty() => format!("LD_PRELOAD=/tmp/ours.so:{last}"),
                _ => "LD_PRELOAD=/tmp/ours.so".to_owned(),
            };
            let all: Vec<&str> = theirs.iter().copied().chain([&*ours, "HEAPTRACK_CHANNEL=3,x"]).collect();
            with(&all, |environment, show| {
                // SAFETY: `with` has made the list and its strings, and no other thread knows them.
                let (channel, library) = unsafe { (environment.take(CHANNEL), environment.take_library()) };
                assert_eq!((channel.get(), library.get()), (&b"3,x"[..], &b"/tmp/ours.so"[..]));
                assert_eq!(show(), theirs);
            });
        }
    }

    #[test]
    fn what_is_only_copied_stays() {
        with(&["LD_PRELOAD=/tmp/ours.so /lib/theirs.so", "HEAPTRACK_FOLLOW=/proc/7/fd/3"], |environment, show| {
            // SAFETY: `with` has made the list and its strings, and no other thread knows them.
            let (library, hub) = unsafe { (environment.library(), environment.copy(FOLLOW)) };
            assert_eq!((library.get(), hub.get()), (&b"/tmp/ours.so"[..], &b"/proc/7/fd/3"[..]));
            assert_eq!(show(), ["LD_PRELOAD=/tmp/ours.so /lib/theirs.so", "HEAPTRACK_FOLLOW=/proc/7/fd/3"]);
        });
        assert_eq!(split_preload(b"a:b c"), (&b"a"[..], &b"b c"[..]));
        assert_eq!(split_preload(b"a"), (&b"a"[..], &b""[..]));
    }

    #[test]
    fn a_relative_path_is_made_whole() {
        use std::os::unix::ffi::OsStrExt;
        let Ok(here) = std::env::current_dir() else { panic!("there is no folder to stand in") };
        let mut value = Value::EMPTY;
        value.push(b"what was there before");
        assert!(value.join_folder(b"./libx.so"));
        assert_eq!(value.get(), [here.as_os_str().as_bytes(), b"/./libx.so"].concat());
        let longest = VALUE_MAX - 1 - 1 - here.as_os_str().len();
        assert!(value.join_folder(&vec![b'x'; longest]));
        assert_eq!(value.get().len(), VALUE_MAX - 1);
        assert!(!value.join_folder(&vec![b'x'; longest + 1]));
    }

    #[test]
    fn a_variable_is_taken_once() {
        with(&["HEAPTRACK_CHANNEL=7,/proc/1/fd/3", "X=y"], |environment, show| {
            // SAFETY: `with` has made the list and its strings, and no other thread knows them.
            let (first, second) = unsafe { (environment.take(CHANNEL), environment.take(CHANNEL)) };
            assert_eq!(first.get(), b"7,/proc/1/fd/3");
            assert!(second.is_empty());
            assert_eq!(show(), ["X=y"]);
        });
        assert_eq!(number(b"17,"), Some((17, 2)));
        assert_eq!(number(b",17"), None);
    }
}
