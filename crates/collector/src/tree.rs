//! The processes of a followed tree (`--follow`), as the recorder sees them.
//!
//! Receives: forks, and processes that joined. Returns: a number for each process, and entries for the trace. Must hold: a process is
//! written before the first thread of it; a process that made no allocation before its exec is not written.
//!
//! ```text
//!                 Fork event, or join without one                     its end, or exec
//!   (unknown) ----------------------------------> Started ------------------------------> ended: its number can be used again
//!       |  join                                      ^
//!       +--------> Expected -------------------------+
//!                            Fork event, or its first event
//! ```
//! The child of a fork may join before the recorder gets the parent's Fork event, because events wait for their order.
use crate::holdings::{Holdings, Sequences};
use crate::mapping::Mapping;
use crate::modules::Modules;
use crate::proc_files;
use channel::FORK_FAILED;
use format::{Exit, PeakTracker, Process, ProcessEnd, ProcessStart, Processes, Totals};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The highest number. Far more than can be recorded at the same time, so that a number rests long before it is used again. Not more
/// than that, because the lists of processes are searched.
const MOST: u16 = 8191;

/// The number of a process among those that are recorded now, from 1.
pub type Number = u16;

#[derive(Default)]
pub struct Tree {
    pub holdings: Holdings,
    /// By number.
    running: Vec<Option<Box<Running>>>,
    unused: VecDeque<Number>,
    /// How many processes have had a number.
    added: u64,
    /// By the number of the parent, and the parent's own count of forks.
    forks: HashMap<(Number, u32), Number>,
    /// The same for children that have not joined before their parent ended, by the pid of the parent.
    orphans: HashMap<(u32, u32), Number>,
    /// Programs that were executed in children of forks, and have ended before the parent could tell the pid of the child:
    /// the pid, and the number of the parent.
    gone: HashMap<u32, Number>,
    /// Entries that were written.
    written: u32,
    new: Processes,
    /// The pid of the process that we launched, and its last program, once that has ended.
    first_pid: u32,
    first: Option<Process>,
    /// Processes whose pid became known, and that have no shared memory yet.
    new_pids: Vec<(Number, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Expected,
    Started,
}

pub struct Running {
    state: State,
    /// Counts up from process to process, which numbers do not.
    born: u64,
    /// Its index is valid if `is_written`.
    entry: Process,
    is_written: bool,
    pub files: proc_files::Process,
    pub mapping: Option<Arc<Mapping>>,
    pub modules: Modules,
    parent: Option<Number>,
    /// The program that it replaces with exec.
    replaces: Option<Number>,
    /// What it holds, with what it inherited.
    heap: PeakTracker,
    /// What it has allocated and not freed.
    own: PeakTracker,
    totals: Totals,
    /// When it said that it ends (`Event::Exit`), and with which code.
    exits: Option<(u64, u8)>,
    /// The index of one of its threads.
    pub thread: Option<u32>,
}

/// A process that has shared memory now.
pub struct Joining {
    pub pid: u32,
    pub parent_pid: u32,
    /// The parent's count of forks, or 0.
    pub fork: u32,
    pub start: ProcessStart,
    pub command: Vec<String>,
    pub exe: String,
    pub mapping: Arc<Mapping>,
    pub files: proc_files::Process,
}

/// The position of the recorder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    pub next: Sequences,
    pub events: u64,
    pub ns: u64,
}

impl Running {
    fn new(pid: u32) -> Self {
        Running {
            state: State::Expected,
            born: 0,
            entry: Process { pid, ..Process::default() },
            is_written: false,
            files: proc_files::Process::new(pid),
            mapping: None,
            modules: Modules::default(),
            parent: None,
            replaces: None,
            heap: PeakTracker::default(),
            own: PeakTracker::default(),
            totals: Totals::default(),
            exits: None,
            thread: None,
        }
    }

    pub const fn pid(&self) -> u32 {
        self.entry.pid
    }

    #[inline]
    pub fn alloc(&mut self, size: u64, now_ns: u64) {
        self.totals.allocations += 1;
        self.totals.allocated_bytes = self.totals.allocated_bytes.wrapping_add(size);
        self.heap.alloc_at(size, now_ns);
        let _ = self.own.alloc(size);
    }

    #[inline]
    pub fn free(&mut self, size: u64, is_own: bool, is_temporary: bool) {
        self.totals.deallocations += 1;
        self.totals.temporary += is_temporary as u64;
        self.heap.free(size);
        if is_own {
            self.own.free(size);
        }
    }

    pub fn unknown_free(&mut self) {
        self.totals.unknown_frees += 1;
    }

    pub fn implied_free(&mut self, size: u64, is_own: bool) {
        self.totals.implied_frees += 1;
        self.free(size, is_own, false);
    }
}

impl Tree {
    /// The processes that run, with their numbers.
    pub fn running_mut(&mut self) -> impl Iterator<Item = (Number, &mut Running)> {
        self.running.iter_mut().zip(0..).filter_map(|(running, number)| Some((number, running.as_deref_mut()?)))
    }

    pub fn get(&self, number: Number) -> Option<&Running> {
        self.running.get(number as usize)?.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self, number: Number) -> Option<&mut Running> {
        self.running.get_mut(number as usize)?.as_deref_mut()
    }

    /// The processes that run, with their numbers.
    pub fn running(&self) -> impl Iterator<Item = (Number, &Running)> {
        self.running.iter().zip(0..).filter_map(|(running, number)| Some((number, running.as_deref()?)))
    }

    /// Gives a process a number. Returns `None` if there are too many at the same time.
    fn add(&mut self, mut running: Running) -> Option<Number> {
        self.added += 1;
        running.born = self.added;
        let fresh = self.running.len().max(1);
        let number = if fresh <= MOST as usize { fresh as Number } else { self.unused.pop_front()? };
        if self.running.len() <= number as usize {
            self.running.resize_with(number as usize + 1, || None);
        }
        *self.running.get_mut(number as usize)? = Some(Box::new(running));
        Some(number)
    }

    /// The program that runs in a process now. Another one of the same pid has either been replaced by it, which the recorder has not
    /// ended yet, or it belongs to an earlier process.
    pub fn find(&self, pid: u32) -> Option<Number> {
        let is_replaced = |old: Number| self.running().any(|(_, other)| other.replaces == Some(old));
        let of_pid = self.running().filter(|(number, running)| running.entry.pid == pid && !is_replaced(*number));
        of_pid.max_by_key(|(_, running)| running.born).map(|(number, _)| number)
    }

    /// A process has shared memory. Returns its number.
    pub fn join(&mut self, joining: Joining) -> Option<Number> {
        let Joining { pid, parent_pid, fork, start, command, exe, mapping, files } = joining;
        if matches!(start, ProcessStart::Launched | ProcessStart::Attached) {
            self.first_pid = pid;
        }
        let parent = self.find(parent_pid).filter(|_| parent_pid != pid);
        let old = self.find(pid);
        let of_living = parent.and_then(|parent| self.forks.get(&(parent, fork)).copied());
        let known = of_living.or_else(|| self.orphans.remove(&(parent_pid, fork))).filter(|_| fork != 0);
        let is_forked = start == ProcessStart::Forked;
        let number = match known.or(old).filter(|_| is_forked) {
            Some(number) => number,
            None => self.add(Running::new(pid))?,
        };
        if let (Some(parent), true, None) = (parent, is_forked && fork != 0, known) {
            self.forks.insert((parent, fork), number);
        }
        let inherited = parent.and_then(|parent| self.get(parent)).map(|parent| &parent.entry);
        let inherited = inherited.map(|entry| (entry.exe.clone(), entry.command.clone()));
        let running = self.get_mut(number)?;
        running.entry.pid = pid;
        // A forked process has the program of its parent, which may have ended since the fork. The kernel may know another program by
        // now, after an exec.
        let at_fork = Some((running.entry.exe.clone(), running.entry.command.clone()));
        let known = inherited.or(at_fork.filter(|(exe, _)| !exe.is_empty())).filter(|_| is_forked);
        (running.entry.exe, running.entry.command) = known.unwrap_or((exe, command));
        running.entry.start = start;
        running.files = files;
        running.modules = Modules::new(running.entry.exe.clone());
        running.mapping = Some(mapping);
        running.parent = running.parent.or(parent);
        running.replaces = old.filter(|_| !is_forked);
        Some(number)
    }

    /// A process forks, or has forked. Returns a child that is over, if there is one: its fork failed, or it has executed a program without an
    /// event of its own. The caller lets go of what the child holds, and removes it: what its parent has freed meanwhile was the child's alone.
    #[must_use]
    pub fn fork(&mut self, parent: Number, fork: u32, pid: u32, now: Now) -> Option<Number> {
        self.get(parent)?;
        let known = self.forks.get(&(parent, fork)).copied();
        match (known, pid) {
            (Some(child), 0) => self.start(child, now),
            (None, 0) => {
                let (exe, command) =
                    self.get(parent).map(|one| (one.entry.exe.clone(), one.entry.command.clone())).unwrap_or_default();
                let entry = Process { start: ProcessStart::Forked, exe, command, ..Process::default() };
                let child = Running { entry, parent: Some(parent), ..Running::new(0) };
                let child = self.add(child)?;
                self.forks.insert((parent, fork), child);
                self.start(child, now);
            }
            (Some(child), FORK_FAILED) => {
                self.forks.remove(&(parent, fork));
                return Some(child);
            }
            (Some(child), pid) => {
                self.forks.remove(&(parent, fork));
                let later = self.find(pid).filter(|other| *other != child);
                let is_gone = self.gone.remove(&pid) == Some(parent);
                if !self.has_unknown_children(parent) {
                    self.gone.retain(|_, of| *of != parent);
                }
                let running = self.get_mut(child)?;
                running.entry.pid = pid;
                let is_silent = running.mapping.is_none();
                if later.is_none() && is_gone && is_silent {
                    return Some(child);
                }
                let Some(later) = later.and_then(|later| self.get_mut(later)) else {
                    self.watch(child, pid);
                    return None;
                };
                if later.replaces.is_none() && later.state == State::Expected {
                    later.replaces = Some(child);
                } else if is_silent {
                    // The program that replaced it has started.
                    return Some(child);
                }
            }
            (None, _) => (),
        }
        None
    }

    /// Returns true if a process has forked, and has not told the pid of the child yet.
    fn has_unknown_children(&self, parent: Number) -> bool {
        let is_unknown = |child: &Number| self.get(*child).is_some_and(|child| child.entry.pid == 0);
        self.forks.iter().any(|(at, child)| at.0 == parent && is_unknown(child))
    }

    /// The end of a process without shared memory must be noticed by its pid.
    fn watch(&mut self, number: Number, pid: u32) {
        if let Some(running) = self.get_mut(number).filter(|running| running.mapping.is_none()) {
            running.files = proc_files::Process::new(pid);
            self.new_pids.push((number, pid));
        }
    }

    /// Starts a process that is expected, at the latest at its first event.
    pub fn start(&mut self, number: Number, now: Now) {
        let Some(running) = self.get(number).filter(|running| running.state == State::Expected) else { return };
        let is_forked = running.entry.start == ProcessStart::Forked;
        let parent = running.parent.filter(|parent| is_forked && self.get(*parent).is_some());
        let inherited = parent.and_then(|parent| self.get(parent)).map(|parent| parent.heap).unwrap_or_default();
        self.holdings.start(number as usize, parent.map(usize::from), now.next);
        let Some(running) = self.get_mut(number) else { return };
        running.state = State::Started;
        running.heap = PeakTracker { peak_bytes: 0, peak_allocations: 0, peak_time_ns: 0, ..inherited };
        running.heap.set_peak(now.ns);
        running.entry.start_ns = now.ns;
        running.entry.events_before = now.events;
        running.entry.inherited_allocations = inherited.live_allocations;
        running.entry.inherited_bytes = inherited.live_bytes;
    }

    /// Returns the program that this one has replaced, if that has not ended yet. If that program recorded something, it is the
    /// parent of this one.
    pub fn take_replaced(&mut self, number: Number) -> Option<Number> {
        let old = self.get_mut(number)?.replaces.take()?;
        let (is_written, index, parent) =
            self.get(old).map(|old| (old.is_written, Some(old.entry.index), old.parent))?;
        let running = self.get_mut(number)?;
        if is_written {
            (running.parent, running.entry.parent) = (None, index);
            running.entry.start = ProcessStart::Executed;
        } else {
            running.parent = parent.or(running.parent);
        }
        Some(old)
    }

    #[inline]
    pub fn is_started(&self, number: Number) -> bool {
        self.get(number).is_some_and(|running| running.state == State::Started)
    }

    /// Returns the index of a process in the trace. Its entry, and those of its ancestors, are written before.
    pub fn index(&mut self, number: Number) -> Option<u32> {
        let running = self.get(number)?;
        if running.is_written {
            return Some(running.entry.index);
        }
        // Every ancestor started earlier, so this ends.
        let parent = running.parent.filter(|parent| *parent != number).and_then(|parent| self.index(parent));
        let index = self.written;
        self.written += 1;
        let running = self.get_mut(number)?;
        running.is_written = true;
        running.entry.index = index;
        running.entry.parent = parent.or(running.entry.parent);
        let entry = running.entry.clone();
        self.new.processes.push(entry);
        Some(index)
    }

    /// A thread of a process started. Returns false if the process is unknown.
    pub fn add_thread(&mut self, number: Number, thread: u32) -> bool {
        let Some(index) = self.index(number) else { return false };
        self.new.threads.push((thread, index));
        if let Some(running) = self.get_mut(number) {
            running.thread.get_or_insert(thread);
        }
        true
    }

    /// A process ends itself.
    pub fn exits(&mut self, number: Number, ns: u64, code: u8) {
        if let Some(running) = self.get_mut(number) {
            running.exits = Some((ns, code));
        }
    }

    /// A process has ended, or called exec, and all its blocks are gone. `peak_rss`: its highest resident memory, if it is known.
    pub fn end(&mut self, number: Number, by_exec: bool, exit: Exit, ns: u64) {
        // A program that replaced it may have ended it already.
        let Some(running) = self.get(number) else { return };
        let (pid, parent) = (running.entry.pid, running.parent);
        let is_silent = by_exec && !running.is_written;
        if !is_silent {
            self.index(number);
        }
        if let Some(parent) = parent.filter(|parent| pid != 0 && self.has_unknown_children(*parent)) {
            self.gone.insert(pid, parent);
        }
        let Some(running) = self.get_mut(number).filter(|_| !is_silent) else { return self.remove(number) };
        let ns = running.exits.map_or(ns, |(ns, _)| ns);
        let exit = match running.exits {
            Some((_, code)) if exit == Exit::Unknown && !by_exec => Exit::Code(code.into()),
            _ => exit,
        };
        let mut totals = running.heap.fill(running.totals);
        totals.leaked_allocations = running.own.live_allocations;
        totals.leaked_bytes = running.own.live_bytes;
        totals.runtime_ns = ns.saturating_sub(running.entry.start_ns);
        running.entry.end = Some(ProcessEnd { at_ns: ns, by_exec, exit, totals });
        let entry = running.entry.clone();
        if entry.pid == self.first_pid && !by_exec {
            self.first = Some(entry.clone());
        }
        for (_, child) in self.running_mut().filter(|(_, child)| child.parent == Some(number)) {
            child.parent = None;
            child.entry.parent = Some(entry.index);
        }
        let is_its = |at: &(Number, u32)| at.0 == number;
        let silent = |child: &Number| self.get(*child).is_some_and(|child| child.entry.pid == 0);
        let orphans: Vec<(u32, Number)> = self
            .forks
            .iter()
            .filter(|(at, child)| is_its(at) && silent(child))
            .map(|(at, child)| (at.1, *child))
            .collect();
        self.orphans.extend(orphans.into_iter().map(|(fork, child)| ((entry.pid, fork), child)));
        // A program that replaced it has it as its parent, even if that has not started yet.
        for (_, later) in self.running_mut().filter(|(_, later)| later.replaces == Some(number)) {
            (later.replaces, later.parent) = (None, None);
            later.entry.parent = Some(entry.index);
            later.entry.start = ProcessStart::Executed;
        }
        self.new.processes.push(entry);
        self.remove(number);
    }

    pub fn exit_of_first(&self) -> Option<Exit> {
        self.first.as_ref()?.end.map(|end| end.exit)
    }

    /// Only at the end of a recording do we know how the process ended that we launched.
    pub fn set_exit_of_first(&mut self, exit: Exit) {
        if let Some(mut entry) = self.first.take() {
            entry.end = entry.end.map(|end| ProcessEnd { exit, ..end });
            self.new.processes.push(entry);
        }
    }

    pub fn remove(&mut self, number: Number) {
        self.holdings.end(number as usize, true, |_, _| ());
        if let Some(place) = self.running.get_mut(number as usize) {
            *place = None;
        }
        self.forks.retain(|(parent, _), child| *parent != number && *child != number);
        self.orphans.retain(|_, child| *child != number);
        self.gone.retain(|_, parent| *parent != number);
        self.unused.push_back(number);
    }

    /// Takes the entries that must be written before the next events.
    pub fn take_new(&mut self) -> Processes {
        std::mem::take(&mut self.new)
    }

    /// Takes the processes whose pid became known and that have no shared memory yet.
    pub fn take_new_pids(&mut self) -> Vec<(Number, u32)> {
        std::mem::take(&mut self.new_pids)
    }

    pub fn has_new(&self) -> bool {
        !self.new.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::mapping::tests::tight;

    fn joining(pid: u32, parent_pid: u32, start: ProcessStart, command: &str) -> Joining {
        Joining {
            pid,
            parent_pid,
            fork: 0,
            start,
            command: vec![command.to_owned()],
            exe: format!("/bin/{command}"),
            mapping: Arc::new(Mapping::create(&tight()).unwrap()),
            files: proc_files::Process::new(pid),
        }
    }

    type Entries = Vec<(u32, String)>;

    /// The pids and commands of all entries, and the processes that must be watched.
    fn found(tree: &mut Tree) -> (Entries, Vec<(Number, u32)>) {
        let entries = tree.take_new().processes.into_iter().map(|process| (process.pid, process.command.join(" ")));
        (entries.collect(), tree.take_new_pids())
    }

    /// The parent may be interrupted between its fork and the note of the child's pid. Meanwhile the child executes programs
    /// and ends.
    #[test]
    fn a_child_that_executed_and_ended_before_its_pid_was_known_has_one_entry() {
        for executes_twice in [false, true] {
            let mut tree = Tree::default();
            let now = Now::default();
            let shell = tree.join(joining(10, 1, ProcessStart::Launched, "sh")).unwrap();
            tree.start(shell, now);
            assert_eq!(tree.fork(shell, 1, 0, now), None);
            let first = tree.join(joining(20, 10, ProcessStart::Spawned, "true")).unwrap();
            tree.start(first, now);
            if executes_twice {
                let second = tree.join(joining(20, 10, ProcessStart::Spawned, "false")).unwrap();
                assert_eq!(tree.take_replaced(second), Some(first));
                tree.end(first, true, Exit::Unknown, 1);
                tree.start(second, now);
                tree.end(second, false, Exit::Code(1), 2);
            } else {
                tree.end(first, false, Exit::Code(0), 2);
            }
            let over = tree.fork(shell, 1, 20, now).unwrap();
            tree.remove(over);
            assert_eq!(tree.running().count(), 1, "only the shell runs");
            let (entries, watched) = found(&mut tree);
            assert!(entries.iter().all(|(pid, command)| *pid == 10 || command != "sh"), "{entries:?}");
            assert_eq!(watched, [], "nothing is left to wait for");
            // Another child gets the same pid later, and calls no exec.
            assert_eq!((tree.fork(shell, 2, 0, now), tree.fork(shell, 2, 20, now)), (None, None));
            assert_eq!((found(&mut tree).1.len(), tree.running().count()), (1, 2));
        }
    }

    /// A child that executes a program may join before the recorder merges the fork that made it. The process then has two entries, and
    /// what the program forks belongs to the second program, although the first one got its number later.
    #[test]
    fn a_child_belongs_to_the_program_that_forked_it() {
        let mut tree = Tree::default();
        let now = Now::default();
        let shell = tree.join(joining(10, 1, ProcessStart::Launched, "sh")).unwrap();
        tree.start(shell, now);
        let program = tree.join(joining(20, 10, ProcessStart::Spawned, "git")).unwrap();
        assert_eq!((tree.fork(shell, 1, 0, now), tree.fork(shell, 1, 20, now)), (None, None));
        assert_eq!(tree.find(20), Some(program));
        let child = tree.join(Joining { fork: 1, ..joining(30, 20, ProcessStart::Forked, "git") }).unwrap();
        let silent = tree.take_replaced(program).unwrap();
        tree.remove(silent);
        tree.start(program, now);
        tree.get_mut(program).unwrap().alloc(100, 1);
        assert_eq!((tree.fork(program, 1, 0, now), tree.fork(program, 1, 30, now)), (None, None));
        assert_eq!(tree.find(30), Some(child), "the fork has made no other entry");
        tree.end(program, false, Exit::Code(0), 2);
        tree.end(child, false, Exit::Code(0), 3);
        let ended = tree.take_new().processes.into_iter().rfind(|process| process.pid == 30).unwrap();
        let inherited = (ended.inherited_allocations, ended.inherited_bytes);
        assert_eq!((ended.command.as_slice(), inherited), (&["git".to_owned()][..], (1, 100)));
        assert!(ended.parent.is_some(), "{ended:?}");
    }

    /// A child that joins after its parent has ended has the command of its parent, because the kernel may not know it any more.
    #[test]
    fn a_child_has_the_command_of_a_parent_that_has_ended() {
        let mut tree = Tree::default();
        let now = Now::default();
        let parent = tree.join(joining(10, 1, ProcessStart::Launched, "git")).unwrap();
        tree.start(parent, now);
        assert_eq!((tree.fork(parent, 1, 0, now), tree.fork(parent, 1, 30, now)), (None, None));
        tree.end(parent, false, Exit::Code(0), 1);
        let silent = Joining { command: Vec::new(), exe: String::new(), ..joining(30, 10, ProcessStart::Forked, "") };
        let child = tree.join(Joining { fork: 1, ..silent }).unwrap();
        tree.end(child, false, Exit::Code(0), 2);
        assert_eq!(found(&mut tree).0.pop(), Some((30, "git".to_owned())));
    }
}
