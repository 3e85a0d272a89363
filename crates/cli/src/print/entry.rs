//! A stack and its costs as the text report lists them, and stacks put together by their innermost level.
use analysis::{Book, Called, Level, Pairing, Profile, Side, Table, to_signed};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Whoever calls these is not of interest: all programs have the same there.
const OUTERMOST: [&str; 3] = ["main", "__libc_start_main", "__static_initialization_and_destruction_0"];

/// Negative in a diff.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub allocations: i64,
    pub temporary: i64,
    pub leaked: i64,
    pub peak: i64,
}

impl Numbers {
    pub fn add(&mut self, other: &Numbers) {
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.temporary = self.temporary.saturating_add(other.temporary);
        self.leaked = self.leaked.saturating_add(other.leaked);
        self.peak = self.peak.saturating_add(other.peak);
    }

    pub const fn minus(&self, other: &Numbers) -> Numbers {
        Numbers {
            allocations: self.allocations.saturating_sub(other.allocations),
            temporary: self.temporary.saturating_sub(other.temporary),
            leaked: self.leaked.saturating_sub(other.leaked),
            peak: self.peak.saturating_sub(other.peak),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub book: &'a Book,
    pub stack: u32,
    pub numbers: Numbers,
}

/// The stacks of a profile. What is suppressed is not leaked.
pub fn of_profile<'a>(book: &'a Book, profile: &Profile, table: &Table, suppress: bool) -> Vec<Entry<'a>> {
    let entry = |(site, costs): &(u32, analysis::Costs)| {
        let is_suppressed = suppress && table.stack(*site).suppressed.is_some();
        Entry {
            book,
            stack: book.stack_of(*site),
            numbers: Numbers {
                allocations: costs.allocations as i64,
                temporary: costs.temporary as i64,
                leaked: if is_suppressed { 0 } else { to_signed(costs.live_bytes) },
                peak: to_signed(costs.peak_bytes),
            },
        }
    };
    profile.stacks.iter().map(entry).collect()
}

/// What became more or less: stacks are the same if their functions are, whatever their addresses and lines.
pub fn difference<'a>(after: Vec<Entry<'a>>, before: &[Entry<'a>], pairing: &Pairing<'_>) -> Vec<Entry<'a>> {
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for entry in after {
        let place = *places.entry(entry.functions(pairing, Side::After)).or_insert(entries.len());
        match entries.get_mut(place) {
            Some(known) => known.numbers.add(&entry.numbers),
            None => entries.push(entry),
        }
    }
    for entry in before {
        let place = *places.entry(entry.functions(pairing, Side::Before)).or_insert(entries.len());
        match entries.get_mut(place) {
            Some(known) => known.numbers = known.numbers.minus(&entry.numbers),
            None => entries.push(Entry { numbers: Numbers::default().minus(&entry.numbers), ..*entry }),
        }
    }
    entries.retain(|entry| entry.numbers != Numbers::default());
    entries
}

impl<'a> Entry<'a> {
    /// Frame by frame, leaf first: what was inlined comes before the function that it is in.
    pub fn frames(&self) -> Vec<Vec<Level<'a>>> {
        let is_allocator = |levels: &Vec<Level<'a>>| levels.first().is_some_and(Level::is_allocator);
        let all = self.book.frames(self.stack).map(|frame| self.book.levels_of(frame).collect::<Vec<_>>());
        let mut frames = Vec::new();
        for levels in all.skip_while(is_allocator) {
            let is_last = levels.first().and_then(|level| level.function).is_some_and(|name| OUTERMOST.contains(&name));
            frames.push(levels);
            if is_last {
                break;
            }
        }
        frames
    }

    /// The innermost level.
    pub fn leaf(&self) -> Option<Level<'a>> {
        let all = self.book.frames(self.stack).map(|frame| self.book.levels_of(frame));
        all.filter_map(|mut levels| levels.next()).find(|level| !level.is_allocator())
    }

    /// The functions of all frames, for comparing with another trace's.
    fn functions(&self, pairing: &Pairing<'_>, side: Side) -> Vec<u32> {
        let frames = self.frames();
        let levels = frames.iter().filter_map(|frame| frame.first());
        levels.map(|level| pairing.number(side, Called::from(level))).collect()
    }
}

/// Stacks with the same innermost level: function, file, line and module.
pub struct Group<'a> {
    pub numbers: Numbers,
    pub entries: Vec<Entry<'a>>,
}

/// By `metric`, the most first; equal ones in the order of the file. Groups without any are left out.
pub fn grouped<'a>(entries: &[Entry<'a>], metric: impl Fn(&Numbers) -> i64) -> Vec<Group<'a>> {
    let mut places = HashMap::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    for entry in entries {
        let key = entry.leaf().map(|level| (level.function, level.file, level.line, level.module, level.marker()));
        let place = *places.entry(key).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Group { numbers: Numbers::default(), entries: Vec::new() });
        }
        let Some(group) = groups.get_mut(place) else { continue };
        group.numbers.add(&entry.numbers);
        group.entries.push(*entry);
    }
    groups.retain(|group| metric(&group.numbers) != 0);
    groups.sort_by_key(|group| Reverse(metric(&group.numbers).unsigned_abs()));
    for group in &mut groups {
        group.entries.sort_by_key(|entry| Reverse(metric(&entry.numbers).unsigned_abs()));
    }
    groups
}

/// Each stack by itself.
pub fn single<'a>(entries: &[Entry<'a>], metric: impl Fn(&Numbers) -> i64) -> Vec<Entry<'a>> {
    let mut list: Vec<Entry<'a>> = entries.iter().filter(|entry| metric(&entry.numbers) != 0).copied().collect();
    list.sort_by_key(|entry| Reverse(metric(&entry.numbers).unsigned_abs()));
    list
}
