//! The trace's name and its file.
//!
//! Receives: `-o` and the program's name. Returns: an open file that gets its final name when the pid is known. A
//! device or a pipe gets the whole trace at the end. Must hold: no file is left if the program did not start. No
//! recording takes the name of another one that is still being written: every recorder holds a lock on its file, and a
//! lock on the folder while it takes a name.
use crate::destination::{is_special, is_stdout, names_folder};
use crate::unfinished::behind_links;
use anyhow::{Context, anyhow};
use collector::{TracePath, part};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[derive(Debug)]
pub struct Output {
    pattern: PathBuf,
    /// When the recording began, for `%t`.
    began: SystemTime,
    place: Arc<TracePath>,
    /// The folders that we created, outermost first.
    made: Vec<PathBuf>,
    is_named: bool,
    /// The device or pipe that the user gave with `-o`.
    sink: Option<Sink>,
}

#[derive(Debug)]
struct Sink {
    path: PathBuf,
    file: File,
}

/// Returns the name with `%p` still in it, and whether its ending asks for KDE's format.
fn pattern(option: Option<&Path>, program: &OsStr) -> (PathBuf, bool) {
    let Some(name) = option.filter(|name| !names_folder(name)) else {
        let folder = option.unwrap_or(Path::new(""));
        let program = Path::new(program).file_name().unwrap_or(program).as_bytes();
        // A percent sign in a program's name must not be expanded.
        let mut name = b"heaptrack.".to_vec();
        name.extend(program.iter().flat_map(|byte| if *byte == b'%' { vec![b'%', b'%'] } else { vec![*byte] }));
        name.extend(b".%p.htz");
        return (folder.join(OsString::from_vec(name)), false);
    };
    let bytes = name.as_os_str().as_bytes();
    let is_kde = bytes.ends_with(b".zst") || bytes.ends_with(b".gz");
    let mut named = name.as_os_str().to_owned();
    if !bytes.ends_with(b".htz") {
        named.push(".htz");
    }
    (PathBuf::from(named), is_kde)
}

/// Expands `%h`, `%p`, `%t` and `%%`. Everything else stays.
fn expand(pattern: &Path, host: &[u8], pid: u32, began: SystemTime) -> PathBuf {
    let (mut out, mut bytes) = (Vec::new(), pattern.as_os_str().as_bytes().iter().copied());
    while let Some(byte) = bytes.next() {
        match (byte, byte == b'%') {
            (byte, false) => out.push(byte),
            (_, true) => match bytes.next() {
                Some(b'h') => out.extend(host),
                Some(b'p') => out.extend(pid.to_string().bytes()),
                Some(b't') => out.extend(time(began).bytes()),
                Some(b'%') => out.push(b'%'),
                other => out.extend([b'%'].into_iter().chain(other)),
            },
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// The time in UTC, as `20261118-093005`, so that names sort by it.
fn time(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The usual calendar by Howard Hinnant's algorithm. A year begins in March, so that the leap day is its last.
    let day_of_era = (days + 719_468) % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + (days + 719_468) / 146_097 * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

impl Output {
    /// Creates the folder and the file, under a name that shows that it is not finished. With `named_late`, the file
    /// gets its name when the recording is over. Also returns true if the name asks for KDE's format.
    pub fn create(option: Option<&Path>, program: &OsStr, named_late: bool) -> anyhow::Result<(Output, File, bool)> {
        let sink = option.map(Sink::find).transpose()?.flatten();
        let hidden = sink.as_ref().map(|_| std::env::temp_dir().join("heaptrack"));
        let (pattern, is_kde) = pattern(hidden.as_deref().or(option), program);
        let began = SystemTime::now();
        let own = expand(&pattern, host().as_bytes(), std::process::id(), began);
        // The file is created on the disk to which a link leads, because it is renamed to that place.
        let folder = folder_of(&behind_links(&own));
        let mut output = Output {
            pattern,
            began,
            place: Arc::new(TracePath::new(PathBuf::new())),
            made: Vec::new(),
            is_named: false,
            sink,
        };
        output.make_folder(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        if own.is_dir() {
            anyhow::bail!("cannot write {}: it is a folder", own.display());
        }
        if is_being_written(&own) {
            anyhow::bail!("{} is being written by another recording: give another name with -o", own.display());
        }
        part::remove_abandoned(&folder);
        // A file that keeps its temporary name for long is not removed if the recorder is killed, because it is a
        // usable trace.
        let made =
            if named_late || output.sink.is_some() { part::create_trace(&folder) } else { part::create(&folder) };
        // The lock is held while we write, so that no command appends to the file and no other recording takes its
        // name.
        let (path, file) =
            made.map_err(|error| anyhow!("cannot write to {}: {error}; give another place with -o", folder.display()))?;
        output.place = Arc::new(TracePath::new(path));
        Ok((output, file, is_kde))
    }

    fn make_folder(&mut self, folder: &Path) -> std::io::Result<()> {
        if folder.exists() {
            return Ok(());
        }
        if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.make_folder(parent)?;
        }
        fs::create_dir(folder)?;
        self.made.push(folder.to_path_buf());
        Ok(())
    }

    pub fn folder(&self) -> PathBuf {
        folder_of(&self.place.path())
    }

    pub fn place(&self) -> Arc<TracePath> {
        Arc::clone(&self.place)
    }

    /// Called when the program runs as `pid`. The file gets its name, or a similar one if another recording has taken
    /// that name.
    pub fn name(&mut self, pid: u32) -> std::io::Result<PathBuf> {
        if self.sink.is_some() {
            return Ok(self.place.path());
        }
        let wanted = behind_links(&expand(&self.pattern, host().as_bytes(), pid, self.began));
        fs::create_dir_all(folder_of(&wanted))?;
        let _one_at_a_time = lock_folder(&folder_of(&wanted));
        let path = similar_names(&wanted).find(|path| !is_being_written(path)).unwrap_or_else(|| wanted.clone());
        if path != wanted {
            let (wanted, path) = (wanted.display(), path.display());
            crate::say(format_args!(
                "heaptrack: another recording is being written to {wanted}, so this one goes to {path}"
            ));
        }
        self.place.rename(&path)?;
        self.is_named = true;
        Ok(path)
    }
}

impl Output {
    /// Called when the recording is over. Copies the trace to the device or pipe, if one was given, and returns its
    /// name. If that fails, the trace stays where it is.
    pub fn deliver(&mut self) -> anyhow::Result<Option<PathBuf>> {
        let Some(Sink { path, file }) = &mut self.sink else { return Ok(None) };
        let copied = File::open(self.place.path()).and_then(|mut trace| io::copy(&mut trace, file));
        self.is_named = copied.is_err();
        copied.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Some(path.clone()))
    }
}

impl Sink {
    /// Returns `None` if the option names an ordinary file.
    fn find(option: &Path) -> anyhow::Result<Option<Self>> {
        if is_stdout(option) {
            anyhow::bail!("a recording cannot go to stdout: give -o the name of a file");
        }
        if !is_special(option) {
            return Ok(None);
        }
        let path = option.to_owned();
        // Opening a pipe without a reader would block, and the program would wait with us.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(option, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NXIO) => anyhow::bail!("cannot write {}: nothing reads this pipe yet", option.display()),
            Err(error) => {
                return Err(io::Error::from(error)).with_context(|| format!("cannot write {}", option.display()));
            }
        };
        rustix::fs::fcntl_setfl(&file, OFlags::WRONLY).map_err(io::Error::from)?;
        Ok(Some(Sink { path, file }))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        let _ = fs::remove_file(self.place.path());
        for folder in self.made.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Returns true if another process holds the lock of a recorder on this file.
pub fn is_being_written(path: &Path) -> bool {
    let locked = |file: File| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    // Only regular files are opened. Opening anything else could block or have an effect.
    let is_file = fs::metadata(path).is_ok_and(|there| there.is_file());
    is_file && File::open(path).is_ok_and(|file| locked(file) == Err(rustix::io::Errno::WOULDBLOCK))
}

/// Locks the folder, so that recordings that start together take their names one after the other. Gives up after a
/// second and returns `None`, because a lock that is held for so long is not one of ours.
fn lock_folder(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    for _ in 0..200 {
        if rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Some(folder);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Returns `x.htz`, `x.2.htz`, `x.3.htz` and so on. The number comes before `.zst.htz` and `.gz.htz`.
fn similar_names(wanted: &Path) -> impl Iterator<Item = PathBuf> {
    let bytes = wanted.as_os_str().as_bytes();
    let ending = [&b".zst.htz"[..], b".gz.htz", b".htz"].into_iter().find(|ending| bytes.ends_with(ending));
    let (stem, ending) = bytes.split_at(bytes.len() - ending.map_or(0, <[u8]>::len));
    let (stem, ending) = (stem.to_vec(), ending.to_vec());
    let numbered = move |number: u32| {
        let name = [&stem[..], format!(".{number}").as_bytes(), &ending[..]].concat();
        PathBuf::from(OsString::from_vec(name))
    };
    [wanted.to_path_buf()].into_iter().chain((2..1000).map(numbered))
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

fn host() -> OsString {
    OsString::from_vec(rustix::system::uname().nodename().to_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(option: Option<&str>) -> String {
        let (pattern, _) = pattern(option.map(Path::new), OsStr::new("/usr/bin/my %p"));
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_210_096);
        expand(&pattern, b"box", 42, began).to_string_lossy().into_owned()
    }

    #[test]
    fn names_follow_the_rules() {
        assert_eq!(name(None), "heaptrack.my %p.42.htz");
        assert_eq!(name(Some("a/b")), "a/b.htz");
        assert_eq!(name(Some("a/%p/")), "a/42/heaptrack.my %p.42.htz");
        assert_eq!(name(Some(".")), "./heaptrack.my %p.42.htz");
        assert_eq!(name(Some("/tmp")), "/tmp/heaptrack.my %p.42.htz");
        assert_eq!(name(Some("x.htz")), "x.htz");
        assert_eq!(name(Some("%h-%p.%%.%q%")), "box-42.%.%q%.htz");
        assert_eq!(name(Some("kde.zst")), "kde.zst.htz");
        assert_eq!(name(Some("a/%h.%t")), "a/box.20240229-123456.htz");
        assert!(pattern(Some(Path::new("kde.gz")), OsStr::new("x")).1);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let of = |seconds| time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(of(0), "19700101-000000");
        assert_eq!(of(951_782_399), "20000228-235959");
        assert_eq!(of(951_782_400), "20000229-000000");
        assert_eq!(of(4_102_444_799), "20991231-235959");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let second = |name: &str| similar_names(Path::new(name)).nth(1).unwrap().to_string_lossy().into_owned();
        assert_eq!(second("a/x.htz"), "a/x.2.htz");
        assert_eq!(second("x.zst.htz"), "x.2.zst.htz");
        assert_eq!(similar_names(Path::new("x.htz")).next(), Some(PathBuf::from("x.htz")));
    }

    #[test]
    fn nothing_stays_when_the_program_did_not_start() {
        let base = std::env::temp_dir().join(format!("heaptrack-output-test.{}", std::process::id()));
        let option = base.join("deep/trace");
        let (output, _, _) = Output::create(Some(&option), OsStr::new("x"), false).unwrap();
        assert!(base.join("deep").exists());
        drop(output);
        assert!(!base.exists());
        let (mut output, _, _) = Output::create(Some(&option), OsStr::new("x"), false).unwrap();
        assert_eq!(output.name(7).unwrap(), base.join("deep/trace.htz"));
        drop(output);
        assert!(base.join("deep/trace.htz").exists());
        fs::remove_dir_all(base).unwrap();
    }
}
