//! The journal: what the profiler did to a process, written to the process itself before it is done.
//!
//! A later `attach`, or a `detach` after the profiler died, finds the journal by its magic number at the start of a
//! mapping, and restores the process with it. Must hold: a patch is in the journal before it is in the code. Whether a
//! patch is in force is told by the bytes of the code, never by the journal. Other versions read this layout, so it may
//! only grow.
//!
//! ```text
//! word 0: | magic         | version      | image id     | home   | home length  | gate | image's base | recorder |
//!      8: | recorder's    | unwind table | table length | target | target's     | what is followed | lists    | 0    |
//!         | start time    |              |              |        | start time   |                  |          |      |
//!     16: pads     16 x | at | length | used |
//!     64: patches 256 x | at | slot | original bytes | our bytes |
//!   1088: imports 240 x | at, 0 = none now | slot | original word | function |      since version 2
//! ```
//! What is followed: the address of two words, the hub and whether forked children may join, and of a count of threads
//! (`capture::follow::Following`). Lists: the address of `capture::left_lists::LEFT`. Both are 0 unless the processes that
//! the target starts are followed.
//!
//! The image is the capture library. A slot is code near a function that leads to it. The word that is written at an
//! import is the address of its slot.
use crate::code::JUMP;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::process::Process;
use std::io;

pub const MAGIC: u64 = u64::from_le_bytes(*b"HTATTCH1");
const VERSION: u64 = 2;
const WITH_IMPORTS: u64 = 2;
const PADS_AT: usize = 16;
const PADS: usize = 16;
const PAD_WORDS: usize = 3;
const PATCHES_AT: usize = 64;
const PATCHES: usize = 256;
const PATCH_WORDS: usize = 4;
const IMPORTS_AT: usize = PATCHES_AT + PATCHES * PATCH_WORDS;
pub const IMPORTS: usize = 240;
const IMPORT_WORDS: usize = 4;
const WORDS: usize = IMPORTS_AT + IMPORTS * IMPORT_WORDS;

/// The length of the journal in bytes.
pub const LENGTH: u64 = 16 << 10;
const _: () = assert!(WORDS * 8 <= LENGTH as usize);

/// Memory for slots near a module.
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

/// A word of a module's table of addresses that is redirected to a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// 0 = no word is redirected now, but the slot can be used again.
    pub at: u64,
    /// The value that is written there.
    pub slot: u64,
    pub original: u64,
    pub function: u64,
}

/// What is at the address of a patch now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Original,
    Ours,
    /// Something else: the module was unloaded, or other code has patched the function.
    Foreign,
}

/// A copy of a journal, and its address.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    pub at: u64,
    pub image_id: u64,
    pub home: u64,
    pub home_length: u64,
    pub gate: u64,
    pub image: u64,
    /// The pid of the process that records, in its own namespace. 0 = none.
    pub recorder: u32,
    pub recorder_started: u64,
    /// The process that is recorded. A forked child has a copy of this, which names its parent.
    pub target: u32,
    pub target_started: u64,
    /// The program's unwind table, if the profiler made one.
    pub table: u64,
    pub table_length: u64,
    /// See above. 0 = none.
    pub following: u64,
    pub left_lists: u64,
    pub pads: Vec<Pad>,
    pub patches: Vec<Patch>,
    pub imports: Vec<Redirect>,
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
    /// Finds all journals. There are several if another build has attached to the process, if the room of a journal was
    /// used up, or if a profiler died before its image was complete.
    pub fn find(maps: &Maps, memory: &Memory) -> Vec<Journal> {
        let places =
            maps.0.iter().filter(|mapping| mapping.is_anonymous() && mapping.read && mapping.write && !mapping.execute);
        places.filter_map(|mapping| Journal::read(memory, mapping.start)).collect()
    }

    pub fn read(memory: &Memory, at: u64) -> Option<Journal> {
        if memory.word(at).ok()? != MAGIC {
            return None;
        }
        let mut words = vec![0; WORDS];
        memory.read_words(at, &mut words).ok()?;
        let &[
            _,
            version,
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
            following,
            left_lists,
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
        let patches = words.get(PATCHES_AT..IMPORTS_AT)?.chunks_exact(PATCH_WORDS);
        let patches = patches.filter_map(|words| match words {
            &[at, slot, original, ours] if at != 0 => {
                Some(Patch { at, slot, original: unpack(original), ours: unpack(ours) })
            }
            _ => None,
        });
        let imports = words.get(IMPORTS_AT..)?.chunks_exact(IMPORT_WORDS).filter(|_| version >= WITH_IMPORTS);
        let imports = imports.filter_map(|words| match words {
            &[at, slot, original, function] if slot != 0 => Some(Redirect { at, slot, original, function }),
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
            following,
            left_lists,
            pads: pads.collect(),
            patches: patches.collect(),
            imports: imports.collect(),
        })
    }

    /// Writes the journal, the magic number last.
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
            self.following,
            self.left_lists,
        ];
        let pads = self.pads.iter().flat_map(|pad| [pad.at, pad.length, pad.used]);
        let patches = self.patches.iter().flat_map(|p| [p.at, p.slot, pack(p.original), pack(p.ours)]);
        let mut put = |at: usize, from: &mut dyn Iterator<Item = u64>| {
            words.iter_mut().skip(at).zip(from).for_each(|(place, word)| *place = word);
        };
        put(0, &mut head.into_iter());
        put(PADS_AT, &mut pads.take(PADS * PAD_WORDS));
        put(PATCHES_AT, &mut patches.take(PATCHES * PATCH_WORDS));
        let imports = self.imports.iter().flat_map(|import| [import.at, import.slot, import.original, import.function]);
        put(IMPORTS_AT, &mut imports.take(IMPORTS * IMPORT_WORDS));
        memory.write_words(self.at + 8, words.get(1..).unwrap_or_default())?;
        memory.write_words(self.at, &[MAGIC])
    }

    /// Returns true if the journal names a recorder, or if a patch or a redirected word leads the program to our code.
    pub fn is_in_force(&self, memory: &Memory) -> bool {
        let is_patched = |patch: &Patch| patch.found(memory) == Found::Ours;
        let is_redirected = |import: &Redirect| import.is_ours(memory);
        self.recorder != 0 || self.patches.iter().any(is_patched) || self.imports.iter().any(is_redirected)
    }

    /// Returns one entry for each slot of a function that is hooked through imports, without the redirected words.
    pub fn kept(&self) -> Vec<Redirect> {
        let mut kept: Vec<Redirect> =
            self.imports.iter().map(|import| Redirect::kept(import.function, import.slot)).collect();
        kept.sort_unstable_by_key(|import| import.slot);
        kept.dedup();
        kept
    }

    /// Forgets patches of modules that were unloaded. Their slots stay.
    pub fn forget_unloaded(&mut self, memory: &Memory) {
        self.patches.retain(|patch| patch.found(memory) != Found::Foreign);
    }

    pub const fn has_room(&self) -> bool {
        self.patches.len() < PATCHES && self.pads.len() < PADS
    }

    /// Returns false in a forked child, which has a copy of its parent's journal.
    pub const fn is_about(&self, process: &Process) -> bool {
        self.target == process.pid && self.target_started == process.started
    }

    /// Returns true if the process is recorded now: the journal is about it, and its recorder is alive.
    pub fn is_recorded(&self, process: &Process) -> bool {
        self.recorder != 0
            && self.is_about(process)
            && crate::process::started(self.recorder) == Some(self.recorder_started)
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

impl Redirect {
    /// An entry that only keeps the slot.
    pub const fn kept(function: u64, slot: u64) -> Redirect {
        Redirect { at: 0, slot, original: 0, function }
    }

    pub fn is_ours(&self, memory: &Memory) -> bool {
        memory.word(self.at).is_ok_and(|word| word == self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a journal to this process's own memory and reads it again.
    #[test]
    fn what_is_written_is_read() {
        let memory = Memory::open(std::path::Path::new("/proc/self")).unwrap();
        let room = vec![0u64; WORDS].leak();
        let (redirect, kept) = (
            Redirect { at: 41, slot: 42, original: 43, function: 44 },
            Redirect { at: 0, slot: 42, original: 0, function: 44 },
        );
        let journal = Journal {
            at: room.as_ptr() as u64,
            image_id: 1,
            home: 2,
            home_length: 3,
            gate: 4,
            image: 5,
            recorder: 6,
            recorder_started: 7,
            target: 8,
            target_started: 9,
            table: 10,
            table_length: 11,
            following: 17,
            left_lists: 18,
            pads: vec![Pad { at: 12, length: 13, used: 14 }],
            patches: vec![Patch { at: 15, slot: 16, original: [1; JUMP], ours: [2; JUMP] }],
            imports: vec![redirect; IMPORTS],
        };
        journal.write(&memory).unwrap();
        let read = Journal::read(&memory, journal.at).unwrap();
        assert_eq!(format!("{read:?}"), format!("{journal:?}"));
        assert_eq!(read.kept(), [kept]);
        // The first version had no imports, so these bytes may be anything.
        memory.write_words(journal.at + 8, &[1]).unwrap();
        let read = Journal::read(&memory, journal.at).unwrap();
        assert_eq!((read.patches, read.imports), (journal.patches, Vec::new()));
    }
}
