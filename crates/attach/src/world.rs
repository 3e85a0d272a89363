//! Stopping threads of the target, and letting them go.
//!
//! Given: a process. Gives back: its threads, stopped, none missing. What must hold: signals on their way are
//! delivered; the target never stands still longer than the budget because of one thread that cannot stop; such a
//! thread is waited for while the others run, for a bounded time that the user can cut short; whatever happens all are
//! let go, by `Drop` or by the end of the tracing thread; a system call that was interrupted by the stop returns as if
//! it had not been.
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

/// How long the target may stand still while we wait for its last thread.
const BUDGET: Duration = Duration::from_millis(100);
/// How long we try in all. A thread may be in a call that cannot be interrupted: a slow disk, a vfork whose child is
/// not yet through.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// How long the target runs between two tries.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
const SEIZE_TRIES: u32 = 10;
const SPINS: u32 = 20;
const POLL_EVERY: Duration = Duration::from_micros(50);
/// How long we wait for a thread that came too late, while the other threads run.
const LATE: Duration = Duration::from_secs(2);

/// Stopped threads.
#[derive(Debug)]
pub struct World {
    process: Process,
    pub tids: Vec<Tid>,
    /// When the first one stood still.
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
    /// Not in time.
    Slow,
}

impl World {
    /// All threads.
    pub fn stop(process: &Process) -> Result<World, Refusal> {
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

    fn new(process: &Process) -> World {
        World { process: process.clone(), tids: Vec::new(), since: Instant::now() }
    }

    fn try_stop(process: &Process, patience: &mut Patience<'_>) -> Result<World, Failure> {
        let mut world = World::new(process);
        // A thread that cannot stop yet would hold up the others, so these come first. Until the first of them has
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

    /// Tells threads to stop. Gives back those that are still there.
    fn interrupt(&mut self, tids: Vec<Tid>) -> Result<Vec<Tid>, Refusal> {
        let mut told = Vec::new();
        for tid in tids {
            match seize(&self.process, tid) {
                Ok(()) => told.push(tid),
                // It ended meanwhile, or it is the first thread and has ended alone.
                Err(unseized) if unseized.is_over(&self.process, tid) => (),
                Err(unseized) => return Err(unseized.refusal(&self.process)),
            }
        }
        self.tids.extend(&told);
        for tid in &told {
            // Gone threads are found when waited for.
            let _ = ptrace::interrupt(*tid);
        }
        Ok(told)
    }

    /// Returns when one of the threads has stopped or ended, or when there are none.
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

    /// Those that have ended are forgotten.
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

    /// How long the target has been standing still.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let late: Vec<Tid> = self.tids.iter().copied().filter(|tid| ptrace::detach(*tid).is_err()).collect();
        // What has ended needs no letting go. What has yet to stop would return from its system call as if interrupted:
        // the others run, so it can be waited for. What cannot stop is let go when this thread ends.
        for tid in late {
            let may_stop = self.process.thread_state(tid).is_some_and(|state| !matches!(state, 'D' | 'Z' | 'X'));
            let mut patience = Patience::new(&self.process, LATE);
            if may_stop && matches!(wait_for(&self.process, tid, &mut patience), Ok(Waited::Stopped)) {
                let _ = ptrace::detach(tid);
            }
        }
    }
}

/// Why a thread could not be seized, and who traced it then.
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

/// A thread that could not be stopped in time before is ours still. The tracer that was in the way may have let the
/// thread go since, as a recorder does that detaches at this moment. Then we try again.
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

/// Threads in system calls that cannot be interrupted.
fn uninterruptible(process: &Process) -> Vec<Tid> {
    let threads = process.threads().unwrap_or_default();
    threads.into_iter().filter(|tid| process.thread_state(*tid) == Some('D')).collect()
}

/// Waits for a thread's stop, and puts right what the stop did; signals on the way are delivered to it.
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
            Some(Event::SystemCall) => drop(ptrace::resume(tid, 0)),
            None if patience.is_over() => return Ok(Waited::Slow),
            None if spins < SPINS => {
                spins += 1;
                std::thread::yield_now();
            }
            None => patience.rest(POLL_EVERY)?,
        }
    }
}

/// System calls that a stop may end with EINTR, where others are restarted: read, write, recvfrom, accept and their kin
/// on a socket with a time-out, semop, rt_sigtimedwait, io_getevents, epoll_wait.
const FRAGILE: [u64; 21] = [0, 1, 19, 20, 42, 43, 44, 45, 46, 47, 65, 128, 208, 220, 232, 281, 288, 299, 333, 426, 441];
const EINTR: u64 = -4i64 as u64;
const SYSCALL_LEN: u64 = 2;

/// Makes a call start again that only our stop has ended.
fn restart_interrupted_syscall(process: &Process, tid: Tid) {
    let Ok(mut registers) = ptrace::registers(tid) else { return };
    if registers.rax != EINTR || !FRAGILE.contains(&registers.orig_rax) {
        return;
    }
    if process.thread_status(tid).is_ok_and(|status| !status.has_signal()) {
        registers.rip -= SYSCALL_LEN;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
        // A thread that died meanwhile needs none.
        let _ = ptrace::set_registers(tid, &registers);
    }
}
