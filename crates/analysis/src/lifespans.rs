//! Finds the blocks whose lifetime is within a given span.
use crate::counter::{Birth, Bits};
use crate::definitions::KnownAllocClass;
use crate::live::Live;
use crate::query::Span;
use crate::walker::{Now, Sink};
use format::Freed;

pub(crate) struct Lifespans<'a> {
    span: Span,
    alloc_classes: &'a [KnownAllocClass],
    /// The blocks that were freed at an age within the span.
    pub(crate) bits: Bits,
}

impl<'a> Lifespans<'a> {
    pub(crate) fn new(span: Span, alloc_classes: &'a [KnownAllocClass]) -> Self {
        Lifespans { span, alloc_classes, bits: Bits::default() }
    }
}

impl Sink for Lifespans<'_> {
    type Kept = Birth;

    fn keep(&self, now: &Now, alloc_class: u32) -> Option<Birth> {
        let known = self.alloc_classes.get(alloc_class as usize).is_some_and(|known| !known.site.is_lost());
        known.then_some(Birth { alloc_class, thread: now.thread, time_ns: now.time_ns })
    }

    fn alloc(&mut self, _: &Now, _: u32, _: Birth) {}

    fn free(&mut self, now: &Now, sequence: u64, birth: Birth, _: Freed, _: bool) {
        if self.span.contains(now.time_ns.saturating_sub(birth.time_ns)) {
            self.bits.set(sequence);
        }
    }

    /// The blocks of a program that was replaced lived until then.
    fn end_image(&mut self, now: &Now, live: &Live<Birth>) {
        live.each_from(0, |sequence, birth| {
            if self.span.contains(now.time_ns.saturating_sub(birth.time_ns)) {
                self.bits.set(sequence);
            }
        });
    }
}
