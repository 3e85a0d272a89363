//! The search for the event that must come before one that the consumer refused.
//!
//! Receives: the refused event, the batch, the queues of all rings. Returns: the oldest event of the same address that can have
//! come before it. Must hold: only that event moves; the records around it stay as they are.
use super::consumer::{Consumer, Item, Verdict, next_event};
use super::{Merge, Patience, address};
use crate::queue::{Queue, Store};
use channel::{Decoder, Event, Stamp};

/// An event that must come before the refused one.
struct Partner {
    stamp: Stamp,
    at: At,
}

enum At {
    Batch(usize),
    /// The event is the last record in the first `end` words of the chunk.
    Queue {
        source: u32,
        chunk: usize,
        end: usize,
    },
}

impl Merge {
    /// Decides about the item at `at`, which the consumer refused: its partner is taken first, or the consumer must take it without.
    /// Returns false if the partner may still come.
    #[cold]
    pub(super) fn resolve(
        &mut self,
        verdict: Verdict,
        watermark: Stamp,
        patience: Patience,
        consumer: &mut impl Consumer,
    ) -> bool {
        let Some(&item) = self.batch.get(self.at) else { return true };
        let wait = if verdict == Verdict::StillLive { patience.free } else { patience.alloc };
        let until = item.event.stamp().saturating_add(wait);
        // Two frees in a row: thread A frees a block and is given its address again. Thread B frees that second block with an older
        // stamp than A's free, so B's free was taken for the first block. The allocation that A's free needs is then in A's own
        // ring. An address that was live before the recording started is freed only once.
        let may_be_own = verdict == Verdict::NotLive && self.frees.has(&item.event, wait);
        match self.find_partner(&item, verdict, until, may_be_own) {
            // Above the watermark, an older partner may still arrive.
            Some(partner) if partner.stamp >= watermark => return false,
            Some(partner) => {
                let Some(partner) = self.take_partner(&partner, consumer) else { return false };
                self.frees.note(&partner.event);
                if consumer.take(&partner) != Verdict::Taken {
                    consumer.force(&partner);
                }
                self.count(partner.source);
            }
            None if watermark <= until => return false,
            None => {
                consumer.force(&item);
                self.at += 1;
                self.count(item.source);
            }
        }
        true
    }

    /// Returns the oldest event that can be the partner of `item`. Events of the item's own ring are considered only if `may_be_own`.
    /// An address that is handed around quickly has several candidates; taking a younger one would leave an older one
    /// without a partner.
    fn find_partner(&mut self, item: &Item, verdict: Verdict, until: Stamp, may_be_own: bool) -> Option<Partner> {
        let wanted = |event: &Event| {
            address(event) == address(&item.event)
                && match verdict {
                    Verdict::StillLive => matches!(event, Event::Free { .. }),
                    _ => matches!(event, Event::Alloc { .. }),
                }
        };
        let mut found: Option<Partner> = None;
        let later = self.batch.iter().enumerate().skip(self.at + 1);
        let later = later.filter(|(_, other)| (may_be_own || other.source != item.source) && wanted(&other.event));
        if let Some((at, other)) = later.min_by_key(|(_, other)| other.event.stamp())
            && other.event.stamp() <= until
        {
            found = Some(Partner { stamp: other.event.stamp(), at: At::Batch(at) });
        }
        for (index, source) in self.sources.iter_mut().enumerate() {
            if (index as u32 == item.source && !may_be_own) || source.broken {
                continue;
            }
            let before = found.as_ref().map_or(until.saturating_add(1), |partner| partner.stamp);
            if let Some((chunk, end, stamp)) = first_of(&mut source.queue, &mut self.store, before, wanted) {
                found = Some(Partner { stamp, at: At::Queue { source: index as u32, chunk, end } });
            }
        }
        found
    }

    fn take_partner(&mut self, partner: &Partner, consumer: &mut impl Consumer) -> Option<Item> {
        match partner.at {
            At::Batch(at) => Some(self.batch.remove(at)),
            At::Queue { source, chunk, end } => {
                let words = self.sources.get_mut(source as usize)?.queue.resident().nth(chunk)?;
                Some(Item { event: cut_out(words, end, source, consumer)?, source })
            }
        }
    }
}

/// Returns the first wanted record of a queue with a stamp below `before`: its chunk, where it ends in that chunk, and its stamp.
fn first_of(
    queue: &mut Queue,
    store: &mut Store,
    before: Stamp,
    wanted: impl Fn(&Event) -> bool,
) -> Option<(usize, usize, Stamp)> {
    let mut searched = 0;
    loop {
        for (chunk, words) in queue.resident().enumerate().skip(searched) {
            match first_in(words, before, &wanted) {
                Search::Found { end, stamp } => return Some((chunk, end, stamp)),
                Search::Past => return None,
                Search::NotHere => searched = chunk + 1,
            }
        }
        if !queue.load(store) {
            return None;
        }
    }
}

enum Search {
    /// The record ends before word `end`.
    Found {
        end: usize,
        stamp: Stamp,
    },
    /// This record and all later ones have too large a stamp.
    Past,
    NotHere,
}

fn first_in(words: &[u64], before: Stamp, wanted: impl Fn(&Event) -> bool) -> Search {
    let mut decoder = Decoder::new(words);
    while let Ok(Some(event)) = decoder.decode() {
        if event.stamp() >= before {
            return Search::Past;
        }
        if wanted(&event) {
            return Search::Found { end: words.len() - decoder.remaining(), stamp: event.stamp() };
        }
    }
    Search::NotHere
}

/// Overwrites the record that ends at `end` with skip words and returns its event. Stacks that are defined before it are passed to the
/// consumer first, because the event may refer to them.
fn cut_out(words: &mut [u64], end: usize, source: u32, consumer: &mut impl Consumer) -> Option<Event> {
    let mut decoder = Decoder::new(words.get(..end)?);
    let mut last = None;
    while let Ok(Some(event)) = next_event(&mut decoder, source, consumer) {
        last = Some(event);
    }
    let event = last?;
    let length = if matches!(event, Event::Alloc { .. }) { channel::ALLOC_WORDS } else { channel::FREE_WORDS };
    for word in words.iter_mut().take(end).skip(end - length) {
        *word = channel::Kind::Skip as u64;
    }
    Some(event)
}
