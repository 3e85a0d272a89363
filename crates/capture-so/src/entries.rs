//! The shims of patched functions, in a process that runs already. The patched code leads here through *slots*, which
//! are small pieces of code near each function, see `capture::entry`.
//!
//! A slot has pushed the address of its [`Entry`] below the return address. That is the word in which a [`Context`]
//! keeps rbp. An allocating shim takes the address out of it and then completes the context as
//! `capture::context_shim` does. These frames have no unwind information that the program's unwinder can find, so no
//! exception may pass through one: see `throwing`.
//!
//! **Slots alone lead here**: no other code may call the unsafe functions below. Only a slot that the profiler has
//! written jumps to one or calls one, with the address of its entry pushed as above. The slot and the entry stay
//! mapped as long as this library.
use crate::sandbox::check_result;
use crate::shims::{after_out_result, product};
use capture::context::{Context, Next};
use capture::core::{AttachBlock, CORE};
use capture::entry::{CoreTable, Entry};
use capture::events::{self, attached};
use capture::loader::heaptrack_loader_entry;
use capture::sandbox::{PR_SET_SECCOMP, PR_SET_TSC, SYS_PRCTL, SYS_SECCOMP, before_prctl, before_syscall, returned};
use capture::{load_registers, pop_registers, push_registers, run_next_parts, store_registers};
use core::arch::naked_asm;

#[unsafe(no_mangle)]
#[used]
static heaptrack_core_table: CoreTable = CoreTable {
    version: AttachBlock::VERSION,
    core: &CORE,
    loader: heaptrack_loader_entry,
    // In the order of `Shim`.
    shims: [
        malloc_entry,
        free_entry,
        size0_entry,
        size1_entry,
        product_entry,
        out_entry,
        resize1_entry,
        resize_product_entry,
        careful_free_entry,
        new_entry,
        new_aligned_entry,
        prctl_entry,
        syscall_entry,
    ],
    reports: capture::api::ENTRY_POINTS,
};

extern "C" fn after_malloc(context: &mut Context) -> Next {
    events::allocated(context, context.result, context.arguments[0])
}

extern "C" fn before(context: &mut Context, entry: &Entry) {
    attached::before(context, entry);
}

extern "C" fn after_size0(context: &mut Context) -> Next {
    attached::after(context, context.result, context.arguments[0])
}

extern "C" fn after_size1(context: &mut Context) -> Next {
    attached::after(context, context.result, context.arguments[1])
}

extern "C" fn after_product(context: &mut Context) -> Next {
    attached::after(context, context.result, product(context))
}

extern "C" fn after_out(context: &mut Context) -> Next {
    attached::after(context, after_out_result(context), context.arguments[2])
}

extern "C" fn during_resize1(context: &mut Context, entry: &Entry) -> Next {
    attached::reallocate(context, entry, context.arguments[1])
}

extern "C" fn during_resize_product(context: &mut Context, entry: &Entry) -> Next {
    // For a product that is too large, the real function fails and the block is unchanged.
    match context.arguments[1].checked_mul(context.arguments[2]) {
        Some(size) => attached::reallocate(context, entry, size),
        None => attached::call_real(context, entry),
    }
}

extern "C" fn before_free(address: u64, cfa: u64, entry: &Entry) {
    attached::freeing(address, cfa, entry);
}

extern "C" fn before_careful_free(address: u64, cfa: u64, entry: &Entry) {
    attached::freeing_carefully(address, cfa, entry);
}

/// Makes the context. From here on, rbx holds the address of the entry.
macro_rules! save {
    () => {
        concat!(
            "sub rsp, 80\n",
            store_registers!(72 rbx),
            load_registers!(80 rbx),
            store_registers!(80 rbp, 64 r12, 56 r13, 48 r14, 40 r15, 8 rdi, 16 rsi, 24 rdx),
        )
    };
}

/// Saves the caller-saved registers below the context. By the ABI a function may change them, but a caller that was
/// compiled together with the patched function may rely on their values.
macro_rules! save_more {
    () => {
        concat!("sub rsp, 64\n", store_registers!(0 rcx, 8 rdx, 16 rsi, 24 rdi, 32 r8, 40 r9, 48 r10, 56 r11))
    };
}

macro_rules! restore_more {
    () => {
        load_registers!(0 rcx, 8 rdx, 16 rsi, 24 rdi, 32 r8, 40 r9, 48 r10, 56 r11)
    };
}

/// The shim of glibc's malloc.
///
/// # Safety
/// Slots alone lead here (see this file's head).
#[unsafe(naked)]
unsafe extern "C" fn malloc_entry() {
    naked_asm!(
        "endbr64",
        save!(),
        "call [rbx]",
        "mov [rsp], rax",
        "mov rdi, rsp",
        "call {after}",
        run_next_parts!("mov rdi, rsp"),
        "mov rax, [rsp]",
        "mov rbx, [rsp + 72]",
        "add rsp, 88",
        "ret",
        after = sym after_malloc,
    )
}

/// Defines a shim that makes a context, runs `$body`, which returns the next part in rax, runs all next parts, runs
/// `$end`, and returns the result.
macro_rules! careful {
    ($name:ident, [$($body:tt)*], [$($end:tt)*], $($operands:tt)*) => {
        /// # Safety
        /// Slots alone lead here (see this file's head).
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "endbr64",
                save!(),
                save_more!(),
                "lea rdi, [rsp + 64]",
                "mov rsi, rbx",
                $($body)*
                run_next_parts!("lea rdi, [rsp + 64]"),
                restore_more!(),
                $($end)*
                "mov rax, [rsp + 64]",
                "mov rbx, [rsp + 136]",
                "add rsp, 152",
                "ret",
                $($operands)*
            )
        }
    };
}

/// Defines a shim that calls `before`, then `$call`, which loads the arguments from the context and calls the function,
/// and then `$after`.
macro_rules! calling {
    ($name:ident, [$($call:tt)*], [$($end:tt)*], $after:ident, $($operands:tt)*) => {
        careful!(
            $name,
            ["call {before}", $($call)* "mov [rsp + 64], rax", "lea rdi, [rsp + 64]", "call {after}",],
            [$($end)*],
            before = sym before,
            after = sym $after,
            $($operands)*
        );
    };
}

macro_rules! allocating {
    ($name:ident, $after:ident) => {
        calling!($name, [load_registers!(72 rdi, 80 rsi, 88 rdx), "call [rbx]",], [], $after,);
    };
}

allocating!(size0_entry, after_size0);
allocating!(size1_entry, after_size1);
allocating!(product_entry, after_product);
allocating!(out_entry, after_out);

macro_rules! resizing {
    ($name:ident, $during:ident) => {
        careful!($name, ["call {during}",], [], during = sym $during,);
    };
}

resizing!(resize1_entry, during_resize1);
resizing!(resize_product_entry, during_resize_product);

/// Any byte serves as a `std::nothrow_t`.
static NOTHROW: u8 = 0;

/// A throwing `operator new`. An exception cannot pass our frames. So the shim calls the variant that returns null
/// instead. If it does return null, the shim restores the registers and the stack and jumps to the throwing function,
/// so that none of our frames is left.
macro_rules! throwing {
    ($name:ident, $tag:literal, $last:literal) => {
        calling!(
            $name,
            ["mov rdi, [rsp + 72]", $tag, $last, "call [rbx + 8]",],
            [
                "cmp qword ptr [rsp + 64], 0",
                "jne 4f",
                "mov r11, [rbx]",
                "mov rbx, [rsp + 136]",
                "add rsp, 152",
                "jmp r11",
                "4:",
            ],
            after_size0,
            nothrow = sym NOTHROW,
        );
    };
}

throwing!(new_entry, "lea rsi, [rip + {nothrow}]", "");
throwing!(new_aligned_entry, "mov rsi, [rsp + 80]", "lea rdx, [rip + {nothrow}]");

/// The slot calls this before the displaced instructions.
///
/// # Safety
/// Slots alone lead here (see this file's head).
#[unsafe(naked)]
unsafe extern "C" fn free_entry() {
    naked_asm!(
        "endbr64",
        push_registers!(rdi, rsi, rdx),
        "lea rsi, [rsp + 48]",
        "mov rdx, [rsp + 32]",
        "call {before}",
        pop_registers!(rdx, rsi, rdi),
        "ret",
        before = sym before_free,
    )
}

/// libc's `prctl` and `syscall`. The shim checks the first argument, as the exported functions in `sandbox.rs` do. The
/// kernel destroys rcx and r11 in both functions, so no caller depends on r11.
macro_rules! watching {
    ($name:ident, $one:expr, $other:expr, $before:ident) => {
        /// # Safety
        /// Slots alone lead here (see this file's head).
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "endbr64",
                "cmp edi, {one}",
                "je 2f",
                "cmp edi, {other}",
                "je 2f",
                "4:",
                "pop r11",
                "jmp [r11]",
                "2:",
                push_registers!(rdi, rsi, rdx, rcx, r8, r9, r10, rax),
                "call {before}",
                "mov r11, rax",
                pop_registers!(rax, r10, r9, r8, rcx, rdx, rsi, rdi),
                "test r11d, r11d",
                "jz 4b",
                // Pushed twice: with the entry's address that keeps the stack aligned.
                push_registers!(r11, r11),
                "mov r11, [rsp + 16]",
                "call [r11]",
                check_result!(),
                "add rsp, 24",
                "ret",
                one = const $one,
                other = const $other,
                before = sym $before,
                returned = sym returned,
            )
        }
    };
}

watching!(prctl_entry, PR_SET_SECCOMP, PR_SET_TSC, before_prctl);
watching!(syscall_entry, SYS_SECCOMP, SYS_PRCTL, before_syscall);

/// # Safety
/// Slots alone lead here (see this file's head).
#[unsafe(naked)]
unsafe extern "C" fn careful_free_entry() {
    naked_asm!(
        "endbr64",
        push_registers!(rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11),
        "lea rsi, [rsp + 96]",
        "mov rdx, [rsp + 80]",
        "call {before}",
        pop_registers!(r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax),
        "ret",
        before = sym before_careful_free,
    )
}
