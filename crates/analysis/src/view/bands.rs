//! Stacks put together by who is to blame, for views that walk the events once more.
use super::Trace;
use super::summary::blamed_node;
use crate::counter::{Counter, NO_GROUP};
use crate::definitions::{KnownAllocClass, SiteId};
use crate::engine::Engine;
use crate::pass::Gone;
use crate::profile::Range;
use crate::query::{By, Query};
use crate::stack_table::{NodeId, StackTable};
use std::borrow::Cow;
use std::collections::HashMap;

/// Groups of sites.
pub(crate) struct Bands {
    /// By site.
    of_site: Vec<u32>,
    /// The first node of each band.
    pub(crate) nodes: Vec<NodeId>,
    /// A site of each band.
    pub(crate) sites: Vec<SiteId>,
}

impl Bands {
    pub(crate) fn new(engine: &Engine, table: &StackTable, query: &Query) -> Bands {
        let chosen = engine.chosen(query);
        let mut known = HashMap::new();
        let mut bands = Bands { of_site: Vec::new(), nodes: Vec::new(), sites: Vec::new() };
        for site in 0..table.stacks.len() as SiteId {
            if !chosen.is_none_or_has(site) {
                bands.of_site.push(NO_GROUP);
                continue;
            }
            let node = match query.by {
                By::Blamed => blamed_node(table, site),
                By::Function => table.stack(site).node,
            };
            let same = table.level(node).map(|level| {
                (
                    level.function,
                    level.file,
                    level.line,
                    level.module,
                    level.offset.filter(|_| level.function.is_none()),
                )
            });
            let next = bands.nodes.len() as u32;
            let band = *known.entry(same).or_insert(next);
            if band == next {
                bands.nodes.push(node);
                bands.sites.push(site);
            }
            bands.of_site.push(band);
        }
        bands
    }

    pub(crate) fn of(&self, site: SiteId) -> u32 {
        self.of_site.get(site as usize).copied().unwrap_or(NO_GROUP)
    }

    pub(crate) const fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// A counter of groups that `group` makes of sites and sizes, for blocks that the query picks.
pub(crate) fn counter<'a>(
    trace: &mut Trace<'_>,
    query: &Query,
    range: &Range,
    groups: usize,
    mut group: impl FnMut(KnownAllocClass) -> u32,
) -> Result<Counter<'a>, Gone> {
    let selection = trace.engine.selection(trace.blocks, query, range)?;
    let alloc_classes = trace.engine.alloc_classes_by_size(query);
    let grouped = alloc_classes.iter().map(|alloc_class| KnownAllocClass {
        site: if alloc_class.site >= NO_GROUP { alloc_class.site } else { group(*alloc_class) },
        ..*alloc_class
    });
    Ok(Counter::new(Cow::Owned(grouped.collect()), groups, selection))
}
