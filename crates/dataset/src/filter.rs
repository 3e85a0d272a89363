//! Conditions that select traces, such as `service='shop' and version='1.5' and label.team='web'`.
//!
//! Must hold: a condition that is not understood is refused; none is ignored.
use crate::data_file::scan;
use crate::manifest::{Dataset, Partition};
use crate::partition_name::check_date;
use crate::schema::{LABELS, SESSIONS};
use anyhow::{bail, ensure};
use foldhash::{HashMap, HashMapExt};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

/// Mean distances of two sample points, in bytes. `None` stands for traces with every block.
pub type Rates = BTreeSet<Option<i64>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// In the order in which they are looked for.
const TESTS: [(&str, Test); 6] = [
    ("!=", Test::Unequal),
    ("<=", Test::LessOrEqual),
    (">=", Test::GreaterOrEqual),
    ("=", Test::Equal),
    ("<", Test::Less),
    (">", Test::Greater),
];

impl Test {
    fn holds(self, value: &str, wanted: &str) -> bool {
        let order = value.cmp(wanted);
        match self {
            Test::Equal => order == Ordering::Equal,
            Test::Unequal => order != Ordering::Equal,
            Test::Less => order == Ordering::Less,
            Test::LessOrEqual => order != Ordering::Greater,
            Test::Greater => order == Ordering::Greater,
            Test::GreaterOrEqual => order != Ordering::Less,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    test: Test,
    value: String,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    terms: Vec<Term>,
    text: String,
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.text.is_empty() { "all traces" } else { &self.text })
    }
}

impl Filter {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut terms = Vec::new();
        for part in split(text)? {
            terms.push(term(part.trim())?);
        }
        Ok(Filter { terms, text: text.trim().to_owned() })
    }

    fn all(&self, key: &str, value: &str) -> bool {
        self.terms.iter().filter(|term| term.key == key).all(|term| term.test.holds(value, &term.value))
    }

    /// False if no trace of this partition is selected.
    pub fn may_have(&self, partition: &Partition) -> bool {
        self.all("service", &partition.service)
            && self.all("date", &partition.date)
            && self.all("host", &partition.host)
    }

    /// The selected sessions, each with its number from 0, in the order of the dataset.
    pub fn sessions(&self, dataset: &Dataset) -> anyhow::Result<HashMap<i64, u32>> {
        let labels = self.labels(dataset)?;
        let at = |name: &str| SESSIONS.index(name).unwrap_or(0);
        let (id, version, program) = (at("session"), at("version"), at("program"));
        let mut found = HashMap::new();
        let wanted = |partition: &Partition| self.may_have(partition);
        scan(dataset, &SESSIONS, &["session", "version", "program"], wanted, |_, rows| {
            for row in 0..rows.len() {
                let session = rows.int(id, row).unwrap_or(0);
                let is_wanted = self.all("version", rows.text(version, row).unwrap_or_default())
                    && self.all("program", rows.text(program, row).unwrap_or_default())
                    && self.has_labels(labels.get(&session).map_or(&[], Vec::as_slice));
                if is_wanted {
                    let next = found.len() as u32;
                    found.insert(session, next);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// How the blocks of the sessions were sampled.
    pub fn sampling_rates(&self, dataset: &Dataset, sessions: &HashMap<i64, u32>) -> anyhow::Result<Rates> {
        let at = |name: &str| SESSIONS.index(name).unwrap_or(0);
        let (id, rate) = (at("session"), at("sampling_rate_bytes"));
        let mut found = Rates::new();
        let wanted = |partition: &Partition| self.may_have(partition);
        scan(dataset, &SESSIONS, &["session", "sampling_rate_bytes"], wanted, |_, rows| {
            let selected = |row: &usize| rows.int(id, *row).is_some_and(|session| sessions.contains_key(&session));
            found.extend((0..rows.len()).filter(selected).map(|row| rows.int(rate, row)));
            Ok(())
        })?;
        Ok(found)
    }

    /// The labels of each session that a condition is about.
    fn labels(&self, dataset: &Dataset) -> anyhow::Result<HashMap<i64, Vec<(String, String)>>> {
        let mut found: HashMap<i64, Vec<(String, String)>> = HashMap::new();
        if !self.terms.iter().any(|term| term.key.starts_with("label.")) {
            return Ok(found);
        }
        scan(
            dataset,
            &LABELS,
            &["session", "key", "value"],
            |partition| self.may_have(partition),
            |_, rows| {
                for row in 0..rows.len() {
                    let key = format!("label.{}", rows.text(2, row).unwrap_or_default());
                    if self.terms.iter().any(|term| term.key == key) {
                        let value = rows.text(3, row).unwrap_or_default().to_owned();
                        found.entry(rows.int(1, row).unwrap_or(0)).or_default().push((key, value));
                    }
                }
                Ok(())
            },
        )?;
        Ok(found)
    }

    /// A trace without a label has the empty text for it.
    fn has_labels(&self, labels: &[(String, String)]) -> bool {
        self.terms.iter().filter(|term| term.key.starts_with("label.")).all(|term| {
            let value = labels.iter().find(|(key, _)| *key == term.key).map_or("", |(_, value)| value);
            term.test.holds(value, &term.value)
        })
    }
}

/// Splits at `and` and at commas that are not within quotes.
fn split(text: &str) -> anyhow::Result<Vec<&str>> {
    let (mut parts, mut start, mut is_quoted) = (Vec::new(), 0, false);
    let lower = text.to_ascii_lowercase();
    let mut at = 0;
    while at < text.len() {
        let rest = &lower.as_bytes()[at..];
        if rest[0] == b'\'' {
            is_quoted = !is_quoted;
        }
        let length = match is_quoted {
            false if rest.starts_with(b" and ") => 5,
            false if rest[0] == b',' => 1,
            _ => {
                at += 1;
                continue;
            }
        };
        parts.push(&text[start..at]);
        at += length;
        start = at;
    }
    ensure!(!is_quoted, "a quote in `{text}` is not closed");
    if !text.trim().is_empty() {
        parts.push(&text[start..]);
    }
    Ok(parts)
}

fn term(text: &str) -> anyhow::Result<Term> {
    let position = text.find(['=', '<', '>', '!']);
    let found =
        position.and_then(|at| TESTS.iter().find(|(sign, _)| text[at..].starts_with(sign)).map(|test| (at, test)));
    let Some((at, (sign, test))) = found else {
        bail!("`{text}` is no condition such as version='1.5'");
    };
    let key = text[..at].trim();
    let is_known = ["service", "date", "host", "version", "program"].contains(&key);
    ensure!(
        is_known || key.strip_prefix("label.").is_some_and(|name| !name.is_empty()),
        "`{key}` is none of service, date, host, version, program and label.NAME"
    );
    // Texts have no order that fits versions: 1.10 comes before 1.9.
    ensure!(
        key == "date" || matches!(test, Test::Equal | Test::Unequal),
        "`{text}`: only dates can be compared with `{sign}`"
    );
    let value = text[at + sign.len()..].trim();
    let value = match value.strip_prefix('\'') {
        Some(rest) => rest.strip_suffix('\'').filter(|value| !value.contains('\'')),
        None => Some(value).filter(|value| !value.contains([' ', '\'', '='])),
    };
    let Some(value) = value else { bail!("`{text}` is no condition such as version='1.5'") };
    // Dates are compared as texts, so `2026-9-01` would be later than `2026-11-18`.
    if key == "date" {
        check_date(value)?;
    }
    Ok(Term { key: key.to_owned(), test: *test, value: value.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_understood_or_refused() {
        let filter = Filter::parse("service='web, and more' AND date>=2026-11-01 and version != '1.4',host=a").unwrap();
        let keys: Vec<&str> = filter.terms.iter().map(|term| term.key.as_str()).collect();
        assert_eq!(keys, ["service", "date", "version", "host"]);
        assert_eq!(filter.terms[0].value, "web, and more");
        assert!(filter.all("version", "1.5") && !filter.all("version", "1.4"));
        assert!(filter.all("date", "2026-11-01") && !filter.all("date", "2026-10-31"));
        for text in [
            "version",
            "color=red",
            "version='1",
            "version=1 or host=2",
            "label.=x",
            "and",
            "version='a'b'",
            "version<2",
            "date>=2026-9-01",
            "date=2026-02-30",
            "date!=tomorrow",
            "date<''",
        ] {
            assert!(Filter::parse(text).is_err(), "{text}");
        }
        assert!(Filter::parse("date>='2026-09-01' and version=2026-9-01").is_ok());
        assert!(Filter::parse("").unwrap().terms.is_empty());
    }
}
