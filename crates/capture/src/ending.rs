//! The end of a process of a followed tree, by libc's `_exit`: `exit`, a return from `main` and `_exit` all lead there.
//!
//! What a process holds counts until its end. The collector is told of an end by the kernel, but only after it, when other
//! processes have gone on. So the process itself writes its end into its ring, as its last event. The beginning of `_exit` is
//! replaced by a jump to a function that does this and makes the system call, because libc calls its own `_exit` directly:
//!
//! ```text
//! before   mov r8, [rip + ...]    mov esi, 231   ...      after   jmp heaptrack_exit_site   ...
//! ```
//! Must hold: only a function that loads the number of the system call `exit_group` first is replaced, before a second thread
//! exists. The event is the last one: no signal handler can run after it, and if there are other threads, the time is stored in
//! the header in its place.
use crate::core::{ACTIVE, CORE};
use crate::elf::LinkMap;
use crate::events;
use crate::follow;
use crate::patch::{Page, Patcher};
use crate::real;
use crate::sandbox::Calling;
use crate::sys;
use core::sync::atomic::{AtomicU64, Ordering};

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// `movsxd rdi, edi`, with which musl begins.
const WIDEN: &[u8] = &[0x48, 0x63, 0xff];
/// The number of `exit_group`, as it follows the opcode of a `mov`.
const NUMBER: &[u8] = &[0xe7, 0, 0, 0];
const JUMP: u8 = 0xe9;
const JUMP_LEN: u64 = 5;
/// How much of the function is looked at.
const LOOK: usize = 24;

/// libc's `_Exit`, which is the same function as `_exit`, or the one to which that leads.
static REAL: AtomicU64 = AtomicU64::new(0);

// SAFETY: the assembler code below defines the function, with this signature.
unsafe extern "C" {
    /// Aligns the stack and calls [`at_site`], which does not return.
    fn heaptrack_exit_site();
}

core::arch::global_asm!(
    ".pushsection .text.heaptrack_exit_site,\"ax\",@progbits",
    ".globl heaptrack_exit_site",
    ".hidden heaptrack_exit_site",
    ".type heaptrack_exit_site,@function",
    "heaptrack_exit_site:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "and rsp, -16",
    "call {at_site}",
    "hlt",
    ".cfi_endproc",
    ".size heaptrack_exit_site, . - heaptrack_exit_site",
    ".popsection",
    at_site = sym at_site,
);

extern "C" fn at_site(status: i32) -> ! {
    note(status);
    sys::exit_group(status)
}

/// Writes the end of this process into its ring. The caller ends the process at once. Writes nothing in a child that shares the
/// memory of its parent, and in a sandbox. If the process has several threads, the others may still make calls, so the time is
/// only stored.
pub fn note(status: i32) {
    // Ends with this function, before the caller ends the process.
    let _calls = Calling::begin();
    if follow::shared_hub().is_none() || !CORE.has_own_memory() || CORE.gate_or_join_to_leave() & ACTIVE == 0 {
        return;
    }
    if sys::is_only_thread() {
        sys::block_signals();
        events::note_exit(&CORE, status as u8);
    } else {
        let header = CORE.header();
        header.exit_code.store(status as u32 & 0xff, Ordering::Relaxed);
        let _ = header.exits_at.compare_exchange(0, CORE.stamp(), Ordering::Release, Ordering::Relaxed);
    }
}

/// # Safety
/// As `real::resolve`: `first` is the loader's list, and it is stable meanwhile.
pub unsafe fn resolve(first: *const LinkMap, ourselves: u64) {
    // SAFETY: the caller promises the loader's list, unchanged meanwhile.
    let found = unsafe { real::find_behind(first, ourselves, b"_Exit") };
    REAL.store(found.unwrap_or(0), Ordering::Release);
}

/// Replaces the beginning of libc's `_exit`. Changes nothing if the function does not begin as expected, is too far away, or
/// cannot be written. Then the collector learns the end of this process from the kernel.
///
/// # Safety
/// There is no other thread.
pub unsafe fn patch() {
    let exit = REAL.load(Ordering::Acquire);
    if exit == 0 {
        return;
    }
    // SAFETY: `resolve` found the function in libc. Code of at least this length follows in the same segment.
    let code = unsafe { *(exit as *const [u8; LOOK]) };
    let target = heaptrack_exit_site as *const () as u64;
    let Some((at, bytes)) = site(&code).and_then(|offset| replacement(exit + offset as u64, target)) else { return };
    let patcher = Patcher::open();
    // SAFETY: `site` has found at least ten bytes of known instructions in libc's code, which is mapped. There is no other
    // thread, by the caller's promise. No code of libc jumps into them: they come before the function's only loop.
    unsafe { patcher.write(at, &bytes, Page::Code) };
    patcher.close();
}

/// Returns the offset at which a jump can be put, if the function begins as an `_exit` does.
fn site(code: &[u8]) -> Option<usize> {
    let start = if code.starts_with(ENDBR64) { ENDBR64.len() } else { 0 };
    let mut rest = code.get(start..)?;
    let mut length = 0;
    loop {
        rest = match rest {
            // mov r32, imm32
            [0xb8..=0xbf, number @ ..] if number.starts_with(NUMBER) => return Some(start),
            // mov r64, [rip + distance]: the place of errno.
            [0x48 | 0x4c, 0x8b, mode, _, _, _, _, after @ ..] if mode & 0xc7 == 0x05 => after,
            _ => rest.strip_prefix(WIDEN)?,
        };
        length += 1;
        if length > 2 {
            return None;
        }
    }
}

/// Returns the address and the bytes of a jump to `target`, or `None` if the target is out of reach.
fn replacement(at: u64, target: u64) -> Option<(u64, [u8; JUMP_LEN as usize])> {
    let distance = target.wrapping_sub(at + JUMP_LEN) as i64;
    let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
    Some((at, [JUMP, a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_function_that_ends_the_process_is_replaced() {
        let glibc: &[u8] = &[0x4c, 0x8b, 0x05, 0xf9, 0xe9, 0x0f, 0, 0xbe, 0xe7, 0, 0, 0, 0xba, 0x3c, 0, 0, 0];
        let musl: &[u8] = &[0x48, 0x63, 0xff, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05];
        assert_eq!((site(glibc), site(musl)), (Some(0), Some(0)));
        assert_eq!(site(&[ENDBR64, glibc].concat()), Some(4), "glibc with CET");
        assert_eq!(site(&[&[0x90], musl].concat()), None);
        assert_eq!(site(&[0xb8, 0x3b, 0, 0, 0, 0x0f, 0x05]), None, "another system call");
        assert_eq!(site(&glibc[..11]), None);
        assert_eq!(site(&[WIDEN, WIDEN, WIDEN, musl].concat()), None, "not as far as all that");
    }

    #[test]
    fn a_jump_leads_to_its_target() {
        assert_eq!(replacement(0x1000, 0x2000), Some((0x1000, [0xe9, 0xfb, 0x0f, 0, 0])));
        assert_eq!(replacement(0x1000, 0x1_8000_0000), None);
    }
}
