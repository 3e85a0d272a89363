//! The options of `heaptrack print` (also `heaptrack_print`): those of KDE's heaptrack_print, and ours.
mod query;

use super::optional_values::{switch, with_values};
use crate::known_leaks::KnownLeaks;
use crate::support::{self, Given, Output};
use crate::wrong_usage::Wrong;
use analysis::Query;
use analysis::view::View;
use clap::{CommandFactory, FromArgMatches, Parser};
use heaptrack_trace::Reading;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Times: 1.5s, 200ms, 2min, 50%, start, peak, end; a number without a unit is seconds.
Sizes: 4k is 4000 bytes, 4Ki is 4096 bytes.
Patterns: a text, function:TEXT, file:TEXT, module:TEXT, or /REGEX/.

Examples:
  heaptrack print app.htz                           where the memory went
  heaptrack print -l app.htz                        with leaks, and a verdict for each
  heaptrack print --at 12.5s app.htz                what was live then
  heaptrack print --from 1min --to end -l app.htz   what came after the first minute and stayed
  heaptrack print --include 'file:cache.cpp' --hide all-but-mine app.htz
  heaptrack print --process cc1plus build.htz       only what processes of this name allocated
  heaptrack print --diff before.htz after.htz       what changed
  heaptrack print -F stacks.txt --flamegraph-cost-type peak app.htz
  heaptrack print --json --limit 10 --depth 20 app.htz | jq .totals
  heaptrack print --view timeline --points 100 app.htz

Exit code: 0; 2 wrong usage, or a file that cannot be read.";

/// Shows where the memory of a recorded program went.
#[derive(Debug, Parser)]
#[command(name = "heaptrack print", bin_name = "heaptrack print", after_help = support::help_with(EXAMPLES), version, disable_version_flag = true)]
pub struct Print {
    /// The trace, ours or KDE's, which may still be growing; or a heap profile of another tool.
    #[arg(value_name = "FILE", required_unless_present = "file_option", value_hint = clap::ValueHint::FilePath)]
    positional: Option<PathBuf>,
    /// The same as FILE.
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "positional", id = "file_option")]
    file_option: Option<PathBuf>,
    /// Show the difference to this trace.
    #[arg(short = 'd', long = "diff", value_name = "BASE", value_hint = clap::ValueHint::FilePath)]
    pub diff: Option<PathBuf>,

    /// Show whole lists with whole stacks, in the layout of KDE's heaptrack_print, not one screen. Options about lists and
    /// stacks do the same, and so does the name heaptrack_print.
    #[arg(long, help_heading = "What is shown")]
    full: bool,
    /// Leave out the template arguments `<...>` of names.
    #[arg(short = 't', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub shorten_templates: bool,
    /// Combine stacks with the same innermost level.
    #[arg(short = 'm', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub merge_backtraces: bool,
    /// Show the stacks with the most memory at the peak.
    #[arg(short = 'p', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_peaks: bool,
    /// Show the stacks with the most allocations.
    #[arg(short = 'a', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_allocators: bool,
    /// Show the stacks with the most temporary allocations.
    #[arg(short = 'T', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_temporary: bool,
    /// Show the stacks with the most leaked memory, and a verdict for each place.
    #[arg(short = 'l', long, value_name = "0|1", default_value = "0", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_leaks: bool,
    /// The largest number of entries in a list.
    #[arg(short = 'n', long, value_name = "N", default_value = "10", default_missing_value = "10", num_args = 0..=1, help_heading = "What is shown")]
    pub peak_limit: usize,
    /// The largest number of stacks in an entry.
    #[arg(short = 's', long, value_name = "N", default_value = "5", default_missing_value = "5", num_args = 0..=1, help_heading = "What is shown")]
    pub sub_peak_limit: usize,
    /// Show which leaks were suppressed.
    #[arg(long, value_name = "0|1", default_value = "0", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_suppressions: bool,
    /// Rules that tell which code is yours: lines of CLASS SUBJECT PATTERN, as `dependency path */third-party/*`.
    #[arg(long, value_name = "RULES", value_hint = clap::ValueHint::FilePath, help_heading = "What is shown")]
    pub rules: Option<PathBuf>,

    /// This function and all that it calls count as the allocator, so its caller owns the memory; may be repeated.
    #[arg(long, value_name = "FUNCTION", help_heading = "What is shown")]
    wrapper: Vec<String>,
    /// This function does not count as the allocator, although it looks like a wrapper of it; may be repeated.
    #[arg(long, value_name = "FUNCTION", help_heading = "What is shown")]
    not_wrapper: Vec<String>,

    /// Write how many blocks of each size were allocated; in a diff, for FILE alone.
    #[arg(short = 'H', long, value_name = "OUT", value_hint = clap::ValueHint::FilePath, help_heading = "Files for other tools")]
    pub print_histogram: Option<PathBuf>,
    /// Write folded stacks, as flamegraph.pl and others read them; in a diff, for FILE alone.
    #[arg(short = 'F', long, value_name = "OUT", value_hint = clap::ValueHint::FilePath, help_heading = "Files for other tools")]
    pub print_flamegraph: Option<PathBuf>,
    /// What folded stacks count: allocations, temporary, leaked, peak, or another word of --cost.
    #[arg(long, value_name = "COST", default_value = "allocations", help_heading = "Files for other tools")]
    pub flamegraph_cost_type: String,
    /// Write massif's format, as ms_print reads it; in a diff, for FILE alone.
    #[arg(short = 'M', long, value_name = "OUT", value_hint = clap::ValueHint::FilePath, help_heading = "Files for other tools")]
    pub print_massif: Option<PathBuf>,
    /// Massif: branches below this share of a snapshot are summed up.
    #[arg(long, value_name = "PERCENT", default_value = "1", help_heading = "Files for other tools")]
    pub massif_threshold: f64,
    /// Massif: every N-th snapshot has a tree; 0 = only the highest.
    #[arg(long, value_name = "N", default_value = "2", help_heading = "Files for other tools")]
    pub massif_detailed_freq: usize,

    /// malloc, custom for the blocks that the program's own allocators reported, or mapped for the program's own mappings.
    #[arg(long, value_name = "DOMAIN", help_heading = "Which part")]
    domain: Option<String>,
    /// What was live at T.
    #[arg(long, value_name = "T", help_heading = "Which part")]
    at: Option<String>,
    /// Only what happened after T.
    #[arg(long, value_name = "T", help_heading = "Which part")]
    from: Option<String>,
    /// Only what happened up to T.
    #[arg(long, value_name = "T", help_heading = "Which part")]
    to: Option<String>,
    /// Only stacks in which a level matches; may be repeated, then all must match.
    #[arg(long, value_name = "PATTERN", help_heading = "Which part")]
    include: Vec<String>,
    /// No stacks in which a level matches; may be repeated.
    #[arg(long, value_name = "PATTERN", help_heading = "Which part")]
    exclude: Vec<String>,
    /// Only stacks with a function whose name contains this text.
    #[arg(long, value_name = "TEXT", help_heading = "Which part")]
    filter_bt_function: Option<String>,
    /// Only blocks that this thread allocated (its index, see --view threads); may be repeated.
    #[arg(long, value_name = "INDEX", help_heading = "Which part")]
    thread: Vec<String>,
    /// Only blocks that this process allocated: its pid, its name, or # and its index (see --view processes); may be
    /// repeated.
    #[arg(long, value_name = "PROCESS", help_heading = "Which part")]
    process: Vec<String>,
    /// Only blocks of this allocator, as malloc, jemalloc, mimalloc; may be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Which part")]
    allocator: Vec<String>,
    /// Only blocks of this size, as 100..4k or 1Mi.. (both ends included).
    #[arg(long, value_name = "MIN..MAX", help_heading = "Which part")]
    size: Option<String>,
    /// Only blocks that lived this long, as 1ms..2s or ..10us (both ends included).
    #[arg(long, value_name = "MIN..MAX", help_heading = "Which part")]
    lifetime: Option<String>,

    #[command(flatten)]
    pub known: KnownLeaks,

    /// Print the report as JSON.
    #[arg(long, help_heading = "For machines")]
    pub json: bool,
    /// Print one view as JSON: summary, stacks, profile, bottom-up, top-down, callers, flame, timeline, sizes,
    /// lifetimes, threads, allocators, processes, leaks, source, suppressions, diff (docs/views.md).
    #[arg(long, value_name = "NAME", value_parser = view, help_heading = "For machines")]
    pub view: Option<View>,
    /// The only list to show, or what trees and lists are sorted by: peak, leaked, live, allocations, temporary,
    /// allocated, deallocations, kept, growth.
    #[arg(long, value_name = "COST", help_heading = "How stacks are shown")]
    cost: Option<String>,
    /// Take levels of these classes out of stacks: runtime (or std), libc, dependency, kernel; or all-but-mine.
    #[arg(long, value_name = "CLASSES", help_heading = "How stacks are shown")]
    hide: Option<String>,
    /// `recursion`: show a function that calls itself only once.
    #[arg(long, value_name = "WHAT", help_heading = "How stacks are shown")]
    collapse: Option<String>,
    /// What makes two levels the same: function, line, module, namespace. Stacks of the same levels become one.
    #[arg(long, value_name = "BY", help_heading = "How stacks are shown")]
    merge: Option<String>,
    /// Compare with another point or range of the same trace: @T or @T..T.
    #[arg(long, value_name = "@T", conflicts_with = "diff", help_heading = "How stacks are shown")]
    compare: Option<String>,
    /// The largest number of rows in a list; 0 = all.
    #[arg(long, value_name = "N", help_heading = "How stacks are shown")]
    limit: Option<String>,
    /// The largest number of levels of a stack or tree; 0 = all.
    #[arg(long, value_name = "N", help_heading = "How stacks are shown")]
    depth: Option<String>,
    /// View timeline: the number of slices.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    points: Option<String>,
    /// View timeline: the largest number of bands. View sizes: the largest number of functions per bucket.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    top: Option<String>,
    /// Views timeline, sizes, leaks and diff: group by `blamed` level, or by innermost `function`. View timeline: also by
    /// `process` or `command`.
    #[arg(long, value_name = "WHAT", help_heading = "For machines")]
    by: Option<String>,
    /// View callers: the function whose callers and callees are shown.
    #[arg(long, value_name = "PATTERN", help_heading = "For machines")]
    function: Option<String>,
    /// View source: only files whose path contains this text.
    #[arg(long, value_name = "TEXT", help_heading = "For machines")]
    source_file: Option<String>,
    /// Print only the N-th allocation, counted from 1.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    pub event: Option<u64>,
    /// Print the version.
    #[arg(short = 'v', visible_short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// The long names of the options that were given.
    #[arg(skip)]
    given: Vec<String>,
    /// The command was started as `heaptrack_print`.
    #[arg(skip)]
    is_kdes_name: bool,
}

fn view(name: &str) -> Result<View, String> {
    View::parse(name).ok_or_else(|| format!("views are {}", View::ALL.map(|(name, _)| name).join(", ")))
}

impl Print {
    /// The same for the command name of KDE's tool, which has only one layout.
    pub fn for_kdes_name(words: Vec<OsString>) -> Result<Print, Wrong> {
        Ok(Print { is_kdes_name: true, ..Print::from_words(words)? })
    }

    /// Returns `Err` on wrong usage, `--help` and `--version`.
    pub fn from_words(words: Vec<OsString>) -> Result<Print, Wrong> {
        let mut command = Print::command();
        let matches = command.try_get_matches_from_mut(with_values(words)).map_err(Wrong::Words)?;
        let mut print = Print::from_arg_matches(&matches).map_err(Wrong::Words)?;
        print.take(support::given(&command, &matches))?;
        Ok(print)
    }

    /// Refuses options that would have no effect, and sets what depends on which options were given.
    pub(crate) fn take(&mut self, given: Vec<String>) -> Result<(), Wrong> {
        let outputs = self.outputs();
        let all = Given { options: &given, outputs: &outputs };
        if let Some(sentence) = all.trouble().or_else(|| self.useless(&all)) {
            return Err(Wrong::Option(sentence));
        }
        // The user asks for one list. The other lists are shown only if the user asks for them as well.
        if all.has("cost") || all.has("at") || self.is_of_an_instant() {
            self.print_peaks &= all.has("print-peaks");
            self.print_allocators &= all.has("print-allocators");
            self.print_temporary &= all.has("print-temporary");
        }
        self.given = given;
        Ok(())
    }

    /// Returns a sentence if one option makes another one useless.
    fn useless(&self, given: &Given<'_>) -> Option<String> {
        if given.has("at") && (given.has("from") || given.has("to")) {
            return Some("--at is one instant, --from and --to are a range: give one or the other".into());
        }
        if self.view == Some(View::Diff) && self.diff.is_none() && self.compare.is_none() {
            return Some(
                "--view diff needs something to compare with: --diff BASE, --compare @T or --compare @T..T".into(),
            );
        }
        if given.has("sub-peak-limit") && !self.merge_backtraces {
            return Some("--sub-peak-limit changes nothing without --merge-backtraces".into());
        }
        let is_diff = given.outputs.first() == Some(&Output::View(View::Diff));
        if given.has("hide") && is_diff && self.by.as_deref() != Some("function") {
            return Some("--hide changes nothing in --view diff without --by function".into());
        }
        if matches!(self.by.as_deref(), Some("process" | "command")) && self.view != Some(View::Timeline) {
            return Some("--by process and --by command are for --view timeline".into());
        }
        let lists = [
            ("print-peaks", self.print_peaks),
            ("print-allocators", self.print_allocators),
            ("print-temporary", self.print_temporary),
            ("print-leaks", self.print_leaks),
        ];
        let (list, _) = lists.iter().find(|(list, is_on)| *is_on && given.has(list))?;
        self.is_of_an_instant()
            .then(|| format!("--{list} needs a range (--from, --to): of one instant only what was live is known"))
    }

    /// Returns true with `--at T` or `--compare @T`.
    fn is_of_an_instant(&self) -> bool {
        self.at.is_some() || self.compare.as_ref().is_some_and(|compare| !compare.contains(".."))
    }

    /// Returns all outputs of the command. The first one goes to stdout, the others are files.
    fn outputs(&self) -> Vec<Output> {
        let is_diff = self.diff.is_some() || self.compare.is_some();
        let first = match self.view {
            _ if self.event.is_some() => Output::Event,
            Some(view) => Output::View(view),
            None if self.json && self.diff.is_some() => Output::View(View::Diff),
            None if self.json => Output::Json,
            None if is_diff => Output::Difference,
            None => Output::Text,
        };
        let mut outputs = vec![first];
        outputs.extend(self.print_histogram.as_ref().map(|_| Output::Histogram));
        outputs.extend(self.print_flamegraph.as_ref().map(|_| Output::Folded));
        outputs.extend(self.print_massif.as_ref().map(|_| Output::Massif));
        outputs
    }

    /// Returns what the outputs need to know of each live block.
    pub fn reading(&self, query: &Query) -> Reading {
        let walks = |output: &Output| matches!(output, Output::View(_) | Output::Histogram | Output::Massif);
        let is_range = !query.is_whole() || self.print_leaks || self.is_one_screen() || self.compare.is_some();
        if is_range || self.outputs().iter().any(walks) { Reading::Range } else { Reading::Session }
    }

    /// Returns true if the text is one screen: no option asks for lists or changes them.
    pub fn is_one_screen(&self) -> bool {
        const ABOUT_LISTS: [&str; 16] = [
            "full",
            "shorten-templates",
            "merge-backtraces",
            "print-peaks",
            "print-allocators",
            "print-temporary",
            "print-leaks",
            "peak-limit",
            "sub-peak-limit",
            "print-suppressions",
            "cost",
            "hide",
            "collapse",
            "merge",
            "limit",
            "depth",
        ];
        !self.is_kdes_name && !ABOUT_LISTS.iter().any(|option| self.has(option))
    }

    /// Returns the options that select a part of the trace, with their values.
    pub fn selecting(&self) -> Vec<String> {
        let one =
            |option: &str, value: &Option<String>| value.iter().map(|value| format!("--{option} {value}")).collect();
        let several =
            |option: &str, values: &[String]| values.iter().map(|value| format!("--{option} {value}")).collect();
        let all: [Vec<String>; 11] = [
            one("domain", &self.domain),
            one("from", &self.from),
            one("to", &self.to),
            several("include", &self.include),
            several("exclude", &self.exclude),
            one("filter-bt-function", &self.filter_bt_function),
            several("thread", &self.thread),
            several("process", &self.process),
            several("allocator", &self.allocator),
            one("size", &self.size),
            one("lifetime", &self.lifetime),
        ];
        all.concat()
    }

    fn has(&self, option: &str) -> bool {
        self.given.iter().any(|given| given == option)
    }

    /// Returns the largest number of rows in a list, if the user gave one.
    pub fn given_rows(&self) -> Option<usize> {
        let limit = self.limit.as_ref().and_then(|limit| limit.parse().ok());
        let limit = limit.map(|limit: usize| if limit == 0 { usize::MAX } else { limit });
        limit.or_else(|| self.has("peak-limit").then_some(self.peak_limit))
    }

    /// Returns the largest number of rows in a list of the text report.
    pub fn rows(&self) -> usize {
        self.given_rows().unwrap_or(self.peak_limit)
    }

    /// Returns the path of the trace.
    pub fn file(&self) -> &PathBuf {
        // clap requires one of the two.
        static NONE: PathBuf = PathBuf::new();
        self.positional.as_ref().or(self.file_option.as_ref()).unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Print {
        Print::from_words(line.split(' ').map(OsString::from).collect()).unwrap()
    }

    fn refused(line: &str) -> String {
        match Print::from_words(line.split(' ').map(OsString::from).collect()) {
            Err(Wrong::Option(sentence)) => sentence,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_that_change_nothing_are_refused() {
        for (line, option) in [
            ("print --points 3 x", "--points"),
            ("print --view stacks --cost live x", "--cost"),
            ("print --view flame -n 3 x", "--peak-limit"),
            ("print -M out --from 1s x", "--from"),
            ("print --flamegraph-cost-type peak x", "--flamegraph-cost-type"),
            ("print --json --merge line x", "--merge"),
            ("print --event 3 --from 1s x", "--from"),
            ("print -l --at 1s x", "--print-leaks"),
            ("print -m 0 -s 3 x", "--sub-peak-limit"),
            ("print -n 3 --limit 4 x", "--limit"),
            ("print --view flame -F out x", "--print-flamegraph"),
            ("print --view diff --hide libc --compare @1s x", "--hide"),
            ("print --view flame --diff y x", "--diff"),
            ("print --view leaks --by process x", "--by process"),
        ] {
            assert!(refused(line).contains(option), "{line}: {}", refused(line));
        }
    }

    /// Every example of the help is parsed, and names a trace.
    #[test]
    fn examples_can_be_followed() {
        let lines: Vec<&str> = EXAMPLES.lines().filter_map(|line| line.trim().strip_prefix("heaptrack ")).collect();
        assert!(lines.len() > 8);
        for line in lines {
            let line = line.split("  ").next().unwrap_or(line).split(" |").next().unwrap_or(line);
            let print = parse(&line.replace('\'', ""));
            assert!(
                print.query().is_ok() && print.file().to_str().is_some_and(|file| file.ends_with(".htz")),
                "{line}"
            );
        }
    }

    #[test]
    fn one_cost_is_one_list() {
        let print = parse("print --cost leaked -T x");
        assert!(!print.print_peaks && !print.print_allocators && print.print_temporary);
        assert!(!parse("print --at 1s x").print_peaks && parse("print --from 1s x").print_peaks);
        assert_eq!((parse("print x").rows(), parse("print --limit 0 x").rows()), (10, usize::MAX));
        assert_eq!((parse("print -n 3 x").given_rows(), parse("print x").given_rows()), (Some(3), None));
    }

    #[test]
    fn the_command_is_consistent() {
        Print::command().debug_assert();
    }

    #[test]
    fn kdes_letters_mean_what_they_mean_there() {
        let print = parse("print -l x.zst");
        assert_eq!((print.print_leaks, print.file().to_str()), (true, Some("x.zst")));
        let print = parse("print -p0 -a 0 --print-temporary=0 -m off -n 3 -l 1 -f x.gz");
        assert!(!print.print_peaks && !print.print_allocators && !print.print_temporary && !print.merge_backtraces);
        assert_eq!((print.peak_limit, print.print_leaks, print.file().to_str()), (3, true, Some("x.gz")));
        assert_eq!(parse("print -s2 x").sub_peak_limit, 2);
        let print = parse("print x -n -s --print-suppressions");
        assert_eq!((print.peak_limit, print.sub_peak_limit, print.print_suppressions), (10, 5, true));
        assert!(print.shorten_templates && !print.print_leaks);
    }

    #[test]
    fn wrong_words_are_refused() {
        for line in ["print", "print -z x", "print --view nothing x", "print -f a b", "print --json x y"] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(Print::try_parse_from(with_values(words)).unwrap_err().exit_code(), 2, "{line}");
        }
        assert!(parse("print --at soon x").query().is_err());
    }
}
