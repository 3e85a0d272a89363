//! The thread that sends the requests of one destination, the oldest first.
//!
//! Must hold: a server that is away, slow or broken is asked again later and later, up to once a minute; a request that it
//! refuses is not sent again. What a server sends is read up to a limit. At the end nothing is waited for.
use crate::Say;
use crate::destination::{Destination, Kind};
use crate::request::{Request, grpc_status};
use crate::spool::{Next, Spool};
use client::{Agent, Patience};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(5), answer: Duration::from_secs(15), whole: Some(Duration::from_secs(30)) };
/// The most bytes of an answer that are read.
const LONGEST_ANSWER: u64 = 64 << 10;
/// The waits between two tries: the first one, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest time that a server may ask us to wait.
const LONGEST_ASKED: u64 = 300;
/// A server that fails again and again is reported this often.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Taken,
    /// The same request would be refused again.
    Refused(String),
    /// Try again, after this time if the server said it.
    Later(String, Option<Duration>),
}

pub(crate) struct Sender {
    pub(crate) destination: Destination,
    sent: Arc<AtomicU64>,
    ended: Receiver<()>,
}

impl Sender {
    pub(crate) fn start(
        destination: Destination,
        headers: Vec<(String, String)>,
        spool: Arc<Spool>,
        say: Say,
    ) -> io::Result<Sender> {
        let sent = Arc::new(AtomicU64::new(0));
        let (end, ended) = channel();
        let work = Work {
            agent: client::agent(PATIENCE),
            destination: destination.clone(),
            headers,
            spool,
            say,
            sent: Arc::clone(&sent),
        };
        let run = move || {
            work.run();
            drop(end);
        };
        std::thread::Builder::new().name("heaptrack-push".into()).spawn(run)?;
        Ok(Sender { destination, sent, ended })
    }

    /// Waits for the thread's end, but no longer than until then. Returns how many requests were sent.
    pub(crate) fn stop(self, until: Instant) -> u64 {
        let _ = self.ended.recv_timeout(until.saturating_duration_since(Instant::now()));
        self.sent.load(Ordering::Relaxed)
    }
}

struct Work {
    agent: Agent,
    destination: Destination,
    headers: Vec<(String, String)>,
    spool: Arc<Spool>,
    say: Say,
    sent: Arc<AtomicU64>,
}

impl Work {
    fn run(&self) {
        let mut wait = FIRST_WAIT;
        let mut reported: Option<Instant> = None;
        let mut report = |sentence: String| {
            if reported.is_none_or(|last| last.elapsed() >= REPORT_EVERY) {
                reported = Some(Instant::now());
                (self.say)(&sentence);
            }
        };
        let url = self.destination.url();
        while let Next::Send(number, request) = self.spool.next(self.destination.id(), self.destination.kind) {
            match self.send(&request) {
                Answer::Taken => {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    self.spool.remove(number, false);
                    wait = FIRST_WAIT;
                }
                Answer::Refused(reason) => {
                    self.spool.remove(number, true);
                    report(format!("{url} refused a profile: {reason}"));
                }
                Answer::Later(reason, asked) => {
                    report(format!("{url} took no profile, it is sent later: {reason}"));
                    // Half of the wait is random, so that many recorders do not come back together.
                    let time = asked.unwrap_or(wait).max(wait).mul_f64(0.5 + fastrand::f64() / 2.0);
                    wait = (wait * 2).min(LONGEST_WAIT);
                    if !self.spool.wait(time) {
                        return;
                    }
                }
            }
        }
    }

    fn send(&self, request: &Request) -> Answer {
        let mut post = self.agent.post(self.destination.address(&request.path));
        for (name, value) in request.headers() {
            post = post.header(*name, *value);
        }
        for (name, value) in &self.headers {
            post = post.header(name, value);
        }
        // A redirect could lead the headers to another host.
        let post = post.config().max_redirects(0).max_redirects_will_error(false).build();
        let response = match post.send(request.body.as_slice()) {
            Ok(response) => response,
            Err(error) => return Answer::Later(error.to_string(), None),
        };
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let asked = header("retry-after").and_then(|text| text.parse().ok()).filter(|time| *time <= LONGEST_ASKED);
        let early_status = header("grpc-status").and_then(|text| text.parse().ok());
        let early_status = early_status.map(|status| (status, header("grpc-message").unwrap_or_default()));
        let mut body = Vec::new();
        // Without the rest, the connection cannot be used again.
        let read = response.into_body().into_reader().take(LONGEST_ANSWER).read_to_end(&mut body);
        match (self.destination.kind, read) {
            (Kind::Parca, _) if (200..300).contains(&status) => judge_grpc(early_status.or_else(|| grpc_status(&body))),
            _ => judge(status, &body, asked.map(Duration::from_secs)),
        }
    }
}

fn judge(status: u16, body: &[u8], asked: Option<Duration>) -> Answer {
    let text = String::from_utf8_lossy(body);
    let first: String = text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(200).collect();
    let sentence = if first.is_empty() { format!("status {status}") } else { format!("status {status}, {first}") };
    match status {
        200..300 => Answer::Taken,
        408 | 429 | 500.. => Answer::Later(sentence, asked),
        _ => Answer::Refused(sentence),
    }
}

/// Statuses of gRPC that are worth another try: deadline exceeded, resource exhausted, aborted, internal, unavailable.
const TRY_AGAIN: [u32; 5] = [4, 8, 10, 13, 14];

fn judge_grpc(status: Option<(u32, String)>) -> Answer {
    match status {
        Some((0, _)) => Answer::Taken,
        Some((code, text)) => {
            let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
            let sentence = format!("gRPC status {code} {text}");
            if TRY_AGAIN.contains(&code) { Answer::Later(sentence, None) } else { Answer::Refused(sentence) }
        }
        None => Answer::Later("its answer is not gRPC-Web".to_owned(), None),
    }
}

/// Reads the lines `Name: value` of a file with headers. Returns the number of a line that is none.
pub fn headers(text: &str) -> Result<Vec<(String, String)>, usize> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let header = |(index, line): (usize, &str)| {
        let pair = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
        let is_header = |name: &str, value: &str| {
            name.parse::<client::http::HeaderName>().is_ok() && value.parse::<client::http::HeaderValue>().is_ok()
        };
        match pair {
            Some((name, value)) if is_header(name, value) => Ok((name.to_owned(), value.to_owned())),
            _ => Err(index + 1),
        }
    };
    lines.map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_refusals_are_final() {
        let later = |answer: &Answer| matches!(answer, Answer::Later(..));
        assert_eq!(judge(200, b"", None), Answer::Taken);
        assert_eq!(judge(204, b"anything", None), Answer::Taken);
        for status in [408, 429, 500, 503, 599, 999] {
            assert!(later(&judge(status, b"", None)), "{status}");
        }
        assert_eq!(judge(422, b"bad \x1b[1mprofile\nmore", None), Answer::Refused("status 422, bad [1mprofile".into()));
        assert!(matches!(judge(308, b"", None), Answer::Refused(_)));
        assert_eq!(judge_grpc(Some((0, String::new()))), Answer::Taken);
        assert!(later(&judge_grpc(Some((14, "away".into())))));
        assert!(later(&judge_grpc(None)));
        assert_eq!(judge_grpc(Some((3, "bad".into()))), Answer::Refused("gRPC status 3 bad".into()));
    }

    #[test]
    fn headers_are_lines() {
        let text = "Authorization: Bearer abc\n\nX-Scope-OrgID: 7\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers(text), Ok(vec![pair("Authorization", "Bearer abc"), pair("X-Scope-OrgID", "7")]));
        assert_eq!(headers("A: b\nnone\n"), Err(2));
        assert_eq!(headers("a b: c"), Err(1));
    }
}
