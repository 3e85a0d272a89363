//! Which blocks a query asks for: by their stacks, by their size, and by what only the events know.
use crate::counter::{Bits, Selection};
use crate::definitions::{KnownAllocClass, SiteId};
use crate::engine::Engine;
use crate::lifespans::Lifespans;
use crate::pass::{Blocks, Gone};
use crate::pattern::Pattern;
use crate::profile::Range;
use crate::query::{Query, Span};
use format::IntSet;
use std::borrow::Cow;

/// The sites whose stacks match a query's patterns; `None` if the query has no patterns, so that all match.
pub(crate) struct Chosen(Option<Vec<bool>>);

impl Chosen {
    pub(crate) fn has(&self, site: SiteId) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.get(site as usize).copied().unwrap_or(false))
    }

    /// Whether at least one site is chosen.
    pub(crate) fn has_any(&self) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.contains(&true))
    }
}

impl Engine {
    pub(crate) fn chosen(&self, query: &Query) -> Chosen {
        if query.include.is_empty() && query.exclude.is_empty() {
            return Chosen(None);
        }
        let matches = |stack: u32| {
            let any = |pattern: &Pattern| self.definitions.levels(stack).any(|level| pattern.matches(&level));
            query.include.iter().all(any) && !query.exclude.iter().any(any)
        };
        Chosen(Some(self.definitions.stacks.iter().map(|&stack| matches(stack)).collect()))
    }

    /// The allocation classes, with those left out whose size or allocator the query does not ask for.
    pub(crate) fn alloc_classes_by_size(&self, query: &Query) -> Cow<'_, [KnownAllocClass]> {
        let definitions = &self.definitions;
        if query.size.is_none() && query.allocators.is_empty() {
            return Cow::Borrowed(&definitions.alloc_classes);
        }
        let is_wanted: Vec<bool> = definitions
            .allocators()
            .map(|name| query.allocators.is_empty() || query.allocators.iter().any(|wanted| wanted == name))
            .collect();
        let chosen = |(index, class): (usize, &KnownAllocClass)| {
            let is_of_size = query.size.is_none_or(|span| span.contains(class.size));
            let is_of_allocator = is_wanted.get(definitions.allocator_of(index)).copied().unwrap_or(false);
            class.regrouped(|site| (is_of_size && is_of_allocator).then_some(site))
        };
        Cow::Owned(definitions.alloc_classes.iter().enumerate().map(chosen).collect())
    }

    /// The choice of blocks by thread, process and lifetime, which only the events know; `None` if the query asks for
    /// neither.
    pub(crate) fn selection(
        &self,
        blocks: &mut dyn Blocks,
        query: &Query,
        range: &Range,
    ) -> Result<Option<Selection>, Gone> {
        let lived = query.lifetime.map(|span| self.blocks_that_lived(blocks, span, range)).transpose()?;
        let selection = Selection { threads: self.threads_of(query), blocks: lived };
        Ok((selection.threads.is_some() || selection.blocks.is_some()).then_some(selection))
    }

    /// The threads that the query asks for; `None` if it asks for all.
    pub fn threads_of(&self, query: &Query) -> Option<IntSet<u32>> {
        let definitions = &self.definitions;
        let is_asked = |thread: &u32| query.threads.is_empty() || query.threads.contains(thread);
        if query.processes.is_empty() || definitions.processes.is_empty() && definitions.is_of(&query.processes) {
            return (!query.threads.is_empty()).then(|| query.threads.iter().copied().collect());
        }
        let processes: IntSet<u32> = definitions.chosen_processes(&query.processes).map(|one| one.index).collect();
        let threads = definitions.process_of_thread.iter().filter(|(_, process)| processes.contains(process));
        Some(threads.map(|(thread, _)| *thread).filter(is_asked).collect())
    }

    /// The blocks whose lifetime, up to the end of the range, lies within the span. A lifetime is known only when the
    /// block is freed, which is too late to count its allocation. So this is a walk of its own.
    fn blocks_that_lived(&self, blocks: &mut dyn Blocks, span: Span, range: &Range) -> Result<Bits, Gone> {
        let moments = [self.moment(range.from), self.moment(range.to)];
        let point = self.start_for(moments[0]);
        let mut walker = point.other_walker(Lifespans::new(span, &self.definitions.alloc_classes));
        let mut bits = Bits::default();
        self.stretch(blocks, point).walk(&mut walker, &moments, |at, walker| {
            if at == 0 {
                return;
            }
            bits = std::mem::take(&mut walker.sink.bits);
            walker.live.each_from(0, |sequence, birth| {
                if span.contains(range.to_ns.saturating_sub(birth.time_ns)) {
                    bits.set(sequence);
                }
            });
        })?;
        Ok(bits)
    }
}
