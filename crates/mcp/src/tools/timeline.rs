//! The heap over time.
use super::{Context, Tool, about};
use crate::arguments::Arguments;
use crate::rows::shortened;
use serde_json::{Value, json};

pub const MOST_POINTS: u64 = 100;
const POINTS: u64 = 32;
/// The places that are shown one by one.
const BANDS: &str = "5";

pub fn timeline(_: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let points = arguments.number("points", 1, MOST_POINTS)?.unwrap_or(POINTS).to_string();
    let asked = context.asked(arguments)?;
    let selection = arguments.selection()?.with("points", &points).and_then(|words| words.with("top", BANDS));
    let text = selection.and_then(|selection| asked.trace.view("timeline", &selection));
    let text = text.map_err(|error| error.to_string())?;
    let view: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut answer = about(&asked);
    for name in ["range", "peak", "time_ns", "live_bytes", "live_bytes_end", "allocations", "temporary"] {
        answer[name] = view[name].clone();
    }
    let band = |band: &Value| {
        let text = |name: &str| band[name].as_str().map(shortened);
        json!({
            "function": text("function"),
            "file": text("file"),
            "line": band["line"],
            "live_bytes": band["live_bytes"],
        })
    };
    answer["places"] = view["bands"].as_array().map(|bands| bands.iter().map(band).collect::<Vec<_>>()).into();
    Ok(answer)
}
