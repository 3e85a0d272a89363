//! Decodes the query of an address that the page requests.
//!
//! Receives: the part of an address after `?`. Returns: names and values as `analysis::Query` takes them. Must hold: a
//! time without a unit is in nanoseconds.
use crate::Refusal;

/// Decodes `a=b&c=d` with `%XX` and `+`.
pub(crate) fn decode(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (name, value) = (word(name)?, word(value)?);
        let value = with_unit(&name, value);
        Some((name, value))
    };
    let pairs: Option<Vec<_>> = query.split('&').filter(|text| !text.is_empty()).map(pair).collect();
    pairs.ok_or_else(|| Refusal::new(400, "The address cannot be decoded."))
}

fn word(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit = |byte: u8| (byte as char).to_digit(16);
                bytes.push((digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Appends `ns` to times without a unit. The page writes times as plain numbers of nanoseconds, and people save its
/// addresses. On the command line a plain number is seconds, and `analysis::Query` reads it like that.
fn with_unit(name: &str, value: String) -> String {
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let time = |text: &str| if is_plain(text) { format!("{text}ns") } else { text.to_owned() };
    let span = |text: &str| match text.split_once("..") {
        Some((min, max)) => format!("{}..{}", time(min), time(max)),
        None => time(text),
    };
    match (name, value.strip_prefix('@')) {
        ("at" | "from" | "to" | "lifetime", _) => span(&value),
        ("compare", Some(moment)) => format!("@{}", span(moment)),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_decoded() {
        let pairs = decode("a=b%20c&d=%2Fx%2F&e&f=1+2").unwrap();
        let expected = [("a", "b c"), ("d", "/x/"), ("e", ""), ("f", "1 2")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(decode("a=%2").is_err() && decode("a=%ff").is_err() && decode("%zz").is_err());
    }

    #[test]
    fn a_plain_number_is_nanoseconds() {
        for (address, expected) in [
            ("from=5", "5ns"),
            ("to=2s", "2s"),
            ("at=peak", "peak"),
            ("lifetime=..1000", "..1000ns"),
            ("lifetime=1..2ms", "1ns..2ms"),
            ("compare=@7", "@7ns"),
            ("compare=@7..50%25", "@7ns..50%"),
            ("compare=1", "1"),
            ("size=1..2", "1..2"),
        ] {
            assert_eq!(decode(address).unwrap()[0].1, expected, "{address}");
        }
    }
}
