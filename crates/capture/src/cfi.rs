//! Call frame information: from a code address to the row of unwind rules for it.
//!
//! Receives: the address of a module's `.eh_frame_hdr` and the module's bounds, all mapped by the loader. Returns: a
//! [`Row`]. Must hold: no allocation, no panic on any bytes, no read outside the module's bounds, except for an
//! `.eh_frame_hdr` that the profiler has made. The working memory is the caller's [`Scratch`], because kilobytes are
//! too much for a coroutine's stack.
//!
//! Why not a library: see `docs/decisions/0002-own-cfi-reader.md`. The tests compare every row of whole programs with
//! gimli's.

/// The DWARF numbers of registers.
pub mod reg {
    pub const RBX: usize = 3;
    pub const RBP: usize = 6;
    pub const RSP: usize = 7;
    pub const R12: usize = 12;
    pub const R15: usize = 15;
    pub const RA: usize = 16;
    pub const COUNT: usize = 17;
}

/// How a register of the caller is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum How {
    /// The table has no rule for it.
    Unset,
    Undefined,
    /// Unchanged.
    Same,
    /// In memory at CFA + value.
    At,
    /// It equals CFA + value.
    Is,
    /// In another register. The value is its number.
    In,
    /// In memory, at the result of a DWARF expression. The value is the expression's address.
    AtExpression,
    /// It is the result of a DWARF expression. The value is the expression's address.
    IsExpression,
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// CFA = this register + `cfa_value`. If it is `EXPRESSION`, `cfa_value` is the address of an expression.
    pub cfa_register: u8,
    pub cfa_value: i64,
    pub how: [How; reg::COUNT],
    pub value: [i64; reg::COUNT],
    /// This is the frame to which a signal handler returns. Its caller made no call: a signal interrupted it.
    pub is_signal: bool,
}

impl Row {
    pub const EXPRESSION: u8 = 0xff;
    pub const EMPTY: Row =
        Row { cfa_register: 0, cfa_value: 0, how: [How::Unset; reg::COUNT], value: [0; reg::COUNT], is_signal: false };

    fn set(&mut self, register: u64, how: How, value: i64) {
        if let (Some(h), Some(v)) = (self.how.get_mut(register as usize), self.value.get_mut(register as usize)) {
            *h = how;
            *v = value;
        }
    }
}

const SAVED_STATES: usize = 8;

/// Working memory of one look-up.
pub struct Scratch {
    pub row: Row,
    initial: Row,
    saved: [Row; SAVED_STATES],
    depth: usize,
    description: Description,
}

/// Why there is no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRow {
    /// No frame description covers the address.
    NotCovered,
    /// The table cannot be decoded.
    Malformed,
}

/// Where a module's unwind tables are.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub eh_frame_hdr: u64,
    /// The module's bounds. Nothing outside of them is read, except for an `.eh_frame_hdr` that the profiler has made.
    pub start: u64,
    pub end: u64,
}

/// Reads mapped memory between two addresses.
#[derive(Clone, Copy)]
pub(crate) struct Bytes {
    pub at: u64,
    pub end: u64,
}

macro_rules! fixed {
    ($name:ident, $type:ty) => {
        #[inline]
        pub fn $name(&mut self) -> Option<$type> {
            let next = self.at.checked_add(size_of::<$type>() as u64)?;
            if next > self.end {
                return None;
            }
            // SAFETY: `[at, next)` lies inside `[at, end)`. Code that makes a `Bytes` knows that this memory is mapped:
            // `Tables::bytes` stays in the bounds of a loaded module, `evaluate` reads an expression of such a module.
            let value = unsafe { (self.at as *const $type).read_unaligned() };
            self.at = next;
            Some(value)
        }
    };
}

impl Bytes {
    fixed!(u8, u8);
    fixed!(u16, u16);
    fixed!(u32, u32);
    fixed!(u64, u64);

    pub fn uleb(&mut self) -> Option<u64> {
        self.leb().map(|(value, ..)| value)
    }

    pub fn sleb(&mut self) -> Option<i64> {
        let (value, bits, last) = self.leb()?;
        let is_negative = bits < 64 && last & 0x40 != 0;
        Some(if is_negative { value as i64 | -1i64 << bits } else { value as i64 })
    }

    /// Reads a number in LEB128. Returns its value, the number of its bits, and its last byte, which has the sign.
    #[inline]
    fn leb(&mut self) -> Option<(u64, u32, u8)> {
        let mut value = 0u64;
        let mut shift = 0u32;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= ((byte & 0x7f) as u64) << shift;
            }
            shift = shift.wrapping_add(7);
            if byte & 0x80 == 0 {
                return Some((value, shift, byte));
            }
        }
    }

    fn skip(&mut self, n: u64) -> Option<()> {
        self.at = self.at.checked_add(n).filter(|at| *at <= self.end)?;
        Some(())
    }

    /// Reads a pointer in one of the encodings of exception handling. Data-relative ones count from `data`.
    fn pointer(&mut self, encoding: u8, data: u64) -> Option<u64> {
        let here = self.at;
        let value = self.plain(encoding)?;
        match encoding & 0x70 {
            0x00 => Some(value),
            0x10 => Some(here.wrapping_add(value)),
            0x30 => Some(data.wrapping_add(value)),
            _ => None,
        }
    }

    /// Reads the number of an encoded pointer, and adds nothing to it, even if the encoding is relative.
    fn plain(&mut self, encoding: u8) -> Option<u64> {
        Some(match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => self.u16()? as u64,
            0x03 => self.u32()? as u64,
            0x09 => self.sleb()? as u64,
            0x0a => self.u16()? as i16 as u64,
            0x0b => self.u32()? as i32 as u64,
            _ => return None,
        })
    }
}

impl Tables {
    fn bytes(&self, at: u64) -> Option<Bytes> {
        (at >= self.start && at < self.end).then_some(Bytes { at, end: self.end })
    }

    /// Returns the address of the last frame description whose code does not start after `pc`.
    #[inline(never)]
    fn description(&self, pc: u64) -> Result<u64, NoRow> {
        self.description_in_table(pc).ok_or(NoRow::Malformed)?.ok_or(NoRow::NotCovered)
    }

    /// Returns `None` if the table cannot be decoded, and `Some(None)` if `pc` is before its first entry.
    fn description_in_table(&self, pc: u64) -> Option<Option<u64>> {
        const DATA_RELATIVE_4: u8 = 0x3b;
        let hdr = self.eh_frame_hdr;
        // A program that was linked without this table gets one from the profiler when heaptrack attaches. That table
        // is outside of the module.
        let is_own = hdr >= self.start && hdr < self.end;
        let end = if is_own { self.end } else { u64::MAX };
        let mut bytes = Bytes { at: hdr, end };
        let (version, frame_encoding, count_encoding, table_encoding) =
            (bytes.u8()?, bytes.u8()?, bytes.u8()?, bytes.u8()?);
        if version != 1 || table_encoding != DATA_RELATIVE_4 {
            return None;
        }
        bytes.pointer(frame_encoding, hdr)?;
        let count = bytes.pointer(count_encoding, hdr)?;
        let table = bytes.at;
        if count.checked_mul(8)?.checked_add(table)? > end {
            return None;
        }
        let entry = |i: u64| {
            // SAFETY: `i < count`, and the whole table lies inside the module, checked above, or is the profiler's.
            let pair = unsafe { ((table + i * 8) as *const [i32; 2]).read_unaligned() };
            (hdr.wrapping_add(pair[0] as u64), hdr.wrapping_add(pair[1] as u64))
        };
        let (mut low, mut high) = (0u64, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if entry(middle).0 <= pc { low = middle + 1 } else { high = middle }
        }
        Some(if low == 0 { None } else { Some(entry(low - 1).1) })
    }

    /// Fills `scratch.row` with the rules that hold at `pc`.
    #[inline(never)]
    pub fn row(&self, pc: u64, scratch: &mut Scratch) -> Result<(), NoRow> {
        let at = self.description(pc)?;
        scratch.description.read(self, at).ok_or(NoRow::Malformed)?;
        let Description { pc_begin, pc_end, instructions, .. } = scratch.description;
        if pc < pc_begin || pc >= pc_end {
            return Err(NoRow::NotCovered);
        }
        scratch.row = Row::EMPTY;
        scratch.row.is_signal = scratch.description.cie.is_signal;
        scratch.depth = 0;
        let first = scratch.description.cie.instructions;
        let mut run = Run { tables: self, pc: pc_begin, target: pc };
        run.instructions(first, scratch, true).ok_or(NoRow::Malformed)?;
        scratch.initial = scratch.row;
        run.pc = pc_begin;
        run.instructions(instructions, scratch, false).ok_or(NoRow::Malformed)
    }
}

/// A common information entry (CIE): what several descriptions share.
#[derive(Clone, Copy)]
struct Common {
    code_align: u64,
    data_align: i64,
    has_augmentation_data: bool,
    pointer_encoding: u8,
    is_signal: bool,
    instructions: Bytes,
}

/// A frame description entry (FDE): the unwind rules of one function.
#[derive(Clone, Copy)]
struct Description {
    cie: Common,
    pc_begin: u64,
    pc_end: u64,
    instructions: Bytes,
}

/// Returns the content of an entry, which follows its length. It begins with the id field.
fn entry(tables: &Tables, at: u64) -> Option<Bytes> {
    let mut bytes = tables.bytes(at)?;
    let mut length = bytes.u32()? as u64;
    if length == 0xffff_ffff {
        length = bytes.u64()?;
    }
    let end = bytes.at.checked_add(length)?;
    if length == 0 || end > tables.end {
        return None;
    }
    Some(Bytes { at: bytes.at, end })
}

impl Description {
    #[inline(never)]
    fn read(&mut self, tables: &Tables, at: u64) -> Option<()> {
        let mut bytes = entry(tables, at)?;
        let id_at = bytes.at;
        let back = bytes.u32()? as u64;
        if back == 0 {
            return None;
        }
        self.cie.read(tables, id_at.checked_sub(back)?)?;
        self.pc_begin = bytes.pointer(self.cie.pointer_encoding, tables.eh_frame_hdr)?;
        let length = bytes.plain(self.cie.pointer_encoding)?;
        self.pc_end = self.pc_begin.wrapping_add(length);
        if self.cie.has_augmentation_data {
            let n = bytes.uleb()?;
            bytes.skip(n)?;
        }
        self.instructions = bytes;
        Some(())
    }
}

impl Common {
    #[inline(never)]
    fn read(&mut self, tables: &Tables, at: u64) -> Option<()> {
        let mut bytes = entry(tables, at)?;
        if bytes.u32()? != 0 {
            return None;
        }
        let version = bytes.u8()?;
        let augmentation = bytes;
        while bytes.u8()? != 0 {}
        if version == 4 {
            bytes.skip(2)?;
        }
        self.code_align = bytes.uleb()?;
        self.data_align = bytes.sleb()?;
        let return_register = if version == 1 { bytes.u8()? as u64 } else { bytes.uleb()? };
        if return_register != reg::RA as u64 {
            return None;
        }
        (self.has_augmentation_data, self.pointer_encoding, self.is_signal) = (false, 0, false);
        self.augmentation(augmentation, bytes)
    }

    /// Reads the letters of the augmentation string, each with its data.
    fn augmentation(&mut self, mut letters: Bytes, mut data: Bytes) -> Option<()> {
        let mut end_of_data = 0;
        loop {
            match letters.u8()? {
                0 => break,
                b'z' => {
                    let n = data.uleb()?;
                    end_of_data = data.at.checked_add(n).filter(|at| *at <= data.end)?;
                    self.has_augmentation_data = true;
                }
                b'R' => self.pointer_encoding = data.u8()?,
                b'P' => {
                    let encoding = data.u8()?;
                    data.plain(encoding)?;
                }
                b'L' => {
                    data.u8()?;
                }
                b'S' => self.is_signal = true,
                b'B' => {}
                // Unknown letters do not matter if the length of all data is known.
                _ if end_of_data != 0 => break,
                _ => return None,
            }
        }
        self.instructions = Bytes { at: if end_of_data == 0 { data.at } else { end_of_data }, end: data.end };
        Some(())
    }
}

/// Runs call frame instructions up to a code address.
struct Run<'a> {
    tables: &'a Tables,
    pc: u64,
    target: u64,
}

impl Run<'_> {
    /// Advances the location. Returns true if it is after the target, so that the row for the target is complete.
    fn advance(&mut self, scratch: &Scratch, delta: u64) -> bool {
        self.pc = self.pc.wrapping_add(delta.wrapping_mul(scratch.description.cie.code_align));
        self.pc > self.target
    }

    /// Returns the address of an expression, and skips it.
    fn block(bytes: &mut Bytes) -> Option<i64> {
        let at = bytes.at;
        let n = bytes.uleb()?;
        bytes.skip(n)?;
        Some(at as i64)
    }

    fn instructions(&mut self, mut bytes: Bytes, scratch: &mut Scratch, initial: bool) -> Option<()> {
        while bytes.at < bytes.end {
            let op = bytes.u8()?;
            let low = (op & 0x3f) as u64;
            match op >> 6 {
                1 => {
                    if self.advance(scratch, low) {
                        return Some(());
                    }
                }
                2 => {
                    let n = bytes.uleb()? as i64;
                    scratch.row.set(low, How::At, n.wrapping_mul(scratch.description.cie.data_align));
                }
                3 => self.restore(low, scratch, initial),
                _ => {
                    if self.extended(op, &mut bytes, scratch, initial)? {
                        return Some(());
                    }
                }
            }
        }
        Some(())
    }

    fn restore(&self, register: u64, scratch: &mut Scratch, initial: bool) {
        if initial {
            return;
        }
        let i = register as usize;
        if let (Some(how), Some(value)) = (scratch.initial.how.get(i), scratch.initial.value.get(i)) {
            scratch.row.set(register, *how, *value);
        }
    }

    /// Runs one instruction whose two upper bits are 0. Returns true if the location is after the target now.
    fn extended(&mut self, op: u8, bytes: &mut Bytes, scratch: &mut Scratch, initial: bool) -> Option<bool> {
        let data_align = scratch.description.cie.data_align;
        let factored = |n: i64| n.wrapping_mul(data_align);
        let row = &mut scratch.row;
        match op {
            // nop, and GNU's size of arguments
            0x00 => {}
            0x2e => {
                bytes.uleb()?;
            }
            // set_loc, advance_loc1, 2, 4
            0x01 => {
                self.pc = bytes.pointer(scratch.description.cie.pointer_encoding, self.tables.eh_frame_hdr)?;
                return Some(self.pc > self.target);
            }
            0x02 => {
                let n = bytes.u8()?;
                return Some(self.advance(scratch, n as u64));
            }
            0x03 => {
                let n = bytes.u16()?;
                return Some(self.advance(scratch, n as u64));
            }
            0x04 => {
                let n = bytes.u32()?;
                return Some(self.advance(scratch, n as u64));
            }
            // offset_extended and val_offset, with their signed forms
            0x05 | 0x11 | 0x14 | 0x15 => {
                let register = bytes.uleb()?;
                let n = if matches!(op, 0x11 | 0x15) { bytes.sleb()? } else { bytes.uleb()? as i64 };
                row.set(register, if matches!(op, 0x14 | 0x15) { How::Is } else { How::At }, factored(n));
            }
            // GNU's old negative form of offset_extended
            0x2f => {
                let register = bytes.uleb()?;
                let n = bytes.uleb()? as i64;
                row.set(register, How::At, factored(n).wrapping_neg());
            }
            0x06 => {
                let register = bytes.uleb()?;
                self.restore(register, scratch, initial);
            }
            0x07 => row.set(bytes.uleb()?, How::Undefined, 0),
            0x08 => row.set(bytes.uleb()?, How::Same, 0),
            0x09 => {
                let register = bytes.uleb()?;
                let other = bytes.uleb()?;
                row.set(register, How::In, other as i64);
            }
            // remember_state, restore_state
            0x0a => {
                *scratch.saved.get_mut(scratch.depth)? = scratch.row;
                scratch.depth += 1;
            }
            0x0b => {
                scratch.depth = scratch.depth.checked_sub(1)?;
                scratch.row = *scratch.saved.get(scratch.depth)?;
            }
            // def_cfa, its register, its offset, with signed forms
            0x0c => {
                row.cfa_register = register8(bytes.uleb()?)?;
                row.cfa_value = bytes.uleb()? as i64;
            }
            0x12 => {
                row.cfa_register = register8(bytes.uleb()?)?;
                row.cfa_value = factored(bytes.sleb()?);
            }
            // If the CFA is an expression, it has no register and no offset to change. `cfa_value` is the expression's
            // address then.
            0x0d | 0x0e | 0x13 if row.cfa_register == Row::EXPRESSION => return None,
            0x0d => row.cfa_register = register8(bytes.uleb()?)?,
            0x0e => row.cfa_value = bytes.uleb()? as i64,
            0x13 => row.cfa_value = factored(bytes.sleb()?),
            0x0f => {
                row.cfa_register = Row::EXPRESSION;
                row.cfa_value = Self::block(bytes)?;
            }
            0x10 => {
                let register = bytes.uleb()?;
                row.set(register, How::AtExpression, Self::block(bytes)?);
            }
            0x16 => {
                let register = bytes.uleb()?;
                row.set(register, How::IsExpression, Self::block(bytes)?);
            }
            _ => return None,
        }
        Some(false)
    }
}

fn register8(number: u64) -> Option<u8> {
    if number < reg::COUNT as u64 { Some(number as u8) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are a heap block of their own, so that AddressSanitizer (`make soak-address`) sees any read past them.
    #[test]
    fn nothing_is_read_past_the_end() {
        for length in 0..8u64 {
            let block: Box<[u8]> = (0..length).map(|_| 0x80).collect();
            let at = block.as_ptr() as u64;
            let bytes = Bytes { at, end: at + length };
            assert_eq!({ bytes }.u8(), (length >= 1).then_some(0x80));
            assert_eq!({ bytes }.u16(), (length >= 2).then_some(0x8080));
            assert_eq!({ bytes }.u32(), (length >= 4).then_some(0x8080_8080));
            assert_eq!(
                ({ bytes }.u64(), { bytes }.uleb(), { bytes }.sleb()),
                (None, None, None),
                "no number ends here"
            );
        }
    }
}
