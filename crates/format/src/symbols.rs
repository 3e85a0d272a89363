//! Names of frames: the function at an address, its place in the source, and the functions that were inlined there.
//!
//! A file may have several Symbols blocks, anywhere after the modules that they refer to, also after the Summary and an
//! Index (if a finished file got its names later). A later block replaces what an earlier one says about a frame,
//! unless the later one has no name for it.
use crate::wire::{Cursor, put, put_bytes, unzigzag, zigzag};
use crate::{BlockKind, IntMap, Malformed, RawBlock};
use foldhash::HashMap;

/// How a module's names were found, or why they were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SymbolState {
    /// The file that ran, with its debug information.
    #[default]
    Debug = 0,
    /// The file that ran, which has only a symbol table: functions, no lines.
    Symbols = 1,
    /// The file that ran has no names at all.
    Stripped = 2,
    /// The file was not found.
    Missing = 3,
    /// The file that was found is not the one that ran.
    Mismatch = 4,
    /// The file, or its debug information, cannot be read.
    Unreadable = 5,
}

impl SymbolState {
    const fn from_number(number: u8) -> Result<Self, Malformed> {
        Ok(match number {
            0 => SymbolState::Debug,
            1 => SymbolState::Symbols,
            2 => SymbolState::Stripped,
            3 => SymbolState::Missing,
            4 => SymbolState::Mismatch,
            5 => SymbolState::Unreadable,
            _ => return Err(Malformed::Tag),
        })
    }
}

/// A function's name in its forms. Indexes into `Symbols::strings`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// As the linker knows it.
    pub raw: u32,
    /// Demangled, whole.
    pub full: u32,
    /// The short form of the demangled name, for example without parameters.
    pub short: u32,
}

/// One function at an address. If calls were inlined, an address has several, the innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodeLocation {
    /// Index into `Symbols::functions`.
    pub function: Option<u32>,
    /// Index into `Symbols::strings`.
    pub file: Option<u32>,
    pub line: Option<u32>,
    /// True if this function has no frame of its own: it was inlined into the next one of the list.
    pub inlined: bool,
}

/// What is known about the frames of one module instance. Instance 0 is code of no module (JIT).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleSymbols {
    pub instance: u16,
    pub state: SymbolState,
    /// A sentence for people: which file was used, or why none was.
    pub note: String,
    /// Low 48 bits of `Frame` (exact, offset) -> places. An empty list means that the frame was looked up and has no
    /// name.
    pub frames: Vec<(u64, Vec<CodeLocation>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    pub strings: Vec<String>,
    pub functions: Vec<Function>,
    pub modules: Vec<ModuleSymbols>,
}

/// Fills a `Symbols`, with each string only once.
#[derive(Debug, Default)]
pub struct SymbolsBuilder {
    symbols: Symbols,
    strings: HashMap<String, u32>,
    functions: IntMap<Function, u32>,
    bytes: usize,
}

impl SymbolsBuilder {
    pub fn string(&mut self, text: &str) -> u32 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.symbols.strings.len() as u32;
        self.bytes += text.len() + 4;
        self.symbols.strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    pub fn function(&mut self, raw: &str, full: &str, short: &str) -> u32 {
        let function = Function { raw: self.string(raw), full: self.string(full), short: self.string(short) };
        let next = self.symbols.functions.len() as u32;
        let index = *self.functions.entry(function).or_insert(next);
        if index == next {
            self.bytes += 12;
            self.symbols.functions.push(function);
        }
        index
    }

    pub fn module(&mut self, instance: u16, state: SymbolState, note: &str) {
        self.bytes += note.len() + 16;
        self.symbols.modules.push(ModuleSymbols { instance, state, note: note.to_owned(), frames: Vec::new() });
    }

    /// Adds a frame of the module that was added last.
    pub fn frame(&mut self, key: u64, places: Vec<CodeLocation>) {
        if let Some(module) = self.symbols.modules.last_mut() {
            self.bytes += 8 + places.len() * 12;
            module.frames.push((key, places));
        }
    }

    /// The approximate length of the block. The caller must call `take` while it is far below `MAX_RAW`.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    pub const fn is_empty(&self) -> bool {
        self.symbols.modules.is_empty()
    }

    pub fn take(&mut self) -> Symbols {
        std::mem::take(self).symbols
    }
}

impl Symbols {
    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.strings.len() as u64);
        for text in &self.strings {
            put_bytes(&mut out, text.as_bytes());
        }
        put(&mut out, self.functions.len() as u64);
        for function in &self.functions {
            put(&mut out, function.raw as u64);
            put(&mut out, function.full as u64);
            put(&mut out, function.short as u64);
        }
        put(&mut out, self.modules.len() as u64);
        for module in &self.modules {
            module.encode(&mut out);
        }
        RawBlock { kind: BlockKind::Symbols, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let strings = cursor.list(Cursor::str)?;
        let string = |cursor: &mut Cursor| below(cursor.u32()?, strings.len());
        let functions = cursor
            .list(|cursor| Ok(Function { raw: string(cursor)?, full: string(cursor)?, short: string(cursor)? }))?;
        let modules = cursor.list(|cursor| ModuleSymbols::decode(cursor, functions.len(), strings.len()))?;
        cursor.end()?;
        Ok(Symbols { strings, functions, modules })
    }
}

impl ModuleSymbols {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.instance as u64);
        out.push(self.state as u8);
        put_bytes(out, self.note.as_bytes());
        put(out, self.frames.len() as u64);
        let mut last = 0u64;
        for (key, places) in &self.frames {
            put(out, zigzag(key.wrapping_sub(last) as i64));
            last = *key;
            put(out, places.len() as u64);
            for place in places {
                put(out, place.function.map_or(0, |index| index as u64 + 1) << 1 | place.inlined as u64);
                put(out, place.file.map_or(0, |index| index as u64 + 1));
                put(out, place.line.unwrap_or(0) as u64);
            }
        }
    }

    fn decode(cursor: &mut Cursor, functions: usize, strings: usize) -> Result<Self, Malformed> {
        let instance = u16::try_from(cursor.u64()?).map_err(|_| Malformed::Overflow)?;
        let state = SymbolState::from_number(cursor.byte()?)?;
        let note = cursor.str()?;
        let mut last = 0u64;
        let frames = cursor.list(|cursor| {
            last = last.wrapping_add(unzigzag(cursor.u64()?) as u64);
            let places = cursor.list(|cursor| {
                let function = cursor.u64()?;
                let file = index(cursor.u64()?, strings)?;
                let line = cursor.u32()?;
                Ok(CodeLocation {
                    function: index(function >> 1, functions)?,
                    file,
                    line: (line != 0).then_some(line),
                    inlined: function & 1 != 0,
                })
            })?;
            Ok((last, places))
        })?;
        Ok(ModuleSymbols { instance, state, note, frames })
    }
}

fn below(index: u32, count: usize) -> Result<u32, Malformed> {
    if (index as usize) < count { Ok(index) } else { Err(Malformed::Reference) }
}

/// Decodes an optional index: 0 means none, n means index n - 1. Returns an error if the index is not below `count`.
fn index(number: u64, count: usize) -> Result<Option<u32>, Malformed> {
    match number.checked_sub(1) {
        None => Ok(None),
        Some(index) => below(u32::try_from(index).map_err(|_| Malformed::Overflow)?, count).map(Some),
    }
}
