//! A line of KDE's text: a letter, a space, fields.
//!
//! Numbers are hexadecimal, lower case, without sign or prefix. Since format 3, strings have their length in front.

/// Reads fields off the front of a line. The line's letter and the space after it are removed already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(rest: &'a [u8]) -> Self {
        Fields { rest }
    }

    /// Reads the next number and the space after it. Returns `None` if there is no number, or if it is malformed or has
    /// more than 64 bits.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut length = 0;
        for byte in self.rest {
            let digit = digit(*byte);
            if digit > 15 {
                break;
            }
            if value >> 60 != 0 {
                return None;
            }
            value = value << 4 | digit as u64;
            length += 1;
        }
        if length == 0 {
            return None;
        }
        self.rest = match self.rest.get(length) {
            None => &[],
            Some(b' ') => self.rest.get(length + 1..)?,
            Some(_) => return None,
        };
        Some(value)
    }

    /// The same for at most 32 bits.
    pub(crate) fn index(&mut self) -> Option<u32> {
        self.number().and_then(|number| u32::try_from(number).ok())
    }

    /// Reads a string with its length in front.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest.strip_prefix(b" ").unwrap_or(rest);
        Some(text)
    }

    /// Reads up to the next space.
    pub(crate) fn word(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| *byte == b' ').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix(b" ").unwrap_or(rest);
        word
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

const fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => 0xff,
    }
}

pub(super) const ONES: u64 = 0x0101_0101_0101_0101;

/// Reads the number at the front of `bytes` that ends with a line feed, and returns it with the count of its digits. It
/// reads up to seven digits at once, without a branch that depends on them, because nearly all lines of a file have
/// this form. Returns `None` if the slow path must read the line.
#[inline]
pub(crate) fn short_number(bytes: &[u8; 8]) -> Option<(u32, usize)> {
    let word = u64::from_le_bytes(*bytes);
    let feeds = word ^ (ONES * b'\n' as u64);
    let found = feeds.wrapping_sub(ONES) & !feeds & ONES << 7;
    let length = found.trailing_zeros() as usize / 8;
    if length == 0 || length > 7 {
        return None;
    }
    // Shifts the digits to the end, with zeros before them: the last byte then counts 1, the one before it 16.
    let digits = word << (64 - 8 * length) | (ONES * b'0' as u64) >> (8 * length);
    let values = (digits & (ONES * 15)).wrapping_add((digits >> 6 & ONES) * 9);
    let is_letter = values.wrapping_add(ONES * 6) >> 4 & ONES;
    if values & (ONES * 0xf0) != 0 || values + ONES * b'0' as u64 + is_letter * (b'a' - b'0' - 10) as u64 != digits {
        return None;
    }
    let pairs = values.swap_bytes();
    let pairs = (pairs | pairs >> 4) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some((((quads | quads >> 16) & 0xffff_ffff) as u32, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_both_ways() {
        for value in [0u32, 1, 9, 10, 15, 16, 0x9a, 0xabc, 0x1_0000, 0xf_ffff, 0x12_3456, 0xfed_cba9] {
            let line = format!("{value:x}\n+ 123456");
            let (bytes, _) = line.as_bytes().split_first_chunk().unwrap_or((&[0; 8], &[]));
            assert_eq!(short_number(bytes), Some((value, format!("{value:x}").len())), "{value:x}");
            assert_eq!(Fields::new(format!("{value:x}").as_bytes()).number(), Some(value as u64));
        }
    }

    #[test]
    fn what_is_no_number_is_refused_by_both_ways() {
        for text in ["", " ", "A\n", "1A\n", "g\n", "/\n", ":\n", "`\n", "1 2\n", "-1\n", "\x0012\n", "\u{7f}\n"] {
            let mut bytes = [b'\n'; 8];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            assert_eq!(short_number(&bytes), None, "{text:?}");
        }
        assert_eq!(short_number(b"12345678"), None);
        for text in ["", " ", "A", "1A", "g", "+1", "1\t", "10000000000000000"] {
            assert_eq!(Fields::new(text.as_bytes()).number(), None, "{text:?}");
        }
        assert_eq!(Fields::new(b"ffffffffffffffff").number(), Some(u64::MAX));
    }

    #[test]
    fn every_byte_is_judged_alike_by_both_ways() {
        for byte in 0..=255u8 {
            let line = [b'1', byte, b'2', b'\n', 0, 0, 0, 0];
            let slow = if byte == b'\n' { Some(1) } else { Fields::new(&line[..3]).number().map(|n| n as u32) };
            // A space ends a field too, but the fast path leaves such lines to the slow one.
            let expected = if byte == b' ' { None } else { slow };
            assert_eq!(short_number(&line).map(|found| found.0), expected, "{byte}");
        }
    }

    #[test]
    fn strings_have_their_length() {
        let mut fields = Fields::new(b"4 a b  7f 0");
        assert_eq!(fields.sized(), Some(&b"a b "[..]));
        assert_eq!((fields.number(), fields.number(), fields.number()), (Some(0x7f), Some(0), None));
        assert_eq!(Fields::new(b"5 abc").sized(), None);
    }
}
