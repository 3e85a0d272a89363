//! `cargo heaptrack run|test|bench|check`: records what cargo runs.
//!
//! Receives: the words of a cargo command. Returns: cargo's exit code, or for `check` 1 if a budget was not kept. Must hold:
//! cargo itself decides what is built and what is run, in which order and with which arguments. heaptrack is only its
//! runner (`target.*.runner`), so each executable is recorded by a process of its own (`cargo_heaptrack/runner.rs`).
mod options;
mod profiles;
mod project;
mod runner;

pub use options::CargoHeaptrack;
pub use runner::{NAME as RUNNER, run as run_as_runner};

use crate::check::{self, Settings};
use crate::trouble::counted;
use anyhow::{Context, bail};
use options::Action;
use project::Project;
use runner::{LIST, Recorded};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(options: &CargoHeaptrack) -> anyhow::Result<ExitCode> {
    let project = Project::find(&options.words)?;
    let folder = options.trace_dir.clone().unwrap_or_else(|| project.target.join("heaptrack"));
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    if options.action == Action::Check {
        // Mistakes in budgets are found before the tests run.
        let budgets = project.budgets()?;
        let code = if options.last { 0 } else { record(options, &project, &folder)? };
        return judge(options, &folder, &budgets, code);
    }
    Ok(ExitCode::from(record(options, &project, &folder)?))
}

/// Runs cargo. Returns its exit code.
fn record(options: &CargoHeaptrack, project: &Project, folder: &Path) -> anyhow::Result<u8> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    let list = folder.join(LIST);
    std::fs::write(&list, "").with_context(|| format!("cannot write {}", list.display()))?;
    let us = std::env::current_exe().context("cannot find heaptrack's own file")?;
    let mut words: Vec<String> =
        vec![us.to_string_lossy().into_owned(), RUNNER.into(), folder.to_string_lossy().into()];
    words.extend(options.follow.then(|| "--follow".to_owned()));
    words.extend(options.is_quiet().then(|| "--quiet".to_owned()));
    words.push("--".into());
    let mut cargo = project::cargo();
    cargo.arg("--config").arg(runner_setting(&project.triple(&options.words)?, &words));
    cargo.envs(profiles::debug_information(options, project)?);
    cargo.arg(options.action.of_cargo()).args(&options.words);
    let status = cargo.status().context("cannot run cargo")?;
    let recorded = Recorded::list(folder)?;
    if recorded.is_empty() && status.success() && !options.is_quiet() {
        crate::say(format_args!("heaptrack: cargo ran nothing that could be recorded"));
    } else if recorded.len() > 1 && !options.is_quiet() {
        let traces = counted(recorded.len() as u64, "trace", "traces");
        crate::say(format_args!("heaptrack: {traces} in {}", folder.display()));
    }
    Ok(exit_code(status))
}

/// The exit code as a shell shows it.
fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Returns cargo's setting of the program that runs its executables.
fn runner_setting(triple: &str, words: &[String]) -> String {
    // A text of JSON is also one of TOML.
    let words: Vec<String> = words.iter().map(|word| serde_json::Value::from(word.as_str()).to_string()).collect();
    format!("target.{triple}.runner=[{}]", words.join(","))
}

/// The budgets of one package.
pub struct PackageBudgets {
    /// The folder of its Cargo.toml.
    pub folder: PathBuf,
    pub settings: Settings,
}

/// Judges the traces of the last run. Returns cargo's code if cargo failed.
fn judge(options: &CargoHeaptrack, folder: &Path, budgets: &[PackageBudgets], code: u8) -> anyhow::Result<ExitCode> {
    let recorded = Recorded::list(folder)?;
    if recorded.is_empty() {
        bail!("there are no traces in {}: run `cargo heaptrack check` without --last", folder.display());
    }
    let of = |one: &Recorded| budgets.iter().find(|package| package.folder == one.folder);
    let mut tasks: Vec<(PathBuf, &Settings)> = Vec::new();
    for one in &recorded {
        match of(one).filter(|package| !package.settings.is_empty()) {
            Some(package) => tasks.push((one.trace.clone(), &package.settings)),
            None => crate::say(format_args!("heaptrack: {} has no budgets", one.trace.display())),
        }
    }
    if tasks.is_empty() {
        bail!(
            "there is nothing to check: no package has budgets in [package.metadata.heaptrack], [workspace.metadata.heaptrack] or heaptrack.toml"
        );
    }
    let outcome = check::check_each(&tasks, &options.outputs)?;
    Ok(if code == 0 { check::exit_code(&outcome) } else { ExitCode::from(code) })
}
