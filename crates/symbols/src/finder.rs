//! Finds the files of a module: its own file, and its debug files.
//!
//! Receives: a path as it was in the target. Returns: files to try, the most trustworthy first. Must hold: only regular
//! files are returned, and opening a path never blocks, because a trace may name a pipe.
use crate::debuginfod::Debuginfod;
use crate::kept::Kept;
use crate::target_files::Target;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

const DEBUG_FOLDERS: [&str; 2] = ["/usr/lib/debug", "/usr/local/lib/debug"];

/// Where to look for files, as the user said.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Folders with debug files, named `.build-id/ab/cdef.debug`, by the target's own paths, or by their file names
    /// alone.
    pub debug_paths: Vec<PathBuf>,
    /// A copy of the target's file system.
    pub sysroot: Option<PathBuf>,
    /// Servers that are asked for files that are not on this machine.
    pub debuginfod: Option<Arc<Debuginfod>>,
    /// When the recording started. A file without a build-id that was changed later is not used.
    pub started_unix_ns: u64,
    /// A time after the end of all recorded processes. `None` if one of them may have outlived the recording.
    pub ended: Option<SystemTime>,
}

/// `Search`, and the process if it still runs.
#[derive(Clone, Copy)]
pub struct Finder<'a> {
    pub search: &'a Search,
    pub target: Option<&'a Target>,
}

impl Finder<'_> {
    /// The cache of unpacked sections of the target's files.
    pub(crate) fn kept(&self) -> Arc<Kept> {
        self.target.map(|target| Arc::clone(&target.kept)).unwrap_or_default()
    }

    /// Files at `path`: in the target's own root, in the sysroot, and on this machine.
    pub(crate) fn at(&self, path: &Path) -> Vec<(PathBuf, File)> {
        let mut found = Vec::new();
        if let Some(file) = self.target.and_then(|target| target.open(path)) {
            found.push((path.to_owned(), file));
        }
        if let Some(sysroot) = &self.search.sysroot {
            let path = below(sysroot, path);
            found.extend(open(&path).map(|file| (path, file)));
        }
        found.extend(open(path).map(|file| (path.to_owned(), file)));
        found
    }

    fn debug_folders(&self) -> impl Iterator<Item = PathBuf> {
        let given = self.search.debug_paths.iter().cloned();
        given.chain(DEBUG_FOLDERS.iter().map(PathBuf::from))
    }

    /// Files that are named after their build-id.
    pub(crate) fn by_build_id(&self, build_id: &[u8]) -> Vec<(PathBuf, File)> {
        let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
        let mut found: Vec<_> = self.debug_folders().flat_map(|folder| self.at(&folder.join(&name))).collect();
        let plain = format!("{}.debug", hex(build_id));
        for folder in &self.search.debug_paths {
            found.extend([&name[10..], &plain].into_iter().flat_map(|name| self.at(&folder.join(name))));
        }
        found
    }

    /// The debug file of a build, from a server.
    pub(crate) fn remote(&self, build_id: &[u8]) -> Option<(PathBuf, File)> {
        self.search.debuginfod.as_ref()?.find(build_id)
    }

    /// Files that `.gnu_debuglink` may mean: next to the module, in `.debug`, and under each debug folder.
    pub(crate) fn by_link(&self, module: &Path, name: &str) -> Vec<(PathBuf, File)> {
        let beside = module.parent().unwrap_or(Path::new("/"));
        let mut paths = vec![beside.join(name), beside.join(".debug").join(name)];
        paths.extend(self.debug_folders().map(|folder| below(&folder, beside).join(name)));
        paths.extend(self.search.debug_paths.iter().map(|folder| folder.join(name)));
        paths.iter().filter(|path| *path != module).flat_map(|path| self.at(path)).collect()
    }

    /// Files at a path that debug information leads to (`.dwo`, `.dwp`, dwz's shared file), and those with this path or
    /// name in the folders of `debug_paths`.
    pub(crate) fn by_source(&self, path: &Path) -> Vec<(PathBuf, File)> {
        let mut found = self.at(path);
        if let Some(name) = path.file_name() {
            found.extend(self.search.debug_paths.iter().flat_map(|folder| {
                let whole = below(folder, path);
                [whole, folder.join(name)].into_iter().filter_map(|path| Some((path.clone(), open(&path)?)))
            }));
        }
        found
    }
}

/// `path` under another root. `..` cannot lead out of it.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    let mut joined = root.to_owned();
    joined.extend(path.components().filter(|part| matches!(part, Component::Normal(_))));
    joined
}

/// Opens a file without ever blocking. Returns `None` if it is not a regular file or is empty.
pub(crate) fn open(path: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).ok()?;
    is_regular(&file).then_some(file)
}

pub(crate) fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.len() > 0)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
