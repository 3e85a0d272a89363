//! Adding the frames of a walk to the memo.
use super::{
    BESIDE, BY_CODE, Check, END, ENTRY_NEEDS, FRAME_POINTER, Fact, FrameState, LOW48, Memo, NEAR_SHIFT, SLOT, SPECIAL,
    WAYS,
};

/// SLOT of code with frame pointers: the word before the return address.
const FRAME_POINTER_SLOT: u32 = 2;

impl Memo {
    /// Remembers the new frames of a walk, leaf first, under the numbers from `first` on. `tail` is the node of the
    /// caller of the last frame, or `None` if the stack ends there. `frame(i)` returns frame `i`. Returns false, and
    /// remembers nothing, if there are no frames or too many.
    pub fn remember(
        &mut self,
        first: u32,
        count: usize,
        tail: Option<u32>,
        frame: impl Fn(usize) -> (FrameState, Fact),
    ) -> bool {
        if count == 0 || count > self.longest() {
            return false;
        }
        for i in (0..count).rev() {
            let number = first.wrapping_add(i as u32);
            let (place, fact) = frame(i);
            let is_last = i + 1 == count;
            let link = if is_last { tail.unwrap_or(0) } else { number.wrapping_add(1) };
            let at = self.place(number);
            let rbp = if fact.caller_slot == FRAME_POINTER_SLOT { FRAME_POINTER } else { 0 };
            let is_near = !fact.by_code && (fact.caller_slot == 0 || rbp != 0);
            let near = match number.wrapping_sub(link) as u64 {
                _ if is_last && link == 0 => END,
                _ if is_near && !is_last && at != self.node_mask as usize => BESIDE,
                distance @ 1..BESIDE if is_near => distance,
                _ => 0,
            };
            let mark = match near {
                BESIDE if rbp == 0 => 0,
                0 | END => SPECIAL | near << NEAR_SHIFT,
                _ => SPECIAL | rbp | near << NEAR_SHIFT,
            };
            // SAFETY: masks are in bounds (see `Memo`), so `at`, which is from `place`, is below all four arrays'
            // length.
            unsafe {
                *self.checks.get_unchecked_mut(at) =
                    Check { at: place.cfa.wrapping_sub(8), pc: place.pc & LOW48 | mark };
                *self.ways.get_unchecked_mut(at) =
                    (link as u64) << 32 | if fact.by_code { BY_CODE } else { 0 } | fact.caller_slot as u64 & SLOT;
                *self.rbps.get_unchecked_mut(at) = place.rbp;
                *self.depths.get_unchecked_mut(at) = fact.depth;
            }
            self.enter(place, number, fact.needs_rbp);
        }
        true
    }

    /// Puts a node into the set in which `find` looks for it.
    fn enter(&mut self, place: FrameState, number: u32, needs_rbp: bool) {
        let hash = Self::hash(place.pc, place.cfa);
        let set = self.set(hash);
        for way in (1..WAYS).rev() {
            set[way] = set[way - 1];
        }
        set[0] = hash >> 33 << 33 | if needs_rbp { ENTRY_NEEDS } else { 0 } | number as u64;
    }
}
