//! What a shim saves on the stack: the callee-saved registers of the caller, the arguments, the result.
use crate::cfi::reg;
use crate::resume_state::ResumeState;

/// The shims (`assembly.rs`, and `entries.rs` and `family_shims.rs` in `capture-so`) write this structure in assembly.
/// The picture has its fields from the lowest address to the highest.
///
/// ```text
/// rsp ->  result | argument 0..2 | resume state | r15 r14 r13 r12 rbx rbp | return address | <- CFA
/// ```
#[repr(C)]
pub struct Context {
    pub result: u64,
    pub arguments: [u64; 3],
    pub resume_state: ResumeState,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub ret: u64,
}

impl Context {
    /// How many bytes a shim reserves below the return address.
    pub const SAVED: usize = size_of::<Context>() - 8;

    /// Returns the CFA: the caller's stack pointer once the hook has returned.
    #[inline(always)]
    pub fn cfa(&self) -> u64 {
        self as *const Context as u64 + size_of::<Context>() as u64
    }

    /// Copies the registers of the caller, as far as they are known. The others become 0.
    pub fn copy_registers(&self, into: &mut [u64; reg::COUNT]) {
        *into = [0; reg::COUNT];
        into[reg::RBX] = self.rbx;
        into[reg::RBP] = self.rbp;
        into[reg::RSP] = self.cfa();
        into[reg::R12] = self.r12;
        into[13] = self.r13;
        into[14] = self.r14;
        into[reg::R15] = self.r15;
        into[reg::RA] = self.ret;
    }
}

/// The next part of a hook. A part returns it to the shim, which calls it. So the frames of the quick part and of the
/// slow part are never on the stack at the same time: the stack is the program's, and may be small.
#[repr(transparent)]
pub struct Next(Option<extern "C" fn(&mut Context) -> Next>);

impl Next {
    pub const DONE: Next = Next(None);

    #[inline(always)]
    pub fn then(function: extern "C" fn(&mut Context) -> Next) -> Next {
        Next(Some(function))
    }
}

const _: () = assert!(Context::SAVED == 88 && size_of::<Context>() == 96);
