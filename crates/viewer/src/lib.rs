//! The engine for browsers and node. `make viewer` builds it as WebAssembly.
//!
//! Receives: files as bytes, and questions. Returns: JSON. Must hold: answers come from the functions that the server
//! (`crates/web`) and `print --view` call. A file is read in slices and in steps, so that its caller, which has one
//! thread, can answer other questions meanwhile.
//!
//! `exports.rs` is the border to JavaScript, and exists only in WebAssembly. All else is tested natively, too.
#![cfg_attr(not(target_arch = "wasm32"), forbid(unsafe_code))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

#[cfg(target_arch = "wasm32")]
mod exports;
mod file;
mod progress;
mod viewer;

pub use viewer::Viewer;
