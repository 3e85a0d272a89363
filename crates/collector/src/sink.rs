//! The destination of ordered and paired events: a trace, or live numbers.
//!
//! Receives: what the recorder found (an allocation of an allocation class, or the block that a free ends). Returns:
//! encoded events, or an aggregate that can be read at any time. Must hold: only the recorder orders and pairs events;
//! a sink only keeps them.
use crate::aggregate::Aggregate;
use crate::blocks::Block;
use channel::Stamp;
use format::{AllocClassEncoder, Allocators, EventEncoder};

/// How a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    Called,
    ByRealloc,
    /// The free was not seen, but the address was allocated again.
    Implied,
}

#[derive(Debug)]
pub enum Sink {
    Trace(Box<Encoders>),
    Live(Box<Aggregate>),
}

/// The encoders of a trace.
#[derive(Debug)]
pub struct Encoders {
    pub events: EventEncoder,
    pub alloc_classes: AllocClassEncoder,
    /// The allocators of allocation classes that are not in a block yet.
    pub allocators: Allocators,
}

impl Sink {
    pub fn trace() -> Self {
        Sink::Trace(Box::new(Encoders {
            events: EventEncoder::new(),
            alloc_classes: AllocClassEncoder::new(),
            allocators: Allocators::default(),
        }))
    }

    #[inline(always)]
    pub fn alloc(&mut self, alloc_class: u32, size: u64) {
        match self {
            Sink::Trace(trace) => drop(trace.events.alloc(alloc_class)),
            Sink::Live(live) => live.alloc(alloc_class, size),
        }
    }

    #[inline(always)]
    pub fn free(&mut self, block: Block, size: u64, how: Freed) {
        match (self, how) {
            (Sink::Trace(trace), Freed::Called) => trace.events.free(block.sequence),
            (Sink::Trace(trace), Freed::ByRealloc) => trace.events.free_by_realloc(block.sequence),
            (Sink::Trace(trace), Freed::Implied) => trace.events.free_implied(block.sequence),
            (Sink::Live(live), _) => live.free(block.alloc_class, size),
        }
    }

    /// Live numbers have one process each, so only a trace has releases.
    pub fn release(&mut self, block: Block) {
        if let Sink::Trace(trace) = self {
            trace.events.release(block.sequence);
        }
    }

    /// A block ended with its process.
    pub fn ended(&mut self, block: Block, how: format::Freed) {
        if let Sink::Trace(trace) = self {
            trace.events.freed_by(block.sequence, how);
        }
    }

    pub fn unknown_free(&mut self) {
        if let Sink::Trace(trace) = self {
            trace.events.unknown_free();
        }
    }

    pub fn thread(&mut self, thread: u32) {
        if let Sink::Trace(trace) = self {
            trace.events.thread(thread);
        }
    }

    /// Sets the time at `stamp`, and the number of stamps in a millisecond (0 if stamps do not count time).
    pub fn time(&mut self, stamp: Stamp, ns: u64, stamps_in_ms: u64) {
        match self {
            Sink::Trace(trace) => trace.events.time(ns),
            Sink::Live(live) => live.time(stamp, ns, stamps_in_ms),
        }
    }

    pub fn image(&mut self, image: u32) {
        match self {
            Sink::Trace(trace) => trace.events.image(image),
            Sink::Live(live) => live.clear(),
        }
    }

    pub fn allocations(&self) -> u64 {
        match self {
            Sink::Trace(trace) => trace.events.next_sequence(),
            Sink::Live(live) => live.allocations(),
        }
    }

    /// Returns the number of events since the last block was taken. For live numbers: since the last `clear`.
    pub const fn events(&self) -> u64 {
        match self {
            Sink::Trace(trace) => trace.events.events(),
            Sink::Live(live) => live.events(),
        }
    }

    pub const fn live(&self) -> Option<&Aggregate> {
        match self {
            Sink::Trace(_) => None,
            Sink::Live(live) => Some(live),
        }
    }

    pub const fn is_live(&self) -> bool {
        matches!(self, Sink::Live(_))
    }
}
