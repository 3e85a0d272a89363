//! Steps by simple rules, which need only the CFA and rbp. Nearly all steps are of this kind.
use super::{EXACT, Frame, MAX_FRAMES, Walk, inside};
use crate::dl_find_object;
use crate::epilogue::{self, Epilogue};
use crate::rule::Rule;

/// A larger frame is taken for a mistake.
const MAX_FRAME_BYTES: u64 = 64 << 20;

impl Walk<'_> {
    /// Finds the rule of a frame in the scratch memory, and stores it there.
    #[inline(always)]
    pub(super) fn rule(&mut self, at: usize) -> Rule {
        let frame = self.frame(at);
        let (pc, key) = (frame.pc, frame.key());
        let rule = self.rule_at(pc, key);
        // SAFETY: `at.min(MAX_FRAMES)` is below the array's length, which is `MAX_FRAMES + 1`.
        unsafe { self.scratch.frames.get_unchecked_mut(at.min(MAX_FRAMES)).rule = rule };
        rule
    }

    #[inline(always)]
    pub(super) fn rule_at(&mut self, pc: u64, key: u64) -> Rule {
        match self.core.rules().get(key) {
            Some(rule) if !rule.is_by_code() => rule,
            Some(_) => self.by_code(pc, true),
            None => self.compile(pc),
        }
    }

    #[cold]
    #[inline(never)]
    fn compile(&mut self, pc: u64) -> Rule {
        let rule =
            if self.find_row(inside(pc)) { Rule::compile(&self.scratch.cfi.row) } else { self.by_code(pc, false) };
        if rule.is_guess() {
            self.core.note_guess();
        }
        // If the loader cannot be watched, a module that was loaded after the start may be replaced unnoticed. So its
        // rules are not cached, nor those of code without a module.
        let instance = self.scratch.module.as_ref().map_or(u16::MAX, |module| module.instance);
        if !dl_find_object::may_go(instance) {
            self.core.rules().put(inside(pc).wrapping_add(1), rule);
        }
        rule
    }

    /// Returns the rule of a frame without CFI. `seen`: the code at `pc` was read before.
    #[inline(never)]
    fn by_code(&mut self, pc: u64, seen: bool) -> Rule {
        self.epilogue(pc, seen).map_or(Rule::FRAME_POINTER, |found| Rule::by_code(&found))
    }

    /// Decodes the code at `pc`. Code to which this thread will return is mapped. Whether it is also readable is asked
    /// once. It is asked again if the walk is not sure that `pc` is a return address at all.
    pub(super) fn epilogue(&mut self, pc: u64, seen: bool) -> Option<Epilogue> {
        let at = pc & !EXACT;
        let is_readable = seen && !self.scratch.unsure || self.may_ask && crate::sys::is_readable(at as usize & !7);
        if !is_readable {
            return None;
        }
        // SAFETY: the byte at `at` can be read. Either `sys::is_readable` has just said so. Or `compile` asked before
        // it cached the rule (`seen`), and the walk is sure (`!unsure`) that this thread returns there: code is mapped
        // there.
        unsafe { epilogue::at(at) }
    }

    /// Called before the step of a frame without CFI. Returns the index of the first frame that may be remembered: a
    /// rule that was read from code is not remembered if the walk is not sure that this is code.
    #[cold]
    pub(super) fn note_guess(&mut self, rule: Rule, at: usize, start: usize) -> usize {
        if !rule.is_by_code() {
            self.scratch.unsure = true;
        } else if self.scratch.unsure {
            return at + 1;
        }
        start
    }

    /// Makes one step from a frame in the scratch memory and stores the caller after it. Returns false if the step is
    /// not possible.
    #[inline(always)]
    pub(super) fn step_at(&mut self, at: usize) -> bool {
        let frame = *self.frame(at);
        match self.step(&frame) {
            Some(next) => {
                self.put(at + 1, next);
                true
            }
            None => false,
        }
    }

    /// Makes one step from a frame to its caller. Returns `None` if the result cannot be a frame, or cannot be read.
    #[inline(always)]
    pub(super) fn step(&mut self, frame: &Frame) -> Option<Frame> {
        let base = if frame.rule.uses_rbp() { frame.rbp } else { frame.cfa };
        let cfa = base.wrapping_add(frame.rule.cfa_offset());
        // The stack grows down, so the caller's frame is above. Anything else is no frame.
        if cfa <= frame.cfa || cfa & 7 != 0 || cfa - frame.cfa > MAX_FRAME_BYTES {
            return None;
        }
        if frame.rule.is_guess() && frame.rule.uses_rbp() && !self.proof.reaches(cfa - 8) {
            return None;
        }
        let slot = frame.rule.rbp_slot() as u64;
        let rbp = if slot == 0 {
            frame.rbp
        } else {
            let at = cfa - 8 * slot;
            if at < frame.cfa.wrapping_sub(8) {
                return None;
            }
            self.proof.read(at)?
        };
        let pc = self.proof.read(cfa - 8)?;
        if pc >> 47 != 0 {
            return None;
        }
        Some(Frame { pc, cfa, rbp, rule: Rule::END })
    }
}

/// Returns true if the frame pointer does not lead up the stack.
pub(super) fn sinks(frame: &Frame) -> bool {
    let cfa = frame.rbp.wrapping_add(frame.rule.cfa_offset());
    cfa <= frame.cfa || cfa & 7 != 0
}
