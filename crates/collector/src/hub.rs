//! Sessions for processes that we did not launch: each takes an offer when it starts.
//!
//! Receives: how to watch a process. Returns: a session for every process that joined. Must hold: offers that were
//! taken are replaced while there are fewer than `MOST_SESSIONS` sessions; each offer has its collecting thread
//! already, so a process that takes one never waits for us; a target that corrupts the page gets no offers, but breaks
//! nothing here.
use crate::error::SetupError;
use crate::mapping::{AliveWord, HubPage, hold_until_death, thread_exists};
use crate::recording::{LivePlan, Recording};
use channel::OfferState;
use rustix::thread::futex;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of open offers while no process joins, and while many do.
const FEW: usize = 4;
const MANY: usize = channel::OFFERS;
/// The most processes that are watched at the same time. Each costs a thread and a few megabytes.
const MOST_SESSIONS: usize = 512;

pub struct Hub {
    page: HubPage,
    plan: LivePlan,
    /// The session of each offer, by the offer's place.
    spares: Vec<Option<Recording>>,
    /// How many offers should be open: more after each one that was taken, fewer with time.
    wanted: usize,
}

/// A handle by which another thread ends a `Hub::wait`.
#[derive(Clone, Copy)]
pub struct Bell(&'static channel::Hub);

impl Bell {
    pub fn ring(&self) {
        self.0.doorbell.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&self.0.doorbell, futex::Flags::empty(), 1);
    }
}

/// A process that joined, and its session.
pub struct Joined {
    pub pid: u32,
    pub recording: Recording,
}

impl Hub {
    pub fn create(plan: LivePlan) -> Result<Self, SetupError> {
        let page = HubPage::create(false, "")?;
        let spares = page.hub().offers.iter().map(|_| None).collect();
        Ok(Hub { page, plan, spares, wanted: FEW })
    }

    /// Returns the value of the environment variable `HEAPTRACK_FOLLOW`, by which processes find the page.
    pub fn variable(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.page.fd().as_raw_fd())
    }

    /// Returns the number of processes that got no session and run unwatched.
    pub fn missed(&self) -> u32 {
        self.page.hub().missed.load(Ordering::Relaxed)
    }

    /// Returns how long processes waited for a session, in nanoseconds, summed over all of them.
    pub fn waited_ns(&self) -> u64 {
        self.page.hub().waited_ns.load(Ordering::Relaxed)
    }

    /// Replaces offers that were taken, unless there are too many sessions. `sessions` is the number of those that run.
    pub fn offer(&mut self, sessions: usize) {
        let hub = self.page.hub();
        let standing = self.spares.iter().flatten().count();
        let missing = self.wanted.min(MOST_SESSIONS.saturating_sub(sessions)).saturating_sub(standing);
        if missing == 0 {
            return;
        }
        // If there is not enough memory for all of them now, the missing ones are made later.
        let mut new = Recording::live_ones(&self.plan, missing).into_iter();
        for (spare, offer) in self.spares.iter_mut().zip(&hub.offers).filter(|(spare, _)| spare.is_none()) {
            let Some(recording) = new.next() else { break };
            offer.put(recording.mapping().fd().as_raw_fd() as u32);
            *spare = Some(recording);
        }
        hub.served.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&hub.served, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Returns the processes that joined since the last call.
    pub fn joined(&mut self) -> Vec<Joined> {
        let mut joined = Vec::new();
        for (spare, offer) in self.spares.iter_mut().zip(&self.page.hub().offers) {
            let Some(pid) = spare.as_ref().and_then(Recording::target_pid) else {
                // The process that took it died before it could join, so the offer can be used again.
                if let (OfferState::Taken { pid, .. }, Some(recording)) = (offer.state(), spare.as_ref())
                    && !thread_exists(pid, pid)
                {
                    offer.put(recording.mapping().fd().as_raw_fd() as u32);
                }
                continue;
            };
            offer.clear();
            joined.extend(spare.take().map(|recording| Joined { pid, recording }));
        }
        self.wanted = (self.wanted + 2 * joined.len()).clamp(FEW, MANY);
        if joined.is_empty() && self.wanted > FEW {
            self.wanted -= 1;
        }
        joined
    }

    /// Returns when a process has joined, when the bell rings, or after `time`.
    pub fn wait(&self, time: Duration) {
        let hub = self.page.hub();
        let rung = hub.doorbell.load(Ordering::Acquire);
        let waits = self.spares.iter().flatten().all(|spare| spare.target_pid().is_none());
        if waits {
            let timeout = rustix::time::Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ };
            let _ = futex::wait(&hub.doorbell, futex::Flags::empty(), rung, Some(&timeout));
        }
    }

    /// Returns a handle that ends a `wait` from another thread.
    pub fn bell(&self) -> Bell {
        Bell(self.page.hub())
    }

    /// The calling thread stands for the collector: when it ends, no process waits for an offer any more.
    pub fn stand(&self) -> std::io::Result<impl Sized + use<>> {
        hold_until_death(AliveWord::Hub(self.page.hub()))
    }
}
