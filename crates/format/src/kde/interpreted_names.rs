//! The tables of an interpreted file: strings, instruction pointers with their names, and the modules they are in.
//!
//! Receives: `s` and `i` lines. Returns: a frame for each pointer, and blocks of modules and symbols for what is new.
//! Must hold: two pointers of the file are two frames, even if a writer gave both the same address; memory is bounded.
use super::line::Fields;
use crate::{CodeLocation, Frame, Module, RawBlock, SymbolState, SymbolsBuilder};
use std::collections::{HashMap, HashSet};

/// A file with more bytes of strings is refused.
const MOST_TEXT: usize = 512 << 20;
const MOST_POINTERS: usize = 1 << 26;
const MOST_PLACES: usize = 4096;
/// A Symbols block is closed at this many bytes.
const PIECE: usize = 4 << 20;
/// Pointers that share their address with another one get addresses from here on.
const SPARE: u64 = 1 << 46;

/// Functions that C++ uses to call malloc. KDE's readers show the caller of such a function instead. Each has its
/// readable name and its mangled name.
const ALLOCATORS: [(&str, &str); 4] = [
    ("operator new(unsigned long)", "_Znwm"),
    ("operator new[](unsigned long)", "_Znam"),
    ("operator new(unsigned int)", "_Znwj"),
    ("operator new[](unsigned int)", "_Znaj"),
];

/// Makes the short form of a function's name. The caller provides it, because this crate knows nothing about languages.
pub type Shorten = fn(&str) -> String;

#[derive(Clone, Copy)]
pub(crate) struct Pointer {
    pub(crate) frame: Frame,
    pub(crate) is_allocator: bool,
}

/// A place in the source of the program.
#[derive(Clone, Copy)]
struct Spot {
    /// The number of a string, from 1. 0 = none.
    function: u32,
    /// The number of a string, from 1. 0 = none.
    file: u32,
    /// The number of the line. 0 = unknown.
    line: u32,
}

#[derive(Default)]
pub(crate) struct Names {
    /// Makes the short form of a function's name. Without it, the full name is used.
    pub(crate) shorten: Option<Shorten>,
    strings: Vec<Box<str>>,
    text: usize,
    pointers: Vec<Pointer>,
    /// The instance of each module, by the number of the string that is its path.
    modules: HashMap<u32, u16>,
    /// By instance: the best that is known of any of its frames. A reader takes the state of a module from its last block,
    /// which must not depend on where blocks are cut.
    states: HashMap<u16, SymbolState>,
    new_modules: Vec<(u16, u32)>,
    /// Frames that are in use.
    frames: HashSet<u64>,
    shared: u64,
    /// Frames that are not in a block yet, and their places.
    pending: Vec<(Frame, Vec<Spot>)>,
}

impl Names {
    /// Returns false if the file has more text than we accept.
    pub(crate) fn string(&mut self, text: &[u8]) -> bool {
        self.text += text.len() + 16;
        if self.text > MOST_TEXT {
            return false;
        }
        self.strings.push(String::from_utf8_lossy(text).into());
        true
    }

    /// Returns false if the line is invalid, or if the file has too many pointers.
    pub(crate) fn pointer(&mut self, mut fields: Fields) -> bool {
        let (Some(address), Some(module)) = (fields.number(), fields.index()) else { return false };
        if self.pointers.len() >= MOST_POINTERS {
            return false;
        }
        let mut spots = Vec::new();
        while let Some(function) = fields.index().filter(|_| spots.len() < MOST_PLACES) {
            let file = fields.index().unwrap_or(0);
            spots.push(Spot { function, file, line: fields.index().unwrap_or(0) });
        }
        let instance = self.instance(module);
        let frame = self.frame(instance, address);
        let name = spots.first().and_then(|spot| self.text_of(spot.function));
        let is_allocator = name.is_some_and(|name| ALLOCATORS.iter().any(|known| known.0 == name));
        self.pointers.push(Pointer { frame, is_allocator });
        self.pending.push((frame, spots));
        true
    }

    /// Returns a pointer by its number in the file, from 1.
    pub(crate) fn get(&self, number: u32) -> Option<Pointer> {
        self.pointers.get((number as usize).checked_sub(1)?).copied()
    }

    /// True if the program's own file is not known yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// The path of the program's own file, which is the first string that a recorder writes.
    pub(crate) fn program(&self) -> Option<&str> {
        self.strings.first().map(|text| &**text).filter(|text| text.starts_with('/'))
    }

    fn text_of(&self, number: u32) -> Option<&str> {
        self.strings.get((number as usize).checked_sub(1)?).map(|text| &**text)
    }

    /// Returns 0 for code of no module, and for modules beyond the largest instance.
    fn instance(&mut self, module: u32) -> u16 {
        if let Some(instance) = self.modules.get(&module) {
            return *instance;
        }
        let next = self.modules.len() as u16 + 1;
        if module == 0 || self.text_of(module).is_none() || next >= u16::MAX - 1 {
            return 0;
        }
        self.modules.insert(module, next);
        self.new_modules.push((next, module));
        next
    }

    fn frame(&mut self, instance: u16, address: u64) -> Frame {
        let mut frame = Frame::new(instance, address, true);
        while !self.frames.insert(frame.0) {
            self.shared += 1;
            frame = Frame::new(instance, SPARE + self.shared, true);
        }
        frame
    }

    /// Returns blocks for everything since the last call, modules first.
    pub(crate) fn take(&mut self, out: &mut impl FnMut(RawBlock)) {
        let new = std::mem::take(&mut self.new_modules);
        let module = |(instance, path): &(u16, u32)| {
            let path = self.text_of(*path).unwrap_or_default().to_owned();
            Module { instance: *instance, path, end: SPARE << 1, ..Module::default() }
        };
        if !new.is_empty() {
            out(Module::to_block(&new.iter().map(module).collect::<Vec<_>>()));
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|(frame, _)| frame.0);
        let mut builder = SymbolsBuilder::default();
        for group in pending.chunk_by(|one, other| one.0.instance() == other.0.instance()) {
            let Some((first, _)) = group.first() else { continue };
            let state = state(group.iter().flat_map(|(_, spots)| spots));
            let known = self.states.entry(first.instance()).or_insert(state);
            *known = state.min(*known);
            let state = *known;
            let mut is_named = false;
            for (frame, spots) in group {
                if builder.len() > PIECE {
                    out(builder.take().to_block());
                    is_named = false;
                }
                if !is_named {
                    builder.module(frame.instance(), state, "");
                    is_named = true;
                }
                let places = self.places(&mut builder, spots);
                builder.frame(frame.0 & ((1 << 48) - 1), places);
            }
        }
        if !builder.is_empty() {
            out(builder.take().to_block());
        }
    }

    fn places(&self, builder: &mut SymbolsBuilder, spots: &[Spot]) -> Vec<CodeLocation> {
        let place = |(at, spot): (usize, &Spot)| {
            let function = self.text_of(spot.function).filter(|name| !name.is_empty()).map(|name| {
                let raw = ALLOCATORS.iter().find(|known| known.0 == name).map_or(name, |known| known.1);
                match self.shorten {
                    Some(shorten) => builder.function(raw, name, &shorten(name)),
                    None => builder.function(raw, name, name),
                }
            });
            let file = self.text_of(spot.file).map(|file| builder.string(file));
            let line = (spot.line != 0 && file.is_some()).then_some(spot.line);
            CodeLocation { function, file, line, inlined: at + 1 < spots.len() }
        };
        spots.iter().enumerate().map(place).collect()
    }
}

fn state<'a>(spots: impl Iterator<Item = &'a Spot>) -> SymbolState {
    let mut state = SymbolState::Stripped;
    for spot in spots {
        if spot.file != 0 && spot.line != 0 {
            return SymbolState::Debug;
        }
        if spot.function != 0 {
            state = SymbolState::Symbols;
        }
    }
    state
}
