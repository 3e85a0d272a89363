//! The names of frames: all Symbols blocks of a trace, merged.
use crate::interning::number_of;
use format::{CodeLocation, Frame, Function, IntMap, SymbolState, Symbols};
use std::collections::{BTreeMap, HashMap};

/// One level of a stack for people: a frame, or a function that was inlined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level<'a> {
    pub frame: Frame,
    /// The module's path.
    pub module: Option<&'a str>,
    /// The full demangled name.
    pub function: Option<&'a str>,
    /// The short demangled name.
    pub short: Option<&'a str>,
    /// As the linker knows it.
    pub raw: Option<&'a str>,
    pub file: Option<&'a str>,
    pub line: Option<u32>,
    /// Inlined into the next level, so it has no frame of its own.
    pub inlined: bool,
}

impl Level<'_> {
    /// The name of a level that stands for missing frames.
    pub fn marker(&self) -> Option<&'static str> {
        match self.frame {
            Frame::CUT => Some("[frames left out]"),
            frame if frame.is_marker() => Some("[damaged]"),
            _ => None,
        }
    }

    /// Whether the level is `operator new` or `operator new[]`, in any form, or the function of `heaptrack_api` that
    /// reports a block.
    pub fn is_allocator(&self) -> bool {
        // Nearly every name needs only the first of these searches.
        let reports = |raw: &str| {
            raw.contains("heaptrack_api")
                && (raw.contains("13heaptrack_api") || raw.contains("heaptrack_api..Reported"))
        };
        self.raw.is_some_and(|raw| raw.starts_with("_Znw") || raw.starts_with("_Zna") || reports(raw))
    }
}

/// How the names of a module were found, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleNames {
    pub state: SymbolState,
    pub note: String,
}

#[derive(Clone, Debug, Default)]
pub struct Names {
    strings: Vec<String>,
    functions: Vec<Function>,
    places: Vec<CodeLocation>,
    /// Frame -> range of `places`.
    frames: IntMap<u64, (u32, u32)>,
    modules: BTreeMap<u16, ModuleNames>,
    known_strings: foldhash::HashMap<String, u32>,
    known_functions: IntMap<Function, u32>,
}

impl Names {
    /// `first`: maps instances of modules that were loaded again to the first instance of the same file.
    pub(crate) fn add(&mut self, block: Symbols, first: &HashMap<u16, u16>) {
        let Symbols { strings, functions, modules } = block;
        let strings: Vec<u32> = strings.into_iter().map(|text| self.string(text)).collect();
        let text = |index: u32| strings.get(index as usize).copied().unwrap_or(0);
        let functions: Vec<u32> = functions
            .iter()
            .map(|old| Function { raw: text(old.raw), full: text(old.full), short: text(old.short) })
            .map(|function| self.function(function))
            .collect();
        for module in modules {
            let instance = first.get(&module.instance).copied().unwrap_or(module.instance);
            for (key, places) in module.frames {
                let from = self.places.len() as u32;
                self.places.extend(places.iter().map(|place| CodeLocation {
                    function: place.function.and_then(|index| functions.get(index as usize).copied()),
                    file: place.file.map(text),
                    ..*place
                }));
                let frame = (instance as u64) << 48 | key & ((1 << 48) - 1);
                // A name is never removed, because a later block may have been written when the file was gone.
                if !places.is_empty() || !self.frames.contains_key(&frame) {
                    self.frames.insert(frame, (from, self.places.len() as u32));
                }
            }
            self.modules.insert(module.instance, ModuleNames { state: module.state, note: module.note });
        }
    }

    fn string(&mut self, text: String) -> u32 {
        number_of(text, &mut self.known_strings, &mut self.strings)
    }

    fn function(&mut self, function: Function) -> u32 {
        number_of(function, &mut self.known_functions, &mut self.functions)
    }

    /// By instance of a module: how many of its frames have no name, and how many it has.
    pub fn frames_by_module(&self) -> BTreeMap<u16, (usize, usize)> {
        let mut counts: BTreeMap<u16, (usize, usize)> = BTreeMap::new();
        for (frame, (from, to)) in &self.frames {
            let frame = Frame(*frame);
            if frame.is_marker() || frame.is_jit() {
                continue;
            }
            let places = self.places.get(*from as usize..*to as usize).unwrap_or_default();
            let count = counts.entry(frame.instance()).or_default();
            count.0 += places.iter().all(|place| place.function.is_none()) as usize;
            count.1 += 1;
        }
        counts
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// By instance.
    pub const fn modules(&self) -> &BTreeMap<u16, ModuleNames> {
        &self.modules
    }

    /// The levels of one frame, innermost first; at least one.
    pub(crate) fn levels<'a>(&'a self, frame: Frame, module: Option<&'a str>) -> impl Iterator<Item = Level<'a>> {
        let (from, to) = self.frames.get(&frame.0).copied().unwrap_or((0, 0));
        let places = self.places.get(from as usize..to as usize).unwrap_or_default();
        let unknown =
            Level { frame, module, function: None, short: None, raw: None, file: None, line: None, inlined: false };
        let text = |index: u32| self.strings.get(index as usize).map(String::as_str);
        let named = places.iter().map(move |place| {
            let function = place.function.and_then(|index| self.functions.get(index as usize));
            Level {
                function: function.and_then(|function| text(function.full)),
                short: function.and_then(|function| text(function.short)),
                raw: function.and_then(|function| text(function.raw)),
                file: place.file.and_then(text),
                line: place.line,
                inlined: place.inlined,
                ..unknown
            }
        });
        named.chain(places.is_empty().then_some(unknown))
    }
}
