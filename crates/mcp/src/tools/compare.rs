//! What changed between two traces.
use super::{Context, Tool, about};
use crate::arguments::Arguments;
use crate::rows::{sentences, shortened};
use serde_json::{Value, json};

pub fn compare(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let asked = context.asked(arguments)?;
    let base = context.traces.get(context.folders, arguments.required("base")?)?;
    let page = crate::page::Page::new(tool.name, arguments, asked.state ^ base.state.rotate_left(1))?;
    let selection = arguments.selection()?;
    let mut changes = asked.trace.changes(&base.trace, &selection).map_err(|error| error.to_string())?;
    let sum = |value: fn(&heaptrack_trace::Change) -> i64| changes.iter().map(value).fold(0, i64::saturating_add);
    let mut answer = about(&asked);
    answer["base"] = json!({
        "trace": base.path.to_string_lossy(),
        "complete": base.trace.is_complete(),
        "not_seen": sentences(base.trace.not_seen()),
    });
    answer["total_before"] = sum(|change| change.before).into();
    answer["total_after"] = sum(|change| change.after).into();
    changes.retain(|change| change.before != change.after);
    page.put(&mut answer, &changes, |change| {
        let text = |text: &Option<String>| text.as_deref().map(shortened);
        let state = match (change.is_new, change.is_gone) {
            (true, _) => "new",
            (_, true) => "gone",
            _ => "changed",
        };
        json!({
            "function": text(&change.function),
            "file": text(&change.file),
            "module": text(&change.module),
            "before": change.before,
            "after": change.after,
            "change": change.after.saturating_sub(change.before),
            "state": state,
        })
    });
    Ok(answer)
}
