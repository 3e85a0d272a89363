//! Messages to `heaptrack mcp`.
//!
//! The input is what a client writes: lines. The server reads the traces of `crates/format/tests/data`. Must hold: no panic.
//! Every line of the output is one JSON object, either an answer or an error, and there are at most as many as lines of input.
//! No answer is larger than a page.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mcp::{Folders, MOST_BYTES, Options, serve};
use serde_json::Value;
use std::path::PathBuf;

/// A page has the bytes of its rows twice, as text and as an object, and some facts about the trace.
const LARGEST: usize = 8 * MOST_BYTES;

fuzz_target!(|data: &[u8]| {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/format/tests/data"));
    let Ok(folders) = Folders::new(&[folder]) else { return };
    let options = Options { folders, recorder: None, version: "0".into() };
    let mut output = Vec::new();
    assert!(serve(data, &mut output, &options).is_ok());
    let lines: Vec<&[u8]> = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    assert!(lines.len() <= data.split(|byte| *byte == b'\n').count());
    for line in lines {
        assert!(line.len() <= LARGEST, "an answer of {} bytes", line.len());
        let answer: Value = serde_json::from_slice(line).expect("JSON");
        assert_eq!(answer["jsonrpc"], "2.0");
        assert!(answer.get("result").is_some() != answer.get("error").is_some());
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(!text.contains("fault in heaptrack"), "a panic: {}", String::from_utf8_lossy(data));
    }
});
