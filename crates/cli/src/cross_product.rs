//! Tries every option with every output. Either the command line is refused with a sentence that names one of its
//! options, or the output changes. No option is ignored.
mod answers;
mod exports;
mod made;

use crate::attach::Attach;
use crate::diff::Diff;
use crate::export::Export;
use crate::merge::Merge;
use crate::print::{Print, write};
use crate::record::Record;
use crate::report::Report;
use crate::support::Output;
use crate::symbolize::Symbolize;
use crate::trim::Trim;
use crate::wrong_usage::Wrong;
use analysis::view::View;
use clap::CommandFactory;
use made::Files;
use std::ffi::OsString;

/// An option, a value that must make a difference, and the other options that it needs to make one.
struct TriedOption {
    option: &'static str,
    value: Option<String>,
    with: Vec<String>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl TriedOption {
    fn words(&self) -> Vec<String> {
        let option = format!("--{}", self.option);
        match &self.value {
            None => vec![option],
            Some(value) => vec![option, value.clone()],
        }
    }
}

/// Returns the options of `print`, with a value for each. The list depends on `output`, because some options need
/// others there.
fn options(files: &Files, output: Output) -> Vec<TriedOption> {
    let switch = |option, value: &str| TriedOption { option, value: Some(value.into()), with: Vec::new() };
    let file = |option, name: &str| switch(option, &files.word(name));
    let flag = |option| TriedOption { option, value: None, with: Vec::new() };
    let needing = |asked: TriedOption, with: &str| TriedOption { with: words(with), ..asked };
    let is = |view| output == Output::View(view);
    let leaked = if output == Output::Folded { "--flamegraph-cost-type leaked" } else { "" };
    let own = if is(View::Flame) { "--hide all-but-mine" } else { "" };
    let heeds_wrappers = output.heeds("wrapper") || !matches!(output, Output::View(_) | Output::Event);
    vec![
        switch("shorten-templates", "0"),
        switch("merge-backtraces", "0"),
        switch("print-peaks", "0"),
        switch("print-allocators", "0"),
        switch("print-temporary", "0"),
        switch("print-leaks", "1"),
        switch("print-suppressions", "1"),
        switch("peak-limit", "1"),
        switch("sub-peak-limit", "1"),
        needing(file("rules", "rules"), own),
        switch("wrapper", "text::parse"),
        needing(switch("not-wrapper", "text::parse"), if heeds_wrappers { "--wrapper text::parse" } else { "" }),
        file("print-histogram", "new.sizes"),
        file("print-flamegraph", "new.folded"),
        file("print-massif", "new.massif"),
        switch("flamegraph-cost-type", "peak"),
        switch("massif-threshold", "60"),
        switch("massif-detailed-freq", "1"),
        switch("domain", "custom"),
        switch("at", "2s"),
        switch("from", "1s"),
        switch("to", "2s"),
        switch("include", "parse"),
        switch("exclude", "parse"),
        switch("filter-bt-function", "parse"),
        switch("thread", "1"),
        switch("process", "worker"),
        switch("allocator", "jemalloc"),
        switch("size", "..50"),
        switch("lifetime", "..1s"),
        needing(file("suppressions", "known"), leaked),
        needing(flag("disable-embedded-suppressions"), leaked),
        needing(flag("disable-builtin-suppressions"), leaked),
        needing(flag("no-suppressions"), leaked),
        flag("full"),
        flag("json"),
        switch("view", "flame"),
        switch("event", "2"),
        file("diff", "base.htz"),
        switch("compare", if is(View::Diff) { "@2500ms" } else { "@1s" }),
        switch("cost", if is(View::Diff) || is(View::Allocators) { "leaked" } else { "allocations" }),
        needing(switch("hide", "libc"), if is(View::Diff) { "--by function" } else { "" }),
        // A function that is in a stack twice counts once, so recursion only shows in callers and callees.
        needing(switch("collapse", "recursion"), if is(View::Callers) { "--function grow" } else { "" }),
        switch(
            "merge",
            match output {
                Output::Text => "function",
                // Functions of two traces are matched by name, so lines make no difference.
                Output::Difference => "module",
                _ => "line",
            },
        ),
        switch("depth", "1"),
        switch("limit", "1"),
        switch("points", "3"),
        switch("top", "1"),
        switch("by", "function"),
        switch("function", "parse"),
        switch("source-file", "parse"),
    ]
}

/// Returns the words of a command line that ask for an output.
fn asking(files: &Files, output: Output) -> Vec<String> {
    let file = |option: &str, name: &str| vec![option.to_owned(), files.word(name)];
    match output {
        // Without it, options about lists would be heeded only by the change from one screen to whole lists.
        Output::Text => words("--full"),
        Output::Difference => [words("--full"), file("--diff", "base.htz")].concat(),
        Output::Json => words("--json"),
        Output::View(View::Diff) => words("--view diff --compare @1s"),
        Output::View(view) => vec!["--view".into(), view.name().into()],
        Output::Event => words("--event 1"),
        Output::Histogram => file("-H", "sizes"),
        Output::Folded => file("-F", "folded"),
        Output::Massif => file("-M", "massif"),
    }
}

#[derive(Debug, PartialEq)]
struct Written {
    stdout: String,
    files: Vec<String>,
}

fn sentence(wrong: Wrong) -> String {
    match wrong {
        Wrong::Words(error) => error.to_string(),
        Wrong::Option(sentence) => sentence,
    }
}

/// Returns what a command line writes, without the query that a view repeats, or the sentence that refuses it.
fn run(files: &Files, options: &[String]) -> Result<Written, String> {
    let mut line: Vec<OsString> = vec!["print".into()];
    line.extend(options.iter().map(OsString::from));
    line.push(files.path("app.htz").into());
    let print = Print::from_words(line).map_err(sentence)?;
    let mut out = Vec::new();
    write(&print, &mut out).map_err(|error| format!("{error:#}"))?;
    let mut stdout = String::from_utf8(out).unwrap();
    if let Ok(serde_json::Value::Object(mut answer)) = serde_json::from_str(&stdout) {
        answer.remove("query");
        stdout = serde_json::Value::Object(answer).to_string();
    }
    let names = ["sizes", "folded", "massif", "new.sizes", "new.folded", "new.massif"];
    Ok(Written { stdout, files: names.iter().map(|name| files.take(&files.path(name))).collect() })
}

fn outputs() -> Vec<Output> {
    Output::OTHERS.into_iter().chain(View::VALUES.map(Output::View)).collect()
}

/// Returns true for a pair of an output and an option that is not tried.
fn is_left_out(output: Output, option: &str) -> bool {
    let asks_for_it = match output {
        Output::Text => option == "full",
        Output::Difference => matches!(option, "full" | "diff" | "compare"),
        Output::Json => option == "json",
        Output::View(_) => option == "view",
        Output::Event => option == "event",
        Output::Histogram => option == "print-histogram",
        Output::Folded => option == "print-flamegraph",
        Output::Massif => option == "print-massif",
    };
    // A view and an event are JSON with and without `--json`, because scripts give both options.
    asks_for_it || option == "json" && matches!(output, Output::View(_) | Output::Event)
}

/// Returns the words without an option, and with it.
fn lines(files: &Files, output: Output, asked: &TriedOption) -> (Vec<String>, Vec<String>) {
    let without = [asking(files, output), asked.with.clone()].concat();
    let is_base = matches!(asked.option, "diff" | "compare");
    if output == Output::View(View::Diff) && is_base {
        // A diff has one base, so the option replaces the other one.
        return (without, [words("--view diff"), asked.words()].concat());
    }
    let with = [without.clone(), asked.words()].concat();
    (without, with)
}

#[derive(Default)]
struct Counts {
    heeded: usize,
    refused: usize,
    /// What is wrong.
    faults: Vec<String>,
}

impl Counts {
    /// Tries one output with one option.
    fn check(&mut self, files: &Files, output: Output, asked: &TriedOption) {
        let (without, with) = lines(files, output, asked);
        let line = with.join(" ");
        let written = match run(files, &with) {
            Ok(written) => written,
            Err(sentence) => {
                let names = |word: &String| word.starts_with("--") && sentence.contains(word.as_str());
                if !with.iter().any(names) || output.heeds(asked.option) {
                    self.faults.push(format!("{line}: refused: {sentence}"));
                }
                self.refused += 1;
                return;
            }
        };
        self.heeded += 1;
        let plain = run(files, &without).unwrap_or_else(|sentence| panic!("{without:?}: {sentence}"));
        let is_file = matches!(output, Output::Histogram | Output::Folded | Output::Massif);
        if plain == written {
            self.faults.push(format!("{line}: ignored"));
        } else if is_file && output.heeds(asked.option) && plain.files == written.files {
            self.faults.push(format!("{line}: ignored in the file"));
        }
    }
}

#[test]
fn no_option_of_print_is_ignored() {
    let files = Files::new("cross-product");
    let mut faults = Vec::new();
    for output in outputs() {
        let (left_out, asked): (Vec<_>, Vec<_>) =
            options(&files, output).into_iter().partition(|asked| is_left_out(output, asked.option));
        let mut counts = Counts::default();
        asked.iter().for_each(|asked| counts.check(&files, output, asked));
        assert_eq!(counts.heeded + counts.refused + left_out.len(), 51, "{output:?}");
        assert_eq!(counts.heeded == 0, output == Output::Event, "{output:?}: of one event nothing can be left out");
        faults.extend(counts.faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_option_is_in_the_cross_product() {
    let files = Files::new("cross-product-options");
    let mut tried: Vec<&str> = options(&files, Output::Text).iter().map(|asked| asked.option).collect();
    tried.extend(["file", "version"]);
    tried.sort_unstable();
    let command = Print::command();
    let mut known: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
    known.sort_unstable();
    assert_eq!(tried, known);
}

#[test]
fn no_option_of_report_is_ignored() {
    let files = Files::new("cross-product-report");
    let report = |options: &[&str]| {
        let out = files.path("report.html");
        let mut line: Vec<OsString> = vec!["report".into(), "-o".into(), out.clone().into()];
        line.extend(options.iter().map(OsString::from));
        line.push(files.path("app.htz").into());
        crate::report::run(&<Report as clap::Parser>::try_parse_from(line).unwrap()).unwrap();
        files.take(&out)
    };
    let plain = report(&[]);
    let (rules, known) = (files.word("rules"), files.word("known"));
    let words =
        [&["--rules", rules.as_str()][..], &["--suppressions", &known], &["--max-size", "10k"], &["--summary-only"]];
    for options in words {
        assert!(report(options) != plain, "{options:?} is ignored");
    }
}

/// A command refuses the options of the other commands, and names the option.
#[test]
fn commands_refuse_the_options_of_others() {
    let commands = [
        (Record::command(), "heaptrack"),
        (Attach::command(), "attach"),
        (Print::command(), "print"),
        (Diff::command(), "diff"),
        (Export::command(), "export"),
        (Trim::command(), "trim"),
        (Merge::command(), "merge"),
        (Report::command(), "report"),
        (Symbolize::command(), "symbolize"),
    ];
    let longs = |command: &clap::Command| -> Vec<String> {
        command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")).collect()
    };
    let all: std::collections::BTreeSet<String> = commands.iter().flat_map(|(command, _)| longs(command)).collect();
    let mut refused = 0;
    for (command, name) in &commands {
        let (own, aliases) = (longs(command), aliases(command));
        let is_others = |option: &&String| !own.contains(option) && !aliases.contains(option) && *option != "--version";
        for option in all.iter().filter(is_others) {
            let error = command.clone().try_get_matches_from([*name, option.as_str()]).unwrap_err();
            assert!(error.to_string().contains(option.as_str()), "{name} {option}: {error}");
            assert_eq!(error.exit_code(), 2, "{name} {option}");
            refused += 1;
        }
    }
    assert!(refused > 300, "{refused}");
}

fn aliases(command: &clap::Command) -> Vec<String> {
    let aliases = command.get_arguments().flat_map(|arg| arg.get_all_aliases().unwrap_or_default());
    aliases.map(|alias| format!("--{alias}")).collect()
}
