//! `--follow`: servers with workers, driven by their own clients. They answer as they do alone, every process has the calls that a preloaded
//! library counted in it, the counts of blocks that they are known to make are exact, and the combined peak equals two replays by hand.
use format::{Exit, Process, ProcessStart};
use heaptrack_tests::processes::processes;
use heaptrack_tests::replay::{tables, tree};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::tally::Tally;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, Report, scale};
use std::path::Path;
use std::process::{Command, Stdio};

struct Server {
    name: &'static str,
    /// Runs before the server, in its folder.
    prepare: &'static str,
    command: &'static str,
    /// Waits for the server, uses it, stops it. Its output must be the same with and without heaptrack.
    drive: &'static str,
    /// Looks at the processes except for the first one, which is `env` and executes the server.
    check: fn(&[Process], &Report),
}

const NGINX: &str = "daemon off; worker_processes 2; error_log error.log; pid nginx.pid; user root; events {}\n\
    http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;\n\
    scgi_temp_path scgi; gzip on; gzip_types text/plain; gzip_min_length 1;\n\
    server { listen unix:socket; root html; default_type text/plain; } }\n";

const CLUSTER: &str = "const cluster = require('cluster');\n\
    if (cluster.isPrimary) { for (let i = 0; i < 3; i++) cluster.fork(); }\n\
    else { const kept = []; for (let i = 0; i < 50; i++) kept.push(Buffer.allocUnsafeSlow(70001));\n\
    console.log(kept.length); process.exit(0); }\n";

const APP: &str = "loaded = [bytearray(54320) for _ in range(100)]\n\
    def app(environ, start_response):\n\
    \x20   answer = bytearray(65432)\n\
    \x20   start_response('200 OK', [('Content-Length', str(len(answer)))])\n\
    \x20   return [bytes(answer)]\n";

const WAIT: &str = "n=0; until [ -S socket ] && curl -sf --unix-socket socket http://localhost/index.txt > first; do \
                    n=$((n + 1)); [ $n -lt 1000 ] || exit 1; sleep 0.02; done; ";

/// The processes that were forked, and not replaced with exec since.
fn workers(all: &[Process]) -> Vec<&Process> {
    all.iter()
        .filter(|process| process.start == ProcessStart::Forked && !process.end.is_some_and(|end| end.by_exec))
        .collect()
}

fn check_nginx(all: &[Process], _: &Report) {
    let workers = workers(all);
    assert_eq!((all.len(), workers.len()), (3, 2), "the master and two workers");
    for worker in workers {
        assert!(worker.inherited_bytes > 100_000 && worker.parent == Some(1), "{worker:?}");
        assert!(worker.end.expect("its end").totals.allocations > 0, "{worker:?}");
    }
}

fn check_cluster(all: &[Process], report: &Report) {
    let nodes = all.iter().filter(|process| process.exe.ends_with("/node")).count();
    assert_eq!((nodes, workers(all).len()), (4, 0), "the primary, and three that it executes");
    assert_eq!(report.of_size(70001).allocations, 3 * 50);
}

fn check_gunicorn(all: &[Process], report: &Report) {
    let workers = workers(all);
    assert_eq!((all.len(), workers.len()), (5, 4), "the arbiter and four workers");
    assert!(workers.iter().all(|worker| worker.inherited_bytes > 100 * 54321), "they inherit what was preloaded");
    assert_eq!(report.of_size(54321).allocations, 100, "once, though five processes hold it");
    assert_eq!(report.of_size(65433).allocations, 41, "one for each request");
}

const SERVERS: &[Server] = &[
    Server {
        name: "nginx",
        prepare: "mkdir -p html; seq 5000 > html/index.txt",
        command: "exec nginx -p . -c nginx.conf",
        drive: "for i in $(seq 25); do curl -sf --unix-socket socket http://localhost/index.txt; \
                curl -sf --compressed --unix-socket socket http://localhost/index.txt; done | cksum; nginx -p . -c nginx.conf -s quit",
        check: check_nginx,
    },
    Server { name: "cluster", prepare: "", command: "exec node cluster.js", drive: "", check: check_cluster },
    Server {
        name: "gunicorn",
        prepare: "",
        command: "PYTHONPATH=TOOLS:. exec /usr/bin/python3 -m gunicorn --preload -w 4 -b unix:socket --worker-tmp-dir . \
                  --log-level error -p gunicorn.pid app:app",
        drive: "for i in $(seq 40); do curl -sf --unix-socket socket http://localhost/; done | cksum; kill -TERM $(cat gunicorn.pid)",
        check: check_gunicorn,
    },
];

/// A shell in the folder of the server.
fn shell(folder: &Path, script: &str) -> Command {
    let script = script.replace("TOOLS", workspace().join("target/python-tools").to_str().expect("a path"));
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).current_dir(folder).stdin(Stdio::null()).env("HOME", folder);
    command
}

/// Runs the server and its client. Returns the output of both.
fn run(server: &Server, folder: &Path, prefix: &str) -> (String, String) {
    std::fs::write(folder.join("nginx.conf"), NGINX).expect("writable");
    std::fs::write(folder.join("cluster.js"), CLUSTER).expect("writable");
    std::fs::write(folder.join("app.py"), APP).expect("writable");
    let prepared = shell(folder, server.prepare).status().expect("a shell");
    assert!(prepared.success(), "{}", server.name);
    let command = if prefix.is_empty() { server.command.to_owned() } else { server.command.replace("exec ", prefix) };
    let child = shell(folder, &command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let wait = if ["nginx", "gunicorn"].contains(&server.name) { WAIT } else { "" };
    let driven = shell(folder, &format!("{wait}{}", server.drive)).output().expect("a shell");
    let output = child.wait_with_output().expect("its end");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {} {}", server.name, output.status, text(&output.stderr));
    (text(&output.stdout) + &text(&driven.stdout), text(&output.stderr))
}

#[test]
fn servers_and_their_workers_are_in_one_trace() {
    for server in SERVERS.iter().filter(|server| server.name != "cluster" || scale::soak()) {
        let (folder, alone, tally) = (Folder::new(), Folder::new(), Tally::new());
        let prefix = format!(
            "exec {} --follow --no-symbols -o {}/trace.htz {} ",
            heaptrack().display(),
            folder.path().display(),
            tally.words(&target("libtally.so")).join(" ")
        );
        let (output, said) = run(server, folder.path(), &prefix);
        assert_eq!(output, run(server, alone.path(), "").0, "{}: {said}", server.name);
        let trace = folder.join("trace.htz");
        let all: Vec<Process> = processes(&trace).into_values().collect();
        for process in &all {
            let end = process.end.expect("its end");
            assert!(end.by_exec || matches!(end.exit, Exit::Code(_) | Exit::Signal(_)), "{}: {process:?}", server.name);
        }
        let report = Report::of(&trace);
        (server.check)(&all[1..], &report);
        assert_eq!(Tally::recorded(&trace), tally.counted(), "{}: left is ours, right is the library's", server.name);
        let peak = tree::peak(&trace);
        let found = (report.total("peak_bytes"), report.total("peak_allocations"), report.total("peak_time_ns"));
        assert_eq!(
            found,
            (peak.bytes, peak.blocks, peak.ns),
            "{}: left is print's, right is the replay's",
            server.name
        );
        assert_eq!(tables::peak(&trace, &report.json()["processes"]), peak, "{}: left is of tables", server.name);
        assert_eq!(report.total("lost_events"), 0, "{}", server.name);
    }
}
