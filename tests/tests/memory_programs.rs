//! The parts of the resident memory of real programs, launched and attached: at random instants, at which the test stops the program and
//! reads smaps itself, they add up to RSS and PSS within 2 %, and at most 2 % are unattributed. `make soak-memory`.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::memory::{Watched, compare, instants, look_after, now_ns};
use heaptrack_tests::process::{KilledOnFailure, wait_for};
use heaptrack_tests::{Chance, Folder, scale, targets};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const OPTIONS: [&str; 3] = ["--memory-every", "20ms", "--no-symbols"];

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Ends a process with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compares a program that prints a line when it is ready, launched and attached. `load` gets this line, and keeps the program busy
/// as long as its result lives.
fn both_ways<L>(name: &str, command: impl Fn() -> Command, load: impl Fn(&str) -> L) {
    let mut chance = Chance::new(&format!("{name}, launched"));
    let mut watched = Watched::start(&command(), &["--no-symbols"]);
    let line = watched.line();
    let pid = watched.target();
    let killed = KilledOnFailure(pid);
    let loaded = load(&line);
    compare(pid, &watched.trace, &mut chance);
    drop(loaded);
    watched.end();
    drop(killed);
    let mut chance = Chance::new(&format!("{name}, attached"));
    let mut target = Target::spawn(&mut command());
    let line = target.line();
    let _killed = KilledOnFailure(target.pid);
    let _loaded = load(&line);
    let session = Session::attach(target.pid, &OPTIONS);
    compare(target.pid, &session.trace, &mut chance);
    session.detach();
    heaptrack_tests::process::signal("KILL", &[target.pid]);
}

fn script(program: &str, words: &[&str]) -> impl Fn() -> Command {
    let (program, words) = (program.to_owned(), words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    move || {
        let mut command = Command::new(&program);
        command.args(&words);
        command
    }
}

#[test]
fn node_with_a_large_heap() {
    let text = "const kept = []; for (let i = 0; i < 3000000; i++) kept.push({ i, text: 'x' + i });
        console.log('ready'); setInterval(() => { for (let i = 0; i < 1000; i++) kept[i] = { i, text: 'y' + i }; }, 1);";
    both_ways("node", script("node", &["-e", text]), |_| ());
}

#[test]
fn python_with_numpy() {
    let text = "import numpy, time\nkept = [numpy.ones((200, 1000 + n)) for n in range(60)]\nprint('ready', flush=True)\nwhile True:\n    for n in range(60): kept[n] = kept[n] @ numpy.ones((1000 + n, 500)) @ numpy.ones((500, 1000 + n)) * 0.001\n    time.sleep(0.001)\n";
    both_ways("numpy", script("/usr/bin/python3", &["-c", text]), |_| ());
}

#[test]
fn python_with_pymalloc() {
    let text = "import time\nkept = [(n, str(n)) for n in range(500000)]\nprint('ready', flush=True)\nn = 0\nwhile True:\n    for _ in range(2000):\n        n = (n * 7 + 1) % 500000\n        kept[n] = (n, str(n))\n    time.sleep(0.001)\n";
    both_ways("pymalloc", script("/usr/bin/python3", &["-c", text]), |_| ());
}

#[test]
fn java() {
    let folder = Folder::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo/java/Grows.java");
    let built = Command::new("javac").arg("-d").arg(folder.path()).arg(source).status().expect("javac");
    assert!(built.success());
    let classes = folder.path().to_str().expect("a path").to_owned();
    both_ways("java", script("java", &["-Xmx256m", "-cp", &classes, "Grows"]), |_| ());
}

#[test]
fn threads_and_arenas() {
    let path = targets::target("memory_threads");
    both_ways("threads", move || Command::new(&path), |_| ());
}

#[test]
fn redis_under_load() {
    let folder = Folder::new();
    let port = free_port().to_string();
    let directory = folder.path().to_str().expect("a path").to_owned();
    let words = ["--port", &port, "--save", "", "--appendonly", "no", "--dir", &directory];
    both_ways("redis", script("/usr/bin/redis-server", &words), |_| {
        wait_for("redis to listen", || TcpStream::connect(format!("127.0.0.1:{port}")).ok());
        let mut load = Command::new("redis-benchmark");
        load.args(["-p", &port, "-l", "-q", "-c", "4", "-r", "100000", "-d", "200", "-t", "set,lpush,lrange"]);
        Killed(load.stdout(Stdio::null()).spawn().expect("redis-benchmark"))
    });
}

/// Runs a Lua script in redis.
fn redis(port: &str, words: &[&str]) {
    let answer = Command::new("redis-cli").args(["-p", port]).args(words).output().expect("redis-cli");
    let said = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    assert!(["1", "OK"].contains(&said.as_str()), "{words:?}: {said}");
}

fn rss_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("statm");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

/// Nine of ten keys were deleted. Deleting the others and MEMORY PURGE return what was predicted, within 5 %.
#[test]
fn redis_gives_back_what_was_predicted() {
    let folder = Folder::new();
    let port = free_port().to_string();
    let directory = folder.path().to_str().expect("a path").to_owned();
    let words = ["--port", &port, "--save", "", "--appendonly", "no", "--dir", &directory];
    let watched = Watched::start(&script("/usr/bin/redis-server", &words)(), &[]);
    wait_for("redis to listen", || TcpStream::connect(format!("127.0.0.1:{port}")).ok());
    let pid = watched.target();
    let _killed = KilledOnFailure(pid);
    let keys = scale::count(1_000_000);
    let on_all = |action: &str| format!("for i = 1, {keys} do {action} end return 1");
    let set = on_all("redis.call('set', 'session:'..i, string.rep('x', 50 + i % 300))");
    redis(&port, &["eval", &set, "0"]);
    let delete = on_all("if i % 10 > 0 then redis.call('del', 'session:'..i) end");
    redis(&port, &["eval", &delete, "0"]);
    // redis makes its table of keys smaller in its spare time, and jemalloc returns a part of the free pages after 10 s.
    let mut before = 0;
    wait_for("redis to be at rest", || {
        std::thread::sleep(Duration::from_secs(1));
        let now = rss_bytes(pid);
        (std::mem::replace(&mut before, now) == now).then_some(())
    });
    let measured = look_after(&watched.trace, now_ns());
    let all = on_all("redis.call('del', 'session:'..i)");
    redis(&port, &["eval", &all, "0"]);
    redis(&port, &["memory", "purge"]);
    let after = rss_bytes(pid);
    let shown = watched.view_at(&measured);
    let fragmentation = &shown["instants"][0]["fragmentation"];
    let last = fragmentation["sites"].as_array().and_then(|sites| sites.last()).expect("sites");
    let predicted = last["together_gives_back_bytes"].as_u64().expect("bytes");
    let gained = measured.rss_bytes.saturating_sub(after);
    println!("predicted {predicted}, gained {gained}, of {} bytes", measured.rss_bytes);
    assert!(predicted.abs_diff(gained) <= gained / 20, "{predicted} instead of {gained}: {fragmentation:#}");
    watched.end();
}

/// Clients that renew blocks of random sizes until the server ends.
fn clients(port: &str) {
    for seed in 0..4 {
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("a server");
        std::thread::spawn(move || {
            let mut chance = Chance::new(&format!("client {seed}"));
            let mut answers = BufReader::new(stream.try_clone().expect("a stream"));
            let mut stream = stream;
            loop {
                let (key, size) = (chance.between(0, 20_000), chance.between(1, 8_000));
                let mut line = String::new();
                if writeln!(stream, "{key} {size}").is_err() || answers.read_line(&mut line).unwrap_or(0) == 0 {
                    break;
                }
            }
        });
    }
}

#[test]
fn a_rust_server_with_jemalloc() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo/rust");
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/zoo-rust");
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(folder)
        .args(["build", "--quiet", "--release", "--bin", "jemalloc_server", "--target-dir"])
        .arg(&out);
    assert!(cargo.status().expect("cargo").success());
    let path = out.join("release/jemalloc_server");
    both_ways("Rust", move || Command::new(&path), clients);
}

const POSTGRES: &str = "/usr/lib/postgresql/15/bin";

fn as_postgres(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(format!("{POSTGRES}/{program}"));
    command
}

/// A server with a database of its own, and its folder.
fn postgres() -> (Killed, PathBuf, Folder) {
    let folder = Folder::new();
    let own = Command::new("chown").arg("postgres").arg(folder.path()).status().expect("chown");
    assert!(own.success());
    let data = folder.join("data");
    let made = as_postgres("initdb").args(["-N", "-A", "trust", "-D"]).arg(&data).stdout(Stdio::null()).status();
    assert!(made.expect("initdb").success());
    let mut server = as_postgres("postgres");
    server.arg("-D").arg(&data).arg("-k").arg(folder.path()).args(["-h", "", "-F"]);
    let server = Killed(server.stderr(Stdio::null()).spawn().expect("postgres"));
    wait_for("postgres", || folder.join(".s.PGSQL.5432").exists().then_some(()));
    let path = folder.path().to_owned();
    (server, path, folder)
}

/// A query that sorts, hashes and keeps memory, in a backend of its own. It prints the backend's pid first.
#[test]
fn a_postgres_backend() {
    let (_server, path, _folder) = postgres();
    let mut client = Command::new("psql");
    client.args(["-U", "postgres", "-h"]).arg(&path).args(["-At", "postgres"]);
    let mut client = Killed(client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql"));
    let mut ask = client.0.stdin.take().expect("piped");
    let mut answers = BufReader::new(client.0.stdout.take().expect("piped"));
    writeln!(ask, "select pg_backend_pid();").expect("psql");
    let mut line = String::new();
    answers.read_line(&mut line).expect("a line");
    let pid: u32 = line.trim().parse().expect("a pid");
    let query = "set work_mem = '64MB'; select count(*) from (select md5(n::text) h, n from generate_series(1, 300000) n) a join (select md5(n::text) h from generate_series(1, 300000) n) b using (h) group by a.n % 1000 order by 1 limit 1;";
    let busy = std::thread::spawn(move || while writeln!(ask, "{query}").is_ok() {});
    let mut chance = Chance::new("postgres, attached");
    let session = Session::attach(pid, &OPTIONS);
    compare(pid, &session.trace, &mut chance);
    session.detach();
    drop(client);
    drop(answers);
    busy.join().expect("a thread");
}

#[test]
fn a_postgres_backend_that_was_launched() {
    let folder = Folder::new();
    let own = Command::new("chown").arg("postgres").arg(folder.path()).status().expect("chown");
    assert!(own.success());
    let data = folder.join("data");
    let made = as_postgres("initdb").args(["-N", "-A", "trust", "-D"]).arg(&data).stdout(Stdio::null()).status();
    assert!(made.expect("initdb").success());
    let trace = folder.join("trace.htz");
    let mut heaptrack = Command::new("setpriv");
    heaptrack.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(heaptrack_tests::run::heaptrack());
    heaptrack.arg("-q").args(OPTIONS).arg("-o").arg(&trace);
    heaptrack.arg("--").arg(format!("{POSTGRES}/postgres")).args(["--single", "-F", "-D"]).arg(&data).arg("postgres");
    let mut recorder =
        Killed(heaptrack.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("heaptrack"));
    let mut ask = recorder.0.stdin.take().expect("piped");
    let children = format!("/proc/{0}/task/{0}/children", recorder.0.id());
    let pid: u32 = wait_for("the backend", || {
        let text = std::fs::read_to_string(&children).unwrap_or_default();
        let pid: u32 = text.split_ascii_whitespace().next()?.parse().ok()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "postgres" && trace.exists()).then_some(pid)
    });
    let _killed = KilledOnFailure(pid);
    let query = "select count(*) from (select md5(n::text) h from generate_series(1, 200000) n order by h) a";
    let busy = std::thread::spawn(move || while writeln!(ask, "{query}").is_ok() {});
    wait_for("a first look", || (!instants(&trace).1.is_empty()).then_some(()));
    compare(pid, &trace, &mut Chance::new("postgres, launched"));
    heaptrack_tests::process::signal("KILL", &[pid]);
    recorder.0.wait().expect("heaptrack ends");
    busy.join().expect("a thread");
}

/// The CPU time of a thread of a process in nanoseconds, by the scheduler's count. `None` if there is no such thread.
fn cpu_ns(pid: u32, name: &str) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok);
    let is_wanted = |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|text| text.trim() == name);
    let thread = threads.map(|thread| thread.path()).find(is_wanted)?;
    std::fs::read_to_string(thread.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
}

/// 10 GB in 20,000 mappings: looks take at most 0.5 % of one CPU, and the parts are right.
#[test]
fn looks_at_20_000_mappings_keep_their_budget() {
    let mut watched = Watched::start(&Command::new(targets::target("memory_wide")), &["--no-symbols"]);
    assert_eq!(watched.line(), "ready");
    let pid = watched.target();
    let _killed = KilledOnFailure(pid);
    let recorder = watched.recorder_pid();
    let look = || {
        let seen = instants(&watched.trace).1.len();
        wait_for("a look", || {
            let (_, all) = instants(&watched.trace);
            let last = all.last().filter(|_| all.len() > seen)?.clone();
            Some((last, cpu_ns(recorder, "heaptrack-parts").expect("a thread")))
        })
    };
    // The next look is complete, and all of the mappings are there.
    let (_, before) = look();
    let (second, after) = look();
    assert!(second.rss_bytes > 10_000_000_000, "{}", second.rss_bytes);
    let shared: u64 = second
        .parts
        .iter()
        .filter(|part| part.kind == "shared" && part.name.contains("wide"))
        .map(|part| part.rss_bytes)
        .sum();
    assert_eq!(shared, 20_000 * (512 << 10));
    let (third, _) = look();
    let (cpu, wall) = (after - before, third.time_ns - second.time_ns);
    println!("a look takes {} ms of CPU time, and the next one begins {} ms later", cpu / 1_000_000, wall / 1_000_000);
    assert!(cpu > 0 && cpu * 200 <= wall, "{cpu} ns of CPU time in {wall} ns");
    watched.end();
}
