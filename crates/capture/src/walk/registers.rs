//! Steps with all callee-saved registers, for CFI rows that are not simple: signal frames, DWARF expressions, realigned
//! stacks.
//!
//! A simple walk does not keep these registers, so the steps are made again from the leaf on, with all of them.
use super::{EXACT, Frame, Walk};
use crate::cfi::{How, Row, reg};
use crate::context::Context;
use crate::epilogue::Epilogue;
use crate::expression;
use crate::rule::Rule;

/// The registers of a frame (`registers`), and those of its callee (`before`), from which they are computed.
#[repr(C)]
pub(super) struct Slow {
    registers: [u64; reg::COUNT],
    before: [u64; reg::COUNT],
    expression: expression::Stack,
}

impl Walk<'_> {
    /// Steps from the leaf to frame number `steps` and stores it in the scratch memory. Returns false if a step is not
    /// possible.
    #[cold]
    #[inline(never)]
    pub(super) fn slow(&mut self, context: &Context, steps: usize) -> bool {
        context.copy_registers(&mut self.scratch.slow.registers);
        self.put(steps, Frame::leaf(context));
        (0..steps).all(|_| self.slow_step(steps).is_some())
    }

    /// Replaces a frame in the scratch memory by its caller.
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

    /// Computes a register of the caller by its rule.
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
}
