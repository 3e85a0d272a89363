//! Reasons why the program may have allocated memory that was not recorded.
//!
//! Receives: what the collector knows at the end, and the files of the modules. Returns: one sentence for each reason.
//! Must hold: a reason is given only if the program has something that is known to allocate without our hooks.
use crate::allocator_messages;
use crate::definitions::{self, Scope};
use crate::program;
use capture::allocators::FOREIGN;
use channel::ModuleFlags;
use collector::{Observed, Replaced};
use format::{Module, Unseen};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

/// The function from which Python's small objects come.
const PYTHON: &[u8] = b"PyObject_Malloc";
/// A function of our own library, which also has shims under the names of allocators.
const OURS: &[u8] = b"heaptrack_inject";
const MALLOC: &[u8] = b"malloc";

pub fn inspect(observed: &Observed<'_>) -> Vec<Unseen> {
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
    all
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
