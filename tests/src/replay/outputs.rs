//! Compares text, `print --json` and exports with the naive replay.
use super::rows::{Sum, key};
use super::trace::{Level, Trace};
use super::views::{Asked, Verdict, list, named, number, same, same_map, shown_stack};
use super::{Costs, Merge, Query, Range};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Text does not show the callers of these functions.
const OUTERMOST: [&str; 3] = ["main", "__libc_start_main", "__static_initialization_and_destruction_0"];

/// The value by which a list is sorted, and the other costs of a row.
type JsonRow = (i64, BTreeMap<String, u64>);

/// Checks the totals and all lists of `print --json`. The session's own totals (RSS and so on) are not compared.
pub fn check_json(asked: &Asked<'_>, report: &Value) -> Verdict {
    let Sum { costs, leaked_bytes, leaked_allocations } = asked.sum();
    let expected = [
        ("allocations", costs.allocations),
        ("deallocations", costs.deallocations),
        ("allocated_bytes", costs.allocated_bytes),
        ("temporary", costs.temporary),
        ("leaked_bytes", leaked_bytes),
        ("leaked_allocations", leaked_allocations),
        ("suppressed_bytes", costs.live_bytes - leaked_bytes),
        ("suppressed_allocations", costs.live_allocations - leaked_allocations),
        ("peak_bytes", costs.peak_bytes),
        ("peak_allocations", costs.peak_allocations),
        ("peak_time_ns", asked.peak_time_ns()),
    ];
    let totals = named(&report["totals"]);
    for (name, value) in expected {
        same(&format!("JSON's total {name}"), totals.get(name), Some(&value))?;
    }
    let lists = [
        ("peak", "peak_bytes"),
        ("leaked", "leaked_bytes"),
        ("allocations", "allocations"),
        ("temporary", "temporary"),
    ];
    if let Some(cost) = asked.query().cost {
        let others = lists.iter().filter(|(name, _)| *name != cost && !report[name].is_null());
        same("lists that were not asked for", others.count(), 0)?;
        return check_json_list(asked, cost, "value", report);
    }
    lists.iter().try_for_each(|(name, order)| check_json_list(asked, name, order, report))
}

/// Checks one list. With `--cost` its rows have the field `value`, and rows without any cost are left out.
fn check_json_list(asked: &Asked<'_>, name: &str, order: &str, report: &Value) -> Verdict {
    let mut rows: BTreeMap<String, Vec<JsonRow>> = BTreeMap::new();
    for (stack, costs) in asked.stacks() {
        let value = costs.value(name, asked.suppressed[stack]);
        if value != 0 || order != "value" {
            rows.entry(json_frames(asked, stack)).or_default().push((value, json_row(costs, asked.suppressed[stack])));
        }
    }
    rows.values_mut().for_each(|rows| rows.sort());
    let mut found: BTreeMap<String, Vec<JsonRow>> = BTreeMap::new();
    let mut least = u64::MAX;
    for row in list(&report[name]) {
        let value = row[order].as_i64().ok_or_else(|| format!("no {order} in {row}"))?;
        same(&format!("order of {name}"), value.unsigned_abs() <= least, true)?;
        least = value.unsigned_abs();
        let names = json_row(&Costs::default(), false).into_keys();
        let costs = names.map(|name| (name.clone(), number(&row[&name]))).collect();
        found.entry(format!("{} {}", frames(&row["frames"]), row["levels_left_out"])).or_default().push((value, costs));
    }
    found.values_mut().for_each(|rows| rows.sort());
    same_map(&format!("JSON's list {name}"), &found, &rows)
}

/// The frames of a row, and the number that `--depth` leaves out.
fn json_frames(asked: &Asked<'_>, stack: usize) -> String {
    let shown = asked.trace().shown(stack, asked.query()).into_iter().flatten().cloned();
    let mut levels: Vec<Level> = shown.collect();
    let (all, depth) = (levels.len(), asked.query().depth);
    levels.truncate(if depth == 0 { all } else { depth });
    let left_out = if depth == 0 { Value::Null } else { json!(all - levels.len()) };
    format!("{} {left_out}", shown_stack(&levels))
}

fn json_row(costs: &Costs, is_suppressed: bool) -> BTreeMap<String, u64> {
    let (bytes, blocks) = (costs.live_bytes, costs.live_allocations);
    let (leaked, suppressed) = if is_suppressed { ((0, 0), (bytes, blocks)) } else { ((bytes, blocks), (0, 0)) };
    let all = [
        ("allocations", costs.allocations),
        ("allocated_bytes", costs.allocated_bytes),
        ("temporary", costs.temporary),
        ("leaked_bytes", leaked.0),
        ("leaked_allocations", leaked.1),
        ("suppressed_bytes", suppressed.0),
        ("suppressed_allocations", suppressed.1),
        ("peak_bytes", costs.peak_bytes),
        ("peak_allocations", costs.peak_allocations),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The frames of a JSON row in the form of `shown_stack`.
fn frames(list_of: &Value) -> String {
    let names = ["function", "short", "file", "line", "module", "offset", "class", "inlined"];
    let level = |level: &Value| Value::Array(names.iter().map(|name| level[name].clone()).collect());
    Value::Array(list(list_of).iter().map(level).collect()).to_string()
}

/// Formats bytes as KDE does: powers of 1000, two decimals, the first letter of the unit.
fn bytes(value: i64) -> String {
    let (mut number, mut units) = (value as f64, "BKMGT".chars());
    let mut unit = units.next();
    while number.abs() > 1000.0 {
        number /= 1000.0;
        unit = units.next();
    }
    if unit == Some('B') { format!("{value}B") } else { format!("{number:.2}{}", unit.expect("a unit")) }
}

/// Formats a time as it is written in headings.
fn seconds(ns: u64) -> String {
    format!("{:.3}s", ns as f64 / 1e9)
}

fn blocks(count: u64) -> String {
    if count == 1 { "1 block".into() } else { format!("{count} blocks") }
}

/// The words for memory that was not freed. It is called leaked only if the program has ended.
fn left(asked: &Asked<'_>) -> (String, &'static str) {
    if asked.range().to_ns >= asked.trace().runtime_ns {
        return ("leaked".into(), "leaked");
    }
    (format!("still live at {}", seconds(asked.range().to_ns)), "still live")
}

/// Checks the text of `print -n N` with all possible lists: the totals and the rows of every list.
pub fn check_text(asked: &Asked<'_>, text: &str) -> Verdict {
    let own = text.split("\nCUSTOM ALLOCATORS\n").next().unwrap_or(text);
    for line in totals_of_text(asked) {
        same(&format!("the line `{}`", line.trim_end()), own.contains(&format!("\n{line}")), true)?;
    }
    if asked.stacks().next().is_none() {
        let reasons = ["nothing was ", "no stack matches ", "the trace has no allocations"];
        let is_said = own.lines().any(|line| reasons.iter().any(|reason| line.starts_with(reason)));
        return same("why there is nothing", (is_said, own.contains(" from\n")), (true, false));
    }
    let is_instant = asked.range().instant;
    let mut costs = if is_instant { vec![] } else { vec!["allocations", "peak", "leaked", "temporary"] };
    costs.extend(asked.query().cost.or(is_instant.then_some("live")));
    for cost in &costs {
        check_section(asked, cost, own)?;
    }
    costs.retain(|cost| is_instant || matches!(*cost, "peak" | "leaked") || asked.query().cost == Some(*cost));
    costs.iter().try_for_each(|cost| check_own_code(asked, cost, own))
}

fn totals_of_text(asked: &Asked<'_>) -> Vec<String> {
    let Sum { costs, leaked_bytes, leaked_allocations } = asked.sum();
    let size = |value: u64| bytes(value as i64);
    if asked.range().instant {
        let (live, count) = match asked.query().cost {
            Some("leaked") => (leaked_bytes, leaked_allocations),
            _ => (costs.live_bytes, costs.live_allocations),
        };
        let time = seconds(asked.range().to_ns);
        return vec![format!("total memory live at {time}: {} in {}\n", size(live), blocks(count))];
    }
    let (state, _) = left(asked);
    let mut lines = vec![
        format!("calls to allocation functions: {} (", costs.allocations),
        format!("temporary memory allocations: {} (", costs.temporary),
        format!("peak heap memory consumption: {}\n", size(costs.peak_bytes)),
        format!("total memory {state}: {}\n", size(leaked_bytes)),
        format!("total memory allocated: {} in {}\n", size(costs.allocated_bytes), blocks(costs.allocations)),
        format!("deallocations: {} of {}\n", costs.deallocations, size(costs.freed_bytes)),
        format!("blocks at the peak: {}, at {}\n", costs.peak_allocations, seconds(asked.peak_time_ns())),
        format!("blocks {state}: {leaked_allocations}\n"),
    ];
    let suppressed = costs.live_bytes - leaked_bytes;
    if suppressed > 0 {
        lines.push(format!("suppressed leaks: {}\n", size(suppressed)));
    }
    lines
}

/// The heading above the list of a cost.
fn heading(asked: &Asked<'_>, cost: &str) -> String {
    let time = seconds(asked.range().to_ns);
    match cost {
        "allocations" => "MOST CALLS TO ALLOCATION FUNCTIONS".into(),
        "peak" => "PEAK MEMORY CONSUMERS".into(),
        "leaked" if left(asked).1 == "leaked" => "MEMORY LEAKS".into(),
        "leaked" => format!("STILL LIVE AT {time}"),
        "temporary" => "MOST TEMPORARY ALLOCATIONS".into(),
        "live" => format!("LIVE AT {time}"),
        "allocated" => "MOST MEMORY ALLOCATED".into(),
        "deallocations" => "MOST DEALLOCATIONS".into(),
        "kept" => "ALLOCATED IN THIS TIME AND STILL LIVE".into(),
        "growth" => "GROWTH".into(),
        other => panic!("no cost {other}"),
    }
}

/// Stacks with the same innermost level.
#[derive(Clone, Debug, Default)]
struct Group {
    costs: Costs,
    value: i64,
}

impl Group {
    /// The line above the stacks of the group.
    fn label(&self, asked: &Asked<'_>, cost: &str) -> String {
        let Costs { allocations: calls, temporary, .. } = self.costs;
        let (value, peak) = (self.value, bytes(self.costs.peak_bytes as i64));
        let size = bytes(value);
        match cost {
            "allocations" => format!("{calls} calls to allocation functions with {peak} peak consumption from"),
            "peak" => format!("{peak} peak memory consumed over {calls} calls from"),
            "leaked" => format!("{size} {} over {calls} calls from", left(asked).1),
            "temporary" => {
                let share = if calls == 0 { 0.0 } else { temporary as f64 * 100.0 / calls as f64 };
                format!("{temporary} temporary allocations of {calls} allocations in total ({share:.2}%) from")
            }
            "live" => format!("{size} live in {} from", blocks(self.costs.live_allocations)),
            "allocated" => format!("{size} allocated over {calls} calls from"),
            "deallocations" => format!("{value} deallocations from"),
            "kept" => format!("{size} allocated in this time and still live from"),
            "growth" => format!("{size} growth from"),
            other => panic!("no cost {other}"),
        }
    }
}

/// The levels up to and including the frame whose innermost function is in `OUTERMOST`.
fn levels_of_text(levels: &[Level]) -> &[Level] {
    let (mut begins_frame, mut is_over) = (true, false);
    for (at, level) in levels.iter().enumerate() {
        if begins_frame && is_over {
            return &levels[..at];
        }
        is_over |= begins_frame && level.function.as_deref().is_some_and(|name| OUTERMOST.contains(&name));
        begins_frame = !level.inlined;
    }
    levels
}

/// Checks one list. A row combines the stacks whose innermost shown level is the same.
fn check_section(asked: &Asked<'_>, cost: &str, text: &str) -> Verdict {
    let is_shown = |level: &&Level| !level.class.is_some_and(|class| asked.query().hide.contains(&class));
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for (stack, costs) in asked.stacks() {
        let leaf = levels_of_text(&asked.trace().stacks[stack]).iter().find(is_shown);
        let group = groups.entry(format!("{}{}", leaf.is_some(), key(leaf, Merge::Line))).or_default();
        group.costs.add(costs);
        group.value += costs.value(cost, asked.suppressed[stack]);
    }
    let mut expected: Vec<&Group> = groups.values().filter(|group| group.value != 0).collect();
    expected.sort_by_key(|group| std::cmp::Reverse(group.value.unsigned_abs()));
    let mut expected: Vec<String> = expected.into_iter().map(|group| group.label(asked, cost)).collect();
    let heading = heading(asked, cost);
    let part = text.split(&format!("\n{heading}\n")).nth(1).ok_or(format!("no {heading}"))?;
    // The list ends at the totals or at the next heading. Only headings are in capital letters, except for the unit of
    // a time.
    let is_heading = |line: &str| {
        let line = line.strip_suffix('s').unwrap_or(line);
        line.starts_with(|c: char| c.is_ascii_uppercase())
            && line.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || " ,.".contains(c))
    };
    let is_row = |line: &&str| {
        !is_heading(line) && !line.starts_with("total runtime: ") && !line.starts_with("total memory live at ")
    };
    let rows = part.lines().take_while(is_row).filter(|line| line.ends_with(" from"));
    let mut found: Vec<String> = rows.map(str::to_owned).collect();
    // Rows of equal cost may be in any order.
    expected.sort();
    found.sort();
    same(&heading, found, expected)
}

fn check_own_code(asked: &Asked<'_>, cost: &str, text: &str) -> Verdict {
    let what = match (cost, asked.range().instant) {
        ("peak", _) => "AT THE PEAK".into(),
        ("leaked", false) if left(asked).1 == "leaked" => "LEAKED".into(),
        _ => heading(asked, cost),
    };
    let heading = format!("IN YOUR OWN CODE, {what}");
    let mut values: BTreeMap<String, i64> = BTreeMap::new();
    for (stack, costs) in asked.stacks() {
        let key = key(asked.trace().blamed(stack), Merge::Line);
        *values.entry(key).or_default() += costs.value(cost, asked.suppressed[stack]);
    }
    let mut expected: Vec<i64> = values.into_values().filter(|value| *value != 0).collect();
    expected.sort_unstable_by_key(|value| std::cmp::Reverse(value.unsigned_abs()));
    let Some(part) = text.split(&format!("\n{heading}\n")).nth(1) else {
        return same(&heading, expected.is_empty() || !asked.trace().has_own_code(), true);
    };
    let is_count = matches!(cost, "allocations" | "temporary" | "deallocations");
    let number = |value: &i64| if is_count { value.to_string() } else { bytes(*value) };
    let mut expected: Vec<String> = expected.iter().map(number).collect();
    let rows = part.lines().take_while(|line| !line.is_empty());
    let mut found: Vec<String> = rows.map(|line| line.split_whitespace().next().unwrap_or("").to_owned()).collect();
    // Rows of equal size with different signs may be in any order.
    expected.sort();
    found.sort();
    same(&heading, found, expected)
}

impl Trace {
    fn has_own_code(&self) -> bool {
        self.stacks.iter().any(|levels| levels.iter().any(|level| level.class == Some("program")))
    }
}

/// Checks folded stacks: `outermost;...;innermost cost`.
pub fn check_folded(asked: &Asked<'_>, cost: &str, text: &str) -> Verdict {
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, costs) in asked.stacks() {
        let value = costs.value(cost, asked.suppressed[stack]).max(0) as u64;
        if value > 0 {
            *expected.entry(folded_name(&asked.trace().stacks[stack], asked.query())).or_default() += value;
        }
    }
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').ok_or_else(|| format!("no cost: {line}"))?;
        let is_new = found.insert(stack.to_owned(), value.parse().map_err(|_| format!("no cost: {line}"))?).is_none();
        same(&format!("`{stack}` has one line"), is_new, true)?;
    }
    same_map(&format!("folded stacks of {cost}"), &found, &expected)
}

fn folded_name(levels: &[Level], query: &Query) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let last = levels.iter().position(|level| level.function.as_deref().is_some_and(|name| OUTERMOST.contains(&name)));
    let of_interest = &levels[..last.map_or(levels.len(), |last| last + 1)];
    let is_shown = |level: &&Level| !level.class.is_some_and(|class| query.hide.contains(&class));
    let mut shown: Vec<&Level> = of_interest.iter().filter(is_shown).collect();
    if query.collapse {
        shown.dedup_by_key(|level| key(Some(level), Merge::Function));
    }
    let name = |level: &Level| {
        let offset = level.offset.unwrap_or(0);
        let function = match (&level.function, &level.module) {
            (Some(function), _) => function.clone(),
            (None, Some(module)) => format!("{}+{offset:#x}", base(module)),
            (None, None) => format!("{offset:#x}"),
        };
        let whole = level.file.as_ref().map_or(function.clone(), |file| format!("{function} ({})", base(file)));
        whole.replace(';', ":")
    };
    let names: Vec<String> = shown.into_iter().rev().map(name).collect();
    if names.is_empty() { "??".into() } else { names.join(";") }
}

/// Checks a flame graph: the widths of the bottom row add up to the cost.
pub fn check_svg(asked: &Asked<'_>, cost: &str, text: &str) -> Verdict {
    let total: i64 = asked.stacks().map(|(stack, costs)| costs.value(cost, asked.suppressed[stack]).max(0)).sum();
    let mut bottom: BTreeMap<i64, u64> = BTreeMap::new();
    for piece in text.split("<g><title>").skip(1) {
        let (title, rest) = piece.split_once("</title>").ok_or("a title without an end")?;
        let value =
            title.rsplit('\n').next().and_then(|line| line.split(' ').next()).and_then(|word| word.parse().ok());
        let y = rest.split("y=\"").nth(1).and_then(|rest| rest.split('"').next()).and_then(|y| y.parse::<f64>().ok());
        let (Some(value), Some(y)) = (value, y) else { return Err(format!("no numbers in {piece}")) };
        let value: u64 = value;
        *bottom.entry(-(y as i64)).or_default() += value;
    }
    // The outermost level is drawn lowest.
    same("the bottom row of the flame graph", bottom.values().next().copied().unwrap_or(0), total as u64)
}

/// Checks Massif's snapshots: the highest moment of each of 100 slices, with trees that add up.
pub fn check_massif(trace: &Trace, text: &str) -> Verdict {
    const SLICES: u64 = 100;
    let length = trace.runtime_ns / SLICES + 1;
    let mut highest: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut births: Vec<usize> = trace.blocks.iter().map(|block| block.born).collect();
    births.sort_unstable();
    for at in births {
        let (ns, total) = (trace.times[at], trace.totals[at + 1]);
        let slice = highest.entry((ns / length).min(SLICES - 1)).or_insert((ns, total));
        if total > slice.1 {
            *slice = (ns, total);
        }
    }
    let expected: Vec<(u64, u64)> = highest.into_values().map(|(ns, total)| (ns / 1_000_000, total)).collect();
    let mut found = Vec::new();
    for snapshot in text.split("\nsnapshot=").skip(2) {
        let value = |name: &str| {
            let line = snapshot.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.parse::<u64>().ok()).ok_or_else(|| format!("no {name}"))
        };
        found.push((value("time=")?, value("mem_heap_B=")?));
        check_massif_tree(snapshot, value("mem_heap_B=")?)?;
    }
    let peak = trace.totals.iter().copied().max().unwrap_or(0);
    same("massif's highest snapshot", found.iter().map(|(_, total)| *total).max().unwrap_or(0), peak)?;
    same("massif's snapshots", found, expected)
}

/// The size of a node is the sum of its children's, or it has no children.
fn check_massif_tree(snapshot: &str, total: u64) -> Verdict {
    let node = |line: &str| {
        let depth = line.len() - line.trim_start().len();
        let (count, rest) = line.trim_start().strip_prefix('n')?.split_once(": ")?;
        Some((depth, count.parse::<usize>().ok()?, rest.split(' ').next()?.parse::<u64>().ok()?))
    };
    let nodes: Vec<(usize, usize, u64)> = snapshot.lines().filter_map(node).collect();
    if let Some((_, _, root)) = nodes.first() {
        same("the root of massif's tree", *root, total)?;
    }
    for (at, (depth, count, bytes)) in nodes.iter().enumerate() {
        let below = nodes[at + 1..].iter().take_while(|(below, ..)| below > depth);
        let children: Vec<u64> = below.filter(|(below, ..)| *below == depth + 1).map(|(_, _, bytes)| *bytes).collect();
        same("children of a massif node", children.len(), *count)?;
        if !children.is_empty() {
            same("bytes of a massif node", children.iter().sum::<u64>() <= *bytes, true)?;
        }
    }
    Ok(())
}

/// Checks KDE's file as its readers interpret it: each event is the number of an allocation class, which is allocated
/// or freed.
pub fn check_kde(trace: &Trace, text: &str) -> Verdict {
    let mut sizes = Vec::new();
    let (mut live, mut highest, mut allocations, mut bytes, mut frees) = (0u64, 0, 0u64, 0u64, 0u64);
    for line in text.lines() {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or("");
        let mut value = || words.next().and_then(|word| u64::from_str_radix(word, 16).ok()).ok_or(line.to_owned());
        match kind {
            "a" => sizes.push(value()?),
            "+" => {
                let size = sizes[value()? as usize];
                (allocations, bytes, live) = (allocations + 1, bytes + size, live + size);
                highest = highest.max(live);
            }
            "-" => (frees, live) = (frees + 1, live - sizes[value()? as usize]),
            _ => {}
        }
    }
    let range = Range { begin: 0, end: trace.times.len(), from_ns: 0, to_ns: trace.runtime_ns, instant: false };
    let whole = trace.count(&range, 1, |_| Some(0))[0];
    let by_exec = trace.blocks.iter().filter(|block| block.end.is_some_and(|end| !end.freed)).count() as u64;
    let expected =
        [whole.allocations, whole.allocated_bytes, whole.deallocations + by_exec, whole.live_bytes, whole.peak_bytes];
    same("KDE's file", [allocations, bytes, frees, live, highest], expected)
}

/// Checks `print -H`: the number of allocated blocks of each size.
pub fn check_histogram(asked: &Asked<'_>, text: &str) -> Verdict {
    let found: BTreeMap<String, String> =
        text.lines().filter_map(|line| line.split_once('\t')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for block in asked.allocated() {
        *expected.entry(block.size).or_default() += 1;
    }
    let expected = expected.into_iter().map(|(size, count)| (size.to_string(), count.to_string())).collect();
    same_map("the histogram", &found, &expected)
}

/// The totals that `trim`, `merge` and an export to KDE's format must not change.
pub fn totals(answer: &Value, names: &[&str]) -> Value {
    json!(names.iter().map(|name| answer["totals"][name].clone()).collect::<Vec<_>>())
}
