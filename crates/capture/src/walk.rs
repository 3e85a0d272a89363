//! The stack walk: from a hook's context to the frames of its stack.
//!
//! Fast first: the leaf in the memo. Else step by step with cached rules until a frame is known, ends the stack, or
//! cannot be stepped. The new frames are collected in the thread's scratch memory, told to the collector as a path,
//! then remembered under the numbers that the path gave them. Where there is no CFI, the code itself is asked how its
//! frame ends, else the frame pointer is followed. What was read from code holds only as long as that code stands
//! there: every use compares it again, a reuse of the memo too. Rows that are not simple are evaluated with all
//! callee-saved registers, from the leaf again, and not remembered.
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

/// The most frames that a stack keeps. Deeper ones lose their middle, see `ROOT_FRAMES`.
pub const MAX_FRAMES: usize = crate::memo::SEGMENT - 1;

/// One frame of the walk in progress.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    /// The return address, or, with `EXACT`, the interrupted instruction.
    pc: u64,
    cfa: u64,
    rbp: u64,
    rule: Rule,
}

const EXACT: u64 = 1 << 63;

/// An address inside the instruction that is active at `pc`: a call is before its return address.
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
    /// The rule cache's key: one above `inside`, so that a return address is its own key.
    fn key(&self) -> u64 {
        self.inside().wrapping_add(1)
    }
    fn place(&self) -> FrameState {
        FrameState { pc: self.pc(), cfa: self.cfa, rbp: self.rbp }
    }
}

/// Working memory of walks; one for hooks, one for hooks inside hooks.
#[repr(C)]
pub struct Scratch {
    frames: [Frame; MAX_FRAMES + 1],
    root: Root,
    cfi: cfi::Scratch,
    slow: Slow,
    /// The module found last, in this walk: callers are mostly in the same one.
    module: Option<Module>,
    /// This walk followed a frame pointer without CFI: what it finds from there on may be no frame.
    unsure: bool,
}

impl Scratch {
    /// A new thread has other stacks.
    pub fn forget(&mut self) {
        self.root.seen = 0;
    }
}

/// Why a walk stopped adding frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// At a frame that ends the stack by its rule.
    End,
    /// At a return address of zero.
    Zero,
    /// At something that cannot be followed: shorter than the truth, not remembered.
    Lost,
    /// At a frame whose way to the root is known.
    Known(Tail),
    /// `MAX_FRAMES` are there and the root is not.
    Full,
}

/// What a walk found.
#[derive(Clone, Copy)]
pub struct Found {
    /// Frames in the scratch.
    count: usize,
    /// The first of them that may be remembered.
    start: usize,
    stop: Stop,
    /// Frames from the cut to the root; the last `ROOT_FRAMES` of them are kept. 0 = not cut.
    root: usize,
    /// The root of a cut stack was not reached: something before it cannot be followed.
    is_rootless: bool,
    /// The known stack on which the frames stand.
    pub tail: StackId,
}

impl Found {
    /// How many frames its path has.
    pub fn path_len(&self) -> usize {
        let marker = (self.root > ROOT_FRAMES || self.is_rootless) as usize;
        self.count + self.root.min(ROOT_FRAMES) + marker
    }

    /// How many numbers of the memo it takes: one for each frame of its path, and one for a terminating zero, which is
    /// no frame but is compared like one.
    pub fn numbers(&self) -> usize {
        self.path_len() + (self.stop == Stop::Zero) as usize
    }
}

/// A walk by one hook.
pub struct Walk<'a> {
    pub core: &'a Core,
    pub scratch: &'a mut Scratch,
    pub proof: &'a mut Proof,
    /// Absent in a hook that interrupted another one of the same thread.
    pub memo: Option<&'a mut Memo>,
    pub may_ask: bool,
}

impl Walk<'_> {
    /// Finds the frames of `context`'s stack that are not known yet; they are then in the scratch.
    #[inline(always)]
    pub fn run(&mut self, context: &Context) -> Found {
        // The word of the return address is in use; what is above it may be on another page.
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

    /// The frames of a path, leaf first: those of the walk, and of a cut stack the marker and the root. If no frame is
    /// missing between the two, but the root was not reached, the marker is the last one.
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

    /// Fills the scratch. How many frames, the first one that may be remembered, why it stopped. Works on the scratch
    /// in place and is not inlined: the stack is the program's.
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
                // A frame pointer that points nowhere ends the stack, as a pure function of its value.
                let end = rule.is_guess() && rule.uses_rbp() && sinks(self.frame(at));
                return (at + 1, start, if end { Stop::End } else { Stop::Lost });
            }
            at += 1;
            if self.frame(at).pc() == 0 {
                // The word that says so is remembered too, as a node that is no frame.
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
        // SAFETY: the walk has just found this frame on the stack of its own thread.
        let found = unsafe { memo.find(place, MAX_FRAMES - at) };
        if found == Err(Miss::BROKEN) {
            memo.forget();
            self.core.lose(Loss::MemoBroken);
        }
        found
    }

    /// Fills the scratch with the row of a frame. False when no CFI covers it.
    #[inline(never)]
    fn find_row(&mut self, address: u64) -> bool {
        self.find_module(address);
        let Some(tables) = self.scratch.module.as_ref().and_then(Module::tables) else { return false };
        tables.row(address, &mut self.scratch.cfi).is_ok()
    }

    /// Leaves the module that holds `address` in the scratch.
    #[inline(never)]
    fn find_module(&mut self, address: u64) {
        let known = self.scratch.module.as_ref().is_some_and(|found| address >= found.start && address < found.end);
        if !known {
            self.scratch.module = self.core.find_module(address);
        }
    }
}
