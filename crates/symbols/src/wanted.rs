//! The frames of a trace that have no name yet.
//!
//! Receives: the blocks of a trace, in file order. Returns: frames to resolve, by file. Must hold: a frame is returned
//! once, and again only after `give_back`. A frame that a Symbols block has resolved is not returned. It does not count
//! as resolved if its file was missing, of another build or unreadable, or if it is JIT code without a name. If there
//! are new places to look for debug information (`hopeful`), it does not count as resolved either if its file had none.
use format::{Block, BlockKind, Exit, IntSet, Module, RawBlock, Session, SymbolState};
use std::collections::{BTreeMap, HashMap};

/// Kinds of large blocks that `Wanted` does not need.
pub const SKIPPED: &[BlockKind] =
    &[BlockKind::Events, BlockKind::AllocClasses, BlockKind::Samples, BlockKind::Checkpoint];

#[derive(Default)]
pub struct Wanted {
    pub session: Option<Session>,
    /// How the session ended. `None` if it has not, or its end is not in the file.
    pub exit: Option<Exit>,
    modules: BTreeMap<u16, Module>,
    /// Frames that were returned before, or are resolved in the file.
    seen: IntSet<u64>,
    pending: Vec<u64>,
    /// There are frames of JIT code, which belongs to no module.
    has_jit: bool,
    /// Modules since the last call of `new_modules`.
    new_modules: Vec<u16>,
    /// There are new places to look for debug information.
    is_hopeful: bool,
}

/// The frames of one file, which may have been loaded several times.
#[derive(Clone, Debug)]
pub struct ModuleWork {
    /// `None`: JIT code.
    pub module: Option<Module>,
    /// (instance, low 48 bits of the frame).
    pub frames: Vec<(u16, u64)>,
}

impl Wanted {
    pub fn new() -> Self {
        Self::default()
    }

    /// Like `new`, but frames of files that had no debug information before are returned, too.
    pub fn hopeful() -> Self {
        Wanted { is_hopeful: true, ..Self::default() }
    }

    pub fn add(&mut self, block: &RawBlock) {
        match block.decode() {
            Ok(Block::Session(session)) => self.session = Some(session),
            Ok(Block::Summary(summary)) => self.exit = Some(summary.exit),
            Ok(Block::Modules(modules)) => {
                for module in modules {
                    let instance = module.instance;
                    if self.modules.insert(instance, module).is_none() {
                        self.new_modules.push(instance);
                    }
                }
            }
            Ok(Block::Stacks(stacks)) => {
                let frames = stacks.nodes.iter().map(|node| node.frame).filter(|frame| !frame.is_marker());
                for frame in frames {
                    if self.seen.insert(frame.0) {
                        self.has_jit |= frame.is_jit();
                        self.pending.push(frame.0);
                    }
                }
            }
            Ok(Block::Symbols(symbols)) => {
                for module in &symbols.modules {
                    self.answered(module);
                }
            }
            _ => {}
        }
    }

    fn answered(&mut self, module: &format::ModuleSymbols) {
        let is_jit = module.instance == 0
            || self.modules.get(&module.instance).is_some_and(|known| known.code_of_process().is_some());
        let found = match module.state {
            SymbolState::Debug => true,
            SymbolState::Symbols | SymbolState::Stripped => !self.is_hopeful || is_jit,
            _ => false,
        };
        if !found {
            return;
        }
        // A JIT compiler may have named a function since the last attempt.
        let answers = module.frames.iter().filter(|(_, places)| !is_jit || !places.is_empty());
        let known: IntSet<u64> = answers.map(|(key, _)| (module.instance as u64) << 48 | key).collect();
        self.seen.extend(&known);
        // Symbols may come before or after the stacks that they name.
        self.pending.retain(|frame| !known.contains(frame));
    }

    /// The modules since the last call.
    pub fn new_modules(&mut self) -> Vec<&Module> {
        let new = std::mem::take(&mut self.new_modules);
        new.iter().filter_map(|instance| self.modules.get(instance)).collect()
    }

    /// Whether a stack has a frame of JIT code.
    pub const fn has_jit(&self) -> bool {
        self.has_jit
    }

    pub const fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes all pending frames, the files with the most frames first.
    pub fn take(&mut self) -> Vec<ModuleWork> {
        let mut by_file: HashMap<Option<(&str, &[u8])>, ModuleWork> = HashMap::new();
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_unstable();
        for frame in pending {
            let instance = (frame >> 48) as u16;
            let module = self.modules.get(&instance).filter(|_| instance != 0);
            if module.is_none() && instance != 0 {
                continue;
            }
            let file = module.map(|module| (module.path.as_str(), module.build_id.as_slice()));
            let work =
                by_file.entry(file).or_insert_with(|| ModuleWork { module: module.cloned(), frames: Vec::new() });
            work.frames.push((instance, frame & ((1 << 48) - 1)));
        }
        let mut works: Vec<ModuleWork> = by_file.into_values().collect();
        let path = |work: &ModuleWork| work.module.as_ref().map(|module| module.path.clone());
        works.sort_by_key(|work| (std::cmp::Reverse(work.frames.len()), path(work)));
        works
    }

    /// Returns frames that could not be resolved, so that the next `take` has them again.
    pub fn give_back(&mut self, work: &ModuleWork) {
        self.pending.extend(work.frames.iter().map(|(instance, key)| (*instance as u64) << 48 | key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{CodeLocation, Frame, StackEncoder, SymbolsBuilder};

    const NAMED: u64 = 0x1000;
    const NOT_TOLD_YET: u64 = 0x2000;

    fn stacks() -> RawBlock {
        let mut encoder = StackEncoder::new();
        encoder.push(0, Frame(NAMED));
        encoder.push(0, Frame(NOT_TOLD_YET));
        encoder.take()
    }

    /// The block that was written while the JIT compiler's file had only the first of two functions.
    fn early() -> RawBlock {
        let mut builder = SymbolsBuilder::default();
        builder.module(0, SymbolState::Symbols, "");
        let function = Some(builder.function("f", "f", "f"));
        builder.frame(NAMED, vec![CodeLocation { function, file: None, line: None, inlined: false }]);
        builder.frame(NOT_TOLD_YET, Vec::new());
        builder.take().to_block()
    }

    #[test]
    fn jit_code_without_a_name_is_asked_for_again() {
        for blocks in [[stacks(), early()], [early(), stacks()]] {
            let mut wanted = Wanted::new();
            blocks.iter().for_each(|block| wanted.add(block));
            let works = wanted.take();
            let frames: Vec<_> = works.iter().flat_map(|work| &work.frames).collect();
            assert_eq!(frames, [&(0, NOT_TOLD_YET)]);
        }
    }
}
