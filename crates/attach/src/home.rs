//! The home: one piece of memory in the target that holds everything that stays there.
//!
//! ```text
//! home ->  guard (1 page) | gate (1) | journal and room for signal frames (8) | image .. | guard (1)
//! ```
//! The image is the capture library. Must hold: the target itself maps the memory, by system calls that are safe if the
//! profiler dies. It is never unmapped, because a thread may be anywhere in it. A later attach of the same build uses
//! it again, if its journal has room.
use crate::error::Refusal;
use crate::image::{CoreAddresses, Image};
use crate::journal::{self, Journal};
use crate::memory::Memory;
use crate::remote::Remote;
use std::io;

const PAGE: u64 = 4096;
const GATE: u64 = PAGE;
const JOURNAL: u64 = 2 * PAGE;
const JOURNAL_PAGES: u64 = 8 * PAGE;
const IMAGE: u64 = JOURNAL + JOURNAL_PAGES;
/// Offsets from the journal's address: an `r_debug` for a program without a loader, then room for signal frames.
pub const BOARD: u64 = journal::LENGTH;
pub const FRAMES: u64 = journal::LENGTH + 512;
pub const FRAMES_LENGTH: u64 = JOURNAL_PAGES - FRAMES;

/// The image id while the image is not complete. If the profiler dies meanwhile, the next attach makes another home.
const NOT_FILLED: u64 = 0;

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Lets the target map the memory, and writes only the journal into it.
pub fn make(remote: &mut Remote<'_>, memory: &Memory, image: &Image) -> Result<Journal, Refusal> {
    let length = IMAGE + image.length + PAGE;
    let refused = || Refusal::call("memory for the recorder");
    let home = remote.map(0, length, libc::PROT_NONE, ANONYMOUS | libc::MAP_NORESERVE, -1).map_err(refused())?;
    let journal = Journal {
        at: home + JOURNAL,
        image_id: NOT_FILLED,
        home,
        home_length: length,
        gate: home + GATE,
        image: home + IMAGE,
        ..Journal::default()
    };
    let mut map = |at: u64, length: u64, protection: i32| {
        remote.map(at, length, protection, ANONYMOUS | libc::MAP_FIXED, -1).map_err(refused())
    };
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    map(journal.at, JOURNAL_PAGES, writable)?;
    map(journal.gate, PAGE, writable)?;
    for segment in &image.segments {
        let (write, execute) = (segment.flags & 2 != 0, segment.flags & 1 != 0);
        let protection =
            libc::PROT_READ | if write { libc::PROT_WRITE } else { 0 } | if execute { libc::PROT_EXEC } else { 0 };
        map(journal.image + segment.at, segment.length, protection)?;
    }
    // In a forked child the page is then zero and the gate shut. Otherwise the child would write to its parent's rings.
    remote
        .advise(journal.gate, PAGE, libc::MADV_WIPEONFORK)
        .map_err(Refusal::call("a page that forks do not share"))?;
    // Only keeps core dumps small, so a failure does not matter.
    let _ = remote.advise(journal.at, JOURNAL_PAGES, libc::MADV_DONTDUMP);
    journal.write(memory).map_err(|error| Refusal::Call { what: "a write to its memory", error })?;
    Ok(journal)
}

/// Writes the image, and then the image's id to the journal. No thread runs in the image yet.
pub fn fill(memory: &Memory, journal: &mut Journal, image: &Image) -> Result<CoreAddresses, Refusal> {
    let (content, places) =
        image.at(journal.image).ok_or(Refusal::Image("the embedded capture library cannot be relocated"))?;
    for segment in &image.segments {
        let bytes = content.get(segment.at as usize..(segment.at + segment.length) as usize).unwrap_or_default();
        memory
            .write(journal.image + segment.at, bytes)
            .map_err(|error| Refusal::Call { what: "a write to its memory", error })?;
    }
    journal.image_id = image.id;
    journal.write(memory).map_err(|error| Refusal::Call { what: "a write to its memory", error })?;
    Ok(places)
}

/// Returns the addresses in an image that is in the target already.
pub fn places(journal: &Journal, image: &Image) -> Result<CoreAddresses, Refusal> {
    let found = image.at(journal.image).ok_or(Refusal::Image("the embedded capture library cannot be relocated"))?;
    Ok(found.1)
}

/// Makes an `r_debug` for a program without a loader. It lists only the program, and never changes.
pub fn make_board(memory: &Memory, journal: &Journal, bias: u64) -> io::Result<u64> {
    let board = journal.at + BOARD;
    let map = fake_map(journal);
    let name = map + 40;
    memory.write_words(board, &[1, map, 0, 0, 0, 0])?;
    memory.write_words(map, &[bias, name, 0, 0, 0, 0])?;
    Ok(board)
}

/// The address of the list entry that `make_board` makes for a program without a loader.
pub const fn fake_map(journal: &Journal) -> u64 {
    journal.at + BOARD + 48
}
