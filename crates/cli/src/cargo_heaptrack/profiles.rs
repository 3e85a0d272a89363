//! Builds with lines: which of cargo's settings must change so that frames have files and lines.
use super::options::{Action, CargoHeaptrack};
use super::project::{Project, value_of};
use anyhow::anyhow;
use toml::de::{DeTable, DeValue};

/// Returns the variables that make cargo build with debug information and without stripping. Nothing is set that the project
/// has already, because each change of a setting makes cargo build everything again.
pub fn debug_information(options: &CargoHeaptrack, project: &Project) -> anyhow::Result<Vec<(String, String)>> {
    let path = project.manifest();
    let text = std::fs::read_to_string(&path).map_err(|error| crate::trouble::unreadable(&path, &error))?;
    let manifest = DeTable::parse(&text).map_err(|error| anyhow!("{}: {}", path.display(), error.message()))?;
    let profile = profile(options);
    Ok(changes(manifest.get_ref(), &profile))
}

/// The name of the profile that cargo uses.
fn profile(options: &CargoHeaptrack) -> String {
    let is_release = options.cargo_words().any(|word| word == "--release" || word == "-r");
    match value_of(&options.words, "--profile") {
        Some("test") => "dev".into(),
        Some("bench") => "release".into(),
        Some(name) => name.to_owned(),
        None if is_release || options.action == Action::Bench => "release".into(),
        None => "dev".into(),
    }
}

fn changes(manifest: &DeTable<'_>, profile: &str) -> Vec<(String, String)> {
    let settings = |name: &str| {
        let profiles = manifest.get("profile").and_then(|profiles| profiles.get_ref().as_table());
        profiles.and_then(|profiles| profiles.get(name)).and_then(|table| table.get_ref().as_table())
    };
    // The profiles `test` and `bench` have the settings of those that they inherit from.
    let names: &[&str] = match profile {
        "dev" => &["dev", "test"],
        "release" => &["release", "bench"],
        other => &[other],
    };
    let setting = |key: &str| names.iter().rev().find_map(|name| settings(name)?.get(key)).map(|value| value.get_ref());
    let has_lines = match setting("debug") {
        None => profile == "dev",
        Some(value) => !is_off(value),
    };
    let mut changes = Vec::new();
    let mut change = |key: &str, value: &str| {
        for name in names {
            let name = name.to_ascii_uppercase().replace('-', "_");
            changes.push((format!("CARGO_PROFILE_{name}_{key}"), value.to_owned()));
        }
    };
    if !has_lines {
        change("DEBUG", "line-tables-only");
    }
    if setting("strip").is_some_and(|value| !is_off(value)) {
        change("STRIP", "none");
    }
    changes
}

/// Returns true for `false`, `0` and `"none"`.
fn is_off(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Boolean(is_on) => !is_on,
        DeValue::Integer(level) => level.as_str() == "0",
        DeValue::String(level) => level == "none",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_changes() {
        let changed = |text: &str, profile: &str| {
            let manifest = DeTable::parse(text).unwrap();
            let changes = changes(manifest.get_ref(), profile);
            changes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let lines = "CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_BENCH_DEBUG=line-tables-only";
        assert_eq!(changed("", "dev"), "");
        assert_eq!(changed("", "release"), lines);
        assert_eq!(changed("[profile.release]\ndebug = 1", "release"), "");
        assert_eq!(changed("[profile.release]\ndebug = \"line-tables-only\"\nstrip = false", "release"), "");
        assert_eq!(
            changed("[profile.dev]\ndebug = false", "dev"),
            "CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only"
        );
        let stripped = "CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_BENCH_STRIP=none";
        assert_eq!(changed("[profile.release]\ndebug = 2\nstrip = true", "release"), stripped);
        assert_eq!(changed("", "my-fast"), "CARGO_PROFILE_MY_FAST_DEBUG=line-tables-only");
    }
}
