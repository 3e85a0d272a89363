//! A cache of unpacked sections: the end of a recording needs files again that were read while it ran.
//!
//! Must hold: the cache is never larger than allowed, and a section is found only for the same place of the same,
//! unchanged file.
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Identifies a file, and the version of it that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    pub(crate) size: u64,
    changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(file: &Metadata) -> Self {
        let changed = (file.mtime(), file.mtime_nsec());
        Identity { device: file.dev(), inode: file.ino(), size: file.len(), changed }
    }
}

/// A box, because making an `Arc<[u8]>` of a vector would copy its bytes.
pub(crate) type Bytes = Arc<Box<[u8]>>;

#[derive(Debug, Default)]
pub(crate) struct Kept {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    most: u64,
    bytes: u64,
    /// By file and by offset in it. Some have only the beginning of a section.
    sections: HashMap<(Identity, u64), Bytes>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the limit. If the cache is larger than that, it becomes empty.
    pub(crate) fn allow(&self, most: u64) {
        let mut inner = self.lock();
        inner.most = most;
        if inner.bytes > most {
            inner.clear();
        }
    }

    pub(crate) fn get(&self, file: Identity, start: u64) -> Option<Bytes> {
        self.lock().sections.get(&(file, start)).cloned()
    }

    /// Must be called before this many bytes are unpacked. Empties the cache if both together exceed the limit, unless
    /// the bytes alone exceed it.
    pub(crate) fn make_room(&self, bytes: u64) {
        let mut inner = self.lock();
        if bytes <= inner.most && inner.bytes + bytes > inner.most {
            inner.clear();
        }
    }

    pub(crate) fn put(&self, file: Identity, start: u64, bytes: &Bytes) {
        let mut inner = self.lock();
        let known = inner.sections.get(&(file, start)).map_or(0, |known| known.len() as u64);
        let together = inner.bytes - known + bytes.len() as u64;
        if together <= inner.most {
            inner.sections.insert((file, start), Arc::clone(bytes));
            inner.bytes = together;
        }
    }
}

impl Inner {
    fn clear(&mut self) {
        self.bytes = 0;
        self.sections = HashMap::new();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn bytes(size: usize) -> Bytes {
        Arc::new(vec![7; size].into_boxed_slice())
    }

    #[test]
    fn never_more_than_was_allowed() {
        let file = Identity::of(&std::fs::metadata("/proc/self/exe").unwrap());
        let kept = Kept::default();
        kept.put(file, 1, &bytes(1));
        assert_eq!(kept.get(file, 1), None, "nothing was allowed");
        kept.allow(10);
        kept.put(file, 1, &bytes(6));
        kept.put(file, 1, &bytes(6));
        kept.put(file, 2, &bytes(4));
        assert_eq!((kept.get(file, 1), kept.get(file, 2)), (Some(bytes(6)), Some(bytes(4))));
        kept.put(file, 3, &bytes(1));
        assert_eq!(kept.get(file, 3), None, "it was full");
        // A section that is put again replaces the earlier one, and only the new size counts.
        kept.put(file, 1, &bytes(5));
        kept.put(file, 3, &bytes(1));
        kept.put(file, 1, &bytes(6));
        assert_eq!((kept.get(file, 1), kept.get(file, 3)), (Some(bytes(5)), Some(bytes(1))));
        kept.put(file, 3, &bytes(0));
        kept.put(file, 1, &bytes(6));
        // A section that can never fit does not empty the cache.
        kept.make_room(11);
        assert_eq!(kept.get(file, 1), Some(bytes(6)));
        kept.make_room(1);
        assert_eq!((kept.get(file, 1), kept.get(file, 2)), (None, None));
        kept.put(file, 3, &bytes(1));
        kept.allow(0);
        assert_eq!(kept.get(file, 3), None);
    }

    #[test]
    fn another_file_has_other_sections() {
        let one = Identity::of(&std::fs::metadata("/proc/self/exe").unwrap());
        let other = Identity { changed: (one.changed.0 + 1, one.changed.1), ..one };
        let kept = Kept::default();
        kept.allow(10);
        kept.put(one, 1, &bytes(1));
        assert_eq!((kept.get(one, 1), kept.get(one, 2), kept.get(other, 1)), (Some(bytes(1)), None, None));
    }
}
