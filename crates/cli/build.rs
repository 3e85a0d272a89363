//! Builds the capture library that the binary carries.
//!
//! The library is a Rust static archive, linked here by the system linker: rustc's own shared objects export every
//! `no_mangle` symbol (memcpy would become everybody's) and cannot be told to leave out libc. Flags that matter:
//! no vector registers (the hook must not touch what the ABI lets a careless caller keep), unwind tables (debuggers
//! walk through the hooks), and no undefined symbols: a panic that can be reached refers to one, see capture-so.
#![allow(clippy::expect_used, clippy::print_stdout)]
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const FLAGS: &[&str] = &[
    "-Ctarget-feature=-sse,-sse2,-sse3,-ssse3,-sse4.1,-sse4.2,-avx,-avx2,-mmx",
    "-Cforce-unwind-tables=yes",
    "-Crelocation-model=pic",
    "-Ctarget-cpu=x86-64",
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let crates = here.parent().expect("crates/cli is in crates").to_path_buf();
    for part in ["capture-so", "capture", "channel"] {
        println!("cargo::rerun-if-changed={}", crates.join(part).join("src").display());
        println!("cargo::rerun-if-changed={}", crates.join(part).join("Cargo.toml").display());
    }
    let archive = compile(&crates.join("capture-so"), &out.join("capture"));
    let library = out.join("libheaptrack_capture.so");
    link(&archive, &library, &out);
    println!("cargo::rustc-env=HEAPTRACK_CAPTURE_SO={}", library.display());
}

fn compile(package: &Path, target: &Path) -> PathBuf {
    let cargo = env::var_os("CARGO").expect("cargo sets it");
    let mut command = Command::new(cargo);
    command.current_dir(package).args(["build", "--release", "--quiet", "--target-dir"]).arg(target);
    command.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    // What the outer build was told is about the outer build.
    for variable in
        ["RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_PROFILE_RELEASE_LTO"]
    {
        command.env_remove(variable);
    }
    let status = command.status().unwrap_or_else(|error| fail(&format!("cargo cannot be run: {error}")));
    if !status.success() {
        fail("the capture library does not compile");
    }
    target.join("release").join("libcapture_so.a")
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
            "-Wl,-z,relro",
            "-Wl,-z,noexecstack",
            "-Wl,--hash-style=both",
            "-Wl,--build-id=sha1",
            // What programs are linked to: the loader then takes a preloaded one for it, and has no second copy.
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

/// Everything that programs may bind to; all else is local.
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
    const LOADER: &[&str] = &["dlclose"];
    // For the profiler that lays the library out in a process that runs already.
    const TABLE: &[&str] = &["heaptrack_core_table"];
    let hooks = capture::hooks::NAMES.iter().map(|name| String::from_utf8_lossy(name).into_owned());
    let others = EXEC.iter().chain(SANDBOX).chain(LOADER).chain(TABLE).chain(capture::api::NAMES);
    let names: Vec<String> = hooks.chain(others.map(|s| s.to_string())).collect();
    format!("{{ global: {}; local: *; }};\n", names.join("; "))
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    std::process::exit(1)
}
