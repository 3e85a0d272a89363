//! Sets of stacks whose blocks lie in one page.
//!
//! Receives: a page's number, and a stack that has a block in the page. Returns: the page's new number. Must hold: a set has at most `MOST_MEMBERS`
//! stacks, and there are at most `MOST_SETS` sets; a page with more owners has only the number `SEVERAL`.
use format::IntMap;
use std::collections::HashMap;

const MOST_MEMBERS: usize = 8;
const MOST_SETS: usize = 16 << 10;
/// The number of a page: 0, a stack + 1, or a set from here on.
const FIRST_SET: u32 = 1 << 31;
const SEVERAL: u32 = u32::MAX;

/// Whose blocks keep a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOwner {
    None,
    /// Blocks of this stack only.
    Stack(u32),
    /// Blocks of the stacks of this set.
    Set(u32),
    /// Blocks of more stacks than are told apart.
    Several,
}

impl PageOwner {
    pub const fn of(number: u32) -> Self {
        match number {
            0 => PageOwner::None,
            SEVERAL => PageOwner::Several,
            FIRST_SET.. => PageOwner::Set(number - FIRST_SET),
            _ => PageOwner::Stack(number - 1),
        }
    }
}

#[derive(Debug, Default)]
pub struct OwnerSets {
    /// Each in ascending order.
    members: Vec<Box<[u32]>>,
    numbers: HashMap<Box<[u32]>, u32>,
    /// The number that follows from a number and a stack.
    after: IntMap<u64, u32>,
}

impl OwnerSets {
    /// Adds a stack to the owners of a page.
    #[inline]
    pub fn add(&mut self, number: &mut u32, stack: u32) {
        let own = stack.saturating_add(1).min(FIRST_SET - 1);
        if *number == 0 {
            *number = own;
        } else if *number != own && *number != SEVERAL {
            *number = self.joined(*number, own);
        }
    }

    pub fn members(&self, set: u32) -> &[u32] {
        self.members.get(set as usize).map_or(&[], |members| members)
    }

    fn joined(&mut self, number: u32, own: u32) -> u32 {
        let key = u64::from(number) << 32 | u64::from(own);
        if let Some(known) = self.after.get(&key) {
            return *known;
        }
        let joined = self.find(number, own - 1);
        self.after.insert(key, joined);
        joined
    }

    fn find(&mut self, number: u32, stack: u32) -> u32 {
        let mut members = match PageOwner::of(number) {
            PageOwner::Set(set) => self.members(set).to_vec(),
            PageOwner::Stack(stack) => vec![stack],
            PageOwner::None | PageOwner::Several => Vec::new(),
        };
        match members.binary_search(&stack) {
            Ok(_) => return number,
            Err(at) => members.insert(at, stack),
        }
        if members.len() > MOST_MEMBERS {
            return SEVERAL;
        }
        let members = members.into_boxed_slice();
        if let Some(known) = self.numbers.get(&members) {
            return *known;
        }
        if self.members.len() >= MOST_SETS {
            return SEVERAL;
        }
        let new = FIRST_SET + self.members.len() as u32;
        self.members.push(members.clone());
        self.numbers.insert(members, new);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(sets: &mut OwnerSets, stacks: &[u32]) -> u32 {
        let mut number = 0;
        stacks.iter().for_each(|stack| sets.add(&mut number, *stack));
        number
    }

    #[test]
    fn the_order_of_blocks_does_not_matter() {
        let mut sets = OwnerSets::default();
        assert_eq!(PageOwner::of(number(&mut sets, &[])), PageOwner::None);
        assert_eq!(PageOwner::of(number(&mut sets, &[0, 0])), PageOwner::Stack(0));
        let one = number(&mut sets, &[7, 3, 7, 9]);
        assert_eq!(one, number(&mut sets, &[9, 9, 3, 7, 3]));
        let PageOwner::Set(set) = PageOwner::of(one) else { panic!("{one}") };
        assert_eq!(sets.members(set), [3, 7, 9]);
        assert_ne!(one, number(&mut sets, &[3, 7]));
    }

    #[test]
    fn sets_and_their_members_are_bounded() {
        let mut sets = OwnerSets::default();
        let eight: Vec<u32> = (0..8).collect();
        assert!(matches!(PageOwner::of(number(&mut sets, &eight)), PageOwner::Set(_)));
        let nine: Vec<u32> = (0..9).collect();
        assert_eq!(PageOwner::of(number(&mut sets, &nine)), PageOwner::Several);
        for stack in 0..20_000 {
            number(&mut sets, &[100_000, stack]);
        }
        assert_eq!(sets.members.len(), MOST_SETS);
        assert_eq!(PageOwner::of(number(&mut sets, &[100_000, 19_999])), PageOwner::Several);
        assert!(matches!(PageOwner::of(number(&mut sets, &[100_000, 5])), PageOwner::Set(_)));
    }
}
