//! Selects the few symbols of a large table that can name one of the wanted addresses.
//!
//! Receives: addresses, then symbols in any order. Returns, sorted by address: the symbols that cover one of the
//! addresses, and for each address the last symbol that begins at or before it (with all its names). Must hold: memory
//! grows with the number of addresses, not of symbols.
//!
//! ```text
//! symbols    |a--|  |b-----|        |c-|   |d------------|
//! addresses            ^                ^        ^  ^
//! kept               b (covers)       c (last)  d (covers)
//! ```

/// A symbol, and its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) address: u64,
    pub(crate) section: u32,
    /// Its index in the section.
    pub(crate) number: u32,
    pub(crate) size: u64,
    /// The offset of its name among the strings.
    pub(crate) name: u32,
    /// Probably written in assembler: it has no type, or is a table in the code.
    pub(crate) untyped: bool,
    pub(crate) is_local: bool,
}

impl Entry {
    pub(crate) const fn covers(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.size
    }
}

/// The kept symbols that begin after one address, and at or before the next one. `last` is the highest of their starts.
#[derive(Clone, Debug, Default)]
struct Gap {
    last: u64,
    entries: Vec<Entry>,
}

pub(crate) struct Near {
    /// Sorted.
    addresses: Vec<u64>,
    gaps: Vec<Gap>,
    /// Speeds up the search for a symbol's gap. The range from the first address on is divided into stretches of `1 <<
    /// shift` bytes; this is the number of addresses below the beginning of each stretch, and below the end of the last
    /// one.
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

    /// The gap that a symbol begins in. `None` if it begins after all addresses.
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

    /// Must be called after all symbols have been added.
    pub(crate) fn finish(&mut self) {
        for gap in &mut self.gaps {
            gap.entries.sort_unstable();
            self.entries.append(&mut gap.entries);
        }
        self.gaps = Vec::new();
    }

    /// The selected symbols, sorted by address.
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
        // For address 160: symbol 2 (100, 300) covers it, and symbol 6 (160, 0) is the last one that begins at or
        // before it.
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
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut symbols: Vec<(u64, u64)> = (0..300).map(|_| (rng.u64(..5000), rng.u64(..40))).collect();
            let addresses: Vec<u64> = (0..rng.u64(..60)).map(|_| rng.u64(..6000)).collect();
            symbols.sort_unstable();
            // The definition: the symbol covers an address, or no other symbol begins between it and the next address.
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
