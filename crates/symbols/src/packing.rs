//! Compression of sections, and the two ways to unpack one: in one call, or step by step from the beginning.
//!
//! Receives: packed bytes of a file. Returns: the unpacked bytes. Must hold: damaged data yields nothing, or the bytes
//! before the damage.
use crate::store::Source;
use flate2::bufread::ZlibDecoder;
use libdeflater::DecompressionError;
use std::io::{self, BufReader, Read};
use std::rc::Rc;

/// More than the longest piece that deflate copies at a time, which is 258 bytes.
const LONGEST_PIECE: usize = 512;
/// The size of one read of packed bytes.
const READ: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Zlib,
    Zstd,
}

/// The bytes of a packed section, in order.
pub(crate) struct Packed {
    pub(crate) source: Rc<Source>,
    pub(crate) at: u64,
    pub(crate) left: u64,
}

impl Read for Packed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let count = self.source.read_at(&mut out[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// The first `len` of `size` bytes. Returns `None` if they cannot be unpacked.
pub(crate) fn unpack_beginning(mut packed: Packed, packing: Packing, size: usize, len: usize) -> Option<Box<[u8]>> {
    if packing != Packing::Zlib {
        let mut out = vec![0; len];
        unpacker(packed, packing).read_exact(&mut out).ok()?;
        return Some(out.into_boxed_slice());
    }
    if packed.at.checked_add(packed.left)? > packed.source.len() {
        return None;
    }
    // The library stops where the room ends, or before a piece that does not fit.
    let room = len.saturating_add(LONGEST_PIECE).min(size);
    // One buffer for packed and unpacked bytes, because the allocator would not return a large freed buffer to the
    // system.
    let mut out = vec![0; room.checked_add(usize::try_from(packed.left).ok()?)?];
    let (made, stored) = out.split_at_mut(room);
    packed.read_exact(stored).ok()?;
    let is_whole = room == size;
    match libdeflater::Decompressor::new().zlib_decompress(stored, made) {
        Ok(count) if is_whole && count == size => out.truncate(size),
        Err(DecompressionError::InsufficientSpace) if !is_whole => out.truncate(len),
        _ => return None,
    }
    Some(out.into_boxed_slice())
}

/// A reader of the unpacked bytes, up to the first damage.
pub(crate) fn unpacker(packed: Packed, packing: Packing) -> Box<dyn Read> {
    let packed = BufReader::with_capacity(READ, packed);
    match packing {
        Packing::Zlib => Box::new(ZlibDecoder::new(packed)),
        Packing::Zstd => match zstd::stream::read::Decoder::with_buffer(packed) {
            Ok(decoder) => Box::new(decoder.single_frame()),
            Err(_) => Box::new(io::empty()),
        },
        Packing::Plain => Box::new(packed),
    }
}
