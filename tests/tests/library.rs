//! The capture library as it arrives in a target: its dependencies, its exports, and the registers that it uses.
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::{Folder, Program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads the library from the memory of a recorded program, so these are the bytes that run there.
fn library(folder: &Folder) -> PathBuf {
    let program = Program::target("stops").arg("60000");
    let running = program.start();
    let target = running.target(&program);
    let copy = folder.join("library.so");
    wait_for("the library to be mapped", || {
        let maps = std::fs::read_to_string(format!("/proc/{target}/maps")).ok()?;
        let mut ours = maps.lines().filter(|line| line.contains("heaptrack") && line.contains(" r--p 00000000 "));
        let read =
            |line: &str| std::fs::read(format!("/proc/{target}/map_files/{}", line.split_whitespace().next()?)).ok();
        let bytes = ours.find_map(|line| read(line).filter(|bytes| bytes.starts_with(b"\x7fELF")))?;
        std::fs::write(&copy, bytes).ok()
    });
    signal("TERM", &[target]);
    running.finish();
    copy
}

fn output(tool: &str, arguments: &[&str], file: &Path) -> String {
    let output =
        Command::new(tool).args(arguments).arg(file).output().unwrap_or_else(|error| panic!("{tool}: {error}"));
    assert!(output.status.success(), "{tool} {arguments:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn it_needs_nothing_and_exports_only_hooks_and_the_api() {
    let folder = Folder::new();
    let library = library(&folder);
    let dynamic = output("readelf", &["-dW"], &library);
    assert!(!dynamic.contains("(NEEDED)"), "{dynamic}");
    assert!(!dynamic.contains("(TEXTREL)"), "{dynamic}");
    let segments = output("readelf", &["-lW"], &library);
    assert!(!segments.contains(" TLS "), "{segments}");
    let relocations = output("readelf", &["-rW"], &library);
    // In `__libc_stack_end` the loader stores where main's stack ends. The reference is weak, so that the library also
    // loads with a loader that lacks it.
    let known = |line: &str| line.contains("R_X86_64_RELATIVE") || line.contains(" __libc_stack_end ");
    let others: Vec<&str> = relocations.lines().filter(|line| line.contains("R_X86_64_") && !known(line)).collect();
    assert!(others.is_empty(), "{others:?}");
    let mut exported: Vec<String> = output("nm", &["-D", "--defined-only"], &library)
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned))
        .collect();
    exported.sort();
    let expected = [
        "aligned_alloc",
        "calloc",
        "cfree",
        "daemon",
        "dlclose",
        "dlopen",
        "execl",
        "execle",
        "execlp",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "fexecve",
        "fork",
        "free",
        "heaptrack_core_table",
        "heaptrack_free",
        "heaptrack_init",
        "heaptrack_inject",
        "heaptrack_invalidate_module_cache",
        "heaptrack_malloc",
        "heaptrack_pause",
        "heaptrack_realloc",
        "heaptrack_realloc2",
        "heaptrack_resume",
        "heaptrack_stop",
        "heaptrack_warning",
        "madvise",
        "malloc",
        "memalign",
        "mmap",
        "mmap64",
        "mremap",
        "munmap",
        "popen",
        "posix_memalign",
        "posix_spawn",
        "posix_spawnp",
        "prctl",
        "pvalloc",
        "realloc",
        "reallocarray",
        "shmat",
        "shmdt",
        "syscall",
        "system",
        "valloc",
        "vfork",
    ];
    assert_eq!(exported, expected);
    let undefined = output("nm", &["-D", "--undefined-only"], &library);
    // Functions that few modules define are weak and undefined in the file. No relocation refers to them, as
    // checked above.
    let is_allocators = |name: &str| {
        ["_Znw", "_Zna", "_Zdl", "_Zda", "tc_", "mi_"].iter().any(|start| name.starts_with(start))
            || name.ends_with("allocx")
            || ["free_sized", "free_aligned_sized"].contains(&name)
    };
    let mut others = undefined.lines().filter_map(|line| line.trim().strip_prefix("w ").or(Some(line)));
    let others: Vec<&str> = others.by_ref().filter(|name| !is_allocators(name)).collect();
    assert_eq!(others, ["__libc_stack_end"], "symbols that other libraries would have to define");
}

#[test]
fn it_touches_no_vector_register() {
    let folder = Folder::new();
    let code = output("objdump", &["-d", "--no-show-raw-insn"], &library(&folder));
    let touching: Vec<&str> = code
        .lines()
        .filter(|line| ["%xmm", "%ymm", "%zmm", "%mm", "%st"].iter().any(|register| line.contains(register)))
        .collect();
    assert!(touching.is_empty(), "{} instructions, the first: {:?}", touching.len(), touching.first());
}
