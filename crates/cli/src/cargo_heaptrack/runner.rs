//! Cargo's runner: records one executable. Cargo starts it as `heaptrack cargo-runner FOLDER [OPTIONS] -- EXECUTABLE ARGS`.
//!
//! Receives: the executable, and in the environment the package that it belongs to. Returns: the executable's exit code. Must
//! hold: the executable has its own arguments and environment. Its trace is listed, with its package, for the command that
//! started cargo.
use crate::args::{self, Invocation};
use anyhow::Context;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The subcommand. People do not type it.
pub const NAME: &str = "cargo-runner";
/// The file in the folder of traces that lists those of the last run, one in each line.
pub const LIST: &str = "last-run.jsonl";

/// A trace of the last run.
#[derive(Debug, PartialEq, Eq)]
pub struct Recorded {
    pub trace: PathBuf,
    /// The folder of the package's manifest.
    pub folder: PathBuf,
}

impl Recorded {
    /// Returns the traces of the last run that still exist.
    pub fn list(folder: &Path) -> anyhow::Result<Vec<Recorded>> {
        let path = folder.join(LIST);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(crate::trouble::unreadable(&path, &error)),
        };
        let recorded = |line: &str| {
            let (trace, folder): (String, String) = serde_json::from_str(line).ok()?;
            Some(Recorded { trace: trace.into(), folder: folder.into() })
        };
        Ok(text.lines().filter_map(recorded).filter(|one| one.trace.exists()).collect())
    }

    fn add(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(LIST);
        let line = serde_json::to_string(&(self.trace.to_string_lossy(), self.folder.to_string_lossy()))?;
        let mut file = File::options().append(true).create(true).open(&path)?;
        // One write, because several runners may write at the same time.
        file.write_all(format!("{line}\n").as_bytes()).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Returns the recording that the words ask for. `words`: those after the name of the subcommand.
pub fn run(words: &[OsString]) -> anyhow::Result<Invocation> {
    let mut words = words.iter();
    let folder = PathBuf::from(words.next().context("cargo-runner needs a folder")?);
    let options: Vec<&OsString> = words.by_ref().take_while(|word| *word != "--").collect();
    let command: Vec<&OsString> = words.collect();
    let program = Path::new(command.first().context("cargo-runner needs an executable")?);
    let package = std::env::var_os("CARGO_PKG_NAME").unwrap_or_else(|| "program".into());
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let known = Recorded::list(&folder)?;
    let trace = trace_path(&folder.join(package), program, &known);
    std::fs::create_dir_all(trace.parent().unwrap_or(&folder))?;
    Recorded { trace: trace.clone(), folder: manifest.into() }.add(&folder)?;
    let mut line: Vec<OsString> = vec!["heaptrack".into(), "--output".into(), escaped(&trace)];
    line.extend(options.into_iter().cloned());
    line.push("--".into());
    line.extend(command.into_iter().cloned());
    Ok(args::parse(line.into_iter()))
}

/// The path of a trace. The hash in the name of a test's executable is left out, unless two of them have the same name.
fn trace_path(folder: &Path, program: &Path, known: &[Recorded]) -> PathBuf {
    let stem = program.file_name().unwrap_or(OsStr::new("program")).to_string_lossy().into_owned();
    let is_hash = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let short = match stem.rsplit_once('-') {
        Some((name, hash)) if is_hash(hash) => name,
        _ => &stem,
    };
    let path = |name: &str| folder.join(format!("{name}.htz"));
    let is_taken = known.iter().any(|one| one.trace == path(short));
    if is_taken { path(&stem) } else { path(short) }
}

/// A name for `-o`, in which a percent sign would mean something.
fn escaped(path: &Path) -> OsString {
    path.to_string_lossy().replace('%', "%%").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_the_name_of_the_executable() {
        let folder = Path::new("t/pkg");
        let path = |program: &str, known: &[Recorded]| trace_path(folder, Path::new(program), known);
        assert_eq!(path("/x/deps/parser-0123456789abcdef", &[]), Path::new("t/pkg/parser.htz"));
        assert_eq!(path("/x/my-tool", &[]), Path::new("t/pkg/my-tool.htz"));
        let known = [Recorded { trace: "t/pkg/parser.htz".into(), folder: "f".into() }];
        let second = path("/x/deps/parser-fedcba9876543210", &known);
        assert_eq!(second, Path::new("t/pkg/parser-fedcba9876543210.htz"));
    }
}
