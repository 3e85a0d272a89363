//! `heaptrack diff BASE FILE`: the same as `heaptrack print --diff BASE FILE`, with the older trace first.
use crate::print::{Print, with_values};
use crate::support;
use crate::wrong_usage::Wrong;
use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Functions of the two traces match by name, even if their files, lines and addresses have changed.

Examples:
  heaptrack diff before.htz after.htz
  heaptrack diff --full before.htz after.htz           whole lists and stacks
  heaptrack diff --json --cost leaked before.htz after.htz

Exit code: 0; 2 wrong usage, or a file that cannot be read.";

/// Shows what changed between two traces.
#[derive(Debug, Parser)]
#[command(name = "heaptrack diff", bin_name = "heaptrack diff", after_help = support::help_with(EXAMPLES), version, disable_version_flag = true)]
pub struct Diff {
    /// The earlier trace.
    #[arg(value_name = "BASE", value_hint = clap::ValueHint::FilePath)]
    base: PathBuf,
    #[command(flatten)]
    print: Print,
}

impl Diff {
    /// Returns `Err` on wrong usage, `--help` and `--version`.
    pub fn from_words(words: Vec<OsString>) -> Result<Print, Wrong> {
        let mut command = Diff::command();
        let matches = command.try_get_matches_from_mut(with_values(words)).map_err(Wrong::Words)?;
        let Diff { base, mut print } = Diff::from_arg_matches(&matches).map_err(Wrong::Words)?;
        let given = support::given(&command, &matches);
        if let Some(option) = given.iter().find(|option| matches!(option.as_str(), "diff" | "compare")) {
            return Err(Wrong::Option(format!(
                "--{option}: `heaptrack diff` compares with BASE; leave this option out"
            )));
        }
        print.diff = Some(base);
        print.take(given)?;
        Ok(print)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_stands_first() {
        let parse = |line: &str| Diff::from_words(line.split(' ').map(OsString::from).collect());
        let print = parse("diff --by function a.htz --json b.htz").unwrap();
        assert_eq!((print.diff.as_deref(), print.file().as_path()), (Some("a.htz".as_ref()), "b.htz".as_ref()));
        assert!(print.json && parse("diff -l a.htz b.htz").unwrap().print_leaks);
        for line in ["diff --diff c.htz a.htz b.htz", "diff --compare @1s a.htz b.htz", "diff -l --json a.htz b.htz"] {
            assert!(matches!(parse(line), Err(Wrong::Option(_))), "{line}");
        }
    }
}
