//! Profiles may be compressed with gzip.
use flate2::read::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{self, Read};

/// The most bytes of an unpacked profile. A file that unpacks to more is refused.
pub const MOST_UNPACKED: u64 = 256 << 20;

/// Unpacks a file, or returns its first `most` bytes if it is longer. Returns the bytes themselves if they are not packed.
pub fn unpacked(bytes: &[u8], most: u64) -> io::Result<Cow<'_, [u8]>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut out = Vec::new();
    match MultiGzDecoder::new(bytes).take(most).read_to_end(&mut out) {
        // The first bytes of a file end in the middle of the packed data.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(Cow::Owned(out)),
    }
}
