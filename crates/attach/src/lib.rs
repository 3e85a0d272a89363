//! Puts the capture core into a process that runs already, and takes it out again.
//!
//! Given: a pid, and the library that the binary carries. Gives back: a session in force, and later the process as it
//! was. What must hold:
//!
//! - **The target runs on, whatever fails**: a refusal, our death at any point, its own surprises.
//! - **No code of the program is run for us**, no lock of it is needed: it only makes system calls, on a frame from
//!   which it would go on by itself if we died. Everything else is written from outside.
//! - **Nothing is left in force afterwards**: the code's bytes are the program's own, no descriptor, no thread, no
//!   shared memory. What stays is some dormant code, which the next attach uses again.
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
mod heap;
mod home;
mod hooked_functions;
mod image;
mod imports;
mod in_hook;
mod interrupt;
mod journal;
mod launch;
mod loader;
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
mod unwind;
mod world;

pub use check::Checked;
pub use children::Children;
pub use error::Refusal;
pub use heap::{Heap, heap_of};
pub use interrupt::Interrupt;
pub use prepare::Prepared;
pub use process::Process;
pub use repair::Restored;
pub use session::{Attached, Standing};

use image::Image;
use journal::Journal;

/// How the shared memory is called in the target.
const CHANNEL_NAME: &[u8] = b"heaptrack-attach\0";
const CHANNEL: &str = "/memfd:heaptrack-attach";

/// What `heaptrack detach` found.
#[derive(Debug)]
pub enum Detached {
    /// Its recorder lives: it must end the session itself.
    Recorder(u32),
    /// There was no recorder any more; everything is as it was.
    Restored(Restored),
}

/// Ends a session whose recorder is gone. `library`: the file that an attach of this build would write.
pub fn detach(pid: u32, library: &[u8], interrupt: Interrupt) -> Result<Detached, Refusal> {
    let image_id = Image::parse(library)?.id;
    let checked = Checked::interruptible(pid, interrupt)?;
    let journals = Journal::find(&checked.maps, &checked.memory);
    if journals.is_empty() {
        return Err(checked.truth(match launch::recorder_of(&checked) {
            Some(Some(recorder)) => Refusal::LaunchedBy { pid, recorder },
            Some(None) => Refusal::LaunchedByNobody { pid },
            None => Refusal::NotAttached(pid),
        }));
    }
    if let Some(journal) = journals.iter().find(|journal| journal.is_recorded(&checked.process)) {
        return Ok(Detached::Recorder(journal.recorder));
    }
    let restored = on_own_thread(|| repair::restore(&checked, &journals, image_id));
    restored.map(Detached::Restored).map_err(|refusal| checked.truth(refusal))
}

/// Tracing belongs to a thread, and the kernel lets go what it traces when the thread ends, however it does.
fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T, Refusal> + Send) -> Result<T, Refusal> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("heaptrack-trace".into()).spawn_scoped(scope, work);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            _ => Err(Refusal::Image("the thread that traces could not run")),
        }
    })
}
