//! A budget: what is limited, for which code, how much is allowed, and where the limit was set.
use crate::status::Bytes;
use analysis::{Cost, NOT_A_SIZE, Pattern, parse_size};
use std::fmt;
use std::path::PathBuf;

/// What a budget limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// The most bytes that were live at the same time.
    Peak,
    /// The bytes that were not freed, without known leaks.
    Leaked,
    /// The number of allocations.
    Allocations,
    /// Temporary allocations: their number, or their share of all allocations.
    Temporary,
    /// The most resident memory.
    Rss,
    /// The number of places with the verdict `grows`.
    Growth,
}

impl Metric {
    pub const ALL: [Metric; 6] =
        [Metric::Peak, Metric::Leaked, Metric::Allocations, Metric::Temporary, Metric::Rss, Metric::Growth];
    /// What can be limited for the stacks that match a pattern.
    pub const OF_SITES: [Metric; 4] = [Metric::Peak, Metric::Leaked, Metric::Allocations, Metric::Temporary];

    pub const fn name(self) -> &'static str {
        match self {
            Metric::Peak => "peak",
            Metric::Leaked => "leaked",
            Metric::Allocations => "allocations",
            Metric::Temporary => "temporary",
            Metric::Rss => "rss",
            Metric::Growth => "growth",
        }
    }

    /// Its key in heaptrack.toml. With two hyphens before it, it is the option.
    pub const fn key(self) -> &'static str {
        match self {
            Metric::Peak => "max-peak",
            Metric::Leaked => "max-leaked",
            Metric::Allocations => "max-allocations",
            Metric::Temporary => "max-temporary",
            Metric::Rss => "max-rss",
            Metric::Growth => "no-growth",
        }
    }

    /// The cost of `print` by which the code to blame is found. `None` for the resident memory.
    pub const fn cost(self) -> Option<Cost> {
        match self {
            Metric::Peak => Some(Cost::Peak),
            Metric::Leaked | Metric::Growth => Some(Cost::Leaked),
            Metric::Allocations => Some(Cost::Allocations),
            Metric::Temporary => Some(Cost::Temporary),
            Metric::Rss => None,
        }
    }

    pub const fn is_bytes(self) -> bool {
        matches!(self, Metric::Peak | Metric::Leaked | Metric::Rss)
    }

    /// Parses a limit, as the option and the key take it.
    pub fn limit(self, text: &str) -> Result<Limit, String> {
        match self {
            Metric::Temporary if text.trim_end().ends_with('%') => Ok(Limit::Share(percent(text)?)),
            Metric::Peak | Metric::Leaked | Metric::Rss => {
                parse_size(text).map(Limit::Most).ok_or_else(|| NOT_A_SIZE.to_owned())
            }
            Metric::Temporary => number(text).map(Limit::Most).map_err(|_| NOT_A_SHARE.to_owned()),
            Metric::Allocations | Metric::Growth => number(text).map(Limit::Most),
        }
    }
}

const NOT_A_SHARE: &str = "not a valid number or share (examples: 100000, 5%)";
pub const NOT_A_PERCENTAGE: &str = "not a valid percentage (examples: 2%, 0.5%)";

/// Parses a number of allocations: `500000`, `500k`, `2M`.
fn number(text: &str) -> Result<u64, String> {
    let is_plain = |text: &str| !text.to_ascii_lowercase().ends_with(['b', 'i']);
    parse_size(text)
        .filter(|_| is_plain(text))
        .ok_or_else(|| "not a valid number (examples: 500000, 500k, 2M)".to_owned())
}

/// Parses `2%`.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end().strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
    number.filter(|share: &f64| *share >= 0.0 && share.is_finite()).ok_or_else(|| NOT_A_PERCENTAGE.to_owned())
}

/// The most that is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Bytes or a number, which depends on the metric.
    Most(u64),
    /// A share of all allocations, in per cent.
    Share(f64),
}

/// Where a budget was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An option, as it was typed.
    Option(String),
    /// A key of heaptrack.toml or Cargo.toml.
    File { path: PathBuf, line: usize },
    /// The trace of an earlier run.
    Baseline(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Option(option) => f.write_str(option),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Baseline(path) => write!(f, "--baseline {}", path.display()),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    pub metric: Metric,
    /// The pattern of the stacks that the budget is for; `None` for the whole program.
    pub site: Option<String>,
    pub limit: Limit,
    pub origin: Origin,
}

impl Budget {
    /// Returns true if both limit the same thing.
    pub fn is_about_the_same(&self, other: &Budget) -> bool {
        self.metric == other.metric && self.site == other.site && self.is_of_baseline() == other.is_of_baseline()
    }

    pub const fn is_of_baseline(&self) -> bool {
        matches!(self.origin, Origin::Baseline(_))
    }

    /// What the budget is about: "peak", "peak of /parse.*/", "peak, compared with base.htz".
    pub fn name(&self) -> String {
        let metric = self.metric.name();
        match (&self.site, &self.origin) {
            (Some(site), _) => format!("{metric} of {site}"),
            (None, Origin::Baseline(path)) => format!("{metric}, compared with {}", path.display()),
            (None, _) => metric.to_owned(),
        }
    }

    /// Parses the value of `--site`: a pattern, a metric and a limit. The pattern may contain spaces.
    pub fn parse_site(text: &str) -> Result<Budget, String> {
        let form =
            || format!("must be 'PATTERN METRIC LIMIT', with one of {} (example: '/parse.*/ peak 10M')", of_sites());
        let (rest, limit) = text.trim_end().rsplit_once(' ').ok_or_else(form)?;
        let (site, metric) = rest.trim_end().rsplit_once(' ').ok_or_else(form)?;
        let metric = Metric::OF_SITES.into_iter().find(|known| known.name() == metric).ok_or_else(form)?;
        let site = site.trim().to_owned();
        Pattern::parse(&site)?;
        let limit = metric.limit(limit).map_err(|reason| format!("{limit}: {reason}"))?;
        Ok(Budget { metric, site: Some(site), limit, origin: Origin::Option(format!("--site '{text}'")) })
    }
}

fn of_sites() -> String {
    Metric::OF_SITES.map(Metric::name).join(", ")
}

/// A value of a metric, for people.
pub struct Amount(pub Metric, pub u64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Amount(metric, value) = *self;
        match metric {
            metric if metric.is_bytes() => Bytes(value).fmt(f),
            _ => f.write_str(&crate::trouble::counted(value, "allocation", "allocations")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_a_pattern_a_metric_and_a_limit() {
        let budget = Budget::parse_site("/parse.* of/ peak 10M").unwrap();
        assert_eq!((budget.site.as_deref(), budget.metric), (Some("/parse.* of/"), Metric::Peak));
        assert_eq!((budget.limit, budget.name()), (Limit::Most(10_000_000), "peak of /parse.* of/".to_owned()));
        assert_eq!(Budget::parse_site("a temporary 5%").unwrap().limit, Limit::Share(5.0));
        for wrong in
            ["", "peak 10M", "a peak", "a rss 1M", "a peak 10Q", "/(/ peak 1", "a allocations 1kB", "file: peak 1"]
        {
            assert!(Budget::parse_site(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_have_the_unit_of_their_metric() {
        for (metric, text, expected) in [
            (Metric::Peak, "200M", Some(Limit::Most(200_000_000))),
            (Metric::Leaked, "0", Some(Limit::Most(0))),
            (Metric::Rss, "1Gi", Some(Limit::Most(1 << 30))),
            (Metric::Peak, "5%", None),
            (Metric::Peak, "-1", None),
            (Metric::Allocations, "500k", Some(Limit::Most(500_000))),
            (Metric::Allocations, "500kB", None),
            (Metric::Allocations, "4Ki", None),
            (Metric::Temporary, "5%", Some(Limit::Share(5.0))),
            (Metric::Temporary, "0.5 %", Some(Limit::Share(0.5))),
            (Metric::Temporary, "100", Some(Limit::Most(100))),
            (Metric::Temporary, "-5%", None),
            (Metric::Temporary, "inf%", None),
        ] {
            assert_eq!(metric.limit(text).ok(), expected, "{metric:?} {text}");
        }
    }
}
