//! A small trace in which every option makes a difference.
//!
//! ```text
//! time   thread 0                                     thread 1
//! 0 s    sort 100, fill 10 (line 3), fill 10 freed
//! 1 s                                                 sort 5000, exit handler 50 and own leak 60
//! 2 s    fill 20 (line 3) twice, fill 30 (line 4)     sort 5000 freed
//! 3 s    load 300 four times, freed
//! 4 s    the end
//! ```
//! The blocks of 5000, 30, 60 and 300 bytes come from jemalloc, the others from malloc. The program also reports one block of a custom allocator at 0 s.
use format::{
    AllocClassEncoder, Allocators, CodeLocation, Domain, EventEncoder, Exit, FileWriter, Frame, MapCell, MemoryInstant,
    MemoryMap, MemoryPart, MemoryParts, Module, Process, ProcessStart, Processes, RawBlock, Session, StackEncoder,
    Summary, Suppressions, SymbolState, SymbolsBuilder, Thread, Totals, part_kind,
};
use std::path::{Path, PathBuf};

const SECOND: u64 = 1_000_000_000;
const APP: u16 = 1;
const LIBC: u16 = 2;
const LIBRARY: u16 = 3;

/// Module, offset, full name, short name, file, line.
type Code = (u16, u64, &'static str, &'static str, &'static str, u32);
const MAIN: Code = (APP, 0x100, "main", "main", "/home/me/app/main.cpp", 10);
const GROW: Code = (APP, 0x200, "shop::Cart<int>::grow(int)", "shop::Cart<int>::grow", "/home/me/app/cart.cpp", 5);
const GROW_AGAIN: Code =
    (APP, 0x210, "shop::Cart<int>::grow(int)", "shop::Cart<int>::grow", "/home/me/app/cart.cpp", 6);
const PARSE: Code = (APP, 0x300, "text::parse()", "text::parse", "/home/me/app/parse.cpp", 3);
const PARSE_BELOW: Code = (APP, 0x310, "text::parse()", "text::parse", "/home/me/app/parse.cpp", 4);
const LOAD: Code = (APP, 0x400, "load()", "load", "/home/me/app/main.cpp", 20);
const OWN_LEAK: Code = (APP, 0x500, "own_leak()", "own_leak", "/home/me/app/main.cpp", 30);
const SORT: Code = (LIBC, 0x600, "qsort", "qsort", "", 0);
const EXIT: Code = (LIBC, 0x700, "__new_exitfn", "__new_exitfn", "", 0);
const FILL: Code = (LIBRARY, 0x800, "fill()", "fill", "/usr/src/fill.cpp", 7);
const ALL: [Code; 10] = [MAIN, GROW, GROW_AGAIN, PARSE, PARSE_BELOW, LOAD, OWN_LEAK, SORT, EXIT, FILL];

fn names() -> RawBlock {
    let mut names = SymbolsBuilder::default();
    for module in [APP, LIBC, LIBRARY] {
        names.module(module, SymbolState::Debug, "");
        for (_, offset, full, short, file, line) in ALL.iter().filter(|code| code.0 == module) {
            let function = Some(names.function(full, full, short));
            let has_file = !file.is_empty();
            let file = has_file.then(|| names.string(file));
            names
                .frame(*offset, vec![CodeLocation { function, file, line: has_file.then_some(*line), inlined: false }]);
        }
    }
    names.take().to_block()
}

fn modules() -> RawBlock {
    let paths = [(APP, "/home/me/app/app"), (LIBC, "/usr/lib/libc.so.6"), (LIBRARY, "/usr/lib/libfill.so")];
    let module = |(instance, path): (u16, &str)| Module { instance, path: path.into(), ..Module::default() };
    Module::to_block(&paths.map(module))
}

fn stack(stacks: &mut StackEncoder, codes: &[Code]) -> u32 {
    codes.iter().fold(0, |parent, code| stacks.push(parent, Frame::new(code.0, code.1, false)))
}

/// Returns the blocks of the trace. With `extra`, some allocations happen this many times more, which makes a trace to
/// compare with.
pub fn blocks(extra: usize) -> Vec<RawBlock> {
    let mut stacks = StackEncoder::new();
    let mut stack = |codes: &[Code]| stack(&mut stacks, codes);
    let sort = stack(&[MAIN, GROW, GROW_AGAIN, SORT]);
    let (fill, fill_below) = (stack(&[MAIN, PARSE, FILL]), stack(&[MAIN, PARSE_BELOW, FILL]));
    let (exit, own, load) = (stack(&[MAIN, EXIT]), stack(&[MAIN, OWN_LEAK]), stack(&[MAIN, LOAD]));
    let fill_by_load = stack(&[MAIN, LOAD, FILL]);
    let mut alloc_classes = AllocClassEncoder::new();
    let mut alloc_class = |size, stack| alloc_classes.push(size, stack);
    let (sort_small, sort_large) = (alloc_class(100, sort), alloc_class(5000, sort));
    let (fill_10, fill_20, fill_30) = (alloc_class(10, fill), alloc_class(20, fill), alloc_class(30, fill_below));
    let (exit, own, load) = (alloc_class(50, exit), alloc_class(60, own), alloc_class(300, load));
    let fill_15 = alloc_class(15, fill_by_load);
    let mut allocators = Allocators::default();
    [sort_large, fill_30, own, load].into_iter().for_each(|class| allocators.push("jemalloc", class));
    let mut events = EventEncoder::new();
    events.alloc(sort_small);
    events.alloc(fill_10);
    let freed = events.alloc(fill_10);
    events.free(freed);
    for _ in 0..extra {
        events.alloc(fill_30);
        let freed = events.alloc(fill_15);
        events.free(freed);
    }
    events.time(SECOND);
    events.thread(1);
    for _ in 0..extra {
        for alloc_class in [sort_small, exit, own] {
            events.alloc(alloc_class);
        }
    }
    let large = events.alloc(sort_large);
    events.alloc(exit);
    events.alloc(own);
    events.time(2 * SECOND);
    events.free(large);
    events.thread(0);
    for alloc_class in [fill_20, fill_20, fill_30] {
        events.alloc(alloc_class);
    }
    for _ in 0..extra {
        for alloc_class in [fill_15, load] {
            events.alloc(alloc_class);
        }
    }
    events.time(3 * SECOND);
    let loaded: Vec<u64> = (0..4).map(|_| events.alloc(load)).collect();
    loaded.into_iter().for_each(|block| events.free(block));
    let (mut custom_alloc_classes, mut custom_events) = (AllocClassEncoder::new(), EventEncoder::new());
    let custom = custom_alloc_classes.push(7, sort);
    for _ in 0..=extra {
        custom_events.alloc(custom);
    }
    let session =
        Session { command: vec!["./app".into()], exe: "/home/me/app/app".into(), pid: 7, ..Session::default() };
    let thread = |index| Thread { index, tid: 70 + index, ..Thread::default() };
    let root = Process { pid: 7, command: vec!["./app".into()], ..Process::default() };
    let worker = Process {
        index: 1,
        pid: 8,
        parent: Some(0),
        start: ProcessStart::Spawned,
        command: vec!["./worker".into(), "1".into()],
        exe: "/home/me/app/worker".into(),
        start_ns: SECOND,
        events_before: 4 + 3 * extra as u64,
        ..Process::default()
    };
    let processes = Processes { processes: vec![root, worker], threads: vec![(0, 0), (1, 1)] };
    let totals = Totals { runtime_ns: 4 * SECOND, ..Totals::default() };
    let summary = Summary { complete: true, exit: Exit::Code(0), totals };
    vec![
        session.to_block(),
        Suppressions("leak:own_leak\n".into()).to_block(),
        modules(),
        Thread::to_block(&[thread(0), thread(1)]),
        processes.to_block(),
        stacks.take(),
        alloc_classes.take(),
        allocators.to_block(),
        events.take(),
        memory().to_block(),
        map().to_block(),
        custom_alloc_classes.take().of(Domain::Custom),
        custom_events.take().of(Domain::Custom),
        names(),
        summary.to_block(),
        summary.to_block().of(Domain::Custom),
    ]
}

/// At 2 s, 8192 bytes are resident: 290 in live blocks.
fn memory() -> MemoryParts {
    let part = |kind: &str, rss_bytes| MemoryPart {
        kind: kind.into(),
        rss_bytes,
        pss_bytes: rss_bytes,
        ..MemoryPart::default()
    };
    let parts = vec![part(part_kind::BLOCKS, 290), part(part_kind::FILE, 7902)];
    let instant =
        MemoryInstant { time_ns: 2 * SECOND, rss_bytes: 8192, pss_bytes: 8192, parts, ..MemoryInstant::default() };
    MemoryParts { instants: vec![instant], ..MemoryParts::default() }
}

/// At 2 s, live blocks have a page, and a file another one.
fn map() -> MemoryMap {
    let names = vec![part_kind::BLOCKS.into(), part_kind::FILE.into(), "main heap".into(), "/lib/app".into()];
    let cell = |start, live_bytes, kind, name| MapCell {
        start,
        pages: 2,
        resident_pages: 1,
        live_bytes,
        kind,
        name,
        ..MapCell::default()
    };
    MemoryMap {
        time_ns: 2 * SECOND,
        rss_bytes: 8192,
        names,
        cells: vec![cell(0x10000, 290, 0, 2), cell(0x7f00_0000_0000, 0, 1, 3)],
    }
}

/// The files of one test, which are removed at its end.
pub struct Files(pub PathBuf);

impl Files {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("heaptrack-{name}.{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = Files(folder);
        files.trace("app.htz", &blocks(0));
        files.trace("base.htz", &blocks(3));
        std::fs::write(files.path("rules"), "program module */libfill.so\n").unwrap();
        std::fs::write(files.path("known"), "leak:parse\n").unwrap();
        files
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn trace(&self, name: &str, blocks: &[RawBlock]) {
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        for block in blocks {
            writer.write(block).unwrap();
        }
        std::fs::write(self.path(name), writer.finish().unwrap()).unwrap();
    }

    /// Returns the text of a file that a command wrote, and removes the file.
    pub fn take(&self, path: &Path) -> String {
        let bytes = std::fs::read(path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
