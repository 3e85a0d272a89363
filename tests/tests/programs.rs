//! Programs that people use. Under `heaptrack` they succeed, and if their output is the same in every run, it is that
//! of a run alone.
use heaptrack_tests::process::{signal, wait_for};
use heaptrack_tests::{Folder, Program, scale};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn python_suite(test: &str) {
    let folder = Folder::new();
    let program = Program::new("/usr/bin/python3.11").args(["-m", "test", "-W", test]).current_dir(folder.path());
    let outcome = program.recorded();
    assert_eq!(outcome.code, 0, "{}\n{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("Tests result: SUCCESS"), "{}", outcome.stdout);
    let report = outcome.whole_report();
    assert!(report.total("allocations") > 1000);
}

#[test]
fn python_test_json() {
    python_suite("test_json");
}
#[test]
fn python_test_re() {
    python_suite("test_re");
}
#[test]
fn python_test_dict() {
    python_suite("test_dict");
}
#[test]
fn python_test_threading() {
    python_suite("test_threading");
}
#[test]
fn python_test_subprocess() {
    python_suite("test_subprocess");
}
#[test]
fn python_test_ctypes() {
    python_suite("test_ctypes");
}

#[test]
fn redis_under_its_own_benchmark() {
    let folder = Folder::new();
    let port = free_port().to_string();
    let program = Program::new("/usr/bin/redis-server")
        .args(["--port", &port, "--save", "", "--appendonly", "no", "--dir"])
        .arg(folder.path());
    let running = program.start();
    wait_for("redis to listen", || TcpStream::connect(format!("127.0.0.1:{port}")).ok());
    let requests = scale::count(100_000).to_string();
    let bench =
        Command::new("redis-benchmark").args(["-p", &port, "-n", &requests, "-q"]).output().expect("redis-benchmark");
    let text = String::from_utf8_lossy(&bench.stdout);
    assert!(bench.status.success() && text.contains("requests per second"), "{text}");
    let stop = Command::new("redis-cli").args(["-p", &port, "shutdown", "nosave"]).status().expect("redis-cli");
    assert!(stop.success());
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("Ready to accept connections"), "{}", outcome.stdout);
    assert!(outcome.whole_allocations() > 1000);
}

fn nginx(folder: &Folder, port: u16) -> Program {
    std::fs::create_dir_all(folder.join("html")).unwrap();
    std::fs::write(folder.join("html/index.html"), "hello from nginx\n").unwrap();
    let root = folder.path().display();
    let configuration = format!(
        "daemon off; master_process off; error_log {root}/error.log; pid {root}/nginx.pid;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};\n\
         uwsgi_temp_path {root}; scgi_temp_path {root};\n\
         server {{ listen 127.0.0.1:{port}; root {root}/html; }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
    Program::new("/usr/sbin/nginx").arg("-c").arg(folder.join("nginx.conf"))
}

#[test]
fn nginx_checks_its_configuration() {
    let folder = Folder::new();
    let program = nginx(&folder, free_port()).arg("-t");
    let alone = program.alone();
    let outcome = program.recorded();
    assert_eq!((outcome.code, &outcome.stdout), (alone.code, &alone.stdout), "{}", outcome.stderr);
    assert_eq!(outcome.code, 0);
    assert!(outcome.stderr.contains("test is successful"), "{}", outcome.stderr);
    assert!(outcome.whole_allocations() > 10);
}

#[test]
fn nginx_answers_a_request() {
    let folder = Folder::new();
    let port = free_port();
    let program = nginx(&folder, port);
    let running = program.start();
    let mut stream = wait_for("nginx to listen", || TcpStream::connect(format!("127.0.0.1:{port}")).ok());
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello from nginx\n"), "{answer}");
    signal("QUIT", &[running.target(&program)]);
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(outcome.whole_allocations() > 10);
}

/// A repository with 30 commits, the same each time.
fn repository(folder: &Folder) {
    let git = |arguments: &[&str]| {
        let status = Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"])
            .args(arguments)
            .current_dir(folder.path())
            .env("GIT_AUTHOR_DATE", "2024-01-01T00:00:00Z")
            .env("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .expect("git");
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    };
    git(&["init", "-q"]);
    for i in 0..30 {
        std::fs::write(folder.join(&format!("file{}.txt", i % 7)), format!("{}\n", "line\n".repeat(i + 1))).unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", &format!("commit {i}")]);
    }
}

#[test]
fn git_log() {
    let folder = Folder::new();
    repository(&folder);
    let program = Program::new("git").args(["--no-pager", "log", "--stat"]).current_dir(folder.path());
    let outcome = program.same_output();
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.stdout.matches("\n    commit ").count(), 30);
    assert!(outcome.whole_allocations() > 1000);
}

#[test]
fn python_with_processes_of_its_own() {
    let script = "import multiprocessing as m\n\
        if __name__ == '__main__':\n    with m.Pool(4) as p: print(sum(p.map(abs, range(1000))))";
    let outcome = Program::new("/usr/bin/python3.11").args(["-c", script]).same_output();
    assert_eq!(outcome.stdout, "499500\n");
    outcome.whole_report();
}

#[test]
fn node_with_workers() {
    let script = "const { Worker } = require('worker_threads'); let n = 0; for (let i = 0; i < 4; i++) { \
        const w = new Worker(`let a = []; for (let i = 0; i < 1e5; i++) a.push({ i }); \
        require('worker_threads').parentPort.postMessage(a.length)`, { eval: true }); \
        w.on('message', m => { n += m; if (n == 4e5) console.log('done', n) }) }";
    let outcome = Program::new("node").args(["-e", script]).same_output();
    assert_eq!(outcome.stdout, "done 400000\n");
    outcome.whole_report();
}

#[test]
fn a_compiler_driver() {
    // g++ runs its parts as children by vfork or posix_spawn. Only the driver itself is recorded.
    let folder = Folder::new();
    let source = heaptrack_tests::targets::sources().join("throwing.cpp");
    let outcome = Program::new("g++").arg("-c").arg(source).arg("-o").arg(folder.join("out.o")).same_output();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(folder.join("out.o").exists());
    outcome.whole_report();
}

#[test]
fn jemalloc_by_ld_preload() {
    // The package of redis-server installs the library.
    let program = Program::new("/usr/bin/jq")
        .args(["-n", "[range(10000)] | length"])
        .env("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2");
    let outcome = program.same_output();
    assert_eq!(outcome.stdout, "10000\n");
    assert!(outcome.whole_allocations() > 1000);
}
