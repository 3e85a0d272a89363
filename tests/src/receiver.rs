//! A server that takes profiles, or misbehaves in a way that a test chooses.
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Take,
    /// Answers with this status.
    Status(u16),
    /// Answers with bytes that are no HTTP.
    Garbage,
    /// Says yes, and never ends its answer.
    Endless,
    /// Never answers.
    Silent,
}

/// A request that the server has read.
#[derive(Clone, Debug)]
pub struct Received {
    /// With the query.
    pub path: String,
    /// Names are in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// The server. Its thread ends with the test.
pub struct Receiver {
    pub address: String,
    taken: Arc<Mutex<Vec<Received>>>,
    /// How many requests came in, whatever became of them.
    seen: Arc<Mutex<usize>>,
    manner: Arc<Mutex<Manner>>,
}

impl Receiver {
    pub fn start(manner: Manner) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let receiver = Receiver {
            address: format!("http://{}", listener.local_addr().expect("an address")),
            taken: Arc::default(),
            seen: Arc::default(),
            manner: Arc::new(Mutex::new(manner)),
        };
        let (taken, seen, manner) =
            (Arc::clone(&receiver.taken), Arc::clone(&receiver.seen), Arc::clone(&receiver.manner));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (taken, seen, manner) = (Arc::clone(&taken), Arc::clone(&seen), Arc::clone(&manner));
                std::thread::spawn(move || serve(stream, &taken, &seen, &manner));
            }
        });
        receiver
    }

    pub fn set(&self, manner: Manner) {
        *self.manner.lock().expect("no panic") = manner;
    }

    /// The number of requests that came in.
    pub fn seen(&self) -> usize {
        *self.seen.lock().expect("no panic")
    }

    /// The requests that were taken, whose path begins like this.
    pub fn taken(&self, path: &str) -> Vec<Received> {
        let taken = self.taken.lock().expect("no panic");
        taken.iter().filter(|request| request.path.starts_with(path)).cloned().collect()
    }
}

fn serve(stream: TcpStream, taken: &Mutex<Vec<Received>>, seen: &Mutex<usize>, manner: &Mutex<Manner>) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream) {
        *seen.lock().expect("no panic") += 1;
        let manner = *manner.lock().expect("no panic");
        let is_grpc = request.headers.get("content-type").is_some_and(|kind| kind.starts_with("application/grpc-web"));
        let answer: Vec<u8> = match manner {
            Manner::Take if is_grpc => {
                let body = b"\0\0\0\0\0\x80\0\0\0\x10grpc-status: 0\r\n";
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                [head.as_bytes(), body].concat()
            }
            Manner::Take => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
            Manner::Status(status) => format!("HTTP/1.1 {status} No\r\nContent-Length: 3\r\n\r\nno\n").into_bytes(),
            Manner::Garbage => b"\x16\x03\x01 this is no HTTP \0\r\n\r\n\r\n".to_vec(),
            Manner::Endless => b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
            Manner::Silent => Vec::new(),
        };
        if manner == Manner::Take {
            taken.lock().expect("no panic").push(request);
        }
        let is_over = out.write_all(&answer).is_err();
        match manner {
            Manner::Take | Manner::Status(_) if !is_over => (),
            // The peer decides when it is over.
            Manner::Silent => drop(stream.read(&mut [0])),
            Manner::Endless => {
                while out.write_all(&[b'x'; 100]).is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            _ => return,
        }
    }
}

/// Reads a request. `None` if the peer has closed the connection.
fn read(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.trim().to_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some(Received { path, headers, body })
}
