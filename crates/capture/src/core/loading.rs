//! The module table, and when it changes.
use super::{ACTIVE, Core};
use crate::modules::{self, Change, Found, KernelQueries};
use crate::{dl_find_object, elf, real};
use core::sync::atomic::Ordering;

impl Core {
    #[inline(always)]
    pub fn find_module(&self, address: u64) -> Option<Found> {
        let found = self.modules().find(self.region(), address);
        if !dl_find_object::is_on() || found.is_some_and(|found| !dl_find_object::may_go(found.instance)) {
            return found;
        }
        self.ask_for_module(found, address)
    }

    /// Finds a module if the loader is not watched. A known module may have been unloaded, and nothing announces a new
    /// one.
    #[cold]
    #[inline(never)]
    pub(super) fn ask_for_module(&self, known: Option<Found>, address: u64) -> Option<Found> {
        let parts = self.parts();
        // SAFETY: `address` is a frame of this thread, so the object has code on this thread's stack and stays loaded.
        // Listed maps are whole (see `LinkMap`).
        let map = unsafe { dl_find_object::find(address)?.as_ref()? };
        if !self.may_call() {
            return known;
        }
        // SAFETY: `map` is the object of a frame of this thread, as for `dl_find_object::find` above, so it stays
        // during the comparison.
        if known.is_some_and(|known| unsafe { modules::is_same(&parts.region, known.instance, map, parts.program) }) {
            return known;
        }
        let stamp = self.rough_stamp();
        dl_find_object::alone(|| {
            // SAFETY: `alone` makes this thread the only writer; without a notification there is no other. `map` is the
            // object of a frame of this thread, as for `dl_find_object::find` above.
            unsafe { self.known_modules().add(self.modules(), &parts.region, map, parts.program, stamp) };
            self.rules().clear();
        })?;
        self.modules().find(&parts.region, address)
    }

    /// Called before a library may be unloaded. Remembered walks and cached rules are forgotten.
    pub fn modules_may_go(&self) {
        if self.gate() & ACTIVE != 0 {
            self.modules().forget();
            self.rules().clear();
        }
    }

    /// Looks a symbol up in the modules that follow this library in the loader's list. May be called after start-up.
    pub fn find_later(&self, name: &[u8]) -> Option<u64> {
        let parts = self.parts_if_any()?;
        // SAFETY: parts are set (see `Core`), so `debug` is the loader's `r_debug`. Only the exported `dlclose` calls
        // this, at its start, and only if libdl was loaded after start-up (glibc before 2.34). The list is read without
        // the loader's lock, so this relies on no other thread unloading a module meanwhile.
        unsafe { real::find_behind((*parts.debug).maps, elf::own_dynamic(), name) }
    }

    /// Returns true for a return address in this library. A hook sees one if the function that a shim called has jumped
    /// to another patched function.
    pub fn is_own(&self, address: u64) -> bool {
        self.own.holds(address)
    }

    pub fn note_guess(&self) {
        self.guessed.store(true, Ordering::Relaxed);
    }

    /// Updates the module table after the loader has changed its list.
    ///
    /// # Safety
    /// Called by the loader's notification, which comes with the loader's lock held, or at start-up: the list is
    /// stable, there is one writer.
    pub unsafe fn refresh_modules(&self, queries: KernelQueries) -> Change {
        let parts = self.parts();
        let stamp = self.rough_stamp();
        let queries = if self.may_call() { queries } else { KernelQueries::Forbidden };
        // SAFETY: the caller is the only writer, and the list is stable, both by the promise to this function. Parts
        // are set (see `Core`), so `debug` and `program` are the loader's `r_debug` and the program's headers.
        let change = unsafe {
            self.known_modules().refresh(self.modules(), &parts.region, parts.debug, parts.program, stamp, queries)
        };
        // The collector can resolve the absolute path of a module only while the process is alive, which may not be
        // long.
        if change.loaded != 0 && self.may_call() {
            self.ring_bell();
        }
        if change.unloaded != 0 || change.loaded != 0 && self.guessed.swap(false, Ordering::Relaxed) {
            self.rules().clear();
        }
        change
    }

    /// Called by the loader's notification.
    pub fn modules_changed(&self) {
        if self.gate() & ACTIVE == 0 {
            return;
        }
        // SAFETY: parts are set (see `Core`), so `debug` is the loader's `r_debug`. The loader calls us with its lock
        // held and waits, so its list is stable, and there is one writer.
        unsafe {
            let debug = self.parts().debug;
            if (*debug).state == 0 && self.refresh_modules(KernelQueries::WithFolder).loaded != 0 {
                self.wait_for_patches();
            }
        }
    }

    /// Forgets remembered walks and cached rules.
    pub fn forget_modules(&self) {
        if self.gate() & ACTIVE != 0 {
            self.rules().clear();
            self.modules().forget();
        }
    }
}
