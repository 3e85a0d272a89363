//! `messages.txt` has the messages of all commands, except for those that its first lines name. Each entry is a command
//! line, its exit code, and its output on stderr.
//!
//! The commands run in a folder with the files of `prepare`. Empty lines are left out, and `#` stands for any number
//! with its unit. With `HEAPTRACK_BLESS=1` the test writes the file anew from the output of the commands.
use super::{WITHOUT_MEMORY, command, said, succeed, with_traces};
use heaptrack_tests::process::code;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, folder};
use std::fs;
use std::process::{Command, Stdio};

const TABLE: &str = "tests/tests/outputs/messages.txt";

#[derive(Debug, PartialEq)]
struct Entry {
    /// The comments before the command.
    head: String,
    command: String,
    /// The exit code and the lines on stderr.
    answer: String,
}

fn entries(text: &str) -> Vec<Entry> {
    let blocks = text.split("\n\n").map(str::trim).filter(|block| block.lines().any(|line| line.starts_with("$ ")));
    let entry = |block: &str| {
        let (head, answer) = block.split_at(block.find("$ ").expect("a command"));
        let (command, answer) = answer.split_once('\n').unwrap_or((answer, ""));
        Entry { head: head.to_owned(), command: command[2..].to_owned(), answer: answer.to_owned() }
    };
    blocks.map(entry).collect()
}

/// Shell functions for programs that run while a command examines them.
const FUNCTIONS: &str = r#"
# Waits for a condition, for half a minute at most.
wait_until() {
    for _ in $(seq 3000); do
        if eval "$1"; then return; fi
        sleep 0.01
    done
    echo "the test waited in vain for: $1" >&2
    exit 99
}
# A process that waits. Before it sleeps, it is a copy of the shell that becomes another program.
started() {
    sleep 60 & pid=$!
    trap 'kill $pid 2> /dev/null' EXIT
    wait_until 'grep -q "^sleep$" /proc/$pid/comm && grep -q "^State:.S" /proc/$pid/status'
}
# Like `started`, with heaptrack attached.
recorded() {
    started; rm -f recorded.htz; heaptrack -q -p $pid -o recorded 2> /dev/null & recorder=$!
    wait_until '[ -e recorded.htz ]'
}
# A process that heaptrack started.
launched() {
    heaptrack -q -o launched sleep 60 2> /dev/null & recorder=$!
    wait_until 'pid=$(pgrep -P $recorder -x sleep) && grep -q memfd:heaptrack /proc/$pid/maps'
    trap 'kill $pid 2> /dev/null' EXIT
}
# Runs the command in its arguments, and sends it SIGTERM as soon as it has an unfinished file.
interrupted() {
    "$@" & wait_until "compgen -G '.*.part' > /dev/null"; kill $!; wait $!
}
# Runs the command in its arguments, with the number of a port that is in use as its last word.
listening() {
    python3 -c 'import socket, subprocess, sys
taken = socket.create_server(("127.0.0.1", 0))
sys.exit(subprocess.call(sys.argv[1:] + [str(taken.getsockname()[1])]))' "$@"
}
"#;

/// A trace of which three events were lost.
fn lossy() -> Vec<u8> {
    use format::{AllocClassEncoder, EventEncoder, Frame, Losses, StackEncoder, Summary};
    let mut stacks = StackEncoder::new();
    let main = stacks.push(0, Frame::new(0, 0x10, false));
    let mut alloc_classes = AllocClassEncoder::new();
    let alloc_class = alloc_classes.push(10, main);
    let mut events = EventEncoder::new();
    events.alloc(alloc_class);
    let losses = Losses { by_cause: vec![("ring_full".into(), 3)], lost_events: 3, ..Losses::default() };
    let summary = Summary { complete: true, ..Summary::default() };
    let blocks = [stacks.take(), alloc_classes.take(), events.take(), losses.to_block(), summary.to_block()];
    heaptrack_tests::replay::made::file(&blocks)
}

/// A trace with the parts of the resident memory at one instant, and without any event.
fn measured() -> Vec<u8> {
    use format::{MemoryInstant, MemoryParts, Session, Summary};
    let session = Session { version: 1, command: vec!["app".into()], page_size: 4096, ..Session::default() };
    let instant = MemoryInstant { time_ns: 1, rss_bytes: 4096, pss_bytes: 4096, ..MemoryInstant::default() };
    let parts = MemoryParts { instants: vec![instant], ..MemoryParts::default() };
    let summary = Summary { complete: true, ..Summary::default() };
    heaptrack_tests::replay::made::file(&[session.to_block(), parts.to_block(), summary.to_block()])
}

/// A trace of five million events. Writing a row for each of them takes seconds, so that a command can be interrupted
/// while its file is unfinished.
fn large() -> Vec<u8> {
    use format::{AllocClassEncoder, EventEncoder, Frame, StackEncoder, Summary};
    let mut stacks = StackEncoder::new();
    let main = stacks.push(0, Frame::new(0, 0x10, false));
    let mut alloc_classes = AllocClassEncoder::new();
    let alloc_class = alloc_classes.push(10, main);
    let mut blocks = vec![stacks.take(), alloc_classes.take()];
    let mut events = EventEncoder::new();
    for _ in 0..50 {
        for _ in 0..50_000 {
            let sequence = events.alloc(alloc_class);
            events.free(sequence);
        }
        blocks.push(events.take());
    }
    blocks.push(Summary { complete: true, ..Summary::default() }.to_block());
    heaptrack_tests::replay::made::file(&blocks)
}

/// The files that the commands of the table use.
fn prepare() -> Folder {
    let folder = with_traces();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    let trace = fs::read(folder.join("t.htz")).unwrap();
    let mut newer = trace.clone();
    newer[8] = 99;
    write("newer.htz", &newer);
    write("cut.htz", &trace[..trace.len() / 2]);
    write("empty", b"");
    write("text", b"this is a text\n");
    write("known", b"leak:nothing\nno suppression\n");
    write("rules", b"mine name main\n");
    write("kde", b"v 10300 2\nX ./a\ns /bin/a\ns main\ni 1000 1 2\nt 1 0\na 10 1\n+ 0\n");
    write("kde-raw", b"v 10300 3\nx /bin/a\nX ./a\nm 1 -\nt 1000 0\n+ 10 1 1000\n");
    write("script", b"#!/no/such/interpreter\n");
    fs::create_dir(folder.join("dir")).unwrap();
    fs::create_dir(folder.join("taken.htz")).unwrap();
    fs::create_dir(folder.join("bin")).unwrap();
    std::os::unix::fs::symlink(heaptrack().canonicalize().unwrap(), folder.join("bin/heaptrack")).unwrap();
    std::os::unix::fs::symlink("heaptrack", folder.join("bin/heaptrace")).unwrap();
    for (name, program) in [
        ("hello", "hello"),
        ("static", "hello_static"),
        ("stripped", "attach_phases_stripped"),
        ("short", "attach_short_program"),
        ("pool", "pool"),
        ("renewal", "renewal"),
    ] {
        folder::copy_program(target(program), folder.join(name));
    }
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    assert!(Command::new("chmod").arg("755").arg(folder.join("script")).status().unwrap().success());
    succeed(folder.path(), &["trim", "t.htz", "-o", "replaced"]);
    let record = |words: &[&str]| {
        let mut command = command(folder.path(), &["-q"]);
        let recorded = command.args(WITHOUT_MEMORY).args(words).stdout(Stdio::null()).output().unwrap();
        assert_eq!(said(&recorded), "");
    };
    record(&["-o", "custom", "--", "./pool"]);
    record(&["--max-size", "1M", "-o", "folded", "--", "./renewal", "counted", "500000", "early"]);
    let mut damaged = fs::read(folder.join("folded.htz")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 200].fill(0x55);
    write("damaged.htz", &damaged);
    write("lossy.htz", &lossy());
    write("large.htz", &large());
    write("measured.htz", &measured());
    folder
}

fn answer(folder: &Folder, line: &str) -> String {
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{FUNCTIONS}{line}")]).env("PATH", path).current_dir(folder.path()).stdin(Stdio::null());
    for name in ["DEBUGINFOD_URLS", "DISPLAY", "SSH_CONNECTION", "BROWSER", "HEAPTRACK_BIN"] {
        shell.env_remove(name);
    }
    let output = shell.output().unwrap();
    let text = said(&output).replace(&folder.path().display().to_string(), "DIR");
    // How long a program waits depends on the machine.
    let is_shown = |line: &&str| !line.trim().is_empty() && !line.starts_with("  the program waited ");
    let lines = text.lines().filter(is_shown);
    let exit = format!("exit {}", code(output.status));
    std::iter::once(exit.as_str()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// `#` in the pattern matches any number, with its decimals and the unit of a size.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('#');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    for part in parts {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = if digits.len() == rest.len() { None } else { Some(digits) };
        let Some(after) = number else { return false };
        // A point without a digit after it is not part of the number.
        let decimals = after.strip_prefix('.').filter(|more| more.starts_with(|c: char| c.is_ascii_digit()));
        let after = decimals.map_or(after, |more| more.trim_start_matches(|c: char| c.is_ascii_digit()));
        let after = [" B", " kB", " MB"].iter().find_map(|unit| after.strip_prefix(unit)).unwrap_or(after);
        let Some(after) = after.strip_prefix(part) else { return false };
        rest = after;
    }
    rest.is_empty()
}

#[test]
fn every_message_is_in_the_table() {
    let folder = prepare();
    let path = workspace().join(TABLE);
    let text = fs::read_to_string(&path).unwrap();
    let mut blessed = String::new();
    let mut wrong = Vec::new();
    for entry in entries(&text) {
        let found = answer(&folder, &entry.command);
        let is_right = matches(&entry.answer, &found);
        if !is_right {
            wrong.push(format!("$ {}\n{}\nis in the table as\n{}", entry.command, found, entry.answer));
        }
        let answer = if is_right { &entry.answer } else { &found };
        blessed.push_str(&format!("{}$ {}\n{answer}\n\n", entry.head, entry.command));
    }
    if std::env::var_os("HEAPTRACK_BLESS").is_some() {
        fs::write(path, blessed.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{} messages differ:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Checks what must hold for all messages.
#[test]
fn messages_are_sentences() {
    let text = fs::read_to_string(workspace().join(TABLE)).unwrap();
    let all = entries(&text);
    assert!(all.len() > 170, "{}", all.len());
    for entry in &all {
        let answer = &entry.answer;
        for never in ["os error", "panicked", "RUST_BACKTRACE", " 1 blocks", " 1 traces", " 1 allocations", " 1 frames"]
        {
            assert!(!answer.contains(never), "{never}: {}\n{answer}", entry.command);
        }
        // No cause is printed twice.
        for line in answer.lines() {
            let parts: Vec<&str> = line.split(": ").collect();
            assert!(parts.windows(2).all(|pair| pair[0] != pair[1]), "{}\n{line}", entry.command);
        }
        assert!(answer.starts_with("exit "), "{}", entry.command);
    }
}

#[test]
fn numbers_match_where_the_table_has_a_hash() {
    assert!(matches("(#) in # s", "(14.1 kB) in 3 s") && matches("x.#.y", "x.12.y"));
    assert!(!matches("(#)", "(x kB)") && !matches("a", "b") && !matches("#", "1x"));
}
