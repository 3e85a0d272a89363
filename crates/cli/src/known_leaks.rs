//! The known leaks that a command is told of: ours, those of a file, the program's own.
use crate::trouble::unreadable;
use analysis::{BadSuppression, Source, Suppressions};
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct KnownLeaks {
    /// Known leaks, in LeakSanitizer's syntax: lines of leak:PATTERN.
    #[arg(long, value_name = "LIST", value_hint = clap::ValueHint::FilePath, help_heading = "Known leaks")]
    pub suppressions: Option<PathBuf>,
    /// Leave out those that the program brings itself.
    #[arg(long, help_heading = "Known leaks")]
    pub disable_embedded_suppressions: bool,
    /// Leave out ours.
    #[arg(long, help_heading = "Known leaks")]
    pub disable_builtin_suppressions: bool,
    /// Leave out all of them.
    #[arg(long, help_heading = "Known leaks")]
    pub no_suppressions: bool,
}

impl KnownLeaks {
    /// `embedded`: what the program brings itself. That none of them are to be used is for others to heed: they may still be told.
    pub fn load(&self, embedded: &str) -> anyhow::Result<Suppressions> {
        let mut known = Suppressions::new();
        if !self.disable_builtin_suppressions {
            known.add_builtin();
        }
        if let Some(file) = &self.suppressions {
            let text = fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
            complain(&file.display(), &known.add(&text, Source::File));
        }
        if !self.disable_embedded_suppressions {
            // What is wrong there is the program's business; LeakSanitizer has told it.
            known.add(embedded, Source::Embedded);
        }
        Ok(known)
    }
}

fn complain(name: &dyn Display, bad: &[BadSuppression]) {
    for line in bad {
        crate::say(format_args!("heaptrack: {name}, {line}"));
    }
}
