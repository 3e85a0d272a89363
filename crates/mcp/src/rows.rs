//! Rows of answers: places in the code, with texts of a bounded length.
use analysis::{Definitions, NodeId, StackTable, StackTableLevel};
use serde_json::{Map, Value, json};

/// The longest text of an answer, in characters.
const LONGEST: usize = 300;
/// The most sentences about what was not seen.
const SENTENCES: usize = 12;

/// The text, or its beginning.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The place of a level. What is not known is left out.
pub fn place(table: &StackTable, level: Option<&StackTableLevel>) -> Map<String, Value> {
    let mut row = Map::new();
    let Some(level) = level else {
        row.insert("function".into(), "[not known]".into());
        return row;
    };
    let mut put = |name: &str, text: Option<&str>| {
        if let Some(text) = text {
            row.insert(name.into(), shortened(text).into());
        }
    };
    put("function", table.text(level.function));
    put("file", table.text(level.file));
    put("module", table.text(level.module));
    if let Some(line) = level.line.filter(|_| level.file.is_some()) {
        row.insert("line".into(), line.into());
    }
    if let Some(offset) = level.offset.filter(|_| level.function.is_none()) {
        row.insert("offset".into(), format!("{offset:#x}").into());
    }
    row
}

pub fn place_of(table: &StackTable, node: NodeId) -> Map<String, Value> {
    place(table, table.level(node))
}

/// Costs by name, without those that a heap profile of another tool does not know.
pub fn costs(definitions: &Definitions, costs: &[(&str, u64)]) -> Map<String, Value> {
    let known = costs.iter().filter(|(name, _)| definitions.has_cost(name));
    known.map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}

pub fn sentences(mut list: Vec<String>) -> Vec<String> {
    let more = list.len().saturating_sub(SENTENCES);
    list.truncate(SENTENCES);
    let mut list: Vec<String> = list.iter().map(|text| shortened(text)).collect();
    if more > 0 {
        list.push(format!("and {more} more"));
    }
    list
}
