//! Attaches to busy programs and detaches from them, many times. No program crashes, hangs, or computes a wrong result.
use heaptrack_tests::attach::{Ended, Target, cycle};
use heaptrack_tests::process::wait_for;
use heaptrack_tests::targets::sources;
use heaptrack_tests::{Chance, Folder, scale};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `full` in a soak, otherwise a tenth of it. In a soak, all tests here together make 2,300 cycles.
fn cycles(full: u64) -> u64 {
    scale::count(full)
}

/// Attaches for random times. All cycles must succeed. In a soak, the median pause must be below 3 ms.
fn many(target: &Target, count: u64, mut look: impl FnMut(&Ended)) {
    let mut chance = Chance::new("length of a session");
    let mut pauses = Vec::new();
    for number in 0..count {
        let ended = cycle(target.pid, &format!("{}ms", chance.between(0, 40)));
        assert_eq!(ended.code, 0, "cycle {number}: {}", ended.text);
        assert!(target.is_alive(), "cycle {number}: {}", ended.text);
        let found = ended.pauses();
        assert_eq!(found.len(), 2, "cycle {number}: {}", ended.text);
        pauses.extend(found);
        look(&ended);
    }
    pauses.sort_by(f64::total_cmp);
    let (median, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    println!("pauses of {count} cycles: median {median} ms, longest {longest} ms");
    // The median of a few cycles says more about the machine than about heaptrack.
    assert!(median < 3.0 || !scale::soak(), "median {median} ms");
}

/// In a soak, which checks the pauses, only one test runs at a time. On two processors two tests would disturb each
/// other's measurement.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    scale::soak().then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn ready(mut target: Target) -> Target {
    assert_eq!(target.line(), "ready");
    target
}

fn right(target: Target) {
    let (code, text) = target.finish();
    assert!(code == 0 && text.starts_with("right"), "{code} {text}");
}

/// Reads one thread's line of `counter`'s file: (allocations, frees) so far.
fn counted(file: &Path, thread: usize) -> (u64, u64) {
    let bytes = std::fs::read(file).unwrap_or_default();
    let word = |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
    (word(thread * 64), word(thread * 64 + 8))
}

#[test]
fn four_threads_that_do_nothing_but_allocate() {
    let _alone = alone();
    let folder = Folder::new();
    let file = folder.join("counted");
    let target = Target::start("counter", &[file.to_str().unwrap(), "4", "0"]);
    wait_for("the first calls", || (counted(&file, 3).0 > 0).then_some(()));
    let mut before = [0, 1, 2, 3].map(|thread| counted(&file, thread));
    many(&target, cycles(500), |ended| {
        let after = [0, 1, 2, 3].map(|thread| counted(&file, thread));
        let report = ended.report();
        for thread in 0..4 {
            // The program's own counts were read before the attach and after the detach, so no more calls than these
            // can be recorded.
            let site = report.of_size(1000 + thread as u64);
            let most = after[thread].0 - before[thread].0 + 1;
            assert!(site.allocations <= most, "thread {thread}: {} of {most}", site.allocations);
        }
        // Each thread keeps 100 blocks and frees the oldest one for each new one. So the number of unknown frees is at
        // most 100 per thread, plus one call in flight.
        assert!(report.total("unknown_frees") <= 4 * 101, "{}", report.total("unknown_frees"));
        assert!(report.total("leaked_allocations") <= 4 * 101, "{}", report.total("leaked_allocations"));
        assert_eq!((report.total("lost_events"), report.total("implied_frees")), (0, 0));
        // A call that was missed in between would make this difference larger, or would be counted as an implied free.
        let frees = report.total("deallocations") + report.total("unknown_frees");
        assert!(report.total("allocations").abs_diff(frees) <= 4, "{} and {frees}", report.total("allocations"));
        before = after;
    });
}

/// Attaches to a script of `tests/targets` many times, and asserts that it computes the right result.
fn script_goes_on(interpreter: &str, script: &str, count: u64) {
    let _alone = alone();
    let target = ready(Target::spawn(Command::new(interpreter).arg(sources().join(script))));
    many(&target, count, |_| ());
    right(target);
}

#[test]
fn python_with_threads() {
    script_goes_on("/usr/bin/python3", "attach_threads.py", cycles(300));
}

#[test]
fn node_with_workers() {
    script_goes_on("node", "attach_worker.js", cycles(200));
}

#[test]
fn a_program_that_throws() {
    let _alone = alone();
    for name in ["attach_throw", "attach_throw_jemalloc", "attach_throw_tcmalloc", "attach_throw_short"] {
        let target = ready(Target::start(name, &[]));
        many(&target, cycles(100), |_| ());
        right(target);
    }
}

#[test]
fn threads_and_children_that_come_and_go() {
    let _alone = alone();
    let target = ready(Target::start("attach_churn", &[]));
    many(&target, cycles(300), |ended| {
        let report = ended.report();
        assert_eq!(report.of_size(5002).allocations, 0, "children are not recorded");
        assert_eq!(report.total("lost_events"), 0);
    });
    right(target);
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Calls `ask` repeatedly on another thread while `work` runs. `ask` sends a request and checks the answer. There must
/// be more than 100 requests.
fn while_asking(ask: impl Fn(u64) + Sync, work: impl FnOnce()) {
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                ask(asked.fetch_add(1, Ordering::Relaxed));
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
        asking.join().expect("every answer was right");
    });
    assert!(asked.into_inner() > 100);
}

/// Sets a key and reads its value.
fn ask_redis(connection: &std::sync::Mutex<BufReader<TcpStream>>, number: u64) {
    let mut connection = connection.lock().unwrap();
    let value = format!("{number}").repeat((number % 300) as usize + 1);
    let key = format!("key:{}", number % 50);
    let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len());
    let get = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
    connection.get_mut().write_all((set + &get).as_bytes()).unwrap();
    let mut line = || {
        let mut line = String::new();
        connection.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!((line(), line(), line()), ("+OK".to_owned(), format!("${}", value.len()), value));
}

#[test]
fn redis_under_its_own_benchmark() {
    let _alone = alone();
    let folder = Folder::new();
    let port = free_port().to_string();
    let target = Target::spawn(
        Command::new("/usr/bin/redis-server")
            .args(["--port", &port, "--save", "", "--appendonly", "no", "--dir"])
            .arg(folder.path()),
    );
    let stream = wait_for("redis to listen", || TcpStream::connect(format!("127.0.0.1:{port}")).ok());
    let connection = std::sync::Mutex::new(BufReader::new(stream));
    let mut benchmark = Command::new("redis-benchmark")
        .args(["-p", &port, "-l", "-q", "-c", "4", "-t", "set,lpush,lrange"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("redis-benchmark");
    while_asking(|number| ask_redis(&connection, number), || many(&target, cycles(300), |_| ()));
    benchmark.kill().unwrap();
    benchmark.wait().unwrap();
}

#[test]
fn nginx_under_load() {
    let _alone = alone();
    let folder = Folder::new();
    let port = free_port();
    std::fs::create_dir_all(folder.join("html")).unwrap();
    let page = "hello from nginx ".repeat(2000);
    std::fs::write(folder.join("html/index.html"), &page).unwrap();
    let root = folder.path().display();
    let configuration = format!(
        "daemon off; master_process off; error_log {root}/error.log; pid {root}/nginx.pid;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};\n\
         uwsgi_temp_path {root}; scgi_temp_path {root}; gzip on; gzip_types *;\n\
         server {{ listen 127.0.0.1:{port}; root {root}/html; }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), configuration).unwrap();
    let target = Target::spawn(Command::new("/usr/sbin/nginx").arg("-c").arg(folder.join("nginx.conf")));
    wait_for("nginx to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
    let ask = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with(&page), "{} bytes", answer.len());
    };
    while_asking(ask, || many(&target, cycles(300), |_| ()));
}
