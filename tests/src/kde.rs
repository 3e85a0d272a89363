//! Compares KDE's `heaptrack_print` with our `print` on the same file.
//!
//! Both outputs are converted to one form: totals, and the entries of each of the four lists. Where KDE is wrong
//! (docs/kde.md), our answer is changed to the same mistake, so that everything else is compared exactly.
use crate::folder::Folder;
use crate::run::heaptrack;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// KDE's readers do not show the callers of these functions.
const OUTERMOST: [&str; 3] = ["main", "__libc_start_main", "__static_initialization_and_destruction_0"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    Allocations,
    Peak,
    Leaked,
    Temporary,
}

pub const COSTS: [Cost; 4] = [Cost::Allocations, Cost::Peak, Cost::Leaked, Cost::Temporary];

impl Cost {
    pub const fn name(self) -> &'static str {
        match self {
            Cost::Allocations => "allocations",
            Cost::Peak => "peak",
            Cost::Leaked => "leaked",
            Cost::Temporary => "temporary",
        }
    }

    const fn heading(self) -> &'static str {
        match self {
            Cost::Allocations => "MOST CALLS TO ALLOCATION FUNCTIONS",
            Cost::Peak => "PEAK MEMORY CONSUMERS",
            Cost::Leaked => "MEMORY LEAKS",
            Cost::Temporary => "MOST TEMPORARY ALLOCATIONS",
        }
    }

    const fn field(self) -> &'static str {
        match self {
            Cost::Allocations => "allocations",
            Cost::Peak => "peak_bytes",
            Cost::Leaked => "leaked_bytes",
            Cost::Temporary => "temporary",
        }
    }
}

/// What a reader prints about a file.
#[derive(Debug, Default, PartialEq)]
pub struct Said {
    /// Lines such as `calls to allocation functions: 12`, without rates.
    pub totals: Vec<String>,
    /// For each cost, the label and the lines of each entry, in order.
    pub lists: BTreeMap<Cost, Vec<(String, Vec<String>)>>,
    /// For each cost, KDE's folded lines, sorted, without those whose cost is 0.
    pub folded: BTreeMap<Cost, Vec<String>>,
}

/// What both readers print about one file.
pub struct Agreed {
    pub said: Said,
    /// For each cost, what our `export --to folded` must write, sorted.
    pub right_folded: BTreeMap<Cost, Vec<String>>,
}

/// Runs `heaptrack_print` on the file.
pub fn theirs(file: &Path) -> Said {
    let folder = Folder::new();
    let mut said = Said::default();
    for cost in COSTS {
        let folded = folder.join(cost.name());
        let mut command = Command::new("heaptrack_print");
        let lists = if said.lists.is_empty() { "1" } else { "0" };
        command.args(["-m", "0", "-t", "0", "-n", "1000000", "-l", lists, "-p", lists, "-a", lists, "-T", lists]);
        command.args(["--disable-builtin-suppressions", "--flamegraph-cost-type", cost.name(), "-F"]);
        let output = command.arg(&folded).arg("-f").arg(file).output().expect("heaptrack_print");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if said.lists.is_empty() {
            parse(&String::from_utf8_lossy(&output.stdout), &mut said);
        }
        let lines = std::fs::read_to_string(folded).expect("the folded file");
        let mut lines: Vec<String> = lines.lines().filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect();
        lines.sort();
        said.folded.insert(cost, lines);
    }
    said
}

fn parse(text: &str, said: &mut Said) {
    let mut list: Option<Cost> = None;
    for line in text.lines() {
        if let Some(cost) = COSTS.into_iter().find(|cost| line == cost.heading()) {
            list = Some(cost);
            said.lists.insert(cost, Vec::new());
        } else if line.starts_with("total runtime: ") || line.contains(": ") && list.is_none() {
            list = None;
            let line = line.replace(" (including heaptrack overhead)", "");
            said.totals.push(line.split(" (").next().unwrap_or(&line).trim_end_matches('.').to_owned());
        } else if let Some(entries) = list.and_then(|cost| said.lists.get_mut(&cost)) {
            match entries.last_mut() {
                Some(entry) if line.starts_with(' ') => entry.1.push(line.trim_start().to_owned()),
                _ if line.ends_with(" from") => entries.push((line.to_owned(), Vec::new())),
                _ => assert_eq!(line, "", "a line of no entry"),
            }
        }
    }
    said.totals.retain(|line| !line.starts_with("reading file") && !line.starts_with("Debuggee"));
}

fn json(file: &Path) -> Value {
    let output =
        Command::new(heaptrack()).args(["print", "--json", "--no-suppressions"]).arg(file).output().expect("heaptrack");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs our `print --json` on the file and returns the result in KDE's form.
pub fn ours(file: &Path) -> Said {
    in_their_words(&json(file))
}

fn in_their_words(json: &Value) -> Said {
    let total = |name: &str| json["totals"][name].as_u64().unwrap_or_else(|| panic!("no total {name}"));
    let totals = vec![
        format!("total runtime: {:.2}s", total("runtime_ns") as f64 / 1e9),
        format!("calls to allocation functions: {}", total("allocations")),
        format!("temporary memory allocations: {}", total("temporary")),
        format!("peak heap memory consumption: {}", bytes(total("peak_bytes"))),
        format!("peak RSS: {}", bytes(total("peak_rss_bytes"))),
        format!("total memory leaked: {}", bytes(total("leaked_bytes"))),
    ];
    let mut said = Said { totals, ..Said::default() };
    // Every stack made an allocation, so this list contains every stack with all its costs.
    let sites = json["allocations"].as_array().expect("a list");
    for cost in COSTS {
        let value = |site: &Value| site[cost.field()].as_u64().expect("a cost");
        let mut sites: Vec<&Value> = sites.iter().filter(|site| value(site) > 0).collect();
        sites.sort_by_key(|site| std::cmp::Reverse(value(site)));
        said.lists.insert(cost, sites.iter().map(|site| (label(cost, site), lines(site))).collect());
        let mut folded: Vec<String> =
            sites.iter().map(|site| format!("{} {}", kde_folded(site), value(site))).collect();
        folded.sort();
        said.folded.insert(cost, folded);
    }
    said
}

/// What our `export --to folded` must write according to our JSON, sorted.
fn right_folded(json: &Value, cost: Cost) -> Vec<String> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for site in json["allocations"].as_array().expect("a list") {
        let mut names = Vec::new();
        for frame in site["frames"].as_array().expect("frames") {
            names.push(name(frame));
            if OUTERMOST.contains(&frame["function"].as_str().unwrap_or_default()) {
                break;
            }
        }
        if names.is_empty() {
            names.push("??".into());
        }
        names.reverse();
        *sums.entry(names.join(";")).or_default() += site[cost.field()].as_u64().expect("a cost");
    }
    let rows = sums.iter().filter(|(_, sum)| **sum > 0);
    let mut lines: Vec<String> = rows.map(|(stack, sum)| format!("{stack} {sum}")).collect();
    lines.sort();
    lines
}

pub fn folded_by_export(file: &Path, cost: Cost) -> Vec<String> {
    let mut command = Command::new(heaptrack());
    // Known leaks are included, because the JSON that this is compared with counts all live blocks as leaked.
    command.args(["export", "--to", "folded", "--no-suppressions", "--cost", cost.name()]);
    let output = command.arg(file).output().expect("heaptrack");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The frames of an entry grouped by instruction pointer, innermost first. Each group has its functions, innermost
/// first.
fn pointers(site: &Value) -> Vec<Vec<&Value>> {
    let mut pointers: Vec<Vec<&Value>> = Vec::new();
    let mut is_open = false;
    for frame in site["frames"].as_array().expect("frames") {
        match pointers.last_mut().filter(|_| is_open) {
            Some(pointer) => pointer.push(frame),
            None => pointers.push(vec![frame]),
        }
        is_open = frame["inlined"] == Value::Bool(true);
    }
    // KDE checks only the innermost function of an instruction pointer.
    let is_last = |pointer: &Vec<&Value>| OUTERMOST.contains(&pointer[0]["function"].as_str().unwrap_or_default());
    let count = pointers.iter().position(is_last).map_or(pointers.len(), |at| at + 1);
    pointers.truncate(count);
    pointers
}

fn lines(site: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for pointer in pointers(site) {
        for (at, frame) in pointer.iter().enumerate() {
            lines.push(function(frame));
            if let Some(file) = frame["file"].as_str() {
                lines.push(format!("at {file}:{}", frame["line"].as_u64().unwrap_or(0)));
            }
            if at == 0 {
                lines.push(format!("in {}", frame["module"].as_str().unwrap_or("??")));
            }
        }
    }
    if lines.is_empty() {
        lines.push("??".into());
    }
    lines
}

fn function(frame: &Value) -> String {
    match frame["function"].as_str() {
        Some(function) => function.to_owned(),
        None => format!("0x{:x}", frame["offset"].as_u64().unwrap_or(0)),
    }
}

fn name(frame: &Value) -> String {
    let function = function(frame);
    let name = match frame["file"].as_str() {
        Some(file) => format!("{function} ({})", file.rsplit('/').next().unwrap_or(file)),
        None => function,
    };
    name.replace(';', ":")
}

/// A folded line as KDE writes it. The outermost instruction pointer comes first, but the functions of a pointer are
/// innermost first, and the line ends with `;`.
fn kde_folded(site: &Value) -> String {
    let mut line = String::new();
    for pointer in pointers(site).iter().rev() {
        for frame in pointer {
            line += &name(frame);
            line.push(';');
        }
    }
    if line.is_empty() { "??".into() } else { line }
}

fn label(cost: Cost, site: &Value) -> String {
    let number = |name: &str| site[name].as_u64().expect("a cost");
    let calls = number("allocations");
    let peak = bytes(number("peak_bytes"));
    match cost {
        Cost::Allocations => format!("{calls} calls to allocation functions with {peak} peak consumption from"),
        Cost::Peak => format!("{peak} peak memory consumed over {calls} calls from"),
        Cost::Leaked => format!("{} leaked over {calls} calls from", bytes(number("leaked_bytes"))),
        Cost::Temporary => {
            let temporary = number("temporary");
            let share = temporary as f64 * 100.0 / calls as f64;
            format!("{temporary} temporary allocations of {calls} allocations in total ({share:.2}%) from")
        }
    }
}

/// Formats a size as KDE does: powers of 1000, two decimals, the first letter of the unit.
fn bytes(value: u64) -> String {
    let (mut number, mut units) = (value as f64, "BKMGT".chars());
    let mut unit = units.next();
    while number > 1000.0 {
        number /= 1000.0;
        unit = units.next();
    }
    match unit {
        Some('B') => format!("{value}B"),
        Some(unit) => format!("{number:.2}{unit}"),
        None => panic!("{value} bytes"),
    }
}

/// Asserts that both readers print the same about a file, and returns what they print.
pub fn assert_agree(file: &Path) -> Agreed {
    let json = json(file);
    let (theirs, ours) = (theirs(file), in_their_words(&json));
    assert_eq!(ours.totals, theirs.totals, "totals of {}", file.display());
    for cost in COSTS {
        let (ours, theirs) = (&ours.lists[&cost], &theirs.lists[&cost]);
        let labels = |list: &[(String, Vec<String>)]| list.iter().map(|entry| rank(&entry.0)).collect::<Vec<_>>();
        assert_eq!(labels(ours), labels(theirs), "order of {cost:?} of {}", file.display());
        let sorted = |list: &[(String, Vec<String>)]| {
            let mut list = list.to_vec();
            list.sort();
            list
        };
        for (ours, theirs) in sorted(ours).iter().zip(&sorted(theirs)) {
            assert_eq!(ours, theirs, "an entry of {cost:?} of {}", file.display());
        }
    }
    assert_eq!(ours.folded, theirs.folded, "folded stacks of {}", file.display());
    Agreed { said: ours, right_folded: COSTS.into_iter().map(|cost| (cost, right_folded(&json, cost))).collect() }
}

/// The value by which an entry is sorted, as it is shown.
fn rank(label: &str) -> String {
    label.split(' ').next().unwrap_or(label).to_owned()
}

/// Records with KDE's heaptrack. Returns the file that it wrote.
pub fn record(folder: &Folder, options: &[&str], program: &[&str]) -> PathBuf {
    let mut command = Command::new("/usr/bin/heaptrack");
    command.args(options).arg("-o").arg(folder.join("kde")).args(program).current_dir(folder.path());
    let output = command.output().expect("KDE's heaptrack");
    let made = folder.names().into_iter().find(|name| name.starts_with("kde."));
    let made = made.unwrap_or_else(|| panic!("no file: {}", String::from_utf8_lossy(&output.stderr)));
    folder.join(&made)
}
