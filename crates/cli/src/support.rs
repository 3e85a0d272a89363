//! The table of which options have an effect on which output of `print`, `diff` and `export`. An option that an output
//! would ignore is refused with a sentence.
//!
//! Receives: the options that were given. Returns: nothing, or a sentence about an option that would have no effect.
//! Must hold: every option of these commands has a row here (a test asks clap for them). The options of views are in
//! `analysis::view::heeding`, because the page's server uses them, too. `--help` and docs/views.md show this table.
use crate::export::Format;
use analysis::view::{View, heeding};

/// Something that `heaptrack print` or `heaptrack diff` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Text,
    /// The text of `--diff`, `--compare` and `heaptrack diff`.
    Difference,
    Json,
    View(View),
    Event,
    /// `-H`.
    Histogram,
    /// `-F`.
    Folded,
    /// `-M`.
    Massif,
}

impl Output {
    /// All outputs except the views.
    pub const OTHERS: [Output; 7] = [
        Output::Text,
        Output::Difference,
        Output::Json,
        Output::Event,
        Output::Histogram,
        Output::Folded,
        Output::Massif,
    ];

    /// Returns true if the option has an effect on this output.
    #[cfg(test)]
    pub fn heeds(self, option: &str) -> bool {
        ROWS.iter().any(|row| row.option == option && row.has(self))
    }

    fn name(self) -> String {
        match self {
            Output::Text => "the text report".into(),
            Output::Difference => "the text of a diff".into(),
            Output::Json => "--json".into(),
            Output::View(view) => format!("--view {}", view.name()),
            Output::Event => "--event".into(),
            Output::Histogram => "the histogram (-H)".into(),
            Output::Folded => "folded stacks (-F)".into(),
            Output::Massif => "massif's file (-M)".into(),
        }
    }
}

/// On which of the outputs of one command an option must have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// On all of them, because the option selects what is shown.
    All,
    /// On at least one of them.
    One,
}

struct Row {
    /// Its long name.
    option: &'static str,
    /// The word of a query that stands for the option in views.
    word: &'static str,
    others: &'static [Output],
    by: By,
}

const fn row(option: &'static str, word: &'static str, others: &'static [Output], by: By) -> Row {
    Row { option, word, others, by }
}

use Output::{Difference, Event, Folded, Histogram, Json, Massif, Text};

/// Outputs with stacks and their costs.
const REPORTS: &[Output] = &[Text, Difference, Json];
const TEXTS: &[Output] = &[Text, Difference];
/// Outputs that can show a part of the trace.
const PARTS: &[Output] = &[Text, Difference, Json, Histogram, Folded];
const NO_WORD: &str = "";

const ROWS: &[Row] = &[
    row("full", NO_WORD, TEXTS, By::One),
    row("shorten-templates", NO_WORD, TEXTS, By::One),
    row("merge-backtraces", NO_WORD, TEXTS, By::One),
    row("print-peaks", NO_WORD, TEXTS, By::One),
    row("print-allocators", NO_WORD, TEXTS, By::One),
    row("print-temporary", NO_WORD, TEXTS, By::One),
    row("print-leaks", NO_WORD, TEXTS, By::One),
    row("sub-peak-limit", NO_WORD, TEXTS, By::One),
    row("print-suppressions", NO_WORD, &[Text], By::One),
    row("peak-limit", NO_WORD, REPORTS, By::One),
    row("rules", RULES, REPORTS, By::One),
    row("wrapper", "wrapper", REPORTS, By::One),
    row("not-wrapper", "not-wrapper", REPORTS, By::One),
    row("print-histogram", NO_WORD, REPORTS, By::One),
    row("print-flamegraph", NO_WORD, REPORTS, By::One),
    row("print-massif", NO_WORD, REPORTS, By::One),
    row("flamegraph-cost-type", NO_WORD, &[Folded], By::One),
    row("massif-threshold", NO_WORD, &[Massif], By::One),
    row("massif-detailed-freq", NO_WORD, &[Massif], By::One),
    row("domain", "domain", &[Text, Difference, Json, Histogram, Folded, Massif], By::All),
    row("at", "at", &[Text, Difference, Json, Folded], By::All),
    row("from", "from", PARTS, By::All),
    row("to", "to", PARTS, By::All),
    row("include", "include", PARTS, By::All),
    row("exclude", "exclude", PARTS, By::All),
    row("filter-bt-function", "include", PARTS, By::All),
    row("thread", "thread", PARTS, By::All),
    row("process", "process", PARTS, By::All),
    row("allocator", "allocator", PARTS, By::All),
    row("size", "size", PARTS, By::All),
    row("lifetime", "lifetime", PARTS, By::All),
    row("suppressions", "suppressions", &[Text, Difference, Json, Folded], By::One),
    row("disable-embedded-suppressions", "suppressions", &[Text, Difference, Json, Folded], By::One),
    row("disable-builtin-suppressions", "suppressions", &[Text, Difference, Json, Folded], By::One),
    row("no-suppressions", "suppressions", &[Text, Difference, Json, Folded], By::One),
    row("json", "domain", &[Json, Event], By::One),
    row("view", "domain", &[], By::One),
    row("event", NO_WORD, &[Event], By::One),
    row("diff", "diff", &[Difference], By::One),
    row("compare", "compare", &[Difference], By::One),
    row("cost", "cost", REPORTS, By::One),
    row("hide", "hide", &[Text, Difference, Json, Folded], By::All),
    row("collapse", "collapse", &[Text, Difference, Json, Folded], By::All),
    row("merge", "merge", TEXTS, By::All),
    row("depth", "depth", REPORTS, By::All),
    row("limit", "limit", REPORTS, By::One),
    row("points", "points", &[], By::One),
    row("top", "top", &[], By::One),
    row("by", "by", &[Difference], By::One),
    row("function", "function", &[], By::One),
    row("source-file", "file", &[], By::One),
];

/// The rules matter to views that name a level to blame, or that show or hide classes.
const RULES: &str = "rules";
const RULED: &[View] = &[
    View::Summary,
    View::Stacks,
    View::BottomUp,
    View::TopDown,
    View::Callers,
    View::Flame,
    View::Timeline,
    View::Sizes,
    View::Leaks,
    View::Diff,
];

impl Row {
    fn views(&self) -> &'static [View] {
        match self.word {
            RULES => RULED,
            // Only one view can show the stacks of two traces.
            "diff" => &[View::Diff],
            word => heeding(word),
        }
    }

    fn has(&self, output: Output) -> bool {
        match output {
            Output::View(view) => self.views().contains(&view),
            other => self.others.contains(&other),
        }
    }

    /// Returns the outputs on which the option has an effect, as a list for people.
    fn places(&self) -> String {
        let mut places: Vec<String> =
            Output::OTHERS.into_iter().filter(|output| self.has(*output)).map(Output::name).collect();
        let views: Vec<&str> = self.views().iter().map(|view| view.name()).collect();
        if views.len() == View::ALL.len() {
            places.push("every --view".into());
        } else if !views.is_empty() {
            places.push(format!("--view {}", views.join(", ")));
        }
        places.join(", ")
    }
}

/// The relevant parts of a command line.
pub struct Given<'a> {
    /// Long names of options.
    pub options: &'a [String],
    /// The outputs that it asks for. The first one goes to stdout.
    pub outputs: &'a [Output],
}

impl Given<'_> {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }

    /// Returns a sentence if an option would have no effect.
    pub fn trouble(&self) -> Option<String> {
        ROWS.iter().filter(|row| self.has(row.option)).find_map(|row| self.ignored(row)).or_else(|| self.useless())
    }

    fn ignored(&self, row: &Row) -> Option<String> {
        let ignoring = self.outputs.iter().find(|output| !row.has(**output))?;
        if row.by == By::One && self.outputs.iter().any(|output| row.has(*output)) {
            return None;
        }
        // An option for a file needs the option that asks for the file.
        let file = match row.others {
            [Output::Folded] => Some("--print-flamegraph (-F)"),
            [Output::Massif] => Some("--print-massif (-M)"),
            _ => None,
        };
        if let Some(file) = file {
            return Some(format!("--{} changes nothing without {file}", row.option));
        }
        Some(format!("--{} changes nothing in {}; it is for {}", row.option, ignoring.name(), row.places()))
    }

    /// Returns a sentence if one option makes another one useless.
    fn useless(&self) -> Option<String> {
        let both = self.has("limit") && self.has("peak-limit");
        both.then(|| "--limit and --peak-limit both say how many rows a list has: give one of them".to_owned())
    }
}

/// Groups rows with the same places, as (options, places). The options that only choose an output are left out.
fn groups() -> Vec<(Vec<&'static str>, String)> {
    let mut groups: Vec<(Vec<&'static str>, String)> = Vec::new();
    for row in ROWS.iter().filter(|row| !matches!(row.option, "json" | "view" | "event")) {
        let places = row.places();
        match groups.iter_mut().find(|(_, known)| *known == places) {
            Some((options, _)) => options.push(row.option),
            None => groups.push((vec![row.option], places)),
        }
    }
    groups
}

/// Returns the text below the options of a command: this table, then its examples.
pub fn help_with(examples: &str) -> String {
    format!("{}\n{examples}", help())
}

/// Returns the table for `--help` of `print` and `diff`.
fn help() -> String {
    let mut text = String::from("Where options apply; elsewhere they are refused:\n");
    for (options, places) in groups() {
        let options: Vec<String> = options.iter().map(|option| format!("--{option}")).collect();
        text.push_str(&format!("  {}\n      {places}\n", options.join(" ")));
    }
    text
}

/// Returns the tables for docs/views.md.
#[cfg(test)]
fn page() -> String {
    let mut text = String::from("| options of `print` and `diff` | apply to |\n|---|---|\n");
    for (options, places) in groups() {
        let options: Vec<String> = options.iter().map(|option| format!("`--{option}`")).collect();
        text.push_str(&format!("| {} | {places} |\n", options.join(", ")));
    }
    text.push_str("\n| options of `export` | apply to |\n|---|---|\n");
    for (options, formats) in export_groups() {
        let options: Vec<String> = options.iter().map(|option| format!("`{option}`")).collect();
        text.push_str(&format!("| {} | {formats} |\n", options.join(", ")));
    }
    text
}

/// The options about known leaks.
pub const SUPPRESSIONS: [&str; 4] =
    ["suppressions", "disable-embedded-suppressions", "disable-builtin-suppressions", "no-suppressions"];

/// Formats that take every option that selects a part of the trace.
const SELECTING: &[Format] = match Format::ALL {
    [Format::Heaptrack, others @ ..] => others,
    all => all,
};
/// Formats that can show one instant.
const INSTANTS: &[Format] =
    &[Format::Folded, Format::Svg, Format::Pprof, Format::Speedscope, Format::Gperftools, Format::Csv, Format::Jsonl];
/// Formats whose levels can be left out.
const LEVELS: &[Format] = &[Format::Folded, Format::Svg, Format::Pprof, Format::Speedscope];
const LEAKS: &[Format] =
    &[Format::Folded, Format::Svg, Format::Speedscope, Format::Firefox, Format::Csv, Format::Jsonl];
const CLASSES: &[Format] =
    &[Format::Folded, Format::Svg, Format::Pprof, Format::Speedscope, Format::Firefox, Format::Csv, Format::Jsonl];
const TABLES: &[Format] = &[Format::Csv, Format::Jsonl];

/// Formats from which command lines and folders can be left out.
pub const REDACTED: &[Format] = &[Format::Pprof, Format::Speedscope, Format::Firefox, Format::Csv, Format::Jsonl];

/// `heaptrack export`: an option and the formats on which it has an effect. The option `to` is a time here.
const EXPORT: [(&str, &[Format]); 26] = [
    ("output", Format::ALL),
    ("domain", Format::ALL),
    ("custom", Format::ALL),
    ("at", INSTANTS),
    ("from", SELECTING),
    ("to", SELECTING),
    ("include", SELECTING),
    ("exclude", SELECTING),
    ("filter-bt-function", SELECTING),
    ("thread", SELECTING),
    ("process", Format::ALL),
    ("allocator", SELECTING),
    ("size", SELECTING),
    ("lifetime", SELECTING),
    ("cost", LEVELS),
    ("hide", LEVELS),
    ("collapse", LEVELS),
    ("rules", CLASSES),
    ("suppressions", LEAKS),
    ("disable-embedded-suppressions", LEAKS),
    ("disable-builtin-suppressions", LEAKS),
    ("no-suppressions", LEAKS),
    ("rows", TABLES),
    ("redact", REDACTED),
    ("massif-threshold", &[Format::Massif]),
    ("massif-detailed-freq", &[Format::Massif]),
];

/// Returns the number of pairs of an option and a format on which it has an effect.
#[cfg(test)]
pub fn export_rows() -> usize {
    EXPORT.iter().map(|(_, formats)| formats.len()).sum()
}

/// Returns an option of `export` as people type it.
fn typed(option: &str) -> String {
    if option == "to" { "--to T".into() } else { format!("--{option}") }
}

/// Groups options of `export` with the same formats, as (options, formats).
fn export_groups() -> Vec<(Vec<String>, String)> {
    let mut groups: Vec<(Vec<String>, String)> = Vec::new();
    for (option, formats) in EXPORT {
        let formats = if formats.len() == Format::ALL.len() { "every format".into() } else { Format::names(formats) };
        match groups.iter_mut().find(|(_, known)| *known == formats) {
            Some((options, _)) => options.push(typed(option)),
            None => groups.push((vec![typed(option)], formats)),
        }
    }
    groups
}

/// Returns the table for `--help` of `export`.
pub fn export_help() -> String {
    let mut text = String::from("Where options apply; elsewhere they are refused:\n");
    for (options, formats) in export_groups() {
        text.push_str(&format!("  {}\n      {formats}\n", options.join(" ")));
    }
    text
}

/// Returns a sentence if an option has no effect on an export.
pub fn export_trouble(options: &[String], to: Format) -> Option<String> {
    let (option, formats) = EXPORT
        .iter()
        .find(|(option, formats)| !formats.contains(&to) && options.iter().any(|given| given == option))?;
    let (option, name) = (typed(option), to.name());
    Some(format!("{option} changes nothing in --to {name}; it is for {}", Format::names(formats)))
}

/// Returns the long names of the options that were given.
pub fn given(command: &clap::Command, matches: &clap::ArgMatches) -> Vec<String> {
    let is_given = |arg: &&clap::Arg| {
        matches!(matches.try_contains_id(arg.get_id().as_str()), Ok(true))
            && matches.value_source(arg.get_id().as_str()) == Some(clap::parser::ValueSource::CommandLine)
    };
    let given = command.get_arguments().filter(is_given);
    given.filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Options of `export` without a row: for the file that is read, and for the version.
    const NO_ROW: [&str; 2] = ["file", "version"];

    fn longs(command: &clap::Command) -> Vec<String> {
        let longs = command.get_arguments().filter_map(|arg| arg.get_long());
        longs.map(str::to_owned).collect()
    }

    #[test]
    fn every_option_has_a_row() {
        let mut rows: Vec<&str> = ROWS.iter().map(|row| row.option).chain(["file", "version"]).collect();
        let mut options = longs(&crate::print::Print::command());
        rows.sort_unstable();
        options.sort_unstable();
        assert_eq!(rows, options);
        let mut rows: Vec<&str> = EXPORT.iter().map(|(option, _)| *option).collect();
        let mut options = longs(&crate::export::Export::command());
        options.retain(|option| !NO_ROW.contains(&option.as_str()));
        rows.sort_unstable();
        options.sort_unstable();
        assert_eq!(rows, options);
    }

    /// The page docs/views.md shows this table. If the test fails, put the table that it prints below the mark.
    #[test]
    fn the_page_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/views.md");
        let text = std::fs::read_to_string(path).unwrap();
        let found = text.split("<!-- options -->\n").nth(1).unwrap_or_default();
        assert_eq!(found, page(), "docs/views.md must have this table below `<!-- options -->`");
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        let trouble = |options: &[&str], outputs: &[Output]| {
            let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
            Given { options: &options, outputs }.trouble().unwrap_or_default()
        };
        assert_eq!(
            trouble(&["points"], &[Text]),
            "--points changes nothing in the text report; it is for --view timeline"
        );
        assert_eq!(trouble(&["points"], &[Output::View(View::Timeline)]), "");
        assert_eq!(trouble(&["from"], &[Text, Folded]), "");
        assert!(
            trouble(&["from"], &[Text, Massif]).starts_with("--from changes nothing in massif's file (-M); it is for")
        );
        assert_eq!(trouble(&["print-leaks"], &[Text, Massif]), "", "it is about the text");
        let sentence = "--massif-threshold changes nothing without --print-massif (-M)";
        assert_eq!(trouble(&["massif-threshold"], &[Text]), sentence);
        assert!(trouble(&["limit", "peak-limit"], &[Text]).contains("give one of them"));
    }
}
