//! The options of `--push`.
use crate::values::{push_every, size};
use push::{Destination, Labels};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Profiles for dashboards")]
pub struct PushOptions {
    /// Send profiles while the program runs: pyroscope=URL, parca=URL or otlp=URL; may be repeated. The program never waits for a server.
    #[arg(long, value_name = "SERVER=URL", value_parser = Destination::parse)]
    pub push: Vec<Destination>,
    /// With --push: how often, at least 1s.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = push_every, requires = "push")]
    pub push_every: Duration,
    /// With --push: the folder for profiles that could not be sent yet. Without it they are kept in memory, up to 8 MB.
    #[arg(long, value_name = "DIR", requires = "push", value_hint = clap::ValueHint::DirPath)]
    pub push_spool: Option<PathBuf>,
    /// With --push-spool: the most that the folder may hold. The oldest profiles are dropped.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size, requires = "push_spool")]
    pub push_spool_size: u64,
    /// With --push: a file with headers for every request, as `Authorization: Bearer TOKEN`, one on each line.
    #[arg(long, value_name = "FILE", requires = "push", value_hint = clap::ValueHint::FilePath)]
    pub push_headers: Option<PathBuf>,
    /// With --push: a label of the profiles, as version=1.2; may be repeated. service, host and pod are set if they are known.
    #[arg(long, value_name = "NAME=VALUE", value_parser = Labels::parse, requires = "push")]
    pub label: Vec<(String, String)>,
    /// With --push: leave out command lines, names of users, and folders outside of the project, which is the current folder, or DIR.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = ".", requires = "push")]
    pub redact: Option<PathBuf>,
}
