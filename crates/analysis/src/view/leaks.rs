//! A verdict about each place that holds blocks at the end of the range: whether it looks like a leak, and why.
//! docs/analysis.md has the rules.
use super::Trace;
use super::bands::{Bands, counter};
use super::keys::Row;
use crate::counter::Group;
use crate::definitions::SiteId;
use crate::pass::Gone;
use crate::profile::Range;
use crate::query::Query;
use crate::stack_table::{NodeId, StackTable};
use serde::ser::{Serialize, SerializeMap, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Holds more and more blocks, up to the end.
    Grows,
    /// Reached a number of blocks and stays there, as a cache does.
    Bounded,
    /// Allocated within a short time, such as start-up, and never again.
    Once,
    /// Freed, but only at the end of the range, as programs do when they exit.
    Exit,
    /// All blocks are young, so they were probably in use when the range ended.
    Tail,
    /// Blocks were sampled, and too few of them to tell.
    Unclear,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Grows => "grows",
            Verdict::Bounded => "bounded",
            Verdict::Once => "once",
            Verdict::Exit => "exit",
            Verdict::Tail => "tail",
            Verdict::Unclear => "unclear",
        }
    }

    /// The label and what it means, for people.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Verdict::Grows => ("grows", "It grew up to the end: a leak, or a cache without a limit."),
            Verdict::Bounded => ("levelled off", "It reached a level and stays there: most likely a cache."),
            Verdict::Once => {
                ("one-time", "Allocated within a short time, and nothing after that: start-up, a pool, a table.")
            }
            Verdict::Exit => ("freed at exit", "Held up to the end and freed only when the program ended: not a leak."),
            Verdict::Tail => {
                ("in use at end", "In use when the program ended; earlier blocks were freed: most likely not a leak.")
            }
            Verdict::Unclear => ("unclear", "Too few of its blocks were sampled to tell."),
        }
    }
}

/// A place that holds blocks.
#[derive(Clone, Debug)]
pub struct Leak {
    /// The level to blame; 0 if nothing is known.
    pub node: NodeId,
    pub stack: SiteId,
    pub verdict: Verdict,
    /// The facts that led to the verdict, as a sentence.
    pub reason: String,
    pub live_bytes: u64,
    pub live_allocations: u64,
    pub allocations: u64,
    pub growth_bytes_per_second: i64,
    /// When it allocated first and last within the range.
    pub first_ns: Option<u64>,
    pub last_ns: Option<u64>,
    /// The age of the oldest live block.
    pub age_ns: Option<u64>,
    pub suppressed: Option<String>,
    /// Live bytes over the range.
    pub sparkline: Vec<u64>,
}

/// How many times within the range the live blocks of each place are noted.
const LOOKS: usize = 64;
const SPARKS: usize = 32;

/// What a verdict depends on.
#[derive(Clone, Debug, Default)]
struct Facts {
    from_ns: u64,
    to_ns: u64,
    /// Live blocks and bytes at the end of each look.
    blocks: Vec<u64>,
    bytes: Vec<u64>,
    /// If blocks were sampled: how many of the live blocks are in the trace, at the end of each look.
    samples: Vec<u64>,
    is_sampled: bool,
    /// Blocks and bytes of processes that have ended so far.
    left: (u64, u64),
    /// Frees within the last look.
    freed_last: u64,
    allocations: u64,
    /// The times of its first and of its last allocation within the range; `None` if it made none.
    allocated: Option<(u64, u64)>,
    /// When the oldest live block was allocated; `None` if no block lives.
    oldest_ns: Option<u64>,
}

/// The places of a trace. Each band is two groups, because suppressed leaks are judged separately.
struct Places<'a> {
    bands: Bands,
    table: &'a StackTable,
    suppressions: bool,
}

impl Places<'_> {
    const fn groups(&self) -> usize {
        self.bands.len() * 2
    }

    fn group(&self, site: SiteId) -> Option<u32> {
        let is_suppressed = self.suppressions && self.table.stack(site).suppressed.is_some();
        self.bands.of(site).map(|band| band * 2 + is_suppressed as u32)
    }

    /// The pattern that suppresses the leaks of a group.
    fn suppression(&self, group: usize) -> Option<String> {
        if group.is_multiple_of(2) {
            return None;
        }
        let mut sites = 0..self.table.stacks.len() as SiteId;
        let site = sites.find(|site| self.group(*site).is_some_and(|of_site| of_site as usize == group))?;
        let known = self.table.suppressions.list().get(self.table.stack(site).suppressed? as usize)?;
        Some(known.pattern.clone())
    }

    fn leak(&self, group: usize, facts: &Facts) -> Option<Leak> {
        let (verdict, reason) = verdict(facts)?;
        Some(Leak {
            node: self.bands.nodes[group / 2],
            stack: self.bands.sites[group / 2],
            verdict,
            reason,
            live_bytes: facts.bytes.last().copied().unwrap_or(0),
            live_allocations: facts.blocks.last().copied().unwrap_or(0),
            allocations: facts.allocations,
            growth_bytes_per_second: facts.slope(),
            first_ns: facts.allocated.map(|(first_ns, _)| first_ns),
            last_ns: facts.allocated.map(|(_, last_ns)| last_ns),
            age_ns: facts.age_ns(),
            suppressed: self.suppression(group),
            sparkline: facts.bytes.iter().skip(1).step_by(LOOKS / SPARKS).copied().collect(),
        })
    }
}

/// All places that hold blocks at the end of the range, or freed them only then. Those with the most bytes come first.
pub fn judge(trace: &mut Trace<'_>, query: &Query) -> Result<Vec<Leak>, Gone> {
    let (engine, table) = (trace.engine, trace.table);
    let range = engine.range(query).after_cut(engine.definitions().folded_until_ns());
    let places = Places { bands: Bands::new(engine, table, query), table, suppressions: query.suppressions };
    let facts = gather(trace, query, &range, &places)?;
    let judged = facts.iter().enumerate().filter_map(|(group, facts)| places.leak(group, facts));
    let mut leaks: Vec<Leak> = judged.collect();
    leaks.sort_by_key(|leak| std::cmp::Reverse((leak.live_bytes, leak.live_allocations)));
    super::cut(&mut leaks, query.limit);
    Ok(leaks)
}

/// Walks the range and notes the facts about each group of places.
fn gather(trace: &mut Trace<'_>, query: &Query, range: &Range, places: &Places<'_>) -> Result<Vec<Facts>, Gone> {
    let engine = trace.engine;
    let counter = counter(trace, query, range, places.groups(), |site, _| places.group(site))?;
    let moments = engine.moments(range, LOOKS);
    let mut all = vec![Facts { from_ns: range.from_ns, to_ns: range.to_ns, ..Facts::default() }; places.groups()];
    let reaches_end = engine.reaches_end(range);
    let point = engine.start_for(moments[0]);
    let mut walker = point.walker(counter);
    engine.stretch(trace.blocks, point).walk(&mut walker, &moments, |at, walker| {
        let scale = walker.sink.scale();
        for (group, facts) in walker.sink.groups.iter_mut().zip(&mut all) {
            match at {
                0 => group.forget_allocation_times(),
                _ => facts.look(group, scale, reaches_end),
            }
        }
        if at == LOOKS {
            walker.live.each_from(0, |sequence, birth| {
                let group = walker.sink.group_of(sequence, &birth);
                if let Some(facts) = group.and_then(|(group, _)| all.get_mut(group)) {
                    facts.add_age_of(birth.time_ns);
                }
            });
        }
        let time_ns = range.slice_end(at, LOOKS);
        walker.sink.begin(&walker.now, time_ns);
    })?;
    // In an old merged trace, the blocks that a process had not freed when it ended are listed separately.
    for part in engine.gone_in(range).filter(|part| part.is_leak && reaches_end) {
        for block in &part.blocks {
            let Some((group, class)) = walker.sink.group_of_gone(block) else { continue };
            let Some(facts) = all.get_mut(group) else { continue };
            facts.leak_at(part.at_ns, class.bytes, |look| range.slice_end(look, LOOKS));
            facts.add_age_of(block.born_ns);
        }
    }
    Ok(all)
}

impl Facts {
    /// Called at the end of a look, which is one of `LOOKS` slices of the range. Notes the live blocks and bytes of the
    /// group and its frees within this look. Adds its allocations within this look to those of the looks before. The
    /// times of its first and last allocation are those since the range began. `reaches_end`: the range does, so a block
    /// that a process had not freed when it ended is leaked from then on.
    fn look(&mut self, group: &Group, scale: u64, reaches_end: bool) {
        let costs = group.costs.rescaled(scale);
        self.samples.push(group.live_samples);
        self.is_sampled = scale != 1;
        if reaches_end {
            self.left.0 = self.left.0.saturating_add(group.left.allocations / scale);
            self.left.1 = self.left.1.saturating_add(group.left.bytes);
            group.left.oldest_ns.into_iter().for_each(|born_ns| self.add_age_of(born_ns));
        }
        self.blocks.push(costs.live_allocations.saturating_add(self.left.0));
        self.bytes.push(costs.live_bytes.saturating_add(self.left.1));
        self.freed_last = costs.deallocations;
        self.allocations += costs.allocations;
        self.allocated = group.allocation_times();
    }

    /// Notes that a live block was allocated at this time.
    fn add_age_of(&mut self, born_ns: u64) {
        self.oldest_ns = Some(self.oldest_ns.map_or(born_ns, |oldest_ns| oldest_ns.min(born_ns)));
    }

    /// The age of the oldest live block.
    fn age_ns(&self) -> Option<u64> {
        self.oldest_ns.map(|oldest_ns| self.to_ns.saturating_sub(oldest_ns))
    }

    /// Adds a block that leaked because its process ended at this time. `end`: when a look ends.
    fn leak_at(&mut self, ended_ns: u64, size: u64, end: impl Fn(usize) -> u64) {
        let looks = self.blocks.len();
        for (look, (blocks, bytes)) in (1..).zip(self.blocks.iter_mut().zip(&mut self.bytes)) {
            if end(look) >= ended_ns || look == looks {
                (*blocks, *bytes) = (blocks.saturating_add(1), bytes.saturating_add(size));
            }
        }
        if looks > 0 && ended_ns > end(looks - 1) {
            self.freed_last = self.freed_last.saturating_sub(1);
        }
    }

    /// Returns this many per cent of the range's length.
    const fn part(&self, percent: u64) -> u64 {
        ((self.to_ns - self.from_ns) as u128 * percent as u128 / 100) as u64
    }

    /// Returns the index of the first look with a live block.
    fn window(&self) -> usize {
        self.blocks.iter().position(|blocks| *blocks > 0).unwrap_or(0)
    }

    /// Returns how fast the live bytes grow, in bytes per second: the slope of a least-squares line. The line covers
    /// only the later half of the looks since the first look with a live block.
    fn slope(&self) -> i64 {
        let start = self.window();
        let bytes = &self.bytes[start + (self.bytes.len() - start) / 2..];
        let step = (self.to_ns - self.from_ns) as f64 / 1e9 / LOOKS as f64;
        if bytes.len() < 2 || step <= 0.0 {
            return 0;
        }
        let mean_x = (bytes.len() - 1) as f64 / 2.0;
        let mean_y = bytes.iter().map(|bytes| *bytes as f64).sum::<f64>() / bytes.len() as f64;
        let (mut up, mut down) = (0.0, 0.0);
        for (x, y) in bytes.iter().enumerate() {
            up += (x as f64 - mean_x) * (*y as f64 - mean_y);
            down += (x as f64 - mean_x) * (x as f64 - mean_x);
        }
        (up / down / step).round() as i64
    }
}

/// The fewest sampled blocks of which the 95 % interval does not reach down to 0.
const FEWEST_SAMPLES: u64 = 6;

/// Judges by the facts. If blocks were sampled, says so where there are too few of them for a verdict.
fn verdict(facts: &Facts) -> Option<(Verdict, String)> {
    let (verdict, reason) = verdict_of_all(facts)?;
    if !facts.is_sampled || verdict == Verdict::Exit {
        return Some((verdict, reason));
    }
    let window = &facts.samples[facts.window()..];
    let (half, end) = (window[(window.len() / 2).saturating_sub(1)], window.last().copied().unwrap_or(0));
    // The blocks that live on from one moment to the other make the difference more certain than this.
    let is_growth_certain = end as f64 - half as f64 > 1.96 * ((half + end) as f64).sqrt();
    if end >= FEWEST_SAMPLES && (verdict != Verdict::Grows || is_growth_certain) {
        return Some((verdict, reason));
    }
    let several = if end == 1 { "was" } else { "were" };
    let reason = format!("{end} of its live blocks {several} sampled; what looks like growth or a level may be chance");
    Some((Verdict::Unclear, reason))
}

fn verdict_of_all(facts: &Facts) -> Option<(Verdict, String)> {
    let live = facts.blocks.last().copied().unwrap_or(0);
    if live == 0 {
        return freed_at_exit(facts);
    }
    if let Some(age) = facts.age_ns()
        && age <= facts.part(5)
        && age < facts.to_ns - facts.from_ns
    {
        let reason = match facts.allocations > live {
            true => {
                format!("no block is older than {}; {} earlier ones were freed", time(age), facts.allocations - live)
            }
            false => format!("it began {} before the end", time(age)),
        };
        return Some((Verdict::Tail, reason));
    }
    let Some((first_ns, last_ns)) = facts.allocated else {
        return Some((Verdict::Once, "allocated before the range, nothing since".into()));
    };
    let is_early = last_ns <= facts.from_ns + facts.part(10);
    if is_early || last_ns - first_ns <= facts.part(1) {
        let when = match last_ns == first_ns {
            true => format!("at {}", time(first_ns)),
            false => format!("between {} and {}", time(first_ns), time(last_ns)),
        };
        return Some((Verdict::Once, format!("allocated {when}, nothing after that")));
    }
    Some(growth(facts))
}

/// Decides between `Grows` and `Bounded`.
fn growth(facts: &Facts) -> (Verdict, String) {
    let window = &facts.blocks[facts.window()..];
    let at = |quarter: usize| window[(window.len() * quarter / 4).saturating_sub(1).min(window.len() - 1)];
    let quarters = [at(1), at(2), at(3), at(4)];
    let steps = quarters.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let [_, half, _, end] = quarters;
    if window.len() >= 4 && steps >= 2 && quarters[3] > quarters[2] && end as f64 >= half as f64 * 1.2 {
        let reason = format!(
            "{} halfway through, {end} at the end; grows by {}",
            blocks(half),
            per_second(facts.slope().max(0))
        );
        return (Verdict::Grows, reason);
    }
    let most = window.iter().copied().max().unwrap_or(0);
    let freed = facts.allocations.saturating_sub(end);
    (
        Verdict::Bounded,
        format!(
            "at most {} at any of {LOOKS} moments, {half} halfway through, {end} at the end; {freed} {} freed",
            blocks(most),
            if freed == 1 { "was" } else { "were" },
        ),
    )
}

fn freed_at_exit(facts: &Facts) -> Option<(Verdict, String)> {
    let (last, before) = facts.blocks.split_last()?;
    let held = before.last().copied().unwrap_or(0);
    let most = before.iter().copied().max().unwrap_or(0);
    let is_kept = *last == 0 && held > 0 && held * 10 >= most * 9 && facts.freed_last >= held;
    // A place that had blocks only shortly before the end did not keep them until the end on purpose.
    let looks = before.iter().filter(|blocks| **blocks > 0).count();
    let verb = if held == 1 { "was" } else { "were" };
    (is_kept && looks >= LOOKS / 8)
        .then(|| (Verdict::Exit, format!("{} {verb} held up to the end and freed only then", blocks(held))))
}

/// "1 block", "2 blocks".
fn blocks(count: u64) -> String {
    format!("{count} {}", if count == 1 { "block" } else { "blocks" })
}

/// A rate of bytes for people, in powers of 1000.
fn per_second(bytes: i64) -> String {
    match bytes {
        ..1000 => format!("{bytes} B/s"),
        1000..1_000_000 => format!("{:.1} kB/s", bytes as f64 / 1e3),
        _ => format!("{:.1} MB/s", bytes as f64 / 1e6),
    }
}

/// Returns a time as a text for people.
fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        1_000_000..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

pub(crate) struct Leaks<'a> {
    pub(crate) table: &'a StackTable,
    pub(crate) sites: Vec<Leak>,
}

impl Serialize for Leaks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<LeakRow<'_>> = self.sites.iter().map(|leak| LeakRow { table: self.table, leak }).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sites", &rows)?;
        map.end()
    }
}

struct LeakRow<'a> {
    table: &'a StackTable,
    leak: &'a Leak,
}

impl Serialize for LeakRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let leak = self.leak;
        let mut map = serializer.serialize_map(None)?;
        Row::of(self.table, self.table.level(leak.node)).entries(&mut map)?;
        map.serialize_entry("verdict", leak.verdict.name())?;
        map.serialize_entry("reason", &leak.reason)?;
        map.serialize_entry("live_bytes", &leak.live_bytes)?;
        map.serialize_entry("live_allocations", &leak.live_allocations)?;
        map.serialize_entry("allocations", &leak.allocations)?;
        let ratio = (leak.allocations > 0).then(|| leak.live_allocations as f64 / leak.allocations as f64);
        map.serialize_entry("ratio", &ratio)?;
        map.serialize_entry("growth_bytes_per_second", &leak.growth_bytes_per_second)?;
        map.serialize_entry("first_ns", &leak.first_ns)?;
        map.serialize_entry("last_ns", &leak.last_ns)?;
        map.serialize_entry("age_ns", &leak.age_ns)?;
        map.serialize_entry("suppressed", &leak.suppressed)?;
        map.serialize_entry("stack", &leak.stack)?;
        map.serialize_entry("sparkline", &leak.sparkline)?;
        map.end()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Ten seconds of live blocks of 100 bytes.
    fn facts(blocks: impl Fn(usize) -> u64) -> Facts {
        let blocks: Vec<u64> = (1..=LOOKS).map(blocks).collect();
        Facts {
            from_ns: 0,
            to_ns: 10 * SECOND,
            bytes: blocks.iter().map(|count| count * 100).collect(),
            blocks,
            samples: Vec::new(),
            is_sampled: false,
            left: (0, 0),
            freed_last: 0,
            allocations: 1000,
            allocated: Some((SECOND / 10, 99 * SECOND / 10)),
            oldest_ns: Some(SECOND / 10),
        }
    }

    fn of(facts: &Facts) -> Option<Verdict> {
        verdict(facts).map(|(verdict, _)| verdict)
    }

    #[test]
    fn every_shape_has_its_verdict() {
        let steady = facts(|look| look as u64 * 10);
        assert_eq!(of(&steady), Some(Verdict::Grows));
        assert_eq!(steady.slope(), 6400, "640 blocks of 100 bytes in 10 seconds");
        assert_eq!(of(&facts(|look| (look as u64).min(8) * 10)), Some(Verdict::Bounded));
        assert_eq!(of(&facts(|look| 50 + look as u64 % 3)), Some(Verdict::Bounded));
        let early = Facts { allocated: Some((SECOND / 10, SECOND / 2)), ..facts(|_| 7) };
        assert_eq!(of(&early), Some(Verdict::Once));
        let burst =
            Facts { allocated: Some((5 * SECOND, 5 * SECOND + 1000)), oldest_ns: Some(5 * SECOND), ..facts(|_| 7) };
        assert_eq!(of(&burst), Some(Verdict::Once));
        let young = Facts { oldest_ns: Some(98 * SECOND / 10), ..facts(|look| 3 + look as u64 % 2) };
        assert_eq!(of(&young), Some(Verdict::Tail));
        let exit = Facts { freed_last: 630, ..facts(|look| if look == LOOKS { 0 } else { look as u64 * 10 }) };
        assert_eq!(of(&exit), Some(Verdict::Exit));
        assert_eq!(of(&facts(|look| if look > 40 { 0 } else { 9 })), None, "freed long before the end");
        let before = Facts { allocated: None, allocations: 0, ..facts(|_| 7) };
        assert_eq!(of(&before), Some(Verdict::Once));
    }

    /// Each block that was taken stands for ten.
    fn sampled(samples: impl Fn(usize) -> u64) -> Facts {
        let all = facts(|look| samples(look) * 10);
        Facts { samples: (1..=LOOKS).map(samples).collect(), is_sampled: true, ..all }
    }

    #[test]
    fn few_samples_give_no_verdict() {
        assert_eq!(of(&sampled(|_| 5)), Some(Verdict::Unclear));
        assert_eq!(of(&sampled(|_| 6)), Some(Verdict::Bounded));
        let early = |samples| Facts { allocated: Some((SECOND / 10, SECOND / 2)), ..sampled(move |_| samples) };
        assert_eq!(of(&early(5)), Some(Verdict::Unclear));
        assert_eq!(of(&early(6)), Some(Verdict::Once));
        let exit = |look: usize| if look == LOOKS { 0 } else { look as u64 / 16 };
        assert_eq!(
            of(&Facts { freed_last: 30, ..sampled(exit) }),
            Some(Verdict::Exit),
            "no block is left to be uncertain"
        );
        let (_, reason) = verdict(&sampled(|_| 1)).unwrap();
        assert_eq!(reason, "1 of its live blocks was sampled; what looks like growth or a level may be chance");
    }

    /// The difference between half and end is compared with that of two Poisson counts: 1.96 sqrt(half + end).
    #[test]
    fn growth_of_a_sample_must_be_larger_than_chance() {
        // 10 at half and 20 at the end: 10 is not more than 10.7. 12 and 24 are 12 and 11.8.
        let to = |end: u64| sampled(move |look| end * look as u64 / LOOKS as u64);
        for (end, expected) in [(20, Verdict::Unclear), (24, Verdict::Grows)] {
            let facts = to(end);
            assert_eq!((facts.samples[31], facts.samples[63]), (end / 2, end));
            assert_eq!(of(&Facts { is_sampled: false, ..facts.clone() }), Some(Verdict::Grows), "every block counts");
            assert_eq!(of(&facts), Some(expected), "{end}");
        }
    }

    #[test]
    fn growth_may_start_late_and_wobble() {
        let late = facts(|look| (look as u64).saturating_sub(32) * 5 + look as u64 % 2);
        assert_eq!(of(&late), Some(Verdict::Grows));
        let wobbling = facts(|look| look as u64 * 10 + if look % 2 == 0 { 15 } else { 0 });
        assert_eq!(of(&wobbling), Some(Verdict::Grows));
    }
}
