//! What is to be patched: which functions of which files, and how.
//!
//! Given: the target's files. Gives back: entries with the code under them. What must hold: made while the target runs, so
//! every byte is looked at again before it is changed; a function that cannot be patched is left out and told, but without
//! malloc and free of a module nothing of that module is patched.
use crate::code::Site;
use crate::error::Refusal;
use crate::files::{Function, Object, Symbols};
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
    pub shim: Shim,
    pub site: Site,
    pub module: Range,
    /// Of a throwing `operator new`: where in the plan its other form is.
    pub nothrow: Option<usize>,
    pub internal: [u64; INTERNAL],
}

#[derive(Debug, Default)]
pub struct Plan {
    pub entries: Vec<Planned>,
    /// What cannot be recorded, for people.
    pub notes: Vec<String>,
    /// Of a program that has no table of its unwind information: the table, and where the program is.
    pub table: Option<(Table, Range)>,
}

/// A function that is wanted, found in a module.
struct Candidate {
    function: Function,
    wanted: Wanted,
    site: Site,
    /// Where it goes if all it does is to jump there.
    forwards_to: Option<u64>,
    /// Where its direct calls and jumps lead to.
    leads_to: Vec<u64>,
}

impl Plan {
    /// `is_static`: the program has no loader.
    pub fn make(process: &Process, maps: &Maps, memory: &Memory, is_static: bool) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        let mut is_go = false;
        let mut is_blind = false;
        let mut refused = None;
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
            if let Err(refusal) = plan.add(object, &symbols, maps, memory, is_static) {
                refused = Some(refusal);
            }
        }
        if !plan.entries.is_empty() {
            let program = objects.iter().find(|object| object.is_program);
            let range = |object: &Object| Range { start: object.start, end: object.end };
            plan.table = program.and_then(|object| Some((object.unwind_table(process)?, range(object))));
            return Ok(plan);
        }
        if let Some(refusal) = refused {
            return Err(refusal);
        }
        let exe = process.exe().map(|path| path.display().to_string()).unwrap_or_default();
        Err(match (is_go, is_static && is_blind) {
            (true, _) => Refusal::Go { exe },
            (_, true) => Refusal::Stripped { exe },
            _ => Refusal::NoMalloc { pid: process.pid },
        })
    }

    fn add(
        &mut self,
        object: &Object,
        symbols: &Symbols,
        maps: &Maps,
        memory: &Memory,
        is_static: bool,
    ) -> Result<(), Refusal> {
        let is_allocator = |function: &Function| names::find(&function.name).is_some_and(|wanted| wanted.is_malloc);
        // In a static program nothing is exported, and what was hidden has become local.
        let usable = |function: &&Function| {
            !function.is_local || object.is_program && (is_static || names::has_prefix(&function.name))
        };
        if !symbols.functions.iter().filter(usable).any(is_allocator) {
            return Ok(());
        }
        let is_glibc = object.name() == "libc.so.6" || object.name().starts_with("libc-2.");
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut failed: Option<&'static str> = None;
        // Names that begin with no prefix come first: of two names for one function they are the ones that count.
        let mut functions: Vec<&Function> = symbols.functions.iter().filter(usable).collect();
        functions.sort_by_key(|function| names::has_prefix(&function.name));
        for function in functions {
            let Some(wanted) = names::find(&function.name) else { continue };
            if candidates.iter().any(|known| known.function.at == function.at) {
                continue;
            }
            if !maps.at(function.at).is_some_and(|mapping| mapping.execute) {
                continue;
            }
            let look = if function.size == 0 { MOST_CODE } else { function.size.clamp(SMALLEST_LOOK, MOST_CODE) };
            let mut code = vec![0; look as usize];
            let length = memory.read_some(function.at, &mut code);
            code.truncate(length);
            match Site::find(function.at, &code, function.size) {
                Ok(site) => {
                    code.truncate(if function.size == 0 { code.len() } else { function.size as usize });
                    let forwards_to = site.forwards_to().map(|to| behind_table(memory, to));
                    let leads_to = targets(memory, function.at, &code);
                    candidates.push(Candidate { function: function.clone(), wanted, site, forwards_to, leads_to });
                }
                Err(why) if wanted.is_malloc || function.name == "free" => failed = failed.or(Some(why)),
                Err(why) => self.notes.push(format!("{} of {} is not recorded: {why}", function.name, object.name())),
            }
        }
        let has = |wanted: fn(&Candidate) -> bool| candidates.iter().any(wanted);
        if !has(|candidate| candidate.wanted.is_malloc) || !has(|candidate| candidate.wanted.is_free) {
            let Some(why) = failed else { return Ok(()) };
            return Err(Refusal::NotPatchable { module: object.path.clone(), why });
        }
        drop_forwarders(&mut candidates);
        let internal = internal_frees(object, symbols, &candidates, maps, memory, is_glibc);
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
                shim: plain.filter(|_| is_glibc).unwrap_or(shim),
                site: candidate.site.clone(),
                module: Range { start: object.start, end: object.end },
                nothrow: nothrow.map(|index| first + index),
                internal: if candidate.wanted.is_free { internal } else { [0; INTERNAL] },
            });
        }
        Ok(())
    }
}

impl Planned {
    /// A throwing `operator new` whose other form is not there cannot be recorded.
    pub const fn is_possible(&self) -> bool {
        !matches!(self.shim, Shim::New | Shim::NewAligned) || self.nothrow.is_some()
    }
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
    // Against all of them, also those that go: what they lead to stays.
    let known: Vec<(u64, bool, bool)> =
        candidates.iter().map(|c| (c.function.at, c.wanted.is_free, c.wanted.is_malloc)).collect();
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
