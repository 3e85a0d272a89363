//! The bytes of one section, read or decompressed on demand.
//!
//! Receives: where a section lies in a file. Returns: its bytes, a window at a time. Must hold: only the parts that are
//! used are read. A packed (compressed) section is unpacked at its first use, up to the end that was announced; a large
//! one only up to the place that is used. If the file shrinks meanwhile or cannot be unpacked, the windows are empty.
//!
//! ```text
//! in the file:    | page |      | page |      |     each page is read at its first use
//! packed:         | up to the expected end |        unpacked again as a whole if something after that end is used
//! packed, large:  | page | page | page |            up to the place that is used; also if a packed section is damaged
//! ```
use crate::kept::{Bytes, Kept};
use crate::packing::{Packed, Packing, unpack_beginning, unpacker};
use crate::store::Source;
use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

/// The size of one read: large enough for most units, small enough to skip unused parts.
const PAGE: usize = 16 << 10;
/// Pages of packed sections are larger, because all pages before the wanted one have to be unpacked anyway.
const UNPACKED_PAGE: usize = 128 << 10;
/// A packed section up to this size is unpacked in one call, which takes half the time of unpacking page by page.
const MOST_WHOLE: usize = 64 << 20;
/// Smaller sections are not put into the cache (`kept.rs`), because unpacking them again is fast.
const LEAST_KEPT: usize = 4 << 20;
/// Slightly more than the highest ratio of deflate, and far more than zstd reaches with debug information.
const MAX_RATIO: u64 = 1100;
/// A section that claims to be larger is refused.
const MAX_SECTION: u64 = 8 << 30;

/// Where a section lies in its file, and how it is packed.
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
    /// The end of the part of a packed section that will be used, as far as is known.
    expected: Cell<usize>,
    /// The section up to `expected`, if that could be unpacked in one call.
    beginning: OnceCell<Option<Bytes>>,
    /// The whole section, if something after `expected` was used.
    whole: OnceCell<Option<Bytes>>,
    /// The state of a section that is unpacked page by page.
    unpacking: RefCell<Option<Unpacking>>,
    /// The store's count of bytes (`Store::size`), to which reads of plain sections are added.
    counter: Rc<Cell<u64>>,
    kept: Arc<Kept>,
}

/// How far a packed section has been unpacked.
struct Unpacking {
    reader: Box<dyn Read>,
    /// How many pages have been made.
    pages: usize,
    /// The section is damaged after these pages.
    is_damaged: bool,
}

impl Section {
    /// Returns `None` if the size cannot be true.
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

    /// Announces that, as far as is known, nothing from `end` on will be used.
    pub(crate) fn expect(&self, end: usize) {
        self.expected.set(end.min(self.size));
    }

    /// The bytes from `at` on, as many as are contiguous in memory. Empty at the end of the section, and if it cannot
    /// be read.
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

    /// Fills `out` from a page that has not been read yet, without reading the page. Returns false if that is not
    /// possible.
    pub(crate) fn peek(&self, at: usize, out: &mut [u8]) -> bool {
        let is_read = self.pages.get(at / self.page).is_none_or(|page| page.get().is_some());
        if self.is_packed() || is_read {
            return false;
        }
        self.source.read_at(out, self.extent.start + at as u64).is_ok_and(|count| count == out.len())
    }

    /// The bytes from `at` on, if the section is one that is unpacked in one call.
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

    /// At least the first `len` bytes, unpacked.
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

    /// A page of a plain section. Empty if the section is packed, because then unpacking did not reach this page.
    fn read(&self, number: usize) -> Box<[u8]> {
        if self.is_packed() {
            return Box::default();
        }
        let at = self.extent.start.saturating_add((number * self.page) as u64);
        let bytes = self.source.read(at, self.page_size(number));
        self.counter.set(self.counter.get() + bytes.len() as u64);
        bytes.into_boxed_slice()
    }

    /// Unpacks all pages up to this one.
    fn unpack(&self, number: usize) {
        let mut unpacking = self.unpacking.borrow_mut();
        let start = || Unpacking { reader: unpacker(self.packed(), self.extent.packing), pages: 0, is_damaged: false };
        let unpacking = unpacking.get_or_insert_with(start);
        while unpacking.pages <= number && !unpacking.is_damaged {
            let Some(page) = self.pages.get(unpacking.pages) else { return };
            let mut bytes = vec![0; self.page_size(unpacking.pages)];
            if unpacking.reader.read_exact(&mut bytes).is_err() {
                unpacking.is_damaged = true;
                break;
            }
            let _ = page.set(bytes.into_boxed_slice());
            unpacking.pages += 1;
        }
        if unpacking.is_damaged || unpacking.pages >= self.pages.len() {
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

    /// Random bytes, most of which repeat earlier ones, as in debug information.
    fn plain() -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut bytes = Vec::new();
        while bytes.len() < 300_000 {
            let from = bytes.len().saturating_sub(2000 + rng.usize(..256));
            let copied: Vec<u8> = bytes.iter().skip(from).take(rng.usize(..256)).copied().collect();
            bytes.extend(copied);
            bytes.extend((0..rng.u8(..32)).map(|_| rng.u8(..)));
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
                // This place was announced as unused.
                assert_eq!(section.window(end), &plain[end..]);
                assert_eq!(section.window(plain.len()), &[][..]);
            }
        }
    }

    #[test]
    fn damage_after_the_expected_part_does_not_matter() {
        let plain = plain();
        let mut stored = packed(&plain, Packing::Zlib);
        let middle = stored.len() / 2;
        stored[middle..].fill(0xff);
        let section = section(stored, plain.len(), Packing::Zlib);
        section.expect(plain.len() / 4);
        assert_eq!(section.window(0), &plain[..plain.len() / 4]);
        // The pages before the damage are there, and nothing after it.
        assert_eq!(section.window(UNPACKED_PAGE - 1).first(), plain.get(UNPACKED_PAGE - 1));
        assert_eq!(section.window(plain.len() - 1), &[][..]);
    }
}
