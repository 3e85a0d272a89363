//! The exported exec and spawn functions. See `capture::exec` for what they do.
use capture::exec::{Flavour, Spawn, run, spawn};
use capture::push_registers;

type Strings = *const *const u8;

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: usize, argv: Strings, envp: Strings) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function, which `run` asks for.
    unsafe { run(Flavour::Path, path, argv, Some(envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: usize, argv: Strings) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function, which `run` asks for.
    unsafe { run(Flavour::Path, path, argv, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: usize, argv: Strings) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function, which `run` asks for.
    unsafe { run(Flavour::Search, file, argv, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(file: usize, argv: Strings, envp: Strings) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function, which `run` asks for.
    unsafe { run(Flavour::Search, file, argv, Some(envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: i32, argv: Strings, envp: Strings) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function, which `run` asks for.
    unsafe { run(Flavour::Descriptor, fd as usize, argv, Some(envp)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function, which `spawn` asks for.
    unsafe { spawn(Spawn::Path, [a, b, c, d, e, f]) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i32 {
    // SAFETY: the arguments are those of the program's own call of this function, which `spawn` asks for.
    unsafe { spawn(Spawn::Search, [a, b, c, d, e, f]) }
}

/// Returns the environment of an execle, which follows the null at the end of its argument list.
///
/// # Safety
/// `list` is the list of arguments of an execle: strings, a null, and then the environment.
unsafe fn behind_null(mut list: Strings) -> Strings {
    // SAFETY: the caller promises execle's list: the loop stops at its null, and one more entry, the environment,
    // follows.
    unsafe {
        while !(*list).is_null() {
            list = list.add(1);
        }
        *list.add(1).cast::<Strings>()
    }
}

unsafe extern "C" fn listed(path: usize, argv: Strings) -> i32 {
    // SAFETY: only a shim of the macro `listed!` calls this, with the program's own arguments. It passes the list as an
    // array that ends with a null.
    unsafe { run(Flavour::Path, path, argv, None) }
}

unsafe extern "C" fn listed_search(file: usize, argv: Strings) -> i32 {
    // SAFETY: only a shim of the macro `listed!` calls this, with the program's own arguments. It passes the list as an
    // array that ends with a null.
    unsafe { run(Flavour::Search, file, argv, None) }
}

unsafe extern "C" fn listed_environment(path: usize, argv: Strings) -> i32 {
    // SAFETY: only a shim of the macro `listed!` calls this, with the program's own arguments. It passes the list as an
    // array that ends with a null.
    unsafe { run(Flavour::Path, path, argv, Some(behind_null(argv))) }
}

/// Defines a function with a variable number of arguments. Five arguments of the list are in registers, the others on
/// the stack just above the return address. The shim takes the return address off the stack and pushes the five there,
/// which makes one array of all.
macro_rules! listed {
    ($name:ident, $then:ident) => {
        capture::shim! {
            #[unsafe(no_mangle)]
            fn $name [
                "pop rax",
                ".cfi_def_cfa_offset 0",
                ".cfi_register rip, rax",
                push_registers!(cfi r9, r8, rcx, rdx, rsi),
                "mov rsi, rsp",
                push_registers!(cfi rax),
                ".cfi_offset rip, -48",
                "call {then}",
                "mov rcx, [rsp]",
                "add rsp, 48",
                ".cfi_adjust_cfa_offset -48",
                ".cfi_register rip, rcx",
                push_registers!(cfi rcx),
                "ret",
            ]
            then = sym $then,
        }
    };
}

listed!(execl, listed);
listed!(execlp, listed_search);
listed!(execle, listed_environment);
