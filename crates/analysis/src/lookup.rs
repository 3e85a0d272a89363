//! One allocation of a trace by its number, for those who want to compare a single stack.
use crate::book::Book;
use format::{Block, Event, Events, Info, Infos, Malformed, RawBlock};

/// Give it the blocks in file order until `found`.
#[derive(Default)]
pub struct Lookup {
    sequence: u64,
    book: Book,
    infos: Vec<Infos>,
    found: Option<(u32, u32)>,
}

/// The allocation that was looked for. Its frames come from `book`.
pub struct Allocation {
    pub size: u64,
    pub stack: u32,
    pub tid: Option<u32>,
    pub book: Book,
}

impl Lookup {
    /// `sequence`: number of the allocation in the trace, from 0.
    pub fn new(sequence: u64) -> Self {
        Lookup { sequence, ..Lookup::default() }
    }

    pub fn add(&mut self, block: &RawBlock) -> Result<(), Malformed> {
        match block.decode()? {
            Block::Infos(infos) => self.infos.push(infos),
            Block::Events(events) if self.found.is_none() => self.search(events)?,
            other => drop(self.book.add(other)),
        }
        Ok(())
    }

    /// `None`: the trace has no such allocation, or its definition was lost.
    pub fn finish(self) -> Option<Allocation> {
        let (thread, info) = self.found?;
        let Info { size, stack } = self.infos.iter().find_map(|block| {
            let index = info.checked_sub(block.first)? as usize;
            block.infos.get(index).copied()
        })?;
        let tid = self.book.threads.get(&thread).map(|thread| thread.tid);
        Some(Allocation { size, stack, tid, book: self.book })
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
                Event::Alloc { sequence, info } if sequence == self.sequence => {
                    self.found = Some((thread, info));
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }
}
