//! A stack and its costs as the text report lists them, and groups of stacks with the same innermost level.
use analysis::{Called, Cost, Definitions, Level, Pairing, Profile, Query, Side, StackTable, to_signed};
use heaptrack_trace::lens::{Key, Lens};
use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The callers of these functions are not shown, because they are the same in all programs.
const OUTERMOST: [&str; 3] = ["main", "__libc_start_main", "__static_initialization_and_destruction_0"];

/// The costs of a stack or of a group. In a diff they are differences, which may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    pub allocations: i64,
    pub temporary: i64,
    pub leaked: i64,
    pub peak: i64,
    /// The value of the cost that the query asks for.
    pub value: i64,
    /// Blocks that were live at the end of the range. If the query asks for the cost `leaked`, suppressed blocks are
    /// left out.
    pub blocks: i64,
}

impl Numbers {
    /// Takes the numbers from `costs`. `cost` is the one that the query asks for. Suppressed blocks do not count as
    /// leaked.
    pub fn of(costs: &analysis::Costs, cost: Cost, is_suppressed: bool) -> Self {
        let is_left_out = is_suppressed && cost == Cost::Leaked;
        Numbers {
            allocations: to_signed(costs.allocations),
            temporary: to_signed(costs.temporary),
            leaked: if is_suppressed { 0 } else { to_signed(costs.live_bytes) },
            peak: to_signed(costs.peak_bytes),
            value: cost.of(costs, is_suppressed),
            blocks: if is_left_out { 0 } else { to_signed(costs.live_allocations) },
        }
    }

    fn each(&self, other: &Numbers, operation: fn(i64, i64) -> i64) -> Numbers {
        Numbers {
            allocations: operation(self.allocations, other.allocations),
            temporary: operation(self.temporary, other.temporary),
            leaked: operation(self.leaked, other.leaked),
            peak: operation(self.peak, other.peak),
            value: operation(self.value, other.value),
            blocks: operation(self.blocks, other.blocks),
        }
    }

    pub fn add(&mut self, other: &Numbers) {
        *self = self.each(other, i64::saturating_add);
    }

    pub fn minus(&self, other: &Numbers) -> Numbers {
        self.each(other, i64::saturating_sub)
    }
}

#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub definitions: &'a Definitions,
    pub lens: &'a Lens<'a>,
    pub stack: u32,
    pub numbers: Numbers,
}

/// Returns the stacks of a profile.
pub fn of_profile<'a>(
    definitions: &'a Definitions,
    lens: &'a Lens<'a>,
    profile: &Profile,
    table: &StackTable,
    query: &Query,
) -> Vec<Entry<'a>> {
    let cost = query.cost();
    let entry = |(site, costs): &(u32, analysis::Costs)| {
        let is_suppressed = query.suppressions && table.stack(*site).suppressed.is_some();
        Entry {
            definitions,
            lens,
            stack: definitions.stack_of(*site),
            numbers: Numbers::of(costs, cost, is_suppressed),
        }
    };
    profile.stacks.iter().map(entry).collect()
}

/// With `--merge`, stacks with the same levels become one. Without it, they stay separate.
pub fn merged(entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    if entries.first().is_none_or(|entry| entry.lens.merge.is_none()) {
        return entries;
    }
    let mut numbers: HashMap<Key<'_>, u32> = HashMap::new();
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut merged: Vec<Entry<'_>> = Vec::new();
    for entry in entries {
        let shown = entry.lens.shown(entry.levels());
        let path = shown.levels.iter().map(|(_, level)| {
            let next = numbers.len() as u32;
            *numbers.entry(entry.lens.key(level)).or_insert(next)
        });
        let place = *places.entry(path.collect()).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => known.numbers.add(&entry.numbers),
            None => merged.push(entry),
        }
    }
    merged
}

/// Returns the differences between two points of one trace, in which a stack is identified by its number.
pub fn difference_of_one<'a>(after: Vec<Entry<'a>>, before: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut entries = after;
    let places: HashMap<u32, usize> = entries.iter().enumerate().map(|(place, entry)| (entry.stack, place)).collect();
    for entry in before {
        match places.get(&entry.stack).and_then(|place| entries.get_mut(*place)) {
            Some(known) => known.numbers = known.numbers.minus(&entry.numbers),
            None => entries.push(Entry { numbers: Numbers::default().minus(&entry.numbers), ..*entry }),
        }
    }
    entries.retain(|entry| entry.numbers != Numbers::default());
    entries
}

/// Returns the differences between two traces, in which stacks match by their functions, even if addresses and lines
/// differ.
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

/// The frames of a stack that are shown, innermost first. An inlined function comes before the function that contains
/// it.
pub struct Frames<'a> {
    pub frames: Vec<Vec<Level<'a>>>,
    /// Outer levels that `--depth` left out.
    pub left_out: usize,
}

impl<'a> Entry<'a> {
    /// All frames up to the outermost one of interest, without the allocator's own.
    fn all_frames(&self) -> impl Iterator<Item = Vec<Level<'a>>> + use<'a> {
        let definitions = self.definitions;
        let (mut is_first, mut is_over) = (true, false);
        // An allocator may be inlined into the function that calls it, which then begins the stack.
        let all = definitions.frames(self.stack).map(move |frame| {
            let levels: Vec<Level<'a>> =
                definitions.levels_of(frame).skip_while(|level| is_first && level.is_allocator()).collect();
            is_first &= levels.is_empty();
            levels
        });
        all.filter(|levels| !levels.is_empty()).take_while(move |levels| {
            let was_over = is_over;
            is_over = levels.first().and_then(|level| level.function).is_some_and(|name| OUTERMOST.contains(&name));
            !was_over
        })
    }

    fn levels(&self) -> impl Iterator<Item = Level<'a>> + use<'a> {
        self.all_frames().flatten()
    }

    pub fn frames(&self) -> Frames<'a> {
        let all: Vec<Vec<Level<'a>>> = self.all_frames().collect();
        let numbers: Vec<usize> =
            all.iter().enumerate().flat_map(|(number, levels)| std::iter::repeat_n(number, levels.len())).collect();
        let shown = self.lens.shown(all.into_iter().flatten());
        let mut frames: Vec<Vec<Level<'a>>> = Vec::new();
        let mut last = None;
        for (place, level) in shown.levels {
            let number = numbers.get(place).copied();
            match frames.last_mut().filter(|_| last == number) {
                Some(frame) => frame.push(level),
                None => frames.push(vec![level]),
            }
            last = number;
        }
        Frames { frames, left_out: shown.left_out }
    }

    /// The innermost level that is shown.
    pub fn leaf(&self) -> Option<Level<'a>> {
        self.levels().find(|level| !self.lens.hides(level))
    }

    /// All functions, including inlined ones, for the comparison with another trace.
    fn functions(&self, pairing: &Pairing<'_>, side: Side) -> Vec<u32> {
        let frames = self.frames().frames;
        let levels = frames.iter().flatten();
        levels.map(|level| pairing.number(side, Called::from(level))).collect()
    }
}

/// The entries of a report. Several lists show the same entries in another order.
pub struct Entries<'a> {
    pub all: Vec<Entry<'a>>,
    /// For each entry the number of its group.
    groups: OnceCell<Vec<usize>>,
}

impl<'a> Entries<'a> {
    pub const fn new(all: Vec<Entry<'a>>) -> Self {
        Entries { all, groups: OnceCell::new() }
    }

    /// Entries with the same innermost level have the same number. Numbers are given in the order of the file.
    fn groups(&self) -> &[usize] {
        self.groups.get_or_init(|| {
            let (mut numbers, mut of_frame) = (HashMap::new(), HashMap::new());
            let number = |entry: &Entry<'a>| {
                let frame = entry.definitions.frames(entry.stack).next();
                // In a comparison of two traces, each has its own frames.
                let place = (std::ptr::from_ref(entry.definitions), frame);
                if let Some(number) = of_frame.get(&place) {
                    return *number;
                }
                let leaf = entry.leaf();
                let key = leaf.map(|level| match entry.lens.merge {
                    Some(_) => entry.lens.key(&level),
                    None => Lens::line(&level),
                });
                let next = numbers.len();
                let number = *numbers.entry(key).or_insert(next);
                // If the leaf is in another frame, it depends on more than the first one.
                if leaf.map(|level| level.frame) == frame {
                    of_frame.insert(place, number);
                }
                number
            };
            self.all.iter().map(number).collect()
        })
    }

    /// Sorts by `metric`, largest first, and equal groups in the order of the file. Groups with a metric of 0 are left out.
    pub fn grouped(&self, metric: impl Fn(&Numbers) -> i64) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for (entry, &number) in self.all.iter().zip(self.groups()) {
            if number == groups.len() {
                groups.push(Group { numbers: Numbers::default(), entries: Vec::new() });
            }
            let Some(group) = groups.get_mut(number) else { continue };
            group.numbers.add(&entry.numbers);
            group.entries.push(*entry);
        }
        groups.retain(|group| metric(&group.numbers) != 0);
        groups.sort_by_key(|group| Reverse(metric(&group.numbers).unsigned_abs()));
        groups
    }
}

/// Stacks with the same innermost level, which is compared by function, file, line and module, or by `--merge`.
pub struct Group<'a> {
    pub numbers: Numbers,
    pub entries: Vec<Entry<'a>>,
}

impl Group<'_> {
    /// Sorts the stacks by `metric`, largest first, and equal ones in the order of the file.
    pub fn sort(&mut self, metric: impl Fn(&Numbers) -> i64) {
        self.entries.sort_by_key(|entry| Reverse(metric(&entry.numbers).unsigned_abs()));
    }
}

/// Returns the stacks one by one, sorted as `grouped` sorts groups. Stacks with a metric of 0 are left out.
pub fn single<'a>(entries: &[Entry<'a>], metric: impl Fn(&Numbers) -> i64) -> Vec<Entry<'a>> {
    let mut list: Vec<Entry<'a>> = entries.iter().filter(|entry| metric(&entry.numbers) != 0).copied().collect();
    list.sort_by_key(|entry| Reverse(metric(&entry.numbers).unsigned_abs()));
    list
}
