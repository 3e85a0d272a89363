//! The target's memory, read and written through /proc/PID/mem. No thread of the target runs for that, and code pages
//! need not be writable.
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
    /// Opens the memory of the program that runs now. After an exec, all reads of it fail.
    pub fn open(folder: &Path) -> io::Result<Memory> {
        let file = File::options().read(true).write(true).open(folder.join("mem"))?;
        Ok(Memory { file: Arc::new(file) })
    }

    pub fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    /// Reads as many bytes as can be read. Returns their number.
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

    /// Reads a string up to its NUL, or `most` bytes.
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

    /// Returns true if the program that this memory belonged to has exited, or was replaced by an exec. A read at an
    /// address that is not mapped is an error instead, so any address can be used.
    pub fn is_gone(&self) -> bool {
        matches!(self.file.read_at(&mut [0], 1 << 12), Ok(0))
    }

    /// Returns true if the memory at `at` is still there, which means that the program is still the same.
    pub fn is_alive(&self, at: u64) -> bool {
        let mut byte = [0];
        matches!(self.file.read_at(&mut byte, at), Ok(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::core::{AttachBlock, WRITER_MEMORY};
    use channel::Geometry;

    /// Checks the core's bytes that `session::open` writes. All addresses of the target are 0 here, so any other
    /// address would be one of this process.
    #[test]
    fn no_address_of_ours_is_written_into_a_target() {
        let zeros = AttachBlock::of_zeros(Geometry::tight(WRITER_MEMORY));
        let block = AttachBlock { has_membarrier: 1, has_counter: 1, ..zeros };
        let mut bytes = block.to_core_bytes(None).unwrap();
        // Two neighbouring numbers of the geometry may look like an address.
        let geometry = block.geometry.to_bytes();
        let at = bytes.windows(geometry.len()).position(|part| part == geometry).unwrap();
        bytes[at..at + geometry.len()].fill(0);
        let ours = crate::maps::Maps::of(Path::new("/proc/self")).unwrap();
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        for (at, word) in words.enumerate() {
            assert_eq!(ours.at(word).filter(|mapping| mapping.read), None, "word {at} is {word:x}");
        }
    }
}
