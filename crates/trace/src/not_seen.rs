//! What a reader must know before they trust the numbers of a trace.
use crate::missing_names::missing_names;
use crate::open::OpenTrace;
use analysis::numbers::bytes;
use analysis::to_signed;

impl OpenTrace {
    /// Sentences about what is missing in this trace: damage, losses, allocators that could not be recorded, and a file
    /// that was not finished. Empty if nothing is known to be missing.
    pub fn not_seen(&self) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.sampled());
        let faults = self.engine().faults();
        let definitions = self.engine().definitions();
        let damaged = self.damage_count();
        if damaged > 0 {
            let places = if damaged == 1 { "place" } else { "places" };
            notes.push(format!("Parts of this file are damaged ({damaged} {places}); what could be read is shown."));
        }
        if faults.missing_allocations + faults.damaged_events > 0 {
            let (missing, events) = (faults.missing_allocations, faults.damaged_events);
            notes.push(format!(
                "{missing} allocations are in lost parts of the file, {events} events refer to lost parts."
            ));
        }
        if !self.is_finished() && !self.is_live() {
            notes.push("This trace was not finished: it ends where its writer was stopped or the file was cut.".into());
        }
        notes.extend(definitions.losses.sentences().into_iter().map(|sentence| format!("{sentence}.")));
        notes.extend(definitions.losses.note.clone());
        notes.extend(definitions.unseen.iter().map(|unseen| format!("Not recorded: {}", unseen.sentence)));
        if let Some(until) = definitions.folded_until_ns() {
            let kept = if definitions.session.sampling.is_some() { "as certain as without that" } else { "exact" };
            notes.push(format!(
                "To keep the file small (--max-size, --keep-last), the first {:.1} s are stored as sums and the blocks that were still live then. Numbers of the whole session are {kept}. For that time, the timeline shows only the peak and the blocks that stayed.",
                until as f64 / 1e9
            ));
        }
        if definitions.names.is_empty() && definitions.site_count() > 0 && !self.is_live() {
            notes.push("There are no function names in this trace: `heaptrack symbolize FILE` adds them.".into());
        }
        if !self.is_live() {
            notes.extend(missing_names(definitions, self.path()));
        }
        notes
    }

    /// If blocks were sampled: that the numbers are estimates, and the intervals of the totals.
    fn sampled(&self) -> Option<String> {
        let sampling = self.engine().definitions().session.sampling?;
        let intervals = self.engine().whole_intervals()?.totals;
        let size = |number: u64| bytes(to_signed(number));
        Some(format!(
            "Blocks were sampled, once in {} on average: numbers are estimates, in 95 % of all recordings within ± {} (allocated), ± {} (peak) and ± {} (not freed) of the truth.",
            size(sampling.rate),
            size(intervals.allocated_bytes.error()),
            size(intervals.peak_bytes.error()),
            size(intervals.live_bytes.error()),
        ))
    }
}
