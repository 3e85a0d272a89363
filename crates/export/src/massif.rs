//! Massif's output file, as `ms_print` and massif-visualizer read it.
//!
//! Receives: the events of the blocks that are exported, twice, and what the stacks held before. Returns: text. The time is
//! cut into slices of equal length. A snapshot shows the heap at the highest moment of its slice, so the peak is among them.
//! Must hold: a node has the bytes of its children and of the stacks that end at it; no name contains a `#`, which starts a
//! comment for `ms_print`.
//!
//! ```text
//! snapshot=3 · time=120 (ms) · mem_heap_B=4096 · heap_tree=detailed
//! n2: 4096 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
//!  n1: 3000 0x1139: foo (a.c:3)          callers nest below callees
//! ```
use crate::Error;
use crate::hex::one_line;
use analysis::{BlockEvent, BlockEventKind, Definitions, Level, Range, SiteId};
use format::Frame;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};

const MS: u64 = 1_000_000;

/// Walks over the events of the blocks that are exported, and calls a function for each.
pub type Walk<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&BlockEvent)) -> Result<(), Error>;

/// What is exported.
pub struct Input<'a> {
    pub definitions: &'a Definitions,
    pub range: Range,
    /// The bytes that stacks held when the range began. Stacks that held nothing may be left out.
    pub base: &'a [(SiteId, u64)],
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Nodes with fewer bytes than this percentage of their snapshot are summed up.
    pub threshold: f64,
    /// Every nth snapshot has a tree, and the highest and the last one have one, too. 0 means only the highest one.
    pub detailed_every: usize,
    pub snapshots: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { threshold: 1.0, detailed_every: 2, snapshots: 100 }
    }
}

/// The highest moment of a slice.
#[derive(Clone, Copy, Default)]
struct Moment {
    bytes: u64,
    /// The number of allocations up to and including the one that made it; 0 if nothing was allocated in that slice.
    allocation: u64,
    time_ns: u64,
}

pub fn write(input: &Input<'_>, walk: Walk<'_>, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let moments = moments(input, walk, options.snapshots.max(1))?;
    let peak = (0..moments.len()).rev().max_by_key(|at| moments[*at].bytes).unwrap_or(0);
    let command = one_line(&input.definitions.session.command.join(" ")).replace('#', "");
    write!(out, "desc: heaptrack\ncmd: {command}\ntime_unit: ms\n")?;
    let base = Heap::new(input).bytes;
    empty(out, 0, input.range.from_ns / MS, base)?;
    let labels = Labels::new(input.definitions);
    let tree = Tree::new(input.definitions.site_count());
    let mut snapshots = Snapshots { labels, tree, options, moments, peak, next: 0, out, failed: None };
    each_allocation(input, walk, |heap| snapshots.look(heap))?;
    snapshots.failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Live bytes during a walk, in total and by site.
struct Heap {
    by_site: Vec<u64>,
    bytes: u64,
    time_ns: u64,
    /// The number of allocations so far.
    allocations: u64,
}

impl Heap {
    fn new(input: &Input<'_>) -> Self {
        let mut by_site = vec![0; input.definitions.site_count()];
        for (site, bytes) in input.base {
            if let Some(place) = by_site.get_mut(*site as usize) {
                *place = *bytes;
            }
        }
        let bytes = by_site.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        Heap { by_site, bytes, time_ns: input.range.from_ns, allocations: 0 }
    }

    fn add(&mut self, event: &BlockEvent) {
        self.time_ns = event.time_ns;
        let Some(site) = self.by_site.get_mut(event.site as usize) else { return };
        if event.kind == BlockEventKind::Alloc {
            self.allocations += 1;
            *site = site.saturating_add(event.size);
            self.bytes = self.bytes.saturating_add(event.size);
        } else {
            *site = site.saturating_sub(event.size);
            self.bytes = self.bytes.saturating_sub(event.size);
        }
    }
}

fn each_allocation(input: &Input<'_>, walk: Walk<'_>, mut look: impl FnMut(&Heap)) -> Result<(), Error> {
    let mut heap = Heap::new(input);
    walk(&mut |event| {
        heap.add(event);
        if event.kind == BlockEventKind::Alloc {
            look(&heap);
        }
    })
}

/// The highest moments of all slices in which something was allocated.
fn moments(input: &Input<'_>, walk: Walk<'_>, count: usize) -> Result<Vec<Moment>, Error> {
    let slice = (input.range.to_ns - input.range.from_ns) / count as u64 + 1;
    let mut moments = vec![Moment::default(); count];
    each_allocation(input, walk, |heap| {
        let at = ((heap.time_ns.saturating_sub(input.range.from_ns) / slice) as usize).min(count - 1);
        if let Some(moment) = moments.get_mut(at)
            && (heap.bytes > moment.bytes || moment.allocation == 0)
        {
            *moment = Moment { bytes: heap.bytes, allocation: heap.allocations, time_ns: heap.time_ns };
        }
    })?;
    moments.retain(|moment| moment.allocation > 0);
    Ok(moments)
}

struct Snapshots<'a> {
    labels: Labels<'a>,
    tree: Tree,
    options: &'a Options,
    moments: Vec<Moment>,
    peak: usize,
    next: usize,
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
}

impl Snapshots<'_> {
    /// Writes the snapshot if this is one of the moments.
    fn look(&mut self, heap: &Heap) {
        let Some(moment) = self.moments.get(self.next).copied().filter(|next| next.allocation == heap.allocations)
        else {
            return;
        };
        let number = self.next + 1;
        let every = self.options.detailed_every;
        let is_last = number == self.moments.len();
        let is_detailed = self.next == self.peak || every > 0 && (number.is_multiple_of(every) || is_last);
        let written = if is_detailed {
            self.tree(number, &moment, heap)
        } else {
            empty(self.out, number, moment.time_ns / MS, moment.bytes)
        };
        self.failed = self.failed.take().or(written.err());
        self.next += 1;
    }

    fn tree(&mut self, number: usize, moment: &Moment, heap: &Heap) -> io::Result<()> {
        head(self.out, number, moment.time_ns / MS, moment.bytes)?;
        writeln!(self.out, "heap_tree={}", if self.next == self.peak { "peak" } else { "detailed" })?;
        self.tree.fill(&heap.by_site, &mut self.labels);
        let least = (moment.bytes as f64 * self.options.threshold / 100.0) as u64;
        self.tree.write(self.out, &self.labels, least, self.options.threshold)
    }
}

fn head(out: &mut dyn Write, number: usize, ms: u64, bytes: u64) -> io::Result<()> {
    write!(out, "#-----------\nsnapshot={number}\n#-----------\ntime={ms}\n")?;
    write!(out, "mem_heap_B={bytes}\nmem_heap_extra_B=0\nmem_stacks_B=0\n")
}

fn empty(out: &mut dyn Write, number: usize, ms: u64, bytes: u64) -> io::Result<()> {
    head(out, number, ms, bytes)?;
    writeln!(out, "heap_tree=empty")
}

/// The texts of levels, each of them once. Most snapshots have the same stacks.
struct Labels<'a> {
    definitions: &'a Definitions,
    list: Vec<String>,
    known: HashMap<String, u32>,
}

impl<'a> Labels<'a> {
    fn new(definitions: &'a Definitions) -> Self {
        Labels { definitions, list: Vec::new(), known: HashMap::new() }
    }

    /// Returns the labels of a site's levels, the innermost first.
    fn of_site(&mut self, site: SiteId) -> Vec<u32> {
        let levels = self.definitions.levels(self.definitions.stack_of(site));
        levels.map(|level| self.number(label(&level))).collect()
    }

    fn number(&mut self, label: String) -> u32 {
        let next = self.list.len() as u32;
        let number = *self.known.entry(label.clone()).or_insert(next);
        if number == next {
            self.list.push(label);
        }
        number
    }

    fn text(&self, label: Option<u32>) -> &str {
        const ALL: &str = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc.";
        label.and_then(|label| self.list.get(label as usize)).map_or(ALL, String::as_str)
    }
}

const ROOT: usize = 0;

/// A level of some stacks. It is the same one in all snapshots; its bytes are in `Tree`.
struct Node {
    /// `None` for the total.
    label: Option<u32>,
    parent: usize,
    children: Vec<usize>,
}

/// What a snapshot has in a node.
#[derive(Clone, Copy)]
struct Held {
    bytes: u64,
    /// The first of the sites that hold them. Children with equal bytes are in the order of their sites.
    first_site: SiteId,
}

const NOTHING: Held = Held { bytes: 0, first_site: SiteId::MAX };

/// Callers are below callees. Node 0 is the total. The nodes stay from snapshot to snapshot, because most stacks do.
struct Tree {
    nodes: Vec<Node>,
    known: HashMap<(usize, u32), usize>,
    /// By site, the node of its outermost caller; `None` if it was not needed yet.
    end_of_site: Vec<Option<usize>>,
    /// By node, for the current snapshot.
    held: Vec<Held>,
}

impl Tree {
    fn new(sites: usize) -> Self {
        let total = Node { label: None, parent: ROOT, children: Vec::new() };
        Tree { nodes: vec![total], known: HashMap::new(), end_of_site: vec![None; sites], held: Vec::new() }
    }

    /// Begins a snapshot with these bytes in each site.
    fn fill(&mut self, by_site: &[u64], labels: &mut Labels<'_>) {
        self.held.fill(NOTHING);
        for (bytes, site) in by_site.iter().zip(0u32..).filter(|(bytes, _)| **bytes > 0) {
            let end = self.end_of(site, labels);
            self.held.resize(self.nodes.len(), NOTHING);
            add(&mut self.held[end], Held { bytes: *bytes, first_site: site });
        }
        // A caller was added after its callee, so a node is complete when its turn comes.
        for at in (ROOT + 1..self.held.len()).rev() {
            let held = self.held[at];
            add(&mut self.held[self.nodes[at].parent], held);
        }
    }

    fn end_of(&mut self, site: SiteId, labels: &mut Labels<'_>) -> usize {
        let known = self.end_of_site.get(site as usize).copied().flatten();
        known.unwrap_or_else(|| {
            let end = labels.of_site(site).iter().fold(ROOT, |at, label| self.child(at, *label));
            if let Some(place) = self.end_of_site.get_mut(site as usize) {
                *place = Some(end);
            }
            end
        })
    }

    fn child(&mut self, parent: usize, label: u32) -> usize {
        let child = self.nodes.len();
        match self.known.entry((parent, label)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                place.insert(child);
                self.nodes.push(Node { label: Some(label), parent, children: Vec::new() });
                self.nodes[parent].children.push(child);
                child
            }
        }
    }

    fn held(&self, at: usize) -> Held {
        self.held.get(at).copied().unwrap_or(NOTHING)
    }

    /// Returns the children that hold something, the largest first.
    fn children(&self, at: usize) -> Vec<usize> {
        let children = self.nodes.get(at).map_or(&[][..], |node| &node.children);
        let mut children: Vec<usize> = children.iter().copied().filter(|child| self.held(*child).bytes > 0).collect();
        children.sort_unstable_by_key(|child| {
            let held = self.held(*child);
            (Reverse(held.bytes), held.first_site)
        });
        children
    }

    /// Writes all nodes. It does not recurse, because stacks are deep.
    fn write(&self, out: &mut dyn Write, labels: &Labels<'_>, least: u64, threshold: f64) -> io::Result<()> {
        let mut open = vec![(ROOT, 0)];
        // The sum of a node's small children comes after all others: (depth, bytes, places).
        let mut summed: Vec<(usize, u64, usize)> = Vec::new();
        while let Some((at, depth)) = open.pop() {
            while let Some(sum) = summed.pop_if(|sum| sum.0 > depth) {
                below(out, sum, threshold)?;
            }
            let children = self.children(at);
            let shown = children.iter().filter(|child| self.held(**child).bytes >= least).count();
            let hidden = children[shown..].iter().map(|child| self.held(*child).bytes).fold(0, u64::saturating_add);
            let count = shown + (shown < children.len()) as usize;
            let label = self.nodes.get(at).and_then(|node| node.label);
            writeln!(out, "{:depth$}n{count}: {} {}", "", self.held(at).bytes, labels.text(label))?;
            if shown < children.len() {
                summed.push((depth + 1, hidden, children.len() - shown));
            }
            open.extend(children[..shown].iter().rev().map(|child| (*child, depth + 1)));
        }
        while let Some(sum) = summed.pop() {
            below(out, sum, threshold)?;
        }
        Ok(())
    }
}

fn add(to: &mut Held, held: Held) {
    to.bytes = to.bytes.saturating_add(held.bytes);
    to.first_site = to.first_site.min(held.first_site);
}

fn below(out: &mut dyn Write, (depth, bytes, places): (usize, u64, usize), threshold: f64) -> io::Result<()> {
    let noun = if places == 1 { "place" } else { "places" };
    writeln!(out, "{:depth$}n0: {bytes} in {places} {noun}, all below massif's threshold ({threshold:.2}%)", "")
}

/// Returns the text of a level, such as `0x1139: foo (a.c:3)`.
fn label(level: &Level<'_>) -> String {
    let offset = level.frame.offset();
    let function = match level.frame {
        Frame::CUT => "[frames left out]",
        frame if frame.is_marker() => "[damaged]",
        _ => level.function.unwrap_or("???"),
    };
    let place = match (level.file, level.line, level.module) {
        (Some(file), Some(line), _) => format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)),
        (Some(file), None, _) => file.rsplit('/').next().unwrap_or(file).to_owned(),
        (None, _, Some(module)) => format!("in {module}"),
        (None, _, None) => "in ???".to_owned(),
    };
    one_line(&format!("{offset:#X}: {function} ({place})")).replace("0X", "0x").replace('#', ".")
}
