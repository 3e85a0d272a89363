//! `heaptrack --live PROGRAM`: the page while a program is recorded.
//!
//! Receives: the trace that is being written. A thread serves the page. Must hold: the recording never waits for the
//! page, and continues if the page cannot be served. After the program has ended, the page stays until Ctrl-C.
use crate::analyze::{is_at_hand, open_browser};
use crate::say;
use std::net::Ipv4Addr;
use std::path::Path;
use web::{Options, Server, TraceStore};

pub struct Live {
    address: String,
}

/// Starts to serve the page. Returns `None` if that is not possible, and prints the reason on stderr.
pub fn start(path: &Path) -> Option<Live> {
    let result = try_start(path);
    result
        .map_err(|error| {
            say(format_args!("heaptrack: recording without the page: {}", crate::trouble::sentence(&error)))
        })
        .ok()
}

fn try_start(path: &Path) -> anyhow::Result<Live> {
    let server = Server::bind(Ipv4Addr::LOCALHOST.into(), 0)?;
    let address = server.address();
    let tool = concat!("heaptrack ", env!("CARGO_PKG_VERSION")).to_owned();
    let options = Options { rules: None, suppressions: Vec::new(), builtin: true, embedded: true, tool };
    let store = TraceStore::growing(path, options);
    store.start();
    std::thread::Builder::new().name("heaptrack-page".into()).spawn(move || server.serve(store))?;
    say(format_args!("heaptrack: {address}"));
    if is_at_hand() {
        open_browser(&address);
    }
    Ok(Live { address })
}

impl Live {
    /// Serves the page until `interrupted` returns, which happens at Ctrl-C, SIGTERM or when the terminal closes.
    pub fn wait(self, interrupted: impl FnOnce()) {
        say(format_args!("heaptrack: the page stays at {} until Ctrl-C", self.address));
        interrupted();
    }
}
