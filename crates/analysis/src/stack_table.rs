//! The stacks of a trace for views: each text, each level and each node of the tree of levels is stored once.
//!
//! Receives: the definitions, the classes of code, and the suppressions. Returns: for each stack its innermost node,
//! the node to blame and the matching suppression. Must hold: a parent comes before its children, so every walk from a
//! leaf to the root ends.
use crate::code_class::{CodeClass, CodeClasses};
use crate::definitions::{Definitions, SiteId};
use crate::frame_names::Level;
use crate::query::Query;
use crate::suppressions::Suppressions;
use crate::wrappers::{self, Asked, Finder, Owner, Wrappers};
use foldhash::{HashMap, HashMapExt};
use format::{Frame, IntMap};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A node of the tree of levels. 0 is the root, which has no level.
pub type NodeId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackTableLevel {
    /// The frame that the level is a function of.
    pub frame: Frame,
    pub function: Option<u32>,
    pub short: Option<u32>,
    pub file: Option<u32>,
    pub module: Option<u32>,
    pub line: Option<u32>,
    pub offset: Option<u64>,
    /// `None` for a marker, which stands for missing levels.
    pub class: Option<CodeClass>,
    pub inlined: bool,
    is_allocator: bool,
    /// What a rule of the user says about wrappers of the allocator.
    pub(crate) wrapper_rule: Option<bool>,
    /// The name as the linker knows it.
    pub raw: Option<u32>,
}

#[cfg(test)]
impl StackTableLevel {
    /// A line of a function of the user's own code, for tests.
    pub(crate) const fn of_test(frame: Frame, function: u32, line: u32) -> Self {
        StackTableLevel {
            frame,
            function: Some(function),
            short: Some(function),
            file: None,
            module: None,
            line: Some(line),
            offset: None,
            class: Some(CodeClass::Program),
            inlined: false,
            is_allocator: false,
            wrapper_rule: None,
            raw: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Towards the root.
    pub parent: NodeId,
    /// `None` for the root.
    pub level: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackTableStack {
    /// The innermost level; 0 if nothing is known.
    pub node: NodeId,
    /// The level that lists name as the owner of the memory (docs/blame.md); 0 if nothing is known.
    pub owner: NodeId,
    /// The owner, if the stack has a level in the user's own code.
    pub blamed: Option<NodeId>,
    /// Index into `suppressions`.
    pub suppressed: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct StackTable {
    pub strings: Arc<Vec<String>>,
    pub levels: Arc<Vec<StackTableLevel>>,
    pub nodes: Arc<Vec<Node>>,
    /// By site.
    pub stacks: Vec<StackTableStack>,
    pub suppressions: Suppressions,
    /// The functions that count as a part of the allocator.
    pub wrappers: Wrappers,
    /// By site, the different sizes.
    pub(crate) sizes: Arc<Vec<Vec<u64>>>,
}

impl StackTable {
    pub fn new(definitions: &Definitions, classes: &CodeClasses, suppressions: Suppressions) -> StackTable {
        let mut maker = Maker {
            definitions,
            classes,
            strings: Vec::new(),
            levels: Vec::new(),
            nodes: vec![Node { parent: 0, level: None }],
            known_strings: HashMap::new(),
            frames: IntMap::default(),
            node_of_stack: vec![0; definitions.nodes.len()],
            node_of_lost: IntMap::default(),
        };
        let leaves: Vec<NodeId> = definitions.stacks.iter().map(|stack| maker.leaf(*stack)).collect();
        let unjudged = |node| StackTableStack { node, owner: node, blamed: None, suppressed: None };
        let mut table = StackTable {
            strings: Arc::new(maker.strings),
            levels: Arc::new(maker.levels),
            nodes: Arc::new(maker.nodes),
            stacks: leaves.into_iter().map(unjudged).collect(),
            suppressions,
            wrappers: Wrappers::default(),
            sizes: Arc::new(wrappers::sizes(definitions.sizes(), definitions.site_count())),
        };
        table.blame(Asked::default());
        table.suppress();
        table
    }

    /// The same table with the wrappers that a query asks for.
    pub fn heeding<'a>(&'a self, query: &Query) -> Cow<'a, StackTable> {
        let asked = Asked { wrappers: &query.wrappers, others: &query.not_wrappers, found: &query.found_wrappers };
        if asked.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut table = self.clone();
        table.blame(asked);
        Cow::Owned(table)
    }

    /// The query for this trace if it is compared with another one: a wrapper that was found in the other trace counts in
    /// this one, too. Otherwise a function that has nine callers in one trace and ten in the other would look like a
    /// change.
    #[must_use]
    pub fn beside(&self, other: &StackTable, query: &Query) -> Query {
        let (own, other) = (self.heeding(query), other.heeding(query));
        let known: BTreeSet<&str> = own.wrappers.found(&own).collect();
        let found: BTreeSet<&str> = other.wrappers.found(&other).collect();
        let missing = found.difference(&known).map(|name| (*name).to_owned());
        let mut query = query.clone();
        query.found_wrappers = missing.collect();
        query
    }

    /// The same tables of two traces that are compared, with the wrappers that a query asks for.
    pub fn heeding_both<'a>(
        &'a self,
        base: &'a StackTable,
        query: &Query,
    ) -> (Cow<'a, StackTable>, Cow<'a, StackTable>) {
        (self.heeding(&self.beside(base, query)), base.heeding(&base.beside(self, query)))
    }

    /// Finds the wrappers of the allocator, and then the owner of each stack.
    fn blame(&mut self, asked: Asked<'_>) {
        self.wrappers = Finder::new(self, &self.sizes, asked).find();
        let mut path = Vec::new();
        let owners: Vec<Owner> =
            self.stacks.iter().map(|stack| wrappers::owner(self, &self.wrappers, stack.node, &mut path)).collect();
        self.wrappers.list = wrappers::list(self, &self.wrappers, &self.sizes, &owners);
        for (stack, owner) in self.stacks.iter_mut().zip(owners) {
            stack.owner = owner.node;
            stack.blamed = owner.is_own.then_some(owner.node);
        }
    }

    pub fn text(&self, string: Option<u32>) -> Option<&str> {
        self.strings.get(string? as usize).map(String::as_str)
    }

    pub fn level(&self, node: NodeId) -> Option<&StackTableLevel> {
        self.levels.get(self.nodes.get(node as usize)?.level? as usize)
    }

    pub fn parent(&self, node: NodeId) -> NodeId {
        self.nodes.get(node as usize).map_or(0, |node| node.parent)
    }

    /// The nodes from this one to the root, without the root.
    pub fn path(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(node), |node| Some(self.parent(*node))).take_while(|node| *node != 0)
    }

    pub fn stack(&self, site: SiteId) -> StackTableStack {
        self.stacks.get(site as usize).copied().unwrap_or(StackTableStack {
            node: 0,
            owner: 0,
            blamed: None,
            suppressed: None,
        })
    }

    /// Finds the suppression of each stack: that of its innermost level that matches one.
    fn suppress(&mut self) {
        if self.suppressions.list().is_empty() {
            return;
        }
        let of_string: Vec<Option<u32>> = self.strings.iter().map(|text| self.suppressions.find(text)).collect();
        let of_text = |string: Option<u32>| of_string.get(string? as usize).copied().flatten();
        let of_level: Vec<Option<u32>> = self
            .levels
            .iter()
            .map(|level| {
                let texts = [level.module, level.function, level.raw, level.file];
                texts.into_iter().find_map(of_text)
            })
            .collect();
        let mut of_node: Vec<Option<u32>> = Vec::with_capacity(self.nodes.len());
        for node in self.nodes.iter() {
            let own = node.level.and_then(|level| of_level.get(level as usize).copied().flatten());
            let inherited = of_node.get(node.parent as usize).copied().flatten();
            of_node.push(own.or(inherited));
        }
        for stack in &mut self.stacks {
            stack.suppressed = of_node.get(stack.node as usize).copied().flatten();
        }
    }
}

struct Maker<'a> {
    definitions: &'a Definitions,
    classes: &'a CodeClasses,
    strings: Vec<String>,
    levels: Vec<StackTableLevel>,
    nodes: Vec<Node>,
    known_strings: HashMap<&'a str, u32>,
    /// Frame -> range of levels, innermost first.
    frames: IntMap<u64, (u32, u32)>,
    /// By stack id minus 1; 0 if the stack has no node yet.
    node_of_stack: Vec<NodeId>,
    /// The same for stacks that are not defined.
    node_of_lost: IntMap<u32, NodeId>,
}

impl<'a> Maker<'a> {
    /// The innermost node of a stack that is not a function of the allocator itself.
    fn leaf(&mut self, stack: u32) -> NodeId {
        let mut node = self.node(stack);
        while let Some(at) = self.nodes.get(node as usize) {
            let level = at.level.and_then(|level| self.levels.get(level as usize));
            if !level.is_some_and(|level| level.is_allocator) {
                break;
            }
            node = at.parent;
        }
        node
    }

    fn node(&mut self, stack: u32) -> NodeId {
        let mut pending = Vec::new();
        let mut at = stack;
        let mut node = loop {
            if at == 0 {
                break 0;
            }
            if let Some(known) = self.known_node(at) {
                break known;
            }
            pending.push(at);
            let parent = self.definitions.nodes.get(at as usize - 1).map_or(0, |node| node.parent);
            // A parent is older than its child. Anything else is malformed and ends the walk.
            at = if parent < at { parent } else { 0 };
        };
        for stack in pending.into_iter().rev() {
            let frame = self.definitions.nodes.get(stack as usize - 1).map_or(Frame::LOST, |node| node.frame);
            let (from, to) = self.frame(frame);
            for level in (from..to).rev() {
                self.nodes.push(Node { parent: node, level: Some(level) });
                node = self.nodes.len() as NodeId - 1;
            }
            match self.node_of_stack.get_mut(stack as usize - 1) {
                Some(place) => *place = node,
                None => drop(self.node_of_lost.insert(stack, node)),
            }
        }
        node
    }

    fn known_node(&self, stack: u32) -> Option<NodeId> {
        match self.node_of_stack.get(stack as usize - 1) {
            Some(node) => Some(*node).filter(|node| *node != 0),
            None => self.node_of_lost.get(&stack).copied(),
        }
    }

    fn frame(&mut self, frame: Frame) -> (u32, u32) {
        if let Some(known) = self.frames.get(&frame.0) {
            return *known;
        }
        let from = self.levels.len() as u32;
        let levels: Vec<Level<'a>> = self.definitions.levels_of(frame).collect();
        for level in levels {
            let made = self.level(&level);
            self.levels.push(made);
        }
        let range = (from, self.levels.len() as u32);
        self.frames.insert(frame.0, range);
        range
    }

    fn level(&mut self, level: &Level<'a>) -> StackTableLevel {
        let marker = level.marker();
        StackTableLevel {
            frame: level.frame,
            function: self.string(marker.or(level.function)),
            short: self.string(marker.or(level.short)),
            file: self.string(level.file),
            module: self.string(level.module),
            line: level.line,
            offset: marker.is_none().then(|| level.frame.offset()),
            class: marker.is_none().then(|| self.classes.of(level)),
            inlined: level.inlined,
            is_allocator: level.is_allocator(),
            wrapper_rule: self.classes.wrapper_rule(level),
            raw: self.string(level.raw),
        }
    }

    fn string(&mut self, text: Option<&'a str>) -> Option<u32> {
        let text = text?;
        let strings = &mut self.strings;
        Some(*self.known_strings.entry(text).or_insert_with(|| {
            strings.push(text.to_owned());
            strings.len() as u32 - 1
        }))
    }
}
