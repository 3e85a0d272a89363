//! Finds the blocks whose lifetime is within a given span.
use crate::counter::{Birth, Bits};
use crate::definitions::KnownAllocClass;
use crate::query::Span;
use crate::walker::{Now, Sink};
use format::{Freed, LiveBlocks};

pub(crate) struct Lifespans<'a> {
    span: Span,
    alloc_classes: &'a [KnownAllocClass],
    /// The blocks that were freed, or ended by an `exec`, at an age within the span.
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
        Birth::of(now, alloc_class, self.alloc_classes)
    }

    fn free(&mut self, now: &Now, sequence: u64, birth: Birth, _: Freed, _: bool) {
        if self.span.contains(birth.age(now)) {
            self.bits.set(sequence);
        }
    }

    /// The blocks of a program that was replaced by an `exec` lived until the `exec`.
    fn end_image(&mut self, now: &Now, live: &LiveBlocks<Birth>) {
        live.each_from(0, |sequence, birth| {
            if self.span.contains(birth.age(now)) {
                self.bits.set(sequence);
            }
        });
    }
}
