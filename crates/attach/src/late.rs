//! Patching modules before their code runs: those that a recorded program has just loaded, and all modules of a program
//! that heaptrack has launched, before its first constructor.
//!
//! Receives: the modules, while a thread of the target waits with the loader's lock held. Returns: what was patched. Must
//! hold: no thread runs code of these modules yet, so patches can be written while other threads run. A slot is complete
//! before a patch leads to it. In an attached process, a patch is in the journal before it is written.
use crate::candidates::Look;
use crate::files::{Function, Object, Symbols};
use crate::hooked_functions::{self, Allocators, Wanted};
use crate::image::{CoreAddresses, Image};
use crate::journal::{Journal, Pad};
use crate::maps::Maps;
use crate::memory::Memory;
use crate::plan::Plan;
use crate::process::Process;
use crate::ready;
use crate::slots::{self, PAD, SLOT};
use capture::allocators::Family;
use capture::entry::Shim;
use capture::hooks::FAMILY_HOOKS;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// A module of the target's module table.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub start: u64,
    pub path: String,
    pub build_id: Vec<u8>,
    /// Shims of the capture library lead to its exported functions already.
    pub is_hooked: bool,
}

/// A function that a separate debug file names.
#[derive(Clone, Debug)]
pub struct SeparateFunction {
    pub name: String,
    /// In the file's addresses.
    pub address: u64,
    pub size: u64,
    pub is_local: bool,
}

/// Returns the functions that the separate debug file of a module names.
pub type Separate<'a> = &'a (dyn Fn(&Loaded) -> Vec<SeparateFunction> + Sync);

/// The thread that waits.
pub trait Waiting {
    /// Lets the thread map `length` bytes for code below the address `near`.
    fn map(&mut self, near: u64, length: u64) -> Option<u64>;

    /// From now on the thread waits until all patches are written. Returns false if it has stopped waiting already.
    fn begin_writing(&mut self) -> bool;
}

/// What was patched.
#[derive(Debug, Default)]
pub struct Patched {
    /// The starts of the modules with patched functions.
    pub modules: Vec<u64>,
    pub functions: usize,
    /// What cannot be recorded, as sentences for the user.
    pub notes: Vec<String>,
}

/// Writes patches to one program.
#[derive(Clone, Debug)]
pub struct Patcher {
    process: Process,
    memory: Memory,
    places: CoreAddresses,
    /// In a launched program, this is not written to the target, because nothing is ever restored there.
    journal: Arc<Mutex<Journal>>,
    is_launched: bool,
}

impl Patcher {
    pub(crate) const fn attached(
        process: Process,
        memory: Memory,
        places: CoreAddresses,
        journal: Arc<Mutex<Journal>>,
    ) -> Patcher {
        Patcher { process, memory, places, journal, is_launched: false }
    }

    /// For a program into which the loader has loaded `library` at the address `bias`.
    pub fn launched(pid: u32, library: &[u8], bias: u64) -> io::Result<Patcher> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let (_, places) = Image::parse(library).map_err(|_| wrong())?.at(bias).ok_or_else(wrong)?;
        let process = Process::new(pid)?;
        let memory = Memory::open(&process.folder)?;
        Ok(Patcher { process, memory, places, journal: Arc::default(), is_launched: true })
    }

    /// Patches the allocators in `modules`. `separate` returns the functions that the debug file of a module names; it is
    /// asked about a module that has no symbol table besides that of its exports.
    pub fn patch(&self, modules: &[Loaded], separate: Separate<'_>, waiting: &mut dyn Waiting) -> io::Result<Patched> {
        let maps = Maps::of(&self.process.folder)?;
        let plan = self.plan(modules, separate, &maps);
        let mut notes = plan.notes.clone();
        if plan.entries.is_empty() {
            return Ok(Patched { notes, ..Patched::default() });
        }
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.forget_unloaded(&self.memory);
        for module in plan.entries.iter().map(|entry| entry.module) {
            let fits = |pad: &Pad| {
                slots::reaches(pad.at, pad.length, module.start, module.end) && pad.used + SLOT * 64 <= pad.length
            };
            if !journal.pads.iter().any(fits)
                && let Some(at) = waiting.map(module.start, PAD)
            {
                journal.pads.push(Pad { at, length: PAD, used: 0 });
            }
        }
        let written = ready::write_planned(&self.memory, &mut journal, &self.places, &plan, &mut notes)?;
        if !self.is_launched {
            journal.write(&self.memory)?;
        }
        if !waiting.begin_writing() {
            return Ok(Patched::default());
        }
        for ready in &written.ready {
            self.memory.write(ready.patch.at, &ready.patch.ours)?;
        }
        let mut starts: Vec<u64> = plan.entries.iter().map(|entry| entry.module.start).collect();
        starts.dedup();
        Ok(Patched { modules: starts, functions: written.ready.len(), notes })
    }

    fn plan(&self, modules: &[Loaded], separate: Separate<'_>, maps: &Maps) -> Plan {
        let objects = Object::all(&self.process, maps, &self.memory);
        let mut looks = Vec::new();
        for module in modules {
            let Some(object) = objects.iter().find(|object| object.start == module.start) else { continue };
            let is_ours = (object.start..object.end).contains(&self.places.core);
            if is_ours || is_libc(object.name()) {
                continue;
            }
            let mut symbols = object.functions(&self.process, hooked_functions::is_wanted);
            if !symbols.has_table {
                symbols.add(separate(module).iter().map(|function| function.at(object.bias)));
            }
            let plain = plain_addresses(&symbols);
            let mut look = Look::at(object, symbols, maps, &self.memory, false);
            look.candidates.retain(|candidate| {
                let is_process =
                    matches!(candidate.wanted.shim, Shim::Execve | Shim::Fork | Shim::Fexecve | Shim::Exit);
                !is_process && !candidate.wanted.is_mapping()
            });
            if !module.is_hooked {
                use_own_names(&mut look);
            }
            if self.is_launched {
                keep_patched_only(&mut look, module.is_hooked, &plain);
            }
            looks.push(look);
        }
        Plan::of_late(looks, maps, &self.memory)
    }
}

impl SeparateFunction {
    pub(crate) fn at(&self, bias: u64) -> Function {
        let SeparateFunction { name, address, size, is_local } = self;
        Function { name: name.clone(), at: bias.wrapping_add(*address), size: *size, is_local: *is_local }
    }
}

/// libc and the loader. Their malloc is hooked otherwise.
pub(crate) fn is_libc(name: &str) -> bool {
    name == "libc.so.6"
        || ["libc-2.", "ld-linux", "ld-2.", "ld-musl", "libc.musl"].iter().any(|start| name.starts_with(start))
}

/// Returns the addresses of malloc, free and so on under their plain names.
fn plain_addresses(symbols: &Symbols) -> Vec<u64> {
    let is_plain = |name: &str| capture::allocators::find(name).is_some_and(|known| known.family == Family::Libc);
    symbols.functions.iter().filter(|function| is_plain(&function.name)).map(|function| function.at).collect()
}

/// In a module to which calls of `malloc` and `operator new` do not lead, takes functions under the names of their allocator if they have one: mimalloc's
/// library has one function under the names `malloc` and `mi_malloc`. The program's malloc is another one, but it may call `mi_malloc`.
pub(crate) fn use_own_names(look: &mut Look<'_>) {
    let allocators = Allocators::of(look.symbols.functions.iter().map(|function| function.name.as_str()));
    let is_general = |family: Family| family == Family::Libc || family.is_addition();
    for candidate in look.candidates.iter_mut().filter(|candidate| is_general(candidate.wanted.group.0)) {
        let same = look.symbols.functions.iter().filter(|function| function.at == candidate.function.at);
        let own = same.filter_map(|function| Some((function, allocators.find(&function.name)?)));
        let is_own = |wanted: &Wanted| !is_general(wanted.group.0);
        if let Some((function, wanted)) = own.into_iter().find(|(_, wanted)| is_own(wanted)) {
            (candidate.function, candidate.wanted) = (function.clone(), wanted);
        }
    }
}

/// Leaves out the functions that a launched program calls through the shims of the capture library: those under libc's
/// plain names, and in a module that is hooked already those that the library exports. C++'s operators stay out too,
/// because most of them call malloc, unless the module has a jemalloc, whose operators do not.
fn keep_patched_only(look: &mut Look<'_>, is_hooked: bool, plain: &[u64]) {
    let is_jemalloc = |wanted: &Wanted| wanted.group.0 == Family::Jemalloc && !wanted.group.1.is_empty();
    let has_jemalloc = look.candidates.iter().any(|candidate| is_jemalloc(&candidate.wanted));
    let before = look.candidates.len();
    look.candidates.retain(|candidate| {
        let wanted = &candidate.wanted;
        let name = candidate.function.name.as_bytes();
        let is_exported =
            || FAMILY_HOOKS.iter().any(|hook| hook.name == name) || plain.contains(&candidate.function.at);
        let is_left_out = match wanted.group.0 {
            Family::Libc | Family::SizedFrees => true,
            Family::Operators | Family::Duckdb => !has_jemalloc,
            _ => false,
        };
        !(is_left_out || wanted.is_no_allocator() || is_hooked && is_exported())
    });
    look.is_partly_hooked = look.candidates.len() < before;
}
