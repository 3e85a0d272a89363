//! The result for scripts. Keys and their meanings stay; new keys may be added.
use super::budget::Limit;
use super::outcome::{CheckedFile, Judged, Outcome, Place};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

const SCHEMA: u32 = 1;

pub fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let value = json!({
        "schema": SCHEMA,
        "kept": outcome.is_kept(),
        "files": outcome.files.iter().map(file).collect::<Vec<_>>(),
    });
    serde_json::to_writer(&mut *out, &value)?;
    out.write_all(b"\n")
}

fn file(file: &CheckedFile) -> Value {
    let comparison = file.comparison.as_ref().map(|comparison| {
        json!({
            "baseline": comparison.path.to_string_lossy(),
            "totals": totals(&comparison.totals),
            "cost": comparison.cost.name(),
            "functions": comparison.functions,
        })
    });
    json!({
        "file": file.path.to_string_lossy(),
        "command": file.command,
        "complete": file.is_complete,
        "notes": file.notes,
        "totals": totals(&file.totals),
        "budgets": file.judged.iter().map(judged).collect::<Vec<_>>(),
        "comparison": comparison,
    })
}

fn totals(totals: &format::Totals) -> Map<String, Value> {
    totals.named().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

fn judged(judged: &Judged) -> Value {
    let (limit, limit_percent) = match judged.budget.limit {
        Limit::Most(limit) => (Some(limit), None),
        Limit::Share(share) => (None, Some(share)),
    };
    json!({
        "name": judged.budget.name(),
        "metric": judged.budget.metric.name(),
        "site": judged.budget.site,
        "state": judged.state.name(),
        "limit": limit,
        "limit_percent": limit_percent,
        "value": judged.value,
        "value_percent": judged.share,
        "reason": judged.reason,
        "origin": judged.budget.origin.to_string(),
        "places": judged.places.iter().map(place).collect::<Vec<_>>(),
    })
}

fn place(place: &Place) -> Value {
    json!({
        "function": place.function,
        "file": place.file,
        "line": place.line,
        "value": place.value,
        "reason": place.reason,
    })
}
