//! Creates an empty file in place of the capture library that the program embeds, because parsing a command line does
//! not need it. (`run.sh` creates the empty page.)
use std::path::PathBuf;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let library = out.join("libheaptrack_capture.so");
    std::fs::write(&library, b"").expect("the output folder can be written to");
    println!("cargo::rustc-env=HEAPTRACK_CAPTURE_SO={}", library.display());
    println!("cargo::rerun-if-changed=build.rs");
}
