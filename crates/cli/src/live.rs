//! `heaptrack --live PROGRAM`: the page while a program is recorded.
//!
//! Receives: the trace that is being written. A thread serves the page. Must hold: the recording never waits for the
//! page, and continues if the page cannot be served. After the program has ended, the page stays until Ctrl-C.
use crate::analyze::{is_at_hand, open_browser};
use crate::say;
use crate::viewer::find_page;
use std::cell::OnceCell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use web::{Options, Server, TraceStore};

pub struct Live {
    address: String,
}

/// The store of the trace that is being written, which the page, collectors and pushed profiles share. The trace is read
/// only if one of them asks for it.
pub struct SharedStore {
    path: PathBuf,
    store: OnceCell<Arc<TraceStore>>,
}

impl SharedStore {
    pub fn new(path: &Path) -> Self {
        SharedStore { path: path.to_owned(), store: OnceCell::new() }
    }

    pub fn get(&self) -> Arc<TraceStore> {
        let open = || {
            let store = store(&self.path);
            store.start();
            store
        };
        Arc::clone(self.store.get_or_init(open))
    }
}

/// Starts to serve the page. Returns `None` if that is not possible, and prints the reason on stderr.
pub fn start(store: &SharedStore) -> Option<Live> {
    let result = try_start(store);
    result
        .map_err(|error| {
            say(format_args!("heaptrack: recording without the page: {}", crate::trouble::sentence(&error)))
        })
        .ok()
}

fn try_start(store: &SharedStore) -> anyhow::Result<Live> {
    let server = Server::bind(Ipv4Addr::LOCALHOST.into(), 0)?;
    let address = server.address();
    let store = store.get();
    std::thread::Builder::new().name("heaptrack-page".into()).spawn(move || server.serve(store))?;
    say(format_args!("heaptrack: {address}"));
    if is_at_hand() {
        open_browser(&address);
    }
    Ok(Live { address })
}

/// A store of the trace that is being written.
fn store(path: &Path) -> Arc<TraceStore> {
    let tool = crate::TOOL.to_owned();
    let options = Options { rules: None, suppressions: Vec::new(), builtin: true, embedded: true, tool };
    TraceStore::growing(path, options, find_page)
}

impl Live {
    /// Serves the page until `interrupted` returns, which happens at Ctrl-C, SIGTERM or when the terminal closes.
    pub fn wait(self, interrupted: impl FnOnce()) {
        say(format_args!("heaptrack: the page stays at {} until Ctrl-C", self.address));
        interrupted();
    }
}
