//! The result of a replay.
use crate::definitions::Definitions;
use crate::names::{Level, Names};
use crate::site::Costs;
use format::{BlockKind, Frame, HeapAtAttach, Losses, Malformed, Module, Session, StackNode, Summary, Thread, Totals};
use std::collections::{BTreeMap, HashMap};

/// Kinds of malformed blocks kept one by one.
const KEPT: usize = 64;

/// What could not be counted because the file is damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Events that refer to something in a lost part of the file.
    pub damaged_events: u64,
    /// Allocations in lost blocks of events.
    pub missing_allocations: u64,
    /// Blocks whose content makes no sense, at most the first 64.
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
    /// For `Report::frames`.
    pub stack: u32,
    pub costs: Costs,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub session: Session,
    /// `None`: the trace was not finished.
    pub summary: Option<Summary>,
    pub losses: Losses,
    pub suppressions: String,
    /// How large the heap was already, of a program that ran when we came.
    pub heap_at_attach: Option<HeapAtAttach>,
    pub threads: Vec<Thread>,
    pub modules: BTreeMap<u16, Module>,
    pub names: Names,
    pub totals: Totals,
    pub faults: Faults,
    /// Every stack that allocated, in order of its first info.
    pub sites: Vec<SiteCosts>,
    /// Stack id - 1.
    pub(crate) nodes: Vec<StackNode>,
}

impl Report {
    /// The frames of a stack, leaf first.
    pub fn frames(&self, stack: u32) -> impl Iterator<Item = Frame> {
        let mut at = stack;
        std::iter::from_fn(move || {
            let index = at.checked_sub(1)? as usize;
            let Some(node) = self.nodes.get(index) else {
                at = 0;
                return Some(Frame::LOST);
            };
            // A parent is older than its child; anything else is a lie and ends the walk.
            at = if node.parent < at { node.parent } else { 0 };
            Some(node.frame)
        })
    }

    /// The same with names: what was inlined has a level of its own, in front of the frame that it is in.
    pub fn all_levels(&self, stack: u32) -> impl Iterator<Item = Level<'_>> {
        self.frames(stack).flat_map(|frame| {
            let module = self.module(frame).map(|module| module.path.as_str());
            self.names.levels(frame, module)
        })
    }

    /// The levels that people want: `operator new` is how C++ says malloc, so they begin with who called it.
    pub fn levels(&self, stack: u32) -> impl Iterator<Item = Level<'_>> {
        self.all_levels(stack).skip_while(Level::is_allocator)
    }

    pub fn module(&self, frame: Frame) -> Option<&Module> {
        self.modules.get(&frame.instance()).filter(|_| !frame.is_marker() && !frame.is_jit())
    }

    /// Takes over sites and stacks; those that differ only in a module that was loaded again become one.
    pub(crate) fn set_stacks(&mut self, definitions: Definitions, epoch: u64) {
        let Definitions { mut nodes, sites, stacks, .. } = definitions;
        let first = merge_modules(&self.modules);
        let same = merge_nodes(&mut nodes, &first);
        self.names.merge(&first);
        let canonical = |stack: u32| match stack.checked_sub(1) {
            Some(index) => same.get(index as usize).copied().unwrap_or(stack),
            None => 0,
        };
        let mut places = HashMap::new();
        for (site, stack) in sites.into_iter().zip(stacks) {
            let costs = site.costs(epoch);
            if costs.allocations == 0 {
                continue;
            }
            let stack = canonical(stack);
            let place = *places.entry(stack).or_insert(self.sites.len());
            match self.sites.get_mut(place) {
                Some(known) => known.costs.add(&costs),
                None => self.sites.push(SiteCosts { stack, costs }),
            }
        }
        self.nodes = nodes;
    }
}

/// Instance -> the first instance of the same file.
fn merge_modules(modules: &BTreeMap<u16, Module>) -> HashMap<u16, u16> {
    let mut first = HashMap::new();
    let of = |module: &Module| (module.path.clone(), module.build_id.clone());
    modules.iter().map(|(instance, module)| (*instance, *first.entry(of(module)).or_insert(*instance))).collect()
}

/// Rewrites the nodes in terms of first instances. Returns, per node, the id of the first node that is equal.
fn merge_nodes(nodes: &mut [StackNode], instances: &HashMap<u16, u16>) -> Vec<u32> {
    let mut first = HashMap::with_capacity(nodes.len());
    let mut same: Vec<u32> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter_mut().enumerate() {
        let id = index as u32 + 1;
        if let Some(parent) = node.parent.checked_sub(1) {
            node.parent = same.get(parent as usize).copied().unwrap_or(0);
        }
        if let Some(instance) = instances.get(&node.frame.instance()).filter(|_| !node.frame.is_marker()) {
            node.frame = Frame::new(*instance, node.frame.offset(), node.frame.is_exact());
        }
        same.push(*first.entry((node.parent, node.frame)).or_insert(id));
    }
    same
}
