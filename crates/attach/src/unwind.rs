//! The sorted search table of unwind information, for a program that was linked without one. Static programs often are.
//!
//! Receives: the program's file. Returns: the bytes of an `.eh_frame_hdr` for a given address. Must hold: the file is
//! hostile; a broken one yields no table.
use gimli::{BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection};

/// The most entries of a table. The largest programs have fewer.
const MOST: usize = 4 << 20;

/// The addresses in memory of each function and of its description, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwindTable(Vec<(u64, u64)>);

impl UnwindTable {
    /// Makes the table. `section` are the bytes of `.eh_frame`, which is mapped at `at`.
    pub fn of(section: &[u8], at: u64) -> Option<UnwindTable> {
        let frames = EhFrame::new(section, NativeEndian);
        let bases = BaseAddresses::default().set_eh_frame(at);
        let mut entries = frames.entries(&bases);
        let mut found = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(description) = partial.parse(EhFrame::cie_from_offset) else { continue };
            if found.len() == MOST {
                return None;
            }
            found.push((description.initial_address(), at + description.offset() as u64));
        }
        found.sort_unstable();
        (!found.is_empty()).then_some(UnwindTable(found))
    }

    pub fn length(&self) -> u64 {
        12 + self.0.len() as u64 * 8
    }

    /// Encodes the table for the address `at`. Returns `None` if that is too far from the program.
    ///
    /// ```text
    /// | version 1 | absptr: 0b | count udata4 | table datarel sdata4 | 0 u32 | count u32 | (function, description) ..
    /// ```
    pub fn bytes(&self, at: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![1, 0x0b, 0x03, 0x3b];
        bytes.extend(0u32.to_le_bytes());
        bytes.extend((self.0.len() as u32).to_le_bytes());
        for (function, description) in &self.0 {
            for address in [function, description] {
                bytes.extend(i32::try_from(address.wrapping_sub(at) as i64).ok()?.to_le_bytes());
            }
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object as _, ObjectSection as _};

    #[test]
    fn it_is_what_the_linker_would_have_made() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let parsed = object::File::parse(&file[..]).unwrap();
        let section = |name: &str| parsed.section_by_name(name).unwrap();
        let (frames, header) = (section(".eh_frame"), section(".eh_frame_hdr"));
        let table = UnwindTable::of(frames.data().unwrap(), frames.address()).unwrap();
        let ours = table.bytes(header.address()).unwrap();
        let theirs = header.data().unwrap();
        assert_eq!(ours[8..12], theirs[8..12], "the count");
        let pairs = |bytes: &[u8]| bytes[12..].chunks_exact(8).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(pairs(&ours), pairs(theirs));
        assert_eq!(UnwindTable::of(b"nonsense", 0), None);
    }
}
