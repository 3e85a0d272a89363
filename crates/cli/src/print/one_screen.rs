//! `heaptrack print FILE`: the answers that most readers look for, on one screen.
//!
//! Receives: a loaded trace. Returns: at most [`LINES`] lines of at most [`COLUMNS`] columns. Must hold: every number comes
//! from the engine, by the functions that the page and the full report use; a list that is cut says how much is left out;
//! what was not seen is said.
use super::extra_sections;
use super::loaded_trace::LoadedTrace;
use super::options::Print;
use super::paint::Paint;
use super::process_section::shortened;
use crate::status::quoted;
use analysis::numbers::{bytes, exact, percent, several, time};
use analysis::view::{
    AllocatorRow, Blamed, Hint, Leak, blamed_node, by_blamed, exit_words, gives_back_bytes, label, memory_hints,
};
use analysis::{CodeClass, Cost, Intervals, NodeId, ProcessRow, ProcessTree, Query, StackTable, Variances, to_signed};
use format::{MemoryInstant, part_kind};
use std::cmp::Reverse;
use std::io::Write;

/// The most lines, and the most columns of a line.
pub const LINES: usize = 45;
pub const COLUMNS: usize = 100;
/// What is tried, from the fullest to the shortest, until everything fits. With every section there is, the shortest has 41
/// lines.
const SIZES: [Size; 5] =
    [Size::new(5, 3, 3, 2), Size::new(5, 2, 2, 2), Size::new(4, 2, 1, 2), Size::new(3, 1, 1, 2), Size::new(1, 1, 1, 1)];
/// The callers that stand below an owner: with the owner itself, three frames.
const CALLERS: usize = 2;
/// The parts of the resident memory that fit into two lines.
const MOST_PARTS: usize = 5;

/// How many rows the lists have.
#[derive(Clone, Copy)]
struct Size {
    owners: usize,
    rows: usize,
    /// Sentences about what was not seen.
    notes: usize,
    /// The most lines of a sentence.
    sentence: usize,
}

impl Size {
    const fn new(owners: usize, rows: usize, notes: usize, sentence: usize) -> Self {
        Size { owners, rows, notes, sentence }
    }
}

/// The lines so far.
struct Screen {
    lines: Vec<String>,
    paint: Paint,
    size: Size,
}

/// What takes long to compute, and is the same in every size.
struct Facts {
    leaks: Vec<Leak>,
    tree: ProcessTree,
    allocators: Vec<AllocatorRow>,
}

impl Screen {
    fn heading(&mut self, text: &str) {
        self.lines.push(String::new());
        self.lines.push(self.paint.heading(text));
    }

    /// `name` is a short word, which is followed by a value.
    fn fact(&mut self, name: &str, value: &str) {
        self.lines.push(format!("{name:<12}{}", shortened(value, COLUMNS - 12)));
    }

    /// A number, its share of all, a bar on a terminal, and a place in the code.
    fn row(&mut self, number: &str, (part, whole): (i64, i64), place: &str, is_own: bool) {
        let share = percent(part, whole);
        let bar = self.paint.bar_only(part, whole);
        let room = COLUMNS - 12 - 8 - if bar.is_empty() { 0 } else { 11 };
        let place = shortened(place, room);
        let place = if is_own { self.paint.own(&place) } else { place };
        self.lines.push(format!("{} {share:>6}  {bar}{place}", self.paint.number(&format!("{number:>11}"))));
    }

    /// A line below a row.
    fn below(&mut self, text: &str) {
        self.lines.push(format!("{:20}{}", "", self.paint.faint(&shortened(text, COLUMNS - 20))));
    }

    /// A sentence, in as many lines as the size allows.
    fn sentence(&mut self, text: &str) {
        let mut lines = wrapped(text, COLUMNS - 2);
        if lines.len() > self.size.sentence {
            let rest = lines.split_off(self.size.sentence - 1).join(" ");
            lines.push(shortened(&rest, COLUMNS - 2));
        }
        self.lines.extend(lines.into_iter().map(|line| format!("  {line}")));
    }
}

/// A number of bytes. If it is an estimate, with half the width of its 95 % interval.
fn with_error(value: u64, error: Option<u64>) -> String {
    let number = bytes(to_signed(value));
    error.map_or_else(|| number.clone(), |error| format!("{number} ± {}", bytes(to_signed(error))))
}

/// The same for a number of blocks.
fn blocks_with_error(value: u64, error: Option<u64>) -> String {
    match error {
        Some(error) => format!("{} ± {} blocks", exact(to_signed(value)), exact(to_signed(error))),
        None => several(value, "block"),
    }
}

impl LoadedTrace {
    pub fn write_one_screen(
        &self,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let facts = self.facts(query)?;
        let screen = |size: Size| {
            let mut screen = Screen { lines: Vec::new(), paint, size };
            self.fill(&mut screen, options, query, &facts);
            screen.lines
        };
        let mut lines = Vec::new();
        for size in SIZES {
            lines = screen(size);
            if lines.len() <= LINES {
                break;
            }
        }
        Ok(lines.iter().try_for_each(|line| writeln!(out, "{line}"))?)
    }

    fn facts(&self, query: &Query) -> anyhow::Result<Facts> {
        let is_judged = !self.profile.range.instant && self.why_empty(query).is_none();
        let leaks = if is_judged { self.judged(query)? } else { Vec::new() };
        let is_left = |leak: &Leak| leak.suppressed.is_none() && leak.live_allocations > 0;
        Ok(Facts {
            leaks: leaks.into_iter().filter(is_left).collect(),
            tree: self.process_tree()?,
            allocators: self.allocators(query)?,
        })
    }

    fn fill(&self, screen: &mut Screen, options: &Print, query: &Query, facts: &Facts) {
        self.what_ran(options, query, screen);
        if let Some(note) = self.why_empty(query) {
            screen.lines.push(String::new());
            screen.sentence(&note);
        } else {
            self.owners(query, screen);
            self.leaks(&facts.leaks, screen);
            if !self.profile.range.instant {
                self.churn(query, screen);
            }
        }
        self.others(facts, screen);
        self.not_seen(screen);
        self.next(options, screen);
    }

    fn what_ran(&self, options: &Print, query: &Query, screen: &mut Screen) {
        let definitions = self.trace.engine().definitions();
        let name = self.trace.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let command = shortened(&definitions.session.command.join(" "), COLUMNS - 2 - name.len().min(40));
        screen.lines.push(format!("{}: {command}", screen.paint.number(&shortened(&name, 40))));
        let range = &self.profile.range;
        let ran = if range.instant {
            format!("at {}", time(range.to_ns))
        } else if range.from_ns > 0 || range.to_ns < self.trace.engine().runtime_ns() {
            format!("from {} to {}", time(range.from_ns), time(range.to_ns))
        } else {
            format!("ran for {}", time(range.to_ns))
        };
        let selected = options.selecting();
        let selected = if selected.is_empty() { String::new() } else { format!("; only {}", selected.join(" ")) };
        screen.lines.push(shortened(&format!("{ran}; {}{selected}", extra_sections::ending(&self.trace)), COLUMNS));
        screen.lines.push(String::new());
        self.totals(query, screen);
    }

    fn totals(&self, query: &Query, screen: &mut Screen) {
        let (costs, whole) = (&self.profile.totals, self.trace.engine().totals());
        let errors = self.intervals.as_ref().map(|intervals| intervals.totals);
        let amount = |(bytes_of, bytes_error): (u64, Option<u64>), (blocks, blocks_error): (u64, Option<u64>)| {
            format!("{} in {}", with_error(bytes_of, bytes_error), blocks_with_error(blocks, blocks_error))
        };
        let live = |bytes_of: u64, blocks: u64| {
            let (bytes_error, blocks_error) =
                (errors.map(|e| e.live_bytes.error()), errors.map(|e| e.live_allocations.error()));
            amount((bytes_of, bytes_error), (blocks, blocks_error))
        };
        if self.profile.range.instant {
            return screen.fact("live", &live(costs.live_bytes, costs.live_allocations));
        }
        let share = percent(to_signed(costs.temporary), to_signed(costs.allocations));
        let temporary = format!("{} of them short-lived ({share})", exact(to_signed(costs.temporary)));
        let calls = match errors {
            Some(errors) => format!(
                "{} ± {} allocations",
                exact(to_signed(costs.allocations)),
                exact(to_signed(errors.allocations.error()))
            ),
            None => several(costs.allocations, "allocation"),
        };
        let temporary = if costs.temporary > 0 { format!(", {temporary}") } else { String::new() };
        let allocated = with_error(costs.allocated_bytes, errors.map(|errors| errors.allocated_bytes.error()));
        screen.fact("allocated", &format!("{allocated} in {calls}{temporary}"));
        let peak = amount(
            (costs.peak_bytes, errors.map(|errors| errors.peak_bytes.error())),
            (costs.peak_allocations, errors.map(|errors| errors.peak_allocations.error())),
        );
        screen.fact("peak", &format!("{peak}, at {}", time(self.profile.peak_time_ns)));
        let left = self.left();
        let (known_bytes, known_blocks) = self.suppressed(&self.profile, query);
        let known = if known_blocks > 0 {
            format!("; without {} of known leaks", bytes(to_signed(known_bytes)))
        } else {
            String::new()
        };
        let (live_bytes, live_blocks) = (costs.live_bytes - known_bytes, costs.live_allocations - known_blocks);
        screen.fact(
            if left.words == "leaked" { "not freed" } else { "still live" },
            &format!("{}{known}", live(live_bytes, live_blocks)),
        );
        if whole.peak_rss_bytes > 0 {
            let own = bytes(to_signed(whole.overhead_bytes));
            let own = if whole.overhead_bytes > 0 { format!(", {own} of it heaptrack's own") } else { String::new() };
            screen.fact("resident", &format!("{} at most{own}", bytes(to_signed(whole.peak_rss_bytes))));
        }
    }

    fn owners(&self, query: &Query, screen: &mut Screen) {
        let cost = if self.profile.range.instant { Cost::Live } else { Cost::Peak };
        let rows = by_blamed(&self.profile, &self.table, query, cost);
        let when = if self.profile.range.instant { "LIVE THEN" } else { "AT THE PEAK" };
        let is_own = rows.iter().any(|row| self.is_own(row));
        screen.heading(&format!("{when}, BY {}", if is_own { "YOUR CODE" } else { "FUNCTION" }));
        let whole = rows.iter().map(|row| row.value).sum();
        for row in rows.iter().take(screen.size.owners) {
            screen.row(&bytes(row.value), (row.value, whole), &place(&self.table, row.node), self.is_own(row));
            if let Some(intervals) = &self.intervals {
                let error = self.error_of(row.node, cost, intervals);
                screen.below(&format!("± {}", bytes(to_signed(error))));
            }
            let callers = self.callers(row);
            if !callers.is_empty() {
                screen.below(&format!("called by {}", callers.join(", ")));
            }
        }
        rest(screen, rows.iter().skip(screen.size.owners).map(|row| row.value), bytes);
        if let Some(sentence) = extra_sections::wrappers(&self.table) {
            screen.sentence(&sentence);
        }
    }

    /// Half the width of the 95 % interval of all stacks that are blamed on the same level.
    fn error_of(&self, node: NodeId, cost: Cost, intervals: &Intervals) -> u64 {
        let mut sum = Variances::default();
        let place_of = |node: NodeId| place(&self.table, node);
        let wanted = place_of(node);
        for (site, _) in &self.profile.stacks {
            if place_of(blamed_node(&self.table, *site)) == wanted {
                sum.merge(&intervals.of(*site));
            }
        }
        match cost {
            Cost::Peak => sum.peak_bytes.error(),
            _ => sum.live_bytes.error(),
        }
    }

    fn leaks(&self, leaks: &[Leak], screen: &mut Screen) {
        let whole: u64 = leaks.iter().map(|leak| leak.live_bytes).sum();
        if leaks.is_empty() {
            return;
        }
        screen.heading("NOT FREED: LEAK OR NOT?");
        for leak in leaks.iter().take(screen.size.rows) {
            let (value, verdict) = (to_signed(leak.live_bytes), leak.verdict.words().0);
            let place = format!("{verdict}: {}", place(&self.table, leak.node));
            screen.row(&bytes(value), (value, to_signed(whole)), &place, self.table.stack(leak.stack).blamed.is_some());
            screen.below(&leak.reason);
        }
        rest(screen, leaks.iter().skip(screen.size.rows).map(|leak| to_signed(leak.live_bytes)), bytes);
    }

    fn churn(&self, query: &Query, screen: &mut Screen) {
        let rows = by_blamed(&self.profile, &self.table, query, Cost::Allocations);
        let whole: i64 = rows.iter().map(|row| row.value).sum();
        if whole == 0 {
            return;
        }
        screen.heading("MOST ALLOCATIONS");
        for row in rows.iter().take(screen.size.rows) {
            let temporary = row.sum.cost(Cost::Temporary);
            let note =
                if temporary > 0 { format!(", {} short-lived", percent(temporary, row.value)) } else { String::new() };
            let place = format!("{}{note}", place(&self.table, row.node));
            screen.row(&exact(row.value), (row.value, whole), &place, self.is_own(row));
        }
        rest(screen, rows.iter().skip(screen.size.rows).map(|row| row.value), exact);
    }

    /// Processes, allocators, and the memory that is not the heap.
    fn others(&self, facts: &Facts, screen: &mut Screen) {
        let mut processes: Vec<&ProcessRow> = facts.tree.processes.iter().collect();
        if processes.len() > 1 {
            screen.heading(&format!("PROCESSES: {}", processes.len()));
            processes.sort_by_key(|row| (Reverse(row.totals.peak_bytes), row.process.index));
            let words = |row: &&ProcessRow| {
                let end = exit_words(&row.process).unwrap_or_else(|| "runs".into());
                let peak = bytes(to_signed(row.totals.peak_bytes));
                format!("{} ({}) peak {peak}, {end}", shortened(row.process.name(), 30), row.process.pid)
            };
            screen.sentence(&processes.iter().take(3).map(words).collect::<Vec<_>>().join("; "));
        }
        if facts.allocators.len() > 1 {
            screen.heading("ALLOCATORS");
            let words = facts.allocators.iter().take(3).map(|row| {
                let costs = &row.sum.costs;
                let (peak, calls) = (bytes(to_signed(costs.peak_bytes)), several(costs.allocations, "allocation"));
                format!("{} peak {peak}, {calls}", shortened(&row.name, 30))
            });
            screen.sentence(&words.collect::<Vec<_>>().join("; "));
        }
        if let Some(custom) = &self.custom {
            screen.heading("REPORTED BY THE PROGRAM ITSELF, NOT COUNTED ABOVE");
            let costs = &custom.profile.totals;
            screen.sentence(&format!(
                "peak {}, {}, {} not freed; heaptrack print --domain custom",
                bytes(to_signed(costs.peak_bytes)),
                several(costs.allocations, "allocation"),
                bytes(to_signed(costs.live_bytes)),
            ));
        }
        if let Some(instant) = extra_sections::highest_instant(&self.trace, &self.profile) {
            screen.heading("MEMORY BEYOND THE HEAP");
            screen.sentence(&parts(instant));
            let last = extra_sections::instants(&self.trace, &self.profile).next_back();
            last.and_then(|last| self.pinned(last)).iter().for_each(|sentence| screen.sentence(sentence));
            let hints = last.map(|last| memory_hints(self.trace.engine(), &self.table, last)).unwrap_or_default();
            // What malloc_trim(0) returns is in the sentence before.
            let is_new = |hint: &&Hint| !["kept_by_malloc", "pinned_heap_top"].contains(&hint.kind);
            // The shortest form has no room for it.
            let hint = hints.iter().find(is_new).filter(|_| screen.size.sentence > 1);
            hint.iter().for_each(|hint| screen.sentence(&hint.text));
        }
    }

    /// What the allocator could give back, and which place keeps most of its pages.
    fn pinned(&self, instant: &MemoryInstant) -> Option<String> {
        let notable = extra_sections::notable(instant)?;
        let (time, pages) = (time(instant.time_ns), &instant.fragmentation);
        let size = |number: u64| bytes(to_signed(number));
        let trim = size(pages.trim_bytes.saturating_add(instant.facts.empty_pool_bytes));
        let returning = extra_sections::returning(instant);
        let Some(site) = pages.sites.first().filter(|site| site.pinned_bytes >= notable) else {
            return Some(format!("at {time}: {returning} would return {trim}"));
        };
        let known = self.trace.engine().definitions().site_of(site.stack);
        let level = known.and_then(|known| self.table.level(blamed_node(&self.table, known)));
        Some(format!(
            "at {time}: {returning} would return {trim}, and {} after freeing the {} of {}",
            size(gives_back_bytes(instant, site)),
            several(site.blocks, "block"),
            shortened(&label(&self.table, level), 40),
        ))
    }

    fn not_seen(&self, screen: &mut Screen) {
        let notes = self.trace.not_seen();
        if notes.is_empty() {
            return;
        }
        screen.heading("NOT SEEN");
        notes.iter().take(screen.size.notes).for_each(|note| screen.sentence(note));
        if notes.len() > screen.size.notes {
            let more = several((notes.len() - screen.size.notes) as u64, "more reason");
            screen.sentence(&format!("{more}: heaptrack print --full"));
        }
    }

    fn next(&self, options: &Print, screen: &mut Screen) {
        let file = quoted(options.file());
        screen.lines.push(String::new());
        let rows = [("analyze", "every view, in the browser"), ("print --full", "whole lists with whole stacks")];
        for ((words, what), head) in rows.into_iter().zip(["Next:", ""]) {
            let command = format!("heaptrack {words} {file}");
            screen.lines.push(format!("{head:<12}{command}  {}", screen.paint.faint(&format!("# {what}"))));
        }
    }

    fn is_own(&self, row: &Blamed) -> bool {
        self.table.stack(row.stack).blamed.is_some()
    }

    /// The callers of an owner in its largest stack: those in the user's own code, or if there are none, the nearest.
    fn callers(&self, row: &Blamed) -> Vec<String> {
        let stack = self.table.stack(row.stack);
        let owner = stack.owner;
        let outer = || self.table.path(owner).skip(1);
        let is_program =
            |node: &NodeId| self.table.level(*node).is_some_and(|level| level.class == Some(CodeClass::Program));
        let own: Vec<NodeId> = outer().filter(is_program).collect();
        let nodes = if own.is_empty() { outer().collect() } else { own };
        let name = |node: NodeId| label(&self.table, self.table.level(node));
        let mut names: Vec<String> = [owner].into_iter().chain(nodes).map(name).collect();
        // A function that calls itself, or an inlined part of it, has the same name.
        names.dedup();
        names.iter().skip(1).take(CALLERS).map(|name| shortened(name, 38)).collect()
    }
}

/// Says how much the rows that are not shown have together.
fn rest(screen: &mut Screen, values: impl Iterator<Item = i64>, number: impl Fn(i64) -> String) {
    let (count, sum) = values.fold((0, 0), |(count, sum): (u64, i64), value| (count + 1, sum.saturating_add(value)));
    if count > 0 {
        screen.lines.push(format!(
            "{:>11} {}",
            number(sum),
            screen.paint.faint(&format!("in {}", several(count, "smaller place")))
        ));
    }
}

/// A level with its file and line. Only the last part of the file's path.
fn place(table: &StackTable, node: NodeId) -> String {
    let level = table.level(node);
    let name = label(table, level);
    let file = level.and_then(|level| Some((table.text(level.file)?, level.line)));
    match file.map(|(file, line)| (file.rsplit('/').next().unwrap_or(file), line)) {
        Some((file, Some(line))) => format!("{}  {file}:{line}", shortened(&name, 60)),
        Some((file, None)) => format!("{}  {file}", shortened(&name, 60)),
        None => name,
    }
}

/// The parts of the resident memory, the largest first.
fn parts(instant: &MemoryInstant) -> String {
    let names = [
        ("live blocks", part_kind::BLOCKS),
        ("added by the allocator", part_kind::OVERHEAD),
        ("free inside the allocator", part_kind::FREE),
        ("the allocator's", part_kind::HEAP),
        ("older than the attach, or free", part_kind::OLDER),
        ("mapped by the program", part_kind::MAPPED),
        ("other anonymous mappings", part_kind::ANONYMOUS),
        ("stacks", part_kind::STACK),
        ("files", part_kind::FILE),
        ("shared memory", part_kind::SHARED),
        ("kernel", part_kind::KERNEL),
        ("heaptrack's own", part_kind::RECORDER),
        ("unattributed", part_kind::UNATTRIBUTED),
    ];
    let mut parts: Vec<(&str, u64)> = names.iter().map(|(name, kind)| (*name, instant.rss_of(kind))).collect();
    parts.retain(|(_, size)| *size > 0);
    parts.sort_by_key(|(_, size)| Reverse(*size));
    let small: u64 = parts.iter().skip(MOST_PARTS).map(|(_, size)| size).sum();
    parts.truncate(MOST_PARTS);
    parts.extend((small > 0).then_some(("the rest", small)));
    let parts: Vec<String> = parts.iter().map(|(name, size)| format!("{name} {}", bytes(to_signed(*size)))).collect();
    format!("{} resident at {}: {}", bytes(to_signed(instant.rss_bytes)), time(instant.time_ns), parts.join(", "))
}

/// Breaks a text into lines between words. A word that is too long gets a line of its own.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.iter().map(|line| shortened(line, columns)).collect()
}
