//! Text as words: the events of a piece of text decoded, all other lines by their place.
//!
//! Receives: whole lines. Returns: one word for each event in its usual form, and where the other lines are. Must hold:
//! the result depends on nothing but the text, so that any thread can do this work, in any order.
//!
//! ```text
//! text   + 1a    + 1b    a 20 3    - 1a   ...
//! word   34      36      (other)   35     class << 1 | is a free
//! ```
use super::line::{ONES, short_number};
use std::ops::Range;
use std::sync::LazyLock;

/// Lines that are decoded together; at most ten bytes each.
const BATCH: usize = 32;
/// A line is found only when the one before it is decoded. So the text is cut into parts, of which a line each is decoded at a
/// time, and the processor can work on all of them at once.
const PARTS: usize = 4;
const ALLOC: u32 = u16::from_le_bytes(*b"+ ") as u32;
const FREE: u32 = u16::from_le_bytes(*b"- ") as u32;
/// The highest bit of the line feed after one and after four digits.
const FEED_AFTER_ONE: u32 = 3 * 8 + 7;
const FEED_AFTER_FOUR: u32 = 6 * 8 + 7;

/// An allocation or a free: `+ CLASS` or `- CLASS`, with at most 28 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventWord(u32);

impl EventWord {
    #[inline(always)]
    pub(super) const fn alloc_class(self) -> u32 {
        self.0 >> 1
    }

    #[inline(always)]
    pub(super) const fn is_free(self) -> bool {
        self.0 & 1 != 0
    }
}

/// A line that is not an event, or not in the usual form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherLine {
    /// The events of the part before this line.
    pub(super) events: usize,
    /// Where the line begins in the text.
    pub(super) start: usize,
}

/// The events and other lines of a part of the text.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) events: Vec<EventWord>,
    pub(super) others: Vec<OtherLine>,
    /// Where the part begins and ends in the text.
    start: usize,
    pub(super) end: usize,
}

impl Part {
    /// If the first line of `text` is not an event, notes it and removes it.
    fn skip_other(&mut self, text: &mut &[u8], pairs: &Pairs) {
        if text.is_empty() || event(text, pairs).is_some() {
            return;
        }
        self.others.push(OtherLine { events: self.events.len(), start: self.end - text.len() });
        let length = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |feed| feed + 1);
        *text = text.get(length..).unwrap_or_default();
    }
}

/// The parts of a piece of text, in their order.
#[derive(Debug, Default)]
pub(super) struct EventWords {
    pub(super) parts: [Part; PARTS],
}

impl EventWords {
    /// Decodes `text[range]`, which must be whole lines. The buffers are reused.
    pub(super) fn fill(&mut self, text: &[u8], range: Range<usize>) {
        let text = text.get(..range.end).unwrap_or_default();
        let mut start = range.start;
        for (part, number) in self.parts.iter_mut().zip(1..) {
            part.events.clear();
            part.others.clear();
            part.start = start;
            start = line_start(text, (range.start + range.len() * number / PARTS).max(start));
            part.end = start;
        }
        let mut texts = self.parts.each_ref().map(|part| text.get(part.start..part.end).unwrap_or_default());
        let pairs = &**PAIRS;
        // All parts together, as long as each of them has a line.
        while texts.iter().all(|text| !text.is_empty()) {
            decode(&mut texts, &mut self.parts, pairs);
        }
        for (part, text) in self.parts.iter_mut().zip(texts) {
            let mut text = [text];
            while !text[0].is_empty() {
                decode(&mut text, std::array::from_mut(part), pairs);
            }
        }
    }
}

/// The beginning of the first line that does not begin before `at`.
fn line_start(text: &[u8], at: usize) -> usize {
    let Some(before) = at.checked_sub(1) else { return 0 };
    let feed = text.get(before..).unwrap_or_default().iter().position(|byte| *byte == b'\n');
    feed.map_or(text.len(), |feed| before + feed + 1)
}

/// Decodes at most a batch of events of each part, up to the first line that is not an event, and that line. Removes the
/// lines from the front of `texts`.
#[inline(always)]
fn decode<const N: usize>(texts: &mut [&[u8]; N], parts: &mut [Part; N], pairs: &Pairs) {
    let mut events = [[EventWord::default(); BATCH]; N];
    let rounds = decode_events(texts, &mut events, pairs);
    for (part, events) in parts.iter_mut().zip(&events) {
        part.events.extend_from_slice(events.get(..rounds).unwrap_or_default());
    }
    if rounds < BATCH {
        for (part, text) in parts.iter_mut().zip(texts) {
            part.skip_other(text, pairs);
        }
    }
}

/// Decodes events, one of each part in a round, until a part has none. Returns the number of rounds.
#[inline(always)]
fn decode_events<const N: usize>(texts: &mut [&[u8]; N], events: &mut [[EventWord; BATCH]; N], pairs: &Pairs) -> usize {
    let mut round = 0;
    while round < BATCH {
        let mut rest = *texts;
        for (events, text) in events.iter_mut().zip(&mut rest) {
            let Some((event, after)) = event(text, pairs) else { return round };
            (events[round], *text) = (event, after);
        }
        *texts = rest;
        round += 1;
    }
    BATCH
}

/// Decodes the event at the front of `text`, and returns it with the text after it. Returns `None` if it is another line,
/// or has another form.
#[inline(always)]
fn event<'a>(text: &'a [u8], pairs: &Pairs) -> Option<(EventWord, &'a [u8])> {
    let word = u64::from_le_bytes(*text.first_chunk()?);
    // Bit 2 of the letter tells `-` from `+`. A branch that depends on it could not be predicted.
    let is_free = word as u32 >> 2 & 1;
    if word as u16 as u32 != ALLOC + is_free * (FREE - ALLOC) {
        return None;
    }
    let feeds = word ^ (ONES * b'\n' as u64);
    let found = feeds.wrapping_sub(ONES) & !feeds & ONES << 7;
    // The highest bit of the line feed's byte, or the highest bit of all if there is none.
    let feed = (found | 1 << 63).trailing_zeros();
    if feed.wrapping_sub(FEED_AFTER_ONE) > FEED_AFTER_FOUR - FEED_AFTER_ONE {
        return long_event(text, is_free);
    }
    // The last four digits, with zeros before them.
    let digits = ((word >> 16 << 32 | (ONES * b'0' as u64) >> 32) >> ((feed & !7) - 16)) as u32;
    let (high, low) = (pairs[(digits & 0xffff) as usize] as u32, pairs[(digits >> 16) as usize] as u32);
    if (high | low) >= NO_PAIR as u32 {
        return None;
    }
    // The mask changes nothing, but tells the compiler that the line ends within these eight bytes.
    let length = ((feed as usize / 8) & 7) + 1;
    Some((EventWord((high << 8 | low) << 1 | is_free), text.get(length..)?))
}

/// The same for an event with more than four digits.
#[inline(never)]
fn long_event(text: &[u8], is_free: u32) -> Option<(EventWord, &[u8])> {
    let (alloc_class, length) = short_number(text.get(2..)?.first_chunk()?)?;
    Some((EventWord(alloc_class << 1 | is_free), text.get(length + 3..)?))
}

/// Two hexadecimal digits -> their value, by the two bytes as a little-endian number. Two look-ups take half as long as
/// the arithmetic of `short_number`.
type Pairs = [u16; 1 << 16];
const NO_PAIR: u16 = 1 << 8;

/// Computed when KDE's first file is opened, because the binary would be 128 KB larger with it.
static PAIRS: LazyLock<Box<Pairs>> = LazyLock::new(|| {
    let digits = b"0123456789abcdef";
    let mut pairs = Box::new([NO_PAIR; 1 << 16]);
    for value in 0..NO_PAIR {
        let bytes = [digits[value as usize / 16], digits[value as usize % 16]];
        pairs[u16::from_le_bytes(bytes) as usize] = value;
    }
    pairs
});

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// All lines of the text, each as an event or as its place.
    fn lines(words: &EventWords) -> Vec<Result<EventWord, usize>> {
        let mut lines = Vec::new();
        for part in &words.parts {
            let mut done = 0;
            for other in &part.others {
                lines.extend(part.events[done..other.events].iter().copied().map(Ok));
                lines.push(Err(other.start));
                done = other.events;
            }
            lines.extend(part.events[done..].iter().copied().map(Ok));
        }
        lines
    }

    fn random_line(rng: &mut Rng) -> String {
        let number = rng.u32(..) >> rng.u32(..32);
        match rng.usize(..40) {
            0 => format!("a {number:x} 1"),
            1 => String::new(),
            2 => format!("+ {number:x} "),
            3 => format!("-  {number:x}"),
            4 => format!(") {number:x}"),
            5 => format!("/ {number:X}"),
            6 => "s ".to_owned() + &"x".repeat(rng.usize(..500)),
            kind => format!("{} {number:x}", if kind % 2 == 0 { '+' } else { '-' }),
        }
    }

    #[test]
    fn every_line_is_an_event_or_another_line_in_its_order() {
        let mut words = EventWords::default();
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let before = rng.usize(..30);
            let mut text = "x".repeat(before);
            let mut places = Vec::new();
            for _ in 0..rng.usize(..300) {
                let line = random_line(&mut rng);
                places.push((text.len(), line.clone()));
                text += &(line + "\n");
            }
            words.fill(text.as_bytes(), before..text.len());
            let found = lines(&words);
            assert_eq!(found.len(), places.len(), "seed {seed}");
            for (found, (place, line)) in found.into_iter().zip(places) {
                match found {
                    Ok(event) => {
                        let sign = if event.is_free() { '-' } else { '+' };
                        assert_eq!(format!("{sign} {:x}", event.alloc_class()), line, "seed {seed}");
                    }
                    Err(start) => assert_eq!(start, place, "seed {seed}"),
                }
            }
        }
    }

    #[test]
    fn usual_events_are_decoded() {
        let text = "+ 0\n- 12345\n+ fffffff\n- 1\n".repeat(10);
        let mut words = EventWords::default();
        words.fill(text.as_bytes(), 0..text.len());
        let others: usize = words.parts.iter().map(|part| part.others.len()).sum();
        // The last lines of a part are left to the slow path, because ten bytes are read for each.
        assert!(others <= 3 * PARTS, "{others} other lines");
    }
}
