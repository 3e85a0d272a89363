//! Runs programs under `heaptrace` and parses its reports, line by line.
//!
//! The grammar is that of the original (see docs/heaptrace.md). A line that does not fit fails the test.
use crate::folder::Folder;
use crate::process;
use crate::run::{heaptrack, with_default_signals};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// 65 equals signs.
const RULE: &str = "=================================================================";

pub struct Heaptrace {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// The result of a run.
pub struct Traced {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// One backtrace of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backtrace {
    pub number: usize,
    pub count: u64,
    pub peak_count: u64,
    /// Exact below a million, otherwise truncated to three decimals of MB or GB. `peak_bytes` likewise.
    pub bytes: u64,
    pub peak_bytes: u64,
    pub age_ns: u64,
    pub frames: Vec<Line>,
}

/// One frame of a backtrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub address: u64,
    /// The name, with the source position.
    pub symbol: Option<String>,
    /// The offset in bytes from the start of the function.
    pub from_start: Option<u64>,
    pub module: Option<(String, u64)>,
}

/// One report.
#[derive(Clone, Debug)]
pub struct Dump {
    pub pid: u32,
    pub name: String,
    /// One list for each sort key.
    pub lists: Vec<(String, Vec<Backtrace>)>,
    pub backtraces: u64,
    pub bytes: u64,
    pub virtual_bytes: u64,
    pub resident: u64,
    pub statm: [u64; 3],
    /// Further lines of the footer: label and value.
    pub notes: Vec<(String, String)>,
    /// The lines about the resident memory and its parts.
    pub memory: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub enum Part {
    Initialized(u32, String),
    Finalized(u32, String),
    Dump(Dump),
    /// One of our own sentences: `heaptrace: ...`.
    Sentence(String),
}

impl Heaptrace {
    pub fn new<A: AsRef<OsStr>>(words: impl IntoIterator<Item = A>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        Heaptrace { words, environment: Vec::new() }
    }

    pub fn arg(self, word: impl AsRef<OsStr>) -> Self {
        self.args([word])
    }

    pub fn args<A: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = A>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// One of `tests/targets`, after all options.
    pub fn target(self, name: &str) -> Self {
        self.arg(crate::targets::target(name))
    }

    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((key.into(), value.as_ref().to_owned()));
        self
    }

    pub fn command(&self) -> Command {
        let mut command = with_default_signals(heaptrack());
        command.arg("heaptrace").args(&self.words).env_remove("LD_PRELOAD").env_remove("NODE_EXTRA_CA_CERTS");
        command.envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn start(&self) -> Child {
        let mut command = self.command();
        command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    pub fn run(&self) -> Traced {
        Traced::of(self.start())
    }
}

impl Traced {
    pub fn of(child: Child) -> Self {
        let output = child.wait_with_output().expect("the child can be waited for");
        Traced {
            code: process::code(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn parts(&self) -> Vec<Part> {
        parse(&self.stderr)
    }

    pub fn dumps(&self) -> Vec<Dump> {
        dumps(self.parts())
    }
}

pub fn dumps(parts: Vec<Part>) -> Vec<Dump> {
    let dump = |part| if let Part::Dump(dump) = part { Some(dump) } else { None };
    parts.into_iter().filter_map(dump).collect()
}

impl Dump {
    /// The sums of the live blocks and bytes of the backtraces in the first list whose innermost function is
    /// `function`. The other lists have backtraces of the same report in another order.
    pub fn of(&self, function: &str) -> (u64, u64) {
        let is_it = |trace: &&Backtrace| {
            let symbol = trace.frames.first().and_then(|line| line.symbol.as_deref()).unwrap_or_default();
            symbol == function || symbol.starts_with(&format!("{function} ("))
        };
        let found = self.lists[0].1.iter().filter(is_it);
        found.fold((0, 0), |(count, bytes), trace| (count + trace.count, bytes + trace.bytes))
    }
}

/// Parses all reports in a text. Panics at the first line that does not fit.
pub fn parse(text: &str) -> Vec<Part> {
    let mut lines = text.lines().peekable();
    let mut parts = Vec::new();
    while let Some(line) = lines.next() {
        let part = if let Some(rest) = line.strip_prefix("[heaptrace] initialized for ") {
            let (pid, name) = subject(rest);
            Part::Initialized(pid, name)
        } else if let Some(rest) = line.strip_prefix("[heaptrace]   finalized for ") {
            let (pid, name) = subject(rest);
            Part::Finalized(pid, name)
        } else if line == RULE {
            Part::Dump(dump(&mut lines))
        } else {
            Part::Sentence(after(line, "heaptrace: ").to_owned())
        };
        parts.push(part);
    }
    parts
}

type Lines<'a> = std::iter::Peekable<std::str::Lines<'a>>;

fn dump(lines: &mut Lines<'_>) -> Dump {
    let mut dump = Dump {
        pid: 0,
        name: String::new(),
        lists: Vec::new(),
        backtraces: 0,
        bytes: 0,
        virtual_bytes: 0,
        resident: 0,
        statm: [0; 3],
        notes: Vec::new(),
        memory: Vec::new(),
    };
    while let Some(rest) = lines.peek().and_then(|line| line.strip_prefix("[heaptrace] dump allocation sorted by '")) {
        let (key, rest) = rest.split_once("' for ").unwrap_or_else(|| panic!("{rest}"));
        (dump.pid, dump.name) = subject(rest);
        lines.next();
        let mut list = Vec::new();
        while lines.peek().is_some_and(|line| line.starts_with("=== ")) {
            list.push(backtrace(lines));
        }
        dump.lists.push((key.to_owned(), list));
    }
    let mut value = |label: &str| {
        let line = lines.next().unwrap_or_default();
        after(line, &format!("[heaptrace] {label} : ")).to_owned()
    };
    dump.backtraces = value("heap traced num of backtrace").parse().expect("a number");
    dump.bytes = size(&value("heap traced allocation size "));
    dump.virtual_bytes = size(&value("allocator info (virtual)    "));
    dump.resident = size(&value("allocator info (resident)   "));
    let statm = value("statm info (VSS/RSS/shared) ");
    let sizes: Vec<u64> = statm.split(" / ").map(size).collect();
    dump.statm = sizes.try_into().unwrap_or_else(|_| panic!("{statm}"));
    loop {
        match lines.next() {
            Some(RULE) => return dump,
            Some(line) => {
                let note = after(line, "[heaptrace] ");
                let (label, value) = note.split_once(" : ").unwrap_or_else(|| panic!("{line}"));
                let is_memory = label.starts_with("resident memory at ") || label.starts_with("- ");
                let list = if is_memory { &mut dump.memory } else { &mut dump.notes };
                list.push((label.trim_end().to_owned(), value.to_owned()));
            }
            None => panic!("a report without an end"),
        }
    }
}

/// Parses a backtrace: `=== backtrace #N === [count/peak: C/P] [size/peak: S/P] [age: A]`, frames, an empty line.
fn backtrace(lines: &mut Lines<'_>) -> Backtrace {
    let head = lines.next().unwrap_or_default();
    let rest = after(head, "=== backtrace #");
    let (number, rest) = rest.split_once(" === [count/peak: ").unwrap_or_else(|| panic!("{head}"));
    let (counts, rest) = rest.split_once("] [size/peak: ").unwrap_or_else(|| panic!("{head}"));
    let (sizes, rest) = rest.split_once("] [age: ").unwrap_or_else(|| panic!("{head}"));
    let age = rest.strip_suffix(']').unwrap_or_else(|| panic!("{head}"));
    let pair = |text: &str| text.split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap_or_default();
    let (counts, sizes) = (pair(counts), pair(sizes));
    let mut frames = Vec::new();
    loop {
        match lines.next() {
            Some("") => break,
            Some(line) => frames.push(frame(line, frames.len())),
            None => panic!("a backtrace without an end"),
        }
    }
    assert!(!frames.is_empty(), "{head}");
    Backtrace {
        number: decimal(number) as usize,
        count: decimal(&counts.0),
        peak_count: decimal(&counts.1),
        bytes: size(&sizes.0),
        peak_bytes: size(&sizes.1),
        age_ns: nanoseconds(age),
        frames,
    }
}

/// Parses a frame: `I [0xADDRESS] SYMBOL +0xBYTES (FILE +0xOFFSET)`, `I [0xADDRESS] (FILE +0xOFFSET)`, or
/// `I [0xADDRESS] ?`. I must be `index`.
fn frame(line: &str, index: usize) -> Line {
    let rest = after(line, &format!("{index} [0x"));
    let (address, rest) = rest.split_once("] ").unwrap_or_else(|| panic!("{line}"));
    assert!(address.len() >= 12, "{line}");
    let mut found = Line { address: hexadecimal(address), symbol: None, from_start: None, module: None };
    if rest == "?" {
        return found;
    }
    let inner = rest.strip_suffix(')').unwrap_or_else(|| panic!("{line}"));
    let (before, offset) = inner.rsplit_once(" +0x").unwrap_or_else(|| panic!("{line}"));
    let (symbol, file) = match before.strip_prefix('(') {
        Some(file) if !file.contains(" +0x") => (None, file),
        _ => {
            let at = before.rfind(" (").unwrap_or_else(|| panic!("{line}"));
            (Some(&before[..at]), &before[at + 2..])
        }
    };
    found.module = Some((file.to_owned(), hexadecimal(offset)));
    if let Some(symbol) = symbol {
        let (name, bytes) = symbol.rsplit_once(" +0x").unwrap_or_else(|| panic!("{line}"));
        found.symbol = Some(name.to_owned());
        found.from_start = Some(hexadecimal(bytes));
    }
    found
}

/// Parses `/proc/PID/maps (NAME)` and returns PID and NAME.
fn subject(text: &str) -> (u32, String) {
    let (pid, name) = after(text, "/proc/").split_once("/maps (").unwrap_or_else(|| panic!("{text}"));
    (decimal(pid) as u32, name.strip_suffix(')').unwrap_or_else(|| panic!("{text}")).to_owned())
}

fn after<'a>(line: &'a str, prefix: &str) -> &'a str {
    line.strip_prefix(prefix).unwrap_or_else(|| panic!("`{line}` does not begin with `{prefix}`"))
}

fn decimal(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("`{text}` is no hexadecimal number"))
}

/// Parses `N.NNN` and returns the number in thousandths.
fn thousandths(text: &str) -> u64 {
    let (whole, fraction) = text.split_once('.').unwrap_or_else(|| panic!("`{text}` has no fraction"));
    assert_eq!(fraction.len(), 3, "`{text}` is not padded");
    decimal(whole) * 1000 + decimal(fraction)
}

/// Parses a size such as `4 bytes`, `1.005 KB`, `2.121 MB` or `3.000 GB`, and returns it in bytes.
fn size(text: &str) -> u64 {
    match text.split_once(' ') {
        Some((number, "bytes")) => decimal(number),
        Some((number, "KB")) => thousandths(number),
        Some((number, "MB")) => thousandths(number) * 1_000,
        Some((number, "GB")) => thousandths(number) * 1_000_000,
        _ => panic!("`{text}` is no size"),
    }
}

fn nanoseconds(text: &str) -> u64 {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        [number, "ns"] => decimal(number),
        [number, "us"] => thousandths(number),
        [number, "ms"] => thousandths(number) * 1_000,
        [number, "secs"] => thousandths(number) * 1_000_000,
        [minutes, "mins", seconds, "secs"] => (decimal(minutes) * 60 + decimal(seconds)) * 1_000_000_000,
        [hours, "hours", minutes, "mins"] => (decimal(hours) * 60 + decimal(minutes)) * 60_000_000_000,
        _ => panic!("`{text}` is no age"),
    }
}

/// The reports in the files `PREFIX.PID.NAME` of the folder: pid, name and text, ordered by pid.
pub fn files(folder: &Folder, prefix: &str) -> Vec<(u32, String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.path()).expect("the folder").flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, name)) = file.strip_prefix(&format!("{prefix}.")).and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        let path: PathBuf = entry.path();
        found.push((decimal(pid) as u32, name.to_owned(), std::fs::read_to_string(path).expect("readable")));
    }
    found.sort();
    found
}
