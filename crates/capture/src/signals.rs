//! The signals that ask a watched target for a report.
//!
//! The handlers are installed before `main`. They also replace an inherited "ignored", because a shell script starts
//! its background jobs with SIGQUIT ignored. A handler only stores the request and its stamp. A handler that the
//! program installs later replaces ours, as it would have replaced the inherited disposition.
use crate::core::{ACTIVE, CORE};
use crate::sys::{self, Disposition, Handler};
use channel::Request;
use core::sync::atomic::{AtomicU32, Ordering};

const SIGNALS: [(i32, Request); Request::COUNT] = [(10, Request::BySize), (12, Request::ByCount), (3, Request::Window)];

/// The signals that this process inherited as ignored and that we handle: one bit each, in the order of `SIGNALS`.
static INHERITED_AS_IGNORED: AtomicU32 = AtomicU32::new(0);

/// Installs the handler, unless the program has one. In a forked child (`is_forked`) an ignored signal stays ignored,
/// because the program itself ignores it.
pub fn watch(is_forked: bool) {
    for (bit, (signal, _)) in SIGNALS.into_iter().enumerate() {
        let disposition = sys::disposition(signal);
        let is_inherited = disposition == Disposition::Ignored && !is_forked;
        if is_inherited {
            INHERITED_AS_IGNORED.fetch_or(1 << bit, Ordering::Relaxed);
        }
        if is_inherited || disposition == Disposition::Default {
            sys::handle_signal(signal, Handler::Function(noticed));
        }
    }
}

/// Called before an exec. The new program must inherit what this one inherited, but exec would reset a signal that we
/// handle to its default. So signals that were inherited as ignored are ignored again. Returns them, for
/// `handle_again`.
pub fn ignore_inherited() -> u32 {
    let mut ignored = INHERITED_AS_IGNORED.load(Ordering::Relaxed);
    for (bit, (signal, _)) in SIGNALS.into_iter().enumerate() {
        if ignored & 1 << bit != 0 && sys::is_handled_by(signal, noticed) {
            sys::handle_signal(signal, Handler::Ignore);
        } else {
            ignored &= !(1 << bit);
        }
    }
    ignored
}

/// Called if the exec failed. Installs our handler again.
pub fn handle_again(ignored: u32) {
    for (bit, (signal, _)) in SIGNALS.into_iter().enumerate() {
        if ignored & 1 << bit != 0 {
            sys::handle_signal(signal, Handler::Function(noticed));
        }
    }
}

/// The signal handler. It may interrupt any code, on any stack. It stores one word and takes a bounded number of steps.
extern "C" fn noticed(signal: i32) {
    if CORE.gate() & ACTIVE == 0 {
        return;
    }
    for (known, request) in SIGNALS {
        if known == signal {
            CORE.header().heaptrace.requests.put(request, CORE.stamp());
            // Forces a clock read, so that later events have later stamps.
            CORE.header().next_round();
        }
    }
}
