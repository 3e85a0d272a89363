//! `--pprof`: collectors fetch profiles and metrics while a program is recorded. Profiles are read by Go, metrics by the
//! client of Prometheus, and the numbers are those of `print --json`.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::pprof::sums_by_go;
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program `ledger`, recorded with `--pprof`.
struct Recorded {
    program: Target,
    /// What heaptrack printed on stderr as the address.
    address: String,
    trace: PathBuf,
    folder: Folder,
}

impl Recorded {
    fn start(listen: &str, options: &[&str]) -> Recorded {
        let folder = Folder::new();
        let trace = folder.join("ledger.htz");
        let mut command = with_default_signals(heaptrack());
        command.args(["--pprof", listen]).args(options).arg("-o").arg(&trace).arg(target("ledger"));
        let (read, write) = std::io::pipe().unwrap();
        let mut program = Target::spawn(command.stderr(write));
        drop(command);
        let address = address(read);
        assert_eq!(program.line(), "ready");
        Recorded { program, address, trace, folder }
    }

    fn host(&self) -> &str {
        self.address.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("an address")
    }

    fn get(&self, path: &str) -> (u16, Vec<u8>) {
        get(TcpStream::connect(self.host()).unwrap(), path, &format!("Host: {}\r\n", self.host()))
    }

    /// The metrics, when the sites of `hold` have this many live bytes.
    fn metrics(&self, bytes: f64) -> BTreeMap<String, f64> {
        process::wait_for("the metrics to follow", || {
            let (status, text) = self.get("/metrics");
            let samples = if status == 200 { samples(&text) } else { BTreeMap::new() };
            (samples.get(HELD) == Some(&bytes)).then_some(samples)
        })
    }

    /// Fetches a profile and lets Go add it up.
    fn profile(&self, path: &str) -> BTreeMap<String, i64> {
        let (status, bytes) = self.get(path);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&bytes));
        let file = self.folder.join("profile.pb.gz");
        std::fs::write(&file, bytes).unwrap();
        sums_by_go(&file)
    }

    fn report(self) -> Value {
        let Recorded { program, trace, folder, .. } = self;
        assert_eq!(program.finish().0, 0);
        let text = heaptrack_tests::view::text(&trace, &["--json"]);
        drop(folder);
        serde_json::from_str(&text).unwrap()
    }
}

const HELD: &str = "heaptrack_place_live_bytes{function=hold,module=ledger}";

/// The address in heaptrack's message on stderr. The rest of stderr is read and thrown away.
fn address(stderr: PipeReader) -> String {
    let mut lines = BufReader::new(stderr).lines();
    let line = lines.next().unwrap().unwrap();
    let address = line.strip_prefix("heaptrack: collectors find profiles at ");
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    address
}

/// Sends a request and returns the status and the body.
fn get(mut stream: impl Read + Write, path: &str, headers: &str) -> (u16, Vec<u8>) {
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a header");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, bytes.split_off(end + 4))
}

/// The samples as the client of Prometheus reads them, by name and labels.
fn samples(text: &[u8]) -> BTreeMap<String, f64> {
    const SCRIPT: &str = "\
import json, sys
from prometheus_client.parser import text_string_to_metric_families
out = {}
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        labels = ','.join(f'{name}={value}' for name, value in sorted(sample.labels.items()))
        name = sample.name + ('{' + labels + '}' if labels else '')
        assert name not in out, name
        out[name] = sample.value
json.dump(out, sys.stdout)";
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", SCRIPT]).env("PYTHONPATH", workspace().join("target/python-tools"));
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(text).unwrap();
    let done = python.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(text));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn profiles_and_metrics_are_those_of_the_report() {
    let mut recorded = Recorded::start("127.0.0.1:0", &[]);
    assert_eq!(recorded.program.tell("+1000 100"), "1000 100000");
    assert_eq!(recorded.program.tell("-100"), "900 90000");
    let metrics = recorded.metrics(90_000.0);
    let heap = recorded.profile("/debug/pprof/heap");
    let allocs = recorded.profile("/debug/pprof/allocs");
    assert_eq!(heap, allocs);
    let report = recorded.report();
    let totals = &report["totals"];
    for (column, metric, name) in [
        ("alloc_objects", "heaptrack_allocations_total", "allocations"),
        ("alloc_space", "heaptrack_allocated_bytes_total", "allocated_bytes"),
        ("temporary_objects", "heaptrack_temporary_allocations_total", "temporary"),
        ("peak_space", "heaptrack_peak_bytes", "peak_bytes"),
        ("inuse_objects", "heaptrack_live_blocks", "leaked_allocations"),
        ("inuse_space", "heaptrack_live_bytes", "leaked_bytes"),
    ] {
        let suppressed = match name {
            "leaked_allocations" => number(&totals["suppressed_allocations"]),
            "leaked_bytes" => number(&totals["suppressed_bytes"]),
            _ => 0,
        };
        let expected = number(&totals[name]) + suppressed;
        assert_eq!((heap[column], metrics[metric]), (expected, expected as f64), "{name}");
    }
    assert_eq!(metrics["heaptrack_deallocations_total"], number(&totals["deallocations"]) as f64);
    assert_eq!(metrics["heaptrack_lost_events_total"], 0.0);
    let places: f64 = metrics
        .iter()
        .filter(|(name, _)| name.starts_with("heaptrack_place_live_bytes{"))
        .map(|(_, bytes)| bytes)
        .sum();
    assert_eq!(places, metrics["heaptrack_live_bytes"], "the places add up");
}

#[test]
fn a_profile_of_some_seconds_has_what_changed_in_them() {
    let mut recorded = Recorded::start("127.0.0.1:0", &[]);
    assert_eq!(recorded.program.tell("+1000 100"), "1000 100000");
    recorded.metrics(100_000.0);
    let (host, file) = (recorded.host().to_owned(), recorded.folder.join("change.pb.gz"));
    let asking = std::thread::spawn(move || {
        let stream = TcpStream::connect(&host).unwrap();
        get(stream, "/debug/pprof/heap?seconds=2", &format!("Host: {host}\r\n"))
    });
    // After the request has begun, and long before it ends.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(recorded.program.tell("-300"), "700 70000");
    assert_eq!(recorded.program.tell("+10 50"), "710 70500");
    let (status, bytes) = asking.join().unwrap();
    assert_eq!(status, 200);
    std::fs::write(&file, bytes).unwrap();
    let change = sums_by_go(&file);
    let columns = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"];
    assert_eq!(columns.map(|column| change[column]), [10, 500, -290, -29_500]);
}

#[test]
fn an_attached_program_has_collectors_too() {
    let mut program = Target::start("ledger", &[]);
    assert_eq!(program.line(), "ready");
    assert_eq!(program.tell("+5 1000"), "5 5000");
    let folder = Folder::new();
    let socket = folder.join("heap.sock");
    let listen = format!("unix:{}", socket.display());
    let mut session = Session::start(program.pid, &["--pprof", &listen]);
    assert!(session.wait_until_attached());
    assert_eq!(program.tell("+20 300"), "25 11000");
    let metrics = process::wait_for("the metrics to follow", || {
        let stream = UnixStream::connect(&socket).ok()?;
        let (status, text) = get(stream, "/metrics", "");
        let samples = if status == 200 { samples(&text) } else { BTreeMap::new() };
        (samples.get(HELD) == Some(&6000.0)).then_some(samples)
    });
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((metrics["heaptrack_live_blocks"], metrics["heaptrack_allocations_total"]), (20.0, 20.0));
    assert_eq!(session.detach().code, 0);
    assert!(!socket.exists(), "the socket is gone");
    assert_eq!(program.finish().0, 0);
}

#[test]
fn other_machines_need_the_token() {
    let folder = Folder::new();
    let token = folder.join("token");
    std::fs::write(&token, "abcdefghijklmnop\n").unwrap();
    let recorded = Recorded::start("0.0.0.0:0", &["--token-file", token.to_str().unwrap()]);
    let port = recorded.host().rsplit(':').next().unwrap().to_owned();
    assert_eq!(recorded.address, format!("http://0.0.0.0:{port}/debug/pprof/heap"), "a secret gets into no log");
    let ask = |path: &str, headers: &str| {
        process::wait_for("the trace to be read", || {
            let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
            let (status, _) = get(stream, path, headers);
            (status != 503).then_some(status)
        })
    };
    assert_eq!(ask("/metrics", "Host: localhost\r\n"), 403);
    assert_eq!(ask("/metrics?token=abcdefghijklmnoq", "Host: localhost\r\n"), 403);
    assert_eq!(ask("/metrics?token=abcdefghijklmnop", "Host: a-pod.example\r\n"), 200);
    assert_eq!(ask("/metrics", "Host: a-pod\r\nAuthorization: Bearer abcdefghijklmnop\r\n"), 200);
    drop(recorded.report());
    // Without a file, a token is made.
    let recorded = Recorded::start("0.0.0.0:0", &[]);
    assert_eq!(recorded.address.split_once("?token=").map(|(_, token)| token.len()), Some(32));
    drop(recorded.report());
}

#[test]
fn a_browser_and_a_foreign_host_are_refused() {
    let recorded = Recorded::start("127.0.0.1:0", &[]);
    let ask = |headers: &str| get(TcpStream::connect(recorded.host()).unwrap(), "/metrics", headers).0;
    assert_eq!(ask("Host: rebound.example\r\n"), 421);
    assert_eq!(ask("Host: localhost\r\nOrigin: http://evil.example\r\n"), 403);
    assert_eq!(recorded.get("/debug/pprof/profile").0, 404);
    assert_eq!(recorded.get("/debug/pprof/heap?seconds=601").0, 400);
    drop(recorded.report());
}

/// Connections without a request take few descriptors: with a limit of 150 the recorder can still open files.
#[test]
fn idle_connections_leave_descriptors_for_the_recording() {
    const LIMIT: usize = 150;
    let folder = Folder::new();
    let mut command = with_default_signals("sh");
    command.args(["-c", &format!("ulimit -n {LIMIT}; exec \"$@\""), "sh"]).arg(heaptrack());
    command.args(["--pprof", "127.0.0.1:0", "--snapshot-when", "sigusr1", "-o"]);
    command.arg(folder.join("ledger.htz")).arg(target("ledger"));
    let (read, write) = std::io::pipe().unwrap();
    let mut program = Target::spawn(command.stderr(write));
    drop(command);
    let mut lines = BufReader::new(read).lines().map(Result::unwrap);
    let line = lines.next().unwrap();
    let host = line.split('/').nth(2).unwrap_or_else(|| panic!("{line}")).to_owned();
    assert_eq!(program.line(), "ready");
    // As many as the listener's queue holds for sure.
    let idle: Vec<TcpStream> = (0..180).map(|_| TcpStream::connect(&host).unwrap()).collect();
    let sockets = || {
        let links = std::fs::read_dir(format!("/proc/{}/fd", program.pid)).unwrap().flatten();
        links
            .filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")))
            .count()
    };
    process::wait_for("the connections to be accepted", || (sockets() > 64).then_some(()));
    process::signal("USR1", &[program.pid]);
    let path = folder.join("ledger.snapshot-1.htz");
    assert_eq!(lines.next().unwrap(), format!("heaptrack: SIGUSR1 asked for a snapshot: {}", path.display()));
    drop(idle);
    let status = process::wait_for("the trace to be read", || {
        let (status, _) = get(TcpStream::connect(&host).unwrap(), "/metrics", &format!("Host: {host}\r\n"));
        (status != 503).then_some(status)
    });
    assert_eq!(status, 200);
    assert_eq!(program.finish().0, 0);
}

/// Runs heaptrack with these options on a program that would make a file. Returns the exit code and stderr.
fn refused(options: &[&str]) -> (i32, String) {
    let folder = Folder::new();
    let done =
        Command::new(heaptrack()).args(options).arg("touch").arg("ran").current_dir(folder.path()).output().unwrap();
    assert!(!folder.join("ran").exists(), "the program was started");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no trace is left");
    (process::code(done.status), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn what_cannot_be_listened_to_stops_the_recording_before_the_program_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let sentence = format!("heaptrack: {address} is in use by another program: choose another port for --pprof\n");
    assert_eq!(refused(&["--pprof", &address]), (2, sentence));
    let folder = Folder::new();
    let short = folder.join("token");
    std::fs::write(&short, "short").unwrap();
    let (code, text) = refused(&["--pprof", "0", "--token-file", short.to_str().unwrap()]);
    assert_eq!((code, text.lines().count()), (2, 1), "{text}");
    assert!(text.ends_with("a token has at least 16 letters, digits and -._~\n"), "{text}");
    let (code, text) = refused(&["--pprof", "example.org:80"]);
    assert_eq!(code, 2);
    assert!(text.contains("not a port (examples: 6060, 0.0.0.0:6060, unix:/run/heap.sock)"), "{text}");
    // A socket on which somebody listens stays.
    let path: &Path = &folder.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let (code, text) = refused(&["--pprof", &format!("unix:{}", path.display())]);
    assert_eq!(code, 2, "{text}");
    assert!(path.exists());
}
