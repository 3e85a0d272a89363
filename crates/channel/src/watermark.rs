//! The watermark: the stamp below which every event of the target is committed.
use crate::record::Stamp;
use crate::region::Region;
use crate::slot::{Intent, SlotState};
use crate::sync::Ordering;

impl Region<'_> {
    /// Collector: returns the stamp below which every event is committed. The caller has read `now` from the clock.
    ///
    /// `barrier` makes every thread of the target run a full fence. If the intent of a thread is clear after it, the
    /// thread stamps its next event after `now`. So does a thread that has no slot yet.
    pub fn watermark(&self, now: Stamp, barrier: impl FnOnce()) -> Stamp {
        let alone = self.header().next_round();
        barrier();
        self.bound(now, alone)
    }

    /// Collector: the second half of `watermark`, for a collector of several processes. It has called `next_round` for all of them
    /// (`alone` is the result for this one), and then run one barrier for all.
    pub fn bound(&self, now: Stamp, alone: bool) -> Stamp {
        let header = self.header();
        let mut watermark = now;
        for slot in (0..self.slots_used()).filter_map(|index| self.slot(index)) {
            let owner = slot.owner();
            // The image is read after the owner word, so that a thread of a new image is never compared with the old
            // number. Threads of an earlier image are gone, so their intents do not count.
            if owner.state() != SlotState::Live || !owner.is_of_image(header.image.load(Ordering::Acquire)) {
                continue;
            }
            for intent in [&slot.intent, &slot.nested_intent] {
                let intent = Intent(intent.load(Ordering::Acquire));
                watermark = intent.bound(alone).unwrap_or(watermark).min(watermark);
            }
        }
        watermark
    }
}
