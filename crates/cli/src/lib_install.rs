//! `heaptrack lib`: writes the capture library and the header as files, for programs that are built against them.
//!
//! Receives: a folder. Returns: the library under the two names that programs link to, and the header. Must hold: a
//! file is replaced as a whole or not at all, because a program may be running from it.
use crate::library;
use crate::print_out;
use crate::unfinished::{Unfinished, replace_by_link};
use anyhow::Context;
use clap::Parser;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HEADER: &[u8] = include_bytes!("../../../include/heaptrack_api.h");
const LIBRARY_NAME: &str = "libheaptrack_preload.so";
/// The other name of the same library.
const SECOND_NAME: &str = "libheaptrack_inject.so";
const HEADER_NAME: &str = "heaptrack_api.h";

const HELP: &str = "\
Examples:
  heaptrack lib --install ./ht            ./ht/heaptrack_api.h, ./ht/libheaptrack_preload.so, ./ht/libheaptrack_inject.so
  cc -I$(pwd)/ht pool.c                   the header is enough, there is nothing to link
  heaptrack lib --path                    a copy that stays, for LD_LIBRARY_PATH and the like

Exit code: 0; 2 wrong usage, or a folder that cannot be written to.";

/// Writes the library that runs inside programs, and the header for custom allocators.
#[derive(Debug, Parser)]
#[command(name = "heaptrack lib", bin_name = "heaptrack lib", version, after_help = HELP)]
pub struct Lib {
    /// Write them to this folder, which is created if it does not exist.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath, conflicts_with = "path", required_unless_present = "path")]
    pub install: Option<PathBuf>,
    /// Print the path of the library that recordings of this user load.
    #[arg(long)]
    pub path: bool,
}

pub fn run(options: &Lib) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &options.install {
        if folder.exists() && !folder.is_dir() {
            anyhow::bail!("cannot install to {}: it is not a folder", folder.display());
        }
        install(folder).with_context(|| format!("cannot install to {}", folder.display()))?;
        let names = [LIBRARY_NAME, SECOND_NAME, HEADER_NAME].map(|name| folder.join(name));
        let lines: Vec<String> = names.iter().map(|path| format!("{}\n", path.display())).collect();
        return print_out(lines.concat().as_bytes());
    }
    let here = std::env::current_dir().unwrap_or_default();
    let path = library::on_disk(&here).context("no folder for the library is writable and executable")?;
    print_out(format!("{}\n", path.display()).as_bytes())
}

fn install(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    replace(&folder.join(LIBRARY_NAME), library::CONTENT, 0o755)?;
    link(folder)?;
    replace(&folder.join(HEADER_NAME), HEADER, 0o644)
}

fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (unfinished, mut file) = Unfinished::create(path)?;
    file.write_all(content)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()?;
    unfinished.finish()
}

/// Makes the second name. A correct link stays, and a new one is made in one step.
fn link(folder: &Path) -> io::Result<()> {
    let path = folder.join(SECOND_NAME);
    let is_right = || fs::read_link(&path).is_ok_and(|target| target == Path::new(LIBRARY_NAME));
    if is_right() || symlink(LIBRARY_NAME, &path).is_ok() {
        return Ok(());
    }
    replace_by_link(&path, Path::new(LIBRARY_NAME))
}
