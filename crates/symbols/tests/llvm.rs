//! Compares our frames with those of `llvm-symbolizer`, on random addresses of real files.
//!
//! A thousand addresses for each file, ten thousand in a soak. At least 99.5 % must be equal in functions, files, lines
//! and inlining, and each difference must be covered by a named rule.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
mod common;
use common::*;
use std::path::Path;

#[test]
fn a_plain_program() {
    let folder = Folder::new();
    let program = folder.build("plain", &["-gdwarf-5"]);
    compare(&program, &program, &Search::default());
}

#[test]
fn dwarf_4() {
    let folder = Folder::new();
    let program = folder.build("dwarf4", &["-gdwarf-4"]);
    compare(&program, &program, &Search::default());
}

#[test]
fn dwz_within_a_file() {
    let folder = Folder::new();
    let program = folder.build("plain", &["-gdwarf-5"]);
    let small = folder.dwz(&program);
    assert!(small.metadata().unwrap().len() < program.metadata().unwrap().len());
    compare(&small, &small, &Search::default());
}

/// llvm-symbolizer 14 does not know `.gnu_debugaltlink`, so it is asked about the program before dwz.
#[test]
fn dwz_into_a_shared_file() {
    let folder = Folder::new();
    let program = folder.build("plain", &["-gdwarf-5"]);
    let (one, two, shared) = (folder.join("one"), folder.join("two"), folder.join("shared.debug"));
    std::fs::copy(&program, &one).unwrap();
    std::fs::copy(folder.build("other", &["-gdwarf-5", "-DOTHER"]), &two).unwrap();
    run("dwz", &["-m".as_ref(), shared.as_os_str(), one.as_os_str(), two.as_os_str()]);
    assert!(sections(&one).contains(".gnu_debugaltlink"));
    compare(&one, &program, &Search::default());
}

#[test]
fn compressed_sections() {
    let folder = Folder::new();
    let program = folder.build("compressed", &["-gdwarf-5", "-gz=zlib"]);
    assert!(readelf(&["-t"], &program).contains("COMPRESSED"));
    compare(&program, &program, &Search::default());
}

/// llvm-symbolizer 14 cannot unpack zstd, so it is asked about the program before compression.
#[test]
fn zstd_sections() {
    let folder = Folder::new();
    let program = folder.build("plain", &["-gdwarf-5"]);
    let packed = folder.join("packed");
    run("objcopy", &["--compress-debug-sections=zstd".as_ref(), program.as_os_str(), packed.as_os_str()]);
    assert!(readelf(&["-t"], &packed).contains("ZSTD"));
    compare(&packed, &program, &Search::default());
}

#[test]
fn split_into_dwo_files() {
    let folder = Folder::new();
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        let program = folder.build(&format!("split{version}"), &[version, "-gsplit-dwarf"]);
        compare(&program, &program, &Search::default());
    }
}

#[test]
fn packed_into_a_dwp_file() {
    let folder = Folder::new();
    let program = folder.build("split", &["-gdwarf-4", "-gsplit-dwarf"]);
    let before = ask_llvm(&program, &addresses(&program));
    run("dwp", &["-e".as_ref(), program.as_os_str(), "-o".as_ref(), folder.join("split.dwp").as_os_str()]);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "dwo") {
            std::fs::remove_file(path).unwrap();
        }
    }
    compare_with(&program, &before, &program, &Search::default());
}

#[test]
fn libc_with_its_debug_package() {
    let libc = ["/lib/x86_64-linux-gnu/libc.so.6"].iter().map(Path::new).find(|path| path.exists()).unwrap();
    compare(libc, &debug_file_of(libc), &Search::default());
}

#[test]
fn python_with_its_debug_package() {
    let python = Path::new("/usr/bin/python3.11");
    compare(python, &debug_file_of(python), &Search::default());
}

/// Without debug information both know only functions.
#[test]
fn node() {
    let node = which("node");
    compare(&node, &node, &Search::default());
}

#[test]
fn a_rust_program() {
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/program.rs");
    let program = folder.join("rust");
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let arguments = ["--edition", "2024", "-C", "debuginfo=2", "-O"].map(std::ffi::OsStr::new);
    let ends = [source.as_os_str(), "-o".as_ref(), program.as_os_str()];
    run(rustc, &[&arguments[..], &ends[..]].concat());
    compare(&program, &program, &Search::default());
}
