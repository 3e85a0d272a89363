//! A range of a section, as `gimli` reads it.
//!
//! Must hold: reading past the end, or where the file could not be read, is an error and never a panic.
use crate::section::Section;
use gimli::{Error, LittleEndian, Reader, ReaderOffsetId};
use std::borrow::Cow;

/// `window` is the beginning of the range, as far as it is contiguous in memory. It may be empty although `left` is not
/// 0.
#[derive(Clone, Copy)]
pub(crate) struct Part<'f> {
    section: Option<&'f Section>,
    window: &'f [u8],
    at: usize,
    left: usize,
}

impl std::fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x}", self.left, self.at)
    }
}

impl<'f> Part<'f> {
    pub(crate) const EMPTY: Part<'f> = Part { section: None, window: &[], at: 0, left: 0 };

    pub(crate) fn new(section: Option<&'f Section>) -> Self {
        Part { section, left: section.map_or(0, Section::size), ..Part::EMPTY }
    }

    fn end(&self) -> Error {
        Error::UnexpectedEof(self.offset_id())
    }

    /// Fills the window if it is empty.
    fn look(&mut self) -> gimli::Result<&'f [u8]> {
        if self.window.is_empty() && self.left > 0 {
            let window = self.section.map_or(&[][..], |section| section.window(self.at));
            self.window = window.get(..self.left).unwrap_or(window);
            if window.is_empty() {
                return Err(self.end());
            }
        }
        Ok(self.window)
    }

    /// Skips `len` bytes, which must not be more than are left.
    fn go(&mut self, len: usize) {
        self.window = self.window.get(len..).unwrap_or_default();
        self.at += len;
        self.left -= len;
    }

    #[cold]
    fn read_across(&mut self, mut out: &mut [u8]) -> gimli::Result<()> {
        while !out.is_empty() {
            let window = self.look()?;
            let count = window.len().min(out.len());
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(&window[..count]);
            self.go(count);
            out = later;
        }
        Ok(())
    }

    /// All bytes. They are copied only if they are not contiguous in memory.
    pub(crate) fn bytes(mut self) -> gimli::Result<Cow<'f, [u8]>> {
        if self.left == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let window = self.look()?;
        if window.len() == self.left {
            return Ok(Cow::Borrowed(window));
        }
        let mut all = Vec::new();
        while self.left > 0 {
            let window = self.look()?;
            all.extend_from_slice(window);
            self.go(window.len());
        }
        Ok(Cow::Owned(all))
    }

    /// A few bytes at `at`, if possible without reading the page around them.
    pub(crate) fn peek<const COUNT: usize>(mut self, at: usize) -> Option<[u8; COUNT]> {
        let mut out = [0; COUNT];
        self.skip(at).ok()?;
        if COUNT > self.left || !self.section?.peek(self.at, &mut out) {
            self.read_slice(&mut out).ok()?;
        }
        Some(out)
    }

    pub(crate) fn text(self) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes().ok()?).into_owned())
    }
}

impl<'f> Reader for Part<'f> {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    #[inline]
    fn len(&self) -> usize {
        self.left
    }

    fn empty(&mut self) {
        self.window = &[];
        self.left = 0;
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> gimli::Result<()> {
        if len > self.left {
            return Err(self.end());
        }
        self.left = len;
        self.window = self.window.get(..len).unwrap_or(self.window);
        Ok(())
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        self.at.wrapping_sub(base.at)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.at as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let offset = usize::try_from(id.0).ok()?.checked_sub(self.at)?;
        (offset <= self.left).then_some(offset)
    }

    fn find(&self, byte: u8) -> gimli::Result<usize> {
        let mut rest = *self;
        while rest.left > 0 {
            let window = rest.look()?;
            if let Some(at) = window.iter().position(|found| *found == byte) {
                return Ok(rest.at - self.at + at);
            }
            rest.go(window.len());
        }
        Err(self.end())
    }

    #[inline]
    fn skip(&mut self, len: usize) -> gimli::Result<()> {
        if len > self.left {
            return Err(self.end());
        }
        self.go(len);
        Ok(())
    }

    #[inline]
    fn split(&mut self, len: usize) -> gimli::Result<Self> {
        let mut first = *self;
        first.truncate(len)?;
        self.go(len);
        Ok(first)
    }

    fn to_slice(&self) -> gimli::Result<Cow<'_, [u8]>> {
        self.bytes()
    }

    fn to_string(&self) -> gimli::Result<Cow<'_, str>> {
        match self.bytes()? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| Error::BadUtf8),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Error::BadUtf8),
        }
    }

    fn to_string_lossy(&self) -> gimli::Result<Cow<'_, str>> {
        Ok(Cow::Owned(String::from_utf8_lossy(&self.bytes()?).into_owned()))
    }

    #[inline]
    fn read_slice(&mut self, out: &mut [u8]) -> gimli::Result<()> {
        match self.window.get(..out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                self.go(out.len());
                Ok(())
            }
            None if out.len() > self.left => Err(self.end()),
            None => self.read_across(out),
        }
    }
}
