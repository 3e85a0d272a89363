//! How many repetitions a test makes: all of them with `HEAPTRACK_SOAK=1`, a tenth otherwise.

pub fn soak() -> bool {
    std::env::var_os("HEAPTRACK_SOAK").is_some_and(|value| value == "1")
}

/// `full` in a soak, otherwise a tenth of it, but at least 1.
pub fn count(full: u64) -> u64 {
    if soak() { full } else { (full / 10).max(1) }
}
