//! A temporary folder. It is removed when the value goes out of scope, and kept for inspection when the test panics.
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("heaptrack-test.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The names of its entries, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.path)
            .expect("readable")
            .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Copies a file that will be executed. `cp` does it, in another process. If this process wrote the file, a child that
/// another test forks meanwhile would also have it open for writing, and the kernel would refuse to execute it ("Text
/// file busy").
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = std::process::Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(status.is_ok_and(|status| status.success()), "cp {} {}", from.as_ref().display(), to.as_ref().display());
}

/// Writes a file that will be executed. See `copy_program` for why it is copied by another process.
pub fn write_program(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let draft = path.as_ref().with_extension("draft");
    std::fs::write(&draft, content).expect("writable");
    copy_program(&draft, path);
    std::fs::remove_file(draft).expect("removable");
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("kept for a look: {}", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
