//! Putting the target back as it was: after a recording, or after the death of whoever recorded.
//!
//! Given: the journals in the target. What must hold: what is in force is told by the code's bytes and the tables' words; the
//! gate is shut before anything else; the shared memory is unmapped only when no thread can be inside a hook. Once none is,
//! none ever will be, but by an address of a hook that the program has kept from one of its tables: the gate stops it.
use crate::CHANNEL;
use crate::check::Checked;
use crate::error::Refusal;
use crate::journal::{Found, Journal};
use crate::maps::Maps;
use crate::prepare::with_thread;
use crate::process::Process;
use crate::remote::Gadgets;
use crate::scan;
use crate::world::World;
use std::collections::HashSet;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// How often we look whether threads have left the hooks.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// What a restoration found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Functions that were patched, and are not any more.
    pub functions: usize,
    /// How long all threads stood still.
    pub pause: Duration,
    /// Nothing of the shared memory is left.
    pub unmapped: bool,
}

/// Takes out all that is in force, then the shared memory.
pub fn restore(checked: &Checked, journals: &[Journal]) -> Result<Restored, Refusal> {
    let mut restored = Restored::default();
    // Whatever comes next, recording is over: threads that cannot be stopped do not write to nobody.
    for journal in journals {
        shut(checked, journal)?;
    }
    if journals.iter().any(|journal| journal.is_in_force(&checked.memory)) {
        let world = World::stop(&checked.process)?;
        restored.functions = take_out(checked, journals)?;
        restored.pause = world.elapsed();
        drop(world);
    }
    restored.unmapped = unshare(checked, journals)?;
    Ok(restored)
}

fn shut(checked: &Checked, journal: &Journal) -> Result<(), Refusal> {
    checked.memory.write_words(journal.gate, &[0]).map_err(Refusal::memory(checked.process.pid))
}

/// With all threads stopped: the gate is shut, code and tables are the program's own again. How many functions were ours.
fn take_out(checked: &Checked, journals: &[Journal]) -> Result<usize, Refusal> {
    let memory = &checked.memory;
    let failed = |error| Refusal::Memory { pid: checked.process.pid, error };
    let mut functions = 0;
    for journal in journals {
        shut(checked, journal)?;
        for patch in &journal.patches {
            if patch.found(memory) == Found::Ours {
                memory.write(patch.at, &patch.original).map_err(failed)?;
                functions += 1;
            }
        }
        let mut imported = HashSet::new();
        for import in journal.imports.iter().filter(|import| import.is_ours(memory)) {
            memory.write_words(import.at, &[import.original]).map_err(failed)?;
            imported.insert(import.function);
        }
        functions += imported.len();
        let mut journal = journal.clone();
        (journal.recorder, journal.recorder_started) = (0, 0);
        // Modules go, and their places are used by others.
        journal.imports = journal.kept();
        journal.write(memory).map_err(failed)?;
    }
    Ok(functions)
}

/// Unmaps the shared memory of sessions that are over. False: a thread may still be in a hook, and it stays.
fn unshare(checked: &Checked, journals: &[Journal]) -> Result<bool, Refusal> {
    let process = &checked.process;
    let is_shared = |maps: &Maps| maps.0.iter().any(|mapping| mapping.name.starts_with(CHANNEL));
    for look in 0..LOOKS {
        let maps = Maps::of(&process.folder).map_err(|_| Refusal::Gone)?;
        if !is_shared(&maps) && forgotten(process).is_empty() {
            return Ok(true);
        }
        if look > 0 {
            sleep(BETWEEN_LOOKS);
        }
        let world = World::stop(process)?;
        let threads = scan::threads(&world.tids, &maps, &checked.memory);
        let is_ours = |address: u64| {
            journals.iter().any(|journal| {
                let home = journal.image..journal.home + journal.home_length;
                home.contains(&address)
                    || journal.pads.iter().any(|pad| (pad.at..pad.at + pad.length).contains(&address))
            })
        };
        let is_busy = threads.iter().any(|thread| thread.may_return_to(is_ours));
        drop(world);
        if !is_busy {
            unmap(checked, &maps)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn unmap(checked: &Checked, maps: &Maps) -> Result<(), Refusal> {
    let gadgets = Gadgets::find(maps, &checked.memory)?;
    with_thread(checked, gadgets, |remote| {
        for mapping in maps.0.iter().filter(|mapping| mapping.name.starts_with(CHANNEL)) {
            remote.unmap(mapping.start, mapping.len()).map_err(Refusal::call("to unmap the shared memory"))?;
        }
        for fd in forgotten(&checked.process) {
            let _ = remote.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        }
        Ok(())
    })
}

/// Descriptors of shared memory that a recorder left which died while it made it.
pub fn forgotten(process: &Process) -> HashSet<u64> {
    let Ok(entries) = fs::read_dir(process.folder.join("fd")) else { return HashSet::new() };
    let ours = entries
        .filter_map(Result::ok)
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with(CHANNEL)));
    ours.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
