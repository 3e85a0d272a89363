//! The state of a trace, for the page's header and its summary.
use analysis::view::Errors;
use analysis::{Costs, KnownCosts};
use format::Domain;
use heaptrack_trace::OpenTrace;
use serde_json::{Value, json};
use std::time::Duration;

pub enum State<'a> {
    Waiting,
    /// The share of the file that is read, and an estimate of the time that is left.
    Loading(f64, Option<Duration>),
    Open(&'a OpenTrace),
    /// A sentence.
    Failed(&'a str),
}

pub struct TraceStatus<'a> {
    pub name: &'a str,
    pub path: &'a str,
    pub state: State<'a>,
    /// Grows whenever answers may have changed.
    pub version: u64,
}

pub fn status_of(trace: &TraceStatus<'_>) -> Value {
    let (state, progress, remaining, error) = match trace.state {
        State::Waiting => ("waiting", 0.0, None, None),
        State::Loading(share, left) => ("loading", share, left.map(|left| left.as_nanos() as u64), None),
        State::Open(open) => (if open.is_live() { "live" } else { "ready" }, 1.0, None, None),
        State::Failed(sentence) => ("failed", 0.0, None, Some(sentence)),
    };
    let open = if let State::Open(open) = trace.state { Some(open) } else { None };
    json!({
        "name": trace.name,
        "path": trace.path,
        "state": state,
        "progress": progress,
        "remaining_ns": remaining,
        "error": error,
        "version": trace.version,
        "custom": open.is_some_and(OpenTrace::has_custom),
        "mapped": open.is_some_and(|open| open.has(Domain::Mapped)),
        "notes": open.map(OpenTrace::not_seen).unwrap_or_default(),
        "session": open.map(session),
    })
}

/// The costs that a heap profile of another tool knows, by their names on the page.
fn known_costs(known: KnownCosts) -> Vec<&'static str> {
    let names = Costs::NAMES.iter().chain(&["leaked_bytes", "leaked_allocations"]);
    names.copied().filter(|name| known.has(name)).collect()
}

fn session(open: &OpenTrace) -> Value {
    let (definitions, totals) = (open.engine().definitions(), open.engine().totals());
    json!({
        "command": definitions.session.command,
        "pid": Some(definitions.session.pid).filter(|pid| *pid != 0),
        "hostname": Some(&definitions.session.hostname).filter(|name| !name.is_empty()),
        "started_unix_ns": Some(definitions.session.started_unix_ns).filter(|ns| *ns != 0),
        "processes": definitions.processes.len(),
        "allocators": definitions.allocators().collect::<Vec<_>>(),
        "attached": definitions.session.attached,
        "complete": open.is_complete(),
        "runtime_ns": totals.runtime_ns,
        "system_memory": Some(definitions.session.system_memory).filter(|bytes| *bytes > 0),
        "events": totals.allocations.saturating_add(totals.deallocations),
        "folded_until_ns": definitions.folded_until_ns(),
        "lost_events": totals.lost_events,
        "peak_rss_bytes": totals.peak_rss_bytes,
        "overhead_bytes": totals.overhead_bytes,
        "exit": definitions.summary.map(|summary| format!("{:?}", summary.exit)),
        "sampling": open.engine().whole_intervals().zip(definitions.session.sampling).map(|(intervals, sampling)| {
            json!({ "rate_bytes": sampling.rate, "totals_error": Errors(intervals.totals) })
        }),
        "known": definitions.profile.map(known_costs),
        "tool": definitions.session.tool,
    })
}
