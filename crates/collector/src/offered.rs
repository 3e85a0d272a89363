//! Shared memory that the profiler itself takes from the hub of a followed tree, for a process that it patches.
//!
//! Receives: the pid of a process that is about to execute a program. Returns: shared memory that is on offer, and a second
//! mapping of it. Must hold: if the process never joins, the offer can be used again.
use crate::mapping::{HubPage, Mapping, thread_exists, tsc};
use channel::{Geometry, Hub, Offer, Stamp, StartRequest, StartStep};
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long to wait for an offer.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The hub of a followed tree, for other threads of the profiler.
#[derive(Clone)]
pub struct TreeHub {
    page: Arc<HubPage>,
    geometry: Geometry,
}

/// Shared memory for one process.
pub struct Offered {
    hub: &'static Hub,
    offer: &'static Offer,
    fd: u32,
    mapping: Mapping,
}

impl TreeHub {
    pub(crate) const fn new(page: Arc<HubPage>, geometry: Geometry) -> Self {
        TreeHub { page, geometry }
    }

    pub fn hub(&self) -> &'static Hub {
        self.page.hub()
    }

    /// The stamp that an event written now would get. A tree is recorded only with the processor's counter.
    pub fn now(&self) -> Stamp {
        tsc()
    }

    /// A process has executed a program that could not be patched, so it holds nothing any more.
    pub fn has_left(&self, pid: u32) {
        self.page.add_left(pid, tsc());
        ring(self.hub());
    }

    /// Takes shared memory for a process. Returns `None` if none is free.
    pub fn take(&self, pid: u32) -> Option<Offered> {
        let hub = self.hub();
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some((offer, fd)) = hub.offers.iter().find_map(|offer| Some((offer, offer.take(pid)?))) {
                ring(hub);
                let Ok(mapping) = Mapping::again(fd, self.geometry) else {
                    offer.put(fd);
                    return None;
                };
                return Some(Offered { hub, offer, fd, mapping });
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until a process asks for its program to be patched, or for modules that it has loaded, or for at most `time`.
    /// Returns the requests that are new, and the shared memory of the processes that wait for modules, without those that
    /// are `served` already. Requests of processes that have died are removed.
    pub fn wait_for_questions(
        &self,
        time: Duration,
        served: impl Fn(&Arc<Mapping>) -> bool,
    ) -> (Vec<&'static StartRequest>, Vec<Arc<Mapping>>) {
        let hub = self.hub();
        let rung = hub.starts_bell.load(Ordering::Acquire);
        let mut new = Vec::new();
        for request in &hub.starts {
            let pid = request.pid.load(Ordering::Acquire);
            if pid != 0 && request.advance(StartStep::Asked, StartStep::Seen) {
                new.push(request);
            } else if pid != 0
                && !request.is_at(StartStep::Seen)
                && !request.is_at(StartStep::Held)
                && !thread_exists(pid, pid)
            {
                request.free();
            }
        }
        let mut asking = self.page.asking();
        asking.retain(|mapping| !served(mapping));
        if new.is_empty() && asking.is_empty() {
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos() as _ };
            let _ = futex::wait(&hub.starts_bell, futex::Flags::empty(), rung, Some(&timeout));
        }
        (new, asking)
    }
}

impl Offered {
    pub const fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The path by which the process opens the shared memory.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd)
    }

    /// The process records now. `parent` is the process that has started it.
    pub fn join(&self, pid: u32, parent: u32) {
        let header = self.mapping.region().header();
        header.origin.parent_pid.store(parent, Ordering::Relaxed);
        header.origin.order.store(self.hub.joined.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        header.target_pid.store(pid, Ordering::Release);
        ring(self.hub);
    }

    /// The process does not record, and nothing was written to the memory.
    pub fn give_back(self) {
        self.offer.put(self.fd);
    }
}

fn ring(hub: &Hub) {
    hub.doorbell.fetch_add(1, Ordering::AcqRel);
    let _ = futex::wake(&hub.doorbell, futex::Flags::empty(), 1);
}
