//! Signals that ask a watched target for a report.
//!
//! The handlers are installed before the program's first instruction, also over an inherited "ignored": a script starts
//! its background jobs with SIGQUIT ignored. A handler does nothing but note the instant. What the program sets later
//! replaces it, as it would have replaced the inherited disposition.
use crate::core::{ACTIVE, CORE};
use crate::sys::{self, Disposition, Handler};
use channel::Request;
use core::sync::atomic::{AtomicU32, Ordering};

const SIGNALS: [(i32, Request); Request::COUNT] = [(10, Request::BySize), (12, Request::ByCount), (3, Request::Window)];

/// The signals that this process inherited as ignored and that we handle: one bit each, in the order of `SIGNALS`.
static INHERITED_AS_IGNORED: AtomicU32 = AtomicU32::new(0);

/// Installs the handler, unless the program has one. In a forked child (`is_forked`) an ignored signal is one that the
/// program itself ignores.
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

/// Before an exec: the new program is to inherit what we inherited. Where our handler stands, exec would leave the
/// default. Returns the signals that are now ignored, for `handle_again`.
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

/// The exec has failed.
pub fn handle_again(ignored: u32) {
    for (bit, (signal, _)) in SIGNALS.into_iter().enumerate() {
        if ignored & 1 << bit != 0 {
            sys::handle_signal(signal, Handler::Function(noticed));
        }
    }
}

/// Runs on any stack, in the middle of anything: stores one word, with a bounded number of steps.
extern "C" fn noticed(signal: i32) {
    if CORE.gate() & ACTIVE == 0 {
        return;
    }
    for (known, request) in SIGNALS {
        if known == signal {
            CORE.header().heaptrace.requests.put(request, CORE.stamp());
            // Later events are to have later stamps.
            CORE.header().next_round();
        }
    }
}
