//! The values of options as clap takes them: times and sizes, by the one parser of `analysis`.
use analysis::{NOT_A_DURATION, NOT_A_SIZE, parse_duration, parse_size};
use collector::RecorderThreads;
use std::time::Duration;

/// Parses a time. A number without a unit is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(Duration::from_nanos).ok_or_else(|| NOT_A_DURATION.to_owned())
}

/// Parses a time, and returns it in milliseconds.
pub fn milliseconds(text: &str) -> Result<u32, String> {
    u32::try_from(duration(text)?.as_millis()).map_err(|_| "out of range".to_owned())
}

/// Parses a number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| NOT_A_SIZE.to_owned())
}

/// Parses where collectors connect to.
pub fn listen(text: &str) -> Result<web::Listen, String> {
    web::Listen::parse(text).ok_or_else(|| "not a port (examples: 6060, 0.0.0.0:6060, unix:/run/heap.sock)".to_owned())
}

/// Parses a number of threads, or `auto`.
pub fn recorder_threads(text: &str) -> Result<RecorderThreads, String> {
    match text.parse() {
        Ok(threads) => Ok(RecorderThreads::Exactly(threads)),
        Err(_) if text == "auto" => Ok(RecorderThreads::Idle),
        Err(_) => Err("not a number of threads (examples: 1, 2, auto)".to_owned()),
    }
}

/// How often to measure the parts of the resident memory. `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvery(pub Option<Duration>);

/// Parses a time of at least 10 ms, or `off`.
pub fn memory_every(text: &str) -> Result<MemoryEvery, String> {
    match text {
        "off" => Ok(MemoryEvery(None)),
        _ => match duration(text)? {
            time if time < Duration::from_millis(10) => Err("must be at least 10ms, or off".to_owned()),
            time => Ok(MemoryEvery(Some(time))),
        },
    }
}

/// Parses how long events are kept: at least a second.
pub fn keep_last(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_secs(1) => Err("must be at least 1s".to_owned()),
        time => Ok(time),
    }
}

/// Parses how often profiles are pushed: at least every second.
pub fn push_every(text: &str) -> Result<Duration, String> {
    keep_last(text)
}

/// Parses the most bytes that a trace may have: at least 1 MB.
pub fn trace_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < collector::Bound::LEAST => Err("must be at least 1M".to_owned()),
        bytes => Ok(bytes),
    }
}
