//! `--push`: profiles are sent to Pyroscope, Parca and collectors of OpenTelemetry.
//!
//! Receives: profiles, as bytes of pprof and of OpenTelemetry. A thread for each destination sends them. Must hold: adding a
//! profile never waits for a server. What cannot be sent is kept within a limit, and the oldest is dropped first. Whatever
//! a server answers, nothing ends but that profile.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod destination;
mod labels;
mod request;
mod sender;
mod spool;

pub use destination::{Destination, Kind};
pub use labels::Labels;
pub use request::Interval;
pub use sender::headers;

use request::Request;
use sender::Sender;
use spool::Spool;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    pub destinations: Vec<Destination>,
    /// Headers of every request, as `Authorization`.
    pub headers: Vec<(String, String)>,
    /// The folder for what cannot be sent. Without one it is kept in memory.
    pub spool: Option<PathBuf>,
    /// The most bytes that are kept.
    pub spool_size: u64,
}

/// What became of the profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub sent: u64,
    /// Refused by a server, or too old for the spool.
    pub dropped: u64,
    /// Still in the spool.
    pub left: u64,
}

/// Prints a sentence for people.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The threads that send.
pub struct Pusher {
    spool: Arc<Spool>,
    senders: Vec<Sender>,
}

impl Pusher {
    /// Opens the spool, and begins to send what an earlier recording left there.
    pub fn start(settings: &Settings, say: &Say) -> io::Result<Pusher> {
        let spool = Arc::new(Spool::open(settings.spool.as_deref(), settings.spool_size)?);
        let start = |destination: &Destination| {
            Sender::start(destination.clone(), settings.headers.clone(), Arc::clone(&spool), Arc::clone(say))
        };
        let senders = settings.destinations.iter().map(start).collect::<io::Result<_>>()?;
        Ok(Pusher { spool, senders })
    }

    /// True if a destination takes this kind of profile.
    pub fn wants(&self, is_wanted: impl Fn(Kind) -> bool) -> bool {
        self.senders.iter().any(|sender| is_wanted(sender.destination.kind))
    }

    /// Adds a profile for every destination. `pprof` is compressed, `otlp` is not.
    pub fn add(&self, labels: &Labels, interval: Interval, pprof: &[u8], otlp: &[u8]) -> io::Result<()> {
        for sender in &self.senders {
            let request = Request::new(sender.destination.kind, labels, interval, pprof, otlp)?;
            self.spool.add(sender.destination.id(), &request)?;
        }
        Ok(())
    }

    /// Sends what is left, for at most this time. A server that does not answer now is not waited for.
    pub fn stop(self, time: Duration) -> Outcome {
        let until = Instant::now() + time;
        self.spool.end();
        let sent = self.senders.into_iter().map(|sender| sender.stop(until)).sum();
        Outcome { sent, dropped: self.spool.dropped(), left: self.spool.close() }
    }
}
