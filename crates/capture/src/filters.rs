//! Whether a program starts under a seccomp filter that its recorder is not under.
//!
//! Such a filter can kill the program for the system calls that start a recording. To find out, this code only opens
//! and reads files. The loader has just done the same to load this library, so the filter allows it.
use crate::sys;

/// The seccomp mode of a process, and how many filters it has. A larger value is stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Seccomp {
    mode: u32,
    filters: u32,
}

/// Returns true if this process is under a filter that the collector is not under. `collector` is any path in the
/// collector's folder in /proc: `/proc/PID/...`.
pub fn is_behind_own_filter(collector: &[u8]) -> bool {
    let own = Seccomp::read(b"/proc/self/status\0");
    own.mode != 0 && own > status_of(collector, Seccomp::read)
}

/// Calls `read` with the path of the status file of the process that `path` belongs to. Returns the default value if
/// `path` does not begin with `/proc/PID`.
fn status_of<T: Default>(path: &[u8], read: impl FnOnce(&[u8]) -> T) -> T {
    const ROOT: &[u8] = b"/proc/";
    const NAME: &[u8] = b"/status\0";
    let mut bytes = [0u8; 32];
    let digits = path.get(ROOT.len()..).unwrap_or(&[]).iter().take_while(|byte| byte.is_ascii_digit()).count();
    let folder = path.get(..ROOT.len() + digits).filter(|folder| folder.starts_with(ROOT)).unwrap_or(&[]);
    for (place, byte) in bytes.iter_mut().zip(folder.iter().chain(NAME)) {
        *place = *byte;
    }
    match bytes.get(..folder.len() + NAME.len()) {
        Some(status) if digits > 0 => read(status),
        _ => T::default(),
    }
}

impl Seccomp {
    /// Reads a status file. Returns zeros if there is none.
    fn read(path: &[u8]) -> Seccomp {
        let Some(fd) = sys::open_read(path) else { return Seccomp::default() };
        let mut reader = Reader::default();
        let mut part = [0; 256];
        // A status file has about 1.5 KB. A read of no bytes is its end.
        for _ in 0..64 {
            let length = sys::read(fd, &mut part);
            if length == 0 {
                break;
            }
            part.get(..length).unwrap_or(&[]).iter().for_each(|byte| reader.take(*byte));
        }
        sys::close(fd);
        reader.seccomp
    }
}

/// Reads `Name:<tab>number` lines, byte by byte.
#[derive(Default)]
struct Reader {
    name: [u8; 16],
    length: usize,
    number: u32,
    is_value: bool,
    seccomp: Seccomp,
}

impl Reader {
    fn take(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                match self.name.get(..self.length) {
                    Some(b"Seccomp") => self.seccomp.mode = self.number,
                    Some(b"Seccomp_filters") => self.seccomp.filters = self.number,
                    _ => (),
                }
                (self.length, self.number, self.is_value) = (0, 0, false);
            }
            b':' => self.is_value = true,
            b'0'..=b'9' if self.is_value => {
                self.number = self.number.wrapping_mul(10).wrapping_add((byte - b'0') as u32);
            }
            _ if self.is_value => (),
            _ => {
                if let Some(place) = self.name.get_mut(self.length) {
                    *place = byte;
                }
                // For a name that is too long, `length` exceeds the array, so the name matches nothing.
                self.length = self.length.saturating_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Seccomp {
        let mut reader = Reader::default();
        text.bytes().for_each(|byte| reader.take(byte));
        reader.seccomp
    }

    #[test]
    fn filters_are_read() {
        let text =
            "Name:\tSeccomp: 7\nUid:\t0\t0\nSeccomp:\t2\nSeccomp_filters:\t13\nSpeculation_Store_Bypass:\tx 99\n";
        assert_eq!(parse(text), Seccomp { mode: 2, filters: 13 });
        assert_eq!(parse("Seccomp:\t0\nSeccomp_filters:\t0\n"), Seccomp::default());
        assert!(parse("Seccomp:\t2\nSeccomp_filters:\t2\n") > parse("Seccomp:\t2\nSeccomp_filters:\t1\n"));
    }

    #[test]
    fn the_collector_is_found_by_its_path() {
        let path = |of: &[u8]| status_of(of, |path| path.to_vec());
        assert_eq!(path(b"/proc/4194304/fd/12"), b"/proc/4194304/status\0");
        assert_eq!(path(b"/proc/self/fd/12"), b"");
        assert_eq!(path(b"/tmp/1"), b"");
        assert_eq!(path(b"/proc/99999999999999999999999999999999/fd/1"), b"");
    }

    #[test]
    fn we_are_behind_no_filter_of_our_own() {
        let path = format!("/proc/{}/fd/3", std::process::id());
        assert!(!is_behind_own_filter(path.as_bytes()));
    }
}
