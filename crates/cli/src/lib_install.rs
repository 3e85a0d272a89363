//! `heaptrack lib`: the capture library and the header as files, for those who build against them.
//!
//! Given: a folder. Gives back: the library under the names that others link to, one file for both, and the header. What
//! must hold: a file is replaced whole or not at all, for a program may be running from it.
use crate::args::Lib;
use crate::library;
use crate::print_out;
use anyhow::Context;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::ExitCode;

const HEADER: &[u8] = include_bytes!("../../../include/heaptrack_api.h");
const LIBRARY_NAME: &str = "libheaptrack_preload.so";
/// The other name of the same library.
const SECOND_NAME: &str = "libheaptrack_inject.so";
const HEADER_NAME: &str = "heaptrack_api.h";

pub fn run(options: &Lib) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &options.install {
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
    replace(folder, LIBRARY_NAME, |path| {
        fs::write(path, library::CONTENT)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
    })?;
    replace(folder, SECOND_NAME, |path| symlink(LIBRARY_NAME, path))?;
    replace(folder, HEADER_NAME, |path| {
        fs::write(path, HEADER)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))
    })
}

fn replace(folder: &Path, name: &str, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
    let made = make(&unfinished).and_then(|()| fs::rename(&unfinished, folder.join(name)));
    if made.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    made
}
