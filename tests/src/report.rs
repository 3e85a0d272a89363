//! The output of `heaptrack print --json`.
use crate::run::heaptrack;
use format::{Block, Module, Reader};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules of a trace.
pub fn modules(trace: &Path) -> Vec<Module> {
    let mut reader = Reader::new(std::fs::File::open(trace).expect("a trace")).expect("a trace");
    let mut modules = Vec::new();
    while let Some(block) = reader.next_block().expect("a whole trace") {
        if let Block::Modules(more) = block.decode().expect("a whole trace") {
            modules.extend(more);
        }
    }
    modules
}

/// Asserts that the modules of a trace do not overlap. Only for programs that unload no library.
pub fn assert_modules_apart(trace: &Path) {
    let mut modules = modules(trace);
    modules.sort_by_key(|module| module.start);
    for pair in modules.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{:?} is in the place of {:?}", pair[0], pair[1]);
    }
}

pub struct Report {
    json: Value,
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// `None` for code outside of any file.
    pub module: Option<PathBuf>,
    /// The address in the file, or in memory if there is no module; 0 for a marker.
    pub offset: u64,
}

impl Frame {
    /// True if the frame stands for missing frames.
    pub fn is_marker(&self) -> bool {
        self.module.is_none() && self.offset == 0
    }
}

/// One entry of a list: a stack and its costs.
#[derive(Clone, Debug)]
pub struct Site {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub temporary: u64,
    pub leaked_allocations: u64,
    pub leaked_bytes: u64,
    pub peak_allocations: u64,
    pub peak_bytes: u64,
    pub frames: Vec<Frame>,
}

impl Report {
    pub fn of(trace: &Path) -> Self {
        Self::try_of(trace).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the message of `print` if it fails.
    pub fn try_of(trace: &Path) -> Result<Self, String> {
        // Known leaks are included, because other tools count them, too.
        let options = ["print", "--json", "--no-suppressions"].map(AsRef::as_ref);
        print_json(&[&options[..], &[trace.as_os_str()]].concat()).map(|json| Report { json })
    }

    /// The frames of the n-th allocation of the trace, from 1, and the tid of its thread.
    pub fn event(trace: &Path, number: u64) -> (u64, Vec<Frame>) {
        let number = number.to_string();
        let json =
            print_json(&["print".as_ref(), "--event".as_ref(), number.as_ref(), "--json".as_ref(), trace.as_os_str()])
                .unwrap_or_else(|error| panic!("{error}"));
        (json["tid"].as_u64().unwrap_or(0), frames(&json["frames"]))
    }

    pub fn json(&self) -> &Value {
        &self.json
    }

    pub fn complete(&self) -> bool {
        self.json["complete"].as_bool().unwrap_or_else(|| panic!("no `complete`"))
    }

    pub fn total(&self, name: &str) -> u64 {
        self.json["totals"][name].as_u64().unwrap_or_else(|| panic!("no total `{name}`: {}", self.json["totals"]))
    }

    /// The number of the program's allocations and frees that were recorded, and of those that were lost.
    ///
    /// If the allocation of a block was lost, its free is counted as unknown. If the free was lost, an implied free is
    /// counted when the address is allocated again. An implied free is not a call of the program.
    pub fn seen_and_lost(&self) -> (u64, u64) {
        let matched = self.total("allocations") + self.total("deallocations") - self.total("implied_frees");
        (matched + self.total("unknown_frees"), self.total("lost_events"))
    }

    /// The sentence about what is missing in the trace.
    pub fn note(&self) -> Option<&str> {
        self.json["losses"]["note"].as_str()
    }

    /// Every stack that made an allocation.
    pub fn sites(&self) -> Vec<Site> {
        self.list("allocations")
    }

    /// Returns one of the lists `peak`, `leaked`, `allocations` and `temporary`.
    pub fn list(&self, name: &str) -> Vec<Site> {
        self.json[name].as_array().unwrap_or_else(|| panic!("no list `{name}`")).iter().map(site).collect()
    }

    /// The sites whose leaf is in `module`. These are the program's own calls, without those that libc makes for it.
    pub fn own(&self, module: impl AsRef<Path>) -> Vec<Site> {
        let module = real(module.as_ref());
        self.sites().into_iter().filter(|site| site.leaf_module() == Some(&module)).collect()
    }

    /// The number of blocks that `main` itself allocated and that were not freed.
    pub fn left_by_main(&self) -> u64 {
        let by_main = |site: &&Value| site["frames"][0]["function"] == "main";
        let sites = self.json["leaked"].as_array().into_iter().flatten().filter(by_main);
        sites.filter_map(|site| site["leaked_allocations"].as_u64()).sum()
    }

    /// The sum of all sites that requested only blocks of `bytes`. All numbers are 0 if there is none.
    pub fn of_size(&self, bytes: u64) -> Site {
        let same = |site: &Site| site.allocations > 0 && site.allocated_bytes == site.allocations * bytes;
        sum(self.sites().iter().filter(|site| same(site)))
    }

    /// The number of blocks of `bytes` that were allocated, and the number of these that were never freed.
    pub fn counts(&self, bytes: u64) -> (u64, u64) {
        let blocks = self.of_size(bytes);
        (blocks.allocations, blocks.leaked_allocations)
    }

    /// The entries of the JSON list `allocations` that requested only blocks of `bytes`, with all their fields.
    pub fn entries_of_size(&self, bytes: u64) -> Vec<&Value> {
        let number =
            |entry: &Value, name: &str| entry[name].as_u64().unwrap_or_else(|| panic!("no `{name}` in {entry}"));
        let is_it = |entry: &&Value| number(entry, "allocated_bytes") == number(entry, "allocations") * bytes;
        self.json["allocations"].as_array().expect("a list of allocations").iter().filter(is_it).collect()
    }
}

/// Adds up the costs of sites. The frames are those of the first site.
pub fn sum<'a>(sites: impl IntoIterator<Item = &'a Site>) -> Site {
    let mut sites = sites.into_iter();
    let mut total = sites.next().cloned().unwrap_or(Site {
        allocations: 0,
        allocated_bytes: 0,
        temporary: 0,
        leaked_allocations: 0,
        leaked_bytes: 0,
        peak_allocations: 0,
        peak_bytes: 0,
        frames: Vec::new(),
    });
    for site in sites {
        total.allocations += site.allocations;
        total.allocated_bytes += site.allocated_bytes;
        total.temporary += site.temporary;
        total.leaked_allocations += site.leaked_allocations;
        total.leaked_bytes += site.leaked_bytes;
        total.peak_allocations += site.peak_allocations;
        total.peak_bytes += site.peak_bytes;
    }
    total
}

impl Site {
    pub fn leaf_module(&self) -> Option<&PathBuf> {
        self.frames.first().and_then(|frame| frame.module.as_ref())
    }

    pub fn freed(&self) -> u64 {
        self.allocations - self.leaked_allocations
    }
}

fn print_json(arguments: &[&std::ffi::OsStr]) -> Result<Value, String> {
    let output = Command::new(heaptrack()).args(arguments).output().expect("heaptrack can be run");
    if !output.status.success() {
        return Err(format!("print {arguments:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("print {arguments:?}: not JSON: {error}"))
}

fn site(entry: &Value) -> Site {
    let number = |name: &str| entry[name].as_u64().unwrap_or_else(|| panic!("no `{name}` in {entry}"));
    Site {
        allocations: number("allocations"),
        allocated_bytes: number("allocated_bytes"),
        temporary: number("temporary"),
        leaked_allocations: number("leaked_allocations"),
        leaked_bytes: number("leaked_bytes"),
        peak_allocations: number("peak_allocations"),
        peak_bytes: number("peak_bytes"),
        frames: frames(&entry["frames"]),
    }
}

fn frames(list: &Value) -> Vec<Frame> {
    let frame = |value: &Value| Frame {
        module: value["module"].as_str().map(|path| real(Path::new(path))),
        offset: value["offset"].as_u64().unwrap_or(0),
    };
    // An inlined function is a level of its own. The frame that contains it follows.
    let has_frame = |value: &&Value| value["inlined"] != Value::Bool(true);
    list.as_array().unwrap_or_else(|| panic!("no frames: {list}")).iter().filter(has_frame).map(frame).collect()
}

/// Returns the canonical path, or the path itself if there is no such file. On Debian, /lib and /usr/lib are one
/// folder, and the loader and the kernel call it by different names.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
