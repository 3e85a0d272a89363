//! The exported `prctl` and `syscall`. They check the first argument, then jump to libc's function. See
//! `capture::sandbox`.
use capture::sandbox::{
    PR_SET_SECCOMP, PR_SET_TSC, PRCTL, SYS_PRCTL, SYS_SECCOMP, SYSCALL, before_prctl, before_syscall, returned,
};
use core::arch::naked_asm;

/// The shim keeps all argument registers, because both functions are variadic. A call that forbids something has all
/// its arguments in registers. So for such a call the shim can call libc's function, and check what it returns.
macro_rules! passing {
    ($name:ident, $one:expr, $other:expr, $before:ident, $real:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "cmp edi, {one}",
                "je 2f",
                "cmp edi, {other}",
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
                "call {before}",
                "mov r11, rax",
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
                "test r11d, r11d",
                "jnz 3f",
                "jmp qword ptr [rip + {real}]",
                "3:",
                "push r11",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {real}]",
                "mov rdi, [rsp]",
                "mov rsi, rax",
                "mov [rsp], rax",
                "call {returned}",
                "mov rax, [rsp]",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                one = const $one,
                other = const $other,
                real = sym $real,
                before = sym $before,
                returned = sym returned,
            )
        }
    };
}

passing!(prctl, PR_SET_SECCOMP, PR_SET_TSC, before_prctl, PRCTL);
passing!(syscall, SYS_SECCOMP, SYS_PRCTL, before_syscall, SYSCALL);
