//! How much of a trace fits into a browser.
use heaptrack_trace::{Extent, Reading};

/// The index takes about this many bytes, as that of the server.
pub const INDEX_BYTES: usize = 192 << 20;
/// The addresses of WebAssembly end at 4 GiB, and a browser may give less.
const MOST_BYTES: u64 = 3 << 30;

/// Returns how many bytes of memory a trace needs at most, if that is more than the engine in a browser can have.
pub fn too_large_for_a_browser(extent: &Extent) -> Option<u64> {
    let need = extent.most_bytes(Reading::Range);
    (need.saturating_add(INDEX_BYTES as u64) > MOST_BYTES).then_some(need)
}
