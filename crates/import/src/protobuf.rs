//! Reads Protocol Buffers, field by field.
//!
//! Must hold: nothing is read beyond the end; a length that is too large is an error, not an allocation.

/// The most numbers of a list. No stack is that deep.
const LONGEST_LIST: usize = 1 << 20;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(crate) const fn number(self) -> u64 {
        match self {
            Field::Number(value) => value,
            Field::Bytes(_) => 0,
        }
    }

    pub(crate) const fn bytes(self) -> &'a [u8] {
        match self {
            Field::Number(_) => &[],
            Field::Bytes(bytes) => bytes,
        }
    }

    /// The numbers of a list, packed or not. Fails if there are very many.
    pub(crate) fn numbers(self, list: &mut Vec<u64>) -> Option<()> {
        if list.len() > LONGEST_LIST || self.bytes().len() > LONGEST_LIST {
            return None;
        }
        match self {
            Field::Number(value) => list.push(value),
            Field::Bytes(mut bytes) => {
                while !bytes.is_empty() {
                    list.push(varint(&mut bytes)?);
                }
            }
        }
        Some(())
    }
}

/// The fields of a message: their numbers and values. `None` in place of a field: the message is malformed.
pub(crate) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u64, Field<'_>)>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let field = next(&mut bytes);
        if field.is_none() {
            bytes = &[];
        }
        Some(field)
    })
}

fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let tag = varint(bytes)?;
    let value = match tag & 7 {
        0 => Field::Number(varint(bytes)?),
        1 => Field::Bytes(take(bytes, 8)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Field::Bytes(take(bytes, length)?)
        }
        5 => Field::Bytes(take(bytes, 4)?),
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
