//! OpenTelemetry's profiles (`v1development`), as collectors receive them over HTTP.
//!
//! Receives: the selected stacks, and what is known about the program. Returns: an `ExportProfilesServiceRequest`, not
//! compressed. Must hold: a profile has one kind of value, so there is a profile for each of the four; index 0 of each table
//! is its zero value; inlined functions are lines of one location, innermost first.
//!
//! ```text
//! request -> resource -> scope -> Profile -> Sample -> Stack -> Location -> Line -> Function
//!    +-----> dictionary: the tables that all profiles share       |
//!                                                                 +-----> Mapping
//! ```
use crate::pprof::{Compared, ValueType, values_of};
use crate::protobuf::Message;
use crate::selected::{NOTHING, Selected, unnamed};
use analysis::StackTableLevel;
use format::Module;
use std::collections::HashMap;

/// The values that become profiles. `temporary_objects` is ours, and no collector knows it.
const VALUES: [&str; 4] = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];

/// `attributes`: what is known about the program, as `service.name`.
pub fn message(selected: &Selected<'_>, attributes: &[(String, String)], compared: Compared) -> Vec<u8> {
    let mut tables = Tables::new(selected);
    let mut levels = Vec::new();
    let stacks: Vec<usize> = selected
        .rows
        .iter()
        .map(|row| {
            selected.levels(row.site, &mut levels);
            tables.stack(&levels)
        })
        .collect();
    let mut scope_profiles = Message::default();
    let mut scope = Message::default();
    scope.bytes(1, b"heaptrack").bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    scope_profiles.message(1, &scope);
    for value in values_of(selected, compared).iter().filter(|value| VALUES.contains(&value.name)) {
        let profile = profile(selected, value, &stacks, &mut tables);
        scope_profiles.message(2, &profile);
    }
    let mut resource = Message::default();
    for (key, value) in attributes {
        let mut pair = Message::default();
        pair.bytes(1, key.as_bytes()).message(2, &text_value(value));
        resource.message(1, &pair);
    }
    let mut resource_profiles = Message::default();
    resource_profiles.message(1, &resource).message(2, &scope_profiles);
    let mut request = Message::default();
    request.message(1, &resource_profiles).message(2, &tables.dictionary());
    request.as_bytes().to_vec()
}

fn profile(selected: &Selected<'_>, value: &ValueType, stacks: &[usize], tables: &mut Tables<'_, '_>) -> Message {
    let mut profile = Message::default();
    profile.message(1, &tables.value_type(value.name, value.unit()));
    for (row, stack) in selected.rows.iter().zip(stacks) {
        let amount = value.amount(&row.costs);
        if amount != 0 {
            let mut sample = Message::default();
            sample.number(1, *stack as u64).numbers(4, [amount]);
            profile.message(2, &sample);
        }
    }
    let range = selected.range;
    let start = selected.definitions.session.started_unix_ns.saturating_add(range.from_ns);
    profile.fixed(3, start).number(4, range.to_ns.saturating_sub(range.from_ns));
    profile.message(5, &tables.value_type("space", "bytes")).number(6, selected.period());
    profile
}

fn text_value(text: &str) -> Message {
    let mut value = Message::default();
    value.always(1, text.as_bytes());
    value
}

/// The tables of the dictionary. Each has its zero value first.
struct Tables<'a, 'b> {
    selected: &'a Selected<'b>,
    strings: Table<String>,
    functions: Table<(u64, u64, u64)>,
    /// The first and the last level that a location shows.
    locations: Table<(u32, u32)>,
    mappings: Table<u16>,
    attributes: Table<String>,
    stacks: Table<Vec<u64>>,
    /// The fields of the dictionary, by their numbers: mappings, locations, functions, attributes, stacks.
    encoded: [Vec<Message>; 5],
}

/// What is in a table already, with its index.
struct Table<K>(HashMap<K, usize>);

impl<K: std::hash::Hash + Eq> Table<K> {
    /// The index of an entry, and true if it is new.
    fn index(&mut self, key: K) -> (usize, bool) {
        let next = self.0.len() + 1;
        let index = *self.0.entry(key).or_insert(next);
        (index, index == next)
    }
}

const MAPPINGS: usize = 0;
const LOCATIONS: usize = 1;
const FUNCTIONS: usize = 2;
const ATTRIBUTES: usize = 3;
const STACKS: usize = 4;
/// The fields of the dictionary.
const FIELDS: [u64; 5] = [1, 2, 3, 6, 7];
const LINKS: u64 = 4;
const STRINGS: u64 = 5;

impl<'a, 'b> Tables<'a, 'b> {
    fn new(selected: &'a Selected<'b>) -> Self {
        Tables {
            selected,
            strings: Table(HashMap::new()),
            functions: Table(HashMap::new()),
            locations: Table(HashMap::new()),
            mappings: Table(HashMap::new()),
            attributes: Table(HashMap::new()),
            stacks: Table(HashMap::new()),
            encoded: std::array::from_fn(|_| vec![Message::default()]),
        }
    }

    fn string(&mut self, text: &str) -> u64 {
        match text {
            "" => 0,
            text => self.strings.index(text.to_owned()).0 as u64,
        }
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let (name, unit) = (self.string(name), self.string(unit));
        let mut message = Message::default();
        message.number(1, name).number(2, unit);
        message
    }

    /// The index of a stack of these levels, innermost first.
    fn stack(&mut self, levels: &[u32]) -> usize {
        let mut locations: Vec<u64> = Vec::new();
        for frame in self.selected.frames(levels) {
            locations.push(self.location(frame));
        }
        if locations.is_empty() {
            locations.push(self.location(&[]));
        }
        let mut stack = Message::default();
        stack.numbers(1, locations.iter().copied());
        let (index, is_new) = self.stacks.index(locations);
        if is_new {
            self.encoded[STACKS].push(stack);
        }
        index
    }

    /// The index of a location with these levels, innermost first.
    fn location(&mut self, levels: &[u32]) -> u64 {
        let key = (levels.first().copied().unwrap_or(u32::MAX), levels.last().copied().unwrap_or(u32::MAX));
        let (index, is_new) = self.locations.index(key);
        if !is_new {
            return index as u64;
        }
        let selected = self.selected;
        let mut location = Message::default();
        if let Some(level) = levels.last().and_then(|level| selected.level(*level)) {
            let mapping = selected.definitions.module(level.frame).map_or(0, |module| self.mapping(module));
            location.number(1, mapping).number(2, selected.address(level));
        }
        let lines: Vec<Message> =
            levels.iter().filter_map(|level| selected.level(*level)).map(|level| self.line(level)).collect();
        for line in &lines {
            location.message(3, line);
        }
        if lines.is_empty() {
            let name = self.string(NOTHING);
            let mut line = Message::default();
            line.number(1, self.function((name, name, 0)));
            location.message(3, &line);
        }
        self.encoded[LOCATIONS].push(location);
        index as u64
    }

    fn line(&mut self, level: &StackTableLevel) -> Message {
        let table = self.selected.table;
        let name = match table.text(level.function) {
            Some(name) => self.string(name),
            None => self.string(&unnamed(table, level)),
        };
        let system_name = table.text(level.raw).map_or(name, |raw| self.string(raw));
        let file = table.text(level.file).map_or(0, |file| self.string(file));
        let function = self.function((name, system_name, file));
        let mut line = Message::default();
        line.number(1, function).number(2, level.line.unwrap_or(0) as u64);
        line
    }

    fn function(&mut self, key: (u64, u64, u64)) -> u64 {
        let (index, is_new) = self.functions.index(key);
        if is_new {
            let mut function = Message::default();
            function.number(1, key.0).number(2, key.1).number(3, key.2);
            self.encoded[FUNCTIONS].push(function);
        }
        index as u64
    }

    fn mapping(&mut self, module: &Module) -> u64 {
        let (index, is_new) = self.mappings.index(module.instance);
        if is_new {
            let mut mapping = Message::default();
            mapping.number(1, module.start).number(2, module.end);
            mapping.number(4, self.string(self.selected.path(&module.path)));
            if !module.build_id.is_empty() {
                let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
                mapping.numbers(5, [self.build_id(build_id)]);
            }
            self.encoded[MAPPINGS].push(mapping);
        }
        index as u64
    }

    fn build_id(&mut self, build_id: String) -> u64 {
        let mut attribute = Message::default();
        attribute.number(1, self.string("process.executable.build_id.gnu")).message(2, &text_value(&build_id));
        let (index, is_new) = self.attributes.index(build_id);
        if is_new {
            self.encoded[ATTRIBUTES].push(attribute);
        }
        index as u64
    }

    fn dictionary(self) -> Message {
        let mut dictionary = Message::default();
        for (field, entries) in FIELDS.into_iter().zip(&self.encoded) {
            for entry in entries {
                dictionary.message(field, entry);
            }
        }
        dictionary.message(LINKS, &Message::default());
        let mut strings: Vec<(String, usize)> = self.strings.0.into_iter().collect();
        strings.sort_unstable_by_key(|(_, index)| *index);
        dictionary.always(STRINGS, b"");
        for (text, _) in &strings {
            dictionary.always(STRINGS, text.as_bytes());
        }
        dictionary
    }
}
