//! Sizes and ages as people read them. Fractions of decimal units have three digits.
use std::fmt::{self, Display, Formatter};

/// `4 bytes`, `1.005 KB`, `2.121 MB`, `3.000 GB`.
pub struct Size(pub u64);

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Size(bytes) = *self;
        let (unit, name) = match bytes {
            0..1_000 => return write!(f, "{bytes} bytes"),
            1_000..1_000_000 => (1_000, "KB"),
            1_000_000..1_000_000_000 => (1_000_000, "MB"),
            _ => (1_000_000_000, "GB"),
        };
        write!(f, "{}.{:03} {name}", bytes / unit, bytes % unit / (unit / 1000))
    }
}

/// `2 hours 5 mins`, `3 mins 4 secs`, `1.002 secs`, `6.236 ms`, `206.154 us`, `12 ns`.
pub struct Age(pub u64);

impl Display for Age {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Age(ns) = *self;
        let seconds = ns / 1_000_000_000;
        match ns {
            0..1_000 => write!(f, "{ns} ns"),
            1_000..1_000_000 => write!(f, "{}.{:03} us", ns / 1_000, ns % 1_000),
            1_000_000..1_000_000_000 => write!(f, "{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000),
            _ if seconds < 60 => write!(f, "{seconds}.{:03} secs", ns / 1_000_000 % 1_000),
            _ if seconds < 3600 => write!(f, "{} mins {} secs", seconds / 60, seconds % 60),
            _ => write!(f, "{} hours {} mins", seconds / 3600, seconds / 60 % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_padded() {
        let sizes = [0, 999, 1_000, 1_005, 22_704, 999_999, 1_000_000, 2_121_999, 3_000_000_000, 7_123_456_789_000];
        assert_eq!(
            sizes.map(|bytes| Size(bytes).to_string()),
            [
                "0 bytes",
                "999 bytes",
                "1.000 KB",
                "1.005 KB",
                "22.704 KB",
                "999.999 KB",
                "1.000 MB",
                "2.121 MB",
                "3.000 GB",
                "7123.456 GB"
            ]
        );
        let ages = [7, 206_154, 6_236_000, 1_002_000_000, 59_999_000_000, 184_000_000_000, 7_500_000_000_000];
        assert_eq!(
            ages.map(|ns| Age(ns).to_string()),
            ["7 ns", "206.154 us", "6.236 ms", "1.002 secs", "59.999 secs", "3 mins 4 secs", "2 hours 5 mins"]
        );
    }
}
