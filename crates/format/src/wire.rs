//! The primitive values inside a block: LEB128 variable-length integers, zigzag for signed ones, and length-prefixed
//! strings.
use crate::{BlockKind, Malformed, RawBlock};

#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// A block that is a list: the number of items, then each item as `put_item` writes it.
pub(crate) fn list_block<T>(kind: BlockKind, items: &[T], mut put_item: impl FnMut(&mut Vec<u8>, &T)) -> RawBlock {
    let mut payload = Vec::new();
    put(&mut payload, items.len() as u64);
    for item in items {
        put_item(&mut payload, item);
    }
    RawBlock { kind, payload }
}

#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads values off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(rest: &'a [u8]) -> Self {
        Cursor { rest }
    }

    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Reads the next `N` numbers.
    pub(crate) fn numbers<const N: usize>(&mut self) -> Result<[u64; N], Malformed> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.u64()?;
        }
        Ok(numbers)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed::Cut)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first as u64);
        }
        let second = self.byte()?;
        let value = (first & 0x7f) as u64 | ((second & 0x7f) as u64) << 7;
        if second < 0x80 {
            return Ok(value);
        }
        self.u64_rest(value)
    }

    #[inline(never)]
    fn u64_rest(&mut self, mut value: u64) -> Result<u64, Malformed> {
        let mut shift = 14;
        loop {
            let byte = self.byte()?;
            let bits = (byte & 0x7f) as u64;
            if shift > 63 || shift == 63 && bits > 1 {
                return Err(Malformed::Overflow);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.u64()?).map_err(|_| Malformed::Overflow)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Tag),
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Cut)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Cut)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.u64()?).map_err(|_| Malformed::Cut)?;
        self.take(len)
    }

    /// Text that is not UTF-8 (a path may be anything) is decoded with replacement characters.
    pub(crate) fn str(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// Reads a number of entries. An entry has at least one byte, so a count above the number of bytes that are left is
    /// refused.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.u64()?;
        if count > self.len() as u64 {
            return Err(Malformed::Count);
        }
        Ok(count as usize)
    }

    /// Reads a list: its count, then its entries.
    pub(crate) fn list<T>(
        &mut self,
        mut entry: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count()?;
        // Entries of several bytes may still be fewer than the count says, so the list grows as they are read.
        let mut list = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            list.push(entry(self)?);
        }
        Ok(list)
    }

    /// Checks that nothing follows. Later versions add fields only at the end of a Session block. Any other change is a
    /// new kind of block or a new version number.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err(Malformed::Count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_back() {
        for value in [0, 1, 127, 128, 300, u32::MAX as u64, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.u64(), Ok(value));
            assert!(cursor.is_empty());
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn an_integer_of_more_than_64_bits_is_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 0x01;
        assert_eq!(Cursor::new(&bytes).u64(), Ok(u64::MAX));
        bytes[9] = 0x02;
        assert_eq!(Cursor::new(&bytes).u64(), Err(Malformed::Overflow));
        assert_eq!(Cursor::new(&[0x80; 11]).u64(), Err(Malformed::Overflow));
        assert_eq!(Cursor::new(&[0x80]).u64(), Err(Malformed::Cut));
    }

    #[test]
    fn a_count_beyond_the_block_is_refused() {
        assert_eq!(Cursor::new(&[3, 0, 0]).count(), Err(Malformed::Count));
        assert_eq!(Cursor::new(&[2, 0, 0]).count(), Ok(2));
    }
}
