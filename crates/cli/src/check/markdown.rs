//! The result as Markdown, for the summary of a pull request.
//!
//! GitHub and GitLab show neither SVG in the text nor pictures that are not at a public address. So the flame graph is a
//! tree with bars of letters, and a link leads to the picture if the caller has stored one.
use super::budget::{Amount, Metric};
use super::flame::bar;
use super::outcome::{CheckedFile, Comparison, Flame, Outcome, State};
use super::text;
use crate::status::Bytes;
use analysis::Cost;
use std::io::{self, Write};

/// `link`: the address of a flame graph or a report.
pub fn write(outcome: &Outcome, link: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let mark = if outcome.is_kept() { "✅" } else { "❌" };
    writeln!(out, "### {mark} heaptrack: {}\n", outcome.sentence())?;
    outcome.files.iter().try_for_each(|file| write_file(file, out))?;
    match link {
        Some(link) => writeln!(out, "[Flame graph and report]({link})"),
        None => Ok(()),
    }
}

fn write_file(file: &CheckedFile, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "**{}** `{}`\n", cell(&file.path.to_string_lossy()), file.command.replace('`', "'"))?;
    writeln!(out, "| | budget | result |\n|---|---|---|")?;
    for judged in &file.judged {
        let mark = match judged.state {
            State::Kept => "✅",
            State::Broken => "❌",
            State::Unknown => "❓",
        };
        writeln!(out, "| {mark} | {} | {} |", cell(&judged.budget.name()), cell(&judged.sentence()))?;
    }
    writeln!(out)?;
    for judged in file.judged.iter().filter(|judged| !judged.places.is_empty()) {
        writeln!(out, "Code to blame for **{}**:\n", cell(&judged.budget.name()))?;
        for place in &judged.places {
            writeln!(out, "- {}", cell(&text::line(judged, place)))?;
        }
        writeln!(out)?;
    }
    for note in &file.notes {
        writeln!(out, "> {}\n", cell(note))?;
    }
    if let Some(comparison) = &file.comparison {
        write_comparison(file, comparison, out)?;
    }
    write_flame(&file.flame, out)
}

fn write_comparison(file: &CheckedFile, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let (before, after) = (&comparison.totals, &file.totals);
    writeln!(out, "<details open><summary>Compared with {}</summary>\n", html(&comparison.path.to_string_lossy()))?;
    writeln!(out, "| | before | after | change |\n|---|--:|--:|--:|")?;
    for (metric, before, after) in [
        (Metric::Peak, before.peak_bytes, after.peak_bytes),
        (Metric::Leaked, before.leaked_bytes, after.leaked_bytes),
        (Metric::Allocations, before.allocations, after.allocations),
        (Metric::Temporary, before.temporary, after.temporary),
    ] {
        let shown = |value: u64| if metric.is_bytes() { Bytes(value).to_string() } else { value.to_string() };
        writeln!(
            out,
            "| {} | {} | {} | {} |",
            metric.name(),
            shown(before),
            shown(after),
            change(before as i64, after as i64, metric.is_bytes())
        )?;
    }
    if !comparison.functions.is_empty() {
        writeln!(out, "\n| function, by {} | before | after | change |\n|---|--:|--:|--:|", comparison.cost.name())?;
    }
    for row in &comparison.functions {
        let is_bytes = comparison.cost.is_bytes();
        let shown = |value: i64| match is_bytes {
            true => Bytes(value.unsigned_abs()).to_string(),
            false => value.to_string(),
        };
        let (before, after) = (shown(row.before), shown(row.after));
        writeln!(out, "| {} | {before} | {after} | {} |", cell(&row.short), change(row.before, row.after, is_bytes))?;
    }
    writeln!(out, "\n</details>\n")
}

/// "+1.2 MB (+12.0%)".
fn change(before: i64, after: i64, is_bytes: bool) -> String {
    let delta = after.saturating_sub(before);
    if delta == 0 {
        return "same".into();
    }
    let sign = if delta < 0 { '-' } else { '+' };
    let amount = match is_bytes {
        true => Bytes(delta.unsigned_abs()).to_string(),
        false => delta.unsigned_abs().to_string(),
    };
    match before {
        0 => format!("{sign}{amount}"),
        before => format!("{sign}{amount} ({:+.1}%)", delta as f64 * 100.0 / before as f64),
    }
}

fn write_flame(flame: &Flame, out: &mut dyn Write) -> io::Result<()> {
    if flame.rows.is_empty() {
        return Ok(());
    }
    let metric = if flame.cost.is_bytes() { Metric::Peak } else { Metric::Allocations };
    let what = match flame.cost {
        Cost::Leaked => "not freed",
        Cost::Peak => "at the peak",
        other => other.name(),
    };
    writeln!(out, "<details><summary>Flame graph: {}, {what}</summary>\n\n```text", Amount(metric, flame.total))?;
    for row in &flame.rows {
        let share = row.value as f64 * 100.0 / flame.total.max(1) as f64;
        let name = row.name.replace("```", "'''").replace('\n', " ");
        writeln!(out, "{share:5.1}% {} {}{name}", bar(row.value, flame.total), " ".repeat(row.depth.min(30)))?;
    }
    writeln!(out, "```\n\n</details>\n")
}

/// A text that is one cell of a table, and in which nothing is markup.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\r' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '~' | '\\' | '#' | '@' => {
                out.push('\\');
                out.push(letter);
            }
            letter => out.push(letter),
        }
    }
    out
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_be_markup() {
        assert_eq!(cell("a<b>|*c*"), "a&lt;b&gt;\\|\\*c\\*");
        assert_eq!(change(100, 150, false), "+50 (+50.0%)");
        assert_eq!((change(0, 2000, true), change(4, 4, true)), ("+2.0 kB".to_owned(), "same".to_owned()));
        assert_eq!(change(3000, 1000, true), "-2.0 kB (-66.7%)");
    }
}
