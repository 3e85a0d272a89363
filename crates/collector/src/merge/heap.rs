//! The sources of a merge by the key of their next event: a binary heap that also knows its second smallest key.
//!
//! The merge needs that key for every run of events: up to it, one source comes before all others. The standard
//! library's heap does not reveal it, because the order of its inner slice is not specified.
//!
//! ```text
//! entries   [0] the smallest; the two below entry n are entries 2n+1 and 2n+2, and neither is smaller than n
//! ```

/// A key and the number of its source.
type Entry = (u64, u32);

#[derive(Debug, Default)]
pub struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The smallest entry.
    #[inline(always)]
    pub fn first(&self) -> Option<Entry> {
        self.entries.first().copied()
    }

    /// The smallest key of all entries but the first.
    #[inline(always)]
    pub fn second_key(&self) -> Option<u64> {
        match self.entries.as_slice() {
            [_, one, other, ..] => Some(one.0.min(other.0)),
            [_, one] => Some(one.0),
            _ => None,
        }
    }

    pub fn push(&mut self, entry: Entry) {
        let mut at = self.entries.len();
        self.entries.push(entry);
        while at > 0 {
            let above = (at - 1) / 2;
            if self.entries[above] <= self.entries[at] {
                break;
            }
            self.entries.swap(above, at);
            at = above;
        }
    }

    /// Removes the first entry.
    pub fn pop(&mut self) {
        if let Some(last) = self.entries.pop()
            && let Some(first) = self.entries.first_mut()
        {
            *first = last;
            self.sink();
        }
    }

    /// Changes the key of the first entry.
    #[inline]
    pub fn set_first(&mut self, key: u64) {
        if let Some(first) = self.entries.first_mut() {
            first.0 = key;
            self.sink();
        }
    }

    /// Moves the first entry down to its place.
    #[inline]
    fn sink(&mut self) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for below in [left, right] {
                if below < self.entries.len() && self.entries[below] < self.entries[least] {
                    least = below;
                }
            }
            if least == at {
                return;
            }
            self.entries.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_second_are_those_of_a_sorted_list() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut random = |below: u64| rng.u64(..below);
        let (mut heap, mut list) = (Heap::default(), Vec::<Entry>::new());
        for n in 0..20_000u32 {
            match random(4) {
                0 if !list.is_empty() => {
                    heap.pop();
                    list.remove(0);
                }
                1 if !list.is_empty() => {
                    let key = random(100);
                    heap.set_first(key);
                    list[0] = (key, list[0].1);
                }
                _ if list.len() < 40 => {
                    let entry = (random(100), n);
                    heap.push(entry);
                    list.push(entry);
                }
                _ => (),
            }
            list.sort_unstable();
            assert_eq!(heap.is_empty(), list.is_empty());
            assert_eq!(heap.first(), list.first().copied());
            assert_eq!(heap.second_key(), list.get(1).map(|entry: &Entry| entry.0));
        }
    }
}
