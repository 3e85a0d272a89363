//! The outermost frames of a stack that is too deep.
use super::{Found, Frame, Walk, sinks};
use crate::proof::Proof;
use crate::rule::Kind;
use channel::FrameKey;

/// How many of the outermost frames a cut stack keeps.
pub(super) const ROOT_FRAMES: usize = 64;
/// How far a walk goes on, only to find the root of a cut stack.
const MAX_STEPS: usize = 1 << 20;

/// The outermost frames of the last cut stack: walking there again takes long, comparing them does not.
#[repr(C)]
pub(super) struct Root {
    frames: [Frame; ROOT_FRAMES],
    /// How many frames went by; the last ones are in `frames`, round and round. 0 = nothing is known.
    pub(super) seen: usize,
    /// The root itself was not reached.
    is_missing: bool,
    generation: u32,
}

impl Root {
    /// True when all frames stand where they stood, above `cfa`. Nothing between `cfa` and them is compared, so each of
    /// them needs a proof: they may be frames of a stack that is gone.
    fn still_holds(&self, cfa: u64, generation: u32, proof: &mut Proof) -> bool {
        self.seen > ROOT_FRAMES
            && self.generation == generation
            && self.frames.iter().all(|frame| frame.cfa > cfa && proof.read(frame.cfa - 8) == Some(frame.pc()))
    }
}

impl Walk<'_> {
    /// Leaves the outermost frames of a stack that is too deep in the scratch. How many frames there are to the root,
    /// and whether it was not reached.
    #[cold]
    #[inline(never)]
    pub(super) fn root(&mut self, count: usize) -> (usize, bool) {
        let mut frame = *self.frame(count);
        let generation = self.core.modules().generation();
        if self.scratch.root.still_holds(frame.cfa, generation, self.proof) {
            return (self.scratch.root.seen, self.scratch.root.is_missing);
        }
        let mut seen = 0usize;
        let mut is_missing = true;
        for _ in 0..MAX_STEPS {
            frame.rule = self.rule_at(frame.pc, frame.key());
            self.scratch.unsure |= frame.rule.is_guess() && frame.rule.uses_rbp();
            if let Some(place) = self.scratch.root.frames.get_mut(seen % ROOT_FRAMES) {
                *place = frame;
            }
            seen += 1;
            // A frame that needs all registers is not followed: they would have to be found from the leaf on, each
            // time.
            if !frame.rule.is_simple() {
                is_missing = frame.rule.kind() != Kind::End;
                break;
            }
            match self.step(&frame) {
                Some(next) if next.pc() != 0 => frame = next,
                Some(_) => {
                    is_missing = false;
                    break;
                }
                None => {
                    is_missing = !(frame.rule.is_guess() && frame.rule.uses_rbp() && sinks(&frame));
                    break;
                }
            }
        }
        let root = &mut self.scratch.root;
        (root.seen, root.is_missing, root.generation) = (seen, is_missing, generation);
        (seen, is_missing)
    }

    /// The `n`-th of the root's frames, leaf first.
    pub(super) fn root_key(&mut self, found: &Found, n: usize) -> FrameKey {
        let oldest = found.root.saturating_sub(ROOT_FRAMES);
        match self.scratch.root.frames.get((oldest + n) % ROOT_FRAMES) {
            Some(frame) => {
                let pc = frame.pc;
                self.key(pc)
            }
            None => FrameKey::CUT,
        }
    }
}
