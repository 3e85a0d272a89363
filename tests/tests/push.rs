//! `--push`: profiles are sent while a program is recorded. Those in pprof's format are read by Go, those of OpenTelemetry by
//! its own messages, and their numbers are those of `print --json`.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::pprof::sums_by_go;
use heaptrack_tests::receiver::{Manner, Received, Receiver};
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PARCA: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
const OTLP: &str = "/v1development/profiles";

/// heaptrack with the program `ledger`, which gets `words` as arguments that it does not use.
fn recording(folder: &Folder, options: &[&str], words: &[&str]) -> Command {
    let mut command = with_default_signals(heaptrack());
    command.args(options).arg("-o").arg(folder.join("ledger.htz")).arg(target("ledger")).args(words);
    command.current_dir(folder.path());
    command
}

fn started(command: &mut Command) -> Target {
    let mut program = Target::spawn(command);
    assert_eq!(program.line(), "ready");
    program
}

fn push(kind: &str, receiver: &Receiver) -> String {
    format!("{kind}={}", receiver.address)
}

fn decode(words: &[&str], file: &Path, out: Option<&Path>) -> Value {
    let mut python = Command::new("/usr/bin/python3");
    python.arg(workspace().join("tests/push/decode.py")).args(words).arg(file).args(out);
    let done = python.env("PYTHONPATH", workspace().join("target/python-tools")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn file_of(folder: &Folder, request: &Received) -> PathBuf {
    let path = folder.join("profile.pb.gz");
    std::fs::write(&path, &request.body).unwrap();
    path
}

const ADDED: [&str; 2] = ["alloc_objects", "alloc_space"];
const LIVE: [&str; 2] = ["inuse_objects", "inuse_space"];

/// The sums of all profiles: of what was allocated that of all, of what is live that of the last.
fn added_up(profiles: &[BTreeMap<String, i64>]) -> Vec<i64> {
    let added = ADDED.map(|name| profiles.iter().map(|sums| sums[name]).sum::<i64>());
    let live = LIVE.map(|name| profiles.last().map_or(0, |sums| sums[name]));
    added.into_iter().chain(live).collect()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

/// The same numbers in the report of the trace.
fn reported(trace: &Path) -> Vec<i64> {
    let report: Value = serde_json::from_str(&heaptrack_tests::view::text(trace, &["--json"])).unwrap();
    let totals = &report["totals"];
    let live = |name: &str| number(&totals[format!("leaked_{name}")]) + number(&totals[format!("suppressed_{name}")]);
    vec![number(&totals["allocations"]), number(&totals["allocated_bytes"]), live("allocations"), live("bytes")]
}

/// What Go shows as the cost of a function itself.
fn flat_by_go(file: &Path, value: &str, function: &str) -> String {
    let mut go = Command::new("go");
    let done = go.args(["tool", "pprof", "-top", "-unit=B", "-sample_index", value]).arg(file).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    let line = text.lines().find(|line| line.ends_with(function)).unwrap_or_else(|| panic!("{text}"));
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn profiles_of_all_servers_add_up_to_the_trace() {
    let folder = Folder::new();
    let receiver = Receiver::start(Manner::Take);
    let servers = ["pyroscope", "parca", "otlp"].map(|kind| push(kind, &receiver));
    let [pyroscope, parca, otlp] = &servers;
    let headers = folder.join("headers");
    std::fs::write(&headers, "Authorization: Bearer abc\nX-Scope-OrgID: 7\n").unwrap();
    let options = ["-q", "--push", pyroscope, "--push", parca, "--push", otlp, "--push-every", "1s"];
    let labels = ["--label", "env=test,1", "--label", "host=h", "--push-headers", "headers"];
    let mut command = recording(&folder, &[options.as_slice(), &labels].concat(), &[]);
    let mut program = started(command.env("POD_NAME", "pod-1"));
    assert_eq!(program.tell("+1000 100"), "1000 100000");
    process::wait_for("the first profiles", || (receiver.taken(PARCA).len() > 1).then_some(()));
    assert_eq!(program.tell("-100"), "900 90000");
    assert_eq!(program.tell("+7 30"), "907 90210");
    let requests = receiver.taken("").len();
    process::wait_for("more profiles", || (receiver.taken("").len() > requests + 3).then_some(()));
    assert_eq!(program.finish().0, 0);
    let expected = reported(&folder.join("ledger.htz"));
    assert_eq!(expected[0], 1007);

    let of_pyroscope = receiver.taken("/ingest?");
    let sums: Vec<_> = of_pyroscope.iter().map(|request| sums_by_go(&file_of(&folder, request))).collect();
    assert_eq!(added_up(&sums), expected, "{sums:?}");
    let last = of_pyroscope.last().unwrap();
    let path = &last.path;
    assert!(path.starts_with("/ingest?name=ledger%7Benv%3Dtest_1%2Chost%3Dh%2Cpod%3Dpod-1%7D&from="), "{path}");
    assert!(path.contains("&format=pprof&"), "{path}");
    assert_eq!(flat_by_go(&file_of(&folder, last), "inuse_space", " hold"), "90210B");
    assert!(of_pyroscope.iter().all(|request| request.headers["authorization"] == "Bearer abc"));
    assert!(of_pyroscope.iter().all(|request| request.headers["x-scope-orgid"] == "7"));

    let inner = folder.join("inner.pb.gz");
    let mut sums = Vec::new();
    for request in receiver.taken(PARCA) {
        assert_eq!(request.headers["content-type"], "application/grpc-web+proto");
        let labels = decode(&["parca"], &file_of(&folder, &request), Some(&inner))["labels"].clone();
        let expected =
            serde_json::json!({ "__name__": "memory", "job": "ledger", "env": "test,1", "host": "h", "pod": "pod-1" });
        assert_eq!(labels, expected);
        sums.push(sums_by_go(&inner));
    }
    assert_eq!(added_up(&sums), expected, "{sums:?}");

    let messages: Vec<Value> = receiver
        .taken(OTLP)
        .iter()
        .map(|request| {
            assert_eq!(request.headers["content-encoding"], "gzip");
            decode(&["otlp"], &file_of(&folder, request), None)
        })
        .collect();
    let sums: Vec<BTreeMap<String, i64>> =
        messages.iter().map(|message| serde_json::from_value(message["sums"].clone()).unwrap()).collect();
    assert_eq!(added_up(&sums), expected, "{sums:?}");
    let last = messages.last().unwrap();
    assert_eq!(last["functions"]["inuse_space/hold"], 90_210);
    assert_eq!(last["attributes"]["service.name"], "ledger");
    assert_eq!(last["attributes"]["host.name"], "h");
    assert_eq!(last["attributes"]["k8s.pod.name"], "pod-1");
}

/// Profiles of a recording that samples add up to the estimates of its report.
#[test]
fn profiles_of_a_sample_add_up_to_its_estimates() {
    let folder = Folder::new();
    let receiver = Receiver::start(Manner::Take);
    let (pyroscope, otlp) = (push("pyroscope", &receiver), push("otlp", &receiver));
    let options = ["-q", "--sample", "4k", "--push", &pyroscope, "--push", &otlp, "--push-every", "1s"];
    let mut command = recording(&folder, &options, &[]);
    let mut program = started(command.env("HEAPTRACK_TEST_SAMPLE_SEED", "7"));
    assert_eq!(program.tell("+2000 100"), "2000 200000");
    process::wait_for("the first profiles", || (receiver.taken(OTLP).len() > 1).then_some(()));
    assert_eq!(program.tell("-500"), "1500 150000");
    assert_eq!(program.tell("+1000 50"), "2500 200000");
    assert_eq!(program.finish().0, 0);
    let trace = folder.join("ledger.htz");
    let expected = reported(&trace);
    assert_ne!(expected[1], 250_000, "an estimate that is exact by chance would prove less");
    let of_pyroscope = receiver.taken("/ingest?");
    let sums: Vec<_> = of_pyroscope.iter().map(|request| sums_by_go(&file_of(&folder, request))).collect();
    assert!(sums.len() > 1);
    assert_eq!(added_up(&sums), expected, "{sums:?}");
    let messages: Vec<Value> =
        receiver.taken(OTLP).iter().map(|request| decode(&["otlp"], &file_of(&folder, request), None)).collect();
    let sums: Vec<BTreeMap<String, i64>> =
        messages.iter().map(|message| serde_json::from_value(message["sums"].clone()).unwrap()).collect();
    assert_eq!(added_up(&sums), expected, "{sums:?}");
    // The last profile has what is live by function, as the report has.
    let report = heaptrack_tests::view::view(&trace, "bottom-up", &["--cost", "leaked"]);
    let hold = report["roots"].as_array().unwrap().iter().find(|root| root["function"] == "hold").expect("hold");
    let live = number(&hold["total"]["live_bytes"]);
    assert_eq!(messages.last().unwrap()["functions"]["inuse_space/hold"], live);
    let last = file_of(&folder, of_pyroscope.last().unwrap());
    assert_eq!(flat_by_go(&last, "inuse_space", " hold"), format!("{live}B"));
}

/// An attached program, whose server is found by its name in `/etc/hosts`.
#[test]
fn an_attached_program_is_pushed_to_a_server_with_a_name() {
    let mut program = Target::start("ledger", &[]);
    assert_eq!(program.line(), "ready");
    let receiver = Receiver::start(Manner::Take);
    let port = receiver.address.rsplit(':').next().unwrap();
    let folder = Folder::new();
    let hosts = folder.join("hosts");
    std::fs::write(&hosts, "127.0.0.1 profiles.example\n").unwrap();
    // A source of names that libc would have to load.
    let switch = folder.join("nsswitch.conf");
    std::fs::write(&switch, "hosts: resolve [!UNAVAIL=return]\n").unwrap();
    let script = "mount --bind \"$1\" /etc/hosts; mount --bind \"$2\" /etc/nsswitch.conf 2>/dev/null || true; shift 2; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"]).arg(&hosts).arg(&switch);
    command.arg(heaptrack()).args([
        "--push",
        &format!("pyroscope=http://profiles.example:{port}"),
        "--push-every",
        "1s",
    ]);
    command.arg("-o").arg(folder.join("x.htz")).args(["--duration", "4s", "-p", &program.pid.to_string()]);
    let mut recorder = command.stderr(Stdio::null()).spawn().unwrap();
    let sums = process::wait_for("a profile", || {
        receiver.taken("/ingest?name=ledger%7B").first().map(|request| sums_by_go(&file_of(&folder, request)))
    });
    assert_eq!((sums["alloc_objects"], sums["inuse_space"]), (0, 0));
    assert_eq!(program.tell("+20 300"), "20 6000");
    assert_eq!(process::code(recorder.wait().unwrap()), 0);
    let profiles = receiver.taken("/ingest?");
    let sums: Vec<_> = profiles.iter().map(|request| sums_by_go(&file_of(&folder, request))).collect();
    assert_eq!(added_up(&sums), [20, 6000, 20, 6000], "{sums:?}");
    assert_eq!(program.finish().0, 0);
}

/// The bytes of all files in a folder.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Servers that misbehave: the program does what it does alone, and the recorder ends soon after it.
#[test]
fn a_broken_server_does_not_concern_the_program() {
    const LIMIT: u64 = 8_000;
    let manners = [
        (Some(Manner::Status(500)), "status 500, no"),
        (Some(Manner::Status(400)), "refused a profile: status 400, no"),
        (Some(Manner::Garbage), "is sent later: "),
        (Some(Manner::Endless), ""),
        (Some(Manner::Silent), ""),
        (None, "is sent later: io: Connection refused"),
    ];
    let one = |manner: Option<Manner>, words: &str| {
        let folder = Folder::new();
        let receiver = Receiver::start(manner.unwrap_or(Manner::Silent));
        // A port without a server.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = if manner.is_some() { receiver.address.clone() } else { format!("http://{free}") };
        let spool = folder.join("spool");
        let server = format!("parca={address}");
        let limit = LIMIT.to_string();
        let options = ["--push", &server, "--push-every", "1s", "--push-spool", "spool", "--push-spool-size", &limit];
        let (mut read, write) = std::io::pipe().unwrap();
        let mut command = recording(&folder, &options, &[]);
        let mut program = started(command.stderr(write));
        drop(command);
        for step in 1..=4 {
            assert_eq!(program.tell("+1000 10"), format!("{} {}", step * 1000, step * 10_000));
            std::thread::sleep(Duration::from_millis(700));
            assert!(size(&spool) <= LIMIT, "{manner:?}");
        }
        let start = Instant::now();
        assert_eq!(program.finish().0, 0, "{manner:?}");
        assert!(start.elapsed() < Duration::from_secs(60), "{manner:?}: it ended after {:?}", start.elapsed());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut read, &mut said).unwrap();
        assert!(said.contains(words), "{manner:?}: {said}");
        assert!(said.contains("heaptrack: pushed 0 profiles") || manner == Some(Manner::Endless), "{manner:?}: {said}");
        let report: Value =
            serde_json::from_str(&heaptrack_tests::view::text(&folder.join("ledger.htz"), &["--json"])).unwrap();
        assert_eq!((number(&report["totals"]["allocations"]), report["complete"].as_bool()), (4000, Some(true)));
        assert_eq!(receiver.seen() > 0, manner.is_some(), "{manner:?}");
    };
    std::thread::scope(|scope| {
        for (manner, words) in manners {
            scope.spawn(move || one(manner, words));
        }
    });
}

/// What a server did not take is sent by the next recording with the same spool.
#[test]
fn a_spool_outlives_its_recording() {
    let folder = Folder::new();
    let receiver = Receiver::start(Manner::Status(503));
    let server = push("pyroscope", &receiver);
    let options = ["-q", "--push", &server, "--push-every", "1s", "--push-spool", "spool"];
    let mut program = started(&mut recording(&folder, &options, &[]));
    assert_eq!(program.tell("+50 100"), "50 5000");
    process::wait_for("a try", || (receiver.seen() > 0).then_some(()));
    // The spool belongs to this recording now.
    let other = Command::new(heaptrack()).args(options).arg("true").current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(
        (other.status.code(), said.as_str()),
        (Some(2), "heaptrack: --push-spool spool: another heaptrack uses this folder\n")
    );
    assert_eq!(program.finish().0, 0);
    let left = std::fs::read_dir(folder.join("spool")).unwrap().count();
    assert!(left >= 2, "the lock and a profile: {left}");
    receiver.set(Manner::Take);
    let mut program = started(&mut recording(&folder, &options, &[]));
    process::wait_for("the old profiles", || (receiver.taken("/ingest?").len() >= left - 1).then_some(()));
    let sums: Vec<_> =
        receiver.taken("/ingest?")[..left - 1].iter().map(|request| sums_by_go(&file_of(&folder, request))).collect();
    assert_eq!(added_up(&sums), [50, 5000, 50, 5000]);
    program.tell("+1 1");
    assert_eq!(program.finish().0, 0);
    let names: Vec<_> =
        std::fs::read_dir(folder.join("spool")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["heaptrack.lock"]);
}

/// All texts of a profile.
fn texts(folder: &Folder, receiver: &Receiver) -> String {
    let file = file_of(folder, receiver.taken("/ingest?").last().unwrap());
    let raw = Command::new("go").args(["tool", "pprof", "-raw"]).arg(&file).output().unwrap();
    let otlp = decode(&["otlp"], &file_of(folder, receiver.taken(OTLP).last().unwrap()), None);
    format!("{}{otlp}", String::from_utf8(raw.stdout).unwrap())
}

#[test]
fn redacted_profiles_have_no_command_line_and_no_folders() {
    let pushed = |redact: &[&str]| {
        let folder = Folder::new();
        let receiver = Receiver::start(Manner::Take);
        let (pyroscope, otlp) = (push("pyroscope", &receiver), push("otlp", &receiver));
        let options = [["-q", "--push", &pyroscope, "--push", &otlp].as_slice(), redact].concat();
        let mut program = started(&mut recording(&folder, &options, &["--password=hunter2"]));
        program.tell("+3 1000");
        assert_eq!(program.finish().0, 0);
        texts(&folder, &receiver)
    };
    let root = workspace().to_str().unwrap().to_owned();
    let plain = pushed(&[]);
    for text in ["hunter2", &root, "/libc.so.6", "hold"] {
        assert!(plain.contains(text), "{text}: {plain}");
    }
    let redacted = pushed(&["--redact"]);
    for text in ["hunter2", &root, "/libc.so.6", "/usr/", "/home/", "targets/"] {
        assert!(!redacted.contains(text), "{text}: {redacted}");
    }
    for text in ["hold", "ledger.c", "libc.so.6"] {
        assert!(redacted.contains(text), "{text}: {redacted}");
    }
    let of_project = pushed(&[&format!("--redact={root}")]);
    assert!(!of_project.contains(&root) && of_project.contains("tests/targets/ledger.c"), "{of_project}");
}

#[test]
fn https_with_the_machines_certificates() {
    let folder = Folder::new();
    let (key, certificate) = (folder.join("key.pem"), folder.join("cert.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let script = "
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        open(sys.argv[3], 'wb').write(body)
        self.send_response(200)
        self.end_headers()
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";
    let profile = folder.join("taken.pb.gz");
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script]).arg(&certificate).arg(&key).arg(&profile);
    let mut python = python.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(python.stdout.take().unwrap()), &mut line).unwrap();
    let server = format!("pyroscope=https://localhost:{}", line.trim());
    let run = |certificates: Option<&Path>| {
        let mut command = recording(&folder, &["-q", "--push", &server], &[]);
        command.env_remove("SSL_CERT_DIR").env_remove("SSL_CERT_FILE");
        let mut program = started(command.envs(certificates.map(|path| ("SSL_CERT_FILE", path))));
        program.tell("+5 10");
        assert_eq!(program.finish().0, 0);
    };
    run(None);
    assert!(!profile.exists(), "a server with an unknown certificate gets nothing");
    run(Some(&certificate));
    assert_eq!(sums_by_go(&profile)["alloc_objects"], 5);
    python.kill().unwrap();
    python.wait().unwrap();
}

#[test]
fn what_cannot_be_pushed_stops_the_recording_before_the_program_starts() {
    let folder = Folder::new();
    std::fs::write(folder.join("headers"), "A: b\nno header\n").unwrap();
    let to = ["--push", "parca=http://127.0.0.1:1"];
    for (options, words) in [
        (&["--push", "loki=http://x"][..], "not a destination (examples: pyroscope=http://pyroscope:4040"),
        (&["--push", "parca=http://me:secret@x"], "a password does not belong in the address"),
        (&["--push-every", "1s"], "--push <SERVER=URL>"),
        (&["--redact"], "--push <SERVER=URL>"),
        (&[to[0], to[1], "--push-every", "10ms"], "must be at least 1s"),
        (&[to[0], to[1], "--label", "a-b=c"], "a label's name has letters, digits and _"),
        (&[to[0], to[1], "--push-spool-size", "1M"], "--push-spool <DIR>"),
        (&[to[0], to[1], "--push-headers", "headers"], "headers: line 2 is no header"),
        (&[to[0], to[1], "--push-spool", "headers"], "--push-spool headers: "),
    ] {
        let done = Command::new(heaptrack()).args(options).args(["touch", "ran"]).current_dir(folder.path()).output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(words), "{options:?}: {said}");
        assert!(!folder.join("ran").exists(), "{options:?}");
    }
    let mut program = Target::start("ledger", &[]);
    assert_eq!(program.line(), "ready");
    let session = Session::start(program.pid, &["--push", "otlp=http://"]);
    drop(session);
    assert_eq!(program.finish().0, 0);
}

/// `export --redact` writes no command line and no folder, in every format that takes it.
#[test]
fn exports_can_be_redacted() {
    let folder = Folder::new();
    let mut program = started(&mut recording(&folder, &["-q"], &["--password=hunter2"]));
    program.tell("+3 1000");
    assert_eq!(program.finish().0, 0);
    let root = workspace().to_str().unwrap().to_owned();
    for format in ["pprof", "speedscope", "firefox", "csv", "jsonl"] {
        let export = |options: &[&str]| {
            let mut command = Command::new(heaptrack());
            command.args(["export", "--to", format]).args(options).arg("ledger.htz").current_dir(folder.path());
            let done = command.output().unwrap();
            assert!(done.status.success(), "{format}: {}", String::from_utf8_lossy(&done.stderr));
            if format != "pprof" {
                return String::from_utf8(done.stdout).unwrap();
            }
            std::fs::write(folder.join("x.pb.gz"), done.stdout).unwrap();
            let raw = Command::new("go").args(["tool", "pprof", "-raw"]).arg(folder.join("x.pb.gz")).output().unwrap();
            String::from_utf8(raw.stdout).unwrap()
        };
        let (plain, redacted) = (export(&[]), export(&["--redact"]));
        assert!(plain.contains(&root) && plain.contains("ledger.c"), "{format}");
        for text in ["hunter2", &root, "/libc.so.6"] {
            assert!(!redacted.contains(text), "{format}: {text}");
        }
        assert!(redacted.contains("ledger.c") && redacted.contains("hold"), "{format}");
    }
    let done = Command::new(heaptrack()).args(["export", "--to", "massif", "--redact", "ledger.htz"]).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(said.contains("--redact cannot be used with --to massif; it is for pprof, speedscope"), "{said}");
}
