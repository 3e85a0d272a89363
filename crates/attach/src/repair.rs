//! Restoring the target, after a recording or after its recorder has died.
//!
//! Receives: the journals in the target. Must hold: the bytes of the code and the words of the tables tell what is in
//! force. The gate is shut before anything else. The shared memory is unmapped only when no thread can be inside a hook
//! (`in_hook.rs`). After that, a thread can reach a hook only through an address that the program has copied from one
//! of its tables, and then the gate stops it. Children that were forked meanwhile have copies of everything, and are
//! restored too (`children.rs`).
use crate::CHANNEL;
use crate::check::Checked;
use crate::children::{self, Children};
use crate::error::Refusal;
use crate::frozen;
use crate::hold;
use crate::in_hook;
use crate::interrupt::Interrupt;
use crate::journal::{Found, Journal};
use crate::maps::{Mapping, Maps};
use crate::memory::Memory;
use crate::prepare::with_thread;
use crate::process::Process;
use crate::remote::Gadgets;
use crate::scan;
use crate::world::World;
use std::collections::HashSet;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// How often to check whether all threads have left the hooks.
const LOOKS: u32 = 25;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// What a restoration found and did.
#[derive(Debug, Default)]
pub struct Restored {
    /// How many functions were hooked, and are restored now.
    pub functions: usize,
    /// How long all threads were stopped while the code and the tables were restored.
    pub pause: Duration,
    /// Bytes of shared memory that stay mapped, because a thread may still be in a hook.
    pub shared_bytes: u64,
    /// Children that were forked during the recording.
    pub children: Children,
}

/// Restores the code and the tables, then unmaps the shared memory. Then does the same in forked children. `image_id`
/// is the id of this build's image.
pub fn restore(checked: &Checked, journals: &[Journal], image_id: u64) -> Result<Restored, Refusal> {
    let mut restored = restore_one(checked, journals, image_id)?;
    restored.children = children::restore(&checked.process, journals, image_id);
    Ok(restored)
}

/// As `restore`, without the children.
pub fn restore_one(checked: &Checked, journals: &[Journal], image_id: u64) -> Result<Restored, Refusal> {
    let mut restored = Restored::default();
    // Recording ends here, even if the rest fails: threads that cannot be stopped must not keep writing to rings that
    // no collector empties.
    for journal in journals {
        shut(checked, journal)?;
    }
    let process = &checked.process;
    if let Some(cgroup) = frozen::cgroup_of(process) {
        return Err(Refusal::Frozen { pid: process.pid, cgroup });
    }
    if journals.iter().any(|journal| journal.is_in_force(&checked.memory)) {
        let world = World::stop(process)?;
        restored.functions = take_out(checked, journals)?;
        restored.pause = world.elapsed();
        drop(world);
    }
    restored.shared_bytes = unshare(checked, journals, image_id)?;
    Ok(restored)
}

/// Restores the target when it is dropped. So no error between the first change of the target and the end of the
/// recording can leave our memory or our patches there.
#[derive(Debug)]
pub struct Undo {
    /// `None` if nothing is left to restore.
    target: Option<(Process, Memory)>,
    image_id: u64,
}

impl Undo {
    pub fn new(process: &Process, memory: &Memory, image_id: u64) -> Undo {
        Undo { target: Some((process.clone(), memory.clone())), image_id }
    }

    /// The caller has restored the target, or has told the user that this was not possible.
    pub fn forget(&mut self) {
        self.target = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some((process, memory)) = self.target.take() {
            let image_id = self.image_id;
            let _ = hold::on_tracing_thread(&process, || {
                give_up(&process, &memory, image_id);
                Ok(())
            });
        }
    }
}

/// Restores the target as far as that is possible, after an attach has failed or was given up. Ignores errors, and
/// cannot be interrupted by the user.
fn give_up(process: &Process, memory: &Memory, image_id: u64) {
    let process = Process { interrupt: Interrupt::default(), ..process.clone() };
    let Ok(maps) = Maps::of(&process.folder) else { return };
    let journals = Journal::find(&maps, memory);
    // Another recorder may have ended our session and attached since.
    let is_others = |journal: &Journal| journal.is_recorded(&process) && journal.recorder != std::process::id();
    if journals.iter().any(is_others) {
        return;
    }
    let checked = Checked {
        process,
        memory: memory.clone(),
        maps,
        filtered: false,
        may_ask_for_counter: false,
        seccomp_modes: Default::default(),
    };
    let _ = restore_one(&checked, &journals, image_id);
}

fn shut(checked: &Checked, journal: &Journal) -> Result<(), Refusal> {
    checked.memory.write_words(journal.gate, &[0]).map_err(Refusal::memory(checked.process.pid))
}

/// Shuts the gate, and restores the code and the tables. All threads must be stopped. Returns how many functions were
/// hooked.
fn take_out(checked: &Checked, journals: &[Journal]) -> Result<usize, Refusal> {
    let memory = &checked.memory;
    let failed = |error| Refusal::Memory { pid: checked.process.pid, error };
    let mut functions = 0;
    for journal in journals {
        shut(checked, journal)?;
        if journal.following != 0 {
            memory.write_words(journal.following, &[0, 0]).map_err(failed)?;
        }
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
        // The journal forgets the redirected words, because their modules may be unloaded, and other modules may be
        // mapped there. It keeps the slots, which can be used again.
        journal.imports = journal.kept();
        journal.write(memory).map_err(failed)?;
    }
    Ok(functions)
}

/// Unmaps the shared memory of sessions that are over. Returns the bytes that stay because a thread may still be in a
/// hook.
fn unshare(checked: &Checked, journals: &[Journal], image_id: u64) -> Result<u64, Refusal> {
    let process = &checked.process;
    let mut shared_bytes = 0;
    for look in 0..LOOKS {
        let maps = Maps::of(&process.folder).map_err(|_| Refusal::Gone)?;
        let shared = maps.0.iter().filter(|mapping| mapping.name.starts_with(CHANNEL));
        shared_bytes = shared.map(Mapping::len).sum();
        if shared_bytes == 0 && forgotten(process).is_empty() {
            return Ok(0);
        }
        if look > 0 {
            sleep(BETWEEN_LOOKS);
        }
        let world = World::stop(process)?;
        // The mappings may have changed meanwhile.
        let maps = Maps::of(&process.folder).map_err(|_| Refusal::Gone)?;
        let threads = scan::threads(&world.tids, &maps, &checked.memory);
        let is_busy = in_hook::is_possible(checked, journals, &maps, &threads, image_id);
        if !is_busy {
            // A forked child that was about to join when the gate was shut may have opened it again.
            journals.iter().try_for_each(|journal| shut(checked, journal))?;
        }
        drop(world);
        if !is_busy {
            unmap(checked, journals, &maps)?;
            return Ok(0);
        }
    }
    Ok(shared_bytes)
}

/// Returns the lists of environments that execs in children of vfork have left (`capture::left_lists`), as address and
/// length, and forgets them in the target.
fn take_left_lists(checked: &Checked, journals: &[Journal]) -> Vec<(u64, u64)> {
    let mut lists = Vec::new();
    for journal in journals.iter().filter(|journal| journal.left_lists != 0) {
        let mut words = [0; 3 * capture::left_lists::THREADS];
        let is_read = checked.memory.read_words(journal.left_lists, &mut words).is_ok();
        if !is_read || checked.memory.write_words(journal.left_lists, &[0; 3 * capture::left_lists::THREADS]).is_err() {
            continue;
        }
        let left = words.chunks_exact(3).filter_map(|list| match list {
            &[_, at, length] if at != 0 && length != 0 => Some((at, length)),
            _ => None,
        });
        lists.extend(left);
    }
    lists
}

fn unmap(checked: &Checked, journals: &[Journal], maps: &Maps) -> Result<(), Refusal> {
    let gadgets = Gadgets::find(maps, &checked.memory)?;
    with_thread(checked, gadgets, |remote| {
        for mapping in maps.0.iter().filter(|mapping| mapping.name.starts_with(CHANNEL)) {
            remote.unmap(mapping.start, mapping.len()).map_err(Refusal::call("to unmap the shared memory"))?;
        }
        for (at, length) in take_left_lists(checked, journals) {
            let _ = remote.unmap(at, length.next_multiple_of(channel::PAGE as u64));
        }
        for fd in forgotten(&checked.process) {
            let _ = remote.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        }
        Ok(())
    })
}

/// Returns descriptors of shared memory that were left open because the recorder died while the target created it.
pub fn forgotten(process: &Process) -> HashSet<u64> {
    let Ok(entries) = fs::read_dir(process.folder.join("fd")) else { return HashSet::new() };
    let ours = entries
        .filter_map(Result::ok)
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with(CHANNEL)));
    ours.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
