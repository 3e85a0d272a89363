//! Requests to the page's server, as bytes from the network.
//!
//! The input is what a client sends. In it, `TOKEN` stands for the server's token, `PART` for the first half of it and
//! `PORT` for the server's port. An input that begins with `/` is only the address of a request that passes the guard.
//! Must hold: no answer reports an internal error. A request without the token is refused, and so is one with a foreign
//! `Host` or `Origin`, one of another site to the API, and one with a method that is not expected. The token is only in
//! answers to clients that have it. Every answer of ours has the security headers, and answers of the API are JSON. The
//! text of a file is only in an answer if a trace names the file.
#![no_main]
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use axum::serve::Listener;
use format::Block;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use web::{Answers, Options, Server, TraceStore};

/// A new server is started after this many requests, because suppressions that a request added stay.
const REQUESTS: u32 = 2000;
const ROOM: usize = 4 << 20;

/// How many requests without a body are being answered.
#[derive(Default)]
struct Busy {
    requests: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

/// One request that is being answered.
struct Answering(Arc<Busy>);

impl Answering {
    fn new(busy: &Arc<Busy>) -> Self {
        busy.requests.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(busy))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
        if let Some(waker) = self.0.waker.lock().expect("no panic").take() {
            waker.wake();
        }
    }
}

/// The server's end of a connection. The HTTP library drops a request whose client has closed its end, as ours has. So the
/// end of the input is shown a few polls later, and not while a request is answered.
struct ServerEnd {
    stream: DuplexStream,
    busy: Arc<Busy>,
    /// How many more polls do not show the end.
    delays: u32,
}

/// The library looks for the end once before it starts to answer a request.
const DELAYS: u32 = 3;

impl AsyncRead for ServerEnd {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, out);
        let is_end = matches!(polled, Poll::Ready(Ok(()))) && out.filled().len() == before;
        if !is_end {
            self.delays = DELAYS;
            return polled;
        }
        if self.busy.requests.load(Ordering::Relaxed) > 0 {
            self.delays = DELAYS;
            *self.busy.waker.lock().expect("no panic") = Some(context.waker().clone());
            return Poll::Pending;
        }
        if self.delays > 0 {
            self.delays -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        polled
    }
}

impl AsyncWrite for ServerEnd {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

struct Connections {
    streams: mpsc::UnboundedReceiver<DuplexStream>,
    busy: Arc<Busy>,
}

impl Listener for Connections {
    type Io = ServerEnd;
    type Addr = ();

    async fn accept(&mut self) -> (ServerEnd, ()) {
        match self.streams.recv().await {
            Some(stream) => (ServerEnd { stream, busy: Arc::clone(&self.busy), delays: DELAYS }, ()),
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
    /// The source files that the traces name are among these names.
    sources: BTreeSet<String>,
}

impl Client {
    fn new() -> Self {
        let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/format/tests/data/v1.htz");
        let options =
            Options { rules: None, suppressions: Vec::new(), builtin: true, embedded: true, tool: "fuzz".into() };
        let store = TraceStore::new(&[&trace], options, || Err(String::new())).expect("a trace");
        store.start();
        while store.answer("summary", "").is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let sources = sources(&trace);
        let server = Server::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), 0).expect("a free port");
        let (port, address) = (server.port().to_string(), server.address());
        let token = address.rsplit_once("token=").expect("a token").1.to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (connect, streams) = mpsc::unbounded_channel();
        let busy = Arc::<Busy>::default();
        let connections = Connections { streams, busy: Arc::clone(&busy) };
        let watch = move |request: Request, next: Next| {
            let has_no_body = matches!(*request.method(), Method::GET | Method::HEAD);
            let answering = has_no_body.then(|| Answering::new(&busy));
            async move {
                let response = next.run(request).await;
                drop(answering);
                response
            }
        };
        let routes = server.routes(store).layer(from_fn(watch));
        runtime.spawn(async move { axum::serve(connections, routes).await });
        Client { runtime, connect, token, port, requests: 0, sources }
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

/// Parses the first answer. Returns its status, its head in lower case, and all bytes after the head.
fn parse(answer: &[u8]) -> Option<(u16, String, &[u8])> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.strip_prefix("http/1.")?.get(2..5)?.parse().ok()?;
    Some((status, head, &answer[end + 4..]))
}

fn length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()
}

/// True if no `Host` in the request can be an address of this machine, because those contain `localhost` or a digit 1.
fn is_for_others(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let mut hosts = text.split(['\n', '\r']).filter_map(|line| line.trim().strip_prefix("host"));
    hosts.all(|host| !host.contains("localhost") && !host.contains('1'))
}

/// All names of the trace and of those in the same folder, which the server offers, too. Source files are among them.
fn sources(trace: &Path) -> BTreeSet<String> {
    let folder = trace.parent().expect("a folder").read_dir().expect("a folder");
    let traces = folder.filter_map(|entry| format::Source::open(entry.ok()?.path()).ok());
    let mut sources = BTreeSet::new();
    for mut source in traces {
        while let Ok(Some(block)) = source.next_block() {
            if let Ok(Block::Symbols(symbols)) = block.decode() {
                sources.extend(symbols.strings);
            }
        }
    }
    sources
}

/// A request that is the only one of its input: its method, its path, and its headers.
struct Single<'a> {
    method: &'a str,
    path: &'a str,
    headers: Vec<(String, &'a str)>,
}

impl<'a> Single<'a> {
    fn parse(request: &'a [u8]) -> Option<Self> {
        let text = str::from_utf8(request).ok()?.trim_start_matches(['\r', '\n']);
        if text.to_ascii_lowercase().matches("http/1.").count() != 1 {
            return None;
        }
        let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        let mut words = lines.next()?.split(' ');
        let (method, address) = (words.next()?, words.next()?);
        let path = address.split(['?', '#']).next()?;
        let header =
            |line: &'a str| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim()));
        let headers = lines.take_while(|line| !line.is_empty()).filter_map(header).collect();
        Some(Single { method, path, headers })
    }

    fn header(&self, wanted: &str) -> Option<&'a str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value)
    }

    /// Returns why the request must be refused, even if it has the token.
    fn trouble(&self) -> Option<&'static str> {
        let Some(host) = self.header("host").filter(|host| is_here(host)) else { return Some("host") };
        if self.header("origin").is_some_and(|origin| origin != format!("http://{host}")) {
            return Some("origin");
        }
        let is_visible = |value: &&str| value.bytes().all(|byte| byte == b'\t' || matches!(byte, b' '..=b'~'));
        let site = self.header("sec-fetch-site").filter(is_visible);
        if self.path.starts_with("/api/") && site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Some("site");
        }
        match (self.method, self.path) {
            ("GET" | "HEAD", _) | ("POST", "/api/suppressions") => None,
            // The address may begin with the name of a server, before the path.
            ("POST", path) if !path.starts_with('/') => None,
            _ => Some("method"),
        }
    }
}

/// True if a `Host` is an address that always belongs to this machine. Every port is accepted.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn check(request: &[u8], mut answer: &[u8], token: &str, sources: &BTreeSet<String>) {
    let contains = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let has_token = contains(request, token);
    assert!(has_token || !contains(answer, token), "the answer contains the token");
    let is_refused = !has_token || is_for_others(request);
    let trouble = Single::parse(request).and_then(|single| single.trouble());
    while let Some((status, head, rest)) = parse(answer) {
        assert!(!is_refused || status >= 400, "{status}");
        assert!(trouble.is_none() || status >= 400, "{status} in spite of the {}", trouble.unwrap_or_default());
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
            let json = serde_json::from_slice::<Value>(&rest[..length]);
            if let Ok(Value::Object(map)) = &json
                && let (Some(Value::String(file)), true) = (map.get("file"), map.contains_key("text"))
            {
                assert!(sources.contains(file), "no trace names {file}");
            }
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
        let mut request = data.to_vec();
        if data.starts_with(b"/") {
            let rest = b" HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nCookie: heaptrack_PORT=TOKEN\r\n\r\n";
            request = [b"GET ", data, rest].concat();
        }
        let part = &client.token[..client.token.len() / 2];
        for (name, value) in [("TOKEN", client.token.as_str()), ("PART", part), ("PORT", &client.port)] {
            request = replace(&request, name.as_bytes(), value);
        }
        let answer = client.send(&request);
        check(&request, &answer, &client.token, &client.sources);
    });
});
