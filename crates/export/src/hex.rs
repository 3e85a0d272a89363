//! Lines of KDE's text: a letter and numbers in lower-case hexadecimal.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes a space and the number, such as ` 1f`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, number: u64) {
    let digits = (64 - (number | 1).leading_zeros() as usize).div_ceil(4);
    out.push(b' ');
    for at in (0..digits).rev() {
        out.push(DIGITS[(number >> (4 * at)) as usize & 15]);
    }
}

/// Writes a line, such as `t 1 0`, with its line feed.
pub(crate) fn line(out: &mut Vec<u8>, letter: u8, numbers: &[u64]) {
    out.push(letter);
    for number in numbers {
        put(out, *number);
    }
    out.push(b'\n');
}

/// Replaces line feeds and carriage returns by spaces, because a line feed would end the line.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_more_digits_than_they_need() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 0xdead_beef, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, number);
            assert_eq!(String::from_utf8_lossy(&out), format!(" {number:x}"));
        }
    }
}
