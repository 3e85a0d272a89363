//! The exported `dlclose`. It calls `closing`, then jumps to libc's function. See `capture::dl_find_object`.
use capture::dl_find_object::closing;
use core::arch::naked_asm;

#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn dlclose() {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {closing}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        closing = sym closing,
    )
}
