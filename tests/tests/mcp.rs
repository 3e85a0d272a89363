//! `heaptrack mcp`, asked by clients of others and by hostile ones. Its numbers are those of `print --json`.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, Program, process, view};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A server, and the connection to it.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn new(options: &[&str], folder: &Path) -> Self {
        let mut command = Command::new(heaptrack());
        command.arg("mcp").args(options).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Server { child, input, output, next: 1 }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).unwrap();
        self.input.write_all(b"\n").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.send(
            json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }).to_string().as_bytes(),
        );
        self.next
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        let answer = self.receive();
        assert_eq!(answer["id"], id);
        answer
    }

    /// The answer of a tool.
    fn ask(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.call(tool, arguments.clone());
        assert_eq!(answer["result"]["isError"], false, "{tool} {arguments}: {answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// The sentence with which a tool refuses.
    fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments.clone());
        assert_eq!(answer["result"]["isError"], true, "{tool} {arguments}: {answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn is_there(&mut self) {
        let id = self.request("ping", json!({}));
        assert_eq!(self.receive(), json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
    }

    /// Closes the connection. The server ends by itself.
    fn close(self) {
        let Server { mut child, input, .. } = self;
        drop(input);
        assert_eq!(process::code(child.wait().unwrap()), 0);
    }
}

/// A folder with the trace of the program `exported`.
fn recorded() -> (Folder, PathBuf) {
    let folder = Folder::new();
    let trace = folder.join("exported.htz");
    std::fs::copy(&Program::target("exported").recorded().trace, &trace).unwrap();
    (folder, trace)
}

/// Every answer about a sample says that its numbers are estimates, and how certain the totals are.
#[test]
fn answers_about_a_sample_say_so() {
    let folder = Folder::new();
    let trace = folder.join("exported.htz");
    let sample = Program::target("exported").option("--sample").option("1k").recorded();
    std::fs::copy(&sample.trace, &trace).unwrap();
    let mut server = Server::new(&[], folder.path());
    let site = view::view(&trace, "leaks", &[])["sites"][0]["stack"].clone();
    let tools = [
        ("open_trace", json!({})),
        ("summary", json!({})),
        ("top_sites", json!({})),
        ("live_at", json!({ "at": "peak" })),
        ("leaks", json!({})),
        ("stack", json!({ "site": site })),
        ("tree", json!({ "function": "/^main/" })),
        ("timeline", json!({})),
    ];
    for (tool, mut arguments) in tools {
        arguments["trace"] = "exported.htz".into();
        let answer = server.ask(tool, arguments);
        assert_eq!(answer["sampled_once_in_bytes"], 1000, "{tool}: {answer}");
        let first = answer["not_seen"][0].to_string();
        assert!(
            first.contains("Blocks were sampled, once in 1.00 kB on average: numbers are estimates"),
            "{tool}: {first}"
        );
    }
    server.close();
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn a_script_finds_the_leak_and_the_churn_of_real_programs() {
    let (folder, tests) = (Folder::new(), workspace().join("tests/mcp"));
    // The other four are built by `make soak-mcp`.
    let names: &[&str] = if heaptrack_tests::scale::soak() {
        &["bzip2", "lua", "zlib", "sqlite3", "quickjs", "pulldown-cmark"]
    } else {
        &["bzip2", "lua"]
    };
    run(Command::new("/usr/bin/python3").arg(tests.join("build.py")).arg(heaptrack()).arg(folder.path()).args(names));
    let found = run(Command::new("/usr/bin/python3").arg(tests.join("find.py")).arg(heaptrack()).arg(folder.path()));
    let found: Value = serde_json::from_str(&found).unwrap();
    let keys: Value = serde_json::from_str(&std::fs::read_to_string(tests.join("keys.json")).unwrap()).unwrap();
    assert_eq!(found.as_object().unwrap().len(), names.len());
    for name in names {
        assert_eq!(found[name], keys[name], "{name}");
    }
}

#[test]
fn the_inspector_lists_tools_and_calls_them() {
    let (folder, trace) = recorded();
    let inspect = |words: &[&str]| -> Value {
        let program = workspace().join("tests/mcp/node_modules/.bin/mcp-inspector");
        let mut command = Command::new(program);
        command.arg("--cli").arg(heaptrack()).arg("mcp").arg(folder.path()).args(words);
        serde_json::from_str(&run(&mut command)).unwrap()
    };
    let listed = inspect(&["--method", "tools/list"]);
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 11, "{names:?}");
    let called = inspect(&["--method", "tools/call", "--tool-name", "open_trace", "--tool-arg", "trace=exported.htz"]);
    let whole: Value = serde_json::from_str(&view::text(&trace, &["--json"])).unwrap();
    let told: Value = serde_json::from_str(called["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(told["session_totals"]["allocations"], whole["totals"]["allocations"]);
    let prompts = inspect(&["--method", "prompts/list"]);
    assert_eq!(prompts["prompts"].as_array().unwrap().len(), 2);
}

#[test]
fn answers_are_those_of_print() {
    let (folder, trace) = recorded();
    let mut server = Server::new(&[], folder.path());
    let summary = view::view(&trace, "summary", &["--limit", "200"]);
    let cost_rows =
        [("peak", "peak"), ("leaked", "leaked"), ("allocations", "allocations"), ("temporary", "temporary")];
    for (cost, list) in cost_rows {
        let answer = server.ask("top_sites", json!({ "trace": "exported.htz", "cost": cost, "limit": 200 }));
        let rows = |rows: &Value, site: &str| -> Vec<(Value, Value, Value)> {
            let rows = rows.as_array().unwrap().iter();
            rows.map(|row| (row["function"].clone(), row["value"].clone(), row[site].clone())).collect()
        };
        assert_eq!(rows(&answer["rows"], "site"), rows(&summary["lists"][list], "stack"), "{cost}");
        assert!(!answer["rows"].as_array().unwrap().is_empty());
    }
    let live = server.ask("live_at", json!({ "trace": "exported.htz", "at": "peak", "limit": 200 }));
    let at = view::view(&trace, "profile", &["--at", "peak"]);
    assert_eq!(view::rows(&live["rows"], &["value"]), view::total(&at, "live_bytes"));
    assert_eq!(live["totals"]["live_allocations"], at["totals"]["live_allocations"]);
    // An instant that an answer cites can be asked for.
    let peak_ns = &server.ask("open_trace", json!({ "trace": "exported.htz" }))["session_totals"]["peak_time_ns"];
    assert_eq!(peak_ns, &summary["totals"]["peak_time_ns"]);
    let cited = server.ask("live_at", json!({ "trace": "exported.htz", "at": peak_ns }));
    let at = view::view(&trace, "profile", &["--at", &format!("{peak_ns}ns")]);
    assert_eq!(cited["totals"]["live_bytes"], at["totals"]["live_bytes"]);
    let leaks = server.ask("leaks", json!({ "trace": "exported.htz", "limit": 200 }));
    let judged = view::view(&trace, "leaks", &[]);
    let verdicts = |rows: &Value| -> Vec<(Value, Value, Value)> {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| (row["function"].clone(), row["verdict"].clone(), row["live_bytes"].clone())).collect()
    };
    assert_eq!(verdicts(&leaks["rows"]), verdicts(&judged["sites"]));
    let tree = server.ask("tree", json!({ "trace": "exported.htz", "function": "/^main/", "cost": "allocations" }));
    let callers = view::view(&trace, "callers", &["--function", "function:/^main/", "--cost", "allocations"]);
    let main = callers["functions"].as_array().unwrap().iter().find(|row| row["function"] == "main").unwrap();
    assert_eq!((&tree["rows"][0]["function"], &tree["rows"][0]["depth"]), (&json!("main"), &json!(0)));
    assert_eq!(tree["rows"][0]["value"], main["inclusive"]["allocations"]);
    let under: u64 = tree["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["depth"] == 1)
        .map(|row| row["value"].as_u64().unwrap())
        .sum();
    assert_eq!(
        under + tree["rows"][0]["own_value"].as_u64().unwrap(),
        main["inclusive"]["allocations"].as_u64().unwrap()
    );
    let lines = server.ask(
        "source_lines",
        json!({ "trace": "exported.htz", "file": "exported.cpp", "cost": "allocations", "limit": 200 }),
    );
    let source = view::view(&trace, "source", &["--source-file", "exported.cpp"]);
    assert_eq!(
        view::rows(&lines["rows"], &["own_value"]),
        view::rows(&source["files"][0]["lines"], &["self", "allocations"])
    );
    assert!(lines["text_is_missing"].as_str().unwrap().contains("not below the folders"), "{lines}");
    let timeline = server.ask("timeline", json!({ "trace": "exported.htz", "points": 8 }));
    assert_eq!(timeline["allocations"].as_array().unwrap().len(), 8);
    assert_eq!(view::column(&timeline, "allocations"), view::total(&summary, "allocations"));
    let same = server.ask("compare", json!({ "trace": "exported.htz", "base": "exported.htz" }));
    assert_eq!((&same["rows"], &same["total_before"]), (&json!([]), &same["total_after"]));
    server.close();
}

#[test]
fn what_was_not_seen_is_said() {
    let (folder, trace) = recorded();
    let whole = std::fs::read(&trace).unwrap();
    std::fs::write(folder.join("cut.htz"), &whole[..whole.len() / 4]).unwrap();
    let mut server = Server::new(&[], folder.path());
    for tool in ["open_trace", "summary", "top_sites", "leaks", "timeline"] {
        let answer = server.ask(tool, json!({ "trace": "cut.htz" }));
        assert_eq!(answer["complete"], false, "{tool}");
        let told = answer["not_seen"][0].as_str().unwrap_or_else(|| panic!("{tool}: {answer}"));
        assert!(told.contains("not finished"), "{told}");
        assert_eq!(server.ask(tool, json!({ "trace": "exported.htz" }))["not_seen"], json!([]), "{tool}");
    }
    server.close();
}

#[test]
fn a_heap_profile_of_another_tool_has_only_what_it_knows() {
    let (folder, trace) = recorded();
    let profile = folder.join("x.pb.gz");
    run(Command::new(heaptrack())
        .args(["export", "--to", "pprof", "--at", "peak"])
        .arg(&trace)
        .arg("-o")
        .arg(&profile));
    let mut server = Server::new(&[], folder.path());
    let opened = server.ask("open_trace", json!({ "trace": "x.pb.gz" }));
    assert_eq!(opened["is_heap_profile"], true);
    let totals = opened["session_totals"].as_object().unwrap();
    assert_eq!(totals.keys().collect::<Vec<_>>(), ["leaked_allocations", "leaked_bytes"]);
    let at: Value = serde_json::from_str(&view::text(&trace, &["--json", "--at", "peak"])).unwrap();
    let live = at["totals"]["leaked_bytes"].as_u64().unwrap() + at["totals"]["suppressed_bytes"].as_u64().unwrap();
    assert_eq!(totals["leaked_bytes"], live);
    let top = server.ask("top_sites", json!({ "trace": "x.pb.gz" }));
    assert_eq!((&top["cost"], top["rows"][0].get("allocations")), (&json!("live"), None));
    for (tool, arguments, part) in [
        ("leaks", json!({ "trace": "x.pb.gz" }), "need events"),
        ("timeline", json!({ "trace": "x.pb.gz" }), "needs events"),
        ("top_sites", json!({ "trace": "x.pb.gz", "cost": "peak" }), "does not know"),
        ("live_at", json!({ "trace": "x.pb.gz", "at": "1s" }), "needs events"),
    ] {
        let sentence = server.refused(tool, arguments);
        assert!(sentence.contains(part), "{tool}: {sentence}");
    }
    server.close();
}

#[test]
fn hostile_messages_get_errors_and_the_server_goes_on() {
    let (folder, _) = recorded();
    let mut server = Server::new(&[], folder.path());
    let mut refuse = |bytes: &[u8], code: i64| {
        server.send(bytes);
        assert_eq!(
            server.receive()["error"]["code"],
            code,
            "{}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(80)])
        );
        server.is_there();
    };
    let mut huge = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":""#.to_vec();
    huge.resize(100 << 20, b'x');
    refuse(&huge, -32600);
    refuse(b"\xff\xfe\x00\x80", -32700);
    refuse(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xc3\x28ing\"}", -32700);
    refuse("[".repeat(500_000).as_bytes(), -32700);
    refuse(br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600);
    refuse(br#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600);
    refuse(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"record","arguments":{"command":["true"],"output":"x"}}}"#, -32602);
    let peak = process::status_bytes(server.child.id(), "VmHWM").unwrap();
    assert!(peak < 100 << 20, "the server took {peak} bytes");
    server.close();
}

#[test]
fn paths_outside_of_the_folders_are_refused() {
    let (folder, trace) = recorded();
    let inside = folder.join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::copy(&trace, inside.join("mine.htz")).unwrap();
    std::os::unix::fs::symlink(&trace, inside.join("link.htz")).unwrap();
    std::os::unix::fs::symlink(folder.path(), inside.join("up")).unwrap();
    std::os::unix::fs::symlink("mine.htz", inside.join("good.htz")).unwrap();
    run(Command::new("mkfifo").arg(inside.join("pipe.htz")));
    let mut server = Server::new(&[], &inside);
    server.ask("open_trace", json!({ "trace": "good.htz" }));
    let absolute = trace.to_str().unwrap();
    let long = "x/".repeat(100_000);
    for bad in [
        absolute,
        "../exported.htz",
        "link.htz",
        "up/exported.htz",
        "up/inside/../exported.htz",
        "/proc/self/exe",
        "/dev/zero",
        "pipe.htz",
        "",
        ".",
        "..",
        "/",
        "mine.htz\0",
        "no.htz",
        "mine.htz/",
        "~",
        &long,
        "file:///etc/passwd",
    ] {
        for tool in ["open_trace", "summary", "leaks"] {
            server.refused(tool, json!({ "trace": bad }));
        }
        server.refused("compare", json!({ "trace": "mine.htz", "base": bad }));
    }
    let listed = server.ask("list_traces", json!({}));
    let names: Vec<&str> =
        listed["rows"].as_array().unwrap().iter().map(|row| row["trace"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    server.close();
}

/// A folder that is replaced by a link to another folder, again and again, while the server opens a file in it.
#[test]
fn a_link_that_appears_at_the_wrong_moment_leads_nowhere() {
    let (folder, trace) = recorded();
    let inside = folder.join("inside");
    std::fs::create_dir_all(inside.join("real")).unwrap();
    std::fs::copy(&trace, inside.join("real/x.htz")).unwrap();
    let outside = folder.join("outside");
    std::fs::create_dir(&outside).unwrap();
    // What is outside is no trace, so an answer about it would be another one.
    std::fs::write(outside.join("x.htz"), "secret").unwrap();
    let (real, aside) = (inside.join("real"), inside.join("aside"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::fs::rename(&real, &aside).unwrap();
                std::os::unix::fs::symlink(&outside, &real).unwrap();
                std::fs::remove_file(&real).unwrap();
                std::fs::rename(&aside, &real).unwrap();
            }
        });
        let mut server = Server::new(&[], &inside);
        let (mut answers, mut refusals) = (0, 0);
        for _ in 0..heaptrack_tests::scale::count(20_000) {
            let answer = server.call("open_trace", json!({ "trace": "real/x.htz" }))["result"].clone();
            if answer["isError"] == false {
                answers += 1;
                continue;
            }
            let text = answer["content"][0]["text"].as_str().unwrap().to_owned();
            let is_refusal = ["is no file", "is not below", "cannot be opened"].iter().any(|part| text.contains(part));
            assert!(is_refusal, "{text}");
            refusals += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(answers > 0 && refusals > 0, "{answers} answers, {refusals} refusals");
        server.close();
    });
}

#[test]
fn an_agent_that_may_record_records() {
    let folder = Folder::new();
    let mut server = Server::new(&["--allow-record"], folder.path());
    let program = target("exported");
    let recorded = server.ask("record", json!({ "command": [program], "output": "new" }));
    assert_eq!((&recorded["exit_code"], &recorded["complete"]), (&json!(0), &json!(true)), "{recorded}");
    let direct = Program::target("exported").recorded().whole_allocations();
    assert_eq!(recorded["session_totals"]["allocations"], direct);
    let refused = server.refused("record", json!({ "command": [program], "output": "new.htz" }));
    assert!(refused.contains("exists already"), "{refused}");
    for bad in ["../new", "/tmp/new-of-an-agent", "none/new"] {
        server.refused("record", json!({ "command": [program], "output": bad }));
    }
    for bad in [json!([]), json!("ls"), json!([1]), json!([["ls"]])] {
        server.refused("record", json!({ "command": bad, "output": "other" }));
    }
    let missing = server.refused("record", json!({ "command": ["no-such-program"], "output": "other" }));
    assert!(missing.contains("nothing was recorded"), "{missing}");
    // A program that would run forever is stopped, and its trace is complete up to then.
    let stopped = server.ask("record", json!({ "command": ["sleep", "1000"], "output": "long", "timeout_s": 1 }));
    assert_eq!(stopped["stopped"], "its time was over");
    // A cancelled one, too. Meanwhile the server answers.
    let id = server.request(
        "tools/call",
        json!({ "name": "record", "arguments": { "command": ["sleep", "1000"], "output": "cancelled" } }),
    );
    process::wait_for("the recording", || folder.join("cancelled.htz").exists().then_some(()));
    server.is_there();
    let start = Instant::now();
    server.send(
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
            .to_string()
            .as_bytes(),
    );
    assert_eq!(server.receive()["id"], id);
    assert!(start.elapsed() < Duration::from_secs(30));
    let mut sleeping = Command::new("sleep").arg("1000").spawn().unwrap();
    let attached = server.ask("attach", json!({ "pid": sleeping.id(), "output": "attached", "duration_s": 1 }));
    assert_eq!(attached["attached"], true);
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    // The client goes while a recording runs.
    server.request(
        "tools/call",
        json!({ "name": "record", "arguments": { "command": ["sleep", "1000"], "output": "left" } }),
    );
    process::wait_for("the recording", || folder.join("left.htz").exists().then_some(()));
    server.close();
}
