//! Compares the answer of a view, from `print --view` or from the server, with the naive replay.
use super::blame::Blame;
use super::count::{Costs, Range};
use super::query::{Merge, Query, matches};
use super::rows::{Key, Sum, key, key_of_row, label};
use super::trace::{Block, Level, Trace};
use format::{MemoryInstant, MemoryMap};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// All views except `stacks`, which [`Witness::new`] checks.
pub const VIEWS: [&str; 18] = [
    "profile",
    "summary",
    "bottom-up",
    "top-down",
    "callers",
    "flame",
    "timeline",
    "sizes",
    "lifetimes",
    "threads",
    "allocators",
    "processes",
    "memory",
    "map",
    "leaks",
    "source",
    "suppressions",
    "diff",
];

/// The number of rows in each list of the summary.
const SUMMARY_ROWS: usize = 20;
const DEFAULT_TOP: usize = 10;

pub type Verdict = Result<(), String>;
/// The name, RSS and PSS of a part of the memory.
type NamedPart = (String, u64, u64);
/// A column of a timeline, and the cost of a slice that it contains.
type Column = (&'static str, fn(&Costs) -> u64);

pub fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Verdict {
    if found == expected { Ok(()) } else { Err(format!("{what}:\n   found {found:?}\nexpected {expected:?}")) }
}

/// Reports only the first key at which two maps differ.
pub fn same_map<K: Ord + Debug, V: PartialEq + Debug>(
    what: &str,
    found: &BTreeMap<K, V>,
    expected: &BTreeMap<K, V>,
) -> Verdict {
    let keys: BTreeSet<&K> = found.keys().chain(expected.keys()).collect();
    for key in keys {
        if found.get(key) != expected.get(key) {
            let (found, expected) = (found.get(key), expected.get(key));
            return Err(format!("{what}, {key:?}:\n   found {found:?}\nexpected {expected:?}"));
        }
    }
    Ok(())
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

pub fn numbers(value: &Value) -> Vec<u64> {
    list(value).iter().map(number).collect()
}

pub fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

pub fn named(value: &Value) -> BTreeMap<String, u64> {
    let object = value.as_object().unwrap_or_else(|| panic!("no costs: {value}"));
    object.iter().map(|(name, value)| (name.clone(), number(value))).collect()
}

/// A level as it is in the view `stacks` and in the frames of `print --json`.
fn shown(level: &Level) -> Value {
    let Level { function, short, file, line, module, offset, class, inlined, .. } = level;
    json!([function, short, file, line, module, offset, class, inlined])
}

pub fn shown_stack(levels: &[Level]) -> String {
    Value::Array(levels.iter().map(shown).collect()).to_string()
}

/// A trace, with what is needed to interpret heaptrack's answers about it.
pub struct Witness<'a> {
    pub trace: &'a Trace,
    /// The levels of each stack, indexed by the numbers of the view `stacks`.
    shown: Vec<String>,
    /// The patterns of known leaks, in their order.
    pub patterns: Vec<String>,
}

/// A question, and the naive replay's answer to it.
pub struct Asked<'a> {
    trace: &'a Trace,
    witness: &'a Witness<'a>,
    query: &'a Query,
    range: Range,
    picked: Vec<bool>,
    pub costs: Vec<Costs>,
    /// For each stack, whether it is a known leak that is left out.
    pub suppressed: Vec<bool>,
    blame: Blame,
}

/// Compares the list `wrappers` of an answer.
fn check_wrappers(answer: &Value, blame: &Blame) -> Verdict {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let row = |row: &Value| {
        let count = |name: &str| number(&row[name]) as usize;
        let key = (text(&row["function"]).unwrap_or_default(), text(&row["module"]));
        (key, (text(&row["reason"]).unwrap_or_default(), count("callers"), count("sizes"), count("stacks")))
    };
    let found: BTreeMap<_, _> = list(answer).iter().map(row).collect();
    same("wrappers", format!("{found:?}"), format!("{:?}", blame.wrappers))
}

impl<'a> Witness<'a> {
    /// Parses the view `stacks`, and checks its blamed levels and known leaks.
    pub fn new(trace: &'a Trace, stacks: &Value) -> Result<Self, String> {
        let (levels, nodes, all) = (&stacks["levels"], &stacks["nodes"], &stacks["stacks"]);
        let text = |index: &Value| index.as_u64().map(|index| stacks["strings"][index as usize].clone());
        let level = |at: usize| {
            let of = |name: &str| text(&levels[name][at]);
            let [line, offset, class, inlined] = ["line", "offset", "class", "inlined"].map(|name| &levels[name][at]);
            json!([of("function"), of("short"), of("file"), line, of("module"), offset, class, inlined])
        };
        let path = |node: &Value| {
            let (mut path, mut at) = (Vec::new(), number(node));
            while at != 0 {
                path.push(at);
                at = number(&nodes["parent"][at as usize]);
            }
            path
        };
        let patterns = list(&stacks["suppressions"]).iter().map(|row| row["pattern"].as_str().unwrap().to_owned());
        let mut witness = Witness { trace, shown: Vec::new(), patterns: patterns.collect() };
        let blame = trace.blame(&[], &[]);
        check_wrappers(&stacks["wrappers"], &blame)?;
        let known: BTreeMap<String, usize> =
            trace.stacks.iter().enumerate().map(|(at, levels)| (shown_stack(levels), at)).collect();
        for (at, node) in list(&all["node"]).iter().enumerate() {
            let path = path(node);
            let levels = path.iter().map(|node| level(number(&nodes["level"][*node as usize]) as usize)).collect();
            let text = Value::Array(levels).to_string();
            let stack = *known.get(&text).ok_or_else(|| format!("no such stack: {text}"))?;
            let place =
                |name: &str| all[name][at].as_u64().and_then(|wanted| path.iter().position(|node| *node == wanted));
            let owner = blame.owners[stack];
            same("owner", place("owner"), owner.map(|owner| owner.at))?;
            same("blamed", place("blamed"), owner.filter(|owner| owner.is_own).map(|owner| owner.at))?;
            let suppressed = all["suppressed"][at].as_u64().map(|number| number as usize);
            same("suppressed", suppressed, trace.suppressed(stack, &witness.patterns))?;
            witness.shown.push(text);
        }
        Ok(witness)
    }

    pub fn ask<'b>(&'b self, query: &'b Query) -> Asked<'b> {
        let (range, costs) = self.trace.by_stack(query);
        let is_suppressed = |stack| !query.no_suppressions && self.trace.suppressed(stack, &self.patterns).is_some();
        Asked {
            trace: self.trace,
            witness: self,
            query,
            range,
            picked: self.trace.picked(query, &range),
            costs,
            suppressed: (0..self.trace.stacks.len()).map(is_suppressed).collect(),
            blame: self.trace.blame(&query.wrappers, &query.not_wrappers),
        }
    }

    pub fn check(&self, view: &str, query: &Query, answer: &Value) -> Verdict {
        let asked = self.ask(query);
        same("view", answer["view"].as_str(), Some(view))?;
        let range = (number(&answer["range"]["from_ns"]), number(&answer["range"]["to_ns"]));
        same("range", range, (asked.range.from_ns, asked.range.to_ns))?;
        same_map("totals", &named(&answer["totals"]), &asked.totals())?;
        match view {
            "profile" => asked.profile(answer),
            "summary" => asked.summary(answer),
            "bottom-up" | "top-down" => asked.tree(answer, view == "top-down"),
            "callers" => asked.callers(answer),
            "flame" => asked.flame(answer),
            "timeline" => asked.timeline(answer),
            "sizes" => asked.sizes(answer),
            "lifetimes" => asked.lifetimes(answer),
            "threads" => asked.threads(answer),
            "allocators" => asked.allocators(answer),
            "processes" => asked.processes(answer),
            "memory" => asked.memory(answer),
            "map" => asked.map(answer),
            "leaks" => asked.leaks(answer),
            "source" => asked.source(answer),
            "suppressions" => asked.suppressions(answer),
            "diff" => asked.diff(answer),
            other => panic!("no view {other}"),
        }
    }
}

impl Asked<'_> {
    pub fn trace(&self) -> &Trace {
        self.trace
    }

    /// The level that owns the memory of a stack.
    pub fn blamed(&self, stack: usize) -> Option<&Level> {
        self.blame.owners[stack].map(|owner| &self.trace.stacks[stack][owner.at])
    }

    pub fn query(&self) -> &Query {
        self.query
    }

    pub fn range(&self) -> &Range {
        &self.range
    }

    /// The blocks that were allocated within the range.
    pub fn allocated(&self) -> impl Iterator<Item = &Block> {
        let Range { begin, end, .. } = self.range;
        let picked = self.trace.blocks.iter().zip(&self.picked).filter(|(_, picked)| **picked).map(|(block, _)| block);
        picked.filter(move |block| begin <= block.born && block.born < end)
    }

    /// All stacks with any cost.
    pub fn stacks(&self) -> impl Iterator<Item = (usize, &Costs)> {
        self.costs.iter().enumerate().filter(|(_, costs)| !costs.is_zero())
    }

    pub fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        self.stacks().for_each(|(stack, costs)| sum.add(costs, self.suppressed[stack]));
        sum
    }

    pub fn peak_time_ns(&self) -> u64 {
        if self.range.instant { 0 } else { self.trace.peak(&self.range).1 }
    }

    fn totals(&self) -> BTreeMap<String, u64> {
        let sum = self.sum();
        let mut all = sum.named();
        all.insert("suppressed_bytes".into(), sum.costs.live_bytes - sum.leaked_bytes);
        all.insert("suppressed_allocations".into(), sum.costs.live_allocations - sum.leaked_allocations);
        all.insert("peak_time_ns".into(), self.peak_time_ns());
        all
    }

    /// The costs of all stacks, by their shown levels. Several stacks may show the same levels.
    fn columns(&self) -> BTreeMap<String, Vec<BTreeMap<String, u64>>> {
        let mut all: BTreeMap<String, Vec<BTreeMap<String, u64>>> = BTreeMap::new();
        for (stack, costs) in self.stacks() {
            let costs = costs.named().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            all.entry(shown_stack(&self.trace.stacks[stack])).or_default().push(costs);
        }
        all.values_mut().for_each(|rows| rows.sort());
        all
    }

    fn columns_of(&self, answer: &Value) -> BTreeMap<String, Vec<BTreeMap<String, u64>>> {
        let mut all: BTreeMap<String, Vec<BTreeMap<String, u64>>> = BTreeMap::new();
        let names: Vec<&str> = Costs::default().named().iter().map(|(name, _)| *name).collect();
        for (at, stack) in list(&answer["stack"]).iter().enumerate() {
            let costs = names.iter().map(|name| ((*name).to_owned(), number(&answer[name][at]))).collect();
            all.entry(self.witness.shown[number(stack) as usize].clone()).or_default().push(costs);
        }
        all.values_mut().for_each(|rows| rows.sort());
        all
    }

    fn profile(&self, answer: &Value) -> Verdict {
        same_map("profile", &self.columns_of(answer), &self.columns())?;
        let Some(base) = self.query.base() else { return Ok(()) };
        let base = self.witness.ask(&base);
        same_map("base", &base.columns_of(&answer["base"]), &base.columns())?;
        same_map("base_totals", &named(&answer["base_totals"]), &base.totals())
    }

    /// The value of a cost for each group of stacks.
    fn values(&self, cost: &str, group: impl Fn(usize) -> Key) -> BTreeMap<Key, i64> {
        let mut all = BTreeMap::new();
        for (stack, costs) in self.stacks() {
            *all.entry(group(stack)).or_default() += costs.value(cost, self.suppressed[stack]);
        }
        all.retain(|_, value| *value != 0);
        all
    }

    fn summary(&self, answer: &Value) -> Verdict {
        self.allocators(answer)?;
        for cost in ["peak", "leaked", "allocations", "temporary"] {
            let mut expected = self.values(cost, |stack| key(self.blamed(stack), Merge::Line));
            let total: i64 = expected.values().sum();
            let rows = list(&answer["lists"][cost]);
            same(cost, rows.len(), expected.len().min(SUMMARY_ROWS))?;
            let mut least = i64::MAX;
            for row in rows {
                let key = key_of_row(row, Merge::Line);
                let value = row["value"].as_i64();
                same(&format!("{cost} of {key}"), value, expected.remove(&key))?;
                same("order", value.unwrap() <= least, true)?;
                least = value.unwrap();
                let share = row["share"].as_f64().unwrap_or(f64::NAN);
                same("share", (share - least as f64 / total as f64).abs() < 1e-12, true)?;
            }
            same("rows that are left out", expected.values().all(|value| *value <= least), true)?;
        }
        let Costs { allocations, temporary, allocated_bytes, .. } = self.sum().costs;
        let seconds = (self.range.to_ns - self.range.from_ns) as f64 / 1e9;
        for (name, count) in [
            ("allocations_per_second", allocations),
            ("temporary_per_second", temporary),
            ("allocated_bytes_per_second", allocated_bytes),
        ] {
            let rate = if seconds > 0.0 { (count as f64 / seconds).round() as u64 } else { 0 };
            same(name, number(&answer[name]), rate)?;
        }
        same("runtime_ns", number(&answer["runtime_ns"]), self.trace.runtime_ns)?;
        self.suppressions(answer)
    }

    fn tree(&self, answer: &Value, is_top_down: bool) -> Verdict {
        let mut expected: BTreeMap<Vec<Key>, (Sum, Sum)> = BTreeMap::new();
        for (stack, costs) in self.stacks() {
            let mut path: Vec<Key> =
                self.trace.shown(stack, self.query).into_iter().map(|level| key(level, self.query.merge)).collect();
            if is_top_down {
                path.reverse();
            }
            let depth = if self.query.depth > 0 { self.query.depth } else { path.len() };
            for length in 1..=path.len().min(depth) {
                let (total, own) = expected.entry(path[..length].to_vec()).or_default();
                total.add(costs, self.suppressed[stack]);
                if length == path.len() {
                    own.add(costs, self.suppressed[stack]);
                }
            }
        }
        let expected = expected.into_iter().map(|(path, (total, own))| (path, (total.named(), own.named()))).collect();
        let mut found = BTreeMap::new();
        flatten(&answer["roots"], &mut Vec::new(), self.query.merge, &mut found);
        same_map("tree", &found, &expected)
    }

    fn callers(&self, answer: &Value) -> Verdict {
        let mut functions = Inclusive::default();
        let (mut callers, mut callees, mut lines) = (Inclusive::default(), Inclusive::default(), Inclusive::default());
        for (stack, costs) in self.stacks() {
            let levels = self.trace.shown(stack, self.query);
            let keys: Vec<Key> = levels.iter().map(|level| key(*level, self.query.merge)).collect();
            let is_suppressed = self.suppressed[stack];
            functions.add(keys.iter().cloned().collect(), Some(keys[0].clone()), costs, is_suppressed);
            let Some(wanted) = &self.query.function else { continue };
            let wanted = format!("function:{wanted}");
            let hits: Vec<usize> =
                (0..keys.len()).filter(|at| levels[*at].is_some_and(|level| matches(&wanted, level))).collect();
            let line = |at: &usize| json!([levels[*at].unwrap().file, levels[*at].unwrap().line]).to_string();
            callers.add(hits.iter().filter_map(|at| keys.get(at + 1).cloned()).collect(), None, costs, is_suppressed);
            let leaf = hits.contains(&1).then(|| keys[0].clone());
            let inner = hits.iter().filter(|at| **at > 0).map(|at| keys[at - 1].clone());
            callees.add(inner.collect(), leaf, costs, is_suppressed);
            let leaf = hits.first().filter(|at| **at == 0).map(line);
            lines.add(hits.iter().map(line).collect(), leaf, costs, is_suppressed);
        }
        let of = |rows: &Value| found_inclusive(rows, |row| key_of_row(row, self.query.merge));
        same_map("functions", &of(&answer["functions"]), &functions.named())?;
        if self.query.function.is_none() {
            return Ok(());
        }
        same_map("callers", &of(&answer["selected"]["callers"]), &callers.named())?;
        same_map("callees", &of(&answer["selected"]["callees"]), &callees.named())?;
        let of = |row: &Value| json!([row["file"], row["line"]]).to_string();
        same_map("lines", &found_inclusive(&answer["selected"]["lines"], of), &lines.named())
    }

    fn flame(&self, answer: &Value) -> Verdict {
        let labels = |stack: usize| {
            let levels = self.trace.shown(stack, self.query);
            let depth = if self.query.depth > 0 { self.query.depth } else { levels.len() };
            let levels = levels.into_iter().rev().take(depth);
            json!(levels.map(|level| label(level, self.query.merge)).collect::<Vec<String>>()).to_string()
        };
        let mut found = BTreeMap::new();
        for row in list(&answer["folded"]) {
            *found.entry(row["stack"].to_string()).or_default() += row["value"].as_i64().unwrap();
        }
        found.retain(|_, value| *value != 0);
        same_map("flame", &found, &self.values(self.query.cost("flame"), labels))
    }

    /// The band of each stack, and the keys of the bands.
    fn bands(&self) -> (Vec<usize>, Vec<Key>) {
        let level = |stack: usize| match self.query.by_function {
            true => self.trace.stacks[stack].first(),
            false => self.blamed(stack),
        };
        let keys: Vec<Key> = (0..self.trace.stacks.len()).map(|stack| key(level(stack), Merge::Line)).collect();
        let distinct: Vec<Key> = keys.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let place = |key: &Key| distinct.binary_search(key).unwrap();
        (keys.iter().map(place).collect(), distinct)
    }

    fn timeline(&self, answer: &Value) -> Verdict {
        let (band_of, keys) = self.bands();
        let group = |block: usize| self.picked[block].then(|| band_of[self.trace.blocks[block].stack]);
        let Range { begin, end, from_ns, to_ns, .. } = self.range;
        let points = self.query.points;
        let time = |at: usize| from_ns + ((to_ns - from_ns) as u128 * at as u128 / points as u128) as u64;
        let place = |at: usize| match at {
            0 => begin,
            at if at == points => end,
            at => self.trace.times.partition_point(|ns| *ns <= time(at)).clamp(begin, end),
        };
        let slice = |at: usize| Range {
            begin: place(at),
            end: place(at + 1),
            from_ns: time(at),
            to_ns: time(at + 1),
            instant: false,
            whole_end: false,
        };
        let slices: Vec<Vec<Costs>> = (0..points).map(|at| self.trace.count(&slice(at), keys.len(), group)).collect();
        let sum = |of: fn(&Costs) -> u64| slices.iter().map(|s| s.iter().map(of).sum::<u64>()).collect::<Vec<u64>>();
        same("time_ns", numbers(&answer["time_ns"]), (1..=points).map(time).collect())?;
        let columns: [Column; 7] = [
            ("live_bytes", |c| c.peak_bytes),
            ("live_allocations", |c| c.peak_allocations),
            ("live_bytes_end", |c| c.live_bytes),
            ("allocations", |c| c.allocations),
            ("allocated_bytes", |c| c.allocated_bytes),
            ("deallocations", |c| c.deallocations),
            ("temporary", |c| c.temporary),
        ];
        for (name, of) in columns {
            same(name, numbers(&answer[name]), sum(of))?;
        }
        let (at, peak_ns) = self.trace.peak(&self.range);
        let index = (0..points).find(|slice| place(slice + 1) >= at).unwrap_or(0);
        let found = (number(&answer["peak"]["index"]) as usize, number(&answer["peak"]["time_ns"]));
        same("peak", found, (index, peak_ns))?;
        let own =
            self.trace.count(&Range { instant: false, ..self.range }, 1, |block| self.picked[block].then_some(0))[0];
        let found = (number(&answer["own_peak"]["bytes"]), number(&answer["own_peak"]["time_ns"]));
        same("own_peak", found, (own.own_peak_bytes, own.own_peak_time_ns))?;
        self.bands_of(answer, &slices, &keys)
    }

    /// Checks that the shown bands are the largest ones, and that they and `other` add up to the total.
    fn bands_of(&self, answer: &Value, slices: &[Vec<Costs>], keys: &[Key]) -> Verdict {
        let columns: [Column; 3] =
            [("live_bytes", |c| c.peak_bytes), ("allocations", |c| c.allocations), ("temporary", |c| c.temporary)];
        let values = |band: usize, of: fn(&Costs) -> u64| slices.iter().map(|s| of(&s[band])).collect::<Vec<u64>>();
        let rank = |band: usize| match self.query.cost("timeline") {
            "allocations" | "allocated" | "deallocations" => values(band, |c| c.allocations).iter().sum::<u64>(),
            "temporary" => values(band, |c| c.temporary).iter().sum(),
            _ => values(band, |c| c.peak_bytes).into_iter().max().unwrap_or(0),
        };
        let top = self.query.top.unwrap_or(DEFAULT_TOP);
        let mut ranks: Vec<u64> = (0..keys.len()).map(rank).filter(|rank| *rank > 0).collect();
        ranks.sort_unstable_by(|a, b| b.cmp(a));
        ranks.truncate(top);
        let bands = list(&answer["bands"]);
        let places: Vec<usize> =
            bands.iter().map(|row| keys.iter().position(|key| *key == key_of_row(row, Merge::Line)).unwrap()).collect();
        same("ranks of bands", places.iter().map(|band| rank(*band)).collect(), ranks)?;
        for (name, of) in columns {
            let mut rest: Vec<u64> = slices.iter().map(|s| s.iter().map(of).sum()).collect();
            for (row, band) in bands.iter().zip(&places) {
                let values = values(*band, of);
                rest.iter_mut().zip(&values).for_each(|(rest, value)| *rest -= value);
                same(&format!("band {}, {name}", keys[*band]), numbers(&row[name]), values)?;
            }
            same(&format!("other, {name}"), numbers(&answer["other"][name]), rest)?;
        }
        Ok(())
    }

    fn sizes(&self, answer: &Value) -> Verdict {
        let (band_of, keys) = self.bands();
        let bucket = |size: u64| (u64::BITS - size.leading_zeros()) as usize;
        let group = |block: usize| {
            let known = &self.trace.blocks[block];
            self.picked[block].then(|| bucket(known.size) * keys.len() + band_of[known.stack])
        };
        let all = self.trace.count(&self.range, 65 * keys.len(), group);
        let names = ["allocations", "allocated_bytes", "peak_bytes", "live_bytes", "live_allocations"];
        let of = |costs: &Costs| {
            let known: BTreeMap<&str, u64> = costs.named().into_iter().collect();
            names.map(|name| known[name])
        };
        let mut expected = BTreeMap::new();
        for (number, costs) in all.iter().enumerate().filter(|(_, costs)| !costs.is_zero()) {
            let bucket = (number / keys.len()) as u32;
            let from = if bucket == 0 { 0 } else { 1u64 << (bucket - 1) };
            let sums: &mut [u64; 5] = expected.entry(from).or_default();
            sums.iter_mut().zip(of(costs)).for_each(|(sum, value)| *sum += value);
        }
        let from = numbers(&answer["from"]);
        let column = |at: usize| names.map(|name| number(&answer[name][at]));
        let found = from.iter().enumerate().map(|(at, from)| (*from, column(at))).collect();
        same_map("sizes", &found, &expected)?;
        same("lists of functions", list(&answer["top"]).len(), from.len())?;
        for (from, top) in from.iter().zip(list(&answer["top"])) {
            let mut ranks: Vec<(u64, u64)> = all[bucket(*from) * keys.len()..][..keys.len()]
                .iter()
                .filter(|costs| !costs.is_zero())
                .map(|costs| (costs.allocations, costs.live_bytes))
                .collect();
            ranks.sort_unstable_by(|a, b| b.cmp(a));
            ranks.truncate(self.query.top.unwrap_or(DEFAULT_TOP));
            let rank = |row: &Value| (number(&row["allocations"]), number(&row["live_bytes"]));
            same(&format!("size {from}, the top"), list(top).iter().map(rank).collect(), ranks)?;
            for row in list(top) {
                let band = keys.iter().position(|key| *key == key_of_row(row, Merge::Line)).unwrap();
                let costs = of(&all[bucket(*from) * keys.len() + band]);
                for (name, value) in names[..4].iter().zip(costs) {
                    same(&format!("size {from}, {}, {name}", keys[band]), number(&row[name]), value)?;
                }
            }
        }
        Ok(())
    }

    fn lifetimes(&self, answer: &Value) -> Verdict {
        let mut expected: BTreeMap<u64, [u64; 4]> = BTreeMap::new();
        let lower = |ns: u64| if ns == 0 { 0 } else { 1 << ns.ilog2() };
        let Range { begin, end, .. } = self.range;
        for (block, _) in self.trace.blocks.iter().zip(&self.picked).filter(|(_, picked)| **picked) {
            let mut add = |at: usize, ns: u64| {
                let bucket = expected.entry(lower(ns)).or_default();
                bucket[at] += 1;
                bucket[at + 1] += block.size;
            };
            if block.is_left(&self.range) {
                add(2, block.lived(&self.range));
            } else if block.end.is_some_and(|ended| ended.freed && begin <= ended.at && ended.at < end) {
                add(0, block.lived(&self.range));
            }
        }
        let names = ["deallocations", "freed_bytes", "live_allocations", "live_bytes"];
        let column = |at: usize| names.map(|name| number(&answer[name][at]));
        let found = numbers(&answer["from"]).into_iter().enumerate().map(|(at, from)| (from, column(at))).collect();
        same_map("lifetimes", &found, &expected)
    }

    /// The sums of the blocks in each of `count` groups, without groups that have no costs.
    fn sums(&self, count: usize, group: impl Fn(&Block) -> usize) -> BTreeMap<u64, BTreeMap<String, u64>> {
        let of = |is_suppressed: bool| {
            self.trace.count(&self.range, count, |block| {
                let known = &self.trace.blocks[block];
                let is_one = self.picked[block] && self.suppressed[known.stack] == is_suppressed;
                is_one.then(|| group(known))
            })
        };
        let mut sums = BTreeMap::new();
        for (index, (own, known)) in of(false).iter().zip(&of(true)).enumerate() {
            let mut sum = Sum::default();
            sum.add(own, false);
            sum.add(known, true);
            if !sum.costs.is_zero() {
                sums.insert(index as u64, sum.named());
            }
        }
        sums
    }

    /// The costs of each allocator's blocks. Blocks that the program reported itself have no allocator.
    pub fn by_allocator(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let names = if self.query.custom { &[] } else { &self.trace.allocators[..] };
        let sums = if names.is_empty() { BTreeMap::new() } else { self.sums(names.len(), |block| block.allocator) };
        sums.into_iter().map(|(index, sum)| (names[index as usize].clone(), sum)).collect()
    }

    /// The list `allocators` of the views `allocators` and `summary`.
    fn allocators(&self, answer: &Value) -> Verdict {
        let expected = self.by_allocator();
        let row = |row: &Value| (row["name"].as_str().unwrap_or_default().to_owned(), named(&row["costs"]));
        same_map("allocators", &list(&answer["allocators"]).iter().map(row).collect(), &expected)
    }

    fn threads(&self, answer: &Value) -> Verdict {
        let count = self.trace.blocks.iter().map(|block| block.thread as usize + 1).max().unwrap_or(0);
        let expected = self.sums(count, |block| block.thread as usize);
        let row = |row: &Value| (number(&row["index"]), named(&row["costs"]));
        same_map("threads", &list(&answer["threads"]).iter().map(row).collect(), &expected)
    }

    fn memory(&self, answer: &Value) -> Verdict {
        let Range { from_ns, to_ns, .. } = self.range;
        let is_instant = self.query.at.is_some();
        let from_ns = if is_instant { 0 } else { from_ns };
        let within = |instant: &&MemoryInstant| instant.time_ns >= from_ns && instant.time_ns <= to_ns;
        let mut expected: Vec<(u64, Vec<NamedPart>)> = Vec::new();
        for instant in self.trace.memory.iter().filter(within) {
            let parts = instant.parts.iter().map(|part| (part.name.clone(), part.rss_bytes, part.pss_bytes));
            expected.push((instant.time_ns, parts.collect()));
        }
        if is_instant && expected.len() > 1 {
            expected = expected.split_off(expected.len() - 1);
        }
        let part = |part: &Value| {
            let name = part["name"].as_str().unwrap_or_default().to_owned();
            (name, number(&part["bytes"]), number(&part["pss_bytes"]))
        };
        let instant =
            |instant: &Value| (number(&instant["time_ns"]), list(&instant["parts"]).iter().map(part).collect());
        same("instants", list(&answer["instants"]).iter().map(instant).collect(), expected)?;
        self.memory_kinds(answer)
    }

    /// The cells of the last map up to an instant, or of the one with the highest RSS.
    fn map(&self, answer: &Value) -> Verdict {
        let Range { from_ns, to_ns, .. } = self.range;
        let is_instant = self.query.at.is_some();
        let from_ns = if is_instant { 0 } else { from_ns };
        let mut within: Vec<&MemoryMap> = self.trace.maps.iter().collect();
        within.retain(|map| map.time_ns >= from_ns && map.time_ns <= to_ns);
        within.sort_by_key(|map| if is_instant { (map.time_ns, 0) } else { (map.rss_bytes, u64::MAX - map.time_ns) });
        let expected = within.last();
        let time_ns = expected.map_or(Value::Null, |map| map.time_ns.into());
        same("the map's time", &answer["time_ns"], &time_ns)?;
        let row = |cell: &Value| {
            let owner = &answer["owners"][number(&cell["owner"]) as usize];
            let numbers = ["start", "bytes", "resident_bytes", "live_bytes"].map(|name| number(&cell[name]));
            (numbers, owner["kind"].as_str().unwrap_or_default().to_owned(), cell["age_ns"].as_u64())
        };
        let known = expected.iter().flat_map(|map| {
            map.cells.iter().map(|cell| {
                let numbers = [cell.start, 4096 * cell.pages, 4096 * cell.resident_pages, cell.live_bytes];
                let kind = map.names[cell.kind as usize].clone();
                (numbers, kind, cell.born_ns.map(|born| map.time_ns.saturating_sub(born)))
            })
        });
        same("cells", list(&answer["cells"]).iter().map(row).collect::<Vec<_>>(), known.collect())
    }

    /// The sums of the parts of each kind, and of all parts, at each instant of the answer.
    fn memory_kinds(&self, answer: &Value) -> Verdict {
        let instants = list(&answer["instants"]);
        for (index, instant) in instants.iter().enumerate() {
            let time_ns = number(&instant["time_ns"]);
            let recorded = self.trace.memory.iter().find(|recorded| recorded.time_ns == time_ns);
            let (mut expected, mut sum) = (BTreeMap::<&str, (u64, u64)>::new(), (0, 0));
            for part in recorded.iter().flat_map(|recorded| &recorded.parts) {
                let of_kind = expected.entry(&part.kind).or_default();
                for (rss, pss) in [of_kind, &mut sum] {
                    *rss += part.rss_bytes;
                    *pss += part.pss_bytes;
                }
            }
            let at = |list: &Value| number(&list[index]);
            let kind = |kind: &Value| (at(&kind["rss_bytes"]), at(&kind["pss_bytes"]));
            let found = list(&answer["kinds"]).iter().map(|one| (one["kind"].as_str().unwrap_or_default(), kind(one)));
            // A kind that occurs only at other instants is 0 here.
            let found = found.filter(|(name, sums)| expected.contains_key(name) || *sums != (0, 0)).collect();
            same(&format!("kinds at {time_ns}"), found, expected)?;
            let sums = (number(&instant["parts_rss_bytes"]), number(&instant["parts_pss_bytes"]));
            same(&format!("sums at {time_ns}"), sums, sum)?;
        }
        Ok(())
    }

    fn processes(&self, answer: &Value) -> Verdict {
        let count = self.trace.processes.keys().last().map_or(0, |last| *last as usize + 1);
        let of = |is_suppressed: bool| {
            self.trace.count(&self.range, count, |block| {
                let known = &self.trace.blocks[block];
                let is_one = self.picked[block] && self.suppressed[known.stack] == is_suppressed;
                let process = self.trace.process_of_thread.get(&known.thread)?;
                is_one.then_some(*process as usize)
            })
        };
        let mut expected = BTreeMap::new();
        let mut commands: BTreeMap<String, (u64, Sum)> = BTreeMap::new();
        for (index, (own, known)) in of(false).iter().zip(&of(true)).enumerate() {
            let process = &self.trace.processes[&(index as u32)];
            let name = process.command[0].rsplit('/').next().unwrap_or_default().to_owned();
            let (processes, of_command) = commands.entry(name).or_default();
            *processes += 1;
            let mut sum = Sum::default();
            for sum in [&mut sum, of_command] {
                sum.add(own, false);
                sum.add(known, true);
            }
            expected.insert(index as u64, (process.pid as u64, sum.named()));
        }
        let row = |row: &Value| (number(&row["index"]), (number(&row["pid"]), named(&row["costs"])));
        same_map("processes", &list(&answer["processes"]).iter().map(row).collect(), &expected)?;
        let commands: BTreeMap<String, (u64, BTreeMap<String, u64>)> =
            commands.into_iter().map(|(name, (processes, sum))| (name, (processes, sum.named()))).collect();
        let row = |row: &Value| {
            (row["name"].as_str().unwrap_or_default().to_owned(), (number(&row["processes"]), named(&row["costs"])))
        };
        same_map("commands", &list(&answer["commands"]).iter().map(row).collect(), &commands)?;
        let peak = &answer["combined_peak"];
        if count == 0 || self.query.custom {
            return Ok(());
        }
        let held: u64 = list(&peak["processes"]).iter().map(|row| number(&row["bytes"])).sum();
        let most = self.trace.totals.iter().copied().max().unwrap_or(0);
        same("the combined peak", [number(&peak["bytes"]), held + number(&peak["unknown"]["bytes"])], [most, most])
    }

    fn leaks(&self, answer: &Value) -> Verdict {
        let (band_of, keys) = self.bands();
        let mut expected: BTreeMap<(Key, bool), [u64; 6]> = BTreeMap::new();
        const NEVER: u64 = u64::MAX;
        let Range { begin, end, .. } = self.range;
        for (block, _) in self.trace.blocks.iter().zip(&self.picked).filter(|(_, picked)| **picked) {
            let key = (keys[band_of[block.stack]].clone(), self.suppressed[block.stack]);
            let row = expected.entry(key).or_insert([0, 0, 0, NEVER, 0, 0]);
            if begin <= block.born && block.born < end {
                row[2] += 1;
                row[3] = row[3].min(block.born_ns);
                row[4] = row[4].max(block.born_ns);
            }
            if block.is_left(&self.range) {
                row[0] += block.size;
                row[1] += 1;
                row[5] = row[5].max(self.range.to_ns.saturating_sub(block.born_ns));
            }
        }
        let mut found = BTreeMap::new();
        for row in list(&answer["sites"]) {
            let bytes = number(&row["live_bytes"]);
            same("the end of the sparkline", numbers(&row["sparkline"]).last(), Some(&bytes))?;
            same("the length of the sparkline", list(&row["sparkline"]).len(), 32)?;
            let or = |name: &str, none: u64| row[name].as_u64().unwrap_or(none);
            let [blocks, allocations] = ["live_allocations", "allocations"].map(|name| number(&row[name]));
            let values = [bytes, blocks, allocations, or("first_ns", NEVER), or("last_ns", 0), or("age_ns", 0)];
            let key = (key_of_row(row, Merge::Line), !row["suppressed"].is_null());
            // A site without live blocks is listed only if its blocks were freed at exit.
            same("a place without blocks", blocks == 0, row["verdict"] == "exit")?;
            if blocks > 0 {
                found.insert(key, values);
            }
        }
        expected.retain(|_, values| values[1] > 0);
        same_map("leaks", &found, &expected)
    }

    fn source(&self, answer: &Value) -> Verdict {
        let mut expected = Inclusive::default();
        let place = |level: &Level| Some(json!([level.file.as_ref()?, level.line?]).to_string());
        for (stack, costs) in self.stacks() {
            let levels = &self.trace.stacks[stack];
            let leaf = levels.first().and_then(place);
            expected.add(levels.iter().filter_map(place).collect(), leaf, costs, self.suppressed[stack]);
        }
        let mut found = BTreeMap::new();
        for file in list(&answer["files"]) {
            found.extend(found_inclusive(&file["lines"], |row| json!([file["file"], row["line"]]).to_string()));
        }
        same_map("source", &found, &expected.named())
    }

    fn suppressions(&self, answer: &Value) -> Verdict {
        let mut expected: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        for (stack, costs) in self.stacks().filter(|(_, costs)| costs.live_allocations > 0) {
            let Some(pattern) = self.trace.suppressed(stack, &self.witness.patterns) else { continue };
            let row = expected.entry(self.witness.patterns[pattern].clone()).or_default();
            row.iter_mut().zip([1, costs.live_bytes, costs.live_allocations]).for_each(|(sum, value)| *sum += value);
        }
        let values = |row: &Value| ["matches", "leaked_bytes", "leaked_allocations"].map(|name| number(&row[name]));
        let row = |row: &Value| (row["pattern"].as_str().unwrap().to_owned(), values(row));
        same_map("suppressions", &list(&answer["suppressions"]).iter().map(row).collect(), &expected)
    }

    fn diff(&self, answer: &Value) -> Verdict {
        let cost = self.query.cost("diff");
        let base = self.query.base().expect("a base");
        let base = self.witness.ask(&base);
        let group = |stack: usize| {
            let level = match self.query.by_function {
                true => self.trace.shown(stack, &Query { collapse: false, ..self.query.clone() })[0],
                false => self.blamed(stack),
            };
            let known = level.cloned().unwrap_or_default();
            json!([known.function, label(level, Merge::Function), known.module]).to_string()
        };
        let (before, after) = (base.values(cost, group), self.values(cost, group));
        let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
        let of = |values: &BTreeMap<Key, i64>, key: &Key| values.get(key).copied().unwrap_or(0);
        let expected = keys.into_iter().map(|key| {
            let (before, after) = (of(&before, key), of(&after, key));
            (key.clone(), [before, after, after - before])
        });
        let mut found: BTreeMap<Key, [i64; 3]> = BTreeMap::new();
        for row in list(&answer["functions"]) {
            let key = json!([row["function"], row["short"], row["module"]]).to_string();
            let values = ["before", "after", "delta"].map(|name| row[name].as_i64().unwrap());
            found.entry(key).or_default().iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        same("cost", answer["cost"].as_str(), Some(cost))?;
        same("base_total", answer["base_total"].as_i64(), Some(before.values().sum()))?;
        same_map("diff", &found, &expected.collect())
    }
}

/// Sums in which a stack counts once for each row that contains it.
#[derive(Default)]
struct Inclusive(BTreeMap<Key, (Sum, Sum)>);

type Named = (BTreeMap<String, u64>, BTreeMap<String, u64>);

impl Inclusive {
    fn add(&mut self, rows: BTreeSet<Key>, leaf: Option<Key>, costs: &Costs, is_suppressed: bool) {
        rows.into_iter().for_each(|row| self.0.entry(row).or_default().0.add(costs, is_suppressed));
        if let Some(leaf) = leaf {
            self.0.entry(leaf).or_default().1.add(costs, is_suppressed);
        }
    }

    fn named(self) -> BTreeMap<Key, Named> {
        self.0.into_iter().map(|(key, (inclusive, own))| (key, (inclusive.named(), own.named()))).collect()
    }
}

/// Panics if two rows have the same key, because then each would have only a part of the costs.
fn found_inclusive(rows: &Value, key: impl Fn(&Value) -> Key) -> BTreeMap<Key, Named> {
    let mut found = BTreeMap::new();
    for row in list(rows) {
        let costs = (named(&row["inclusive"]), named(&row["self"]));
        assert!(found.insert(key(row), costs).is_none(), "two rows for {}", key(row));
    }
    found
}

fn flatten(rows: &Value, path: &mut Vec<Key>, merge: Merge, found: &mut BTreeMap<Vec<Key>, Named>) {
    for row in list(rows) {
        path.push(key_of_row(row, merge));
        let costs = (named(&row["total"]), named(&row["self"]));
        assert!(found.insert(path.clone(), costs).is_none(), "two rows for {path:?}");
        flatten(&row["children"], path, merge, found);
        path.pop();
    }
}
