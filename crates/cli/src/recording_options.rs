//! The options of every recording: of a program that is started, and of one that runs already.
use crate::pushing::PushOptions;
use crate::recorder_limits::RecorderOptions;
use crate::search_options::SearchOptions;
use crate::support;
use crate::triggers::Condition;
use crate::values::{MemoryEvery, keep_last, listen, memory_every, milliseconds, recorder_threads, size, trace_size};
use crate::wrong_usage::Wrong;
use clap::{CommandFactory, FromArgMatches, ValueEnum};
use collector::RecorderThreads;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub struct RecordingOptions {
    /// Where to write the trace; %h = host, %p = pid of the program, %t = time of the start (UTC); .htz is added.
    #[arg(short, long, value_name = "NAME")]
    pub output: Option<PathBuf>,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// Do not look up function names while recording.
    #[arg(short = 'r', long = "no-symbols", visible_alias = "raw")]
    pub no_symbols: bool,
    /// Open the page while the program runs; it stays until Ctrl-C.
    #[arg(long)]
    pub live: bool,
    /// Answer collectors while the program runs: /debug/pprof/heap, /debug/pprof/allocs (?seconds=N: what changed in N seconds), /metrics. A port alone is for this machine; any other address needs a token; unix:PATH is a socket.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen)]
    pub pprof: Option<web::Listen>,
    /// With --pprof: the file with the token that other machines must send (Authorization: Bearer TOKEN). Without it, one is made and printed.
    #[arg(long, value_name = "FILE", requires = "pprof", value_hint = clap::ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
    /// When events come faster than they can be written: slow the program down, or drop events and count them.
    #[arg(long, value_enum, default_value_t = OnFull::Wait, value_name = "POLICY")]
    pub on_full: OnFull,
    /// How long a thread waits for a recorder that does nothing (stopped, frozen) before its events are dropped and counted.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = milliseconds)]
    pub max_stall: u32,
    /// Keep the trace below this size, as 500M or 2G. The oldest events are replaced by their sums and the blocks that they left.
    #[arg(long, value_name = "SIZE", value_parser = trace_size)]
    pub max_size: Option<u64>,
    /// Keep the events of the last minutes, as 10m or 1h. Older ones are replaced by their sums and the blocks that they left, up to a quarter of that time later.
    #[arg(long, value_name = "TIME", value_parser = keep_last)]
    pub keep_last: Option<Duration>,
    /// Take a snapshot of the trace when one of these holds: rss=2G, heap=500M, growth=100M (within a minute), cgroup=95% (of its memory limit), pressure=10% (of ten seconds), sigusr1 (this signal to heaptrack, which is then not passed on). At most one a minute, besides those for signals.
    #[arg(long, value_name = "CONDITION,...", value_delimiter = ',', value_parser = Condition::parse)]
    pub snapshot_when: Vec<Condition>,
    /// With --snapshot-when: the most that all snapshots may take. The oldest ones are removed.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size, requires = "snapshot_when")]
    pub snapshots_size: u64,
    /// Threads of the recorder that work on events: a number, or auto for those that are idle, at most a quarter of the CPUs. More than 3 find no work.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = recorder_threads)]
    pub recorder_threads: RecorderThreads,
    /// How often to measure the parts of the resident memory (heap, stacks, files and so on), or off. Measuring takes at most 0.5 % of one CPU, so it may be done less often.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = memory_every)]
    pub memory_every: MemoryEvery,
    /// Do not record the mappings that the program makes itself (mmap, munmap, mremap, madvise, shmat).
    #[arg(long)]
    pub no_mmap: bool,
    #[command(flatten)]
    pub push: PushOptions,
    #[command(flatten)]
    pub recorder: RecorderOptions,
    #[command(flatten)]
    pub search: SearchOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    Wait,
    Drop,
}

impl From<OnFull> for channel::OnFull {
    fn from(policy: OnFull) -> Self {
        match policy {
            OnFull::Wait => channel::OnFull::Wait,
            OnFull::Drop => channel::OnFull::Drop,
        }
    }
}

/// Parses a command with these options. Refuses `--max-stall` where no thread ever waits.
pub fn parse<T: CommandFactory + FromArgMatches>(words: Vec<OsString>) -> Result<T, Wrong> {
    let mut command = T::command();
    let matches = command.try_get_matches_from_mut(words).map_err(Wrong::Words)?;
    let never_waits = matches.get_one::<OnFull>("on_full") == Some(&OnFull::Drop);
    if never_waits && support::given(&command, &matches).iter().any(|given| given == "max-stall") {
        let sentence = "--max-stall changes nothing with --on-full drop: then no thread ever waits";
        return Err(Wrong::Option(sentence.into()));
    }
    T::from_arg_matches(&matches).map_err(Wrong::Words)
}
