//! Traces of KDE's heaptrack as files of ours, for commands that change a file.
use crate::destination::{Content, Destination, with_htz};
use crate::trouble::unreadable;
use format::{Block, FileWriter, Module};
use heaptrack_trace::{ModuleFiles, open_without_names};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use symbols::Search;

/// Writes a raw file of KDE's heaptrack as a trace of ours, in the same folder, with the build-ids of its modules, so
/// that names can be added to it. Returns `None` if the file is not one of KDE's.
pub fn as_own(path: &Path, search: &Search) -> anyhow::Result<Option<PathBuf>> {
    let mut source = open_without_names(path).map_err(|error| unreadable(path, &error))?;
    if !source.is_kde() {
        return Ok(None);
    }
    if !source.is_raw() {
        let path = path.display();
        anyhow::bail!(
            "{path} was written by KDE's interpreter, which drops the addresses that are needed to look up names again"
        );
    }
    let target = own_name(path);
    if target.exists() {
        anyhow::bail!("cannot write {}: it exists already", target.display());
    }
    let mut files = ModuleFiles::new(path, search.clone());
    let output = Destination::new(&target, OsStr::new("trace.htz"), Content::Trace, &[path])?;
    output.write(Content::Trace, |out| {
        let mut writer = FileWriter::new(out, crate::trim::LEVEL)?;
        while let Some(block) = source.next_block().map_err(|error| unreadable(path, &error))? {
            match block.decode() {
                Ok(Block::Modules(mut modules)) => {
                    modules.iter_mut().for_each(|module| files.identify(module));
                    writer.write(&Module::to_block(&modules))?
                }
                _ => writer.write(block)?,
            };
        }
        writer.finish()?;
        Ok(())
    })?;
    Ok(Some(target))
}

/// Returns the name of the new trace: `x.htz` for `x.raw.zst`.
fn own_name(path: &Path) -> PathBuf {
    let mut name = path.to_owned();
    for extension in ["zst", "gz", "raw"] {
        if name.extension().is_some_and(|found| found == extension) {
            name.set_extension("");
        }
    }
    with_htz(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_name_has_no_trace_of_the_old_packing() {
        for (old, new) in [("a.raw.zst", "a.htz"), ("b/c.raw.gz", "b/c.htz"), ("d", "d.htz"), ("e.1.raw", "e.1.htz")] {
            assert_eq!(own_name(Path::new(old)), Path::new(new));
        }
    }
}
