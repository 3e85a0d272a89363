//! One frame of a stack as the target recorded it: a module instance and an offset, not yet a name.

/// The bits of the channel's `FrameKey`.
///
/// ```text
///  63        48  47  46                       0
/// | instance   | E | offset in the module      |
/// ```
/// `instance` 0: no module (JIT code), the offset is an address. `instance` 0xffff: a marker, not a frame.
/// The offset is that of a return address, or, with `E` set, of the instruction itself (interrupted by a signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u64);

impl Frame {
    const EXACT: u64 = 1 << 47;
    const MARKERS: u64 = 0xffff;
    /// Frames were left out here, in the middle of a very deep stack.
    pub const CUT: Frame = Frame(Self::MARKERS << 48 | 1);

    /// Inserted by readers if the definition of a frame was in a damaged part of the file. A recording never contains
    /// it; a trace that was merged from damaged traces can.
    pub const LOST: Frame = Frame(Self::MARKERS << 48 | 2);

    pub const fn new(instance: u16, offset: u64, exact: bool) -> Self {
        Frame((instance as u64) << 48 | offset & (Self::EXACT - 1) | if exact { Self::EXACT } else { 0 })
    }
    pub const fn instance(self) -> u16 {
        (self.0 >> 48) as u16
    }
    /// The same place in another module.
    pub const fn in_instance(self, instance: u16) -> Self {
        Frame::new(instance, self.offset(), self.is_exact())
    }
    pub const fn offset(self) -> u64 {
        self.0 & (Self::EXACT - 1)
    }
    /// True if the offset is that of the interrupted instruction and not of a return address.
    pub const fn is_exact(self) -> bool {
        self.0 & Self::EXACT != 0 && !self.is_marker()
    }
    pub const fn is_marker(self) -> bool {
        self.0 >> 48 == Self::MARKERS
    }
    /// True for code of no module; the offset is then an address.
    pub const fn is_jit(self) -> bool {
        self.instance() == 0
    }
}
