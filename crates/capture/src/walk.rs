//! The stack walk: from a hook's context to the frames of its stack.
//!
//! A hook walks only if the memo does not know its whole stack. The walk starts at the leaf and steps from caller to
//! caller until the memo knows a frame, the stack ends, or a step is not possible. The new frames are collected in the
//! thread's scratch memory. Then the hook writes them to the ring as a path, and adds them to the memo under the
//! numbers of that path.
//!
//! There are three kinds of steps:
//! - **Simple** (`simple.rs`): a cached rule that needs only the CFA and rbp. Nearly all steps are of this kind. If
//!   there is no CFI, the rule comes from the code after the return address, or the frame pointer is followed. A rule
//!   that comes from code is valid only while that code is unchanged, so each use reads the code again, also a
//!   comparison by the memo.
//! - **With all registers** (`registers.rs`): for the few rules that need other registers. Such a step starts again at
//!   the leaf. The frames from the leaf up to there are not remembered.
//! - **To the root** (`root.rs`): if a stack is too deep to be kept, only its innermost and outermost frames are kept.
mod checked;
mod registers;
mod remember;
mod root;
mod simple;

pub use checked::check_stack;

use crate::cfi;
use crate::context::Context;
use crate::core::Core;
use crate::memo::{FrameState, Memo, Miss, Tail};
use crate::modules::Found as Module;
use crate::proof::Proof;
use crate::rule::{Kind, Rule};
use channel::{FrameKey, Loss, StackId};
use registers::Slow;
use root::{ROOT_FRAMES, Root};
use simple::sinks;

/// The most frames of a walk. A deeper stack is cut: it keeps these and its `ROOT_FRAMES` outermost frames.
pub const MAX_FRAMES: usize = crate::memo::SEGMENT - 1;

/// One frame of the walk in progress.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    /// The return address. With the bit `EXACT`: the address of the instruction that a signal interrupted.
    pc: u64,
    cfa: u64,
    rbp: u64,
    rule: Rule,
}

const EXACT: u64 = 1 << 63;

/// Returns an address inside the instruction that is active at `pc`. For a return address that is the call before it.
fn inside(pc: u64) -> u64 {
    if pc & EXACT != 0 { pc & !EXACT } else { pc.wrapping_sub(1) }
}

impl Frame {
    fn leaf(context: &Context) -> Frame {
        Frame { pc: context.ret, cfa: context.cfa(), rbp: context.rbp, rule: Rule::END }
    }
    fn pc(&self) -> u64 {
        self.pc & !EXACT
    }
    fn is_exact(&self) -> bool {
        self.pc & EXACT != 0
    }
    fn inside(&self) -> u64 {
        inside(self.pc)
    }
    /// The key in the cache of rules. It is `inside` plus 1, so that the key of a return address is the address itself.
    fn key(&self) -> u64 {
        self.inside().wrapping_add(1)
    }
    fn place(&self) -> FrameState {
        FrameState { pc: self.pc(), cfa: self.cfa, rbp: self.rbp }
    }
}

/// Working memory of walks. A thread has one for its hooks, and one for hooks that interrupt them.
#[repr(C)]
pub struct Scratch {
    frames: [Frame; MAX_FRAMES + 1],
    root: Root,
    cfi: cfi::Scratch,
    slow: Slow,
    /// The module that was last found in this walk. Mostly the next caller is in the same one.
    module: Option<Module>,
    /// This walk followed a frame pointer without CFI, so what it found after that may be no frame.
    unsure: bool,
}

impl Scratch {
    /// Forgets what is known of the stacks of the thread that had this memory before.
    pub fn forget(&mut self) {
        self.root.seen = 0;
    }
}

/// Why a walk stopped adding frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The rule of the last frame says that the stack ends there.
    End,
    /// The next return address is zero, which ends the stack.
    Zero,
    /// The next step is not possible. The stack is incomplete and is not remembered.
    Lost,
    /// The memo knows the rest of the stack.
    Known(Tail),
    /// The walk has `MAX_FRAMES` frames and has not reached the root.
    Full,
}

/// What a walk found.
#[derive(Clone, Copy)]
pub struct Found {
    /// The number of frames in the scratch memory.
    count: usize,
    /// The first of them that may be remembered.
    start: usize,
    stop: Stop,
    /// The number of frames from the cut to the root. The last `ROOT_FRAMES` of them are kept. 0 = the stack is not
    /// cut.
    root: usize,
    /// The stack is cut, and its root was not reached (see `Walk::root`).
    is_rootless: bool,
    /// The known stack that the caller of the last frame belongs to. 0 = none.
    pub tail: StackId,
}

impl Found {
    /// How many frames its path has.
    pub fn path_len(&self) -> usize {
        let marker = (self.root > ROOT_FRAMES || self.is_rootless) as usize;
        self.count + self.root.min(ROOT_FRAMES) + marker
    }

    /// How many numbers of the memo the walk needs: one for each frame of its path, and one for a terminating zero. The
    /// zero is no frame, but is compared like one.
    pub fn numbers(&self) -> usize {
        self.path_len() + (self.stop == Stop::Zero) as usize
    }
}

/// A walk by one hook.
pub struct Walk<'a> {
    pub core: &'a Core,
    pub scratch: &'a mut Scratch,
    pub proof: &'a mut Proof,
    /// `None` in a hook that interrupted another hook of the same thread.
    pub memo: Option<&'a mut Memo>,
    pub may_ask: bool,
}

impl Walk<'_> {
    /// Finds the frames of `context`'s stack that the memo does not know, and leaves them in the scratch memory.
    #[inline(always)]
    pub fn run(&mut self, context: &Context) -> Found {
        // The word with the return address is certainly readable. What is above it may be on another page.
        self.proof.start(context.cfa() - 8, self.may_ask);
        if let Some(memo) = self.memo.as_deref_mut()
            && memo.has_left_guesses(context.cfa())
        {
            memo.move_guesses(self.proof.stack());
        }
        self.scratch.module = None;
        self.scratch.unsure = false;
        let (count, start, stop) = self.collect(context, context.resume_state.miss());
        let (root, is_rootless) = if stop == Stop::Full { self.root(count) } else { (0, false) };
        let tail = if let Stop::Known(tail) = stop { tail.number } else { 0 };
        Found { count, start, stop, root, is_rootless, tail }
    }

    /// Returns frame `i` of a path, leaf first. The path of a cut stack has the frames of the walk, then the marker
    /// `CUT`, then the frames at the root. If no frame is missing between the two parts but the root was not reached,
    /// the marker is last.
    pub fn frame_key(&mut self, found: &Found, i: usize) -> FrameKey {
        if i < found.count {
            let pc = self.frame(i).pc;
            return self.key(pc);
        }
        match i - found.count {
            0 if found.root > ROOT_FRAMES => FrameKey::CUT,
            n if n == found.root => FrameKey::CUT,
            n => self.root_key(found, n - (found.root > ROOT_FRAMES) as usize),
        }
    }

    fn key(&mut self, pc: u64) -> FrameKey {
        self.find_module(inside(pc));
        self.check_module(pc);
        let (instance, bias) = self.scratch.module.as_ref().map_or((0, 0), |found| (found.instance, found.bias));
        FrameKey::new(instance, (pc & !EXACT).wrapping_sub(bias), pc & EXACT != 0)
    }

    /// Fills the scratch memory. Returns the number of frames, the index of the first one that may be remembered, and
    /// why the walk stopped. It works in place and is not inlined, because it runs on the program's stack.
    #[inline(never)]
    fn collect(&mut self, context: &Context, mut miss: Miss) -> (usize, usize, Stop) {
        let (mut at, mut start) = (0, 0);
        self.put(0, Frame::leaf(context));
        loop {
            if at == MAX_FRAMES {
                return (at, start, Stop::Full);
            }
            if at != 0 && miss.may_know(self.frame(at).cfa) {
                match self.known(at) {
                    Ok(tail) => return (at, start, Stop::Known(tail)),
                    Err(other) => miss = miss.or_higher(other),
                }
            }
            let rule = self.rule(at);
            let went = match rule.kind() {
                Kind::End => return (at + 1, start, Stop::End),
                Kind::Simple => {
                    if rule.is_guess() {
                        start = self.note_guess(rule, at, start);
                    }
                    self.step_at(at)
                }
                Kind::Complex => {
                    let went = self.slow(context, at + 1);
                    start = at + 1 + self.frame(at + 1).is_exact() as usize;
                    went
                }
            };
            if !went {
                // A frame pointer that does not lead up the stack ends it. This depends only on the value of rbp, so
                // the walk may be remembered.
                let end = rule.is_guess() && rule.uses_rbp() && sinks(self.frame(at));
                return (at + 1, start, if end { Stop::End } else { Stop::Lost });
            }
            at += 1;
            if self.frame(at).pc() == 0 {
                // The zero is remembered too, as a node that is no frame.
                return (at, start, Stop::Zero);
            }
        }
    }

    #[inline(always)]
    fn frame(&self, at: usize) -> &Frame {
        // SAFETY: `at.min(MAX_FRAMES)` is below the array's length, which is `MAX_FRAMES + 1`.
        unsafe { self.scratch.frames.get_unchecked(at.min(MAX_FRAMES)) }
    }

    #[inline(always)]
    fn put(&mut self, at: usize, frame: Frame) {
        // SAFETY: `at.min(MAX_FRAMES)` is below the array's length, which is `MAX_FRAMES + 1`.
        unsafe { *self.scratch.frames.get_unchecked_mut(at.min(MAX_FRAMES)) = frame }
    }

    #[inline(never)]
    fn known(&mut self, at: usize) -> Result<Tail, Miss> {
        let frame = self.frame(at);
        if frame.is_exact() {
            return Err(Miss::NO_WALK);
        }
        let place = frame.place();
        let Some(memo) = self.memo.as_deref_mut() else { return Err(Miss::NO_WALK) };
        // SAFETY: the walk has just found this frame on the stack of its own thread, whose hook is at work. `run` has
        // called `move_guesses` if it was needed. The callers of `run` have forgotten the memo if a module was unloaded
        // (`events/stacks.rs`).
        let found = unsafe { memo.find(place, MAX_FRAMES - at) };
        if found == Err(Miss::BROKEN) {
            memo.forget();
            self.core.lose(Loss::MemoBroken);
        }
        found
    }

    /// Stores the CFI row of a code address in the scratch memory. Returns false if no CFI covers it.
    #[inline(never)]
    fn find_row(&mut self, address: u64) -> bool {
        self.find_module(address);
        let Some(tables) = self.scratch.module.as_ref().and_then(Module::tables) else { return false };
        tables.row(address, &mut self.scratch.cfi).is_ok()
    }

    /// Stores the module that holds `address` in the scratch memory.
    #[inline(never)]
    fn find_module(&mut self, address: u64) {
        let known = self.scratch.module.as_ref().is_some_and(|found| address >= found.start && address < found.end);
        if !known {
            self.scratch.module = self.core.find_module(address);
        }
    }
}
