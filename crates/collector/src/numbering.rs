//! Gives the trace's numbers to what rings define: stacks, and allocation classes.
//!
//! Receives: the records of rings, ring by ring. Returns: for an allocation, the number of its allocation class, and a list of
//! everything that got a new number. Must hold: equal things have one number, whichever ring they came from; numbers of one
//! kind are given in the order of the list, without gaps, so that the recorder can write the list as it is.
use crate::alloc_classes::ClassTable;
use crate::merge::NumberSource;
use crate::stacks::Stacks;
use channel::{CUSTOM, MapCall, Path, StackId};

/// What got a new number, in the order of the numbers.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Parent and frame.
    pub nodes: Vec<(u32, u64)>,
    /// Size (with the allocator, see `channel::split_size`) and stack; those of malloc's blocks, and of blocks that the
    /// program reported itself.
    pub alloc_classes: [Vec<(u64, u32)>; 2],
    /// Modules for code of no module, and their processes.
    pub code_modules: Vec<(u16, u16)>,
}

#[derive(Debug, Default)]
struct Classes {
    table: ClassTable,
    next: u32,
}

#[derive(Debug)]
pub struct Numbering {
    pub stacks: Stacks,
    /// False without a trace: the live front end groups stacks before it numbers allocation classes.
    is_written: bool,
    malloc: Classes,
    custom: Classes,
    new_classes: [Vec<(u64, u32)>; 2],
}

impl Numbering {
    /// For a trace.
    pub fn written() -> Self {
        Numbering { stacks: Stacks::default(), is_written: true, ..Self::unwritten() }
    }

    /// For the live front end.
    pub fn unwritten() -> Self {
        Numbering {
            stacks: Stacks::unwritten(),
            is_written: false,
            malloc: Classes::default(),
            custom: Classes::default(),
            new_classes: [Vec::new(), Vec::new()],
        }
    }

    /// Moves everything that got a number since the last call to `definitions`.
    pub fn take_new(&mut self, definitions: &mut Definitions) {
        self.stacks.take_new(&mut definitions.nodes);
        self.stacks.take_code_modules(&mut definitions.code_modules);
        for (new, list) in self.new_classes.iter_mut().zip(&mut definitions.alloc_classes) {
            list.append(new);
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, is_custom: bool, size: u64, stack: u32) -> u32 {
        let Classes { table, next } = if is_custom { &mut self.custom } else { &mut self.malloc };
        let class = *next;
        *next += 1;
        table.add(size, stack, class);
        self.new_classes[is_custom as usize].push((size, stack));
        class
    }
}

impl NumberSource for Numbering {
    fn define(&mut self, process: u16, source: u32, path: &Path<'_>) {
        self.stacks.define_of(process, source, path);
    }

    /// The allocation class, or the stack if no trace is written.
    #[inline(always)]
    fn number(&mut self, source: u32, address: u64, size: u64, stack: StackId) -> u32 {
        let stack = self.stacks.id(source, stack);
        if !self.is_written {
            return stack;
        }
        let is_custom = address & CUSTOM != 0;
        // The classes of mappings are numbered when the sizes of their parts are known (`mapped.rs`).
        if is_custom && MapCall::of(size).is_some() {
            return stack;
        }
        let classes = if is_custom { &self.custom } else { &self.malloc };
        match classes.table.find(size, stack) {
            Some(class) => class,
            None => self.add(is_custom, size, stack),
        }
    }
}
