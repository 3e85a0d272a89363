//! Why a process cannot be attached to. Each reason is one sentence. If the user can do something about it, the
//! sentence says what.
use crate::frozen;
use crate::memory::Memory;
use crate::process::Process;
use std::{fs, io};

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("process {0} is heaptrack itself")]
    Ourselves(u32),
    #[error("process {0} has already exited (zombie)")]
    Dead(u32),
    #[error("process {0} is a kernel thread: it has no heap")]
    Kernel(u32),
    #[error("process {pid} belongs to user {uid}: run heaptrack as that user or as root")]
    OtherUser { pid: u32, uid: u32 },
    #[error(
        "the kernel restricts which processes may trace others (kernel.yama.ptrace_scope = {scope}): \
         run heaptrack as root, or `sysctl kernel.yama.ptrace_scope=0`"
    )]
    Scope { scope: u32 },
    #[error("kernel.yama.ptrace_scope = 3: on this machine nobody may trace a process until the next boot")]
    Never,
    #[error(
        "no permission to trace process {pid}: run heaptrack as root; in a container, give it the capability SYS_PTRACE \
         (docker run --cap-add=SYS_PTRACE)"
    )]
    NoPermission { pid: u32 },
    #[error(
        "the kernel does not allow heaptrack to trace a program that it starts, without which this one cannot be recorded: {why}"
    )]
    OwnChild { why: String },
    #[error(
        "/proc is not mounted, and without it a program that is static or defines its own malloc cannot be recorded"
    )]
    NoProc,
    #[error("process {pid} is traced already by {tracer}: end that first (gdb: detach; strace: Ctrl-C)")]
    Traced { pid: u32, tracer: String },
    #[error("process {pid} is being recorded by heaptrack (pid {recorder}): `heaptrack detach {pid}` ends that")]
    Recorded { pid: u32, recorder: u32 },
    #[error("process {pid} was started by heaptrack: its allocations are recorded there")]
    Launched { pid: u32 },
    #[error(
        "process {pid} was launched by heaptrack and is recorded by process {recorder}; that recording ends when the program does \
         (`kill {recorder}` is passed on to it)"
    )]
    LaunchedBy { pid: u32, recorder: u32 },
    #[error(
        "process {pid} was launched by heaptrack, whose process has ended: nothing records it any more, and its hooks do nothing"
    )]
    LaunchedByNobody { pid: u32 },
    #[error(
        "--follow is not possible: process {pid} cannot open heaptrack's memory ({error}), because it runs as another user, in \
         another root folder or in another container: run heaptrack as its user, or leave out --follow to record it alone"
    )]
    OutOfReach { pid: u32, error: std::io::Error },
    #[error("process {pid} is frozen (cgroup {cgroup}): thaw it first (`docker unpause`, or the cgroup's freezer)")]
    Frozen { pid: u32, cgroup: String },
    #[error("interrupted")]
    Interrupted,
    #[error("process {pid} is not a 64-bit x86 program; this heaptrack records no others")]
    Architecture { pid: u32 },
    #[error(
        "a seccomp filter of process {pid} forbids {call}, which recording needs: record it from its start \
         (heaptrack PROGRAM), or run it without the filter"
    )]
    Seccomp { pid: u32, call: &'static str },
    #[error(
        "process {pid} has a seccomp filter that only root may look at, and breaking it could kill the process: run heaptrack \
         as root"
    )]
    UnknownFilter { pid: u32 },
    #[error("thread {tid} of process {pid} runs in seccomp's strict mode, where any call of ours would kill it")]
    StrictSeccomp { pid: u32, tid: u32 },
    #[error("process {pid} runs under {tool}, which has replaced malloc: it finds leaks itself")]
    Sanitizer { pid: u32, tool: &'static str },
    #[error(
        "{exe} is a Go program without C code, and Go does not use malloc: use Go's own heap profile (go tool pprof)"
    )]
    Go { exe: String },
    #[error(
        "{exe} is linked statically and has no symbols, so its malloc cannot be found: use a build that is not stripped, or \
         name the folder of its debug file with --debug-path"
    )]
    Stripped { exe: String },
    #[error("no malloc was found in process {pid}: there is nothing to record")]
    NoMalloc { pid: u32 },
    #[error("{function} of {module} cannot be patched: {why}, and no module imports it")]
    NotPatchable { function: String, module: String, why: &'static str },
    #[error(
        "thread {tid} cannot be stopped: it has been in an uninterruptible system call all the time; try again later"
    )]
    Unstoppable { tid: u32 },
    /// Only a first guess: [`Refusal::checked`] replaces it.
    #[error("the process has ended or become another program meanwhile")]
    Gone,
    #[error("process {pid} has exited meanwhile")]
    Exited { pid: u32 },
    #[error("process {pid} has become another program (exec) meanwhile: try again")]
    Replaced { pid: u32 },
    #[error("process {pid} changed while it was looked at; try again")]
    Restless { pid: u32 },
    #[error("the process keeps changing what is to be patched; try again")]
    Busy,
    #[error(
        "the program's loader is not one that heaptrack knows how to stop: record the program by attaching to it (heaptrack -p)"
    )]
    Loader,
    #[error("no usable `syscall` instruction was found in the program")]
    NoGadgets,
    #[error("thread {tid} has no stack that heaptrack could use for system calls")]
    NoStack { tid: u32 },
    #[error("the process refused {what}: {error}")]
    Call { what: &'static str, error: io::Error },
    #[error("the memory of process {pid} cannot be read or written: {error}")]
    Memory { pid: u32, error: io::Error },
    #[error("nothing of heaptrack is in process {0}")]
    NotAttached(u32),
    #[error("heaptrack itself is broken: {0}")]
    Image(&'static str),
}

impl Refusal {
    pub fn call(what: &'static str) -> impl FnOnce(io::Error) -> Refusal {
        move |error| Refusal::Call { what, error }
    }

    pub fn memory(pid: u32) -> impl FnOnce(io::Error) -> Refusal {
        move |error| Refusal::Memory { pid, error }
    }

    /// Returns the actual reason. A refusal may only be a consequence: the process has exited, called exec or was
    /// frozen, or the user has interrupted the attach. `memory` is that of the program that was checked at the
    /// beginning.
    pub fn checked(self, process: &Process, memory: Option<&Memory>) -> Refusal {
        let pid = process.pid;
        if matches!(self, Refusal::Kernel(_)) {
            return self;
        }
        if process.has_exited() {
            return if process.is_zombie() && matches!(self, Refusal::Dead(_)) {
                self
            } else {
                Refusal::Exited { pid }
            };
        }
        if memory.is_some_and(Memory::is_gone) {
            return Refusal::Replaced { pid };
        }
        if process.interrupt.is_set() {
            return Refusal::Interrupted;
        }
        if let Some(cgroup) = frozen::cgroup_of(process) {
            return Refusal::Frozen { pid, cgroup };
        }
        match self {
            Refusal::Gone => Refusal::Restless { pid },
            refusal => refusal,
        }
    }

    /// Returns why a process cannot be traced, after a request for it has failed with `error`.
    pub fn seize(process: &Process, error: &io::Error) -> Refusal {
        let pid = process.pid;
        if error.raw_os_error() == Some(libc::ESRCH) {
            return Refusal::Gone;
        }
        let Ok(status) = process.status() else { return Refusal::Gone };
        if status.tracer != 0 {
            return Refusal::traced(pid, status.tracer);
        }
        let user = rustix::process::geteuid();
        if !user.is_root() && status.uid != user.as_raw() {
            return Refusal::OtherUser { pid, uid: status.uid };
        }
        Self::without_permission(pid, ptrace_scope())
    }

    /// Returns why a child of ours cannot be traced, after a request for it has failed with `error`.
    pub fn own_child(process: &Process, error: &io::Error) -> Refusal {
        match process.status() {
            Ok(status) if status.tracer != 0 => Refusal::traced(process.pid, status.tracer),
            _ => Self::own_child_without_permission(ptrace_scope(), error),
        }
    }

    fn own_child_without_permission(scope: Option<u32>, error: &io::Error) -> Refusal {
        let why = match scope {
            Some(3) => "kernel.yama.ptrace_scope is 3, so no process can be traced until the next boot".to_owned(),
            Some(2) => "kernel.yama.ptrace_scope is 2, so only root may trace: run heaptrack as root".to_owned(),
            _ => format!("{error}; a container needs the capability SYS_PTRACE (docker run --cap-add=SYS_PTRACE)"),
        };
        Refusal::OwnChild { why }
    }

    pub fn traced(pid: u32, tracer: u32) -> Refusal {
        Refusal::Traced { pid, tracer: name_of(tracer) }
    }

    /// Returns why the kernel refuses to trace a process of the same user that no other process traces.
    pub fn without_permission(pid: u32, scope: Option<u32>) -> Refusal {
        match scope {
            Some(3) => Refusal::Never,
            Some(scope @ 1..=2) => Refusal::Scope { scope },
            _ => Refusal::NoPermission { pid },
        }
    }
}

fn ptrace_scope() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Returns the name and pid of a process, for a message.
fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} (pid {pid})", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Hold;
    use crate::interrupt::Interrupt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_setting_that_refuses_is_named() {
        let sentence = |scope| Refusal::without_permission(7, scope).to_string();
        assert!(sentence(Some(1)).contains("sysctl kernel.yama.ptrace_scope=0"));
        assert!(sentence(Some(2)).contains("kernel.yama.ptrace_scope = 2"));
        assert!(sentence(Some(3)).contains("until the next boot"));
        assert!(sentence(Some(0)).contains("--cap-add=SYS_PTRACE"));
        assert!(sentence(None).contains("SYS_PTRACE"));
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let sentence = |scope| Refusal::own_child_without_permission(scope, &denied).to_string();
        assert!(sentence(Some(3)).ends_with("until the next boot"));
        assert!(sentence(Some(2)).ends_with("run heaptrack as root"));
        assert!(sentence(Some(1)).contains("Operation not permitted") && sentence(None).contains("SYS_PTRACE"));
    }

    /// Sentences for cases that a test cannot produce with a real target. `tests/tests/attach_refusals.rs` tests most
    /// of the others.
    #[test]
    fn sentences_for_what_hardly_happens() {
        let error = || io::Error::from_raw_os_error(libc::EIO);
        let said = |refusal: Refusal| refusal.to_string();
        assert_eq!(
            said(Refusal::memory(7)(error())),
            "the memory of process 7 cannot be read or written: Input/output error (os error 5)"
        );
        assert_eq!(said(Refusal::Image("why")), "heaptrack itself is broken: why");
        let gone = Process {
            pid: 0x7fff_fff0,
            folder: "/proc/2147483632".into(),
            started: 1,
            interrupt: Interrupt::default(),
            hold: Hold::default(),
            is_followed: false,
        };
        let gone = [Refusal::seize(&gone, &error()), Refusal::seize(&gone, &io::Error::from_raw_os_error(libc::ESRCH))];
        assert_eq!(gone.map(said), ["the process has ended or become another program meanwhile"; 2]);
    }

    /// A refusal that is only a consequence is replaced by its cause.
    #[test]
    fn a_refusal_is_checked_before_it_is_said() {
        let flag = Arc::new(AtomicBool::new(false));
        let us = Process::new(std::process::id()).unwrap();
        let us = Process { interrupt: Interrupt::new(Arc::clone(&flag)), ..us };
        fn checked(process: &Process, memory: Option<&Memory>) -> String {
            Refusal::NoMalloc { pid: 7 }.checked(process, memory).to_string()
        }
        let memory = Memory::open(&us.folder).unwrap();
        assert!(checked(&us, Some(&memory)).starts_with("no malloc was found"));
        assert!(matches!(Refusal::Gone.checked(&us, Some(&memory)), Refusal::Restless { .. }));
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::new(child.id()).unwrap();
        let theirs = Memory::open(&process.folder).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(checked(&process, None), format!("process {} has exited meanwhile", process.pid));
        let replaced = format!("process {} has become another program (exec) meanwhile: try again", us.pid);
        assert_eq!(checked(&us, Some(&theirs)), replaced);
        flag.store(true, Ordering::Release);
        assert_eq!(checked(&us, Some(&memory)), "interrupted");
    }
}
