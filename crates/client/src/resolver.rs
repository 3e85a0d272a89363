//! Names of hosts to addresses, without libc's `getaddrinfo`.
//!
//! Receives: a name. Returns: its addresses, by `/etc/hosts` or by the servers of `/etc/resolv.conf`. Must hold: the time is
//! bounded. No library is loaded: in a static binary, glibc's resolver opens the machine's own libc for every source of
//! names besides these two, and may crash if that libc is another one.
use crate::message::{Answer, Kind, answer, question};
use crate::settings::{Settings, in_hosts};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The most addresses that are tried.
const MOST: usize = 16;
/// The largest datagram. Without an extension, answers have up to 512 bytes.
const DATAGRAM: usize = 4096;
/// The most time for a name if the caller has no limit.
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct OwnResolver {
    hosts: PathBuf,
    settings: PathBuf,
    /// Tests ask servers on other ports.
    port: Option<u16>,
}

impl Default for OwnResolver {
    fn default() -> Self {
        OwnResolver { hosts: "/etc/hosts".into(), settings: "/etc/resolv.conf".into(), port: None }
    }
}

impl Resolver for OwnResolver {
    fn resolve(&self, uri: &Uri, _: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(usual);
        let time = if timeout.after.is_not_happening() { LONGEST } else { (*timeout.after).min(LONGEST) };
        let found = self.addresses(host, Instant::now() + time);
        let mut addresses = self.empty();
        found.iter().take(MOST).for_each(|ip| addresses.push(SocketAddr::new(*ip, port)));
        if found.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(addresses) }
    }
}

impl OwnResolver {
    fn addresses(&self, host: &str, until: Instant) -> Vec<IpAddr> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse() {
            return vec![address];
        }
        let text = std::fs::read(&self.hosts).unwrap_or_default();
        let known = in_hosts(&String::from_utf8_lossy(&text), host);
        if !known.is_empty() {
            return known;
        }
        if host.eq_ignore_ascii_case("localhost") || host.ends_with(".localhost") {
            return vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        }
        let text = std::fs::read(&self.settings).unwrap_or_default();
        let mut settings = Settings::parse(&String::from_utf8_lossy(&text));
        if let Some(port) = self.port {
            settings.servers.iter_mut().for_each(|server| server.set_port(port));
        }
        let names = settings.candidates(host);
        names.iter().map(|name| ask(&settings, name, until)).find(|found| !found.is_empty()).unwrap_or_default()
    }
}

/// All addresses of a name, those of version 4 first: nearly every network has them.
fn ask(settings: &Settings, name: &str, until: Instant) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for kind in [Kind::V4, Kind::V6] {
        match ask_servers(settings, name, kind, until) {
            Some(Answer::Addresses(addresses)) => found.extend(addresses),
            Some(Answer::NoSuchName) => break,
            // A server that answers no question about version 4 is not waited for again.
            None if found.is_empty() => break,
            _ => (),
        }
    }
    found
}

/// Asks one server after the other, until one knows. `None` if none answers in time.
fn ask_servers(settings: &Settings, name: &str, kind: Kind, until: Instant) -> Option<Answer> {
    let question = question(random(), name, kind)?;
    for _ in 0..settings.attempts {
        for server in &settings.servers {
            let time = settings.timeout.min(until.saturating_duration_since(Instant::now()));
            if time.is_zero() {
                return None;
            }
            let answer = match by_datagram(*server, &question, time) {
                Ok(Answer::Truncated) => by_stream(*server, &question, time),
                answer => answer,
            };
            match answer {
                Ok(Answer::Failure | Answer::Truncated) | Err(_) => (),
                Ok(answer) => return Some(answer),
            }
        }
    }
    None
}

fn random() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}

fn by_datagram(server: SocketAddr, asked: &[u8], time: Duration) -> io::Result<Answer> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    // From now on, the kernel drops what others send.
    socket.connect(server)?;
    socket.send(asked)?;
    let until = Instant::now() + time;
    let mut bytes = [0; DATAGRAM];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let length = socket.recv(&mut bytes)?;
        if let Some(answer) = answer(asked, &bytes[..length]) {
            return Ok(answer);
        }
    }
}

fn by_stream(server: SocketAddr, asked: &[u8], time: Duration) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, time)?;
    stream.set_read_timeout(Some(time))?;
    stream.set_write_timeout(Some(time))?;
    stream.write_all(&[&(asked.len() as u16).to_be_bytes(), asked].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; u16::from_be_bytes(length) as usize];
    stream.read_exact(&mut bytes)?;
    answer(asked, &bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that knows `known.example` (10.1.2.3) by datagram and `long.example` (10.4.5.6) by stream only.
    fn server() -> (std::net::UdpSocket, TcpListener) {
        loop {
            let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(streams) = TcpListener::bind(datagrams.local_addr().unwrap()) {
                return (datagrams, streams);
            }
        }
    }

    fn reply(asked: &[u8], flags: u16, address: Option<[u8; 4]>) -> Vec<u8> {
        let mut bytes = asked.to_vec();
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        bytes[7] = address.is_some() as u8;
        if let Some(address) = address {
            bytes.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04");
            bytes.extend(address);
        }
        bytes
    }

    fn serve(datagrams: UdpSocket, streams: TcpListener) {
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((length, peer)) = datagrams.recv_from(&mut bytes) {
                let asked = &bytes[..length];
                let has = |name: &[u8]| asked.windows(name.len()).any(|part| part == name);
                let is_v4 = asked[length - 3] == 1;
                let answer = if has(b"\x04long\x07example\0") {
                    reply(asked, 0x8380, None)
                } else if has(b"\x05known\x07example\0") {
                    reply(asked, 0x8180, is_v4.then_some([10, 1, 2, 3]))
                } else {
                    reply(asked, 0x8183, None)
                };
                // An answer that somebody guessed comes first.
                let mut guessed = reply(asked, 0x8180, Some([6, 6, 6, 6]));
                guessed[0] ^= 1;
                let _ = datagrams.send_to(&guessed, peer);
                let _ = datagrams.send_to(&answer, peer);
            }
        });
        std::thread::spawn(move || {
            for stream in streams.incoming() {
                let mut stream = stream.unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut asked = vec![0; u16::from_be_bytes(length) as usize];
                stream.read_exact(&mut asked).unwrap();
                let is_v4 = asked[asked.len() - 3] == 1;
                let answer = reply(&asked, 0x8180, is_v4.then_some([10, 4, 5, 6]));
                stream.write_all(&(answer.len() as u16).to_be_bytes()).unwrap();
                stream.write_all(&answer).unwrap();
            }
        });
    }

    #[test]
    fn names_are_found_in_the_file_then_by_servers() {
        let (datagrams, streams) = server();
        let port = datagrams.local_addr().unwrap().port();
        serve(datagrams, streams);
        let folder = std::env::temp_dir().join(format!("heaptrack-resolver-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (hosts, settings) = (folder.join("hosts"), folder.join("resolv.conf"));
        std::fs::write(&hosts, "10.9.9.9 listed.example listed\n").unwrap();
        std::fs::write(&settings, "nameserver 127.0.0.1\nsearch other.example example\noptions ndots:2\n").unwrap();
        let resolver = OwnResolver { hosts, settings, port: Some(port) };
        let of = |name: &str| {
            let found = resolver.addresses(name, Instant::now() + Duration::from_secs(20));
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("listed"), "10.9.9.9");
        assert_eq!(of("known.example"), "10.1.2.3");
        assert_eq!(of("known"), "10.1.2.3", "by the second search domain");
        assert_eq!(of("long.example."), "10.4.5.6", "by a stream");
        assert_eq!(of("absent"), "");
        assert_eq!(of("[::1]"), "::1");
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("localhost"), "127.0.0.1 ::1");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_server_that_says_nothing_takes_a_bounded_time() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let settings = std::env::temp_dir().join(format!("heaptrack-silent-{}", std::process::id()));
        std::fs::write(&settings, "nameserver 127.0.0.1\n").unwrap();
        let port = silent.local_addr().unwrap().port();
        let resolver = OwnResolver { hosts: "/nonexistent".into(), settings: settings.clone(), port: Some(port) };
        let start = Instant::now();
        assert_eq!(resolver.addresses("a.example", start + Duration::from_millis(300)), Vec::<IpAddr>::new());
        assert!(start.elapsed() >= Duration::from_millis(300));
        std::fs::remove_file(settings).unwrap();
    }
}
