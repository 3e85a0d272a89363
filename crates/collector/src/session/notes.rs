//! What a trace says besides its events: the session, the losses, notes for people.
use super::Collector;
use crate::modules::text;
use crate::proc_files::Process;
use crate::recording::FailedCheck;
use channel::Loss;
use format::{Counting, Losses, Sampling, Session, Suppressions};
use std::sync::atomic::Ordering;

impl Collector {
    pub(super) fn write_session(&mut self, pid: u32) {
        self.session_written = true;
        self.join_first(pid);
        self.recorder.process = Process::new(pid);
        if self.plan.attached.is_some() {
            self.recorder.process.accept_filters();
        }
        let names = rustix::system::uname();
        let memory = rustix::system::sysinfo();
        let session = Session {
            version: format::VERSION,
            command: self.plan.command.clone(),
            exe: self.plan.exe.clone(),
            pid,
            attached: self.plan.attached.is_some(),
            started_unix_ns: self.started_unix_ns,
            hostname: names.nodename().to_string_lossy().into_owned(),
            page_size: rustix::param::page_size() as u32,
            system_memory: memory.totalram as u64 * memory.mem_unit as u64,
            tool: self.plan.tool.clone(),
            counting: Counting::Thread,
            sampling: sampling(&self.header.sampling),
        };
        self.writer.put(session.to_block(), 0);
        if let Some(heap) = self.plan.attached {
            self.writer.put(heap.to_block(), 0);
        }
    }

    pub(super) fn write_suppressions(&mut self) {
        let place = self.header.suppressions.text.load(Ordering::Acquire);
        if place == 0 || self.suppressions_written {
            return;
        }
        self.suppressions_written = true;
        if let Some(text) = text(&self.mapping.region(), (place >> 32) as u32, place as u32) {
            self.writer.put(Suppressions(text).to_block(), self.recorder.event_count());
        }
    }

    pub(super) fn read_losses(&self) -> Losses {
        let mut losses = Losses { implied_frees: self.recorder.totals().implied_frees, ..Losses::default() };
        for cause in Loss::ALL {
            let count = self.header.losses[cause as usize].load(Ordering::Relaxed);
            if count > 0 {
                losses.by_cause.push((cause.name().to_owned(), count));
                losses.lost_events = losses.lost_events.saturating_add(if cause.is_event() { count } else { 0 });
            }
        }
        // An event has two or three words, and every stopped slot has lost at least one event. So at least this many
        // events are lost.
        let unread = self.merge.broken_words().div_ceil(3) + self.drain.stopped_slots();
        if unread > 0 {
            losses.by_cause.push(("unreadable_ring".to_owned(), unread));
            losses.lost_events = losses.lost_events.saturating_add(unread);
        }
        if self.drain.missing() > 0 {
            losses.by_cause.push(("missing".to_owned(), self.drain.missing()));
            losses.lost_events = losses.lost_events.saturating_add(self.drain.missing());
        }
        if self.recorder.corrupt_stacks() > 0 {
            losses.by_cause.push(("unreadable_stack".to_owned(), self.recorder.corrupt_stacks()));
        }
        if let Some(members) = &self.members {
            members.add_losses(&mut losses);
        }
        losses.note = self.note();
        losses
    }

    /// Returns the check that ended the program. Only a build with the feature `checks` has any.
    pub(super) fn failed_check(&self) -> Option<FailedCheck> {
        let number = self.header.failed_check.load(Ordering::Acquire);
        (number != 0).then_some(FailedCheck(number))
    }

    /// Returns a note about what the program itself kept out of the trace or made less exact, and about a failed check.
    pub(super) fn note(&self) -> Option<String> {
        let stopped = self.header.stopped_by_program.load(Ordering::Relaxed) != 0;
        let ended = "The program ended recording itself (heaptrack_stop): what was live then counts as leaked.";
        let paused = match self.header.pauses.load(Ordering::Relaxed) {
            0 => None,
            1 => Some("once".to_owned()),
            times => Some(format!("{times} times")),
        };
        let paused = paused.map(|times| {
            format!(
                "The program paused recording {times} (heaptrack_pause): allocations in between are not in the trace."
            )
        });
        let is_rough = self.header.counter_lost.load(Ordering::Relaxed) != 0;
        let rough = "A thread of the program may not read the time stamp counter (prctl PR_SET_TSC, or seccomp's strict mode). \
                     Since then the times of events are up to 20 ms early, and the order of events of different threads is \
                     approximate at the moment of the change.";
        let failed = self.failed_check().map(|check| check.to_string());
        let sentences = failed.into_iter().chain(paused).chain(stopped.then(|| ended.to_owned()));
        let sentences: Vec<String> = sentences.chain(is_rough.then(|| rough.to_owned())).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
}

/// What a Session says about the samples that the target was asked for.
fn sampling(asked: &channel::Sampling) -> Option<Sampling> {
    let rate = asked.rate.load(Ordering::Relaxed);
    (rate > 0).then_some(Sampling { rate, exact_above: asked.exact_above })
}
