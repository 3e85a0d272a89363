//! Starts a program into which no library can be preloaded. It is stopped when it is executed, patched as a running
//! program is, and released.
//!
//! Receives: the command, and a session that is ready. Returns: the pid of the program, or one sentence and an exit
//! code. Must hold: if there is a sentence, none of the program's instructions has run, and no child of ours is left.
use crate::patching_thread::DebugSymbols;
use crate::program::{NOT_POSSIBLE, Refusal};
use crate::record::{patch_search, refusal, wait_for};
use crate::search_options::SearchOptions;
use crate::{library, say};
use attach::{Means, NotStarted, PassedOn, Recorder, Shared, SharedFrom, Started};
use collector::{Going, Inherited, Launch, Recording, spawn_waiting};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How to start a program.
pub struct Start<'a> {
    /// The name of our command, for messages.
    pub tool: &'a str,
    pub program: &'a Path,
    /// The file of the capture library, for a program that this one becomes or starts.
    pub library: &'a Path,
    /// The value of `HEAPTRACK_FOLLOW`, if a tree of processes is followed.
    pub hub: Option<String>,
    pub inherited: &'a Inherited,
    pub search: &'a SearchOptions,
    pub quiet: bool,
}

impl Start<'_> {
    /// `before_start` is as for `collector::spawn`.
    pub fn run(&self, launch: &Launch, recording: &Recording, before_start: impl FnOnce(u32)) -> Result<u32, Refusal> {
        let mapping = recording.mapping();
        let region = mapping.region();
        let from = SharedFrom::Descriptor(mapping.fd().as_raw_fd());
        let shared = Shared { from, geometry: *region.geometry() };
        let waiting = spawn_waiting(launch, Some(mapping), self.inherited);
        let waiting = waiting.map_err(|error| refusal(self.program, &error))?;
        let pid = waiting.pid;
        before_start(pid);
        let mut going: Option<Going> = None;
        let go = || going = Some(waiting.go());
        let (symbols, channel) = (DebugSymbols::new(pid, patch_search(self.search)), recording.variable_by_path());
        let to = match &self.hub {
            Some(hub) => Recorder::Hub(hub.as_bytes()),
            None => Recorder::Channel(channel.as_bytes()),
        };
        let means = Means {
            library: library::CONTENT,
            separate: &|module| symbols.of(module),
            shared,
            region: &region,
            stamp: recording.now(),
            passed_on: Some(PassedOn { library: self.library.as_os_str().as_bytes(), to }),
        };
        match attach::start(pid, means, go) {
            Ok(Started { notes }) => {
                notes.iter().filter(|_| !self.quiet).for_each(|note| say(format_args!("{}: {note}", self.tool)));
                Ok(pid)
            }
            Err(NotStarted::Ended) => match going.and_then(|going| going.failure()) {
                Some(error) => Err(refusal(self.program, &error)),
                // A signal has ended it. The caller waits for it, as for any other program.
                None => Ok(pid),
            },
            Err(NotStarted::Refused(why)) => {
                // If it was not told to go, it ends because its pipe is closed now.
                drop(going);
                wait_for(pid);
                Err(Refusal { code: NOT_POSSIBLE, sentence: why.to_string() })
            }
        }
    }
}
