//! What is to be patched: which functions of which files, and how.
//!
//! Given: the target's files. Gives back: entries with the code under them. What must hold: made while the target runs, so
//! every byte is looked at again before it is changed; a function that can be hooked in no way is left out and told, but
//! without malloc and free of a module nothing of that module is hooked.
use crate::code::Site;
use crate::error::Refusal;
use crate::files::{Function, Object, Symbols};
use crate::imports::{self, Export, Import};
use crate::loader::Loader;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::names::{self, Wanted};
use crate::process::Process;
use crate::unwind::Table;
use capture::entry::{INTERNAL, Range, Shim};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};

/// Bytes of a function that are looked through, when its size is not known or large.
const MOST_CODE: u64 = 16 << 10;
const SMALLEST_LOOK: u64 = 64;

/// One function.
#[derive(Clone, Debug)]
pub struct Planned {
    pub name: String,
    pub at: u64,
    pub shim: Shim,
    pub way: Way,
    pub module: Range,
    /// Of a throwing `operator new`: where in the plan its other form is.
    pub nothrow: Option<usize>,
    pub internal: [u64; INTERNAL],
}

/// How calls of a function come to us.
#[derive(Clone, Debug)]
pub enum Way {
    /// By a jump in place of its first instructions.
    Entry(Site),
    /// These cannot be displaced: by the words through which modules call it.
    Imports,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub entries: Vec<Planned>,
    /// Who offers what is wanted, by name. Empty when not all files could be asked.
    pub exports: Vec<Export>,
    pub imports: Vec<Import>,
    /// What cannot be recorded, for people.
    pub notes: Vec<String>,
    /// Of a program that has no table of its unwind information: the table, and where the program is.
    pub table: Option<(Table, Range)>,
}

/// A function that is wanted, found in a module.
struct Candidate {
    function: Function,
    wanted: Wanted,
    /// Or why its first instructions cannot be displaced.
    site: Result<Site, &'static str>,
    /// Where it goes if all it does is to jump there.
    forwards_to: Option<u64>,
    /// Where its direct calls and jumps lead to.
    leads_to: Vec<u64>,
}

/// What one file has of what is wanted.
struct Look<'a> {
    object: &'a Object,
    symbols: Symbols,
    candidates: Vec<Candidate>,
}

impl Plan {
    pub fn make(process: &Process, maps: &Maps, memory: &Memory, loader: &Loader) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        let mut is_go = false;
        let mut is_blind = false;
        let mut is_known = true;
        let mut looks = Vec::new();
        let objects = Object::all(process, maps, memory);
        for object in &objects {
            // The loader's own small allocator is for its start alone.
            if object.name().starts_with("ld-linux") {
                continue;
            }
            let symbols = object.functions(process, names::is_wanted);
            if let Some(tool) = names::sanitizer(object.name(), &symbols) {
                return Err(Refusal::Sanitizer { pid: process.pid, tool });
            }
            is_go |= object.is_program && symbols.is_go;
            is_blind |= object.is_program && !symbols.has_table;
            is_known &= symbols.is_known;
            plan.exports.extend(symbols.exports().map(|(name, at)| Export { bias: object.bias, name, at }));
            looks.push(Look::at(object, symbols, maps, memory, loader.is_static));
        }
        if !is_known {
            plan.exports.clear();
        }
        let candidates = looks.iter().flat_map(|look| &look.candidates);
        let unpatchable = candidates.filter(|candidate| candidate.site.is_err());
        let unpatchable: Vec<u64> = unpatchable.map(|candidate| candidate.function.at).collect();
        if !unpatchable.is_empty() {
            let list = loader.list(memory);
            plan.imports = imports::find(memory, &objects, loader, &list, &plan.exports, &unpatchable);
        }
        let allocators = looks.iter().filter(|look| !look.candidates.is_empty());
        let is_only = allocators.count() == 1;
        drop_passed_on(&mut looks);
        let mut refused = Vec::new();
        for look in looks {
            refused.extend(plan.add(look, is_only, maps, memory).err());
        }
        if !plan.entries.is_empty() {
            plan.notes.extend(refused.iter().map(|refusal| format!("{refusal}: what it allocates is not recorded")));
            let program = objects.iter().find(|object| object.is_program);
            let range = |object: &Object| Range { start: object.start, end: object.end };
            plan.table = program.and_then(|object| Some((object.unwind_table(process)?, range(object))));
            return Ok(plan);
        }
        if let Some(refusal) = refused.pop() {
            return Err(refusal);
        }
        let exe = process.exe().map(|path| path.display().to_string()).unwrap_or_default();
        Err(match (is_go, loader.is_static && is_blind) {
            (true, _) => Refusal::Go { exe },
            (_, true) => Refusal::Stripped { exe },
            _ => Refusal::NoMalloc { pid: process.pid },
        })
    }

    /// `is_only`: no other file has an allocator, which could lead to this one.
    fn add(&mut self, look: Look<'_>, is_only: bool, maps: &Maps, memory: &Memory) -> Result<(), Refusal> {
        let Look { object, symbols, mut candidates } = look;
        let is_glibc = object.name() == "libc.so.6" || object.name().starts_with("libc-2.");
        let failed = self.drop_unreachable(object, &mut candidates);
        let has = |wanted: fn(&Candidate) -> bool| candidates.iter().any(wanted);
        if !has(|candidate| candidate.wanted.is_malloc) || !has(|candidate| candidate.wanted.is_free) {
            let Some(why) = failed else { return Ok(()) };
            return Err(Refusal::NotPatchable { module: object.path.clone(), why });
        }
        drop_forwarders(&mut candidates);
        self.notes.extend(note_imports(object, &candidates));
        let internal = internal_frees(object, &symbols, &candidates, maps, memory, is_glibc);
        let first = self.entries.len();
        for candidate in &candidates {
            let Wanted { shim, plain, .. } = candidate.wanted;
            let nothrow = names::nothrow_of(&candidate.function.name);
            let nothrow = nothrow.and_then(|name| candidates.iter().position(|other| other.function.name == name));
            if matches!(shim, Shim::New | Shim::NewAligned) && nothrow.is_none() {
                let name = &candidate.function.name;
                self.notes
                    .push(format!("{name} of {} is not recorded: it has no form that does not throw", object.name()));
                // Its place in the plan stays, so that the others keep theirs; it is taken out below.
            }
            self.entries.push(Planned {
                name: candidate.function.name.clone(),
                at: candidate.function.at,
                shim: plain.filter(|plain| is_glibc && (is_only || *plain != Shim::Free)).unwrap_or(shim),
                way: candidate.site.clone().map_or(Way::Imports, Way::Entry),
                module: Range { start: object.start, end: object.end },
                nothrow: nothrow.map(|index| first + index),
                internal: if candidate.wanted.is_free { internal } else { [0; INTERNAL] },
            });
        }
        Ok(())
    }

    /// Takes out what can neither be patched nor is imported by anybody, and tells. Gives back why that is so of malloc or
    /// free, without which there is nothing to record.
    fn drop_unreachable(&mut self, object: &Object, candidates: &mut Vec<Candidate>) -> Option<&'static str> {
        let mut failed = None;
        candidates.retain(|candidate| {
            let Err(why) = candidate.site else { return true };
            let function = &candidate.function;
            // A program calls its own functions directly: hardly anything would be seen.
            if !object.is_program && self.imports.iter().any(|import| import.function == function.at) {
                return true;
            }
            if candidate.wanted.is_malloc || function.name == "free" {
                failed = failed.or(Some(why));
            } else {
                self.notes.push(format!("{} of {} is not recorded: {why}", function.name, object.name()));
            }
            false
        });
        failed
    }
}

impl<'a> Look<'a> {
    fn at(object: &'a Object, symbols: Symbols, maps: &Maps, memory: &Memory, is_static: bool) -> Look<'a> {
        let is_allocator = |function: &Function| names::find(&function.name).is_some_and(|wanted| wanted.is_malloc);
        // In a static program nothing is exported, and what was hidden has become local.
        let usable = |function: &&Function| {
            !function.is_local || object.is_program && (is_static || names::has_prefix(&function.name))
        };
        let mut candidates: Vec<Candidate> = Vec::new();
        // Names that begin with no prefix come first: of two names for one function they are the ones that count.
        let mut functions: Vec<&Function> = symbols.functions.iter().filter(usable).collect();
        functions.sort_by_key(|function| names::has_prefix(&function.name));
        if !functions.iter().any(|function| is_allocator(function)) {
            functions.clear();
        }
        for function in functions {
            let Some(wanted) = names::find(&function.name) else { continue };
            let is_known = candidates.iter().any(|known| known.function.at == function.at);
            if !is_known && maps.at(function.at).is_some_and(|mapping| mapping.execute) {
                candidates.push(Candidate::new(function, wanted, memory));
            }
        }
        Look { object, symbols, candidates }
    }
}

impl Candidate {
    fn new(function: &Function, wanted: Wanted, memory: &Memory) -> Candidate {
        let look = if function.size == 0 { MOST_CODE } else { function.size.clamp(SMALLEST_LOOK, MOST_CODE) };
        let mut code = vec![0; look as usize];
        let length = memory.read_some(function.at, &mut code);
        code.truncate(length);
        let site = Site::find(function.at, &code, function.size);
        // As a trial: what cannot be moved is known before anything is done.
        let site = site.and_then(|site| site.moved(site.at).map(|_| site));
        code.truncate(if function.size == 0 { code.len() } else { function.size as usize });
        Candidate {
            function: function.clone(),
            wanted,
            site,
            forwards_to: forwards_to(function.at, &code).map(|to| behind_table(memory, to)),
            leads_to: targets(memory, function.at, &code),
        }
    }
}

/// For people: what is hooked in another way than the rest.
fn note_imports(object: &Object, candidates: &[Candidate]) -> Option<String> {
    let told = candidates.iter().filter_map(|candidate| {
        let why = candidate.site.as_ref().err()?;
        Some(format!("{} ({why})", candidate.function.name))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| {
        format!(
            "of {0}, {1} cannot be patched in place and are hooked where modules import them: direct calls inside {0}, \
             calls by pointers from before and calls of libraries that are loaded from now on are not seen",
            object.name(),
            told.join(", ")
        )
    })
}

impl Planned {
    /// A throwing `operator new` whose other form is not there cannot be recorded.
    pub const fn is_possible(&self) -> bool {
        !matches!(self.shim, Shim::New | Shim::NewAligned) || self.nothrow.is_some()
    }
}

/// Where a function goes if all it does is to jump elsewhere.
fn forwards_to(at: u64, code: &[u8]) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let first = decoder.iter().find(|instruction| instruction.code() != Code::Endbr64)?;
    (first.flow_control() == FlowControl::UnconditionalBranch).then(|| first.near_branch_target())
}

/// Where a function's direct calls and jumps lead to, outside of itself.
fn targets(memory: &Memory, start: u64, code: &[u8]) -> Vec<u64> {
    let end = start + code.len() as u64;
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let near = decoder.into_iter().map(|instruction| instruction.near_branch_target());
    let outside = near.filter(|target| *target != 0 && !(start..end).contains(target));
    outside.map(|target| behind_table(memory, target)).collect()
}

/// A jump through a module's table of addresses leads on to what is in the table.
fn behind_table(memory: &Memory, at: u64) -> u64 {
    let mut code = [0; 16];
    let length = memory.read_some(at, &mut code);
    let mut decoder = Decoder::with_ip(64, code.get(..length).unwrap_or_default(), at, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.code() == Code::Endbr64 {
        instruction = decoder.decode();
    }
    let is_through =
        instruction.flow_control() == FlowControl::IndirectBranch && instruction.is_ip_rel_memory_operand();
    let place = instruction.ip_rel_memory_address();
    memory.word(place).ok().filter(|_| is_through).unwrap_or(at)
}

/// Takes out functions that do nothing but jump to another one that is in, frees that call another free, and operators that
/// call malloc: the other one sees it.
fn drop_forwarders(candidates: &mut Vec<Candidate>) {
    // Against all of them, also those that go: what they lead to stays. But who is hooked where it is imported does not see
    // direct calls.
    let patched = candidates.iter().filter(|candidate| candidate.site.is_ok());
    let known: Vec<(u64, bool, bool)> =
        patched.map(|c| (c.function.at, c.wanted.is_free, c.wanted.is_malloc)).collect();
    candidates.retain(|candidate| {
        let others = || known.iter().filter(|other| other.0 != candidate.function.at);
        if candidate.forwards_to.is_some_and(|to| others().any(|other| other.0 == to)) {
            return false;
        }
        let is_operator = candidate.function.name.starts_with("_Z");
        if !is_operator && !candidate.wanted.is_free || candidate.function.name == "free" {
            return true;
        }
        !others().any(|other| {
            let sees_it = if candidate.wanted.is_free { other.1 } else { other.2 };
            sees_it && candidate.leads_to.contains(&other.0)
        })
    });
}

/// Takes out libc's reallocarray where it leads to another file's realloc: that sees it, and may lead to libc's again.
fn drop_passed_on(looks: &mut [Look<'_>]) {
    let is_resizing = |candidate: &Candidate| matches!(candidate.wanted.shim, Shim::Resize1 | Shim::ResizeProduct);
    let all = looks.iter().enumerate().flat_map(|(of, look)| look.candidates.iter().map(move |known| (of, known)));
    let patched = all.filter(|(_, candidate)| candidate.site.is_ok() && is_resizing(candidate));
    let patched: Vec<(usize, u64)> = patched.map(|(of, candidate)| (of, candidate.function.at)).collect();
    for (of, look) in looks.iter_mut().enumerate() {
        look.candidates.retain(|candidate| {
            let leads_out = |known: &&(usize, u64)| known.0 != of && candidate.leads_to.contains(&known.1);
            !is_resizing(candidate) || !patched.iter().any(|known| leads_out(&known))
        });
    }
}

/// Return addresses of glibc's calls of its own free for what is in a thread's cache when the thread ends: those blocks
/// were freed by the program before.
fn internal_frees(
    object: &Object,
    symbols: &Symbols,
    candidates: &[Candidate],
    maps: &Maps,
    memory: &Memory,
    is_glibc: bool,
) -> [u64; INTERNAL] {
    let none = [0; INTERNAL];
    let Some(free) = candidates.iter().find(|candidate| candidate.function.name == "free") else { return none };
    let within: Vec<(u64, u64)> = if is_glibc {
        // All other code of the library calls free through its table of addresses.
        let code = maps.0.iter().filter(|m| m.execute && m.start >= object.start && m.end <= object.end);
        code.map(|mapping| (mapping.start, mapping.end)).collect()
    } else {
        let caches = ["tcache_thread_shutdown", "__malloc_arena_thread_freeres"];
        caches.iter().filter_map(|name| symbols.find(name)).map(|f| (f.at, f.at + f.size)).collect()
    };
    let mut found = Vec::new();
    for (start, end) in within {
        let mut code = vec![0; (end - start) as usize];
        let length = memory.read_some(start, &mut code);
        for (at, window) in code.get(..length).unwrap_or_default().windows(5).enumerate() {
            let &[0xe8, a, b, c, d] = window else { continue };
            let back = start + at as u64 + 5;
            if back.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]) as i64) == free.function.at {
                found.push(back);
            }
        }
    }
    let mut internal = none;
    if found.len() <= INTERNAL {
        internal.iter_mut().zip(found).for_each(|(place, at)| *place = at);
    }
    internal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mere_jump_is_known() {
        assert_eq!(forwards_to(0x10_0000, b"\xe9\x00\x10\x00\x00"), Some(0x10_1005));
        assert_eq!(forwards_to(0x10_0000, b"\xf3\x0f\x1e\xfa\xeb\x10"), Some(0x10_0016));
        assert_eq!(forwards_to(0x10_0000, b"\x53\xe9\x00\x10\x00\x00"), None);
    }
}
