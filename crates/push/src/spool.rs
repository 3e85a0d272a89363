//! Requests that wait for their server, within a limit: in a folder, or in memory.
//!
//! Receives: requests, each for a destination. Returns: the oldest one of a destination. Must hold: all together stay below
//! the limit, and the oldest are dropped first. A file of the folder is whole or not there. One heaptrack at a time uses a
//! folder. Files that are not ours stay untouched.
//!
//! ```text
//! FOLDER/heaptrack.lock                  locked while a heaptrack uses the folder
//! FOLDER/NUMBER-DESTINATION.push         a request; numbers grow, also from one recording to the next
//! FOLDER/NUMBER-DESTINATION.push.part    one that is being written
//! ```
use crate::destination::Kind;
use crate::request::Request;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LOCK: &str = "heaptrack.lock";
const ENDING: &str = ".push";
const PART: &str = ".push.part";

pub(crate) struct Spool {
    folder: Option<PathBuf>,
    /// Held while the folder is in use.
    _lock: Option<File>,
    limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, Waiting>,
    bytes: u64,
    dropped: u64,
    is_ending: bool,
}

/// A request that waits.
struct Waiting {
    destination: u64,
    bytes: u64,
    /// `None` if it is in a file.
    request: Option<Vec<u8>>,
}

/// What a sender shall do next.
pub(crate) enum Next {
    Send(u64, Request),
    /// There is nothing left, and there will be nothing more.
    End,
}

impl Spool {
    pub(crate) fn open(folder: Option<&Path>, limit: u64) -> io::Result<Spool> {
        let mut state = State::default();
        let lock = folder.map(lock).transpose()?;
        if let Some(folder) = folder {
            for entry in fs::read_dir(folder)?.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some((number, destination)) = name.strip_suffix(ENDING).and_then(numbers) {
                    let bytes = entry.metadata().map_or(0, |data| data.len());
                    state.waiting.insert(number, Waiting { destination, bytes, request: None });
                    state.bytes += bytes;
                } else if name.strip_suffix(PART).and_then(numbers).is_some() {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        let spool = Spool {
            folder: folder.map(Path::to_owned),
            _lock: lock,
            limit,
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        spool.shrink(&mut spool.state(), 0);
        Ok(spool)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, number: u64, destination: u64, ending: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{number:020}-{destination:016x}{ending}")))
    }

    /// Drops the oldest requests until there is room for `more` bytes.
    fn shrink(&self, state: &mut State, more: u64) {
        while state.bytes.saturating_add(more) > self.limit {
            let Some((number, oldest)) = state.waiting.pop_first() else { break };
            state.bytes -= oldest.bytes;
            state.dropped += 1;
            self.file(number, oldest.destination, ENDING).map(fs::remove_file);
        }
    }

    /// Keeps a request until it was sent. One that is larger than the limit is dropped.
    pub(crate) fn add(&self, destination: u64, request: &Request) -> io::Result<()> {
        let request = request.to_bytes();
        let bytes = request.len() as u64;
        let mut state = self.state();
        if bytes > self.limit {
            state.dropped += 1;
            return Ok(());
        }
        self.shrink(&mut state, bytes);
        let after = state.waiting.last_key_value().map_or(0, |(number, _)| number + 1);
        let number = after.max(now());
        let files = self.file(number, destination, PART).zip(self.file(number, destination, ENDING));
        let request = match files {
            None => Some(request),
            Some((part, path)) => {
                let written = File::create(&part).and_then(|mut file| file.write_all(&request));
                if let Err(error) = written.and_then(|()| fs::rename(&part, &path)) {
                    let _ = fs::remove_file(&part);
                    state.dropped += 1;
                    return Err(error);
                }
                None
            }
        };
        state.waiting.insert(number, Waiting { destination, bytes, request });
        state.bytes += bytes;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for a request of a destination, and returns the oldest. It stays here until it is removed.
    pub(crate) fn next(&self, destination: u64, kind: Kind) -> Next {
        let mut state = self.state();
        loop {
            let oldest = state.waiting.iter().find(|(_, waiting)| waiting.destination == destination);
            let Some((number, waiting)) = oldest else {
                if state.is_ending {
                    return Next::End;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let number = *number;
            let bytes = match (&waiting.request, self.file(number, destination, ENDING)) {
                (Some(request), _) => Some(request.clone()),
                (None, path) => path.and_then(|path| fs::read(path).ok()),
            };
            match bytes.and_then(|bytes| Request::from_bytes(kind, &bytes)) {
                Some(request) => return Next::Send(number, request),
                // Somebody has removed or changed the file.
                None => self.take_out(&mut state, number, true),
            }
        }
    }

    fn take_out(&self, state: &mut State, number: u64, is_dropped: bool) {
        // It may have been dropped for a newer one while it was sent.
        if let Some(gone) = state.waiting.remove(&number) {
            state.bytes -= gone.bytes;
            state.dropped += is_dropped as u64;
            self.file(number, gone.destination, ENDING).map(fs::remove_file);
        }
    }

    /// Removes a request that was sent, or that the server refused.
    pub(crate) fn remove(&self, number: u64, is_dropped: bool) {
        self.take_out(&mut self.state(), number, is_dropped);
    }

    /// Waits for this time. Returns false at once if this is the end.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state();
        while !state.is_ending {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// There will be no more requests. Senders send what is there, and do not wait.
    pub(crate) fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    /// Returns how many requests stay for another recording, or are lost if they are in memory.
    pub(crate) fn close(&self) -> u64 {
        self.state().waiting.len() as u64
    }
}

/// Makes the folder and locks it.
fn lock(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let file = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(io::Error::other("another heaptrack uses this folder")),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// The number and the destination of a file's name without its ending.
fn numbers(name: &str) -> Option<(u64, u64)> {
    let (number, destination) = name.split_once('-').filter(|(number, rest)| (number.len(), rest.len()) == (20, 16))?;
    Some((number.parse().ok()?, u64::from_str_radix(destination, 16).ok()?))
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request { kind: Kind::Pyroscope, path: "/ingest".into(), body: text.into() }
    }

    fn oldest(spool: &Spool, destination: u64) -> Option<(u64, String)> {
        spool.end();
        match spool.next(destination, Kind::Pyroscope) {
            Next::Send(number, request) => Some((number, String::from_utf8(request.body).unwrap())),
            Next::End => None,
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("heaptrack-spool-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    /// 8 bytes of the path and its line feed, and 12 of the body.
    const EACH: u64 = 20;

    #[test]
    fn the_oldest_are_dropped_first() {
        let folder = folder("limit");
        for place in [None, Some(folder.as_path())] {
            let spool = Spool::open(place, 3 * EACH).unwrap();
            for number in 0..5 {
                spool.add(number % 2, &request(&format!("{number:012}"))).unwrap();
            }
            assert_eq!((spool.dropped(), spool.close()), (2, 3));
            assert_eq!(oldest(&spool, 0).unwrap().1, "000000000002");
            let (number, text) = oldest(&spool, 1).unwrap();
            assert_eq!(text, "000000000003");
            spool.remove(number, false);
            assert_eq!(oldest(&spool, 1), None);
            spool.add(1, &request(&"x".repeat(100))).unwrap();
            assert_eq!((spool.dropped(), spool.close()), (3, 2), "too large");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn another_recording_sends_what_is_left() {
        let folder = folder("left");
        let spool = Spool::open(Some(&folder), 1000).unwrap();
        spool.add(7, &request("first")).unwrap();
        spool.add(7, &request("second")).unwrap();
        assert!(Spool::open(Some(&folder), 1000).is_err_and(|error| error.to_string().contains("another heaptrack")));
        drop(spool);
        fs::write(folder.join("00000000000000000001-0000000000000007.push.part"), "/ing").unwrap();
        fs::write(folder.join("00000000000000000002-0000000000000007.push"), "garbage").unwrap();
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        let spool = Spool::open(Some(&folder), 1000).unwrap();
        assert_eq!(oldest(&spool, 7).unwrap().1, "first", "what is no request is dropped");
        assert_eq!((spool.dropped(), spool.close()), (1, 2));
        let (first, _) = oldest(&spool, 7).unwrap();
        spool.remove(first, false);
        spool.add(7, &request("third")).unwrap();
        assert_eq!(oldest(&spool, 7).unwrap().1, "second");
        drop(spool);
        // With a lower limit, what does not fit any more is dropped.
        let spool = Spool::open(Some(&folder), 14).unwrap();
        assert_eq!(oldest(&spool, 7).unwrap().1, "third");
        let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(names[1..], ["heaptrack.lock", "notes.txt"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
