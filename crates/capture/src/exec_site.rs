//! The system call in libc's `execve`, to which all functions of libc lead that execute a program: the exec functions,
//! `posix_spawn`, `system`, `popen`.
//!
//! libc calls its own `execve` directly, so no function that this library exports sees the calls of `system`. In a
//! followed tree, where every new program must get our variables, the system call itself is replaced by a call of ours:
//!
//! ```text
//! before   mov eax, 59    syscall          after   call heaptrack_execve_site    nop
//!          5 bytes        2 bytes                  5 bytes                       2 bytes
//! ```
//! Must hold: only this very sequence at the start of `execve` is replaced, before a second thread exists. Nothing else
//! of `execve` changes: it still turns the result into errno.
use crate::exec::{self, Strings};
use crate::patch::{Page, Patcher};
use crate::sys;
use core::sync::atomic::{AtomicBool, Ordering};

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// `sub rsp, 8`, with which musl begins.
const ALIGN: &[u8] = &[0x48, 0x83, 0xec, 0x08];
/// `mov eax, 59; syscall`
const SITE: &[u8] = &[0xb8, 0x3b, 0, 0, 0, 0x0f, 0x05];
const CALL: u8 = 0xe8;
const CALL_LEN: u64 = 5;
/// A nop of two bytes.
const NOP: [u8; 2] = [0x66, 0x90];
/// How much of the function is looked at.
const LOOK: usize = 16;

static IS_PATCHED: AtomicBool = AtomicBool::new(false);

// SAFETY: the assembler code below defines the function, with this signature.
unsafe extern "C" {
    /// Saves the registers that a system call preserves, and calls [`at_site`].
    fn heaptrack_execve_site();
}

core::arch::global_asm!(
    ".pushsection .text.heaptrack_execve_site,\"ax\",@progbits",
    ".globl heaptrack_execve_site",
    ".hidden heaptrack_execve_site",
    ".type heaptrack_execve_site,@function",
    "heaptrack_execve_site:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    crate::push_registers!(rdi, rsi, rdx, r8, r9, r10),
    "and rsp, -16",
    "call {at_site}",
    "lea rsp, [rbp - 48]",
    crate::pop_registers!(r10, r9, r8, rdx, rsi, rdi, rbp),
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size heaptrack_execve_site, . - heaptrack_execve_site",
    ".popsection",
    at_site = sym at_site,
);

/// Runs in place of the system call. Returns what the kernel returns.
unsafe extern "C" fn at_site(path: usize, argv: Strings, environment: Strings) -> isize {
    // SAFETY: only `heaptrack_execve_site` calls this, with the arguments of the system call that libc was about to make.
    unsafe { exec::run_at_site(path, argv, environment) }
}

/// Returns true if every exec of libc in this process comes to `exec::run_at_site`.
pub fn is_patched() -> bool {
    IS_PATCHED.load(Ordering::Relaxed)
}

/// Replaces the system call in the `execve` at this address. Returns false, and changes nothing, if the function does
/// not begin as expected, is too far away, or cannot be written.
///
/// # Safety
/// `execve` is the address of libc's function of this name, and there is no other thread.
pub unsafe fn patch(execve: u64) -> bool {
    if execve == 0 {
        return false;
    }
    // SAFETY: the caller promises that libc's code is there. Code of at least this length follows in the same segment.
    let code = unsafe { *(execve as *const [u8; LOOK]) };
    let target = heaptrack_execve_site as *const () as u64;
    let Some((at, bytes)) = site(&code).and_then(|offset| replacement(execve + offset as u64, target)) else {
        return false;
    };
    let patcher = Patcher::open();
    // SAFETY: `site` has found the seven bytes in libc's code, which is mapped. There is no other thread, by the caller's
    // promise.
    let is_done = unsafe { patcher.write(at, &bytes, Page::Code) };
    patcher.close();
    IS_PATCHED.store(is_done, Ordering::Relaxed);
    is_done
}

/// Returns the offset of the sequence, if only known instructions come before it.
fn site(code: &[u8]) -> Option<usize> {
    let mut rest = code;
    for known in [ENDBR64, ALIGN] {
        rest = rest.strip_prefix(known).unwrap_or(rest);
    }
    rest.starts_with(SITE).then(|| code.len() - rest.len())
}

/// Returns the address and the bytes of a call of `target`, or `None` if the target is out of reach.
fn replacement(at: u64, target: u64) -> Option<(u64, [u8; SITE.len()])> {
    let distance = target.wrapping_sub(at + CALL_LEN) as i64;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    let [e, f] = NOP;
    Some((at, [CALL, a, b, c, d, e, f]))
}

/// The system call that was replaced. Returns only if it fails.
///
/// # Safety
/// The arguments are what the system call takes, or addresses that the kernel refuses.
pub unsafe extern "C" fn call(path: usize, argv: Strings, environment: Strings) -> i32 {
    // SAFETY: the caller promises the arguments of the call.
    unsafe { sys::execve(path, argv as usize, environment as usize) as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_beginning_is_replaced() {
        let code = |parts: &[&[u8]]| parts.concat();
        assert_eq!(site(&code(&[SITE, &[0x48, 0x3d]])), Some(0), "glibc");
        assert_eq!(site(&code(&[ENDBR64, SITE])), Some(4), "glibc with CET");
        assert_eq!(site(&code(&[ALIGN, SITE])), Some(4), "musl");
        assert_eq!(site(&code(&[ENDBR64, ALIGN, SITE])), Some(8));
        assert_eq!(site(&code(&[&[0x90], SITE])), None);
        assert_eq!(site(&code(&[&[0xb8, 0x38, 0, 0, 0, 0x0f, 0x05]])), None, "another system call");
        assert_eq!(site(&SITE[..6]), None);
    }

    #[test]
    fn a_call_leads_to_its_target() {
        assert_eq!(replacement(0x1000, 0x2000), Some((0x1000, [0xe8, 0xfb, 0x0f, 0, 0, 0x66, 0x90])));
        assert_eq!(replacement(0x2000, 0x1000), Some((0x2000, [0xe8, 0xfb, 0xef, 0xff, 0xff, 0x66, 0x90])));
        assert_eq!(replacement(0x1000, 0x1_8000_0000), None);
    }
}
