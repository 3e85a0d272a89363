//! What cargo knows about the project: its packages, its target folder, the machine that it builds for.
use super::PackageBudgets;
use crate::check::Settings;
use anyhow::{Context, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Project {
    pub target: PathBuf,
    /// The folder of the workspace.
    pub root: PathBuf,
    /// The manifest of each package.
    packages: Vec<PathBuf>,
}

/// Cargo sets CARGO for its subcommands.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns the value of an option of cargo: `--name value` or `--name=value`.
pub fn value_of<'a>(words: &'a [OsString], name: &str) -> Option<&'a str> {
    let mut words = words.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        if word == name {
            return words.next();
        }
        if let Some(value) = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
    }
    None
}

impl Project {
    pub fn find(words: &[OsString]) -> anyhow::Result<Project> {
        let mut command = cargo();
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        if let Some(manifest) = value_of(words, "--manifest-path") {
            command.args(["--manifest-path", manifest]);
        }
        let output = command.output().context("cannot run cargo")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let said = said.trim().trim_start_matches("error: ").replace('\n', " ");
            bail!("cargo cannot read the project: {said}");
        }
        let json: Value = serde_json::from_slice(&output.stdout).context("cargo metadata wrote no JSON")?;
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let package = |package: &Value| path(&package["manifest_path"]);
        let target = value_of(words, "--target-dir").map(PathBuf::from).or_else(|| path(&json["target_directory"]));
        Ok(Project {
            target: target.context("cargo metadata names no target folder")?,
            root: path(&json["workspace_root"]).context("cargo metadata names no folder")?,
            packages: json["packages"].as_array().into_iter().flatten().filter_map(package).collect(),
        })
    }

    pub fn manifest(&self) -> PathBuf {
        self.root.join("Cargo.toml")
    }

    /// The budgets of each package: its own, then those of the workspace, then those of heaptrack.toml.
    pub fn budgets(&self) -> anyhow::Result<Vec<PackageBudgets>> {
        let of_workspace = Settings::of_manifest(&self.manifest(), &["workspace", "metadata", "heaptrack"])?;
        let of_package = |manifest: &PathBuf| {
            let folder = manifest.parent().unwrap_or(Path::new("")).to_owned();
            let own = Settings::of_manifest(manifest, &["package", "metadata", "heaptrack"])?;
            let of_file = Settings::find(&folder).map(|file| Settings::read(&file)).transpose()?.unwrap_or_default();
            Ok(PackageBudgets { folder, settings: own.or(of_workspace.clone()).or(of_file) })
        };
        self.packages.iter().map(of_package).collect()
    }

    /// The machine that cargo builds for: `--target`, else this one.
    pub fn triple(&self, words: &[OsString]) -> anyhow::Result<String> {
        if let Some(target) = value_of(words, "--target") {
            return Ok(target.to_owned());
        }
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc).arg("-vV").current_dir(&self.root).output().context("cannot run rustc")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        Ok(host.context("rustc does not name its host")?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_both_forms() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(value_of(&words("-p a --target x"), "--target"), Some("x"));
        assert_eq!(value_of(&words("--target=x --target-dir y"), "--target"), Some("x"));
        assert_eq!(value_of(&words("--target-dir=y"), "--target"), None);
        assert_eq!(value_of(&words("a -- --target x"), "--target"), None);
    }
}
