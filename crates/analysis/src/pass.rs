//! A walk over a stretch of a trace, stopping at chosen moments.
use crate::moment::Moment;
use crate::walker::{Sink, Walker};
use format::{BlockKind, RawBlock, Walked};

/// Reads the blocks of events of a trace again, for queries that need them.
pub trait Blocks {
    /// The n-th block of events in file order, from 0. `None` if it cannot be read any more.
    fn events(&mut self, number: usize) -> Option<&RawBlock>;
}

/// The blocks of events of a trace, in memory.
#[derive(Clone, Debug, Default)]
pub struct BlocksInMemory(Vec<RawBlock>);

impl BlocksInMemory {
    pub fn new(blocks: impl IntoIterator<Item = RawBlock>) -> Self {
        BlocksInMemory(blocks.into_iter().filter(|block| block.kind == BlockKind::Events).collect())
    }
}

impl Blocks for BlocksInMemory {
    fn events(&mut self, number: usize) -> Option<&RawBlock> {
        self.0.get(number)
    }
}

/// The file was changed: a block that was read before cannot be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a part of the trace that was there before cannot be read any more")
    }
}

impl std::error::Error for Gone {}

/// The blocks of events of a trace with the numbers `first..end`.
pub(crate) struct Stretch<'a> {
    pub(crate) blocks: &'a mut dyn Blocks,
    pub(crate) first: usize,
    /// `usize::MAX` if the number of blocks is not known. The stretch then ends with the last block.
    pub(crate) end: usize,
    /// All events of the trace, by which a last block is recognised.
    pub(crate) events: u64,
}

impl Stretch<'_> {
    /// Walks from the beginning of the stretch to the last of the moments, and calls `at` at each. `walker` must be in
    /// the state of the stretch's beginning. A moment that is not reached counts as the end of the stretch.
    pub(crate) fn walk<S: Sink>(
        self,
        walker: &mut Walker<S>,
        moments: &[Moment],
        mut at: impl FnMut(usize, &mut Walker<S>),
    ) -> Result<(), Gone> {
        let mut next = 0;
        let mut number = self.first;
        while next < moments.len() && number < self.end {
            if moments[next] == Moment::Block(number) {
                at(next, walker);
                next += 1;
                continue;
            }
            let Some(block) = self.blocks.events(number) else {
                let is_end = self.end == usize::MAX && walker.now.events == self.events;
                if is_end { break } else { return Err(Gone) }
            };
            number += 1;
            // Malformed blocks were counted when the trace was opened.
            let Ok(mut events) = block.events() else { continue };
            let base = walker.now.events;
            let mut entered = false;
            while let Some(moment) = moments.get(next) {
                walker.time_limit = moment.time_limit();
                let limit = moment.event_limit().saturating_sub(base);
                // A moment may already be in the past when its turn comes. Then `at` gets the current state.
                let is_over = walker.now.time_ns > walker.time_limit;
                entered = entered || !is_over && walker.enter(events.start());
                match if entered && !is_over { events.walk(walker, limit) } else { Ok(Walked::Stopped) } {
                    Ok(Walked::End) | Err(_) => break,
                    Ok(Walked::Limit | Walked::Stopped) => {
                        at(next, walker);
                        next += 1;
                    }
                }
            }
        }
        for rest in next..moments.len() {
            at(rest, walker);
        }
        Ok(())
    }
}
