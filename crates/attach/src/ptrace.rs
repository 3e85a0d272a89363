//! The requests of ptrace(2) that are needed, and waiting for threads. Only this file makes these system calls.
//!
//! Must hold: all calls for one target come from one thread of the profiler. When that thread ends, for any reason, the
//! kernel releases the target.
use libc::{c_int, c_long, c_void, pid_t, user_regs_struct};
use std::{io, mem, ptr};

const EVENT_EXEC: i32 = 4;
pub const EVENT_STOP: i32 = 128;
const SYSGOOD: usize = 1;
const TRACEEXEC: usize = 1 << EVENT_EXEC;
const LISTEN: libc::c_uint = 0x4208;
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
    /// It has executed another program, none of whose instructions has run. Only after `seize_until_exec`.
    Exec,
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

/// As `seize`. The thread also stops when it executes another program.
pub fn seize_until_exec(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, SYSGOOD | TRACEEXEC).map(drop)
}

pub fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

pub fn resume(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Leaves a thread stopped that a signal has stopped, and reports when another signal lets it continue.
pub fn listen(tid: Tid) -> io::Result<()> {
    request(LISTEN, tid, 0, 0).map(drop)
}

/// Lets a thread run until it enters or leaves a system call.
pub fn resume_to_call(tid: Tid) -> io::Result<()> {
    resume_to_call_with(tid, 0)
}

/// As `resume_to_call`, and delivers a signal.
pub fn resume_to_call_with(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)
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
    wait(tid, libc::WNOHANG)
}

/// As `poll`, for a process that is a child of ours. If it has ended, its exit code stays for the code that waits for
/// our children. `blocks`: waits until something happens.
pub fn poll_child(pid: Tid, blocks: bool) -> Option<Event> {
    // SAFETY: `siginfo_t` consists of integers and pointers that are not followed, so zero bytes are a valid value.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    let options =
        libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::WNOWAIT | if blocks { 0 } else { libc::WNOHANG };
    // SAFETY: `waitid` writes one `siginfo_t`, into the local `info`.
    let result = unsafe { libc::waitid(libc::P_PID, pid, &mut info, options) };
    match (result, info.si_code) {
        (-1, _) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => None,
        (-1, _) | (0, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) => Some(Event::Gone),
        (_, 0) => None,
        _ => wait(pid, libc::WNOHANG),
    }
}

fn wait(tid: Tid, options: c_int) -> Option<Event> {
    let mut status: c_int = 0;
    // SAFETY: `waitpid` writes one `c_int`, into the local `status`.
    let found = unsafe { libc::waitpid(tid as pid_t, &mut status, libc::__WALL | options) };
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
        _ if status >> 16 == EVENT_EXEC => Event::Exec,
        signal if signal == libc::SIGTRAP | 0x80 => Event::SystemCall,
        signal => Event::Signal(signal),
    }
}

/// Ends a child of ours that has not been waited for, so that its pid cannot belong to another process.
pub fn kill_child(pid: u32) {
    // SAFETY: `kill` takes numbers only and touches no memory of ours.
    unsafe { libc::kill(pid as pid_t, libc::SIGKILL) };
}

/// Sends a signal to one thread.
pub fn send(pid: u32, tid: Tid, signal: i32) {
    // SAFETY: `tgkill` takes numbers only and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_tgkill, pid as c_long, tid as c_long, signal as c_long) };
}
