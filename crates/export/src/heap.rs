//! The heap during a replay of events: live bytes, in total and by stack.
use crate::definitions::{Definitions, LOST_ALLOC_CLASS};
use format::{Event, Events, LiveBlocks};

#[derive(Default)]
pub(crate) struct Heap {
    /// Sequence number -> allocation class.
    live: LiveBlocks<u32>,
    /// Live bytes by stack.
    pub(crate) by_stack: Vec<u64>,
    pub(crate) bytes: u64,
    pub(crate) time_ns: u64,
    /// The number of allocations so far.
    pub(crate) allocations: u64,
    image: u32,
}

impl Heap {
    pub(crate) fn new(definitions: &Definitions) -> Self {
        Heap { by_stack: vec![0; definitions.nodes.len() + 1], ..Heap::default() }
    }

    /// Walks over a block, and calls `after` after each allocation.
    pub(crate) fn walk(&mut self, definitions: &Definitions, events: &mut Events, mut after: impl FnMut(&Heap)) {
        self.time_ns = self.time_ns.max(events.time_ns());
        self.image(events.image());
        // The rest of a malformed block is lost, as for every other reader.
        while let Ok(Some(event)) = events.read() {
            match event {
                Event::Alloc { sequence, alloc_class } => {
                    if self.add(definitions, sequence, alloc_class) {
                        self.allocations += 1;
                        after(self);
                    }
                }
                Event::Free { sequence, .. } => self.remove(definitions, sequence),
                Event::Time(ns) => self.time_ns = self.time_ns.max(ns),
                Event::Image(image) => self.image(image),
                Event::Thread(_) | Event::UnknownFree | Event::Release { .. } | Event::LatestGone => (),
            }
        }
    }

    /// Returns false if the allocation class is not known, or if the number is live already, as in a malformed file.
    fn add(&mut self, definitions: &Definitions, sequence: u64, alloc_class: u32) -> bool {
        let known = definitions.alloc_classes.get(alloc_class as usize).filter(|known| **known != LOST_ALLOC_CLASS);
        let Some((known, stack)) = known.and_then(|known| Some((known, self.by_stack.get_mut(known.stack as usize)?)))
        else {
            return false;
        };
        if !self.live.insert(sequence, alloc_class) {
            return false;
        }
        *stack = stack.saturating_add(known.size);
        self.bytes = self.bytes.saturating_add(known.size);
        true
    }

    fn remove(&mut self, definitions: &Definitions, sequence: u64) {
        let Some(alloc_class) = self.live.remove(sequence) else { return };
        let Some(known) = definitions.alloc_classes.get(alloc_class as usize) else { return };
        self.bytes = self.bytes.saturating_sub(known.size);
        if let Some(stack) = self.by_stack.get_mut(known.stack as usize) {
            *stack = stack.saturating_sub(known.size);
        }
    }

    /// Removes all blocks if the image differs from the current one, because an `exec` started it.
    fn image(&mut self, image: u32) {
        if image != self.image {
            self.image = image;
            self.live.clear(0);
            self.by_stack.fill(0);
            self.bytes = 0;
        }
    }
}
