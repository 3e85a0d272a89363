//! The values of `--recorder-nice` and `--recorder-cpu`.
use rustix::thread::CpuSet;
use std::fmt;

/// The shortest period of a share. The recorder pauses for at most this long at a time, unless its share is so small that
/// the kernel needs a longer period.
const PERIOD_US: f64 = 20_000.0;
/// The kernel accepts no smaller quota.
const LEAST_QUOTA_US: f64 = 1_000.0;
const LEAST_PERCENT: f64 = 1.0;
const WRONG_CPUS: &str =
    "not a list of CPUs (examples: 0, 0-3, 0,2) and not a share of one CPU (example: 50%, at least 1%)";

/// A value of `--recorder-cpu`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CpuLimit {
    Cpus(CpuSet),
    Share(Share),
}

/// How much of one CPU the recorder may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    percent: f64,
}

/// The recorder may run for `quota_us` in each period of `period_us`, all its threads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub quota_us: u64,
    pub period_us: u64,
}

impl Share {
    pub fn quota(self) -> Quota {
        let part = self.percent / 100.0;
        let period = PERIOD_US.max(LEAST_QUOTA_US / part);
        Quota { quota_us: (period * part).round() as u64, period_us: period.round() as u64 }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.percent)
    }
}

impl fmt::Display for CpuLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuLimit::Cpus(set) => f.write_str(&list(set)),
            CpuLimit::Share(share) => share.fmt(f),
        }
    }
}

pub fn nice(text: &str) -> Result<i32, String> {
    let nice = text.parse().ok().filter(|nice| (0..=19).contains(nice));
    nice.ok_or_else(|| "not a nice value (0 to 19)".to_owned())
}

pub fn cpu_limit(text: &str) -> Result<CpuLimit, String> {
    let limit = match text.strip_suffix('%') {
        Some(number) => share(number).map(CpuLimit::Share),
        None => cpus(text).map(CpuLimit::Cpus),
    };
    limit.ok_or_else(|| WRONG_CPUS.to_owned())
}

fn share(number: &str) -> Option<Share> {
    let most = 100.0 * CpuSet::MAX_CPU as f64;
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent = number.parse().ok().filter(|percent| is_plain && (LEAST_PERCENT..=most).contains(percent));
    percent.map(|percent| Share { percent })
}

fn cpus(text: &str) -> Option<CpuSet> {
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<usize>().ok().filter(|cpu| is_plain && *cpu < CpuSet::MAX_CPU)
    };
    let mut set = CpuSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if last < first {
            return None;
        }
        (first..=last).for_each(|cpu| set.set(cpu));
    }
    Some(set)
}

/// Returns the CPUs as the kernel writes them: "0-3,6".
pub fn list(set: &CpuSet) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let words = ranges.into_iter().map(|(first, last)| match last {
        last if last == first => first.to_string(),
        last => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_and_written_as_the_kernel_does() {
        for (text, same) in [("0", "0"), ("0-3", "0-3"), ("0,2", "0,2"), ("2,0,1,1", "0-2"), ("7-7,1023", "7,1023")] {
            assert_eq!(cpu_limit(text).unwrap().to_string(), same, "{text}");
        }
    }

    #[test]
    fn values_without_a_meaning_are_refused() {
        for text in ["", ",", "0,", "a", "-1", "0-", "3-1", "1024", "0-1024", "+1", "0 1", "0x1", "0-1-2"] {
            assert_eq!(cpu_limit(text), Err(WRONG_CPUS.to_owned()), "{text}");
        }
        for text in ["%", "0%", "0.5%", "-5%", "+5%", "1e2%", "nan%", "inf%", "200000%", "5%%", "5 %"] {
            assert_eq!(cpu_limit(text), Err(WRONG_CPUS.to_owned()), "{text}");
        }
        for text in ["", "-1", "20", "x", "1.5"] {
            assert!(nice(text).is_err(), "{text}");
        }
        assert_eq!((nice("0"), nice("19")), (Ok(0), Ok(19)));
    }

    #[test]
    fn a_share_becomes_a_quota_that_the_kernel_accepts() {
        let quota = |text: &str| match cpu_limit(text) {
            Ok(CpuLimit::Share(share)) => (share.quota().quota_us, share.quota().period_us),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(quota("50%"), (10_000, 20_000));
        assert_eq!(quota("12.5%"), (2_500, 20_000));
        assert_eq!(quota("150%"), (30_000, 20_000));
        assert_eq!(quota("5%"), (1_000, 20_000));
        assert_eq!(quota("2%"), (1_000, 50_000));
        assert_eq!(quota("1%"), (1_000, 100_000));
    }
}
