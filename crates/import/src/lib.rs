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

/// A function at a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub function: String,
    /// As the linker knows it; empty if that is not known.
    pub system_name: String,
    /// Empty if it is not known, and 0 below.
    pub file: String,
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
    pub modules: Vec<Module>,
    pub frames: Vec<Frame>,
    pub stacks: Vec<Stack>,
    /// The values that the format has.
    pub known: Vec<Value>,
    /// The mean number of bytes between two samples, if not every allocation was counted. The values are estimates then.
    pub sampled_every: Option<u64>,
}

impl HeapProfile {
    pub(crate) const fn new(kind: Kind) -> Self {
        HeapProfile {
            kind,
            command: String::new(),
            pid: 0,
            started_unix_ns: 0,
            duration_ns: 0,
            modules: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            known: Vec::new(),
            sampled_every: None,
        }
    }

    pub fn total(&self, value: Value) -> u64 {
        self.stacks.iter().map(|stack| stack.values[value as usize]).fold(0, u64::saturating_add)
    }
}

/// Recognises a format by the first bytes of a file, unpacked. Some kilobytes are enough.
pub fn recognise(first: &[u8]) -> Option<Kind> {
    let is_in = |text: &[u8]| first.windows(text.len()).any(|part| part == text);
    let starts = |text: &[u8]| first.starts_with(text);
    match first {
        _ if starts(b"heap profile:") => Some(Kind::Gperftools),
        _ if starts(b"heap_v2/") => Some(Kind::Jemalloc),
        _ if starts(b"desc:") && is_in(b"\ncmd:") => Some(Kind::Massif),
        // Field 1 of the message, a value type, which begins with the number of its name.
        [0x0a, 2..=20, 0x08, ..] => Some(Kind::Pprof),
        _ if first.trim_ascii_start().starts_with(b"{") && is_in(b"\"dhatFileVersion\"") => Some(Kind::Dhat),
        _ => None,
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
