//! Shared by the tests of this crate: folders, tools, llvm's answers, and the comparison with ours.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout, reason = "each test uses its own part")]
pub use fastrand::Rng;
use format::Module;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::Hasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
pub use symbols::Search;
use symbols::{Finder, Resolver, Store};

pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("heaptrack-symbols.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles `tests/data/program.cpp`, once for each set of flags, because templates take long.
    pub fn build(&self, name: &str, flags: &[&str]) -> PathBuf {
        let path = self.join(name);
        if flags.contains(&"-gsplit-dwarf") {
            // The compiler writes split parts to its working folder, so it runs in this folder.
            compile(&self.0, &path, flags);
            return path;
        }
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(&std::fs::read(source()).unwrap());
        flags.iter().for_each(|flag| hasher.write(flag.as_bytes()));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let built = folder.join(format!("program.{:016x}", hasher.finish()));
        if !built.exists() {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let unfinished = built.with_extension(format!("{}.{number}.tmp", std::process::id()));
            compile(folder, &unfinished, flags);
            std::fs::rename(unfinished, &built).unwrap();
        }
        std::fs::copy(built, &path).unwrap();
        path
    }

    /// Writes a copy of the program whose debug information `dwz` made smaller.
    pub fn dwz(&self, program: &Path) -> PathBuf {
        let small = self.join("small");
        run("dwz", &[program.as_os_str(), "-o".as_ref(), small.as_os_str()]);
        small
    }
}

pub fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/program.cpp")
}

fn compile(folder: &Path, path: &Path, flags: &[&str]) {
    let mut command = Command::new("g++");
    command.current_dir(folder).args(["-std=c++17", "-O2", "-g", "-Wl,--build-id"]).args(flags);
    let output = command.arg(source()).arg("-o").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

pub fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> String {
    let output = Command::new(program.as_ref()).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?} {arguments:?}: {errors}", program.as_ref());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn readelf(flags: &[&str], path: &Path) -> String {
    let mut words: Vec<&OsStr> = vec!["-W".as_ref()];
    words.extend(flags.iter().map(OsStr::new));
    words.push(path.as_os_str());
    run("readelf", &words)
}

pub fn sections(path: &Path) -> String {
    readelf(&["-S"], path)
}

pub fn which(name: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed; tests/setup.sh does that")).canonicalize().unwrap()
}

pub fn build_id(path: &Path) -> Vec<u8> {
    let notes = readelf(&["-n"], path);
    let Some(line) = notes.lines().find_map(|line| line.split("Build ID: ").nth(1)) else { return Vec::new() };
    line.trim()
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The path at which Debian installs the debug information of a file.
pub fn debug_file_of(path: &Path) -> PathBuf {
    let id: String = build_id(path).iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    assert!(path.exists(), "{} is not there; tests/setup.sh installs debug packages", path.display());
    path
}

pub fn module(path: &Path) -> Module {
    Module { instance: 1, path: path.to_string_lossy().into_owned(), build_id: build_id(path), ..Module::default() }
}

pub fn seed() -> u64 {
    let given = std::env::var("HEAPTRACK_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    println!("HEAPTRACK_SEED={seed}");
    seed
}

pub fn soak() -> bool {
    std::env::var_os("HEAPTRACK_SOAK").is_some_and(|value| value == "1")
}

/// Random addresses in `.text`.
pub fn addresses(path: &Path) -> Vec<u64> {
    let list = sections(path);
    let line = list.lines().find(|line| line.contains(" .text ")).unwrap();
    let fields: Vec<&str> = line.split(" .text ").nth(1).unwrap().split_whitespace().collect();
    let number = |at: usize| u64::from_str_radix(fields[at], 16).unwrap();
    let (start, size) = (number(1), number(3));
    let mut rng = Rng::with_seed(seed());
    (0..if soak() { 10_000 } else { 1_000 }).map(|_| start + rng.u64(..size)).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub function: String,
    pub file: String,
    pub line: u64,
}

/// Name -> the addresses of the symbols with this name.
pub type Aliases = HashMap<String, HashSet<u64>>;
pub type Answers = BTreeMap<u64, Vec<Told>>;

/// llvm-symbolizer's frames, innermost first, with the linker's names.
pub fn ask_llvm(path: &Path, addresses: &[u64]) -> Answers {
    let mut command = Command::new("llvm-symbolizer");
    command.args(["--output-style=JSON", "--no-demangle", "--inlines"]).arg(format!("--obj={}", path.display()));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String = addresses.iter().map(|address| format!("0x{address:x}\n")).collect();
    let feeder = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut answers = Answers::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let value: Value = serde_json::from_str(line).unwrap();
        let address = value["Address"].as_str().unwrap();
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
        let told = |symbol: &Value| Told {
            function: without_clones(symbol["FunctionName"].as_str().unwrap_or_default()),
            file: tidy(symbol["FileName"].as_str().unwrap_or_default()),
            line: symbol["Line"].as_u64().unwrap_or(0),
        };
        let list = value["Symbol"].as_array().unwrap_or_else(|| panic!("{value}"));
        answers.insert(address, list.iter().map(told).collect());
    }
    let distinct: HashSet<&u64> = addresses.iter().collect();
    assert_eq!(answers.len(), distinct.len(), "llvm-symbolizer answered everything");
    answers
}

/// Our answers, in the same form as those of `ask_llvm`.
pub fn ask_us(path: &Path, search: &Search, addresses: impl Iterator<Item = u64>) -> Answers {
    let store = Store::new();
    const EXACT: u64 = 1 << 47;
    let keys: Vec<u64> = addresses.map(|address| address | EXACT).collect();
    let mut resolver = Resolver::open(&store, &module(path), Finder { search, target: None }, &keys);
    println!("{:?}", resolver.state());
    let mut answers = Answers::new();
    for key in keys {
        let (address, frames) = (key & !EXACT, resolver.frames(key));
        let count = frames.len();
        for (at, frame) in frames.iter().enumerate() {
            assert_eq!(frame.inlined, at + 1 < count, "all but the last are inlined");
        }
        let told = frames.iter().map(|frame| Told {
            function: frame.name.as_ref().map(|name| without_clones(&name.raw)).unwrap_or_default(),
            file: frame.file.as_deref().map(tidy).unwrap_or_default(),
            line: frame.line.unwrap_or(0) as u64,
        });
        answers.insert(address, told.collect());
    }
    answers
}

pub fn compare(path: &Path, for_llvm: &Path, search: &Search) {
    let answers = ask_llvm(for_llvm, &addresses(path));
    compare_with(path, &answers, for_llvm, search);
}

/// Compares our answers with those of `llvm`. The symbol table of `names` tells which names mean the same function.
pub fn compare_with(path: &Path, llvm: &Answers, names: &Path, search: &Search) {
    let ours = ask_us(path, search, llvm.keys().copied());
    let (aliases, labels) = (aliases(names), labels(names));
    let mut rules: BTreeMap<&str, u64> = BTreeMap::new();
    let mut unexplained = Vec::new();
    let mut named = 0;
    for (address, theirs) in llvm {
        let our = &ours[address];
        named += u64::from(our.iter().any(|frame| !frame.function.is_empty()));
        if same(our, theirs, &aliases) {
            continue;
        }
        match rule(our, theirs, &labels) {
            Some(name) => *rules.entry(name).or_default() += 1,
            None => unexplained.push(format!("{address:#x}\n  ours {our:?}\n  llvm {theirs:?}")),
        }
    }
    let different = unexplained.len() as u64 + rules.values().sum::<u64>();
    let total = llvm.len() as u64;
    println!("{}: {total} addresses, {named} named, {different} different: {rules:?}", path.display());
    assert!(
        unexplained.is_empty(),
        "{} without a rule:\n{}",
        unexplained.len(),
        unexplained[..unexplained.len().min(12)].join("\n")
    );
    assert!(different * 200 <= total, "{different} of {total} differ: {rules:?}");
    assert!(named * 2 > total, "only {named} of {total} have a name");
}

fn same(ours: &[Told], theirs: &[Told], aliases: &Aliases) -> bool {
    let nothing = Told { function: String::new(), file: String::new(), line: 0 };
    if ours.is_empty() {
        return theirs.iter().all(|frame| *frame == nothing);
    }
    ours.len() == theirs.len()
        && ours.iter().zip(theirs).all(|(our, their)| {
            same_file(&our.file, &their.file) && our.line == their.line && same_function(our, their, aliases)
        })
}

/// Whether two paths mean the same file. llvm prepends a relative compilation folder to a path that already has it:
/// `libio/libio/x.h`.
fn same_file(our: &str, their: &str) -> bool {
    let doubled = || their.strip_suffix(our).is_some_and(|folder| !folder.is_empty() && our.starts_with(folder));
    our == their || doubled()
}

/// Whether two names mean the same function: they are equal, or symbols with these names have an address in common.
fn same_function(our: &Told, their: &Told, aliases: &Aliases) -> bool {
    let both = || Some(!aliases.get(&our.function)?.is_disjoint(aliases.get(&their.function)?));
    our.function == their.function || is_partition_label(&their.function) || both().unwrap_or(false)
}

/// Whether a name is a label such as `pegen.c.1163e7bb`, which gcc's link-time optimizer leaves inside of functions.
/// llvm takes it for a function, so there only files, lines and inlining can be compared.
fn is_partition_label(name: &str) -> bool {
    let mut parts = name.rsplit('.');
    let is_hash = |hash: &str| hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.next().is_some_and(is_hash) && parts.next() == Some("c")
}

/// The name of the rule that allows an answer to differ. Only a few answers may.
fn rule(ours: &[Told], theirs: &[Told], labels: &HashSet<String>) -> Option<&'static str> {
    match (ours, theirs) {
        ([our], [their]) if our.line == 0 && their.line == 0 && labels.contains(&their.function) => {
            Some("a label without a size inside of a function")
        }
        // The label is in `.debug_info`, and only llvm takes it for an address of code.
        ([], [their]) if their.line == 0 && is_partition_label(&their.function) => {
            Some("padding after a label of the link-time optimizer")
        }
        _ => None,
    }
}

/// The names of defined symbols without a size. Most are labels in assembler code.
fn labels(path: &Path) -> HashSet<String> {
    let list = readelf(&["-s"], path);
    let fields = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let sizeless = fields.filter(|fields| fields.len() > 7 && fields[2] == "0" && fields[6] != "UND");
    sizeless.map(|fields| fields[7].to_owned()).collect()
}

fn aliases(path: &Path) -> Aliases {
    let list = readelf(&["-s"], path);
    let mut found = HashMap::new();
    for line in list.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [number, address, _, kind, _, _, _, name, ..] = fields[..]
            && number.ends_with(':')
            && ["FUNC", "IFUNC", "NOTYPE"].contains(&kind)
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            found.entry(without_clones(name)).or_insert_with(HashSet::new).insert(address);
        }
    }
    found
}

/// Removes a symbol's version, and the suffix of a compiler's copy of a function, which counts as that function.
pub fn without_clones(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    let clones = [".cold", ".part.", ".isra.", ".constprop.", ".lto_priv.", ".llvm.", ".localalias"];
    let cut = clones.iter().filter_map(|clone| name.find(clone)).min().unwrap_or(name.len());
    name[..cut].to_owned()
}

pub fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| *part != "." && !part.is_empty()) {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("{}{}", if path.starts_with('/') { "/" } else { "" }, parts.join("/"))
}
