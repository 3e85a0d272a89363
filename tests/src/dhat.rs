//! Valgrind's DHAT as the oracle for totals. It has other hooks, an emulated machine and other authors.
use crate::run::Program;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

/// DHAT's counts for the whole program or for one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counts {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub peak_allocations: u64,
    pub peak_bytes: u64,
    pub leaked_allocations: u64,
    pub leaked_bytes: u64,
}

pub struct Dhat {
    pub total: Counts,
    /// The counts of each program point, sorted.
    pub sites: Vec<Counts>,
    pub stdout: String,
}

/// Runs the program under DHAT.
pub fn run(program: &Program) -> Dhat {
    run_with(program, "")
}

/// Runs the program under DHAT, with `input` as its stdin.
pub fn run_with(program: &Program, input: &str) -> Dhat {
    let folder = crate::folder::Folder::new();
    let file = folder.join("dhat.json");
    let mut command = Command::new("valgrind");
    program.settings(&mut command);
    command
        // The freeres passes would free libc's own blocks at the end, which no ordinary run does.
        .args(["-q", "--tool=dhat", "--run-libc-freeres=no", "--run-cxx-freeres=no", "--num-callers=200"])
        .arg(format!("--dhat-out-file={}", file.display()))
        .arg(&program.path)
        .args(&program.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("valgrind");
    // stdin is a pipe, as in the other runs of the zoo, because programs read a file in other pieces than a pipe. The
    // program may end without reading.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("valgrind");
    assert!(output.status.success(), "valgrind: {}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(&file).expect("DHAT's file")).expect("DHAT's JSON");
    let mut sites: Vec<Counts> = json["pps"].as_array().expect("program points").iter().map(counts).collect();
    sites.sort();
    let total = sites.iter().fold(Counts::default(), |sum, site| sum.plus(site));
    Dhat { total, sites, stdout: String::from_utf8_lossy(&output.stdout).into_owned() }
}

/// A program of a tree.
pub struct One {
    pub command: Vec<String>,
    pub counts: Counts,
    /// The blocks that a function allocated, or what it called.
    pub blocks_of_function: u64,
}

/// Runs the program under DHAT with everything that it starts. Returns for each program the words of its command, and its counts.
pub fn run_tree(program: &Program) -> Vec<(Vec<String>, Counts)> {
    run_tree_with(program, "").into_iter().map(|one| (one.command, one.counts)).collect()
}

/// The same, with the blocks of one function.
pub fn run_tree_with(program: &Program, function: &str) -> Vec<One> {
    let folder = crate::folder::Folder::new();
    let mut command = Command::new("valgrind");
    program.settings(&mut command);
    let output = command
        .args(["-q", "--tool=dhat", "--trace-children=yes", "--run-libc-freeres=no", "--run-cxx-freeres=no"])
        .arg(format!("--dhat-out-file={}", folder.join("%p.json").display()))
        .arg(&program.path)
        .args(&program.arguments)
        .output()
        .expect("valgrind");
    assert!(output.status.success(), "valgrind: {}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &String| {
        let json: Value =
            serde_json::from_slice(&std::fs::read(folder.join(name)).expect("DHAT's file")).expect("JSON");
        let points = json["pps"].as_array().expect("program points");
        let frames = json["ftbl"].as_array().expect("frames");
        let is_of_function = |point: &&Value| {
            let mut indexes = point["fs"].as_array().expect("a stack").iter().filter_map(Value::as_u64);
            // 0x1234: name (file)
            indexes.any(|at| frames[at as usize].as_str().and_then(|text| text.split(' ').nth(1)) == Some(function))
        };
        One {
            command: json["cmd"].as_str().expect("a command").split(' ').map(str::to_owned).collect(),
            counts: points.iter().map(counts).fold(Counts::default(), |sum, point| sum.plus(&point)),
            blocks_of_function: points.iter().filter(is_of_function).map(|point| counts(point).allocations).sum(),
        }
    };
    folder.names().iter().map(read).collect()
}

fn counts(point: &Value) -> Counts {
    let number = |name: &str| point[name].as_u64().unwrap_or_else(|| panic!("no {name} in {point}"));
    // In total, at the global maximum, and at the end: the number of blocks, then their bytes.
    let [allocations, allocated_bytes] = ["tbk", "tb"].map(number);
    let [peak_allocations, peak_bytes] = ["gbk", "gb"].map(number);
    let [leaked_allocations, leaked_bytes] = ["ebk", "eb"].map(number);
    Counts { allocations, allocated_bytes, peak_allocations, peak_bytes, leaked_allocations, leaked_bytes }
}

impl Counts {
    fn plus(&self, other: &Counts) -> Counts {
        Counts {
            allocations: self.allocations + other.allocations,
            allocated_bytes: self.allocated_bytes + other.allocated_bytes,
            peak_allocations: self.peak_allocations + other.peak_allocations,
            peak_bytes: self.peak_bytes + other.peak_bytes,
            leaked_allocations: self.leaked_allocations + other.leaked_allocations,
            leaked_bytes: self.leaked_bytes + other.leaked_bytes,
        }
    }

    /// The totals of a process of a tree.
    pub fn of_totals(totals: &format::Totals) -> Counts {
        Counts {
            allocations: totals.allocations,
            allocated_bytes: totals.allocated_bytes,
            peak_allocations: totals.peak_allocations,
            peak_bytes: totals.peak_bytes,
            leaked_allocations: totals.leaked_allocations,
            leaked_bytes: totals.leaked_bytes,
        }
    }

    /// The totals of a report of heaptrack.
    pub fn of_report(report: &crate::Report) -> Counts {
        Counts {
            allocations: report.total("allocations"),
            allocated_bytes: report.total("allocated_bytes"),
            peak_allocations: report.total("peak_allocations"),
            peak_bytes: report.total("peak_bytes"),
            leaked_allocations: report.total("leaked_allocations"),
            leaked_bytes: report.total("leaked_bytes"),
        }
    }

    pub fn of_site(site: &crate::Site) -> Counts {
        Counts {
            allocations: site.allocations,
            allocated_bytes: site.allocated_bytes,
            peak_allocations: site.peak_allocations,
            peak_bytes: site.peak_bytes,
            leaked_allocations: site.leaked_allocations,
            leaked_bytes: site.leaked_bytes,
        }
    }
}
