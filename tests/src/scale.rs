//! How much work a test does: the full counts of the issues with `HEAPTRACK_SOAK=1`, a tenth otherwise.

pub fn soak() -> bool {
    std::env::var_os("HEAPTRACK_SOAK").is_some_and(|value| value == "1")
}

/// `full` in a soak, else a tenth, but never none.
pub fn count(full: u64) -> u64 {
    if soak() { full } else { (full / 10).max(1) }
}
