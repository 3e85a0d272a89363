//! Numbers for people, as on the page: units are powers of 1000 (kB, MB), thousands are separated by commas.
//! `crates/web/page/src/units.ts` has the same rules.
use crate::query::Cost;

fn scaled(value: f64, units: &[&str]) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    let mut number = value.abs();
    let mut unit = 0;
    while number >= 999.95 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    let digits = match unit {
        0 => usize::from(number.fract() != 0.0),
        _ if number < 10.0 => 2,
        _ => 1,
    };
    format!("{sign}{number:.digits$} {}", units[unit])
}

pub fn bytes(value: i64) -> String {
    scaled(value as f64, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Every digit, in groups of three.
pub fn exact(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = if value < 0 { String::from("-") } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 block", "2 blocks".
pub fn several(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", exact(crate::to_signed(value)), if value == 1 { "" } else { "s" })
}

pub fn amount(value: i64, cost: Cost) -> String {
    if cost.is_bytes() { bytes(value) } else { exact(value) }
}

/// A change, with its sign.
pub fn signed(value: i64, cost: Cost) -> String {
    format!("{}{}", if value > 0 { "+" } else { "" }, amount(value, cost))
}

/// The short form of a number. If that form rounds, all digits follow in brackets.
pub fn full(value: i64, cost: Cost) -> String {
    match cost.is_bytes() && value.unsigned_abs() >= 1000 {
        true => format!("{} ({} B)", bytes(value), exact(value)),
        false => amount(value, cost),
    }
}

/// A number with three digits that count, as JavaScript's `toPrecision(3)` writes it.
fn three_digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let digits = if rounded >= 100.0 {
        0
    } else if rounded >= 10.0 {
        1
    } else {
        2
    };
    format!("{rounded:.digits$}")
}

pub fn time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0 => "0 s".into(),
        1..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three_digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(value / 1e6)),
        1_000_000_000..10_000_000_000 => format!("{:.3} s", value / 1e9),
        10_000_000_000..60_000_000_000 => format!("{:.2} s", value / 1e9),
        _ => {
            let seconds = (ns + 500_000_000) / 1_000_000_000;
            let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            match hours {
                0 => format!("{minutes} min {seconds:02} s"),
                _ => format!("{hours} h {minutes:02} min {seconds:02} s"),
            }
        }
    }
}

pub fn percent(part: i64, whole: i64) -> String {
    if whole == 0 {
        return String::new();
    }
    let value = part as f64 * 100.0 / whole as f64;
    match value.abs() {
        0.0 => "0 %".into(),
        size if size < 0.1 => format!("{}<0.1 %", if value < 0.0 { "-" } else { "" }),
        size if size < 10.0 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_on_the_page() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.00 kB");
        assert_eq!(bytes(999_949), "999.9 kB");
        assert_eq!(bytes(999_951), "1.00 MB");
        assert_eq!(bytes(35_712_345), "35.7 MB");
        assert_eq!(bytes(-8_650_000), "-8.65 MB");
        assert_eq!(exact(80_003), "80,003");
        assert_eq!(exact(-1_234_567), "-1,234,567");
        assert_eq!(exact(999), "999");
        assert_eq!(several(1, "block"), "1 block");
        assert_eq!(signed(5, Cost::Allocations), "+5");
        assert_eq!(full(1_234_567, Cost::Peak), "1.23 MB (1,234,567 B)");
        assert_eq!(full(1_234_567, Cost::Temporary), "1,234,567");
    }

    #[test]
    fn times_look_as_on_the_page() {
        for (ns, text) in [
            (0, "0 s"),
            (12, "12 ns"),
            (131_072, "131 µs"),
            (999_999, "1000 µs"),
            (1_050_000, "1.05 ms"),
            (643_000_000, "643 ms"),
            (2_096_000_000, "2.096 s"),
            (12_345_000_000, "12.35 s"),
            (60_000_000_000, "1 min 00 s"),
            (3_723_000_000_000, "1 h 02 min 03 s"),
        ] {
            assert_eq!(time(ns), text, "{ns}");
        }
    }

    #[test]
    fn shares_have_few_digits() {
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(1, 30), "3.3 %");
        assert_eq!(percent(1, 3000), "<0.1 %");
        assert_eq!(percent(0, 5), "0 %");
        assert_eq!(percent(5, 0), "");
    }
}
