//! How much of the memory in transparent huge pages was never written.
//!
//! Receives: the mappings and the resident pages. Returns: the bytes in huge pages, and how many of them are in pages of 4 kB that hold nothing but
//! zeros. Must hold: at most `SAMPLES` huge pages are read; a page that is not resident is not read, because a read would map it.
//!
//! The kernel fills a huge page with zeros when the program touches its first byte, and all of its 2 MB are resident from then on. A
//! page of zeros in it may also be one that the program has written zeros to, so the number is an estimate.
use super::block_cover::PAGE;
use super::resident_pages::{PageMap, Residence};
use super::smaps::MappedRange;
use format::MemoryFacts;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const HUGE: u64 = 2 << 20;
/// Huge pages that are read at one instant, spread over all of them. It takes about 5 ms.
const SAMPLES: usize = 8;
/// Less memory in huge pages is not looked at.
const LEAST: u64 = 4 * HUGE;
const PIECE: usize = 64 << 10;

pub fn add_facts(process: &Path, mappings: &[MappedRange], pages: &PageMap, facts: &mut MemoryFacts) {
    facts.huge_bytes = mappings.iter().map(|mapping| mapping.huge_bytes).sum();
    if facts.huge_bytes < LEAST {
        return;
    }
    let Ok(memory) = File::open(process.join("mem")) else { return };
    let all = aligned(mappings);
    let (mut read, mut zeros) = (0, 0);
    // Of a mapping with some huge pages, the others are not wholly resident, as a rule. So more places are tried than are read.
    let tries = all.len().min(4 * SAMPLES);
    for place in (0..tries).filter_map(|at| all.get(at * all.len() / tries)) {
        if read == SAMPLES as u64 * HUGE {
            break;
        }
        if is_resident(pages, *place)
            && let Some(bytes) = zero_bytes(&memory, *place)
        {
            read += HUGE;
            zeros += bytes;
        }
    }
    if read > 0 {
        facts.huge_zero_bytes = (u128::from(facts.huge_bytes) * u128::from(zeros) / u128::from(read)) as u64;
    }
}

/// The places in mappings with huge pages where a huge page can be.
fn aligned(mappings: &[MappedRange]) -> Vec<u64> {
    let with_huge = mappings.iter().filter(|mapping| mapping.huge_bytes > 0);
    let places = |mapping: &MappedRange| {
        let first = mapping.start.next_multiple_of(HUGE);
        (first..mapping.end).step_by(HUGE as usize).filter({
            let end = mapping.end;
            move |place| place + HUGE <= end
        })
    };
    with_huge.flat_map(places).collect()
}

fn is_resident(pages: &PageMap, place: u64) -> bool {
    let mut is_resident = true;
    let looked = pages.for_each(place, place + HUGE, |_, residence| is_resident &= residence == Residence::Resident);
    looked.is_ok() && is_resident
}

/// Returns how many bytes are in pages of zeros, or `None` if the memory cannot be read.
fn zero_bytes(memory: &File, place: u64) -> Option<u64> {
    let mut piece = vec![0; PIECE];
    let mut zeros = 0;
    for at in (place..place + HUGE).step_by(PIECE) {
        memory.read_exact_at(&mut piece, at).ok()?;
        let is_zero = |page: &&[u8]| page.iter().all(|byte| *byte == 0);
        zeros += piece.chunks(PAGE as usize).filter(is_zero).count() as u64 * PAGE;
    }
    Some(zeros)
}
