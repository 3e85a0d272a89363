//! Slots: code of ours near the patched functions, one for each function.
//!
//! ```text
//! allocation:  push [entry's address] ; jmp [shim] ; .. ; displaced instructions ; jmp back
//! before:      push [entry's address] ; call [shim] ; lea rsp, [rsp + 8] ; displaced instructions ; jmp back
//! imported:    endbr64, then one of the lines above, with jmp [function] in place of the displaced instructions
//! loader:      jmp [the address at 128]
//!              128: entry's address | shim's address | 144: Entry (88 bytes)
//! ```
//! The slot of a freeing function calls the shim before the function (`before`). For the others, the shim calls it.
//! Must hold: a slot is complete before a patch leads to it, and is never changed or freed afterwards.
use crate::code::Site;
use crate::maps::Maps;
use capture::allocators::Meaning;
use capture::entry::{Entry, Shim};

pub const SLOT: u64 = 256;
/// The size of a piece of memory for slots. It has room for many allocators that are loaded one after the other.
pub const PAD: u64 = 64 << 10;
const DATA: u64 = 128;
const ENTRY: u64 = 144;
/// A pad and its module must lie within one and a half times this many bytes. A jump reaches 2 GB, and moved
/// instructions must reach the module's data.
const REACH: u64 = 1 << 30;
/// The lowest address that programs may use.
const LOWEST: u64 = 1 << 16;
/// How much is left free above the heap and below the stack, because they grow.
const GROWTH: u64 = 4 << 30;

const PUSH: [u8; 2] = [0xff, 0x35];
const JUMP: [u8; 2] = [0xff, 0x25];
const CALL: [u8; 2] = [0xff, 0x15];
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const DROP: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x08];

/// A slot that is ready to be written.
#[derive(Clone, Debug)]
pub struct Slot {
    pub at: u64,
    pub bytes: Vec<u8>,
    /// The address of the displaced instructions in the slot. If nothing is displaced, the address of the function or
    /// of the slot.
    pub moved: u64,
    /// For each displaced instruction, its offset from the patch and its address in the slot.
    pub places: Vec<(u64, u64)>,
}

/// Appends an instruction whose operand is the word at the offset `word` of the slot.
fn with_operand(code: &mut Vec<u8>, opcode: [u8; 2], word: u64) {
    let next = code.len() as u64 + 6;
    code.extend(opcode);
    code.extend(((word - next) as u32).to_le_bytes());
}

/// Appends the code that leads from the caller to the shim.
fn thunk(code: &mut Vec<u8>, shim: Shim) {
    with_operand(code, PUSH, DATA);
    if shim.is_before() {
        with_operand(code, CALL, DATA + 8);
        code.extend(DROP);
    } else {
        with_operand(code, JUMP, DATA + 8);
        code.resize(code.len().next_multiple_of(16), 0xcc);
    }
}

/// Appends the data that the code refers to.
fn finish(code: &mut Vec<u8>, at: u64, shim_at: u64, entry: Entry) {
    let ranges = [entry.module, entry.mapping_code].map(|range| [range.start, range.end]);
    let words = [at + ENTRY, shim_at, entry.real, entry.nothrow];
    code.resize(DATA as usize, 0xcc);
    code.extend(words.iter().chain(ranges.as_flattened()).chain(&entry.internal).flat_map(|word| word.to_le_bytes()));
    let Meaning { effect, size, count, block, heap } = entry.meaning;
    code.extend([effect as u8, size, count, block, heap, entry.allocator, 0, 0]);
}

const _: () = assert!(size_of::<Entry>() == 88 && ENTRY + 88 <= SLOT);

impl Slot {
    /// Makes the slot for a patched function. Fills in `entry.real`.
    pub fn new(at: u64, site: &Site, shim: Shim, shim_at: u64, mut entry: Entry) -> Result<Slot, &'static str> {
        let mut code = Vec::new();
        thunk(&mut code, shim);
        let moved = at + code.len() as u64;
        let displaced = site.moved(moved)?;
        entry.real = moved;
        code.extend(&displaced.code);
        if code.len() as u64 > DATA {
            return Err("its first instructions cannot be moved");
        }
        let places = displaced.places.iter().map(|(old, new)| (*old, moved + new)).collect();
        finish(&mut code, at, shim_at, entry);
        Ok(Slot { at, bytes: code, moved, places })
    }

    /// Makes the slot for a function that is not patched itself. `entry.real` is the function.
    pub fn for_import(at: u64, shim: Shim, shim_at: u64, entry: Entry) -> Slot {
        let mut code = ENDBR64.to_vec();
        thunk(&mut code, shim);
        with_operand(&mut code, JUMP, ENTRY);
        finish(&mut code, at, shim_at, entry);
        Slot { at, bytes: code, moved: entry.real, places: Vec::new() }
    }

    /// Makes the slot that replaces the loader's empty notification function.
    pub fn for_loader(at: u64, entry: u64) -> Slot {
        let mut code = Vec::new();
        with_operand(&mut code, JUMP, DATA);
        code.resize(DATA as usize, 0xcc);
        code.extend(entry.to_le_bytes());
        Slot { at, bytes: code, moved: at, places: Vec::new() }
    }
}

/// Returns true if jumps between the pad and the module are possible in both directions.
pub const fn reaches(pad: u64, length: u64, start: u64, end: u64) -> bool {
    let low = if pad < start { pad } else { start };
    let high = if pad + length > end { pad + length } else { end };
    high - low < REACH + REACH / 2
}

/// Returns free addresses near a module for `length` bytes of whole pages, the nearest first.
pub fn places(maps: &Maps, length: u64, start: u64, end: u64) -> Vec<u64> {
    let mut found = Vec::new();
    let mut below = LOWEST;
    let mut grows_up = false;
    for mapping in &maps.0 {
        let grows_down = mapping.name.starts_with("[stack");
        let top = mapping.start & !0xfff;
        let free = top.saturating_sub(below);
        let needed = length + 2 * 4096 + if grows_up || grows_down { GROWTH } else { 0 };
        if free >= needed {
            // Just below the next mapping, with a page between. Below a stack: just above the previous mapping.
            let at = if grows_down { below + 4096 } else { top - length - 4096 };
            found.push(at);
        }
        below = mapping.end;
        grows_up = mapping.name == "[heap]";
    }
    found.retain(|at| reaches(*at, length, start, end));
    found.sort_by_key(|at| at.abs_diff(start));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::allocators::{self, Effect};
    use capture::entry::Range;

    #[test]
    fn a_slot_is_as_drawn() {
        let site = Site::find(0x10_0000, b"\x53\x48\x89\xfb\x48\x83\xec\x10\xc3", 9).unwrap();
        let meaning = allocators::find("sn_rust_realloc").unwrap().meaning;
        let entry = Entry {
            real: 0,
            nothrow: 7,
            module: Range { start: 1, end: 2 },
            mapping_code: Range { start: 10, end: 11 },
            internal: [3, 4, 5, 6],
            meaning,
            allocator: 9,
        };
        let slot = Slot::new(0x20_0000, &site, Shim::Allocate, 0x1234, entry).unwrap();
        let word = |at: usize| u64::from_le_bytes(slot.bytes[at..at + 8].try_into().unwrap());
        assert_eq!(slot.bytes.len() as u64, ENTRY + 88);
        assert_eq!(slot.bytes[224..], [Effect::Resize as u8, 3, 255, 0, 255, 9, 0, 0]);
        assert_eq!((word(128), word(136)), (0x20_0000 + 144, 0x1234));
        assert_eq!((word(144), word(152), word(160), word(176), word(216)), (0x20_0010, 7, 1, 10, 6));
        assert_eq!(slot.bytes[..6], [0xff, 0x35, 122, 0, 0, 0]);
        assert_eq!(slot.moved, slot.at + 16);
        let free = Slot::new(0x20_0000, &site, Shim::Free, 0x1234, entry).unwrap();
        assert_eq!(free.moved, slot.at + 17);
        assert_eq!(free.places, [(0, free.moved), (1, free.moved + 1), (4, free.moved + 4)]);
    }

    #[test]
    fn a_slot_for_imports_leads_to_the_function_itself() {
        let entry = Entry { real: 0x12_3456, module: Range { start: 1, end: 2 }, ..Entry::NONE };
        let word = |slot: &Slot, at: usize| u64::from_le_bytes(slot.bytes[at..at + 8].try_into().unwrap());
        let slot = Slot::for_import(0x20_0000, Shim::Allocate, 0x1234, entry);
        assert_eq!((word(&slot, 128), word(&slot, 136), word(&slot, 144)), (0x20_0090, 0x1234, 0x12_3456));
        assert_eq!(slot.bytes[..16], *b"\xf3\x0f\x1e\xfa\xff\x35\x76\0\0\0\xff\x25\x78\0\0\0");
        let free = Slot::for_import(0x20_0000, Shim::Free, 0x1234, entry);
        // The jump after the call of the shim. Its operand is the first word of the entry.
        assert_eq!(free.bytes[21..27], *b"\xff\x25\x75\0\0\0");
        assert_eq!((free.moved, free.bytes.len() as u64), (0x12_3456, ENTRY + 88));
    }

    #[test]
    fn pads_are_near_and_keep_off_what_grows() {
        let maps = Maps::of(std::path::Path::new("/proc/self")).unwrap();
        let here = maps.at(places as fn(&Maps, u64, u64, u64) -> Vec<u64> as usize as u64).unwrap();
        for at in places(&maps, PAD, here.start, here.end) {
            assert_eq!(at % 4096, 0);
            assert!(reaches(at, PAD, here.start, here.end));
            assert!(maps.0.iter().all(|mapping| at >= mapping.end || at + PAD <= mapping.start));
        }
    }
}
