//! The options of `heaptrack print` (also `heaptrack_print`): KDE's letters, and ours.
use crate::known_leaks::KnownLeaks;
use analysis::view::View;
use analysis::{BadQuery, Pattern, Query};
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Times: 1.5s, 200ms, 2min, 50%, start, peak, end. Patterns: a text, function:TEXT, file:TEXT, module:TEXT, or /REGEX/.

Examples:
  heaptrack print app.htz                           where the memory went
  heaptrack print -l app.htz                        with leaks, judged
  heaptrack print --at 12.5s app.htz                what was live then
  heaptrack print --from 1min --to end -l app.htz   what came after the first minute and stayed
  heaptrack print --include 'file:cache.cpp' --hide all-but-mine app.htz
  heaptrack print --diff before.htz after.htz       what changed
  heaptrack print -F stacks.txt --flamegraph-cost-type peak app.htz
  heaptrack print --json app.htz | jq .totals
  heaptrack print --view timeline --points 100 app.htz

Exit code: 0; 2 wrong usage, or a file that cannot be read.";

/// Says where the memory of a recorded program went.
#[derive(Debug, Parser)]
#[command(name = "heaptrack print", bin_name = "heaptrack print", after_help = EXAMPLES, version, disable_version_flag = true)]
pub struct Print {
    /// The trace: ours or KDE's; it may still be growing.
    #[arg(value_name = "FILE", required_unless_present = "file_option", value_hint = clap::ValueHint::FilePath)]
    positional: Option<PathBuf>,
    /// The same as FILE.
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "positional", id = "file_option")]
    file_option: Option<PathBuf>,
    /// Show the difference to this trace.
    #[arg(short = 'd', long = "diff", value_name = "BASE", value_hint = clap::ValueHint::FilePath)]
    pub diff: Option<PathBuf>,

    /// Leave out what is in `<...>` of names.
    #[arg(short = 't', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub shorten_templates: bool,
    /// Put stacks with the same innermost level together.
    #[arg(short = 'm', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub merge_backtraces: bool,
    /// The stacks with most memory at the peak.
    #[arg(short = 'p', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_peaks: bool,
    /// The stacks with most allocations.
    #[arg(short = 'a', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_allocators: bool,
    /// The stacks with most temporary allocations.
    #[arg(short = 'T', long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_temporary: bool,
    /// The stacks with most leaked memory, and a verdict for each place.
    #[arg(short = 'l', long, value_name = "0|1", default_value = "0", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_leaks: bool,
    /// Most entries of a list.
    #[arg(short = 'n', long, value_name = "N", default_value = "10", default_missing_value = "10", num_args = 0..=1, help_heading = "What is shown")]
    pub peak_limit: usize,
    /// Most stacks of an entry.
    #[arg(short = 's', long, value_name = "N", default_value = "5", default_missing_value = "5", num_args = 0..=1, help_heading = "What is shown")]
    pub sub_peak_limit: usize,
    /// What suppressions left out.
    #[arg(long, value_name = "0|1", default_value = "0", default_missing_value = "1", num_args = 0..=1, value_parser = switch, action = clap::ArgAction::Set, help_heading = "What is shown")]
    pub print_suppressions: bool,
    /// Rules that tell whose code is whose: lines of CLASS SUBJECT PATTERN, as `dependency path */third-party/*`.
    #[arg(long, value_name = "RULES", value_hint = clap::ValueHint::FilePath, help_heading = "What is shown")]
    pub rules: Option<PathBuf>,

    /// Write how many blocks of each size were allocated.
    #[arg(short = 'H', long, value_name = "OUT", value_hint = clap::ValueHint::FilePath, help_heading = "Files for other tools")]
    pub print_histogram: Option<PathBuf>,
    /// Write folded stacks, as flamegraph.pl and others read them.
    #[arg(short = 'F', long, value_name = "OUT", value_hint = clap::ValueHint::FilePath, help_heading = "Files for other tools")]
    pub print_flamegraph: Option<PathBuf>,
    /// What folded stacks are made of: allocations, temporary, leaked, peak; also the words of --cost.
    #[arg(long, value_name = "COST", default_value = "allocations", help_heading = "Files for other tools")]
    pub flamegraph_cost_type: String,
    /// Write massif's format, as ms_print reads it.
    #[arg(short = 'M', long, value_name = "OUT", value_hint = clap::ValueHint::FilePath, help_heading = "Files for other tools")]
    pub print_massif: Option<PathBuf>,
    /// Per cent of a snapshot below which its nodes are put together.
    #[arg(long, value_name = "PERCENT", default_value = "1", help_heading = "Files for other tools")]
    pub massif_threshold: f64,
    /// Every which snapshot has a tree; 0: only the highest.
    #[arg(long, value_name = "N", default_value = "2", help_heading = "Files for other tools")]
    pub massif_detailed_freq: usize,

    /// Whose blocks: malloc, or custom for those that the program's own allocators reported.
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
    /// Only stacks with a level that matches; of several, all must.
    #[arg(long, value_name = "PATTERN", help_heading = "Which part")]
    include: Vec<String>,
    /// No stacks with a level that matches.
    #[arg(long, value_name = "PATTERN", help_heading = "Which part")]
    exclude: Vec<String>,
    /// Only stacks with a function whose name has this in it.
    #[arg(long, value_name = "TEXT", help_heading = "Which part")]
    filter_bt_function: Option<String>,
    /// Only blocks that this thread allocated (its index, see --view threads); may be repeated.
    #[arg(long, value_name = "INDEX", help_heading = "Which part")]
    thread: Vec<String>,
    /// Only blocks of so many bytes: 100..4k
    #[arg(long, value_name = "MIN..MAX", help_heading = "Which part")]
    size: Option<String>,
    /// Only blocks that lived so long: 1ms..2s
    #[arg(long, value_name = "MIN..MAX", help_heading = "Which part")]
    lifetime: Option<String>,

    #[command(flatten)]
    pub known: KnownLeaks,

    /// The report for machines, on stdout.
    #[arg(long, help_heading = "For machines")]
    pub json: bool,
    /// JSON of one view: summary, stacks, profile, bottom-up, top-down, callers, flame, timeline, sizes, lifetimes, threads, leaks,
    /// source, suppressions, diff (docs/views.md).
    #[arg(long, value_name = "NAME", value_parser = view, help_heading = "For machines")]
    pub view: Option<View>,
    /// What trees and lists are sorted by: peak, leaked, live, allocations, temporary, allocated, deallocations, kept, growth.
    #[arg(long, value_name = "COST", help_heading = "For machines")]
    cost: Option<String>,
    /// Take levels of these classes out of stacks: runtime (or std), libc, dependency, kernel; or all-but-mine.
    #[arg(long, value_name = "CLASSES", help_heading = "For machines")]
    hide: Option<String>,
    /// `recursion`: a level that calls itself becomes one.
    #[arg(long, value_name = "WHAT", help_heading = "For machines")]
    collapse: Option<String>,
    /// What makes two levels the same: function, line, module, namespace.
    #[arg(long, value_name = "BY", help_heading = "For machines")]
    merge: Option<String>,
    /// Compare with another point or range of the same trace: @T or @T..T.
    #[arg(long, value_name = "@T", conflicts_with = "diff", help_heading = "For machines")]
    compare: Option<String>,
    /// Most rows.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    limit: Option<String>,
    /// Most levels of a tree.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    depth: Option<String>,
    /// Slices of a timeline.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    points: Option<String>,
    /// Bands of a timeline, functions of a bucket.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    top: Option<String>,
    /// Bands and diffs by `blamed` level or innermost `function`.
    #[arg(long, value_name = "WHAT", help_heading = "For machines")]
    by: Option<String>,
    /// View callers: whose callers and callees.
    #[arg(long, value_name = "PATTERN", help_heading = "For machines")]
    function: Option<String>,
    /// View source: only files with this in their path.
    #[arg(long, value_name = "TEXT", help_heading = "For machines")]
    source_file: Option<String>,
    /// Only the n-th allocation, from 1.
    #[arg(long, value_name = "N", help_heading = "For machines")]
    pub event: Option<u64>,
    /// Print the version.
    #[arg(short = 'v', visible_short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err("1 or 0".into()),
    }
}

fn view(name: &str) -> Result<View, String> {
    View::parse(name).ok_or_else(|| format!("views are {}", View::ALL.map(|(name, _)| name).join(", ")))
}

/// Options whose value may be left out, and whether it is a number.
const OPTIONAL: [(&str, &str, bool); 9] = [
    ("-t", "--shorten-templates", false),
    ("-m", "--merge-backtraces", false),
    ("-p", "--print-peaks", false),
    ("-a", "--print-allocators", false),
    ("-T", "--print-temporary", false),
    ("-l", "--print-leaks", false),
    ("-n", "--peak-limit", true),
    ("-s", "--sub-peak-limit", true),
    ("", "--print-suppressions", false),
];

impl Print {
    /// Ends the process on wrong usage (2), `--help` and `--version` (0).
    pub fn from_words(words: Vec<OsString>) -> Print {
        Print::parse_from(with_values(words))
    }

    /// The trace.
    pub fn file(&self) -> &PathBuf {
        // One of them is required.
        static NONE: PathBuf = PathBuf::new();
        self.positional.as_ref().or(self.file_option.as_ref()).unwrap_or(&NONE)
    }

    /// What part of the trace, and how it is looked at.
    pub fn query(&self) -> Result<Query, BadQuery> {
        let mut query = Query::default();
        let single = [
            ("domain", &self.domain),
            ("at", &self.at),
            ("from", &self.from),
            ("to", &self.to),
            ("size", &self.size),
            ("lifetime", &self.lifetime),
            ("cost", &self.cost),
            ("hide", &self.hide),
            ("collapse", &self.collapse),
            ("merge", &self.merge),
            ("compare", &self.compare),
            ("limit", &self.limit),
            ("depth", &self.depth),
            ("points", &self.points),
            ("top", &self.top),
            ("by", &self.by),
            ("function", &self.function),
            ("file", &self.source_file),
        ];
        for (name, value) in single {
            if let Some(value) = value {
                query.set(name, value)?;
            }
        }
        for (name, values) in [("include", &self.include), ("exclude", &self.exclude), ("thread", &self.thread)] {
            for value in values {
                query.set(name, value)?;
            }
        }
        if let Some(text) = &self.filter_bt_function {
            query.include.push(Pattern::exact_function(text));
        }
        if self.known.no_suppressions {
            query.set("suppressions", "off")?;
        }
        if let Some(base) = &self.diff {
            query.set("compare", &base.to_string_lossy())?;
        }
        query.check()?;
        Ok(query)
    }
}

/// `-l FILE` does not mean that FILE is the value of `-l`: puts `1` where a value was left out.
pub fn with_values(words: Vec<OsString>) -> Vec<OsString> {
    let mut out = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let option = OPTIONAL.iter().find(|(short, long, _)| word == *long || !short.is_empty() && word == *short);
        let Some((_, _, is_number)) = option else {
            out.push(word);
            continue;
        };
        let next = words.peek().and_then(|next| next.to_str());
        let has_value =
            next.is_some_and(|next| if *is_number { next.parse::<usize>().is_ok() } else { switch(next).is_ok() });
        out.push(word);
        if !has_value && !*is_number {
            out.push("1".into());
        } else if !has_value {
            // The default again.
            out.pop();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Print {
        Print::try_parse_from(with_values(line.split(' ').map(OsString::from).collect())).unwrap()
    }

    #[test]
    fn the_command_is_consistent() {
        Print::command().debug_assert();
    }

    #[test]
    fn kdes_letters_mean_what_they_mean_there() {
        let print = parse("print -l x.zst");
        assert_eq!((print.print_leaks, print.file().to_str()), (true, Some("x.zst")));
        let print = parse("print -p0 -a 0 --print-temporary=0 -m off -n 3 -s2 -l 1 -f x.gz");
        assert!(!print.print_peaks && !print.print_allocators && !print.print_temporary && !print.merge_backtraces);
        assert_eq!((print.peak_limit, print.sub_peak_limit, print.print_leaks), (3, 2, true));
        assert_eq!(print.file().to_str(), Some("x.gz"));
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
