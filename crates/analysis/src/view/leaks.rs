//! Leaks judged: for each place that holds blocks at the end, whether it looks like a leak, and why. docs/analysis.md has the rules.
use super::Trace;
use super::bands::{Bands, counter};
use super::keys::Row;
use crate::counter::NEVER;
use crate::definitions::SiteId;
use crate::pass::Gone;
use crate::query::Query;
use crate::stack_table::{NodeId, StackTable};
use serde::ser::{Serialize, SerializeMap, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// More and more, up to the end.
    Grows,
    /// Came to a level and stays there: a cache.
    Bounded,
    /// Allocated within a short time, then never again: start-up.
    Once,
    /// Freed, but only when the program ended.
    Exit,
    /// Younger than the rest: in use when it ended.
    Tail,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Grows => "grows",
            Verdict::Bounded => "bounded",
            Verdict::Once => "once",
            Verdict::Exit => "exit",
            Verdict::Tail => "tail",
        }
    }
}

/// A place that holds blocks.
#[derive(Clone, Debug)]
pub struct Leak {
    /// Whom to blame; 0: nothing is known.
    pub node: NodeId,
    pub stack: SiteId,
    pub verdict: Verdict,
    /// A sentence.
    pub reason: String,
    pub live_bytes: u64,
    pub live_allocations: u64,
    pub allocations: u64,
    pub growth_bytes_per_second: i64,
    /// When it allocated first and last within the range.
    pub first_ns: Option<u64>,
    pub last_ns: Option<u64>,
    /// Of the oldest block that lives.
    pub age_ns: Option<u64>,
    pub suppressed: Option<String>,
    /// Live bytes over the range.
    pub sparkline: Vec<u64>,
}

/// How often a place is looked at.
const LOOKS: usize = 64;
const SPARKS: usize = 32;

/// What a verdict is made of.
#[derive(Clone, Debug, Default)]
struct Facts {
    from_ns: u64,
    to_ns: u64,
    /// Live blocks and bytes at the end of each look.
    blocks: Vec<u64>,
    bytes: Vec<u64>,
    /// Frees within the last look.
    freed_last: u64,
    allocations: u64,
    first_ns: u64,
    last_ns: u64,
    /// When the oldest block that lives was allocated.
    oldest_ns: u64,
}

/// All places that hold something at the range's end, or freed it only then; the most bytes first.
pub fn judge(trace: &mut Trace<'_>, query: &Query) -> Result<Vec<Leak>, Gone> {
    let (engine, table) = (trace.engine, trace.table);
    let range = engine.range(query).after_cut(engine.definitions().folded_until_ns());
    let bands = Bands::new(engine, table, query);
    let is_suppressed = |site: SiteId| query.suppressions && table.stack(site).suppressed.is_some();
    // What is suppressed is judged apart.
    let group = |site: SiteId| match bands.of(site) {
        band if (band as usize) < bands.len() => band * 2 + is_suppressed(site) as u32,
        none => none,
    };
    let counter = counter(trace, query, &range, bands.len() * 2, |alloc_class| group(alloc_class.site))?;
    let moments = engine.moments(&range, LOOKS);
    let new = Facts { from_ns: range.from_ns, to_ns: range.to_ns, oldest_ns: NEVER, ..Facts::default() };
    let mut facts = vec![new; bands.len() * 2];
    let point = engine.start_for(moments[0]);
    let mut walker = point.walker(counter);
    engine.stretch(trace.blocks, point).walk(&mut walker, &moments, |at, walker| {
        for (group, facts) in walker.sink.groups.iter_mut().zip(&mut facts) {
            if at == 0 {
                (group.first_ns, group.last_ns) = (NEVER, 0);
                continue;
            }
            facts.blocks.push(group.live_allocations);
            facts.bytes.push(group.live_bytes);
            facts.freed_last = group.deallocations;
            facts.allocations += group.allocations;
            (facts.first_ns, facts.last_ns) = (group.first_ns, group.last_ns);
        }
        if at == LOOKS {
            walker.live.each_from(0, |sequence, birth| {
                let group = walker.sink.group_of(sequence, &birth);
                if let Some(facts) = group.and_then(|(group, _)| facts.get_mut(group)) {
                    facts.oldest_ns = facts.oldest_ns.min(birth.time_ns);
                }
            });
        }
        let time_ns = range.slice_end(at, LOOKS);
        walker.sink.begin(&walker.now, time_ns);
    })?;
    // What a process leaked stays leaked after its end.
    for part in engine.gone_in(&range).filter(|part| part.is_leak && engine.reaches_end(&range)) {
        for block in &part.blocks {
            let Some((group, size)) = walker.sink.group_of_gone(block) else { continue };
            let Some(facts) = facts.get_mut(group) else { continue };
            facts.leak_at(part.at_ns, size, |look| range.slice_end(look, LOOKS));
            facts.oldest_ns = facts.oldest_ns.min(block.born_ns);
        }
    }
    let mut leaks: Vec<Leak> = Vec::new();
    for (number, facts) in facts.iter().enumerate() {
        let Some((verdict, reason)) = verdict(facts) else { continue };
        let (node, stack) = (bands.nodes[number / 2], bands.sites[number / 2]);
        let pattern = || {
            let site = (0..table.stacks.len() as SiteId).find(|site| group(*site) as usize == number)?;
            let list = table.suppressions.list();
            table.stack(site).suppressed.and_then(|at| list.get(at as usize)).map(|known| known.pattern.clone())
        };
        leaks.push(Leak {
            node,
            stack,
            verdict,
            reason,
            live_bytes: facts.bytes.last().copied().unwrap_or(0),
            live_allocations: facts.blocks.last().copied().unwrap_or(0),
            allocations: facts.allocations,
            growth_bytes_per_second: facts.slope(),
            first_ns: Some(facts.first_ns).filter(|ns| *ns != NEVER),
            last_ns: Some(facts.last_ns).filter(|_| facts.first_ns != NEVER),
            age_ns: (facts.oldest_ns != NEVER).then(|| facts.to_ns.saturating_sub(facts.oldest_ns)),
            suppressed: if number % 2 == 1 { pattern() } else { None },
            sparkline: facts.bytes.iter().skip(1).step_by(LOOKS / SPARKS).copied().collect(),
        });
    }
    leaks.sort_by_key(|leak| std::cmp::Reverse((leak.live_bytes, leak.live_allocations)));
    super::cut(&mut leaks, query.limit);
    Ok(leaks)
}

impl Facts {
    /// A block of a process that ended then.
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

    /// A part of the range, in per cent.
    const fn part(&self, percent: u64) -> u64 {
        ((self.to_ns - self.from_ns) as u128 * percent as u128 / 100) as u64
    }

    /// The looks since there was something.
    fn window(&self) -> usize {
        self.blocks.iter().position(|blocks| *blocks > 0).unwrap_or(0)
    }

    /// Bytes a second over the later half of the window, by least squares.
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

fn verdict(facts: &Facts) -> Option<(Verdict, String)> {
    let live = facts.blocks.last().copied().unwrap_or(0);
    if live == 0 {
        return freed_at_exit(facts);
    }
    let age = facts.to_ns.saturating_sub(facts.oldest_ns);
    if age <= facts.part(5) && facts.oldest_ns != NEVER && age < facts.to_ns - facts.from_ns {
        let reason = match facts.allocations > live {
            true => {
                format!("no block is older than {}; {} earlier ones were freed", time(age), facts.allocations - live)
            }
            false => format!("it began {} before the end", time(age)),
        };
        return Some((Verdict::Tail, reason));
    }
    if facts.first_ns == NEVER {
        return Some((Verdict::Once, "allocated before the range, nothing since".into()));
    }
    let is_early = facts.last_ns <= facts.from_ns + facts.part(10);
    if is_early || facts.last_ns - facts.first_ns <= facts.part(1) {
        let when = match facts.last_ns == facts.first_ns {
            true => format!("at {}", time(facts.first_ns)),
            false => format!("between {} and {}", time(facts.first_ns), time(facts.last_ns)),
        };
        return Some((Verdict::Once, format!("all was allocated {when}, nothing after that")));
    }
    Some(growth(facts))
}

/// Whether it became more all the time or came to a level.
fn growth(facts: &Facts) -> (Verdict, String) {
    let window = &facts.blocks[facts.window()..];
    let at = |quarter: usize| window[(window.len() * quarter / 4).saturating_sub(1).min(window.len() - 1)];
    let quarters = [at(1), at(2), at(3), at(4)];
    let steps = quarters.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let [_, half, _, end] = quarters;
    if window.len() >= 4 && steps >= 2 && quarters[3] > quarters[2] && end as f64 >= half as f64 * 1.2 {
        let reason =
            format!("from {half} blocks at half time to {end} at the end, {} bytes a second", facts.slope().max(0));
        return (Verdict::Grows, reason);
    }
    let most = window.iter().copied().max().unwrap_or(0);
    let freed = facts.allocations.saturating_sub(end);
    (
        Verdict::Bounded,
        format!("never more than {most} blocks, {half} at half time, {end} at the end; {freed} were freed"),
    )
}

fn freed_at_exit(facts: &Facts) -> Option<(Verdict, String)> {
    let (last, before) = facts.blocks.split_last()?;
    let held = before.last().copied().unwrap_or(0);
    let most = before.iter().copied().max().unwrap_or(0);
    let is_kept = *last == 0 && held > 0 && held * 10 >= most * 9 && facts.freed_last >= held;
    // One that lives only for the last look is nothing that waited for the end.
    let looks = before.iter().filter(|blocks| **blocks > 0).count();
    (is_kept && looks >= LOOKS / 8)
        .then(|| (Verdict::Exit, format!("{held} blocks were held up to the end and freed only then")))
}

/// For people.
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
            freed_last: 0,
            allocations: 1000,
            first_ns: SECOND / 10,
            last_ns: 99 * SECOND / 10,
            oldest_ns: SECOND / 10,
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
        let early = Facts { last_ns: SECOND / 2, ..facts(|_| 7) };
        assert_eq!(of(&early), Some(Verdict::Once));
        let burst = Facts { first_ns: 5 * SECOND, last_ns: 5 * SECOND + 1000, oldest_ns: 5 * SECOND, ..facts(|_| 7) };
        assert_eq!(of(&burst), Some(Verdict::Once));
        let young = Facts { oldest_ns: 98 * SECOND / 10, ..facts(|look| 3 + look as u64 % 2) };
        assert_eq!(of(&young), Some(Verdict::Tail));
        let exit = Facts { freed_last: 630, ..facts(|look| if look == LOOKS { 0 } else { look as u64 * 10 }) };
        assert_eq!(of(&exit), Some(Verdict::Exit));
        assert_eq!(of(&facts(|look| if look > 40 { 0 } else { 9 })), None, "freed long before the end");
        let before = Facts { first_ns: NEVER, allocations: 0, ..facts(|_| 7) };
        assert_eq!(of(&before), Some(Verdict::Once));
    }

    #[test]
    fn growth_may_start_late_and_wobble() {
        let late = facts(|look| (look as u64).saturating_sub(32) * 5 + look as u64 % 2);
        assert_eq!(of(&late), Some(Verdict::Grows));
        let wobbling = facts(|look| look as u64 * 10 + if look % 2 == 0 { 15 } else { 0 });
        assert_eq!(of(&wobbling), Some(Verdict::Grows));
    }
}
