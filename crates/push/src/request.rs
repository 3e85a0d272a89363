//! One request: what each server expects, and the bytes in which the spool keeps it.
//!
//! ```text
//! pyroscope   POST /ingest?format=pprof&...      the profile as it is (gzip inside)
//! parca       POST /...ProfileStoreService/WriteRaw   gRPC-Web: 0, four bytes of length, WriteRawRequest with the profile
//! otlp        POST /v1development/profiles       ExportProfilesServiceRequest, gzip outside
//! ```
use crate::destination::Kind;
use crate::labels::Labels;
use export::protobuf::Message;
use export::{Packed, Packing};
use std::io::{self, Write};

/// The time that a profile is about, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub from_ns: u64,
    pub to_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// What follows the server's address.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
}

const SECOND: u64 = 1_000_000_000;

impl Request {
    pub(crate) fn new(kind: Kind, labels: &Labels, time: Interval, pprof: &[u8], otlp: &[u8]) -> io::Result<Request> {
        let path = match kind {
            Kind::Pyroscope => {
                let (from, until) = (time.from_ns / SECOND, (time.to_ns / SECOND).max(time.from_ns / SECOND) + 1);
                let name = encoded(&labels.of_pyroscope());
                format!("{}?name={name}&from={from}&until={until}&format=pprof&spyName=heaptrack", kind.path())
            }
            Kind::Parca | Kind::Otlp => kind.path().to_owned(),
        };
        let body = match kind {
            Kind::Pyroscope => pprof.to_vec(),
            Kind::Parca => parca(labels, pprof),
            Kind::Otlp => {
                let mut packed = Packed::new(Vec::new(), Packing::Gzip)?;
                packed.write_all(otlp)?;
                packed.finish()?
            }
        };
        Ok(Request { kind, path, body })
    }

    pub(crate) const fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match self.kind {
            Kind::Pyroscope => &[("Content-Type", "application/octet-stream")],
            Kind::Parca => &[("Content-Type", "application/grpc-web+proto"), ("X-Grpc-Web", "1")],
            Kind::Otlp => &[("Content-Type", "application/x-protobuf"), ("Content-Encoding", "gzip")],
        }
    }

    /// The path, a line feed and the body.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [self.path.as_bytes(), b"\n", &self.body].concat()
    }

    /// Returns `None` if the bytes are none of ours.
    pub(crate) fn from_bytes(kind: Kind, bytes: &[u8]) -> Option<Request> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let path = std::str::from_utf8(&bytes[..end]).ok()?;
        let is_path = path.starts_with(kind.path()) && path.bytes().all(|byte| byte.is_ascii_graphic());
        is_path.then(|| Request { kind, path: path.to_owned(), body: bytes[end + 1..].to_vec() })
    }
}

fn parca(labels: &Labels, pprof: &[u8]) -> Vec<u8> {
    let mut sample = Message::default();
    sample.bytes(1, pprof);
    let mut series = Message::default();
    series.message(1, &labels.of_parca()).message(2, &sample);
    let mut request = Message::default();
    request.message(2, &series);
    let bytes = request.as_bytes();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [&[0], length.to_be_bytes().as_slice(), bytes].concat()
}

/// The status in an answer of gRPC-Web, and its message. `None` if the bytes are no such answer.
pub(crate) fn grpc_status(mut bytes: &[u8]) -> Option<(u32, String)> {
    const TRAILER: u8 = 0x80;
    while let [flags, a, b, c, d, rest @ ..] = bytes {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let frame = rest.get(..length)?;
        if flags & TRAILER != 0 {
            let text = String::from_utf8_lossy(frame);
            let value = |name: &str| {
                let of_line = |line: &str| {
                    let (known, value) = line.split_once(':')?;
                    known.trim().eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
                };
                text.lines().find_map(of_line)
            };
            let status = value("grpc-status")?.parse().ok()?;
            return Some((status, value("grpc-message").unwrap_or_default()));
        }
        bytes = &rest[length..];
    }
    None
}

/// Encodes a value of a query.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_spool() {
        let mut labels = Labels::default();
        labels.add("service", "my shop");
        let time = Interval { from_ns: 5 * SECOND + 1, to_ns: 20 * SECOND };
        for kind in [Kind::Pyroscope, Kind::Parca, Kind::Otlp] {
            let request = Request::new(kind, &labels, time, b"profile\n", b"other").unwrap();
            assert_eq!(Request::from_bytes(kind, &request.to_bytes()), Some(request));
        }
        let request = Request::new(Kind::Pyroscope, &labels, time, b"", b"").unwrap();
        let path = "/ingest?name=my%20shop%7B%7D&from=5&until=21&format=pprof&spyName=heaptrack";
        assert_eq!(request.path, path);
        for bad in [b"".as_slice(), b"/ingest", b"/other\n", b"/ingest\xff\n", b"/ingest a\n"] {
            assert_eq!(Request::from_bytes(Kind::Pyroscope, bad), None);
        }
    }

    #[test]
    fn the_status_of_grpc_is_in_the_last_frame() {
        let message = b"\0\0\0\0\x01x";
        let trailer = b"\x80\0\0\0\x2agrpc-status: 14\r\ngrpc-message: try later\r\n";
        let of = |parts: &[&[u8]]| grpc_status(&parts.concat());
        assert_eq!(of(&[message, trailer]), Some((14, "try later".into())));
        assert_eq!(of(&[b"\x80\0\0\0\x10Grpc-Status:0\r\n\r"]), Some((0, String::new())));
        for bad in [b"".as_slice(), b"\0\0\0\0\x01x", b"<html>no</html>", b"\x80\0\0\0\x02hi", b"\x80\xff\xff\xff\xff"]
        {
            assert_eq!(grpc_status(bad), None);
        }
    }
}
