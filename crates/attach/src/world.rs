//! Stopping the threads of the target, and releasing them.
//!
//! Receives: a process. Returns: all its threads, stopped. Must hold:
//! - Pending signals are delivered.
//! - The target is never stopped for longer than the budget because of one thread that cannot stop. Such a thread is
//!   waited for while the others run, for a bounded time that the user can cut short.
//! - All threads are released in any case, by `Drop` or by the end of the tracing thread.
//! - A process that is held (`hold.rs`) stays stopped.
//! - A system call that the stop interrupted continues as if it had not been interrupted.
//!
//! ```text
//! threads in uninterruptible sleep: seize, interrupt, wait for the first  (the others run)
//! seize all -> interrupt all -> wait: Stopped --(fix what the stop did)--> work --> release
//!    ^  new threads have come  |      Signal: delivered, then Stopped
//!    +-------------------------+      Gone: forgotten
//! ```
use crate::error::Refusal;
use crate::interrupt::Patience;
use crate::process::Process;
use crate::ptrace::{self, Event, Tid};
use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

/// How long the target may be stopped while the profiler waits for its last thread.
const BUDGET: Duration = Duration::from_millis(100);
/// How long the profiler tries in total. A thread may be in a call that cannot be interrupted, because of a slow disk,
/// or because of a vfork whose child has not called exec yet.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// How long the target runs between two tries.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
const SEIZE_TRIES: u32 = 10;
const SPINS: u32 = 20;
const POLL_EVERY: Duration = Duration::from_micros(50);
/// How long to wait for a thread that did not stop in time, while the other threads run.
const LATE: Duration = Duration::from_secs(2);

/// Stopped threads.
#[derive(Debug)]
pub struct World {
    process: Process,
    pub tids: Vec<Tid>,
    /// When the first thread was stopped.
    pub since: Instant,
}

enum Failure {
    /// A thread did not stop in time.
    Slow(Tid),
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

/// What became of a thread that was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Stopped,
    /// It has ended.
    Gone,
    /// It did not stop in time.
    Slow,
}

impl World {
    /// Stops all threads.
    pub fn stop(process: &Process) -> Result<World, Refusal> {
        if process.hold.is_on() {
            return Ok(World::held(process));
        }
        let mut patience = Patience::new(process, PATIENCE);
        loop {
            match Self::try_stop(process, &mut patience) {
                Ok(world) => return Ok(world),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(Failure::Slow(tid)) if patience.is_over() => return Err(Refusal::Unstoppable { tid }),
                Err(Failure::Slow(_)) => patience.rest(BETWEEN_TRIES)?,
            }
        }
    }

    /// Stops one thread, and waits up to `time` for it. The other threads run meanwhile.
    pub fn stop_one(process: &Process, tid: Tid, time: Duration) -> Result<World, Refusal> {
        if process.hold.is_on() {
            return Ok(World::held(process));
        }
        let mut world = World::new(process);
        seize(process, tid).map_err(|unseized| unseized.refusal(process))?;
        world.tids.push(tid);
        ptrace::interrupt(tid).map_err(|error| Refusal::seize(process, &error))?;
        match wait_for(process, tid, &mut Patience::new(process, time))? {
            Waited::Stopped => Ok(world),
            Waited::Gone => Err(Refusal::Gone),
            Waited::Slow => Err(Refusal::Unstoppable { tid }),
        }
    }

    /// The only thread of a process that is stopped already.
    fn held(process: &Process) -> World {
        let mut world = World::new(process);
        world.tids.push(process.pid);
        world
    }

    fn new(process: &Process) -> World {
        World { process: process.clone(), tids: Vec::new(), since: Instant::now() }
    }

    fn try_stop(process: &Process, patience: &mut Patience<'_>) -> Result<World, Failure> {
        let mut world = World::new(process);
        // Threads that cannot stop yet would hold up the others, so they come first. Until the first of them has
        // stopped, the whole program runs.
        let asleep = uninterruptible(process);
        let mut seen: HashSet<Tid> = asleep.iter().copied().collect();
        let asleep = world.interrupt(asleep)?;
        world.wait_for_first(&asleep, patience)?;
        world.since = Instant::now();
        let mut budget = Patience::new(process, BUDGET);
        world.wait_for_all(asleep, &mut budget)?;
        loop {
            let threads = process.threads().map_err(|_| Refusal::Gone)?;
            let new: Vec<Tid> = threads.into_iter().filter(|tid| seen.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            let told = world.interrupt(new)?;
            world.wait_for_all(told, &mut budget)?;
        }
        if world.tids.is_empty() {
            return Err(Failure::Refused(Refusal::Gone));
        }
        Ok(world)
    }

    /// Tells threads to stop. Returns those that still exist.
    fn interrupt(&mut self, tids: Vec<Tid>) -> Result<Vec<Tid>, Refusal> {
        let mut told = Vec::new();
        for tid in tids {
            match seize(&self.process, tid) {
                Ok(()) => told.push(tid),
                // The thread has ended meanwhile, or it is the first thread and only that one has ended.
                Err(unseized) if unseized.is_over(&self.process, tid) => (),
                Err(unseized) => return Err(unseized.refusal(&self.process)),
            }
        }
        self.tids.extend(&told);
        for tid in &told {
            // Threads that have ended are noticed later, when they are waited for.
            let _ = ptrace::interrupt(*tid);
        }
        Ok(told)
    }

    /// Returns when one of the threads is no longer in an uninterruptible sleep, or when there are no threads.
    fn wait_for_first(&self, tids: &[Tid], patience: &mut Patience<'_>) -> Result<(), Failure> {
        let sleeps = |tid: &Tid| self.process.thread_state(*tid) == Some('D');
        while let Some(tid) = tids.first().filter(|_| tids.iter().all(sleeps)) {
            if patience.is_over() {
                return Err(Failure::Slow(*tid));
            }
            patience.rest(POLL_EVERY)?;
        }
        Ok(())
    }

    /// Waits until all threads have stopped. Those that have ended are forgotten.
    fn wait_for_all(&mut self, tids: Vec<Tid>, budget: &mut Patience<'_>) -> Result<(), Failure> {
        for tid in tids {
            match wait_for(&self.process, tid, budget)? {
                Waited::Stopped => (),
                Waited::Gone => self.tids.retain(|known| *known != tid),
                Waited::Slow if is_dead(&self.process, tid) => self.tids.retain(|known| *known != tid),
                Waited::Slow => return Err(Failure::Slow(tid)),
            }
        }
        Ok(())
    }

    /// Returns how long the target has been stopped.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.process.hold.is_on() {
            return;
        }
        let late: Vec<Tid> = self.tids.iter().copied().filter(|tid| ptrace::detach(*tid).is_err()).collect();
        // A thread that has not stopped yet would return from its system call as if interrupted. The other threads run,
        // so it can be waited for. A thread that cannot stop is released when the tracing thread ends. One that has
        // ended needs nothing.
        for tid in late {
            let may_stop = self.process.thread_state(tid).is_some_and(|state| !matches!(state, 'D' | 'Z' | 'X'));
            let mut patience = Patience::new(&self.process, LATE);
            if may_stop && matches!(wait_for(&self.process, tid, &mut patience), Ok(Waited::Stopped)) {
                let _ = ptrace::detach(tid);
            }
        }
    }
}

/// Why a thread could not be seized, and the thread id of its tracer at that time (0 = none).
struct Unseized {
    error: io::Error,
    tracer: u32,
}

impl Unseized {
    fn refusal(&self, process: &Process) -> Refusal {
        match self.tracer {
            0 => Refusal::seize(process, &self.error),
            tracer => Refusal::traced(process.pid, tracer),
        }
    }

    fn is_over(&self, process: &Process, tid: Tid) -> bool {
        self.error.raw_os_error() == Some(libc::ESRCH) || is_dead(process, tid)
    }
}

/// Seizes a thread. If an earlier try could not stop it in time, it is still seized. If another tracer was in the way,
/// it may have released the thread since, such as a recorder that detaches at this moment. Then this tries again.
fn seize(process: &Process, tid: Tid) -> Result<(), Unseized> {
    let ours = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let mut tries = SEIZE_TRIES;
    loop {
        let Err(error) = ptrace::seize(tid) else { return Ok(()) };
        let tracer = process.thread_status(tid).map_or(0, |status| status.tracer);
        tries -= 1;
        match tracer {
            tracer if tracer == ours => return Ok(()),
            0 if error.raw_os_error() == Some(libc::EPERM) && tries > 0 => std::thread::yield_now(),
            tracer => return Err(Unseized { error, tracer }),
        }
    }
}

fn is_dead(process: &Process, tid: Tid) -> bool {
    matches!(process.thread_state(tid), None | Some('Z' | 'X'))
}

/// Returns the threads in system calls that cannot be interrupted.
fn uninterruptible(process: &Process) -> Vec<Tid> {
    let threads = process.threads().unwrap_or_default();
    threads.into_iter().filter(|tid| process.thread_state(*tid) == Some('D')).collect()
}

/// Waits until a thread has stopped, and restarts a system call that the stop interrupted. Pending signals are
/// delivered.
fn wait_for(process: &Process, tid: Tid, patience: &mut Patience<'_>) -> Result<Waited, Refusal> {
    let mut spins = 0;
    loop {
        match ptrace::poll(tid) {
            Some(Event::Stopped) => {
                restart_interrupted_syscall(process, tid);
                return Ok(Waited::Stopped);
            }
            Some(Event::Gone) => return Ok(Waited::Gone),
            Some(Event::Signal(signal)) => drop(ptrace::resume(tid, signal)),
            Some(Event::SystemCall | Event::Exec) => drop(ptrace::resume(tid, 0)),
            None if patience.is_over() => return Ok(Waited::Slow),
            None if spins < SPINS => {
                spins += 1;
                std::thread::yield_now();
            }
            None => patience.rest(POLL_EVERY)?,
        }
    }
}

/// System calls that a stop may end with EINTR, and that we restart. These are read, write, recvfrom, accept, sendfile, splice and
/// similar calls on a socket with a time-out, semop, rt_sigtimedwait, io_getevents, epoll_wait, variants of these, and
/// io_uring_enter. All of them return EINTR only if they have done nothing yet. The kernel itself restarts nearly all others.
const FRAGILE: [u64; 26] = [
    0, 1, 19, 20, 40, 42, 43, 44, 45, 46, 47, 65, 128, 208, 220, 232, 275, 281, 288, 299, 307, 327, 328, 333, 426, 441,
];
const EINTR: u64 = -4i64 as u64;
const SYSCALL_LEN: u64 = 2;

/// Restarts a system call that only our stop has ended.
fn restart_interrupted_syscall(process: &Process, tid: Tid) {
    let Ok(mut registers) = ptrace::registers(tid) else { return };
    if registers.rax != EINTR || !FRAGILE.contains(&registers.orig_rax) {
        return;
    }
    if process.thread_status(tid).is_ok_and(|status| !status.has_signal()) {
        registers.rip -= SYSCALL_LEN;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
        // A thread that has ended meanwhile needs no registers.
        let _ = ptrace::set_registers(tid, &registers);
    }
}
