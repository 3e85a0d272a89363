//! Assembler code that several shims have in common, in this crate and in `capture-so`.
//!
//! The macros are strings for `naked_asm!` and `global_asm!`, or whole functions. The registers of a call are saved as
//! a [`crate::context::Context`], whose layout `context.rs` describes.

/// Pushes registers. With `cfi`, the unwind information follows each push.
#[macro_export]
macro_rules! push_registers {
    (cfi $($register:ident),*) => {
        concat!($("push ", stringify!($register), "\n.cfi_adjust_cfa_offset 8\n"),*)
    };
    ($($register:ident),*) => { concat!($("push ", stringify!($register), "\n"),*) };
}

/// Pops registers: those that [`push_registers`] pushed, in the opposite order.
#[macro_export]
macro_rules! pop_registers {
    (cfi $($register:ident),*) => {
        concat!($("pop ", stringify!($register), "\n.cfi_adjust_cfa_offset -8\n"),*)
    };
    ($($register:ident),*) => { concat!($("pop ", stringify!($register), "\n"),*) };
}

/// Stores registers above rsp. In `store_registers!(8 rdi, 16 rsi)`, the number before a register is its distance from
/// rsp.
#[macro_export]
macro_rules! store_registers {
    ($($distance:literal $register:ident),*) => {
        concat!($("mov [rsp + ", $distance, "], ", stringify!($register), "\n"),*)
    };
}

/// Loads registers from where [`store_registers`] stored them.
#[macro_export]
macro_rules! load_registers {
    ($($distance:literal $register:ident),*) => {
        concat!($("mov ", stringify!($register), ", [rsp + ", $distance, "]\n"),*)
    };
}

/// Runs the part whose address is in rax, and all parts that follow it: see [`crate::context::Next`]. `$argument` is
/// the instruction that puts the address of the context into rdi.
#[macro_export]
macro_rules! run_next_parts {
    ($argument:literal) => {
        concat!("2:\ntest rax, rax\njz 3f\n", $argument, "\ncall rax\njmp 2b\n3:")
    };
}

/// Defines a function of assembler code that has unwind information.
#[macro_export]
macro_rules! shim {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident [$($body:tt)*] $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        $visibility extern "C" fn $name() {
            ::core::arch::naked_asm!(".cfi_startproc", "endbr64", $($body)* ".cfi_endproc", $($operands)*)
        }
    };
}

/// Defines a shim that saves registers and arguments as a `Context` at rsp, runs `$body`, which returns the next part
/// in rax, runs all next parts, and then `$end`. `$first` is run before the registers are saved.
#[macro_export]
macro_rules! context_shim {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident [$($body:tt)*] [$($end:tt)*] $($operands:tt)*) => {
        $crate::context_shim! { $(#[$attribute])* $visibility fn $name first [] [$($body)*] [$($end)*] $($operands)* }
    };
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident first [$($first:tt)*] [$($body:tt)*] [$($end:tt)*]
        $($operands:tt)*) => {
        $crate::shim! {
            $(#[$attribute])*
            $visibility fn $name [
                $($first)*
                "sub rsp, 88",
                ".cfi_def_cfa_offset 96",
                "mov [rsp + 80], rbp",
                ".cfi_offset rbp, -16",
                $crate::store_registers!(72 rbx, 64 r12, 56 r13, 48 r14, 40 r15, 8 rdi, 16 rsi, 24 rdx),
                $($body)*
                $crate::run_next_parts!("mov rdi, rsp"),
                $($end)*
                "add rsp, 88",
                ".cfi_def_cfa_offset 8",
                "ret",
            ] $($operands)*
        }
    };
}
