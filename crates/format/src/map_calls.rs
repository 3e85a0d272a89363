//! How often a program called mmap and its relatives, and about how many bytes.
use crate::wire::{Cursor, put, put_str};
use crate::{BlockKind, Malformed, RawBlock};

/// All calls of one function that were recorded. Written at the end of a session if there were any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapCalls {
    /// The function, as `mmap`.
    pub name: String,
    /// Calls that succeeded.
    pub calls: u64,
    /// The bytes of whole pages that they were about.
    pub bytes: u64,
}

impl MapCalls {
    pub fn to_block(calls: &[MapCalls]) -> RawBlock {
        let mut out = Vec::new();
        put(&mut out, calls.len() as u64);
        for call in calls {
            put_str(&mut out, &call.name);
            put(&mut out, call.calls);
            put(&mut out, call.bytes);
        }
        RawBlock { kind: BlockKind::MapCalls, payload: out }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let calls =
            cursor.list(|cursor| Ok(MapCalls { name: cursor.str()?, calls: cursor.u64()?, bytes: cursor.u64()? }))?;
        cursor.end()?;
        Ok(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_reads_back_as_it_was() {
        let call = |name: &str, calls| MapCalls { name: name.into(), calls, bytes: calls * 4096 };
        let calls = vec![call("mmap", 3), call("munmap", 1 << 40)];
        let block = MapCalls::to_block(&calls);
        assert_eq!(MapCalls::decode(&block.payload).ok(), Some(calls));
        for length in 0..block.payload.len() {
            assert!(MapCalls::decode(&block.payload[..length]).is_err(), "{length}");
        }
    }
}
