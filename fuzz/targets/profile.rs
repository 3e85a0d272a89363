//! Heap profiles of other tools.
//!
//! The input is a file, plain or packed. If it is not recognised, its first byte chooses the format of the rest. Must hold: no
//! panic. Every stack refers to frames, every frame to functions and to a module, and every function to texts that are there.
#![no_main]
use import::{HeapProfile, Kind};
use libfuzzer_sys::fuzz_target;

const KINDS: [Kind; 5] = [Kind::Pprof, Kind::Dhat, Kind::Massif, Kind::Gperftools, Kind::Jemalloc];
const MOST: u64 = 1 << 20;

fn check(profile: &HeapProfile) {
    for stack in &profile.stacks {
        assert!(stack.frames.iter().all(|frame| (*frame as usize) < profile.frames.len()));
    }
    for frame in &profile.frames {
        assert!(frame.module.is_none_or(|module| module < profile.modules.len()));
        assert!(frame.lines.iter().all(|line| (line.function as usize) < profile.functions.len()));
    }
    for function in &profile.functions {
        let texts = [function.name, function.system_name, function.file];
        assert!(texts.iter().all(|text| (*text as usize) < profile.strings.len()));
    }
    assert!(!profile.known.is_empty());
}

fuzz_target!(|data: &[u8]| {
    let Ok(unpacked) = import::unpacked(data, MOST) else { return };
    let (kind, bytes) = match (import::recognise(&unpacked), unpacked.split_first()) {
        (Some(kind), _) => (kind, &unpacked[..]),
        (None, Some((first, rest))) => (KINDS[*first as usize % KINDS.len()], rest),
        (None, None) => return,
    };
    if let Ok(profile) = import::read(kind, bytes) {
        check(&profile);
    }
});
