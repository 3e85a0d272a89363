//! Puts the capture library into a process that runs already, and takes it out again.
//!
//! Receives: a pid, and the library that is embedded in the binary. Returns: a session that records, and later the
//! process as it was before. Must hold:
//!
//! - **The target runs on, whatever fails**: if attaching is refused, if the profiler dies at any point, if the target
//!   does something unexpected.
//! - **No code of the program is run**, and none of its locks is needed. The target only makes system calls, on a
//!   signal frame from which it would continue by itself if the profiler died. Everything else is written from outside.
//! - **Nothing is left in force afterwards**: the code is the program's own again, and there is no descriptor and no
//!   thread of ours. The shared memory is unmapped, unless a thread is still in a hook. Only memory that is no longer
//!   used stays: code, and the journal. The next attach of the same build uses it again.
//!
//! ```text
//! Checked::new -> Prepared::new -> (the collector maps the channel) -> begin -> Attached -> end
//!   from outside    one thread stopped, some system calls              all stopped        all stopped
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod candidates;
mod check;
mod children;
mod code;
mod error;
mod files;
mod filter;
mod frame;
mod frozen;
mod hold;
mod home;
mod hooked_functions;
mod image;
mod imports;
mod in_hook;
mod interrupt;
mod journal;
mod late;
mod launch;
mod loader;
mod loader_stop;
mod mapping_code;
mod maps;
mod memory;
mod plan;
mod prepare;
mod process;
mod ptrace;
mod ready;
mod remote;
mod repair;
mod reports;
mod scan;
mod session;
mod slots;
mod start;
mod unwind;
mod world;

pub use capture::core::{PassedOn, Recorder};
pub use check::Checked;
pub use children::Children;
pub use error::Refusal;
pub use hooked_functions::is_wanted;
pub use interrupt::Interrupt;
pub use late::{Loaded, Patched, Patcher, Separate, SeparateFunction, Waiting};
pub use prepare::Prepared;
pub use process::{Process, parent};
pub use repair::Restored;
pub use session::{Attached, Standing};
pub use start::{Executing, Means, NotStarted, Shared, SharedFrom, Started, start, start_executed};

use image::Image;
use journal::Journal;

/// The name of the shared memory that the target creates, and the start of that name in /proc/PID/maps.
const CHANNEL_NAME: &[u8] = b"heaptrack-attach\0";
const CHANNEL: &str = "/memfd:heaptrack-attach";

/// What `heaptrack detach` found.
#[derive(Debug)]
pub enum Detached {
    /// The recorder with this pid is alive, and must end the session itself.
    Recorder(u32),
    /// No recorder is alive. The process is restored.
    Restored(Restored),
}

/// Ends a session whose recorder has died. If the recorder is alive, only returns its pid. `library` is the file that
/// an attach of this build would write.
pub fn detach(pid: u32, library: &[u8], interrupt: Interrupt) -> Result<Detached, Refusal> {
    let image_id = Image::parse(library)?.id;
    let checked = Checked::interruptible(pid, interrupt)?;
    match launch::recorder_of(&checked) {
        Some(Some(recorder)) => return Err(checked.truth(Refusal::LaunchedBy { pid, recorder })),
        Some(None) => return Err(checked.truth(Refusal::LaunchedByNobody { pid })),
        None => (),
    }
    let journals = Journal::find(&checked.maps, &checked.memory);
    if journals.is_empty() {
        return Err(checked.truth(Refusal::NotAttached(pid)));
    }
    if let Some(journal) = journals.iter().find(|journal| journal.is_recorded(&checked.process)) {
        return Ok(Detached::Recorder(journal.recorder));
    }
    let restored = on_own_thread(|| repair::restore(&checked, &journals, image_id));
    restored.map(Detached::Restored).map_err(|refusal| checked.truth(refusal))
}

/// Runs `work` on a new thread. Tracing belongs to a thread, and when that thread ends, for any reason, the kernel
/// releases everything that it traces.
fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T, Refusal> + Send) -> Result<T, Refusal> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("heaptrack-trace".into()).spawn_scoped(scope, work);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            _ => Err(Refusal::Image("the thread that traces could not run")),
        }
    })
}
