//! The description of the tools for clients.
use super::{TOOLS, Tool};
use crate::page::MOST_ROWS;
use analysis::Cost;
use serde_json::{Map, Value, json};

/// The answer to `tools/list`.
pub fn list(can_record: bool) -> Value {
    let tools = TOOLS.iter().filter(|tool| can_record || !tool.records);
    json!({ "tools": tools.map(describe).collect::<Vec<_>>() })
}

fn describe(tool: &Tool) -> Value {
    let properties: Map<String, Value> = tool.arguments.iter().map(|name| ((*name).to_owned(), schema(name))).collect();
    json!({
        "name": tool.name,
        "description": tool.about,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": &tool.arguments[..tool.required],
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": !tool.records, "openWorldHint": tool.records },
    })
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn number(least: u64, most: u64, about: &str) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most, "description": about })
}

/// A value that may be repeated.
fn several(about: &str) -> Value {
    let one = json!({ "type": ["string", "integer"] });
    json!({ "anyOf": [one, { "type": "array", "items": one }], "description": about })
}

fn instant(about: &str) -> Value {
    json!({ "type": ["string", "integer"], "description": about })
}

/// The schema of an argument. Each name means the same in every tool.
fn schema(name: &str) -> Value {
    match name {
        "trace" => text("Path of the trace, relative to a folder of this server, or absolute below it."),
        "base" => text("Path of the older trace."),
        "limit" => number(1, MOST_ROWS, "The most rows of a page (default 20)."),
        "cursor" => text("The `next_cursor` of the page before, with the same other arguments."),
        "cost" => {
            let names = Cost::ALL.map(|(name, _)| name);
            json!({ "type": "string", "enum": names, "description": "The cost by which rows are sorted." })
        }
        "at" => instant(
            "An instant: a number of nanoseconds since the start, or a text such as `1.5s`, `50%`, `start`, `peak`, `end`. Not with from and to.",
        ),
        "from" => instant("The beginning of a range of time, written as `at`."),
        "to" => instant("The end of a range of time, written as `at`."),
        "include" => several(
            "Only stacks with this text in a function, file or module: TEXT, /REGEX/, function:TEXT, file:TEXT, module:TEXT.",
        ),
        "exclude" => several("No stacks with this text, written as `include`."),
        "thread" => several("Only blocks that this thread allocated (its index)."),
        "process" => several("Only blocks that this process allocated: its pid, its name, or #INDEX."),
        "allocator" => several("Only blocks of this allocator: malloc, jemalloc, mimalloc and so on."),
        "size" => text("Only blocks of MIN..MAX bytes."),
        "lifetime" => text("Only blocks that lived MIN..MAX, such as ..1ms."),
        "suppressions" => {
            json!({ "type": "string", "enum": ["on", "off"], "description": "`off` counts known leaks, too." })
        }
        "verdict" => {
            json!({ "type": "string", "enum": super::lists::VERDICTS, "description": "Only places with this verdict." })
        }
        "site" => number(0, u32::MAX as u64, "The `site` of a row of another answer about the same trace."),
        "function" => text("The function: TEXT or /REGEX/."),
        "depth" => number(1, super::tree::DEEPEST, "The most levels below the function (default 6)."),
        "file" => text("A part of the path of one source file."),
        "points" => number(1, super::timeline::MOST_POINTS, "The number of slices (default 32)."),
        "command" => {
            json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "description": "The program and its arguments." })
        }
        "output" => text("The path of the new trace, relative to the first folder. It must not exist."),
        "timeout_s" => number(1, super::record::LONGEST_S, "The program is stopped after this many seconds."),
        "duration_s" => number(1, super::record::LONGEST_S, "How many seconds to record."),
        "pid" => number(1, i32::MAX as u64, "The process."),
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_of_every_tool_is_described() {
        for tool in TOOLS {
            assert!(tool.required <= tool.arguments.len());
            for name in tool.arguments {
                assert!(schema(name).get("description").is_some(), "{} of {}", name, tool.name);
            }
        }
        let page = include_str!("../../../../docs/mcp.md");
        assert!(TOOLS.iter().all(|tool| page.contains(&format!("`{}`", tool.name))), "docs/mcp.md names every tool");
        let names = |can_record: bool| list(can_record)["tools"].as_array().unwrap().len();
        assert_eq!(names(true), names(false) + 2);
    }
}
