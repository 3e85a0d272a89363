//! The sections that KDE's report does not have: the code to blame, verdicts about leaks, and what is missing in the
//! numbers.
use super::paint::Paint;
use super::process_section::shortened;
use super::text::Left;
use super::units::{blocks, bytes};
use crate::memory_lines::memory_lines;
use analysis::view::{
    Blamed, FunctionDiff, Leak, MapRegion, State, SuppressionRow, WrapperRow, blamed_node, by_blamed, gives_back_bytes,
    highest_map, label, map_regions, memory_hints, together_gives_back_bytes, wrapper_rows,
};
use analysis::{Cost, Definitions, Intervals, Profile, Query, StackTable, Variances, numbers, to_signed};
use format::{Exit, Fragmentation, MemoryInstant, MemoryMap, SymbolState, Variance};
use heaptrack_trace::OpenTrace;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// The number of rows in the larger tables, unless the user gives another one.
const ROWS: usize = 20;

/// Returns how the program ended.
pub fn ending(trace: &OpenTrace) -> String {
    let Some(summary) = &trace.engine().definitions().summary else {
        return "not finished: still being recorded, or cut".into();
    };
    let exit = match summary.exit {
        Exit::Unknown => "it is not known how the program ended".into(),
        Exit::Code(code) => format!("the program ended with code {code}"),
        Exit::Signal(signal) => format!("the program was ended by signal {signal}"),
        Exit::Detached => "the program ran on".into(),
    };
    let exit =
        if trace.engine().definitions().session.attached { format!("attached while it ran; {exit}") } else { exit };
    if trace.is_complete() { exit } else { format!("{exit}; the trace is not complete") }
}

/// Writes, for each cost, the list of the innermost levels in the user's own code.
pub fn blamed(
    out: &mut impl Write,
    profile: &Profile,
    table: &StackTable,
    query: &Query,
    costs: &[(Cost, String)],
    limit: usize,
    paint: Paint,
) -> io::Result<()> {
    if !table.stacks.iter().any(|stack| stack.blamed.is_some()) {
        return Ok(());
    }
    for (cost, heading) in costs {
        let rows = by_blamed(profile, table, query, *cost);
        // Growth and shrinkage may add up to zero, so shares are of the sum of their absolute values.
        let total = rows.iter().map(|row| row.value.saturating_abs()).fold(0, i64::saturating_add);
        if rows.is_empty() {
            continue;
        }
        writeln!(out, "{}", paint.heading(heading))?;
        for row in rows.iter().take(limit) {
            let value = if cost.is_bytes() { bytes(row.value) } else { row.value.to_string() };
            let share = row.value as f64 * 100.0 / total as f64;
            let share = if paint.is_on { paint.bar(row.value, total) } else { format!("{share:5.1} %  ") };
            writeln!(out, "{} {share}{}", paint.number(&format!("{value:>10}")), place(row, table, paint))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A sentence about the functions that count as a part of the allocator, if there are any.
pub fn wrappers(table: &StackTable) -> Option<String> {
    const SHOWN: usize = 4;
    let rows = wrapper_rows(table);
    let name = |row: &WrapperRow<'_>| row.short.or(row.function).unwrap_or("?").to_owned();
    let names: Vec<String> = rows.iter().take(SHOWN).map(name).map(|name| shortened(&name, 24)).collect();
    let more = match rows.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let verb = if rows.len() == 1 { "counts" } else { "count" };
    (!names.is_empty())
        .then(|| format!("{}{more} {verb} as the allocator (undo: --not-wrapper NAME)", names.join(", ")))
}

fn place(row: &Blamed, table: &StackTable, paint: Paint) -> String {
    let level = table.level(row.node);
    let name = label(table, level);
    let name = if table.stack(row.stack).blamed.is_some() { paint.own(&name) } else { name };
    match level.and_then(|level| Some((table.text(level.file)?, level.line))) {
        Some((file, Some(line))) => format!("{name}  {file}:{line}"),
        Some((file, None)) => format!("{name}  {file}"),
        None => name,
    }
}

/// Writes a verdict for each place that holds memory at the end.
pub fn verdicts(
    out: &mut impl Write,
    leaks: &[Leak],
    table: &StackTable,
    limit: Option<usize>,
    paint: Paint,
) -> io::Result<()> {
    let limit = limit.unwrap_or(ROWS);
    let shown = || leaks.iter().filter(|leak| leak.suppressed.is_none());
    if shown().next().is_none() {
        return Ok(());
    }
    writeln!(out, "{}", paint.heading("LEAKS, JUDGED"))?;
    for leak in shown().take(limit) {
        let level = table.level(leak.node);
        let place = match level.and_then(|level| Some((table.text(level.file)?, level.line?))) {
            Some((file, line)) => format!("{}  {file}:{line}", label(table, level)),
            None => label(table, level),
        };
        let value = format!("{:>10}", bytes(to_signed(leak.live_bytes)));
        let blocks = blocks(to_signed(leak.live_allocations));
        writeln!(out, "{} in {blocks}: {}  {place}", paint.number(&value), paint.own(leak.verdict.name()))?;
        writeln!(out, "{:>10} {}", "", paint.faint(&leak.reason))?;
    }
    let rest = shown().count().saturating_sub(limit);
    if rest > 0 {
        writeln!(out, "{:>10} and {rest} more places", "")?;
    }
    writeln!(out)
}

/// Writes KDE's table of suppressions.
pub fn suppressions(out: &mut impl Write, rows: &[SuppressionRow]) -> io::Result<()> {
    writeln!(out, "Suppressions used:\n")?;
    writeln!(out, "{:>16} {:>16} pattern", "matches", "leaked")?;
    for row in rows {
        writeln!(out, "{:>16} {:>16} {}", row.matches, bytes(to_signed(row.leaked_bytes)), row.pattern)?;
    }
    writeln!(out)
}

/// Writes numbers that KDE's totals do not have. `leaked_blocks` are the blocks that were not freed and are no known
/// leaks.
pub fn details(
    out: &mut impl Write,
    trace: &OpenTrace,
    table: &StackTable,
    profile: &Profile,
    left: &Left,
    leaked_blocks: u64,
) -> io::Result<()> {
    let totals = trace.engine().totals();
    let costs = &profile.totals;
    let amount = |bytes_of: u64, count: u64| format!("{} in {}", bytes(to_signed(bytes_of)), blocks(to_signed(count)));
    writeln!(out, "total memory allocated: {}", amount(costs.allocated_bytes, costs.allocations))?;
    writeln!(out, "deallocations: {} of {}", costs.deallocations, bytes(to_signed(costs.freed_bytes)))?;
    writeln!(out, "blocks at the peak: {}, at {:.3}s", costs.peak_allocations, profile.peak_time_ns as f64 / 1e9)?;
    let definitions = trace.engine().definitions();
    writeln!(out, "blocks {}: {leaked_blocks}", left.state)?;
    if let Some(heap) = &definitions.heap_at_attach {
        let (size, resident) = (bytes(to_signed(heap.size_bytes)), bytes(to_signed(heap.rss_bytes)));
        writeln!(out, "heap at attach: {size}, {resident} of it resident; what was in it is not counted")?;
    }
    if profile.range.from_ns > 0 || costs.base_allocations > 0 {
        writeln!(out, "live at the start: {}", amount(costs.base_bytes, costs.base_allocations))?;
        writeln!(out, "grown by: {}", bytes(costs.growth_bytes()))?;
        writeln!(out, "still live from this range: {}", amount(costs.kept_bytes, costs.kept_allocations))?;
    }
    if totals.overhead_bytes > 0 {
        writeln!(out, "of the peak RSS, heaptrack's own: {}", bytes(to_signed(totals.overhead_bytes)))?;
    }
    if let Some(highest) = highest_instant(trace, profile) {
        for (label, value) in memory_lines(highest, |size| bytes(to_signed(size))) {
            writeln!(out, "{label}: {value}")?;
        }
    } else if !definitions.memory.reason.is_empty() {
        writeln!(out, "{}", definitions.memory.reason)?;
    }
    if let Some(last) = instants(trace, profile).next_back() {
        pinned_pages(out, last, definitions, table)?;
        for hint in memory_hints(trace.engine(), table, last) {
            writeln!(out, "hint: {}", hint.text)?;
        }
    }
    if let Some(map) = highest_map(definitions, profile.range) {
        address_space(out, map, definitions)?;
    }
    if definitions.waits.are_notable(totals.runtime_ns) {
        let seconds = definitions.waits.waited_ns as f64 / 1e9;
        writeln!(out, "waited for the recorder, sum over the threads: {seconds:.2}s")?;
    }
    Ok(())
}

/// Returns the instant with the most resident memory within the profile's range, if the memory was measured then.
pub fn highest_instant<'a>(trace: &'a OpenTrace, profile: &Profile) -> Option<&'a MemoryInstant> {
    instants(trace, profile).rev().max_by_key(|instant| instant.rss_bytes)
}

/// The instants within the profile's range at which the memory was measured.
pub fn instants<'a>(
    trace: &'a OpenTrace,
    profile: &Profile,
) -> impl DoubleEndedIterator<Item = &'a MemoryInstant> + use<'a> {
    let within = profile.range.from_ns..=profile.range.to_ns;
    trace.engine().definitions().memory.instants.iter().filter(move |instant| within.contains(&instant.time_ns))
}

/// Pages are worth a line if they have at least this many bytes, and (below) at least this part of RSS.
const NOTABLE_BYTES: u64 = 1 << 20;
const NOTABLE_PART: u64 = 20;

/// Returns the number of bytes from which on pages of an instant are worth a line, if those that are mostly free or have no
/// block are that many.
pub fn notable(instant: &MemoryInstant) -> Option<u64> {
    let Fragmentation { sparse_bytes, trim_bytes, .. } = instant.fragmentation;
    let pages = sparse_bytes.saturating_add(trim_bytes).saturating_add(instant.facts.empty_pool_bytes);
    Some(NOTABLE_BYTES.max(instant.rss_bytes / NOTABLE_PART)).filter(|notable| pages >= *notable)
}

/// Writes which sites keep pages resident that are mostly free.
fn pinned_pages(
    out: &mut impl Write,
    instant: &MemoryInstant,
    definitions: &Definitions,
    table: &StackTable,
) -> io::Result<()> {
    let fragmentation = &instant.fragmentation;
    let Some(notable) = notable(instant) else { return Ok(()) };
    let size = |number: u64| bytes(to_signed(number));
    writeln!(
        out,
        "mostly free pages at {:.3}s: {} with {} in live blocks; pages without a block that {} would return: {}",
        instant.time_ns as f64 / 1e9,
        size(fragmentation.sparse_bytes),
        size(fragmentation.sparse_live_bytes),
        returning(instant),
        size(fragmentation.trim_bytes.saturating_add(instant.facts.empty_pool_bytes))
    )?;
    for site in fragmentation.sites.iter().take(2).filter(|site| site.pinned_bytes >= notable) {
        let level = definitions.site_of(site.stack).and_then(|known| table.level(blamed_node(table, known)));
        writeln!(
            out,
            "- pinned by {}: {} in {}, alone in {} of these pages; freeing them and {} would return {}",
            label(table, level),
            size(site.bytes),
            blocks(to_signed(site.blocks)),
            size(site.pinned_bytes),
            returning(instant),
            size(gives_back_bytes(instant, site))
        )?;
    }
    if let [first, .., last] = fragmentation.sites.as_slice()
        && last.together_bytes > first.together_bytes
    {
        writeln!(
            out,
            "- pinned by the {} largest sites: freeing the blocks of all of them and {} would return {}",
            fragmentation.sites.len(),
            returning(instant),
            size(together_gives_back_bytes(instant, last))
        )?;
    }
    Ok(())
}

/// How the allocator is told to return free pages.
pub const fn returning(instant: &MemoryInstant) -> &'static str {
    if instant.facts.empty_pool_bytes > instant.fragmentation.trim_bytes { "a purge" } else { "malloc_trim(0)" }
}

/// Regions of the address space that are listed.
const REGIONS: usize = 8;

/// Writes where the resident memory lies: the largest regions, in the order of addresses.
fn address_space(out: &mut impl Write, map: &MemoryMap, definitions: &Definitions) -> io::Result<()> {
    let all = map_regions(map, definitions);
    let mut largest: Vec<&MapRegion> = all.iter().collect();
    largest.sort_by_key(|region| (Reverse(region.resident_bytes), region.start));
    largest.truncate(REGIONS);
    largest.sort_by_key(|region| region.start);
    let seconds = map.time_ns as f64 / 1e9;
    writeln!(
        out,
        "address space at {seconds:.3}s, {} of {}:",
        largest.len(),
        numbers::several(all.len() as u64, "region")
    )?;
    for region in largest {
        let size = |number: u64| bytes(to_signed(number));
        let (start, end, owner) = (region.start, region.end, &region.owner);
        write!(out, "- {start:012x}-{end:012x}: {} resident, {}", size(region.resident_bytes), owner.kind)?;
        if !owner.name.is_empty() {
            write!(out, " ({})", owner.name)?;
        }
        if region.live_bytes > 0 {
            write!(out, ", {} of it in live blocks", size(region.live_bytes))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Writes how certain the totals are.
pub fn intervals(out: &mut impl Write, intervals: &Intervals) -> io::Result<()> {
    let Variances { allocations, temporary, peak_bytes, live_bytes, .. } = intervals.totals;
    let size = |variance: Variance| bytes(to_signed(variance.error()));
    writeln!(out, "blocks were sampled: the numbers are estimates, and with 95 % certainty right to within")?;
    writeln!(out, "  calls to allocation functions: ± {}", allocations.error())?;
    writeln!(out, "  temporary memory allocations: ± {}", temporary.error())?;
    writeln!(out, "  peak heap memory consumption: ± {}", size(peak_bytes))?;
    writeln!(out, "  total memory that was not freed: ± {}", size(live_bytes))
}

/// Writes what is missing in the trace, and why.
pub fn missing(out: &mut impl Write, trace: &OpenTrace) -> io::Result<()> {
    let totals = trace.engine().totals();
    let faults = trace.engine().faults();
    let definitions = trace.engine().definitions();
    let unknown_frees = if definitions.session.attached {
        "frees of blocks that were allocated before the recording began"
    } else {
        "frees of blocks whose allocation was not recorded"
    };
    let lacks = [
        (totals.unknown_frees, unknown_frees),
        (totals.implied_frees, "frees that were not seen, but the address came again"),
        (trace.damage_count(), "places in the file cannot be read"),
        (faults.damaged_events, "events need what is lost"),
        (faults.missing_allocations, "allocations are in lost parts of the file"),
    ];
    for (count, meaning) in lacks.iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "{count} {meaning}")?;
    }
    for sentence in definitions.losses.sentences() {
        writeln!(out, "{sentence}")?;
    }
    if let Some(until) = trace.engine().definitions().folded_until_ns() {
        let seconds = until as f64 / 1e9;
        writeln!(
            out,
            "for the first {seconds:.3}s, the trace has only sums and the blocks that were still live, to keep the file small"
        )?;
    }
    if let Some(note) = &trace.engine().definitions().losses.note {
        writeln!(out, "{note}")?;
    }
    for unseen in &trace.engine().definitions().unseen {
        writeln!(out, "not recorded: {}", unseen.sentence)?;
    }
    names(out, trace)
}

/// Writes that there are no names yet, or which modules have none for a reason that the user can fix.
fn names(out: &mut impl Write, trace: &OpenTrace) -> io::Result<()> {
    let definitions = trace.engine().definitions();
    if definitions.names.is_empty() && definitions.site_count() > 0 && definitions.session.kde().is_none() {
        return writeln!(out, "no names yet: `heaptrack symbolize FILE` adds them");
    }
    let mut said = BTreeSet::new();
    for names in definitions.names.modules().values() {
        let is_ours_to_say = matches!(names.state, SymbolState::Mismatch | SymbolState::Unreadable);
        if is_ours_to_say && said.insert(&names.note) {
            writeln!(out, "{}", names.note)?;
        }
    }
    Ok(())
}

/// Writes what changed, function by function.
pub fn changes(
    out: &mut impl Write,
    heading: &str,
    rows: &[FunctionDiff],
    cost: Cost,
    limit: Option<usize>,
    paint: Paint,
) -> io::Result<()> {
    let limit = limit.unwrap_or(ROWS);
    let number = |value: i64| if cost.is_bytes() { bytes(value) } else { value.to_string() };
    let changed: Vec<&FunctionDiff> = rows.iter().filter(|row| row.delta != 0).collect();
    let sum = |value: fn(&FunctionDiff) -> i64| rows.iter().map(value).sum::<i64>();
    writeln!(out, "{}", paint.heading(heading))?;
    writeln!(out, "{:>11} {:>11} {:>11}  {:>9}", "before", "after", "change", "")?;
    let all = (sum(|row| row.before), sum(|row| row.after), sum(|row| row.delta));
    writeln!(out, "{:>11} {:>11} {:>11}  {:>9}  all", number(all.0), number(all.1), signed(all.2, number), "")?;
    for row in changed.iter().take(limit) {
        let note = match (row.state, row.percent) {
            (State::New, _) => "new".into(),
            (State::Gone, _) => "gone".into(),
            (_, Some(percent)) => format!("{percent:+.1} %"),
            _ => String::new(),
        };
        let file = row.file.as_deref().map_or(String::new(), |file| format!("  {file}"));
        let delta = format!("{:>11}", signed(row.delta, number));
        let (before, after) = (number(row.before), number(row.after));
        writeln!(out, "{before:>11} {after:>11} {}  {note:>9}  {}{file}", paint.number(&delta), row.short)?;
    }
    if changed.is_empty() {
        writeln!(out, "nothing changed")?;
    } else if changed.len() > limit {
        writeln!(out, "and {} more functions", changed.len() - limit)?;
    }
    writeln!(out)
}

/// The same in lines of at most 100 columns, with numbers as on the page.
pub fn short_changes(
    out: &mut impl Write,
    heading: &str,
    rows: &[FunctionDiff],
    cost: Cost,
    limit: usize,
    paint: Paint,
) -> io::Result<()> {
    let number = |value: i64| if cost.is_bytes() { numbers::bytes(value) } else { numbers::exact(value) };
    let changed: Vec<&FunctionDiff> = rows.iter().filter(|row| row.delta != 0).collect();
    writeln!(out, "{}", paint.heading(heading))?;
    for row in changed.iter().take(limit) {
        let note = match row.state {
            State::New => " (new)".into(),
            State::Gone => " (gone)".into(),
            _ => format!(" ({} to {})", number(row.before), number(row.after)),
        };
        let file = row.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file));
        let file = file.map_or(String::new(), |file| format!("  {file}"));
        let place = shortened(&format!("{}{file}{note}", shortened(&row.short, 50)), 86);
        writeln!(out, "{}  {place}", paint.number(&format!("{:>12}", signed(row.delta, number))))?;
    }
    let (count, sum) = changed.iter().skip(limit).fold((0, 0), |(count, sum), row| (count + 1, sum + row.delta));
    if changed.is_empty() {
        writeln!(out, "nothing changed")?;
    } else if count > 0 {
        let rest = format!("in {}, each changed less", numbers::several(count, "more function"));
        writeln!(out, "{:>12}  {}", signed(sum, number), paint.faint(&rest))?;
    }
    writeln!(out)
}

fn signed(value: i64, number: impl Fn(i64) -> String) -> String {
    if value > 0 { format!("+{}", number(value)) } else { number(value) }
}
