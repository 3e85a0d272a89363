//! What is told while there is no trace: snapshots, on a signal or when asked for.
use super::Collector;
use crate::live::{Ask, Reason, Snapshot};
use channel::{Farewell, Request, Stamp};
use rustix::thread::futex;
use std::sync::atomic::Ordering;

impl Collector {
    /// Signals that the target was sent: each is served at the very instant that its handler saw.
    pub(super) fn serve_signals(&mut self, watermark: Stamp) {
        let mut due =
            Request::ALL.map(|request| (self.header.requests[request as usize].load(Ordering::Acquire), request));
        due.sort_unstable_by_key(|(stamp, _)| *stamp);
        for (stamp, request) in due.into_iter().filter(|(stamp, _)| (1..=watermark).contains(stamp)) {
            self.merge_to(stamp);
            let place = &self.header.requests[request as usize];
            let _ = place.compare_exchange(stamp, 0, Ordering::AcqRel, Ordering::Relaxed);
            match request {
                Request::BySize => self.send_snapshot(Reason::BySize),
                Request::ByCount => self.send_snapshot(Reason::ByCount),
                Request::Window => self.new_window(),
            }
        }
    }

    /// What others ask, and what the target says when it ends.
    pub(super) fn serve(&mut self, pid: u32, asks: &[Ask]) {
        if self.header.farewell.load(Ordering::Acquire) == Farewell::Said as u32 {
            self.looks.look(pid, self.recorder.timeline.now_ns());
            self.looks.last.is_last = true;
            self.header.farewell.store(Farewell::Answered as u32, Ordering::Release);
            let _ = futex::wake(&self.header.farewell, futex::Flags::empty(), i32::MAX as u32);
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
        self.send_snapshot(Reason::Window);
    }

    pub(super) fn send_snapshot(&mut self, reason: Reason) {
        let pid = self.header.target_pid.load(Ordering::Acquire);
        self.looks.look(pid, self.recorder.timeline.now_ns());
        let snapshot = self.snapshot_now(reason);
        let _ = self.letters.snapshots.try_send(snapshot);
    }

    pub(super) fn snapshot_now(&self, reason: Reason) -> Snapshot {
        Snapshot {
            reason,
            pid: self.header.target_pid.load(Ordering::Acquire),
            name: self.looks.name.clone(),
            time_ns: self.recorder.timeline.now_ns(),
            sites: self.recorder.live_sites(),
            totals: self.recorder.totals(),
            losses: self.read_losses(),
            modules: self.recorder.modules().to_vec(),
            memory: self.looks.last,
        }
    }
}
