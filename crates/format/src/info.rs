//! `(size, stack)` pairs, written once; an allocation event is the index of its pair.
use crate::wire::{Cursor, put, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

/// No allocation that succeeded was larger: an address has 48 bits.
const MAX_SIZE: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Info {
    /// Requested bytes.
    pub size: u64,
    /// Stack id, 0 = no stack known.
    pub stack: u32,
}

/// Gathers new infos into blocks: `first index, count, then per info: size, zigzag(stack - stack of the info before)`.
#[derive(Debug, Default)]
pub struct InfoEncoder {
    first: u32,
    next: u32,
    last_stack: u32,
    infos: Vec<u8>,
}

impl InfoEncoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// The index, from 0. The caller keeps equal pairs apart from new ones.
    pub fn push(&mut self, size: u64, stack: u32) -> u32 {
        let index = self.next;
        put(&mut self.infos, size);
        put(&mut self.infos, zigzag(stack as i64 - self.last_stack as i64));
        self.last_stack = stack;
        self.next += 1;
        index
    }

    pub const fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Raw bytes so far.
    pub const fn len(&self) -> usize {
        self.infos.len()
    }

    pub fn take(&mut self) -> RawBlock {
        let mut payload = Vec::with_capacity(self.infos.len() + 16);
        put(&mut payload, self.first as u64);
        put(&mut payload, (self.next - self.first) as u64);
        payload.append(&mut self.infos);
        self.first = self.next;
        self.last_stack = 0;
        RawBlock { kind: BlockKind::Infos, payload }
    }
}

/// The infos of one block, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infos {
    /// Index of the first; the others follow without gap.
    pub first: u32,
    pub infos: Vec<Info>,
}

impl Infos {
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let first = cursor.u32()?;
        let mut stack = 0i64;
        let infos = cursor.list(|cursor| {
            let size = cursor.u64()?;
            if size > MAX_SIZE {
                return Err(Malformed::Overflow);
            }
            stack = stack.wrapping_add(unzigzag(cursor.u64()?));
            Ok(Info { size, stack: u32::try_from(stack).map_err(|_| Malformed::Overflow)? })
        })?;
        cursor.end()?;
        first.checked_add(infos.len() as u32).ok_or(Malformed::Overflow)?;
        Ok(Infos { first, infos })
    }
}
