//! What the writer of a ring needs from its process: see `channel::RingWriter`.
use crate::core::{ACTIVE, Core};
use crate::{follow, sys};
use channel::{Header, Host, Hub, Stamp};
use core::sync::atomic::AtomicU32;

impl Host for Core {
    #[inline(always)]
    fn header(&self) -> &Header {
        self.header()
    }

    fn wants_bell(&self) -> bool {
        follow::shared_hub().map_or_else(|| self.header().wants_bell(), Hub::wants_bell)
    }

    fn doorbell(&self) -> &AtomicU32 {
        follow::shared_hub().map_or(&self.header().doorbell, |hub| &hub.doorbell)
    }

    fn collector_alive(&self) -> &AtomicU32 {
        follow::shared_hub().map_or(&self.header().collector_alive, |hub| &hub.collector_alive)
    }

    #[inline(always)]
    fn is_recording(&self) -> bool {
        self.gate() & ACTIVE != 0
    }

    fn stop_recording(&self) {
        self.shut();
    }

    #[inline(always)]
    fn has_plain_stamps(&self) -> bool {
        self.has_plain_stamps()
    }

    #[inline(always)]
    fn plain_stamp(&self) -> Stamp {
        self.plain_stamp()
    }

    #[inline(always)]
    fn stamp_after(&self, last: Stamp) -> Stamp {
        self.stamp_after(last)
    }

    fn now_ns(&self) -> u64 {
        sys::now_ns()
    }

    fn wake(&self, futex: &AtomicU32) {
        sys::futex_wake(futex);
    }

    fn wait(&self, futex: &AtomicU32, value: u32, most_ms: u64) {
        sys::futex_wait(futex, value, most_ms);
    }
}
