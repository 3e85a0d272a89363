//! The exported `prctl` and `syscall`. They check the first argument, then jump to libc's function, or call it if its
//! result matters. See `capture::sandbox`.
use capture::sandbox::{
    PR_SET_SECCOMP, PR_SET_TSC, PRCTL, SYS_PRCTL, SYS_SECCOMP, SYSCALL, before_prctl, before_syscall, returned,
};
use capture::{pop_registers, push_registers};

/// Passes the word at rsp, which `before` returned, and the result of libc's function to `returned`. Keeps the result
/// in rax.
macro_rules! check_result {
    () => {
        "mov rdi, [rsp]
         mov rsi, rax
         mov [rsp], rax
         call {returned}
         mov rax, [rsp]"
    };
}
pub(crate) use check_result;

/// The shim keeps all argument registers, because both functions are variadic. A call that forbids something has all
/// its arguments in registers. So for such a call the shim can call libc's function, and check what it returns.
macro_rules! passing {
    ($name:ident, $one:expr, $other:expr, $before:ident, $real:ident) => {
        capture::shim! {
            #[unsafe(no_mangle)]
            fn $name [
                "cmp edi, {one}",
                "je 2f",
                "cmp edi, {other}",
                "je 2f",
                "cmp qword ptr [rip + {real}], 0",
                "je 2f",
                "jmp qword ptr [rip + {real}]",
                "2:",
                push_registers!(cfi rdi, rsi, rdx, rcx, r8, r9, rax),
                "call {before}",
                "mov r11, rax",
                pop_registers!(cfi rax, r9, r8, rcx, rdx, rsi, rdi),
                "test r11d, r11d",
                "jnz 3f",
                "jmp qword ptr [rip + {real}]",
                "3:",
                push_registers!(cfi r11),
                "call qword ptr [rip + {real}]",
                check_result!(),
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
            ]
            one = const $one,
            other = const $other,
            real = sym $real,
            before = sym $before,
            returned = sym returned,
        }
    };
}

passing!(prctl, PR_SET_SECCOMP, PR_SET_TSC, before_prctl, PRCTL);
passing!(syscall, SYS_SECCOMP, SYS_PRCTL, before_syscall, SYSCALL);
