//! Reads a piece of decoded text: counts its events by allocation class, and translates all other lines.
//!
//! Receives: the words of a piece (`event_words.rs`) and its lines. Returns: nothing; the counts and definitions of the reader
//! grow. Must hold: an event is counted only after all lines before it, because they may define its allocation class.
use super::KdeReader;
use super::event_words::Part;
use super::text::Lines;
use std::io::Read;

/// A part of the text while it is read.
struct Reading<'p> {
    part: &'p Part,
    /// The events that are counted or refused already.
    done: usize,
    /// The events before the line at which `Lines` is.
    placed: usize,
}

impl<R: Read> KdeReader<R> {
    /// Reads all lines. Stops early if the file claims too much, or turns out to be a raw one.
    pub(super) fn count(&mut self, lines: &mut Lines) {
        let words = lines.take_words();
        let is_read = words.parts.iter().all(|part| self.count_part(part, lines));
        if is_read {
            lines.return_words(words);
        }
    }

    /// Returns false if the lines that follow must not be counted.
    fn count_part(&mut self, part: &Part, lines: &mut Lines) -> bool {
        let mut reading = Reading { part, done: 0, placed: 0 };
        for other in &part.others {
            self.count_events(&mut reading, other.events, lines);
            if self.is_over {
                return false;
            }
            lines.go_to(other.start);
            self.translate_line(lines);
            reading.placed = other.events;
            if self.is_over || !self.translation.is_counting() {
                return false;
            }
        }
        self.count_events(&mut reading, part.events.len(), lines);
        if !self.is_over {
            lines.go_to(part.end);
        }
        !self.is_over
    }

    /// Counts the events of a part up to number `end`.
    fn count_events(&mut self, reading: &mut Reading, end: usize, lines: &mut Lines) {
        while !self.is_over {
            let events = reading.part.events.get(reading.done..end).unwrap_or_default();
            reading.done += self.translation.count(events);
            if reading.done >= end {
                return;
            }
            // The event is refused. Its line is found by counting lines, because decoded events have no place.
            for _ in reading.placed..reading.done {
                lines.next();
            }
            self.translate_line(lines);
            reading.done += 1;
            reading.placed = reading.done;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::super::pairs::MOST_LIVE;
    use super::*;
    use crate::{Block, Damage, Totals};

    fn read(text: &str, by_alloc_class: bool) -> (Vec<Damage>, Totals) {
        let mut reader = KdeReader::new(text.as_bytes(), &text.as_bytes()[..8]).unwrap();
        if by_alloc_class {
            reader.count_classes();
        }
        let (mut allocations, mut unknown_frees) = (0, 0);
        while let Some(block) = reader.next_block().unwrap() {
            if let Block::Events(events) = block.decode().unwrap() {
                allocations += events.count();
            }
        }
        if let Some(counts) = reader.take_counts() {
            allocations += counts.events();
            unknown_frees += counts.unknown_frees();
        }
        (reader.damage().to_vec(), Totals { allocations, unknown_frees, ..Totals::default() })
    }

    /// Both ways stop at the line that claims one block too many, wherever it is in a batch of lines.
    #[test]
    fn too_many_live_blocks_end_the_reading() {
        for before in 0..40 {
            let frees = "- 0\n".repeat(before);
            let allocs = "+ 1\n".repeat(MOST_LIVE as usize);
            let text = format!(
                "v 10400 3\nX a\na 10 0\na 20 0\n{frees}{allocs}- 1\n- 1\n+ 1\n+ 0\n+ 1\n- 1\n- 1\n- 1\n- 1\n+ 0\n"
            );
            let (damage, totals) = read(&text, true);
            assert_eq!((damage.len(), totals.allocations), (1, MOST_LIVE + before as u64 + 4));
            assert_eq!(damage[0].reason, "more than a trace can hold: the rest was not read");
            let paired = read(&text, false);
            assert_eq!((damage, totals.allocations), (paired.0, paired.1.allocations));
            assert_eq!(totals.unknown_frees, before as u64);
        }
    }

    /// The place of a refused event is found although decoded events have none.
    #[test]
    fn refused_events_are_told_with_their_place() {
        let text = "v 10400 3\nX a\na 10 0\n+ 0\n- 7\n- 0\nc 1\n+ 0\n+ 0\n+ 8\n+ 9\n- 0\na 10 0\n+ 1\n- 2\n";
        let (damage, _) = read(text, true);
        assert_eq!(damage, read(text, false).0);
        let lines = damage.iter().map(|place| &text[place.offset as usize..(place.offset + place.length) as usize]);
        assert_eq!(lines.collect::<Vec<_>>(), ["- 7\n", "+ 8\n+ 9\n", "- 2\n"]);
    }
}
