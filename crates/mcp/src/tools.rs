//! The tools: what an agent can ask.
mod compare;
mod find;
mod lists;
mod record;
mod schema;
mod source;
mod timeline;
mod tree;

use crate::arguments::Arguments;
use crate::folders::Folders;
use crate::page::Page;
use crate::recorder::Recorder;
use crate::rows;
use crate::traces::{Asked, Traces};
use serde_json::{Map, Value, json};

pub use schema::list;

/// What the tools work with.
pub struct Context<'a> {
    pub folders: &'a Folders,
    pub traces: Traces,
    pub recorder: Option<&'a Recorder>,
}

/// A tool. It returns an object, or a sentence about what is wrong.
pub struct Tool {
    pub name: &'static str,
    pub about: &'static str,
    /// The names of its arguments (`schema.rs` describes them), the required ones first.
    pub arguments: &'static [&'static str],
    pub required: usize,
    /// It starts a program or touches a process.
    pub records: bool,
    call: fn(&Tool, &mut Context<'_>, &Arguments<'_>) -> Result<Value, String>,
}

const fn tool(
    name: &'static str,
    about: &'static str,
    (required, arguments): (usize, &'static [&'static str]),
    call: fn(&Tool, &mut Context<'_>, &Arguments<'_>) -> Result<Value, String>,
) -> Tool {
    Tool { name, about, arguments, required, records: false, call }
}

macro_rules! filtered {
    ($($name:literal),* ; $($more:literal),*) => {
        &[$($name,)* $($more,)* "at", "from", "to", "include", "exclude", "thread", "process", "allocator", "size", "lifetime", "suppressions"]
    };
}

pub const TOOLS: &[Tool] = &[
    tool(
        "list_traces",
        "Lists the recordings and heap profiles below the folders of this server, newest first.",
        (0, &["limit", "cursor"]),
        find::list_traces,
    ),
    tool(
        "open_trace",
        "Opens a recording or heap profile: the program, the totals, and what was not seen. Other tools open it by themselves; ask this first to learn whether the numbers are complete.",
        (1, &["trace"]),
        lists::open_trace,
    ),
    tool(
        "summary",
        "Totals, and the five places in the program's own code with the highest peak, leaked bytes, allocations and temporary allocations.",
        (1, filtered!("trace";)),
        lists::summary,
    ),
    tool(
        "top_sites",
        "Places in the program's own code, the highest cost first. Cost `temporary` finds churn: blocks that are freed at once.",
        (1, filtered!("trace"; "cost", "limit", "cursor")),
        lists::top_sites,
    ),
    tool(
        "live_at",
        "What was live at an instant (`at`), by place in the program's own code.",
        (
            2,
            &[
                "trace",
                "at",
                "include",
                "exclude",
                "thread",
                "process",
                "allocator",
                "size",
                "suppressions",
                "limit",
                "cursor",
            ],
        ),
        lists::live_at,
    ),
    tool(
        "leaks",
        "Places that hold memory at the end, with a verdict for each: grows (a leak), bounded (a cache), once (start-up), exit, tail, unclear (blocks were sampled, and too few of these to tell). `verdict` keeps only one kind.",
        (1, filtered!("trace"; "verdict", "limit", "cursor")),
        lists::leaks,
    ),
    tool(
        "stack",
        "The whole stack of a site, the innermost level first, with its costs.",
        (2, &["trace", "site", "limit", "cursor"]),
        lists::stack,
    ),
    tool(
        "tree",
        "The tree of calls below a function, as a list with depths: a row is followed by its callees, the highest cost first.",
        (2, filtered!("trace", "function"; "cost", "depth", "limit", "cursor")),
        tree::tree,
    ),
    tool(
        "source_lines",
        "The lines of a source file with their costs and, if the file is below the folders, their text.",
        (2, filtered!("trace", "file"; "cost", "limit", "cursor")),
        source::source_lines,
    ),
    tool(
        "compare",
        "What changed between two traces, by function, the largest change first. `base` is the older one.",
        (2, filtered!("trace", "base"; "cost", "limit", "cursor")),
        compare::compare,
    ),
    tool(
        "timeline",
        "Live bytes, allocations and temporary allocations over time, in equal slices, with the places that held most.",
        (1, filtered!("trace"; "points")),
        timeline::timeline,
    ),
    Tool {
        name: "record",
        about: "Runs a command and records its allocations into a new trace. The command runs in the first folder, without input, and is stopped after `timeout_s` (default 60).",
        arguments: &["command", "output", "timeout_s"],
        required: 2,
        records: true,
        call: record::record,
    },
    Tool {
        name: "attach",
        about: "Records a running process for `duration_s` seconds (default 10) into a new trace.",
        arguments: &["pid", "output", "duration_s"],
        required: 2,
        records: true,
        call: record::attach,
    },
];

impl Tool {
    pub fn find(name: &str, can_record: bool) -> Option<&'static Tool> {
        TOOLS.iter().find(|tool| tool.name == name && (can_record || !tool.records))
    }

    pub fn call(&self, context: &mut Context<'_>, given: &Map<String, Value>) -> Result<Value, String> {
        let arguments = Arguments::new(given, self.arguments)?;
        (self.call)(self, context, &arguments)
    }

    fn page(&self, arguments: &Arguments<'_>, asked: &Asked) -> Result<Page, String> {
        Page::new(self.name, arguments, asked.state)
    }
}

impl Context<'_> {
    fn asked(&mut self, arguments: &Arguments<'_>) -> Result<Asked, String> {
        self.traces.get(self.folders, arguments.required("trace")?)
    }
}

/// The beginning of every answer about a trace: which one, and what it does not contain.
fn about(asked: &Asked) -> Value {
    let mut about = json!({
        "trace": asked.path.to_string_lossy(),
        "complete": asked.trace.is_complete(),
        "not_seen": rows::sentences(asked.trace.not_seen()),
    });
    // All numbers of blocks and bytes are estimates then.
    if let Some(sampling) = asked.trace.session().sampling {
        about["sampled_once_in_bytes"] = sampling.rate_bytes.into();
    }
    about
}
