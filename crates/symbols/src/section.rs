//! The bytes of one section, as far as anybody looked at them.
//!
//! Given: where a section lies in a file. Gives back: its bytes, a window at a time. What must hold: what nobody looks
//! at is not read; a packed section is unpacked when it is first looked at, up to where that was expected, a large one no further than
//! to that place; a file that shrinks meanwhile, or cannot be unpacked, gives empty windows.
//!
//! ```text
//! in the file:    | page |      | page |      |     each is read at the first look into it
//! packed:         | as far as expected |            and all of it, anew, once somebody looks behind that
//! packed, large:  | page | page | page |            as far as anybody looked; also where a packed one is damaged
//! ```
use crate::kept::{Bytes, Kept};
use crate::packing::{Packed, Packing, unpack_beginning, unpacker};
use crate::store::Source;
use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

/// One read: large enough for most units, small enough to skip what nobody asks for.
const PAGE: usize = 16 << 10;
/// Packed sections have larger pages: all before the one that is wanted are made anyway.
const UNPACKED_PAGE: usize = 128 << 10;
/// A packed section that is not larger than this is unpacked at one go: that takes half the time.
const MOST_WHOLE: usize = 64 << 20;
/// Smaller ones are not kept: they are quickly unpacked again.
const LEAST_KEPT: usize = 4 << 20;
/// The most that deflate can make of a byte, and far more than what zstd makes of debug information.
const MAX_RATIO: u64 = 1100;
/// No honest section is larger.
const MAX_SECTION: u64 = 8 << 30;

/// Where a section lies, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    /// Bytes in the file.
    pub(crate) stored: u64,
    /// Bytes when unpacked.
    pub(crate) size: u64,
    pub(crate) packing: Packing,
}

pub(crate) struct Section {
    source: Rc<Source>,
    extent: Extent,
    size: usize,
    page: usize,
    pages: Box<[OnceCell<Box<[u8]>>]>,
    /// So much of a packed section will be looked at.
    expected: Cell<usize>,
    /// That much of it, if it could be unpacked at one go.
    beginning: OnceCell<Option<Bytes>>,
    /// All of it, if somebody looked further.
    whole: OnceCell<Option<Bytes>>,
    /// Of one that could not, from the first look on.
    unpacking: RefCell<Option<Unpacking>>,
    /// Bytes of all pages of the store that were not unpacked.
    counter: Rc<Cell<u64>>,
    kept: Arc<Kept>,
}

/// How far a packed section is.
struct Unpacking {
    reader: Box<dyn Read>,
    pages: usize,
}

impl Section {
    /// `None`: its size is a lie.
    pub(crate) fn new(source: Rc<Source>, extent: Extent, counter: Rc<Cell<u64>>, kept: Arc<Kept>) -> Option<Self> {
        let (most, page) = match extent.packing {
            Packing::Plain => (source.len().saturating_sub(extent.start), PAGE),
            _ => (extent.stored.min(source.len()).saturating_mul(MAX_RATIO), UNPACKED_PAGE),
        };
        if extent.size > most.min(MAX_SECTION) {
            return None;
        }
        let size = usize::try_from(extent.size).ok()?;
        let pages = std::iter::repeat_with(OnceCell::new).take(size.div_ceil(page)).collect();
        Some(Section {
            source,
            extent,
            size,
            page,
            pages,
            expected: Cell::new(size),
            beginning: OnceCell::new(),
            whole: OnceCell::new(),
            unpacking: RefCell::default(),
            counter,
            kept,
        })
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.extent.packing != Packing::Plain
    }

    /// Nobody is going to look at `end` or behind it, as far as is known.
    pub(crate) fn expect(&self, end: usize) {
        self.expected.set(end.min(self.size));
    }

    /// The bytes from `at` on, as many as lie together; none where the section ends or cannot be read.
    pub(crate) fn window(&self, at: usize) -> &[u8] {
        if let Some(window) = self.unpacked(at) {
            return window;
        }
        let number = at / self.page;
        let Some(page) = self.pages.get(number) else { return &[] };
        let bytes = match page.get() {
            Some(bytes) => bytes,
            None => {
                if self.is_packed() {
                    self.unpack(number);
                }
                page.get_or_init(|| self.read(number))
            }
        };
        bytes.get(at % self.page..).unwrap_or_default()
    }

    /// Fills `out` from a place that nobody has looked at, and reads no more than that. False: not from here.
    pub(crate) fn peek(&self, at: usize, out: &mut [u8]) -> bool {
        let is_read = self.pages.get(at / self.page).is_none_or(|page| page.get().is_some());
        if self.is_packed() || is_read {
            return false;
        }
        self.source.read_at(out, self.extent.start + at as u64).is_ok_and(|count| count == out.len())
    }

    /// The bytes from `at` on of a section that is unpacked at one go.
    fn unpacked(&self, at: usize) -> Option<&[u8]> {
        if !self.is_packed() || self.size > MOST_WHOLE {
            return None;
        }
        let beginning = self.beginning.get_or_init(|| self.find_beginning(self.expected.get())).as_ref()?;
        if at < beginning.len() || beginning.len() == self.size {
            return Some(beginning.get(at..).unwrap_or_default());
        }
        let whole = self.whole.get_or_init(|| self.find_beginning(self.size)).as_ref()?;
        Some(whole.get(at..).unwrap_or_default())
    }

    /// At least `len` bytes.
    fn find_beginning(&self, len: usize) -> Option<Bytes> {
        let file = self.source.identity().filter(|_| self.size >= LEAST_KEPT);
        let known = file.and_then(|file| self.kept.get(file, self.extent.start));
        if let Some(known) = known.filter(|known| known.len() >= len) {
            return Some(known).filter(|known| known.len() <= self.size);
        }
        self.kept.make_room(len as u64);
        let made = Arc::new(unpack_beginning(self.packed(), self.extent.packing, self.size, len)?);
        if let Some(file) = file {
            self.kept.put(file, self.extent.start, &made);
        }
        Some(made)
    }

    fn packed(&self) -> Packed {
        Packed { source: Rc::clone(&self.source), at: self.extent.start, left: self.extent.stored }
    }

    fn page_size(&self, number: usize) -> usize {
        self.page.min(self.size - number * self.page)
    }

    /// A page of a section that is not packed; an empty one, where unpacking did not come that far.
    fn read(&self, number: usize) -> Box<[u8]> {
        if self.is_packed() {
            return Box::default();
        }
        let at = self.extent.start.saturating_add((number * self.page) as u64);
        let bytes = self.source.read(at, self.page_size(number));
        self.counter.set(self.counter.get() + bytes.len() as u64);
        bytes.into_boxed_slice()
    }

    /// Makes the pages up to this one.
    fn unpack(&self, number: usize) {
        let mut unpacking = self.unpacking.borrow_mut();
        let start = || Unpacking { reader: unpacker(self.packed(), self.extent.packing), pages: 0 };
        let unpacking = unpacking.get_or_insert_with(start);
        while unpacking.pages <= number {
            let Some(page) = self.pages.get(unpacking.pages) else { return };
            let mut bytes = vec![0; self.page_size(unpacking.pages)];
            if unpacking.reader.read_exact(&mut bytes).is_err() {
                // Nothing behind it can be made either.
                unpacking.pages = usize::MAX;
                return;
            }
            let _ = page.set(bytes.into_boxed_slice());
            unpacking.pages += 1;
        }
        if unpacking.pages >= self.pages.len() {
            unpacking.reader = Box::new(io::empty());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use flate2::{Compression, write::ZlibEncoder};
    use std::io::Write;

    /// Half of it repeats, as debug information does.
    fn plain() -> Vec<u8> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut bytes = Vec::new();
        while bytes.len() < 300_000 {
            let from = bytes.len().saturating_sub(2000 + next() as usize);
            let copied: Vec<u8> = bytes.iter().skip(from).take(next() as usize).copied().collect();
            bytes.extend(copied);
            bytes.extend((0..next() / 8).map(|_| next()));
        }
        bytes
    }

    fn packed(plain: &[u8], packing: Packing) -> Vec<u8> {
        if packing == Packing::Zstd {
            return zstd::encode_all(plain, 3).unwrap();
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn section(stored: Vec<u8>, size: usize, packing: Packing) -> Section {
        let extent = Extent { start: 0, stored: stored.len() as u64, size: size as u64, packing };
        Section::new(Rc::new(Source::Memory(stored)), extent, Rc::default(), Arc::default()).unwrap()
    }

    #[test]
    fn a_packed_section_is_unpacked_as_far_as_expected() {
        let plain = plain();
        for packing in [Packing::Zlib, Packing::Zstd] {
            let stored = packed(&plain, packing);
            for end in (1..2000).step_by(37).chain((2000..plain.len() + 600).step_by(4999)) {
                let section = section(stored.clone(), plain.len(), packing);
                section.expect(end);
                let end = end.min(plain.len());
                assert_eq!(section.window(0), &plain[..end], "{end}");
                assert_eq!(section.window(end - 1), &plain[end - 1..end]);
                // Nobody was expected there.
                assert_eq!(section.window(end), &plain[end..]);
                assert_eq!(section.window(plain.len()), &[][..]);
            }
        }
    }

    #[test]
    fn what_is_damaged_behind_the_expected_part_does_not_matter() {
        let plain = plain();
        let mut stored = packed(&plain, Packing::Zlib);
        let middle = stored.len() / 2;
        stored[middle..].fill(0xff);
        let section = section(stored, plain.len(), Packing::Zlib);
        section.expect(plain.len() / 4);
        assert_eq!(section.window(0), &plain[..plain.len() / 4]);
        // The pages before the damage are there, what comes behind is missing.
        assert_eq!(section.window(UNPACKED_PAGE - 1).first(), plain.get(UNPACKED_PAGE - 1));
        assert_eq!(section.window(plain.len() - 1), &[][..]);
    }
}
