//! What the user sees: one line while the program runs, and a few at the end.
//!
//! Receives: live numbers, an outcome. Returns: text on stderr. Must hold: the line is drawn only if stderr is a
//! terminal, and it is erased before anything else is printed.
use crate::disk::Disk;
use crate::say;
use collector::{Outcome, Stats};
use format::{Totals, Waits};
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(300);

/// The status line and the warning about the disk. They have a thread of their own, so that a slow terminal delays
/// nothing else.
#[derive(Debug)]
pub struct StatusLine {
    stop: Option<(Sender<()>, JoinHandle<()>)>,
}

impl StatusLine {
    /// `folder` is the folder of the trace, whose disk is watched. With `hidden`, only warnings are printed. With
    /// `is_sampled`, the sizes of the heap are estimates.
    pub fn start(stats: Arc<Stats>, folder: Option<File>, quiet: bool, hidden: bool, is_sampled: bool) -> Self {
        if quiet {
            return StatusLine { stop: None };
        }
        let is_drawn = !hidden && std::io::stderr().is_terminal();
        let (sender, inbox) = channel();
        let watch = move || {
            let mut disk = Disk::of(folder);
            loop {
                if let Some(warning) = disk.warning() {
                    erase(is_drawn);
                    say(format_args!("heaptrack: {warning}"));
                }
                if inbox.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return erase(is_drawn);
                }
                if is_drawn {
                    let _ = write!(std::io::stderr(), "\r\x1b[2m{}\x1b[0m\x1b[K", Line(&stats, is_sampled));
                }
            }
        };
        let thread = std::thread::Builder::new().name("heaptrack-line".into()).spawn(watch);
        StatusLine { stop: thread.ok().map(|thread| (sender, thread)) }
    }

    pub fn end(self) {
        if let Some((sender, thread)) = self.stop {
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn erase(is_drawn: bool) {
    if is_drawn {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// The numbers, and true if those of the heap are estimates.
struct Line<'a>(&'a Stats, bool);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Stats { events, live_bytes, peak_bytes, file_bytes, lost_events, .. } = self.0;
        let (sampled, about) = if self.1 { ("sampled ", "about ") } else { ("", "") };
        write!(f, "heaptrack: {} {sampled}events", Count(Stats::get(events)))?;
        write!(f, ", heap {about}{} (peak {})", Bytes(Stats::get(live_bytes)), Bytes(Stats::get(peak_bytes)))?;
        write!(f, ", file {}", Bytes(Stats::get(file_bytes)))?;
        match Stats::get(lost_events) {
            0 => Ok(()),
            lost => write!(f, ", {} LOST", Count(lost)),
        }
    }
}

/// A number, as `12.3M`.
pub struct Count(pub u64);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000.0, &["", "k", "M", "G", "T"])
    }
}

/// A size, as `12.3 MB`, in powers of 1000 like KDE's heaptrack.
pub struct Bytes(pub u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, 1000.0, &[" B", " kB", " MB", " GB", " TB"])
    }
}

fn scaled(f: &mut Formatter<'_>, value: u64, step: f64, units: &[&str]) -> fmt::Result {
    let (mut number, mut unit) = (value as f64, 0);
    // 999.95 would be shown as 1000.0.
    while number >= step - 0.05 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 { write!(f, "{value}{name}") } else { write!(f, "{number:.1}{name}") }
}

/// Prints the lines at the end. `left` has the words for blocks that were not freed. `can_be_read` is true if the trace
/// is a file. `limits` are the options that limited the recorder.
#[allow(clippy::too_many_arguments, reason = "each is used once")]
pub fn report(
    outcome: &Outcome,
    path: &Path,
    bytes: u64,
    left: &str,
    limits: &str,
    can_be_read: bool,
    estimated: bool,
) {
    let totals = &outcome.totals;
    say(format_args!("heaptrack: {} ({})", path.display(), Bytes(bytes)));
    if estimated {
        if !can_be_read || !crate::sampled::report(path, left) {
            say(format_args!("  {} were sampled; heaptrack print estimates the totals", blocks(totals.allocations)));
        }
    } else {
        report_totals(totals, left);
    }
    report_rest(outcome, path, limits, can_be_read);
}

fn report_totals(totals: &Totals, left: &str) {
    say(format_args!(
        "  {} ({} temporary), {} in total; peak {} in {}",
        allocations(totals.allocations),
        Count(totals.temporary),
        Bytes(totals.allocated_bytes),
        Bytes(totals.peak_bytes),
        blocks(totals.peak_allocations),
    ));
    say(format_args!("  {} in {} {left}", Bytes(totals.leaked_bytes), blocks(totals.leaked_allocations)));
}

/// Prints what there is besides the totals of malloc's blocks.
fn report_rest(outcome: &Outcome, path: &Path, limits: &str, can_be_read: bool) {
    if let Some(custom) = &outcome.custom {
        say(format_args!(
            "  custom allocators: {}, {} in total; peak {}; {} not freed",
            allocations(custom.allocations),
            Bytes(custom.allocated_bytes),
            Bytes(custom.peak_bytes),
            Bytes(custom.leaked_bytes),
        ));
    }
    if let Some(until) = outcome.folded_until_ns {
        let seconds = until as f64 / 1e9;
        say(format_args!(
            "  for the first {seconds:.1} s, the trace has only sums and the blocks that were still live (--max-size, --keep-last)"
        ));
    }
    if let Some(sentence) = waits(outcome.waits, outcome.totals.runtime_ns, limits) {
        say(format_args!("  {sentence}"));
    }
    match outcome.children {
        0 => (),
        1 => say(format_args!("  1 child process was not recorded; --follow records child processes")),
        count => say(format_args!("  {count} child processes were not recorded; --follow records them")),
    }
    if can_be_read {
        say(format_args!("  Next: heaptrack print {}", quoted(path)));
    }
}

/// Returns a sentence about the time that the program waited for the recorder, if the recorder was limited or the time is
/// more than 1 % of the run time. `limits` are the options that limited the recorder.
pub fn waits(waits: Waits, runtime_ns: u64, limits: &str) -> Option<String> {
    if limits.is_empty() && !waits.are_notable(runtime_ns) {
        return None;
    }
    let mut sentence = match waits.waited_ns {
        0 => "the program never waited for the recorder".to_owned(),
        waited => format!(
            "the program waited {} for the recorder (sum over its threads), in {} of run time",
            Time(waited),
            Time(runtime_ns)
        ),
    };
    if !limits.is_empty() {
        sentence.push_str(&format!("; the recorder was limited by {limits}"));
    }
    Some(sentence)
}

/// A time in nanoseconds, as `1.3 s`.
struct Time(u64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 100_000 => write!(f, "{:.2} ms", ns as f64 / 1e6),
            ns if ns < 100_000_000 => write!(f, "{:.1} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.1} s", ns as f64 / 1e9),
        }
    }
}

fn blocks(count: u64) -> String {
    format!("{} {}", Count(count), if count == 1 { "block" } else { "blocks" })
}

fn allocations(count: u64) -> String {
    format!("{} {}", Count(count), if count == 1 { "allocation" } else { "allocations" })
}

/// Prints what is missing in the trace, even with `-q`, because a silent loss is a wrong result.
pub fn report_losses(outcome: &Outcome, path: &Path) {
    if let Some(error) = &outcome.write_error {
        let (path, hint) =
            (path.display(), if error.raw_os_error().is_some() { " (free some disk space?)" } else { "" });
        say(format_args!("heaptrack: {path} ends early, writing failed: {error}{hint}"));
    }
    for sentence in outcome.losses.sentences() {
        say(format_args!("heaptrack: {sentence}"));
    }
    for unseen in &outcome.unseen {
        say(format_args!("heaptrack: not recorded: {}", unseen.sentence));
    }
    if let Some(note) = &outcome.losses.note {
        say(format_args!("heaptrack: {note}"));
    }
}

/// Returns the path as it can be pasted into a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+%:,@=".contains(c);
    if text.chars().all(is_plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(Count(999).to_string(), "999");
        assert_eq!(Count(1000).to_string(), "1.0k");
        assert_eq!(Count(12_345_678).to_string(), "12.3M");
        assert_eq!(Count(999_960).to_string(), "1.0M");
        assert_eq!(Bytes(17).to_string(), "17 B");
        assert_eq!(Bytes(u64::MAX).to_string(), "18446744.1 TB");
    }

    #[test]
    fn waits_are_said_if_they_matter_or_if_there_is_a_limit() {
        let said = |waited_ns, limits| waits(Waits { waited_ns }, 2_000_000_000, limits);
        assert_eq!(said(0, ""), None);
        assert_eq!(said(20_000_000, ""), None, "exactly 1 %");
        assert_eq!(
            said(20_000_001, "").as_deref(),
            Some("the program waited 20.0 ms for the recorder (sum over its threads), in 2.0 s of run time")
        );
        assert_eq!(
            said(0, "--recorder-nice 19").as_deref(),
            Some("the program never waited for the recorder; the recorder was limited by --recorder-nice 19")
        );
        assert_eq!(
            said(3_250_000_000, "--recorder-cpu 0 --recorder-cpu 50%").as_deref(),
            Some(
                "the program waited 3.2 s for the recorder (sum over its threads), in 2.0 s of run time; \
                 the recorder was limited by --recorder-cpu 0 --recorder-cpu 50%"
            )
        );
        assert_eq!(Time(1).to_string(), "0.00 ms");
        assert_eq!(Time(70_000).to_string(), "0.07 ms");
    }

    #[test]
    fn names_can_be_pasted() {
        assert_eq!(quoted(Path::new("heaptrack.ls.1.htz")), "heaptrack.ls.1.htz");
        assert_eq!(quoted(Path::new("my 'file'.htz")), "'my '\\''file'\\''.htz'");
    }
}
