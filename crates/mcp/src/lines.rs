//! Reads messages: one in each line.
use crate::LONGEST_LINE;
use std::io::{self, BufRead};

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(Vec<u8>),
    /// The line was longer than [`LONGEST_LINE`] and was skipped.
    TooLong,
}

/// Returns the next line that is not empty, or `None` at the end of the input. A line that is too long is skipped without
/// being kept.
pub fn next_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let part = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            part => part?,
        };
        let end = part.iter().position(|byte| *byte == b'\n');
        let (text, used, is_end) = match end {
            Some(end) => (&part[..end], end + 1, true),
            None => (part, part.len(), part.is_empty()),
        };
        is_too_long |= line.len() + text.len() > LONGEST_LINE;
        if is_too_long {
            line.clear();
        } else {
            line.extend_from_slice(text);
        }
        let is_over = used == 0;
        input.consume(used);
        if !is_end {
            continue;
        }
        if is_too_long {
            return Ok(Some(Line::TooLong));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(Line::Text(line)));
        }
        if is_over {
            return Ok(None);
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_too_long_are_skipped_and_empty_ones_ignored() {
        let mut input = b"{}\n\r\n \n".to_vec();
        input.extend(vec![b'x'; LONGEST_LINE + 1]);
        input.extend(b"\n[1]\nlast");
        let mut input = io::BufReader::with_capacity(1000, input.as_slice());
        let mut next = || next_line(&mut input).unwrap();
        assert_eq!(next(), Some(Line::Text(b"{}".to_vec())));
        assert_eq!(next(), Some(Line::TooLong));
        assert_eq!(next(), Some(Line::Text(b"[1]".to_vec())));
        assert_eq!(next(), Some(Line::Text(b"last".to_vec())));
        assert_eq!((next(), next()), (None, None));
    }
}
