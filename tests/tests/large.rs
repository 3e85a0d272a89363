//! Traces with many events: the memory that it takes to open them, and what an interrupted command leaves.
use heaptrack_tests::process::{self, code, signal, status_bytes, wait_for};
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::{Folder, Outcome, Program};
use std::path::Path;
use std::process::{Child, Stdio};

fn record(blocks: u64) -> Outcome {
    let outcome = Program::target("turnover").arg(blocks.to_string()).option("--no-symbols").recorded();
    assert_eq!(outcome.code, 0);
    outcome
}

fn start(words: &[&str]) -> Child {
    let mut command = with_default_signals(heaptrack());
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns the highest resident size of `heaptrack print`, and the number of allocations that it prints.
fn print(trace: &Path) -> (u64, u64) {
    let mut child = start(&["print", name(trace)]);
    let ours = heaptrack().canonicalize().unwrap();
    let (mut highest, mut stdout) = (0, child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut stdout).unwrap());
    let status = loop {
        // Before its exec, the child has the memory size of this process.
        if process::executable(child.id()).is_some_and(|path| path == ours) {
            highest = status_bytes(child.id(), "VmHWM:").unwrap_or(0).max(highest);
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success());
    let text = reader.join().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("calls to allocation functions: ")).unwrap();
    (highest, line.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn memory_does_not_grow_with_events() {
    let (few, many) = (record(1_000_000), record(10_000_000));
    let (few_bytes, few_count) = print(&few.trace);
    let (many_bytes, many_count) = print(&many.trace);
    assert!((1_000_000..1_001_000).contains(&few_count) && (10_000_000..10_001_000).contains(&many_count));
    assert!(few_bytes > 1 << 20, "{few_bytes} bytes: nothing was measured");
    // 18 million more events may cost about half a byte each.
    assert!(many_bytes < few_bytes + (9 << 20), "{few_bytes} bytes, then {many_bytes}");
    assert!(many_bytes < 64 << 20, "{many_bytes} bytes");
}

#[test]
fn an_interrupted_command_leaves_no_file() {
    let outcome = record(3_000_000);
    let trace = name(&outcome.trace);
    let commands: [&[&str]; 3] = [
        &["export", "--to", "heaptrack", trace, "-o"],
        &["trim", trace, "--from", "1%", "--to", "end", "-o"],
        &["merge", trace, trace, "-o"],
    ];
    for words in commands {
        for (how, expected) in [("INT", 130), ("TERM", 143)] {
            let folder = Folder::new();
            let out = folder.join("out.htz");
            let child = start(&[words, &[name(&out)]].concat());
            let part = format!(".heaptrack.{}.0.part", child.id());
            wait_for("the file that is being written", || (folder.names() == [part.clone()]).then_some(()));
            signal(how, &[child.id()]);
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(said, format!("heaptrack: interrupted; {} was not written\n", out.display()), "{words:?}");
            assert_eq!((code(output.status), folder.names()), (expected, vec![]), "{words:?}");
        }
    }
}
