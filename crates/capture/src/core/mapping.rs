//! How the shared memory is mapped: its near part at the start, the headers of far slots and the areas of slots when
//! threads need them.
use super::start::refuse;
use super::{Core, Private, Refusal, is_ours};
use crate::environment::{self, Environment};
use crate::local::Local;
use crate::{filters, follow, sys};
use channel::{Geometry, Header, MAGIC, PAGE, Region, VERSION};
use core::mem::offset_of;
use core::sync::atomic::Ordering;

impl Core {
    /// Returns the area of a slot, and maps it if it is not mapped yet. Returns `None` if it cannot be mapped.
    pub fn area(&self, slot: u32) -> Option<*mut u8> {
        let geometry = self.parts().region.geometry();
        let unit = geometry.map_unit_of(slot);
        let mapped = self.private().areas.get(unit.index)?;
        if mapped.load(Ordering::Acquire) == 0 {
            // At most `MAX_MAP_UNITS` steps, each of which finds a unit mapped or maps it.
            (0..=unit.index).try_for_each(|index| self.map_unit(index))?;
        }
        let in_unit = geometry.slot_area_at(slot) - geometry.slot_area_at(unit.first_slot);
        Some((mapped.load(Ordering::Acquire) as usize + in_unit) as *mut u8)
    }

    /// Maps a unit of slot areas. The target keeps no descriptor open. So each unit is mapped from the last page of the
    /// unit before it: mremap with an old size of 0 duplicates a shared mapping.
    pub(super) fn map_unit(&self, index: usize) -> Option<()> {
        let parts = self.parts();
        let geometry = parts.region.geometry();
        let place = self.private().areas.get(index)?;
        if place.load(Ordering::Acquire) != 0 {
            return Some(());
        }
        let before = match index.checked_sub(1) {
            Some(before) => {
                let start = self.private().areas.get(before)?.load(Ordering::Acquire);
                start + geometry.map_unit_len(geometry.map_unit(before)) as u64
            }
            None => parts.region.fixed_end(),
        };
        let len = PAGE + geometry.map_unit_len(geometry.map_unit(index));
        if !self.may_call() {
            return None;
        }
        let copy = sys::map_again(before - PAGE as u64, len)?;
        sys::keep_out_of_dumps(copy, len);
        let area = copy as u64 + PAGE as u64;
        if place.compare_exchange(0, area, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: `map_again` has just mapped these `len` bytes at `copy`. The exchange failed, so their address
            // was not published.
            unsafe { sys::unmap(copy, len) };
        }
        Some(())
    }

    /// Maps the headers of far slots. Returns `None` if there are none, if they are mapped already, or if they cannot
    /// be mapped.
    pub fn map_far_slots(&self) -> Option<()> {
        let region = &self.parts().region;
        let place = &self.private().far_slots;
        let len = region.geometry().fixed_len() - region.geometry().near_len();
        if len == 0 || place.load(Ordering::Acquire) != 0 || !self.may_call() {
            return None;
        }
        let copy = sys::map_again(region.near_end() - PAGE as u64, PAGE + len)?;
        sys::keep_out_of_dumps(copy, PAGE + len);
        if place.compare_exchange(0, copy as u64 + PAGE as u64, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: `map_again` has just mapped these `PAGE + len` bytes at `copy`. The exchange failed, so their
            // address was not published.
            unsafe { sys::unmap(copy, PAGE + len) };
        }
        Some(())
    }

    /// Where a slot's thread keeps its state.
    pub fn local(&self, slot: u32, area: *mut u8) -> *mut Local {
        area.wrapping_add(self.region().geometry().private_in_slot(slot)).cast()
    }
}

/// Checks the channel that the environment variable names, and maps what is needed of it at once (`map_parts`).
pub(super) fn connect(channel: &[u8]) -> Option<Region<'static>> {
    let fd = match environment::number(channel) {
        Some((fd, _)) => fd as i32,
        None => {
            let mut path = environment::Value::EMPTY;
            path.push(path_of(channel));
            sys::open(path.as_c_string())?
        }
    };
    let region = map_region(fd);
    sys::close(fd);
    region
}

/// Checks a channel that the hub offers, and maps what is needed of it at once (`map_parts`).
pub fn map_offer(collector: u32, fd: u32) -> Option<Region<'static>> {
    let fd = sys::open(follow::Path::of_descriptor(collector, fd).get())?;
    let region = map_region(fd);
    sys::close(fd);
    region
}

pub(super) fn map_region(fd: i32) -> Option<Region<'static>> {
    let first = sys::map_shared(fd, 0, PAGE)?;
    // SAFETY: `map_shared` has just mapped this page, and a header fits into it. The collector sealed the file's size
    // before it offered the file, so the page stays. The three fields are not written after a target can see them.
    let (magic, version, geometry) = unsafe {
        let header = &*first.cast::<Header>();
        (header.magic, header.version, header.geometry)
    };
    // SAFETY: the page at `first` is mapped until the end of this function, and what both sides write in a `Header` is
    // atomic.
    let header = unsafe { &*first.cast::<Header>() };
    let region = if magic != MAGIC || version != VERSION || !is_ours(&geometry) {
        refuse(header, Refusal::Mismatch);
        None
    } else {
        let region = map_parts(fd, geometry);
        if region.is_none() {
            refuse(header, Refusal::NotMapped);
        }
        region
    };
    // SAFETY: `map_shared` mapped this page above. `header` is not used any more, and `region` is a mapping of its own.
    unsafe { sys::unmap(first, PAGE) };
    region
}

/// Maps what is needed at once: the near part, and the page before the slot areas, from which these are mapped later.
pub(super) fn map_parts(fd: i32, geometry: Geometry) -> Option<Region<'static>> {
    let base = sys::map_shared(fd, 0, geometry.near_len())?;
    let last = sys::map_shared(fd, geometry.fixed_len() - PAGE, PAGE)?;
    sys::keep_out_of_dumps(base, geometry.near_len());
    let far = base.wrapping_add(geometry.private_at() + offset_of!(Private, far_slots));
    // SAFETY: `map_shared` has mapped both parts, and nothing unmaps them. `map_region` has checked the geometry.
    // `far_slots` is in `Private`, so in the near part; it is 0 in fresh memory, and `assemble` clears it after an
    // exec, until `map_far_slots` sets it.
    Some(unsafe { Region::in_parts(base, geometry, far.cast(), last as u64 + PAGE as u64) })
}

/// Returns true if the program is under a seccomp filter that the collector is not under. `channel` is the channel's
/// path, empty if a tree is followed. Not inlined, so that its copy of a variable does not stay on the stack for the
/// rest of the start.
///
/// # Safety
/// `environment` is the process's initial one, and no other thread uses it.
#[inline(never)]
pub(super) unsafe fn is_behind_own_filter(environment: Environment, channel: &[u8]) -> bool {
    if !channel.is_empty() {
        return filters::is_behind_own_filter(channel);
    }
    // SAFETY: the caller promises that `environment` is the initial one and that no other thread uses it.
    let hub = unsafe { environment.copy(environment::FOLLOW) };
    !hub.is_empty() && filters::is_behind_own_filter(hub.get())
}

/// Returns the path in `<fd>,<path>`, or nothing if there is no comma.
pub(super) fn path_of(channel: &[u8]) -> &[u8] {
    let comma = channel.iter().position(|&b| b == b',');
    comma.and_then(|at| channel.get(at + 1..)).unwrap_or(&[])
}
