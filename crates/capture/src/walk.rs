//! The stack walk: from a hook's context to the frames of its stack.
//!
//! Fast first: the leaf in the memo. Else step by step with cached rules until a frame is known, ends the stack, or
//! cannot be stepped. The new frames are collected in the thread's scratch memory, told to the collector as a path, then
//! remembered under the numbers that the path gave them.
//! Where there is no CFI, the code itself is asked how its frame ends, else the frame pointer is followed. What was read from
//! code holds only as long as that code stands there: every use compares it again, a reuse of the memo too.
//! Rows that are not simple are evaluated with all callee-saved registers, from the leaf again, and not remembered.
mod checked;

pub use checked::check_stack;

use crate::cfi::{self, How, Row, reg};
use crate::context::Context;
use crate::core::Core;
use crate::dl_find_object;
use crate::epilogue::{self, Epilogue};
use crate::expression;
use crate::local::thread_pointer;
use crate::memo::{BROKEN, Fact, FrameState, Memo};
use crate::modules::Found as Module;
use crate::proof::Proof;
use crate::rule::{Kind, Rule};
use crate::sys;
use channel::{FrameKey, Loss, StackId};
use core::sync::atomic::Ordering;

/// The most frames that a stack keeps. Deeper ones lose their middle, see `ROOT_FRAMES`.
pub const MAX_FRAMES: usize = crate::memo::SEGMENT - 1;
/// How many of the outermost frames a cut stack keeps.
const ROOT_FRAMES: usize = 64;
/// How far a walk goes on, only to find the root of a cut stack.
const MAX_STEPS: usize = 1 << 20;
/// No frame is larger than this: 64 MB.
const MAX_FRAME_BYTES: u64 = 64 << 20;

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

/// The registers of a slow walk: this frame's, and its callee's that they are computed from.
#[repr(C)]
struct Slow {
    registers: [u64; reg::COUNT],
    before: [u64; reg::COUNT],
    expression: expression::Stack,
}

/// The outermost frames of the last cut stack: walking there again takes long, comparing them does not.
#[repr(C)]
struct Root {
    frames: [Frame; ROOT_FRAMES],
    /// How many frames went by; the last ones are in `frames`, round and round. 0 = nothing is known.
    seen: usize,
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
    Known(crate::memo::Tail),
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

    /// How many numbers of the memo it takes: one for each frame of its path, and one for a terminating zero, which is no
    /// frame but is compared like one.
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
        let (count, start, stop) = self.collect(context, context.differs);
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

    /// The `n`-th of the root's frames, leaf first.
    fn root_key(&mut self, found: &Found, n: usize) -> FrameKey {
        let oldest = found.root.saturating_sub(ROOT_FRAMES);
        match self.scratch.root.frames.get((oldest + n) % ROOT_FRAMES) {
            Some(frame) => {
                let pc = frame.pc;
                self.key(pc)
            }
            None => FrameKey::CUT,
        }
    }

    fn key(&mut self, pc: u64) -> FrameKey {
        self.find_module(inside(pc));
        self.check_module(pc);
        let (instance, bias) = self.scratch.module.as_ref().map_or((0, 0), |found| (found.instance, found.bias));
        FrameKey::new(instance, (pc & !EXACT).wrapping_sub(bias), pc & EXACT != 0)
    }

    /// Fills the scratch. How many frames, the first one that may be remembered, why it stopped. Works on the scratch in
    /// place and is not inlined: the stack is the program's.
    #[inline(never)]
    fn collect(&mut self, context: &Context, differs: u64) -> (usize, usize, Stop) {
        let mut skip_to = differs;
        let (mut at, mut start) = (0, 0);
        self.put(0, Frame::leaf(context));
        loop {
            if at == MAX_FRAMES {
                return (at, start, Stop::Full);
            }
            if at != 0 && self.frame(at).cfa > skip_to {
                match self.known(at) {
                    Ok(tail) => return (at, start, Stop::Known(tail)),
                    Err(higher) => skip_to = skip_to.max(higher),
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
    fn known(&mut self, at: usize) -> Result<crate::memo::Tail, u64> {
        let frame = self.frame(at);
        if frame.is_exact() {
            return Err(0);
        }
        let place = frame.place();
        let Some(memo) = self.memo.as_deref_mut() else { return Err(0) };
        // SAFETY: the walk has just found this frame on the stack of its own thread.
        let found = unsafe { memo.find(place, MAX_FRAMES - at) };
        if found == Err(BROKEN) {
            memo.forget();
            self.core.lose(Loss::MemoBroken);
        }
        found
    }

    /// The rule of a frame of the scratch, also stored there.
    #[inline(always)]
    fn rule(&mut self, at: usize) -> Rule {
        let frame = self.frame(at);
        let (pc, key) = (frame.pc, frame.key());
        let rule = self.rule_at(pc, key);
        // SAFETY: `at.min(MAX_FRAMES)` is below the array's length, which is `MAX_FRAMES + 1`.
        unsafe { self.scratch.frames.get_unchecked_mut(at.min(MAX_FRAMES)).rule = rule };
        rule
    }

    #[inline(always)]
    fn rule_at(&mut self, pc: u64, key: u64) -> Rule {
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
        // What can come and go unseen must be read anew each time.
        let instance = self.scratch.module.as_ref().map_or(u16::MAX, |module| module.instance);
        if !dl_find_object::may_go(instance) {
            self.core.rules().put(inside(pc).wrapping_add(1), rule);
        }
        rule
    }

    /// The rule of a frame without CFI. `seen`: its code was looked at before.
    #[inline(never)]
    fn by_code(&mut self, pc: u64, seen: bool) -> Rule {
        self.epilogue(pc, seen).map_or(Rule::FRAME_POINTER, |found| Rule::by_code(&found))
    }

    /// What the code at `pc` says. Code to which this thread will return is there; whether it can be read is asked once,
    /// and again where the walk is not sure that this is code at all.
    fn epilogue(&mut self, pc: u64, seen: bool) -> Option<Epilogue> {
        let at = pc & !EXACT;
        let is_readable = seen && !self.scratch.unsure || self.may_ask && crate::sys::is_readable(at as usize & !7);
        if !is_readable {
            return None;
        }
        // SAFETY: the byte at `at` can be read. Either `sys::is_readable` has just said so. Or `compile` asked before it
        // cached the rule (`seen`), and the walk is sure (`!unsure`) that this thread returns there: code is mapped there.
        unsafe { epilogue::at(at) }
    }

    /// A frame without CFI is stepped over. The first frame that may be remembered: code that may be none is not.
    #[cold]
    fn note_guess(&mut self, rule: Rule, at: usize, start: usize) -> usize {
        if !rule.is_by_code() {
            self.scratch.unsure = true;
        } else if self.scratch.unsure {
            return at + 1;
        }
        start
    }

    /// One simple step up, from a frame of the scratch to the next. False when it cannot be made.
    #[inline(always)]
    fn step_at(&mut self, at: usize) -> bool {
        let frame = *self.frame(at);
        match self.step(&frame) {
            Some(next) => {
                self.put(at + 1, next);
                true
            }
            None => false,
        }
    }

    /// One simple step up.
    #[inline(always)]
    fn step(&mut self, frame: &Frame) -> Option<Frame> {
        let base = if frame.rule.uses_rbp() { frame.rbp } else { frame.cfa };
        let cfa = base.wrapping_add(frame.rule.cfa_offset());
        // Callers are above; a misaligned or sinking frame is a broken one.
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

    /// Makes the `steps`-th frame of the scratch, reached from the leaf with all registers. False when it is not.
    #[cold]
    #[inline(never)]
    fn slow(&mut self, context: &Context, steps: usize) -> bool {
        context.copy_registers(&mut self.scratch.slow.registers);
        self.put(steps, Frame::leaf(context));
        (0..steps).all(|_| self.slow_step(steps).is_some())
    }

    /// Replaces a frame of the scratch by its caller.
    #[inline(never)]
    fn slow_step(&mut self, at: usize) -> Option<()> {
        if !self.find_row(self.frame(at).inside()) {
            return self.slow_guess(at);
        }
        self.scratch.slow.before = self.scratch.slow.registers;
        let cfa = self.cfa()?;
        for number in 0..reg::COUNT {
            let row = &self.scratch.cfi.row;
            let (how, value) = (*row.how.get(number)?, *row.value.get(number)?);
            let found = self.register(number, how, value, cfa)?;
            *self.scratch.slow.registers.get_mut(number)? = found;
        }
        let row = &self.scratch.cfi.row;
        let is_signal = row.is_signal;
        let registers = &mut self.scratch.slow.registers;
        if matches!(row.how[reg::RSP], How::Unset | How::Same) {
            registers[reg::RSP] = cfa;
        }
        let pc = registers[reg::RA];
        if pc >> 47 != 0 {
            return None;
        }
        let pc = if is_signal { pc | EXACT } else { pc };
        let (cfa, rbp) = (registers[reg::RSP], registers[reg::RBP]);
        self.put(at, Frame { pc, cfa, rbp, rule: Rule::END });
        Some(())
    }

    /// Fills the scratch with the row of a frame. False when no CFI covers it.
    #[inline(never)]
    fn find_row(&mut self, address: u64) -> bool {
        self.find_module(address);
        let Some(tables) = self.scratch.module.as_ref().and_then(Module::tables) else { return false };
        tables.row(address, &mut self.scratch.cfi).is_ok()
    }

    fn slow_guess(&mut self, at: usize) -> Option<()> {
        let frame = *self.frame(at);
        let found = self.epilogue(frame.pc, false);
        let rule = found.as_ref().map_or(Rule::FRAME_POINTER, Rule::by_code);
        self.scratch.unsure |= !rule.is_by_code();
        let next = self.step(&Frame { rule, ..frame })?;
        if let Some(Epilogue::Sized { saved, .. }) = found.filter(|_| rule.is_by_code()) {
            for number in 0..reg::RA {
                if let Some(offset) = saved.get(number) {
                    let value = self.proof.read(frame.cfa.wrapping_add(offset))?;
                    *self.scratch.slow.registers.get_mut(number)? = value;
                }
            }
        }
        let registers = &mut self.scratch.slow.registers;
        registers[reg::RBP] = next.rbp;
        registers[reg::RSP] = next.cfa;
        registers[reg::RA] = next.pc;
        self.put(at, next);
        Some(())
    }

    /// A register of the caller, by its rule.
    #[inline(never)]
    fn register(&mut self, number: usize, how: How, value: i64, cfa: u64) -> Option<u64> {
        let before = &self.scratch.slow.before;
        match how {
            How::Unset | How::Same => before.get(number).copied(),
            How::Undefined => Some(0),
            How::At => self.proof.read(cfa.wrapping_add(value as u64)),
            How::Is => Some(cfa.wrapping_add(value as u64)),
            How::In => before.get(value as usize).copied(),
            How::AtExpression => {
                let at = self.evaluate(value as u64, Some(cfa))?;
                self.proof.read(at)
            }
            How::IsExpression => self.evaluate(value as u64, Some(cfa)),
        }
    }

    fn cfa(&mut self) -> Option<u64> {
        let (register, value) = (self.scratch.cfi.row.cfa_register, self.scratch.cfi.row.cfa_value);
        if register == Row::EXPRESSION {
            return self.evaluate(value as u64, None);
        }
        Some(self.scratch.slow.before.get(register as usize)?.wrapping_add(value as u64))
    }

    fn evaluate(&mut self, at: u64, first: Option<u64>) -> Option<u64> {
        let Slow { before, expression: stack, .. } = &mut self.scratch.slow;
        expression::evaluate(at, before, first, stack, &mut |address| self.proof.read(address))
    }

    /// Leaves the outermost frames of a stack that is too deep in the scratch. How many frames there are to the root, and
    /// whether it was not reached.
    #[cold]
    #[inline(never)]
    fn root(&mut self, count: usize) -> (usize, bool) {
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
            // A frame that needs all registers is not followed: they would have to be found from the leaf on, each time.
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

    /// Leaves the module that holds `address` in the scratch.
    #[inline(never)]
    fn find_module(&mut self, address: u64) {
        let known = self.scratch.module.as_ref().is_some_and(|found| address >= found.start && address < found.end);
        if !known {
            self.scratch.module = self.core.find_module(address);
        }
    }

    /// The walk followed a frame pointer without CFI, so its words may be compared later only while they are known to be
    /// readable. `last` is its outermost frame, `tail` the remembered walk that took over there. False when that cannot be
    /// shown: the thread runs on a stack of the program's own making, or the frame pointer led out of the thread's stack.
    /// The program may unmap what is above such a stack while the thread runs on it.
    #[cold]
    #[inline(never)]
    fn prove_guesses(&mut self, last: usize, tail: Option<StackId>) -> bool {
        let top = self.frame(last).cfa;
        let Some(memo) = self.memo.as_deref_mut() else { return false };
        let top = tail.map_or(top, |tail| memo.top(tail).max(top));
        let end = own_stack_end(self.core, self.may_ask);
        match self.proof.own_stack(top, end) {
            Some(stack) => memo.move_guesses(stack),
            None => return false,
        }
        true
    }

    /// Puts what the walk found into the memo, numbered from `first` on. Returns how many frames at the leaf are not
    /// remembered, `None` when nothing is.
    #[inline(never)]
    pub fn remember(&mut self, found: &Found, first: StackId) -> Option<usize> {
        let Found { count, start, stop, .. } = *found;
        if stop == Stop::Lost || stop == Stop::Full {
            return None;
        }
        let (tail, mut needs, mut depth) = match stop {
            Stop::Known(tail) => (Some(tail.number), tail.needs_rbp, tail.depth),
            _ => (None, false, 0),
        };
        // The node of the terminating zero is the last one; it is no frame.
        let end = if stop == Stop::Zero { count + 1 } else { count };
        if stop == Stop::Zero
            && let Some(zero) = self.scratch.frames.get_mut(count)
        {
            zero.rule = Rule::END;
        }
        if start >= count || self.scratch.unsure && !self.prove_guesses(end - 1, tail) {
            return None;
        }
        let memo = self.memo.as_deref_mut()?;
        // Which frames' rbp matters is known only from the root down. The facts are computed in place, root first: a local
        // array would be too large for a small stack.
        for i in (start..end).rev() {
            let frame = self.scratch.frames.get_mut(i)?;
            let caller_needs = needs;
            let restored = frame.rule.is_simple() && frame.rule.rbp_slot() != 0;
            needs = match frame.rule.kind() {
                Kind::Simple if frame.rule.uses_rbp() => true,
                Kind::Simple if restored => false,
                Kind::Simple => caller_needs,
                _ => false,
            };
            if i < count {
                depth += 1;
            }
            let slot = if restored && caller_needs { frame.rule.rbp_slot() } else { 0 };
            // The rule has served; its place now holds the facts.
            let by_code = frame.rule.is_by_code() as u32;
            frame.rule = Rule(slot | by_code << 14 | (needs as u32) << 15 | (depth as u32) << 16);
        }
        let frames = &self.scratch.frames;
        let is_remembered = memo.remember(first.wrapping_add(start as u32), end - start, tail, |i| {
            // SAFETY: `Memo::remember` asks for `i < end - start`. `collect` returns a `count` of at most `MAX_FRAMES`, so
            // `end` is at most `MAX_FRAMES + 1`, the array's length.
            let frame = unsafe { frames.get_unchecked(start + i) };
            let facts = frame.rule.0;
            (
                frame.place(),
                Fact {
                    depth: (facts >> 16) as u16,
                    needs_rbp: facts & 1 << 15 != 0,
                    by_code: facts & 1 << 14 != 0,
                    caller_slot: facts & 0x7ff,
                },
            )
        });
        is_remembered.then_some(start)
    }
}

/// The upper end of the stack that the calling thread was given; 0 = not known. libc puts the thread block at the end of the
/// stack of every thread but the first, whose block is anywhere.
fn own_stack_end(core: &Core, may_ask: bool) -> u64 {
    let pointer = thread_pointer();
    let tid = match core.tid_offset.load(Ordering::Relaxed) {
        // SAFETY: inside the calling thread's own thread block: `find_tid` has found the tid of a thread at this offset of
        // its block, which is the same libc's.
        offset if offset != 0 => unsafe { ((pointer + offset as u64) as *const u32).read_volatile() },
        _ if may_ask => sys::gettid(),
        _ => return 0,
    };
    if tid == core.pid() { core.stack_top.load(Ordering::Relaxed) } else { pointer }
}

/// A frame pointer that does not lead up the stack.
fn sinks(frame: &Frame) -> bool {
    let cfa = frame.rbp.wrapping_add(frame.rule.cfa_offset());
    cfa <= frame.cfa || cfa & 7 != 0
}
