//! The exported `dlclose`. It calls `closing`, then jumps to libc's function. See `capture::dl_find_object`.
use capture::dl_find_object::closing;
use capture::{pop_registers, push_registers};

capture::shim! {
    #[unsafe(no_mangle)]
    fn dlclose [
        push_registers!(cfi rdi),
        "call {closing}",
        pop_registers!(cfi rdi),
        "jmp rax",
    ]
    closing = sym closing,
}
