//! The lists of known leaks that a command uses: ours, the user's file, and the program's own.
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
    /// Do not use the suppressions that are built into the program.
    #[arg(long, help_heading = "Known leaks")]
    pub disable_embedded_suppressions: bool,
    /// Do not use our own list.
    #[arg(long, help_heading = "Known leaks")]
    pub disable_builtin_suppressions: bool,
    /// Do not use any of these lists.
    #[arg(long, help_heading = "Known leaks")]
    pub no_suppressions: bool,
}

impl KnownLeaks {
    /// Reads the lists that the options ask for. `embedded` is the program's own list. `--no-suppressions` is not
    /// handled here, because the output may still list suppressions.
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
            // Mistakes in the program's own list are not reported. LeakSanitizer reports them.
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
