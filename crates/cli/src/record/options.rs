//! The options of `heaptrack PROGRAM`, which is also the command without a subcommand.
use crate::recording_options::RecordingOptions;
use crate::sampled;
use crate::values::duration;
use clap::Parser;
use std::ffi::OsString;
use std::time::Duration;

const HELP: &str = "\
Subcommands (only as the first word):
  record [OPTIONS] PROGRAM   the same as without a subcommand
  attach [OPTIONS] PID       record a program that is already running; the same as -p PID
  detach PID                 stop recording it, also after its heaptrack was killed
  snapshot PID               copy the trace of a recording that goes on
  print [OPTIONS] FILE       text report of a trace; --json for scripts
  diff [OPTIONS] BASE FILE   what changed between two traces
  check [OPTIONS] FILE...    whether memory budgets were kept, for CI
  heaptrace [OPTIONS] PROGRAM  what is live, while the program runs and at its end; writes no trace
  analyze [OPTIONS] FILE...  the page: timeline, trees, flame graph, leaks (also -a)
  tui [OPTIONS] FILE         the same in the terminal, also over ssh; -p PID records, too
  report [OPTIONS] FILE      the page as one file, to share
  symbolize [OPTIONS] FILE   add function names, files and lines to a trace
  lib --install FOLDER       the library and header that custom allocators build against
  export --to FORMAT FILE    a trace in another tool's format
  trim FILE -o OUT           a shorter trace with only a range of time
  merge FILES -o OUT         one trace from those of several processes
  completions SHELL [COMMAND]  completion script for bash, zsh, fish ...
  man [COMMAND]              manual page, as roff; --all FOLDER writes all of them

`cargo heaptrack` records what cargo runs: cargo heaptrack --help

To record a program that has such a name, put -- before it: heaptrack -- man ls

Times: 30s, 5m (or 5min), 1h, 500ms; a number without a unit is seconds.
Sizes: 500M, 2G are powers of 1000, 500Mi, 2Gi powers of 1024; a number without a unit is bytes.

Examples:
  heaptrack ls -l                      record to heaptrack.ls.<pid>.htz
  heaptrack -o /tmp/%h.%p -- ./server  name with host and pid
  heaptrack -p $(pidof redis-server)   record a running program until Ctrl-C
  heaptrack --follow make -j2          all processes of a build in one trace
  heaptrack --pprof 6060 ./server      let collectors fetch profiles while it runs
  heaptrack --recorder-cpu 50% ./prog  the recorder takes at most half of a CPU
  heaptrack print heaptrack.ls.42.htz  read it
  heaptrack -a heaptrack.ls.42.htz     look at it in the browser

Exit code: the program's own (128+n for signal n); 127 not found; 126 cannot be run or recorded; 2 wrong usage, or a limit
of the recorder that is not possible; 3 cannot be attached to; attached and detached again: 0, or 1 if the trace was cut
short, for example by a full disk;
`export`, `trim` and `merge` interrupted by Ctrl-C: 130.";

/// Records every allocation of a program, with its stack, and shows where the memory went.
#[derive(Debug, Parser)]
#[command(name = "heaptrack", version, after_help = HELP, disable_version_flag = true)]
#[command(
    override_usage = "heaptrack [OPTIONS] PROGRAM [ARGS...]\n       heaptrack [OPTIONS] -p PID\n       heaptrack print [OPTIONS] FILE"
)]
pub struct Record {
    #[command(flatten)]
    pub recording: RecordingOptions,
    /// Only record. This is always so; the option is for scripts that were written for KDE's heaptrack.
    #[arg(long)]
    pub record_only: bool,
    /// Record everything that the program starts, too, into the same trace. With names: only programs of these names. With
    /// -p: everything that the process starts from now on.
    #[arg(long, value_name = "NAME,...", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "debug")]
    pub follow: Option<String>,
    /// Record only a sample of the blocks: on average one for each BYTES that are allocated, as 512k. A program hardly
    /// slows down then, and all numbers are estimates, with their 95 % intervals.
    #[arg(long, value_name = "BYTES", value_parser = sampled::rate, conflicts_with_all = ["follow", "pid", "debug"])]
    pub sample: Option<u64>,
    /// With --sample: record every block of at least this size, as 64k.
    #[arg(long, value_name = "BYTES", value_parser = crate::values::size, requires = "sample")]
    pub exact_above: Option<u64>,
    /// Show the trace in this terminal while the program runs. What the program prints goes to a file, and the key o shows it.
    #[arg(long, conflicts_with_all = ["debug", "live", "quiet"])]
    pub tui: bool,
    /// Start the program under gdb.
    #[arg(short, long, conflicts_with_all = ["live", "pprof", "push", "snapshot_when"])]
    pub debug: bool,
    /// Print the version.
    #[arg(short = 'v', visible_short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    /// Attach to a process that is already running.
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["command", "debug"])]
    pub pid: Option<u32>,
    /// With -p: detach after this time, as 30s, 5m, 1h. Without it, detach at Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "command")]
    pub duration: Option<Duration>,
    /// The program and its arguments.
    #[arg(required_unless_present = "pid", value_name = "PROGRAM", value_hint = clap::ValueHint::CommandWithArguments, num_args = 1.., trailing_var_arg = true)]
    pub command: Vec<OsString>,
}
