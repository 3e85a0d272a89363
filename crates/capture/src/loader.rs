//! How the capture library learns that modules are loaded and unloaded.
//!
//! Before and after every change the loader calls an empty function, whose address is in its `r_debug`. Debuggers set a
//! breakpoint there; the capture library writes a jump there. The loader makes the call after a change with its lock
//! held, when a module is mapped and its constructors have not run yet, so its list can be read safely. No function of
//! ours calls `dlopen`, because that would change its caller (the exported `dlopen` jumps, see [`crate::opening`]).
//!
//! If the jump cannot be written ([`crate::patch`]), each walk asks for the modules of its frames:
//! [`crate::dl_find_object`].
use crate::elf::Debug;
use crate::patch::{Page, Patcher};

/// jmp [rip+0]; address
const JUMP_LEN: usize = 14;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const RET: u8 = 0xc3;

// SAFETY: the assembler code below defines the function, with this signature.
unsafe extern "C" {
    /// Saves all registers, calls [`heaptrack_modules_changed`], and returns to the loader.
    pub fn heaptrack_loader_entry();
}

core::arch::global_asm!(
    ".pushsection .text.heaptrack_loader_entry,\"ax\",@progbits",
    ".globl heaptrack_loader_entry",
    ".hidden heaptrack_loader_entry",
    ".type heaptrack_loader_entry,@function",
    "heaptrack_loader_entry:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    crate::push_registers!(rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11),
    "and rsp, -16",
    "call {changed}",
    "lea rsp, [rbp - 72]",
    crate::pop_registers!(r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax, rbp),
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size heaptrack_loader_entry, . - heaptrack_loader_entry",
    ".popsection",
    changed = sym heaptrack_modules_changed,
);

extern "C" fn heaptrack_modules_changed() {
    crate::core::CORE.modules_changed();
}

/// Writes the jump. Returns false if that is not allowed, or if the function is not empty.
pub(crate) fn watch(debug: *const Debug) -> bool {
    // SAFETY: `debug` is the loader's `r_debug`, which `find_debug` found and which stays; only `assemble` calls this,
    // with `Parts::debug`.
    let mut at = unsafe { (*debug).changed };
    // SAFETY: `r_debug` says that the loader's own code is there, which is mapped and never unloaded. The bytes after
    // an empty function are padding, or the next functions in the same segment.
    let code = unsafe { *(at as *const [u8; 4 + JUMP_LEN]) };
    let body = if code.starts_with(&ENDBR64) {
        at += 4;
        code.get(4..4 + JUMP_LEN)
    } else {
        code.get(..JUMP_LEN)
    };
    let Some(body) = body else { return false };
    let mut jump = [0u8; JUMP_LEN];
    let target = (heaptrack_loader_entry as *const () as u64).to_le_bytes();
    for (i, byte) in [0xff, 0x25, 0, 0, 0, 0].iter().chain(&target).enumerate() {
        if let Some(place) = jump.get_mut(i) {
            *place = *byte;
        }
    }
    // A forked child that joins has the jump already.
    body == jump || is_empty_function(body) && write_code(at, &jump)
}

/// Returns true if the loader is not changing any of its lists, as far as its `r_debug` structures tell.
///
/// # Safety
/// `debug` is null or the loader's `r_debug`, and no other thread runs the loader meanwhile.
pub unsafe fn is_quiet(debug: *const Debug) -> bool {
    let mut board = debug;
    // SAFETY: `board` is null, the loader's `r_debug` by the caller's promise, or the next one of its list. These
    // structures are never freed.
    while let Some(d) = unsafe { board.as_ref() } {
        if d.state != 0 {
            return false;
        }
        board = if d.version >= 2 { d.next } else { core::ptr::null() };
    }
    true
}

/// Returns true if the code is a return with only padding after it.
fn is_empty_function(body: &[u8]) -> bool {
    let Some((&RET, padding)) = body.split_first() else { return false };
    // Compilers pad with one- to eleven-byte nops, int3 or zeros: all made of these bytes.
    padding.iter().all(|b| matches!(b, 0x66 | 0x2e | 0x0f | 0x1f | 0x84 | 0x44 | 0x40 | 0x80 | 0x90 | 0xcc | 0x00))
}

fn write_code(at: u64, bytes: &[u8]) -> bool {
    let patcher = Patcher::open();
    // SAFETY: `at` is the loader's own code, which `watch` has just read, so it is mapped as code. Only the loader runs
    // it, and it does not run now: `assemble` is called by the loader, or on the only thread (start-up, see `Core`).
    let done = unsafe { patcher.write(at, bytes, Page::Code) };
    patcher.close();
    done
}
