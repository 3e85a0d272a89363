//! Programs whose memory is recorded until they are killed, and the instants that the recorder measured, compared with the kernel's numbers.
use crate::process::{self, KilledOnFailure};
use crate::{Chance, Folder, run, scale, view};
use format::{Block, MemoryInstant, Reader, part_kind};
use serde_json::Value;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Events before a stop, or before a line that was read, are in the recorder's table this long after it.
pub const SETTLED_NS: u64 = 60_000_000;

pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

/// The instants of a trace that may still grow, and the time since 1970 at which it began.
pub fn instants(trace: &Path) -> (u64, Vec<MemoryInstant>) {
    let mut reader = Reader::new(std::fs::File::open(trace).expect("a trace")).expect("a trace");
    let (mut began, mut instants) = (0, Vec::new());
    while let Ok(Some(block)) = reader.next_block() {
        match block.decode() {
            Ok(Block::Session(session)) => began = session.started_unix_ns,
            Ok(Block::MemoryParts(parts)) => instants.extend(parts.instants),
            _ => (),
        }
    }
    (began, instants)
}

/// Waits for an instant that was measured after this time, with everything that happened before it.
pub fn look_after(trace: &Path, time_ns: u64) -> MemoryInstant {
    process::wait_for("a look at the memory", || {
        let (began, instants) = instants(trace);
        instants.into_iter().find(|instant| began + instant.time_ns > time_ns + SETTLED_NS)
    })
}

/// RSS of all mappings, PSS of all but files, and RSS of files.
fn smaps(pid: u32) -> (u64, u64, u64) {
    let is_ours = |line: &str| line.contains("/heaptrack-") && line.ends_with(".so");
    let is_shared = |line: &str| ["/memfd:", "/dev/zero", "/dev/shm/", "/SYSV"].iter().any(|name| line.contains(name));
    let is_file = |line: &str| line.contains(" /") && !is_shared(line) && !is_ours(line);
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let (mut rss, mut pss, mut files, mut in_file) = (0, 0, 0, false);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let bytes = second.parse::<u64>().unwrap_or(0) << 10;
        match first {
            "Rss:" => {
                rss += bytes;
                files += if in_file { bytes } else { 0 };
            }
            "Pss:" => pss += if in_file { 0 } else { bytes },
            _ if !first.ends_with(':') => in_file = is_file(line),
            _ => (),
        }
    }
    (rss, pss, files)
}

/// The kernel's number may change meanwhile.
fn within_2_percent(what: &str, measured: u64, before: u64, after: u64) {
    let (low, high) = (before.min(after), before.max(after));
    assert!(
        measured + low / 50 >= low && measured <= high + high / 50,
        "{what}: {measured} instead of {low} to {high}"
    );
}

/// Stops the program at a random instant, waits until the recorder has looked at it, and compares with the kernel's numbers.
/// Returns the instant, and which parts of it differ: RSS, PSS without files, and what is unattributed.
fn compare_one(pid: u32, trace: &Path, chance: &mut Chance) -> (MemoryInstant, [f64; 3]) {
    std::thread::sleep(Duration::from_micros(chance.between(1, 40_000)));
    process::signal("STOP", &[pid]);
    process::wait_for("the stop", || (process::state(pid) == Some('T')).then_some(()));
    let stopped_ns = now_ns();
    let (rss, pss, files) = smaps(pid);
    let instant = look_after(trace, stopped_ns);
    let (rss_after, pss_after, files_after) = smaps(pid);
    process::signal("CONT", &[pid]);
    let sum = |bytes: fn(&format::MemoryPart) -> u64| instant.parts.iter().map(bytes).sum::<u64>();
    assert_eq!(sum(|part| part.rss_bytes), instant.rss_bytes, "the parts add up");
    assert_eq!(sum(|part| part.pss_bytes), instant.pss_bytes, "the parts add up");
    within_2_percent("RSS", instant.rss_bytes, rss, rss_after);
    // Of a file, PSS depends on the other processes that map it now.
    let of_files: u64 =
        instant.parts.iter().filter(|part| part.kind == part_kind::FILE).map(|part| part.pss_bytes).sum();
    within_2_percent("PSS", instant.pss_bytes - of_files, pss, pss_after);
    assert!(of_files > 0 && of_files <= files.max(files_after), "{of_files} of {files}");
    within_2_percent("files", instant.rss_of(part_kind::FILE), files, files_after);
    let unattributed = instant.rss_of(part_kind::UNATTRIBUTED);
    assert!(unattributed * 50 <= rss, "{unattributed} of {rss} bytes are unattributed: {instant:?}");
    let part = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
    let outside = |measured: u64, before: u64, after: u64| {
        part(before.min(after).saturating_sub(measured).max(measured.saturating_sub(before.max(after))), before)
    };
    let differences = [
        outside(instant.rss_bytes, rss, rss_after),
        outside(instant.pss_bytes - of_files, pss, pss_after),
        part(unattributed, rss),
    ];
    (instant, differences)
}

/// Returns the instants, after both kinds of sums were compared 20 times in a soak, otherwise 3 times. Prints the largest differences.
pub fn compare(pid: u32, trace: &Path, chance: &mut Chance) -> Vec<MemoryInstant> {
    let all: Vec<(MemoryInstant, [f64; 3])> =
        (0..scale::count(20).max(3)).map(|_| compare_one(pid, trace, chance)).collect();
    let worst = |of: usize| all.iter().map(|(_, parts)| parts[of]).fold(0.0, f64::max) * 100.0;
    let megabytes = all.iter().map(|(instant, _)| instant.rss_bytes >> 20).max().unwrap_or(0);
    println!(
        "{} instants of at most {megabytes} MB: RSS differs by at most {:.3} %, PSS by {:.3} %, unattributed {:.3} %",
        all.len(),
        worst(0),
        worst(1),
        worst(2)
    );
    all.into_iter().map(|(instant, _)| instant).collect()
}

/// A program that is recorded, with a look every 20 ms if the budget allows it.
pub struct Watched {
    pub trace: PathBuf,
    recorder: Child,
    output: std::io::BufReader<ChildStdout>,
    _folder: Folder,
}

impl Watched {
    /// Starts `command` under heaptrack, with its environment.
    pub fn start(command: &Command, options: &[&str]) -> Self {
        let folder = Folder::new();
        let trace = folder.join("trace.htz");
        let mut heaptrack = Command::new(run::heaptrack());
        heaptrack.args(["-q", "--memory-every", "20ms"]).args(options).arg("-o").arg(&trace);
        heaptrack.arg("--").arg(command.get_program()).args(command.get_args());
        heaptrack.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let started = heaptrack.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut recorder = started.expect("heaptrack");
        let output = std::io::BufReader::new(recorder.stdout.take().expect("piped"));
        Watched { trace, recorder, output, _folder: folder }
    }

    /// The next line that the program prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    pub fn recorder_pid(&self) -> u32 {
        self.recorder.id()
    }

    /// The process of the program.
    pub fn target(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.recorder.id());
        process::wait_for("the program", || {
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            text.split_ascii_whitespace().next()?.parse().ok()
        })
    }

    /// The view `memory` at an instant, while the program runs.
    pub fn view_at(&self, instant: &MemoryInstant) -> Value {
        view::view(&self.trace, "memory", &["--at", &format!("{}ns", instant.time_ns)])
    }

    /// Ends the program.
    pub fn end(mut self) {
        process::signal("KILL", &[self.target()]);
        self.recorder.wait().expect("heaptrack ends");
    }

    /// Waits until the memory was measured as it is now, and ends the program.
    pub fn measured(mut self) -> Measured {
        let pid = self.target();
        let _killed = KilledOnFailure(pid);
        let instant = look_after(&self.trace, now_ns());
        process::signal("KILL", &[pid]);
        self.recorder.wait().expect("heaptrack ends");
        Measured { instant, trace: self.trace, _folder: self._folder }
    }
}

/// An instant of a trace.
pub struct Measured {
    pub instant: MemoryInstant,
    pub trace: PathBuf,
    _folder: Folder,
}

impl Measured {
    pub fn view(&self) -> Value {
        view::view(&self.trace, "memory", &["--at", &format!("{}ns", self.instant.time_ns)])
    }

    /// The text report up to the instant.
    pub fn text(&self, words: &[&str]) -> String {
        let until = format!("{}ns", self.instant.time_ns);
        view::text(&self.trace, &[words, &["--to", &until]].concat())
    }
}
