//! Groups stacks by blamed level, or by innermost level (`by=function`), for views that walk the events again.
use super::Trace;
use super::summary::blamed_node;
use crate::counter::Counter;
use crate::definitions::{KnownAllocClass, SiteId};
use crate::engine::Engine;
use crate::pass::Gone;
use crate::profile::Range;
use crate::query::{By, Query};
use crate::stack_table::{NodeId, StackTable};
use std::borrow::Cow;
use std::collections::HashMap;

/// Groups of sites, one for each blamed or innermost level.
pub(crate) struct Bands {
    /// By site; `None` if the query's patterns leave the site out.
    of_site: Vec<Option<u32>>,
    /// The first node of each band.
    pub(crate) nodes: Vec<NodeId>,
    /// The first site of each band.
    pub(crate) sites: Vec<SiteId>,
}

impl Bands {
    pub(crate) fn new(engine: &Engine, table: &StackTable, query: &Query) -> Bands {
        let chosen = engine.chosen(query);
        let mut known = HashMap::new();
        let mut bands = Bands { of_site: Vec::new(), nodes: Vec::new(), sites: Vec::new() };
        for site in 0..table.stacks.len() as SiteId {
            if !chosen.has(site) {
                bands.of_site.push(None);
                continue;
            }
            let node = match query.by {
                By::Blamed => blamed_node(table, site),
                By::Function | By::Process | By::Command => table.stack(site).node,
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
            bands.of_site.push(Some(band));
        }
        bands
    }

    /// The band of a site; `None` if the query's patterns leave the site out.
    pub(crate) fn of(&self, site: SiteId) -> Option<u32> {
        self.of_site.get(site as usize).copied().flatten()
    }

    pub(crate) const fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// A counter for the blocks that the query asks for. `group` returns the group in which the blocks of a site and a size
/// count; `None` leaves them out.
pub(crate) fn counter<'a>(
    trace: &mut Trace<'_>,
    query: &Query,
    range: &Range,
    groups: usize,
    mut group: impl FnMut(SiteId, u64) -> Option<u32>,
) -> Result<Counter<'a>, Gone> {
    counter_by_class(trace, query, range, groups, |site, class, _| group(site, class.size))
}

/// As `counter`. `group` also gets the allocation class and its index.
pub(crate) fn counter_by_class<'a>(
    trace: &mut Trace<'_>,
    query: &Query,
    range: &Range,
    groups: usize,
    mut group: impl FnMut(SiteId, &KnownAllocClass, usize) -> Option<u32>,
) -> Result<Counter<'a>, Gone> {
    let selection = trace.engine.selection(trace.blocks, query, range)?;
    let alloc_classes = trace.engine.alloc_classes_by_size(query);
    let grouped =
        alloc_classes.iter().enumerate().map(|(index, class)| class.regrouped(|site| group(site, class, index)));
    Ok(Counter::new(Cow::Owned(grouped.collect()), groups, selection))
}
