//! Starts the target with the settings that we were started with.
//!
//! Receives: a file, its arguments and its environment. Returns: the pid of the new process. Must hold: the program
//! gets the descriptors, signal mask, ignored signals and limits that we were started with; every signal
//! that is sent while the program is being started reaches it; the child makes only async-signal-safe calls between
//! fork and exec.
//!
//! ```text
//! parent                                             child (all signals blocked)
//! fork ------------------------------------------->  waits for the word to go
//! passes on the signals that came so far
//! says "go" -------------------------------------->  restores signals, limits, descriptors; execve
//! reads until the end: nothing, or an error number
//! ```
//! `spawn.rs`, `spawn/` and `mapping.rs` are the only files of this crate with unsafe code.
mod inbox;
mod inherited;

pub use inbox::{Inbox, Received};
pub use inherited::Inherited;

use crate::mapping::Mapping;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A program to execute: its file, its arguments (the first is its name) and its environment, as `execve` takes them.
#[derive(Clone, Debug)]
pub struct Launch {
    file: CString,
    words: Vec<CString>,
    environment: Vec<CString>,
}

fn c_string(text: OsString) -> io::Result<CString> {
    CString::new(text.into_vec())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a word contains a zero byte"))
}

impl Launch {
    pub fn new(file: &Path, words: Vec<OsString>, environment: Vec<OsString>) -> io::Result<Self> {
        let all = |texts: Vec<OsString>| texts.into_iter().map(c_string).collect::<io::Result<Vec<_>>>();
        Ok(Launch { file: c_string(file.into())?, words: all(words)?, environment: all(environment)? })
    }
}

/// Returns our own environment, entry by entry as the kernel passed it. `std::env` drops entries without `=`.
pub fn environment() -> Vec<OsString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: `environ` is libc's list of NUL-terminated strings, ended by a null pointer. It stays as it is during the
    // loop, because nothing in this program calls `setenv`, `putenv` or `std::env::set_var`.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(OsString::from_vec(std::ffi::CStr::from_ptr(*entry).to_bytes().to_vec()));
            entry = entry.add(1);
        }
    }
    entries
}

/// What the child needs. It is made before the fork, because the child must not allocate.
struct Child<'a> {
    file: *const libc::c_char,
    words: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    /// The memfd, which the child inherits under the same number, and where to store the child's pid.
    channel: Option<(RawFd, &'a AtomicU32)>,
    inherited: &'a Inherited,
    go: RawFd,
    failed: RawFd,
    /// The parent's ends of the pipes. If the child kept them open, it would not notice the parent's death.
    of_parent: [RawFd; 2],
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

impl Child<'_> {
    /// Runs in the forked child, with all signals blocked. Makes system calls and atomic stores only.
    fn execute(&self) -> ! {
        let error = self.try_execute();
        // SAFETY: `write` reads the four bytes of `error`, a local. `_exit` takes a number, and ends this forked child
        // without running handlers or destructors, which might need locks that other threads held at the fork.
        unsafe {
            libc::write(self.failed, ptr::from_ref(&error).cast(), size_of::<i32>());
            libc::_exit(127)
        }
    }

    /// Returns the error number of the first call that failed.
    fn try_execute(&self) -> i32 {
        // SAFETY: `read` stores at most one byte, into the local `word`. `of_parent` are this child's copies of
        // descriptors, which nothing else in it uses: `spawn`'s owners of them run in the parent only.
        let is_told = unsafe {
            self.of_parent.iter().for_each(|fd| {
                libc::close(*fd);
            });
            let mut word = 0u8;
            libc::read(self.go, ptr::from_mut(&mut word).cast(), 1) == 1
        };
        if !is_told {
            return libc::ECANCELED;
        }
        if let Some((fd, target_pid)) = self.channel {
            // SAFETY: `F_SETFD` takes numbers only, and changes a flag of this child's copy of the descriptor.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } != 0 {
                return errno();
            }
            // SAFETY: `getpid` has no preconditions.
            target_pid.store(unsafe { libc::getpid() } as u32, Ordering::Release);
        }
        self.inherited.restore();
        // SAFETY: `file` and the entries of both lists point to `CString`s of the `Launch` that `spawn` borrows;
        // `pointers` ended the lists with null. This process is a copy of `spawn`'s, so all of them are still there.
        unsafe { libc::execve(self.file, self.words.as_ptr(), self.environment.as_ptr()) };
        errno()
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
}

/// Executes a program in a new process. With a mapping the child may record: it inherits the memfd under the same
/// number, and its pid is in the header before the program starts. `before_start` runs while the child exists and
/// has all signals blocked: a signal that is sent to it then is delivered exactly once, right before the program
/// starts.
pub fn spawn(
    launch: &Launch,
    mapping: Option<&Mapping>,
    inherited: &Inherited,
    before_start: impl FnOnce(u32),
) -> io::Result<u32> {
    let waiting = spawn_waiting(launch, mapping, inherited)?;
    before_start(waiting.pid);
    let going = waiting.go();
    going.failure().map_or(Ok(going.pid), Err)
}

/// A child that waits for the word to go, with all signals blocked. If this is dropped, the child ends.
#[derive(Debug)]
pub struct Waiting {
    pub pid: u32,
    say_go: OwnedFd,
    failure: OwnedFd,
}

/// A child that was told to execute its program.
#[derive(Debug)]
pub struct Going {
    pub pid: u32,
    failure: OwnedFd,
}

impl Waiting {
    /// Lets the child execute its program.
    pub fn go(self) -> Going {
        // The write fails only if the child was killed. The caller finds that out when it waits for the child.
        let _ = std::fs::File::from(self.say_go).write_all(b"g");
        Going { pid: self.pid, failure: self.failure }
    }
}

impl Going {
    /// Waits until the child has executed the program or has ended. Returns why it could not execute the program. Then
    /// the child was waited for.
    pub fn failure(&self) -> Option<io::Error> {
        let error = read_failure(&self.failure)?;
        // SAFETY: with a null status `waitpid` takes numbers only. `pid` is our child, which has ended or is about to:
        // it has reported its error.
        unsafe { libc::waitpid(self.pid as i32, ptr::null_mut(), 0) };
        Some(error)
    }
}

/// Makes a child that will execute a program when it is told to. `mapping` is as for `spawn`.
pub fn spawn_waiting(launch: &Launch, mapping: Option<&Mapping>, inherited: &Inherited) -> io::Result<Waiting> {
    let (go, say_go) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failure, failed) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = Child {
        file: launch.file.as_ptr(),
        words: pointers(&launch.words),
        environment: pointers(&launch.environment),
        channel: mapping.map(|mapping| (mapping.fd().as_raw_fd(), &mapping.region().header().target_pid)),
        inherited,
        go: go.as_raw_fd(),
        failed: failed.as_raw_fd(),
        of_parent: [say_go.as_raw_fd(), failure.as_raw_fd()],
    };
    let before = inherited::block_all();
    // SAFETY: the child runs `Child::execute` only, which never returns, takes no lock and allocates nothing: all its
    // memory was made before the fork, for `Child`. All signals are blocked (`block_all`), so no handler runs in it
    // either.
    let pid = match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => child.execute(),
        pid => Ok(pid as u32),
    };
    inherited::set_mask(before);
    Ok(Waiting { pid: pid?, say_go, failure })
}

/// Waits until the child has executed the program (then the pipe closes, and the result is `None`) or reports why it
/// could not.
fn read_failure(pipe: &OwnedFd) -> Option<io::Error> {
    let mut number = [0; 4];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut number)).ok()?;
    (length == number.len()).then(|| io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
}

/// Returns the highest resident memory, in bytes, of any child that we waited for. The kernel counts from the fork, so
/// a program that stayed smaller than we were at the fork is reported as large as us.
pub fn children_peak_rss() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `getrusage` writes one `rusage`, into the local `usage`.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    // SAFETY: `rusage` consists of integers, and `zeroed` initialised all of them, whatever the call did.
    unsafe { usage.assume_init() }.ru_maxrss as u64 * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel reads a list up to its null. AddressSanitizer does not see what the kernel reads.
    #[test]
    fn lists_for_execve_end_with_a_null() {
        for count in 0..4 {
            let list = pointers(&vec![CString::default(); count]);
            assert_eq!((list.len(), list.last()), (count + 1, Some(&ptr::null())));
        }
    }
}
