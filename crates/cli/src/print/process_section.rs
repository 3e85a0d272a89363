//! The tree of processes in the text report.
use super::paint::Paint;
use super::text::seconds;
use super::units::{blocks, bytes};
use analysis::view::exit_words;
use analysis::{ProcessRow, ProcessTree, Query, to_signed};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The most lines of the tree, unless the user gives another number.
const LINES: usize = 30;
/// The most characters of a command.
const COMMAND: usize = 70;

/// Writes the processes, each below the one that started it. Writes nothing if the trace is not that of a tree.
pub fn write(
    out: &mut impl Write,
    tree: &ProcessTree,
    query: &Query,
    limit: Option<usize>,
    paint: Paint,
) -> io::Result<()> {
    let Some(peak) = &tree.peak else { return Ok(()) };
    let is_asked =
        |row: &&ProcessRow| query.processes.is_empty() || query.processes.iter().any(|name| name.is(&row.process));
    let asked: Vec<&ProcessRow> = tree.processes.iter().filter(is_asked).collect();
    let shown = largest(tree, &asked, limit.unwrap_or(LINES));
    writeln!(out, "{}", paint.heading("PROCESSES"))?;
    writeln!(out, "{:>10} {:>10} {:>10} {:>10}  {:<10} command", "peak", "leaked", "calls", "at peak", "ended")?;
    let mut children: BTreeMap<Option<u32>, Vec<&ProcessRow>> = BTreeMap::new();
    for row in tree.processes.iter().filter(|row| shown.contains(&row.process.index)) {
        children.entry(row.process.parent.filter(|parent| shown.contains(parent))).or_default().push(row);
    }
    let mut open: Vec<(&ProcessRow, usize)> = Vec::new();
    open.extend(children.remove(&None).unwrap_or_default().into_iter().rev().map(|row| (row, 0)));
    while let Some((row, depth)) = open.pop() {
        let share = peak.shares.get(&row.process.index);
        writeln!(out, "{}", line(row, share.map(|share| share.bytes), depth, paint))?;
        if !row.process.note.is_empty() {
            writeln!(out, "{:>56}{}{}", "", "  ".repeat(depth), paint.faint(&row.process.note))?;
        }
        let below = children.remove(&Some(row.process.index)).unwrap_or_default();
        open.extend(below.into_iter().rev().map(|row| (row, depth + 1)));
    }
    let rest = asked.iter().filter(|row| !shown.contains(&row.process.index));
    if let Some(highest) = rest.clone().map(|row| row.totals.peak_bytes).max() {
        let count = rest.count();
        let processes = if count == 1 { "process" } else { "processes" };
        writeln!(out, "{:>10} and {count} more {processes}, with peaks of at most {}", "", bytes(to_signed(highest)))?;
    }
    let alive = peak.shares.len();
    writeln!(
        out,
        "all processes together held most at {}: {} in {}; {alive} {} alive then\n",
        seconds(peak.time_ns),
        bytes(to_signed(peak.bytes)),
        blocks(to_signed(peak.allocations)),
        if alive == 1 { "was" } else { "were" },
    )
}

/// The processes with the highest peaks, and those that started them, up to `limit`.
fn largest(tree: &ProcessTree, asked: &[&ProcessRow], limit: usize) -> BTreeSet<u32> {
    let parents: BTreeMap<u32, u32> =
        tree.processes.iter().filter_map(|row| Some((row.process.index, row.process.parent?))).collect();
    let is_asked: BTreeSet<u32> = asked.iter().map(|row| row.process.index).collect();
    let mut order: Vec<&&ProcessRow> = asked.iter().collect();
    order.sort_by_key(|row| (Reverse(row.totals.peak_bytes), row.process.index));
    let mut shown = BTreeSet::new();
    for row in order {
        let mut new = Vec::new();
        let mut at = Some(row.process.index);
        while let Some(index) = at.filter(|index| is_asked.contains(index) && !shown.contains(index)) {
            new.push(index);
            // A parent has a lower index than its child. Anything else is malformed.
            at = parents.get(&index).copied().filter(|parent| *parent < index);
        }
        if shown.len() + new.len() <= limit {
            shown.extend(new);
        }
    }
    shown
}

fn line(row: &ProcessRow, at_peak: Option<u64>, depth: usize, paint: Paint) -> String {
    let ProcessRow { process, totals } = row;
    let command = match process.command.join(" ") {
        empty if empty.is_empty() => process.name().to_owned(),
        words => words,
    };
    format!(
        "{} {:>10} {:>10} {:>10}  {:<10} {}{} ({})",
        paint.number(&format!("{:>10}", bytes(to_signed(totals.peak_bytes)))),
        bytes(to_signed(totals.leaked_bytes)),
        totals.allocations,
        at_peak.map_or_else(|| "-".to_owned(), |held| bytes(to_signed(held))),
        exit_words(process).unwrap_or_else(|| "runs".into()),
        "  ".repeat(depth),
        shortened(&command, COMMAND),
        process.pid,
    )
}

/// Leaves out the middle of a text that is too long.
pub fn shortened(text: &str, most: usize) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    let letters: Vec<char> = text.chars().map(one_line).collect();
    if letters.len() <= most {
        return letters.into_iter().collect();
    }
    let kept = most - 3;
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let part = |letters: &[char]| letters.iter().collect::<String>();
    format!("{}...{}", part(&letters[..head]), part(&letters[letters.len() - tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_loses_its_middle() {
        assert_eq!(shortened("cc -c a.c", 9), "cc -c a.c");
        assert_eq!(shortened("cc -c -o a.o a.c", 11), "cc -... a.c");
        assert_eq!(shortened("a\nb", 9), "a b");
    }
}
