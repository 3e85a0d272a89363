//! The views: their names, keys and order. docs/tui.md lists them.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViewKind {
    Summary,
    Flame,
    BottomUp,
    TopDown,
    Mine,
    Leaks,
    Sizes,
    Lifetimes,
    Threads,
    Processes,
    Memory,
    Source,
    Compare,
}

pub struct ViewName {
    pub kind: ViewKind,
    /// The key that shows it.
    pub key: char,
    /// As on the page.
    pub name: &'static str,
    /// For a narrow screen.
    pub(crate) short: &'static str,
    /// What it shows.
    pub help: &'static str,
}

const fn view(kind: ViewKind, key: char, name: &'static str, short: &'static str, help: &'static str) -> ViewName {
    ViewName { kind, key, name, short, help }
}

pub const VIEWS: &[ViewName] = &[
    view(ViewKind::Summary, '1', "Summary", "Sum", "the largest owners of each measure"),
    view(ViewKind::Flame, '2', "Flame graph", "Flame", "all stacks; a box is as wide as its share"),
    view(ViewKind::BottomUp, '3', "Bottom-up", "Up", "the functions that allocate, and their callers"),
    view(ViewKind::TopDown, '4', "Top-down", "Dn", "from main to the functions that allocate"),
    view(ViewKind::Mine, '5', "Your code", "My", "the innermost frame of your own code in each stack"),
    view(ViewKind::Leaks, '6', "Leaks", "Leak", "what was not freed, with a verdict: leak or not?"),
    view(ViewKind::Sizes, '7', "Sizes", "Size", "blocks by size"),
    view(ViewKind::Lifetimes, '8', "Lifetimes", "Life", "blocks by how long they lived"),
    view(ViewKind::Threads, '9', "Threads", "Thr", "blocks by the thread that allocated them"),
    view(ViewKind::Processes, '0', "Processes", "Proc", "the processes of a trace that was recorded with --follow"),
    view(ViewKind::Memory, 'r', "Memory", "Mem", "the parts of the resident memory at each instant"),
    view(ViewKind::Source, 's', "Source", "Src", "source lines with their costs"),
    view(ViewKind::Compare, '=', "Compare", "Cmp", "what changed since another trace or another time"),
];

impl ViewKind {
    pub(crate) fn number(self) -> usize {
        VIEWS.iter().position(|view| view.kind == self).unwrap_or(0)
    }

    /// The view that is this many places further on.
    pub(crate) fn step(self, by: usize) -> Self {
        VIEWS[(self.number() + by) % VIEWS.len()].kind
    }
}
