//! Times and sizes as people type them: the one parser for every option and every word of a query.
//!
//! Receives: a number and an optional unit, as `1.5s` or `4Ki`. Returns: nanoseconds or bytes. Must hold: whole numbers
//! are exact, even those that a floating-point number cannot hold.

/// The end of a sentence about a text that [`parse_duration`] refuses.
pub const NOT_A_DURATION: &str = "not a valid duration (examples: 30s, 5m, 1h)";
/// The end of a sentence about a text that [`parse_size`] refuses.
pub const NOT_A_SIZE: &str = "not a valid size (examples: 500M, 2G, 1.5GiB)";

/// Returns nanoseconds. A number without a unit is seconds. A time that is too long for a `u64` becomes the longest
/// one.
pub fn parse_duration(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "" | "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    match number {
        Number::Whole(number) => Some(number.saturating_mul(unit)),
        Number::Fraction(number) => Some((number * unit as f64).round() as u64),
        Number::None => None,
    }
}

/// Returns bytes. `k`, `M`, `G` and `T` are powers of 1000, `Ki`, `Mi`, `Gi` and `Ti` are powers of 1024. A `B` may
/// follow. Letters may be small or large.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let unit: u64 = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        _ => return None,
    };
    match number {
        Number::Whole(number) => number.checked_mul(unit),
        Number::Fraction(number) => {
            Some(number * unit as f64).filter(|size| *size < u64::MAX as f64).map(|size| size as u64)
        }
        Number::None => None,
    }
}

enum Number {
    Whole(u64),
    Fraction(f64),
    None,
}

/// The number and its unit, which may have a space between them.
fn split(text: &str) -> (Number, &str) {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let digits = digits.trim_end();
    let fraction = || digits.parse().ok().filter(|number: &f64| *number >= 0.0 && number.is_finite());
    let number = match digits.parse() {
        Ok(whole) => Number::Whole(whole),
        Err(_) => fraction().map_or(Number::None, Number::Fraction),
    };
    (number, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_time_is_seconds() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12", Some(12_000_000_000)),
            ("1.5", Some(1_500_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("12ns", Some(12)),
            ("300us", Some(300_000)),
            ("200 ms", Some(200_000_000)),
            ("2m", Some(120_000_000_000)),
            ("2min", Some(120_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("9007199254740993ns", Some(9_007_199_254_740_993)),
            ("600000000000s", Some(u64::MAX)),
            ("1e3", Some(1_000_000_000_000)),
            ("-1s", None),
            ("5S", None),
            ("5d", None),
            ("s", None),
            ("", None),
            ("inf", None),
            ("nan", None),
            ("soon", None),
            ("1,5s", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_size_is_decimal_unless_it_says_so() {
        for (text, expected) in [
            ("0", Some(0)),
            ("100", Some(100)),
            ("100B", Some(100)),
            ("4k", Some(4_000)),
            ("4K", Some(4_000)),
            ("4kB", Some(4_000)),
            ("4Ki", Some(4_096)),
            ("4KiB", Some(4_096)),
            ("500M", Some(500_000_000)),
            ("1.5MiB", Some(1_572_864)),
            ("2G", Some(2_000_000_000)),
            ("2Gi", Some(2 << 30)),
            ("1T", Some(1_000_000_000_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("99999999T", None),
            ("1e400G", None),
            ("-3G", None),
            ("2Q", None),
            ("M", None),
            ("i", None),
            ("", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text:?}");
        }
    }
}
