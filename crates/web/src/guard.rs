//! The rules that every request must pass before anything is looked up.
//!
//! The server reads the user's traces and sources, and any web page in the user's browser can send requests to it.
//! Therefore:
//!
//! - the `Host` must be a name of this machine that cannot be redirected (a foreign name is DNS rebinding);
//! - an `Origin`, where the browser sends one, must be the page itself;
//! - the request must carry the printed token: in the first address, and then in a cookie that other sites cannot make
//!   the browser send;
//! - a body must be small, and is accepted only where one is expected.
use axum::http::{HeaderMap, Method, Uri, header};
use std::net::IpAddr;

/// The most bytes in the body of a request. The only request with a body uploads a file of suppressions.
pub const LONGEST_BODY: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// 128 random bits from the kernel, as text.
    pub fn new() -> std::io::Result<Self> {
        use std::io::Read;
        let mut bytes = [0u8; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// A token that the user chose. `None` if it is shorter than 16 characters or has one that an address cannot hold.
    pub fn from_text(text: &str) -> Option<Self> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        (is_plain && text.len() >= 16).then(|| Token(text.to_owned()))
    }

    /// Takes the same time for every wrong token of the right length, so that the time does not reveal how much of it
    /// is right.
    pub(crate) fn is(&self, candidate: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), candidate.as_bytes());
        own.len() == other.len() && own.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Host,
    Origin,
    Token,
    /// Of a collector.
    ScrapeToken,
    Body,
    Method,
}

impl Refused {
    pub const fn status(self) -> u16 {
        match self {
            Refused::Host => 421,
            Refused::Origin | Refused::Token | Refused::ScrapeToken => 403,
            Refused::Body => 413,
            Refused::Method => 405,
        }
    }

    pub const fn sentence(self) -> &'static str {
        match self {
            Refused::Host => "This server answers only under its own address. Open the one that heaptrack printed.",
            Refused::Origin => "Requests of other pages are not answered.",
            Refused::Token => "The token is missing or wrong. Open the whole address that heaptrack printed.",
            Refused::ScrapeToken => {
                "The token is missing or wrong. Send `Authorization: Bearer TOKEN`, or `?token=TOKEN`."
            }
            Refused::Body => "The body of this request is too large.",
            Refused::Method => "This address does not accept requests with this HTTP method.",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Guard {
    pub token: Token,
    /// The address that the server listens on (`--listen`). A `Host` with this address is accepted.
    pub listen: IpAddr,
    pub port: u16,
}

/// What the server must do for a request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The token was in the address. If the address is that of the page, the server moves the token into a cookie.
    ByAddress,
    ByCookie,
}

impl Guard {
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Pass, Refused> {
        let host = text(headers, header::HOST).ok_or(Refused::Host)?;
        if !is_own_host(self.listen, host) {
            return Err(Refused::Host);
        }
        if headers.contains_key(header::ORIGIN) && text(headers, header::ORIGIN) != Some(&format!("http://{host}")) {
            return Err(Refused::Origin);
        }
        let is_api = uri.path().starts_with("/api/");
        let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
        if is_api && site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(Refused::Origin);
        }
        let takes_body = *method == Method::POST && uri.path() == "/api/suppressions";
        if *method != Method::GET && *method != Method::HEAD && !takes_body {
            return Err(Refused::Method);
        }
        let length = text(headers, header::CONTENT_LENGTH).map(|length| length.parse::<u64>());
        let is_endless = headers.contains_key(header::TRANSFER_ENCODING);
        match length {
            None if is_endless && !takes_body => return Err(Refused::Body),
            Some(Err(_)) => return Err(Refused::Body),
            Some(Ok(length)) if length > if takes_body { LONGEST_BODY } else { 0 } => return Err(Refused::Body),
            _ => {}
        }
        if self.cookies(headers).any(|token| self.token.is(token)) {
            return Ok(Pass::ByCookie);
        }
        match token_of(uri) {
            Some(token) if self.token.is(token) => Ok(Pass::ByAddress),
            _ => Err(Refused::Token),
        }
    }

    /// Returns the value of the `Set-Cookie` header. Each port has its own cookie, because browsers do not separate
    /// cookies by port and two servers may run at once.
    pub fn cookie(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name(), self.token.text())
    }

    fn cookie_name(&self) -> String {
        format!("heaptrack_{}", self.port)
    }

    fn cookies<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let name = self.cookie_name();
        headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(move |pair| pair.trim().strip_prefix(name.as_str())?.strip_prefix('='))
    }
}

/// Returns true if a `Host` is accepted: `localhost`, a loopback address, or the address `listen` of `--listen`. With
/// `--listen 0.0.0.0` or `::`, every other IP address is accepted, too. Any port is accepted, because the browser's end of
/// an ssh tunnel may have another port.
pub(crate) fn is_own_host(listen: IpAddr, host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    // DNS rebinding changes what a name stands for. It cannot change what an address stands for.
    name.parse::<IpAddr>().is_ok_and(|address| {
        address.is_loopback() || address == listen || (listen.is_unspecified() && !address.is_unspecified())
    })
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn token_of(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

/// The headers of every answer. Among other things, they forbid inline scripts, content from other sites, and showing
/// the page in a frame.
pub const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; \
         img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard { token: Token("secret".into()), listen: IpAddr::from([127, 0, 0, 1]), port: 4711 }
    }

    fn ask(line: &str, headers: &[(&'static str, &str)]) -> Result<Pass, Refused> {
        let (method, path) = line.split_once(' ').unwrap();
        let mut map = HeaderMap::new();
        map.insert(header::HOST, "127.0.0.1:4711".parse().unwrap());
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        guard().check(&method.parse().unwrap(), &path.parse().unwrap(), &map)
    }

    const COOKIE: (&str, &str) = ("cookie", "other=1; heaptrack_4711=secret");

    #[test]
    fn the_token_opens_the_door_once_and_the_cookie_keeps_it_open() {
        assert_eq!(ask("GET /?token=secret", &[]), Ok(Pass::ByAddress));
        assert_eq!(ask("GET /api/stacks?trace=0", &[COOKIE]), Ok(Pass::ByCookie));
        assert_eq!(ask("GET /", &[]), Err(Refused::Token));
        assert_eq!(ask("GET /?token=secreT", &[]), Err(Refused::Token));
        assert_eq!(ask("GET /?token=", &[]), Err(Refused::Token));
        assert_eq!(ask("GET /api/stacks", &[("cookie", "heaptrack_4712=secret")]), Err(Refused::Token));
    }

    #[test]
    fn a_name_that_somebody_else_can_point_here_is_not_ours() {
        for host in
            ["evil.example:4711", "evil.example", "127.0.0.1.evil.example:4711", "192.168.1.5:4711", "", "[::2]:1"]
        {
            assert_eq!(ask("GET /?token=secret", &[("host", host)]), Err(Refused::Host), "{host}");
        }
        for host in ["localhost:9999", "LOCALHOST", "127.0.0.1", "[::1]:4711", "127.3.2.1:80"] {
            assert_eq!(ask("GET /?token=secret", &[("host", host)]), Ok(Pass::ByAddress), "{host}");
        }
    }

    #[test]
    fn another_address_counts_only_when_it_was_asked_for() {
        let mut guard = guard();
        guard.listen = IpAddr::from([192, 168, 1, 5]);
        assert!(is_own_host(guard.listen, "192.168.1.5:4711") && !is_own_host(guard.listen, "192.168.1.6:4711"));
        guard.listen = IpAddr::from([0, 0, 0, 0]);
        assert!(is_own_host(guard.listen, "192.168.1.6:4711") && !is_own_host(guard.listen, "evil.example:4711"));
    }

    #[test]
    fn other_pages_are_refused() {
        for origin in ["http://evil.example", "null", "https://127.0.0.1:4711", "http://127.0.0.1:4712"] {
            assert_eq!(ask("GET /api/stacks", &[COOKIE, ("origin", origin)]), Err(Refused::Origin), "{origin}");
        }
        assert_eq!(ask("GET /api/stacks", &[COOKIE, ("origin", "http://127.0.0.1:4711")]), Ok(Pass::ByCookie));
        assert_eq!(ask("GET /api/stacks", &[COOKIE, ("sec-fetch-site", "cross-site")]), Err(Refused::Origin));
        assert_eq!(ask("GET /", &[COOKIE, ("sec-fetch-site", "cross-site")]), Ok(Pass::ByCookie));
    }

    #[test]
    fn bodies_are_small_and_where_they_belong() {
        let gigabyte = ("content-length", "1073741824");
        assert_eq!(ask("GET /api/stacks", &[COOKIE, gigabyte]), Err(Refused::Body));
        assert_eq!(ask("POST /api/suppressions", &[COOKIE, gigabyte]), Err(Refused::Body));
        assert_eq!(ask("POST /api/suppressions", &[COOKIE, ("content-length", "x")]), Err(Refused::Body));
        assert_eq!(ask("GET /api/stacks", &[COOKIE, ("transfer-encoding", "chunked")]), Err(Refused::Body));
        assert_eq!(ask("POST /api/suppressions", &[COOKIE, ("content-length", "1000")]), Ok(Pass::ByCookie));
        assert_eq!(ask("POST /api/stacks", &[COOKIE]), Err(Refused::Method));
        assert_eq!(ask("DELETE /api/suppressions", &[COOKIE]), Err(Refused::Method));
    }

    #[test]
    fn tokens_differ() {
        let (one, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.text().len(), 32);
    }
}
