//! pprof's profile.proto, as `go tool pprof`, Pyroscope, Parca, Perfetto and Grafana read it.
//!
//! Receives: the selected stacks, a row for each thread. Returns: the message, not compressed. Must hold: the period is 1 if
//! every block was recorded, or the sampling rate, and then the numbers are estimates for all blocks, which no reader
//! weighs again; inlined functions are lines of one location, innermost first; a location without a name gets
//! `module+offset`, so that no reader looks for names in files that may have changed.
//!
//! ```text
//! Sample -> Location -> Line -> Function         ids begin with 1; 0 means none
//!              |                                 strings are numbers of the string table, whose entry 0 is ""
//!              +-----> Mapping                   the first one is the program
//! ```
use crate::protobuf::Message;
use crate::selected::{NOTHING, Selected, unnamed};
use analysis::{Costs, Detail, StackTableLevel};
use format::{IntMap, Module};
use std::collections::HashMap;
use std::io::{self, Write};

/// Fields of `Profile`.
mod field {
    pub(super) const SAMPLE_TYPE: u64 = 1;
    pub(super) const SAMPLE: u64 = 2;
    pub(super) const MAPPING: u64 = 3;
    pub(super) const LOCATION: u64 = 4;
    pub(super) const FUNCTION: u64 = 5;
    pub(super) const STRING_TABLE: u64 = 6;
    pub(super) const TIME_NANOS: u64 = 9;
    pub(super) const DURATION_NANOS: u64 = 10;
    pub(super) const PERIOD_TYPE: u64 = 11;
    pub(super) const PERIOD: u64 = 12;
    pub(super) const COMMENT: u64 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u64 = 14;
}

/// One of the values of a sample.
#[derive(Clone, Copy)]
pub struct ValueType {
    pub name: &'static str,
    unit: &'static str,
    cost: &'static str,
    /// It is known at one instant.
    is_live: bool,
    of: fn(&Costs) -> u64,
}

impl ValueType {
    pub(crate) const fn unit(&self) -> &'static str {
        self.unit
    }

    pub(crate) fn amount(&self, costs: &Costs) -> u64 {
        (self.of)(costs)
    }

    fn is_known(&self, selected: &Selected<'_>) -> bool {
        (self.is_live || !selected.range.instant) && selected.definitions.has_cost(self.cost)
    }
}

const fn value(name: &'static str, cost: &'static str, is_live: bool, of: fn(&Costs) -> u64) -> ValueType {
    let unit = if matches!(cost.as_bytes(), [.., b'b', b'y', b't', b'e', b's']) { "bytes" } else { "count" };
    ValueType { name, unit, cost, is_live, of }
}

/// The names of the first two and of the last two are those of Go's heap profiles. Readers that know no default show the
/// last one.
pub const VALUES: [ValueType; 7] = [
    value("alloc_objects", "allocations", false, |costs| costs.allocations),
    value("alloc_space", "allocated_bytes", false, |costs| costs.allocated_bytes),
    value("temporary_objects", "temporary", false, |costs| costs.temporary),
    value("peak_objects", "peak_allocations", false, |costs| costs.peak_allocations),
    value("peak_space", "peak_bytes", false, |costs| costs.peak_bytes),
    value("inuse_objects", "live_allocations", true, |costs| costs.live_allocations),
    value("inuse_space", "live_bytes", true, |costs| costs.live_bytes),
];

/// What a range of the trace is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// With nothing: `inuse_*` is what is live at the end of the range.
    WithNothing,
    /// With its beginning: `inuse_*` is how much more is live at the end, and may be negative.
    WithItsBeginning,
    /// With the last profile that was pushed: `alloc_*` is what was allocated since then, `inuse_*` what is live now. Peaks
    /// of such a part are not known.
    WithTheLastOne,
}

/// How much more blocks and bytes are live at the end of the range than at its beginning. A negative number is stored as
/// protobuf stores it, in two's complement.
const GROWTH: [ValueType; 2] = [
    value("inuse_objects", "live_allocations", true, |costs| {
        costs.live_allocations.wrapping_sub(costs.base_allocations)
    }),
    value("inuse_space", "live_bytes", true, |costs| costs.live_bytes.wrapping_sub(costs.base_bytes)),
];

fn values(compared: Compared) -> [ValueType; 7] {
    let mut values = VALUES;
    if compared == Compared::WithItsBeginning {
        for growth in GROWTH {
            values.iter_mut().filter(|value| value.name == growth.name).for_each(|value| *value = growth);
        }
    }
    values
}

/// The values that are known of the selected part.
pub(crate) fn values_of(selected: &Selected<'_>, compared: Compared) -> Vec<ValueType> {
    let mut values: Vec<ValueType> = values(compared).into_iter().filter(|value| value.is_known(selected)).collect();
    values.retain(|value| compared != Compared::WithTheLastOne || !value.name.starts_with("peak_"));
    values
}

/// `shown_first`: the name of the value that readers show first.
pub fn write(selected: &Selected<'_>, shown_first: &str, out: &mut dyn Write) -> io::Result<()> {
    write_compared(selected, shown_first, Compared::WithNothing, out)
}

/// As `write`, of a range that may be compared with its beginning.
pub fn write_compared(
    selected: &Selected<'_>,
    shown_first: &str,
    compared: Compared,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = Writer {
        selected,
        out,
        message: Message::default(),
        strings: HashMap::new(),
        string_list: Vec::new(),
        functions: HashMap::new(),
        locations: HashMap::new(),
        mappings: IntMap::default(),
    };
    writer.string("");
    let values = values_of(selected, compared);
    writer.head(shown_first, &values)?;
    writer.main_mapping()?;
    let mut path = Vec::new();
    for row in selected.rows.iter().filter(|row| values.iter().any(|value| (value.of)(&row.costs) != 0)) {
        selected.levels(row.site, &mut path);
        writer.sample(row, &path, &values)?;
    }
    writer.string_table()
}

struct Writer<'a, 'b> {
    selected: &'a Selected<'b>,
    out: &'a mut dyn Write,
    /// The field of `Profile` that is being made.
    message: Message,
    strings: HashMap<String, u64>,
    string_list: Vec<String>,
    /// (name, system name, file) -> id
    functions: HashMap<(u64, u64, u64), u64>,
    /// The first and the last level that a location shows -> id. Levels of a frame are numbered one after the other.
    locations: HashMap<(u32, u32), u64>,
    /// Instance of a module -> id
    mappings: IntMap<u16, u64>,
}

impl Writer<'_, '_> {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        let number = self.string_list.len() as u64;
        self.strings.insert(text.to_owned(), number);
        self.string_list.push(text.to_owned());
        number
    }

    /// Writes one field of the profile.
    fn put(&mut self, field: u64, value: &Message) -> io::Result<()> {
        self.message.clear();
        self.message.message(field, value);
        self.out.write_all(self.message.as_bytes())
    }

    fn put_number(&mut self, field: u64, value: u64) -> io::Result<()> {
        self.message.clear();
        self.message.number(field, value);
        self.out.write_all(self.message.as_bytes())
    }

    fn head(&mut self, shown_first: &str, values: &[ValueType]) -> io::Result<()> {
        for value in values {
            let value_type = self.value_type(value.name, value.unit);
            self.put(field::SAMPLE_TYPE, &value_type)?;
        }
        let session = &self.selected.definitions.session;
        let range = self.selected.range;
        self.put_number(field::TIME_NANOS, session.started_unix_ns.saturating_add(range.from_ns))?;
        self.put_number(field::DURATION_NANOS, range.to_ns.saturating_sub(range.from_ns))?;
        let period_type = self.value_type("space", "bytes");
        self.put(field::PERIOD_TYPE, &period_type)?;
        self.put_number(field::PERIOD, self.selected.period())?;
        let shown_first = self.string(shown_first);
        self.put_number(field::DEFAULT_SAMPLE_TYPE, shown_first)?;
        let mut comments = vec![format!("heaptrack {}", env!("CARGO_PKG_VERSION")), self.selected.command()];
        let estimated = |bytes| format!("sampled, on average once in {bytes} bytes: the numbers are estimates");
        comments.extend(session.sampling.map(|sampling| estimated(sampling.rate)));
        comments.extend(self.selected.not_recorded());
        for comment in comments.iter().filter(|comment| !comment.is_empty()) {
            let comment = self.string(comment);
            self.put_number(field::COMMENT, comment)?;
        }
        Ok(())
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let (name, unit) = (self.string(name), self.string(unit));
        let mut message = Message::default();
        message.number(1, name).number(2, unit);
        message
    }

    fn sample(&mut self, row: &Detail, levels: &[u32], values: &[ValueType]) -> io::Result<()> {
        let mut locations = Vec::new();
        for frame in self.selected.frames(levels) {
            let first = frame.first().copied().unwrap_or(u32::MAX);
            let key = (first, frame.last().copied().unwrap_or(first));
            locations.push(match self.locations.get(&key) {
                Some(known) => *known,
                None => self.location(key, frame)?,
            });
        }
        if locations.is_empty() {
            locations.push(self.location((u32::MAX, u32::MAX), &[])?);
        }
        let mut sample = Message::default();
        sample.numbers(1, locations).numbers(2, values.iter().map(|value| (value.of)(&row.costs)));
        for label in self.labels(row) {
            sample.message(3, &label);
        }
        self.put(field::SAMPLE, &sample)
    }

    /// What is known about a row besides its stack.
    fn labels(&mut self, row: &Detail) -> Vec<Message> {
        let mut labels = Vec::new();
        if let Some(name) = row.allocator.and_then(|index| self.selected.definitions.allocators().nth(index)) {
            labels.push(self.text_label("allocator", name));
        }
        let Some(index) = row.thread else { return labels };
        if let Some((pid, name)) = self.selected.definitions.process_of(index) {
            labels.push(self.text_label("process", name));
            labels.push(self.number_label("pid", pid.into()));
        }
        let thread = self.selected.definitions.threads.get(&index);
        let name = thread.map(|thread| thread.name.as_str()).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("thread {index}"), str::to_owned);
        labels.push(self.text_label("thread", &name));
        if let Some(thread) = thread {
            labels.push(self.number_label("tid", thread.tid as u64));
        }
        labels
    }

    fn text_label(&mut self, key: &str, value: &str) -> Message {
        let (key, value) = (self.string(key), self.string(value));
        let mut label = Message::default();
        label.number(1, key).number(2, value);
        label
    }

    fn number_label(&mut self, key: &str, value: u64) -> Message {
        let (key, unit) = (self.string(key), self.string("id"));
        let mut label = Message::default();
        label.number(1, key).number(3, value).number(4, unit);
        label
    }

    /// Writes a location. `levels`: its functions, innermost first.
    fn location(&mut self, key: (u32, u32), levels: &[u32]) -> io::Result<u64> {
        if let Some(known) = self.locations.get(&key) {
            return Ok(*known);
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(key, id);
        let mut location = Message::default();
        location.number(1, id);
        let selected = self.selected;
        if let Some(level) = levels.last().and_then(|level| selected.level(*level)) {
            let mapping = self.mapping_of(level)?;
            location.number(2, mapping).number(3, selected.address(level));
        }
        let mut lines = 0;
        for level in levels.iter().filter_map(|level| selected.level(*level)) {
            let mut line = Message::default();
            let function = self.function(level)?;
            line.number(1, function).number(2, level.line.unwrap_or(0) as u64);
            location.message(4, &line);
            lines += 1;
        }
        if lines == 0 {
            let name = self.string(NOTHING);
            let mut line = Message::default();
            line.number(1, self.function_of((name, name, 0))?);
            location.message(4, &line);
        }
        self.put(field::LOCATION, &location)?;
        Ok(id)
    }

    fn function(&mut self, level: &StackTableLevel) -> io::Result<u64> {
        let table = self.selected.table;
        let name = match table.text(level.function) {
            Some(name) => self.string(name),
            None => self.string(&unnamed(table, level)),
        };
        let system_name = table.text(level.raw).map_or(name, |raw| self.string(raw));
        let file = table.text(level.file).map_or(0, |file| self.string(file));
        self.function_of((name, system_name, file))
    }

    fn function_of(&mut self, key: (u64, u64, u64)) -> io::Result<u64> {
        if let Some(known) = self.functions.get(&key) {
            return Ok(*known);
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(key, id);
        let mut function = Message::default();
        function.number(1, id).number(2, key.0).number(3, key.1).number(4, key.2);
        self.put(field::FUNCTION, &function)?;
        Ok(id)
    }

    /// Writes the mapping of the program itself, which must be the first one.
    fn main_mapping(&mut self) -> io::Result<()> {
        let definitions = self.selected.definitions;
        match definitions.modules.values().find(|module| module.path == definitions.session.exe) {
            Some(module) => self.mapping(module).map(drop),
            None => Ok(()),
        }
    }

    fn mapping_of(&mut self, level: &StackTableLevel) -> io::Result<u64> {
        match self.selected.definitions.module(level.frame) {
            Some(module) => self.mapping(module),
            None => Ok(0),
        }
    }

    fn mapping(&mut self, module: &Module) -> io::Result<u64> {
        if let Some(known) = self.mappings.get(&module.instance) {
            return Ok(*known);
        }
        let id = self.mappings.len() as u64 + 1;
        self.mappings.insert(module.instance, id);
        let build_id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (path, build_id) = (self.string(self.selected.path(&module.path)), self.string(&build_id));
        let mut mapping = Message::default();
        mapping.number(1, id).number(2, module.start).number(3, module.end).number(5, path).number(6, build_id);
        // Has functions, file names, line numbers and inlined functions: there is nothing to look up.
        mapping.number(7, 1).number(8, 1).number(9, 1).number(10, 1);
        self.put(field::MAPPING, &mapping)?;
        Ok(id)
    }

    fn string_table(&mut self) -> io::Result<()> {
        for text in std::mem::take(&mut self.string_list) {
            self.message.clear();
            self.message.always(field::STRING_TABLE, text.as_bytes());
            self.out.write_all(self.message.as_bytes())?;
        }
        Ok(())
    }
}
