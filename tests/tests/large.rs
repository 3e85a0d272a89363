//! Traces with many events: the memory that it takes to open them, and what an interrupted command leaves.
use format::{
    AllocClassEncoder, Checkpoint, EventEncoder, Exit, FileWriter, Frame, Session, StackEncoder, Summary, Totals,
};
use heaptrack_tests::process::{self, code, signal, status_bytes, wait_for};
use heaptrack_tests::run::{heaptrack, with_default_signals};
use heaptrack_tests::{Folder, Outcome, Program, scale};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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
    let line = text.lines().find(|line| line.starts_with("allocated ")).unwrap();
    let count = line.split(" in ").nth(1).unwrap().split(' ').next().unwrap();
    (highest, count.replace(',', "").parse().unwrap())
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

/// The distance of two checkpoints in a recording.
const CHECKPOINT_EVENTS: u64 = 4 << 20;

/// A trace in which `live` blocks of 16 bytes are live from the first third of the events on. Then each event pair frees
/// one of them at random and allocates another one. As in a recording, every four million events there is a checkpoint.
fn write_churn(path: &Path, live: u64) {
    let mut out = FileWriter::new(BufWriter::new(File::create(path).unwrap()), 1).unwrap();
    out.write(&Session { command: vec!["churn".into()], ..Session::default() }.to_block()).unwrap();
    let mut stacks = StackEncoder::new();
    let stack = stacks.push(0, Frame::new(0, 0x1000, false));
    out.write(&stacks.take()).unwrap();
    let mut classes = AllocClassEncoder::new();
    let class = classes.push(16, stack);
    out.write(&classes.take()).unwrap();
    let mut events = EventEncoder::new();
    let mut totals = Totals::default();
    let mut numbers: Vec<u64> = Vec::new();
    let (mut state, mut next_checkpoint) = (1u64, CHECKPOINT_EVENTS);
    while totals.allocations < 2 * live {
        if numbers.len() as u64 == live {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = ((state >> 33) % live) as usize;
            events.free(numbers.swap_remove(at));
            totals.deallocations += 1;
        }
        numbers.push(events.alloc(class));
        totals.allocations += 1;
        let done = totals.allocations + totals.deallocations;
        if events.len() >= 512 << 10 {
            events.time(done * 100);
            out.write(&events.take()).unwrap();
        }
        if done >= next_checkpoint {
            next_checkpoint += CHECKPOINT_EVENTS;
            out.write(&events.take()).unwrap();
            let live = numbers.len() as u64;
            totals.leaked_allocations = live;
            let point = Checkpoint {
                events: done,
                next_sequence: totals.allocations,
                time_ns: done * 100,
                totals,
                ..Checkpoint::default()
            };
            out.write(&point.to_block()).unwrap();
        }
    }
    out.write(&events.take()).unwrap();
    (totals.leaked_allocations, totals.peak_allocations) = (live, live);
    totals.runtime_ns = (totals.allocations + totals.deallocations) * 100;
    out.write(&Summary { complete: true, exit: Exit::Code(0), totals }.to_block()).unwrap();
    out.finish().unwrap();
}

/// Runs heaptrack with an address space of this size.
fn limited(megabytes: u64, words: &[&str]) -> Output {
    let line = format!("ulimit -v {}; exec \"$0\" \"$@\"", megabytes * 1000);
    Command::new("sh").args(["-c", &line]).arg(heaptrack()).args(words).output().unwrap()
}

/// The figure in front of `words`, in megabytes.
fn megabytes(sentence: &str, after: &str) -> f64 {
    let rest = sentence.split_once(after).unwrap_or_else(|| panic!("{sentence}")).1.trim_start();
    let mut words = rest.split(' ');
    let number: f64 = words.next().unwrap().parse().unwrap();
    match words.next().unwrap() {
        "MB" => number,
        "GB" => number * 1000.0,
        unit => panic!("{unit}"),
    }
}

/// The memory is told before it is needed. With that much, the trace is read; with much less, nothing is tried.
#[test]
fn many_live_blocks_take_the_memory_that_was_told() {
    let live = scale::count(60_000_000);
    let folder = Folder::new();
    let trace = folder.join("churn.htz");
    write_churn(&trace, live);
    // With the lists of leaks, more is kept of each live block.
    let words = ["print", "-l", name(&trace)];
    let refused = limited(300, &words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{said}");
    let figure = megabytes(&said, "needs up to");
    // Between two checkpoints, half of the events may be allocations of blocks that were live at the same time.
    let most = live + CHECKPOINT_EVENTS / 2;
    let per_block = (figure - 50.0) * 1e6 / most as f64;
    assert!((16.0..28.0).contains(&per_block), "{per_block} bytes for each live block: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let told = format!("heaptrack: {} needs up to ", trace.display());
    assert!(
        said.starts_with(&told) && said.contains(" of memory, because ") && said.contains(" available: "),
        "{said}"
    );
    // Address space that is reserved and not used does not count as memory: stacks, arenas of malloc, the program.
    let enough = limited(figure as u64 + 100 + 250, &words);
    let said = String::from_utf8_lossy(&enough.stderr).into_owned();
    assert_eq!((enough.status.code(), said.as_str()), (Some(0), ""));
    let text = String::from_utf8(enough.stdout).unwrap();
    assert!(text.contains(&format!("calls to allocation functions: {}", 2 * live)), "{text}");
    assert!(text.contains(&format!("{live} blocks")), "{text}");
}
