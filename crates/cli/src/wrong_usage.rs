//! Wrong usage of the command line.

/// A command line that cannot be followed.
#[derive(Debug)]
pub enum Wrong {
    /// What clap found, which may also be a request for `--help` or `--version`.
    Words(clap::Error),
    /// A sentence about an option that would have no effect.
    Option(String),
}

impl From<clap::Error> for Wrong {
    fn from(error: clap::Error) -> Self {
        Wrong::Words(error)
    }
}

impl Wrong {
    /// Prints the reason and ends the process with exit code 2, or with 0 after `--help` and `--version`.
    pub fn exit(self) -> ! {
        match self {
            Wrong::Words(error) => error.exit(),
            Wrong::Option(sentence) => {
                crate::say(format_args!("heaptrack: {sentence}"));
                std::process::exit(crate::USAGE.into())
            }
        }
    }
}
