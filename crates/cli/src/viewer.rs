//! `heaptrack viewer`: the page with its own engine, which opens traces in any browser.
//!
//! The file is installed beside the binary and not embedded in it, because it would take a megabyte of every copy
//! (docs/decisions/0089-the-viewer-is-a-file-beside-the-binary.md).
use crate::destination::{Content, Destination};
use crate::say;
use crate::status::Bytes;
use anyhow::{Context, bail};
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use web::ViewerPage;

const NAME: &str = "heaptrack-viewer.html";

/// Where the file is, from the folder of the binary: installed, and in a folder where heaptrack was built.
const PLACES: [&str; 2] = ["../share/heaptrack", "../viewer"];

const HELP: &str = "\
Examples:
  heaptrack viewer                  ./heaptrack-viewer.html; open it in any browser, on any machine, and drop a trace on it
  heaptrack viewer -o /srv/www      for a web server: it needs no other file, and no trace is uploaded

Exit code: 0; 2 wrong usage, or a file that cannot be read or written.";

/// Writes a page that opens traces in any browser, with nothing installed. No data leaves the browser.
#[derive(Debug, Parser)]
#[command(name = "heaptrack viewer", bin_name = "heaptrack viewer", version, after_help = HELP)]
pub struct Viewer {
    /// The file to write, or a folder.
    #[arg(short, long, default_value = NAME, value_name = "OUT", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
}

pub fn run(options: &Viewer) -> anyhow::Result<ExitCode> {
    let (place, page) = installed()?;
    let Some(page) = page else {
        bail!("{} is missing: it is a file of each release, and `make viewer install` builds it", place.display())
    };
    let output = Destination::new(&options.output, NAME.as_ref(), Content::Other, &[])?;
    output.write(Content::Other, |out| Ok(out.write_all(&page)?))?;
    say(format_args!("heaptrack: {} ({})", output.path().display(), Bytes(page.len() as u64)));
    Ok(ExitCode::SUCCESS)
}

/// Returns the viewer that belongs to this binary and its path. If there is none, the path is the one where it should be.
fn installed() -> anyhow::Result<(PathBuf, Option<Vec<u8>>)> {
    let program = std::env::current_exe().and_then(fs::canonicalize).context("this program's own path")?;
    find(program.parent().unwrap_or(Path::new("/")))
}

/// For reports, which have the viewer's page in them.
pub fn find_page() -> Result<ViewerPage, String> {
    let (place, page) = installed().map_err(|error| crate::trouble::sentence(&error))?;
    let page = page.ok_or_else(|| format!("{} is missing", place.display()))?;
    ViewerPage::new(page, crate::TOOL).ok_or_else(|| format!("{} is of another version of heaptrack", place.display()))
}

fn find(folder: &Path) -> anyhow::Result<(PathBuf, Option<Vec<u8>>)> {
    for place in PLACES {
        let path = folder.join(place).join(NAME);
        if path.is_file() {
            let page = fs::read(&path).with_context(|| path.display().to_string())?;
            return Ok((path, Some(page)));
        }
    }
    Ok((folder.parent().unwrap_or(folder).join("share/heaptrack").join(NAME), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_found_beside_the_binary() {
        let root = std::env::temp_dir().join(format!("heaptrack-viewer.{}", std::process::id()));
        let (bin, share) = (root.join("bin"), root.join("share/heaptrack"));
        fs::create_dir_all(&bin).unwrap();
        assert_eq!(find(&bin).unwrap(), (share.join(NAME), None));
        fs::create_dir_all(&share).unwrap();
        fs::write(share.join(NAME), "page").unwrap();
        assert_eq!(find(&bin).unwrap().1.as_deref(), Some(b"page".as_slice()));
        fs::remove_dir_all(&root).unwrap();
    }
}
