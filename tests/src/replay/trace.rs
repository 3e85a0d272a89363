//! A trace as a flat list of blocks, each with its whole stack.
use format::{
    Block as FormatBlock, CodeLocation, Domain, Event, Frame, Freed, MemoryInstant, MemoryMap, Module, Process, Reader,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// One level of a stack, with the fields that every output has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub function: Option<String>,
    pub short: Option<String>,
    /// The mangled name.
    pub raw: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub module: Option<String>,
    /// `None` if this level stands for missing frames.
    pub offset: Option<u64>,
    pub inlined: bool,
    pub class: Option<&'static str>,
}

/// The class of code by its module: the class of the first pattern that the path contains.
pub const CLASSES: [(&str, &str); 5] =
    [("/app", "program"), ("libc.so", "libc"), ("libstdc++", "runtime"), ("vdso", "kernel"), ("", "dependency")];

/// The same classes as a file for `--rules`.
pub fn rules() -> String {
    let modules: String = CLASSES.iter().map(|(part, class)| format!("{class} module *{part}*\n")).collect();
    // For code without a module.
    modules + "program name *\nprogram path *\n"
}

/// An allocated block, with the positions of the events that allocated and ended it.
#[derive(Clone, Debug)]
pub struct Block {
    pub size: u64,
    /// Index of `Trace::stacks`.
    pub stack: usize,
    pub thread: u32,
    /// Index of `Trace::allocators`.
    pub allocator: usize,
    pub born: usize,
    pub born_ns: u64,
    pub end: Option<End>,
}

/// The end of a block. `exec` and the end of its process end a block without freeing it.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub at: usize,
    pub ns: u64,
    pub freed: bool,
    /// Its process ended without freeing it.
    pub leaked: bool,
    pub temporary: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub blocks: Vec<Block>,
    /// The time of each event.
    pub times: Vec<u64>,
    /// The live bytes before the first event and after each event, so it has one more entry than `times`.
    pub totals: Vec<u64>,
    /// Distinct stacks, leaf first, without the frames of the allocator itself.
    pub stacks: Vec<Vec<Level>>,
    /// For each stack, the different sizes.
    pub sizes: Vec<BTreeSet<u64>>,
    /// For each stack, all its frames in the form of `kde_frame`.
    pub frames: Vec<Vec<String>>,
    /// Files that were loaded more than once. In heaptrack's own outputs, all their instances have the same names.
    pub reloaded: BTreeSet<String>,
    pub runtime_ns: u64,
    pub suppressions: String,
    pub threads: Vec<u32>,
    pub command: Vec<String>,
    /// The names of the allocators, malloc first.
    pub allocators: Vec<String>,
    /// Empty unless the trace is that of a tree of processes.
    pub processes: BTreeMap<u32, Process>,
    /// Thread -> the index of its process.
    pub process_of_thread: BTreeMap<u32, u32>,
    pub memory: Vec<MemoryInstant>,
    pub maps: Vec<MemoryMap>,
}

/// The module of a frame and the offset in it. Equal for a library that was loaded twice.
type Position = (Option<(String, Vec<u8>)>, u64);

/// The names of a function (raw, full, short), its file and line, and whether it was inlined.
type Named = (Option<[String; 3]>, Option<String>, Option<u32>, bool);

#[derive(Default)]
struct Names {
    modules: BTreeMap<u16, Module>,
    places: HashMap<Position, Vec<Named>>,
}

impl Trace {
    pub fn read(path: &Path, domain: Domain) -> Trace {
        let mut trace = Trace::default();
        let mut names = Names::default();
        let mut allocator_of: HashMap<u32, usize> = HashMap::new();
        trace.allocators.push("malloc".to_owned());
        let (mut nodes, mut alloc_classes) = (vec![(0, Frame::CUT)], Vec::new());
        let (mut now, mut image, mut told) = (0, 0, 0);
        let mut events = Vec::new();
        let mut reader = Reader::open(path).expect("a trace");
        reader.set_domain(domain);
        while let Some(block) = reader.next_block().expect("readable") {
            match block.decode().expect("well-formed") {
                FormatBlock::Session(session) => trace.command = session.command,
                FormatBlock::Suppressions(text) => trace.suppressions = text.0,
                FormatBlock::Modules(modules) => names.modules.extend(modules.into_iter().map(|m| (m.instance, m))),
                FormatBlock::Processes(more) => {
                    trace.processes.extend(more.processes.into_iter().map(|process| (process.index, process)));
                    trace.process_of_thread.extend(more.threads);
                }
                FormatBlock::Threads(threads) => trace.threads.extend(threads.iter().map(|thread| thread.index)),
                FormatBlock::Stacks(stacks) => {
                    assert_eq!(stacks.first as usize, nodes.len());
                    nodes.extend(stacks.nodes.iter().map(|node| (node.parent, node.frame)));
                }
                FormatBlock::AllocClasses(more) => alloc_classes
                    .extend(more.alloc_classes.iter().map(|alloc_class| (alloc_class.size, alloc_class.stack))),
                FormatBlock::Allocators(allocators) if domain == Domain::Malloc => {
                    for (name, classes) in allocators.lists {
                        if !trace.allocators.contains(&name) {
                            trace.allocators.push(name.clone());
                        }
                        let index = trace.allocators.iter().position(|known| *known == name).expect("added");
                        allocator_of.extend(classes.into_iter().map(|class| (class, index)));
                    }
                }
                FormatBlock::Symbols(symbols) => names.add(&symbols),
                FormatBlock::MemoryMap(map) => trace.maps.push(map),
                FormatBlock::MemoryParts(parts) => trace.memory.extend(parts.instants),
                FormatBlock::Samples(samples) => told = samples.iter().fold(told, |told, s| told.max(s.time_ns)),
                FormatBlock::Summary(summary) => told = told.max(summary.totals.runtime_ns),
                FormatBlock::Events(mut block) => {
                    now = block.time_ns().max(now);
                    let mut thread = block.thread();
                    if block.image() != image {
                        image = block.image();
                        events.push((now, thread, Event::Image(image)));
                    }
                    while let Some(event) = block.read().expect("well-formed events") {
                        match event {
                            Event::Time(ns) => now = now.max(ns),
                            Event::Thread(index) => thread = index,
                            other => events.push((now, thread, other)),
                        }
                        if let Event::Image(number) = event {
                            image = number;
                        }
                    }
                }
                _ => {}
            }
        }
        trace.runtime_ns = now.max(told);
        trace.threads.sort_unstable();
        trace.threads.dedup();
        let stack_of = trace.add_stacks(&names, &nodes, &alloc_classes);
        let allocator_of: Vec<usize> =
            (0..alloc_classes.len() as u32).map(|class| allocator_of.get(&class).copied().unwrap_or(0)).collect();
        trace.replay(&events, &alloc_classes, &stack_of, &allocator_of);
        trace
    }

    /// Returns for every allocation class the index of its stack. Stacks with the same frames are one stack.
    fn add_stacks(&mut self, names: &Names, nodes: &[(u32, Frame)], alloc_classes: &[(u64, u32)]) -> Vec<usize> {
        let mut known: HashMap<Vec<Position>, usize> = HashMap::new();
        let mut stack_of = Vec::new();
        let mut paths = BTreeSet::new();
        let loaded_again = names.modules.values().filter(|module| !paths.insert(&module.path));
        self.reloaded = loaded_again.map(|module| module.path.clone()).collect();
        for (size, stack) in alloc_classes {
            let (mut frames, mut at) = (Vec::new(), *stack);
            while at != 0 {
                frames.push(nodes[at as usize].1);
                at = nodes[at as usize].0;
            }
            let key = frames.iter().map(|frame| names.place(*frame)).collect();
            let next = self.stacks.len();
            let number = *known.entry(key).or_insert(next);
            if number == next {
                let frame = |frame: &Frame| {
                    let levels = names.levels(*frame);
                    let functions: Vec<&str> =
                        levels.iter().map(|level| level.function.as_deref().unwrap_or_default()).collect();
                    self.kde_frame(levels[0].module.as_deref().unwrap_or_default(), &functions)
                };
                let keys = frames.iter().map(frame).collect();
                self.frames.push(keys);
                let levels = frames.iter().flat_map(|frame| names.levels(*frame));
                self.stacks.push(levels.skip_while(Level::is_allocator).collect());
                self.sizes.push(BTreeSet::new());
            }
            self.sizes[number].insert(*size);
            stack_of.push(number);
        }
        stack_of
    }

    /// A frame as KDE's file has it: its module and its functions. The functions of a file that was loaded again are
    /// left out, because KDE's file names each instance separately.
    pub fn kde_frame(&self, module: &str, functions: &[&str]) -> String {
        let is_named = !self.reloaded.contains(module) && functions.iter().any(|name| !name.is_empty());
        format!("{module}: {}", if is_named { functions.join(" ") } else { String::new() })
    }

    fn replay(
        &mut self,
        events: &[(u64, u32, Event)],
        alloc_classes: &[(u64, u32)],
        stack_of: &[usize],
        allocator_of: &[usize],
    ) {
        let mut live: HashMap<u64, usize> = HashMap::new();
        let mut latest: HashMap<u32, u64> = HashMap::new();
        let mut total = 0;
        self.totals.push(0);
        for (ns, thread, event) in events {
            let at = self.times.len();
            let end = |freed, temporary| Some(End { at, ns: *ns, freed, leaked: false, temporary });
            match event {
                Event::Alloc { sequence, alloc_class } => {
                    let (size, stack) = (alloc_classes[*alloc_class as usize].0, stack_of[*alloc_class as usize]);
                    live.insert(*sequence, self.blocks.len());
                    let (thread, allocator) = (*thread, allocator_of[*alloc_class as usize]);
                    self.blocks.push(Block { size, stack, thread, allocator, born: at, born_ns: *ns, end: None });
                    latest.insert(thread, *sequence);
                    total += size;
                }
                Event::Free { sequence, how } => {
                    let block = &mut self.blocks[live.remove(sequence).expect("a live block")];
                    block.end = Some(End {
                        at,
                        ns: *ns,
                        freed: !matches!(how, Freed::Leaked | Freed::Replaced),
                        leaked: *how == Freed::Leaked,
                        temporary: *how == Freed::Call && latest.get(thread) == Some(sequence),
                    });
                    total -= block.size;
                }
                Event::Image(_) => {
                    live.drain().for_each(|(_, block)| self.blocks[block].end = end(false, false));
                    latest.clear();
                    total = 0;
                }
                Event::LatestGone => drop(latest.remove(thread)),
                Event::UnknownFree | Event::Release { .. } | Event::Thread(_) | Event::Time(_) => {}
            }
            self.times.push(*ns);
            self.totals.push(total);
        }
    }
}

impl Names {
    fn place(&self, frame: Frame) -> Position {
        let module = self.modules.get(&frame.instance()).filter(|_| !frame.is_marker() && !frame.is_jit());
        let low = if frame.is_marker() { frame.0 } else { frame.0 & ((1 << 48) - 1) };
        (module.map(|module| (module.path.clone(), module.build_id.clone())), low)
    }

    fn add(&mut self, symbols: &format::Symbols) {
        let text = |index: u32| symbols.strings[index as usize].clone();
        for module in &symbols.modules {
            for (low, places) in &module.frames {
                let place = self.place(Frame((module.instance as u64) << 48 | low));
                let named = |place: &CodeLocation| {
                    let function = place.function.map(|index| symbols.functions[index as usize]);
                    let function = function.map(|f| [text(f.raw), text(f.full), text(f.short)]);
                    (function, place.file.map(text), place.line, place.inlined)
                };
                if !places.is_empty() || !self.places.contains_key(&place) {
                    self.places.insert(place, places.iter().map(named).collect());
                }
            }
        }
    }

    /// The levels of a frame, innermost first.
    fn levels(&self, frame: Frame) -> Vec<Level> {
        if frame.is_marker() {
            let name = Some(if frame == Frame::CUT { "[frames left out]" } else { "[damaged]" }.to_owned());
            return vec![Level { function: name.clone(), short: name, ..Level::default() }];
        }
        let place = self.place(frame);
        let module = place.0.as_ref().map(|(path, _)| path.clone());
        let places = self.places.get(&place).filter(|places| !places.is_empty()).cloned();
        let levels = places.unwrap_or_else(|| vec![(None, None, None, false)]).into_iter();
        levels
            .map(|(function, file, line, inlined)| {
                let [raw, full, short] = function.map_or([None, None, None], |names| names.map(Some));
                let class = match &module {
                    Some(path) => CLASSES.iter().find(|(part, _)| path.contains(part)).map(|(_, class)| *class),
                    None => Some(if full.is_some() || file.is_some() { "program" } else { "runtime" }),
                };
                let (offset, module) = (Some(frame.offset()), module.clone());
                Level { function: full, short, raw, file, line, module, offset, inlined, class }
            })
            .collect()
    }
}

impl Level {
    /// True for `operator new`, and for the functions through which Rust reports its own blocks.
    pub fn is_allocator(&self) -> bool {
        let own = ["13heaptrack_api", "heaptrack_api..Reported"];
        let named =
            |raw: &String| raw.starts_with("_Znw") || raw.starts_with("_Zna") || own.iter().any(|o| raw.contains(o));
        self.raw.as_ref().is_some_and(named)
    }
}
