//! Stopping threads of the target, and letting them go.
//!
//! Given: a process. Gives back: its threads, stopped, none missing. What must hold: signals on their way are delivered; a
//! thread that cannot stop is not waited for beyond the budget; whatever happens all are let go, by `Drop` or by the end of
//! the tracing thread; a system call that was interrupted by the stop returns as if it had not been.
//!
//! ```text
//! seize all -> interrupt all -> wait: Stopped --(fix what the stop did)--> work --> release
//!    ^  new threads have come  |      Signal: delivered, then Stopped
//!    +-------------------------+      Gone: forgotten
//! ```
use crate::error::Refusal;
use crate::process::Process;
use crate::ptrace::{self, Event, Tid};
use std::collections::HashSet;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the target may stand still while we wait for its last thread.
const BUDGET: Duration = Duration::from_millis(100);
/// How often we try; a thread may be in a call that cannot be interrupted (a vfork whose child is not yet through).
const TRIES: u32 = 40;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
const SPINS: u32 = 20;
/// How long we wait for a thread that came too late, when nobody stands still for it.
const LATE: Duration = Duration::from_secs(2);

/// Stopped threads.
#[derive(Debug)]
pub struct World {
    process: Process,
    pub tids: Vec<Tid>,
    /// When the first one was told to stop.
    pub since: Instant,
}

enum Failure {
    /// A thread did not stop in time.
    Slow(Tid),
    Refused(Refusal),
}

impl World {
    /// All threads.
    pub fn stop(process: &Process) -> Result<World, Refusal> {
        let mut last = 0;
        for _ in 0..TRIES {
            // A thread that cannot stop would only hold up the others.
            if let Some(tid) = uninterruptible(process) {
                last = tid;
                sleep(BETWEEN_TRIES / 10);
                if uninterruptible(process) == Some(tid) {
                    sleep(BETWEEN_TRIES);
                    continue;
                }
            }
            match Self::try_stop(process) {
                Ok(world) => return Ok(world),
                Err(Failure::Refused(refusal)) => return Err(refusal),
                Err(Failure::Slow(tid)) => last = tid,
            }
            sleep(BETWEEN_TRIES);
        }
        Err(Refusal::Unstoppable { tid: last })
    }

    /// Only one.
    pub fn stop_one(process: &Process, tid: Tid) -> Result<World, Refusal> {
        let mut world = World { process: process.clone(), tids: Vec::new(), since: Instant::now() };
        seize(process, tid).map_err(|error| Refusal::seize(process, &error))?;
        world.tids.push(tid);
        ptrace::interrupt(tid).map_err(|error| Refusal::seize(process, &error))?;
        if !wait_for(process, tid, Instant::now() + BUDGET) {
            return Err(Refusal::Unstoppable { tid });
        }
        Ok(world)
    }

    fn try_stop(process: &Process) -> Result<World, Failure> {
        let mut world = World { process: process.clone(), tids: Vec::new(), since: Instant::now() };
        let deadline = world.since + BUDGET;
        let mut seen = HashSet::new();
        loop {
            let threads = process.threads().map_err(|_| Failure::Refused(Refusal::Gone))?;
            let new: Vec<Tid> = threads.into_iter().filter(|tid| seen.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            let mut seized = Vec::new();
            for tid in new {
                match seize(process, tid) {
                    Ok(()) => seized.push(tid),
                    // It ended meanwhile, or it is the first thread and has ended alone.
                    Err(error) if is_over(process, tid, &error) => (),
                    Err(error) => return Err(Failure::Refused(Refusal::seize(process, &error))),
                }
            }
            world.tids.extend(&seized);
            for tid in &seized {
                // Gone threads are found when waited for.
                let _ = ptrace::interrupt(*tid);
            }
            for tid in seized {
                if !wait_for(process, tid, deadline) {
                    if process.thread_state(tid).is_some_and(|state| !matches!(state, 'Z' | 'X')) {
                        return Err(Failure::Slow(tid));
                    }
                    world.tids.retain(|known| *known != tid);
                }
            }
        }
        if world.tids.is_empty() {
            return Err(Failure::Refused(Refusal::Gone));
        }
        Ok(world)
    }

    /// How long the target has been standing still.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let late: Vec<Tid> = self.tids.iter().copied().filter(|tid| ptrace::detach(*tid).is_err()).collect();
        // What has ended needs no letting go. What has yet to stop would return from its system call as if interrupted: the
        // others run, so it can be waited for. What cannot stop is let go when this thread ends.
        for tid in late {
            let may_stop = self.process.thread_state(tid).is_some_and(|state| !matches!(state, 'D' | 'Z' | 'X'));
            if may_stop && wait_for(&self.process, tid, Instant::now() + LATE) {
                let _ = ptrace::detach(tid);
            }
        }
    }
}

/// A thread that could not be stopped in time before is ours still.
fn seize(process: &Process, tid: Tid) -> io::Result<()> {
    let ours = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    ptrace::seize(tid).or_else(|error| match process.thread_status(tid) {
        Ok(status) if status.tracer == ours => Ok(()),
        _ => Err(error),
    })
}

fn is_over(process: &Process, tid: Tid, error: &io::Error) -> bool {
    let state = process.thread_state(tid);
    error.raw_os_error() == Some(libc::ESRCH) || matches!(state, None | Some('Z' | 'X'))
}

/// A thread in a system call that cannot be interrupted.
fn uninterruptible(process: &Process) -> Option<Tid> {
    let threads = process.threads().unwrap_or_default();
    threads.into_iter().find(|tid| process.thread_state(*tid) == Some('D'))
}

/// Waits for a thread's stop, and puts right what the stop did; signals on the way are delivered to it. False: not in time,
/// or it is gone.
fn wait_for(process: &Process, tid: Tid, deadline: Instant) -> bool {
    let mut spins = 0;
    loop {
        match ptrace::poll(tid) {
            Some(Event::Stopped) => {
                unhurt(process, tid);
                return true;
            }
            Some(Event::Gone) => return false,
            Some(Event::Signal(signal)) => drop(ptrace::resume(tid, signal)),
            Some(Event::SystemCall) => drop(ptrace::resume(tid, 0)),
            None if Instant::now() >= deadline => return false,
            None if spins < SPINS => {
                spins += 1;
                std::thread::yield_now();
            }
            None => sleep(Duration::from_micros(50)),
        }
    }
}

/// System calls that a stop may end with EINTR, where others are restarted: read, write, recvfrom, accept and their kin on
/// a socket with a time-out, semop, rt_sigtimedwait, io_getevents, epoll_wait.
const FRAGILE: [u64; 21] = [0, 1, 19, 20, 42, 43, 44, 45, 46, 47, 65, 128, 208, 220, 232, 281, 288, 299, 333, 426, 441];
const EINTR: u64 = -4i64 as u64;
const SYSCALL_LEN: u64 = 2;

/// Makes a call start again that only our stop has ended.
fn unhurt(process: &Process, tid: Tid) {
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
