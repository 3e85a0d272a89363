//! DWARF expressions, as far as unwind tables use them: in signal frames, PLT stubs and realigned stacks.
//!
//! Receives: the address of an expression, which begins with its length, the registers, and a function that reads the
//! target's memory or returns `None`. Returns: the value of the expression. Must hold: at most sixteen stack entries, a
//! bounded number of steps, no panic.
use crate::cfi::{Bytes, reg};

const STACK: usize = 16;
const STEPS: usize = 256;

/// Working memory. The caller has it, because it is too large for a small stack.
#[repr(C)]
pub struct Stack {
    values: [u64; STACK],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }
    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }
    fn peek(&self, from_top: usize) -> Option<u64> {
        self.values.get(self.len.checked_sub(1)?.checked_sub(from_top)?).copied()
    }
}

/// Evaluates an expression. `first` is on the stack at the start, if there is one: for register rules it is the CFA.
pub fn evaluate(
    expression: u64,
    registers: &[u64; reg::COUNT],
    first: Option<u64>,
    stack: &mut Stack,
    read: &mut dyn FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    let mut head = Bytes { at: expression, end: expression.checked_add(10)? };
    let length = head.uleb()?;
    if length > 4096 {
        return None;
    }
    let start = head.at;
    let end = start.checked_add(length)?;
    let mut bytes = Bytes { at: start, end };
    stack.len = 0;
    if let Some(value) = first {
        stack.push(value)?;
    }
    for _ in 0..STEPS {
        if bytes.at == end {
            return stack.pop();
        }
        let op = bytes.u8()?;
        match op {
            0x2f => {
                let to = bytes.u16()? as i16;
                bytes.at = jump(bytes.at, to, start, end)?;
            }
            0x28 => {
                let to = bytes.u16()? as i16;
                if stack.pop()? != 0 {
                    bytes.at = jump(bytes.at, to, start, end)?;
                }
            }
            0x06 => {
                let address = stack.pop()?;
                stack.push(read(address)?)?;
            }
            0x03..=0x11 | 0x30..=0x4f | 0x70..=0x8f | 0x92 => push_value(op, &mut bytes, stack, registers)?,
            0x12..=0x16 => shuffle(op, &mut bytes, stack)?,
            _ => arithmetic(op, &mut bytes, stack)?,
        }
    }
    None
}

fn jump(at: u64, by: i16, start: u64, end: u64) -> Option<u64> {
    let to = at.wrapping_add(by as u64);
    (to >= start && to <= end).then_some(to)
}

fn push_value(op: u8, bytes: &mut Bytes, stack: &mut Stack, registers: &[u64; reg::COUNT]) -> Option<()> {
    let value = match op {
        0x03 | 0x0e | 0x0f => bytes.u64()?,
        0x08 => bytes.u8()? as u64,
        0x09 => bytes.u8()? as i8 as u64,
        0x0a => bytes.u16()? as u64,
        0x0b => bytes.u16()? as i16 as u64,
        0x0c => bytes.u32()? as u64,
        0x0d => bytes.u32()? as i32 as u64,
        0x10 => bytes.uleb()?,
        0x11 => bytes.sleb()? as u64,
        0x30..=0x4f => (op - 0x30) as u64,
        0x70..=0x8f => {
            let offset = bytes.sleb()?;
            registers.get((op - 0x70) as usize)?.wrapping_add(offset as u64)
        }
        0x92 => {
            let register = bytes.uleb()?;
            let offset = bytes.sleb()?;
            registers.get(register as usize)?.wrapping_add(offset as u64)
        }
        _ => return None,
    };
    stack.push(value)
}

fn shuffle(op: u8, bytes: &mut Bytes, stack: &mut Stack) -> Option<()> {
    match op {
        0x12 => stack.push(stack.peek(0)?),
        0x13 => stack.pop().map(|_| ()),
        0x14 => stack.push(stack.peek(1)?),
        0x15 => {
            let n = bytes.u8()? as usize;
            stack.push(stack.peek(n)?)
        }
        _ => {
            let (a, b) = (stack.pop()?, stack.pop()?);
            stack.push(a)?;
            stack.push(b)
        }
    }
}

fn arithmetic(op: u8, bytes: &mut Bytes, stack: &mut Stack) -> Option<()> {
    match op {
        0x19 => {
            let a = stack.pop()?;
            return stack.push((a as i64).unsigned_abs());
        }
        0x1f => {
            let a = stack.pop()?;
            return stack.push(a.wrapping_neg());
        }
        0x20 => {
            let a = stack.pop()?;
            return stack.push(!a);
        }
        0x23 => {
            let a = stack.pop()?;
            let n = bytes.uleb()?;
            return stack.push(a.wrapping_add(n));
        }
        0x96 => return Some(()),
        _ => {}
    }
    let (b, a) = (stack.pop()?, stack.pop()?);
    let (sb, sa) = (b as i64, a as i64);
    stack.push(match op {
        0x1a => a & b,
        0x1c => a.wrapping_sub(b),
        0x1e => a.wrapping_mul(b),
        0x21 => a | b,
        0x22 => a.wrapping_add(b),
        // A shift by 64 bits or more leaves zero, or the sign.
        0x24 if b > 63 => 0,
        0x24 => a << b,
        0x25 if b > 63 => 0,
        0x25 => a >> b,
        0x26 => (sa >> b.min(63)) as u64,
        0x27 => a ^ b,
        0x29 => (sa == sb) as u64,
        0x2a => (sa >= sb) as u64,
        0x2b => (sa > sb) as u64,
        0x2c => (sa <= sb) as u64,
        0x2d => (sa < sb) as u64,
        0x2e => (sa != sb) as u64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(bytes: &[u8]) -> Option<u64> {
        let mut stack = Stack { values: [0; STACK], len: 0 };
        evaluate(bytes.as_ptr() as u64, &[0; reg::COUNT], None, &mut stack, &mut |_| None)
    }

    /// The first byte is the length. 0x31 and 0x32 push 1 and 2, 0x15 is DW_OP_pick.
    #[test]
    fn what_is_picked_must_be_on_the_stack() {
        assert_eq!(value_of(&[3, 0x31, 0x15, 0]), Some(1));
        assert_eq!(value_of(&[4, 0x31, 0x32, 0x15, 1]), Some(1));
        assert_eq!(value_of(&[4, 0x31, 0x32, 0x15, 2]), None);
        assert_eq!(value_of(&[3, 0x31, 0x15, 255]), None);
    }

    /// A bug that `fuzz/targets/cfi.rs` found: only the lower half of the shift count was used.
    #[test]
    fn a_shift_by_any_number_of_bits_is_as_dwarf_has_it() {
        let shifted = |value: i8, by: u64, op: u8| {
            let mut bytes = [12, 0x09, value as u8, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, op];
            bytes[4..12].copy_from_slice(&by.to_le_bytes());
            value_of(&bytes)
        };
        let [shl, shr, shra] = [0x24, 0x25, 0x26];
        for by in [64, 1 << 32, u64::MAX] {
            assert_eq!((shifted(1, by, shl), shifted(-1, by, shr)), (Some(0), Some(0)), "{by}");
            assert_eq!((shifted(-5, by, shra), shifted(5, by, shra)), (Some(u64::MAX), Some(0)), "{by}");
        }
        assert_eq!((shifted(1, 63, shl), shifted(-1, 63, shr)), (Some(1 << 63), Some(1)));
        assert_eq!(shifted(-4, 1, shra), Some(-2i64 as u64));
    }
}
