//! Heap profiles of other tools: pprof, DHAT, massif, gperftools and jemalloc.
//!
//! Receives: the bytes of a file. Returns: stacks with their costs, and which costs the format knows at all. Must hold: the
//! format is recognised by its content, never by a name; hostile bytes cause an error, never a panic; memory is bounded by
//! the size of the file and by `MOST_UNPACKED`.
#![forbid(unsafe_code)]

mod dhat;
mod heap_text;
mod massif;
mod pprof;
mod protobuf;
mod unpack;

pub use unpack::{MOST_UNPACKED, unpacked};

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pprof,
    Dhat,
    Massif,
    Gperftools,
    Jemalloc,
}

impl Kind {
    /// A name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Pprof => "a pprof profile",
            Kind::Dhat => "a profile of DHAT",
            Kind::Massif => "a profile of massif",
            Kind::Gperftools => "a heap profile of gperftools",
            Kind::Jemalloc => "a heap profile of jemalloc",
        }
    }

    /// True if hardly any other file begins like this. The beginning of an unpacked pprof file can be that of another
    /// Protocol Buffers message, too.
    pub const fn has_certain_beginning(self) -> bool {
        !matches!(self, Kind::Pprof)
    }
}

/// The bytes are not what their beginning says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, but {reason}", kind.name())]
pub struct Error {
    pub kind: Kind,
    pub reason: String,
}

/// A number of a stack. Which of them a format has is in `HeapProfile::known`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Allocations,
    AllocatedBytes,
    LiveAllocations,
    LiveBytes,
    PeakAllocations,
    PeakBytes,
    Temporary,
}

pub const VALUES: usize = 7;

impl Value {
    pub const ALL: [Value; VALUES] = [
        Value::Allocations,
        Value::AllocatedBytes,
        Value::LiveAllocations,
        Value::LiveBytes,
        Value::PeakAllocations,
        Value::PeakBytes,
        Value::Temporary,
    ];
}

/// Numbers, in the order of `Value::ALL`.
pub type Values = [u64; VALUES];

/// A function. Its texts are indexes of `HeapProfile::strings`, because a small file can name a long text very often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: u32,
    /// As the linker knows it; an empty text if that is not known.
    pub system_name: u32,
    /// An empty text if it is not known.
    pub file: u32,
}

/// A function at a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Index of `HeapProfile::functions`.
    pub function: u32,
    /// 0 if it is not known.
    pub line: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub address: u64,
    /// Index of `HeapProfile::modules`.
    pub module: Option<usize>,
    /// The innermost function first; the others are inlined into one another. Empty if no name is known.
    pub lines: Vec<Line>,
}

/// An object file, and where it was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    pub path: String,
    pub build_id: Vec<u8>,
    pub start: u64,
    pub end: u64,
    pub file_offset: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Indexes of `HeapProfile::frames`, innermost first.
    pub frames: Vec<u32>,
    pub values: Values,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapProfile {
    pub kind: Kind,
    pub command: String,
    pub pid: u32,
    /// When the profile begins, and how long it is; 0 if that is not known.
    pub started_unix_ns: u64,
    pub duration_ns: u64,
    /// The first one is empty.
    pub strings: Vec<String>,
    pub functions: Vec<Function>,
    pub modules: Vec<Module>,
    pub frames: Vec<Frame>,
    pub stacks: Vec<Stack>,
    /// The frames of all stacks together.
    frames_of_stacks: usize,
    /// The values that the format has.
    pub known: Vec<Value>,
    /// The mean number of bytes between two samples, if not every allocation was counted. The values are estimates then.
    pub sampled_every: Option<u64>,
    /// What else a reader of the numbers must know.
    pub note: Option<String>,
}

impl HeapProfile {
    pub(crate) fn new(kind: Kind) -> Self {
        HeapProfile {
            kind,
            command: String::new(),
            pid: 0,
            started_unix_ns: 0,
            duration_ns: 0,
            strings: vec![String::new()],
            functions: Vec::new(),
            modules: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            frames_of_stacks: 0,
            known: Vec::new(),
            sampled_every: None,
            note: None,
        }
    }

    pub fn text(&self, string: u32) -> &str {
        self.strings.get(string as usize).map_or("", String::as_str)
    }

    pub(crate) fn add_text(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        self.strings.push(text.to_owned());
        self.strings.len() as u32 - 1
    }

    /// Adds a frame with one function.
    pub(crate) fn add_frame(&mut self, address: u64, name: &str, file: &str, line: u32) -> u32 {
        let function = Function { name: self.add_text(name), system_name: 0, file: self.add_text(file) };
        self.functions.push(function);
        let line = Line { function: self.functions.len() as u32 - 1, line };
        self.frames.push(Frame { address, module: None, lines: vec![line] });
        self.frames.len() as u32 - 1
    }

    /// Fails if the stacks are too long together.
    pub(crate) fn add_stack(&mut self, stack: Stack) -> Result<(), String> {
        self.frames_of_stacks += stack.frames.len();
        if self.frames_of_stacks > MOST_FRAMES {
            return Err(format!("its stacks have more than {MOST_FRAMES} frames together"));
        }
        self.stacks.push(stack);
        Ok(())
    }

    pub fn total(&self, value: Value) -> u64 {
        self.stacks.iter().map(|stack| stack.values[value as usize]).fold(0, u64::saturating_add)
    }
}

/// The most frames of all stacks together, and (below) the most modules.
const MOST_FRAMES: usize = 16 << 20;
pub(crate) const MOST_MODULES: usize = 16 << 10;
/// The longest path of a module.
pub(crate) const LONGEST_PATH: usize = 4096;

/// Recognises a format by the first bytes of a file, unpacked. Some kilobytes are enough.
pub fn recognise(first: &[u8]) -> Option<Kind> {
    let is_in = |text: &[u8]| first.windows(text.len()).any(|part| part == text);
    let starts = |text: &[u8]| first.starts_with(text);
    match () {
        () if starts(b"heap profile:") => Some(Kind::Gperftools),
        () if starts(b"heap_v2/") => Some(Kind::Jemalloc),
        () if starts(b"desc:") && is_in(b"\ncmd:") => Some(Kind::Massif),
        () if first.trim_ascii_start().starts_with(b"{") && is_in(b"\"dhatFileVersion\"") => Some(Kind::Dhat),
        () if pprof::is_beginning(first) => Some(Kind::Pprof),
        () => None,
    }
}

/// Reads a whole file, unpacked.
pub fn read(kind: Kind, bytes: &[u8]) -> Result<HeapProfile, Error> {
    let error = |reason: String| Error { kind, reason };
    let text = || std::str::from_utf8(bytes).map_err(|_| error("it has bytes that are no text".into()));
    let profile = match kind {
        Kind::Pprof => pprof::read(bytes),
        Kind::Dhat => dhat::read(bytes),
        Kind::Massif => massif::read(text()?),
        Kind::Gperftools => heap_text::read_gperftools(text()?),
        Kind::Jemalloc => heap_text::read_jemalloc(text()?),
    };
    profile.map_err(error)
}
