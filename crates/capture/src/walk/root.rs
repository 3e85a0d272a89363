//! The outermost frames of a stack that is too deep to be kept.
//!
//! The walk goes on to the root and keeps only the last `ROOT_FRAMES` frames. That takes long, so these frames are kept
//! for the next walk. They are used again if they are unchanged.
use super::{Found, Frame, Walk, sinks};
use crate::proof::Proof;
use crate::rule::Kind;
use channel::FrameKey;

/// How many of its outermost frames a cut stack keeps.
pub(super) const ROOT_FRAMES: usize = 64;
/// The most steps from the cut to the root.
const MAX_STEPS: usize = 1 << 20;

/// The outermost frames of the last cut stack.
#[repr(C)]
pub(super) struct Root {
    frames: [Frame; ROOT_FRAMES],
    /// The number of frames from the cut to the root. `frames` is a ring with the last of them. 0 = nothing is known.
    pub(super) seen: usize,
    /// The root itself was not reached.
    is_missing: bool,
    generation: u32,
}

impl Root {
    /// Returns true if all `ROOT_FRAMES` frames are unchanged and above `cfa`, and the modules have not changed. The
    /// words between `cfa` and these frames are not compared, so the frames may belong to a stack that was unmapped.
    /// Each read therefore needs a proof.
    fn still_holds(&self, cfa: u64, generation: u32, proof: &mut Proof) -> bool {
        self.seen > ROOT_FRAMES
            && self.generation == generation
            && self.frames.iter().all(|frame| frame.cfa > cfa && proof.read(frame.cfa - 8) == Some(frame.pc()))
    }
}

impl Walk<'_> {
    /// Stores the outermost frames in the scratch memory. Returns the number of frames from the cut to the root, and
    /// true if the root was not reached: a step was not possible, needs all registers, or `MAX_STEPS` were made.
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
            // A frame that needs all registers is not followed, because each such step would start again at the leaf.
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

    /// Returns frame `n` of those at the root, leaf first.
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
