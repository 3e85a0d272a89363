//! One frame of a stack in one word.

/// One frame of a stack, as the target knows it.
///
/// ```text
///  63        48  47  46                       0
/// | instance   | E | offset in the module      |
/// ```
/// `instance` 0: no known module (JIT code, or a module that was not recorded); the offset is an address. `instance`
/// 0xffff: a marker, not a frame. The offset is that of a return address, or, with `E` set, of the instruction itself
/// (interrupted by a signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameKey(pub u64);

impl FrameKey {
    const EXACT: u64 = 1 << 47;
    const MARKERS: u64 = 0xffff;
    /// Frames were left out here, in the middle of a very deep stack.
    pub const CUT: FrameKey = FrameKey(Self::MARKERS << 48 | 1);

    #[inline]
    pub const fn new(instance: u16, offset: u64, exact: bool) -> Self {
        FrameKey((instance as u64) << 48 | offset & (Self::EXACT - 1) | if exact { Self::EXACT } else { 0 })
    }
    pub const fn instance(self) -> u16 {
        (self.0 >> 48) as u16
    }
    pub const fn offset(self) -> u64 {
        self.0 & (Self::EXACT - 1)
    }
    /// Returns true if the offset is that of the interrupted instruction, not of a return address.
    pub const fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0 && !self.is_marker()
    }
    pub const fn is_marker(self) -> bool {
        self.0 >> 48 == Self::MARKERS
    }
}
