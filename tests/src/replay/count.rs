//! Costs, counted by loops over all blocks. docs/views.md defines each of them.
use super::query::{Base, Query, When, matches};
use super::trace::{Block, End, Trace};
use format::Process;

macro_rules! costs {
    ($($name:ident)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct Costs { $(pub $name: u64,)* }

        impl Costs {
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

costs! {
    allocations allocated_bytes deallocations freed_bytes temporary temporary_bytes lifetime_ns
    base_bytes base_allocations live_bytes live_allocations kept_bytes kept_allocations peak_bytes peak_allocations
    own_peak_bytes own_peak_time_ns size_max
}

/// These costs are not defined for several stacks together.
pub const NO_SUMS: [&str; 3] = ["own_peak_bytes", "own_peak_time_ns", "size_max"];

/// A stretch of events: `begin..end` of `Trace::times`.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub begin: usize,
    pub end: usize,
    pub from_ns: u64,
    pub to_ns: u64,
    pub instant: bool,
    /// The range reaches the end of the trace, so it counts what processes had not freed when they ended.
    pub whole_end: bool,
}

impl Block {
    /// True if the block is live after the first `events` events.
    pub fn lives(&self, events: usize) -> bool {
        self.born < events && self.end.is_none_or(|end| end.at >= events)
    }

    /// True if the block counts as live at the end of the range: it is live, or its process ended within the range without
    /// freeing it and the range reaches the end of the trace.
    pub fn is_left(&self, range: &Range) -> bool {
        let leaked = |end: End| range.whole_end && end.leaked && range.begin <= end.at && end.at < range.end;
        self.lives(range.end) || self.end.is_some_and(leaked)
    }

    /// The lifetime of the block. A block that is still live at the end of the range counts as if it ended there.
    pub fn lived(&self, range: &Range) -> u64 {
        let end = self.end.filter(|end| end.at < range.end).map_or(range.to_ns, |end| end.ns);
        end.saturating_sub(self.born_ns)
    }
}

impl Trace {
    /// The number of events up to a point in time. Events exactly at that time are included.
    pub fn position(&self, when: When) -> usize {
        match when {
            When::Start => 0,
            When::End | When::Percent(100) => self.times.len(),
            When::Peak => self.highest(0, self.times.len()),
            _ => self.times.partition_point(|time| *time <= self.time(when)),
        }
    }

    pub fn time(&self, when: When) -> u64 {
        match when {
            When::Start => 0,
            When::End => self.runtime_ns,
            When::Peak => self.position(When::Peak).checked_sub(1).map_or(0, |at| self.times[at]),
            When::Ns(ns) => ns,
            When::Percent(share) => (self.runtime_ns as f64 * share as f64 / 100.0) as u64,
        }
    }

    /// The earliest position in `begin..=end` at which the total is highest.
    fn highest(&self, begin: usize, end: usize) -> usize {
        (begin..=end).fold(begin, |best, at| if self.totals[at] > self.totals[best] { at } else { best })
    }

    pub fn range(&self, query: &Query) -> Range {
        let (from, to) = match query.at {
            Some(at) => (at, at),
            None => (query.from.unwrap_or(When::Start), query.to.unwrap_or(When::End)),
        };
        // A range cannot end after the trace.
        let to = if query.at.is_none() && self.time(to) > self.runtime_ns { When::End } else { to };
        let (begin, from_ns) = (self.position(from), self.time(from));
        let (end, to_ns) = (self.position(to).max(begin), self.time(to).max(from_ns));
        let whole_end = query.at.is_none() && matches!(to, When::End | When::Percent(100));
        Range { begin, end, from_ns, to_ns, instant: query.at.is_some(), whole_end }
    }

    /// The position and the time at which the total was highest within a range.
    pub fn peak(&self, range: &Range) -> (usize, u64) {
        let at = self.highest(range.begin, range.end);
        (at, if at == range.begin { range.from_ns } else { self.times[at - 1] })
    }

    /// For each block, whether the query selects it.
    pub fn picked(&self, query: &Query, range: &Range) -> Vec<bool> {
        let has = |stack: usize, pattern: &String| self.stacks[stack].iter().any(|level| matches(pattern, level));
        let chosen: Vec<bool> = (0..self.stacks.len())
            .map(|stack| query.include.iter().all(|p| has(stack, p)) && !query.exclude.iter().any(|p| has(stack, p)))
            .collect();
        let within = |span: Option<(u64, u64)>, value: u64| span.is_none_or(|(min, max)| min <= value && value <= max);
        let is_picked = |block: &Block| {
            chosen[block.stack]
                && (query.threads.is_empty() || query.threads.contains(&block.thread))
                && (query.processes.is_empty() || query.processes.iter().any(|name| self.is_of(block.thread, name)))
                && (query.allocators.is_empty() || query.allocators.contains(&self.allocators[block.allocator]))
                && within(query.size, block.size)
                && within(query.lifetime, block.lived(range))
        };
        self.blocks.iter().map(is_picked).collect()
    }

    /// Whether a thread belongs to a process with this name, pid or index.
    fn is_of(&self, thread: u32, name: &str) -> bool {
        self.process_of_thread.get(&thread).is_some_and(|index| is_called(&self.processes[index], name))
    }

    /// Whether there is a process with this name, pid or index.
    pub fn has_process(&self, name: &str) -> bool {
        self.processes.values().any(|process| is_called(process, name))
    }

    /// The costs of groups of blocks within a range.
    pub fn count(&self, range: &Range, groups: usize, group: impl Fn(usize) -> Option<usize>) -> Vec<Costs> {
        let mut all = vec![Costs::default(); groups];
        let within = |at: usize| range.begin <= at && at < range.end;
        let peak = self.peak(range).0;
        for (number, block) in self.blocks.iter().enumerate() {
            let Some(costs) = group(number).map(|group| &mut all[group]) else { continue };
            if block.is_left(range) {
                costs.live_bytes += block.size;
                costs.live_allocations += 1;
            }
            if range.instant {
                continue;
            }
            if within(block.born) {
                costs.allocations += 1;
                costs.allocated_bytes += block.size;
                costs.size_max = costs.size_max.max(block.size);
            }
            if let Some(end) = block.end.filter(|end| end.freed && within(end.at)) {
                costs.deallocations += 1;
                costs.freed_bytes += block.size;
                costs.lifetime_ns += end.ns - block.born_ns;
                costs.temporary += end.temporary as u64;
                costs.temporary_bytes += if end.temporary { block.size } else { 0 };
            }
            if block.lives(range.begin) {
                costs.base_bytes += block.size;
                costs.base_allocations += 1;
            }
            if block.is_left(range) && within(block.born) {
                costs.kept_bytes += block.size;
                costs.kept_allocations += 1;
            }
            if block.lives(peak) {
                costs.peak_bytes += block.size;
                costs.peak_allocations += 1;
            }
        }
        if !range.instant {
            self.own_peaks(range, &mut all, &group);
        }
        all
    }

    /// The peak of each group, and when it was first reached.
    fn own_peaks(&self, range: &Range, all: &mut [Costs], group: &impl Fn(usize) -> Option<usize>) {
        let mut now: Vec<u64> = all.iter().map(|costs| costs.base_bytes).collect();
        for costs in all.iter_mut() {
            (costs.own_peak_bytes, costs.own_peak_time_ns) = (costs.base_bytes, range.from_ns);
        }
        let mut changes: Vec<(usize, usize, bool)> = Vec::new();
        for (number, block) in self.blocks.iter().enumerate() {
            changes.push((block.born, number, true));
            changes.extend(block.end.map(|end| (end.at, number, false)));
        }
        changes.retain(|(at, ..)| range.begin <= *at && *at < range.end);
        changes.sort_unstable();
        for (at, number, is_born) in changes {
            let Some(group) = group(number) else { continue };
            let size = self.blocks[number].size;
            now[group] = if is_born { now[group] + size } else { now[group] - size };
            if now[group] > all[group].own_peak_bytes {
                (all[group].own_peak_bytes, all[group].own_peak_time_ns) = (now[group], self.times[at]);
            }
        }
    }

    /// The costs of each stack. Most questions are answered from this.
    pub fn by_stack(&self, query: &Query) -> (Range, Vec<Costs>) {
        let range = self.range(query);
        let picked = self.picked(query, &range);
        let group = |block: usize| picked[block].then_some(self.blocks[block].stack);
        (range, self.count(&range, self.stacks.len(), group))
    }
}

fn is_called(process: &Process, name: &str) -> bool {
    let program = process.command[0].rsplit('/').next();
    name == format!("#{}", process.index) || name == process.pid.to_string() || Some(name) == program
}

impl Query {
    /// The base of a comparison, as a query of its own.
    pub fn base(&self) -> Option<Query> {
        let (at, from, to) = match self.compare? {
            Base::At(when) => (Some(when), None, None),
            Base::Range(from, to) => (None, Some(from), Some(to)),
        };
        Some(Query { at, from, to, compare: None, ..self.clone() })
    }

    /// The cost by which lists are sorted.
    pub fn cost(&self, view: &str) -> &'static str {
        let is_of_instants = self.at.is_some() || view == "diff" && matches!(self.compare, Some(Base::At(_)));
        self.cost.unwrap_or(if is_of_instants { "live" } else { "peak" })
    }
}

impl Costs {
    pub fn is_zero(&self) -> bool {
        self.named().iter().all(|(name, value)| *value == 0 || NO_SUMS.contains(name))
    }

    pub fn add(&mut self, other: &Costs) {
        *self = Costs {
            allocations: self.allocations + other.allocations,
            allocated_bytes: self.allocated_bytes + other.allocated_bytes,
            deallocations: self.deallocations + other.deallocations,
            freed_bytes: self.freed_bytes + other.freed_bytes,
            temporary: self.temporary + other.temporary,
            temporary_bytes: self.temporary_bytes + other.temporary_bytes,
            lifetime_ns: self.lifetime_ns + other.lifetime_ns,
            base_bytes: self.base_bytes + other.base_bytes,
            base_allocations: self.base_allocations + other.base_allocations,
            live_bytes: self.live_bytes + other.live_bytes,
            live_allocations: self.live_allocations + other.live_allocations,
            kept_bytes: self.kept_bytes + other.kept_bytes,
            kept_allocations: self.kept_allocations + other.kept_allocations,
            peak_bytes: self.peak_bytes + other.peak_bytes,
            peak_allocations: self.peak_allocations + other.peak_allocations,
            ..Costs::default()
        };
    }

    /// The value of the cost with this name.
    pub fn value(&self, cost: &str, is_suppressed: bool) -> i64 {
        let value = match cost {
            "peak" => self.peak_bytes,
            "leaked" if is_suppressed => 0,
            "leaked" | "live" => self.live_bytes,
            "allocations" => self.allocations,
            "temporary" => self.temporary,
            "allocated" => self.allocated_bytes,
            "deallocations" => self.deallocations,
            "kept" => self.kept_bytes,
            "growth" => return self.live_bytes as i64 - self.base_bytes as i64,
            other => panic!("no cost {other}"),
        };
        value as i64
    }
}
