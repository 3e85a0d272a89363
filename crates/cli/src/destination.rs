//! The file that a command writes: the one way for everything that is made from a trace.
//!
//! Receives: the value of `-o`, and the files that the command reads. Returns: a place to write to. Must hold: no input
//! and no running recording is overwritten, whatever name leads to it, and a finished trace only by another trace. A
//! file appears whole or not at all, and until then the old file stays. An error names only the file that could not be
//! written.
use crate::unfinished::Unfinished;
use anyhow::{Context, bail};
use export::{Packed, Packing};
use format::FILE_MAGIC;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const BUFFER: usize = 1 << 17;

/// What kind of file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A trace of ours. Its name gets `.htz`, and it may replace another finished trace.
    Trace,
    /// Anything else. It never replaces a trace.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DestinationKind {
    Stdout,
    /// A device, a pipe or an open descriptor, which is written to directly.
    Special,
    File,
}

#[derive(Clone, Debug)]
pub struct Destination {
    path: PathBuf,
    place: DestinationKind,
}

impl Destination {
    /// `option` is a name, a folder, a device, or `-`. `default_name` is the name of the file in a folder. `inputs` are
    /// the files that the command reads.
    pub fn new(option: &Path, default_name: &OsStr, content: Content, inputs: &[&Path]) -> anyhow::Result<Self> {
        let destination = Self::find(option, default_name, content)?;
        destination.refuse_inputs(inputs)?;
        if destination.place == DestinationKind::File {
            destination.refuse_traces(content)?;
        }
        Ok(destination)
    }

    fn find(option: &Path, default_name: &OsStr, content: Content) -> anyhow::Result<Self> {
        if is_stdout(option) {
            return Ok(Destination { path: PathBuf::from("stdout"), place: DestinationKind::Stdout });
        }
        let path = if names_folder(option) {
            if !option.is_dir() {
                bail!("cannot write to {}: there is no such folder", option.display());
            }
            option.join(default_name)
        } else {
            option.to_owned()
        };
        if is_special(&path) {
            return Ok(Destination { path, place: DestinationKind::Special });
        }
        let path = if content == Content::Trace { with_htz(&path) } else { path };
        if path.is_dir() {
            bail!("cannot write {}: it is a folder", path.display());
        }
        Ok(Destination { path, place: DestinationKind::File })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if what is written will be compressed, because the name asks for it.
    pub fn is_packed(&self) -> bool {
        self.place != DestinationKind::Stdout && Packing::of(&self.path) != Packing::Plain
    }

    /// Fails if the destination is one of the inputs. Compares device and inode, so that links, relative paths and
    /// other mounts do not hide an input.
    fn refuse_inputs(&self, inputs: &[&Path]) -> anyhow::Result<()> {
        let there = match self.place {
            DestinationKind::Stdout => rustix::fs::fstat(io::stdout()).ok().map(|stat| (stat.st_dev, stat.st_ino)),
            DestinationKind::Special | DestinationKind::File => {
                fs::metadata(&self.path).ok().map(|data| (data.dev(), data.ino()))
            }
        };
        let is_file = |path: &Path| fs::metadata(path).ok().filter(Metadata::is_file);
        let same = |input: &&&Path| is_file(input).is_some_and(|data| there == Some((data.dev(), data.ino())));
        match inputs.iter().find(same) {
            Some(_) => bail!("cannot write {}: it is an input of this command; give another name", self.path.display()),
            None => Ok(()),
        }
    }

    fn refuse_traces(&self, content: Content) -> anyhow::Result<()> {
        let path = self.path.display();
        if crate::output::is_being_written(&self.path) {
            bail!("cannot write {path}: it is still being recorded");
        }
        if content == Content::Other && is_trace(&self.path) {
            bail!("cannot write {path}: it is a trace, which would be lost; give another name or delete it first");
        }
        Ok(())
    }

    /// Calls `write` for the content. A file whose name ends in `.gz` or `.zst` is compressed, unless it is a trace.
    pub fn write(
        &self,
        content: Content,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let cannot = || format!("cannot write {}", self.path.display());
        if self.place == DestinationKind::Stdout {
            return to_stdout(write);
        }
        let packing = if content == Content::Trace { Packing::Plain } else { Packing::of(&self.path) };
        if self.place == DestinationKind::Special {
            let file = File::options().write(true).open(&self.path).with_context(cannot)?;
            return match whole(file, packing, cannot, write) {
                // The reader of a pipe has closed it.
                Err(error) if is_broken_pipe(&error) => Ok(()),
                other => other.map(drop),
            };
        }
        let (unfinished, file) = Unfinished::create(&self.path).with_context(cannot)?;
        let file = whole(file, packing, cannot, write)?;
        file.sync_all().with_context(cannot)?;
        unfinished.finish().with_context(cannot)
    }
}

/// Writes everything to `file` and returns it. If a write fails, its error is returned, even if `write` returns another
/// one.
fn whole(
    file: File,
    packing: Packing,
    cannot: impl Fn() -> String,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<File> {
    let mut checked = Checked { inner: BufWriter::with_capacity(BUFFER, file), error: None };
    let written = Packed::new(&mut checked, packing).map_err(anyhow::Error::new).and_then(|mut out| {
        write(&mut out)?;
        out.finish()?;
        Ok(())
    });
    if let Some(error) = checked.error.take() {
        // The rest of the buffer cannot be written either.
        drop(checked.inner.into_parts());
        return Err(error).with_context(cannot);
    }
    written?;
    checked.inner.into_inner().map_err(io::IntoInnerError::into_error).with_context(cannot)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Calls `write` with stdout. It is no error if the reader closes the pipe (`| head`).
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut out = Checked { inner: BufWriter::with_capacity(BUFFER, io::stdout().lock()), error: None };
    let written = write(&mut out).and_then(|()| Ok(out.flush()?));
    let error = out.error.take();
    if written.is_err() {
        // Nothing more is written after an error.
        drop(out.inner.into_parts());
    }
    match error {
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Some(error) => Err(error).context("cannot write to stdout"),
        None => written,
    }
}

/// Remembers the first error of a writer, because the code above may wrap it in another one.
struct Checked<W: Write> {
    inner: W,
    error: Option<io::Error>,
}

impl<W: Write> Checked<W> {
    fn check<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let again = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            if error.kind() != io::ErrorKind::Interrupted {
                self.error.get_or_insert(error);
            }
            again
        })
    }
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes);
        self.check(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.inner.flush();
        self.check(flushed)
    }
}

/// Returns true for `-` and for the usual names of our own stdout, which may be a file that was opened for appending.
pub fn is_stdout(option: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| option == Path::new(name))
}

/// Returns true for an existing folder, and for `x/`, `.` and `..`, which can only be folders.
pub fn names_folder(option: &Path) -> bool {
    let bytes = option.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.") || matches!(bytes, b"." | b"..") || option.is_dir()
}

/// Returns true for a device, a pipe, a socket, or an open descriptor.
pub fn is_special(path: &Path) -> bool {
    let is_descriptor = ["/dev/fd", "/proc/self/fd", "/dev/stderr"].iter().any(|folder| path.starts_with(folder));
    fs::metadata(path).is_ok_and(|data| {
        let kind = data.file_type();
        is_descriptor || kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket()
    })
}

fn is_trace(path: &Path) -> bool {
    let mut first = [0; FILE_MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok_and(|()| first == FILE_MAGIC)
}

/// Adds `.htz`, the ending of our traces, if it is missing.
pub fn with_htz(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "htz") {
        return path.to_owned();
    }
    let mut name = OsString::from(path);
    name.push(".htz");
    PathBuf::from(name)
}

/// Returns the name of a file that is made from a trace and written to a folder: `b.svg` for `a/b.htz`.
pub fn named_after(input: &Path, ending: &str) -> OsString {
    let mut name = input.file_stem().unwrap_or(OsStr::new("trace")).to_owned();
    name.push(ending);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_stdout_are_told_by_their_names() {
        for folder in ["a/", ".", "..", "a/.", "/"] {
            assert!(names_folder(Path::new(folder)), "{folder}");
        }
        assert!(!names_folder(Path::new("no-such-name")) && !names_folder(Path::new("a.b")));
        assert!(is_stdout(Path::new("-")) && is_stdout(Path::new("/dev/stdout")) && !is_stdout(Path::new("x")));
        assert!(is_special(Path::new("/dev/null")) && !is_special(Path::new("/etc/passwd")));
    }

    #[test]
    fn names_in_folders_come_from_the_input() {
        assert_eq!(named_after(Path::new("a/heaptrack.ls.1.htz"), ".svg"), "heaptrack.ls.1.svg");
        assert_eq!(named_after(Path::new("x.zst"), ".html"), "x.html");
    }

    #[test]
    fn the_first_error_of_a_writer_is_the_error() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let failed = whole(
            file,
            Packing::Zstd,
            || "cannot write it".into(),
            |out| out.write_all(&[7; 1 << 20]).map_err(|_| anyhow::anyhow!("something else")),
        );
        assert_eq!(crate::trouble::sentence(&failed.unwrap_err()), "cannot write it: No space left on device");
    }
}
