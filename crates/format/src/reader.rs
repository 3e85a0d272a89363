//! Reads a trace block by block: finished, growing, cut or damaged.
use crate::{Error, RawBlock};
use std::io::Read;

/// Bytes of the file that are no block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where in the file.
    pub offset: u64,
    pub length: u64,
    pub reason: &'static str,
}

pub struct Reader<R: Read> {
    input: R,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R) -> Result<Self, Error> {
        Ok(Reader { input })
    }

    /// The next block; `None` at the present end, where a growing file may have more later.
    pub fn next_block(&mut self) -> Result<Option<&RawBlock>, Error> {
        let _ = &mut self.input;
        Ok(None)
    }
}
