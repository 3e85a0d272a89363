//! The result as SARIF 2.1.0, as code scanning of GitHub and GitLab reads it: a result for each budget that was not
//! kept, at the line of the code to blame.
use super::budget::{Metric, Origin};
use super::outcome::{Judged, Outcome, Place, State};
use super::text;
use serde_json::{Value, json};
use std::io::{self, Write};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

pub fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let rules = Metric::ALL.map(|metric| {
        json!({ "id": id(metric), "shortDescription": { "text": description(metric) },
                "defaultConfiguration": { "level": "error" } })
    });
    let results: Vec<Value> = outcome
        .judged()
        .filter(|(_, judged)| judged.state != State::Kept)
        .map(|(file, judged)| result(&file.path.to_string_lossy(), judged))
        .collect();
    let value = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "heaptrack", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    });
    serde_json::to_writer(&mut *out, &value)?;
    out.write_all(b"\n")
}

fn id(metric: Metric) -> String {
    format!("heaptrack/{}", metric.name())
}

const fn description(metric: Metric) -> &'static str {
    match metric {
        Metric::Peak => "More memory is live at the same time than the budget allows",
        Metric::Leaked => "More memory is not freed than the budget allows",
        Metric::Allocations => "There are more allocations than the budget allows",
        Metric::Temporary => "There are more temporary allocations than the budget allows",
        Metric::Rss => "More memory is resident than the budget allows",
        Metric::Growth => "The memory that a place holds grows until the end",
    }
}

fn result(file: &str, judged: &Judged) -> Value {
    let mut lines = vec![format!("{}: {} ({file})", judged.budget.name(), judged.sentence())];
    lines.extend(judged.places.iter().map(|place| text::line(judged, place)));
    let mut places: Vec<Value> = judged.places.iter().filter_map(|place| location(judged, place)).collect();
    // A result without a place in the code is shown where the budget is set.
    if let (true, Origin::File { path, line }) = (places.is_empty(), &judged.budget.origin) {
        places.push(physical(&path.to_string_lossy(), *line as u32, "the budget"));
    }
    let mut value = json!({
        "ruleId": id(judged.budget.metric),
        "level": "error",
        "message": { "text": lines.join("\n") },
        "properties": { "state": judged.state.name(), "trace": file },
    });
    let mut places = places.into_iter();
    value["locations"] = places.next().into_iter().collect();
    let related: Vec<Value> = places
        .enumerate()
        .map(|(number, mut place)| {
            place["id"] = (number + 1).into();
            place
        })
        .collect();
    value["relatedLocations"] = related.into();
    value
}

fn location(judged: &Judged, place: &Place) -> Option<Value> {
    let message = text::line(judged, place);
    match (&place.in_repository, &place.file, place.line) {
        (Some((file, line)), ..) => Some(physical(file, *line, &message)),
        (None, Some(file), Some(line)) => Some(physical(file, line, &message)),
        _ => None,
    }
}

fn physical(file: &str, line: u32, message: &str) -> Value {
    let artifact = match file.starts_with('/') {
        true => json!({ "uri": format!("file://{}", uri(file)) }),
        false => json!({ "uri": uri(file), "uriBaseId": "%SRCROOT%" }),
    };
    json!({
        "physicalLocation": { "artifactLocation": artifact, "region": { "startLine": line.max(1) } },
        "message": { "text": message },
    })
}

/// Escapes the bytes that a URI cannot contain.
fn uri(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.bytes().map(|byte| if is_plain(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("src/a b+ü.c"), "src/a%20b%2B%C3%BC.c");
        let far = physical("/usr/include/x.h", 0, "m");
        assert_eq!(far["physicalLocation"]["artifactLocation"], json!({ "uri": "file:///usr/include/x.h" }));
        assert_eq!(far["physicalLocation"]["region"]["startLine"], 1);
    }
}
