//! The views Sizes and Lifetimes.
use super::names::{name_of, place_of};
use crate::answer::Answer;
use crate::question::Mode;
use crate::screen::Screen;
use crate::sheet::{Cell, Column, Sheet};
use crate::units::{bytes, exact, full, time};
use analysis::view::{LifetimeBucket, SizeBucket};
use analysis::{Cost, to_signed};

/// A bar of at most `cells` cells.
fn bar(value: u64, most: u64, cells: usize) -> String {
    let eighths = (value as f64 / most.max(1) as f64 * cells as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    bar.push_str(rest[eighths % 8]);
    if bar.is_empty() && value > 0 {
        bar.push('▏');
    }
    bar
}

/// The cells of the first column that name a bucket, before its bar.
const NAMES: usize = 22;

/// A bucket with its bar. `width` is that of the whole table, `others` that of its other columns.
fn name_and_bar(name: &str, value: u64, most: u64, width: usize, others: usize) -> Cell {
    let cells = width.saturating_sub(NAMES + others + 1);
    format!("{}{}", crate::text::left(name, NAMES), bar(value, most, cells)).into()
}

fn size_name(bucket: &SizeBucket) -> String {
    let SizeBucket { from, to, .. } = *bucket;
    match from == to {
        true => format!("{from} B"),
        false if from < 1000 => format!("{from}–{to} B"),
        false => format!("{} – {}", bytes(to_signed(from)), bytes(to_signed(to))),
    }
}

pub(super) fn sizes<'a>(answer: &'a Answer, rows: &'a [SizeBucket], width: usize) -> Sheet<'a> {
    let is_moment = answer.question.mode() == Mode::Moment;
    let titles: &[&str] = match is_moment {
        true => &["Live blocks", "Live"],
        false if width < 90 => &["Allocations", "Peak", "Live at end"],
        false => &["Allocations", "Allocated", "Peak", "Live at end"],
    };
    let columns = std::iter::once(Column::name("Size")).chain(titles.iter().map(|title| Column::number(title)));
    let others = titles.len() * 12;
    let drawn = move |bucket: &SizeBucket| {
        if is_moment { bucket.costs.live_allocations } else { bucket.costs.allocations }
    };
    let most = rows.iter().map(drawn).max().unwrap_or(0);
    let row = move |row: usize| -> Vec<Cell> {
        let Some(bucket) = rows.get(row) else { return Vec::new() };
        let costs = &bucket.costs;
        let value = |title: &&str| match *title {
            "Allocations" => exact(to_signed(costs.allocations)),
            "Allocated" => bytes(to_signed(costs.allocated_bytes)),
            "Peak" => bytes(to_signed(costs.peak_bytes)),
            "Live blocks" => exact(to_signed(costs.live_allocations)),
            _ => bytes(to_signed(costs.live_bytes)),
        };
        let first = name_and_bar(&size_name(bucket), drawn(bucket), most, width, others);
        std::iter::once(first).chain(titles.iter().map(|title| value(title).into())).collect()
    };
    Sheet { columns: columns.collect(), len: rows.len(), row: Box::new(row) }
}

pub(super) fn size_details(screen: &Screen, answer: &Answer, rows: &[SizeBucket], row: usize) -> Vec<String> {
    let Some(bucket) = rows.get(row) else { return Vec::new() };
    let mut lines = vec![size_name(bucket)];
    let costs = &bucket.costs;
    lines.push(format!("Allocations: {}", exact(to_signed(costs.allocations))));
    lines.push(format!("Allocated: {}", full(to_signed(costs.allocated_bytes), Cost::Allocated)));
    lines.push(format!("Peak: {}", full(to_signed(costs.peak_bytes), Cost::Peak)));
    lines.push(format!("Live at end: {}", full(to_signed(costs.live_bytes), Cost::Live)));
    lines.push("Most of them were allocated by:".into());
    lines.extend(bucket.top.iter().map(|(node, costs)| {
        let level = answer.table.level(*node);
        let name = name_of(&answer.table, level, screen.has_full_names);
        format!("{:>11}  {name}  {}", exact(to_signed(costs.allocations)), place_of(&answer.table, level))
    }));
    lines
}

fn lifetime_name(bucket: &LifetimeBucket) -> String {
    // The times of events are known to 0.1 ms.
    match bucket.from_ns {
        0 => "< 0.1 ms".into(),
        from => format!("{} – {}", time(from), time(bucket.to_ns)),
    }
}

pub(super) fn lifetimes(rows: &[LifetimeBucket], width: usize) -> Sheet<'_> {
    let columns = vec![
        Column::name("Lived"),
        Column::number("Freed blocks"),
        Column::number("Freed"),
        Column::number("Live blocks"),
    ];
    let others = columns.iter().map(|column| column.width + 1).sum::<usize>();
    let most = rows.iter().map(|bucket| bucket.deallocations.max(bucket.live_allocations)).max().unwrap_or(0);
    let row = move |row: usize| -> Vec<Cell> {
        let Some(bucket) = rows.get(row) else { return Vec::new() };
        vec![
            name_and_bar(&lifetime_name(bucket), bucket.deallocations, most, width, others),
            exact(to_signed(bucket.deallocations)).into(),
            bytes(to_signed(bucket.freed_bytes)).into(),
            exact(to_signed(bucket.live_allocations)).into(),
        ]
    };
    Sheet { columns, len: rows.len(), row: Box::new(row) }
}

pub(super) fn lifetime_details(rows: &[LifetimeBucket], row: usize) -> Vec<String> {
    let Some(bucket) = rows.get(row) else { return Vec::new() };
    vec![
        lifetime_name(bucket),
        format!("Freed after this long: {}", exact(to_signed(bucket.deallocations))),
        format!("Freed: {}", full(to_signed(bucket.freed_bytes), Cost::Allocated)),
        format!("Still live, this old: {}", exact(to_signed(bucket.live_allocations))),
        format!("Live at end: {}", full(to_signed(bucket.live_bytes), Cost::Live)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value() {
        assert_eq!(bar(8, 8, 4), "████");
        assert_eq!(bar(4, 8, 4), "██");
        assert_eq!(bar(5, 8, 4), "██▌");
        assert_eq!(bar(0, 8, 4), "");
        assert_eq!(bar(1, 100_000, 4), "▏", "what is there is seen");
        assert_eq!(bar(0, 0, 4), "");
    }
}
