//! Random traces. A recorder may write all of this, in combinations that no small program produces.
mod family;

use crate::Chance;
use family::Family;
use format::{
    AllocClassEncoder, CodeLocation, Domain, EventEncoder, Exit, FileWriter, Frame, Module, RawBlock, RssSample,
    Session, StackEncoder, Summary, Suppressions, SymbolState, SymbolsBuilder, Thread,
};
use std::collections::BTreeSet;

const TICK_NS: u64 = 100_000;
const THREADS: u32 = 3;
/// Indexed by instance, from 1. The last instance is the second module, loaded again.
const MODULES: [&str; 7] = [
    "/made/app",
    "/made/libdep.so",
    "/usr/lib/libstdc++.so.6",
    "/usr/lib/libc.so.6",
    "/made/app-plugin.so",
    "[vdso]",
    "/made/libdep.so",
];
/// Raw name, full name, short name, file.
const FUNCTIONS: [(&str, &str, &str, Option<&str>); 24] = [
    ("main", "main", "main", Some("/src/main.cpp")),
    ("_ZN4shop4Item4loadEi", "shop::Item::load(int)", "shop::Item::load", Some("/src/item.cpp")),
    ("_ZN4shop4Item4saveEi", "shop::Item::save(int)", "shop::Item::save", Some("/src/item.cpp")),
    ("_ZN4shop5Cache3addEv", "shop::Cache<db::Key>::add()", "shop::Cache<db::Key>::add", Some("/src/cache.cpp")),
    ("_ZN5leaky4initEv", "leaky::init()", "leaky::init", Some("/src/leaky.cpp")),
    ("work", "work", "work", None),
    ("again", "again", "again", Some("/src/again.c")),
    ("_ZNSt6vectorIiE4growEv", "std::vector<int>::grow()", "std::vector<int>::grow", Some("/usr/include/c++/vector")),
    ("start_thread", "start_thread", "start_thread", None),
    ("strdup", "strdup", "strdup", Some("strdup.c")),
    ("parse", "parse", "parse", Some("/src/parse;x.c")),
    ("__libc_start_main", "__libc_start_main", "__libc_start_main", None),
    ("xmalloc", "xmalloc", "xmalloc", Some("/src/steps.c")),
    ("node_realloc", "node_realloc", "node_realloc", Some("/src/steps.c")),
    ("step1", "step1", "step1", Some("/src/steps.c")),
    ("step2", "step2", "step2", Some("/src/steps.c")),
    ("step3", "step3", "step3", Some("/src/steps.c")),
    ("step4", "step4", "step4", Some("/src/steps.c")),
    ("step5", "step5", "step5", Some("/src/steps.c")),
    ("step6", "step6", "step6", Some("/src/steps.c")),
    ("step7", "step7", "step7", Some("/src/steps.c")),
    ("step8", "step8", "step8", Some("/src/steps.c")),
    ("_Znwm", "operator new(unsigned long)", "operator new", None),
    ("_Znam", "operator new[](unsigned long)", "operator new[]", None),
];
const ALLOCATORS: usize = 22;

/// A trace with about this many events in each domain.
pub fn blocks(chance: &mut Chance, steps: u64) -> Vec<RawBlock> {
    let session = Session {
        version: 1,
        command: vec!["/made/app".into(), "now".into()],
        exe: "/made/app".into(),
        pid: 77,
        started_unix_ns: 1_700_000_000_000_000_000,
        page_size: 4096,
        system_memory: 1 << 33,
        tool: "heaptrack".into(),
        ..Session::default()
    };
    let module = |(instance, path): (u16, &&str)| Module {
        instance,
        path: (*path).into(),
        build_id: path.bytes().take(6).collect(),
        ..Module::default()
    };
    let modules: Vec<Module> = (1..).zip(&MODULES).map(module).collect();
    let thread = |index| Thread { index, tid: 100 + index, image: 1, name: format!("worker {index}") };
    let mut blocks = vec![
        session.to_block(),
        Suppressions("leak:leaky::\n".into()).to_block(),
        Module::to_block(&modules[..6]),
        Thread::to_block(&(0..THREADS).map(thread).collect::<Vec<_>>()),
    ];
    let mut maker = Maker { stacks: StackEncoder::new(), nodes: vec![0], frames: Vec::new(), known: BTreeSet::new() };
    let mut lanes = vec![Lane::new(Domain::Malloc)];
    if chance.between(0, 3) == 0 {
        lanes[0].family = Some(Family::new(THREADS));
    }
    if chance.between(0, 3) == 0 {
        lanes.push(Lane::new(Domain::Custom));
    }
    for part in 0..2 {
        if part == 1 {
            blocks.push(Module::to_block(&modules[6..]));
        }
        maker.grow(chance, if part == 0 { 6 } else { 7 });
        blocks.push(maker.stacks.take());
        for lane in &mut lanes {
            lane.add_alloc_classes(chance, &maker.nodes, &mut blocks);
            lane.add_events(chance, steps / 2, &mut blocks);
        }
    }
    blocks.push(names(chance, &maker.frames));
    let runtime_ns = lanes.iter().map(|lane| lane.tick).max().unwrap_or(0) * TICK_NS + chance.between(0, 30 * TICK_NS);
    let sample = |at: u64| RssSample { time_ns: runtime_ns * at / 8, rss_bytes: at << 20, overhead_bytes: 1 << 10 };
    blocks.push(RssSample::to_block(&(0..8).map(sample).collect::<Vec<_>>()));
    for lane in lanes {
        let mut summary = Summary { complete: true, exit: Exit::Code(0), ..Summary::default() };
        summary.totals.runtime_ns = runtime_ns;
        blocks.push(summary.to_block().of(lane.domain));
    }
    blocks
}

pub fn file(blocks: &[RawBlock]) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), 1).expect("memory");
    for block in blocks {
        writer.write(block).expect("memory");
    }
    writer.finish().expect("memory")
}

struct Maker {
    stacks: StackEncoder,
    nodes: Vec<u32>,
    frames: Vec<Frame>,
    /// A recorder defines each stack only once.
    known: BTreeSet<(u32, u64)>,
}

impl Maker {
    fn grow(&mut self, chance: &mut Chance, modules: u64) {
        for _ in 0..chance.between(4, 24) {
            let parent = self.nodes[chance.between(0, self.nodes.len() as u64) as usize];
            let frame = match chance.between(0, 20) {
                0 => Frame::CUT,
                1 => Frame::new(0, 0x7f00_0000_1000 + chance.between(0, 3), false),
                _ => Frame::new(
                    1 + chance.between(0, modules) as u16,
                    0x1000 + 16 * chance.between(0, 6),
                    chance.between(0, 30) == 0,
                ),
            };
            if self.known.insert((parent, frame.0)) {
                self.nodes.push(self.stacks.push(parent, frame));
                self.frames.push(frame);
            }
        }
    }
}

/// Names for most frames, some with inlined functions. The second instance of a module has some names of its own.
fn names(chance: &mut Chance, frames: &[Frame]) -> RawBlock {
    let mut names = SymbolsBuilder::default();
    let mut seen = BTreeSet::new();
    for instance in 0..=MODULES.len() as u16 {
        names.module(instance, SymbolState::Debug, "");
        for frame in frames.iter().filter(|frame| frame.instance() == instance && !frame.is_marker()) {
            if !seen.insert(frame.0) {
                continue;
            }
            let count = chance.between(0, 4) * chance.between(0, 2) + chance.between(0, 5).min(1);
            let places = (0..count).map(|at| place(chance, &mut names, at + 1 < count)).collect();
            names.frame(frame.0 & ((1 << 48) - 1), places);
        }
    }
    names.take().to_block()
}

fn place(chance: &mut Chance, names: &mut SymbolsBuilder, inlined: bool) -> CodeLocation {
    let at = chance.between(0, FUNCTIONS.len() as u64) as usize;
    let (raw, full, short, file) = FUNCTIONS[at];
    let has_line = at < ALLOCATORS && chance.between(0, 6) > 0;
    CodeLocation {
        function: (chance.between(0, 12) > 0).then(|| names.function(raw, full, short)),
        file: file.map(|file| names.string(file)),
        line: (file.is_some() && has_line).then(|| chance.between(1, 4) as u32),
        inlined,
    }
}

/// The events of one domain.
struct Lane {
    domain: Domain,
    alloc_classes: AllocClassEncoder,
    count: u64,
    events: EventEncoder,
    live: Vec<u64>,
    tick: u64,
    image: u32,
    /// The processes, if the trace is that of a tree of processes.
    family: Option<Family>,
    sizes: Vec<u64>,
}

impl Lane {
    fn new(domain: Domain) -> Self {
        let (alloc_classes, events) = (AllocClassEncoder::new(), EventEncoder::new());
        Lane {
            domain,
            alloc_classes,
            count: 0,
            events,
            live: Vec::new(),
            tick: 0,
            image: 0,
            family: None,
            sizes: Vec::new(),
        }
    }

    fn add_alloc_classes(&mut self, chance: &mut Chance, nodes: &[u32], blocks: &mut Vec<RawBlock>) {
        for _ in 0..chance.between(3, 25) {
            let stack = nodes[chance.between(0, nodes.len() as u64) as usize];
            let size = if chance.between(0, 10) == 0 { 0 } else { chance.between(1, 3000) };
            self.alloc_classes.push(size, stack);
            self.sizes.push(size);
            self.count += 1;
        }
        blocks.push(self.alloc_classes.take().of(self.domain));
    }

    fn add_events(&mut self, chance: &mut Chance, steps: u64, blocks: &mut Vec<RawBlock>) {
        if let Some(mut family) = self.family.take() {
            family.add_events(self, chance, steps, blocks);
            self.family = Some(family);
            return;
        }
        let growing = chance.between(46, 62);
        for _ in 0..steps {
            match chance.between(0, 100) {
                0..4 => {
                    self.tick += chance.between(1, 6);
                    self.events.time(self.tick * TICK_NS);
                }
                4..7 => self.events.thread(chance.between(0, THREADS as u64) as u32),
                7 if chance.between(0, 80) == 0 => {
                    self.image += 1;
                    self.events.image(self.image);
                    self.live.clear();
                }
                8 => self.events.unknown_free(),
                9 if chance.between(0, 4) == 0 => blocks.push(self.events.take().of(self.domain)),
                choice if self.live.is_empty() || choice < growing => {
                    self.live.push(self.events.alloc(chance.between(0, self.count) as u32));
                }
                choice => {
                    // Often the youngest block, so that there are temporary blocks.
                    let last = self.live.len() as u64 - 1;
                    let at = if choice % 3 == 0 { last } else { chance.between(0, last + 1) };
                    let sequence = self.live.remove(at as usize);
                    match chance.between(0, 16) {
                        0 => self.events.free_implied(sequence),
                        1..4 => {
                            self.events.free_by_realloc(sequence);
                            self.live.push(self.events.alloc(chance.between(0, self.count) as u32));
                        }
                        _ => self.events.free(sequence),
                    }
                }
            }
        }
        blocks.push(self.events.take().of(self.domain));
    }
}
