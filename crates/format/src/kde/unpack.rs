//! The unpacked bytes of a KDE file: gzip, zstd or plain, recognised by the first bytes.
//!
//! Receives: a reader. Returns: the text, as far as it can be unpacked. Must hold: memory is a few buffers, however
//! large the unpacked text is; a truncated file is not an error.
use flate2::read::MultiGzDecoder;
use std::io::{self, BufReader, Read};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// zstd's own default limit: a frame that needs a larger window is refused.
const WINDOW_LOG: u32 = 27;

/// How the text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the end of the file.
    Whole,
    /// The packed data stops in the middle: the file was truncated or is still growing.
    Cut,
    /// The packed data is invalid from here on.
    Damaged,
}

enum Packing<R: Read> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<R>>>),
}

pub(crate) struct Unpacker<R: Read> {
    packing: Packing<R>,
    end: Option<End>,
}

/// True if the file is packed as KDE's files are.
pub(crate) fn is_packed(first: &[u8]) -> bool {
    first.starts_with(GZIP) || first.starts_with(ZSTD)
}

impl<R: Read> Unpacker<R> {
    /// `first` has at least the first four bytes of `input`, which must still be at its beginning.
    pub(crate) fn new(input: R, first: &[u8]) -> io::Result<Self> {
        let packing = if first.starts_with(GZIP) {
            Packing::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, input))))
        } else if first.starts_with(ZSTD) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(BufReader::with_capacity(1 << 17, input))?;
            decoder.window_log_max(WINDOW_LOG)?;
            Packing::Zstd(Box::new(decoder))
        } else {
            Packing::Plain(input)
        };
        Ok(Unpacker { packing, end: None })
    }

    /// How the text ended, once `read` has returned 0.
    pub(crate) const fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns 0 at the end, whatever kind of end it is. An error is one of the disk.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.end.is_some() {
            return Ok(0);
        }
        loop {
            let result = match &mut self.packing {
                Packing::Plain(input) => input.read(out),
                Packing::Gzip(decoder) => decoder.read(out),
                Packing::Zstd(decoder) => decoder.read(out),
            };
            match result {
                Ok(0) => self.end = Some(End::Whole),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.end = Some(self.judge(error)?),
            }
            return Ok(0);
        }
    }

    /// Decides what an error of the unpacker means for the file.
    fn judge(&self, error: io::Error) -> io::Result<End> {
        match &self.packing {
            Packing::Plain(_) => Err(error),
            _ if error.kind() == io::ErrorKind::UnexpectedEof => Ok(End::Cut),
            // Errors of the system have a number, those of the unpacker have none.
            _ if error.raw_os_error().is_some() => Err(error),
            _ => Ok(End::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> (Vec<u8>, End) {
        let mut input = Unpacker::new(bytes, &bytes[..bytes.len().min(4)]).unwrap();
        let mut text = Vec::new();
        let mut piece = [0; 1000];
        loop {
            match input.read(&mut piece).unwrap() {
                0 => return (text, input.end().unwrap()),
                count => text.extend_from_slice(&piece[..count]),
            }
        }
    }

    fn text() -> Vec<u8> {
        (0..20_000u32).flat_map(|number| format!("+ {:x}\n", number.wrapping_mul(2_654_435_761)).into_bytes()).collect()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn all_packings_come_back() {
        let text = text();
        assert_eq!(read(&text), (text.clone(), End::Whole));
        assert_eq!(read(&gzip(&text)), (text.clone(), End::Whole));
        let zstd = zstd::encode_all(&text[..], 3).unwrap();
        assert_eq!(read(&zstd), (text, End::Whole));
    }

    #[test]
    fn a_cut_file_is_read_up_to_the_cut() {
        let text = text();
        for packed in [gzip(&text), zstd::encode_all(&text[..], 3).unwrap()] {
            let (found, end) = read(&packed[..packed.len() - 9]);
            assert_eq!(end, End::Cut);
            assert!(text.starts_with(&found));
        }
    }

    #[test]
    fn damage_is_told() {
        let text = text();
        for mut packed in [gzip(&text), zstd::encode_all(&text[..], 3).unwrap()] {
            let middle = packed.len() / 2;
            packed[middle..middle + 40].fill(0xff);
            assert_eq!(read(&packed).1, End::Damaged);
        }
    }
}
