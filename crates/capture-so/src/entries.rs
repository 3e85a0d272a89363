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
use capture::context::{Context, Next};
use capture::core::{AttachBlock, CORE};
use capture::entry::{CoreTable, Entry};
use capture::events::attached::{self, Call};
use capture::events::{self, heaps, mappings};
use capture::exec::{Flavour, Strings, run_patched};
use capture::fork::call_patched;
use capture::loader::heaptrack_loader_entry;
use capture::sandbox::{PR_SET_SECCOMP, PR_SET_TSC, SYS_PRCTL, SYS_SECCOMP, before_prctl, before_syscall, returned};
use capture::{load_registers, pop_registers, push_registers, run_next_parts, store_registers};
use core::arch::naked_asm;
use core::mem::offset_of;

#[unsafe(no_mangle)]
#[used]
static heaptrack_core_table: CoreTable = CoreTable {
    version: AttachBlock::VERSION,
    core: &CORE,
    loader: heaptrack_loader_entry,
    following: &capture::follow::FOLLOWING,
    left_lists: &capture::left_lists::LEFT,
    // In the order of `Shim`.
    shims: [
        malloc_entry,
        free_entry,
        allocate_entry,
        resize_entry,
        careful_free_entry,
        new_entry,
        resize_new_entry,
        heap_entry,
        prctl_entry,
        syscall_entry,
        execve_entry,
        fork_entry,
        fexecve_entry,
        exit_entry,
        mmap_entry,
        munmap_entry,
        mremap_entry,
        madvise_entry,
        shmat_entry,
        shmdt_entry,
    ],
    reports: capture::api::ENTRY_POINTS,
};

extern "C" fn after_malloc(context: &mut Context) -> Next {
    events::allocated(context, context.result, context.arguments[0])
}

extern "C" fn before(call: &mut Call, entry: &Entry) {
    attached::before(call, entry);
}

extern "C" fn after(call: &mut Call, entry: &Entry) -> Next {
    attached::after(call, entry)
}

extern "C" fn during_resize(call: &mut Call, entry: &Entry) -> Next {
    attached::reallocate(call, entry)
}

extern "C" fn during_heap(call: &mut Call, entry: &Entry) -> Next {
    heaps::call(call, entry)
}

/// Calls a function that changes mappings.
fn call_map(arguments: [u64; 6], entry: &Entry) -> u64 {
    // SAFETY: the profiler has written the address of the function's own code into `real`, and an entry never changes
    // once a patch leads to it (`entry.rs`). These functions take six words at most.
    let function: capture::mappings::Function = unsafe { core::mem::transmute(entry.real) };
    let [a, b, c, d, e, f] = arguments;
    function(a, b, c, d, e, f)
}

extern "C" fn during_mmap(call: &mut Call, entry: &Entry) -> Next {
    call.result = call_map(call.arguments, entry);
    mappings::mapped(&mut call.context, Some(entry), call.result, call.arguments[1])
}

extern "C" fn during_madvise(call: &mut Call, entry: &Entry) -> Next {
    call.result = call_map(call.arguments, entry);
    let [address, bytes, advice, ..] = call.arguments;
    mappings::advised(&mut call.context, Some(entry), call.result, [address, bytes, advice])
}

extern "C" fn during_shmat(call: &mut Call, entry: &Entry) -> Next {
    call.result = call_map(call.arguments, entry);
    mappings::attached_shared(&mut call.context, Some(entry), call.result, call.arguments[0])
}

extern "C" fn during_munmap(call: &mut Call, entry: &Entry) -> Next {
    let [address, bytes, ..] = call.arguments;
    let real = || call_map(call.arguments, entry);
    call.result = mappings::unmap(&call.context, Some(entry), [address, bytes], real);
    Next::DONE
}

extern "C" fn during_shmdt(call: &mut Call, entry: &Entry) -> Next {
    let real = || call_map(call.arguments, entry);
    call.result = mappings::detach_shared(&call.context, Some(entry), call.arguments[0], real);
    Next::DONE
}

extern "C" fn during_mremap(call: &mut Call, entry: &Entry) -> Next {
    let arguments = call.arguments;
    let [old, old_bytes, bytes, flags, ..] = arguments;
    let (result, next) =
        mappings::remap(&mut call.context, Some(entry), [old, old_bytes, bytes], flags, || call_map(arguments, entry));
    call.result = result;
    next
}

/// Any byte serves as a `std::nothrow_t`.
static NOTHROW: u8 = 0;

/// Calls the variant of a throwing function that returns null instead. It has one more argument.
extern "C" fn call_nothrow(call: &mut Call, entry: &Entry) -> Next {
    type Function = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;
    attached::before(call, entry);
    let [a, b, c, d, e, _] = call.arguments;
    let tag = &raw const NOTHROW as u64;
    let with_tag = match entry.meaning.block {
        1 => [a, tag, b, c, d, e],
        2 => [a, b, tag, c, d, e],
        _ => [a, b, c, tag, d, e],
    };
    // SAFETY: the profiler has written the address of the variant's own code into `nothrow`; it plans no function of
    // this kind without one. The variant takes six words at most; the C ABI ignores the others.
    let function: Function = unsafe { core::mem::transmute(entry.nothrow) };
    let [a, b, c, d, e, f] = with_tag;
    call.result = function(a, b, c, d, e, f);
    attached::after(call, entry)
}

extern "C" fn before_free(address: u64, cfa: u64, entry: &Entry) {
    attached::freeing(address, cfa, entry);
}

extern "C" fn before_careful_free(first: u64, second: u64, cfa: u64, entry: &Entry) {
    attached::freeing_carefully(first, second, cfa, entry);
}

/// Makes the context without the arguments. From here on, rbx holds the address of the entry.
macro_rules! save {
    () => {
        concat!(
            "sub rsp, 80\n",
            store_registers!(72 rbx),
            load_registers!(80 rbx),
            store_registers!(80 rbp, 64 r12, 56 r13, 48 r14, 40 r15),
        )
    };
}

/// Makes a [`Call`] around the context. By the ABI a function may change the registers that are saved here, but a caller
/// that was compiled together with the patched function may rely on their values.
macro_rules! save_more {
    () => {
        concat!("sub rsp, 96\n", store_registers!(0 rdi, 8 rsi, 16 rdx, 24 rcx, 32 r8, 40 r9, 48 r10, 56 r11))
    };
}

macro_rules! restore_more {
    () => {
        load_registers!(0 rdi, 8 rsi, 16 rdx, 24 rcx, 32 r8, 40 r9, 48 r10, 56 r11)
    };
}

const _: () = assert!(Call::SAVED == 96 && offset_of!(Call, result) == 64 && offset_of!(Call, context) == 96);

/// The shim of glibc's malloc.
///
/// # Safety
/// Slots alone lead here (see this file's head).
#[unsafe(naked)]
unsafe extern "C" fn malloc_entry() {
    naked_asm!(
        "endbr64",
        save!(),
        store_registers!(8 rdi, 16 rsi, 24 rdx),
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

/// Defines a shim that makes a [`Call`], runs `$body`, which returns the next part in rax, runs all next parts, runs
/// `$end`, and returns the result.
///
/// It has unwind information, because a stack that is recorded may pass through it: jemalloc starts its own thread in a
/// call of mallctl, and the loader allocates for that thread.
macro_rules! careful {
    ($name:ident, [$($body:tt)*], [$($end:tt)*], $($operands:tt)*) => {
        /// # Safety
        /// Slots alone lead here (see this file's head).
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                // The slot has pushed the address of the entry.
                ".cfi_def_cfa_offset 16",
                "endbr64",
                save!(),
                ".cfi_def_cfa_offset 96",
                ".cfi_offset rbx, -24",
                save_more!(),
                ".cfi_def_cfa_offset 192",
                "mov rdi, rsp",
                "mov rsi, rbx",
                $($body)*
                run_next_parts!("lea rdi, [rsp + 96]"),
                restore_more!(),
                $($end)*
                "mov rax, [rsp + 64]",
                "mov rbx, [rsp + 168]",
                ".cfi_restore rbx",
                "add rsp, 184",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                $($operands)*
            )
        }
    };
}

careful!(
    allocate_entry,
    [
        "call {before}",
        load_registers!(0 rdi, 8 rsi, 16 rdx, 24 rcx, 32 r8, 40 r9),
        "call [rbx]",
        "mov [rsp + 64], rax",
        "mov rdi, rsp",
        "mov rsi, rbx",
        "call {after}",
    ],
    [],
    before = sym before,
    after = sym after,
);

careful!(resize_entry, ["call {during}",], [], during = sym during_resize,);

careful!(heap_entry, ["call {during}",], [], during = sym during_heap,);

careful!(mmap_entry, ["call {during}",], [], during = sym during_mmap,);
careful!(munmap_entry, ["call {during}",], [], during = sym during_munmap,);
careful!(mremap_entry, ["call {during}",], [], during = sym during_mremap,);
careful!(madvise_entry, ["call {during}",], [], during = sym during_madvise,);
careful!(shmat_entry, ["call {during}",], [], during = sym during_shmat,);
careful!(shmdt_entry, ["call {during}",], [], during = sym during_shmdt,);

// A function that throws. An exception cannot pass our frames. So the shim calls the variant that returns null
// instead. If it does return null, the shim restores the registers and the stack and jumps to the throwing function,
// so that none of our frames is left.
macro_rules! throwing {
    ($name:ident, $during:ident) => {
        careful!(
            $name,
            ["call {during}",],
            [
                "cmp qword ptr [rsp + 64], 0",
                "jne 4f",
                ".cfi_remember_state",
                "mov r11, [rbx]",
                "mov rbx, [rsp + 168]",
                ".cfi_restore rbx",
                "add rsp, 184",
                ".cfi_def_cfa_offset 8",
                "jmp r11",
                "4:",
                ".cfi_restore_state",
            ],
            during = sym $during,
        );
    };
}

throwing!(new_entry, call_nothrow);
throwing!(resize_new_entry, during_resize);

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

unsafe extern "C" fn during_execve(path: usize, argv: Strings, envp: Strings, entry: &Entry) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function. The profiler has written the address
    // of the function's own code into `real`, and an entry never changes once a patch leads to it (`entry.rs`).
    unsafe { run_patched(Flavour::Path, path, argv, envp, entry.real) }
}

unsafe extern "C" fn during_fexecve(descriptor: usize, argv: Strings, envp: Strings, entry: &Entry) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function. The profiler has written the address
    // of the function's own code into `real`, and an entry never changes once a patch leads to it (`entry.rs`).
    unsafe { run_patched(Flavour::Descriptor, descriptor, argv, envp, entry.real) }
}

extern "C" fn during_fork(entry: &Entry) -> i32 {
    // SAFETY: the profiler has written the address of the code of libc's `fork` into `real`, and an entry never changes
    // once a patch leads to it (`entry.rs`).
    unsafe { call_patched(entry.real) }
}

extern "C" fn during_exit(status: i32, entry: &Entry) {
    capture::ending::note(status);
    // SAFETY: the profiler has written the address of the code of libc's `_exit` into `real`, and an entry never changes
    // once a patch leads to it (`entry.rs`). `_exit` has this signature.
    let real: extern "C" fn(i32) = unsafe { core::mem::transmute(entry.real) };
    real(status);
}

/// libc's `execve`, `fexecve`, `fork` and `_exit`. `$register` gets the address of the entry. After the slot has pushed it, the stack is
/// aligned for a call.
macro_rules! calling {
    ($name:ident, $register:literal, $during:ident) => {
        /// # Safety
        /// Slots alone lead here (see this file's head).
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "endbr64",
                concat!("mov ", $register, ", [rsp]"),
                "call {during}",
                "add rsp, 8",
                "ret",
                during = sym $during,
            )
        }
    };
}

calling!(execve_entry, "rcx", during_execve);
calling!(fexecve_entry, "rcx", during_fexecve);
calling!(fork_entry, "rdi", during_fork);
calling!(exit_entry, "rsi", during_exit);

/// # Safety
/// Slots alone lead here (see this file's head).
#[unsafe(naked)]
unsafe extern "C" fn careful_free_entry() {
    naked_asm!(
        "endbr64",
        push_registers!(rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11),
        "lea rdx, [rsp + 96]",
        "mov rcx, [rsp + 80]",
        "call {before}",
        pop_registers!(r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax),
        "ret",
        before = sym before_careful_free,
    )
}
