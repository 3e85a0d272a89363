//! The result of a replay: the definitions of a trace, and the costs of the whole session.
use crate::code_class::CodeClasses;
use crate::costs::Costs;
use crate::definitions::{Definitions, SiteId};
use crate::stack_table::StackTable;
use crate::suppressions::Suppressions;
use format::{BlockKind, Malformed, Totals};
use std::collections::HashSet;
use std::ops::Deref;

/// How many malformed blocks are listed one by one.
const KEPT: usize = 64;

/// What could not be counted because the file is damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Events that refer to something in a lost part of the file.
    pub damaged_events: u64,
    /// Allocations in lost blocks of events.
    pub missing_allocations: u64,
    /// Malformed blocks, at most the first 64.
    pub malformed: Vec<(BlockKind, Malformed)>,
    pub malformed_count: u64,
}

impl Faults {
    pub(crate) fn malformed(&mut self, kind: BlockKind, error: Malformed) {
        self.malformed_count += 1;
        if self.malformed.len() < KEPT {
            self.malformed.push((kind, error));
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Faults::default()
    }
}

/// One distinct stack and what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteCosts {
    /// For `Definitions::frames`.
    pub stack: u32,
    pub costs: Costs,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub definitions: Definitions,
    pub totals: Totals,
    pub faults: Faults,
    /// Every stack that allocated, in order of its first allocation class.
    pub sites: Vec<SiteCosts>,
}

impl Report {
    /// Stacks that match do not count as leaked. The totals do not change, because they say what the program did.
    pub fn suppress(&mut self, known: Suppressions) {
        let table = StackTable::new(&self.definitions, &CodeClasses::new(&self.definitions.session.exe), known);
        let sites = (0..table.stacks.len() as SiteId).filter(|site| table.stack(*site).suppressed.is_some());
        let suppressed: HashSet<u32> = sites.map(|site| self.definitions.stack_of(site)).collect();
        for site in self.sites.iter_mut().filter(|site| suppressed.contains(&site.stack)) {
            (site.costs.live_bytes, site.costs.live_allocations) = (0, 0);
        }
    }
}

/// Gives direct access to the definitions.
impl Deref for Report {
    type Target = Definitions;
    fn deref(&self) -> &Definitions {
        &self.definitions
    }
}
