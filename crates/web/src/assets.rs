//! The built page, embedded. `build.rs` makes it.

/// One file of the page.
#[derive(Clone, Copy)]
pub struct Asset {
    pub name: &'static str,
    pub kind: &'static str,
    pub bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!(env!("OUT_DIR"), "/page/", $name)) }
    };
}

pub const INDEX: Asset = asset!("index.html", "text/html; charset=utf-8");
pub const STYLE: Asset = asset!("page.css", "text/css; charset=utf-8");
pub const SCRIPT: Asset = asset!("page.js", "text/javascript; charset=utf-8");
pub const WORKER: Asset = asset!("worker.js", "text/javascript; charset=utf-8");

pub const ALL: [Asset; 4] = [INDEX, STYLE, SCRIPT, WORKER];

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    /// docs/overhead.md promises this limit.
    #[test]
    fn the_scripts_are_small() {
        let packed = |asset: Asset| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(asset.bytes).unwrap();
            encoder.finish().unwrap().len()
        };
        let size = packed(SCRIPT) + packed(WORKER);
        assert!(size < 250_000, "{size} bytes of script, gzipped");
    }

    #[test]
    fn the_page_has_nothing_inline_and_asks_nobody_else() {
        let index = std::str::from_utf8(INDEX.bytes).unwrap();
        assert!(index.contains(r#"<script src="page.js" defer></script>"#));
        assert_eq!(index.matches("<script").count(), 1);
        assert!(!index.contains("style=") && !index.contains("<style"));
        assert!(!index.contains("http:") && !index.contains("https:"), "everything comes from the binary");
    }
}
