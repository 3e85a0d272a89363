//! Comparing a remembered walk with the stack, word by word. This is the longest part of a hook.
use super::{BESIDE, BY_CODE, Check, END, FRAME_POINTER, LOW48, Memo, Miss, NEAR_SHIFT, SEGMENT, SLOT, SPECIAL};
use crate::epilogue;
use crate::proof::SameSoFar;

/// By how much the loop over plain nodes is unrolled.
const IN_A_ROW: usize = 4;
/// A walk of at most `SEGMENT` frames cannot be in more pieces than this.
const MAX_JUMPS: u32 = SEGMENT as u32;

/// The step from one node to its caller's.
enum Way {
    Caller(*const Check),
    /// The caller's node is forgotten, or a word or the code differs.
    Broken,
}

impl Memo {
    /// Compares the words of every frame above the one at `check`. Returns how many jumps that took. If `IS_QUICK`, it
    /// calls no function, and returns `Miss::UNSURE` where it would have to.
    ///
    /// # Safety
    /// What `find` asks for, about the frame at `check`. `check` points to an alive node of the arena whose return
    /// address, CFA and (if the walk depends on it) rbp are those of that frame.
    #[inline(always)]
    pub(super) unsafe fn verify<const IS_QUICK: bool>(&self, mut check: *const Check) -> Result<u32, Miss> {
        // SAFETY: the caller promises that the frame at `check` is one of the calling thread's and equal to the node.
        let same = unsafe { SameSoFar::from_leaf() };
        let mut jumps = 0;
        // SAFETY: the caller promises that `check` points to a node of the arena.
        let mut node = unsafe { *check };
        loop {
            if node.pc & SPECIAL == 0 {
                // SAFETY: node pointers are in the arena (see `Memo`): `remember` never makes the last place plain.
                check = unsafe { check.add(1) };
            } else {
                let way = match node.pc >> NEAR_SHIFT & END {
                    END => return Ok(jumps),
                    // SAFETY: node pointers are in the arena (see `Memo`): `remember` never gives the last place
                    // `BESIDE`.
                    BESIDE => Way::Caller(unsafe { check.add(1) }),
                    0 if IS_QUICK => return Err(Miss::UNSURE),
                    near => {
                        jumps += 1;
                        if jumps > MAX_JUMPS {
                            return Err(Miss::BROKEN);
                        }
                        if near == 0 {
                            // SAFETY: `check` is in the arena (see `Memo`). Every word up to its node was compared
                            // here.
                            unsafe { self.follow(check, same) }
                        } else {
                            self.follow_near(check, near as u32)
                        }
                    }
                };
                let Way::Caller(caller) = way else { return Err(Miss::differs_at(node.at + 8)) };
                if node.pc & FRAME_POINTER != 0 {
                    // SAFETY: `caller` is in the arena (see `Memo`). `FRAME_POINTER` says that the walk read the
                    // caller's rbp here, before it read the caller's return address (`Walk::step`); all words before
                    // are equal.
                    let rbp = unsafe { same.read((*caller).at.wrapping_sub(8)) };
                    if rbp != self.rbp_at(caller) {
                        return Err(Miss::differs_at(node.at + 8));
                    }
                }
                check = caller;
            }
            // SAFETY: node pointers are in the arena (see `Memo`), because the loop stops at the first node that is not
            // plain. Each word is read only after all words before it were equal (`SameSoFar`).
            unsafe {
                'plain: loop {
                    for step in 0..IN_A_ROW {
                        node = *check.add(step);
                        if same.read(node.at) != node.pc {
                            check = check.add(step);
                            break 'plain;
                        }
                    }
                    check = check.add(IN_A_ROW);
                }
                if node.pc & SPECIAL == 0 || same.read(node.at) != node.pc & LOW48 {
                    return Err(Miss::differs_at(node.at + 8));
                }
            }
        }
    }

    /// Goes from the last node of a walk to the node of an older walk, whose number is smaller by `near`.
    #[inline(always)]
    fn follow_near(&self, check: *const Check, near: u32) -> Way {
        // SAFETY: node pointers are in the arena (see `Memo`), so both pointers are into `checks`, whole nodes apart.
        let place = unsafe { check.offset_from(self.checks.as_ptr()) } as u32;
        // The node itself is alive, so its age is below the length of the arena.
        let age = self.head.wrapping_sub(place) & self.node_mask;
        if age + near > self.head.wrapping_sub(self.oldest) {
            return Way::Broken;
        }
        Way::Caller(self.check(place.wrapping_sub(near)))
    }

    /// Goes from a special node to its caller's by `ways`.
    ///
    /// # Safety
    /// `check` points to an alive node of the arena. Every word that the walk read up to that node was compared and is
    /// equal.
    #[inline(never)]
    unsafe fn follow(&self, check: *const Check, same: SameSoFar) -> Way {
        // SAFETY: the caller promises that `check` is a node of `checks`, so both pointers are into it, whole nodes
        // apart.
        let number = unsafe { check.offset_from(self.checks.as_ptr()) } as u32;
        let way = self.way(number);
        let link = (way >> 32) as u32;
        if !self.is_alive(link) {
            return Way::Broken;
        }
        let caller = self.check(link);
        if way & BY_CODE != 0 {
            // SAFETY: both nodes are in the arena (see `Memo`). The node's word was compared, so this thread returns to
            // that address: code is mapped there. `Walk::epilogue` found it readable before the node was remembered.
            let leads = unsafe { epilogue::still_leads((*check).pc & LOW48, (*caller).at.wrapping_sub((*check).at)) };
            if !leads {
                return Way::Broken;
            }
        }
        let slot = way & SLOT;
        // SAFETY: `caller` is from `check`. SLOT says that the walk read the caller's rbp here, before it read the
        // caller's return address (`Walk::step`); the caller of `follow` promises that all words before are equal.
        if slot != 0 && unsafe { same.read(((*caller).at + 8).wrapping_sub(8 * slot)) } != self.rbp(link) {
            return Way::Broken;
        }
        Way::Caller(caller)
    }
}
