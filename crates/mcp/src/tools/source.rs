//! The lines of a source file with their costs.
use super::lists::{cost_of, profile};
use super::{Context, Tool, about};
use crate::arguments::Arguments;
use crate::folders::{Folders, Found};
use crate::rows::shortened;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Read;

/// The longest source file whose text is shown.
const LONGEST: u64 = 16 << 20;
/// The most files that an error names.
const MOST_NAMED: usize = 10;

pub fn source_lines(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let wanted = arguments.required("file")?;
    let asked = context.asked(arguments)?;
    let page = tool.page(arguments, &asked)?;
    let (query, profile) = profile(&asked.trace, &arguments.selection()?)?;
    let cost = cost_of(&asked.trace, &query);
    let table = asked.trace.parts().1;
    let named = table.levels.iter().filter_map(|level| table.text(level.file)).filter(|file| file.contains(wanted));
    let file = one_of(&named.collect(), wanted)?;
    // By line: the cost of the stacks that contain it, and of those that end at it.
    let mut lines: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for (site, costs) in &profile.stacks {
        let value = cost.of(costs, query.suppressions && table.stack(*site).suppressed.is_some());
        let mut seen = HashSet::new();
        for (depth, node) in table.path(table.stack(*site).node).enumerate() {
            let Some(level) = table.level(node).filter(|level| table.text(level.file) == Some(file)) else { continue };
            let Some(line) = level.line else { continue };
            let sums = lines.entry(line).or_default();
            if seen.insert(line) {
                sums.0 = sums.0.saturating_add(value);
            }
            if depth == 0 {
                sums.1 = sums.1.saturating_add(value);
            }
        }
    }
    let rows: Vec<(u32, (i64, i64))> = lines.into_iter().filter(|(_, sums)| *sums != (0, 0)).collect();
    let mut answer = about(&asked);
    answer["file"] = shortened(file).into();
    answer["cost"] = cost.name().into();
    let text = text(context.folders, file);
    if let Err(reason) = &text {
        answer["text_is_missing"] = reason.clone().into();
    }
    let text: Vec<&str> = text.as_deref().unwrap_or_default().lines().collect();
    page.put(&mut answer, &rows, |(line, (inclusive, own))| {
        let mut row = json!({ "line": line, "value": inclusive, "own_value": own });
        if let Some(text) = (*line as usize).checked_sub(1).and_then(|at| text.get(at)) {
            row["text"] = shortened(text.trim_end()).into();
        }
        row
    });
    Ok(answer)
}

/// The file that is meant: the only one, or the one that is written exactly so.
fn one_of<'a>(files: &BTreeSet<&'a str>, wanted: &str) -> Result<&'a str, String> {
    let exact = files.iter().find(|file| **file == wanted);
    match (exact, files.len()) {
        (Some(file), _) => Ok(file),
        (None, 1) => files.first().copied().ok_or_else(String::new),
        (None, 0) => Err(format!("no source file of this trace has `{}` in its path", shortened(wanted))),
        (None, count) => {
            let first: Vec<String> = files.iter().take(MOST_NAMED).map(|file| shortened(file)).collect();
            Err(format!("{count} source files have this in their path, among them {}", first.join(", ")))
        }
    }
}

/// The text of a source file, which must be below the folders, although the trace names it: a trace may come from anywhere.
fn text(folders: &Folders, file: &str) -> Result<String, String> {
    let Found { file: open, .. } = folders.open(file)?;
    let is_short = open.metadata().is_ok_and(|metadata| metadata.len() <= LONGEST);
    if !is_short {
        return Err("the file is too long to show".into());
    }
    let mut bytes = Vec::new();
    open.take(LONGEST).read_to_end(&mut bytes).map_err(|error| format!("the file cannot be read: {error}"))?;
    if bytes.contains(&0) {
        Err("the file is no text".into())
    } else {
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
