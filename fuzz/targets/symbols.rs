//! ELF and DWARF of files that a trace names.
//!
//! The input is four addresses of 32 bits, then a file. Must hold: no panic, no long computation, and no large
//! allocation. An address has frames or none, and only the outermost frame is not inlined. Repeated queries return the
//! same answer.
#![no_main]
use format::{Module, SymbolState};
use heaptrack_fuzz::Input;
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use symbols::{Finder, Frame, Resolver, Search, Store};

const EXACT: u64 = 1 << 47;
const MOST_FRAMES: usize = 100_000;

/// A file in memory that has a path.
fn place() -> &'static OwnedFd {
    static PLACE: OnceLock<OwnedFd> = OnceLock::new();
    PLACE.get_or_init(|| memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("memory"))
}

/// The files of the corpus have no build-id, or this one.
const BUILD_ID: [u8; 2] = [1, 2];

fn answers(module: &mut Module, asked: &[u64], expected: &[u64]) -> Vec<Vec<Frame>> {
    // The recording claims to have started at the end of time, so no file is newer.
    let search = Search { started_unix_ns: u64::MAX, ..Search::default() };
    let (store, finder) = (Store::new(), Finder { search: &search, target: None });
    let mut resolver = Resolver::open(&store, module, finder, expected);
    if resolver.state().state == SymbolState::Mismatch {
        module.build_id = BUILD_ID.into();
        resolver = Resolver::open(&store, module, finder, expected);
    }
    asked.iter().map(|key| resolver.frames(*key)).collect()
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mut asked: Vec<u64> = (0..4).map(|_| input.u32() as u64 | EXACT).collect();
    asked.extend([0, 1, EXACT, u64::MAX >> 16]);
    let file = place();
    ftruncate(file, 0).expect("memory");
    pwrite(file, input.0, 0).expect("memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut module = Module { instance: 1, path, ..Module::default() };
    let found = answers(&mut module, &asked, &asked);
    for frames in &found {
        assert!(frames.len() < MOST_FRAMES);
        let outermost = frames.iter().rposition(|frame| !frame.inlined);
        assert!(frames.is_empty() || outermost == Some(frames.len() - 1));
        assert_eq!(frames.iter().filter(|frame| !frame.inlined).count(), usize::from(!frames.is_empty()));
    }
    // Expected addresses are only read earlier. The answers must be the same.
    assert_eq!(answers(&mut module, &asked, &[]), found);
});
