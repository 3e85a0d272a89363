//! Symbol tables: addresses to the names that the linker knows.
use crate::elf::{Elf, RawSymbol};
use object::elf;

/// Symbols that begin before the one found may still cover the address; so many are looked at.
const LOOK_BACK: usize = 16;

#[derive(Default)]
pub(crate) struct Table<'f> {
    /// By address; of several names for one address the best one.
    symbols: Vec<RawSymbol<'f>>,
    pub(crate) is_nim: bool,
}

impl<'f> Table<'f> {
    pub(crate) fn add(&mut self, file: &Elf<'f>) {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            self.symbols.extend(file.symbols(kind));
        }
    }

    /// To be called when all files were added.
    pub(crate) fn sort(&mut self) {
        self.is_nim = self.symbols.iter().any(|symbol| symbol.name == b"NimMain");
        self.symbols.sort_by(|a, b| a.address.cmp(&b.address).then_with(|| rank(a).cmp(&rank(b))));
        self.symbols.dedup_by_key(|symbol| symbol.address);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    pub(crate) fn find(&self, address: u64) -> Option<&RawSymbol<'f>> {
        let behind = self.symbols.partition_point(|symbol| symbol.address <= address);
        let covers = |symbol: &&RawSymbol| address - symbol.address < symbol.size;
        let before = self.symbols.get(behind.saturating_sub(LOOK_BACK)..behind)?;
        if let Some(symbol) = before.iter().rev().find(covers) {
            return Some(symbol);
        }
        // Assembler functions often have no size: they reach to the next symbol.
        before.last().filter(|symbol| symbol.size == 0)
    }
}

/// Lower is better: a known size, a type, the name with the fewest underscores, then a fixed order.
fn rank<'a>(symbol: &RawSymbol<'a>) -> (bool, bool, usize, &'a [u8]) {
    let underscores = symbol.name.iter().take_while(|byte| **byte == b'_').count();
    let mangled = symbol.name.starts_with(b"_Z") || symbol.name.starts_with(b"_R");
    (symbol.size == 0, symbol.untyped, if mangled { 0 } else { underscores }, symbol.name)
}
