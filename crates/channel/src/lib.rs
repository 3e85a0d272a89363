//! The shared memory between a target and its collector.
//!
//! Receives: one memfd that the collector created, sized and sealed. Returns: typed views of its parts, the same on
//! both sides. Must hold:
//!
//! - **No allocation, no `std`, no panic**: the target's side runs inside `malloc`.
//! - **Every number from the other side is hostile.** It is copied to a local, checked, then used.
//! - **What is committed survives the writer**: the pages belong to the file, not to the process.
//!
//! ```text
//! offset 0                                                                                          total_len()
//! | Header | Module x modules | names | private | near SlotHeaders | far SlotHeaders | slot areas x slots |
//! |<--------------- mapped once at the start --------------------->|<- when needed ->|<- mapped in units ->|
//!
//! a slot area:  | ring | nested ring | private |
//! ```
//!
//! The `private` parts belong to the target alone ([`WriterMemory`]). They are in this file so that one `fstat` of the
//! memfd tells how much memory the rings and the capture library's state take.
#![cfg_attr(not(loom), no_std)]

mod checks;
mod clock_skipping;
mod frame;
mod free_slots;
mod geometry;
mod header;
mod hub;
#[cfg(loom)]
mod model_memory;
#[cfg(loom)]
pub mod model_signal;
mod module;
mod numbered;
mod record;
mod region;
mod requests;
mod ring;
mod room;
mod sampling;
mod slot;
mod starts;
mod sync;
mod unrecorded;
mod watermark;
mod writer;

pub use checks::Check;
pub use frame::FrameKey;
pub use free_slots::Reaped;
pub use geometry::{Geometry, GeometryError, MapUnit, PAGE, WriterMemory};
pub use header::{
    Clock, ExitHandshake, Fence, Header, Heaptrace, LONGEST_COMMAND, Loading, LoadingStep, Loss, MAGIC, NO_CALLS_SAID,
    NO_CALLS_SEEN, OnFull, Origin, Phase, Sampling, Suppressions, VERSION,
};
pub use hub::{HUB_MAGIC, Hub, NAMES, OFFERS, Offer, OfferState};
#[cfg(loom)]
pub use model_memory::ModelMemory;
pub use module::{BUILD_ID_MAX, Module, ModuleFlags};
pub use record::{
    ALLOC_WORDS, AllocatorId, CUSTOM, Decoder, Event, FORK, FORK_FAILED, FREE_WORDS, HeapMark, IN_HEAP, KIND_BITS,
    Kind, MAX_PATH, MAX_SIZE, MapCall, PAGE_BITS, PATH_HEAD_WORDS, Path, Plain, Record, RecordError, StackId, Stamp,
    encode_alloc, encode_exit, encode_fork, encode_free, encode_heap, encode_mark, encode_path, is_in_heap,
    is_map_call, is_tagged_in_heap, split_size, tagged,
};
pub use region::Region;
pub use requests::{MOST_REQUESTS, Request, Requests, Waiting};
pub use ring::{Ring, RingError};
pub use sampling::{MAX_RATE, Sampler, SamplingSetup, first_state, gap, next_state, sampled_bytes};
pub use slot::{Intent, Owner, SlotHeader, SlotState};
pub use starts::{STARTS, ShortName, StartRequest, StartStep, UNRECORDED, UnrecordedProgram, short_name};
pub use unrecorded::UnrecordedExec;
pub use writer::{Host, NoRoom, RingWriter, WriterState};
