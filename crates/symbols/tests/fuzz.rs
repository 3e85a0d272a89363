//! Malformed ELF and DWARF must not cause a panic, and the lookups in one file must take less than 20 seconds.
//!
//! The inputs are real files. Random bytes were changed or copied within the headers and the sections that are read,
//! and some files were truncated. `HEAPTRACK_FUZZ_SECONDS` sets how long it runs (3 by default).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
mod common;
use common::*;
use format::Module;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};
use symbols::{Finder, Resolver, Store};

const EXACT: u64 = 1 << 47;

struct Seed {
    bytes: Vec<u8>,
    /// (offset, length) of the sections that are changed.
    sections: Vec<(usize, usize)>,
    addresses: Vec<u64>,
    build_id: Vec<u8>,
}

fn seed_of(path: &Path) -> Seed {
    let list = sections(path);
    let mut found = vec![(0, 64)];
    for line in list.lines().filter(|line| line.trim_start().starts_with('[')) {
        let Some((_, rest)) = line.split_once(']') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let wanted = [".debug_", ".symtab", ".strtab", ".dynsym", ".dynstr", ".gnu_debug", ".note.gnu"];
        if fields.len() > 4 && wanted.iter().any(|name| fields[0].starts_with(name)) {
            let number = |at: usize| usize::from_str_radix(fields[at], 16).unwrap();
            found.push((number(3), number(4)));
        }
    }
    let bytes = std::fs::read(path).unwrap();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    found.push((headers, bytes.len() - headers));
    Seed { sections: found, addresses: addresses(path).into_iter().take(60).collect(), build_id: build_id(path), bytes }
}

fn change(bytes: &mut Vec<u8>, sections: &[(usize, usize)], rng: &mut Rng) {
    for _ in 0..1 + rng.u64(..24) {
        let (from, length) = sections[rng.usize(..sections.len())];
        if length == 0 || from + length > bytes.len() {
            continue;
        }
        let at = from + rng.usize(..length);
        match rng.u64(..8) {
            0 => bytes[at] = 0xff,
            1 => bytes[at] = 0,
            2 => bytes[at] ^= 1 << rng.u64(..8),
            3 => {
                let end = (at + 8).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
            4 => {
                let other = from + rng.usize(..length);
                let count = rng.usize(..64).min(from + length - at.max(other));
                bytes.copy_within(other..other + count, at);
            }
            5 if rng.u64(..16) == 0 => bytes.truncate(at.max(64)),
            _ => bytes[at] = rng.u8(..),
        }
    }
}

#[test]
fn malformed_files_never_panic() {
    let folder = Folder::new();
    let plain = folder.build("plain", &["-gdwarf-5"]);
    let small = folder.dwz(&plain);
    let seeds = [
        seed_of(&plain),
        seed_of(&folder.build("dwarf4", &["-gdwarf-4"])),
        seed_of(&folder.build("packed", &["-gz=zlib"])),
        seed_of(&small),
        seed_of(&folder.build("split", &["-gsplit-dwarf"])),
    ];
    let seconds = std::env::var("HEAPTRACK_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let end = Instant::now() + Duration::from_secs(seconds);
    let first = seed();
    let mut rounds = 0u64;
    let path = folder.join("changed");
    while Instant::now() < end {
        let mut rng = Rng::with_seed(first.wrapping_add(rounds));
        let seed = &seeds[rng.usize(..seeds.len())];
        let mut bytes = seed.bytes.clone();
        change(&mut bytes, &seed.sections, &mut rng);
        std::fs::write(&path, &bytes).unwrap();
        let module = Module {
            instance: 1,
            path: path.to_string_lossy().into_owned(),
            build_id: seed.build_id.clone(),
            ..Module::default()
        };
        let work = || {
            let store = Store::new();
            let search = Search::default();
            // Some addresses are expected, some are not, and sometimes none is.
            let expected: Vec<u64> = seed.addresses.iter().map(|address| address | EXACT).collect();
            let expected = &expected[..rng.usize(..=expected.len())];
            let mut resolver = Resolver::open(&store, &module, Finder { search: &search, target: None }, expected);
            for address in &seed.addresses {
                resolver.frames(address | EXACT);
            }
            resolver.frames(rng.u64(..) >> 17);
            resolver.frames(u64::MAX >> 16);
            resolver.frames(0);
        };
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(work));
        assert!(outcome.is_ok(), "HEAPTRACK_SEED={} panics", first.wrapping_add(rounds));
        assert!(started.elapsed() < Duration::from_secs(20), "HEAPTRACK_SEED={} hangs", first.wrapping_add(rounds));
        rounds += 1;
    }
    println!("{rounds} files");
    assert!(rounds > seconds, "{rounds} files in {seconds} s");
}
