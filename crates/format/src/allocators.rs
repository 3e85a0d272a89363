//! Which allocator the blocks of an allocation class came from.
use crate::wire::{Cursor, put, put_str, unzigzag, zigzag};
use crate::{BlockKind, Malformed, RawBlock};

/// The allocation classes of allocators other than malloc. An allocation class that no such block names is malloc's.
///
/// ```text
/// count, then per allocator: name, count of allocation classes, then per class: zigzag(index - index before)
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocators {
    /// The name of an allocator, and the indexes of its allocation classes.
    pub lists: Vec<(String, Vec<u32>)>,
}

impl Allocators {
    pub fn push(&mut self, name: &str, alloc_class: u32) {
        match self.lists.iter_mut().find(|(known, _)| known == name) {
            Some((_, classes)) => classes.push(alloc_class),
            None => self.lists.push((name.to_owned(), vec![alloc_class])),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    pub fn to_block(&self) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, self.lists.len() as u64);
        for (name, classes) in &self.lists {
            put_str(&mut out, name);
            put(&mut out, classes.len() as u64);
            let mut last = 0;
            for class in classes {
                put(&mut out, zigzag(i64::from(*class) - last));
                last = i64::from(*class);
            }
        }
        RawBlock { kind: BlockKind::Allocators, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let lists = cursor.list(|cursor| {
            let name = cursor.str()?;
            let mut last = 0i64;
            let classes = cursor.list(|cursor| {
                last = last.wrapping_add(unzigzag(cursor.u64()?));
                u32::try_from(last).map_err(|_| Malformed::Overflow)
            })?;
            Ok((name, classes))
        })?;
        cursor.end()?;
        Ok(Allocators { lists })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut allocators = Allocators::default();
        for (name, class) in [("jemalloc", 7), ("mimalloc", 3), ("jemalloc", 2), ("jemalloc", u32::MAX)] {
            allocators.push(name, class);
        }
        let block = allocators.to_block();
        assert_eq!(Allocators::decode(&block.payload).unwrap(), allocators);
        for length in 0..block.payload.len() {
            assert!(Allocators::decode(&block.payload[..length]).is_err(), "{length}");
        }
    }
}
