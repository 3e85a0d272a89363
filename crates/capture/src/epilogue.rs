//! The frame of code without CFI, computed from the instructions at the return address.
//!
//! Receives: the bytes at a return address. Returns: where the caller's frame is, if these instructions are the end of
//! the function. A trampoline that a JIT compiler makes (CPython's `-X perf`) has neither CFI nor a frame pointer. But
//! the instructions after its call say all that an unwinder needs:
//!
//! ```text
//!   sub rsp, 8
//!   call rcx
//!   add rsp, 8      <- the return address; 8 bytes are popped,
//!   ret             <- then the caller's return address is on top of the stack
//! ```
//!
//! Must hold: there is no answer if an instruction is not known; nothing after the page of the return address is read.
use crate::cfi::reg;

/// How many bytes at a return address are read.
const LOOK: usize = 32;
const PAGE: u64 = 4096;
/// A larger frame is taken for a mistake.
const MOST: u64 = 64 << 10;
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// The caller's CFA is `cfa` bytes above the stack pointer.
    Sized { cfa: u64, saved: Saved },
    /// The code ends with `leave`, so the frame pointer leads to the caller.
    FramePointer,
}

/// Where callee-saved registers are, as distances from the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    at: [u32; reg::RA],
}

impl Saved {
    /// Returns the place of a register, by its DWARF number.
    pub fn get(&self, register: usize) -> Option<u64> {
        self.at.get(register).filter(|at| **at != NOWHERE).map(|at| *at as u64)
    }
}

/// The DWARF numbers of registers, in the order of their numbers in machine code.
const BY_CODE: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];

/// Decodes the code at `pc`. Returns `None` for code that goes on in the next page, which may not be readable.
///
/// # Safety
/// The byte at `pc` can be read.
pub unsafe fn at(pc: u64) -> Option<Epilogue> {
    let count = LOOK.min((PAGE - pc % PAGE) as usize);
    let mut bytes = [0; LOOK];
    for (i, byte) in bytes.iter_mut().enumerate().take(count) {
        // SAFETY: the caller promises that the byte at `pc` can be read, so its whole page can, and `count` ends with
        // that page. Volatile, because a JIT compiler may change the code meanwhile.
        *byte = unsafe { (pc as *const u8).add(i).read_volatile() };
    }
    decode(bytes.get(..count)?)
}

/// Returns true if the code at `pc` is still the end of a function whose caller's CFA is `cfa` bytes above the stack
/// pointer.
///
/// # Safety
/// The byte at `pc` can be read.
pub unsafe fn still_leads(pc: u64, cfa: u64) -> bool {
    // SAFETY: `at` asks that the byte at `pc` can be read, which the caller promises.
    matches!(unsafe { at(pc) }, Some(Epilogue::Sized { cfa: found, .. }) if found == cfa)
}

fn decode(bytes: &[u8]) -> Option<Epilogue> {
    let mut rest = bytes;
    let mut depth = 0u64;
    let mut saved = Saved { at: [NOWHERE; reg::RA] };
    loop {
        rest = match rest {
            // ret; rep ret
            [0xc3, ..] | [0xf3, 0xc3, ..] => return Some(Epilogue::Sized { cfa: depth + 8, saved }),
            // leave; ret. What was popped before does not matter.
            [0xc9, 0xc3, ..] | [0xc9, 0xf3, 0xc3, ..] => return Some(Epilogue::FramePointer),
            // add rsp, imm8
            [0x48, 0x83, 0xc4, add, rest @ ..] => {
                depth += u64::try_from(*add as i8).ok()?;
                rest
            }
            // add rsp, imm32
            [0x48, 0x81, 0xc4, a, b, c, d, rest @ ..] => {
                depth += u64::try_from(i32::from_le_bytes([*a, *b, *c, *d])).ok()?;
                rest
            }
            // pop r8 .. r15
            [0x41, code @ 0x58..=0x5f, rest @ ..] => {
                saved.put(8 + (code & 7) as usize, depth)?;
                depth += 8;
                rest
            }
            // pop rax .. rdi, not rsp
            [code @ (0x58..=0x5b | 0x5d..=0x5f), rest @ ..] => {
                saved.put(*BY_CODE.get((code & 7) as usize)? as usize, depth)?;
                depth += 8;
                rest
            }
            _ => return None,
        };
        if depth > MOST || depth & 7 != 0 {
            return None;
        }
    }
}

impl Saved {
    fn put(&mut self, register: usize, at: u64) -> Option<()> {
        *self.at.get_mut(register)? = at as u32;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(bytes: &[u8]) -> Option<(u64, Option<u64>)> {
        match decode(bytes)? {
            Epilogue::Sized { cfa, saved } => Some((cfa, saved.get(reg::RBP))),
            Epilogue::FramePointer => None,
        }
    }

    #[test]
    fn the_trampolines_of_cpython() {
        // 3.12: add rsp, 8; ret
        assert_eq!(sized(&[0x48, 0x83, 0xc4, 0x08, 0xc3]), Some((16, None)));
        // Later ones: pop rbp; ret
        assert_eq!(sized(&[0x5d, 0xc3]), Some((16, Some(0))));
    }

    #[test]
    fn what_compilers_do_at_the_end() {
        assert_eq!(sized(&[0xc3]), Some((8, None)));
        assert_eq!(sized(&[0xf3, 0xc3]), Some((8, None)));
        // add rsp, 0x118; pop rbx; pop rbp; pop r12; pop r15; ret
        let long = [0x48, 0x81, 0xc4, 0x18, 1, 0, 0, 0x5b, 0x5d, 0x41, 0x5c, 0x41, 0x5f, 0xc3];
        let Some(Epilogue::Sized { cfa, saved }) = decode(&long) else { panic!("not decoded") };
        assert_eq!(cfa, 0x118 + 32 + 8);
        let at = |register| saved.get(register);
        assert_eq!((at(reg::RBX), at(reg::RBP), at(12), at(15)), (Some(0x118), Some(0x120), Some(0x128), Some(0x130)));
        assert_eq!((at(13), at(14)), (None, None));
        assert_eq!(decode(&[0xc9, 0xc3]), Some(Epilogue::FramePointer));
        assert_eq!(decode(&[0x48, 0x83, 0xc4, 0x08, 0xc9, 0xc3]), Some(Epilogue::FramePointer));
    }

    #[test]
    fn what_is_not_an_end_is_no_answer() {
        let cases: [&[u8]; 10] = [
            &[],
            &[0x48, 0x83, 0xc4],
            // cut before the return
            &[0x48, 0x83, 0xc4, 0x08],
            // sub rsp, 8 written as add rsp, -8
            &[0x48, 0x83, 0xc4, 0xf8, 0xc3],
            &[0x48, 0x81, 0xc4, 0, 0, 0, 0x80, 0xc3],
            // not a multiple of 8
            &[0x48, 0x83, 0xc4, 0x04, 0xc3],
            // too large
            &[0x48, 0x81, 0xc4, 0, 0, 2, 0, 0xc3],
            // pop rsp
            &[0x5c, 0xc3],
            // mov rax, rbx; ret
            &[0x48, 0x89, 0xd8, 0xc3],
            &[0xc9, 0x90],
        ];
        for bytes in cases {
            assert_eq!(decode(bytes), None, "{bytes:x?}");
        }
    }
}
