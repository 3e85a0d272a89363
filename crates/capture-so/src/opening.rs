//! The exported `dlopen`. It checks the mode, then jumps to libc's function. See `capture::opening`.
use capture::opening::{OPEN, RTLD_DEEPBIND, opening};
use core::arch::naked_asm;

#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn dlopen() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "test esi, {deep}",
        "jnz 2f",
        "cmp qword ptr [rip + {real}], 0",
        "je 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov edi, esi",
        "call {opening}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        deep = const RTLD_DEEPBIND,
        real = sym OPEN,
        opening = sym opening,
    )
}
