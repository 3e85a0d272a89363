//! `--pprof`: profiles and metrics of a recording that runs, for collectors (`web::ScrapeServer`).
//!
//! Receives: the trace that is being written. A thread answers. Must hold: the recording never waits for a collector, and
//! goes on if the port cannot be had; a socket file is removed at the end.
mod metrics;

use crate::live::SharedStore;
use crate::recording_options::RecordingOptions;
use crate::say;
use analysis::view::Paths;
use analysis::{Detail, Query, StackTable, When};
use export::pprof::{Compared, write_compared};
use export::{Packed, Packing, Selected};
use heaptrack_trace::OpenTrace;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use web::{Listen, Refusal, Scrape, ScrapeServer, Token, TraceStore, Wanted};

/// A server for collectors. Dropping it removes its socket file.
pub struct Scraping {
    socket: Option<PathBuf>,
}

impl Drop for Scraping {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A server that is bound to its port, before the program starts: if it cannot be had, nothing was started yet.
pub struct Bound(ScrapeServer, Option<PathBuf>);

/// Binds the port if there is to be one.
pub fn bind_if_asked(options: &RecordingOptions) -> anyhow::Result<Option<Bound>> {
    let token_file = options.token_file.as_deref();
    options.pprof.as_ref().map(|listen| bind(listen, token_file)).transpose()
}

/// Binds the port. `token_file`: a file with the token that other machines need.
fn bind(listen: &Listen, token_file: Option<&Path>) -> anyhow::Result<Bound> {
    let token = match token_file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            let short = || anyhow::anyhow!("{}: a token has at least 16 letters, digits and -._~", path.display());
            Some(Token::from_text(text.trim()).ok_or_else(short)?)
        }
    };
    let socket = match listen {
        Listen::Unix(path) => Some(path.clone()),
        Listen::Tcp(_) => None,
    };
    Ok(Bound(ScrapeServer::bind(listen, token)?, socket))
}

impl Bound {
    /// Starts to answer.
    pub fn start(self, store: &SharedStore) -> Option<Scraping> {
        let Bound(server, socket) = self;
        let store = store.get();
        say(format_args!("heaptrack: collectors find profiles at {}", server.address()));
        let thread = std::thread::Builder::new().name("heaptrack-pprof".into());
        let started = thread.spawn(move || server.serve(Arc::new(Collected { store })));
        if let Err(error) = started {
            say(format_args!("heaptrack: recording without --pprof: no thread could be started: {error}"));
            return None;
        }
        Some(Scraping { socket })
    }
}

struct Collected {
    store: Arc<TraceStore>,
}

impl Scrape for Collected {
    fn now_ns(&self) -> Result<u64, Refusal> {
        self.store.look(|open, _| open.engine().totals().runtime_ns)
    }

    fn answer(&self, wanted: Wanted) -> Result<Vec<u8>, Refusal> {
        self.store.look(|open, table| match wanted {
            Wanted::Heap { since_ns } => profile(open, table, since_ns, "inuse_space"),
            Wanted::Allocs { since_ns } => profile(open, table, since_ns, "alloc_space"),
            Wanted::Metrics => metrics::text(open, table),
        })?
    }
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(503, format!("The trace cannot be read: {error}."))
}

/// The profile, compressed, as readers of pprof's format expect it.
fn profile(open: &OpenTrace, table: &StackTable, since_ns: Option<u64>, shown_first: &str) -> Result<Vec<u8>, Refusal> {
    let mut query = Query::default();
    query.from = since_ns.map(When::Ns);
    let query = query.within(open.engine());
    let profile = open.profile(&query).map_err(failed)?;
    let rows = profile.stacks.iter().map(|(site, costs)| Detail { site: *site, costs: *costs, ..Detail::default() });
    let rows: Vec<Detail> = rows.collect();
    let selected = Selected {
        definitions: open.engine().definitions(),
        table,
        paths: Paths::new(table, &query),
        range: profile.range,
        rows: &rows,
        peak_time_ns: profile.peak_time_ns,
        suppress: false,
        is_custom: false,
        redaction: None,
    };
    let compared = if since_ns.is_some() { Compared::WithItsBeginning } else { Compared::WithNothing };
    let mut bytes = Vec::new();
    let mut packed = Packed::new(&mut bytes, Packing::Gzip).map_err(failed)?;
    write_compared(&selected, shown_first, compared, &mut packed).map_err(failed)?;
    packed.finish().map_err(failed)?;
    Ok(bytes)
}
