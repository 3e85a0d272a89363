//! The view Memory: the instants at which the parts of the resident memory were measured, or the parts at a moment.
use super::SHARE;
use crate::answer::{Answer, Data};
use crate::question::Mode;
use crate::screen::Screen;
use crate::sheet::{Cell, Column, Sheet};
use crate::units::{bytes, exact, full, percent, several, time};
use analysis::view::memory_sums;
use analysis::{Cost, to_signed};
use format::{MemoryInstant, MemoryPart, part_kind};

/// What a row stands for.
pub(crate) enum MemoryRow {
    /// An instant, by its time in nanoseconds.
    Instant(u64),
    LiveBlocks,
    Other,
}

/// The kinds, and their names on the page.
static KINDS: [(&str, &str); 13] = [
    (part_kind::BLOCKS, "live blocks"),
    (part_kind::OVERHEAD, "added by the allocator"),
    (part_kind::FREE, "free in the allocator"),
    (part_kind::HEAP, "the allocator's"),
    (part_kind::OLDER, "older than the attach"),
    (part_kind::MAPPED, "mapped by the program"),
    (part_kind::ANONYMOUS, "other anonymous"),
    (part_kind::STACK, "stacks"),
    (part_kind::FILE, "files"),
    (part_kind::SHARED, "shared memory"),
    (part_kind::KERNEL, "kernel"),
    (part_kind::RECORDER, "heaptrack's own"),
    (part_kind::UNATTRIBUTED, "unattributed"),
];

/// The kinds that have a column in the list of instants, as long as there is room.
static COLUMNS: [(&str, &str); 7] = [
    (part_kind::BLOCKS, "Live blocks"),
    (part_kind::FREE, "Free"),
    (part_kind::MAPPED, "Mapped"),
    (part_kind::ANONYMOUS, "Anonymous"),
    (part_kind::FILE, "Files"),
    (part_kind::SHARED, "Shared"),
    (part_kind::STACK, "Stacks"),
];

/// The same if blocks were sampled.
static COLUMNS_OF_SAMPLES: [(&str, &str); 6] = [
    (part_kind::HEAP, "Allocator"),
    (part_kind::MAPPED, "Mapped"),
    (part_kind::ANONYMOUS, "Anonymous"),
    (part_kind::FILE, "Files"),
    (part_kind::SHARED, "Shared"),
    (part_kind::STACK, "Stacks"),
];

/// The room for the time of an instant.
const TIME: usize = 20;

/// A kind that this version does not know has its own name.
fn kind_name(kind: &str) -> &str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or(kind, |(_, name)| *name)
}

/// A path is often wider than the column. The details have all of it.
fn short_name(part: &MemoryPart) -> &str {
    match part.kind.as_str() {
        part_kind::FILE => part.name.rsplit('/').next().unwrap_or(&part.name),
        _ => &part.name,
    }
}

fn size(value: u64) -> String {
    bytes(to_signed(value))
}

fn all_digits(value: u64) -> String {
    full(to_signed(value), Cost::Live)
}

/// The instant whose parts are shown. `None`: the instants are.
fn shown<'a>(answer: &Answer, instants: &'a [MemoryInstant]) -> Option<&'a MemoryInstant> {
    instants.first().filter(|_| answer.question.mode() == Mode::Moment)
}

/// The parts, largest first.
fn parts(instant: &MemoryInstant) -> Vec<&MemoryPart> {
    let mut parts: Vec<&MemoryPart> = instant.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.rss_bytes));
    parts
}

pub(crate) fn row(screen: &Screen, row: usize) -> Option<MemoryRow> {
    let answer = screen.answer.as_ref()?;
    let Data::Memory { instants, .. } = &answer.data else { return None };
    Some(match shown(answer, instants) {
        None => MemoryRow::Instant(instants.get(row)?.time_ns),
        Some(instant) if parts(instant).get(row)?.kind == part_kind::BLOCKS => MemoryRow::LiveBlocks,
        Some(_) => MemoryRow::Other,
    })
}

pub(super) fn sheet<'a>(answer: &Answer, instants: &'a [MemoryInstant], width: usize) -> Sheet<'a> {
    match shown(answer, instants) {
        Some(instant) => sheet_of_parts(instant),
        None => sheet_of_instants(instants, width),
    }
}

fn sheet_of_parts(instant: &MemoryInstant) -> Sheet<'_> {
    let parts = parts(instant);
    let title = format!("Parts at {}: RSS {}", time(instant.time_ns), size(instant.rss_bytes));
    let columns = vec![Column::name(&title), Column::number("RSS"), Column::wide("", SHARE), Column::number("PSS")];
    let len = parts.len();
    let row = move |row: usize| -> Vec<Cell> {
        let Some(part) = parts.get(row) else { return Vec::new() };
        vec![
            Cell::placed(kind_name(&part.kind).to_owned(), short_name(part).to_owned()),
            size(part.rss_bytes).into(),
            percent(to_signed(part.rss_bytes), to_signed(instant.rss_bytes)).into(),
            size(part.pss_bytes).into(),
        ]
    };
    Sheet { columns, len, row: Box::new(row) }
}

fn sheet_of_instants(instants: &[MemoryInstant], width: usize) -> Sheet<'_> {
    let room = width.saturating_sub(TIME) / (Column::number("").width + 1);
    let is_known = instants.iter().all(|instant| instant.knows_blocks());
    let kinds = if is_known { &COLUMNS[..] } else { &COLUMNS_OF_SAMPLES[..] };
    let kinds = &kinds[..kinds.len().min(room.saturating_sub(1))];
    let mut columns = vec![Column::name("Measured at"), Column::number("RSS")];
    columns.extend(kinds.iter().map(|(_, title)| Column::number(title)));
    // The first of several equal ones, as in the engine's answer.
    let highest = (0..instants.len()).rev().max_by_key(|index| instants[*index].rss_bytes);
    let row = move |row: usize| -> Vec<Cell> {
        let Some(instant) = instants.get(row) else { return Vec::new() };
        let mark = if Some(row) == highest { "highest" } else { "" };
        let mut cells = vec![Cell::placed(time(instant.time_ns), mark.to_owned()), size(instant.rss_bytes).into()];
        cells.extend(kinds.iter().map(|(kind, _)| Cell::from(size(instant.rss_of(kind)))));
        cells
    };
    Sheet { columns, len: instants.len(), row: Box::new(row) }
}

pub(super) fn details(answer: &Answer, instants: &[MemoryInstant], hints: &[String], row: usize) -> Vec<String> {
    let mut kinds = Vec::new();
    let (mut lines, instant) = match shown(answer, instants) {
        Some(instant) => {
            let parts = parts(instant);
            let Some(part) = parts.get(row) else { return Vec::new() };
            let name = format!("{}: {}", kind_name(&part.kind), part.name);
            let sizes = format!("RSS {}, PSS {}", all_digits(part.rss_bytes), all_digits(part.pss_bytes));
            (vec![name, sizes], instant)
        }
        None => {
            let Some(instant) = instants.get(row) else { return Vec::new() };
            let occurs = |kind: &str| instant.parts.iter().any(|part| part.kind == kind);
            let of_kind = |(kind, name): &(&str, &str)| format!("{name}: {}", all_digits(instant.rss_of(kind)));
            kinds.extend(KINDS.iter().filter(|(kind, _)| occurs(kind)).map(of_kind));
            (vec![format!("Measured at {}; Enter shows the parts", time(instant.time_ns))], instant)
        }
    };
    let (rss, pss) = memory_sums(instant);
    let count = several(instant.parts.len() as u64, "part");
    lines.push(format!("Sum of {count}: RSS {}, PSS {}", all_digits(rss), all_digits(pss)));
    let (rss, pss) = (instant.rss_bytes, instant.pss_bytes);
    lines.push(format!("The process: RSS {}, PSS {}", all_digits(rss), all_digits(pss)));
    lines.push(match instant.knows_blocks() {
        true => format!(
            "{} live blocks, resident or not: {} requested, {} with what the allocator adds",
            exact(to_signed(instant.live_blocks)),
            size(instant.requested_bytes),
            size(instant.usable_bytes)
        ),
        false => "Blocks were sampled, so how much of the allocator's memory is in live blocks is not known".to_owned(),
    });
    let cache = instant.cgroup_cache_bytes.map(|bytes| format!(", page cache of the cgroup {}", size(bytes)));
    let limit = instant.cgroup_limit_bytes.map(|bytes| format!(", limit of the cgroup {}", size(bytes)));
    let beside = format!("swap {}, page tables {}", size(instant.swap_bytes), size(instant.page_table_bytes));
    lines.push(format!("Beside the sum: {beside}{}{}", cache.unwrap_or_default(), limit.unwrap_or_default()));
    lines.extend(kinds);
    // They are about the last instant.
    if instants.last().is_some_and(|last| last.time_ns == instant.time_ns) {
        lines.extend(hints.iter().map(|hint| format!("Hint: {hint}")));
    }
    lines
}
