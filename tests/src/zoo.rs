//! The zoo: real programs, each with its own way to treat stacks, signals, threads and memory (`tests/zoo`, one folder
//! each).
//!
//! Every animal is run alone, recorded from its start, and attached to, always in the same steps. It starts, reports
//! that it is ready while its special machinery exists, gets its input, works, and ends by itself. [`table`] describes
//! the animals. The suite, the lists of packages (`tests/packages.txt`, `tests/setup.sh`) and `docs/compatibility.md`
//! are made from it or compared with it.
pub mod table;

use crate::attach::{Session, Target, below};
use crate::dhat::{self, Counts};
use crate::folder::{Folder, copy_program};
use crate::process::wait_for;
use crate::run::heaptrack;
use crate::targets::workspace;
use crate::view::{self, view};
use crate::{Program, process};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The size of the blocks that only an animal itself requests. An animal whose calls are counted requests `BLOCKS` of
/// them.
pub const SIZE: u64 = 4321;
pub const BLOCKS: u64 = 10_000;

/// No animal works for longer than a few seconds. An animal that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// One program of the zoo. In its commands and its environment, `{here}` is the animal's folder in `tests/zoo`, `{out}`
/// is the folder of its build, `{folder}` is an empty folder for one run, and `{blocks}` is the path of `libblocks.so`.
/// `{shared}` is the folder of all builds, `{zoo}` is `tests/zoo`, and `{cargo}` is cargo's target folder for animals
/// in Rust.
pub struct Animal {
    pub name: &'static str,
    /// What is special about the animal. docs/compatibility.md prints this text.
    pub about: &'static str,
    /// The commands that build it, run in `{out}`.
    pub build: &'static [&'static str],
    /// A shell command that prepares `{folder}` before a run.
    pub prepare: &'static str,
    pub command: &'static [&'static str],
    pub environment: &'static [(&'static str, &'static str)],
    /// The user that the animal runs as, if it is not the user of the tests.
    pub user: Option<&'static str>,
    pub ready: Ready,
    /// The text that the animal reads from stdin once it is ready.
    pub input: &'static str,
    /// Everything that the animal prints after "ready". If empty, the output is only compared with that of a run alone.
    pub prints: &'static str,
    pub code: i32,
    pub attach_to: AttachTo,
    pub oracle: Oracle,
    /// Where stacks may end besides at the roots of threads.
    pub ends: &'static [End],
    pub note: &'static str,
    pub packages: &'static [&'static str],
    /// A command that prints the version in its first line with a digit.
    pub version: &'static [&'static str],
    pub in_make_test: bool,
}

/// How the harness knows that an animal is ready to be attached to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// It prints the line "ready".
    Line,
    /// It sleeps in a read of stdin.
    Reads,
    /// It is a server. The script `drive.sh` in its folder waits for it (`drive.sh ready`), then sends requests and
    /// stops it (`drive.sh go`). The output of the second call is the animal's output.
    Driven,
}

/// An explained end of stacks.
pub struct End {
    /// The name of a function, a part of a module's path, or [`JIT`].
    pub place: &'static str,
    /// The highest number of different addresses at which stacks may end there. The start of a fiber is one address.
    /// More addresses mean that stacks ended in other places as well.
    pub addresses: usize,
    pub reason: &'static str,
}

/// The place of code that is in no file. Its addresses are not counted.
pub const JIT: &str = "code without a file";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AttachTo {
    Itself,
    /// A child process that runs the program of this name.
    Child(&'static str),
}

/// Where the exact numbers of an animal come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Oracle {
    /// It makes [`BLOCKS`] calls of malloc for [`SIZE`] bytes and frees all of them.
    Counted,
    /// The same calls, but a collector decides when a block is freed.
    CountedCollected,
    /// If the animal is recorded from its start, all totals are those of DHAT, except for the number of blocks at the
    /// peak, which is not compared. Attached, only the identities are checked.
    Dhat,
    /// As `Dhat`, but only the number of calls and of remaining blocks. The program copies its environment, to which
    /// Valgrind adds variables.
    DhatCalls,
    /// Only the identities, which are checked for every animal: the trace is complete, nothing is lost, no free is
    /// implied (launched: nor unknown), and allocations - frees = live.
    Identities,
}

impl Oracle {
    pub fn words(self) -> &'static str {
        match self {
            Oracle::Counted => "own calls and frees",
            Oracle::CountedCollected => "own calls",
            Oracle::Dhat => "DHAT",
            Oracle::DhatCalls => "DHAT, number of calls",
            Oracle::Identities => "none",
        }
    }

    /// True if a run of this kind is compared with an independent count.
    pub fn counts(self, way: Way) -> bool {
        match self {
            Oracle::Counted | Oracle::CountedCollected => true,
            Oracle::Dhat | Oracle::DhatCalls => way == Way::Launched,
            Oracle::Identities => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Alone,
    Launched,
    Attached,
}

struct Run {
    stdout: String,
    stderr: String,
    code: i32,
    trace: PathBuf,
    folder: Folder,
    _session: Option<crate::attach::Ended>,
}

/// The results of a recorded run.
#[derive(Clone, Debug)]
pub struct Seen {
    pub allocations: u64,
    /// The share of the allocations whose stack ends at the root of a thread.
    pub at_root: f64,
    /// The share of the allocations whose stack ends at a place that `Animal::ends` explains.
    pub explained: f64,
    /// The places where all other stacks end. There should be none.
    pub others: Vec<(String, u64)>,
    /// The reasons of those explained ends that occurred.
    pub reasons: Vec<&'static str>,
    /// The kinds of allocations that the trace reports as not seen.
    pub unseen: Vec<String>,
}

impl Animal {
    pub fn by_name(name: &str) -> &'static Animal {
        table::ANIMALS.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no animal is called {name}"))
    }

    /// Runs the animal alone, then recorded or attached to. Returns `Err` with what is wrong.
    pub fn check(&self, way: Way) -> Result<Seen, String> {
        let alone = self.run(Way::Alone)?;
        let run = self.run(way)?;
        let fail = |what: String| Err(format!("{} {way:?}: {what}\nstderr: {}", self.name, run.stderr));
        if (&run.stdout, run.code) != (&alone.stdout, alone.code) {
            return fail(format!(
                "output or code differs: {:?}, {}; alone {:?}, {}",
                run.stdout, run.code, alone.stdout, alone.code
            ));
        }
        if self.ready != Ready::Driven && run.stderr != alone.stderr {
            return fail(format!("stderr differs; alone: {}", alone.stderr));
        }
        if alone.code != self.code || (!self.prints.is_empty() && alone.stdout != self.prints) {
            return fail(format!("alone it is not what the table says: {:?}, {}", alone.stdout, alone.code));
        }
        self.check_trace(&run, way).or_else(fail)
    }

    fn check_trace(&self, run: &Run, way: Way) -> Result<Seen, String> {
        let trace = &run.trace;
        let summary = view(trace, "summary", &[]);
        let number = |name: &str| summary[name].as_u64().unwrap_or(u64::MAX);
        if summary["complete"] != true {
            return Err(format!("not complete: {}", summary["losses"]));
        }
        if number("lost_events") != 0 || number("implied_frees") != 0 {
            return Err(format!("lost {}, implied frees {}", number("lost_events"), number("implied_frees")));
        }
        if way == Way::Launched && number("unknown_frees") != 0 {
            return Err(format!("{} unknown frees", number("unknown_frees")));
        }
        let total = |name: &str| view::total(&summary, name);
        if total("allocations") - total("deallocations") != total("live_allocations") {
            return Err(format!("allocations - frees is not what lives: {}", summary["totals"]));
        }
        self.check_totals(run, way)?;
        let seen = self.stacks(trace, &summary);
        if !seen.others.is_empty() {
            return Err(format!("stacks end in the middle: {:?}", seen.others));
        }
        Ok(seen)
    }

    fn check_totals(&self, run: &Run, way: Way) -> Result<(), String> {
        let trace = &run.trace;
        match self.oracle {
            Oracle::Counted | Oracle::CountedCollected => {
                let own = view(trace, "profile", &["--size", &format!("{SIZE}..{SIZE}")]);
                let (calls, live) = (view::total(&own, "allocations"), view::total(&own, "live_allocations"));
                let all_freed = self.oracle == Oracle::CountedCollected || live == 0;
                let exact = calls == BLOCKS && all_freed;
                exact
                    .then_some(())
                    .ok_or_else(|| format!("{calls} blocks of {SIZE} bytes, {live} live; not {BLOCKS}, 0"))
            }
            Oracle::Dhat | Oracle::DhatCalls if way == Way::Launched => {
                // In the same folder, because the animal allocates texts that contain the path.
                let words = self.words(self.command, &run.folder);
                let mut program = Program::new(&words[0]).args(&words[1..]).current_dir(run.folder.path());
                for (key, value) in self.environment {
                    program = program.env(key, &self.words(&[value], &run.folder)[0]);
                }
                let oracle = dhat::run_with(&program, &format!("{}\n", self.input)).total;
                let summary = view(trace, "summary", &[]);
                let ours = |name: &str| view::total(&summary, name);
                let ours = Counts {
                    allocations: ours("allocations"),
                    allocated_bytes: ours("allocated_bytes"),
                    peak_allocations: oracle.peak_allocations,
                    peak_bytes: ours("peak_bytes"),
                    leaked_allocations: ours("live_allocations"),
                    leaked_bytes: ours("live_bytes"),
                };
                let is_same = match self.oracle {
                    Oracle::Dhat => ours == oracle,
                    _ => (ours.allocations, ours.leaked_allocations) == (oracle.allocations, oracle.leaked_allocations),
                };
                is_same.then_some(()).ok_or_else(|| format!("totals {ours:?}; DHAT {oracle:?}"))
            }
            _ => Ok(()),
        }
    }

    /// The ends of stacks, weighted by their allocations.
    fn stacks(&self, trace: &Path, summary: &Value) -> Seen {
        let (stacks, profile) = (view(trace, "stacks", &[]), view(trace, "profile", &[]));
        let parents = stacks["nodes"]["parent"].as_array().expect("nodes");
        let level_of = |node: usize| stacks["nodes"]["level"][node].as_i64().expect("a level");
        let text = |kind: &str, level: i64| {
            let index = stacks["levels"][kind][level as usize].as_u64()?;
            stacks["strings"][index as usize].as_str()
        };
        let (mut all, mut at_root) = (0, 0);
        let mut entries = Entries::default();
        // For each entry of `ends`, the addresses and their allocations.
        let mut explained: Vec<HashMap<u64, u64>> = self.ends.iter().map(|_| HashMap::new()).collect();
        let mut others = HashMap::<String, u64>::new();
        let columns = [&profile["stack"], &profile["allocations"]].map(|list| list.as_array().expect("a column"));
        for (stack, count) in columns[0].iter().zip(columns[1]) {
            let count = count.as_u64().expect("a number");
            let stack = stack.as_u64().expect("a stack") as usize;
            let mut node = stacks["stacks"]["node"][stack].as_u64().expect("a node") as usize;
            while let Some(parent) = parents[node].as_u64().filter(|parent| *parent > 0) {
                node = parent as usize;
            }
            let level = level_of(node);
            all += count;
            if level < 0 {
                *others.entry("nothing is known".to_owned()).or_default() += count;
                continue;
            }
            let (function, module) = (text("function", level), text("module", level));
            let offset = stacks["levels"]["offset"][level as usize].as_u64().unwrap_or(0);
            let is_there = |end: &End| match end.place {
                JIT => module.is_none() && function.is_none(),
                place => function == Some(place) || module.is_some_and(|path| path.contains(place)),
            };
            if function.is_some_and(|name| ROOTS.contains(&name)) || entries.is_entry(module, offset) {
                at_root += count;
            } else if let Some(index) = self.ends.iter().position(is_there) {
                *explained[index].entry(if self.ends[index].place == JIT { 0 } else { offset }).or_default() += count;
            } else {
                let name = format!("{} in {} at {offset:#x}", function.unwrap_or("?"), module.unwrap_or("?"));
                *others.entry(name).or_default() += count;
            }
        }
        let mut explained_count = 0;
        let mut reasons = Vec::new();
        for (end, addresses) in self.ends.iter().zip(explained) {
            let count = addresses.values().sum::<u64>();
            if count == 0 {
                continue;
            }
            if addresses.len() <= end.addresses {
                explained_count += count;
                reasons.push(end.reason);
            } else {
                others.insert(format!("{} addresses in {}: {addresses:x?}", addresses.len(), end.place), count);
            }
        }
        let explained = explained_count;
        let mut others: Vec<_> = others.into_iter().collect();
        others.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
        let share = |part: u64| if all == 0 { 1.0 } else { part as f64 / all as f64 };
        let kinds = summary["unseen"].as_array().into_iter().flatten().filter_map(|one| one["kind"].as_str());
        let unseen: BTreeSet<String> = kinds.map(str::to_owned).collect();
        Seen {
            allocations: all,
            at_root: share(at_root),
            explained: share(explained),
            others,
            reasons,
            unseen: unseen.into_iter().collect(),
        }
    }

    fn run(&self, way: Way) -> Result<Run, String> {
        let folder = Folder::new();
        self.prepare(&folder)?;
        let trace = folder.join("trace.htz");
        let mut words: Vec<String> = Vec::new();
        if let Some(user) = self.user {
            words.extend(["setpriv", "--clear-groups"].map(str::to_owned));
            words.extend([format!("--reuid={user}"), format!("--regid={user}"), "--".to_owned()]);
        }
        if way == Way::Launched {
            // A copy of the binary that every user may run.
            let binary = if self.user.is_some() { folder.join("heaptrack") } else { heaptrack() };
            if self.user.is_some() {
                copy_program(heaptrack(), &binary);
            }
            words.push(binary.display().to_string());
            words.extend(["-q".to_owned(), "-o".to_owned(), trace.display().to_string(), "--".to_owned()]);
        }
        words.extend(self.words(self.command, &folder));
        let stderr = folder.join("stderr");
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,QUIT,TERM,USR1,USR2").args(&words).current_dir(folder.path());
        for name in ["LD_PRELOAD", "HEAPTRACK_BIN", "HEAPTRACK_SOAK", "HEAPTRACK_SEED", "RUSTFLAGS"] {
            command.env_remove(name);
        }
        for (key, value) in self.environment {
            command.env(key, &self.words(&[value], &folder)[0]);
        }
        command.stderr(std::fs::File::create(&stderr).expect("a file for stderr"));
        let mut target = Target::spawn(&mut command);
        let guard = Guard::over(target.pid);
        // stderr without heaptrack's own lines.
        let text_of_stderr = || {
            let text = String::from_utf8_lossy(&std::fs::read(&stderr).unwrap_or_default()).into_owned();
            text.split_inclusive('\n').filter(|line| !line.starts_with("heaptrack: ")).collect::<String>()
        };
        let mut stdout = String::new();
        match self.ready {
            Ready::Line => loop {
                match target.line().as_str() {
                    "ready" => break,
                    "" if !target.is_alive() => {
                        return Err(format!("{} {way:?}: ended before it was ready: {}", self.name, text_of_stderr()));
                    }
                    line => stdout += &format!("{line}\n"),
                }
            },
            Ready::Reads if way != Way::Attached => {}
            Ready::Reads => wait_for("a program that reads", || is_reading(target.pid).then_some(())),
            Ready::Driven => drop(self.drive(&folder, &["ready"])?),
        }
        let mut session = None;
        if way == Way::Attached {
            let pid = match self.attach_to {
                AttachTo::Itself => target.pid,
                AttachTo::Child(name) => below(target.pid, name),
            };
            let mut attempt = Session::start(pid, &[]);
            if !attempt.wait_until_attached() {
                return Err(format!("{} {way:?}: {}", self.name, attempt.wait().text));
            }
            session = Some(attempt);
        }
        if self.ready == Ready::Driven {
            stdout += &self.drive(&folder, &["go"])?;
            let (code, _) = target.finish();
            return self.ended(guard, stdout, code, text_of_stderr(), trace, folder, session);
        }
        if !self.input.is_empty() {
            target.send(self.input);
        }
        let (code, rest) = target.finish();
        self.ended(guard, stdout + &rest, code, text_of_stderr(), trace, folder, session)
    }

    #[expect(clippy::too_many_arguments, reason = "the end of `run`, which has two ways to get here")]
    fn ended(
        &self,
        guard: Guard,
        stdout: String,
        code: i32,
        stderr: String,
        trace: PathBuf,
        folder: Folder,
        session: Option<Session>,
    ) -> Result<Run, String> {
        let session = session.map(Session::wait);
        if guard.has_struck() {
            return Err(format!("{}: hangs; it had printed {stdout:?}\nstderr: {stderr}", self.name));
        }
        let trace = session.as_ref().map_or(trace, |ended| ended.trace.clone());
        if let Some(ended) = session.as_ref().filter(|ended| ended.code != 0) {
            return Err(format!("{}: attach ended with code {}: {}", self.name, ended.code, ended.text));
        }
        Ok(Run { stdout, stderr, code, trace, folder, _session: session })
    }

    fn drive(&self, folder: &Folder, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("sh")
            .arg(self.here().join("drive.sh"))
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("sh");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(text).ok_or_else(|| format!("{}: drive.sh {arguments:?}: {said}", self.name))
    }

    fn prepare(&self, folder: &Folder) -> Result<(), String> {
        self.built()?;
        if let Some(user) = self.user {
            let status = Command::new("chown").arg(user).arg(folder.path()).status().expect("chown");
            assert!(status.success(), "chown {user}");
        }
        if self.prepare.is_empty() {
            return Ok(());
        }
        let script = self.words(&[self.prepare], folder).remove(0);
        let output = Command::new("sh").args(["-euc", &script]).current_dir(folder.path()).output().expect("sh");
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| format!("{}: {script}: {said}", self.name))
    }

    fn words(&self, words: &[&str], folder: &Folder) -> Vec<String> {
        let blocks = shared().join("libblocks.so");
        let places = [
            ("{here}", self.here()),
            ("{out}", self.out()),
            ("{folder}", folder.path().to_owned()),
            ("{blocks}", blocks),
            ("{shared}", shared().to_owned()),
            ("{zoo}", workspace().join("tests/zoo")),
            ("{cargo}", workspace().join("target/zoo/cargo")),
        ];
        let fill = |word: &&str| {
            places.iter().fold((*word).to_owned(), |text, (name, path)| text.replace(name, &path.display().to_string()))
        };
        words.iter().map(fill).collect()
    }

    pub fn here(&self) -> PathBuf {
        workspace().join("tests/zoo").join(self.name)
    }

    fn out(&self) -> PathBuf {
        shared().join(self.name)
    }

    /// Builds the animal, unless it is already built.
    fn built(&self) -> Result<(), String> {
        static BUILDING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.out().join("built");
        if done.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(self.out()).expect("a folder for an animal");
        let folder = Folder::new();
        for line in self.build {
            let words: Vec<&str> = line.split(' ').collect();
            run_in(&self.out(), &self.words(&words, &folder)).map_err(|error| format!("{}: {error}", self.name))?;
        }
        std::fs::write(done, "").expect("writable");
        Ok(())
    }

    /// The version of the program on this machine.
    pub fn version_text(&self) -> String {
        let words = self.words(self.version, &Folder::new());
        let output = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output();
        let output = output.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let line = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit())).unwrap_or("").to_owned();
        let starts =
            |word: &&str| word.trim_start_matches(['v', 'V', '"', '(']).starts_with(|c: char| c.is_ascii_digit());
        let word = line
            .split([' ', '-', '/', ',', '('])
            .find(|word| starts(word) && word.len() > 1)
            .unwrap_or(&line)
            .to_owned();
        word.trim_matches(['v', '"', '(', ')', ';', ':']).to_owned()
    }
}

/// Outermost functions, at which a process or a thread begins.
const ROOTS: &[&str] =
    &["_start", "_dl_start_user", "clone3", "__clone3", "clone", "__clone", "__GI___clone3", "__GI___clone"];

/// Finds the entry points of programs, because a stripped program has no name for its entry.
#[derive(Default)]
struct Entries {
    known: HashMap<String, Option<u64>>,
}

impl Entries {
    fn is_entry(&mut self, module: Option<&str>, offset: u64) -> bool {
        let Some(module) = module else { return false };
        let known = self.known.entry(module.to_owned()).or_insert_with(|| {
            let mut header = [0; 32];
            std::fs::File::open(module).ok()?.read_exact(&mut header).ok()?;
            Some(u64::from_le_bytes(header[24..].try_into().ok()?)).filter(|entry| *entry > 0)
        });
        // `_start` is 34 to 42 bytes long.
        known.is_some_and(|entry| (entry..entry + 48).contains(&offset))
    }
}

/// True if the main thread of the process waits in a `read` of stdin, or of the same pipe by another descriptor.
fn is_reading(pid: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let mut words = call.split(' ');
    let (Some("0"), Some(descriptor)) = (words.next(), words.next()) else { return false };
    let descriptor = u32::from_str_radix(descriptor.trim_start_matches("0x"), 16).unwrap_or(u32::MAX);
    let file = |descriptor: u32| std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok();
    file(descriptor).is_some() && file(descriptor) == file(0) && process::state(pid) == Some('S')
}

/// Kills a process and its descendants if it runs longer than any animal may.
struct Guard {
    done: Arc<AtomicBool>,
    struck: Arc<AtomicBool>,
}

impl Guard {
    fn over(pid: u32) -> Guard {
        let guard = Guard { done: Arc::default(), struck: Arc::default() };
        let (done, struck, start) = (guard.done.clone(), guard.struck.clone(), Instant::now());
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                if start.elapsed() > PATIENCE {
                    struck.store(true, Ordering::Relaxed);
                    let mut all = vec![pid];
                    let mut next = 0;
                    while next < all.len() {
                        all.extend(process::children(all[next]));
                        next += 1;
                    }
                    return process::signal("KILL", &all);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        guard
    }

    fn has_struck(&self) -> bool {
        self.struck.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn run_in(folder: &Path, words: &[String]) -> Result<(), String> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command
        .env("LIBRARY_PATH", shared())
        .env("CGO_LDFLAGS_ALLOW", ".*")
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off");
    let output = command.output().map_err(|error| format!("{words:?}: {error}"))?;
    let said =
        || format!("{words:?}\n{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status.success().then_some(()).ok_or_else(said)
}

/// The folder of everything that was built, including `libblocks.so`. It is named by a hash of the sources and recipes.
fn shared() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        let mut folders = vec![workspace().join("tests/zoo")];
        while let Some(folder) = folders.pop() {
            let mut names: Vec<_> =
                std::fs::read_dir(&folder).expect("tests/zoo").map(|entry| entry.expect("readable").path()).collect();
            names.sort();
            for name in names {
                if name.is_dir() {
                    folders.push(name);
                    continue;
                }
                hasher.write(name.as_os_str().as_encoded_bytes());
                hasher.write(&std::fs::read(&name).expect("readable"));
            }
        }
        for animal in table::ANIMALS {
            hasher.write(format!("{} {:?}", animal.name, animal.build).as_bytes());
        }
        let path = workspace().join("target/zoo").join(format!("{:016x}", hasher.finish()));
        std::fs::create_dir_all(&path).expect("a folder for the zoo");
        let library = path.join("libblocks.so");
        if !library.exists() {
            let draft = path.join(format!("libblocks.{}", std::process::id()));
            let source = workspace().join("tests/zoo/blocks/blocks.c");
            let built = Command::new("cc")
                .args(["-g", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"])
                .arg(source)
                .arg("-o")
                .arg(&draft)
                .status();
            assert!(built.is_ok_and(|status| status.success()), "libblocks.so is built");
            std::fs::rename(draft, &library).expect("renamed");
        }
        path
    })
}
