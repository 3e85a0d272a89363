//! Requests to the page's server, as bytes from the network.
//!
//! The input is what a client sends. In it, `TOKEN` stands for the server's token and `PORT` for its port. Must hold:
//! no answer reports an internal error. A request without the token is refused. The token is only in answers to clients
//! that have it. Every answer of ours has the security headers, and answers of the API are JSON.
#![no_main]
use axum::serve::Listener;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use web::{Answers, Options, Server, TraceStore};

/// A new server is started after this many requests, because suppressions that a request added stay.
const REQUESTS: u32 = 2000;
const ROOM: usize = 4 << 20;

struct Connections(mpsc::UnboundedReceiver<DuplexStream>);

impl Listener for Connections {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(stream) => (stream, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Client {
    runtime: Runtime,
    connect: mpsc::UnboundedSender<DuplexStream>,
    token: String,
    port: String,
    requests: u32,
}

impl Client {
    fn new() -> Self {
        let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/format/tests/data/v1.htz");
        let options = Options {
            rules: String::new(),
            suppressions: String::new(),
            builtin: true,
            embedded: true,
            tool: "fuzz".into(),
        };
        let store = TraceStore::new(&[&trace], options).expect("a trace");
        store.start();
        while store.answer("summary", "").is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let server = Server::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), 0).expect("a free port");
        let (port, address) = (server.port().to_string(), server.address());
        let token = address.rsplit_once("token=").expect("a token").1.to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (connect, connections) = mpsc::unbounded_channel();
        let routes = server.routes(store);
        runtime.spawn(async move { axum::serve(Connections(connections), routes).await });
        Client { runtime, connect, token, port, requests: 0 }
    }

    fn send(&mut self, request: &[u8]) -> Vec<u8> {
        self.requests += 1;
        let (mut here, there) = duplex(ROOM);
        self.connect.send(there).expect("the server lives");
        self.runtime.block_on(async {
            let _ = here.write_all(request).await;
            let _ = here.shutdown().await;
            let mut answer = Vec::new();
            let _ = here.read_to_end(&mut answer).await;
            answer
        })
    }
}

fn replace(data: &[u8], name: &[u8], value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut at = 0;
    while at < data.len() {
        if data[at..].starts_with(name) {
            out.extend_from_slice(value.as_bytes());
            at += name.len();
        } else {
            out.push(data[at]);
            at += 1;
        }
    }
    out
}

/// Parses the first answer: its status, its headers in lower case, its body and what follows.
fn parse(answer: &[u8]) -> Option<(u16, String, &[u8])> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.strip_prefix("http/1.")?.get(2..5)?.parse().ok()?;
    Some((status, head, &answer[end + 4..]))
}

fn length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()
}

/// True if no `Host` in the request can be an address of this machine, because those contain the name or a digit 1.
fn is_for_others(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let mut hosts = text.split(['\n', '\r']).filter_map(|line| line.trim().strip_prefix("host"));
    hosts.all(|host| !host.contains("localhost") && !host.contains('1'))
}

fn check(request: &[u8], mut answer: &[u8], token: &str) {
    let contains = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let has_token = contains(request, token);
    assert!(has_token || !contains(answer, token), "the answer contains the token");
    let is_refused = !has_token || is_for_others(request);
    while let Some((status, head, rest)) = parse(answer) {
        assert!(!is_refused || status >= 400, "{status}");
        assert_ne!(status, 500, "the server reports an internal error");
        // If a request cannot be parsed at all, the HTTP library answers itself, with an empty body.
        let is_ours = head.contains("content-type:");
        assert!(is_ours || !(200..300).contains(&status), "{head}");
        if is_ours {
            for name in [
                "content-security-policy: default-src 'none'",
                "x-content-type-options: nosniff",
                "cache-control: no-store",
            ] {
                assert!(head.contains(name), "{head}");
            }
        }
        let Some(length) = length(&head).filter(|length| *length <= rest.len()) else { return };
        let is_head = request.starts_with(b"HEAD");
        if is_ours && head.contains("content-type: application/json") && !is_head && length > 0 {
            let json = serde_json::from_slice::<serde_json::Value>(&rest[..length]);
            assert!(json.is_ok() || contains(request, "HEAD"), "no JSON: {}", String::from_utf8_lossy(rest));
        }
        answer = &rest[length..];
    }
}

thread_local! {
    static CLIENT: RefCell<Option<Client>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    CLIENT.with_borrow_mut(|client| {
        if client.as_ref().is_none_or(|client| client.requests >= REQUESTS) {
            if let Some(old) = client.take() {
                old.runtime.shutdown_background();
            }
            *client = Some(Client::new());
        }
        let client = client.as_mut().expect("made above");
        let request = replace(&replace(data, b"TOKEN", &client.token), b"PORT", &client.port);
        let answer = client.send(&request);
        check(&request, &answer, &client.token);
    });
});
