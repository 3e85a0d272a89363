//! Which process of a followed tree holds which block.
//!
//! Receives: forks, allocations, frees and ends of processes, in order. Returns: for a free, the block that it is about, and whether
//! another process still holds that block; for the end of a process, all blocks that end with it. Must hold: a block ends exactly
//! once, when the last process lets go of it; a fork copies nothing.
//!
//! ```text
//!   parent's table  | a | b | c |        A child's table is empty at first. What it inherited is found in the tables of its ancestors:
//!                         ^              blocks that are older than the fork and that the child has not let go of.
//!   child           inherits, without b  When an ancestor lets go of a block that children inherited, all of them take it over into their own
//!   child's table   | d |                tables, and `shared` counts how many of them still hold it.
//! ```
use crate::blocks::{Block, Blocks};
use channel::CUSTOM;
use format::{Freed, IntMap};
use std::collections::HashSet;

/// The next sequence number of each domain.
pub type Sequences = [u64; 2];

/// A number of a process. Numbers are used again.
pub type Number = usize;

#[derive(Debug, Default)]
pub struct Holdings {
    /// By number.
    processes: Vec<Option<Holder>>,
    /// Blocks that were taken over, by domain and sequence number.
    shared: IntMap<u64, Shared>,
}

#[derive(Debug, Default)]
struct Holder {
    blocks: Blocks,
    /// The ancestors whose blocks it inherited, the nearest first. The blocks are those with smaller sequence numbers.
    ancestors: Vec<(Number, Sequences)>,
    /// Inherited blocks that it has let go of (`key`).
    freed: HashSet<u64>,
    /// Blocks with these or larger sequence numbers were inherited by no living process.
    inherited_below: Sequences,
    /// Some blocks in its table may be in `Holdings::shared`.
    has_taken_over: bool,
}

/// A block that several processes held when the one that allocated it let go of it.
#[derive(Clone, Copy, Debug)]
struct Shared {
    /// How many processes hold it.
    holders: u32,
    fate: Fate,
}

/// What became of a block in the process that allocated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Freed,
    /// The process ended without freeing it.
    Leaked,
    /// The process called exec.
    Replaced,
}

impl Fate {
    /// How the block ends if the last process that holds it ends.
    const fn at_end(self) -> Freed {
        match self {
            Fate::Freed => Freed::Dropped,
            Fate::Leaked => Freed::Leaked,
            Fate::Replaced => Freed::Replaced,
        }
    }
}

/// What a process let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetGo {
    pub block: Block,
    pub is_custom: bool,
    /// The process has allocated it.
    pub is_own: bool,
    /// No process holds it any more.
    pub is_last: bool,
}

const fn domain(address: u64) -> usize {
    (address & CUSTOM != 0) as usize
}

const fn key(address: u64, block: Block) -> u64 {
    block.sequence << 1 | domain(address) as u64
}

impl Holder {
    /// The sequence number below which it inherited an ancestor's blocks.
    fn before(&self, ancestor: Number, domain: usize) -> Option<u64> {
        let (_, before) = self.ancestors.iter().find(|(number, _)| *number == ancestor)?;
        before.get(domain).copied()
    }

    /// True if it inherited this block of an ancestor, and still holds it.
    fn has_inherited(&self, ancestor: Number, address: u64, block: Block) -> bool {
        self.before(ancestor, domain(address)).is_some_and(|before| block.sequence < before)
            && !self.freed.contains(&key(address, block))
    }
}

impl Holdings {
    /// The blocks that a process has allocated or taken over.
    pub fn blocks_of(&self, number: Number) -> Option<&Blocks> {
        self.get(number).map(|holder| &holder.blocks)
    }

    fn get(&self, number: Number) -> Option<&Holder> {
        self.processes.get(number)?.as_ref()
    }

    fn get_mut(&mut self, number: Number) -> Option<&mut Holder> {
        self.processes.get_mut(number)?.as_mut()
    }

    /// A process starts. If it was forked, it inherits what its parent holds. `next`: the next sequence numbers.
    pub fn start(&mut self, number: Number, parent: Option<Number>, next: Sequences) {
        if self.processes.len() <= number {
            self.processes.resize_with(number + 1, || None);
        }
        let mut new = Holder::default();
        if let Some((parent, holder)) = parent.and_then(|parent| Some((parent, self.get(parent)?))) {
            new.ancestors = std::iter::once((parent, next)).chain(holder.ancestors.iter().copied()).collect();
            new.freed = holder.freed.clone();
        }
        for (ancestor, before) in &new.ancestors {
            let Some(ancestor) = self.processes.get_mut(*ancestor).and_then(Option::as_mut) else { continue };
            raise(&mut ancestor.inherited_below, before);
        }
        if let Some(place) = self.processes.get_mut(number) {
            *place = Some(new);
        }
    }

    /// Prefetches the place of an address, if the table of the process is large.
    #[inline]
    pub fn prefetch(&self, number: Number, address: u64) {
        if let Some(holder) = self.get(number).filter(|holder| holder.blocks.is_large()) {
            holder.blocks.prefetch(address);
        }
    }

    /// Returns `Err` and changes nothing if the process has a block at this address in its own table.
    #[inline]
    pub fn alloc(&mut self, number: Number, address: u64, block: Block) -> Result<(), Block> {
        let Some(holder) = self.get_mut(number) else { return Ok(()) };
        holder.blocks.insert(address, block)?;
        if !holder.ancestors.is_empty() {
            self.forget_inherited(number, address);
        }
        Ok(())
    }

    /// The process got an address that it should have inherited. So it has let go of that block, or never had it.
    #[inline(never)]
    fn forget_inherited(&mut self, number: Number, address: u64) {
        while let Some(block) = self.inherited(number, address) {
            let Some(holder) = self.get_mut(number) else { return };
            holder.freed.insert(key(address, block));
        }
    }

    /// Finds an inherited block that the process still holds and that an ancestor holds, too.
    fn inherited(&self, number: Number, address: u64) -> Option<Block> {
        let holder = self.get(number)?;
        holder.ancestors.iter().find_map(|(ancestor, _)| {
            let block = self.get(*ancestor)?.blocks.get(address)?;
            holder.has_inherited(*ancestor, address, block).then_some(block)
        })
    }

    /// A process frees an address. Returns `None` if it holds no block there.
    #[inline]
    pub fn free(&mut self, number: Number, address: u64) -> Option<LetGo> {
        let holder = self.get_mut(number)?;
        let Some(block) = holder.blocks.remove(address) else { return self.free_inherited(number, address) };
        let is_alone = !holder.has_taken_over && block.sequence >= holder.inherited_below[domain(address)];
        if is_alone {
            return Some(LetGo::alone(address, block));
        }
        let heirs = self.heirs(number);
        Some(self.let_go(number, (address, block), Fate::Freed, &heirs))
    }

    #[inline(never)]
    fn free_inherited(&mut self, number: Number, address: u64) -> Option<LetGo> {
        let block = self.inherited(number, address)?;
        self.get_mut(number)?.freed.insert(key(address, block));
        // The ancestor in whose table it was found still holds it.
        Some(LetGo { is_own: false, is_last: false, ..LetGo::alone(address, block) })
    }

    /// The processes that inherited blocks of `number`.
    fn heirs(&self, number: Number) -> Vec<Number> {
        let is_heir = |holder: &Holder| holder.ancestors.iter().any(|(ancestor, _)| *ancestor == number);
        let heirs = self.processes.iter().enumerate();
        heirs.filter(|(_, holder)| holder.as_ref().is_some_and(is_heir)).map(|(heir, _)| heir).collect()
    }

    /// A process lets go of a block that was in its table. The heirs that still hold it take it over.
    #[inline(never)]
    fn let_go(&mut self, number: Number, (address, block): (u64, Block), fate: Fate, heirs: &[Number]) -> LetGo {
        let key = key(address, block);
        let mut new = 0;
        for heir in heirs {
            let Some(holder) = self.get_mut(*heir) else { continue };
            // An heir that has another block at this address has let go of this one (`forget_inherited`). An heir that has
            // this very block took it over from an older ancestor.
            if holder.has_inherited(number, address, block) && holder.blocks.insert(address, block).is_ok() {
                holder.has_taken_over = true;
                new += 1;
            }
        }
        let alone = LetGo::alone(address, block);
        let Some(shared) = self.shared.get_mut(&key) else {
            if new > 0 {
                self.shared.insert(key, Shared { holders: new, fate });
            }
            return LetGo { is_last: new == 0, ..alone };
        };
        shared.holders = (shared.holders + new).saturating_sub(1);
        let is_last = shared.holders == 0;
        if is_last {
            self.shared.remove(&key);
        }
        // An ancestor may have taken it over, too.
        if let Some(holder) = self.get_mut(number) {
            holder.freed.insert(key);
        }
        LetGo { is_own: false, is_last, ..alone }
    }

    /// A process ends, or calls exec. Calls `each` for every block of its table, and how the block ends if no other process
    /// holds it.
    pub fn end(&mut self, number: Number, by_exec: bool, mut each: impl FnMut(LetGo, Freed)) {
        let Some(holder) = self.processes.get_mut(number).and_then(Option::take) else { return };
        let mut blocks = Vec::new();
        holder.blocks.for_each(|address, block| blocks.push((address, block)));
        // In the order of their allocation, so that the file does not depend on the layout of a table.
        blocks.sort_unstable_by_key(|(address, block)| key(*address, *block));
        let own = if by_exec { Fate::Replaced } else { Fate::Leaked };
        let heirs = self.heirs(number);
        for (address, block) in blocks {
            let shared = if holder.has_taken_over { self.shared.get(&key(address, block)) } else { None };
            let fate = shared.map_or(own, |shared| shared.fate);
            each(self.let_go(number, (address, block), fate, &heirs), fate.at_end());
        }
        for other in self.processes.iter_mut().flatten() {
            other.ancestors.retain(|(ancestor, _)| *ancestor != number);
            if other.ancestors.is_empty() {
                other.freed = HashSet::new();
            }
        }
        holder.ancestors.iter().for_each(|(ancestor, _)| self.lower(*ancestor));
    }

    /// Finds the sequence numbers below which living processes inherited blocks of `ancestor`.
    fn lower(&mut self, ancestor: Number) {
        let mut below = [0; 2];
        for holder in self.processes.iter().flatten() {
            holder.ancestors.iter().filter(|(of, _)| *of == ancestor).for_each(|(_, before)| raise(&mut below, before));
        }
        if let Some(holder) = self.get_mut(ancestor) {
            holder.inherited_below = below;
        }
    }
}

fn raise(highest: &mut Sequences, other: &Sequences) {
    highest.iter_mut().zip(other).for_each(|(highest, other)| *highest = (*highest).max(*other));
}

impl LetGo {
    /// The process allocated the block, and no other holds it.
    const fn alone(address: u64, block: Block) -> Self {
        LetGo { block, is_custom: domain(address) != 0, is_own: true, is_last: true }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use std::collections::{BTreeMap, HashMap};

    /// The same by brute force: every process has a map of its own, and a fork copies it.
    #[derive(Default)]
    struct Model {
        held: BTreeMap<Number, HashMap<u64, u64>>,
        /// By block: the process that allocated it, and what became of it there.
        born: HashMap<u64, (Number, Option<Fate>)>,
    }

    impl Model {
        fn let_go(&mut self, number: Number, address: u64, fate: Fate) -> (u64, bool, bool) {
            let block = self.held.get_mut(&number).unwrap().remove(&address).unwrap();
            let born = self.born.get_mut(&block).unwrap();
            let is_own = born.0 == number && born.1.is_none();
            if is_own {
                born.1 = Some(fate);
            }
            let is_last = self.held.values().all(|held| held.values().all(|other| *other != block));
            (block, is_own, is_last)
        }
    }

    /// Random trees. Numbers of processes are used again, and so are addresses.
    #[test]
    fn blocks_end_when_the_last_process_lets_go() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut holdings, mut model) = (Holdings::default(), Model::default());
            holdings.start(1, None, [0; 2]);
            model.held.insert(1, HashMap::new());
            let mut next = 0;
            for _ in 0..3000 {
                let alive: Vec<Number> = model.held.keys().copied().collect();
                let Some(number) = rng.choice(alive) else { break };
                let address = 16 * rng.u64(1..24);
                match rng.u32(..100) {
                    0..=2 if model.held.len() < 6 => {
                        let child = (1..).find(|child| !model.held.contains_key(child)).unwrap();
                        holdings.start(child, Some(number), [next, 0]);
                        model.held.insert(child, model.held[&number].clone());
                    }
                    3..=4 if model.held.len() > 1 => end(&mut holdings, &mut model, number, rng.bool(), seed),
                    5..50 => {
                        let block = Block { sequence: next, alloc_class: 7 };
                        if model.held[&number].contains_key(&address) {
                            continue;
                        }
                        assert_eq!(holdings.alloc(number, address, block), Ok(()), "seed {seed}");
                        model.held.get_mut(&number).unwrap().insert(address, next);
                        model.born.insert(next, (number, None));
                        next += 1;
                    }
                    _ if !model.held[&number].contains_key(&address) => {
                        assert_eq!(holdings.free(number, address), None, "seed {seed}");
                    }
                    _ => {
                        let (block, is_own, is_last) = model.let_go(number, address, Fate::Freed);
                        let found = holdings.free(number, address).unwrap();
                        assert_eq!((found.block.sequence, found.is_own, found.is_last), (block, is_own, is_last));
                    }
                }
            }
            let alive: Vec<Number> = model.held.keys().copied().collect();
            alive.into_iter().for_each(|number| end(&mut holdings, &mut model, number, false, seed));
            assert!(holdings.shared.is_empty(), "seed {seed}");
        }
    }

    fn end(holdings: &mut Holdings, model: &mut Model, number: Number, by_exec: bool, seed: u64) {
        let mut ended = BTreeMap::new();
        holdings.end(number, by_exec, |let_go, how| {
            if let_go.is_last {
                ended.insert(let_go.block.sequence, how);
            }
        });
        let mut expected = BTreeMap::new();
        let addresses: Vec<u64> = model.held[&number].keys().copied().collect();
        let fate = if by_exec { Fate::Replaced } else { Fate::Leaked };
        for address in addresses {
            let (block, _, is_last) = model.let_go(number, address, fate);
            if is_last {
                expected.insert(block, model.born[&block].1.unwrap().at_end());
            }
        }
        model.held.remove(&number);
        assert_eq!(ended, expected, "seed {seed}");
    }
}
