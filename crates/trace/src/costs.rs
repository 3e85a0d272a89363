//! The numbers of a stack, and those of the whole session.
use analysis::{Costs as Counted, Definitions, KnownCosts};

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one stack cost within the selected part. A trace knows every number. A heap profile of another tool knows
        /// only some of them; the others are `None`, and never 0.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Costs {
            counted: Counted,
            known: Option<KnownCosts>,
        }

        impl Costs {
            $($(#[$doc])* pub fn $name(&self) -> Option<u64> {
                self.known(stringify!($name), self.counted.$name)
            })*
        }
    };
}

costs! {
    /// Blocks allocated.
    allocations,
    /// Bytes of the blocks allocated.
    allocated_bytes,
    /// Blocks freed, whenever they were allocated.
    deallocations,
    /// Bytes of the blocks freed.
    freed_bytes,
    /// Of the blocks freed, those that were temporary: freed before their thread allocated again.
    temporary,
    /// The sum of the lifetimes of the blocks freed.
    lifetime_ns,
    /// Bytes live when the selected part ends. For the whole session, these were not freed.
    live_bytes,
    /// Blocks live when the selected part ends.
    live_allocations,
    /// Bytes that the stack held when the program's total was highest.
    peak_bytes,
    /// Blocks that the stack held when the program's total was highest.
    peak_allocations,
}

impl Costs {
    pub(crate) const fn new(counted: Counted, definitions: &Definitions) -> Self {
        Costs { counted, known: definitions.profile }
    }

    fn known(&self, name: &str, value: u64) -> Option<u64> {
        self.known.is_none_or(|known| known.has(name)).then_some(value)
    }
}

/// The numbers of the whole session. They are those of `totals` in `heaptrack print --json`, with known leaks counted as
/// leaked. `None` is a number that a heap profile of another tool does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Blocks allocated.
    pub allocations: Option<u64>,
    /// Bytes of the blocks allocated.
    pub allocated_bytes: Option<u64>,
    /// Blocks freed.
    pub deallocations: Option<u64>,
    /// Blocks that were freed before their thread allocated again.
    pub temporary: Option<u64>,
    /// Bytes that were not freed.
    pub leaked_bytes: Option<u64>,
    /// Blocks that were not freed.
    pub leaked_allocations: Option<u64>,
    /// The most bytes that were live at one time.
    pub peak_bytes: Option<u64>,
    /// The blocks that were live at that time.
    pub peak_allocations: Option<u64>,
    /// When that was, since the start of the session.
    pub peak_time_ns: Option<u64>,
    /// The largest resident size of the process that was seen.
    pub peak_rss_bytes: Option<u64>,
    /// How long the session lasted.
    pub runtime_ns: Option<u64>,
    /// Events that could not be recorded.
    pub lost_events: Option<u64>,
}

impl Totals {
    pub(crate) fn new(totals: &format::Totals, definitions: &Definitions) -> Self {
        let known = |name: &str, value: u64| definitions.has_cost(name).then_some(value);
        Totals {
            allocations: known("allocations", totals.allocations),
            allocated_bytes: known("allocated_bytes", totals.allocated_bytes),
            deallocations: known("deallocations", totals.deallocations),
            temporary: known("temporary", totals.temporary),
            leaked_bytes: known("leaked_bytes", totals.leaked_bytes),
            leaked_allocations: known("leaked_allocations", totals.leaked_allocations),
            peak_bytes: known("peak_bytes", totals.peak_bytes),
            peak_allocations: known("peak_allocations", totals.peak_allocations),
            peak_time_ns: known("peak_time_ns", totals.peak_time_ns),
            peak_rss_bytes: known("peak_rss_bytes", totals.peak_rss_bytes),
            runtime_ns: known("runtime_ns", totals.runtime_ns),
            lost_events: known("lost_events", totals.lost_events),
        }
    }
}
