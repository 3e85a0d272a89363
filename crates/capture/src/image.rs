//! Finds out, before an exec, whether the new program can be recorded.
//!
//! If a program cannot open our library, its loader complains on stderr. A static program would see our variables in
//! its environment. So before an exec, this code does what the kernel and the loader will do: it finds the file,
//! follows scripts, reads the ELF header, and checks access to the library and the channel. A file that tells nothing
//! (because it is unreadable or of an unknown format) counts as recordable, as it does when a program is launched.
use crate::dynamic_section::DynamicSection;
use crate::environment::{Carried, bytes};
use crate::exec::Flavour;
use crate::sys;
use channel::UnrecordedExec;

/// The most files that are read: scripts whose interpreter is again a script, and at last the program. The kernel has a
/// similar limit.
const MOST_SCRIPTS: usize = 5;
const PAGE: usize = 4096;
const EM_X86_64: u16 = 62;
const CLASS_64: u8 = 2;
const PT_INTERP: u32 = 3;
const PROGRAM_HEADER: usize = 56;
const MOST_PROGRAM_HEADERS: usize = 512;
const SET_USER: u32 = 0o4000;
/// Setgid and the group's execute bit. Setgid without that bit means mandatory locking.
const SET_GROUP: u32 = 0o2010;

/// A page for a path and a page for the start of a file, which are too large for the program's stack. `new` has mapped
/// them at `at`, only `drop` unmaps them, and nothing else points to them.
struct Buffers {
    at: *mut u8,
}

impl Buffers {
    fn new() -> Option<Self> {
        sys::map_private(2 * PAGE).map(|at| Buffers { at })
    }
    fn path(&mut self) -> &mut [u8] {
        // SAFETY: the first of the two mapped pages (see `Buffers`). They read as zeros at first, and `&mut self`
        // excludes other references.
        unsafe { core::slice::from_raw_parts_mut(self.at, PAGE) }
    }
    fn both(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: the two mapped pages (see `Buffers`) do not overlap. They read as zeros at first, and `&mut self`
        // excludes other references.
        unsafe {
            (
                core::slice::from_raw_parts_mut(self.at, PAGE),
                core::slice::from_raw_parts_mut(self.at.wrapping_add(PAGE), PAGE),
            )
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these two pages with `map_private`. Every reference to them borrows from `self`, which
        // is dropped here.
        unsafe { sys::unmap(self.at, 2 * PAGE) };
    }
}

/// Copies `text` into `room` at `at`, with a terminating zero. Returns the index of the zero, or `None` if there is no
/// room.
fn put(room: &mut [u8], at: usize, text: &[u8]) -> Option<usize> {
    let end = at.checked_add(text.len())?;
    let place = room.get_mut(at..end)?;
    for (place, byte) in place.iter_mut().zip(text) {
        *place = *byte;
    }
    *room.get_mut(end)? = 0;
    Some(end)
}

/// Returns why the new program cannot be recorded, or `None` if it can.
///
/// # Safety
/// `first` is the first argument of the flavour's function: a NUL-terminated string, or a descriptor. `search` is null
/// or the NUL-terminated value of PATH.
pub unsafe fn obstacle(flavour: Flavour, first: usize, search: *const u8, carried: &Carried) -> Option<UnrecordedExec> {
    if !can_be_opened(carried) {
        return Some(UnrecordedExec::OutOfReach);
    }
    let mut buffers = Buffers::new()?;
    let file = match flavour {
        Flavour::Descriptor => sys::open_plain(crate::follow::Path::of_own_descriptor(first as u32).get()),
        // SAFETY: the caller promises that this flavour's first argument is a NUL-terminated string.
        Flavour::Path => open(buffers.path(), unsafe { bytes(first as *const u8) }),
        // SAFETY: the caller promises that this flavour's first argument and PATH, if not null, are NUL-terminated
        // strings.
        Flavour::Search => unsafe {
            let search = if search.is_null() { &b"/bin:/usr/bin"[..] } else { bytes(search) };
            look_up(buffers.path(), bytes(first as *const u8), search)
        },
    };
    let mut file = file?;
    for _ in 0..MOST_SCRIPTS {
        let (path, head) = buffers.both();
        let length = sys::read_at(file, head, 0);
        let head = head.get(..length).unwrap_or(&[]);
        let Some(line) = head.strip_prefix(b"#!") else {
            let found = obstacle_of(file, head, is_loader(path));
            sys::close(file);
            return found;
        };
        let next = open(path, interpreter(line));
        sys::close(file);
        file = next?;
    }
    sys::close(file);
    None
}

/// Returns true if the new program can open the library and the channel. It will have the user, the root folder and the
/// mounts that this process has now. To open the files here would prove nothing, because a process that has changed its
/// user may keep capabilities until the exec. access(2) ignores such capabilities.
fn can_be_opened(carried: &Carried) -> bool {
    let channel = carried.value.as_c_string();
    let channel = channel.strip_prefix(b"-,").unwrap_or(channel);
    sys::may(carried.library.as_c_string(), sys::READ) && sys::may(channel, sys::READ | sys::WRITE)
}

fn open(room: &mut [u8], path: &[u8]) -> Option<i32> {
    let end = put(room, 0, path)?;
    sys::open_plain(room.get(..=end)?)
}

/// Opens the first file in the folders of PATH that can be executed.
fn look_up(room: &mut [u8], name: &[u8], search: &[u8]) -> Option<i32> {
    if name.contains(&b'/') {
        return open(room, name);
    }
    for folder in search.split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let end = put(room, 0, folder).and_then(|at| put(room, at, b"/")).and_then(|at| put(room, at, name));
        let Some(path) = end.and_then(|end| room.get(..=end)) else { continue };
        if sys::may(path, sys::EXECUTE) {
            return sys::open_plain(path);
        }
    }
    None
}

/// Returns the path in a script's first line. `line` begins after `#!`.
fn interpreter(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    line.get(start..).and_then(|rest| rest.split(is_blank).next()).unwrap_or(&[])
}

/// Returns true for the loader itself. It has no interpreter, but applies LD_PRELOAD to the program that it is given.
/// `path` ends with a zero.
fn is_loader(path: &[u8]) -> bool {
    let path = path.split(|byte| *byte == 0).next().unwrap_or(&[]);
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"ld-"))
}

fn obstacle_of(file: i32, head: &[u8], is_loader: bool) -> Option<UnrecordedExec> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head.get(4) != Some(&CLASS_64) || number::<2>(head, 18) != EM_X86_64 as u64 {
        return Some(UnrecordedExec::Architecture);
    }
    if gains_rights(file) {
        return Some(UnrecordedExec::Privileged);
    }
    if is_loader {
        return None;
    }
    if !has_interpreter(file, head) {
        return Some(UnrecordedExec::Static);
    }
    let section = DynamicSection::find(file, head)?;
    if section.is_sanitized() {
        return Some(UnrecordedExec::Sanitizer);
    }
    section.defines(b"malloc").then_some(UnrecordedExec::OwnMalloc)
}

/// Returns true if the program gains privileges. Then the kernel tells the loader to ignore LD_PRELOAD.
fn gains_rights(file: i32) -> bool {
    let Some(status) = sys::status(file) else { return false };
    let [user, effective_user, group, effective_group] = sys::identity();
    let new_user = if status.mode & SET_USER != 0 { status.user } else { effective_user };
    let new_group = if status.mode & SET_GROUP == SET_GROUP { status.group } else { effective_group };
    new_user != user || new_group != group || user != 0 && sys::has_capabilities(file)
}

/// Returns true for a program that is started by a loader, and for a file with unusual headers.
fn has_interpreter(file: i32, head: &[u8]) -> bool {
    let (at, size, count) = (number::<8>(head, 32), number::<2>(head, 54), number::<2>(head, 56) as usize);
    if size != PROGRAM_HEADER as u64 || count > MOST_PROGRAM_HEADERS {
        return true;
    }
    for i in 0..count {
        let mut header = [0; PROGRAM_HEADER];
        if sys::read_at(file, &mut header, at as usize + i * PROGRAM_HEADER) != PROGRAM_HEADER {
            return true;
        }
        if number::<4>(&header, 0) == PT_INTERP as u64 {
            return true;
        }
    }
    false
}

/// Reads a little-endian number of `N` bytes. Bytes that are missing count as 0.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).unwrap_or(&[]);
    let byte = |i: usize| bytes.get(i).copied().unwrap_or(0) as u64;
    (0..N).fold(0, |sum, i| sum | byte(i) << (8 * i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_read_as_the_kernel_reads_them() {
        for line in [" /bin/sh -e\necho", "/bin/sh"] {
            assert_eq!(interpreter(line.as_bytes()), b"/bin/sh");
        }
        assert_eq!(interpreter(b"\t/usr/bin/env\tperl\n"), b"/usr/bin/env");
        assert_eq!(interpreter(b"\n/bin/sh"), b"");
    }

    #[test]
    fn files_are_found_in_path() {
        let mut room = [0; 256];
        for (name, search, found) in [
            (&b"sh"[..], &b"/nowhere:/bin"[..], true),
            (b"sh", b"/nowhere", false),
            (b"/bin/sh", b"", true),
            (b"no-such", b"/bin", false),
        ] {
            let file = look_up(&mut room, name, search);
            assert_eq!(file.is_some(), found);
            file.into_iter().for_each(sys::close);
        }
        assert_eq!(put(&mut [0; 4], 0, b"four"), None);
    }

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        let Some(file) = sys::open_read(b"/bin/sh\0") else { panic!("no shell") };
        let mut head = [0; 4096];
        let length = sys::read_at(file, &mut head, 0);
        assert_eq!(obstacle_of(file, &head[..length], false), None);
        head[4] = 1;
        assert_eq!(obstacle_of(file, &head[..length], false), Some(UnrecordedExec::Architecture));
        sys::close(file);
        assert!(is_loader(b"/lib64/ld-linux-x86-64.so.2\0/x") && !is_loader(b"/lib64/x/sh\0") && !is_loader(&[0; 9]));
        assert_eq!(number::<2>(&[1, 2, 3], 1), 0x302);
        assert_eq!(number::<8>(&[1], 9), 0);
    }
}
