//! The sums of each kind of part, one for each instant, so that a chart needs no single part.
use format::{MemoryInstant, MemoryPart, part_kind};
use serde::Serialize;

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Kind<'a> {
    kind: &'a str,
    /// One number for each instant, in the order of the instants.
    rss_bytes: Vec<u64>,
    pss_bytes: Vec<u64>,
}

/// Returns the kinds that occur, in the order in which they are shown. Kinds that a newer version recorded and that this
/// one does not know come last.
pub(super) fn kinds<'a>(instants: &[&'a MemoryInstant]) -> Vec<Kind<'a>> {
    let mut names: Vec<&'a str> = part_kind::ALL.to_vec();
    for part in instants.iter().flat_map(|instant| &instant.parts) {
        if !names.contains(&part.kind.as_str()) {
            names.push(&part.kind);
        }
    }
    let is_of = |kind: &str, part: &MemoryPart| part.kind == kind;
    names.retain(|kind| instants.iter().any(|instant| instant.parts.iter().any(|part| is_of(kind, part))));
    let sums = |kind: &str, bytes: fn(&MemoryPart) -> u64| {
        let sum = |instant: &&MemoryInstant| instant.parts.iter().filter(|part| is_of(kind, part)).map(bytes).sum();
        instants.iter().map(sum).collect()
    };
    let kind = |kind: &'a str| Kind {
        kind,
        rss_bytes: sums(kind, |part| part.rss_bytes),
        pss_bytes: sums(kind, |part| part.pss_bytes),
    };
    names.into_iter().map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant(parts: &[(&str, u64, u64)]) -> MemoryInstant {
        let part = |(kind, rss_bytes, pss_bytes): &(&str, u64, u64)| MemoryPart {
            kind: (*kind).to_owned(),
            rss_bytes: *rss_bytes,
            pss_bytes: *pss_bytes,
            ..MemoryPart::default()
        };
        MemoryInstant { parts: parts.iter().map(part).collect(), ..MemoryInstant::default() }
    }

    #[test]
    fn a_kind_has_a_sum_for_each_instant() {
        let first = instant(&[("file", 5, 2), ("blocks", 1, 1), ("file", 7, 3)]);
        let second = instant(&[("newer", 9, 8), ("stack", 4, 4)]);
        let kind = |kind, rss: [u64; 2], pss: [u64; 2]| Kind { kind, rss_bytes: rss.into(), pss_bytes: pss.into() };
        let expected = [
            kind("blocks", [1, 0], [1, 0]),
            kind("stack", [0, 4], [0, 4]),
            kind("file", [12, 0], [5, 0]),
            kind("newer", [0, 9], [0, 8]),
        ];
        assert_eq!(kinds(&[&first, &second]), expected);
        assert_eq!(kinds(&[]), []);
    }
}
