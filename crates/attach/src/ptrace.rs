//! The requests of ptrace(2) that are needed, and waiting for threads. Only this file makes these system calls.
//!
//! Must hold: all calls for one target come from one thread of the profiler. When that thread ends, for any reason, the
//! kernel releases the target.
use libc::{c_int, c_long, c_void, pid_t, user_regs_struct};
use std::{io, mem, ptr};

pub const EVENT_STOP: i32 = 128;
const SYSGOOD: usize = 1;
const GETSIGMASK: libc::c_uint = 0x420a;
const SETSIGMASK: libc::c_uint = 0x420b;
const SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
const NT_X86_XSTATE: usize = 0x202;
/// No processor has more extended state.
const MOST_EXTENDED: usize = 16 << 10;

/// A thread id.
pub type Tid = u32;

/// What happened to a traced thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was stopped by PTRACE_INTERRUPT, or by a signal that stops the whole process.
    Stopped,
    /// It was stopped before or after a system call.
    SystemCall,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has ended.
    Gone,
}

fn request(what: libc::c_uint, tid: Tid, address: usize, data: usize) -> io::Result<c_long> {
    // SAFETY: only this file calls it, with numbers or with the address of a local of the type and length that the
    // kernel reads or writes for the request. The buffer in `seccomp_filter` is as long as the kernel has just said:
    // filter `index` of a thread never changes, because filters are only added, after the last.
    let result = unsafe { libc::ptrace(what, tid as pid_t, address as *mut c_void, data as *mut c_void) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn seize(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, SYSGOOD).map(drop)
}

pub fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

pub fn resume(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Lets a thread run until it enters or leaves a system call.
pub fn resume_to_call(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, 0).map(drop)
}

pub fn detach(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, 0).map(drop)
}

pub fn registers(tid: Tid) -> io::Result<user_regs_struct> {
    // SAFETY: `user_regs_struct` consists of integers only, so zero bytes are a valid value of it.
    let mut registers: user_regs_struct = unsafe { mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, ptr::from_mut(&mut registers) as usize)?;
    Ok(registers)
}

pub fn set_registers(tid: Tid, registers: &user_regs_struct) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, tid, 0, ptr::from_ref(registers) as usize).map(drop)
}

/// Returns the extended state (vector registers and so on). Empty if the kernel has no such request.
pub fn extended(tid: Tid) -> Vec<u8> {
    let mut bytes = vec![0u8; MOST_EXTENDED];
    let mut place = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    match request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, ptr::from_mut(&mut place) as usize) {
        Ok(_) => bytes.truncate(place.iov_len),
        Err(_) => bytes.clear(),
    }
    bytes
}

pub fn signal_mask(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    request(GETSIGMASK, tid, size_of::<u64>(), ptr::from_mut(&mut mask) as usize)?;
    Ok(mask)
}

pub fn set_signal_mask(tid: Tid, mask: u64) -> io::Result<()> {
    request(SETSIGMASK, tid, size_of::<u64>(), ptr::from_ref(&mask) as usize).map(drop)
}

/// Returns a stopped thread's seccomp filter number `index`, or `None` after the last.
pub fn seccomp_filter(tid: Tid, index: usize) -> io::Result<Option<Vec<libc::sock_filter>>> {
    let count = match request(SECCOMP_GET_FILTER, tid, index, 0) {
        Ok(count) => count as usize,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut filter = vec![libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; count];
    request(SECCOMP_GET_FILTER, tid, index, filter.as_mut_ptr() as usize)?;
    Ok(Some(filter))
}

/// Returns what happened to a traced thread, or `None` if nothing has yet.
pub fn poll(tid: Tid) -> Option<Event> {
    let mut status: c_int = 0;
    // SAFETY: `waitpid` writes one `c_int`, into the local `status`.
    let found = unsafe { libc::waitpid(tid as pid_t, &mut status, libc::__WALL | libc::WNOHANG) };
    match found {
        0 => None,
        -1 => Some(Event::Gone),
        _ => Some(event(status)),
    }
}

fn event(status: c_int) -> Event {
    if !libc::WIFSTOPPED(status) {
        return Event::Gone;
    }
    match libc::WSTOPSIG(status) {
        _ if status >> 16 == EVENT_STOP => Event::Stopped,
        signal if signal == libc::SIGTRAP | 0x80 => Event::SystemCall,
        signal => Event::Signal(signal),
    }
}

/// Sends a signal to one thread.
pub fn send(pid: u32, tid: Tid, signal: i32) {
    // SAFETY: `tgkill` takes numbers only and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_tgkill, pid as c_long, tid as c_long, signal as c_long) };
}
