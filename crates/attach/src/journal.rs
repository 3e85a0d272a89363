//! What we did to a process, written down in the process itself, before it is done.
//!
//! Whoever comes next (another `attach`, a `detach` after our death) finds it by its magic number at the start of a mapping,
//! and puts everything right with it. What must hold: a patch is in the journal before it is in the code; whether a patch is
//! in force is told by the code's bytes, never by the journal; this layout is read by other versions and only grows.
//!
//! ```text
//! word 0        1          2         3     4            5      6               7           8..15
//! | magic       | version  | image id | home | home length | gate | image's base | recorder  | its start | unwind table | its length | target | its start | 0 .. |
//! 16: pads     16 x | at | length | used |
//! 64: patches 256 x | at | slot | original bytes | our bytes |
//! ```
use crate::code::JUMP;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::process::Process;
use std::io;

pub const MAGIC: u64 = u64::from_le_bytes(*b"HTATTCH1");
const VERSION: u64 = 1;
const PADS_AT: usize = 16;
const PADS: usize = 16;
const PAD_WORDS: usize = 3;
const PATCHES_AT: usize = 64;
const PATCHES: usize = 256;
const PATCH_WORDS: usize = 4;
const WORDS: usize = PATCHES_AT + PATCHES * PATCH_WORDS;

/// Bytes that the journal takes.
pub const LENGTH: u64 = 16 << 10;
const _: () = assert!(WORDS * 8 <= LENGTH as usize);

/// Code of ours near a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pad {
    pub at: u64,
    pub length: u64,
    pub used: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    pub at: u64,
    pub slot: u64,
    pub original: [u8; JUMP],
    pub ours: [u8; JUMP],
}

/// What is at a patch's place now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Original,
    Ours,
    /// The module is gone, or somebody else was here.
    Foreign,
}

/// A copy of it, and where it is.
#[derive(Clone, Debug)]
pub struct Journal {
    pub at: u64,
    pub image_id: u64,
    pub home: u64,
    pub home_length: u64,
    pub gate: u64,
    pub image: u64,
    /// Who records, as it sees itself; 0 = nobody.
    pub recorder: u32,
    pub recorder_started: u64,
    /// Whom it records. A forked child has a copy of this, but is another one.
    pub target: u32,
    pub target_started: u64,
    /// The program's unwind table, if we made one.
    pub table: u64,
    pub table_length: u64,
    pub pads: Vec<Pad>,
    pub patches: Vec<Patch>,
}

fn pack(bytes: [u8; JUMP]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    u64::from_le_bytes(word)
}

fn unpack(word: u64) -> [u8; JUMP] {
    let mut bytes = [0; JUMP];
    bytes.iter_mut().zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    bytes
}

impl Journal {
    /// All that are there: one, or more if other versions have been here.
    pub fn find(maps: &Maps, memory: &Memory) -> Vec<Journal> {
        let places =
            maps.0.iter().filter(|mapping| mapping.is_anonymous() && mapping.read && mapping.write && !mapping.execute);
        places.filter_map(|mapping| Journal::read(memory, mapping.start)).collect()
    }

    fn read(memory: &Memory, at: u64) -> Option<Journal> {
        if memory.word(at).ok()? != MAGIC {
            return None;
        }
        let mut words = vec![0; WORDS];
        memory.read_words(at, &mut words).ok()?;
        let &[
            _,
            _,
            image_id,
            home,
            home_length,
            gate,
            image,
            recorder,
            recorder_started,
            table,
            table_length,
            target,
            target_started,
            ..,
        ] = &words[..]
        else {
            return None;
        };
        let pads = words.get(PADS_AT..)?.chunks_exact(PAD_WORDS).take(PADS);
        let pads = pads.filter_map(|words| match words {
            &[at, length, used] if at != 0 => Some(Pad { at, length, used }),
            _ => None,
        });
        let patches = words.get(PATCHES_AT..)?.chunks_exact(PATCH_WORDS);
        let patches = patches.filter_map(|words| match words {
            &[at, slot, original, ours] if at != 0 => {
                Some(Patch { at, slot, original: unpack(original), ours: unpack(ours) })
            }
            _ => None,
        });
        Some(Journal {
            at,
            image_id,
            home,
            home_length,
            gate,
            image,
            recorder: recorder as u32,
            recorder_started,
            target: target as u32,
            target_started,
            table,
            table_length,
            pads: pads.collect(),
            patches: patches.collect(),
        })
    }

    /// Writes all of it; the magic number last.
    pub fn write(&self, memory: &Memory) -> io::Result<()> {
        let mut words = vec![0; WORDS];
        let head = [
            MAGIC,
            VERSION,
            self.image_id,
            self.home,
            self.home_length,
            self.gate,
            self.image,
            u64::from(self.recorder),
            self.recorder_started,
            self.table,
            self.table_length,
            u64::from(self.target),
            self.target_started,
        ];
        let pads = self.pads.iter().flat_map(|pad| [pad.at, pad.length, pad.used]);
        let patches = self.patches.iter().flat_map(|p| [p.at, p.slot, pack(p.original), pack(p.ours)]);
        let mut put = |at: usize, from: &mut dyn Iterator<Item = u64>| {
            words.iter_mut().skip(at).zip(from).for_each(|(place, word)| *place = word);
        };
        put(0, &mut head.into_iter());
        put(PADS_AT, &mut pads.take(PADS * PAD_WORDS));
        put(PATCHES_AT, &mut patches.take(PATCHES * PATCH_WORDS));
        memory.write_words(self.at + 8, words.get(1..).unwrap_or_default())?;
        memory.write_words(self.at, &[MAGIC])
    }

    pub const fn has_room(&self) -> bool {
        self.patches.len() < PATCHES && self.pads.len() < PADS
    }

    /// The process is recorded now.
    pub fn is_recorded(&self, process: &Process) -> bool {
        let is_about_it = self.target == process.pid && self.target_started == process.started();
        self.recorder != 0 && is_about_it && crate::process::started(self.recorder) == Some(self.recorder_started)
    }
}

impl Patch {
    pub fn found(&self, memory: &Memory) -> Found {
        let mut bytes = [0; JUMP];
        match memory.read(self.at, &mut bytes) {
            Ok(()) if bytes == self.ours => Found::Ours,
            Ok(()) if bytes == self.original => Found::Original,
            _ => Found::Foreign,
        }
    }
}
