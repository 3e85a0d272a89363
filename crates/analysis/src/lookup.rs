//! One allocation of a trace by its number, for those who want to compare a single stack.
use crate::definitions::Definitions;
use crate::names::Names;
use crate::report::Report;
use format::{Block, Event, Events, Info, Infos, Malformed, Module, RawBlock, Thread};
use std::collections::BTreeMap;

/// Give it the blocks in file order until `found`.
#[derive(Default)]
pub struct Lookup {
    sequence: u64,
    definitions: Definitions,
    infos: Vec<Infos>,
    modules: BTreeMap<u16, Module>,
    threads: BTreeMap<u32, Thread>,
    names: Names,
    found: Option<(u32, u32)>,
}

/// The allocation that was looked for. Its frames come from `report`, which holds no costs.
pub struct Allocation {
    pub size: u64,
    pub stack: u32,
    pub tid: Option<u32>,
    pub report: Report,
}

impl Lookup {
    /// `sequence`: number of the allocation in the trace, from 0.
    pub fn new(sequence: u64) -> Self {
        Lookup { sequence, ..Lookup::default() }
    }

    pub fn add(&mut self, block: &RawBlock) -> Result<(), Malformed> {
        match block.decode()? {
            Block::Modules(modules) => self.modules.extend(modules.into_iter().map(|module| (module.instance, module))),
            Block::Threads(threads) => self.threads.extend(threads.into_iter().map(|thread| (thread.index, thread))),
            Block::Symbols(symbols) => self.names.add(symbols),
            Block::Stacks(stacks) => drop(self.definitions.add_stacks(&stacks)),
            Block::Infos(infos) => self.infos.push(infos),
            Block::Events(events) if self.found.is_none() => self.search(events)?,
            _ => {}
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
        let tid = self.threads.get(&thread).map(|thread| thread.tid);
        let mut report = Report { modules: self.modules, names: self.names, ..Report::default() };
        report.nodes = self.definitions.nodes;
        Some(Allocation { size, stack, tid, report })
    }

    fn search(&mut self, mut events: Events) -> Result<(), Malformed> {
        let first = events.first_sequence();
        if self.sequence < first || self.sequence - first >= events.count() {
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
