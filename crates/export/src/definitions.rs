//! What the events of a trace refer to, for formats that are written from blocks.
//!
//! Receives: all blocks but the events. Must hold: a definition that is lost in a damaged file leaves a placeholder, so
//! that the numbers of later ones stay right.
use format::{AllocClass, Block, BlockKind, Frame, Module, RssSample, Session, Source, StackNode, Summary, Symbols};
use std::collections::{BTreeMap, HashMap};

/// Kinds of large blocks that are not needed here.
const SKIPPED: &[BlockKind] = &[BlockKind::Events, BlockKind::Checkpoint];
/// The most lost definitions for which placeholders are made. A file that claims more of them is invalid.
const HOLES: usize = 1 << 22;
const LOST_NODE: StackNode = StackNode { parent: 0, frame: Frame::LOST };
/// An allocation class whose definition was lost.
pub(crate) const LOST_ALLOC_CLASS: AllocClass = AllocClass { size: u64::MAX, stack: 0 };

/// A function at an address. `function` and `file` are indexes of `Definitions::strings`. `line` is 0 if it is not
/// known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedLocation {
    pub(crate) function: Option<u32>,
    pub(crate) file: Option<u32>,
    pub(crate) line: u32,
}

#[derive(Default)]
pub(crate) struct Definitions {
    pub(crate) session: Session,
    pub(crate) summary: Option<Summary>,
    pub(crate) suppressions: String,
    /// The number of events that were folded into sums.
    pub(crate) folded_events: u64,
    /// Blocks that a process of a merged trace held when it ended, and (below) when it replaced itself.
    pub(crate) gone_at_end: u64,
    pub(crate) gone_by_exec: u64,
    pub(crate) modules: BTreeMap<u16, Module>,
    /// By stack id - 1.
    pub(crate) nodes: Vec<StackNode>,
    pub(crate) alloc_classes: Vec<AllocClass>,
    /// Sorted by time.
    pub(crate) samples: Vec<RssSample>,
    pub(crate) strings: Vec<String>,
    /// Frame -> its places, innermost first.
    pub(crate) places: HashMap<u64, Vec<NamedLocation>>,
    known: HashMap<String, u32>,
    holes: usize,
}

impl Definitions {
    pub(crate) fn read(mut source: Source) -> Result<Self, format::Error> {
        let mut definitions = Definitions::default();
        source.skip(SKIPPED);
        while let Some(block) = source.next_block()? {
            // A malformed block is treated like a lost one.
            if let Ok(block) = block.decode() {
                definitions.add(block);
            }
        }
        definitions.samples.sort_by_key(|sample| sample.time_ns);
        Ok(definitions)
    }

    fn add(&mut self, block: Block) {
        match block {
            Block::Session(session) => self.session = session,
            Block::Summary(summary) => self.summary = Some(summary),
            Block::Folded(folded) => self.folded_events = self.folded_events.saturating_add(folded.events),
            Block::Gone(gone) if gone.is_leak => self.gone_at_end += gone.blocks.len() as u64,
            Block::Gone(gone) => self.gone_by_exec += gone.blocks.len() as u64,
            Block::Suppressions(text) => self.suppressions = text.0,
            Block::Modules(modules) => self.modules.extend(modules.into_iter().map(|module| (module.instance, module))),
            Block::Stacks(stacks) => {
                let first = (stacks.first as usize).saturating_sub(1);
                extend(&mut self.nodes, first, stacks.nodes, LOST_NODE, &mut self.holes);
            }
            Block::AllocClasses(alloc_classes) => {
                extend(
                    &mut self.alloc_classes,
                    alloc_classes.first as usize,
                    alloc_classes.alloc_classes,
                    LOST_ALLOC_CLASS,
                    &mut self.holes,
                );
            }
            Block::Samples(samples) => self.samples.extend(samples),
            Block::Symbols(symbols) => self.add_symbols(&symbols),
            _ => (),
        }
    }

    fn add_symbols(&mut self, symbols: &Symbols) {
        let strings: Vec<u32> = symbols.strings.iter().map(|text| self.string(text)).collect();
        let text = |index: u32| strings.get(index as usize).copied();
        for module in &symbols.modules {
            for (key, places) in &module.frames {
                let frame = (module.instance as u64) << 48 | key;
                // An empty list never replaces a name: the module's file may have been deleted since.
                if places.is_empty() && self.places.contains_key(&frame) {
                    continue;
                }
                let place = |place: &format::CodeLocation| NamedLocation {
                    function: place.function.and_then(|index| text(symbols.functions.get(index as usize)?.full)),
                    file: place.file.and_then(text),
                    line: place.line.unwrap_or(0),
                };
                self.places.insert(frame, places.iter().map(place).collect());
            }
        }
    }

    pub(crate) fn string(&mut self, text: &str) -> u32 {
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let next = self.strings.len() as u32;
        self.strings.push(text.to_owned());
        self.known.insert(text.to_owned(), next);
        next
    }

    /// Returns the node with this stack id. Id 0 has none.
    pub(crate) fn node(&self, stack: u32) -> Option<StackNode> {
        self.nodes.get((stack as usize).checked_sub(1)?).copied()
    }
}

/// Puts `new` at `first`, with placeholders for missing entries. Drops all of `new` if it overlaps earlier entries or
/// if too many entries are missing.
fn extend<T: Copy>(list: &mut Vec<T>, first: usize, new: Vec<T>, lost: T, holes: &mut usize) {
    let Some(gap) = first.checked_sub(list.len()).filter(|gap| *gap <= HOLES - *holes) else { return };
    *holes += gap;
    list.resize(first, lost);
    list.extend(new);
}
