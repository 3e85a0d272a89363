//! The options of `cargo heaptrack`. All words that are not ours are for cargo.
use crate::check::Output;
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

const HELP: &str = "\
All other options are cargo's own, as --release, -p NAME, --features LIST, --test NAME, and words after -- are for the
executables. Programs are built with lines, and not stripped. Traces go to target/heaptrack/PACKAGE/EXECUTABLE.htz. Tests in
documentation are run by rustdoc and not recorded.

`check` records `cargo test` and compares each trace with the budgets of its package. They are in Cargo.toml, in
[package.metadata.heaptrack] or, for all packages, in [workspace.metadata.heaptrack], with the keys of [check] in heaptrack.toml, which
is used as well.

Examples:
  cargo heaptrack run --release -- --its --options
  cargo heaptrack test -p parser -- --test-threads=1
  cargo heaptrack bench --bench throughput
  cargo heaptrack check --to junit=heap.xml
  cargo heaptrack check --last --to markdown=heap.md

Exit code: cargo's own, which is that of the program for `run`, and 101 if a test fails; `check`: 1 if all tests pass and a budget
was broken or cannot be judged; 2 wrong usage.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Record the program that `cargo run` runs.
    Run,
    /// Record each executable that `cargo test` runs.
    Test,
    /// Record each executable that `cargo bench` runs.
    Bench,
    /// Record as `test` does, and compare with the budgets of the packages.
    Check,
}

impl Action {
    /// The command of cargo that builds and runs.
    pub const fn of_cargo(self) -> &'static str {
        match self {
            Action::Run => "run",
            Action::Test | Action::Check => "test",
            Action::Bench => "bench",
        }
    }
}

/// Records the programs, tests and benchmarks of a Rust project.
#[derive(Debug, Parser)]
#[command(name = "cargo-heaptrack", bin_name = "cargo heaptrack", version, after_help = HELP)]
pub struct CargoHeaptrack {
    /// The folder for traces; without it, heaptrack in cargo's target folder.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub trace_dir: Option<PathBuf>,
    /// Record everything that an executable starts, too.
    #[arg(long)]
    pub follow: bool,
    /// check: the format of the result, and the file that gets it, as for `heaptrack check`; may be repeated.
    #[arg(long = "to", value_name = "FORMAT[=FILE]", value_parser = Output::parse)]
    pub outputs: Vec<Output>,
    /// check: judge the traces of the last run, and run nothing.
    #[arg(long)]
    pub last: bool,
    /// What cargo does.
    pub action: Action,
    /// Options of cargo, and after -- the arguments of the executables.
    #[arg(value_name = "CARGO OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Options of ours that have a value, and those that have none.
const WITH_VALUE: [&str; 2] = ["--trace-dir", "--to"];
const WITHOUT_VALUE: [&str; 2] = ["--follow", "--last"];

impl CargoHeaptrack {
    /// Parses the words of the command line. Cargo calls `cargo-heaptrack heaptrack test ...`.
    pub fn from_words(mut words: Vec<OsString>) -> Result<CargoHeaptrack, clap::Error> {
        if words.get(1).is_some_and(|word| word == "heaptrack") {
            words.remove(1);
        }
        let mut options = CargoHeaptrack::try_parse_from(ours_first(words))?;
        if options.action != Action::Check {
            let given = [("--to", !options.outputs.is_empty()), ("--last", options.last)];
            if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
                let sentence = format!("{option} is for `cargo heaptrack check`");
                return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, sentence + "\n"));
            }
        } else if options.outputs.is_empty() {
            options.outputs.extend(Output::parse("text"));
        }
        if let Some(word) = options.cargo_words().find(|word| is_message_format(word)) {
            let sentence = format!("{}: cargo's messages are not for a script here\n", word.to_string_lossy());
            return Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, sentence));
        }
        Ok(options)
    }

    /// The words before `--`.
    pub fn cargo_words(&self) -> impl Iterator<Item = &OsString> {
        self.words.iter().take_while(|word| *word != "--")
    }

    /// Cargo's own option is for us, too.
    pub fn is_quiet(&self) -> bool {
        self.cargo_words().any(|word| word == "-q" || word == "--quiet")
    }
}

fn is_message_format(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| word.split('=').next() == Some("--message-format"))
}

/// Moves our options before the action, so that they may be anywhere before `--`.
fn ours_first(words: Vec<OsString>) -> Vec<OsString> {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    ours.extend(words.next());
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            others.push(word);
            break;
        }
        if WITH_VALUE.contains(&text) {
            ours.push(word);
            ours.extend(words.next());
        } else if WITHOUT_VALUE.contains(&text) || WITH_VALUE.iter().any(|name| is_with_value(text, name)) {
            ours.push(word);
        } else {
            others.push(word);
        }
    }
    // All words after the action are cargo's, also a `--`, which clap would take for itself.
    let has_action = others.first().is_some_and(|word: &OsString| !word.as_encoded_bytes().starts_with(b"-"));
    if has_action {
        others.insert(1, "--".into());
    }
    ours.into_iter().chain(others).chain(words).collect()
}

/// Returns true for `--to=x`.
fn is_with_value(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CargoHeaptrack, clap::Error> {
        CargoHeaptrack::from_words(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn words_of_cargo_stay_as_they_are() {
        let options =
            parse("cargo-heaptrack heaptrack test --release --trace-dir x -p a --follow name -- --to y").unwrap();
        assert_eq!(options.action, Action::Test);
        assert_eq!(options.words, ["--release", "-p", "a", "name", "--", "--to", "y"]);
        assert_eq!((options.trace_dir, options.follow), (Some("x".into()), true));
        let options = parse("cargo-heaptrack run --bin=a -q").unwrap();
        assert_eq!((options.action.of_cargo(), options.words.len(), options.is_quiet()), ("run", 2, true));
        assert!(!parse("cargo-heaptrack run -- -q").unwrap().is_quiet());
        let options = parse("cargo-heaptrack check --to=junit=a.xml --last").unwrap();
        assert_eq!((options.outputs.len(), options.last, options.words.len()), (1, true, 0));
    }

    #[test]
    fn wrong_words_are_refused() {
        for line in [
            "cargo-heaptrack heaptrack",
            "cargo-heaptrack build",
            "cargo-heaptrack test --to json",
            "cargo-heaptrack run --last",
            "cargo-heaptrack check --to pdf",
            "cargo-heaptrack test --message-format=json",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn examples_can_be_followed() {
        let lines: Vec<&str> = HELP.lines().filter_map(|line| line.trim().strip_prefix("cargo ")).collect();
        assert_eq!(lines.len(), 5);
        for line in lines {
            assert!(parse(&format!("cargo-heaptrack {line}")).is_ok(), "{line}");
        }
    }
}
