//! gdb as the oracle for stacks.
//!
//! With `HEAPTRACK_TEST_STOP_AT=n1,n2,...` the capture library stops the process (SIGSTOP to the thread itself) right
//! after it has recorded the process's n-th allocation, for each of these n. gdb attaches at the first stop and prints
//! the raw return addresses at each stop. The stack that was recorded for the same allocation must be equal.
use crate::process;
use crate::report::{Frame, Report, real};
use crate::run::{Outcome, Program};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What gdb saw at one stop.
pub struct Stop {
    /// The number of the allocation in the process, from 1.
    pub event: u64,
    pub tid: u64,
    /// The stack, leaf first, without the frames of the capture library.
    pub frames: Vec<Frame>,
}

/// Records the program, and lets gdb print its stack at each of `events` (ascending, above 1).
pub fn stops(program: &Program, events: &[u64]) -> (Outcome, Vec<Stop>) {
    // The first allocation is always a stop. gdb attaches there, while the process has only one thread.
    let mut at = vec![1];
    at.extend(events.iter().copied().filter(|&event| event > 1));
    let list = at.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let running = program.clone().env("HEAPTRACK_TEST_STOP_AT", list).start();
    let target = running.target(program);
    process::wait_for("the target to stop itself", || (process::state(target) == Some('T')).then_some(()));

    let output = running.folder().join("stacks.json");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("gdb/stacks.py");
    let gdb = Command::new("gdb")
        .args(["-nx", "-q", "-batch", "-p"])
        .arg(target.to_string())
        .arg("-x")
        .arg(script)
        .env("STACKS_OUT", &output)
        .env_remove("DEBUGINFOD_URLS")
        .stdin(Stdio::null())
        .output()
        .expect("gdb");
    let text = std::fs::read_to_string(&output)
        .unwrap_or_else(|_| panic!("gdb said nothing: {}", String::from_utf8_lossy(&gdb.stderr)));
    let stops = parse(&text, &at);
    (running.finish(), stops)
}

fn parse(text: &str, at: &[u64]) -> Vec<Stop> {
    let mut seen: Vec<(u64, Vec<Frame>)> = text.lines().map(line).collect();
    let library: PathBuf = seen.first().and_then(|first| first.1.first()?.module.clone()).expect("a first stop");
    // gdb also reports its own attach (twice) and the start of threads. Only stops inside the capture library count.
    seen.retain(|(_, frames)| frames.first().is_some_and(|leaf| leaf.module.as_ref() == Some(&library)));
    if seen.len() == at.len() + 1 && seen[0] == seen[1] {
        seen.remove(1);
    }
    assert_eq!(seen.len(), at.len(), "gdb saw another number of stops than were asked for");
    let ours = |frame: &Frame| frame.module.as_ref() == Some(&library);
    at.iter()
        .zip(seen)
        .map(|(&event, (tid, frames))| Stop { event, tid, frames: frames.into_iter().skip_while(ours).collect() })
        .collect()
}

fn line(text: &str) -> (u64, Vec<Frame>) {
    let json: Value = serde_json::from_str(text).expect("gdb's JSON");
    assert!(json["error"].is_null(), "gdb: {}", json["error"]);
    let frame = |pair: &Value| Frame {
        module: pair[0].as_str().map(|path| real(Path::new(path))),
        offset: pair[1].as_u64().expect("an address"),
    };
    (json["tid"].as_u64().expect("a tid"), json["stack"].as_array().expect("a stack").iter().map(frame).collect())
}

impl Stop {
    /// Returns `None` if the stack recorded for this allocation equals gdb's, and otherwise the difference.
    ///
    /// gdb can only guess the callers of code without a module (JIT), so the comparison ends there.
    ///
    /// If several threads allocate at once, the trace may number their allocations in another order than the process
    /// counted them. So if `slack` is not 0, every allocation of the same thread whose number in the trace differs by
    /// at most `slack` is compared, and one of them must be equal.
    pub fn difference(&self, trace: &Path, slack: u64) -> Option<String> {
        let wanted = known(&self.frames);
        let mut best = String::new();
        for distance in 0..=slack {
            for number in [self.event.saturating_sub(distance).max(1), self.event + distance] {
                let (tid, frames) = Report::event(trace, number);
                if slack > 0 && tid != self.tid {
                    continue;
                }
                if known(&frames) == wanted {
                    return None;
                }
                if best.is_empty() {
                    best = format!("event {}: gdb {:#x?}\nrecorded {:#x?}", self.event, self.frames, frames);
                }
            }
        }
        Some(if best.is_empty() { format!("event {}: no event of thread {} near", self.event, self.tid) } else { best })
    }
}

fn known(frames: &[Frame]) -> &[Frame] {
    let end = frames.iter().position(|frame| frame.module.is_none()).unwrap_or(frames.len());
    &frames[..end]
}
