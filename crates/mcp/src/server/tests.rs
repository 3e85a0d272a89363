use super::*;
use std::path::PathBuf;

fn options() -> Options {
    let data = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../format/tests/data"));
    Options { folders: Folders::new(&[data]).unwrap(), recorder: None, version: "1".into() }
}

/// Sends lines to a server for the traces of `crates/format/tests/data`, and returns its answers by id. Answers without
/// an id are under null.
fn answers(lines: &[&str]) -> Vec<Value> {
    let mut output = Vec::new();
    serve(lines.join("\n").as_bytes(), &mut output, &options()).unwrap();
    let lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn ask(tool: &str, arguments: Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": tool, "arguments": arguments } });
    answers(&[&request.to_string()]).remove(0)
}

#[test]
fn the_version_is_the_clients_or_the_newest() {
    for (asked, answered) in [("2024-11-05", "2024-11-05"), ("1999-01-01", VERSIONS[0])] {
        let request =
            json!({ "jsonrpc": "2.0", "id": "a", "method": "initialize", "params": { "protocolVersion": asked } });
        let answer = answers(&[&request.to_string()]).remove(0);
        assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!("a"), &json!(answered)));
    }
}

#[test]
fn every_bad_message_gets_its_error_and_the_server_goes_on() {
    let deep = "[".repeat(100_000);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (line, code) in [
        ("{", PARSE),
        (deep.as_str(), PARSE),
        ("[]", INVALID_REQUEST),
        ("5", INVALID_REQUEST),
        ("{}", INVALID_REQUEST),
        (r#"{"id":null,"method":"ping"}"#, INVALID_REQUEST),
        (r#"{"id":{},"method":"ping"}"#, INVALID_REQUEST),
        (r#"{"id":1,"method":5}"#, INVALID_REQUEST),
        (r#"{"id":1,"method":"none"}"#, NO_METHOD),
        (r#"{"id":1,"method":"tools/call"}"#, INVALID_PARAMS),
        (r#"{"id":1,"method":"tools/call","params":{"name":"none"}}"#, INVALID_PARAMS),
        (r#"{"id":1,"method":"tools/call","params":{"name":"record"}}"#, INVALID_PARAMS),
        (r#"{"id":1,"method":"tools/call","params":{"name":"stack","arguments":[]}}"#, INVALID_PARAMS),
        (r#"{"id":1,"method":"prompts/get","params":{"name":"none"}}"#, INVALID_PARAMS),
        (r#"{"id":1,"method":"prompts/get","params":{"name":"find_the_leak"}}"#, INVALID_PARAMS),
    ] {
        let all = answers(&[line, ping]);
        assert_eq!(all.len(), 2, "{line}");
        assert_eq!(all[0]["error"]["code"], code, "{line}");
        assert_eq!(all[1]["result"], json!({}));
    }
    // Notifications and answers get no answer.
    assert_eq!(answers(&[r#"{"method":"notifications/initialized"}"#, r#"{"id":1,"result":{}}"#]).len(), 0);
}

/// However many calls are cancelled that were answered already, one that waits can still be cancelled.
#[test]
fn a_call_that_waits_is_cancelled() {
    let options = options();
    let server = Server { options: &options, output: Mutex::new(Vec::new()), calls: Mutex::default() };
    let (sender, receiver) = sync_channel(WAITING);
    let cancel = |id: u64| json!({ "method": "notifications/cancelled", "params": { "requestId": id } });
    let call = |id: u64| {
        let params = json!({ "name": "open_trace", "arguments": { "trace": "v1.htz" } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let mut messages = vec![cancel(99); 200];
    messages.extend([call(1), call(2), call(3), cancel(2)]);
    for message in messages {
        assert_eq!(server.receive(message.to_string().as_bytes(), &sender), None);
    }
    drop(sender);
    server.work(&receiver);
    let output = server.output.into_inner().unwrap();
    let lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let answered: Vec<Value> = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()["id"].clone()).collect();
    assert_eq!(answered, [1, 3]);
}

#[test]
fn a_trace_is_asked() {
    let answer = &ask("open_trace", json!({ "trace": "v1.htz" }))["result"];
    assert_eq!(answer["isError"], false);
    let trace = heaptrack_trace::Trace::open("../format/tests/data/v1.htz").unwrap();
    let totals = trace.totals();
    let told = &answer["structuredContent"]["session_totals"];
    assert_eq!(told["allocations"].as_u64(), totals.allocations);
    assert_eq!(told["peak_bytes"].as_u64(), totals.peak_bytes);
    let text: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, answer["structuredContent"]);
}

#[test]
fn wrong_arguments_are_named() {
    let trace = "v1.htz";
    for (tool, arguments, part) in [
        ("open_trace", json!({}), "`trace` is missing"),
        ("open_trace", json!({ "trace": 5 }), "`trace` must be a string"),
        ("open_trace", json!({ "trace": "../data/v1.htz" }), "is not below the folders"),
        ("open_trace", json!({ "trace": "/etc/passwd" }), "is not below the folders"),
        ("open_trace", json!({ "trace": trace, "limit": 1 }), "there is no argument `limit`"),
        ("top_sites", json!({ "trace": trace, "limit": 1_000_000_000 }), "`limit` must be"),
        ("top_sites", json!({ "trace": trace, "cost": "gold" }), "cost=gold"),
        ("top_sites", json!({ "trace": trace, "at": "soon" }), "at=soon"),
        ("top_sites", json!({ "trace": trace, "at": { "x": 1 } }), "`at` must be"),
        ("top_sites", json!({ "trace": trace, "include": "/[/" }), "not a valid regular expression"),
        ("top_sites", json!({ "trace": trace, "cursor": "1-1" }), "`cursor`"),
        ("live_at", json!({ "trace": trace }), "`at` is missing"),
        ("leaks", json!({ "trace": trace, "verdict": "bad" }), "`verdict` must be"),
        ("stack", json!({ "trace": trace, "site": u32::MAX }), "there is no site"),
        ("stack", json!({ "trace": trace, "site": -1 }), "`site` must be"),
        ("tree", json!({ "trace": trace, "function": "no such function" }), "no stack has"),
        ("tree", json!({ "trace": trace, "function": "" }), "`function`"),
        ("source_lines", json!({ "trace": trace, "file": "no such file" }), "no source file"),
        ("compare", json!({ "trace": trace, "base": "none.htz" }), "is no file"),
        ("timeline", json!({ "trace": trace, "points": 100_000 }), "`points` must be"),
    ] {
        let answer = &ask(tool, arguments.clone())["result"];
        let text = answer["content"][0]["text"].as_str().unwrap_or_default();
        assert!(answer["isError"] == true && text.contains(part), "{tool} {arguments}: {answer}");
    }
}
