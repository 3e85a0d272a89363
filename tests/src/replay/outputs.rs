//! Compares text, `print --json` and exports with the naive replay.
use super::rows::{Sum, key};
use super::trace::{Level, Trace};
use super::views::{Asked, Verdict, list, named, number, numbers, same, same_map, shown_stack};
use super::{Costs, Merge, Query, Range, When};
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

/// Checks the costs of each allocator's blocks.
pub fn check_json_allocators(asked: &Asked<'_>, report: &Value) -> Verdict {
    let mut found = BTreeMap::new();
    for row in list(&report["allocators"]) {
        let mut costs = row.as_object().cloned().unwrap_or_default();
        let name = costs.remove("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        found.insert(name, named(&Value::Object(costs)));
    }
    let names = json_row(&Costs::default(), false).into_keys().collect::<Vec<_>>();
    let only = |costs: BTreeMap<String, u64>| {
        let suppressed = |of: &str| costs[&format!("live_{of}")] - costs[&format!("leaked_{of}")];
        let value = |name: &str| match name {
            "suppressed_bytes" => suppressed("bytes"),
            "suppressed_allocations" => suppressed("allocations"),
            name => costs[name],
        };
        names.iter().map(|name| (name.clone(), value(name))).collect::<BTreeMap<_, _>>()
    };
    let expected = asked.by_allocator().into_iter().map(|(name, costs)| (name, only(costs))).collect();
    same_map("JSON's allocators", &found, &expected)
}

/// Checks one list. With `--cost` its rows have the field `value`, and rows whose value is 0 are left out.
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

/// The words for memory that was not freed. It is called leaked only if the range reaches the end of the trace.
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
    if asked.range().from_ns > 0 || costs.base_allocations > 0 {
        let grown = costs.live_bytes as i64 - costs.base_bytes as i64;
        let amount = |bytes: u64, count: u64| format!("{} in {}", size(bytes), blocks(count));
        lines.push(format!("live at the start: {}\n", amount(costs.base_bytes, costs.base_allocations)));
        lines.push(format!("grown by: {}\n", bytes(grown)));
        lines.push(format!("still live from this range: {}\n", amount(costs.kept_bytes, costs.kept_allocations)));
    }
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
    /// The value of each stack.
    values: Vec<i64>,
}

/// The number of stacks that text shows of a group.
const SHOWN_STACKS: usize = 5;

impl Group {
    /// The line after the stacks that are shown, if there are more.
    fn rest(&self, cost: &str) -> Option<String> {
        let mut values = self.values.clone();
        values.sort_unstable_by_key(|value| std::cmp::Reverse(value.unsigned_abs()));
        let hidden = values.get(SHOWN_STACKS..).filter(|hidden| !hidden.is_empty())?;
        Some(format!("  and {} from {} other places", amount(hidden.iter().sum(), cost), hidden.len()))
    }

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
                let of = format!("{temporary} temporary allocations of {calls} allocations in total");
                // A block that was allocated before the range may be freed in it, so this is not always a share.
                if calls == 0 || temporary > calls {
                    return format!("{of} from");
                }
                format!("{of} ({:.2}%) from", temporary as f64 * 100.0 / calls as f64)
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
        group.values.push(costs.value(cost, asked.suppressed[stack]));
    }
    let mut expected: Vec<&Group> = groups.values().filter(|group| group.value != 0).collect();
    expected.sort_by_key(|group| std::cmp::Reverse(group.value.unsigned_abs()));
    let mut rests: Vec<String> = expected.iter().filter_map(|group| group.rest(cost)).collect();
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
    let lines = |end: &str| -> Vec<String> {
        part.lines().take_while(is_row).filter(|line| line.ends_with(end)).map(str::to_owned).collect()
    };
    let (mut found, mut found_rests) = (lines(" from"), lines(" other places"));
    // Rows of equal cost may be in any order.
    [&mut expected, &mut found, &mut rests, &mut found_rests].into_iter().for_each(|list| list.sort());
    same(&heading, found, expected)?;
    // Of two stacks that grew and shrank equally much, either may be shown.
    if cost == "growth" { Ok(()) } else { same(&format!("{heading}, other places"), found_rests, rests) }
}

/// A value as text shows it.
fn amount(value: i64, cost: &str) -> String {
    let is_count = matches!(cost, "allocations" | "temporary" | "deallocations");
    if is_count { value.to_string() } else { bytes(value) }
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
        let key = key(asked.blamed(stack), Merge::Line);
        *values.entry(key).or_default() += costs.value(cost, asked.suppressed[stack]);
    }
    let mut expected: Vec<i64> = values.into_values().filter(|value| *value != 0).collect();
    expected.sort_unstable_by_key(|value| std::cmp::Reverse(value.unsigned_abs()));
    let Some(part) = text.split(&format!("\n{heading}\n")).nth(1) else {
        return same(&heading, expected.is_empty() || !asked.trace().has_own_code(), true);
    };
    let mut expected: Vec<String> = expected.iter().map(|value| amount(*value, cost)).collect();
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

/// Checks a flame graph: each level of the stacks has a box with its cost, unless the box would be too narrow.
pub fn check_svg(asked: &Asked<'_>, cost: &str, text: &str) -> Verdict {
    const WIDTH: f64 = 1200.0;
    const NARROWEST: f64 = 0.3;
    const HEIGHT: f64 = 17.0;
    let mut tree: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (stack, costs) in asked.stacks() {
        let value = costs.value(cost, asked.suppressed[stack]).max(0) as u64;
        let name = folded_name(&asked.trace().stacks[stack], asked.query());
        let path: Vec<String> = std::iter::once("all").chain(name.split(';')).map(escaped).collect();
        (1..=path.len()).for_each(|length| *tree.entry(path[..length].to_vec()).or_default() += value);
    }
    let total = tree.values().max().copied().unwrap_or(0);
    // The depth of a box, its name and its cost.
    let mut expected: BTreeMap<(usize, String, u64), usize> = BTreeMap::new();
    for (path, value) in tree.into_iter().filter(|(_, value)| *value as f64 / total as f64 * WIDTH >= NARROWEST) {
        *expected.entry((path.len() - 1, path.last().cloned().unwrap_or_default(), value)).or_default() += 1;
    }
    let mut boxes = Vec::new();
    for piece in text.split("<g><title>").skip(1) {
        let (title, rest) = piece.split_once("</title>").ok_or("a title without an end")?;
        let (name, value) = title.rsplit_once('\n').ok_or("a title without a cost")?;
        let value = value.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        let y = rest.split("y=\"").nth(1).and_then(|rest| rest.split('"').next()).and_then(|y| y.parse::<f64>().ok());
        let (Some(value), Some(y)) = (value, y) else { return Err(format!("no numbers in {piece}")) };
        boxes.push((y, name.to_owned(), value));
    }
    // The outermost level is drawn lowest.
    let lowest = boxes.iter().map(|(y, ..)| *y).fold(0.0, f64::max);
    let mut found: BTreeMap<(usize, String, u64), usize> = BTreeMap::new();
    for (y, name, value) in boxes {
        *found.entry((((lowest - y) / HEIGHT).round() as usize, name, value)).or_default() += 1;
    }
    same_map(&format!("boxes of the flame graph of {cost}"), &found, &expected)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Checks Massif's snapshots: the highest moment of each of 100 slices, with trees of what was live then.
pub fn check_massif(trace: &Trace, text: &str) -> Verdict {
    const SLICES: u64 = 100;
    let length = trace.runtime_ns / SLICES + 1;
    // Time, bytes, and the number of events up to then.
    let mut highest: BTreeMap<u64, (u64, u64, usize)> = BTreeMap::new();
    let mut births: Vec<usize> = trace.blocks.iter().map(|block| block.born).collect();
    births.sort_unstable();
    for at in births {
        let moment = (trace.times[at], trace.totals[at + 1], at + 1);
        let slice = highest.entry((moment.0 / length).min(SLICES - 1)).or_insert(moment);
        if moment.1 > slice.1 {
            *slice = moment;
        }
    }
    let expected: Vec<(u64, u64)> = highest.values().map(|(ns, total, _)| (ns / 1_000_000, *total)).collect();
    let mut found = Vec::new();
    for (snapshot, moment) in text.split("\nsnapshot=").skip(2).zip(highest.values()) {
        let value = |name: &str| {
            let line = snapshot.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.parse::<u64>().ok()).ok_or_else(|| format!("no {name}"))
        };
        found.push((value("time=")?, value("mem_heap_B=")?));
        if !snapshot.contains("heap_tree=empty") {
            check_massif_tree(trace, moment.2, snapshot)?;
        }
    }
    same("massif's number of snapshots", text.matches("\nsnapshot=").count(), expected.len() + 1)?;
    let peak = trace.totals.iter().copied().max().unwrap_or(0);
    same("massif's highest snapshot", found.iter().map(|(_, total)| *total).max().unwrap_or(0), peak)?;
    same("massif's snapshots", found, expected)
}

/// Checks the tree of one snapshot. A node is named by its callees and itself. It has the bytes that are live after
/// this many `events`, and the number of its callers.
fn check_massif_tree(trace: &Trace, events: usize, snapshot: &str) -> Verdict {
    let mut expected: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for block in trace.blocks.iter().filter(|block| block.size > 0 && block.lives(events)) {
        let names: Vec<String> = trace.stacks[block.stack].iter().map(massif_name).collect();
        (0..=names.len()).for_each(|length| *expected.entry(names[..length].to_vec()).or_default() += block.size);
    }
    let mut found: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    // Of each open node, how many callers are still to come.
    let mut open: Vec<usize> = Vec::new();
    let mut path: Vec<String> = Vec::new();
    for line in snapshot.lines().filter(|line| line.trim_start().starts_with('n')) {
        let depth = line.len() - line.trim_start().len();
        let parts =
            line.trim_start()[1..].split_once(": ").and_then(|(count, rest)| Some((count, rest.split_once(' ')?)));
        let (count, (bytes, name)) = parts.ok_or_else(|| format!("no node: {line}"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("no number: {line}"));
        same("callers of a massif node", open.drain(depth.min(open.len())..).sum::<usize>(), 0)?;
        if let Some(callers) = open.last_mut() {
            *callers = callers.checked_sub(1).ok_or_else(|| format!("more callers than its node says: {line}"))?;
        }
        open.push(number(count)? as usize);
        path.truncate(depth.saturating_sub(1));
        if depth > 0 {
            // Without its address, so that one function at several addresses has one name.
            path.push(name.split_once(": ").map_or(name, |(_, name)| name).to_owned());
        }
        *found.entry(path.clone()).or_default() += number(bytes)?;
    }
    same("callers of a massif node", open.iter().sum::<usize>(), 0)?;
    same_map("massif's tree", &found, &expected)
}

/// The name of a level in Massif's file, for example `foo (a.c:3)`.
fn massif_name(level: &Level) -> String {
    let base = |path: &String| path.rsplit('/').next().unwrap().to_owned();
    let place = match (&level.file, level.line, &level.module) {
        (Some(file), Some(line), _) => format!("{}:{line}", base(file)),
        (Some(file), None, _) => base(file),
        (None, _, Some(module)) => format!("in {module}"),
        (None, _, None) => "in ???".to_owned(),
    };
    format!("{} ({place})", level.function.as_deref().unwrap_or("???")).replace('#', ".")
}

/// Checks KDE's file as its readers interpret it: each event is the number of an allocation class, which is allocated
/// or freed, and an allocation class has a size and a stack.
pub fn check_kde(trace: &Trace, text: &str) -> Verdict {
    let (mut strings, mut pointers) = (vec![String::new()], vec![String::new()]);
    // The pointer and the parent of each stack. Size and stack of each allocation class.
    let mut stacks: Vec<(u64, u64)> = vec![(0, 0)];
    let mut classes: Vec<(u64, u64)> = Vec::new();
    let (mut live, mut highest, mut allocations, mut bytes, mut frees) = (0u64, 0, 0u64, 0u64, 0u64);
    let mut by_stack: BTreeMap<Vec<String>, (u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let hex = |word: &str| u64::from_str_radix(word, 16).map_err(|_| format!("no number: {line}"));
        let numbers = || rest.split(' ').map(hex).collect::<Result<Vec<u64>, String>>();
        match kind {
            "s" => strings.push(rest.split_once(' ').map_or("", |(_, text)| text).to_owned()),
            "i" => {
                let numbers = numbers()?;
                let names: Vec<&str> =
                    numbers.iter().skip(2).step_by(3).map(|name| strings[*name as usize].as_str()).collect();
                pointers.push(trace.kde_frame(&strings[numbers[1] as usize], &names));
            }
            "t" => stacks.push(<[u64; 2]>::try_from(numbers()?).map_err(|_| line.to_owned())?.into()),
            "a" => classes.push(<[u64; 2]>::try_from(numbers()?).map_err(|_| line.to_owned())?.into()),
            "+" => {
                let (size, mut stack) = classes[hex(rest)? as usize];
                (allocations, bytes, live) = (allocations + 1, bytes + size, live + size);
                highest = highest.max(live);
                let mut frames = Vec::new();
                while stack != 0 {
                    let (pointer, parent) = stacks[stack as usize];
                    frames.push(pointers[pointer as usize].clone());
                    stack = parent;
                }
                let sum = by_stack.entry(frames).or_default();
                *sum = (sum.0 + 1, sum.1 + size);
            }
            "-" => (frees, live) = (frees + 1, live - classes[hex(rest)? as usize].0),
            _ => {}
        }
    }
    let range = Range {
        begin: 0,
        end: trace.times.len(),
        from_ns: 0,
        to_ns: trace.runtime_ns,
        instant: false,
        whole_end: false,
    };
    let whole = trace.count(&range, 1, |_| Some(0))[0];
    let by_exec = trace.blocks.iter().filter(|block| block.end.is_some_and(|end| !end.freed)).count() as u64;
    let expected =
        [whole.allocations, whole.allocated_bytes, whole.deallocations + by_exec, whole.live_bytes, whole.peak_bytes];
    same("KDE's file", [allocations, bytes, frees, live, highest], expected)?;
    let mut expected: BTreeMap<Vec<String>, (u64, u64)> = BTreeMap::new();
    for block in &trace.blocks {
        let sum = expected.entry(trace.frames[block.stack].clone()).or_default();
        *sum = (sum.0 + 1, sum.1 + block.size);
    }
    same_map("allocations and bytes of a stack in KDE's file", &by_stack, &expected)
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

/// Checks the slices of a report. A stack has a row in a slice only if something changed, so the last row of each stack
/// says what it holds.
pub fn check_slices(trace: &Trace, slices: &Value) -> Verdict {
    let [times, starts, stacks] = ["time_ns", "start", "stack"].map(|name| numbers(&slices[name]));
    let names = ["allocations", "deallocations", "live_bytes", "peak_bytes"];
    let [allocations, deallocations, live, peaks] = names.map(|name| numbers(&slices[name]));
    let count = times.len() - 1;
    let border = |at: usize| match at {
        0 => 0,
        at if at == count => trace.times.len(),
        at => trace.position(When::Ns(times[at])),
    };
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    for slice in 0..count {
        let (begin, end) = (border(slice), border(slice + 1));
        let range =
            Range { begin, end, from_ns: times[slice], to_ns: times[slice + 1], instant: false, whole_end: false };
        let (peak, peak_ns) = trace.peak(&range);
        let rows = starts[slice] as usize..starts[slice + 1] as usize;
        let sum = |column: &[u64]| column[rows.clone()].iter().sum::<u64>();
        let mut at_peak = held.clone();
        for row in rows.clone() {
            held.insert(stacks[row], live[row]);
            at_peak.insert(stacks[row], peaks[row]);
        }
        let within = |at: usize| begin <= at && at < end;
        let born = trace.blocks.iter().filter(|block| within(block.born)).count() as u64;
        let freed = trace.blocks.iter().filter(|block| block.end.is_some_and(|end| end.freed && within(end.at)));
        let found = [sum(&allocations), sum(&deallocations), held.values().sum(), at_peak.values().sum()];
        let expected = [born, freed.count() as u64, trace.totals[end], trace.totals[peak]];
        same(&format!("slice {slice}, {names:?}"), found, expected)?;
        let highest = ["highest", "highest_ns"].map(|name| number(&slices[name][slice]));
        same(&format!("the highest moment of slice {slice}"), highest, [trace.totals[peak], peak_ns])?;
    }
    Ok(())
}

/// The values of these totals in an answer. `trim`, `merge` and an export to KDE's format must not change them.
pub fn totals(answer: &Value, names: &[&str]) -> Value {
    json!(names.iter().map(|name| answer["totals"][name].clone()).collect::<Vec<_>>())
}
