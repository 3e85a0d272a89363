//! Heap profiles of other tools: their stacks become definitions, as those of a trace, and their numbers the costs of the
//! stacks. They have no events.
use crate::raw_names::{code_shift, look_up_blocks};
use analysis::{Costs, Engine, KnownCosts};
use format::{
    AllocClassEncoder, CodeLocation, Error, Exit, Frame, Losses, Module, RawBlock, Session, StackEncoder, Summary,
    SymbolState, SymbolsBuilder, Totals, VERSION,
};
use import::{HeapProfile, Kind, MOST_UNPACKED, Value};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::Path;

/// The bytes of a file that are looked at to recognise its format.
const FIRST: u64 = 4096;
/// The highest instance of a module. The numbers above have a meaning of their own.
const LAST_INSTANCE: usize = 0xfffe;
/// Offsets from here on stand for frames that have no address of their own.
const MADE_UP: u64 = 1 << 46;

/// Returns what kind of heap profile a file is, or `None` if it is something else.
pub(crate) fn recognise(input: impl Read) -> Result<Option<Kind>, Error> {
    let mut first = Vec::new();
    input.take(FIRST).read_to_end(&mut first)?;
    // Whether a packed file is damaged is for its reader to say.
    Ok(import::unpacked(&first, FIRST).ok().and_then(|first| import::recognise(&first)))
}

pub(crate) fn read(input: impl Read, kind: Kind) -> Result<HeapProfile, Error> {
    let wrong = |reason: &str| Error::HeapProfile(format!("{}, but {reason}", kind.name()));
    let mut bytes = Vec::new();
    input.take(MOST_UNPACKED).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == MOST_UNPACKED {
        return Err(wrong("it is larger than 256 MiB"));
    }
    let unpacked = import::unpacked(&bytes, MOST_UNPACKED);
    let unpacked = unpacked.map_err(|error: io::Error| wrong(&format!("it cannot be unpacked: {error}")))?;
    if unpacked.len() as u64 == MOST_UNPACKED {
        return Err(wrong("it is larger than 256 MiB when it is unpacked"));
    }
    import::read(kind, &unpacked).map_err(|error| Error::HeapProfile(error.to_string()))
}

/// Gives the engine the definitions and the costs of a profile. `path`: its file on this machine, if it has one. Then names
/// that the profile does not have are looked up.
pub(crate) fn add(profile: &HeapProfile, path: Option<&Path>, engine: &mut Engine) {
    let session = Session {
        version: VERSION,
        command: profile.command.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        exe: profile.modules.first().map(|module| module.path.clone()).unwrap_or_default(),
        pid: profile.pid,
        started_unix_ns: profile.started_unix_ns,
        tool: profile.kind.name().to_owned(),
        ..Session::default()
    };
    let modules: Vec<Module> = modules(profile, path);
    let frames = frames(profile, &modules);
    let (stacks, classes, costs) = stacks(profile, &frames);
    let mut blocks = vec![session.to_block(), Module::to_block(&modules), names(profile, &frames), stacks, classes];
    blocks.extend(path.map(|path| look_up_blocks(path, &blocks)).unwrap_or_default());
    let totals = Totals { runtime_ns: profile.duration_ns, ..Totals::default() };
    blocks.push(Summary { complete: true, exit: Exit::Unknown, totals }.to_block());
    let sampled = |bytes| format!("sampled, on average once in {bytes} bytes: the numbers are estimates");
    if let Some(note) = profile.sampled_every.map(sampled).or_else(|| profile.note.clone()) {
        blocks.push(Losses { note: Some(note), ..Losses::default() }.to_block());
    }
    blocks.iter().for_each(|block| engine.add(block));
    engine.add_sums(costs, known(profile));
}

/// The modules. Frames have addresses in memory, and a mapping names an offset in the file, so the file's headers say
/// which virtual address that is. Without the file, both are taken for the same, as in most files.
fn modules(profile: &HeapProfile, path: Option<&Path>) -> Vec<Module> {
    let mut shifts: HashMap<&str, u64> = HashMap::new();
    let modules = profile.modules.iter().take(LAST_INSTANCE).zip(1u16..);
    let made = modules.map(|(module, instance)| {
        let file = module.path.as_str();
        let shift =
            *shifts.entry(file).or_insert_with(|| path.and_then(|path| code_shift(Path::new(file), path)).unwrap_or(0));
        Module {
            instance,
            start: module.start,
            end: module.end,
            bias: module.start.wrapping_sub(module.file_offset).wrapping_sub(shift),
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            ..Module::default()
        }
    });
    made.collect()
}

/// Returns the frame of each frame of the profile.
fn frames(profile: &HeapProfile, modules: &[Module]) -> Vec<Frame> {
    let mut known: HashMap<(u16, u64), usize> = HashMap::new();
    // pprof has addresses within the call, the others have return addresses.
    let is_exact = profile.kind == Kind::Pprof;
    let frame = |(at, frame): (usize, &import::Frame)| {
        let module = frame.module.and_then(|module| modules.get(module));
        let (instance, bias) = module.map_or((0, 0), |module| (module.instance, module.bias));
        let offset = frame.address.wrapping_sub(bias) & (MADE_UP - 1);
        // Frames without addresses, or several of the same address with other names, must not become one.
        let is_own = frame.address != 0 && *known.entry((instance, offset)).or_insert(at) == at;
        Frame::new(instance, if is_own { offset } else { MADE_UP | at as u64 }, is_exact)
    };
    profile.frames.iter().enumerate().map(frame).collect()
}

/// The names that the profile has.
fn names(profile: &HeapProfile, frames: &[Frame]) -> RawBlock {
    let mut by_instance: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (at, frame) in frames.iter().enumerate().filter(|(at, _)| !profile.frames[*at].lines.is_empty()) {
        by_instance.entry(frame.instance()).or_default().push(at);
    }
    let mut names = Names { profile, builder: SymbolsBuilder::default(), functions: HashMap::new() };
    for (instance, list) in by_instance {
        names.builder.module(instance, SymbolState::Debug, "");
        for at in list {
            let lines = &profile.frames[at].lines;
            let places = (1..).zip(lines).map(|(number, line)| names.place(line, number < lines.len())).collect();
            names.builder.frame(frames[at].0 & ((1 << 48) - 1), places);
        }
    }
    names.builder.take().to_block()
}

/// Makes each function once.
struct Names<'a> {
    profile: &'a HeapProfile,
    builder: SymbolsBuilder,
    /// The function and the file, by the number of the function in the profile.
    functions: HashMap<u32, (Option<u32>, Option<u32>)>,
}

impl Names<'_> {
    fn place(&mut self, line: &import::Line, inlined: bool) -> CodeLocation {
        let (profile, builder) = (self.profile, &mut self.builder);
        let (function, file) = *self.functions.entry(line.function).or_insert_with(|| {
            let Some(function) = profile.functions.get(line.function as usize) else { return (None, None) };
            let [name, raw, file] = [function.name, function.system_name, function.file].map(|text| profile.text(text));
            let raw = if raw.is_empty() { name } else { raw };
            let made = (!name.is_empty()).then(|| builder.function(raw, name, &demangle::shorten(name)));
            (made, (!file.is_empty()).then(|| builder.string(file)))
        });
        CodeLocation { function, file, line: (line.line > 0).then_some(line.line), inlined }
    }
}

/// Returns the block of stacks, the block of allocation classes, one for each stack, and the costs of each stack.
fn stacks(profile: &HeapProfile, frames: &[Frame]) -> (RawBlock, RawBlock, Vec<Costs>) {
    let (mut stacks, mut classes) = (StackEncoder::new(), AllocClassEncoder::new());
    let mut nodes: HashMap<(u32, Frame), u32> = HashMap::new();
    let mut sites: HashMap<u32, usize> = HashMap::new();
    let mut costs: Vec<Costs> = Vec::new();
    for stack in &profile.stacks {
        let mut node = 0;
        for frame in stack.frames.iter().rev().filter_map(|frame| frames.get(*frame as usize)) {
            node = *nodes.entry((node, *frame)).or_insert_with(|| stacks.push(node, *frame));
        }
        let site = *sites.entry(node).or_insert_with(|| {
            classes.push(0, node);
            costs.push(Costs::default());
            costs.len() - 1
        });
        costs[site].add(&costs_of(stack));
    }
    (stacks.take(), classes.take(), costs)
}

fn costs_of(stack: &import::Stack) -> Costs {
    let value = |value: Value| stack.values[value as usize];
    Costs {
        allocations: value(Value::Allocations),
        allocated_bytes: value(Value::AllocatedBytes),
        live_allocations: value(Value::LiveAllocations),
        live_bytes: value(Value::LiveBytes),
        peak_allocations: value(Value::PeakAllocations),
        peak_bytes: value(Value::PeakBytes),
        temporary: value(Value::Temporary),
        ..Costs::default()
    }
}

fn known(profile: &HeapProfile) -> KnownCosts {
    let has = |value: Value| profile.known.contains(&value);
    KnownCosts {
        allocations: has(Value::Allocations),
        allocated_bytes: has(Value::AllocatedBytes),
        live_allocations: has(Value::LiveAllocations),
        live_bytes: has(Value::LiveBytes),
        peak_allocations: has(Value::PeakAllocations),
        peak_bytes: has(Value::PeakBytes),
        temporary: has(Value::Temporary),
        sampled_every: profile.sampled_every,
    }
}
