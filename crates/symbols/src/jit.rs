//! The functions that a JIT compiler made, according to the compiler itself.
//!
//! Receives: the perf map of a process (`/tmp/perf-PID.map`) or its jitdump file, while they grow. Returns: the
//! function at an address. Must hold: hostile files lead to wrong names and to nothing else. If two functions overlap,
//! the later one counts.
use crate::finder::{Finder, open};
use crate::target_files::Target;
use demangle::Name;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// No real program writes a larger file. The rest is not read.
const MOST_BYTES: u64 = 1 << 30;
const MOST_CODES: usize = 4 << 20;
const STEP: usize = 1 << 20;
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Some file systems keep the times of changes in steps of this length.
const STEP_OF_TIMES: Duration = Duration::from_secs(2);
const DUMP_MAGIC: u32 = 0x4a69_5444;
const DUMP_LOAD: u32 = 0;
const DUMP_MOVE: u32 = 1;
const DUMP_DEBUG: u32 = 2;

/// One function that a JIT compiler made, without its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    pub size: u64,
    pub name: Name,
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// A file that is read as it grows.
struct Growing {
    file: File,
    at: u64,
    /// The beginning of an entry that is not complete yet.
    rest: Vec<u8>,
}

impl Growing {
    const fn new(file: File) -> Self {
        Growing { file, at: 0, rest: Vec::new() }
    }

    /// Reads the next bytes. Returns false if there are none now, or if the file is too large.
    fn more(&mut self) -> bool {
        let have = self.rest.len();
        self.rest.resize(have + STEP, 0);
        let count = self.file.read_at(&mut self.rest[have..], self.at).unwrap_or(0);
        self.rest.truncate(have + count);
        self.at += count as u64;
        count > 0 && self.at < MOST_BYTES
    }
}

/// All that is known about the JIT code of one process.
#[derive(Default)]
pub struct Jit {
    map: Option<Growing>,
    dump: Option<Growing>,
    codes: BTreeMap<u64, Code>,
    /// Files and lines of functions that jitdump has not named yet: it writes the lines first.
    pending: BTreeMap<u64, (String, u32)>,
    header_read: bool,
    looked: Option<Instant>,
}

impl Jit {
    /// Opens the files at their usual places, so that they can be read after the target's end. Costs the target
    /// nothing.
    pub fn open(&mut self, target: &Target) {
        if self.map.is_none() {
            self.map = open_map(target).map(Growing::new);
        }
        if self.dump.is_none() {
            self.dump = open_dump(target).map(Growing::new);
        }
    }

    /// Looks for the files, and reads the new entries.
    pub fn refresh(&mut self, target: &Target) {
        self.open(target);
        // Few programs have a jitdump file, and the search in the target's mappings slows the target down.
        let look = self.looked.is_none_or(|last| last.elapsed() >= LOOK_EVERY);
        if self.dump.is_none() && look {
            self.looked = Some(Instant::now());
            let is_dump = |path: &PathBuf| {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                name.starts_with("jit-") && name.ends_with(".dump")
            };
            let path = target.mapped_names().into_iter().find(is_dump);
            self.dump = path.and_then(|path| target.open(&path)).map(Growing::new);
        }
        self.read();
    }

    /// Reads the files for the last time, when the process has ended.
    pub fn finish(&mut self, target: &Target) {
        self.looked = None;
        self.refresh(target);
    }

    /// Reads the perf map of a process that was recorded, if the file still exists and was last changed after the
    /// recording began. An older file belongs to an earlier process with the same pid. A file that was changed after
    /// `ended`, the process's end, belongs to a later one. `ended` is `None` if the process may have outlived the
    /// recording.
    pub fn after(pid: u32, ended: Option<SystemTime>, finder: &Finder<'_>) -> Self {
        let mut jit = Jit::default();
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        let started = finder.search.started_unix_ns / 1_000_000_000;
        let fits = |file: &File| {
            let Ok(data) = file.metadata() else { return false };
            let is_later =
                ended.is_some_and(|ended| data.modified().is_ok_and(|changed| changed > ended + STEP_OF_TIMES));
            data.mtime() as u64 >= started && !is_later
        };
        jit.map = finder.at(&path).into_iter().map(|(_, file)| file).find(fits).map(Growing::new);
        jit.read();
        jit
    }

    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    pub fn find(&self, address: u64) -> Option<&Code> {
        self.find_start(address).map(|(_, code)| code)
    }

    /// The function at an address, with its start.
    pub fn find_start(&self, address: u64) -> Option<(u64, &Code)> {
        let (start, code) = self.codes.range(..=address).next_back()?;
        (address - start < code.size).then_some((*start, code))
    }

    fn read(&mut self) {
        if let Some(mut map) = self.map.take() {
            while map.more() {
                self.lines(&mut map.rest);
            }
            self.map = Some(map);
        }
        if let Some(mut dump) = self.dump.take() {
            while dump.more() {
                self.records(&mut dump.rest);
            }
            self.dump = Some(dump);
        }
    }

    /// Removes all complete lines and reads them: `START SIZE name`, both numbers in hexadecimal.
    fn lines(&mut self, bytes: &mut Vec<u8>) {
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            // No real line is that long.
            if bytes.len() > STEP {
                bytes.clear();
            }
            return;
        };
        for line in String::from_utf8_lossy(&bytes[..end]).lines() {
            let mut fields = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok();
            if let (Some(start), Some(size)) = (number(), number())
                && let Some(name) = fields.next()
            {
                self.insert(start, code(name, size));
            }
        }
        bytes.drain(..=end);
    }

    fn insert(&mut self, start: u64, code: Code) {
        if code.size == 0 || self.codes.len() >= MOST_CODES {
            return;
        }
        // Older functions that begin inside the new one are removed. One that begins before it is cut at its start.
        let end = start.saturating_add(code.size);
        if let Some((before, old)) = self.codes.range_mut(..start).next_back()
            && before.saturating_add(old.size) > start
        {
            old.size = start - before;
        }
        let buried: Vec<u64> = self.codes.range(start..end).map(|(at, _)| *at).collect();
        for at in buried {
            self.codes.remove(&at);
        }
        self.codes.insert(start, code);
    }

    /// Removes all complete records of a jitdump file and reads them. The file is a header, then records that begin
    /// with `id u32, total size u32, time u64`.
    fn records(&mut self, bytes: &mut Vec<u8>) {
        let mut at = 0;
        if !self.header_read {
            let (Some(magic), Some(size)) = (u32_at(bytes, 0), u32_at(bytes, 8)) else { return };
            if magic != DUMP_MAGIC {
                bytes.clear();
                return;
            }
            at = size as usize;
            self.header_read = true;
        }
        while let (Some(id), Some(size)) = (u32_at(bytes, at), u32_at(bytes, at + 4)) {
            let size = size as usize;
            let Some(record) = bytes.get(at..at.saturating_add(size)).filter(|record| record.len() >= 16) else {
                // The record is not complete yet. An impossible size ends the reading.
                if size < 16 || size as u64 > MOST_BYTES {
                    bytes.clear();
                    return;
                }
                break;
            };
            self.record(id, record);
            at += size;
        }
        bytes.drain(..at.min(bytes.len()));
    }

    fn record(&mut self, id: u32, record: &[u8]) -> Option<()> {
        match id {
            // pid, tid, vma, address, size, index, name, code
            DUMP_LOAD => {
                let (address, size) = (u64_at(record, 32)?, u64_at(record, 40)?);
                let name = c_string(record.get(56..)?)?;
                let mut code = code(&name, size);
                if let Some((file, line)) = self.pending.remove(&address) {
                    code.file.get_or_insert(file);
                    code.line.get_or_insert(line);
                }
                self.insert(address, code);
            }
            // pid, tid, vma, old address, new address, size, index
            DUMP_MOVE => {
                let (old, new) = (u64_at(record, 32)?, u64_at(record, 40)?);
                let code = self.codes.remove(&old)?;
                self.insert(new, code);
            }
            // address of the code, count, then per line: address, line, discriminator, name of the file; only the first
            // is used
            DUMP_DEBUG => {
                let address = u64_at(record, 16)?;
                let (line, file) = (u32_at(record, 40)?, c_string(record.get(48..)?)?);
                if self.pending.len() < MOST_CODES {
                    self.pending.insert(address, (file, line));
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn open_map(target: &Target) -> Option<File> {
    let inside = PathBuf::from(format!("/tmp/perf-{}.map", target.inner_pid()));
    target.open(&inside).or_else(|| open(Path::new(&format!("/tmp/perf-{}.map", target.pid()))))
}

/// V8 writes the file to its working folder.
fn open_dump(target: &Target) -> Option<File> {
    target.open_beside(&format!("jit-{}.dump", target.inner_pid()))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn c_string(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// Splits a JIT compiler's name of a function into name, file and line. V8 writes `JS:~name file:///app.js:3:7` (older:
/// `LazyCompile:`), with a sign for the compiler that made the code; Python writes `py::name:/app.py`.
fn code(text: &str, size: u64) -> Code {
    let plain = || Code { size, name: Name::plain(text), file: None, line: None };
    let code = |name: &str, file: &str, line| {
        let name = if name.is_empty() { "(anonymous)" } else { name };
        let name = Name { raw: text.to_owned(), full: name.to_owned(), short: name.to_owned() };
        Code { size, name, file: (!file.is_empty()).then(|| file.to_owned()), line }
    };
    if let Some(rest) = text.strip_prefix("py::") {
        return match rest.rsplit_once(':') {
            Some((name, file)) => code(name, file, None),
            None => code(rest, "", None),
        };
    }
    let prefix = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"].iter().find(|p| text.starts_with(**p));
    let Some(rest) = prefix.and_then(|prefix| text.strip_prefix(prefix)) else { return plain() };
    let rest = rest.trim_start_matches(['~', '*', '^', '+', '\'', '-']);
    let Some((name, place)) = rest.split_once(' ') else { return code(rest, "", None) };
    let place = place.strip_prefix("file://").unwrap_or(place);
    let mut parts = place.rsplitn(3, ':');
    let (column, line, file) = (parts.next(), parts.next(), parts.next());
    match (column.map(str::parse::<u32>), line.map(str::parse::<u32>), file) {
        (Some(Ok(_)), Some(Ok(line)), Some(file)) => code(name, file, Some(line)),
        _ => code(name, place, None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::finder::Search;

    fn map(text: &str) -> Jit {
        let mut jit = Jit::default();
        jit.lines(&mut text.as_bytes().to_vec());
        jit
    }

    fn told(code: &Code) -> (&str, Option<&str>, Option<u32>) {
        (&code.name.full, code.file.as_deref(), code.line)
    }

    #[test]
    fn perf_maps_of_v8_and_python_are_read() {
        let jit = map(
            "1000 10 JS:*handle file:///srv/my app.js:12:20\n1010 10 LazyCompile:~ /a.js:1:1\n2000 8 py::f:/x/y.py\n\
             3000 4 Builtin:ArrayMap\nnonsense\n4000 zz x\n5000 4 JS:~parse node:internal/url:7:1\n",
        );
        assert_eq!(told(jit.find(0x1000).unwrap()), ("handle", Some("/srv/my app.js"), Some(12)));
        assert_eq!(told(jit.find(0x101f).unwrap()), ("(anonymous)", Some("/a.js"), Some(1)));
        assert_eq!(told(jit.find(0x2007).unwrap()), ("f", Some("/x/y.py"), None));
        assert_eq!(told(jit.find(0x3000).unwrap()), ("Builtin:ArrayMap", None, None));
        assert_eq!(told(jit.find(0x5000).unwrap()), ("parse", Some("node:internal/url"), Some(7)));
        assert_eq!((jit.find(0x2008), jit.find(0xfff), jit.find(0x4000)), (None, None, None));
    }

    #[test]
    fn later_code_takes_the_place_of_earlier() {
        let jit = map("1000 100 a\n1040 20 b\n1000 10 c\n");
        assert_eq!(jit.find(0x1005).unwrap().name.full, "c");
        assert_eq!(jit.find(0x1045).unwrap().name.full, "b");
        assert_eq!(jit.find(0x1020), None, "a is gone");
        let mut whole = map("");
        let mut bytes = b"1000 10 first\n2000 10 sec".to_vec();
        whole.lines(&mut bytes);
        assert_eq!(bytes, b"2000 10 sec");
    }

    #[test]
    fn jitdump_records_are_read() {
        let mut bytes = Vec::new();
        bytes.extend(DUMP_MAGIC.to_le_bytes());
        bytes.extend([1u32, 40, 62, 0, 7].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend([0u64; 2].iter().flat_map(|word| word.to_le_bytes()));
        let mut debug = Vec::new();
        debug.extend([0x9000u64, 1, 0x9000].iter().flat_map(|word| word.to_le_bytes()));
        debug.extend([33u32, 0].iter().flat_map(|word| word.to_le_bytes()));
        debug.extend(b"/app/x.js\0");
        let mut load = Vec::new();
        load.extend([7u32, 7].iter().flat_map(|word| word.to_le_bytes()));
        load.extend([0x9000u64, 0x9000, 0x20, 1].iter().flat_map(|word| word.to_le_bytes()));
        load.extend(b"work\0");
        for (id, body) in [(DUMP_DEBUG, debug), (DUMP_LOAD, load)] {
            bytes.extend(id.to_le_bytes());
            bytes.extend((body.len() as u32 + 16).to_le_bytes());
            bytes.extend(0u64.to_le_bytes());
            bytes.extend(body);
        }
        let mut jit = Jit::default();
        // In pieces, as a growing file is read.
        let mut rest = bytes[..70].to_vec();
        jit.records(&mut rest);
        rest.extend(&bytes[70..]);
        jit.records(&mut rest);
        assert_eq!(told(jit.find(0x901f).unwrap()), ("work", Some("/app/x.js"), Some(33)));
        assert!(rest.is_empty());
    }

    /// A pid that no process can have, so that no other program writes this file.
    #[test]
    fn a_perf_map_of_another_process_is_not_read() {
        let pid = u32::MAX - std::process::id();
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        std::fs::write(&path, "1000 10 work\n").unwrap();
        let changed = path.metadata().unwrap().modified().unwrap();
        let second = Duration::from_secs(1);
        let is_read = |started: SystemTime, ended: Option<SystemTime>| {
            let started = started.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
            let search = Search { started_unix_ns: started, ..Search::default() };
            !Jit::after(pid, ended, &Finder { search: &search, target: None }).is_empty()
        };
        let read = [
            is_read(changed - second, Some(changed + second)),
            is_read(changed - second, None),
            is_read(changed + 2 * second, None),
            is_read(changed - 9 * second, Some(changed - 5 * second)),
        ];
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, [true, true, false, false], "of the process itself, twice; of an earlier and of a later one");
    }
}
