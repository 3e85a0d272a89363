//! What an entry shim saves: the registers as the caller left them, the arguments, the result.
use crate::cfi::reg;

/// Laid out by the entry shims (`capture-so/src/shims.rs`), lowest address first.
///
/// ```text
/// rsp ->  result | argument 0..2 | pad | r15 r14 r13 r12 rbx rbp | return address | <- CFA
/// ```
#[repr(C)]
pub struct Context {
    pub result: u64,
    pub arguments: [u64; 3],
    _pad: u64,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbx: u64,
    pub rbp: u64,
    pub ret: u64,
}

impl Context {
    /// What a shim reserves below the return address.
    pub const SAVED: usize = size_of::<Context>() - 8;

    /// The caller's stack pointer once the hook has returned.
    #[inline(always)]
    pub fn cfa(&self) -> u64 {
        self as *const Context as u64 + size_of::<Context>() as u64
    }

    /// The registers of the caller, as far as they are known.
    pub fn registers(&self) -> [u64; reg::COUNT] {
        let mut all = [0; reg::COUNT];
        all[reg::RBX] = self.rbx;
        all[reg::RBP] = self.rbp;
        all[reg::RSP] = self.cfa();
        all[reg::R12] = self.r12;
        all[13] = self.r13;
        all[14] = self.r14;
        all[reg::R15] = self.r15;
        all[reg::RA] = self.ret;
        all
    }
}

const _: () = assert!(Context::SAVED == 88 && size_of::<Context>() == 96);
