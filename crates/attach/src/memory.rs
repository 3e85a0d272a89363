//! The target's memory, read and written through /proc/PID/mem: no thread of it runs for that, and code pages need not be
//! writable.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Memory {
    file: Arc<File>,
}

impl Memory {
    /// The memory of the program that runs now: after an exec, reads find nothing.
    pub fn open(folder: &Path) -> io::Result<Memory> {
        let file = File::options().read(true).write(true).open(folder.join("mem"))?;
        Ok(Memory { file: Arc::new(file) })
    }

    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    /// As much as there is.
    pub fn read_some(&self, at: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + done as u64) {
                Ok(count) if count > 0 => done += count,
                _ => break,
            }
        }
        done
    }

    pub fn words<const N: usize>(&self, at: u64) -> io::Result<[u64; N]> {
        let mut words = [0u64; N];
        self.read_words(at, &mut words)?;
        Ok(words)
    }

    pub fn read_words(&self, at: u64, into: &mut [u64]) -> io::Result<()> {
        let mut bytes = vec![0; into.len() * 8];
        self.read(at, &mut bytes)?;
        for (word, bytes) in into.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        Ok(())
    }

    pub fn word(&self, at: u64) -> io::Result<u64> {
        self.words::<1>(at).map(|[word]| word)
    }

    /// Up to the NUL, or `most` bytes.
    pub fn string(&self, at: u64, most: usize) -> Vec<u8> {
        let mut text = vec![0; most];
        let length = self.read_some(at, &mut text);
        text.truncate(length);
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        text.truncate(end);
        text
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    pub fn write_words(&self, at: u64, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(at, &bytes)
    }

    /// A value as it lies in memory; what its addresses mean is for the target.
    pub fn write_value<T>(&self, at: u64, value: &T) -> io::Result<()> {
        self.write(at, &bytes_of(value))
    }

    /// True when the program that this memory belonged to has exited or was replaced by exec. An address that is not mapped is an
    /// error instead, so any address will do.
    pub fn is_gone(&self) -> bool {
        matches!(self.file.read_at(&mut [0], 1 << 12), Ok(0))
    }

    /// The program of before is still there.
    pub fn is_alive(&self, at: u64) -> bool {
        let mut byte = [0];
        matches!(self.file.read_at(&mut byte, at), Ok(1))
    }
}

/// The bytes of a value, those between its fields included, which Rust code may not read.
fn bytes_of<T>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    // SAFETY: `value` is a reference, so `size_of::<T>()` bytes can be read there; `bytes` was just made with that length
    // and overlaps nothing. The direction flag is clear, as the ABI demands. Padding has no value for the compiler, but it
    // does not look into assembly, and to the processor all bytes are alike.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes.len() => _,
            inout("rsi") std::ptr::from_ref(value) => _,
            inout("rdi") bytes.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::core::Attached;
    use capture::entry::Range;

    /// What `session::open` writes. Here all addresses in the target are 0, so any that is left is one of ours.
    #[test]
    fn no_address_of_ours_is_written_into_a_target() {
        let attached = Attached {
            region: 0,
            geometry: channel::Geometry::tight(capture::core::WRITER_MEMORY),
            gate: 0,
            image: Range::NONE,
            debug: 0,
            program_headers: 0,
            program_header_count: 0,
            pid: 0,
            membarrier: true,
            has_counter: true,
            stack_top: 0,
        };
        let mut bytes = bytes_of(&attached.core());
        // Two numbers of the geometry, side by side, may look like an address.
        let geometry = bytes_of(&attached.geometry);
        let at = bytes.windows(geometry.len()).position(|part| part == geometry).unwrap();
        bytes[at..at + geometry.len()].fill(0);
        let ours = crate::maps::Maps::of(Path::new("/proc/self")).unwrap();
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        for (at, word) in words.enumerate() {
            assert_eq!(ours.at(word).filter(|mapping| mapping.read), None, "word {at} is {word:x}");
        }
    }

    #[test]
    fn bytes_between_fields_are_copied_as_they_are() {
        #[repr(C)]
        struct Padded(u8, u32, u16);
        let bytes = bytes_of(&Padded(1, 2, 3));
        assert_eq!((bytes.len(), bytes[0], &bytes[4..8], &bytes[8..10]), (12, 1, &[2, 0, 0, 0][..], &[3, 0][..]));
    }
}
