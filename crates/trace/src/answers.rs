//! What [`Trace`](crate::Trace) answers with.
use crate::costs::Costs;
use analysis::view::{FunctionDiff, Leak as Judged, State, Verdict as Judgement};
use analysis::{BlockEvent, BlockEventKind, Variances};

/// The number of a stack that allocates. It is `site` in the tables of `heaptrack export`, and `stack` in the views of
/// docs/views.md. It stays the same while a file grows, and has no meaning in another trace.
pub type SiteId = u32;

/// A stack that allocated, and what it cost within the selected part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Site {
    /// Its number, for [`Trace::stack`](crate::Trace::stack).
    pub id: SiteId,
    /// What it cost.
    pub costs: Costs,
    /// True if its leaks are known ones, which lists of leaks leave out.
    pub is_suppressed: bool,
}

/// One level of a stack: a function, or a function that was inlined into the next level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level<'a> {
    /// The demangled name with its arguments; `None` if it is not known.
    pub function: Option<&'a str>,
    /// The name without its arguments.
    pub short: Option<&'a str>,
    /// The source file.
    pub file: Option<&'a str>,
    /// The line in that file.
    pub line: Option<u32>,
    /// The path of the program or library.
    pub module: Option<&'a str>,
    /// The offset in that module; `None` for a level that stands for levels that are missing.
    pub offset: Option<u64>,
    /// True if the function has no frame of its own, because it was inlined into the next level.
    pub is_inlined: bool,
    /// True if this is the user's own code, as opposed to libraries and language runtimes.
    pub is_own_code: bool,
}

/// What became of the memory of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It holds more and more blocks, up to the end.
    Grows,
    /// It reached a number of blocks and stays there, as a cache does.
    Bounded,
    /// It was allocated within a short time, such as start-up, and never again.
    Once,
    /// It was freed, but only at the end.
    Exit,
    /// All its blocks are young, so they were probably in use.
    Tail,
    /// Blocks were sampled, and too few of its blocks to tell.
    Unclear,
}

impl From<Judgement> for Verdict {
    fn from(judgement: Judgement) -> Self {
        match judgement {
            Judgement::Grows => Verdict::Grows,
            Judgement::Bounded => Verdict::Bounded,
            Judgement::Once => Verdict::Once,
            Judgement::Exit => Verdict::Exit,
            Judgement::Tail => Verdict::Tail,
            Judgement::Unclear => Verdict::Unclear,
        }
    }
}

/// A place that holds blocks when the selected part ends: all stacks with the same innermost level in the user's code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// One of its stacks.
    pub site: SiteId,
    /// Whether it looks like a leak.
    pub verdict: Verdict,
    /// The facts that led to the verdict, as a sentence.
    pub reason: String,
    /// Bytes that are live.
    pub live_bytes: u64,
    /// Blocks that are live.
    pub live_allocations: u64,
    /// Blocks that were allocated.
    pub allocations: u64,
    /// How fast it grows; negative if it shrinks.
    pub growth_bytes_per_second: i64,
    /// The pattern that makes it a known leak.
    pub suppressed: Option<String>,
}

impl From<Judged> for Leak {
    fn from(judged: Judged) -> Self {
        Leak {
            site: judged.stack,
            verdict: judged.verdict.into(),
            reason: judged.reason,
            live_bytes: judged.live_bytes,
            live_allocations: judged.live_allocations,
            allocations: judged.allocations,
            growth_bytes_per_second: judged.growth_bytes_per_second,
            suppressed: judged.suppressed,
        }
    }
}

/// How one function differs between two traces.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// The function; `None` for all code of a module that has no names.
    pub function: Option<String>,
    /// The module.
    pub module: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The cost in the trace that is compared with.
    pub before: i64,
    /// The cost in this trace.
    pub after: i64,
    /// True if only this trace has it.
    pub is_new: bool,
    /// True if only the trace that is compared with has it.
    pub is_gone: bool,
}

impl From<FunctionDiff> for Change {
    fn from(row: FunctionDiff) -> Self {
        let FunctionDiff { function, module, file, before, after, state, .. } = row;
        Change { function, module, file, before, after, is_new: state == State::New, is_gone: state == State::Gone }
    }
}

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It was allocated.
    Alloc,
    /// It was freed. A block is temporary if its thread freed it before it allocated again.
    Free {
        /// The block was temporary.
        is_temporary: bool,
    },
    /// It went with its process, which ended or replaced itself (`exec`).
    Gone {
        /// It counts as leaked.
        is_leaked: bool,
    },
}

/// An allocation or a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When, since the start of the session. Times are exact to 0.1 ms.
    pub time_ns: u64,
    /// The number of the block, in the order of allocation. An allocation and its free have the same number.
    pub block: u64,
    /// The stack that allocated the block.
    pub site: SiteId,
    /// The bytes that the program asked for.
    pub size: u64,
    /// The index of the thread that allocated or freed.
    pub thread: u32,
    /// When the block was allocated.
    pub allocated_ns: u64,
}

impl From<&BlockEvent> for Event {
    fn from(event: &BlockEvent) -> Self {
        let kind = match event.kind {
            BlockEventKind::Alloc => EventKind::Alloc,
            BlockEventKind::Free { temporary } => EventKind::Free { is_temporary: temporary },
            BlockEventKind::Gone { leaked } => EventKind::Gone { is_leaked: leaked },
        };
        Event {
            kind,
            time_ns: event.time_ns,
            block: event.sequence,
            site: event.site,
            size: event.size,
            thread: event.thread,
            allocated_ns: event.born_ns,
        }
    }
}

/// A block, from its allocation to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// Its number, in the order of allocation.
    pub number: u64,
    /// The stack that allocated it.
    pub site: SiteId,
    /// The bytes that the program asked for.
    pub size: u64,
    /// When it was allocated, since the start of the session.
    pub allocated_ns: u64,
    /// When it was freed, and how it ended; `None` if it was live when the selected part ended.
    pub end: Option<(u64, EventKind)>,
}

/// The recorded program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session<'a> {
    /// The command line.
    pub command: &'a [String],
    /// The path of the program.
    pub executable: &'a str,
    /// Its process id, or 0 if the file does not have it.
    pub pid: u32,
    /// When it was started, in nanoseconds since 1970, or 0 if the file does not have it.
    pub started_unix_ns: u64,
    /// True if the recorder attached to a running program, so that older blocks are not in the trace.
    pub is_attached: bool,
    /// The program that wrote the file.
    pub tool: &'a str,
    /// How blocks were sampled; `None` if every block was recorded. In a sampled trace all numbers of blocks and bytes are
    /// estimates ([`Trace::total_errors`](crate::Trace::total_errors)).
    pub sampling: Option<Sampling>,
}

/// How the blocks of a recording were sampled (`--sample`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sampling {
    /// A block was taken once in so many bytes, on average.
    pub rate_bytes: u64,
    /// Blocks of at least this size were all taken; `None` if no size is large enough.
    pub exact_above_bytes: Option<u64>,
}

/// Half the widths of the 95 % intervals of the totals of a sampled trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TotalErrors {
    /// Of the blocks allocated.
    pub allocations: u64,
    /// Of their bytes.
    pub allocated_bytes: u64,
    /// Of the temporary blocks.
    pub temporary: u64,
    /// Of the blocks that were not freed.
    pub leaked_allocations: u64,
    /// Of their bytes.
    pub leaked_bytes: u64,
    /// Of the blocks at the peak.
    pub peak_allocations: u64,
    /// Of the bytes at the peak.
    pub peak_bytes: u64,
}

impl From<Variances> for TotalErrors {
    fn from(errors: Variances) -> Self {
        TotalErrors {
            allocations: errors.allocations.error(),
            allocated_bytes: errors.allocated_bytes.error(),
            temporary: errors.temporary.error(),
            leaked_allocations: errors.live_allocations.error(),
            leaked_bytes: errors.live_bytes.error(),
            peak_allocations: errors.peak_allocations.error(),
            peak_bytes: errors.peak_bytes.error(),
        }
    }
}
