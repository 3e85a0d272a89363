//! The end of a session: the target's last events, the totals, the trace's last blocks.
use super::Collector;
use crate::live::Reason;
use crate::observed::Inspect;
use crate::recording::{End, Outcome};
use channel::{Phase, Stamp};
use format::{Domain, Exit, MapCalls, Summary, Totals, Unseen, Waits};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

impl Collector {
    /// Ends the session: writes all events that the target has committed, and closes the trace. Must not be called
    /// while the target still writes, because events that it commits later can be missing.
    pub(crate) fn finish(mut self, end: &mpsc::Receiver<(End, Inspect)>) -> Outcome {
        let (mut end, inspect) = end.recv().unwrap_or_else(|_| (End::default(), Box::new(|_| Vec::new())));
        let before = self.header.phase.swap(Phase::Stopped as u32, Ordering::AcqRel);
        let started = before != Phase::Waiting as u32;
        let pid = self.header.target_pid.load(Ordering::Acquire);
        if pid != 0 && !self.session_written {
            self.write_session(pid);
        }
        self.recorder.timeline.sample(&self.header);
        self.welcome();
        let begun = self.drain.begun();
        let begun_by_members = self.stop_members();
        loop {
            let drained = self.drain_all();
            if self.is_live {
                self.serve_signals(Stamp::MAX);
            }
            self.merge_drained(drained, Stamp::MAX);
            if drained.words == 0 && self.merge.is_empty() {
                break;
            }
            // No thread waits for us any more, so here we may wait for the disk.
            while !self.writer.has_room() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.drain.audit_all(&self.merge, &begun);
        self.audit_members(&begun_by_members);
        end.exit = self.finish_members(end.exit);
        self.recorder.refresh();
        let replaced = self.end_replaced_image();
        self.write_pending();
        self.write_suppressions();
        let lives_on = end.exit == Exit::Detached && pid != 0;
        let last_look = lives_on.then(|| (pid, self.recorder.timeline.now_ns()));
        self.memory_looks.finish(&self.recorder, last_look);
        let is_complete = replaced.is_none() && self.failed_check().is_none();
        let unseen = if started { inspect(&self.observed(replaced)) } else { Vec::new() };
        self.close(started, end, is_complete, unseen)
    }

    /// Returns the peak of the resident memory. Samples can miss the peak, so the kernel's own figure is better. That
    /// figure is not used if it may be our own size at the fork.
    pub(super) fn peak_rss(&self, end: End) -> u64 {
        let sampled = self.sampler.peak_rss();
        end.peak_rss.filter(|peak| sampled == 0 || *peak > self.launch_rss).unwrap_or(0).max(sampled)
    }

    fn close(mut self, started: bool, end: End, complete: bool, unseen: Vec<Unseen>) -> Outcome {
        let (losses, events) = (self.read_losses(), self.recorder.event_count());
        if self.is_live && self.plan.attached.is_some() {
            // After a detach the target lives on, so its memory can be read now.
            let pid = self.header.target_pid.load(Ordering::Acquire);
            self.looks.last.is_last = self.looks.look(pid, self.recorder.timeline.now_ns());
        }
        let last = self.is_live.then(|| self.snapshot_now(Reason::End));
        let totals = Totals {
            peak_rss_bytes: self.peak_rss(end),
            overhead_bytes: self.mapping.bytes_used(),
            runtime_ns: self.recorder.timeline.now_ns(),
            lost_events: losses.lost_events,
            ..self.recorder.totals()
        };
        if let Some(block) = self.sampler.take() {
            self.writer.put(block, events);
        }
        for block in self.inboxes.further.try_iter() {
            self.writer.put(block, events);
        }
        self.writer.put(losses.to_block(), events);
        if !unseen.is_empty() {
            self.writer.put(Unseen::to_block(&unseen), events);
        }
        let waited_ns = self.header.waited_ns.load(Ordering::Relaxed);
        let waits = Waits { waited_ns: waited_ns + self.members.as_ref().map_or(0, |members| members.waited_ns()) };
        if waits != Waits::default() {
            self.writer.put(waits.to_block(), events);
        }
        let custom = self.recorder.custom_totals().map(|custom| beside(custom, &totals));
        if let Some(totals) = custom {
            let summary = Summary { complete, exit: end.exit, totals };
            self.writer.put(summary.to_block().of(Domain::Custom), events);
        }
        let mapped = self.recorder.mapped_totals().map(|mapped| beside(mapped, &totals));
        if let Some(totals) = mapped {
            self.writer.put(MapCalls::to_block(&self.recorder.map_calls()), events);
            let summary = Summary { complete, exit: end.exit, totals };
            self.writer.put(summary.to_block().of(Domain::Mapped), events);
        }
        self.writer.put(Summary { complete, exit: end.exit, totals }.to_block(), events);
        let failed_check = self.failed_check();
        let written = self.writer.finish();
        let mut outcome = Outcome {
            started,
            failed_check,
            refusal: self.header.refusal.load(Ordering::Acquire),
            totals,
            custom,
            events,
            losses,
            unseen,
            waits,
            file_bytes: written.file_bytes,
            folded_until_ns: written.folded_until_ns,
            write_error: written.error,
            last,
            unread: Vec::new(),
            children: self.header.children.load(Ordering::Relaxed),
            unanswered: self.unanswered.saturating_add(self.header.heaptrace.requests.missed() as u64),
        };
        if outcome.write_error.is_some() {
            let missing = events.saturating_sub(written.events);
            outcome.losses.by_cause.push(("not_written".to_owned(), missing));
            outcome.losses.lost_events = outcome.losses.lost_events.saturating_add(missing);
        }
        outcome
    }
}

/// The totals of a domain, with those of malloc's totals that are the whole session's.
fn beside(own: Totals, malloc: &Totals) -> Totals {
    Totals {
        peak_rss_bytes: malloc.peak_rss_bytes,
        overhead_bytes: malloc.overhead_bytes,
        runtime_ns: malloc.runtime_ns,
        lost_events: malloc.lost_events,
        ..own
    }
}
