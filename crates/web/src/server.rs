//! The HTTP server: from a request, through the guard, to an answer of the trace store.
//!
//! Receives: an IP address and a port to listen on, and the trace store. Returns: the address for the browser. `serve`
//! then runs until the process ends. Must hold: a request gets no data before it has passed the guard. Every answer has
//! the guard's headers. Questions are answered on threads of their own, so that a slow one does not block the network.
use crate::assets;
use crate::connections::{Limits, serve};
use crate::guard::{Guard, HEADERS, LONGEST_BODY, Pass, Refused, Token};
use answers::Refusal;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// Answers questions about traces.
pub trait Answers: Send + Sync + 'static {
    /// Returns JSON. `query` has the parameters of the address, not decoded.
    fn answer(&self, view: &str, query: &str) -> Result<Vec<u8>, Refusal>;
    /// Makes a report of a trace in one file.
    fn report(&self, trace: usize) -> Result<Saved, Refusal>;
    /// Adds suppressions and returns JSON.
    fn suppress(&self, text: &str) -> Result<Vec<u8>, Refusal>;
}

/// A page in one file, and the name under which the browser saves it.
#[derive(Debug)]
pub struct Saved {
    pub name: String,
    pub html: Vec<u8>,
}

/// A server that is bound to its port and does not serve yet.
pub struct Server {
    listener: TcpListener,
    guard: Guard,
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("port {0} is in use by another program: leave --port out, or choose another one")]
    InUse(u16),
    #[error("{0} is in use by another program: choose another port for --pprof")]
    PprofInUse(SocketAddr),
    #[error("cannot listen on unix:{path}: {1}", path = .0.display())]
    Socket(PathBuf, io::Error),
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, io::Error),
    #[error("no random numbers for the token: {0}")]
    Token(io::Error),
}

struct Site<A> {
    guard: Guard,
    answers: Arc<A>,
}

impl Server {
    /// With `port` 0, the kernel chooses a free port.
    pub fn bind(address: IpAddr, port: u16) -> Result<Self, BindError> {
        let wanted = SocketAddr::new(address, port);
        let listener = TcpListener::bind(wanted).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(port),
            _ => BindError::Other(wanted, error),
        })?;
        let other = |error| BindError::Other(wanted, error);
        listener.set_nonblocking(true).map_err(other)?;
        let bound = listener.local_addr().map_err(other)?;
        let token = Token::new().map_err(BindError::Token)?;
        Ok(Server { listener, guard: Guard { token, listen: address, port: bound.port() } })
    }

    pub const fn port(&self) -> u16 {
        self.guard.port
    }

    /// The address for the browser.
    pub fn address(&self) -> String {
        let host = match self.guard.listen {
            any if any.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V6(address) => format!("[{address}]"),
            IpAddr::V4(address) => address.to_string(),
        };
        format!("http://{host}:{}/?token={}", self.guard.port, self.guard.token.text())
    }

    /// Serves until the process ends.
    pub fn serve<A: Answers>(self, answers: Arc<A>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let routes = routes(self.guard, answers);
        let listener = self.listener;
        runtime.block_on(async move {
            serve(tokio::net::TcpListener::from_std(listener)?, routes, Limits::default()).await;
            Ok(())
        })
    }

    /// For `fuzz/targets/http.rs`: everything but the socket.
    #[cfg(fuzzing)]
    pub fn routes<A: Answers>(self, answers: Arc<A>) -> Router {
        routes(self.guard, answers)
    }
}

fn routes<A: Answers>(guard: Guard, answers: Arc<A>) -> Router {
    let site = Arc::new(Site { guard, answers });
    Router::new().fallback(route::<A>).layer(from_fn_with_state(Arc::clone(&site), watch::<A>)).with_state(site)
}

/// Checks every request before its route runs, and adds the guard's headers to every answer.
async fn watch<A: Answers>(State(site): State<Arc<Site<A>>>, request: Request, next: Next) -> Response<Body> {
    let mut response = match site.guard.check(request.method(), request.uri(), request.headers()) {
        Err(refused) => refuse(request.uri(), refused),
        Ok(Pass::ByAddress) if request.uri().path() == "/" => enter(&site.guard),
        Ok(_) => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Moves the token from the address, which people copy around, into a cookie.
fn enter(guard: &Guard) -> Response<Body> {
    let mut response = plain(StatusCode::SEE_OTHER, "text/plain", Bytes::new());
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
    if let Ok(cookie) = HeaderValue::from_str(&guard.cookie()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn refuse(uri: &Uri, refused: Refused) -> Response<Body> {
    let status = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::FORBIDDEN);
    let mut response = if uri.path().starts_with("/api/") {
        error(status, refused.sentence())
    } else {
        plain(status, "text/plain; charset=utf-8", Bytes::from(format!("heaptrack: {}\n", refused.sentence())))
    };
    // The body of a refused request is not read, so the connection cannot be used for another request.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn route<A: Answers>(State(site): State<Arc<Site<A>>>, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    if let Some(view) = path.strip_prefix("/api/") {
        return api(site, view.to_owned(), request).await;
    }
    if path == "/report" {
        return save(site, request.uri()).await;
    }
    let name = path.strip_prefix('/').map(|name| if name.is_empty() { "index.html" } else { name });
    match assets::ALL.iter().find(|asset| Some(asset.name) == name) {
        Some(asset) => plain(StatusCode::OK, asset.kind, Bytes::from_static(asset.bytes)),
        None => plain(
            StatusCode::NOT_FOUND,
            "text/plain; charset=utf-8",
            Bytes::from_static(b"heaptrack: there is no such page\n"),
        ),
    }
}

/// The report of a trace, as a file to save.
async fn save<A: Answers>(site: Arc<Site<A>>, uri: &Uri) -> Response<Body> {
    let number = uri.query().and_then(|query| query.strip_prefix("trace=")).and_then(|number| number.parse().ok());
    let Some(number) = number else {
        return error(StatusCode::BAD_REQUEST, "A report needs the number of a trace.");
    };
    match tokio::task::spawn_blocking(move || site.answers.report(number)).await {
        Ok(Ok(Saved { name, html })) => {
            let mut response = plain(StatusCode::OK, "text/html; charset=utf-8", Bytes::from(html));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
            if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
                response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
            }
            response
        }
        Ok(Err(refusal)) => {
            error(StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST), &refusal.sentence)
        }
        Err(_) => {
            error(StatusCode::INTERNAL_SERVER_ERROR, "The report could not be made. Please report it with the trace.")
        }
    }
}

async fn api<A: Answers>(site: Arc<Site<A>>, view: String, request: Request) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = if request.method() == Method::POST {
        match to_bytes(request.into_body(), LONGEST_BODY as usize).await {
            Ok(bytes) => Some(bytes),
            Err(_) => return error(StatusCode::PAYLOAD_TOO_LARGE, Refused::Body.sentence()),
        }
    } else {
        None
    };
    let work = move || match body {
        Some(bytes) => site.answers.suppress(&String::from_utf8_lossy(&bytes)),
        None => site.answers.answer(&view, &query),
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(json)) => plain(StatusCode::OK, "application/json", Bytes::from(json)),
        Ok(Err(refusal)) => {
            error(StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST), &refusal.sentence)
        }
        Err(_) => error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "This question made heaptrack stumble. Please report it with the trace.",
        ),
    }
}

fn error(status: StatusCode, sentence: &str) -> Response<Body> {
    let json = serde_json::json!({ "error": sentence }).to_string();
    plain(status, "application/json", Bytes::from(json))
}

fn plain(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
