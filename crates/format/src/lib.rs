//! The trace file: what is in it, how it is written, how it is read again.
//!
//! Receives: plain data about one session (events, stacks, modules, threads ...). Returns: a file of self-contained
//! blocks; and from such a file, complete, growing, truncated or damaged, the data again. Must hold:
//!
//! - **Any prefix is readable**: a definition (module, stack, allocation class, thread) comes before its first use.
//! - **Hostile bytes cause an error or a note of damage**, never a panic, an endless loop or a huge allocation.
//! - **Every version ever written still opens** (`tests/data`).
//! - The crate reads no processes, no debug files and no clock.
//!
//! ```text
//! events, stacks ... -> EventEncoder, StackEncoder ... -> RawBlock -> FileWriter -> bytes
//! bytes -> Reader -> RawBlock -> Block (decoded) -> the analysis
//! ```
//!
//! `docs/format.md` draws the bytes; a test compares it with this code.
#![forbid(unsafe_code)]

mod alloc_class;
mod allocators;
mod append;
mod block;
mod checkpoint;
mod class_counter;
mod domain;
mod error;
mod event;
mod flat;
mod fold;
mod folded;
mod fragmentation;
mod frame;
mod gone;
mod heap;
mod index;
mod kde;
mod live_blocks;
mod losses;
mod map;
mod map_calls;
mod memory_facts;
mod memory_map;
mod memory_parts;
mod merge;
mod module;
mod numbered;
mod peak;
mod process;
mod process_counter;
mod process_past;
mod reader;
mod sample;
mod sampling;
mod session;
mod source;
mod stack;
mod summary;
mod symbols;
mod tally;
mod thread;
mod trim;
mod unseen;
mod waits;
mod walk;
mod wire;
mod writer;

pub use alloc_class::{AllocClass, AllocClassEncoder, AllocClasses};
pub use allocators::Allocators;
pub use append::Appender;
pub use block::{Block, BlockHeader, BlockKind, HEADER_LEN, MAX_RAW, RawBlock};
pub use checkpoint::Checkpoint;
pub use class_counter::{ClassCounter, ClassCounts};
pub use domain::Domain;
pub use error::{Error, Malformed};
pub use event::{Event, EventEncoder, Events, Freed, MAX_EVENTS};
pub use flat::{Flat, Start};
pub use fold::fold;
pub use folded::{Folded, FoldedRow};
pub use fragmentation::{Fragmentation, PinningSite, SizeFill};
pub use frame::Frame;
pub use gone::{Gone, GoneBlock};
pub use heap::HeapAtAttach;
pub use index::{Index, IndexEntry, TRAILER_LEN};
pub use kde::{Counting, KdeAhead, KdeCounts, KdeFileKind, KdeReader, KdeRule, Shorten};
pub use live_blocks::{Kept, LiveBlocks};
pub use losses::Losses;
pub use map::{IntMap, IntSet};
pub use map_calls::MapCalls;
pub use memory_facts::MemoryFacts;
pub use memory_map::{MapCell, MemoryMap};
pub use memory_parts::{MemoryInstant, MemoryPart, MemoryParts, part_kind};
pub use merge::{MergeError, Merged, merge};
pub use module::Module;
pub use peak::PeakTracker;
pub use process::{Process, ProcessEnd, ProcessStart, Processes};
pub use process_counter::ProcessCounter;
pub use reader::{Damage, Reader};
pub use sample::RssSample;
pub use sampling::{Sampling, Variance, Weight};
pub use session::{Session, Suppressions};
pub use source::Source;
pub use stack::{StackEncoder, StackNode, Stacks};
pub use summary::{Exit, Summary, Totals};
pub use symbols::{CodeLocation, Function, ModuleSymbols, SymbolState, Symbols, SymbolsBuilder};
pub use thread::Thread;
pub use trim::{Trimmed, trim, trim_domains};
pub use unseen::Unseen;
pub use waits::Waits;
pub use walk::{Visitor, Walked};
pub use writer::FileWriter;

/// The first bytes of every trace. As in PNG, the first byte is not ASCII, and the line ends reveal a text conversion.
pub const FILE_MAGIC: [u8; 8] = *b"\x8bHTZ\r\n\x1a\n";
/// The version that this code writes. It reads this and every earlier version.
pub const VERSION: u32 = 1;
/// The length of the file's header in bytes: magic (8), version (4), zero (4).
pub const FILE_HEADER_LEN: usize = 16;
