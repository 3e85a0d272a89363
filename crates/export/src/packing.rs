//! The compression of a file, chosen by the end of its name.
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => Packing::Plain,
        }
    }
}

/// A compressing writer. Call `finish`: if it is dropped, the end of the file is missing.
pub enum Packed<W: Write> {
    Plain(W),
    Gzip(Box<GzEncoder<W>>),
    Zstd(Box<zstd::Encoder<'static, W>>),
}

impl<W: Write> Packed<W> {
    pub fn new(out: W, packing: Packing) -> io::Result<Self> {
        Ok(match packing {
            Packing::Plain => Packed::Plain(out),
            Packing::Gzip => Packed::Gzip(Box::new(GzEncoder::new(out, Compression::default()))),
            Packing::Zstd => Packed::Zstd(Box::new(zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?)),
        })
    }

    pub fn finish(self) -> io::Result<W> {
        let mut out = match self {
            Packed::Plain(out) => out,
            Packed::Gzip(encoder) => encoder.finish()?,
            Packed::Zstd(encoder) => encoder.finish()?,
        };
        out.flush()?;
        Ok(out)
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Packed::Plain(out) => out.write(bytes),
            Packed::Gzip(encoder) => encoder.write(bytes),
            Packed::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Packed::Plain(out) => out.flush(),
            Packed::Gzip(encoder) => encoder.flush(),
            Packed::Zstd(encoder) => encoder.flush(),
        }
    }
}
