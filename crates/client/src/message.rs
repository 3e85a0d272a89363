//! The messages of the Domain Name System, as far as addresses need them (RFC 1035, RFC 3596).
//!
//! Must hold: the bytes of an answer come from the network, so each read is checked and each loop is bounded.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER: usize = 12;
const CLASS_INTERNET: u16 = 1;
const RECURSION_DESIRED: u16 = 0x0100;
const IS_ANSWER: u16 = 0x8000;
const IS_TRUNCATED: u16 = 0x0200;
const MOST_LABELS: usize = 128;

/// The kind of address that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    V4,
    V6,
}

impl Kind {
    const fn number(self) -> u16 {
        match self {
            Kind::V4 => 1,
            Kind::V6 => 28,
        }
    }
}

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// May be empty: the name exists, but has no address of this kind.
    Addresses(Vec<IpAddr>),
    NoSuchName,
    /// The answer did not fit into a datagram: ask again over TCP.
    Truncated,
    /// The server cannot answer.
    Failure,
}

/// A question. `None` if the name cannot be asked for.
pub(crate) fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER + name.len() + 6);
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        bytes.extend(word.to_be_bytes());
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?;
        bytes.push(length);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    if bytes.len() > HEADER + 255 {
        return None;
    }
    bytes.extend(kind.number().to_be_bytes());
    bytes.extend(CLASS_INTERNET.to_be_bytes());
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// The position after a name.
fn after_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..MOST_LABELS {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            // The rest of the name is elsewhere.
            0xc0.. => return Some(at + 2),
            length => at += 1 + length as usize,
        }
    }
    None
}

/// Reads an answer to `question`. `None` if the bytes are none.
pub(crate) fn answer(question: &[u8], bytes: &[u8]) -> Option<Answer> {
    let flags = word(bytes, 2)?;
    let asked = question.get(HEADER..)?;
    let is_ours = word(bytes, 0) == word(question, 0)
        && flags & IS_ANSWER != 0
        && bytes.get(HEADER..HEADER + asked.len()).is_some_and(|echo| echo.eq_ignore_ascii_case(asked));
    if !is_ours {
        return None;
    }
    if flags & IS_TRUNCATED != 0 {
        return Some(Answer::Truncated);
    }
    match flags & 0xf {
        0 => addresses(bytes, HEADER + asked.len()).map(Answer::Addresses),
        3 => Some(Answer::NoSuchName),
        _ => Some(Answer::Failure),
    }
}

/// The addresses of the answer. An alias and the addresses of the name that it stands for come together, so the owners of
/// addresses are not compared.
fn addresses(bytes: &[u8], mut at: usize) -> Option<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for _ in 0..word(bytes, 6)? {
        at = after_name(bytes, at)?;
        let (kind, class, length) = (word(bytes, at)?, word(bytes, at + 2)?, word(bytes, at + 8)? as usize);
        let data = bytes.get(at + 10..at + 10 + length)?;
        at += 10 + length;
        match (kind, <[u8; 4]>::try_from(data), <[u8; 16]>::try_from(data)) {
            _ if class != CLASS_INTERNET => (),
            (1, Ok(four), _) => addresses.push(Ipv4Addr::from(four).into()),
            (28, _, Ok(sixteen)) => addresses.push(Ipv6Addr::from(sixteen).into()),
            _ => (),
        }
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_as_the_standard_draws_them() {
        let bytes = question(0x1234, "a.example", Kind::V6).unwrap();
        assert_eq!(bytes, b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x1c\0\x01");
        for bad in ["", "a..b", &"x".repeat(64), &"abc.".repeat(70)] {
            assert_eq!(question(1, bad, Kind::V4), None, "{bad}");
        }
    }

    fn answered(flags: u16, records: u16, rest: &[u8]) -> Option<Answer> {
        let question = question(7, "a.example", Kind::V4).unwrap();
        let mut bytes = question.clone();
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&records.to_be_bytes());
        bytes.extend(rest);
        answer(&question, &bytes)
    }

    #[test]
    fn an_alias_leads_to_its_addresses() {
        let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01b\xc0\x0e";
        let address = b"\xc0\x27\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\x00\x00\x09";
        let both = [alias.as_slice(), address].concat();
        assert_eq!(answered(0x8180, 2, &both), Some(Answer::Addresses(vec!["10.0.0.9".parse().unwrap()])));
        assert_eq!(answered(0x8183, 0, b""), Some(Answer::NoSuchName));
        assert_eq!(answered(0x8182, 0, b""), Some(Answer::Failure));
        assert_eq!(answered(0x8380, 0, b""), Some(Answer::Truncated));
    }

    #[test]
    fn hostile_answers_are_refused() {
        assert_eq!(answered(0x0180, 0, b""), None, "a question");
        assert_eq!(answered(0x8180, 1, b""), None, "a record is missing");
        assert_eq!(answered(0x8180, 1, b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\xff\xff\x0a"), None, "too long");
        assert_eq!(answered(0x8180, 1, &[0x3f; 400]), None, "a name without an end");
        let question = question(7, "a.example", Kind::V4).unwrap();
        for length in 0..question.len() {
            assert_eq!(answer(&question, &question[..length]), None);
        }
    }
}
