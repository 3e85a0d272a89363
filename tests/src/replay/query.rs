//! Random queries, in the words of docs/views.md.
use super::trace::{Block, Level, Trace};
use crate::Chance;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Start,
    Peak,
    End,
    Ns(u64),
    Percent(u64),
}

impl When {
    pub fn text(self) -> String {
        match self {
            When::Start => "start".into(),
            When::Peak => "peak".into(),
            When::End => "end".into(),
            When::Ns(ns) => format!("{ns}ns"),
            When::Percent(share) => format!("{share}%"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    #[default]
    Function,
    Line,
    Module,
    Namespace,
}

/// The base of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    At(When),
    Range(When, When),
}

#[derive(Clone, Debug, Default)]
pub struct Query {
    pub custom: bool,
    pub at: Option<When>,
    pub from: Option<When>,
    pub to: Option<When>,
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub threads: Vec<u32>,
    /// Names, pids, or indexes after `#`.
    pub processes: Vec<String>,
    /// Names of allocators.
    pub allocators: Vec<String>,
    pub size: Option<(u64, u64)>,
    pub lifetime: Option<(u64, u64)>,
    /// Names of functions that are and are not parts of the allocator.
    pub wrappers: Vec<String>,
    pub not_wrappers: Vec<String>,
    pub hide: Vec<&'static str>,
    pub collapse: bool,
    pub merge: Merge,
    pub no_suppressions: bool,
    pub cost: Option<&'static str>,
    pub compare: Option<Base>,
    pub by_function: bool,
    /// Only for the view `callers`.
    pub function: Option<String>,
    pub depth: usize,
    /// Only for the view `timeline`.
    pub points: usize,
    pub top: Option<usize>,
}

pub const COSTS: [&str; 9] =
    ["peak", "leaked", "live", "allocations", "temporary", "allocated", "deallocations", "kept", "growth"];

impl Query {
    /// The query as the parameters of a URL.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        let mut say = |name, value: Option<String>| words.extend(value.map(|value| (name, value)));
        let span = |(min, max): (u64, u64)| format!("{min}..{max}");
        say("domain", self.custom.then(|| "custom".into()));
        say("at", self.at.map(When::text));
        say("from", self.from.map(When::text));
        say("to", self.to.map(When::text));
        self.include.iter().for_each(|text| say("include", Some(text.clone())));
        self.exclude.iter().for_each(|text| say("exclude", Some(text.clone())));
        self.threads.iter().for_each(|thread| say("thread", Some(thread.to_string())));
        self.processes.iter().for_each(|process| say("process", Some(process.clone())));
        self.allocators.iter().for_each(|allocator| say("allocator", Some(allocator.clone())));
        say("size", self.size.map(span));
        say("lifetime", self.lifetime.map(|(min, max)| format!("{min}ns..{max}ns")));
        self.wrappers.iter().for_each(|name| say("wrapper", Some(name.clone())));
        self.not_wrappers.iter().for_each(|name| say("not-wrapper", Some(name.clone())));
        say("hide", (!self.hide.is_empty()).then(|| self.hide.join(",")));
        say("collapse", self.collapse.then(|| "recursion".into()));
        let merge = ["function", "line", "module", "namespace"][self.merge as usize];
        say("merge", (self.merge != Merge::Function).then(|| merge.into()));
        say("suppressions", self.no_suppressions.then(|| "off".into()));
        say("cost", self.cost.map(str::to_owned));
        say(
            "compare",
            self.compare.map(|base| match base {
                Base::At(when) => format!("@{}", when.text()),
                Base::Range(from, to) => format!("@{}..{}", from.text(), to.text()),
            }),
        );
        say("by", self.by_function.then(|| "function".into()));
        say("function", self.function.clone());
        say("depth", (self.depth > 0).then(|| self.depth.to_string()));
        say("points", (self.points > 0).then(|| self.points.to_string()));
        say("top", self.top.map(|top| top.to_string()));
        words
    }

    /// The query as parameters for the server. The page writes nanoseconds as plain numbers, and people add the unit.
    /// Here even numbers are plain and odd ones have the unit, so both forms are tested.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let plain = |text: &str| match text.strip_suffix("ns") {
            Some(number) if number.ends_with(['0', '2', '4', '6', '8']) => number.to_owned(),
            _ => text.to_owned(),
        };
        let parameter = |(name, value): (&'static str, String)| match name {
            "at" | "from" | "to" | "lifetime" | "compare" => {
                (name, value.split("..").map(plain).collect::<Vec<_>>().join(".."))
            }
            _ => (name, value),
        };
        self.words().into_iter().map(parameter).collect()
    }

    /// Returns this query with one part taken from `other`, or with `collapse`, `by_function` or `no_suppressions`
    /// switched. A server that remembers answers must notice every difference.
    pub fn with_a_part_of(&self, other: Query, chance: &mut Chance) -> Query {
        let mut query = self.clone();
        match chance.between(0, 16) {
            0 => (query.at, query.from, query.to) = (other.at, other.from, other.to),
            1 => query.include = other.include,
            2 => query.exclude = other.exclude,
            3 => query.threads = other.threads,
            4 => query.size = other.size,
            5 => query.lifetime = other.lifetime,
            6 => query.hide = other.hide,
            7 => query.collapse = !self.collapse,
            8 => query.merge = other.merge,
            9 => query.cost = other.cost,
            10 => query.by_function = !self.by_function,
            11 => (query.depth, query.top, query.points) = (other.depth, other.top, other.points),
            12 => query.function = other.function,
            13 => query.processes = other.processes,
            14 => (query.wrappers, query.not_wrappers) = (other.wrappers, other.not_wrappers),
            _ => query.no_suppressions = !self.no_suppressions,
        }
        query
    }

    /// The query as options of `print`.
    pub fn options(&self) -> Vec<String> {
        let option = |(name, value): &(&str, String)| match *name {
            "suppressions" => "--no-suppressions".to_owned(),
            name => format!("--{name}={value}"),
        };
        self.words().iter().map(option).collect()
    }

    /// A random query about a part of the trace.
    pub fn random(chance: &mut Chance, trace: &Trace) -> Query {
        let mut query = Query { points: chance.between(1, 9) as usize, ..Query::default() };
        let (first, second) = (when(chance, trace), when(chance, trace));
        match chance.between(0, 8) {
            0..2 => query.at = Some(first),
            2..4 => (query.from, query.to) = ordered(trace, first, second),
            4 => query.from = Some(first),
            5 => query.to = Some(first),
            _ => {}
        }
        let mut often = |one_of: u64| chance.between(0, one_of) == 0;
        let (is_included, is_excluded) = (often(5), often(6));
        let (by_thread, by_size, by_lifetime) = (often(6), often(6), often(5));
        query.no_suppressions = often(6);
        query.collapse = often(4);
        query.by_function = often(3);
        if is_included {
            query.include = (0..chance.between(1, 3)).map(|_| pattern(chance, trace)).collect();
        }
        if is_excluded {
            query.exclude = vec![pattern(chance, trace)];
        }
        if by_thread && !trace.threads.is_empty() {
            let any = |chance: &mut Chance| trace.threads[chance.between(0, trace.threads.len() as u64) as usize];
            query.threads = (0..chance.between(1, 3)).map(|_| any(chance)).collect();
        }
        if chance.between(0, 4) == 0 && !trace.processes.is_empty() {
            query.processes = (0..chance.between(1, 3)).map(|_| process(chance, trace)).collect();
        }
        if trace.allocators.len() > 1 && chance.between(0, 3) == 0 {
            let any = |chance: &mut Chance| {
                trace.allocators[chance.between(0, trace.allocators.len() as u64) as usize].clone()
            };
            query.allocators = (0..chance.between(1, 3)).map(|_| any(chance)).collect();
        }
        if by_size {
            let sizes: Vec<u64> = trace.blocks.iter().map(|block| block.size).collect();
            let mut any = || sizes.get(chance.between(0, sizes.len().max(1) as u64) as usize).copied().unwrap_or(0);
            let (one, other) = (any(), any());
            query.size = Some((one.min(other), one.max(other)));
        }
        if by_lifetime {
            query.lifetime = Some(lifetime(chance, trace));
        }
        for class in ["runtime", "libc", "dependency", "kernel"] {
            if chance.between(0, 4) == 0 {
                query.hide.push(class);
            }
        }
        let name = |chance: &mut Chance| any_level(chance, trace).and_then(|level| level.function.clone());
        if chance.between(0, 5) == 0 {
            query.wrappers.extend(name(chance));
        }
        if chance.between(0, 6) == 0 {
            query.not_wrappers.extend(name(chance).map(|name| format!("{}*", part(chance, &name))));
        }
        query.merge = [Merge::Function, Merge::Line, Merge::Module, Merge::Namespace][chance.between(0, 4) as usize];
        query.cost = (chance.between(0, 2) == 0).then(|| COSTS[chance.between(0, 9) as usize]);
        query.depth = if chance.between(0, 5) == 0 { chance.between(1, 5) as usize } else { 0 };
        query.top = (chance.between(0, 2) == 0).then(|| chance.between(0, 6) as usize);
        query.function = (chance.between(0, 2) == 0).then(|| function(chance, trace));
        query
    }

    /// The same query, compared with another part of the trace.
    pub fn compared(self, chance: &mut Chance, trace: &Trace) -> Query {
        let (first, second) = (when(chance, trace), when(chance, trace));
        let base = match ordered(trace, first, second) {
            (Some(from), Some(to)) if chance.between(0, 2) == 0 => Base::Range(from, to),
            _ => Base::At(first),
        };
        Query { compare: Some(base), ..self }
    }
}

/// A process of the trace: its name, its pid or its index.
fn process(chance: &mut Chance, trace: &Trace) -> String {
    let all: Vec<_> = trace.processes.values().collect();
    let one = all[chance.between(0, all.len() as u64) as usize];
    match chance.between(0, 3) {
        0 => one.pid.to_string(),
        1 => format!("#{}", one.index),
        _ => one.command[0].rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

/// A span of lifetimes. Half of them begin and end at the lifetimes of blocks, where one nanosecond makes a difference.
fn lifetime(chance: &mut Chance, trace: &Trace) -> (u64, u64) {
    let of = |block: &Block| block.end.map(|end| end.ns - block.born_ns);
    let known: Vec<u64> = trace.blocks.iter().filter_map(of).collect();
    if known.is_empty() || chance.between(0, 2) == 0 {
        let min = chance.between(0, trace.runtime_ns / 3 + 1) / (1 + chance.between(0, 20));
        return (min, min + chance.between(0, trace.runtime_ns + 1));
    }
    let mut any = || known[chance.between(0, known.len() as u64) as usize];
    let (one, other) = (any(), any());
    (one.min(other), one.max(other))
}

fn when(chance: &mut Chance, trace: &Trace) -> When {
    match chance.between(0, 9) {
        0 => When::Start,
        1 => When::End,
        2 => When::Peak,
        3..5 => When::Percent(chance.between(0, 101)),
        // At the time of an event or one nanosecond after it, where one nanosecond makes a difference.
        5 if !trace.times.is_empty() => {
            let ns = trace.times[chance.between(0, trace.times.len() as u64) as usize];
            When::Ns((ns + chance.between(0, 2)).max(1))
        }
        _ => When::Ns(1 + chance.between(0, trace.runtime_ns + 200_000)),
    }
}

/// A range that does not end before it begins.
fn ordered(trace: &Trace, first: When, second: When) -> (Option<When>, Option<When>) {
    let is_before = |a: When, b: When| trace.position(a) <= trace.position(b) && trace.time(a) <= trace.time(b);
    match (is_before(first, second), is_before(second, first)) {
        (true, _) => (Some(first), Some(second)),
        (_, true) => (Some(second), Some(first)),
        _ => (Some(first), Some(first)),
    }
}

fn any_level<'a>(chance: &mut Chance, trace: &'a Trace) -> Option<&'a Level> {
    let stacks: Vec<&Vec<Level>> = trace.stacks.iter().filter(|stack| !stack.is_empty()).collect();
    let stack = stacks.get(chance.between(0, stacks.len().max(1) as u64) as usize)?;
    stack.get(chance.between(0, stack.len() as u64) as usize)
}

/// A random word of a text, without characters that have a meaning in regular expressions.
fn part(chance: &mut Chance, text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    words.get(chance.between(0, words.len().max(1) as u64) as usize).map_or("x".into(), |word| (*word).to_owned())
}

fn function(chance: &mut Chance, trace: &Trace) -> String {
    let name = any_level(chance, trace).and_then(|level| level.function.clone()).unwrap_or_else(|| "main".into());
    part(chance, &name)
}

/// A random pattern: TEXT or `/TEXT/`, sometimes after `function:`, `file:` or `module:`. TEXT is taken from a random
/// level of the trace if that level has the field.
fn pattern(chance: &mut Chance, trace: &Trace) -> String {
    let level = any_level(chance, trace).cloned().unwrap_or_default();
    let (subject, text) = match chance.between(0, 3) {
        0 => ("module:", level.module),
        1 => ("file:", level.file),
        _ => ("function:", level.function),
    };
    let mut text = part(chance, text.as_deref().unwrap_or("nowhere"));
    if chance.between(0, 3) == 0 {
        text = text.to_uppercase();
    }
    if chance.between(0, 4) == 0 {
        text = format!("/{text}/");
    }
    if chance.between(0, 2) == 0 { format!("{subject}{text}") } else { text }
}

/// Whether a level matches a pattern. The regular expressions here are plain text between slashes.
pub fn matches(pattern: &str, level: &Level) -> bool {
    let all = [("function:", &level.function), ("file:", &level.file), ("module:", &level.module)];
    let only = all.iter().find(|(prefix, _)| pattern.starts_with(prefix));
    let text = only.map_or(pattern, |(prefix, _)| &pattern[prefix.len()..]).trim_matches('/').to_lowercase();
    let has = |value: &Option<String>| value.as_ref().is_some_and(|value| value.to_lowercase().contains(&text));
    only.map_or_else(|| all.iter().any(|(_, value)| has(value)), |(_, value)| has(value))
}
