//! The exported functions that start child processes. See `capture::fork` for what they do.
use capture::fork::{starting_popen, starting_system, starting_vfork};
use capture::{pop_registers, push_registers};

#[unsafe(no_mangle)]
extern "C" fn fork() -> i32 {
    capture::fork::call()
}

#[unsafe(no_mangle)]
extern "C" fn daemon(keeps_folder: i32, keeps_streams: i32) -> i32 {
    capture::fork::call_daemon(keeps_folder, keeps_streams)
}

/// Defines a function that counts a child and then jumps to libc's function. It must not call it: `vfork` returns twice, and
/// the second time there is no frame of ours left.
macro_rules! counted {
    ($name:ident, $starting:ident) => {
        capture::shim! {
            #[unsafe(no_mangle)]
            fn $name [
                push_registers!(cfi rdi, rsi),
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "call {starting}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                pop_registers!(cfi rsi, rdi),
                "jmp rax",
            ]
            starting = sym $starting,
        }
    };
}

counted!(vfork, starting_vfork);
counted!(system, starting_system);
counted!(popen, starting_popen);
