//! The answers of a session without a trace: snapshots, after a signal or a question.
use super::Collector;
use crate::drain::Drained;
use crate::live::{Ask, Reason, Snapshot};
use channel::{ExitHandshake, MOST_REQUESTS, Request, Stamp};
use rustix::thread::futex;
use std::sync::atomic::Ordering;

impl Collector {
    /// Returns the instant up to which signals can be served in this round. A thread that records alone and does
    /// nothing holds the watermark at its last event, so a signal to an idle program would wait for its next
    /// allocation. If nothing was written for a whole round, every call that has returned is drained, and a snapshot
    /// has all of them.
    pub(super) fn served_until(&mut self, now: Stamp, watermark: Stamp, drained: Drained) -> Stamp {
        let is_idle = drained.words == 0 && watermark == self.last_watermark;
        let is_alone = self.header.pace.load(Ordering::Acquire) != 0;
        self.last_watermark = watermark;
        if is_idle && is_alone { now } else { watermark }
    }

    /// Serves the signals that the target received, each at the instant that its handler saw, in the order of those
    /// instants.
    pub(super) fn serve_signals(&mut self, watermark: Stamp) {
        // At most as many as the queue holds: a target that signals itself all the time must not keep us from draining
        // its rings.
        for _ in 0..MOST_REQUESTS {
            let Some(waiting) = self.header.heaptrace.requests.oldest(watermark) else { return };
            self.merge_to(waiting.stamp);
            self.header.heaptrace.requests.remove(&waiting);
            match waiting.request {
                Request::BySize => self.send_snapshot(Reason::BySize),
                Request::ByCount => self.send_snapshot(Reason::ByCount),
                Request::Window => self.new_window(),
            }
        }
    }

    /// Answers the owner's questions. Reads the target's memory now and then, and a last time when the target says that
    /// it exits.
    pub(super) fn serve(&mut self, pid: u32, asks: &[Ask]) {
        if self.header.heaptrace.exit_handshake.load(Ordering::Acquire) == ExitHandshake::Said as u32 {
            self.looks.look(pid, self.recorder.timeline.now_ns());
            self.looks.last.is_last = true;
            self.header.heaptrace.exit_handshake.store(ExitHandshake::Answered as u32, Ordering::Release);
            let _ = futex::wake(&self.header.heaptrace.exit_handshake, futex::Flags::empty(), i32::MAX as u32);
        }
        if pid != 0 && self.is_recording() && !self.looks.last.is_last {
            self.looks.now_and_then(pid, self.recorder.timeline.now_ns());
        }
        for ask in asks {
            match ask {
                Ask::Snapshot(number) => self.send_snapshot(Reason::Asked(*number)),
                Ask::Window => self.new_window(),
            }
        }
    }

    pub(super) fn new_window(&mut self) {
        self.recorder.new_window();
        self.memory_looks.restart();
        self.send_snapshot(Reason::Window);
    }

    pub(super) fn send_snapshot(&mut self, reason: Reason) {
        if self.backlog.is_full() {
            self.unanswered += 1;
            return;
        }
        let pid = self.header.target_pid.load(Ordering::Acquire);
        self.looks.look(pid, self.recorder.timeline.now_ns());
        let snapshot = self.snapshot_now(reason);
        let _ = self.inboxes.snapshots.send(snapshot);
    }

    pub(super) fn snapshot_now(&self, reason: Reason) -> Snapshot {
        let (sites, modules) = (self.recorder.live_sites(), self.recorder.modules().to_vec());
        Snapshot {
            reason,
            pid: self.header.target_pid.load(Ordering::Acquire),
            name: self.looks.name.clone(),
            time_ns: self.recorder.timeline.now_ns(),
            held: self.backlog.hold(sites.len(), modules.len()),
            sites,
            totals: self.recorder.totals(),
            losses: self.read_losses(),
            modules,
            memory: self.looks.last,
            memory_parts: self.memory_looks.latest(),
        }
    }
}
