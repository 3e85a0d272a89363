//! From the stacks of each ring to those of the trace.
//!
//! Given: the paths that a ring tells, in its order. Gives back: for a stack number of that ring, the trace's id, new
//! nodes encoded on the way, callers first. What must hold: one id for one list of frames, whichever ring or thread told
//! it, and however often; a number that was never told gives stack 0 and is counted.
//!
//! A ring uses its numbers again after `NUMBERS` others (`channel::Path`), so that many are kept of each.
use channel::{MAX_PATH, Path, StackId};
use format::{Frame, RawBlock, StackEncoder};

const NUMBERS: usize = 1 << 15;
const SMALLEST: usize = 1 << 12;

/// `(parent, frame) -> id`, open addressing over the nodes, at most half full.
#[derive(Debug)]
struct Tree {
    table: Vec<u32>,
    /// By id - 1.
    parents: Vec<u32>,
    frames: Vec<u64>,
}

impl Tree {
    fn new() -> Self {
        Tree { table: vec![0; SMALLEST], parents: Vec::new(), frames: Vec::new() }
    }

    #[inline]
    fn home(&self, parent: u32, frame: u64) -> usize {
        let mixed = (frame ^ (parent as u64) << 32 ^ parent as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32 ^ mixed) as usize & (self.table.len() - 1)
    }

    /// Where the node is, or the empty place where it belongs.
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

    fn add(&mut self, at: usize, id: u32, parent: u32, frame: u64) {
        self.table[at] = id;
        self.parents.push(parent);
        self.frames.push(frame);
        if self.parents.len() * 2 > self.table.len() {
            self.grow();
        }
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

/// The numbers of one ring: `[number, trace id]` at the number's place.
type Numbers = Vec<[u32; 2]>;

#[derive(Debug)]
pub struct Stacks {
    encoder: StackEncoder,
    tree: Tree,
    /// By source.
    numbers: Vec<Numbers>,
    corrupt: u64,
}

impl Default for Stacks {
    fn default() -> Self {
        Stacks { encoder: StackEncoder::new(), tree: Tree::new(), numbers: Vec::new(), corrupt: 0 }
    }
}

impl Stacks {
    /// Takes the stacks that a path tells. Telling the same twice changes nothing.
    pub fn define(&mut self, source: u32, path: &Path<'_>) {
        if path.frames.len() > MAX_PATH {
            self.corrupt += 1;
            return;
        }
        let mut parent = self.id(source, path.tail);
        let index = source as usize;
        if self.numbers.len() <= index {
            self.numbers.resize_with(index + 1, Vec::new);
        }
        if self.numbers[index].is_empty() {
            self.numbers[index] = vec![[0; 2]; NUMBERS];
        }
        for (i, frame) in path.frames.iter().enumerate().rev() {
            parent = self.intern(parent, *frame);
            let number = path.first.wrapping_add(i as u32);
            self.numbers[index][number as usize % NUMBERS] = [number, parent];
        }
    }

    #[inline]
    fn intern(&mut self, parent: u32, frame: u64) -> u32 {
        let at = self.tree.place(parent, frame);
        match self.tree.table[at] {
            0 => {
                let id = self.encoder.push(parent, Frame(frame));
                self.tree.add(at, id, parent, frame);
                id
            }
            id => id,
        }
    }

    /// The trace's id of a ring's stack.
    #[inline]
    pub fn id(&mut self, source: u32, number: StackId) -> u32 {
        if number == 0 {
            return 0;
        }
        match self.numbers.get(source as usize).and_then(|numbers| numbers.get(number as usize % NUMBERS)) {
            Some([found, id]) if *found == number => *id,
            _ => {
                self.corrupt += 1;
                0
            }
        }
    }

    /// Stacks that could not be read.
    pub const fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Nodes since the last call.
    pub fn take(&mut self) -> Option<RawBlock> {
        (!self.encoder.is_empty()).then(|| self.encoder.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{Block, StackNode};

    fn path(first: u32, tail: u32, frames: &[u64]) -> Path<'_> {
        Path { first, tail, frames }
    }

    #[test]
    fn callers_come_first_and_once() {
        let mut stacks = Stacks::default();
        stacks.define(0, &path(5, 0, &[30, 20, 10]));
        assert_eq!([5, 6, 7].map(|number| stacks.id(0, number)), [3, 2, 1]);
        // Another ring tells the same frames and one more.
        stacks.define(3, &path(900, 0, &[20, 10]));
        stacks.define(3, &path(905, 900, &[40]));
        assert_eq!([900, 901, 905].map(|number| stacks.id(3, number)), [2, 1, 4]);
        stacks.define(0, &path(5, 0, &[30, 20, 10]));
        let block = stacks.take().unwrap();
        let Ok(Block::Stacks(read)) = block.decode() else { panic!("no stacks") };
        let expected = [(0, 10), (1, 20), (2, 30), (2, 40)];
        assert_eq!(read.nodes, expected.map(|(parent, frame)| StackNode { parent, frame: Frame(frame) }));
        assert!(stacks.take().is_none());
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
        let block = stacks.take().unwrap();
        let Ok(Block::Stacks(read)) = block.decode() else { panic!("no stacks") };
        assert_eq!(read.nodes.len(), 20_000 + 6_667 + 1);
    }
}
