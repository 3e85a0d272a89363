//! The totals of `print --json`, under the names that scripts know.
use format::Totals;
use serde::Serialize;

pub fn totals(totals: &Totals, suppressed: (u64, u64)) -> impl Serialize {
    #[derive(Serialize)]
    struct Named {
        allocations: u64,
        deallocations: u64,
        allocated_bytes: u64,
        temporary: u64,
        leaked_bytes: u64,
        leaked_allocations: u64,
        peak_bytes: u64,
        peak_allocations: u64,
        peak_time_ns: u64,
        peak_rss_bytes: u64,
        overhead_bytes: u64,
        runtime_ns: u64,
        unknown_frees: u64,
        implied_frees: u64,
        lost_events: u64,
        /// Known leaks that are live at the end. They are not in `leaked_*`.
        suppressed_bytes: u64,
        suppressed_allocations: u64,
    }
    let Totals {
        allocations,
        deallocations,
        allocated_bytes,
        temporary,
        leaked_bytes,
        leaked_allocations,
        peak_bytes,
        peak_allocations,
        peak_time_ns,
        peak_rss_bytes,
        overhead_bytes,
        runtime_ns,
        unknown_frees,
        implied_frees,
        lost_events,
    } = *totals;
    Named {
        allocations,
        deallocations,
        allocated_bytes,
        temporary,
        leaked_bytes,
        leaked_allocations,
        peak_bytes,
        peak_allocations,
        peak_time_ns,
        peak_rss_bytes,
        overhead_bytes,
        runtime_ns,
        unknown_frees,
        implied_frees,
        lost_events,
        suppressed_bytes: suppressed.0,
        suppressed_allocations: suppressed.1,
    }
}
