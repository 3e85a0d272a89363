//! pprof's profile.proto: what Go, jemalloc_pprof, tcmalloc and heaptrack itself write for heaps.
//!
//! Must hold: names of value types decide what a value means. A profile without bytes or blocks that are live or allocated
//! (such as a CPU profile) is refused.
use crate::protobuf::{Field, fields};
use crate::{Frame, Function, HeapProfile, Kind, LONGEST_PATH, Line, MOST_MODULES, Module, Stack, VALUES, Value};
use std::collections::HashMap;

const MALFORMED: &str = "it is malformed or cut off";

#[derive(Default)]
struct Raw<'a> {
    value_types: Vec<u64>,
    samples: Vec<&'a [u8]>,
    mappings: Vec<&'a [u8]>,
    locations: Vec<&'a [u8]>,
    functions: Vec<&'a [u8]>,
    strings: Vec<&'a [u8]>,
    time_nanos: u64,
    duration_nanos: u64,
    period: u64,
    comments: Vec<u64>,
}

/// The fewest fields that make a file a profile. Any two bytes can look like one field.
const FEWEST_FIELDS: usize = 3;

/// Whether the first bytes of a file are fields of a profile. The last one may be cut off.
///
/// Every writer begins with the types of values, or with their unit. The bytes of such a type are control characters and
/// small numbers. Without them, a text that begins with an empty line or with a Z can look like a list of fields.
pub(crate) fn is_beginning(first: &[u8]) -> bool {
    let is_of_profile = |number: u64, field: Field<'_>| match number {
        1 | 11 => matches!(field, Field::Bytes(bytes) if is_value_type(bytes)),
        2..=6 => matches!(field, Field::Bytes(_)),
        7..=10 | 12 | 14 | 15 => matches!(field, Field::Number(_)),
        number => number == 13,
    };
    let mut count = 0;
    for field in fields(first) {
        match field {
            Some((number, field)) if is_of_profile(number, field) => count += 1,
            Some(_) => return false,
            None => break,
        }
    }
    count >= FEWEST_FIELDS && matches!(first.first(), Some(0x0a | 0x5a))
}

/// Whether these are the numbers of two texts: a name and a unit. A writer may leave out a text that is empty, but a name
/// never is.
fn is_value_type(bytes: &[u8]) -> bool {
    let mut has_name = false;
    for field in fields(bytes) {
        match field {
            Some((1, Field::Number(_))) => has_name = true,
            Some((2, Field::Number(_))) => {}
            _ => return false,
        }
    }
    has_name
}

pub(crate) fn read(bytes: &[u8]) -> Result<HeapProfile, String> {
    read_all(bytes).unwrap_or_else(|| Err(MALFORMED.into()))
}

/// Returns `None` if the bytes are malformed.
fn read_all(bytes: &[u8]) -> Option<Result<HeapProfile, String>> {
    let raw = raw(bytes)?;
    let mut profile = HeapProfile::new(Kind::Pprof);
    profile.strings = raw.strings.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let mut values = Vec::new();
    for name in &raw.value_types {
        values.push(value(text(&profile, *name)?));
    }
    if values.iter().all(Option::is_none) {
        let names = raw.value_types.iter().take(5).filter_map(|name| text(&profile, *name));
        let names: Vec<String> = names.map(|name| name.chars().take(40).collect()).collect();
        return Some(Err(format!("it is no profile of a heap: its values are {}", names.join(", "))));
    }
    profile.known = Value::ALL.into_iter().filter(|known| values.contains(&Some(*known))).collect();
    (profile.started_unix_ns, profile.duration_ns) = (raw.time_nanos, raw.duration_nanos);
    profile.sampled_every = Some(raw.period).filter(|period| *period > 1);
    let command = raw.comments.iter().find_map(|comment| text(&profile, *comment).filter(|text| !is_ours(text)));
    profile.command = command.unwrap_or_default().to_owned();
    let modules = read_modules(&raw, &mut profile)?;
    let locations = read_locations(&raw, &modules, &mut profile)?;
    for sample in &raw.samples {
        let stack = read_sample(sample, &values, &locations)?;
        if let Err(reason) = profile.add_stack(stack) {
            return Some(Err(reason));
        }
    }
    Some(Ok(profile))
}

fn text(profile: &HeapProfile, number: u64) -> Option<&str> {
    profile.strings.get(usize::try_from(number).ok()?).map(String::as_str)
}

/// The number of a text, if there is one.
fn string(profile: &HeapProfile, field: Field<'_>) -> Option<u32> {
    let number = u32::try_from(field.number()).ok()?;
    ((number as usize) < profile.strings.len()).then_some(number)
}

/// Our own exports have the name of the tool as their first comment and the command as their second.
fn is_ours(comment: &str) -> bool {
    comment.starts_with("heaptrack ") && !comment.contains('/')
}

fn value(name: &str) -> Option<Value> {
    Some(match name {
        "alloc_objects" | "allocations" => Value::Allocations,
        "alloc_space" => Value::AllocatedBytes,
        "inuse_objects" | "objects" => Value::LiveAllocations,
        "inuse_space" | "space" => Value::LiveBytes,
        "peak_objects" => Value::PeakAllocations,
        "peak_space" => Value::PeakBytes,
        "temporary_objects" => Value::Temporary,
        _ => return None,
    })
}

fn raw(bytes: &[u8]) -> Option<Raw<'_>> {
    let mut raw = Raw::default();
    for field in fields(bytes) {
        let (number, field) = field?;
        match number {
            1 => {
                let mut name = 0;
                for field in fields(field.bytes()) {
                    if let (1, field) = field? {
                        name = field.number();
                    }
                }
                raw.value_types.push(name);
            }
            2 => raw.samples.push(field.bytes()),
            3 => raw.mappings.push(field.bytes()),
            4 => raw.locations.push(field.bytes()),
            5 => raw.functions.push(field.bytes()),
            6 => raw.strings.push(field.bytes()),
            9 => raw.time_nanos = field.number(),
            10 => raw.duration_nanos = field.number(),
            12 => raw.period = field.number(),
            13 => field.numbers(&mut raw.comments)?,
            _ => {}
        }
    }
    Some(raw)
}

/// Returns the index of each mapping's module, by the mapping's id.
fn read_modules(raw: &Raw<'_>, profile: &mut HeapProfile) -> Option<HashMap<u64, usize>> {
    let mut by_id = HashMap::new();
    for mapping in raw.mappings.iter().take(MOST_MODULES) {
        let (mut module, mut id) = (Module::default(), 0);
        for field in fields(mapping) {
            match field? {
                (1, field) => id = field.number(),
                (2, field) => module.start = field.number(),
                (3, field) => module.end = field.number(),
                (4, field) => module.file_offset = field.number(),
                (5, field) => module.path = short(text(profile, field.number())?),
                (6, field) => module.build_id = from_hex(&short(text(profile, field.number())?)),
                _ => {}
            }
        }
        by_id.insert(id, profile.modules.len());
        profile.modules.push(module);
    }
    Some(by_id)
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST_PATH).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|letter| letter.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns the index of each location's frame, by the location's id.
fn read_locations(
    raw: &Raw<'_>,
    modules: &HashMap<u64, usize>,
    profile: &mut HeapProfile,
) -> Option<HashMap<u64, u32>> {
    let mut functions: HashMap<u64, u32> = HashMap::new();
    for bytes in &raw.functions {
        let (mut function, mut id) = (Function::default(), 0);
        for field in fields(bytes) {
            match field? {
                (1, field) => id = field.number(),
                (2, field) => function.name = string(profile, field)?,
                (3, field) => function.system_name = string(profile, field)?,
                (4, field) => function.file = string(profile, field)?,
                _ => {}
            }
        }
        functions.insert(id, profile.functions.len() as u32);
        profile.functions.push(function);
    }
    let mut by_id = HashMap::new();
    for location in &raw.locations {
        let (mut frame, mut id) = (Frame::default(), 0);
        for field in fields(location) {
            match field? {
                (1, field) => id = field.number(),
                (2, field) => frame.module = modules.get(&field.number()).copied(),
                (3, field) => frame.address = field.number(),
                (4, field) => frame.lines.push(read_line(field.bytes(), &functions)?),
                _ => {}
            }
        }
        by_id.insert(id, profile.frames.len() as u32);
        profile.frames.push(frame);
    }
    Some(by_id)
}

fn read_line(bytes: &[u8], functions: &HashMap<u64, u32>) -> Option<Line> {
    let (mut function, mut line) = (None, 0);
    for field in fields(bytes) {
        match field? {
            (1, field) => function = functions.get(&field.number()).copied(),
            (2, field) => line = u32::try_from(field.number()).unwrap_or(0),
            _ => {}
        }
    }
    Some(Line { function: function?, line })
}

fn read_sample(bytes: &[u8], values: &[Option<Value>], locations: &HashMap<u64, u32>) -> Option<Stack> {
    let (mut ids, mut numbers) = (Vec::new(), Vec::new());
    for field in fields(bytes) {
        match field? {
            (1, field) => field.numbers(&mut ids)?,
            (2, field) => field.numbers(&mut numbers)?,
            _ => {}
        }
    }
    let mut stack = Stack { frames: Vec::with_capacity(ids.len()), values: [0; VALUES] };
    for id in ids {
        stack.frames.push(*locations.get(&id)?);
    }
    for (value, number) in values.iter().zip(numbers) {
        if let Some(value) = value {
            // A difference of two profiles has negative numbers.
            stack.values[*value as usize] = i64::try_from(number).map(|_| number).unwrap_or(0);
        }
    }
    Some(stack)
}
