//! The user's own rules and suppressions.
use analysis::{BadRule, CodeClasses, Source, Suppressions};
use serde::{Deserialize, Serialize};

/// The text of one of the user's files, and the name by which messages call that file.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NamedText {
    pub name: String,
    pub text: String,
}

/// The user's files as a report carries them to the engine in a browser.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Settings {
    pub rules: Option<NamedText>,
    pub suppressions: Vec<NamedText>,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// A rules file, which tells which code is the user's.
    pub rules: Option<NamedText>,
    /// The user's suppressions, in LeakSanitizer's format.
    pub suppressions: Vec<NamedText>,
    /// Whether heaptrack's own suppressions are used.
    pub builtin: bool,
    /// Whether the suppressions that are built into the recorded program are used.
    pub embedded: bool,
    /// The name and version of heaptrack.
    pub tool: String,
}

/// A line of the user's files that is no rule or no suppression.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadOptions(String);

impl Options {
    /// Everything that uses rules and suppressions later ignores invalid lines, so they must be refused here.
    pub fn check(&self) -> Result<(), BadOptions> {
        if let Some(NamedText { name, text }) = &self.rules {
            CodeClasses::new("").add_rules(text).map_err(|bad| BadOptions(format!("{name}: {bad}")))?;
        }
        for NamedText { name, text } in &self.suppressions {
            check_suppressions(text).map_err(|bad| BadOptions(format!("{name}, {bad}")))?;
        }
        Ok(())
    }

    /// The part of the options that is not the same for every user.
    pub fn settings(&self) -> Settings {
        Settings { rules: self.rules.clone(), suppressions: self.suppressions.clone() }
    }

    pub(crate) fn classes(&self, exe: &str) -> Result<CodeClasses, BadRule> {
        let mut classes = CodeClasses::new(exe);
        if let Some(rules) = &self.rules {
            classes.add_rules(&rules.text)?;
        }
        Ok(classes)
    }
}

/// Returns how many suppressions a text has, or what is wrong with it.
pub fn check_suppressions(text: &str) -> Result<usize, String> {
    let mut list = Suppressions::new();
    match list.add(text, Source::File).first() {
        Some(bad) => Err(bad.to_string()),
        None => Ok(list.list().len()),
    }
}
