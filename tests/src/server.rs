//! `heaptrack analyze`, the page's server, queried without a browser.
use crate::process;
use crate::run::heaptrack;
use serde::Deserialize;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub struct Server {
    /// `None` if another test program started the server.
    child: Option<Child>,
    /// Host and port.
    host: String,
    token: String,
}

impl Server {
    /// Starts a server for these files and waits until it has read all of them.
    pub fn start(files: &[PathBuf], options: &[String]) -> Self {
        let mut command = Command::new(heaptrack());
        command.args(["analyze", "--no-browser"]).args(options).args(files);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("heaptrack runs");
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut address).expect("an address");
        let rest = address.trim().strip_prefix("http://").unwrap_or_else(|| panic!("no address: {address}"));
        let (host, token) = rest.split_once("/?token=").expect("a token");
        let server = Server { child: Some(child), host: host.to_owned(), token: token.to_owned() };
        for trace in 0..files.len() {
            process::wait_for("the server to read its traces", || {
                let (_, status) = server.get("status", &[("trace", trace.to_string())]);
                (status["traces"][trace]["state"] == "ready").then_some(())
            });
        }
        server
    }

    /// A server that runs already: `HOST:PORT/?token=TOKEN`.
    pub fn at(address: &str) -> Self {
        let (host, token) = address.trim().split_once("/?token=").expect("a token");
        Server { child: None, host: host.to_owned(), token: token.to_owned() }
    }

    /// The status and the JSON of the answer.
    pub fn get(&self, view: &str, words: &[(&str, String)]) -> (u16, Value) {
        let words: String = words.iter().map(|(name, value)| format!("&{name}={}", encoded(value))).collect();
        let Server { host, token, .. } = self;
        let mut stream = TcpStream::connect(host).expect("the server listens");
        write!(stream, "GET /api/{view}?token={token}{words} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .expect("the server reads");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the server answers");
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("a header");
        let head = String::from_utf8_lossy(&bytes[..end]);
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
        let mut reader = serde_json::Deserializer::from_slice(&bytes[end + 4..]);
        // A tree can be as deep as its stacks, which is deeper than serde_json allows by default.
        reader.disable_recursion_limit();
        (status, Value::deserialize(&mut reader).unwrap_or_else(|error| panic!("{error}: {head}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn encoded(text: &str) -> String {
    let byte =
        |byte: u8| if byte.is_ascii_alphanumeric() { (byte as char).to_string() } else { format!("%{byte:02x}") };
    text.bytes().map(byte).collect()
}
