//! The stack walk: from a hook's context to the id of the stack.
//!
//! Fast first: the leaf in the memo. Else step by step with cached rules until a frame is known, ends the stack, or
//! cannot be stepped. Frames are collected in the thread's scratch memory, interned root first, then remembered.
//! Rows that are not simple are evaluated with all callee-saved registers, from the leaf again, and not remembered.
use crate::cfi::{self, How, Row, reg};
use crate::context::Context;
use crate::core::Core;
use crate::expression;
use crate::memo::{Fact, Memo, Place};
use crate::modules::Found;
use crate::probe::Probe;
use crate::rule::{Kind, Rule};
use channel::{FrameKey, Loss, StackId};

/// The most frames that a stack keeps. Deeper ones lose their middle, see `ROOT_FRAMES`.
pub const MAX_FRAMES: usize = crate::memo::SEGMENT - 1;
/// How many of the outermost frames a cut stack keeps.
const ROOT_FRAMES: usize = 64;
/// How far a walk goes on, only to find the root of a cut stack.
const MAX_STEPS: usize = 1 << 20;

/// One frame of the walk in progress.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    /// The return address, or, with `EXACT`, the interrupted instruction.
    pc: u64,
    cfa: u64,
    rbp: u64,
    rule: Rule,
    id: StackId,
}

const EXACT: u64 = 1 << 63;

impl Frame {
    fn pc(&self) -> u64 {
        self.pc & !EXACT
    }
    fn is_exact(&self) -> bool {
        self.pc & EXACT != 0
    }
    /// An address inside the instruction that is active in this frame: a call is before its return address.
    fn inside(&self) -> u64 {
        if self.is_exact() { self.pc() } else { self.pc().wrapping_sub(1) }
    }
    /// The rule cache's key: one above `inside`, so that a return address is its own key.
    fn key(&self) -> u64 {
        self.inside().wrapping_add(1)
    }
    fn place(&self) -> Place {
        Place { pc: self.pc(), cfa: self.cfa, rbp: self.rbp }
    }
}

/// Working memory of walks; one for hooks, one for hooks inside hooks.
#[repr(C)]
pub struct Scratch {
    frames: [Frame; MAX_FRAMES + 1],
    root: Root,
    cfi: cfi::Scratch,
}

/// The outermost frames of the last cut stack: walking there again takes long, comparing them does not.
#[repr(C)]
struct Root {
    frames: [Frame; ROOT_FRAMES],
    /// How many frames went by; the last ones are in `frames`, round and round. 0 = nothing is known.
    seen: usize,
    /// The stack of these frames and the marker.
    id: StackId,
    generation: u32,
}

impl Root {
    /// True when all frames stand where they stood, above `cfa`.
    fn still_holds(&self, cfa: u64, generation: u32) -> bool {
        self.seen > ROOT_FRAMES
            && self.generation == generation
            && self.frames.iter().all(|frame| {
                // SAFETY: above a frame of this very stack, in words that an earlier walk has read; the stack of a
                // running thread does not shrink at its root.
                frame.cfa > cfa && unsafe { ((frame.cfa - 8) as *const u64).read() } == frame.pc()
            })
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

/// A walk by one hook.
pub struct Walk<'a> {
    pub core: &'a Core,
    pub scratch: &'a mut Scratch,
    pub probe: &'a mut Probe,
    /// Absent in a hook that interrupted another one of the same thread.
    pub memo: Option<&'a mut Memo>,
    pub may_ask: bool,
    /// The module found last: callers are mostly in the same one.
    pub module: Option<Found>,
}

impl Walk<'_> {
    /// The id of the stack of `context`. `differs`: what the memo said about the leaf.
    #[cold]
    #[inline(never)]
    pub fn run(&mut self, context: &Context, differs: u64) -> StackId {
        self.probe.start(context.cfa());
        let (count, start, stop) = self.collect(context, differs);
        let mut parent = match stop {
            Stop::Known(tail) => tail.id,
            Stop::Full => match self.root(count) {
                Some(id) => id,
                None => return 0,
            },
            _ => 0,
        };
        for i in (0..count).rev() {
            let Some(&frame) = self.scratch.frames.get(i) else { return 0 };
            match self.intern(parent, &frame) {
                Some(id) => parent = id,
                None => return 0,
            }
            if let Some(place) = self.scratch.frames.get_mut(i) {
                place.id = parent;
            }
        }
        if stop != Stop::Lost && stop != Stop::Full {
            self.remember(count, start, stop);
        }
        parent
    }

    /// Fills the scratch. How many frames, the first one that may be remembered, why it stopped.
    fn collect(&mut self, context: &Context, differs: u64) -> (usize, usize, Stop) {
        let mut frame = Frame { pc: context.ret, cfa: context.cfa(), rbp: context.rbp, rule: Rule::END, id: 0 };
        let mut skip_to = differs;
        let (mut count, mut start) = (0, 0);
        loop {
            if count != 0 && frame.cfa > skip_to {
                match self.known(&frame, count) {
                    Ok(tail) => return (count, start, Stop::Known(tail)),
                    Err(at) => skip_to = skip_to.max(at),
                }
            }
            frame.rule = self.rule(&frame);
            let Some(place) = self.scratch.frames.get_mut(count) else { return (MAX_FRAMES, start, Stop::Full) };
            *place = frame;
            if count == MAX_FRAMES {
                return (MAX_FRAMES, start, Stop::Full);
            }
            count += 1;
            let next = match frame.rule.kind() {
                Kind::End => return (count, start, Stop::End),
                Kind::Simple => self.step(&frame),
                Kind::Complex => {
                    let next = self.slow(context, count);
                    start = count + next.is_some_and(|n| n.is_exact()) as usize;
                    next
                }
            };
            match next {
                Some(next) if next.pc() != 0 => frame = next,
                Some(next) => return self.at_zero(count, start, next),
                // A frame pointer that points nowhere ends the stack, as a pure function of its value.
                None if frame.rule.is_guess() && sinks(&frame) => return (count, start, Stop::End),
                None => return (count, start, Stop::Lost),
            }
        }
    }

    /// The stack ends at a zero: the word that says so must be remembered too.
    fn at_zero(&mut self, count: usize, start: usize, zero: Frame) -> (usize, usize, Stop) {
        match self.scratch.frames.get_mut(count) {
            Some(place) => {
                *place = Frame { rule: Rule::END, ..zero };
                (count, start, Stop::Zero)
            }
            None => (count, start, Stop::Lost),
        }
    }

    fn known(&mut self, frame: &Frame, count: usize) -> Result<crate::memo::Tail, u64> {
        if frame.is_exact() {
            return Err(0);
        }
        let Some(memo) = self.memo.as_deref_mut() else { return Err(0) };
        // SAFETY: the walk has just found this frame on the stack of its own thread.
        unsafe { memo.find(frame.place(), MAX_FRAMES - count) }
    }

    #[inline(always)]
    fn rule(&mut self, frame: &Frame) -> Rule {
        match self.core.rules().get(frame.key()) {
            Some(rule) => rule,
            None => self.compile(frame),
        }
    }

    #[cold]
    #[inline(never)]
    fn compile(&mut self, frame: &Frame) -> Rule {
        let rule = match self.module(frame.inside()).and_then(|found| found.tables()) {
            None => Rule::FRAME_POINTER,
            Some(tables) => match tables.row(frame.inside(), &mut self.scratch.cfi) {
                Ok(()) => Rule::compile(&self.scratch.cfi.row),
                Err(_) => Rule::FRAME_POINTER,
            },
        };
        if rule.is_guess() {
            self.core.note_guess();
        }
        self.core.rules().put(frame.key(), rule);
        rule
    }

    /// One simple step up.
    #[inline(always)]
    fn step(&mut self, frame: &Frame) -> Option<Frame> {
        let base = if frame.rule.from_rbp() { frame.rbp } else { frame.cfa };
        let cfa = base.wrapping_add(frame.rule.cfa_offset());
        // Callers are above; a misaligned or sinking frame is a broken one.
        if cfa <= frame.cfa || cfa & 7 != 0 || !self.probe.is_readable(cfa - 8, self.may_ask) {
            return None;
        }
        let slot = frame.rule.rbp_slot() as u64;
        // SAFETY: probed; what is below it down to the walk's start was probed before.
        let pc = unsafe { ((cfa - 8) as *const u64).read() };
        let rbp = if slot == 0 {
            frame.rbp
        } else {
            let at = cfa - 8 * slot;
            if at < frame.cfa.wrapping_sub(8) {
                return None;
            }
            // SAFETY: between the frame and its CFA, see above.
            unsafe { (at as *const u64).read() }
        };
        if pc >> 47 != 0 {
            return None;
        }
        Some(Frame { pc, cfa, rbp, rule: Rule::END, id: 0 })
    }

    /// The frame above the `steps`-th, reached from the leaf with all registers.
    #[cold]
    fn slow(&mut self, context: &Context, steps: usize) -> Option<Frame> {
        let mut registers = context.registers();
        let mut frame = Frame { pc: context.ret, cfa: context.cfa(), rbp: context.rbp, rule: Rule::END, id: 0 };
        for _ in 0..steps {
            frame = self.slow_step(&frame, &mut registers)?;
        }
        Some(frame)
    }

    fn slow_step(&mut self, frame: &Frame, registers: &mut [u64; reg::COUNT]) -> Option<Frame> {
        let tables = self.module(frame.inside()).and_then(|found| found.tables());
        let covered = match tables {
            Some(tables) => tables.row(frame.inside(), &mut self.scratch.cfi).is_ok(),
            None => false,
        };
        if !covered {
            let next = self.step(&Frame { rule: Rule::FRAME_POINTER, ..*frame })?;
            registers[reg::RBP] = next.rbp;
            registers[reg::RSP] = next.cfa;
            registers[reg::RA] = next.pc;
            return Some(next);
        }
        let row = self.scratch.cfi.row;
        let cfa = self.cfa(&row, registers)?;
        let before = *registers;
        for number in 0..reg::COUNT {
            let (how, value) = (*row.how.get(number)?, *row.value.get(number)?);
            let found = match how {
                How::Unset | How::Same => *before.get(number)?,
                How::Undefined => 0,
                How::At => self.read(cfa.wrapping_add(value as u64))?,
                How::Is => cfa.wrapping_add(value as u64),
                How::In => *before.get(value as usize)?,
                How::AtExpression => {
                    let at = self.evaluate(value as u64, &before, Some(cfa))?;
                    self.read(at)?
                }
                How::IsExpression => self.evaluate(value as u64, &before, Some(cfa))?,
            };
            *registers.get_mut(number)? = found;
        }
        if matches!(row.how[reg::RSP], How::Unset | How::Same) {
            registers[reg::RSP] = cfa;
        }
        let pc = registers[reg::RA];
        if pc >> 47 != 0 {
            return None;
        }
        if row.is_signal {
            // The interrupted code may be on another stack (sigaltstack): the probe follows it.
            self.probe.start(registers[reg::RSP]);
        }
        Some(Frame {
            pc: if row.is_signal { pc | EXACT } else { pc },
            cfa: registers[reg::RSP],
            rbp: registers[reg::RBP],
            rule: Rule::END,
            id: 0,
        })
    }

    fn cfa(&mut self, row: &Row, registers: &[u64; reg::COUNT]) -> Option<u64> {
        if row.cfa_register == Row::EXPRESSION {
            return self.evaluate(row.cfa_value as u64, registers, None);
        }
        Some(registers.get(row.cfa_register as usize)?.wrapping_add(row.cfa_value as u64))
    }

    fn evaluate(&mut self, at: u64, registers: &[u64; reg::COUNT], first: Option<u64>) -> Option<u64> {
        let may_ask = self.may_ask;
        expression::evaluate(at, registers, first, &mut |address| read_anywhere(address, may_ask))
    }

    fn read(&mut self, address: u64) -> Option<u64> {
        if address & 7 == 0 && self.probe.is_readable(address, false) {
            // SAFETY: known to be readable.
            return Some(unsafe { (address as *const u64).read() });
        }
        read_anywhere(address, self.may_ask)
    }

    /// The outermost frames of a stack that is too deep, with a marker above them: the id to hang the rest on.
    #[cold]
    fn root(&mut self, count: usize) -> Option<StackId> {
        let mut frame = *self.scratch.frames.get(count)?;
        let generation = self.core.modules().generation();
        if self.probe.is_readable(frame.cfa, self.may_ask) && self.scratch.root.still_holds(frame.cfa, generation) {
            return Some(self.scratch.root.id);
        }
        let mut seen = 0usize;
        for _ in 0..MAX_STEPS {
            frame.rule = self.rule(&frame);
            *self.scratch.root.frames.get_mut(seen % ROOT_FRAMES)? = frame;
            seen += 1;
            if !frame.rule.is_simple() {
                break;
            }
            match self.step(&frame) {
                Some(next) if next.pc() != 0 => frame = next,
                _ => break,
            }
        }
        let mut parent = 0;
        for i in 0..seen.min(ROOT_FRAMES) {
            let frame = *self.scratch.root.frames.get((seen - 1 - i) % ROOT_FRAMES)?;
            parent = self.intern(parent, &frame)?;
        }
        if seen > ROOT_FRAMES {
            parent = self.intern_key(parent, FrameKey::CUT)?;
        }
        let root = &mut self.scratch.root;
        (root.seen, root.id, root.generation) = (seen, parent, generation);
        Some(parent)
    }

    fn module(&mut self, address: u64) -> Option<Found> {
        match self.module {
            Some(found) if address >= found.start && address < found.end => Some(found),
            _ => {
                self.module = self.core.find_module(address);
                self.module
            }
        }
    }

    fn intern(&mut self, parent: StackId, frame: &Frame) -> Option<StackId> {
        let key = match self.module(frame.inside()) {
            Some(found) => FrameKey::new(found.instance, frame.pc().wrapping_sub(found.bias), frame.is_exact()),
            None => FrameKey::new(0, frame.pc(), frame.is_exact()),
        };
        self.intern_key(parent, key)
    }

    fn intern_key(&mut self, parent: StackId, key: FrameKey) -> Option<StackId> {
        match self.core.tree().intern(parent, key) {
            Ok(id) => Some(id),
            Err(_) => {
                self.core.lose(Loss::TreeFull);
                None
            }
        }
    }

    /// Puts the new frames `[start, count)` into the memo.
    fn remember(&mut self, count: usize, start: usize, stop: Stop) {
        let Some(memo) = self.memo.as_deref_mut() else { return };
        let frames = &self.scratch.frames;
        let (tail, mut needs, mut depth) = match stop {
            Stop::Known(tail) => (Some(tail.number), tail.needs_rbp, tail.depth),
            _ => (None, false, 0),
        };
        // The node of the terminating zero is the last one; it is no frame.
        let end = if stop == Stop::Zero { count + 1 } else { count };
        if start >= count || start >= frames.len() {
            return;
        }
        // Which frames' rbp matters is known only from the root down; a bit per frame, in `id`'s neighbour: a local
        // array would be too large for a small stack, so the facts are computed in place, root first.
        for i in (start..end).rev() {
            let Some(frame) = self.scratch.frames.get_mut(i) else { return };
            let caller_needs = needs;
            let restored = frame.rule.is_simple() && frame.rule.rbp_slot() != 0;
            needs = match frame.rule.kind() {
                Kind::Simple if frame.rule.from_rbp() => true,
                Kind::Simple if restored => false,
                Kind::Simple => caller_needs,
                _ => false,
            };
            if i < count {
                depth += 1;
            }
            let slot = if restored && caller_needs { frame.rule.rbp_slot() } else { 0 };
            // The rule has served; its place now holds the facts.
            frame.rule = Rule(slot | (needs as u32) << 15 | (depth as u32) << 16);
        }
        let frames = &self.scratch.frames;
        memo.remember(end - start, tail, |i| {
            // SAFETY: `start + i < end`, which is at most the array's length.
            let frame = unsafe { frames.get_unchecked(start + i) };
            let facts = frame.rule.0;
            (
                frame.place(),
                Fact {
                    id: frame.id,
                    depth: (facts >> 16) as u16,
                    needs_rbp: facts & 1 << 15 != 0,
                    caller_slot: facts & 0x7ff,
                },
            )
        });
    }
}

/// A frame pointer that does not lead up the stack.
fn sinks(frame: &Frame) -> bool {
    let cfa = frame.rbp.wrapping_add(frame.rule.cfa_offset());
    cfa <= frame.cfa || cfa & 7 != 0
}

fn read_anywhere(address: u64, may_ask: bool) -> Option<u64> {
    if !may_ask || address & 7 != 0 || !crate::sys::is_readable(address as usize) {
        return None;
    }
    // SAFETY: the kernel has just read it for us.
    Some(unsafe { (address as *const u64).read() })
}
