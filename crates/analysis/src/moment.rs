//! Points in a trace: as people name them (`When`), and as a walk finds them (`Moment`).
use crate::units::parse_duration;
use std::fmt;

/// A point as a query names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Before the first event.
    Start,
    /// Right after the event at which the program's live bytes were highest for the first time.
    Peak,
    /// After the last event.
    End,
    /// Nanoseconds since the session's start. The point is after every event that is not later.
    Ns(u64),
    /// A share of the runtime, in per cent.
    Percent(f64),
    /// After this many events, the last of which has this time. People cannot type it.
    Event { events: u64, time_ns: u64 },
}

/// A point that a walk can stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// After every event that is not later than this.
    Time(u64),
    /// After this many events.
    Event(u64),
    /// Before this block of events, and after all events of the block before it.
    Block(usize),
}

impl Moment {
    pub(crate) const START: Moment = Moment::Event(0);
    pub(crate) const END: Moment = Moment::Event(u64::MAX);

    /// The latest time that events before this moment may have.
    pub(crate) const fn time_limit(self) -> u64 {
        match self {
            Moment::Time(ns) => ns,
            Moment::Event(_) | Moment::Block(_) => u64::MAX,
        }
    }

    pub(crate) const fn event_limit(self) -> u64 {
        match self {
            Moment::Event(events) => events,
            Moment::Time(_) | Moment::Block(_) => u64::MAX,
        }
    }
}

impl When {
    pub fn parse(text: &str) -> Option<When> {
        Some(match text {
            "start" | "0" => When::Start,
            "peak" => When::Peak,
            "end" => When::End,
            _ => match text.strip_suffix('%') {
                Some(number) => {
                    When::Percent(number.trim_end().parse().ok().filter(|share| (0.0..=100.0).contains(share))?)
                }
                None => match parse_duration(text)? {
                    0 => When::Start,
                    ns => When::Ns(ns),
                },
            },
        })
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::Start => f.write_str("start"),
            When::Peak => f.write_str("peak"),
            When::End => f.write_str("end"),
            When::Ns(ns) => write!(f, "{ns}ns"),
            When::Percent(share) => write!(f, "{share}%"),
            When::Event { events, .. } => write!(f, "event {events}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_named_in_many_ways() {
        for (text, expected) in [
            ("start", Some(When::Start)),
            ("0", Some(When::Start)),
            ("0s", Some(When::Start)),
            ("peak", Some(When::Peak)),
            ("end", Some(When::End)),
            ("12ns", Some(When::Ns(12))),
            ("12", Some(When::Ns(12_000_000_000))),
            ("1.5s", Some(When::Ns(1_500_000_000))),
            ("200ms", Some(When::Ns(200_000_000))),
            ("300us", Some(When::Ns(300_000))),
            ("2min", Some(When::Ns(120_000_000_000))),
            ("1h", Some(When::Ns(3_600_000_000_000))),
            ("50%", Some(When::Percent(50.0))),
            ("101%", None),
            ("-1s", None),
            ("soon", None),
            ("", None),
            ("1.5", Some(When::Ns(1_500_000_000))),
            ("2m", Some(When::Ns(120_000_000_000))),
        ] {
            assert_eq!(When::parse(text), expected, "{text}");
        }
    }
}
