//! The course of the live bytes, for the Firefox Profiler's memory track.
//!
//! Must hold: each slice has its highest moment and its end, so the peak is among them.
use analysis::{BlockEvent, BlockEventKind, Range};

const SLICES: u64 = 512;

/// Live bytes at a moment, and the allocations and frees since the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Point {
    /// Since the range began.
    pub(super) time_ns: u64,
    pub(super) bytes: u64,
    pub(super) events: u64,
}

pub(super) struct Course {
    range: Range,
    bytes: u64,
    events: u64,
    highest: Point,
    /// When the slice ends, in nanoseconds since the range began.
    slice_end: u64,
    points: Vec<Point>,
}

impl Course {
    /// `bytes`: what was live when the range began.
    pub(super) fn new(range: Range, bytes: u64) -> Self {
        let start = Point { bytes, ..Point::default() };
        let slice_end = (range.to_ns - range.from_ns) / SLICES;
        Course { range, bytes, events: 0, highest: start, slice_end, points: vec![start] }
    }

    pub(super) fn add(&mut self, event: &BlockEvent) {
        let time_ns = event.time_ns.saturating_sub(self.range.from_ns);
        if time_ns > self.slice_end {
            self.end_slice(self.slice_end);
            let length = ((self.range.to_ns - self.range.from_ns) / SLICES).max(1);
            self.slice_end = time_ns.div_ceil(length).saturating_mul(length);
        }
        self.events += 1;
        if event.kind == BlockEventKind::Alloc {
            self.bytes = self.bytes.saturating_add(event.size);
        } else {
            self.bytes = self.bytes.saturating_sub(event.size);
        }
        if self.bytes > self.highest.bytes {
            self.highest = Point { time_ns, bytes: self.bytes, events: self.events };
        }
    }

    fn end_slice(&mut self, time_ns: u64) {
        let before = self.highest.events;
        if before > 0 {
            self.points.push(self.highest);
        }
        self.points.push(Point { time_ns, bytes: self.bytes, events: self.events - before });
        self.events = 0;
        self.highest = Point { time_ns, bytes: self.bytes, events: 0 };
    }

    pub(super) fn finish(mut self) -> Vec<Point> {
        self.end_slice(self.range.to_ns - self.range.from_ns);
        self.points
    }
}
