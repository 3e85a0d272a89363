//! `heaptrack dataset`: passes its words on to the program `heaptrack-dataset`, which has the code for Parquet.
//!
//! Receives: the words after `dataset`, or a dataset and a condition. Returns: nothing, because the other program replaces
//! this one, or a profile of the selected traces. Must hold: the other program is the one beside this one, or else the
//! first in PATH (docs/decisions/0105-datasets-have-a-binary-of-their-own.md).
use crate::temporary_folder::TemporaryFolder;
use anyhow::{Context, anyhow, bail, ensure};
use clap::Parser;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const NAME: &str = "heaptrack-dataset";

const HELP: &str = "\
Examples:
  heaptrack dataset add /data/heap *.htz --service shop --version 1.5 --label team=web
  heaptrack dataset report /data/heap
  heaptrack dataset diff /data/heap --before version=1.4 --after version=1.5
  heaptrack dataset compact /data/heap
  heaptrack dataset --help                     all commands

Exit code: 0; 2 wrong usage, or a file that cannot be read or written.";

/// Many recordings as one dataset of Parquet files, for this machine, Spark, ClickHouse and DuckDB.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset", bin_name = "heaptrack dataset", version, disable_help_flag = true, after_help = HELP)]
pub struct Dataset {
    /// A command (add, report, diff, compact, retain, profile) and its options.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub words: Vec<OsString>,
}

pub fn run(options: &Dataset) -> anyhow::Result<ExitCode> {
    let program = program()?;
    let words = if options.words.is_empty() { vec!["--help".into()] } else { options.words.clone() };
    let error = Command::new(&program).args(words).exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}

fn program() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).context("this program's own path")?;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    find(own.parent().unwrap_or(Path::new("/")), &paths).ok_or_else(|| {
        let wanted = own.with_file_name(NAME);
        anyhow!(
            "{} is missing, and it is not in PATH: a release has it, and `make dataset install` builds it",
            wanted.display()
        )
    })
}

fn find(beside: &Path, paths: &OsString) -> Option<PathBuf> {
    let folders = std::iter::once(beside.to_owned()).chain(std::env::split_paths(paths));
    folders.map(|folder| folder.join(NAME)).find(|path| path.is_file())
}

/// The profile of the selected traces of a dataset. Dropping it removes the file.
pub struct Profile {
    pub path: PathBuf,
    _folder: TemporaryFolder,
}

/// Writes the profile of the selected traces of a dataset. The name of the file says what was selected.
pub fn profile(dataset: &Path, condition: &str) -> anyhow::Result<Profile> {
    ensure!(dataset.is_dir(), "--where is about a dataset, and {} is no folder", dataset.display());
    let parent = std::env::temp_dir();
    let folder = TemporaryFolder::create(&parent, "heaptrack-where")
        .with_context(|| format!("no folder can be created in {}", parent.display()))?;
    let plain = |letter: char| if letter.is_alphanumeric() || "=.-".contains(letter) { letter } else { '_' };
    let name: String = condition.chars().filter(|letter| *letter != '\'').map(plain).take(100).collect();
    let path = folder.path().join(format!("{}.pb", if name.is_empty() { "all" } else { &name }));
    let mut command = Command::new(program()?);
    command.arg("profile").arg(dataset).arg("--where").arg(condition).arg("--output").arg(&path);
    let status = command.stdout(Stdio::null()).status().context("heaptrack-dataset cannot be started")?;
    match status.success() {
        true => Ok(Profile { path, _folder: folder }),
        false => bail!("{} was not read", dataset.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_program_beside_this_one_comes_first() {
        let root = std::env::temp_dir().join(format!("heaptrack-dataset.{}", std::process::id()));
        let (beside, other) = (root.join("bin"), root.join("other"));
        fs::create_dir_all(&beside).unwrap();
        fs::create_dir_all(&other).unwrap();
        let paths = other.clone().into_os_string();
        assert_eq!(find(&beside, &paths), None);
        fs::write(other.join(NAME), "").unwrap();
        assert_eq!(find(&beside, &paths), Some(other.join(NAME)));
        fs::write(beside.join(NAME), "").unwrap();
        assert_eq!(find(&beside, &paths), Some(beside.join(NAME)));
        fs::remove_dir_all(&root).unwrap();
    }
}
