//! Reasons why the program may have allocated memory that was not recorded.
//!
//! Receives: what the collector knows at the end, and the files of the modules. Returns: one sentence for each reason.
//! Must hold: a reason is given only if the program has something that is known to allocate without our hooks.
use crate::allocator_messages;
use crate::definitions::{self, Scope};
use crate::program;
use crate::starting_thread::NotPatched;
use analysis::numbers;
use capture::allocators::FOREIGN;
use channel::ModuleFlags;
use collector::{Observed, Replaced, UnrecordedProcesses};
use format::{MemoryInstant, MemoryPart, Module, Unseen, part_kind};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

/// The function from which Python's small objects come.
const PYTHON: &[u8] = b"PyObject_Malloc";
/// A function of our own library, which also has shims under the names of allocators.
const OURS: &[u8] = b"heaptrack_inject";
const MALLOC: &[u8] = b"malloc";

/// Returns the inspection. `not_patched` are the programs of a followed tree that could not be patched.
pub fn inspect(not_patched: NotPatched) -> collector::Inspect {
    Box::new(move |observed| {
        let processes = processes(&observed.unrecorded, &not_patched);
        inspect_target(observed).into_iter().chain(processes).collect()
    })
}

/// Returns a sentence about the processes of a followed tree that ran unrecorded.
fn processes(unrecorded: &UnrecordedProcesses, not_patched: &NotPatched) -> Option<Unseen> {
    let known =
        unrecorded.programs.iter().map(|(name, why, count)| (name.clone(), format!("it {}", why.reason()), *count));
    let patched = not_patched.iter().map(|((name, why), count)| (name.clone(), why.clone(), *count as u32));
    let programs: Vec<(String, String, u32)> = known.chain(patched).collect();
    let total = programs.iter().map(|(.., count)| *count).sum::<u32>() + unrecorded.more + unrecorded.missed;
    let mut parts: Vec<String> = programs
        .iter()
        .map(|(name, why, count)| {
            let name = if name.is_empty() { "a program without a name" } else { name };
            let times = if *count == 1 { String::new() } else { format!("{count} times: ") };
            format!("{name} ({times}{why})")
        })
        .collect();
    if unrecorded.more > 0 {
        parts.push(format!("{} runs of other programs", unrecorded.more));
    }
    if unrecorded.missed > 0 {
        parts.push(format!(
            "{} that found no shared memory, or started in a sandbox or in another pid namespace",
            unrecorded.missed
        ));
    }
    let noun = if total == 1 { "1 process ran unrecorded" } else { "processes ran unrecorded" };
    let start = if total == 1 { noun.to_owned() } else { format!("{total} {noun}") };
    (total > 0).then(|| unseen("processes", "", format!("{start}: {}.", parts.join(", "))))
}

fn inspect_target(observed: &Observed<'_>) -> Vec<Unseen> {
    let mut all = Vec::new();
    let mut paths = BTreeSet::new();
    for (module, flags) in &observed.modules {
        if flags & ModuleFlags::NAMESPACE != 0 {
            all.push(namespace(module));
        }
        if flags & ModuleFlags::BYPASSES != 0 {
            all.push(deepbind(module));
        }
        if flags & ModuleFlags::HOOKED == 0 && paths.insert(module.path.as_str()) {
            all.extend(of_module(module, observed));
        }
    }
    if observed.is_sandboxed {
        all.push(sandbox());
    }
    all.extend(observed.replaced.as_ref().map(replaced));
    if observed.unknown_heap_ends > 0 {
        all.push(heap_ends(observed.unknown_heap_ends));
    }
    all.extend(observed.last_look.as_ref().and_then(|look| mappings(look, observed.is_attached)));
    all
}

/// Mappings that no recorded call explains are worth a sentence if they have at least this many bytes, and (below) at least this part of RSS.
const NOTABLE_BYTES: u64 = 1 << 20;
const NOTABLE_PART: u64 = 20;

fn mappings(look: &MemoryInstant, is_attached: bool) -> Option<Unseen> {
    let is_unexplained = |part: &&MemoryPart| part.kind == part_kind::ANONYMOUS && !part.name.starts_with(".bss of ");
    let bytes = look.parts.iter().filter(is_unexplained).map(|part| part.rss_bytes).fold(0, u64::saturating_add);
    let is_notable = bytes >= NOTABLE_BYTES && bytes >= look.rss_bytes / NOTABLE_PART;
    let causes = if is_attached {
        "mappings that are older than the recording, and system calls that do not go through the mmap of libc"
    } else {
        "system calls that do not go through the mmap of libc"
    };
    let size = |bytes: u64| numbers::bytes(analysis::to_signed(bytes));
    is_notable.then(|| {
        let sentence = format!(
            "no recorded call explains {} of the {} that were resident at the last look: {causes}. They are the part `anonymous` of the view `memory`.",
            size(bytes),
            size(look.rss_bytes)
        );
        unseen("mappings", "", sentence)
    })
}

fn heap_ends(times: u64) -> Unseen {
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    let sentence = format!(
        "an allocator freed a whole heap or arena {times} in which functions that do not name the heap had allocated, too: their blocks are shown as not freed until the memory is used again."
    );
    unseen("bulk_free", "", sentence)
}

fn unseen(kind: &str, subject: &str, sentence: String) -> Unseen {
    Unseen { kind: kind.to_owned(), subject: subject.to_owned(), sentence }
}

/// Returns a reason if the module has an allocator that is not hooked, and another one if it has Python's pools.
fn of_module(module: &Module, observed: &Observed<'_>) -> Vec<Unseen> {
    let path = Path::new(&module.path);
    if !path.is_absolute() || !path.is_file() {
        return Vec::new();
    }
    let names: Vec<&'static [u8]> = FOREIGN.iter().map(|(name, _)| *name).chain([PYTHON, OURS, MALLOC]).collect();
    let found = definitions::of_file(path, &names, Scope::All);
    if found.iter().any(|one| one.name == OURS) {
        return Vec::new();
    }
    let foreign = FOREIGN.iter().find(|(name, _)| found.iter().any(|one| one.name == *name));
    let is_python = found.iter().any(|one| one.name == PYTHON) && has_pools(observed);
    let foreign = foreign.map(|(name, family)| {
        let name = String::from_utf8_lossy(name);
        let sentence = format!("{} has an allocator of its own ({family}, {name}), which is not hooked.", module.path);
        unseen("foreign_allocator", &module.path, sentence)
    });
    let python = is_python.then(|| {
        let sentence = "Python's own small-object pools (pymalloc) hide objects of up to 512 bytes; run with PYTHONMALLOC=malloc to see them.";
        unseen("pymalloc", &module.path, sentence.to_owned())
    });
    // A module that defines malloc is hooked there.
    let is_silent = foreign.is_none() && !found.iter().any(|one| one.name == MALLOC);
    let hidden = is_silent.then(|| allocator_messages::find(path)).flatten().map(|family| {
        let sentence = format!(
            "{} seems to have an allocator of its own ({family}, by its messages), but no symbols for it: give heaptrack its debug file (--debug-path, --debuginfod), or build it with symbols.",
            module.path
        );
        unseen("hidden_allocator", &module.path, sentence)
    });
    foreign.into_iter().chain(hidden).chain(python).collect()
}

/// Returns false if the user has told Python to call malloc for everything. A launched program has our environment.
fn has_pools(observed: &Observed<'_>) -> bool {
    const VARIABLE: &str = "PYTHONMALLOC";
    let value = if observed.is_attached {
        let environment = std::fs::read(format!("/proc/{}/environ", observed.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&environment).into_owned();
        text.split('\0').find_map(|entry| entry.strip_prefix("PYTHONMALLOC=").map(str::to_owned))
    } else {
        std::env::var(VARIABLE).ok()
    };
    !value.is_some_and(|value| value.starts_with("malloc"))
}

fn namespace(module: &Module) -> Unseen {
    let sentence =
        format!("{} was loaded into a namespace of its own (dlmopen), which has another malloc.", module.path);
    unseen("namespace", &module.path, sentence)
}

fn deepbind(module: &Module) -> Unseen {
    let sentence = format!("{} was opened with RTLD_DEEPBIND and calls another malloc than the program.", module.path);
    unseen("deepbind", &module.path, sentence)
}

fn sandbox() -> Unseen {
    let sentence = "the program put itself behind a system call filter (seccomp): threads that it started from then on are not recorded, and libraries that it loaded from then on have no names.";
    unseen("sandbox", "", sentence.to_owned())
}

fn replaced(replaced: &Replaced) -> Unseen {
    let Replaced { by, time_ns, why } = replaced;
    let name = if by.is_empty() { "a file without a name" } else { by };
    let seconds = *time_ns as f64 / 1e9;
    let why = why.map_or_else(|| why_not_recorded(by), |why| format!("it {}", why.reason()));
    let sentence =
        format!("the program replaced itself by {name} after {seconds:.3} s, which could not be recorded ({why}).");
    unseen("exec", by, sentence)
}

/// Returns why the program `by` could not be recorded. Judges by the file only, which is searched with our own folder
/// and PATH. These may differ from the program's.
fn why_not_recorded(by: &str) -> String {
    match program::find(OsStr::new(by)) {
        Err(refusal) if refusal.code != program::NOT_FOUND => refusal.sentence,
        _ => "it runs with other rights or in another root, or could not load our library".to_owned(),
    }
}
