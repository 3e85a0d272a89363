//! Debug files from a server, by build-id: debuginfod's protocol, and the cache of the standard client.
//!
//! Receives: servers and a cache folder, as the environment names them. Returns: files. Must hold: servers are asked
//! only if the user allowed it, and never while a program is recorded. A file is in the cache completely or not at all.
//! If all servers answer that they do not have a file, they are not asked for it again for a while. A server that does
//! not answer is waited for only once.
//!
//! ```text
//! CACHE/BUILD-ID/debuginfo      the file; if it is empty, no server had it at its modification time
//! CACHE/cache_miss_s            for how many seconds such an empty file is valid (600 if this file is missing)
//! ```
use crate::finder::{hex, open};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const MISS_SECONDS: u64 = 600;
const CONNECT: Duration = Duration::from_secs(10);
/// How long the standard client waits for an answer, if `DEBUGINFOD_TIMEOUT` does not say it.
const ANSWER_SECONDS: u64 = 90;
/// The largest file that is accepted from a server.
const LARGEST: u64 = 8 << 30;
const STEP: usize = 256 << 10;

/// The servers, and the folder that caches their files.
pub struct Debuginfod {
    servers: Vec<Server>,
    cache: PathBuf,
    agent: client::Agent,
    download: Mutex<Option<Download>>,
    troubles: Mutex<Vec<String>>,
}

struct Server {
    url: String,
    /// It did not answer once, so it is not asked again.
    is_silent: AtomicBool,
}

/// A download that is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    pub bytes: u64,
    /// The size, if the server sent it.
    pub total: Option<u64>,
}

/// The answer of one server.
enum Answer {
    File,
    NotThere,
    Trouble,
}

impl std::fmt::Debug for Debuginfod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "debuginfod, cached in {}", self.cache.display())
    }
}

impl Debuginfod {
    /// Configured by `DEBUGINFOD_URLS`, `DEBUGINFOD_CACHE_PATH` and `DEBUGINFOD_TIMEOUT`. If no cache is named, it is
    /// in `XDG_CACHE_HOME`, in `.cache` in `HOME`, or in the folder for temporary files. Returns `None` if no server is
    /// named.
    pub fn from_environment() -> Option<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let urls = variable("DEBUGINFOD_URLS")?.into_string().ok()?;
        let in_cache = |folder: PathBuf| folder.join("debuginfod_client");
        let cache = variable("DEBUGINFOD_CACHE_PATH")
            .map(PathBuf::from)
            .or_else(|| variable("XDG_CACHE_HOME").map(PathBuf::from).map(in_cache))
            .or_else(|| variable("HOME").map(|home| in_cache(PathBuf::from(home).join(".cache"))))
            .unwrap_or_else(|| in_cache(std::env::temp_dir()));
        let seconds = variable("DEBUGINFOD_TIMEOUT").and_then(|text| text.to_str()?.parse().ok());
        Self::new(&urls, cache, Duration::from_secs(seconds.unwrap_or(ANSWER_SECONDS)))
    }

    /// `urls` are separated by blanks. Returns `None` if there are none.
    pub fn new(urls: &str, cache: PathBuf, answer: Duration) -> Option<Self> {
        let server =
            |url: &str| Server { url: url.trim_end_matches('/').to_owned(), is_silent: AtomicBool::new(false) };
        let servers: Vec<Server> = urls.split_whitespace().map(server).collect();
        if servers.is_empty() {
            return None;
        }
        let agent = client::agent(client::Patience { connect: CONNECT.min(answer), answer, whole: None });
        Some(Debuginfod { servers, cache, agent, download: Mutex::default(), troubles: Mutex::default() })
    }

    /// The download that is in progress.
    pub fn download(&self) -> Option<Download> {
        *self.download.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sentences for people about everything that did not work.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn trouble(&self, sentence: String) -> Answer {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if !troubles.contains(&sentence) {
            troubles.push(sentence);
        }
        Answer::Trouble
    }

    fn show(&self, download: Option<Download>) {
        *self.download.lock().unwrap_or_else(PoisonError::into_inner) = download;
    }

    /// The file with the debug information of a build.
    pub(crate) fn find(&self, build_id: &[u8]) -> Option<(PathBuf, File)> {
        if build_id.len() < 2 {
            return None;
        }
        let folder = self.cache.join(hex(build_id));
        let path = folder.join("debuginfo");
        if let Some(file) = open(&path) {
            return Some((path, file));
        }
        if self.is_known_miss(&path) {
            return None;
        }
        if let Err(error) = std::fs::create_dir_all(&folder) {
            self.trouble(format!("debug files cannot be kept in {}: {error}", self.cache.display()));
            return None;
        }
        let mut all_say_no = true;
        for server in &self.servers {
            let answer = self.ask(server, &format!("buildid/{}/debuginfo", hex(build_id)), &path);
            self.show(None);
            match answer {
                Answer::File => return open(&path).map(|file| (path, file)),
                Answer::NotThere => {}
                Answer::Trouble => all_say_no = false,
            }
        }
        if all_say_no {
            let _ = File::create(&path);
        }
        None
    }

    fn is_known_miss(&self, path: &Path) -> bool {
        let seconds = std::fs::read_to_string(self.cache.join("cache_miss_s")).ok();
        let seconds = seconds.and_then(|text| text.trim().parse().ok()).unwrap_or(MISS_SECONDS);
        let Ok(data) = path.metadata() else { return false };
        let age = data.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        data.len() == 0 && age.unwrap_or_default() < Duration::from_secs(seconds)
    }

    fn ask(&self, server: &Server, what: &str, path: &Path) -> Answer {
        if server.is_silent.load(Ordering::Relaxed) {
            return Answer::Trouble;
        }
        self.show(Some(Download { bytes: 0, total: None }));
        let response = match self.agent.get(format!("{}/{what}", server.url)).call() {
            Ok(response) => response,
            Err(error) => {
                server.is_silent.store(true, Ordering::Relaxed);
                return self.trouble(format!("{} did not answer: {error}", server.url));
            }
        };
        let number = |name: &str| response.headers().get(name)?.to_str().ok()?.parse().ok();
        let total = number("x-debuginfod-size").or_else(|| number("content-length"));
        match response.status().as_u16() {
            200 => match self.keep(response.into_body().into_reader(), total, path) {
                Ok(()) => Answer::File,
                Err(error) => self.trouble(format!("a file of {} could not be fetched: {error}", server.url)),
            },
            404 => Answer::NotThere,
            code => self.trouble(format!("{} answered with the error {code}", server.url)),
        }
    }

    /// Writes to a temporary name first, so that a file at `path` is always complete.
    fn keep(&self, mut body: impl Read, total: Option<u64>, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
            let mut buffer = vec![0; STEP];
            let mut bytes = 0;
            loop {
                let count = body.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                bytes += count as u64;
                if bytes > LARGEST {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                file.write_all(&buffer[..count])?;
                self.show(Some(Download { bytes, total }));
            }
            std::fs::rename(&unfinished, path)
        })();
        if written.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        written
    }
}
