//! Moving the first instructions of a function elsewhere, so that a jump can take their place.
//!
//! Receives: the bytes of a function. Returns: where to write the jump, and code that does what the displaced
//! instructions did and then continues after them. Must hold: code that is not understood is refused. For a thread
//! anywhere in the displaced instructions, there is an equivalent address in the moved ones.
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionBlock,
};

/// `jmp rel32`
pub const JUMP: usize = 5;
/// The most bytes of moved code.
pub const MOST_MOVED: usize = 96;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PAGE: u64 = 4096;

/// The instructions that a jump displaces.
#[derive(Clone, Debug)]
pub struct Site {
    /// Where the jump is written. If the function begins with an `endbr64`, that is after it.
    pub at: u64,
    /// The length of the displaced instructions, at least that of a jump.
    pub length: u64,
    instructions: Vec<Instruction>,
    pub original: [u8; JUMP],
}

/// The moved code.
#[derive(Clone, Debug)]
pub struct Moved {
    pub code: Vec<u8>,
    /// For each instruction, its offset from the jump and its offset in the moved code.
    pub places: Vec<(u64, u64)>,
}

impl Site {
    /// Finds the instructions to displace. `bytes` begin at the function's start. `size` is the size of the function,
    /// or 0 if it is unknown.
    pub fn find(start: u64, bytes: &[u8], size: u64) -> Result<Site, &'static str> {
        let skip = if bytes.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
        let at = start + skip as u64;
        let body = bytes.get(skip..).unwrap_or_default();
        let original: [u8; JUMP] = body.get(..JUMP).and_then(|b| b.try_into().ok()).ok_or("it is too short")?;
        if at / PAGE != (at + JUMP as u64 - 1) / PAGE {
            return Err("its first instructions lie on two pages");
        }
        let mut decoder = Decoder::with_ip(64, body, at, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        let mut length = 0;
        let mut over = false;
        while length < JUMP {
            if over {
                // After a function's last instruction there may be another function.
                let padding = body.get(length..JUMP).unwrap_or_default();
                if !is_padding(padding) {
                    return Err("it is too short");
                }
                length = JUMP;
                break;
            }
            let instruction = decoder.decode();
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => (),
                FlowControl::UnconditionalBranch | FlowControl::Return | FlowControl::IndirectBranch => over = true,
                _ => return Err("it begins with a call"),
            }
            if instruction.is_invalid() || matches!(instruction.code(), Code::Xbegin_rel32 | Code::Xbegin_rel16) {
                return Err("its first instructions are not understood");
            }
            length += instruction.len();
            instructions.push(instruction);
        }
        let site = Site { at, length: length as u64, instructions, original };
        let end = if size == 0 { bytes.len() } else { (size as usize).min(bytes.len()) };
        site.check_branches(start, bytes.get(..end).unwrap_or_default())?;
        Ok(site)
    }

    /// Refuses a function that jumps into the middle of the displaced instructions.
    fn check_branches(&self, start: u64, function: &[u8]) -> Result<(), &'static str> {
        let inner = self.at + 1..self.at + self.length;
        for instruction in Decoder::with_ip(64, function, start, DecoderOptions::NONE).iter() {
            if instruction.near_branch_target() != 0 && inner.contains(&instruction.near_branch_target()) {
                return Err("it jumps into its own first instructions");
            }
        }
        Ok(())
    }

    /// Returns true if the function is only a return, with padding after it.
    pub fn is_empty_function(&self) -> bool {
        let first = self.instructions.first();
        self.instructions.len() == 1 && first.is_some_and(|first| first.flow_control() == FlowControl::Return)
    }

    /// Encodes the displaced instructions for the address `to`, followed by a jump back to the rest of the function.
    pub fn moved(&self, to: u64) -> Result<Moved, &'static str> {
        let mut instructions = self.instructions.clone();
        let back = Instruction::with_branch(Code::Jmp_rel32_64, self.at + self.length);
        instructions.push(back.map_err(|_| "its first instructions cannot be moved")?);
        let block = InstructionBlock::new(&instructions, to);
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let encoded = BlockEncoder::encode(64, block, options).map_err(|_| "its first instructions cannot be moved")?;
        if encoded.code_buffer.len() > MOST_MOVED {
            return Err("its first instructions cannot be moved");
        }
        let mut places = Vec::new();
        for (instruction, offset) in self.instructions.iter().zip(&encoded.new_instruction_offsets) {
            // If an instruction was rewritten into several, its place is the first of them. A thread in the original
            // code can only be at the start of an instruction.
            places.push((instruction.ip() - self.at, u64::from(*offset)));
        }
        Ok(Moved { code: encoded.code_buffer, places })
    }

    /// Encodes the jump to `to`. Returns `None` if that is too far away.
    pub fn jump(&self, to: u64) -> Option<[u8; JUMP]> {
        let distance = i32::try_from(to.wrapping_sub(self.at + JUMP as u64) as i64).ok()?;
        let mut bytes = [0xe9, 0, 0, 0, 0];
        bytes.get_mut(1..)?.copy_from_slice(&distance.to_le_bytes());
        Some(bytes)
    }
}

/// Returns true for what compilers put between functions: nops of all lengths, int3, zeros.
fn is_padding(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, 0x66 | 0x2e | 0x0f | 0x1f | 0x84 | 0x44 | 0x40 | 0x80 | 0x90 | 0xcc | 0x00))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x10_0000;

    #[test]
    fn a_prologue_is_moved() {
        // endbr64; push rbx; mov rbx, rdi; mov rax, [rip + 0x100]; ret
        let bytes = b"\xf3\x0f\x1e\xfa\x53\x48\x89\xfb\x48\x8b\x05\x00\x01\x00\x00\xc3";
        let site = Site::find(AT, bytes, bytes.len() as u64).unwrap();
        assert_eq!((site.at, site.length), (AT + 4, 11));
        let to = AT + 0x20_0000;
        let moved = site.moved(to).unwrap();
        assert_eq!(moved.places, [(0, 0), (1, 1), (4, 4)]);
        // The moved instruction still refers to the same data.
        let target = AT + 15 + 0x100;
        let distance = i32::from_le_bytes(moved.code[7..11].try_into().unwrap());
        assert_eq!((to + 11).wrapping_add_signed(distance as i64), target);
        assert_eq!(moved.code[11], 0xe9);
        assert_eq!(site.jump(to).unwrap()[0], 0xe9);
        assert_eq!(site.jump(to + (1 << 40)), None);
    }

    #[test]
    fn what_cannot_be_moved_is_refused() {
        let find = |bytes: &[u8]| Site::find(AT, bytes, bytes.len() as u64).map(|site| site.length);
        assert_eq!(find(b"\xe8\x00\x00\x00\x00\xc3"), Err("it begins with a call"));
        assert_eq!(find(b"\xc3\x53\x48\x89\xfb\x90"), Err("it is too short"));
        assert_eq!(find(b"\xc3\x66\x0f\x1f\x44\x00"), Ok(5), "a return and padding");
        assert_eq!(find(b"\xe9\x00\x10\x00\x00"), Ok(5), "a jump");
        // push rbx; four nops; dec edi; jnz to the last nop; ret
        assert_eq!(find(b"\x53\x90\x90\x90\x90\xff\xcf\x75\xfb\xc3"), Err("it jumps into its own first instructions"));
        assert_eq!(
            Site::find(AT + PAGE - 2, b"\x90\x90\x90\x90\x90\xc3", 6).unwrap_err(),
            "its first instructions lie on two pages"
        );
    }
}
