//! The bytes of one section, as far as anybody looked at them.
//!
//! Given: where a section lies in a file. Gives back: its bytes, a window at a time. What must hold: what nobody looks
//! at is not read; a packed section is unpacked when it is first looked at, a large one no further than to that place; a file
//! that shrinks meanwhile, or cannot be unpacked, gives empty windows.
//!
//! ```text
//! in the file:    | page |      | page |      |     each is read at the first look into it
//! packed:         | all of it                 |
//! packed, large:  | page | page | page |            as far as anybody looked; also where a packed one is damaged
//! ```
use crate::kept::{Bytes, Kept};
use crate::packing::{Packed, Packing, unpack_whole, unpacker};
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
    /// Of a packed section, if it could be unpacked at one go.
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
        let (whole, unpacking) = (OnceCell::new(), RefCell::default());
        Some(Section { source, extent, size, page, pages, whole, unpacking, counter, kept })
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// The bytes from `at` on, as many as lie together; none where the section ends or cannot be read.
    pub(crate) fn window(&self, at: usize) -> &[u8] {
        if let Some(whole) = self.whole() {
            return whole.get(at..).unwrap_or_default();
        }
        let number = at / self.page;
        let Some(page) = self.pages.get(number) else { return &[] };
        let bytes = match page.get() {
            Some(bytes) => bytes,
            None => {
                if self.extent.packing != Packing::Plain {
                    self.unpack(number);
                }
                page.get_or_init(|| self.read(number))
            }
        };
        bytes.get(at % self.page..).unwrap_or_default()
    }

    fn whole(&self) -> Option<&[u8]> {
        if self.extent.packing == Packing::Plain || self.size > MOST_WHOLE {
            return None;
        }
        self.whole.get_or_init(|| self.find_whole()).as_ref().map(|whole| &***whole)
    }

    fn find_whole(&self) -> Option<Bytes> {
        let file = self.source.identity().filter(|_| self.size >= LEAST_KEPT);
        if let Some(known) = file.and_then(|file| self.kept.get(file, self.extent.start)) {
            return Some(known).filter(|known| known.len() == self.size);
        }
        self.kept.make_room(self.extent.size);
        let whole = Arc::new(unpack_whole(self.packed(), self.extent.packing, self.size)?);
        if let Some(file) = file {
            self.kept.put(file, self.extent.start, &whole);
        }
        Some(whole)
    }

    fn packed(&self) -> Packed {
        Packed { source: Rc::clone(&self.source), at: self.extent.start, left: self.extent.stored }
    }

    fn page_size(&self, number: usize) -> usize {
        self.page.min(self.size - number * self.page)
    }

    /// A page of a section that is not packed; an empty one, where unpacking did not come that far.
    fn read(&self, number: usize) -> Box<[u8]> {
        if self.extent.packing != Packing::Plain {
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
