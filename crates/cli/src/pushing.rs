//! `--push`: profiles of a recording that runs, for dashboards (`crates/push`).
//!
//! Receives: the trace that is being written. A thread makes a profile at every interval: what was allocated since the last
//! one, and what is live now. Must hold: the recording never waits for a server. The profiles of a recording add up to its
//! trace: the last one is made of the finished trace.
mod options;
mod since_last;

pub use options::PushOptions;

use crate::live::SharedStore;
use crate::say;
use analysis::view::Paths;
use analysis::{CodeClasses, Query, StackTable, Suppressions};
use anyhow::{Context, anyhow};
use export::pprof::{Compared, write_compared};
use export::{Packed, Packing, Redaction, Selected, otlp};
use heaptrack_trace::OpenTrace;
use push::{Interval, Kind, Labels, Pusher, Say, Settings};
use since_last::SinceLast;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use web::{Refusal, TraceStore};

/// The most bytes that are kept in memory for servers that are away.
const IN_MEMORY: u64 = 8 << 20;
/// The most time that is taken for the last profile after the program's end.
const AT_THE_END: Duration = Duration::from_secs(5);

/// A spool that is open, before the program starts: if it cannot be had, nothing was started yet.
pub struct Prepared {
    pusher: Pusher,
    labels: Labels,
    redaction: Option<Redaction>,
    every: Duration,
    quiet: bool,
}

/// Opens the spool if profiles are to be pushed.
pub fn prepare(options: &PushOptions, quiet: bool) -> anyhow::Result<Option<Prepared>> {
    if options.push.is_empty() {
        return Ok(None);
    }
    let spool_size = if options.push_spool.is_some() { options.push_spool_size } else { IN_MEMORY };
    let settings = Settings {
        destinations: options.push.clone(),
        headers: options.push_headers.as_deref().map(headers).transpose()?.unwrap_or_default(),
        spool: options.push_spool.clone(),
        spool_size,
    };
    let mut labels = Labels::default();
    options.label.iter().for_each(|(name, value)| labels.add(name, value));
    labels.add("host", &rustix::system::uname().nodename().to_string_lossy());
    labels.add("pod", &pod());
    let say: Say = Arc::new(|sentence: &str| say(format_args!("heaptrack: {sentence}")));
    let folder = options.push_spool.as_deref().unwrap_or(Path::new("memory")).display().to_string();
    let pusher = Pusher::start(&settings, &say).with_context(|| format!("--push-spool {folder}"))?;
    let redaction = options.redact.as_deref().map(Redaction::new);
    Ok(Some(Prepared { pusher, labels, redaction, every: options.push_every, quiet }))
}

fn headers(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    push::headers(&text).map_err(|line| anyhow!("{}: line {line} is no header (example: Name: value)", path.display()))
}

/// The name of the pod that we are in. Manifests set POD_NAME; without it, a pod's host name is its own.
fn pod() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = || variable("KUBERNETES_SERVICE_HOST").and_then(|_| variable("HOSTNAME"));
    variable("POD_NAME").or_else(host).unwrap_or_default()
}

/// The thread that makes profiles.
pub struct Pushing {
    stop: Sender<()>,
    thread: JoinHandle<Maker>,
}

impl Prepared {
    /// Starts to push.
    pub fn start(self, store: &SharedStore) -> Option<Pushing> {
        let store = store.get();
        let Prepared { pusher, labels, redaction, every, quiet } = self;
        let mut maker =
            Maker { store, pusher, labels, redaction, quiet, since: SinceLast::default(), has_failed: false };
        let (stop, stopped) = channel();
        let work = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                maker.push_now();
            }
            maker
        };
        let started = std::thread::Builder::new().name("heaptrack-push".into()).spawn(work);
        let started = started.map_err(|error| {
            say(format_args!("heaptrack: recording without --push: no thread could be started: {error}"));
        });
        Some(Pushing { stop, thread: started.ok()? })
    }
}

impl Pushing {
    /// Pushes the rest of the finished trace.
    pub fn finish(self, path: &Path) {
        drop(self.stop);
        if let Ok(maker) = self.thread.join() {
            maker.finish(path);
        }
    }
}

struct Maker {
    store: Arc<TraceStore>,
    pusher: Pusher,
    labels: Labels,
    redaction: Option<Redaction>,
    quiet: bool,
    since: SinceLast,
    /// A profile could not be made or kept. That is said once.
    has_failed: bool,
}

impl Maker {
    fn push_now(&mut self) {
        let store = Arc::clone(&self.store);
        let pushed = store.look(|open, table| self.push(open, table));
        if let Some(error) = trouble(pushed) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &anyhow::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            say(format_args!("heaptrack: --push: {}", crate::trouble::sentence(error)));
        }
    }

    fn push(&mut self, open: &OpenTrace, table: &StackTable) -> anyhow::Result<()> {
        let query = Query::default();
        let whole = open.engine().whole_profile();
        let profile = match whole {
            Some(profile) => profile,
            None => open.profile(&query)?,
        };
        let definitions = open.engine().definitions();
        let session = &definitions.session;
        let program = session.command.first().unwrap_or(&session.exe);
        self.labels.add("service", program.rsplit('/').next().unwrap_or_default());
        let redacted = self.redaction.as_ref().map(|redaction| {
            let mut table = table.clone();
            redaction.table(&mut table);
            table
        });
        let table = redacted.as_ref().unwrap_or(table);
        let (rows, range) = self.since.rows(&profile, definitions);
        let selected = Selected {
            definitions,
            table,
            paths: Paths::new(table, &query),
            range,
            rows: &rows,
            peak_time_ns: profile.peak_time_ns,
            suppress: false,
            is_custom: false,
            redaction: self.redaction.as_ref(),
        };
        let unix = |ns: u64| session.started_unix_ns.saturating_add(ns);
        let interval = Interval { from_ns: unix(range.from_ns), to_ns: unix(range.to_ns) };
        let compared = Compared::WithTheLastOne;
        let mut pprof = Vec::new();
        if self.pusher.wants(|kind| kind != Kind::Otlp) {
            let mut packed = Packed::new(&mut pprof, Packing::Gzip)?;
            write_compared(&selected, "inuse_space", compared, &mut packed)?;
            packed.finish()?;
        }
        let is_otlp = self.pusher.wants(|kind| kind == Kind::Otlp);
        let otlp = if is_otlp { otlp::message(&selected, &self.labels.of_otlp(), compared) } else { Vec::new() };
        self.pusher.add(&self.labels, interval, &pprof, &otlp).context("a profile cannot be kept")
    }

    fn finish(mut self, path: &Path) {
        match self.push_finished(path) {
            Ok(()) => (),
            Err(error) => self.fail(&error),
        }
        let outcome = self.pusher.stop(AT_THE_END);
        let lost = outcome.dropped + outcome.left;
        if !self.quiet || lost > 0 {
            let of = |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
            let (dropped, left) = (of(outcome.dropped, "dropped"), of(outcome.left, "not sent"));
            let profiles = if outcome.sent == 1 { "profile" } else { "profiles" };
            say(format_args!("heaptrack: pushed {} {profiles}{dropped}{left}", outcome.sent));
        }
    }

    fn push_finished(&mut self, path: &Path) -> anyhow::Result<()> {
        if !path.exists() {
            // It was converted to KDE's format.
            self.push_now();
            return Ok(());
        }
        let open = OpenTrace::open(path)?;
        let classes = CodeClasses::new(&open.engine().definitions().session.exe);
        let table = open.table(&classes, Suppressions::new());
        self.push(&open, &table)
    }
}

/// What the user must know of a push. A trace that is still being read is none of it: it is pushed the next time.
fn trouble(pushed: Result<anyhow::Result<()>, Refusal>) -> Option<anyhow::Error> {
    match pushed {
        Ok(pushed) => pushed.err(),
        Err(Refusal { status: 503, .. }) => None,
        Err(refusal) => Some(anyhow!(refusal.sentence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_cannot_be_read_is_said_and_one_that_is_being_read_is_not() {
        let said = |pushed| trouble(pushed).map(|error| error.to_string());
        assert_eq!(said(Ok(Ok(()))), None);
        assert_eq!(said(Ok(Err(anyhow!("full")))), Some("full".to_owned()));
        assert_eq!(said(Err(Refusal::new(503, "This trace is still being read."))), None);
        let gone = "x.htz cannot be read: Too many open files";
        assert_eq!(said(Err(Refusal::new(422, gone))), Some(gone.to_owned()));
    }
}
