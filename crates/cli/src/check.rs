//! `heaptrack check`: compares traces with budgets, for continuous integration.
//!
//! Receives: traces, and budgets from the command line, from heaptrack.toml and from a baseline. Returns: the result in one or
//! more formats, and an exit code: 0 if all budgets were kept, 1 if not. Must hold: a budget that cannot be judged is not
//! kept.
mod budget;
mod code_rules;
mod flame;
mod github;
mod json;
mod judge;
mod junit;
mod markdown;
mod options;
mod outcome;
mod places;
mod sarif;
mod settings;
mod text;

pub use code_rules::all_rules;
pub use options::{Check, Output};
pub use outcome::Outcome;
pub use settings::Settings;

use crate::destination::{Content, Destination};
use crate::known_leaks::KnownLeaks;
use analysis::Query;
use judge::Terms;
use options::Format;
use places::Repository;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit code if a budget was not kept.
pub const BROKEN: u8 = 1;

pub fn run(options: &Check) -> anyhow::Result<ExitCode> {
    let here = std::env::current_dir().unwrap_or_default();
    let file = options.settings_file(&here);
    let repository = Repository::find(&here, file.as_deref());
    let settings = file.as_deref().map(Settings::read).transpose()?.unwrap_or_default();
    let settings = options.settings()?.or(settings).shown_in(&repository);
    let query = options.query()?;
    let task = Task {
        files: &options.files,
        settings: &settings,
        known: options.known.clone(),
        rules: options.rules.as_deref(),
        query,
    };
    let outputs = task.destinations(&options.outputs)?;
    let outcome = task.check(repository)?;
    for (format, output) in &outputs {
        output.write(Content::Other, |out| Ok(write(&outcome, *format, options.link.as_deref(), out)?))?;
    }
    Ok(exit_code(&outcome))
}

pub fn exit_code(outcome: &Outcome) -> ExitCode {
    if outcome.is_kept() { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) }
}

/// Checks each file by settings of its own, with the usual suppressions, and writes the results.
pub fn check_each(files: &[(PathBuf, &Settings)], outputs: &[Output]) -> anyhow::Result<Outcome> {
    let here = std::env::current_dir().unwrap_or_default();
    let repository = Repository::find(&here, None);
    let mut all = Outcome { files: Vec::new() };
    let mut destinations = None;
    for (file, settings) in files {
        let settings = (*settings).clone().shown_in(&repository);
        let file = file.strip_prefix(&here).map_or_else(|_| file.clone(), Path::to_owned);
        let files = std::slice::from_ref(&file);
        let task =
            Task { files, settings: &settings, known: KnownLeaks::default(), rules: None, query: Query::default() };
        if destinations.is_none() {
            destinations = Some(task.destinations(outputs)?);
        }
        all.files.extend(task.check(repository.clone())?.files);
    }
    all.forget_unmatched();
    for (format, output) in destinations.iter().flatten() {
        output.write(Content::Other, |out| Ok(write(&all, *format, None, out)?))?;
    }
    Ok(all)
}

/// Files and what they are compared with.
struct Task<'a> {
    files: &'a [PathBuf],
    settings: &'a Settings,
    known: KnownLeaks,
    rules: Option<&'a Path>,
    query: Query,
}

impl Task<'_> {
    fn destinations(&self, outputs: &[Output]) -> anyhow::Result<Vec<(Format, Destination)>> {
        let mut inputs: Vec<&Path> = self.files.iter().map(PathBuf::as_path).collect();
        let others = [&self.settings.baseline, &self.settings.suppressions, &self.known.suppressions];
        inputs.extend(others.into_iter().flatten().map(PathBuf::as_path));
        let stdout = Path::new("-");
        let destination = |output: &Output| {
            let path = output.path.as_deref().unwrap_or(stdout);
            let name = format!("heaptrack-check.{}", output.format.extension());
            Ok((output.format, Destination::new(path, OsStr::new(&name), Content::Other, &inputs)?))
        };
        outputs.iter().map(destination).collect()
    }

    fn check(self, repository: Repository) -> anyhow::Result<Outcome> {
        let Settings { budgets, suppressions, baseline, tolerance } = self.settings;
        if budgets.is_empty() && baseline.is_none() {
            anyhow::bail!(
                "there is nothing to check: give a budget such as --max-peak, a --baseline, or a section [check] in heaptrack.toml"
            );
        }
        if let (None, Some(_)) = (baseline, tolerance) {
            anyhow::bail!("a tolerance changes nothing without a baseline");
        }
        if baseline.is_some() && self.files.len() > 1 {
            anyhow::bail!("a baseline is compared with one file, and {} are given", self.files.len());
        }
        let mut known = self.known;
        known.suppressions = known.suppressions.or_else(|| suppressions.clone());
        let terms = Terms {
            budgets: budgets.clone(),
            query: self.query,
            known,
            rules: self.rules,
            repository,
            baseline: baseline.as_deref().map(|path| (path, tolerance.unwrap_or(0.0))),
        };
        let files = self.files.iter().map(|file| judge::check(file, &terms));
        Ok(Outcome { files: files.collect::<anyhow::Result<_>>()? })
    }
}

fn write(outcome: &Outcome, format: Format, link: Option<&str>, out: &mut dyn Write) -> std::io::Result<()> {
    match format {
        Format::Text => text::write(outcome, out),
        Format::Json => json::write(outcome, out),
        Format::Junit => junit::write(outcome, out),
        Format::Sarif => sarif::write(outcome, out),
        Format::Github => github::write(outcome, out),
        Format::Markdown => markdown::write(outcome, link, out),
    }
}
