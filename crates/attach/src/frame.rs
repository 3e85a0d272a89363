//! A signal frame that describes a stopped thread.
//!
//! A thread that makes a system call for the profiler has such a frame on its stack. If the profiler dies during the
//! call, or cannot stop the thread afterwards, the thread returns from the call into `sigreturn` (see `Back`) and
//! continues as if a signal handler had returned. Otherwise the profiler restores the registers itself, and the frame
//! is not used.
//!
//! ```text
//! at ->  restorer | ucontext (304) | siginfo (128) | .. to 64 .. | xsave area | magic
//! ```
use libc::user_regs_struct;

/// The registers and the signal mask of a thread, as a signal frame needs them.
#[derive(Clone, Debug)]
pub struct State {
    pub registers: user_regs_struct,
    pub mask: u64,
    /// The vector registers, as PTRACE_GETREGSET returns them.
    pub extended: Vec<u8>,
}

const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// The offsets in an xsave area of the kernel's own fields, and of the bits of the components in use.
const NOTES: usize = 464;
const IN_USE: usize = 512;
/// The size of the legacy area and the header.
const SMALLEST: usize = 576;
/// The offset of the saved instruction pointer in a frame.
#[cfg(test)]
pub const RIP: u64 = 8 + 40 + 16 * 8;
/// The size of a frame's fixed part, with the words before it that lead to `sigreturn`, and the padding for alignment.
const FIXED: u64 = 640;

/// The most bytes that a frame takes, for a thread with this many bytes of vector registers. The kernel returns all of
/// them (11 KB with AMX), and a frame holds no more than that.
pub const fn room(extended: usize) -> u64 {
    (FIXED + extended as u64).next_multiple_of(64)
}

impl State {
    /// Returns the registers with which the thread can continue by itself. They restart an interrupted system call,
    /// because the kernel does not do that for a thread that returns from a signal handler.
    fn restarted(&self) -> user_regs_struct {
        const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
        let mut registers = self.registers;
        if registers.orig_rax as i64 >= 0 && RESTARTS.contains(&(registers.rax as i64)) && registers.rax as i64 != -515
        {
            registers.rax = registers.orig_rax;
            registers.rip -= 2;
        }
        registers
    }

    /// Makes the frame's bytes for the address `at`, a multiple of 16.
    pub fn frame(&self, at: u64, restorer: u64) -> Vec<u8> {
        let r = self.restarted();
        let area_at = (at + 440).next_multiple_of(64);
        let segments = r.cs & 0xffff | (r.ss & 0xffff) << 48;
        let flags =
            UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | if self.extended.len() >= SMALLEST { UC_FP_XSTATE } else { 0 };
        let fpstate = if self.extended.is_empty() { 0 } else { area_at };
        let words = [
            restorer, flags, 0, 0, 0, 0, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp,
            r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags, segments, 0, 0, self.mask, 0, fpstate, 0, 0, 0, 0, 0,
            0, 0, 0, self.mask,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize((area_at - at) as usize, 0);
        bytes.extend(self.area());
        bytes
    }

    /// Makes the xsave area that `sigreturn` expects, with its size, and with a magic number at its end. A state that
    /// is too short for an xsave header is returned as it is.
    fn area(&self) -> Vec<u8> {
        let number = |at: usize| {
            let word = self.extended.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        if self.extended.len() < SMALLEST {
            return self.extended.clone();
        }
        let features = number(NOTES);
        let size = size_of_components(number(IN_USE), end_of_component).min(self.extended.len());
        let mut area = self.extended.get(..size).unwrap_or_default().to_vec();
        let mut notes = Vec::new();
        notes.extend(FP_XSTATE_MAGIC1.to_le_bytes());
        notes.extend((size as u32 + 4).to_le_bytes());
        notes.extend(features.to_le_bytes());
        notes.extend((size as u32).to_le_bytes());
        notes.resize(SMALLEST - 64 - NOTES, 0);
        area.splice(NOTES..NOTES + notes.len(), notes);
        area.extend(FP_XSTATE_MAGIC2.to_le_bytes());
        area
    }
}

/// Returns the size up to the end of the last component in use, in the standard format. `end` returns where a component
/// ends.
fn size_of_components(in_use: u64, end: impl Fn(u32) -> usize) -> usize {
    (2..63).filter(|bit| in_use >> bit & 1 != 0).map(end).fold(SMALLEST, usize::max)
}

/// Asks the processor where a component ends.
fn end_of_component(component: u32) -> usize {
    let leaf = core::arch::x86_64::__cpuid_count(0xd, component);
    (leaf.eax + leaf.ebx) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        // SAFETY: `user_regs_struct` consists of integers only, so all zero bytes are one.
        let registers: user_regs_struct = unsafe { std::mem::zeroed() };
        State {
            registers: user_regs_struct { rip: 0x1234, rsp: 0x5678, orig_rax: u64::MAX, ..registers },
            mask: 7,
            extended: vec![0; 832],
        }
    }

    #[test]
    fn the_kernel_finds_everything_at_its_place() {
        let frame = state().frame(0x1000, 0xabcd);
        let word = |at: u64| u64::from_le_bytes(frame[at as usize..at as usize + 8].try_into().unwrap());
        assert_eq!((word(0), word(8)), (0xabcd, 7));
        assert_eq!((word(RIP - 8), word(RIP)), (0x5678, 0x1234));
        assert_eq!(word(8 + 40 + 256), 7, "the signal mask");
        let area = word(8 + 40 + 184) - 0x1000;
        assert_eq!((area % 64, area), (0x0, 448));
        assert_eq!(word(area + 464) as u32, FP_XSTATE_MAGIC1);
        assert_eq!(frame.len() as u64, area + 576 + 4);
    }

    /// The sizes are those of no extended state, SSE, AVX, AVX-512 with protection keys, and AMX.
    #[test]
    fn a_frame_has_the_room_that_it_takes() {
        for extended in [0, 576, 832, 2696, 11008] {
            let mut state = state();
            state.extended = vec![0; extended];
            // All components of this processor are in use.
            if let Some(in_use) = state.extended.get_mut(IN_USE..IN_USE + 8) {
                in_use.copy_from_slice(&u64::MAX.to_le_bytes());
            }
            let frame = state.frame(0x1010, 0xabcd);
            assert!(frame.len() as u64 + 16 <= room(extended), "{} of {}", frame.len(), room(extended));
            // Another processor may have more components than the one that runs this test. Then they fill all
            // `extended` bytes.
            assert!(448 + 64 + 16 + extended as u64 + 4 <= room(extended));
        }
        const AMX: u64 = 3 << 17;
        let end = |component| if component == 18 { 11008 } else { 2816 };
        assert_eq!(size_of_components(AMX, end), 11008);
        assert_eq!(size_of_components(0, end), SMALLEST);
        assert!(room(11008) > 8 << 10, "more than the 8 kB that a frame once had");
    }

    #[test]
    fn an_interrupted_call_starts_again() {
        let mut state = state();
        (state.registers.orig_rax, state.registers.rax) = (35, -516i64 as u64);
        let registers = state.restarted();
        assert_eq!((registers.rax, registers.rip), (35, 0x1232));
        state.registers.rax = -4i64 as u64;
        assert_eq!(state.restarted().rip, 0x1234);
    }
}
