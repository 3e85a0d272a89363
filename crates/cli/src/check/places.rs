//! Places in the source code, and which of them belong to the repository that is checked.
use super::outcome::Place;
use analysis::view::label;
use analysis::{NodeId, SiteId, StackTable};
use std::path::{Path, PathBuf};

/// The folder whose files annotations refer to.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
}

impl Repository {
    /// Finds the nearest folder above that has `.git`; if there is none, takes the folder of `settings`, or `folder`.
    pub fn find(folder: &Path, settings: Option<&Path>) -> Repository {
        let with_git = folder.ancestors().find(|folder| folder.join(".git").exists());
        let root = with_git.or_else(|| settings.and_then(Path::parent)).unwrap_or(folder);
        Repository { root: root.canonicalize().unwrap_or_else(|_| root.to_owned()) }
    }

    /// Returns the path relative to the repository, if the file is in it.
    fn relative(&self, file: &str) -> Option<String> {
        let path = Path::new(file);
        let inner = match path.strip_prefix(&self.root) {
            Ok(inner) => inner.to_owned(),
            Err(_) if path.is_absolute() => path.canonicalize().ok()?.strip_prefix(&self.root).ok()?.to_owned(),
            Err(_) => self.root.join(path).is_file().then(|| path.to_owned())?,
        };
        Some(inner.to_string_lossy().into_owned())
    }

    /// Returns the path relative to the repository, or as it is if the file is elsewhere.
    pub fn shown(&self, file: &str) -> String {
        self.relative(file).unwrap_or_else(|| file.to_owned())
    }

    /// Returns the place of a level. `stack`: a stack with this level, in which files of the repository are searched for.
    pub fn place(&self, table: &StackTable, node: NodeId, stack: SiteId) -> Place {
        let level = table.level(node);
        let from = if node == 0 { table.stack(stack).node } else { node };
        let in_repository = table.path(from).find_map(|node| {
            let level = table.level(node)?;
            Some((self.relative(table.text(level.file)?)?, level.line?))
        });
        Place {
            function: label(table, level),
            file: level.and_then(|level| table.text(level.file)).map(|file| self.shown(file)),
            line: level.and_then(|level| level.line),
            value: 0,
            reason: None,
            in_repository,
        }
    }
}
