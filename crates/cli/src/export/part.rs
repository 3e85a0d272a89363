//! Which part of a trace is exported: the options that `print` has too.
use analysis::{BadQuery, Pattern, Query};
use std::path::PathBuf;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Part {
    /// malloc, custom for the blocks that the program's own allocators reported, or mapped for the program's own mappings.
    #[arg(long, value_name = "DOMAIN", help_heading = "Which part")]
    pub domain: Option<String>,
    /// The same as --domain custom.
    #[arg(long, conflicts_with = "domain", help_heading = "Which part")]
    pub custom: bool,
    /// What was live at T.
    #[arg(long, value_name = "T", help_heading = "Which part")]
    pub at: Option<String>,
    /// Only what happened after T. The range ends at --to T, if that is given besides --to FORMAT.
    #[arg(long, value_name = "T", help_heading = "Which part")]
    pub from: Option<String>,
    /// Only stacks in which a level matches; may be repeated, then all must match.
    #[arg(long, value_name = "PATTERN", help_heading = "Which part")]
    pub include: Vec<String>,
    /// No stacks in which a level matches; may be repeated.
    #[arg(long, value_name = "PATTERN", help_heading = "Which part")]
    pub exclude: Vec<String>,
    /// Only stacks with a function whose name contains this text.
    #[arg(long, value_name = "TEXT", help_heading = "Which part")]
    pub filter_bt_function: Option<String>,
    /// Only blocks that this thread allocated (its index, see `print --view threads`); may be repeated.
    #[arg(long, value_name = "INDEX", help_heading = "Which part")]
    pub thread: Vec<String>,
    /// Only blocks that this process allocated: its pid, its name, or # and its index; may be repeated.
    #[arg(long, value_name = "PROCESS", help_heading = "Which part")]
    pub process: Vec<String>,
    /// Only blocks of this allocator, as malloc, jemalloc, mimalloc; may be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Which part")]
    pub allocator: Vec<String>,
    /// Only blocks of this size, as 100..4k or 1Mi.. (both ends included).
    #[arg(long, value_name = "MIN..MAX", help_heading = "Which part")]
    pub size: Option<String>,
    /// Only blocks that lived this long, as 1ms..2s or ..10us (both ends included).
    #[arg(long, value_name = "MIN..MAX", help_heading = "Which part")]
    pub lifetime: Option<String>,

    /// What is counted, or shown first: peak, leaked, live, allocations, temporary, allocated, deallocations, kept.
    #[arg(long, visible_alias = "flamegraph-cost-type", value_name = "COST", help_heading = "How stacks are shown")]
    pub cost: Option<String>,
    /// Take levels of these classes out of stacks: runtime (or std), libc, dependency, kernel; or all-but-mine.
    #[arg(long, value_name = "CLASSES", help_heading = "How stacks are shown")]
    pub hide: Option<String>,
    /// `recursion`: show a function that calls itself only once.
    #[arg(long, value_name = "WHAT", help_heading = "How stacks are shown")]
    pub collapse: Option<String>,
    /// Rules that tell which code is yours, as for `print`.
    #[arg(long, value_name = "RULES", value_hint = clap::ValueHint::FilePath, help_heading = "How stacks are shown")]
    pub rules: Option<PathBuf>,
}

impl Part {
    /// Returns the query that the options describe. `to`: the end of the range.
    pub fn query(&self, to: Option<&str>, no_suppressions: bool) -> Result<Query, BadQuery> {
        let mut query = Query::default();
        let custom = self.custom.then_some("custom");
        let single = [
            ("domain", self.domain.as_deref().or(custom)),
            ("at", self.at.as_deref()),
            ("from", self.from.as_deref()),
            ("to", to),
            ("size", self.size.as_deref()),
            ("lifetime", self.lifetime.as_deref()),
            ("cost", self.cost.as_deref()),
            ("hide", self.hide.as_deref()),
            ("collapse", self.collapse.as_deref()),
            ("suppressions", no_suppressions.then_some("off")),
        ];
        for (name, value) in single {
            if let Some(value) = value {
                query.set(name, value)?;
            }
        }
        let several = [
            ("include", &self.include),
            ("exclude", &self.exclude),
            ("thread", &self.thread),
            ("process", &self.process),
            ("allocator", &self.allocator),
        ];
        for (name, values) in several {
            for value in values {
                query.set(name, value)?;
            }
        }
        if let Some(text) = &self.filter_bt_function {
            query.include.push(Pattern::exact_function(text));
        }
        query.check()?;
        Ok(query)
    }
}
