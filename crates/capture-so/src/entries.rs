//! The shims of patched functions, in a process that runs already. Slots lead here, see `capture::entry`.
//!
//! A slot has pushed the address of its [`Entry`] below the return address. That is the word in which a [`Context`]
//! keeps rbp. An allocating shim takes the address out of it and then completes the context as in `shims.rs`. These
//! frames have no unwind information that the program's unwinder can find, so no exception may pass through one: see
//! `throwing`.
//!
//! **Slots alone lead here**: no other code may call the unsafe functions below. Only a slot that the profiler has
//! written jumps to one or calls one, with the address of its entry pushed as above. The slot and the entry live as
//! long as the image.
use crate::shims::{after_out_result, product};
use capture::context::{Context, Next};
use capture::core::{AttachBlock, CORE};
use capture::entry::{CoreTable, Entry};
use capture::events::{self, attached};
use capture::loader::heaptrack_loader_entry;
use capture::sandbox::{PR_SET_SECCOMP, PR_SET_TSC, SYS_PRCTL, SYS_SECCOMP, before_prctl, before_syscall, returned};
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

/// Makes the context. From here on, rbx holds the entry.
macro_rules! save {
    () => {
        "sub rsp, 80
         mov [rsp + 72], rbx
         mov rbx, [rsp + 80]
         mov [rsp + 80], rbp
         mov [rsp + 64], r12
         mov [rsp + 56], r13
         mov [rsp + 48], r14
         mov [rsp + 40], r15
         mov [rsp + 8], rdi
         mov [rsp + 16], rsi
         mov [rsp + 24], rdx"
    };
}

/// Saves the caller-saved registers below the context. By the ABI a function may change them, but a caller that was
/// compiled together with this function may rely on them.
macro_rules! save_more {
    () => {
        "sub rsp, 64
         mov [rsp], rcx
         mov [rsp + 8], rdx
         mov [rsp + 16], rsi
         mov [rsp + 24], rdi
         mov [rsp + 32], r8
         mov [rsp + 40], r9
         mov [rsp + 48], r10
         mov [rsp + 56], r11"
    };
}

macro_rules! restore_more {
    () => {
        "mov rcx, [rsp]
         mov rdx, [rsp + 8]
         mov rsi, [rsp + 16]
         mov rdi, [rsp + 24]
         mov r8, [rsp + 32]
         mov r9, [rsp + 40]
         mov r10, [rsp + 48]
         mov r11, [rsp + 56]"
    };
}

/// glibc's malloc.
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
        "2:",
        "test rax, rax",
        "jz 3f",
        "mov rdi, rsp",
        "call rax",
        "jmp 2b",
        "3:",
        "mov rax, [rsp]",
        "mov rbx, [rsp + 72]",
        "add rsp, 88",
        "ret",
        after = sym after_malloc,
    )
}

/// Runs `$body`, which returns the next part in rax, runs all next parts, and returns the result.
macro_rules! careful {
    ($name:ident, [$($body:literal),*], [$($end:literal),*], $($operands:tt)*) => {
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
                $($body,)*
                "2:",
                "test rax, rax",
                "jz 3f",
                "lea rdi, [rsp + 64]",
                "call rax",
                "jmp 2b",
                "3:",
                restore_more!(),
                $($end,)*
                "mov rax, [rsp + 64]",
                "mov rbx, [rsp + 136]",
                "add rsp, 152",
                "ret",
                $($operands)*
            )
        }
    };
}

macro_rules! allocating {
    ($name:ident, $after:ident) => {
        careful!(
            $name,
            [
                "call {before}",
                "mov rdi, [rsp + 72]",
                "mov rsi, [rsp + 80]",
                "mov rdx, [rsp + 88]",
                "call [rbx]",
                "mov [rsp + 64], rax",
                "lea rdi, [rsp + 64]",
                "call {after}"
            ],
            [],
            before = sym before,
            after = sym $after,
        );
    };
}

allocating!(size0_entry, after_size0);
allocating!(size1_entry, after_size1);
allocating!(product_entry, after_product);
allocating!(out_entry, after_out);

macro_rules! resizing {
    ($name:ident, $during:ident) => {
        careful!($name, ["call {during}"], [], during = sym $during,);
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
        careful!(
            $name,
            [
                "call {before}",
                "mov rdi, [rsp + 72]",
                $tag,
                $last,
                "call [rbx + 8]",
                "mov [rsp + 64], rax",
                "lea rdi, [rsp + 64]",
                "call {after}"
            ],
            [
                "cmp qword ptr [rsp + 64], 0",
                "jne 4f",
                "mov r11, [rbx]",
                "mov rbx, [rsp + 136]",
                "add rsp, 152",
                "jmp r11",
                "4:"
            ],
            before = sym before,
            after = sym after_size0,
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
        "push rdi",
        "push rsi",
        "push rdx",
        "lea rsi, [rsp + 48]",
        "mov rdx, [rsp + 32]",
        "call {before}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
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
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push r10",
                "push rax",
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test r11d, r11d",
                "jz 4b",
                // Pushed twice: with the entry's address that keeps the stack aligned.
                "push r11",
                "push r11",
                "mov r11, [rsp + 16]",
                "call [r11]",
                "mov rdi, [rsp]",
                "mov rsi, rax",
                "mov [rsp], rax",
                "call {returned}",
                "mov rax, [rsp]",
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
        "push rax",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "lea rsi, [rsp + 96]",
        "mov rdx, [rsp + 80]",
        "call {before}",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "ret",
        before = sym before_careful_free,
    )
}
