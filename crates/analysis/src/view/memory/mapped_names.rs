//! Names for the parts that the program mapped itself: the function that made the call, and its module.
use crate::definitions::Definitions;
use format::{MemoryInstant, MemoryPart, part_kind};

/// The parts of an instant. Those of one caller are one part, under the caller's name.
pub fn named_parts(instant: &MemoryInstant, definitions: &Definitions) -> Vec<MemoryPart> {
    let mut parts: Vec<MemoryPart> = Vec::with_capacity(instant.parts.len());
    for part in &instant.parts {
        let Some(stack) = part.stack() else {
            parts.push(part.clone());
            continue;
        };
        let name = caller_name(stack, definitions);
        match parts.iter_mut().find(|known| known.kind == part_kind::MAPPED && known.name == name) {
            Some(known) => {
                known.rss_bytes = known.rss_bytes.saturating_add(part.rss_bytes);
                known.pss_bytes = known.pss_bytes.saturating_add(part.pss_bytes);
            }
            None => parts.push(MemoryPart { name, ..part.clone() }),
        }
    }
    parts
}

/// The function that made a call, and the file name of its module. `None` if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Caller<'a> {
    pub function: Option<&'a str>,
    pub module: Option<&'a str>,
}

impl Caller<'_> {
    fn is_in(&self, start: &str) -> bool {
        self.module.is_some_and(|module| module.strip_prefix("lib").unwrap_or(module).starts_with(start))
    }

    /// Python's allocator of small objects. Its function is a local symbol, which a stripped Python lacks.
    pub fn is_pymalloc(&self) -> bool {
        self.is_in("python") && self.function.is_none_or(|name| name.contains("Arena"))
    }

    /// PHP's allocator. Its functions are local symbols, which a stripped PHP lacks.
    pub fn is_php(&self) -> bool {
        self.is_in("php") && self.function.is_none_or(|name| name.starts_with("zend_mm"))
    }

    pub fn is_v8(&self) -> bool {
        self.function.is_some_and(|name| name.starts_with("v8::"))
    }
}

pub(super) fn caller(stack: u32, definitions: &Definitions) -> Caller<'_> {
    let level = definitions.all_levels(stack).next();
    let module = level.as_ref().and_then(|level| level.module).and_then(|path| path.rsplit('/').next());
    let function = level.as_ref().and_then(|level| level.short.or(level.function));
    Caller { function, module }
}

pub fn caller_name(stack: u32, definitions: &Definitions) -> String {
    match caller(stack, definitions) {
        Caller { function: Some(function), module: Some(module) } => format!("{function} in {module}"),
        Caller { function: Some(name), module: None } | Caller { function: None, module: Some(name) } => {
            name.to_owned()
        }
        Caller { function: None, module: None } => "unknown caller".to_owned(),
    }
}
