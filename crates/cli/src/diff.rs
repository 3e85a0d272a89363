//! `heaptrack diff BASE FILE`: the same as `heaptrack print --diff BASE FILE`, with the traces in the order in which they were made.
use crate::print::{Print, with_values};
use clap::Parser;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Functions are the same in both traces if their names are, whatever became of files, lines and addresses.

Examples:
  heaptrack diff before.htz after.htz
  heaptrack diff -l before.htz after.htz               with leaks
  heaptrack diff --json --cost leaked before.htz after.htz

Exit code: 0; 2 wrong usage, or a file that cannot be read.";

/// Says what changed between two traces.
#[derive(Debug, Parser)]
#[command(name = "heaptrack diff", bin_name = "heaptrack diff", after_help = EXAMPLES, version, disable_version_flag = true)]
pub struct Diff {
    /// The trace of before.
    #[arg(value_name = "BASE", value_hint = clap::ValueHint::FilePath)]
    base: PathBuf,
    #[command(flatten)]
    print: Print,
}

impl Diff {
    /// Ends the process on wrong usage (2), `--help` and `--version` (0).
    pub fn from_words(words: Vec<OsString>) -> Print {
        let Diff { base, mut print } = Diff::parse_from(with_values(words));
        print.diff = Some(base);
        print
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_stands_first() {
        let print = Diff::from_words("diff -l a.htz --json b.htz".split(' ').map(OsString::from).collect());
        assert_eq!((print.diff.as_deref(), print.file().as_path()), (Some("a.htz".as_ref()), "b.htz".as_ref()));
        assert!(print.json && print.print_leaks);
    }
}
