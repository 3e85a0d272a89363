//! Budgets that are kept with the code: `heaptrack.toml`, and the tables `metadata.heaptrack` of Cargo.toml.
//!
//! Receives: the text of a TOML file. Returns: budgets, each with the line that sets it. Must hold: a key that is not
//! known is refused, so that a typing mistake never makes a budget disappear. An error names the file, the line and the key.
use super::budget::{Budget, Limit, Metric, Origin, percent};
use super::places::Repository;
use crate::trouble::unreadable;
use analysis::Pattern;
use anyhow::anyhow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The name of the file that is searched for.
pub const FILE: &str = "heaptrack.toml";
/// The sections that this version knows. A later version may know more.
const SECTIONS: [&str; 2] = ["check", "code"];
const NOT_BUDGETS: [&str; 4] = ["suppressions", "baseline", "tolerance", "site"];

/// What a file says about checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub budgets: Vec<Budget>,
    pub suppressions: Option<PathBuf>,
    pub baseline: Option<PathBuf>,
    /// In per cent.
    pub tolerance: Option<f64>,
}

impl Settings {
    /// Reads `heaptrack.toml`.
    pub fn read(path: &Path) -> anyhow::Result<Settings> {
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> anyhow::Result<Settings> {
        let source = Source { path, text };
        let table = source.table()?;
        for key in table.get_ref().keys() {
            let name = key.get_ref().as_ref();
            if !SECTIONS.contains(&name) {
                return Err(
                    source.wrong(key.span(), format!("`{name}` is not a section; the sections are [check] and [code]"))
                );
            }
        }
        match table.get_ref().get("check") {
            Some(check) => source.settings(check, "[check]"),
            None => Ok(Settings::default()),
        }
    }

    /// Reads a table of a Cargo.toml, as `["package", "metadata", "heaptrack"]`. A table that is not there has no budgets.
    pub fn of_manifest(path: &Path, tables: &[&str]) -> anyhow::Result<Settings> {
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        let source = Source { path, text: &text };
        let whole = source.table()?;
        let mut names = tables.iter();
        let Some(mut found) = names.next().and_then(|name| whole.get_ref().get(*name)) else {
            return Ok(Settings::default());
        };
        for name in names {
            match found.get_ref().as_table().and_then(|table| table.get(*name)) {
                Some(inner) => found = inner,
                None => return Ok(Settings::default()),
            }
        }
        source.settings(found, &format!("[{}]", tables.join(".")))
    }

    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty() && self.baseline.is_none()
    }

    /// Returns `heaptrack.toml` of this folder, or of the nearest folder above that has one.
    pub fn find(folder: &Path) -> Option<PathBuf> {
        folder.ancestors().map(|folder| folder.join(FILE)).find(|path| path.is_file())
    }

    /// Names the files that set budgets relative to the repository, and sorts the budgets.
    #[must_use]
    pub fn shown_in(mut self, repository: &Repository) -> Settings {
        for budget in &mut self.budgets {
            if let Origin::File { path, .. } = &mut budget.origin {
                *path = repository.shown(&path.to_string_lossy()).into();
            }
        }
        self.budgets.sort_by_key(|budget| (budget.site.is_some(), budget.site.is_none().then_some(budget.metric)));
        self
    }

    /// Uses the settings of `outer` where these have none.
    #[must_use]
    pub fn or(mut self, outer: Settings) -> Settings {
        for budget in outer.budgets {
            if !self.budgets.iter().any(|own| own.is_about_the_same(&budget)) {
                self.budgets.push(budget);
            }
        }
        Settings {
            budgets: self.budgets,
            suppressions: self.suppressions.or(outer.suppressions),
            baseline: self.baseline.or(outer.baseline),
            tolerance: self.tolerance.or(outer.tolerance),
        }
    }
}

pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl<'a> Source<'a> {
    pub(super) fn table(&self) -> anyhow::Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let message = error.message().lines().next().unwrap_or_default().to_owned();
            self.wrong(error.span().unwrap_or(0..0), message)
        })
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    pub(super) fn wrong(&self, span: Range<usize>, sentence: impl std::fmt::Display) -> anyhow::Error {
        anyhow!("{}:{}: {sentence}", self.path.display(), self.line(&span))
    }

    fn settings(&self, table: &Spanned<DeValue<'_>>, section: &str) -> anyhow::Result<Settings> {
        let Some(entries) = table.get_ref().as_table() else {
            return Err(self.wrong(table.span(), format!("{section} must be a table")));
        };
        let mut settings = Settings::default();
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            let relative = || -> anyhow::Result<PathBuf> {
                Ok(self.path.parent().unwrap_or(Path::new("")).join(self.string(name, value)?))
            };
            match name {
                "suppressions" => settings.suppressions = Some(relative()?),
                "baseline" => settings.baseline = Some(relative()?),
                "tolerance" => {
                    let share = percent(self.string(name, value)?);
                    settings.tolerance = Some(share.map_err(|reason| self.bad_value(name, value, &reason))?);
                }
                "site" => self.sites(value, &mut settings.budgets)?,
                _ => {
                    let known = || Metric::ALL.map(Metric::key).into_iter().chain(NOT_BUDGETS);
                    let metric = self.metric(key, &Metric::ALL, section, known)?;
                    settings.budgets.extend(self.budget(metric, None, value)?);
                }
            }
        }
        Ok(settings)
    }

    fn sites(&self, value: &Spanned<DeValue<'_>>, budgets: &mut Vec<Budget>) -> anyhow::Result<()> {
        let not_tables = || self.wrong(value.span(), "`site` must be a list of tables: [[check.site]]");
        for entry in value.get_ref().as_array().ok_or_else(not_tables)?.iter() {
            let table = entry.get_ref().as_table().ok_or_else(not_tables)?;
            let Some(pattern) = table.get("match") else {
                return Err(self.wrong(entry.span(), "a site needs the key `match`, a pattern"));
            };
            let site = self.string("match", pattern)?;
            Pattern::parse(site).map_err(|reason| self.bad_value("match", pattern, &reason))?;
            for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != "match") {
                let known = || Metric::OF_SITES.map(Metric::key).into_iter().chain(["match"]);
                let metric = self.metric(key, &Metric::OF_SITES, "[[check.site]]", known)?;
                if let Some(budget) = self.budget(metric, Some(site), value)? {
                    if budgets.iter().any(|other| other.is_about_the_same(&budget)) {
                        return Err(self.wrong(key.span(), format!("a second budget for the {}", budget.name())));
                    }
                    budgets.push(budget);
                }
            }
        }
        Ok(())
    }

    fn metric<N: Iterator<Item = &'static str>>(
        &self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        metrics: &[Metric],
        section: &str,
        known: impl Fn() -> N,
    ) -> anyhow::Result<Metric> {
        let name = key.get_ref().as_ref();
        metrics.iter().copied().find(|metric| metric.key() == name).ok_or_else(|| {
            let known: Vec<&str> = known().collect();
            self.wrong(key.span(), format!("`{name}` is not a key of {section}; its keys are {}", known.join(", ")))
        })
    }

    /// `no-growth = false` is no budget.
    fn budget(
        &self,
        metric: Metric,
        site: Option<&str>,
        value: &Spanned<DeValue<'_>>,
    ) -> anyhow::Result<Option<Budget>> {
        let limit = match (metric, value.get_ref()) {
            (Metric::Growth, DeValue::Boolean(true)) => Limit::Most(0),
            (Metric::Growth, DeValue::Boolean(false)) => return Ok(None),
            (Metric::Growth, _) => return Err(self.bad_value(metric.key(), value, "must be true or false")),
            (_, DeValue::Integer(number)) => {
                let number = u64::from_str_radix(number.as_str(), number.radix());
                Limit::Most(number.map_err(|_| self.bad_value(metric.key(), value, "must not be negative"))?)
            }
            (_, DeValue::String(text)) => {
                metric.limit(text).map_err(|reason| self.bad_value(metric.key(), value, &reason))?
            }
            _ => return Err(self.bad_value(metric.key(), value, "must be a number, or a text with a unit")),
        };
        let origin = Origin::File { path: self.path.to_owned(), line: self.line(&value.span()) };
        Ok(Some(Budget { metric, site: site.map(str::to_owned), limit, origin }))
    }

    fn string<'v>(&self, name: &str, value: &'v Spanned<DeValue<'_>>) -> anyhow::Result<&'v str> {
        value.get_ref().as_str().ok_or_else(|| self.bad_value(name, value, "must be a text in quotes"))
    }

    pub(super) fn bad_value(&self, name: &str, value: &Spanned<DeValue<'_>>, reason: &str) -> anyhow::Error {
        let written = self.text.get(value.span()).unwrap_or_default();
        self.wrong(value.span(), format!("{name} = {written}: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(Path::new("dir/heaptrack.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn budgets_have_their_lines() {
        let text = "[check]\nmax-peak = \"200M\"\nmax-leaked = 0\nmax-temporary = \"5%\"\nno-growth = true\n\
            suppressions = \"known.txt\"\ntolerance = \"2%\"\n\n[[check.site]]\nmatch = \"/parse.*/\"\nmax-peak = \"10M\"\n";
        let settings = parse(text).unwrap();
        let lines: Vec<(Metric, Option<&str>, Limit, String)> = settings
            .budgets
            .iter()
            .map(|budget| (budget.metric, budget.site.as_deref(), budget.limit, budget.origin.to_string()))
            .collect();
        let at = |line: usize| format!("dir/heaptrack.toml:{line}");
        assert!(lines.contains(&(Metric::Peak, None, Limit::Most(200_000_000), at(2))), "{lines:?}");
        assert!(lines.contains(&(Metric::Leaked, None, Limit::Most(0), at(3))), "{lines:?}");
        assert!(lines.contains(&(Metric::Temporary, None, Limit::Share(5.0), at(4))), "{lines:?}");
        assert!(lines.contains(&(Metric::Growth, None, Limit::Most(0), at(5))), "{lines:?}");
        assert!(lines.contains(&(Metric::Peak, Some("/parse.*/"), Limit::Most(10_000_000), at(11))), "{lines:?}");
        assert_eq!(lines.len(), 5);
        assert_eq!((settings.suppressions, settings.tolerance), (Some(PathBuf::from("dir/known.txt")), Some(2.0)));
        assert_eq!(parse("").unwrap(), Settings::default());
        assert_eq!(parse("[check]\nno-growth = false").unwrap(), Settings::default());
    }

    #[test]
    fn mistakes_name_the_line_and_the_key() {
        for (text, expected) in [
            (
                "[check]\nmax-peek = 1",
                "dir/heaptrack.toml:2: `max-peek` is not a key of [check]; its keys are max-peak, ",
            ),
            ("\n[rules]\n", "dir/heaptrack.toml:2: `rules` is not a section; the sections are [check] and [code]"),
            ("max-peak = 1", "dir/heaptrack.toml:1: `max-peak` is not a section; the sections are [check] and [code]"),
            ("[check]\n\nmax-peak = \"5Q\"", "dir/heaptrack.toml:3: max-peak = \"5Q\": not a valid size"),
            ("[check]\nmax-peak = -1", "dir/heaptrack.toml:2: max-peak = -1: must not be negative"),
            (
                "[check]\nmax-peak = 1.5",
                "dir/heaptrack.toml:2: max-peak = 1.5: must be a number, or a text with a unit",
            ),
            ("[check]\nno-growth = 1", "dir/heaptrack.toml:2: no-growth = 1: must be true or false"),
            ("[check]\nmax-peak = 1\nmax-peak = 2", "dir/heaptrack.toml:3: duplicate key"),
            ("[check]\nmax-peak", "dir/heaptrack.toml:2: "),
            ("check = 3", "dir/heaptrack.toml:1: [check] must be a table"),
            ("[check]\ntolerance = \"2\"", "dir/heaptrack.toml:2: tolerance = \"2\": not a valid percentage"),
            ("[check]\nbaseline = 3", "dir/heaptrack.toml:2: baseline = 3: must be a text in quotes"),
            ("[[check.site]]\nmax-peak = 1", "dir/heaptrack.toml:1: a site needs the key `match`, a pattern"),
            ("[[check.site]]\nmatch = \"/(/\"", "dir/heaptrack.toml:2: match = \"/(/\": "),
            (
                "[[check.site]]\nmatch = \"a\"\nmax-rss = 1",
                "dir/heaptrack.toml:3: `max-rss` is not a key of [[check.site]]",
            ),
            (
                "[[check.site]]\nmatch = \"a\"\nmax-peak = 1\n[[check.site]]\nmatch = \"a\"\nmax-peak = 2",
                "dir/heaptrack.toml:6: a second budget for the peak of a",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }
}
