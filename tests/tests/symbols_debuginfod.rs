//! Debug files from a server on loopback: Debian's own debuginfod, and for HTTPS a server in Python.
use heaptrack_tests::process::wait_for;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::symbols::line_of;
use heaptrack_tests::{Folder, Program, Report, targets};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

struct Server {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Serves the ELF files in a folder.
    fn start(files: &Path, folder: &Folder) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let log = folder.join("server.log");
        let to = || Stdio::from(std::fs::File::options().create(true).append(true).open(&log).unwrap());
        let mut command = Command::new("debuginfod");
        command.args(["-v", "-F", "-d", ":memory:", "-p", &port.to_string()]).arg(files);
        command.env_remove("DEBUGINFOD_URLS").stdout(to()).stderr(to());
        let child = command.spawn().unwrap();
        Server { child, port, log }
    }

    fn wait_until_it_has(&self, build_id: &str) {
        wait_for("the server to know the file", || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            write!(stream, "GET /buildid/{build_id}/debuginfo HTTP/1.0\r\nUser-Agent: test\r\n\r\n").ok()?;
            let mut start = [0; 12];
            stream.read_exact(&mut start).ok()?;
            start.ends_with(b"200").then_some(())
        });
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The number of requests that heaptrack made for a build.
    fn asked(&self, build_id: &str) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines().filter(|line| line.contains(build_id) && line.contains("UA:heaptrack/")).count()
    }
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn build_id(path: &Path) -> String {
    let notes = run("readelf", &["-n".as_ref(), path.as_os_str()]);
    notes.lines().find_map(|line| line.split("Build ID: ").nth(1)).unwrap().trim().to_owned()
}

/// A copy of a target without its debug information. The debug information goes to `files`, if given.
fn stripped(name: &str, folder: &Folder, files: Option<&Path>) -> PathBuf {
    let path = folder.join(name);
    heaptrack_tests::folder::copy_program(targets::target(name), &path);
    if let Some(files) = files {
        let debug = files.join(format!("{name}.debug"));
        run("objcopy", &["--only-keep-debug".as_ref(), path.as_os_str(), debug.as_os_str()]);
    }
    run("strip", &[path.as_os_str()]);
    path
}

/// The frame of `shelf::early` with the lowest line number. `None` if no frame has that name.
fn early(report: &Report) -> Option<Value> {
    let list = report.json()["allocations"].as_array().unwrap();
    let frames = list.iter().flat_map(|site| site["frames"].as_array().unwrap());
    frames.filter(|frame| frame["function"] == "shelf::early()").min_by_key(|frame| frame["line"].as_u64()).cloned()
}

fn symbolize(url: &str, cache: &Path, trace: &Path) -> std::process::Output {
    let mut command = Command::new(heaptrack());
    command.args(["symbolize", "--debuginfod"]).arg(trace);
    command.env("DEBUGINFOD_URLS", url).env("DEBUGINFOD_CACHE_PATH", cache).env("DEBUGINFOD_TIMEOUT", "1");
    command.output().unwrap()
}

#[test]
fn a_debug_file_is_fetched_once_and_kept() {
    let (folder, files) = (Folder::new(), Folder::new());
    let program = stripped("named", &folder, Some(files.path()));
    let id = build_id(&program);
    let server = Server::start(files.path(), &folder);
    server.wait_until_it_has(&id);
    let cache = folder.join("cache");
    let recorded = Program::new(&program)
        .env("DEBUGINFOD_URLS", format!("http://127.0.0.1:1 {}/", server.url()))
        .env("DEBUGINFOD_CACHE_PATH", &cache);
    // Without the option no server is asked.
    let silent = recorded.recorded();
    assert_eq!((early(&silent.whole_report()), server.asked(&id)), (None, 0));
    assert!(!cache.exists());
    let outcome = recorded.clone().option("--debuginfod").recorded();
    let frame = early(&outcome.whole_report()).unwrap_or_else(|| panic!("{}", outcome.stderr));
    let source = targets::sources().join("named.cpp");
    assert_eq!(
        (&frame["line"], &frame["file"]),
        (&line_of(&source, "early 1").into(), &source.to_string_lossy().into())
    );
    let kept = cache.join(&id).join("debuginfo");
    assert_eq!(std::fs::read(&kept).unwrap(), std::fs::read(files.join("named.debug")).unwrap());
    assert_eq!(server.asked(&id), 1);
    // From now on the cache answers, so the server is stopped.
    drop(server);
    let said = symbolize("http://127.0.0.1:1", &cache, &silent.trace);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(early(&silent.whole_report()).unwrap()["line"], frame["line"]);
}

#[test]
fn what_no_server_has_is_not_asked_for_again_for_a_while() {
    let (folder, files) = (Folder::new(), Folder::new());
    let program = stripped("named", &folder, None);
    let other = stripped("hello", &folder, Some(files.path()));
    let id = build_id(&program);
    let server = Server::start(files.path(), &folder);
    server.wait_until_it_has(&build_id(&other));
    let cache = folder.join("cache");
    let outcome = Program::new(&program).option("--no-symbols").recorded();
    for _ in 0..2 {
        assert!(symbolize(&server.url(), &cache, &outcome.trace).status.success());
        assert_eq!(server.asked(&id), 1);
        let known = cache.join(&id).join("debuginfo").metadata().unwrap();
        assert!(known.is_file() && known.len() == 0);
    }
    // The standard client's setting for how many seconds a negative answer is cached.
    std::fs::write(cache.join("cache_miss_s"), "0\n").unwrap();
    let plain = Program::new(&program).option("--no-symbols").recorded();
    assert!(symbolize(&server.url(), &cache, &plain.trace).status.success());
    assert_eq!(server.asked(&id), 2);
    assert_eq!(early(&outcome.whole_report()), None);
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let folder = Folder::new();
    let program = stripped("named", &folder, None);
    let outcome = Program::new(&program).option("--no-symbols").recorded();
    // A server that accepts connections and never answers.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let cache = folder.join("cache");
    let said = symbolize(&url, &cache, &outcome.trace);
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{text}");
    assert_eq!(text.matches(&format!("heaptrack: {url} did not answer: ")).count(), 1, "{text}");
    assert!(!cache.join(build_id(&program)).join("debuginfo").exists(), "a missing answer is not cached");
    assert!(outcome.whole_report().complete());
}

#[test]
fn without_a_server_the_command_is_refused() {
    let folder = Folder::new();
    let mut command = Command::new(heaptrack());
    command.current_dir(folder.path()).env_remove("DEBUGINFOD_URLS").args(["--debuginfod", "true"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "heaptrack: --debuginfod needs the address of a server in the environment variable DEBUGINFOD_URLS\n"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A server with TLS, whose certificate is only trusted because of `SSL_CERT_FILE`.
#[test]
fn https_with_the_machines_certificates() {
    let (folder, files) = (Folder::new(), Folder::new());
    let program = stripped("named", &folder, Some(files.path()));
    let id = build_id(&program);
    let place = files.join(&format!("buildid/{id}"));
    std::fs::create_dir_all(&place).unwrap();
    std::fs::copy(files.join("named.debug"), place.join("debuginfo")).unwrap();
    let (key, certificate) = (folder.join("key.pem"), folder.join("cert.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let script = "
import functools, http.server, ssl, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.HTTPServer(('127.0.0.1', 0), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", script]).arg(files.path()).arg(&certificate).arg(&key);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let server = Server { child, port: line.trim().parse().unwrap(), log: PathBuf::new() };
    let url = format!("https://127.0.0.1:{}", server.port);
    let outcome = Program::new(&program).option("--no-symbols").recorded();
    let ask = |certificates: Option<&Path>| {
        let mut command = Command::new(heaptrack());
        command.args(["symbolize", "--debuginfod"]).arg(&outcome.trace).env("DEBUGINFOD_URLS", &url);
        command
            .env("DEBUGINFOD_CACHE_PATH", folder.join("cache"))
            .env_remove("SSL_CERT_DIR")
            .env_remove("SSL_CERT_FILE");
        let output = command.envs(certificates.map(|path| ("SSL_CERT_FILE", path))).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = ask(None);
    assert!(refused.contains(&format!("{url} did not answer: ")), "{refused}");
    assert_eq!(early(&outcome.whole_report()), None);
    ask(Some(&certificate));
    assert!(early(&outcome.whole_report()).is_some());
}
