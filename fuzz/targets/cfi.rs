//! Compares our unwind rules with gimli's.
//!
//! The first byte selects how the rest is used: as the content of frame descriptions (a table is made around it), as a
//! whole module as it is mapped, or as a DWARF expression. Must hold: no read outside of the module, no panic, no
//! endless loop. Where gimli finds a row, ours is the same row, except in the cases of `Doubt`. Where gimli finds
//! invalid instructions, our code refuses the row, too. If our code computes the value of an expression, it is gimli's.
#![no_main]
use capture::cfi::{How, NoRow, Row, Scratch, Tables, reg};
use capture::expression::{Stack, evaluate};
use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, EhFrame, Encoding, EvaluationResult, Expression,
    FrameDescriptionEntry, Location, NativeEndian, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};
use heaptrack_fuzz::Input;
use libfuzzer_sys::fuzz_target;

type Slice<'a> = gimli::EndianSlice<'a, NativeEndian>;

/// The distance from the start of the tables to the code. It is fixed, so that the tables have the same length for
/// every base address.
const TEXT: u64 = 0x4000;
/// The encodings of the addresses in frame descriptions.
const ENCODINGS: [u8; 11] = [0x1b, 0x00, 0x04, 0x0c, 0x1a, 0x12, 0x13, 0x11, 0x19, 0x14, 0x1c];

/// The tables of a module: `.eh_frame_hdr`, then `.eh_frame`.
struct Builder {
    base: u64,
    frame: Vec<u8>,
    /// For each description, the code address and the offset in `frame`.
    entries: Vec<(u64, u64)>,
    header_len: u64,
    text: u64,
}

fn uleb(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = value as u8 & 0x7f;
        value >>= 7;
        out.push(byte | if value != 0 { 0x80 } else { 0 });
        if value == 0 {
            return;
        }
    }
}

impl Builder {
    fn here(&self) -> u64 {
        self.base + self.header_len + self.frame.len() as u64
    }

    fn plain(&mut self, encoding: u8, value: u64) {
        match encoding & 0x0f {
            0x01 => uleb(&mut self.frame, value),
            // A signed number of four bytes. The sign bit in its last byte is cleared, so that the number is not
            // negative.
            0x09 => {
                uleb(&mut self.frame, value | 1 << 27);
                let last = self.frame.len() - 1;
                self.frame[last] &= 0x3f;
            }
            0x02 | 0x0a => self.frame.extend((value as u16).to_le_bytes()),
            0x03 | 0x0b => self.frame.extend((value as u32).to_le_bytes()),
            _ => self.frame.extend(value.to_le_bytes()),
        }
    }

    fn pointer(&mut self, encoding: u8, value: u64) {
        let from = if encoding & 0x70 == 0x10 { self.here() } else { 0 };
        self.plain(encoding, value.wrapping_sub(from));
    }

    /// Pads the entry that began at `start` to a multiple of four bytes, and sets its length.
    fn close(&mut self, start: usize) {
        while (self.frame.len() - start) % 4 != 0 {
            self.frame.push(0);
        }
        let length = (self.frame.len() - start - 4) as u32;
        self.frame[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Makes a common information entry (CIE). Returns its position, and the properties that its frame description
    /// entries (FDEs) must have too.
    fn cie(&mut self, input: &mut Input<'_>) -> Shared {
        let (flags, choice) = (input.u8(), input.u8());
        let encoding = if flags & 1 != 0 { ENCODINGS[choice as usize % ENCODINGS.len()] } else { 0 };
        let at = self.frame.len();
        self.frame.extend([0; 8]);
        self.frame.push(if flags & 2 != 0 { 1 } else { 3 });
        let letters: String = [(1, 'z'), (1, 'R'), (5, 'P'), (9, 'L'), (17, 'S')]
            .into_iter()
            .filter(|(bits, _)| flags & bits == *bits)
            .map(|(_, letter)| letter)
            .collect();
        self.frame.extend(letters.bytes());
        self.frame.push(0);
        let (code_align, data_align) = (input.u8(), input.u8());
        uleb(&mut self.frame, code_align as u64);
        self.frame.push(data_align & 0x7f);
        self.frame.push(if flags & 32 != 0 { choice & 0x7f } else { reg::RA as u8 });
        let mut data = Vec::new();
        for letter in letters.chars() {
            match letter {
                'R' => data.push(encoding),
                'P' => data.extend([0x1b, 1, 2, 3, 4]),
                'L' => data.push(0x1b),
                _ => {}
            }
        }
        if flags & 1 != 0 {
            uleb(&mut self.frame, data.len() as u64);
            self.frame.extend(data);
        }
        let count = input.u8() as usize % 64;
        self.frame.extend(input.bytes(count));
        self.close(at);
        Shared { at, encoding, has_data: flags & 1 != 0, has_lsda: flags & 9 == 9 }
    }

    fn fde(&mut self, cie: &Shared, input: &mut Input<'_>) {
        // Short, so that every distance fits into 15 bits.
        let length = input.u16() as u64 & 0x7ff;
        let at = self.frame.len();
        self.entries.push((self.text, at as u64));
        self.frame.extend([0; 4]);
        let back = (self.frame.len() - cie.at) as u32;
        self.frame.extend(back.to_le_bytes());
        self.pointer(cie.encoding, self.text);
        self.plain(cie.encoding, length);
        if cie.has_data {
            let data: &[u8] = if cie.has_lsda { &[4, 1, 2, 3, 4] } else { &[0] };
            self.frame.extend(data);
        }
        let count = input.u8() as usize % 128;
        self.frame.extend(input.bytes(count));
        self.close(at);
        self.text += length;
    }

    /// All bytes of the module's tables.
    fn finish(mut self) -> Vec<u8> {
        self.frame.extend([0; 4]);
        let mut out = vec![1, 0x1b, 0x03, 0x3b];
        out.extend((self.header_len as u32 - 4).to_le_bytes());
        out.extend((self.entries.len() as u32).to_le_bytes());
        for (pc, entry) in &self.entries {
            out.extend((pc.wrapping_sub(self.base) as u32).to_le_bytes());
            out.extend((entry.wrapping_add(self.header_len) as u32).to_le_bytes());
        }
        out.resize(self.header_len as usize, 0);
        out.extend(self.frame);
        out
    }
}

struct Shared {
    at: usize,
    encoding: u8,
    has_data: bool,
    has_lsda: bool,
}

const MOST_ENTRIES: u64 = 8;
const HEADER: u64 = 12 + MOST_ENTRIES * 8;

fn build(data: &[u8], base: u64) -> Vec<u8> {
    let mut input = Input(data);
    let mut builder = Builder { base, frame: Vec::new(), entries: Vec::new(), header_len: HEADER, text: base + TEXT };
    while !input.is_empty() && (builder.entries.len() as u64) < MOST_ENTRIES - 1 {
        let cie = builder.cie(&mut input);
        for _ in 0..1 + input.u8() % 2 {
            builder.fde(&cie, &mut input);
        }
    }
    builder.finish()
}

fn scratch() -> Box<Scratch> {
    // SAFETY: every field is numbers or a byte-sized enum whose first variant is 0.
    unsafe { Box::<Scratch>::new_zeroed().assume_init() }
}

struct Compared<'a> {
    image: &'a [u8],
    tables: Tables,
    scratch: Box<Scratch>,
}

impl Compared<'_> {
    fn base(&self) -> u64 {
        self.tables.start
    }

    fn row(&mut self, pc: u64) -> Result<(), NoRow> {
        self.tables.row(pc, &mut self.scratch)
    }

    /// Whether gimli found the same expression. Ours is given by its address, at which the length comes first.
    fn same_expression(&self, ours: i64, theirs: &UnwindExpression<usize>) -> bool {
        let mut at = (ours as u64).wrapping_sub(self.base()) as usize;
        let mut length = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.image[at];
            at += 1;
            length |= ((byte & 0x7f) as u64) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        at == theirs.offset + HEADER as usize && length == theirs.length as u64
    }

    fn check(&self, pc: u64, theirs: &gimli::UnwindTableRow<usize>) {
        let ours: &Row = &self.scratch.row;
        let place = pc.wrapping_sub(self.base());
        match theirs.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                assert_eq!((ours.cfa_register as u16, ours.cfa_value), (register.0, *offset), "CFA at {place:#x}");
            }
            CfaRule::Expression(expression) => {
                assert_eq!(ours.cfa_register, Row::EXPRESSION, "CFA at {place:#x}");
                assert!(self.same_expression(ours.cfa_value, expression), "CFA at {place:#x}");
            }
        }
        for number in 0..reg::COUNT {
            let rule = theirs.registers().find(|(r, _)| r.0 as usize == number).map(|(_, rule)| rule);
            let (how, value) = (ours.how[number], ours.value[number]);
            let is_same = match rule {
                None => how == How::Unset,
                Some(RegisterRule::Undefined) => how == How::Undefined,
                Some(RegisterRule::SameValue) => how == How::Same,
                Some(RegisterRule::Offset(n)) => (how, value) == (How::At, *n),
                Some(RegisterRule::ValOffset(n)) => (how, value) == (How::Is, *n),
                Some(RegisterRule::Register(other)) => (how, value) == (How::In, other.0 as i64),
                Some(RegisterRule::Expression(e)) => how == How::AtExpression && self.same_expression(value, e),
                Some(RegisterRule::ValExpression(e)) => how == How::IsExpression && self.same_expression(value, e),
                Some(_) => false,
            };
            assert!(is_same, "register {number} at {place:#x}: {how:?} {value}, not {rule:?}");
        }
    }

    /// Compares all rows of one description, each at its first and its last address.
    fn compare(
        &mut self,
        frame: &EhFrame<Slice<'_>>,
        bases: &BaseAddresses,
        fde: &Fde<'_>,
        context: &mut UnwindContext<usize>,
    ) {
        let doubt = doubt(frame, bases, fde);
        if fde.len() == 0 || doubt == Doubt::Initial {
            return;
        }
        let (start, end) = (fde.initial_address(), fde.initial_address().wrapping_add(fde.len()));
        let mut next = start;
        let mut table = match fde.rows(frame, bases, context) {
            Ok(table) => table,
            Err(error) => {
                assert!(!is_senseless(error) || self.row(start).is_err(), "{error} at the start is accepted");
                return;
            }
        };
        loop {
            match table.next_row() {
                Ok(Some(row)) => {
                    for pc in [row.start_address(), row.end_address().wrapping_sub(1)] {
                        if row.start_address() < row.end_address() && pc >= start && pc < end {
                            match self.row(pc) {
                                Err(NoRow::Malformed) if doubt == Doubt::Register => {}
                                found => {
                                    assert_eq!(found, Ok(()), "at {:#x}", pc.wrapping_sub(self.base()));
                                    self.check(pc, row);
                                    assert_eq!(self.scratch.row.is_signal, fde.is_signal_trampoline());
                                }
                            }
                        }
                    }
                    next = row.end_address();
                }
                Ok(None) => break,
                Err(error) => {
                    if is_senseless(error) && next >= start && next < end {
                        assert!(
                            self.row(next).is_err(),
                            "{error} at {:#x} is accepted",
                            next.wrapping_sub(self.base())
                        );
                    }
                    break;
                }
            }
        }
    }
}

type Fde<'a> = FrameDescriptionEntry<Slice<'a>>;

/// The cases in which our rows may differ from gimli's. With `Initial`, a description is not compared. With `Register`,
/// our code may refuse a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    None,
    /// The initial instructions, which all descriptions share, cannot be parsed or contain one that is only allowed in
    /// a single description.
    Initial,
    /// The CFA is computed from a register that our code does not track, or the return address is in another register
    /// than on x86-64.
    Register,
}

fn doubt(frame: &EhFrame<Slice<'_>>, bases: &BaseAddresses, fde: &Fde<'_>) -> Doubt {
    let mut initial = fde.cie().instructions(frame, bases);
    loop {
        use CallFrameInstruction::{AdvanceLoc, RememberState, Restore, RestoreState, SetLoc};
        match initial.next() {
            Ok(Some(AdvanceLoc { .. } | SetLoc { .. } | Restore { .. } | RememberState | RestoreState)) | Err(_) => {
                return Doubt::Initial;
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
        }
    }
    let is_unknown = |register: gimli::Register| register.0 as usize >= reg::COUNT;
    let mut found =
        if fde.cie().return_address_register().0 as usize == reg::RA { Doubt::None } else { Doubt::Register };
    for mut instructions in [fde.cie().instructions(frame, bases), fde.instructions(frame, bases)] {
        while let Ok(Some(instruction)) = instructions.next() {
            match instruction {
                CallFrameInstruction::DefCfa { register, .. }
                | CallFrameInstruction::DefCfaSf { register, .. }
                | CallFrameInstruction::DefCfaRegister { register }
                    if is_unknown(register) =>
                {
                    found = Doubt::Register;
                }
                _ => {}
            }
        }
    }
    found
}

/// True for instructions that no unwinder can follow. Other errors are limits of gimli.
fn is_senseless(error: gimli::Error) -> bool {
    use gimli::Error::{CfiInstructionInInvalidContext, PopWithEmptyStack, UnexpectedEof, UnknownCallFrameInstruction};
    match error {
        // GNU's old form of a negative offset, which gimli does not support.
        UnknownCallFrameInstruction(number) => number.0 != 0x2f,
        PopWithEmptyStack | UnexpectedEof(_) | CfiInstructionInInvalidContext => true,
        _ => false,
    }
}

fn descriptions(data: &[u8]) {
    let mut image = build(data, 0x10_0000).into_boxed_slice();
    let base = image.as_ptr() as u64;
    let whole = build(data, base);
    assert_eq!(image.len(), whole.len());
    image.copy_from_slice(&whole);
    if image.len() as u64 > TEXT - 0x100 {
        return;
    }
    let frame = EhFrame::new(&image[HEADER as usize..], NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame(base + HEADER).set_eh_frame_hdr(base);
    let tables = Tables { eh_frame_hdr: base, start: base, end: base + image.len() as u64 };
    let mut compared = Compared { image: &image, tables, scratch: scratch() };
    let mut context = UnwindContext::new();
    let mut entries = frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|_, bases, offset| frame.cie_from_offset(bases, offset)) else { continue };
        compared.compare(&frame, &bases, &fde, &mut context);
    }
}

/// Uses the input as a module. Looks up code addresses that are in the table, and others.
fn module(data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let image: Box<[u8]> = data.into();
    let start = image.as_ptr() as u64;
    let tables = Tables { eh_frame_hdr: start, start, end: start + image.len() as u64 };
    let mut scratch = scratch();
    let in_table = image.get(12..).unwrap_or_default().chunks_exact(8).take(16);
    let in_table = in_table.map(|pair| i32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]) as i64 as u64);
    for offset in in_table.chain([0, 0x100, TEXT]) {
        let pc = start.wrapping_add(offset);
        for pc in [pc, pc.wrapping_add(1), pc.wrapping_add(0x40)] {
            let _ = tables.row(pc, &mut scratch);
        }
    }
}

/// The memory that an expression may read. Every third address is not mapped.
fn memory(address: u64) -> Option<u64> {
    (address % 3 != 0).then(|| address.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn expression(data: &[u8]) {
    let mut input = Input(data);
    let mut registers = [0; reg::COUNT];
    registers.iter_mut().for_each(|register| *register = input.u8() as u64 * 0x0101_0101_0101);
    let first = (input.u8() % 2 == 0).then_some(0x7fff_0000_1000);
    let content = &input.0[..input.0.len().min(4000)];
    let mut bytes = Vec::new();
    uleb(&mut bytes, content.len() as u64);
    bytes.extend(content);
    let bytes = bytes.into_boxed_slice();
    // SAFETY: `Stack` consists of numbers, for which zero is valid.
    let mut stack = unsafe { Box::<Stack>::new_zeroed().assume_init() };
    let ours = evaluate(bytes.as_ptr() as u64, &registers, first, &mut stack, &mut memory);
    use gimli::Error::{BadSignedLeb128, BadUnsignedLeb128};
    match (ours, oracle(content, &registers, first)) {
        // Numbers of more than 64 bits, of which our code takes the lower 64.
        (None, _) | (_, Err(BadUnsignedLeb128 | BadSignedLeb128)) => {}
        (Some(ours), theirs) => assert_eq!(Ok(ours), theirs, "{content:x?}"),
    }
}

/// gimli's result for the expression.
fn oracle(content: &[u8], registers: &[u64; reg::COUNT], first: Option<u64>) -> Result<u64, gimli::Error> {
    let encoding = Encoding { format: gimli::Format::Dwarf32, version: 4, address_size: 8 };
    let expression = Expression(Slice::new(content, NativeEndian));
    let mut evaluation = expression.evaluation(encoding);
    if let Some(value) = first {
        evaluation.set_initial_value(value);
    }
    evaluation.set_max_iterations(1000);
    let mut result = evaluation.evaluate()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => evaluation
                .resume_with_register(Value::Generic(registers.get(register.0 as usize).copied().unwrap_or(0)))?,
            EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(Value::Generic(memory(address).unwrap_or(0)))?
            }
            EvaluationResult::RequiresRelocatedAddress(address) => evaluation.resume_with_relocated_address(address)?,
            _ => return Err(gimli::Error::InvalidExpressionTerminator(0)),
        };
    }
    match evaluation.result().first().map(|piece| &piece.location) {
        Some(Location::Address { address }) => Ok(*address),
        _ => Err(gimli::Error::InvalidExpressionTerminator(0)),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 4 {
        0 | 1 => descriptions(rest),
        2 => module(rest),
        _ => expression(rest),
    }
});
