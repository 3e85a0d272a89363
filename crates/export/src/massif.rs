//! Massif's output file, as `ms_print` and massif-visualizer read it.
//!
//! Receives: a trace, several times, and its report (for names). Returns: text. The session is cut into slices of equal
//! time. A snapshot shows the heap at the highest moment of its slice, so the peak is among them. Must hold: a node has
//! the bytes of its children and of the stacks that end at it; no name contains a `#`, which starts a comment for
//! `ms_print`.
//!
//! ```text
//! snapshot=3 · time=120 (ms) · mem_heap_B=4096 · heap_tree=detailed
//! n2: 4096 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.
//!  n1: 3000 0x1139: foo (a.c:3)          callers nest below callees
//! ```
use crate::definitions::Definitions;
use crate::heap::Heap;
use crate::hex::one_line;
use crate::{Error, Opener};
use analysis::{Level, Report};
use format::{BlockKind, Frame};
use std::collections::HashMap;
use std::io::{self, Write};

const NOT_EVENTS: &[BlockKind] =
    &[BlockKind::Symbols, BlockKind::Stacks, BlockKind::AllocClasses, BlockKind::Checkpoint];
const MS: u64 = 1_000_000;

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

pub fn write(open: Opener, report: &Report, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let definitions = Definitions::read(open()?)?;
    let moments = moments(open, &definitions, report.totals.runtime_ns, options.snapshots.max(1))?;
    let peak = (0..moments.len()).rev().max_by_key(|at| moments[*at].bytes).unwrap_or(0);
    let command = one_line(&report.session.command.join(" ")).replace('#', "");
    write!(out, "desc: heaptrack\ncmd: {command}\ntime_unit: ms\n")?;
    empty(out, 0, 0, 0)?;
    let mut snapshots = Snapshots { report, options, moments, peak, next: 0, out, failed: None };
    each_allocation(open, &definitions, |heap| snapshots.look(heap))?;
    snapshots.failed.map_or(Ok(()), |error| Err(error.into()))
}

fn each_allocation(open: Opener, definitions: &Definitions, mut look: impl FnMut(&Heap)) -> Result<(), Error> {
    let mut heap = Heap::new(definitions);
    let mut source = open()?;
    source.skip(NOT_EVENTS);
    while let Some(block) = source.next_block()? {
        if let Ok(mut events) = block.events() {
            heap.walk(definitions, &mut events, &mut look);
        }
    }
    Ok(())
}

/// The highest moments of all slices in which something was allocated.
fn moments(open: Opener, definitions: &Definitions, runtime_ns: u64, count: usize) -> Result<Vec<Moment>, Error> {
    let slice = runtime_ns / count as u64 + 1;
    let mut moments = vec![Moment::default(); count];
    each_allocation(open, definitions, |heap| {
        let at = ((heap.time_ns / slice) as usize).min(count - 1);
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
    report: &'a Report,
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
        let mut tree = Tree::default();
        for (stack, bytes) in heap.by_stack.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
            tree.add(self.report, stack as u32, *bytes);
        }
        let least = (moment.bytes as f64 * self.options.threshold / 100.0) as u64;
        tree.write(self.out, ROOT, 0, least, self.options.threshold)
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

const ROOT: usize = 0;

/// A level and the bytes that were allocated through it.
#[derive(Default)]
struct Node {
    label: String,
    bytes: u64,
    children: Vec<usize>,
}

/// Callers are below callees. Node 0 is the total.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    known: HashMap<(usize, String), usize>,
}

impl Tree {
    fn add(&mut self, report: &Report, stack: u32, bytes: u64) {
        if self.nodes.is_empty() {
            let label = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc.".into();
            self.nodes.push(Node { label, ..Node::default() });
        }
        let mut at = ROOT;
        self.nodes[at].bytes = self.nodes[at].bytes.saturating_add(bytes);
        for level in report.levels(stack) {
            at = self.child(at, label(&level));
            self.nodes[at].bytes = self.nodes[at].bytes.saturating_add(bytes);
        }
    }

    fn child(&mut self, parent: usize, label: String) -> usize {
        if let Some(known) = self.known.get(&(parent, label.clone())) {
            return *known;
        }
        let child = self.nodes.len();
        self.nodes.push(Node { label: label.clone(), ..Node::default() });
        self.nodes[parent].children.push(child);
        self.known.insert((parent, label), child);
        child
    }

    /// Writes a node and everything below it. It does not recurse, because stacks are deep.
    fn write(&mut self, out: &mut dyn Write, root: usize, depth: usize, least: u64, threshold: f64) -> io::Result<()> {
        let mut open = vec![(root, depth)];
        // The sum of a node's small children comes after all others: (depth, bytes, places).
        let mut summed: Vec<(usize, u64, usize)> = Vec::new();
        while let Some((at, depth)) = open.pop() {
            while let Some(sum) = summed.pop_if(|sum| sum.0 > depth) {
                below(out, sum, threshold)?;
            }
            let Some(node) = self.nodes.get(at) else { break };
            let mut children = node.children.clone();
            children.sort_by_key(|child| std::cmp::Reverse(self.nodes[*child].bytes));
            let shown = children.iter().filter(|child| self.nodes[**child].bytes >= least.max(1)).count();
            let hidden = children[shown..].iter().map(|child| self.nodes[*child].bytes).fold(0, u64::saturating_add);
            let count = shown + (shown < children.len()) as usize;
            writeln!(out, "{:depth$}n{count}: {} {}", "", node.bytes, node.label)?;
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
