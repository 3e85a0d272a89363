//! Traces of every kind, and random questions about them, for the engine that browsers have (`crates/viewer`).
//!
//! The oracle is `heaptrack print --view`, which reads a file natively and without an index.
use crate::chance::Chance;
use crate::folder::Folder;
use crate::kde;
use crate::replay::views::VIEWS;
use crate::run::heaptrack;
use crate::targets::{target, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A question, in the words of docs/views.md.
#[derive(Clone, Debug)]
pub struct Asked {
    pub trace: PathBuf,
    pub view: &'static str,
    pub words: Vec<(&'static str, String)>,
    /// The trace to compare with.
    pub base: Option<PathBuf>,
}

const COSTS: [&str; 9] =
    ["peak", "leaked", "live", "allocations", "temporary", "allocated", "deallocations", "kept", "growth"];
const NAMES: [&str; 8] = ["main", "alloc", "std", "function:operator", "module:libc", "/^s/", "file:cpp", "zzz"];

impl Asked {
    /// Some of the questions make no sense, and must be refused by both engines.
    pub fn random(chance: &mut Chance, traces: &[PathBuf]) -> Self {
        let one = |chance: &mut Chance| traces[chance.between(0, traces.len() as u64) as usize].clone();
        let view = VIEWS.get(chance.between(0, VIEWS.len() as u64 + 1) as usize).copied().unwrap_or("stacks");
        let (trace, mut words) = (one(chance), Vec::new());
        let pick = |chance: &mut Chance, list: &[&str]| list[chance.between(0, list.len() as u64) as usize].to_owned();
        let time = |chance: &mut Chance| match chance.between(0, 4) {
            0 => "peak".to_owned(),
            1 => format!("{}ms", chance.between(0, 300)),
            _ => format!("{}%", chance.between(0, 101)),
        };
        match chance.between(0, 4) {
            0 => words.push(("at", time(chance))),
            1 => {
                let (a, b) = (chance.between(0, 101), chance.between(0, 101));
                words.push(("from", format!("{}%", a.min(b))));
                words.push(("to", format!("{}%", a.max(b))));
            }
            2 => words.push(("from", time(chance))),
            _ => {}
        }
        for word in ["include", "exclude"] {
            if chance.between(0, 5) == 0 {
                words.push((word, pick(chance, &NAMES)));
            }
        }
        match chance.between(0, 12) {
            0 => words.push(("thread", chance.between(0, 4).to_string())),
            1 => words.push(("process", format!("#{}", chance.between(0, 2)))),
            2 => words.push(("allocator", "malloc".to_owned())),
            3 => words.push(("size", format!("{}..{}", chance.between(0, 64), chance.between(64, 5000)))),
            4 => words.push(("lifetime", format!("..{}ms", chance.between(0, 50)))),
            5 => words.push(("domain", "custom".to_owned())),
            _ => {}
        }
        Self::add_shape(chance, view, &mut words);
        let base = (view == "diff").then(|| one(chance));
        if base.is_none() && matches!(view, "profile" | "bottom-up" | "flame") && chance.between(0, 4) == 0 {
            words.push(("compare", format!("@{}%", chance.between(0, 101))));
        }
        Asked { trace, view, words, base }
    }

    /// Words about how the answer looks.
    fn add_shape(chance: &mut Chance, view: &str, words: &mut Vec<(&'static str, String)>) {
        let pick = |chance: &mut Chance, list: &[&str]| list[chance.between(0, list.len() as u64) as usize].to_owned();
        let is_tree = matches!(view, "bottom-up" | "top-down" | "flame" | "callers");
        if is_tree || matches!(view, "timeline" | "diff" | "summary") {
            words.push(("cost", pick(chance, &COSTS)));
        }
        if is_tree {
            words.push(("merge", pick(chance, &["function", "line", "module", "namespace"])));
            words.push(("hide", pick(chance, &["all-but-mine", "libc,runtime", "dependency"])));
            words.push(("depth", chance.between(0, 6).to_string()));
        }
        match view {
            "callers" => words.push(("function", pick(chance, &NAMES))),
            "timeline" => {
                words.push(("points", chance.between(1, 200).to_string()));
                words.push(("top", chance.between(0, 12).to_string()));
                words.push(("by", pick(chance, &["blamed", "function", "process", "command"])));
            }
            "summary" | "leaks" | "source" => words.push(("limit", chance.between(0, 30).to_string())),
            _ => {}
        }
    }

    /// What `print` writes, or `None` if it refuses.
    pub fn printed(&self) -> Option<Vec<u8>> {
        let mut command = Command::new(heaptrack());
        command.args(["print", "--view", self.view]);
        for (word, value) in &self.words {
            command.arg(format!("--{word}")).arg(value);
        }
        if let Some(base) = &self.base {
            command.arg("--compare").arg(base);
        }
        let output = command.arg(&self.trace).output().expect("heaptrack");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{self:?}: {} {said}", output.status);
        output.status.success().then_some(output.stdout)
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes at least 20 traces: recorded by this heaptrack and by KDE's, merged, trimmed, cut off, and the formats that
/// `export` writes and imports read.
pub fn traces(folder: &Folder) -> Vec<PathBuf> {
    let file = |name: &str| folder.join(&format!("{name}.htz"));
    let mut all = vec![workspace().join("crates/format/tests/data/v1.htz")];
    for (name, options, program, arguments) in [
        ("orders", &[][..], "orders", &["6"][..]),
        ("longer", &[], "orders", &["9"]),
        ("screens", &["--memory-every", "20ms"], "screens", &["after"]),
        ("screens-before", &["--memory-every", "20ms"], "screens", &[]),
        ("names", &[], "own_names", &[]),
        ("exported", &[], "exported", &[]),
        ("hooks", &[], "hooks", &[]),
        ("pool", &[], "pool", &["3000"]),
        ("followed", &["--follow"], "family", &["3", "2", "2"]),
    ] {
        let mut command = Command::new(heaptrack());
        command.args(["-q", "-o"]).arg(file(name)).args(options).arg("--").arg(target(program)).args(arguments);
        run(command.current_dir(folder.path()));
        all.push(file(name));
    }
    let ours = |words: &[&str], files: &[PathBuf], out: &Path| {
        run(Command::new(heaptrack()).args(words).args(files).arg("-o").arg(out));
    };
    for (name, words, files) in [
        ("tree", &["merge"][..], &["orders", "screens", "names"][..]),
        ("part", &["trim", "--from", "20%", "--to", "70%"], &["orders"]),
    ] {
        let files: Vec<PathBuf> = files.iter().map(|name| file(name)).collect();
        ours(words, &files, &file(name));
        all.push(file(name));
    }
    let whole = std::fs::read(file("orders")).expect("the trace");
    std::fs::write(file("cut"), &whole[..whole.len() * 2 / 3]).expect("a part of the trace");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x55;
    std::fs::write(file("damaged"), damaged).expect("a damaged trace");
    all.extend([file("cut"), file("damaged")]);
    for (name, format) in [("orders", "heaptrack"), ("screens", "heaptrack"), ("orders", "pprof"), ("longer", "dhat")] {
        let out = folder.join(&format!("{name}.{format}"));
        ours(&["export", "--to", format], &[file(name)], &out);
        all.push(out);
    }
    for (name, format) in [("orders", "massif"), ("exported", "gperftools"), ("names", "dhat"), ("screens", "pprof")] {
        let out = folder.join(&format!("{name}.{format}"));
        ours(&["export", "--to", format], &[file(name)], &out);
        all.push(out);
    }
    // It has addresses and no names. `print` would look them up in the object files, which a browser does not have.
    let addresses = folder.join("exported.gperftools");
    let text = std::fs::read_to_string(&addresses).expect("a text");
    std::fs::write(&addresses, text.replace(" /", " /not-here/")).expect("the same without object files");
    let program = target("exported");
    all.push(kde::record(folder, &[], &[program.to_str().expect("a path")]));
    all
}
