//! The flat answers: the table of stacks, and a list for each cost.
use super::keys::namespace;
use super::sum::Totals;
use super::wrapper_rows::wrapper_rows;
use crate::costs::Costs;
use crate::profile::Profile;
use crate::stack_table::StackTable;
use serde::ser::{Serialize, SerializeMap, Serializer};

pub(crate) struct Stacks<'a>(pub(crate) &'a StackTable);

/// A list that is computed while it is written.
struct List<F>(F);

impl<I: Iterator<Item = T>, T: Serialize, F: Fn() -> I> Serialize for List<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// A map of two texts that is computed while it is written.
struct Map<F>(F);

macro_rules! columns {
    ($map:expr, $list:expr, { $($name:ident: $value:expr,)* }) => {
        $($map.serialize_entry(stringify!($name), &List(|| $list.iter().map($value)))?;)*
    };
}

impl Serialize for Stacks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Stacks(table) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("strings", table.strings.as_slice())?;
        map.serialize_entry("levels", &Levels(table))?;
        map.serialize_entry("nodes", &Nodes(table))?;
        map.serialize_entry("stacks", &Leaves(table))?;
        let suppressions = || {
            let list = table.suppressions.list().iter();
            list.map(|known| Map(move || [("pattern", known.pattern.as_str()), ("source", known.source.name())]))
        };
        map.serialize_entry("suppressions", &List(suppressions))?;
        map.serialize_entry("wrappers", &wrapper_rows(table))?;
        map.end()
    }
}

impl<'a, F: Fn() -> [(&'static str, &'a str); 2]> Serialize for Map<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map((self.0)())
    }
}

struct Levels<'a>(&'a StackTable);
struct Nodes<'a>(&'a StackTable);
struct Leaves<'a>(&'a StackTable);

impl Serialize for Levels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        columns!(map, self.0.levels, {
            function: |level| level.function,
            short: |level| level.short,
            file: |level| level.file,
            line: |level| level.line,
            module: |level| level.module,
            offset: |level| level.offset,
            class: |level| level.class.map(|class| class.name()),
            inlined: |level| level.inlined,
            // Browsers count letters in units of UTF-16.
            namespace: |level| self.0.text(level.short).and_then(namespace).map(|name| name.encode_utf16().count()),
        });
        map.end()
    }
}

impl Serialize for Nodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let nodes = || self.0.nodes.iter().enumerate();
        let parents = || nodes().map(|(at, node)| if at == 0 { -1 } else { node.parent as i64 });
        map.serialize_entry("parent", &List(parents))?;
        map.serialize_entry("level", &List(|| nodes().map(|(_, node)| or_none(node.level))))?;
        map.end()
    }
}

impl Serialize for Leaves<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        columns!(map, self.0.stacks, {
            node: |stack| stack.node,
            owner: |stack| stack.owner,
            blamed: |stack| or_none(stack.blamed),
            suppressed: |stack| or_none(stack.suppressed),
        });
        map.end()
    }
}

/// JSON has -1 where there is no number.
fn or_none(number: Option<u32>) -> i64 {
    number.map_or(-1, i64::from)
}

/// A profile, a list per cost.
pub(crate) struct Columns<'a>(pub(crate) &'a Profile);

impl Columns<'_> {
    fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let stacks = &self.0.stacks;
        map.serialize_entry("stack", &List(|| stacks.iter().map(|(site, _)| site)))?;
        let known = self.0.known;
        let is_known = |name: &str| known.is_none_or(|known| known.has(name));
        // What a heap profile does not know has no list.
        for (at, name) in Costs::NAMES.iter().enumerate().filter(|(_, name)| is_known(name)) {
            map.serialize_entry(name, &List(|| stacks.iter().map(|(_, costs)| costs.values()[at])))?;
        }
        Ok(())
    }
}

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.entries(&mut map)?;
        map.end()
    }
}

/// A profile and what it is compared with.
pub(crate) struct Compared<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) base: &'a Profile,
    pub(crate) base_totals: Totals,
}

impl Serialize for Compared<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        Columns(self.profile).entries(&mut map)?;
        map.serialize_entry("base", &Columns(self.base))?;
        map.serialize_entry("base_totals", &self.base_totals)?;
        map.end()
    }
}
