//! Finds one allocation of a trace by its number, to compare a single stack.
use crate::definitions::Definitions;
use format::{AllocClass, AllocClasses, Block, Event, Events, Malformed, RawBlock};

/// Receives the blocks in file order.
#[derive(Default)]
pub struct Lookup {
    sequence: u64,
    definitions: Definitions,
    alloc_classes: Vec<AllocClasses>,
    found: Option<(u32, u32)>,
}

/// The allocation that was looked for. Its frames come from `definitions`.
pub struct Allocation {
    pub size: u64,
    pub stack: u32,
    pub tid: Option<u32>,
    pub definitions: Definitions,
}

impl Lookup {
    /// `sequence`: number of the allocation in the trace, from 0.
    pub fn new(sequence: u64) -> Self {
        Lookup { sequence, ..Lookup::default() }
    }

    pub fn add(&mut self, block: &RawBlock) -> Result<(), Malformed> {
        match block.decode()? {
            Block::AllocClasses(alloc_classes) => self.alloc_classes.push(alloc_classes),
            Block::Events(events) if self.found.is_none() => self.search(events)?,
            other => drop(self.definitions.add(other)),
        }
        Ok(())
    }

    /// `None`: the trace has no such allocation, or its definition was lost.
    pub fn finish(self) -> Option<Allocation> {
        let (thread, alloc_class) = self.found?;
        let AllocClass { size, stack } = self.alloc_classes.iter().find_map(|block| {
            let index = alloc_class.checked_sub(block.first)? as usize;
            block.alloc_classes.get(index).copied()
        })?;
        let tid = self.definitions.threads.get(&thread).map(|thread| thread.tid);
        Some(Allocation { size, stack, tid, definitions: self.definitions })
    }

    fn search(&mut self, mut events: Events) -> Result<(), Malformed> {
        let first = events.first_sequence();
        if self.sequence < first {
            return Ok(());
        }
        let mut thread = events.thread();
        while let Some(event) = events.read()? {
            match event {
                Event::Thread(index) => thread = index,
                Event::Alloc { sequence, alloc_class } if sequence == self.sequence => {
                    self.found = Some((thread, alloc_class));
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }
}
