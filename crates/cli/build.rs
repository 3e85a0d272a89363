//! Builds the capture library that the binary carries.
//!
//! The library is a Rust static archive, which the system linker links here. A shared object of rustc would export
//! every `no_mangle` symbol (also memcpy, to the whole program) and would need libc. These flags matter: no vector
//! registers (a hook must not change registers that a caller relies on), unwind tables (debuggers walk through the
//! hooks), and no undefined symbols, because a reachable panic refers to one (see capture-so).
#![allow(clippy::expect_used, clippy::print_stdout)]
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const FLAGS: &[&str] = &[
    "-Ctarget-feature=-sse,-sse2,-sse3,-ssse3,-sse4.1,-sse4.2,-avx,-avx2,-mmx",
    "-Cforce-unwind-tables=yes",
    "-Crelocation-model=pic",
    "-Ctarget-cpu=x86-64",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
    "--edition=2024",
    "--target=x86_64-unknown-linux-gnu",
    "-Aunexpected_cfgs",
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let crates = here.parent().expect("crates/cli is in crates").to_path_buf();
    for part in ["capture-so", "capture", "channel"] {
        println!("cargo::rerun-if-changed={}", crates.join(part).join("src").display());
        println!("cargo::rerun-if-changed={}", crates.join(part).join("Cargo.toml").display());
    }
    let archive = compile(&crates, &out.join("capture"));
    let library = out.join("libheaptrack_capture.so");
    link(&archive, &library, &out);
    hide_families(&library);
    println!("cargo::rustc-env=HEAPTRACK_CAPTURE_SO={}", library.display());
}

/// Compiles the three crates that are in the library, and returns the archive of all their code.
///
/// They have no other dependencies, so rustc is called without cargo. Cargo would put the absolute path of a crate
/// outside of the workspace of `capture-so` into the names of its functions, and the same sources would give another
/// library in every folder. The outer build's flags (`RUSTFLAGS`, the profile) do not apply to this library either.
fn compile(crates: &Path, out: &Path) -> PathBuf {
    fs::create_dir_all(out).unwrap_or_else(|error| fail(&format!("cannot make {}: {error}", out.display())));
    let source = |name: &str| crates.join(name).join("src/lib.rs");
    let library = |name: &str| out.join(format!("lib{name}.rlib"));
    let uses = |name: &str| format!("--extern={name}={}", library(name).display());
    // The code of these two is generated when all of it is known.
    let part = ["--crate-type=rlib", "-Clinker-plugin-lto"];
    let channel = library("channel");
    rustc(crates, out, "channel", &source("channel"), &channel, &part, &[]);
    let capture = library("capture");
    rustc(crates, out, "capture", &source("capture"), &capture, &part, &["--cfg=feature=\"shims\"", &uses("channel")]);
    let archive = out.join("libcapture_so.a");
    let whole = ["--crate-type=staticlib", "-Clto=fat"];
    rustc(crates, out, "capture_so", &source("capture-so"), &archive, &whole, &[&uses("capture")]);
    archive
}

fn rustc(crates: &Path, out: &Path, name: &str, source: &Path, product: &Path, form: &[&str], more: &[&str]) {
    let mut command = Command::new(env::var_os("RUSTC").expect("cargo sets it"));
    command.arg(format!("--crate-name={name}")).arg(source).arg("-o").arg(product).args(FLAGS).args(form).args(more);
    command.arg(format!("-Cmetadata={name}")).arg(format!("-Ldependency={}", out.display()));
    command.arg(format!("--remap-path-prefix={}=crates", crates.display()));
    if env::var_os("CARGO_FEATURE_CHECKS").is_some() {
        command.arg("--cfg=feature=\"checks\"");
    }
    // Cargo's job server cannot be reached from here.
    command.env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS");
    let status = command.status().unwrap_or_else(|error| fail(&format!("rustc cannot be run: {error}")));
    if !status.success() {
        fail(&format!("the crate {name} does not compile for the capture library"));
    }
}

fn link(archive: &Path, library: &Path, out: &Path) {
    let exports = out.join("exports.map");
    fs::write(&exports, export_map()).unwrap_or_else(|error| fail(&format!("cannot write the export map: {error}")));
    let status = Command::new("cc")
        .args(["-shared", "-nostdlib", "-nostartfiles", "-o"])
        .arg(library)
        .arg("-Wl,--whole-archive")
        .arg(archive)
        .arg("-Wl,--no-whole-archive")
        .args([
            "-Wl,--gc-sections",
            "-Wl,-Bsymbolic",
            "-Wl,--no-undefined",
            "-Wl,--eh-frame-hdr",
            "-Wl,-z,now",
            // Our constructor must run first. Otherwise the first allocation may come from a constructor that changes
            // the environment, and our variables would be removed in the middle of libc's setenv.
            "-Wl,-z,initfirst",
            "-Wl,-z,separate-code",
            "-Wl,-z,relro",
            "-Wl,-z,noexecstack",
            "-Wl,--hash-style=both",
            "-Wl,--build-id=sha1",
            // The name that programs link to. The loader then uses the preloaded library for it, and loads no second
            // copy.
            "-Wl,-soname,libheaptrack_preload.so",
            "-Wl,--strip-debug",
        ])
        .arg(format!("-Wl,--version-script={}", exports.display()))
        .status()
        .unwrap_or_else(|error| fail(&format!("cc cannot be run: {error}")));
    if !status.success() {
        fail("the capture library does not link");
    }
}

/// Returns the linker's version script: the symbols that programs may bind to are global, all others are local.
fn export_map() -> String {
    const EXEC: &[&str] = &[
        "execve",
        "execv",
        "execvp",
        "execvpe",
        "fexecve",
        "execl",
        "execlp",
        "execle",
        "posix_spawn",
        "posix_spawnp",
    ];
    const SANDBOX: &[&str] = &["prctl", "syscall"];
    const FORK: &[&str] = &["fork", "vfork", "system", "popen", "daemon"];
    const LOADER: &[&str] = &["dlclose", "dlopen"];
    // For attach, which places the library in a running process.
    const TABLE: &[&str] = &["heaptrack_core_table"];
    let families = capture::hooks::FAMILY_HOOKS.iter().map(|hook| hook.name);
    let maps = capture::mappings::NAMES.iter().copied();
    let hooks = capture::hooks::NAMES.iter().copied().chain(families).chain(maps);
    let hooks = hooks.map(|name| String::from_utf8_lossy(name).into_owned());
    let others = EXEC.iter().chain(SANDBOX).chain(FORK).chain(LOADER).chain(TABLE).chain(capture::api::NAMES);
    let names: Vec<String> = hooks.chain(others.map(|s| s.to_string())).collect();
    format!("{{ global: {}; local: *; }};\n", names.join("; "))
}

/// Makes the functions that only an allocator has undefined in the library's file. `capture::families` defines them in
/// memory if the program has such an allocator. Their entries in the hash table stay.
fn hide_families(library: &Path) {
    let mut bytes = fs::read(library).unwrap_or_else(|error| fail(&format!("cannot read the library: {error}")));
    let names: Vec<&[u8]> = capture::hooks::FAMILY_HOOKS.iter().map(|hook| hook.name).collect();
    match undefine(&mut bytes, &names) {
        Some(hidden) if hidden == names.len() => (),
        hidden => fail(&format!("of {} names of allocators, {hidden:?} are in the library", names.len())),
    }
    fs::write(library, bytes).unwrap_or_else(|error| fail(&format!("cannot write the library: {error}")));
}

/// Makes symbols of an ELF file's dynamic table weak and undefined. Returns the number of symbols that it changed.
fn undefine(file: &mut [u8], names: &[&[u8]]) -> Option<usize> {
    const SHT_DYNSYM: u64 = 11;
    const SECTION_SIZE: usize = 64;
    const SYMBOL_SIZE: usize = 24;
    const WEAK_FUNCTION: u8 = 2 << 4 | 2;
    let number = |file: &[u8], at: usize, len: usize| {
        let bytes = file.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | *byte as u64))
    };
    let (sections, count) = (number(file, 40, 8)? as usize, number(file, 60, 2)? as usize);
    let section = |index: usize| sections + index * SECTION_SIZE;
    let table = (0..count).find(|i| number(file, section(*i) + 4, 4) == Some(SHT_DYNSYM)).map(section)?;
    let (symbols, size) = (number(file, table + 24, 8)? as usize, number(file, table + 32, 8)? as usize);
    let strings = number(file, section(number(file, table + 40, 4)? as usize) + 24, 8)? as usize;
    let mut hidden = 0;
    for at in (symbols..symbols + size).step_by(SYMBOL_SIZE) {
        let name = strings + number(file, at, 4)? as usize;
        let is_it = |wanted: &&[u8]| {
            let stands = file.get(name..name + wanted.len() + 1);
            stands.and_then(|bytes| bytes.strip_suffix(b"\0")) == Some(*wanted)
        };
        if names.iter().any(is_it) {
            // Name, then info, visibility, section, value and size.
            *file.get_mut(at + 4)? = WEAK_FUNCTION;
            file.get_mut(at + 6..at + SYMBOL_SIZE)?.fill(0);
            hidden += 1;
        }
    }
    Some(hidden)
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    std::process::exit(1)
}
