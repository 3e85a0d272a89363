//! Which part of the stack may be read. A walk that goes wrong (hand-written assembly, a corrupted frame) must end in
//! a short stack, not in a crash of the program.
use crate::sys;

const PAGE: u64 = 4096;

/// Pages known to be readable: `[low, high)`. Two, for a thread that alternates between two stacks.
#[derive(Clone, Copy, Default)]
struct Range {
    low: u64,
    high: u64,
}

#[repr(C)]
#[derive(Default)]
pub struct Probe {
    ranges: [Range; 2],
    /// Which range was used last.
    last: usize,
}

impl Probe {
    /// Starts a walk on the stack that holds `sp` (readable: we are on it).
    #[inline]
    pub fn start(&mut self, sp: u64) {
        for i in 0..2 {
            let Some(range) = self.ranges.get(i) else { return };
            if sp >= range.low && sp < range.high {
                self.last = i;
                return;
            }
        }
        self.last = 1 - (self.last & 1);
        let low = sp & !(PAGE - 1);
        if let Some(range) = self.ranges.get_mut(self.last) {
            *range = Range { low, high: low + PAGE };
        }
    }

    /// True when the eight bytes at `address`, on the stack of this walk, can be read. `address` is above its start.
    #[inline(always)]
    pub fn is_readable(&mut self, address: u64, may_ask: bool) -> bool {
        match self.ranges.get(self.last & 1) {
            Some(range) if address >= range.low && address < range.high.wrapping_sub(7) => true,
            _ => self.ask(address, may_ask),
        }
    }

    #[cold]
    fn ask(&mut self, address: u64, may_ask: bool) -> bool {
        const FAR: u64 = 64 << 20;
        let Some(range) = self.ranges.get_mut(self.last & 1) else { return false };
        if !may_ask || address < range.low || address & 7 != 0 || address - range.high.min(address) > FAR {
            return false;
        }
        while range.high <= address {
            if !sys::is_readable(range.high as usize) {
                return false;
            }
            range.high += PAGE;
        }
        true
    }
}
