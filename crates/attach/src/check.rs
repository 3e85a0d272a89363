//! Whether a process can be attached to, as far as that is known before anything in it is changed.
use crate::error::Refusal;
use crate::filter::{self, Verdict};
use crate::frozen;
use crate::interrupt::Interrupt;
use crate::launch;
use crate::maps::Maps;
use crate::memory::Memory;
use crate::process::Process;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The ELF class and byte order, and the machine, of programs that can be recorded.
const ELF_64: [u8; 2] = [2, 1];
const EM_X86_64: [u8; 2] = [62, 0];

/// A process that can be attached to, as far as can be seen from outside.
#[derive(Debug)]
pub struct Checked {
    pub process: Process,
    pub memory: Memory,
    pub maps: Maps,
    /// A thread has a seccomp filter. heaptrack does not suspend it, so it must allow every system call of ours.
    pub filtered: bool,
    /// No seccomp filter forbids a thread to ask the kernel whether it may read the time stamp counter.
    pub may_ask_for_counter: bool,
    /// The pairs of seccomp mode and number of filters that the threads had when the filters were checked.
    pub seccomp_modes: BTreeSet<(u32, u32)>,
}

impl Checked {
    pub fn new(pid: u32) -> Result<Checked, Refusal> {
        Self::interruptible(pid, Interrupt::default())
    }

    /// As `new`, but waits for the process end early when `interrupt` is set.
    pub fn interruptible(pid: u32, interrupt: Interrupt) -> Result<Checked, Refusal> {
        if pid == std::process::id() {
            return Err(Refusal::Ourselves(pid));
        }
        let process = Process::new(pid).map_err(|_| Refusal::NoProcess(pid))?;
        let process = Process { interrupt, ..process };
        Self::of(&process)
    }

    /// Checks a process that may be held.
    pub(crate) fn of(process: &Process) -> Result<Checked, Refusal> {
        check(process).map_err(|refusal| refusal.checked(process, None))
    }

    /// Replaces a refusal that is only a consequence of something else, see [`Refusal::checked`].
    pub fn truth(&self, refusal: Refusal) -> Refusal {
        refusal.checked(&self.process, Some(&self.memory))
    }

    /// Checks the seccomp filters of all threads.
    pub fn check_filters(&mut self) -> Result<(), Refusal> {
        self.seccomp_modes = filter::modes(&self.process);
        let Verdict { is_filtered, may_ask_for_counter } = filter::check(&self.process)?;
        (self.filtered, self.may_ask_for_counter) = (is_filtered, may_ask_for_counter);
        Ok(())
    }

    /// Returns true if heaptrack launched the program.
    /// The processes that the target starts will be recorded, too.
    #[must_use]
    pub fn following(mut self) -> Checked {
        self.process.is_followed = true;
        self
    }

    pub fn is_launched(&self) -> bool {
        launch::is_launched(self)
    }
}

fn check(process: &Process) -> Result<Checked, Refusal> {
    let pid = process.pid;
    let status = process.status().map_err(|_| Refusal::NoProcess(pid))?;
    if matches!(status.state, 'Z' | 'X') {
        return Err(Refusal::Dead(pid));
    }
    if process.is_kernel() {
        return Err(Refusal::Kernel(pid));
    }
    if let Some(cgroup) = frozen::cgroup_of(process) {
        return Err(Refusal::Frozen { pid, cgroup });
    }
    if status.tracer != 0 && !process.hold.is_on() {
        return Err(Refusal::traced(pid, status.tracer));
    }
    // The memory is opened before the maps are read. If an exec replaces the program in between, the addresses are
    // those of the new program, and all reads of the old program's memory fail.
    let memory = Memory::open(&process.folder).map_err(|error| Refusal::seize(process, &error))?;
    let maps = Maps::of(&process.folder).map_err(|error| Refusal::seize(process, &error))?;
    if !is_ours(process) {
        return Err(Refusal::Architecture { pid });
    }
    let mut checked = Checked {
        process: process.clone(),
        memory,
        maps,
        filtered: false,
        may_ask_for_counter: false,
        seccomp_modes: BTreeSet::new(),
    };
    checked.check_filters()?;
    if checked.memory.is_gone() || checked.maps.0.is_empty() {
        return Err(Refusal::Replaced { pid });
    }
    Ok(checked)
}

/// Returns true for a 64-bit x86 program, and for a program whose file cannot be read.
fn is_ours(process: &Process) -> bool {
    let mut start = [0; 20];
    let read = File::open(process.folder.join("exe")).and_then(|file| file.read_exact_at(&mut start, 0));
    // A file may be executable but not readable. If it is of another architecture, `Loader::find` fails later.
    read.is_err() || start.get(4..6) == Some(&ELF_64) && start.get(18..20) == Some(&EM_X86_64)
}
