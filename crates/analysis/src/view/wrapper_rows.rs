//! The list `wrappers` of JSON outputs: the functions that count as a part of the allocator (docs/blame.md).
use crate::stack_table::StackTable;
use serde::Serialize;

/// A function that counts as a part of the allocator, as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrapperRow<'a> {
    pub function: Option<&'a str>,
    pub short: Option<&'a str>,
    pub module: Option<&'a str>,
    /// `query`, `rule`, `name` or `numbers`.
    pub reason: &'static str,
    pub callers: u32,
    pub sizes: u32,
    /// The number of stacks whose owner is further out because of it.
    pub stacks: u32,
}

/// The wrappers that change an owner, the one with the most stacks first.
pub fn wrapper_rows(table: &StackTable) -> Vec<WrapperRow<'_>> {
    let row = |wrapper: &crate::wrappers::Wrapper| {
        let level = table.levels.get(wrapper.level as usize)?;
        Some(WrapperRow {
            function: table.text(level.function),
            short: table.text(level.short),
            module: table.text(level.module),
            reason: wrapper.reason.name(),
            callers: wrapper.callers,
            sizes: wrapper.sizes,
            stacks: wrapper.stacks,
        })
    };
    table.wrappers.list.iter().filter_map(row).collect()
}
