//! The names of the frames of one process.
//!
//! Receives: frames and their modules. Returns: names, lines, offsets in bytes. Must hold: memory is bounded. A frame
//! without a name is shown by its module or its address. What is read from a file is used for all processes.
use crate::record::MEMORY_FOR_NAMES;
use channel::FrameKey;
use format::{Module, Symbols};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;
use symbols::{Finder, Jit, ModuleWork, Search, Target};

/// When this many names are kept for a process, they are all forgotten before the next lookup. The same number holds
/// for the names that all processes share.
const MOST_KNOWN: usize = 1 << 16;
const LOW_BITS: u64 = (1 << 48) - 1;

/// One function at a frame; several where calls were inlined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub function: Option<String>,
    /// The name without its arguments.
    pub short: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub is_inlined: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The return address, in memory.
    pub address: u64,
    /// Innermost first. Empty if no name is known.
    pub levels: Arc<Vec<Level>>,
    /// Bytes from the function's start.
    pub from_start: Option<u64>,
    /// The file, and the address in it.
    pub module: Option<(String, u64)>,
}

/// Identifies a file that several processes may have mapped: path, build-id, and, if it has no build-id, the process.
type File = (String, Vec<u8>, u32);

/// What is known of an address in a file.
#[derive(Clone, Default)]
struct Answer {
    levels: Arc<Vec<Level>>,
    from_start: Option<u64>,
}

/// The names that were looked up, by file and address.
#[derive(Default)]
pub struct Answers {
    files: HashMap<File, HashMap<u64, Answer>>,
    count: usize,
}

pub struct Names {
    pid: u32,
    target: Target,
    search: Search,
    jit: Jit,
    known: HashMap<u64, Arc<Named>>,
    answers: Rc<RefCell<Answers>>,
}

impl Names {
    pub fn new(pid: u32, answers: Rc<RefCell<Answers>>) -> Self {
        let started_unix_ns = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |age| age.as_nanos() as u64);
        Names {
            pid,
            answers,
            target: Target::new(pid),
            search: Search { started_unix_ns, ..Search::default() },
            jit: Jit::default(),
            known: HashMap::new(),
        }
    }

    pub fn get(&self, frame: u64) -> Arc<Named> {
        self.known.get(&frame).cloned().unwrap_or_default()
    }

    /// Looks up the frames that have no name yet.
    pub fn learn(&mut self, frames: impl Iterator<Item = u64>, modules: &[Module]) {
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let mut wanted: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for frame in frames {
            let key = FrameKey(frame);
            // Code outside of modules may have been replaced by another function, so it is looked up again.
            if key.instance() == 0 || !self.known.contains_key(&frame) {
                wanted.entry(key.instance()).or_default().push(frame);
            }
        }
        for (instance, mut frames) in wanted {
            frames.sort_unstable();
            frames.dedup();
            match modules.iter().find(|module| module.instance == instance) {
                Some(module) => self.learn_module(module, &frames),
                None if instance == 0 => self.learn_jit(&frames),
                None => (),
            }
        }
    }

    fn learn_module(&mut self, module: &Module, frames: &[u64]) {
        let owner = if module.build_id.is_empty() { self.pid } else { 0 };
        let file = (module.path.clone(), module.build_id.clone(), owner);
        let mut answers = self.answers.take();
        if answers.count >= MOST_KNOWN {
            answers = Answers::default();
        }
        let known = answers.files.entry(file).or_default();
        let unknown: Vec<u64> =
            frames.iter().map(|frame| frame & LOW_BITS).filter(|key| !known.contains_key(key)).collect();
        answers.count += unknown.len();
        if !unknown.is_empty() {
            known.extend(self.look_up(module, &unknown));
        }
        for frame in frames {
            let offset = FrameKey(*frame).offset();
            let Answer { levels, from_start } = known.get(&(frame & LOW_BITS)).cloned().unwrap_or_default();
            let address = module.bias.wrapping_add(offset);
            let named = Named { address, levels, from_start, module: Some((module.path.clone(), offset)) };
            self.known.insert(*frame, Arc::new(named));
        }
        self.answers.replace(answers);
    }

    /// Looks up names in the module's file. `keys` are the low bits of frames.
    fn look_up(&self, module: &Module, keys: &[u64]) -> Vec<(u64, Answer)> {
        let finder = Finder { search: &self.search, target: Some(&self.target) };
        let frames = keys.iter().map(|key| (module.instance, *key)).collect();
        let mut levels = HashMap::new();
        let work = ModuleWork { module: Some(module.clone()), frames };
        symbols::resolve_module(
            &work,
            module,
            finder,
            Some(MEMORY_FOR_NAMES),
            || false,
            |symbols, _| {
                take_levels(&symbols, &mut levels);
                true
            },
        );
        let starts = symbols::starts(module, finder, Some(MEMORY_FOR_NAMES), keys);
        let answer = |(key, start): (&u64, Option<u64>)| {
            let from_start = start.map(|start| FrameKey(*key).offset().saturating_sub(start));
            (*key, Answer { levels: Arc::new(levels.remove(key).unwrap_or_default()), from_start })
        };
        keys.iter().zip(starts).map(answer).collect()
    }

    fn learn_jit(&mut self, frames: &[u64]) {
        self.jit.refresh(&self.target);
        for frame in frames {
            let key = FrameKey(*frame);
            let address = key.offset();
            let found = self.jit.find_start(if key.is_exact() { address } else { address.saturating_sub(1) });
            let level = found.map(|(_, code)| Level {
                function: Some(code.name.full.clone()),
                short: Some(code.name.short.clone()),
                file: code.file.clone(),
                line: code.line,
                is_inlined: false,
            });
            let named = Named {
                address,
                levels: Arc::new(level.into_iter().collect()),
                from_start: found.map(|(start, _)| address.saturating_sub(start)),
                module: found.map(|_| ("[jit]".to_owned(), address)),
            };
            self.known.insert(*frame, Arc::new(named));
        }
    }
}

fn take_levels(symbols: &Symbols, levels: &mut HashMap<u64, Vec<Level>>) {
    let text = |index: u32| symbols.strings.get(index as usize).cloned();
    for (key, places) in symbols.modules.iter().flat_map(|module| &module.frames) {
        let found = places.iter().map(|place| {
            let function = place.function.and_then(|index| symbols.functions.get(index as usize));
            Level {
                function: function.and_then(|function| text(function.full)),
                short: function.and_then(|function| text(function.short)),
                file: place.file.and_then(text),
                line: place.line,
                is_inlined: place.inlined,
            }
        });
        levels.insert(*key, found.collect());
    }
}
