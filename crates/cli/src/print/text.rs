//! The text of `print`: KDE's sections and totals, then what only we know.
use super::entry::{Entry, Group, Numbers, grouped, single};
use super::options::Print;
use super::paint::Paint;
use super::units::{bytes, rate, without_templates};
use analysis::Level;
use std::io::{self, Write};

/// How lists are shown.
#[derive(Clone, Copy)]
pub struct Style {
    pub paint: Paint,
    pub shorten: bool,
    pub merge: bool,
    pub limit: usize,
    pub sub_limit: usize,
}

impl Style {
    pub fn new(options: &Print, paint: Paint) -> Self {
        Style {
            paint,
            shorten: options.shorten_templates,
            merge: options.merge_backtraces,
            limit: options.peak_limit,
            sub_limit: options.sub_peak_limit,
        }
    }
}

type Metric = fn(&Numbers) -> i64;
type Label = fn(&Numbers) -> String;

/// One list.
pub struct Section {
    heading: &'static str,
    metric: Metric,
    /// Of an entry, and of one of its stacks.
    label: Label,
    sub_label: Label,
    number: fn(i64) -> String,
}

fn percent(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn count(value: i64) -> String {
    value.to_string()
}

pub const ALLOCATIONS: Section = Section {
    heading: "MOST CALLS TO ALLOCATION FUNCTIONS",
    metric: |numbers| numbers.allocations,
    label: |numbers| {
        format!(
            "{} calls to allocation functions with {} peak consumption from",
            numbers.allocations,
            bytes(numbers.peak)
        )
    },
    sub_label: |numbers| format!("{} calls with {} peak consumption from:", numbers.allocations, bytes(numbers.peak)),
    number: count,
};

pub const PEAKS: Section = Section {
    heading: "PEAK MEMORY CONSUMERS",
    metric: |numbers| numbers.peak,
    label: |numbers| format!("{} peak memory consumed over {} calls from", bytes(numbers.peak), numbers.allocations),
    sub_label: |numbers| format!("{} consumed over {} calls from:", bytes(numbers.peak), numbers.allocations),
    number: bytes,
};

pub const LEAKS: Section = Section {
    heading: "MEMORY LEAKS",
    metric: |numbers| numbers.leaked,
    label: |numbers| format!("{} leaked over {} calls from", bytes(numbers.leaked), numbers.allocations),
    sub_label: |numbers| format!("{} leaked over {} calls from:", bytes(numbers.leaked), numbers.allocations),
    number: bytes,
};

/// Of a program that ran on: what it has not freed may be in use.
pub const STILL_LIVE: Section = Section {
    heading: "STILL LIVE AT DETACH",
    metric: |numbers| numbers.leaked,
    label: |numbers| format!("{} still live over {} calls from", bytes(numbers.leaked), numbers.allocations),
    sub_label: |numbers| format!("{} still live over {} calls from:", bytes(numbers.leaked), numbers.allocations),
    number: bytes,
};

pub const TEMPORARY: Section = Section {
    heading: "MOST TEMPORARY ALLOCATIONS",
    metric: |numbers| numbers.temporary,
    label: |numbers| {
        let share = percent(numbers.temporary, numbers.allocations);
        format!(
            "{} temporary allocations of {} allocations in total ({share:.2}%) from",
            numbers.temporary, numbers.allocations
        )
    },
    sub_label: |numbers| {
        let share = percent(numbers.temporary, numbers.allocations);
        format!(
            "{} temporary allocations of {} allocations in total ({share:.2}%) from:",
            numbers.temporary, numbers.allocations
        )
    },
    number: count,
};

impl Section {
    pub fn write(&self, out: &mut impl Write, entries: &[Entry<'_>], style: &Style) -> io::Result<()> {
        writeln!(out, "{}", style.paint.heading(self.heading))?;
        let whole = entries.iter().map(|entry| (self.metric)(&entry.numbers)).fold(0, i64::saturating_add);
        if style.merge {
            for group in grouped(entries, self.metric).iter().take(style.limit) {
                self.group(out, group, whole, style)?;
            }
        } else {
            for entry in single(entries, self.metric).iter().take(style.limit) {
                let bar = style.paint.bar((self.metric)(&entry.numbers), whole);
                writeln!(out, "{bar}{}", style.paint.number(&(self.label)(&entry.numbers)))?;
                stack(out, &entry.frames(), 1, style)?;
                writeln!(out)?;
            }
        }
        writeln!(out)
    }

    fn group(&self, out: &mut impl Write, group: &Group<'_>, whole: i64, style: &Style) -> io::Result<()> {
        let total = (self.metric)(&group.numbers);
        writeln!(out, "{}{}", style.paint.bar(total, whole), style.paint.number(&(self.label)(&group.numbers)))?;
        let first = group.entries.first().map(Entry::frames).unwrap_or_default();
        stack(out, first.get(..1).unwrap_or_default(), 0, style)?;
        let mut handled = 0i64;
        for entry in group.entries.iter().take(style.sub_limit) {
            let value = (self.metric)(&entry.numbers);
            if value == 0 {
                break;
            }
            handled = handled.saturating_add(value);
            writeln!(out, "{}", (self.sub_label)(&entry.numbers))?;
            stack(out, entry.frames().get(1..).unwrap_or_default(), 2, style)?;
        }
        if group.entries.len() > style.sub_limit {
            let rest = group.entries.len() - style.sub_limit;
            writeln!(out, "  and {} from {rest} other places", (self.number)(total.saturating_sub(handled)))?;
        }
        writeln!(out)
    }
}

/// A stack, or nothing known about one.
fn stack(out: &mut impl Write, frames: &[Vec<Level<'_>>], indent: usize, style: &Style) -> io::Result<()> {
    if frames.is_empty() && indent < 2 {
        return writeln!(out, "{:indent$}??", "", indent = indent * 2);
    }
    for levels in frames {
        frame(out, levels, indent, style)?;
    }
    Ok(())
}

/// Function, place, module; then what it was inlined into.
fn frame(out: &mut impl Write, levels: &[Level<'_>], indent: usize, style: &Style) -> io::Result<()> {
    let width = indent * 2;
    for (at, level) in levels.iter().enumerate() {
        writeln!(out, "{:width$}{}", "", name(level, style.shorten))?;
        match (level.file, level.line) {
            (Some(file), Some(line)) => writeln!(out, "{:width$}  at {file}:{line}", "")?,
            (Some(file), None) => writeln!(out, "{:width$}  at {file}", "")?,
            _ => {}
        }
        if at == 0 && level.marker().is_none() {
            writeln!(out, "{:width$}  in {}", "", level.module.unwrap_or("??"))?;
        }
    }
    Ok(())
}

pub fn name(level: &Level<'_>, shorten: bool) -> String {
    match level.marker().or(level.function) {
        Some(name) if shorten => without_templates(name),
        Some(name) => name.to_owned(),
        None => format!("{:#x}", level.frame.offset()),
    }
}

/// KDE's totals, in its words.
pub struct Ending {
    pub runtime_ns: i64,
    pub numbers: Numbers,
    pub peak_rss_bytes: i64,
    pub suppressed_bytes: i64,
    /// The program ran already when we came.
    pub attached: bool,
}

impl Ending {
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Numbers { allocations, temporary, leaked, peak } = self.numbers;
        let runtime = self.runtime_ns.unsigned_abs();
        writeln!(out, "total runtime: {:.2}s.", self.runtime_ns as f64 / 1e9)?;
        writeln!(out, "calls to allocation functions: {allocations} ({}/s)", rate(allocations, runtime))?;
        writeln!(out, "temporary memory allocations: {temporary} ({}/s)", rate(temporary, runtime))?;
        writeln!(out, "peak heap memory consumption: {}", bytes(peak))?;
        writeln!(out, "peak RSS (including heaptrack overhead): {}", bytes(self.peak_rss_bytes))?;
        let left = if self.attached { "still live at detach" } else { "leaked" };
        writeln!(out, "total memory {left}: {}", bytes(leaked))?;
        if self.suppressed_bytes != 0 {
            writeln!(out, "suppressed leaks: {}", bytes(self.suppressed_bytes))?;
        }
        Ok(())
    }
}
