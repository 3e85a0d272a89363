//! Of many symbols, those that may have one of some addresses.
//!
//! Given: addresses, then symbols in any order. Gives back: by address, the symbols that cover one of the addresses, and of
//! those between two addresses the last (with all its names). What must hold: memory grows with the addresses, not with the
//! symbols.
//!
//! ```text
//! symbols    |a--|  |b-----|        |c-|   |d------------|
//! addresses            ^                ^        ^  ^
//! kept               b (covers)       c (last)  d (covers)
//! ```

/// A symbol, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) address: u64,
    pub(crate) section: u32,
    /// In its section.
    pub(crate) number: u32,
    pub(crate) size: u64,
    /// Where its name stands.
    pub(crate) name: u32,
    /// Written in assembler: without a type, or a table among the code.
    pub(crate) untyped: bool,
    pub(crate) is_local: bool,
}

impl Entry {
    pub(crate) const fn covers(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.size
    }
}

/// What lies above one address, up to and with the next.
#[derive(Clone, Debug, Default)]
struct Gap {
    last: u64,
    entries: Vec<Entry>,
}

pub(crate) struct Near {
    /// By value.
    addresses: Vec<u64>,
    gaps: Vec<Gap>,
    /// How many addresses are below the beginning of each stretch of `1 << shift` bytes behind the first address, and
    /// below the end of the last one: where to look for a symbol's gap.
    below: Vec<u32>,
    shift: u32,
    entries: Vec<Entry>,
}

impl Near {
    pub(crate) fn new(mut addresses: Vec<u64>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        let (low, high) = (addresses.first().copied().unwrap_or(0), addresses.last().copied().unwrap_or(0));
        let stretches = (addresses.len() * 4).next_power_of_two() as u64;
        let mut shift = 0;
        while (high - low) >> shift >= stretches {
            shift += 1;
        }
        let starts = (0..=((high - low) >> shift) + 1).map(|number| number.saturating_mul(1 << shift));
        let below = starts.map(|start| addresses.partition_point(|address| address - low < start) as u32).collect();
        let gaps = vec![Gap::default(); addresses.len()];
        Near { addresses, gaps, below, shift, entries: Vec::new() }
    }

    pub(crate) fn knows(&self, address: u64) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }

    /// The gap that a symbol begins in; `None`: behind all addresses.
    #[inline]
    fn gap(&self, address: u64) -> Option<usize> {
        let Some(distance) = address.checked_sub(*self.addresses.first()?) else { return Some(0) };
        let stretch = usize::try_from(distance >> self.shift).ok()?;
        let (from, to) = (*self.below.get(stretch)? as usize, *self.below.get(stretch + 1)? as usize);
        Some(from + self.addresses.get(from..to)?.partition_point(|known| *known < address))
    }

    #[inline]
    pub(crate) fn add(&mut self, entry: Entry) {
        let Some(number) = self.gap(entry.address) else { return };
        let (Some(gap), Some(address)) = (self.gaps.get_mut(number), self.addresses.get(number)) else { return };
        if entry.address > gap.last {
            gap.entries.retain(|other| other.covers(*address));
            gap.last = entry.address;
        } else if entry.address < gap.last && !entry.covers(*address) {
            return;
        }
        gap.entries.push(entry);
    }

    /// To be called when all symbols were added.
    pub(crate) fn finish(&mut self) {
        for gap in &mut self.gaps {
            gap.entries.sort_unstable();
            self.entries.append(&mut gap.entries);
        }
        self.gaps = Vec::new();
    }

    /// By address.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: u64, size: u64, number: u32) -> Entry {
        Entry { address, section: 0, number, size, name: 1, untyped: false, is_local: false }
    }

    fn kept(addresses: &[u64], symbols: &[(u64, u64)]) -> Vec<u32> {
        let mut near = Near::new(addresses.to_vec());
        symbols.iter().zip(0..).for_each(|((address, size), number)| near.add(entry(*address, *size, number)));
        near.finish();
        near.entries().iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn what_covers_and_what_is_last_is_kept() {
        let symbols = [(500, 9), (10, 5), (100, 300), (20, 5), (150, 2), (20, 5), (160, 0), (161, 1)];
        // 160 has no size and reaches to the next symbol, which is 161; both are at or before their address.
        assert_eq!(kept(&[160], &symbols), [2, 6]);
        assert_eq!(kept(&[399, 161], &symbols), [2, 7]);
        assert_eq!(kept(&[400], &symbols), [7]);
        assert_eq!(kept(&[19, 24, 30], &symbols), [1, 3, 5]);
        assert_eq!(kept(&[9], &symbols), []);
        assert_eq!(kept(&[], &symbols), []);
        assert_eq!(kept(&[0, u64::MAX], &[(0, 1), (u64::MAX, 1), (5, u64::MAX)]), [0, 2, 1]);
    }

    #[test]
    fn the_order_of_symbols_does_not_matter() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let mut symbols: Vec<(u64, u64)> = (0..300).map(|_| (random(5000), random(40))).collect();
            let addresses: Vec<u64> = (0..random(60)).map(|_| random(6000)).collect();
            symbols.sort_unstable();
            // Told plainly: covers an address, or nothing else begins between it and the next address.
            let is_near = |(address, size): (u64, u64)| {
                let next = addresses.iter().filter(|asked| **asked >= address).min();
                next.is_some_and(|next| {
                    *next < address + size || !symbols.iter().any(|(other, _)| *other > address && other <= next)
                })
            };
            let near = (0..).zip(&symbols).filter(|(_, symbol)| is_near(**symbol)).map(|(number, _)| number);
            let near: Vec<u32> = near.collect();
            assert_eq!(kept(&addresses, &symbols), near);
            let backwards: Vec<(u64, u64)> = symbols.iter().rev().copied().collect();
            let mut numbers: Vec<u32> = kept(&addresses, &backwards).iter().map(|number| 299 - number).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, near);
        }
    }
}
