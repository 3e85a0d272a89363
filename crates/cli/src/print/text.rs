//! The parts of the text report: KDE's sections and totals, with our additions.
use super::entry::{Entries, Entry, Frames, Group, Numbers, single};
use super::options::Print;
use super::paint::Paint;
use super::units::{blocks, bytes, rate, without_templates};
use analysis::view::namespace;
use analysis::{Cost, Level, Merge};
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
            limit: options.rows(),
            sub_limit: options.sub_peak_limit,
        }
    }
}

/// The words for memory that was not freed. It is called leaked only if the program ended.
#[derive(Clone, Debug)]
pub struct Left {
    pub heading: String,
    /// As in `IN YOUR OWN CODE, LEAKED`.
    pub short_heading: String,
    /// As in `5.24M leaked over 3 calls`.
    pub words: String,
    /// As in `total memory leaked`.
    pub state: String,
}

impl Left {
    pub fn leaked() -> Self {
        let (heading, short_heading) = ("MEMORY LEAKS".into(), "LEAKED".into());
        Left { heading, short_heading, words: "leaked".into(), state: "leaked".into() }
    }

    /// For a program that kept running, which may still use what it has not freed.
    pub fn at_detach() -> Self {
        let heading = "STILL LIVE AT DETACH".to_owned();
        let (short_heading, words) = (heading.clone(), "still live".into());
        Left { heading, short_heading, words, state: "still live at detach".into() }
    }

    /// For a range that ends before the program did.
    pub fn at(time_ns: u64) -> Self {
        let time = seconds(time_ns);
        let heading = format!("STILL LIVE AT {time}");
        let (short_heading, words) = (heading.clone(), "still live".into());
        Left { heading, short_heading, words, state: format!("still live at {time}") }
    }
}

/// Returns a point in time, as headings and totals name it.
pub fn seconds(ns: u64) -> String {
    format!("{:.3}s", ns as f64 / 1e9)
}

/// One list.
pub struct Section {
    pub heading: String,
    pub cost: Cost,
    /// The words for memory that was not freed.
    pub left: String,
    /// The sentence that replaces an empty list.
    pub if_empty: String,
}

fn percent(part: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

impl Section {
    fn metric(&self, numbers: &Numbers) -> i64 {
        match self.cost {
            Cost::Allocations => numbers.allocations,
            Cost::Temporary => numbers.temporary,
            Cost::Peak => numbers.peak,
            Cost::Leaked => numbers.leaked,
            _ => numbers.value,
        }
    }

    fn number(&self, value: i64) -> String {
        if self.cost.is_bytes() { bytes(value) } else { value.to_string() }
    }

    /// Returns the first line of an entry.
    fn label(&self, numbers: &Numbers) -> String {
        let (calls, peak) = (numbers.allocations, bytes(numbers.peak));
        match self.cost {
            Cost::Allocations => format!("{calls} calls to allocation functions with {peak} peak consumption from"),
            Cost::Peak => format!("{peak} peak memory consumed over {calls} calls from"),
            _ => self.sub_label(numbers),
        }
    }

    /// Returns the first line of one stack of an entry.
    fn sub_label(&self, numbers: &Numbers) -> String {
        let Numbers { allocations: calls, temporary, leaked, .. } = *numbers;
        let value = self.number(self.metric(numbers));
        match self.cost {
            Cost::Allocations => format!("{calls} calls with {} peak consumption from", bytes(numbers.peak)),
            Cost::Peak => format!("{} consumed over {calls} calls from", bytes(numbers.peak)),
            Cost::Leaked => format!("{} {} over {calls} calls from", bytes(leaked), self.left),
            Cost::Temporary => {
                let of = format!("{temporary} temporary allocations of {calls} allocations in total");
                // In a comparison the numbers are differences, and one difference is not a share of the other.
                if calls > 0 && (0..=calls).contains(&temporary) {
                    format!("{of} ({:.2}%) from", percent(temporary, calls))
                } else {
                    format!("{of} from")
                }
            }
            Cost::Live => format!("{value} live in {} from", blocks(numbers.blocks)),
            Cost::Allocated => format!("{value} allocated over {calls} calls from"),
            Cost::Deallocations => format!("{value} deallocations from"),
            Cost::Kept => format!("{value} allocated in this time and still live from"),
            Cost::Growth => format!("{value} growth from"),
        }
    }
}

impl Section {
    pub fn write(&self, out: &mut impl Write, entries: &Entries<'_>, style: &Style) -> io::Result<()> {
        writeln!(out, "{}", style.paint.heading(&self.heading))?;
        let metric = |numbers: &Numbers| self.metric(numbers);
        let whole = entries.all.iter().map(|entry| metric(&entry.numbers)).fold(0, i64::saturating_add);
        if entries.all.iter().all(|entry| metric(&entry.numbers) == 0) {
            writeln!(out, "{}", self.if_empty)?;
        } else if style.merge {
            for mut group in entries.grouped(metric).into_iter().take(style.limit) {
                group.sort(metric);
                self.group(out, &group, whole, style)?;
            }
        } else {
            for entry in single(&entries.all, metric).iter().take(style.limit) {
                let bar = style.paint.bar(metric(&entry.numbers), whole);
                writeln!(out, "{bar}{}", style.paint.number(&self.label(&entry.numbers)))?;
                stack(out, entry, 0, 1, style)?;
                writeln!(out)?;
            }
        }
        writeln!(out)
    }

    fn group(&self, out: &mut impl Write, group: &Group<'_>, whole: i64, style: &Style) -> io::Result<()> {
        let total = self.metric(&group.numbers);
        writeln!(out, "{}{}", style.paint.bar(total, whole), style.paint.number(&self.label(&group.numbers)))?;
        if let Some(first) = group.entries.first() {
            let Frames { mut frames, .. } = first.frames();
            frames.truncate(1);
            levels(out, first.lens.merge, &frames, 0, style)?;
        }
        let mut handled = 0i64;
        for entry in group.entries.iter().take(style.sub_limit) {
            let value = self.metric(&entry.numbers);
            if value == 0 {
                break;
            }
            handled = handled.saturating_add(value);
            writeln!(out, "{}:", self.sub_label(&entry.numbers))?;
            stack(out, entry, 1, 2, style)?;
        }
        if group.entries.len() > style.sub_limit {
            let rest = group.entries.len() - style.sub_limit;
            writeln!(out, "  and {} from {rest} other places", self.number(total.saturating_sub(handled)))?;
        }
        writeln!(out)
    }
}

/// Writes the stack of an entry from its `first` frame on, and the number of levels that were left out.
fn stack(out: &mut impl Write, entry: &Entry<'_>, first: usize, indent: usize, style: &Style) -> io::Result<()> {
    let Frames { frames, left_out } = entry.frames();
    levels(out, entry.lens.merge, frames.get(first..).unwrap_or_default(), indent, style)?;
    if left_out > 0 {
        let width = indent * 2;
        let levels = if left_out == 1 { "level" } else { "levels" };
        writeln!(out, "{:width$}and {left_out} outer {levels} (--depth)", "")?;
    }
    Ok(())
}

/// Writes the frames, or that nothing is known about the stack.
fn levels(
    out: &mut impl Write,
    merge: Option<Merge>,
    frames: &[Vec<Level<'_>>],
    indent: usize,
    style: &Style,
) -> io::Result<()> {
    if frames.is_empty() && indent < 2 {
        return writeln!(out, "{:indent$}??", "", indent = indent * 2);
    }
    for levels in frames {
        match merge {
            None | Some(Merge::Line) => frame(out, levels, indent, true, style)?,
            Some(Merge::Function) => frame(out, levels, indent, false, style)?,
            Some(Merge::Module) => groups(out, levels, indent, |_| None)?,
            Some(Merge::Namespace) => groups(out, levels, indent, |level| level.short.and_then(namespace))?,
        }
    }
    Ok(())
}

/// Writes function, place and module, then the function that it was inlined into. Lines are left out if the entry
/// combines several.
fn frame(out: &mut impl Write, levels: &[Level<'_>], indent: usize, with_lines: bool, style: &Style) -> io::Result<()> {
    let width = indent * 2;
    for (at, level) in levels.iter().enumerate() {
        writeln!(out, "{:width$}{}", "", name(level, style.shorten))?;
        match (level.file, level.line) {
            (Some(file), Some(line)) if with_lines => writeln!(out, "{:width$}  at {file}:{line}", "")?,
            (Some(file), _) => writeln!(out, "{:width$}  at {file}", "")?,
            _ => {}
        }
        if at == 0 && level.marker().is_none() {
            writeln!(out, "{:width$}  in {}", "", level.module.unwrap_or("??"))?;
        }
    }
    Ok(())
}

/// Writes levels that stand for a whole namespace, or for a whole module.
fn groups<'a>(
    out: &mut impl Write,
    levels: &[Level<'a>],
    indent: usize,
    of: impl Fn(&Level<'a>) -> Option<&'a str>,
) -> io::Result<()> {
    let width = indent * 2;
    for level in levels {
        writeln!(out, "{:width$}{}", "", level.marker().or(of(level)).or(level.module).unwrap_or("??"))?;
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

/// The totals of KDE's report, in KDE's words.
pub struct Ending {
    pub runtime_ns: i64,
    /// The time over which rates are computed. `None` if there is none for which a rate makes sense.
    pub rate_ns: Option<u64>,
    pub numbers: Numbers,
    pub peak_rss_bytes: i64,
    pub suppressed_bytes: i64,
    /// The words for memory that was not freed.
    pub left: String,
    /// The totals are those of one instant, for which only live blocks are known.
    pub instant_ns: Option<u64>,
    /// The numbers are differences.
    pub is_change: bool,
}

impl Ending {
    /// Returns the difference to the earlier totals. Rates are over the difference of the run times, as KDE's. If that is
    /// less than a tenth of the longer run, it only says that no two runs take exactly the same time, so there are no
    /// rates.
    pub fn minus(self, before: &Ending) -> Ending {
        let runtime_ns = self.runtime_ns - before.runtime_ns;
        let (longer, difference) = (self.runtime_ns.max(before.runtime_ns).unsigned_abs(), runtime_ns.unsigned_abs());
        Ending {
            runtime_ns,
            rate_ns: (difference > longer / 10).then_some(difference),
            numbers: self.numbers.minus(&before.numbers),
            peak_rss_bytes: self.peak_rss_bytes - before.peak_rss_bytes,
            suppressed_bytes: self.suppressed_bytes - before.suppressed_bytes,
            is_change: true,
            ..self
        }
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Numbers { allocations, temporary, leaked, peak, .. } = self.numbers;
        if let Some(time_ns) = self.instant_ns {
            let (live, blocks) = (bytes(self.numbers.value), blocks(self.numbers.blocks));
            let what = if self.is_change { "change of memory" } else { "total memory" };
            return writeln!(out, "{what} live at {}: {live} in {blocks}", seconds(time_ns));
        }
        let per_second = |count| match self.rate_ns {
            Some(time) => format!(" ({}/s)", rate(count, time)),
            None => String::new(),
        };
        let seconds = format!("{:.2}", self.runtime_ns as f64 / 1e9);
        writeln!(out, "total runtime: {}s.", if seconds == "-0.00" { "0.00" } else { &seconds })?;
        writeln!(out, "calls to allocation functions: {allocations}{}", per_second(allocations))?;
        writeln!(out, "temporary memory allocations: {temporary}{}", per_second(temporary))?;
        writeln!(out, "peak heap memory consumption: {}", bytes(peak))?;
        writeln!(out, "peak RSS (including heaptrack overhead): {}", bytes(self.peak_rss_bytes))?;
        writeln!(out, "total memory {}: {}", self.left, bytes(leaked))?;
        if self.suppressed_bytes != 0 {
            writeln!(out, "suppressed leaks: {}", bytes(self.suppressed_bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_rates_only_if_one_run_was_clearly_longer() {
        let ending = |milliseconds: u64| Ending {
            runtime_ns: milliseconds as i64 * 1_000_000,
            rate_ns: Some(milliseconds * 1_000_000),
            numbers: Numbers { allocations: milliseconds as i64 * 3, ..Numbers::default() },
            peak_rss_bytes: 0,
            suppressed_bytes: 0,
            left: "leaked".into(),
            instant_ns: None,
            is_change: false,
        };
        for (before, after, wanted) in [
            (1000, 1500, "total runtime: 0.50s.\ncalls to allocation functions: 1500 (3000/s)\n"),
            (1500, 1000, "total runtime: -0.50s.\ncalls to allocation functions: -1500 (-3000/s)\n"),
            (1500, 1400, "total runtime: -0.10s.\ncalls to allocation functions: -300\n"),
            (1000, 1000, "total runtime: 0.00s.\ncalls to allocation functions: 0\n"),
        ] {
            let mut out = Vec::new();
            ending(after).minus(&ending(before)).write(&mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.starts_with(wanted), "{before} ms, then {after} ms: {text}");
        }
    }
}
