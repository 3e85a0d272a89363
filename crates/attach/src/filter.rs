//! Whether the target's seccomp filters allow the system calls that recording needs.
//!
//! Receives: a process. Returns: whether it has filters and whether they allow an optional call, or the first needed
//! call that they forbid. Must hold: a call that is not allowed is never made, because the filter may kill the process
//! for it. So the BPF programs of the filters are read (which needs root) and run here, on the calls that recording
//! would make.
use crate::error::Refusal;
use crate::hold;
use crate::process::Process;
use crate::ptrace::{self, Tid};
use crate::world::{self, World};
use libc::sock_filter;
use std::collections::BTreeSet;

const STRICT: u32 = 1;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const RET_ALLOW: u32 = 0x7fff_0000;
const RET_LOG: u32 = 0x7ffc_0000;
/// The option of `prctl` that tells whether the time stamp counter may be read.
const PR_GET_TSC: u32 = 25;

/// The system calls that recording needs in the target, made by the profiler from outside or by the capture library.
/// `prctl` is not among them, because it is called only if the filters allow it.
const NEEDED: [(&str, i64); 16] = [
    ("mmap", libc::SYS_mmap),
    ("munmap", libc::SYS_munmap),
    ("madvise", libc::SYS_madvise),
    ("mremap", libc::SYS_mremap),
    ("memfd_create", libc::SYS_memfd_create),
    ("close", libc::SYS_close),
    ("gettid", libc::SYS_gettid),
    ("getpid", libc::SYS_getpid),
    ("sched_yield", libc::SYS_sched_yield),
    ("futex", libc::SYS_futex),
    ("membarrier", libc::SYS_membarrier),
    ("clock_gettime", libc::SYS_clock_gettime),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("rt_sigreturn", libc::SYS_rt_sigreturn),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("restart_syscall", libc::SYS_restart_syscall),
];

/// What the filters of a process allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// There are filters. They allow every call that recording needs.
    pub is_filtered: bool,
    /// They also allow `prctl(PR_GET_TSC)`.
    pub may_ask_for_counter: bool,
}

impl Verdict {
    const FREE: Verdict = Verdict { is_filtered: false, may_ask_for_counter: true };

    const fn and(self, other: Verdict) -> Verdict {
        Verdict {
            is_filtered: self.is_filtered || other.is_filtered,
            may_ask_for_counter: self.may_ask_for_counter && other.may_ask_for_counter,
        }
    }
}

/// Checks every thread, because filters and strict mode belong to threads. A new thread inherits them from the thread
/// that creates it.
pub fn check(process: &Process) -> Result<Verdict, Refusal> {
    let tids = process.threads().map_err(|_| Refusal::Gone)?;
    let ours = Process::new(std::process::id()).and_then(|us| us.status());
    let our_filters = ours.map_or(0, |status| status.filters);
    tids.into_iter().try_fold(Verdict::FREE, |verdict, tid| Ok(verdict.and(check_thread(process, tid, our_filters)?)))
}

/// Returns the seccomp modes and numbers of filters of all threads. A new thread adds nothing, because it inherits
/// both.
pub fn modes(process: &Process) -> BTreeSet<(u32, u32)> {
    let statuses = process.threads().unwrap_or_default().into_iter().filter_map(|tid| process.thread_status(tid).ok());
    let living = statuses.filter(|status| !matches!(status.state, 'Z' | 'X'));
    living.map(|status| (status.seccomp, status.filters)).collect()
}

fn check_thread(process: &Process, tid: Tid, our_filters: u32) -> Result<Verdict, Refusal> {
    let pid = process.pid;
    let status = match process.thread_status(tid) {
        Ok(status) if status.seccomp != 0 && !matches!(status.state, 'Z' | 'X') => status,
        // The thread has no filter, or has ended.
        _ => return Ok(Verdict::FREE),
    };
    if status.seccomp == STRICT {
        return Err(Refusal::StrictSeccomp { pid, tid });
    }
    match hold::on_tracing_thread(process, || read(process, tid)) {
        Ok(filters) => match forbidden(&filters) {
            Some(call) => Err(Refusal::Seccomp { pid, call }),
            None => {
                Ok(Verdict { is_filtered: true, may_ask_for_counter: allow(&filters, libc::SYS_prctl, PR_GET_TSC) })
            }
        },
        // If heaptrack itself has at least as many filters, they are taken to be the same ones: those of a container.
        // They allow these calls to heaptrack, so they allow them to the target.
        Err(Refusal::UnknownFilter { .. }) if our_filters >= status.filters => {
            Ok(Verdict { is_filtered: true, may_ask_for_counter: capture::sys::may_read_counter() })
        }
        // The thread has ended meanwhile.
        Err(_) if matches!(process.thread_state(tid), None | Some('Z' | 'X')) => Ok(Verdict::FREE),
        Err(refusal) => Err(refusal),
    }
}

fn read(process: &Process, tid: Tid) -> Result<Vec<Vec<sock_filter>>, Refusal> {
    let unknown = || Refusal::UnknownFilter { pid: process.pid };
    let world = World::stop_one(process, tid, world::PATIENCE)?;
    let mut filters = Vec::new();
    while let Some(filter) = ptrace::seccomp_filter(tid, filters.len()).map_err(|_| unknown())? {
        filters.push(filter);
    }
    drop(world);
    Ok(filters)
}

fn forbidden(filters: &[Vec<sock_filter>]) -> Option<&'static str> {
    NEEDED.iter().find(|(_, number)| !allow(filters, *number, 0)).map(|(name, _)| *name)
}

/// Returns true if all filters allow a call with this number and first argument.
fn allow(filters: &[Vec<sock_filter>], number: i64, first: u32) -> bool {
    let verdict = |filter| run(filter, number as u32, first).map(|verdict| verdict & 0xffff_0000);
    filters.iter().all(|filter: &Vec<sock_filter>| matches!(verdict(filter), Some(RET_ALLOW | RET_LOG)))
}

/// Runs a classic BPF program on a call with this number and first argument. The other arguments are zero. Returns
/// `None` if the program is invalid.
fn run(program: &[sock_filter], number: u32, first: u32) -> Option<u32> {
    // struct seccomp_data: number, architecture, instruction pointer, six arguments.
    let load = |at: u32| match at {
        0 => Some(number),
        4 => Some(AUDIT_ARCH_X86_64),
        16 => Some(first),
        8..64 if at.is_multiple_of(4) => Some(0),
        _ => None,
    };
    let (mut a, mut x, mut scratch) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    loop {
        let &sock_filter { code, jt, jf, k } = program.get(at)?;
        at += 1;
        let operand = if code & 8 != 0 { x } else { k };
        match (code & 7, code & 0xf8) {
            // ld: absolute, immediate, scratch memory, length
            (0, 0x20) => a = load(k)?,
            (0, 0x00) => a = k,
            (0, 0x60) => a = *scratch.get(k as usize)?,
            (0, 0x80) => a = 64,
            // ldx
            (1, 0x00) => x = k,
            (1, 0x60) => x = *scratch.get(k as usize)?,
            (1, 0x80) => x = 64,
            // st, stx
            (2, _) => *scratch.get_mut(k as usize)? = a,
            (3, _) => *scratch.get_mut(k as usize)? = x,
            (4, operation) => a = arithmetic(operation & 0xf0, a, operand)?,
            // ja, jeq, jgt, jge, jset
            (5, 0x00) => at += k as usize,
            (5, test) => {
                let holds = match test & 0xf0 {
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if holds { jt } else { jf });
            }
            (6, 0x00) => return Some(k),
            (6, 0x10) => return Some(a),
            (7, 0x00) => x = a,
            (7, 0x80) => a = x,
            _ => return None,
        }
    }
}

fn arithmetic(operation: u16, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b)?,
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.wrapping_shl(b),
        0x70 => a.wrapping_shr(b),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(b)?,
        0xa0 => a ^ b,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
        sock_filter { code, jt, jf, k }
    }

    #[test]
    fn a_filter_is_run() {
        // If the architecture is not x86-64, kills the thread. If the call is mremap, kills the process. Otherwise
        // allows the call.
        let program = vec![
            step(0x20, 0, 0, 4),
            step(0x15, 1, 0, AUDIT_ARCH_X86_64),
            step(0x06, 0, 0, 0),
            step(0x20, 0, 0, 0),
            step(0x15, 0, 1, libc::SYS_mremap as u32),
            step(0x06, 0, 0, 0x8000_0000),
            step(0x06, 0, 0, RET_ALLOW),
        ];
        assert_eq!(run(&program, libc::SYS_mremap as u32, 0), Some(0x8000_0000));
        assert_eq!(run(&program, libc::SYS_mmap as u32, 0), Some(RET_ALLOW));
        assert_eq!(forbidden(&[program]), Some("mremap"));
        assert_eq!(forbidden(&[vec![step(6, 0, 0, RET_ALLOW)]]), None);
        assert_eq!(forbidden(&[vec![step(6, 0, 0, RET_ALLOW)], vec![step(5, 0, 0, 100)]]), Some("mmap"));
    }
}
