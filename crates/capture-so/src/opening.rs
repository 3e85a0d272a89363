//! The exported `dlopen`. It checks the mode, then jumps to libc's function. See `capture::opening`.
use capture::opening::{OPEN, RTLD_DEEPBIND, opening};
use capture::{pop_registers, push_registers};

capture::shim! {
    #[unsafe(no_mangle)]
    fn dlopen [
        "test esi, {deep}",
        "jnz 2f",
        "cmp qword ptr [rip + {real}], 0",
        "je 2f",
        "jmp qword ptr [rip + {real}]",
        "2:",
        push_registers!(cfi rdi, rsi),
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov edi, esi",
        "call {opening}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        pop_registers!(cfi rsi, rdi),
        "jmp rax",
    ]
    deep = const RTLD_DEEPBIND,
    real = sym OPEN,
    opening = sym opening,
}
