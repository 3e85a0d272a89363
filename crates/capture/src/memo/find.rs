//! Finding a remembered walk by the frame that it starts at.
use super::{Check, ENTRY_NEEDS, FrameState, LOW48, Memo, Miss, SEGMENT, Tail, WAYS};
use channel::StackId;

impl Memo {
    #[inline(always)]
    pub(super) fn hash(pc: u64, cfa: u64) -> u64 {
        let mixed = (pc ^ cfa.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29
    }

    #[inline(always)]
    pub(super) fn set(&mut self, hash: u64) -> &mut [u64; WAYS] {
        let index = (hash as u32 & self.set_mask) as usize;
        // SAFETY: masks are in bounds (see `Memo`), so `index` is below the array's length.
        unsafe { self.sets.get_unchecked_mut(index) }
    }

    /// Prefetches what `find_youngest` will compare.
    ///
    /// # Safety
    /// `begin` has made `memo`, and it stays mapped. Another thread may own it and write to it meanwhile. So this
    /// function makes no reference to it, and uses what it reads only as an address to prefetch.
    #[inline(always)]
    pub unsafe fn fetch(memo: *const Memo, pc: u64, cfa: u64) {
        let hash = Self::hash(pc, cfa);
        // SAFETY: the caller keeps `memo` mapped. Masks are in bounds (see `Memo`), so the word is the first of a set
        // inside the array. Volatile, because the owner may write meanwhile; any value is good enough for a prefetch.
        let check = unsafe {
            let set = hash as u32 & (&raw const (*memo).set_mask).read_volatile();
            let entry = (&raw const (*memo).sets).cast::<[u64; WAYS]>().add(set as usize).cast::<u64>().read_volatile();
            let place = entry as u32 & (&raw const (*memo).node_mask).read_volatile();
            (&raw const (*memo).checks).cast::<Check>().add(place as usize)
        };
        // SAFETY: a prefetch reads nothing into the program and does not fault at any address.
        unsafe {
            core::arch::asm!("prefetcht0 [{0}]", "prefetcht0 [{0} + 64]", in(reg) check, options(nostack, preserves_flags, readonly))
        };
    }

    /// Compares the walk that was last found or remembered in the set of `place`. If that walk starts at `place` and
    /// still holds, returns its number and how many jumps the comparison took.
    ///
    /// # Safety
    /// What `find` asks for, about `place`.
    #[inline(always)]
    pub unsafe fn find_youngest(&mut self, place: FrameState) -> Result<(StackId, u32), Miss> {
        let hash = Self::hash(place.pc, place.cfa);
        let entry = self.set(hash)[0];
        let number = entry as u32;
        if entry >> 33 != hash >> 33 || !self.is_alive(number) {
            return Err(Miss::NO_WALK);
        }
        let check = self.check(number);
        // SAFETY: node pointers are in the arena (see `Memo`); this one is from `check`.
        let Check { at, pc } = unsafe { *check };
        let is_here = at == place.cfa.wrapping_sub(8) && pc & LOW48 == place.pc;
        if !is_here || entry & ENTRY_NEEDS != 0 && self.rbp(number) != place.rbp {
            return Err(Miss::NO_WALK);
        }
        // SAFETY: the caller promises what `find` asks for about `place`. The node at `check` was just compared with
        // `place`: return address, CFA, and rbp if the walk depends on it.
        unsafe { self.verify::<true>(check) }.map(|jumps| (number, jumps))
    }

    /// Returns a remembered walk from `place` to the root that still holds, with at most `deepest` frames. Otherwise
    /// the miss names the highest frame at which a remembered walk differs.
    ///
    /// # Safety
    /// - `place` is a frame of the calling thread, in a call that has not returned. So the stack at and above
    ///   `place.cfa.wrapping_sub(8)` is as an unwinder would read it from there.
    /// - `has_left_guesses` is false for the stack pointer, or `move_guesses` was called since it became true.
    /// - The unwind rules are those of the remembered walks: `forget` was called if a module was unloaded since.
    #[inline(always)]
    pub unsafe fn find(&mut self, place: FrameState, deepest: usize) -> Result<Tail, Miss> {
        // SAFETY: `find_from` asks for what `find` asks for, which the caller promises.
        unsafe { self.find_from(0, place, deepest, Miss::NO_WALK) }
    }

    /// As `find`, but skips the walk that `find_youngest` has compared. `miss` is what `find_youngest` returned.
    ///
    /// # Safety
    /// What `find` asks for, about `place`.
    #[inline(always)]
    pub unsafe fn find_older(&mut self, place: FrameState, miss: Miss) -> Result<Tail, Miss> {
        // SAFETY: `find_from` asks for what `find` asks for, which the caller promises.
        unsafe { self.find_from(1, place, usize::MAX, miss) }
    }

    /// As `find`, but without the first `skip` entries of the set.
    ///
    /// # Safety
    /// What `find` asks for, about `place`.
    #[inline(always)]
    unsafe fn find_from(
        &mut self,
        skip: usize,
        place: FrameState,
        deepest: usize,
        mut miss: Miss,
    ) -> Result<Tail, Miss> {
        let hash = Self::hash(place.pc, place.cfa);
        let set: *mut [u64; WAYS] = self.set(hash);
        for way in skip..WAYS {
            // SAFETY: `way < WAYS`, the array's length. `set` stays valid: there is one user (see `Memo`), and nothing
            // in this loop makes another `&mut` of the sets.
            let entry = unsafe { *(*set).get_unchecked(way) };
            if entry >> 33 != hash >> 33 {
                continue;
            }
            let number = entry as u32;
            if !self.is_alive(number) {
                continue;
            }
            let check = self.check(number);
            // SAFETY: node pointers are in the arena (see `Memo`); this one is from `check`.
            let Check { at, pc } = unsafe { *check };
            if at != place.cfa.wrapping_sub(8) || pc & LOW48 != place.pc {
                continue;
            }
            if deepest < SEGMENT && self.depth(number) as usize > deepest {
                continue;
            }
            let needs_rbp = entry & ENTRY_NEEDS != 0;
            if needs_rbp && self.rbp(number) != place.rbp {
                continue;
            }
            // SAFETY: the caller promises what `find` asks for about `place`. The node at `check` was just compared
            // with `place`: return address, CFA, and rbp if the walk depends on it.
            match unsafe { self.verify::<false>(check) } {
                Ok(jumps) => {
                    if way != 0 {
                        // SAFETY: words 0 and `way` of the set at `set`; `way < WAYS`. One user (see `Memo`) writes it.
                        unsafe { core::ptr::swap(set.cast::<u64>(), set.cast::<u64>().add(way)) };
                    }
                    return Ok(Tail { number, depth: self.depth(number), needs_rbp, jumps });
                }
                Err(Miss::BROKEN) => return Err(Miss::BROKEN),
                Err(other) => miss = miss.or_higher(other),
            }
        }
        Err(miss)
    }
}
