//! The bytes of a KDE file, unpacked: gzip, zstd or plain, told by the first bytes.
//!
//! Given: a reader. Gives back: the text, up to where it can be unpacked. What must hold: a few buffers of memory, however
//! much the file unpacks to; a cut file is no error.
use flate2::read::MultiGzDecoder;
use std::io::{self, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// zstd's own default bound: a frame that wants a larger window is refused.
const WINDOW_LOG: u32 = 27;

/// How the text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the end of the file.
    Whole,
    /// The packed data stops in the middle: the file was cut, or still grows.
    Cut,
    /// The packed data makes no sense from here on.
    Damaged,
}

enum Packing<R: Read> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<R>>>),
}

/// Unpacks where it is read.
pub(crate) struct Unpacker<R: Read> {
    packing: Packing<R>,
    end: Option<End>,
}

/// Text, from here or from a thread that unpacks ahead.
pub(crate) enum Input<R: Read> {
    Here(Unpacker<R>),
    Ahead(Ahead),
}

/// Pieces that are unpacked ahead, and how large they are.
const PIECES: usize = 4;
const PIECE: usize = 256 << 10;

type Piece = io::Result<(Vec<u8>, Option<End>)>;

pub(crate) struct Ahead {
    pieces: Receiver<Piece>,
    piece: Vec<u8>,
    at: usize,
    end: Option<End>,
}

/// True for files that are packed as KDE's are.
pub(crate) fn is_packed(first: &[u8]) -> bool {
    first.starts_with(GZIP) || first.starts_with(ZSTD)
}

impl<R: Read> Input<R> {
    /// How it ended, once `read` gave 0.
    pub(crate) const fn end(&self) -> Option<End> {
        match self {
            Input::Here(unpacker) => unpacker.end,
            Input::Ahead(ahead) => ahead.end,
        }
    }

    /// 0 at the end, whatever sort of end it is. An error is one of the disk.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Here(unpacker) => unpacker.read(out),
            Input::Ahead(ahead) => ahead.read(out),
        }
    }
}

impl Ahead {
    /// Starts the thread; it ends with the text, or when nobody reads any more.
    pub(crate) fn start<R: Read + Send + 'static>(unpacker: Unpacker<R>) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(PIECES);
        let builder = std::thread::Builder::new().name("heaptrack-unpack".into());
        builder.spawn(move || unpack(unpacker, &sender))?;
        Ok(Ahead { pieces, piece: Vec::new(), at: 0, end: None })
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            if self.end.is_some() {
                return Ok(0);
            }
            // The thread says how it ended before it goes.
            let piece = self.pieces.recv().unwrap_or(Ok((Vec::new(), Some(End::Damaged))));
            (self.piece, self.end) = piece?;
            self.at = 0;
        }
        let rest = self.piece.get(self.at..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

fn unpack<R: Read>(mut unpacker: Unpacker<R>, pieces: &SyncSender<Piece>) {
    loop {
        let mut bytes = vec![0; PIECE];
        let piece = unpacker.read(&mut bytes).map(|count| {
            bytes.truncate(count);
            (bytes, unpacker.end)
        });
        let is_last = piece.as_ref().map_or(true, |(_, end)| end.is_some());
        if pieces.send(piece).is_err() || is_last {
            return;
        }
    }
}

impl<R: Read> Unpacker<R> {
    /// `first`: at least the first four bytes of `input`, which are still to be read from it.
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

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
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

    /// What an error of the unpacking says about the file.
    fn judge(&self, error: io::Error) -> io::Result<End> {
        match &self.packing {
            Packing::Plain(_) => Err(error),
            _ if error.kind() == io::ErrorKind::UnexpectedEof => Ok(End::Cut),
            // Errors of the system have a number, those of the unpacking have none.
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

    /// Both ways, which must agree.
    fn read(bytes: &[u8]) -> (Vec<u8>, End) {
        let first = &bytes[..bytes.len().min(4)];
        let here = read_all(Input::Here(Unpacker::new(bytes, first).unwrap()));
        let unpacker = Unpacker::new(io::Cursor::new(bytes.to_vec()), first).unwrap();
        assert_eq!(read_all(Input::<&[u8]>::Ahead(Ahead::start(unpacker).unwrap())), here);
        here
    }

    fn read_all(mut input: Input<&[u8]>) -> (Vec<u8>, End) {
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
