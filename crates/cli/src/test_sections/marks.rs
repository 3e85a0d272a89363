//! The marks that a test plugin makes in a trace.
//!
//! Mark number N is made by one thread, which allocates a block of `SMALLEST + N % 1024` bytes, then one of `SMALLEST + 1024 +
//! N / 1024 % 1024` bytes, and frees both. A program that has blocks of one of these sizes is no problem, because both must
//! follow each other on one thread.
use crate::trouble::unreadable;
use analysis::{BlockEvent, BlockEventKind, Query, Span, When};
use heaptrack_trace::OpenTrace;
use std::collections::HashMap;

/// The smallest size of a block of a mark. The sizes are below those for which malloc uses `mmap`.
const SMALLEST: u64 = 40_009;
const DIGITS: u64 = 1024;

/// A mark: the number of events, and the time, before its first event and after its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub before: (u64, u64),
    pub after: (u64, u64),
}

#[derive(Debug, Default)]
pub struct Marks {
    found: HashMap<u64, Mark>,
    /// The number of the next mark. Marks are made one after the other.
    next: u64,
    /// All marks up to here are found.
    until: Option<(u64, u64)>,
}

impl Marks {
    pub fn get(&self, number: u64) -> Option<Mark> {
        self.found.get(&number).copied()
    }

    /// Finds the marks that the trace has since the last call.
    pub fn find(&mut self, trace: &OpenTrace) -> anyhow::Result<()> {
        let read = |error: &dyn std::fmt::Display| unreadable(trace.path(), error);
        let size = Some(Span { min: SMALLEST, max: SMALLEST + 2 * DIGITS - 1 });
        let from = self.until.map(|(events, time_ns)| When::Event { events, time_ns });
        let mut query = Query::default();
        (query.size, query.from) = (size, from);
        let mut blocks = trace.blocks().map_err(|error| read(&error))?;
        let mut events: Vec<BlockEvent> = Vec::new();
        let mut keep = |event: &BlockEvent| events.push(*event);
        trace.engine().each_block_event(&mut blocks, &query, &mut keep).map_err(|error| read(&error))?;
        self.add(&events);
        Ok(())
    }

    fn add(&mut self, events: &[BlockEvent]) {
        for (at, first) in events.iter().enumerate() {
            if let Some(mark) = mark(self.next, first, &events[at + 1..]) {
                self.found.insert(self.next, mark);
                self.until = Some(mark.after);
                self.next += 1;
            }
        }
    }
}

/// Returns the mark that begins with this event. `rest`: the events after it.
fn mark(number: u64, first: &BlockEvent, rest: &[BlockEvent]) -> Option<Mark> {
    let sizes = [SMALLEST + number % DIGITS, SMALLEST + DIGITS + number / DIGITS % DIGITS];
    let is_alloc = |event: &BlockEvent, size: u64| event.kind == BlockEventKind::Alloc && event.size == size;
    let second = rest.iter().find(|event| event.thread == first.thread)?;
    if !is_alloc(first, sizes[0]) || !is_alloc(second, sizes[1]) {
        return None;
    }
    let freed = |sequence: u64| {
        rest.iter().find(|event| event.sequence == sequence && matches!(event.kind, BlockEventKind::Free { .. }))
    };
    let (one, two) = (freed(first.sequence)?, freed(second.sequence)?);
    let last = if one.event > two.event { one } else { two };
    Some(Mark { before: (first.event - 1, first.time_ns), after: (last.event, last.time_ns) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event: u64, size: u64, sequence: u64, thread: u32, is_free: bool) -> BlockEvent {
        let kind = if is_free { BlockEventKind::Free { temporary: false } } else { BlockEventKind::Alloc };
        let (time_ns, born_thread) = (event * 10, thread);
        BlockEvent { kind, event, time_ns, sequence, site: 0, size, thread, born_thread, born_ns: 0, allocator: 0 }
    }

    #[test]
    fn a_mark_is_two_blocks_of_one_thread() {
        let (one, two) = (SMALLEST, SMALLEST + DIGITS);
        let whole = [
            event(4, one, 7, 0, false),
            event(5, one, 8, 0, false),
            event(6, two, 9, 1, false),
            event(8, two, 10, 0, false),
            event(9, one, 8, 0, true),
            event(12, two, 10, 0, true),
        ];
        let mut marks = Marks::default();
        marks.add(&whole[..5]);
        assert_eq!(marks.get(0), None, "not whole yet");
        marks.add(&whole);
        assert_eq!(marks.get(0), Some(Mark { before: (4, 50), after: (12, 120) }));
        // The next mark has another number.
        marks.add(&whole);
        assert_eq!((marks.get(1), marks.next), (None, 1));
    }

    #[test]
    fn numbers_above_a_thousand_have_two_digits() {
        let number = 3 * DIGITS + 5;
        let all = [
            event(1, SMALLEST + 5, 0, 0, false),
            event(2, SMALLEST + DIGITS + 3, 1, 0, false),
            event(3, SMALLEST + 5, 0, 0, true),
            event(4, SMALLEST + DIGITS + 3, 1, 0, true),
        ];
        assert!(mark(number, &all[0], &all[1..]).is_some());
        assert_eq!(mark(number + 1, &all[0], &all[1..]), None);
    }
}
