//! The allocations and frees of the blocks that a query selects, one by one.
//!
//! Receives: a query and the blocks of events. Must hold: the events are those that the query's costs count. So the sizes of
//! all allocations add up to `allocated_bytes`, and those of all frees to `freed_bytes`.
use crate::counter::{Birth, Selection};
use crate::definitions::{Definitions, KnownAllocClass, SiteId};
use crate::engine::Engine;
use crate::pass::{Blocks, Gone};
use crate::profile::Range;
use crate::query::Query;
use crate::walker::{Now, Sink};
use format::{Freed, Gone as Ended, LiveBlocks};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEventKind {
    Alloc,
    Free {
        temporary: bool,
    },
    /// The block went with its process, which ended or replaced itself (`exec`). The program did not free it. What one of
    /// several processes held when it ended is leaked.
    Gone {
        leaked: bool,
    },
}

impl BlockEventKind {
    pub const fn name(self) -> &'static str {
        match self {
            BlockEventKind::Alloc => "alloc",
            BlockEventKind::Free { .. } => "free",
            BlockEventKind::Gone { .. } => "gone",
        }
    }
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    pub kind: BlockEventKind,
    /// The number of the event, from 1. Events that the query leaves out count, too.
    pub event: u64,
    pub time_ns: u64,
    /// The number of the block, from 0, in the order of allocation.
    pub sequence: u64,
    pub site: SiteId,
    pub size: u64,
    /// The index of the thread that allocated or freed.
    pub thread: u32,
    /// The index of the thread that allocated.
    pub born_thread: u32,
    /// When the block was allocated.
    pub born_ns: u64,
    /// The index of the block's allocator in `Definitions::allocators`.
    pub allocator: usize,
}

impl Engine {
    /// Calls `each` for each event of the query's range, in the order of the file. Returns the range.
    pub fn each_block_event(
        &self,
        blocks: &mut dyn Blocks,
        query: &Query,
        each: &mut dyn FnMut(&BlockEvent),
    ) -> Result<Range, Gone> {
        let range = self.range(query);
        let chosen = self.chosen(query);
        let alloc_classes = self.alloc_classes_by_size(query);
        let wanted = alloc_classes.iter().map(|class| class.regrouped(|site| chosen.has(site).then_some(site)));
        let leaked = |part: &Ended| part.is_leak && self.reaches_end(&range);
        let gone =
            self.gone_in(&range).flat_map(|part| part.blocks.iter().map(move |block| (block.sequence, leaked(part))));
        let gone = gone.collect();
        let sink = EventSink {
            definitions: &self.definitions,
            alloc_classes: wanted.collect(),
            selection: self.selection(blocks, query, &range)?,
            gone,
            reaches_end: self.reaches_end(&range),
            is_on: false,
            each,
        };
        let moments = [self.moment(range.from), self.moment(range.to)];
        let point = self.start_for(moments[0]);
        let mut walker = point.other_walker(sink);
        self.stretch(blocks, point).walk(&mut walker, &moments, |at, walker| walker.sink.is_on = at == 0)?;
        Ok(range)
    }
}

struct EventSink<'a> {
    definitions: &'a Definitions,
    alloc_classes: Vec<KnownAllocClass>,
    selection: Option<Selection>,
    /// Blocks of a merged trace that an event frees, although the program did not, and whether they are leaked.
    gone: HashMap<u64, bool>,
    reaches_end: bool,
    /// The walk is within the range.
    is_on: bool,
    each: &'a mut dyn FnMut(&BlockEvent),
}

impl EventSink<'_> {
    #[inline]
    fn emit(&mut self, kind: BlockEventKind, now: &Now, sequence: u64, birth: &Birth) {
        let Some(known) = self.alloc_classes.get(birth.alloc_class as usize).filter(|_| self.is_on) else { return };
        let Some(site) = known.site.number() else { return };
        if self.selection.as_ref().is_none_or(|selection| selection.has(sequence, birth.thread)) {
            (self.each)(&BlockEvent {
                kind,
                event: now.events,
                time_ns: now.time_ns,
                sequence,
                site,
                size: known.size,
                thread: now.thread,
                born_thread: birth.thread,
                born_ns: birth.time_ns,
                allocator: self.definitions.allocator_of(birth.alloc_class as usize),
            });
        }
    }
}

impl Sink for EventSink<'_> {
    type Kept = Birth;

    #[inline]
    fn keep(&self, now: &Now, alloc_class: u32) -> Option<Birth> {
        Birth::of(now, alloc_class, &self.alloc_classes)
    }

    #[inline]
    fn alloc(&mut self, now: &Now, _: u32, birth: Birth) {
        self.emit(BlockEventKind::Alloc, now, now.next_sequence.wrapping_sub(1), &birth);
    }

    #[inline]
    fn free(&mut self, now: &Now, sequence: u64, birth: Birth, how: Freed, temporary: bool) {
        let gone = match how {
            Freed::Leaked => Some(self.reaches_end),
            Freed::Replaced => Some(false),
            _ if self.gone.is_empty() => None,
            _ => self.gone.get(&sequence).copied(),
        };
        let kind = gone.map_or(BlockEventKind::Free { temporary }, |leaked| BlockEventKind::Gone { leaked });
        self.emit(kind, now, sequence, &birth);
    }

    fn end_image(&mut self, now: &Now, live: &LiveBlocks<Birth>) {
        live.each_from(0, |sequence, birth| self.emit(BlockEventKind::Gone { leaked: false }, now, sequence, &birth));
    }
}
