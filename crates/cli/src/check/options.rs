//! The options of `heaptrack check`.
use super::budget::{Budget, Limit, Metric, Origin, percent};
use super::settings::Settings;
use crate::known_leaks::KnownLeaks;
use crate::print::as_option;
use analysis::Query;
use anyhow::anyhow;
use clap::Parser;
use std::path::{Path, PathBuf};

const HELP: &str = "\
A budget is kept, broken, or cannot be judged: if events are missing in the trace, if a heap profile of another tool does not
record what the budget limits, or if no stack matches the pattern of a --site. What cannot be judged is not kept.

Budgets also come from the section [check] of heaptrack.toml, in the current folder or the nearest one above. An option
replaces the same budget of the file. docs/ci.md has its keys.

Sizes: 200M, 1.5G are powers of 1000, 200Mi, 1.5Gi powers of 1024; a number without a unit is bytes.
Patterns: a text, function:TEXT, file:TEXT, module:TEXT, or /REGEX/.
Formats: text, json, junit, sarif, github (annotations), markdown (the summary of a pull request).

Examples:
  heaptrack check --max-peak 200M --max-leaked 0 app.htz
  heaptrack check --site '/parse.*/ peak 10M' --site 'file:cache.cpp leaked 0' app.htz
  heaptrack check --baseline main.htz --tolerance 2% branch.htz
  heaptrack check --to github --to junit=heap.xml --to sarif=heap.sarif --to markdown=heap.md app.htz
  heaptrack check --process cc1plus --max-peak 500M build.htz

Exit code: 0 all budgets kept; 1 a budget was broken or cannot be judged; 2 wrong usage, or a file that cannot be read or
written.";

/// Checks that a program kept its memory budgets, for continuous integration.
#[derive(Debug, Parser)]
#[command(name = "heaptrack check", bin_name = "heaptrack check", version, after_help = HELP)]
pub struct Check {
    /// The most bytes that may be live at the same time.
    #[arg(long, value_name = "SIZE", value_parser = of_peak, help_heading = "Budgets")]
    max_peak: Option<Limited>,
    /// The most bytes that may stay unfreed; known leaks do not count.
    #[arg(long, value_name = "SIZE", value_parser = of_leaked, help_heading = "Budgets")]
    max_leaked: Option<Limited>,
    /// The largest number of allocations.
    #[arg(long, value_name = "N", value_parser = of_allocations, help_heading = "Budgets")]
    max_allocations: Option<Limited>,
    /// The most temporary allocations: a number, or a share of all allocations as 5%.
    #[arg(long, value_name = "N|P%", value_parser = of_temporary, help_heading = "Budgets")]
    max_temporary: Option<Limited>,
    /// The most resident memory, with what recording adds to it.
    #[arg(long, value_name = "SIZE", value_parser = of_rss, help_heading = "Budgets")]
    max_rss: Option<Limited>,
    /// No place may hold more and more memory until the end (the verdict `grows`).
    #[arg(long, help_heading = "Budgets")]
    no_growth: bool,
    /// A budget for the stacks that match a pattern: 'PATTERN METRIC LIMIT', with the metric peak, leaked, allocations or
    /// temporary; may be repeated.
    #[arg(long, value_name = "BUDGET", value_parser = Budget::parse_site, help_heading = "Budgets")]
    site: Vec<Budget>,
    /// The trace of an earlier run. Peak, leaked memory and allocations must not be higher.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Budgets")]
    baseline: Option<PathBuf>,
    /// By how much the numbers of the baseline may be exceeded, as 2%; without it, not at all.
    #[arg(long, value_name = "P%", value_parser = percent, help_heading = "Budgets")]
    tolerance: Option<f64>,
    /// Read budgets from this file instead of searching for heaptrack.toml.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "no_config", help_heading = "Budgets")]
    config: Option<PathBuf>,
    /// Do not read heaptrack.toml.
    #[arg(long, help_heading = "Budgets")]
    no_config: bool,

    /// Only blocks that this process allocated, as in `heaptrack print`; may be repeated. Without it, budgets are for all
    /// processes together.
    #[arg(long, value_name = "PROCESS", help_heading = "Which part")]
    process: Vec<String>,
    /// malloc, custom for the blocks that the program's own allocators reported, or mapped for the program's own mappings.
    #[arg(long, value_name = "DOMAIN", help_heading = "Which part")]
    domain: Option<String>,
    /// Rules that tell which code is yours, as for `heaptrack print`.
    #[arg(long, value_name = "RULES", value_hint = clap::ValueHint::FilePath, help_heading = "Which part")]
    pub rules: Option<PathBuf>,

    #[command(flatten)]
    pub known: KnownLeaks,

    /// The format of the result, and the file that gets it; without a file, stdout. May be repeated.
    #[arg(long = "to", value_name = "FORMAT[=FILE]", value_parser = Output::parse, default_value = "text", help_heading = "Result")]
    pub outputs: Vec<Output>,
    /// In the Markdown, a link to this address, for a flame graph or a report that you stored.
    #[arg(long, value_name = "URL", help_heading = "Result")]
    pub link: Option<String>,

    /// The traces, ours or KDE's, or heap profiles of other tools. Each is checked alone.
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

/// The value of an option that sets a limit, and how it was written.
#[derive(Clone, Debug)]
struct Limited {
    limit: Limit,
    text: String,
}

fn limited(metric: Metric, text: &str) -> Result<Limited, String> {
    Ok(Limited { limit: metric.limit(text)?, text: text.to_owned() })
}

fn of_peak(text: &str) -> Result<Limited, String> {
    limited(Metric::Peak, text)
}

fn of_leaked(text: &str) -> Result<Limited, String> {
    limited(Metric::Leaked, text)
}

fn of_allocations(text: &str) -> Result<Limited, String> {
    limited(Metric::Allocations, text)
}

fn of_temporary(text: &str) -> Result<Limited, String> {
    limited(Metric::Temporary, text)
}

fn of_rss(text: &str) -> Result<Limited, String> {
    limited(Metric::Rss, text)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Junit,
    Sarif,
    Github,
    Markdown,
}

impl Format {
    const ALL: [(&'static str, Format); 6] = [
        ("text", Format::Text),
        ("json", Format::Json),
        ("junit", Format::Junit),
        ("sarif", Format::Sarif),
        ("github", Format::Github),
        ("markdown", Format::Markdown),
    ];

    /// The usual end of a file's name.
    pub const fn extension(self) -> &'static str {
        match self {
            Format::Text | Format::Github => "txt",
            Format::Json => "json",
            Format::Junit => "xml",
            Format::Sarif => "sarif",
            Format::Markdown => "md",
        }
    }
}

/// A value of `--to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub format: Format,
    /// `None` for stdout.
    pub path: Option<PathBuf>,
}

impl Output {
    pub fn parse(text: &str) -> Result<Output, String> {
        let (name, path) = text.split_once('=').map_or((text, None), |(name, path)| (name, Some(path)));
        let names = || Format::ALL.map(|(name, _)| name).join(", ");
        let format = Format::ALL.into_iter().find(|(known, _)| *known == name);
        let (_, format) = format.ok_or_else(|| format!("formats are {}", names()))?;
        if path == Some("") {
            return Err("there is no file after the =".into());
        }
        Ok(Output { format, path: path.map(PathBuf::from) })
    }
}

impl Check {
    /// The file with budgets, if there is one.
    pub fn settings_file(&self, here: &Path) -> Option<PathBuf> {
        match &self.config {
            Some(file) => Some(file.clone()),
            None if self.no_config => None,
            None => Settings::find(here),
        }
    }

    /// The budgets of the command line.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let limits = [
            (Metric::Peak, &self.max_peak),
            (Metric::Leaked, &self.max_leaked),
            (Metric::Allocations, &self.max_allocations),
            (Metric::Temporary, &self.max_temporary),
            (Metric::Rss, &self.max_rss),
        ];
        let mut budgets = Vec::new();
        for (metric, limited) in limits {
            let Some(Limited { limit, text }) = limited else { continue };
            let origin = Origin::Option(format!("--{} {text}", metric.key()));
            budgets.push(Budget { metric, site: None, limit: *limit, origin });
        }
        if self.no_growth {
            let origin = Origin::Option("--no-growth".into());
            budgets.push(Budget { metric: Metric::Growth, site: None, limit: Limit::Most(0), origin });
        }
        for budget in &self.site {
            if let Some(other) = budgets.iter().find(|other| other.is_about_the_same(budget)) {
                return Err(anyhow!("{} and {} limit the same: give one of them", other.origin, budget.origin));
            }
            budgets.push(budget.clone());
        }
        if let Some(twice) =
            self.outputs.iter().enumerate().find_map(|(at, output)| {
                self.outputs[..at].iter().any(|other| other.path == output.path).then_some(output)
            })
        {
            let place = twice.path.as_ref().map_or("stdout".to_owned(), |path| path.display().to_string());
            return Err(anyhow!("--to: two results for {place}; give one of them another file"));
        }
        if self.link.is_some() && !self.outputs.iter().any(|output| output.format == Format::Markdown) {
            return Err(anyhow!("--link changes nothing without --to markdown"));
        }
        Ok(Settings { budgets, suppressions: None, baseline: self.baseline.clone(), tolerance: self.tolerance })
    }

    pub fn query(&self) -> anyhow::Result<Query> {
        let mut query = Query::default();
        let words = self.domain.iter().map(|domain| ("domain", domain));
        let words = words.chain(self.process.iter().map(|process| ("process", process)));
        for (name, value) in words {
            query.set(name, value).map_err(|bad| anyhow!(as_option(&bad)))?;
        }
        if self.known.no_suppressions {
            query.set("suppressions", "off").map_err(|bad| anyhow!(as_option(&bad)))?;
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Check {
        Check::try_parse_from(["check"].iter().chain(words)).unwrap()
    }

    #[test]
    fn options_become_budgets() {
        let check =
            parse(&["--max-peak", "200M", "--no-growth", "--site", "a peak 1k", "--max-temporary", "5%", "x.htz"]);
        let budgets = check.settings().unwrap().budgets;
        let names: Vec<String> = budgets.iter().map(Budget::name).collect();
        assert_eq!(names, ["peak", "temporary", "growth", "peak of a"]);
        assert_eq!(budgets[0].origin.to_string(), "--max-peak 200M");
        assert_eq!(check.outputs, [Output { format: Format::Text, path: None }]);
        let check = parse(&["--to", "junit=a.xml", "--to", "github", "x"]);
        assert_eq!(check.outputs[0], Output { format: Format::Junit, path: Some("a.xml".into()) });
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            &["--site", "a peak 1k", "--site", "a peak 2k", "x"][..],
            &["--to", "json", "--to", "junit", "x"],
            &["--to", "json=a", "--to", "junit=a", "x"],
            &["--link", "https://example.org", "x"],
        ] {
            assert!(parse(words).settings().is_err(), "{words:?}");
        }
        for words in [
            &["--max-peak", "1", "--max-peak", "2", "x"][..],
            &["--max-peak", "1Q", "x"],
            &["--to", "pdf", "x"],
            &["--to", "json=", "x"],
            &["--max-peak", "1"],
            &["--config", "a", "--no-config", "x"],
            &["--tolerance", "2", "x"],
        ] {
            assert!(Check::try_parse_from(["check"].iter().chain(words)).is_err(), "{words:?}");
        }
    }

    #[test]
    fn examples_can_be_followed() {
        let lines: Vec<&str> = HELP.lines().filter_map(|line| line.strip_prefix("  heaptrack check ")).collect();
        assert_eq!(lines.len(), 5);
        for line in lines {
            let mut words = Vec::new();
            for (at, part) in line.split('\'').enumerate() {
                if at % 2 == 1 {
                    words.push(part.to_owned());
                } else {
                    words.extend(part.split_whitespace().map(str::to_owned));
                }
            }
            let check = Check::try_parse_from(std::iter::once("check".to_owned()).chain(words)).unwrap();
            assert!(check.settings().is_ok(), "{line}");
        }
    }
}
