//! The conditions of `--snapshot-when`.
use super::cgroup::Cgroup;
use crate::status::Bytes;
use analysis::parse_size;
use std::fmt;

/// When a snapshot is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// The resident size is at least this.
    Rss(u64),
    /// The live blocks have at least this many bytes.
    Heap(u64),
    /// The live blocks have grown by at least this within a minute.
    Growth(u64),
    /// The program's cgroup, or one around it, uses at least this share of its limit.
    Cgroup(f64),
    /// Tasks of the program's cgroup waited for memory for at least this share of the last ten seconds.
    Pressure(f64),
    /// SIGUSR1 was sent to the recorder.
    Signal,
}

/// What conditions are compared with.
pub struct Measured {
    pub heap_bytes: u64,
    pub rss_bytes: u64,
    pub growth_bytes: u64,
    pub cgroup_percent: f64,
    pub pressure_percent: f64,
    pub is_asked: bool,
}

impl Condition {
    /// Parses one condition, as `rss=2G` or `cgroup=95%`.
    pub fn parse(text: &str) -> Result<Condition, String> {
        const EXAMPLES: &str = "rss=2G, heap=500M, growth=100M, cgroup=95%, pressure=10%, sigusr1";
        let bad = || format!("not a condition (examples: {EXAMPLES})");
        if text.eq_ignore_ascii_case("sigusr1") {
            return Ok(Condition::Signal);
        }
        let (name, value) = text.split_once('=').ok_or_else(bad)?;
        let bytes = || parse_size(value).filter(|bytes| *bytes > 0).ok_or_else(bad);
        let share = || {
            let share = value.strip_suffix('%').and_then(|text| text.parse::<f64>().ok());
            share.filter(|share| *share > 0.0 && *share <= 100.0).ok_or_else(bad)
        };
        Ok(match name {
            "rss" => Condition::Rss(bytes()?),
            "heap" => Condition::Heap(bytes()?),
            "growth" => Condition::Growth(bytes()?),
            "cgroup" => Condition::Cgroup(share()?),
            "pressure" => Condition::Pressure(share()?),
            _ => return Err(bad()),
        })
    }

    /// Why the condition cannot hold as long as nothing changes for the program.
    pub fn lacks(&self, cgroup: Option<&Cgroup>) -> Option<String> {
        match self {
            Condition::Cgroup(percent) if cgroup.and_then(Cgroup::memory).is_none() => {
                Some(format!("cgroup={percent}% does not hold, because the program has no cgroup with a memory limit"))
            }
            Condition::Pressure(percent) if cgroup.and_then(Cgroup::pressure).is_none() => Some(format!(
                "pressure={percent}% does not hold, because no memory pressure is known of the program's cgroup"
            )),
            _ => None,
        }
    }

    pub fn holds(&self, measured: &Measured) -> bool {
        match *self {
            Condition::Rss(bytes) => measured.rss_bytes >= bytes,
            Condition::Heap(bytes) => measured.heap_bytes >= bytes,
            Condition::Growth(bytes) => measured.growth_bytes >= bytes,
            Condition::Cgroup(percent) => measured.cgroup_percent >= percent,
            Condition::Pressure(percent) => measured.pressure_percent >= percent,
            Condition::Signal => measured.is_asked,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Rss(bytes) => write!(out, "the resident memory has reached {}", Bytes(*bytes)),
            Condition::Heap(bytes) => write!(out, "the heap has reached {}", Bytes(*bytes)),
            Condition::Growth(bytes) => write!(out, "the heap has grown by {} within a minute", Bytes(*bytes)),
            Condition::Cgroup(percent) => write!(out, "the cgroup has reached {percent} % of its memory limit"),
            Condition::Pressure(percent) => write!(out, "the memory pressure of the cgroup has reached {percent} %"),
            Condition::Signal => out.write_str("SIGUSR1 asked for a snapshot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_a_name_and_a_value() {
        assert_eq!(Condition::parse("rss=2G"), Ok(Condition::Rss(2_000_000_000)));
        assert_eq!(Condition::parse("heap=512Mi"), Ok(Condition::Heap(512 << 20)));
        assert_eq!(Condition::parse("growth=100M"), Ok(Condition::Growth(100_000_000)));
        assert_eq!(Condition::parse("cgroup=95%"), Ok(Condition::Cgroup(95.0)));
        assert_eq!(Condition::parse("SIGUSR1"), Ok(Condition::Signal));
        assert_eq!(Condition::parse("pressure=0.5%"), Ok(Condition::Pressure(0.5)));
        for bad in [
            "",
            "rss",
            "rss=",
            "rss=0",
            "rss=95%",
            "cgroup=95",
            "cgroup=0%",
            "cgroup=101%",
            "swap=1G",
            "heap=NaN",
            "sigusr2",
            "sigusr1=1",
        ] {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_a_cgroup_two_conditions_cannot_hold() {
        let lacks = |text: &str| Condition::parse(text).unwrap().lacks(None);
        for text in ["rss=1", "heap=1", "growth=1", "sigusr1"] {
            assert_eq!(lacks(text), None);
        }
        let reason = "does not hold, because the program has no cgroup with a memory limit";
        assert_eq!(lacks("cgroup=95%"), Some(format!("cgroup=95% {reason}")));
        let reason = "does not hold, because no memory pressure is known of the program's cgroup";
        assert_eq!(lacks("pressure=0.5%"), Some(format!("pressure=0.5% {reason}")));
    }

    #[test]
    fn each_condition_looks_at_its_own_number() {
        let measured = Measured {
            heap_bytes: 10,
            rss_bytes: 20,
            growth_bytes: 5,
            cgroup_percent: 50.0,
            pressure_percent: 1.0,
            is_asked: true,
        };
        let holds = |text: &str| Condition::parse(text).unwrap().holds(&measured);
        for (reached, not_reached) in
            [("heap=10", "heap=11"), ("rss=20", "rss=21"), ("growth=5", "growth=6"), ("cgroup=50%", "cgroup=51%")]
        {
            assert!(holds(reached) && !holds(not_reached), "{reached}");
        }
        assert!(holds("sigusr1"));
        assert!(holds("pressure=1%") && !holds("pressure=2%"));
    }
}
