//! Writing the slots of all functions that will be hooked, and the journal's entries for them.
//!
//! Receives: a plan, and memory near the modules. Returns: patches that only have to be written, and slots for imported
//! functions. Must hold: a slot is complete and in the journal before anything leads to it. Slots of an earlier attach
//! are used again.
use crate::check::Checked;
use crate::code::{JUMP, Site};
use crate::error::Refusal;
use crate::image::CoreAddresses;
use crate::journal::{Journal, Patch, Redirect};
use crate::loader::Loader;
use crate::memory::Memory;
use crate::plan::{Nothrow, Plan, Planned, Way};
use crate::slots::{self, SLOT, Slot};
use capture::entry::{Range, Shim};

/// A patch that is ready to be written.
#[derive(Clone, Debug)]
pub struct Ready {
    pub patch: Patch,
    /// How many bytes are displaced. A thread inside of them must be moved before the patch is written.
    pub length: u64,
    /// For each displaced instruction, its offset from the patch and its address in the slot.
    pub places: Vec<(u64, u64)>,
    /// The address of the displaced instructions in the slot.
    moved: u64,
}

/// The slot of a function that is hooked through imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    pub function: u64,
    pub slot: u64,
}

/// All slots and patches that are ready.
#[derive(Debug, Default)]
pub struct Written {
    pub ready: Vec<Ready>,
    pub hooks: Vec<Hook>,
}

/// Makes the slots that are not in the journal yet, then writes the journal.
pub fn write_slots(
    checked: &Checked,
    journal: &mut Journal,
    places: &CoreAddresses,
    plan: &Plan,
    loader: &Loader,
    notes: &mut Vec<String>,
) -> Result<Written, Refusal> {
    let (pid, memory) = (checked.process.pid, &checked.memory);
    let mut written = write_planned(memory, journal, places, plan, notes).map_err(Refusal::memory(pid))?;
    if loader.changed != 0 {
        match loader_slot(memory, journal, places, loader) {
            Ok(made) => written.ready.push(made),
            Err(NoSlot::Why(_)) => notes.push("libraries that are loaded from now on have no names".to_owned()),
            Err(NoSlot::Memory(error)) => return Err(Refusal::Memory { pid, error }),
        }
    }
    journal.write(memory).map_err(Refusal::memory(pid))?;
    Ok(written)
}

/// Makes the slots of the planned functions. Adds them to the journal, but does not write it.
pub fn write_planned(
    memory: &Memory,
    journal: &mut Journal,
    places: &CoreAddresses,
    plan: &Plan,
    notes: &mut Vec<String>,
) -> std::io::Result<Written> {
    let Written { mut ready, mut hooks } = Written::default();
    // The variants that do not throw come first, because the throwing ones refer to them.
    let mut order: Vec<usize> = (0..plan.entries.len()).collect();
    order.sort_by_key(|index| plan.entries.get(*index).is_some_and(|entry| entry.nothrow != Nothrow::None));
    let mut moved_at = vec![0; plan.entries.len()];
    for index in order {
        let Some(planned) = plan.entries.get(index).filter(|planned| planned.is_possible()) else { continue };
        let nothrow = match planned.nothrow {
            Nothrow::None => 0,
            Nothrow::Planned(other) => moved_at.get(other).copied().unwrap_or(0),
            Nothrow::Unchanged(at) => at,
        };
        if planned.nothrow != Nothrow::None && nothrow == 0 {
            notes.push(format!("{} is not recorded: its form that does not throw cannot be called", planned.name));
            continue;
        }
        let made = match &planned.way {
            Way::Entry(site) => write_slot(memory, journal, places, planned, site, nothrow).map(|made| {
                let moved = made.moved;
                ready.push(made);
                moved
            }),
            Way::Imports => import_slot(memory, journal, places, planned, nothrow).map(|slot| {
                hooks.push(Hook { function: planned.at, slot });
                planned.at
            }),
        };
        match made {
            Ok(moved) => {
                if let Some(place) = moved_at.get_mut(index) {
                    *place = moved;
                }
            }
            Err(NoSlot::Why(why)) => notes.push(format!("{} is not recorded: {why}", planned.name)),
            Err(NoSlot::Memory(error)) => return Err(error),
        }
    }
    Ok(Written { ready, hooks })
}

enum NoSlot {
    Why(&'static str),
    Memory(std::io::Error),
}

/// Takes a free slot within reach of the module.
fn take_slot(journal: &mut Journal, module: Range) -> Result<u64, NoSlot> {
    let pads = journal.pads.iter_mut();
    let pad = pads
        .into_iter()
        .find(|pad| slots::reaches(pad.at, pad.length, module.start, module.end) && pad.used + SLOT <= pad.length);
    let pad = pad.ok_or(NoSlot::Why("there is no memory left near it"))?;
    let at = pad.at + pad.used;
    pad.used += SLOT;
    Ok(at)
}

fn write_slot(
    memory: &Memory,
    journal: &mut Journal,
    places: &CoreAddresses,
    planned: &Planned,
    site: &Site,
    nothrow: u64,
) -> Result<Ready, NoSlot> {
    let shim_at = places.shims.get(planned.shim as usize).copied().unwrap_or(0);
    let entry = planned.entry(0, nothrow);
    let make = |at: u64| Slot::new(at, site, planned.shim, shim_at, entry).map_err(NoSlot::Why);
    // A slot that an earlier attach made for the same code is used again, if its bytes are those that we would write.
    let old = journal.patches.iter().find(|patch| patch.at == site.at && patch.original == site.original);
    if let Some(patch) = old.copied()
        && let Ok(slot) = make(patch.slot)
    {
        let mut there = vec![0; slot.bytes.len()];
        memory.read(slot.at, &mut there).map_err(NoSlot::Memory)?;
        if there == slot.bytes {
            return Ok(Ready { patch, length: site.length, places: slot.places, moved: slot.moved });
        }
    }
    if !journal.has_room() {
        return Err(NoSlot::Why("too much has been patched in this process before"));
    }
    let at = take_slot(journal, planned.module)?;
    let slot = make(at)?;
    let ours = site.jump(at).ok_or(NoSlot::Why("there is no memory left near it"))?;
    memory.write(at, &slot.bytes).map_err(NoSlot::Memory)?;
    let patch = Patch { at: site.at, slot: at, original: site.original, ours };
    journal.patches.retain(|known| known.at != patch.at);
    journal.patches.push(patch);
    Ok(Ready { patch, length: site.length, places: slot.places, moved: slot.moved })
}

/// Makes a slot for a function that is hooked through imports, so nothing is displaced. Returns its address.
fn import_slot(
    memory: &Memory,
    journal: &mut Journal,
    places: &CoreAddresses,
    planned: &Planned,
    nothrow: u64,
) -> Result<u64, NoSlot> {
    let shim_at = places.shims.get(planned.shim as usize).copied().unwrap_or(0);
    let entry = planned.entry(planned.at, nothrow);
    let make = |at: u64| Slot::for_import(at, planned.shim, shim_at, entry);
    let old = journal.imports.iter().find(|import| import.function == planned.at).map(|import| make(import.slot));
    if let Some(slot) = old {
        let mut there = vec![0; slot.bytes.len()];
        memory.read(slot.at, &mut there).map_err(NoSlot::Memory)?;
        if there == slot.bytes {
            return Ok(slot.at);
        }
    }
    let slot = make(take_slot(journal, planned.module)?);
    memory.write(slot.at, &slot.bytes).map_err(NoSlot::Memory)?;
    journal.imports.retain(|import| import.function != planned.at);
    journal.imports.push(Redirect::kept(planned.at, slot.at));
    Ok(slot.at)
}

/// Makes the slot for the loader's notification function. That is a return and padding, so nothing is displaced.
fn loader_slot(
    memory: &Memory,
    journal: &mut Journal,
    places: &CoreAddresses,
    loader: &Loader,
) -> Result<Ready, NoSlot> {
    let mut code = [0; 32];
    memory.read(loader.changed, &mut code).map_err(NoSlot::Memory)?;
    let site = Site::find(loader.changed, &code, 0).map_err(NoSlot::Why)?;
    if !site.is_empty_function() {
        return Err(NoSlot::Why("the loader's function is not the empty one that is expected"));
    }
    let near = Range { start: site.at, end: site.at + JUMP as u64 };
    let old = journal.patches.iter().find(|patch| patch.at == site.at && patch.original == site.original);
    if let Some(patch) = old.copied() {
        let slot = Slot::for_loader(patch.slot, places.loader);
        let mut there = vec![0; slot.bytes.len()];
        memory.read(slot.at, &mut there).map_err(NoSlot::Memory)?;
        if there == slot.bytes {
            return Ok(Ready { patch, length: JUMP as u64, places: Vec::new(), moved: 0 });
        }
    }
    if !journal.has_room() {
        return Err(NoSlot::Why("too much has been patched in this process before"));
    }
    let at = take_slot(journal, near)?;
    let slot = Slot::for_loader(at, places.loader);
    let ours = site.jump(at).ok_or(NoSlot::Why("there is no memory left near it"))?;
    memory.write(at, &slot.bytes).map_err(NoSlot::Memory)?;
    let patch = Patch { at: site.at, slot: at, original: site.original, ours };
    journal.patches.retain(|known| known.at != patch.at);
    journal.patches.push(patch);
    Ok(Ready { patch, length: JUMP as u64, places: Vec::new(), moved: 0 })
}

/// `CoreAddresses::shims` is indexed by `Shim as usize`, so `CoreTable::shims` in the capture library must have the
/// same order. If this fails, a shim was added: check that both have it at the same place.
const _: () = assert!(Shim::COUNT == 20);
