//! The plan: which functions of which files are hooked, and how.
//!
//! Receives: the target's files. Returns: the functions to hook, with the code that is displaced. Must hold: the plan
//! is made while the target runs, so every byte is compared again before it is changed. A function that cannot be
//! hooked is left out and named in a note. If malloc or free of a module cannot be hooked, nothing of that module is
//! hooked: without one of them, every block would be missing or look leaked.
use crate::candidates::{Candidate, Look, drop_forwarders, drop_passed_on, keep_allocators, leads_to};
use crate::code::Site;
use crate::error::Refusal;
use crate::files::{Object, Symbols};
use crate::hooked_functions::{self, Wanted, is_mapping};
use crate::imports::{self, Export, Import};
use crate::late::{self, Loaded, Separate};
use crate::loader::Loader;
use crate::mapping_code;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::process::Process;
use crate::unwind::UnwindTable;
use capture::allocators::{self, Effect, Meaning};
use capture::entry::{Entry, INTERNAL, Range, Shim};
use channel::AllocatorId;

/// One function that will be hooked.
#[derive(Clone, Debug)]
pub struct Planned {
    pub name: String,
    pub at: u64,
    pub shim: Shim,
    pub way: Way,
    pub module: Range,
    pub meaning: Meaning,
    pub allocator: AllocatorId,
    /// For a function that throws, such as `operator new`: the variant that returns null. For jemalloc's mallctlbymib: its
    /// mallctlnametomib. For mimalloc's mi_heap_destroy: its mi_heap_main.
    pub nothrow: Nothrow,
    pub internal: [u64; INTERNAL],
    pub mapping_code: Range,
}

/// The variant of a throwing function that returns null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothrow {
    None,
    /// It is hooked too, and this is its index in the plan.
    Planned(usize),
    /// It is at this address and is not changed.
    Unchanged(u64),
}

/// How a function is hooked.
#[derive(Clone, Debug)]
pub enum Way {
    /// By a jump that replaces its first instructions.
    Entry(Site),
    /// By the words through which modules call it, because its first instructions cannot be displaced.
    Imports,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub entries: Vec<Planned>,
    /// The exported names of wanted functions. Empty if not all files could be read.
    pub exports: Vec<Export>,
    pub imports: Vec<Import>,
    /// What cannot be recorded, as sentences for the user.
    pub notes: Vec<String>,
    /// If the program has no table of its unwind information: a table for it, and where the program is.
    pub table: Option<(UnwindTable, Range)>,
}

impl Plan {
    pub fn make(
        process: &Process,
        maps: &Maps,
        memory: &Memory,
        loader: &Loader,
        separate: Separate<'_>,
    ) -> Result<Plan, Refusal> {
        let mut plan = Plan::default();
        let mut is_go = false;
        let mut is_blind = false;
        let mut is_known = true;
        let mut looks = Vec::new();
        let objects = Object::all(process, maps, memory);
        let described = loader.describe(process, memory, &loader.list(memory), 0, 0);
        for object in &objects {
            // The loader's own small allocator is used only at its start.
            if object.name().starts_with("ld-linux") {
                continue;
            }
            let mut symbols = object.functions(process, hooked_functions::is_wanted);
            if !symbols.has_table && !late::is_libc(object.name()) {
                let build_id = described.iter().find(|module| module.start == object.start);
                let build_id = build_id.map(|module| module.build_id.clone()).unwrap_or_default();
                let module = Loaded { start: object.start, path: object.path.clone(), build_id, is_hooked: false };
                let found = separate(&module);
                symbols.has_table |= !found.is_empty();
                symbols.add(found.iter().map(|function| function.at(object.bias)));
            }
            if let Some(tool) = hooked_functions::sanitizer(object.name(), &symbols) {
                return Err(Refusal::Sanitizer { pid: process.pid, tool });
            }
            is_go |= object.is_program && symbols.is_go;
            is_blind |= object.is_program && !symbols.has_table;
            is_known &= symbols.is_known;
            plan.exports.extend(symbols.exports().map(|(name, at)| Export { bias: object.bias, name, at }));
            let mut look = Look::at(object, symbols, maps, memory, loader.is_static);
            look.candidates.retain(|candidate| match candidate.wanted.shim {
                Shim::Execve | Shim::Fexecve => process.is_followed || process.hold.hooks_exec(),
                Shim::Fork | Shim::Exit => process.is_followed || process.hold.is_on(),
                _ if candidate.wanted.is_mapping() => !object.is_program && late::is_libc(object.name()),
                _ => true,
            });
            looks.push(look);
        }
        if !is_known {
            plan.exports.clear();
        }
        let mut refused = plan.add_all(looks, &objects, loader, maps, memory);
        // A program that heaptrack starts is patched for the sake of its own allocator.
        let is_own = |refusal: &Refusal| {
            let is_program = |path: &str| objects.iter().any(|object| object.is_program && object.path == path);
            matches!(refusal, Refusal::NotPatchable { module, .. } if is_program(module))
        };
        if process.hold.is_on()
            && let Some(at) = refused.iter().position(is_own)
        {
            return Err(refused.swap_remove(at));
        }
        plan.name_allocators(&objects);
        if !plan.entries.is_empty() {
            let beyond = "a call of it is recorded only if it reaches another allocator";
            plan.notes.extend(refused.iter().map(|refusal| format!("{refusal}: {beyond}")));
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

    /// Makes the plan for modules whose code does not run yet. Functions that cannot be patched are only named in notes.
    pub fn of_late(mut looks: Vec<Look<'_>>, maps: &Maps, memory: &Memory) -> Plan {
        let mut plan = Plan::default();
        drop_passed_on(&mut looks);
        for look in looks {
            let refused = plan.add(look, false, maps, memory);
            plan.notes.extend(refused.err().map(|refusal| refusal.to_string()));
        }
        plan
    }

    /// Adds the wanted functions of all files. Returns a refusal for each file that is left out because no malloc or no
    /// freeing function of it can be hooked.
    fn add_all(
        &mut self,
        mut looks: Vec<Look<'_>>,
        objects: &[Object],
        loader: &Loader,
        maps: &Maps,
        memory: &Memory,
    ) -> Vec<Refusal> {
        let candidates = looks.iter().flat_map(|look| &look.candidates);
        let unpatchable = candidates.filter(|candidate| candidate.site.is_err());
        let unpatchable: Vec<u64> = unpatchable.map(|candidate| candidate.function.at).collect();
        if !unpatchable.is_empty() {
            let list = loader.list(memory);
            self.imports = imports::find(memory, objects, loader, &list, &self.exports, &unpatchable);
        }
        if let Some(first) = imports::first_of(b"malloc", &loader.list(memory), &self.exports) {
            let behind = looks.iter_mut().filter(|look| look.object.bias != first.bias);
            behind.for_each(late::use_own_names);
        }
        let allocators = looks.iter().filter(|look| !look.candidates.is_empty());
        let is_only = allocators.count() == 1;
        drop_passed_on(&mut looks);
        looks.into_iter().filter_map(|look| self.add(look, is_only, maps, memory).err()).collect()
    }

    /// Adds the wanted functions of one file. `is_only`: no other file has an allocator, which could call this one.
    fn add(&mut self, look: Look<'_>, is_only: bool, maps: &Maps, memory: &Memory) -> Result<(), Refusal> {
        let Look { object, symbols, mut candidates, may_lack_free, is_partly_hooked } = look;
        let is_glibc = object.name() == "libc.so.6" || object.name().starts_with("libc-2.");
        if let Some((function, why)) = self.drop_unreachable(object, &mut candidates) {
            return Err(Refusal::NotPatchable { function, module: object.path.clone(), why });
        }
        if !is_partly_hooked {
            keep_allocators(&mut candidates, may_lack_free);
        }
        if candidates.is_empty() {
            return Ok(());
        }
        let nothrow_forms = nothrow_forms(&symbols, &candidates, memory);
        drop_forwarders(&mut candidates);
        self.notes.extend(note_imports(object, &candidates));
        self.notes.extend(note_unrecorded(object, &symbols));
        let internal = internal_frees(object, &symbols, &candidates, maps, memory, is_glibc);
        let first = self.entries.len();
        for candidate in &candidates {
            let Wanted { mut shim, plain, meaning, .. } = candidate.wanted;
            let mut nothrow = Nothrow::None;
            if is_throwing(shim) {
                let form = nothrow_forms.iter().find(|(at, _)| *at == candidate.function.at).map(|(_, form)| *form);
                let index = candidates.iter().position(|other| Some(other.function.at) == form);
                nothrow = match (form, index) {
                    // If both variants are the same function, it cannot throw.
                    (Some(at), _) if at == candidate.function.at => {
                        shim = if shim == Shim::New { Shim::Allocate } else { Shim::Resize };
                        Nothrow::None
                    }
                    (Some(_), Some(index)) => Nothrow::Planned(first + index),
                    // It was left out, because it leads to another hooked function.
                    (Some(at), None) => Nothrow::Unchanged(at),
                    (None, _) => Nothrow::None,
                };
            }
            if meaning.effect == Effect::ControlByMib {
                let name = format!("{}{}", candidate.wanted.group.1, allocators::NAME_TO_MIB);
                nothrow = symbols.find(&name).map_or(Nothrow::None, |function| Nothrow::Unchanged(function.at));
            }
            if meaning.effect == Effect::DestroyHeap && candidate.wanted.group.0.id() == AllocatorId::Mimalloc {
                let main = symbols.find(allocators::MAIN_HEAP);
                nothrow = main.map_or(Nothrow::None, |function| Nothrow::Unchanged(function.at));
            }
            if is_throwing(shim) && nothrow == Nothrow::None {
                let name = &candidate.function.name;
                self.notes
                    .push(format!("{name} of {} is not recorded: it has no form that does not throw", object.name()));
                // It stays in the plan for now, so that the indices of the others stay valid. It is removed below.
            }
            self.entries.push(Planned {
                name: candidate.function.name.clone(),
                at: candidate.function.at,
                shim: plain.filter(|plain| is_glibc && (is_only || *plain != Shim::Free)).unwrap_or(shim),
                way: candidate.site.clone().map_or(Way::Imports, Way::Entry),
                module: Range { start: object.start, end: object.end },
                meaning,
                allocator: candidate.wanted.group.0.id(),
                nothrow,
                internal: if candidate.wanted.meaning.is_free() { internal } else { [0; INTERNAL] },
                mapping_code: mapping_code::find(&symbols.functions, candidate.wanted.group.0),
            });
        }
        Ok(())
    }

    /// Tells the functions that change mappings where allocators besides libc are. There is room for two.
    fn name_allocators(&mut self, objects: &[Object]) {
        let program = objects.iter().find(|object| object.is_program).map(|object| object.start);
        let is_other = |entry: &&Planned| !is_mapping(entry.shim) && Some(entry.module.start) != program;
        let mut others: Vec<Range> = self.entries.iter().filter(is_other).map(|entry| entry.module).collect();
        others.sort_by_key(|module| module.start);
        others.dedup();
        for entry in self.entries.iter_mut().filter(|entry| is_mapping(entry.shim)) {
            let others =
                others.iter().filter(|other| **other != entry.module).flat_map(|other| [other.start, other.end]);
            entry.internal.iter_mut().zip(others).for_each(|(place, address)| *place = address);
        }
    }

    /// Removes functions that can neither be patched nor hooked through imports, and adds notes about them. If a
    /// function that programs call for every block is among them, adds no note: returns its name and the reason.
    fn drop_unreachable(&mut self, object: &Object, candidates: &mut Vec<Candidate>) -> Option<(String, &'static str)> {
        let names: Vec<String> = candidates.iter().map(|candidate| candidate.function.name.clone()).collect();
        let patched = candidates.iter().filter(|candidate| candidate.site.is_ok());
        let patched: Vec<u64> = patched.map(|candidate| candidate.function.at).collect();
        let mut failed = None;
        let mut notes = Vec::new();
        candidates.retain(|candidate| {
            let Err(why) = candidate.site else { return true };
            let function = &candidate.function;
            // A program calls its own functions directly, so hooks of its imports would see hardly anything.
            if !object.is_program && self.imports.iter().any(|import| import.function == function.at) {
                return true;
            }
            let is_forwarder = candidate.forwards_to.is_some_and(|to| patched.contains(&to));
            if is_forwarder || candidate.is_operator_that_calls(&patched) {
                // It leads to a function that is patched, whose hook sees all of its calls.
            } else if is_for_every_block(&candidate.wanted, &function.name, &names) {
                if failed.is_none() || candidate.wanted.is_malloc {
                    failed = Some((function.name.clone(), why));
                }
            } else if candidate.wanted.meaning.is_about_heap() {
                // What a function allocates that makes a heap is the allocator's own.
                if candidate.wanted.meaning.effect != Effect::NewHeap {
                    let name = &function.name;
                    let beyond = "blocks that it frees all at once are shown as not freed";
                    notes.push(format!("{name} of {} is not seen: {why}; {beyond}", object.name()));
                }
            } else {
                notes.push(format!("{} of {} is not recorded: {why}", function.name, object.name()));
            }
            false
        });
        if failed.is_none() {
            self.notes.extend(notes);
        }
        failed
    }
}

const fn is_throwing(shim: Shim) -> bool {
    matches!(shim, Shim::New | Shim::ResizeNew)
}

/// Returns a note for the user about functions of an allocator that cannot be recorded, if there are any.
fn note_unrecorded(object: &Object, symbols: &Symbols) -> Option<String> {
    let names = symbols.functions.iter().map(|function| function.name.as_str());
    let mut names: Vec<&str> = names.filter(|name| hooked_functions::is_unrecorded(name)).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| {
        format!(
            "{} of {}: not recorded, because it throws and has no form that does not",
            names.join(", "),
            object.name()
        )
    })
}

/// Returns true for malloc and free, the functions that programs call for every block. `names` are those of the file's
/// functions. A name with an allocator's prefix counts only if the file does not have it without the prefix: programs
/// use the plain name then.
fn is_for_every_block(wanted: &Wanted, name: &str, names: &[String]) -> bool {
    let plain = if wanted.is_malloc { "malloc" } else { "free" };
    (wanted.is_malloc || wanted.is_main_free) && (name == plain || !names.iter().any(|other| other == plain))
}

/// For each function that throws, returns its address and that of the variant that returns null. A variant that calls the
/// function itself and catches what it throws does not count: the hook would call it again and again.
fn nothrow_forms(symbols: &Symbols, candidates: &[Candidate], memory: &Memory) -> Vec<(u64, u64)> {
    let mut forms = Vec::new();
    for candidate in candidates.iter().filter(|candidate| is_throwing(candidate.wanted.shim)) {
        // A function may have several names, of which the candidate has one. Any of them may have the variant.
        let names = symbols.functions.iter().filter(|function| function.at == candidate.function.at);
        let wanted = names.filter_map(|function| allocators::nothrow_of(&function.name));
        let is_one = |name: allocators::NothrowName<'_>| symbols.functions.iter().find(|other| name.is(&other.name));
        let at = candidate.function.at;
        let form = wanted.filter_map(is_one).find(|form| form.at == at || !leads_to(memory, form, at));
        forms.extend(form.map(|form| (at, form.at)));
    }
    forms
}

/// Returns a note for the user about functions that are hooked through imports, if there are any.
fn note_imports(object: &Object, candidates: &[Candidate]) -> Option<String> {
    let told = candidates.iter().filter_map(|candidate| {
        let why = candidate.site.as_ref().err()?;
        Some(format!("{} ({why})", candidate.function.name))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| {
        format!(
            "of {0}, {1} cannot be patched in place and are hooked where modules import them: direct calls inside {0}, \
             calls through pointers that were taken before, and calls from libraries that are loaded from now on, are \
             not seen",
            object.name(),
            told.join(", ")
        )
    })
}

impl Planned {
    /// Returns false for a function that throws and has no variant that returns null. It cannot be recorded.
    pub fn is_possible(&self) -> bool {
        !is_throwing(self.shim) || self.nothrow != Nothrow::None
    }

    /// The entry for the function. `real` is where it is called, and `nothrow` where its variant is called.
    pub const fn entry(&self, real: u64, nothrow: u64) -> Entry {
        let Planned { module, mapping_code, internal, meaning, .. } = *self;
        Entry { real, nothrow, module, mapping_code, internal, meaning, allocator: self.allocator as u8 }
    }
}

/// Returns the return addresses of glibc's own calls of free for the blocks in a thread's cache, when the thread ends.
/// The program has already freed these blocks. Returns only zeros if there are more than `INTERNAL` such calls.
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
        // All other code of the library calls free through its table of addresses (the PLT).
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
    fn malloc_and_free_are_called_for_every_block() {
        let is_needed = |name: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let allocators = hooked_functions::Allocators::of(names.iter().map(String::as_str));
            is_for_every_block(&allocators.find(name).unwrap(), name, &names)
        };
        let both = ["malloc", "free", "cfree", "sdallocx", "je_malloc", "je_free"];
        assert!(is_needed("malloc", &both) && is_needed("free", &both));
        assert!(["je_malloc", "je_free", "cfree", "sdallocx"].iter().all(|name| !is_needed(name, &both)));
        let own = ["je_malloc", "je_free", "je_sdallocx", "je_calloc"];
        assert!(is_needed("je_malloc", &own) && is_needed("je_free", &own));
        assert!(!is_needed("je_sdallocx", &own) && !is_needed("je_calloc", &own));
    }
}
