//! Signals that ask a watched target for a report.
//!
//! The handlers are installed before the program's first instruction, also over an inherited "ignored": a script starts its
//! background jobs with SIGQUIT ignored. A handler does nothing but note the instant. What the program sets later
//! replaces it, as it would have replaced the inherited disposition.
use crate::core::{ACTIVE, CORE};
use crate::sys::{self, Disposition};
use channel::Request;

const SIGNALS: [(i32, Request); Request::COUNT] = [(10, Request::BySize), (12, Request::ByCount), (3, Request::Window)];

/// Installs the handler, unless the program has one. In a forked child (`is_forked`) an ignored signal is one that the
/// program itself ignores.
pub fn watch(is_forked: bool) {
    for (signal, _) in SIGNALS {
        let is_free = match sys::disposition(signal) {
            Disposition::Default => true,
            Disposition::Ignored => !is_forked,
            Disposition::Handled => false,
        };
        if is_free {
            sys::handle_signal(signal, noticed);
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
            CORE.header().requests.put(request, CORE.stamp());
            // Later events are to have later stamps.
            CORE.header().next_round();
        }
    }
}
