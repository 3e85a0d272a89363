//! The server for collectors: profiles in pprof's format and numbers for Prometheus, under the addresses that they ask.
//!
//! Receives: where to listen, and a `Scrape`, which makes the answers. Must hold: on this machine alone a request needs no
//! token, but one that a web page makes the browser send is refused; to other machines nothing is given without the token.
//!
//! ```text
//! GET /debug/pprof/heap             what is live, and everything that was allocated
//! GET /debug/pprof/allocs           the same; readers show the allocations first
//! GET /debug/pprof/heap?seconds=N   waits for N seconds and returns what changed in them
//! GET /metrics                      sums and the largest places, as text
//! ```
use crate::connections::{Limits, serve};
use crate::guard::{Refused, Token, is_own_host};
use crate::server::BindError;
use answers::Refusal;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a collector may ask to watch.
const LONGEST: Duration = Duration::from_secs(600);

/// Where collectors connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listen {
    /// Reads `PORT`, `ADDRESS:PORT` or `unix:PATH`.
    pub fn parse(text: &str) -> Option<Listen> {
        if let Some(path) = text.strip_prefix("unix:") {
            return (!path.is_empty()).then(|| Listen::Unix(path.into()));
        }
        if let Ok(port) = text.parse::<u16>() {
            return Some(Listen::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)));
        }
        text.parse().ok().map(Listen::Tcp)
    }

    /// True if other machines can connect.
    pub fn is_open(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().is_loopback())
    }
}

/// What a collector asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// `since_ns`: only what changed since this time of the trace.
    Heap {
        since_ns: Option<u64>,
    },
    Allocs {
        since_ns: Option<u64>,
    },
    Metrics,
}

impl Wanted {
    const fn content_type(self) -> &'static str {
        match self {
            Wanted::Heap { .. } | Wanted::Allocs { .. } => "application/octet-stream",
            Wanted::Metrics => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Makes the answers.
pub trait Scrape: Send + Sync + 'static {
    /// The time of the trace.
    fn now_ns(&self) -> Result<u64, Refusal>;
    fn answer(&self, wanted: Wanted) -> Result<Vec<u8>, Refusal>;
}

enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// A server that is bound and does not serve yet.
pub struct ScrapeServer {
    listener: Listener,
    guard: ScrapeGuard,
    address: String,
}

impl ScrapeServer {
    /// `token`: the one that other machines need. Without it, one is made.
    pub fn bind(listen: &Listen, token: Option<Token>) -> Result<Self, BindError> {
        let made = match token {
            None if listen.is_open() => Some(Token::new().map_err(BindError::Token)?),
            _ => None,
        };
        let (listener, ip, address) = match listen {
            Listen::Tcp(wanted) => {
                let (listener, bound) = bind_tcp(*wanted)?;
                let query = made.as_ref().map(|made| format!("?token={}", made.text())).unwrap_or_default();
                (Listener::Tcp(listener), Some(wanted.ip()), format!("http://{bound}/debug/pprof/heap{query}"))
            }
            Listen::Unix(path) => {
                let listener = bind_unix(path).map_err(|error| BindError::Socket(path.clone(), error))?;
                (Listener::Unix(listener), None, format!("unix:{}", path.display()))
            }
        };
        Ok(ScrapeServer { listener, guard: ScrapeGuard { ip, token: token.or(made) }, address })
    }

    /// The address that a collector asks. It has the token only if that was made here: a token that the user chose is a
    /// secret that must not get into logs.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Serves until the process ends.
    pub fn serve<S: Scrape>(self, scrape: Arc<S>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(Shared { guard: self.guard, scrape });
        let routes = Router::new().fallback(route::<S>).with_state(shared);
        let limits = Limits::default();
        runtime.block_on(async move {
            match self.listener {
                Listener::Tcp(listener) => {
                    listener.set_nonblocking(true)?;
                    serve(tokio::net::TcpListener::from_std(listener)?, routes, limits).await;
                }
                Listener::Unix(listener) => {
                    listener.set_nonblocking(true)?;
                    serve(tokio::net::UnixListener::from_std(listener)?, routes, limits).await;
                }
            }
            Ok(())
        })
    }
}

/// Returns the listener and its address: with port 0, the kernel chooses a free port.
fn bind_tcp(wanted: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), BindError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => BindError::PprofInUse(wanted),
        _ => BindError::Other(wanted, error),
    };
    let listener = std::net::TcpListener::bind(wanted).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Only the user can connect. A socket that a process left behind is replaced; one on which somebody listens is not.
fn bind_unix(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

struct Shared<S> {
    guard: ScrapeGuard,
    scrape: Arc<S>,
}

/// Decides which requests are answered.
struct ScrapeGuard {
    /// The address that the server listens on. `None` for a Unix socket, where the file's permissions decide which users can connect.
    ip: Option<IpAddr>,
    /// `None` if no token is needed.
    token: Option<Token>,
}

impl ScrapeGuard {
    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
        if *method != Method::GET && *method != Method::HEAD {
            return Err(Refused::Method);
        }
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(token) = &self.token {
            let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            let asked = bearer.or_else(|| value_of(uri, "token"));
            return if asked.is_some_and(|asked| token.is(asked)) { Ok(()) } else { Err(Refused::ScrapeToken) };
        }
        // A collector is no browser, so it sends neither of these.
        if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
            return Err(Refused::Origin);
        }
        match self.ip {
            Some(ip) if !text(header::HOST).is_some_and(|host| is_own_host(ip, host)) => Err(Refused::Host),
            _ => Ok(()),
        }
    }
}

/// The value of a parameter that needs no decoding.
fn value_of<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// The time that a collector wants to watch. `None`: it wants everything up to now.
fn seconds(uri: &Uri) -> Result<Option<Duration>, Refusal> {
    let Some(text) = value_of(uri, "seconds") else { return Ok(None) };
    let bad = || Refusal::new(400, format!("`seconds` is a number from 1 to {}.", LONGEST.as_secs()));
    let time = Duration::from_secs(text.parse().map_err(|_| bad())?);
    if time.is_zero() || time > LONGEST { Err(bad()) } else { Ok(Some(time)) }
}

async fn route<S: Scrape>(State(shared): State<Arc<Shared<S>>>, request: Request) -> Response<Body> {
    if let Err(refused) = shared.guard.check(request.method(), request.uri(), request.headers()) {
        return refuse(&Refusal::new(refused.status(), refused.sentence()));
    }
    match find(&shared, request.uri()).await {
        Ok((wanted, bytes)) => {
            let mut response = Response::new(Body::from(bytes));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(wanted.content_type()));
            response
        }
        Err(refusal) => refuse(&refusal),
    }
}

async fn find<S: Scrape>(shared: &Arc<Shared<S>>, uri: &Uri) -> Result<(Wanted, Vec<u8>), Refusal> {
    let make: fn(Option<u64>) -> Wanted = match uri.path() {
        "/debug/pprof/heap" => |since_ns| Wanted::Heap { since_ns },
        "/debug/pprof/allocs" => |since_ns| Wanted::Allocs { since_ns },
        "/metrics" => |_| Wanted::Metrics,
        _ => return Err(Refusal::new(404, "There are /debug/pprof/heap, /debug/pprof/allocs and /metrics.")),
    };
    let since_ns = match seconds(uri)? {
        Some(time) => {
            let start = shared.scrape.now_ns()?;
            tokio::time::sleep(time).await;
            Some(start)
        }
        None => None,
    };
    let wanted = make(since_ns);
    let scrape = Arc::clone(&shared.scrape);
    let answer = tokio::task::spawn_blocking(move || scrape.answer(wanted)).await;
    let bytes = answer.map_err(|_| Refusal::new(500, "This question made heaptrack stumble."))??;
    Ok((wanted, bytes))
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("heaptrack: {}\n", refusal.sentence)));
    *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_for_this_machine_only() {
        let parsed = |text: &str| Listen::parse(text).map(|listen| (listen.clone(), listen.is_open()));
        let tcp = |text: &str| Listen::Tcp(text.parse().unwrap());
        assert_eq!(parsed("6060"), Some((tcp("127.0.0.1:6060"), false)));
        assert_eq!(parsed("[::1]:6060"), Some((tcp("[::1]:6060"), false)));
        assert_eq!(parsed("0.0.0.0:6060"), Some((tcp("0.0.0.0:6060"), true)));
        assert_eq!(parsed("unix:/run/x"), Some((Listen::Unix("/run/x".into()), false)));
        for bad in ["", "70000", "host:1", ":6060", "unix:", "1.2.3.4"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    fn checked(guard: &ScrapeGuard, address: &str, headers: &[(&'static str, &str)]) -> Result<(), Refused> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        guard.check(&Method::GET, &address.parse().unwrap(), &map)
    }

    #[test]
    fn a_loopback_request_needs_an_own_host_and_no_browser() {
        let guard = ScrapeGuard { ip: Some(Ipv4Addr::LOCALHOST.into()), token: None };
        assert_eq!(checked(&guard, "/metrics", &[("host", "localhost:6060")]), Ok(()));
        assert_eq!(checked(&guard, "/metrics", &[("host", "evil.example")]), Err(Refused::Host));
        assert_eq!(checked(&guard, "/metrics", &[]), Err(Refused::Host));
        let browser = [("host", "localhost"), ("sec-fetch-site", "cross-site")];
        assert_eq!(checked(&guard, "/metrics", &browser), Err(Refused::Origin));
        let host = "localhost".parse().unwrap();
        let post =
            guard.check(&Method::POST, &"/metrics".parse().unwrap(), &HeaderMap::from_iter([(header::HOST, host)]));
        assert_eq!(post, Err(Refused::Method));
    }

    #[test]
    fn other_machines_need_the_token_and_no_host() {
        let token = Token::from_text("0123456789abcdef").unwrap();
        let guard = ScrapeGuard { ip: Some(Ipv4Addr::UNSPECIFIED.into()), token: Some(token) };
        assert_eq!(checked(&guard, "/metrics", &[("host", "pod-7")]), Err(Refused::ScrapeToken));
        assert_eq!(checked(&guard, "/metrics?token=0123456789abcdee", &[]), Err(Refused::ScrapeToken));
        assert_eq!(checked(&guard, "/metrics?token=0123456789abcdef", &[("host", "pod-7")]), Ok(()));
        assert_eq!(checked(&guard, "/metrics", &[("authorization", "Bearer 0123456789abcdef")]), Ok(()));
    }

    #[test]
    fn an_address_has_only_a_token_that_was_made() {
        let bound = |text: &str, token| ScrapeServer::bind(&Listen::parse(text).unwrap(), token).unwrap();
        for text in ["0.0.0.0:0", "127.0.0.1:0"] {
            let chosen = bound(text, Token::from_text("0123456789abcdef"));
            assert!(chosen.address().ends_with("/debug/pprof/heap"), "{}", chosen.address());
            assert!(chosen.guard.token.is_some_and(|token| token.is("0123456789abcdef")));
        }
        let made = bound("0.0.0.0:0", None);
        let token = made.address().split_once("?token=").map(|(_, token)| token.to_owned()).unwrap();
        assert!(token.len() == 32 && made.guard.token.is_some_and(|made| made.is(&token)));
        assert!(bound("127.0.0.1:0", None).guard.token.is_none());
    }

    #[test]
    fn the_time_to_watch_is_bounded() {
        let of = |query: &str| seconds(&format!("/debug/pprof/heap{query}").parse().unwrap()).map_err(|bad| bad.status);
        assert_eq!(of(""), Ok(None));
        assert_eq!(of("?debug=0&seconds=30"), Ok(Some(Duration::from_secs(30))));
        for bad in ["?seconds=0", "?seconds=601", "?seconds=x", "?seconds=-1", "?seconds="] {
            assert_eq!(of(bad), Err(400), "{bad}");
        }
    }
}
