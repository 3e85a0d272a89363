//! Costs by file and line.
use super::sum::{Known, Sum};
use crate::known_costs::KnownCosts;
use crate::profile::Profile;
use crate::query::Query;
use crate::stack_table::StackTable;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::{BTreeMap, HashSet};

/// A line of a source file, with the costs of the stacks that pass through it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceLine {
    pub line: u32,
    pub inclusive: Sum,
    /// The costs of the stacks whose innermost level is on this line.
    pub own: Sum,
}

/// The lines of a file that are in stacks, in their order.
#[derive(Clone, Debug)]
pub struct SourceFile {
    pub file: String,
    pub lines: Vec<SourceLine>,
}

/// Costs by file and line, in the order of the paths.
pub fn source_files(profile: &Profile, table: &StackTable, query: &Query) -> Vec<SourceFile> {
    let files = Source::new(profile, table, query).files.into_iter();
    files.map(|(file, lines)| SourceFile { file: file.to_owned(), lines: lines.into_values().collect() }).collect()
}

pub(crate) struct Source<'a> {
    /// By file, then by line.
    files: BTreeMap<&'a str, BTreeMap<u32, SourceLine>>,
    known: Option<KnownCosts>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(profile: &Profile, table: &'a StackTable, query: &Query) -> Self {
        let mut files: BTreeMap<&str, BTreeMap<u32, SourceLine>> = BTreeMap::new();
        let mut seen = HashSet::new();
        for (site, costs) in &profile.stacks {
            let stack = table.stack(*site);
            let suppressed = query.suppressions && stack.suppressed.is_some();
            seen.clear();
            for (depth, node) in table.path(stack.node).enumerate() {
                let Some(level) = table.level(node) else { continue };
                let (Some(file), Some(line)) = (table.text(level.file), level.line) else { continue };
                if query.file.as_ref().is_some_and(|wanted| !file.contains(wanted.as_str())) {
                    continue;
                }
                let entry = files.entry(file).or_default().entry(line).or_default();
                entry.line = line;
                if seen.insert((level.file, line)) {
                    entry.inclusive.add(costs, suppressed);
                }
                if depth == 0 {
                    entry.own.add(costs, suppressed);
                }
            }
        }
        Source { files, known: profile.known }
    }

    pub(crate) fn why_empty(&self, query: &Query) -> Option<String> {
        if !self.files.is_empty() {
            return None;
        }
        Some(match &query.file {
            Some(file) => format!("no source file in these stacks has `{file}` in its path"),
            None => "no level of these stacks has a file and a line: the trace has no debug information".into(),
        })
    }
}

impl Serialize for Source<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct File<'a> {
            file: &'a str,
            lines: Vec<Row<'a>>,
        }
        #[derive(serde::Serialize)]
        struct Row<'a> {
            line: u32,
            inclusive: Known<'a>,
            #[serde(rename = "self")]
            own: Known<'a>,
        }
        impl<'a> Row<'a> {
            fn new(line: &'a SourceLine, known: Option<KnownCosts>) -> Self {
                let of = |sum: &'a Sum| Known { sum, known };
                Row { line: line.line, inclusive: of(&line.inclusive), own: of(&line.own) }
            }
        }
        let known = self.known;
        let files: Vec<File<'_>> = self
            .files
            .iter()
            .map(|(file, lines)| File { file, lines: lines.values().map(|line| Row::new(line, known)).collect() })
            .collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("files", &files)?;
        map.end()
    }
}
