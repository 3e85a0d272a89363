//! Shared by the fuzz targets: how they split their input, and what must hold for any trace.
mod checks;

pub use checks::check_blocks;

/// Takes numbers from the front of an input. After its end every number is 0.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        self.u64_of(2) as u16
    }

    pub fn u32(&mut self) -> u32 {
        self.u64_of(4) as u32
    }

    pub fn u64(&mut self) -> u64 {
        self.u64_of(8)
    }

    fn u64_of(&mut self, count: usize) -> u64 {
        self.bytes(count).iter().rev().fold(0, |number, byte| number << 8 | *byte as u64)
    }

    /// Takes at most `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
