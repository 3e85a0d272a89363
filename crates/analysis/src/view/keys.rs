//! Keys: levels with equal keys are one row of a tree. Hidden levels have none.
use crate::query::{Merge, Query};
use crate::stack_table::{NodeId, StackTable, StackTableLevel};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::HashMap;

/// A number that is equal for all levels that count as the same.
pub(crate) type Key = u32;
/// The key of a stack of which no level is shown.
pub(crate) const NOTHING: Key = 0;

pub(crate) struct Keys {
    merge: Merge,
    collapse: bool,
    /// `None`: the level is not shown.
    of_level: Vec<Option<Key>>,
    /// The first level with each key.
    first: Vec<Option<u32>>,
    /// The names of namespaces, with `merge=namespace`.
    namespaces: Vec<Option<String>>,
}

#[derive(PartialEq, Eq, Hash)]
enum Same<'a> {
    Function(Option<u32>, Option<u32>, Option<u64>),
    Line(Option<u32>, Option<u32>, Option<u64>, Option<u32>, Option<u32>),
    Module(Option<u32>),
    Namespace(&'a str),
}

impl Keys {
    pub(crate) fn new(table: &StackTable, query: &Query) -> Keys {
        // JIT code has no module. If levels are merged by module, its row looks like that of a stack of which no level
        // is shown, so both are one row.
        let mut known: HashMap<Same<'_>, Key> = HashMap::from([(Same::Module(None), NOTHING)]);
        let mut keys = Keys {
            merge: query.merge,
            collapse: query.collapse,
            of_level: Vec::with_capacity(table.levels.len()),
            first: vec![None],
            namespaces: vec![None],
        };
        for (number, level) in table.levels.iter().enumerate() {
            if level.class.is_some_and(|class| query.hide.contains(class)) {
                keys.of_level.push(None);
                continue;
            }
            let offset = if level.function.is_none() { level.offset } else { None };
            let namespace = || table.text(level.short).and_then(namespace);
            let same = match query.merge {
                Merge::Function => Same::Function(level.function, level.module, offset),
                Merge::Line => Same::Line(level.function, level.module, offset, level.file, level.line),
                Merge::Module => Same::Module(level.module),
                Merge::Namespace => match namespace() {
                    Some(name) => Same::Namespace(name),
                    None => Same::Module(level.module),
                },
            };
            let next = keys.first.len() as Key;
            let key = *known.entry(same).or_insert(next);
            if key == next {
                keys.first.push(Some(number as u32));
                keys.namespaces.push(match query.merge {
                    Merge::Namespace => namespace().map(str::to_owned),
                    _ => None,
                });
            }
            keys.of_level.push(Some(key));
        }
        keys
    }

    /// The key of a node's level. `None` if the level is not shown.
    pub(crate) fn of(&self, table: &StackTable, node: NodeId) -> Option<Key> {
        let level = table.nodes.get(node as usize)?.level?;
        self.of_level.get(level as usize).copied().flatten()
    }

    /// The nodes from a stack's innermost node to the root, without hidden and collapsed ones. Has at least one entry.
    pub(crate) fn path(&self, table: &StackTable, node: NodeId, path: &mut Vec<(Key, NodeId)>) {
        path.clear();
        for node in table.path(node) {
            let Some(key) = self.of(table, node) else { continue };
            if self.collapse && path.last().is_some_and(|(last, _)| *last == key) {
                continue;
            }
            path.push((key, node));
        }
        if path.is_empty() {
            path.push((NOTHING, 0));
        }
    }

    /// A short label for a key.
    pub(crate) fn label(&self, table: &StackTable, key: Key) -> String {
        if let Some(namespace) = self.namespaces.get(key as usize).and_then(Option::as_deref) {
            return namespace.to_owned();
        }
        let level = self.level(table, key);
        let module = || level.and_then(|level| table.text(level.module));
        match self.merge {
            Merge::Module | Merge::Namespace => {
                module().map_or("?".into(), |module| module.rsplit('/').next().unwrap_or(module).to_owned())
            }
            Merge::Function => super::flame::label(table, level),
            Merge::Line => {
                let label = super::flame::label(table, level);
                let file = level.and_then(|level| table.text(level.file));
                match (file, level.and_then(|level| level.line)) {
                    (Some(file), Some(line)) => format!("{label} {}:{line}", file.rsplit('/').next().unwrap_or(file)),
                    _ => label,
                }
            }
        }
    }

    /// The first level with a key. `None` if no level is shown.
    pub(crate) fn level<'a>(&self, table: &'a StackTable, key: Key) -> Option<&'a StackTableLevel> {
        self.first.get(key as usize).copied().flatten().and_then(|at| table.levels.get(at as usize))
    }

    /// The texts by which a key is recognised in another table of the same trace: the label, the module and, with
    /// `merge=line`, the file.
    pub(crate) fn names<'a>(&self, table: &'a StackTable, key: Key) -> (String, Option<&'a str>, Option<&'a str>) {
        let level = self.level(table, key);
        let text = |of: fn(&StackTableLevel) -> Option<u32>| level.and_then(|level| table.text(of(level)));
        (self.label(table, key), text(|level| level.module), text(|level| level.file))
    }

    /// The row of a key. Fields that may differ between the levels of one key are left out.
    pub(crate) fn row<'a>(&'a self, table: &'a StackTable, key: Key) -> Row<'a> {
        let level = self.level(table, key);
        let namespace = self.namespaces.get(key as usize).and_then(Option::as_deref);
        Row { table, level, merge: self.merge, namespace }
    }
}

/// A level as a row of a table shows it.
pub(crate) struct Row<'a> {
    table: &'a StackTable,
    level: Option<&'a StackTableLevel>,
    merge: Merge,
    namespace: Option<&'a str>,
}

impl<'a> Row<'a> {
    /// The row of a single level.
    pub(crate) fn of(table: &'a StackTable, level: Option<&'a StackTableLevel>) -> Row<'a> {
        Row { table, level, merge: Merge::Line, namespace: None }
    }

    pub(crate) fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let by_function = matches!(self.merge, Merge::Function | Merge::Line);
        let text = |of: fn(&StackTableLevel) -> Option<u32>| self.level.and_then(|level| self.table.text(of(level)));
        let function = text(|level| level.function).filter(|_| by_function).or(self.namespace);
        let short = text(|level| level.short).filter(|_| by_function).or(self.namespace);
        let line = self.level.and_then(|level| level.line).filter(|_| self.merge == Merge::Line);
        let module = text(|level| level.module).filter(|_| self.namespace.is_none());
        map.serialize_entry("function", &function)?;
        map.serialize_entry("short", &short)?;
        map.serialize_entry("file", &text(|level| level.file).filter(|_| by_function))?;
        map.serialize_entry("line", &line)?;
        map.serialize_entry("module", &module)?;
        let offset = self.level.filter(|level| by_function && level.function.is_none());
        map.serialize_entry("offset", &offset.and_then(|level| level.offset))?;
        map.serialize_entry("class", &self.level.and_then(|level| level.class).map(|class| class.name()))
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.entries(&mut map)?;
        map.end()
    }
}

/// The part of a name before its last `::` outside brackets.
pub fn namespace(name: &str) -> Option<&str> {
    let mut depth = 0usize;
    let mut end = None;
    let bytes = name.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') && at > 0 => end = Some(at),
            _ => {}
        }
    }
    end.and_then(|end| name.get(..end)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_what_stands_before_the_last_part() {
        for (name, expected) in [
            ("main", None),
            ("shop::Item::load", Some("shop::Item")),
            ("std::vector<a::b>::push_back", Some("std::vector<a::b>")),
            ("<app::Item as core::Clone>::clone", Some("<app::Item as core::Clone>")),
            ("f(a::b)", None),
            ("::f", None),
        ] {
            assert_eq!(namespace(name), expected, "{name}");
        }
    }
}
