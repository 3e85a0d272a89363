//! Maps the stacks of each ring to those of the trace.
//!
//! Receives: the paths that a ring defines, in order. Returns: for a stack number of that ring, the trace's id; new
//! nodes are listed on the way, callers first. Must hold: equal lists of frames have one id, whichever ring or thread
//! defined them, and however often; a number that was never defined gives stack 0 and is counted.
//!
//! A ring refers only to the last `NUMBERS` numbers that it defined (`channel::Path`), so only these are kept.
//!
//! Without a trace, an id is needed only while a ring can refer to it. So the number of nodes is bounded
//! (`MOST_NODES`). Before the bound is reached, `compact` drops the stacks that no ring can refer to any more, and
//! gives new ids to the others.
use crate::instances::Instances;
use crate::mapping::prefetch;
use channel::{MAX_PATH, Path, StackId};

const NUMBERS: usize = 1 << 15;
const SMALLEST: usize = 1 << 12;
/// The most nodes that are kept if no trace is written. `compact` is requested earlier: when there are four times as
/// many as the last `compact` kept, but not before `FEW_NODES`, which fit into the processor's cache, and not after
/// `MANY_NODES`.
const MOST_NODES: usize = 1 << 20;
const FEW_NODES: usize = 1 << 18;
const MANY_NODES: usize = MOST_NODES / 4 * 3;
/// The id of all stacks that found no room.
pub const OTHER: u32 = u32::MAX;

/// `(parent, frame) -> id`, open addressing over the nodes, at most half full.
#[derive(Debug)]
struct Tree {
    table: Vec<u32>,
    /// The parent of each node, by id - 1.
    parents: Vec<u32>,
    frames: Vec<u64>,
}

impl Tree {
    fn new() -> Self {
        Tree { table: vec![0; SMALLEST], parents: Vec::new(), frames: Vec::new() }
    }

    /// An empty tree with as much room as another one.
    fn as_large_as(other: &Tree) -> Self {
        Tree {
            table: vec![0; other.table.len()],
            parents: Vec::with_capacity(other.len()),
            frames: Vec::with_capacity(other.len()),
        }
    }

    #[inline]
    fn home(&self, parent: u32, frame: u64) -> usize {
        let mixed = (frame ^ (parent as u64) << 32 ^ parent as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32 ^ mixed) as usize & (self.table.len() - 1)
    }

    /// Returns the place of the node, or the empty place where it belongs.
    #[inline]
    fn place(&self, parent: u32, frame: u64) -> usize {
        let mut at = self.home(parent, frame);
        loop {
            let id = self.table[at];
            if id == 0 {
                return at;
            }
            let index = id as usize - 1;
            if self.frames[index] == frame && self.parents[index] == parent {
                return at;
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    /// Prefetches the places of nodes that will be added next. `frames` has the outermost frame last, which is called
    /// by `parent`. `parent` is the newest node, so each node gets the next id and is the parent of the one after it.
    fn expect(&self, parent: u32, frames: &[u64]) {
        for (i, frame) in frames.iter().rev().enumerate() {
            prefetch(&self.table[self.home(parent.wrapping_add(i as u32), *frame)]);
        }
    }

    fn add(&mut self, at: usize, id: u32, parent: u32, frame: u64) {
        self.table[at] = id;
        self.parents.push(parent);
        self.frames.push(frame);
        if self.parents.len() * 2 > self.table.len() {
            self.grow();
        }
    }

    const fn len(&self) -> usize {
        self.parents.len()
    }

    /// Copies a stack of another tree and returns its new id. `moved` has the new ids by old ones; 0 means not copied
    /// yet.
    fn adopt(&mut self, old: &Tree, stack: u32, moved: &mut [u32]) -> u32 {
        let mut path = Vec::new();
        let mut at = stack;
        let mut parent = loop {
            match moved.get(at as usize) {
                _ if at == 0 || at == OTHER => break at,
                Some(0) => (),
                Some(&new) => break new,
                None => break OTHER,
            }
            path.push(at);
            at = old.parents.get(at as usize - 1).copied().unwrap_or(OTHER);
        };
        for id in path.into_iter().rev() {
            let new = self.len() as u32 + 1;
            let frame = old.frames.get(id as usize - 1).copied().unwrap_or_default();
            self.add(self.place(parent, frame), new, parent, frame);
            parent = new;
            if let Some(place) = moved.get_mut(id as usize) {
                *place = new;
            }
        }
        parent
    }

    #[cold]
    fn grow(&mut self) {
        self.table = vec![0; self.table.len() * 2];
        for index in 0..self.parents.len() {
            let at = self.place(self.parents[index], self.frames[index]);
            self.table[at] = index as u32 + 1;
        }
    }
}

/// The stack numbers that one ring can still refer to, with their ids in the trace.
#[derive(Debug)]
struct Numbers {
    /// `[number, trace id]`; the place of a number is the number modulo the length. The length is a power of two from
    /// `FEWEST` to `NUMBERS`, with room for the numbers that were defined since `first`. Most threads of a program with
    /// many threads define only a few.
    entries: Vec<[u32; 2]>,
    first: u32,
}

impl Numbers {
    const FEWEST: usize = 1 << 6;

    const fn new() -> Self {
        Numbers { entries: Vec::new(), first: 0 }
    }

    #[inline(always)]
    fn get(&self, number: u32) -> Option<u32> {
        let [found, id] = *self.entries.get(number as usize & self.entries.len().wrapping_sub(1))?;
        (found == number).then_some(id)
    }

    /// Makes room for the numbers from `first` up to `newest` (exclusive), which will be defined next.
    fn expect(&mut self, first: u32, newest: u32) {
        if self.entries.is_empty() {
            self.first = first;
        }
        let told = newest.wrapping_sub(self.first) as usize;
        let wanted = told.next_power_of_two().clamp(Self::FEWEST, NUMBERS);
        if self.entries.len() < wanted {
            let old = std::mem::replace(&mut self.entries, vec![[0; 2]; wanted]);
            old.into_iter().filter(|[number, _]| *number != 0).for_each(|[number, id]| self.set(number, id));
        }
    }

    #[inline(always)]
    fn set(&mut self, number: u32, id: u32) {
        let last = self.entries.len().wrapping_sub(1);
        if let Some(place) = self.entries.get_mut(number as usize & last) {
            *place = [number, id];
        }
    }
}

#[derive(Debug)]
pub struct Stacks {
    /// Nodes that were added since the last `take_new`: parent and frame. `None` if no trace is written.
    new: Option<Vec<(u32, u64)>>,
    tree: Tree,
    /// The numbers of each ring, by source.
    numbers: Vec<Numbers>,
    /// The number after the last one that was defined, by source. Numbers wrap around.
    newest: Vec<u32>,
    /// The number of nodes at which a `compact` is requested.
    many: usize,
    corrupt: u64,
    /// Only if the rings are those of several processes.
    instances: Option<Box<Instances>>,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks { new: Some(Vec::new()), ..Self::unwritten() }
    }
}

impl Stacks {
    /// Makes a value for a session without a trace.
    pub fn unwritten() -> Self {
        Stacks {
            new: None,
            tree: Tree::new(),
            numbers: Vec::new(),
            newest: Vec::new(),
            many: FEW_NODES,
            corrupt: 0,
            instances: None,
        }
    }

    /// The rings of several processes are read from now on.
    pub fn translate(&mut self) {
        self.instances = Some(Box::default());
    }

    /// Gives a number to a new module of the trace. Returns `None` if there are too many.
    pub fn new_instance(&mut self) -> Option<u16> {
        self.instances.as_mut()?.new_instance()
    }

    /// The module that a process calls `own` is the trace's module `instance`.
    pub fn set_instance(&mut self, process: u16, own: u16, instance: u16) {
        if let Some(instances) = &mut self.instances {
            instances.set(process, own, instance);
        }
    }

    /// A process has ended, and so have its rings.
    pub fn forget(&mut self, process: u16, sources: impl Iterator<Item = u32>) {
        if let Some(instances) = &mut self.instances {
            instances.forget(process);
        }
        for source in sources {
            if let Some(numbers) = self.numbers.get_mut(source as usize) {
                *numbers = Numbers::new();
            }
        }
    }

    pub fn take_code_modules(&mut self, modules: &mut Vec<(u16, u16)>) {
        if let Some(instances) = &mut self.instances {
            instances.take_code_modules(modules);
        }
    }

    /// Adds the stacks that a path of one of several processes defines.
    pub fn define_of(&mut self, process: u16, source: u32, path: &Path<'_>) {
        let Some(mut instances) = self.instances.take() else { return self.define(source, path) };
        let frames = path.frames.get(..MAX_PATH).unwrap_or(path.frames);
        self.define(source, &Path { frames: instances.all(process, frames), ..*path });
        self.instances = Some(instances);
    }

    /// Adds the stacks that a path defines. A repeated definition changes nothing.
    pub fn define(&mut self, source: u32, path: &Path<'_>) {
        if path.frames.len() > MAX_PATH {
            self.corrupt += 1;
            return;
        }
        let mut parent = self.id(source, path.tail);
        let index = source as usize;
        if self.numbers.len() <= index {
            self.numbers.resize_with(index + 1, Numbers::new);
            self.newest.resize(index + 1, 0);
        }
        self.newest[index] = path.first.wrapping_add(path.frames.len() as u32);
        self.numbers[index].expect(path.first, self.newest[index]);
        let mut known = self.tree.len();
        for (i, frame) in path.frames.iter().enumerate().rev() {
            parent = self.intern(parent, *frame);
            if known != usize::MAX && self.tree.len() != known {
                // A node on top of a new node is new too, and the next ids are known, so all places can be prefetched
                // at once.
                known = usize::MAX;
                self.tree.expect(parent, path.frames.get(..i).unwrap_or_default());
            }
            let number = path.first.wrapping_add(i as u32);
            self.numbers[index].set(number, parent);
        }
    }

    #[inline]
    fn intern(&mut self, parent: u32, frame: u64) -> u32 {
        let at = self.tree.place(parent, frame);
        match self.tree.table[at] {
            0 => {
                match &mut self.new {
                    Some(new) => new.push((parent, frame)),
                    None if self.tree.len() >= MOST_NODES || parent == OTHER => return OTHER,
                    None => (),
                }
                let id = self.tree.len() as u32 + 1;
                self.tree.add(at, id, parent, frame);
                id
            }
            id => id,
        }
    }

    /// Returns the frames of a stack, leaf first.
    pub fn frames(&self, stack: u32) -> impl Iterator<Item = u64> + '_ {
        let mut next = stack;
        std::iter::from_fn(move || {
            let index = next.checked_sub(1)? as usize;
            next = *self.tree.parents.get(index)?;
            self.tree.frames.get(index).copied()
        })
    }

    /// Returns true if `compact` should be called before more stacks are defined.
    pub const fn wants_compact(&self) -> bool {
        self.new.is_none() && self.tree.len() >= self.many
    }

    /// Keeps only the stacks that rings can still refer to, and gives them new ids; no caller may hold an old id. If
    /// they are too many, the older half of every ring's stacks is dropped, repeatedly.
    pub fn compact(&mut self) {
        let mut kept = NUMBERS;
        loop {
            let empty = Tree::as_large_as(&self.tree);
            let old = std::mem::replace(&mut self.tree, empty);
            let mut moved = vec![0; old.len() + 1];
            for (numbers, newest) in self.numbers.iter_mut().zip(&self.newest) {
                for [number, id] in &mut numbers.entries {
                    let is_kept = newest.wrapping_sub(*number) <= kept as u32;
                    *id = if is_kept { self.tree.adopt(&old, *id, &mut moved) } else { OTHER };
                }
            }
            kept /= 2;
            if self.tree.len() < MANY_NODES / 2 || kept == 0 {
                break;
            }
        }
        self.many = (self.tree.len() * 4).clamp(FEW_NODES, MANY_NODES);
    }

    /// Returns the trace's id of a ring's stack.
    #[inline]
    pub fn id(&mut self, source: u32, number: StackId) -> u32 {
        if number == 0 {
            return 0;
        }
        match self.numbers.get(source as usize).and_then(|numbers| numbers.get(number)) {
            Some(id) => id,
            None => {
                self.corrupt += 1;
                0
            }
        }
    }

    /// Returns how often a path or the number of a stack was invalid.
    pub const fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Moves the nodes that were added since the last call to `nodes`: parent and frame, in the order of their ids.
    pub fn take_new(&mut self, nodes: &mut Vec<(u32, u64)>) {
        if let Some(new) = &mut self.new {
            nodes.append(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(first: u32, tail: u32, frames: &[u64]) -> Path<'_> {
        Path { first, tail, frames }
    }

    #[test]
    fn callers_come_first_and_once() {
        let mut stacks = Stacks::default();
        stacks.define(0, &path(5, 0, &[30, 20, 10]));
        assert_eq!([5, 6, 7].map(|number| stacks.id(0, number)), [3, 2, 1]);
        // Another ring defines the same frames and one more.
        stacks.define(3, &path(900, 0, &[20, 10]));
        stacks.define(3, &path(905, 900, &[40]));
        assert_eq!([900, 901, 905].map(|number| stacks.id(3, number)), [2, 1, 4]);
        stacks.define(0, &path(5, 0, &[30, 20, 10]));
        let mut nodes = Vec::new();
        stacks.take_new(&mut nodes);
        assert_eq!(nodes, [(0, 10), (1, 20), (2, 30), (2, 40)]);
        stacks.take_new(&mut nodes);
        assert_eq!(nodes.len(), 4, "each node is new once");
        assert_eq!((stacks.id(0, 0), stacks.corrupt()), (0, 0));
    }

    #[test]
    fn a_number_that_was_not_told_is_counted() {
        let mut stacks = Stacks::default();
        assert_eq!((stacks.id(0, 1), stacks.corrupt()), (0, 1));
        stacks.define(0, &path(1, 0, &[10]));
        stacks.define(0, &path(1 + NUMBERS as u32, 0, &[11]));
        assert_eq!((stacks.id(0, 1), stacks.corrupt()), (0, 2), "its number is another stack's now");
        assert_eq!(stacks.id(0, 1 + NUMBERS as u32), 2);
    }

    #[test]
    fn compacting_keeps_what_a_ring_can_name() {
        let mut stacks = Stacks::unwritten();
        for n in 1..=100_000u32 {
            stacks.define(0, &path(n, 0, &[n as u64, 8, 7]));
            if stacks.wants_compact() {
                stacks.compact();
            }
        }
        stacks.define(2, &path(5, 0, &[4, 8, 7]));
        stacks.compact();
        assert_eq!(stacks.tree.len(), NUMBERS - 2 + 2 + 1, "the shared callers once");
        for n in 100_000 - NUMBERS as u32 + 3..=100_000 {
            let id = stacks.id(0, n);
            assert_eq!(stacks.frames(id).collect::<Vec<_>>(), [n as u64, 8, 7]);
        }
        let id = stacks.id(2, 5);
        assert_eq!(stacks.frames(id).collect::<Vec<_>>(), [4, 8, 7]);
        assert_eq!(stacks.corrupt(), 0);
    }

    #[test]
    fn memory_has_a_bound_whatever_rings_name() {
        let mut stacks = Stacks::unwritten();
        let frames: Vec<u64> = (0..100).collect();
        for n in 0..40_000u64 {
            let mut frames = frames.clone();
            frames[99] = 1000 + n;
            stacks.define(0, &path(1 + n as u32 * 100, 0, &frames));
            if stacks.wants_compact() {
                stacks.compact();
            }
            assert!(stacks.tree.len() <= MOST_NODES);
        }
        let id = stacks.id(0, 1 + 39_999 * 100);
        assert_eq!(stacks.frames(id).count(), 100);
    }

    #[test]
    fn many_nodes_keep_their_ids() {
        let mut stacks = Stacks::default();
        for round in 0..2 {
            for n in 0..20_000u64 {
                stacks.define(0, &path(7, 0, &[n, n / 3, 1]));
                if round == 1 {
                    assert!(stacks.id(0, 7) <= 20_000 + 6_667 + 1);
                }
            }
        }
        let mut nodes = Vec::new();
        stacks.take_new(&mut nodes);
        assert_eq!(nodes.len(), 20_000 + 6_667 + 1);
    }
}
