//! Prompts: what to ask in which order, for the two usual tasks.
use crate::rows::shortened;
use serde_json::{Value, json};

struct Prompt {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    text: &'static str,
}

const PROMPTS: [Prompt; 2] = [
    Prompt {
        name: "find_the_leak",
        title: "Find the leak",
        about: "Finds the code whose memory grows and is never freed, and proposes a fix.",
        text: "Find the memory leak in the recording `TRACE`.
1. `open_trace`: read `not_seen` first. If something is missing there, say so in your answer.
2. `leaks` with verdict `grows`. These places hold more and more blocks up to the end. Places with the verdict `bounded` are caches, `once` is start-up data, `exit` was freed at the end: do not report them as leaks. If no place grows, say that, and show the largest of the others.
3. For the place with the most bytes: `stack` of its `site`, and `source_lines` of its file with cost `leaked`.
4. Read the code: who owns the block, and which path forgets to free it?
Answer with the function, file and line, the bytes and blocks, the site, how fast it grows, and a fix. Give numbers only from the tools.",
    },
    Prompt {
        name: "reduce_allocations",
        title: "Reduce allocations",
        about: "Finds code that allocates too often, and proposes how to allocate less.",
        text: "Find out where the program of the recording `TRACE` allocates too often.
1. `open_trace`: read `not_seen` first. If something is missing there, say so in your answer.
2. `top_sites` with cost `temporary`: blocks that are freed before their thread allocates again. These are the cheapest to avoid. Then `top_sites` with cost `allocations`.
3. For the highest places: `tree` below the function that is called in a loop, `stack` of the `site`, and `source_lines` with cost `allocations`.
4. Read the code: can a buffer be kept, a vector be reserved, a copy be avoided?
Answer with function, file and line of each place, its number of allocations and its share of all, the site, and a change to the code. Give numbers only from the tools.",
    },
];

/// The answer to `prompts/list`.
pub fn list() -> Value {
    let prompt = |prompt: &Prompt| {
        let argument = json!({ "name": "trace", "description": "Path of the trace.", "required": true });
        json!({ "name": prompt.name, "title": prompt.title, "description": prompt.about, "arguments": [argument] })
    };
    json!({ "prompts": PROMPTS.iter().map(prompt).collect::<Vec<_>>() })
}

/// The answer to `prompts/get`. The error is a sentence.
pub fn get(params: &Value) -> Result<Value, String> {
    let name = params["name"].as_str().ok_or("`name` must be a string")?;
    let prompt = PROMPTS.iter().find(|prompt| prompt.name == name);
    let prompt = prompt.ok_or_else(|| format!("there is no prompt `{}`", shortened(name)))?;
    let trace = params["arguments"]["trace"].as_str().ok_or("the prompt needs the argument `trace`, a string")?;
    let text = prompt.text.replace("TRACE", &shortened(trace));
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    Ok(json!({ "description": prompt.about, "messages": [message] }))
}
