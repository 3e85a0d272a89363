//! What the kernel and the loader left in memory at the start: the auxiliary vector, the loader's `r_debug`, the
//! environment.
use crate::elf::{self, Auxiliary, Debug, Headers, LinkMap, Symbols};
use crate::environment::Environment;
use crate::{real, sys};

/// Returns glibc's pointer to argc on the initial stack. Null with another libc.
pub(super) fn stack_end() -> *const u64 {
    let variable: *const *const u64;
    // SAFETY: the loader fills the word at GOTPCREL with the address of the variable, or with 0 if no module defines
    // the weak symbol. The variable is a pointer in glibc's loader, which is never unloaded; 0 is not followed.
    unsafe {
        core::arch::asm!(
            ".weak __libc_stack_end",
            "mov {}, qword ptr [rip + __libc_stack_end@GOTPCREL]",
            out(reg) variable,
            options(nostack, preserves_flags, readonly),
        );
        if variable.is_null() { core::ptr::null() } else { *variable }
    }
}

/// Reads the auxiliary vector from the initial stack. If the libc does not say where that is, reads it from /proc.
pub(super) fn auxiliary(stack_end: *const u64) -> Option<Auxiliary> {
    if stack_end.is_null() {
        return Auxiliary::from_proc();
    }
    // SAFETY: not null, so it is the value of glibc's `__libc_stack_end`, which points to argc where the kernel put it.
    unsafe { Auxiliary::from_stack(stack_end) }
}

/// Finds the loader's `r_debug` through the program's own dynamic section.
pub(super) fn find_debug(program: Headers) -> Option<*const Debug> {
    let (bias, is_certain) = program.bias();
    let dynamic = program.dynamic(bias)? as *const [u64; 2];
    // The system call is made only if necessary, because the program may be under a filter that kills it for the call.
    if !is_certain && !sys::is_readable(dynamic as usize) {
        return None;
    }
    // SAFETY: the program's dynamic section, mapped and terminated.
    let debug = unsafe { elf::dynamic_value(dynamic, elf::DT_DEBUG) }.map(|debug| debug as *const Debug);
    debug.or_else(|| debug_of_loader(bias, dynamic)).filter(|debug| !debug.is_null())
}

/// Finds `r_debug` if a musl loader was run as a command. Then the kernel started the loader itself, and one of its
/// variables points to `r_debug`.
pub(super) fn debug_of_loader(bias: u64, dynamic: *const [u64; 2]) -> Option<*const Debug> {
    let null = core::ptr::null();
    let loader = LinkMap { bias, name: null, dynamic, next: core::ptr::null(), prev: core::ptr::null() };
    // SAFETY: the program that the kernel started is mapped for as long as the process runs.
    let variable = unsafe { Symbols::of(&loader) }?.find(b"_dl_debug_addr")? as *const *const Debug;
    // SAFETY: musl's variable of that name, found in its own table of symbols.
    Some(unsafe { *variable })
}

/// # Safety
/// `stack_end` is null or points to argc on the initial stack. `maps` is the loader's list, and it is stable.
pub(super) unsafe fn find_environment(stack_end: *const u64, maps: *const LinkMap) -> Option<Environment> {
    // SAFETY: the ABI puts argc, argv, a null and then the environment at `stack_end`. `maps` is the loader's stable
    // list, by the caller's promise; `environ` is a variable of libc or of the program, which are never unloaded.
    unsafe {
        if !stack_end.is_null() {
            return Some(Environment(stack_end.add(*stack_end as usize + 2) as *mut *mut u8));
        }
        let variable = real::find_anywhere(maps, b"environ")? as *const *mut *mut u8;
        let list = *variable;
        (!list.is_null()).then_some(Environment(list))
    }
}
