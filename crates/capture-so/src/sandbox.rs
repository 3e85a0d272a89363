//! The exported `prctl` and `syscall`: a look at the first argument, then a jump to libc's. See `capture::sandbox`.
use capture::sandbox::{PR_SET_SECCOMP, PRCTL, SYS_SECCOMP, SYSCALL, notice};
use core::arch::naked_asm;

/// All argument registers survive the look, for both functions take any number of arguments.
macro_rules! passing {
    ($name:ident, $watched:expr, $real:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "cmp edi, {watched}",
                "je 2f",
                "cmp qword ptr [rip + {real}], 0",
                "je 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "call {notice}",
                "pop rax",
                ".cfi_adjust_cfa_offset -8",
                "pop r9",
                ".cfi_adjust_cfa_offset -8",
                "pop r8",
                ".cfi_adjust_cfa_offset -8",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp qword ptr [rip + {real}]",
                ".cfi_endproc",
                watched = const $watched,
                real = sym $real,
                notice = sym notice,
            )
        }
    };
}

passing!(prctl, PR_SET_SECCOMP, PRCTL);
passing!(syscall, SYS_SECCOMP, SYSCALL);
