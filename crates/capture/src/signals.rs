//! Signals that ask a watched target for a report.
//!
//! A handler is installed only where the program has none (the disposition is the default one), and does nothing but note
//! the instant. What the program sets later replaces it, as it would have replaced the default.
use crate::core::{ACTIVE, CORE};
use crate::sys;
use channel::Request;
use core::sync::atomic::Ordering;

const SIGNALS: [(i32, Request); Request::COUNT] = [(10, Request::BySize), (12, Request::ByCount), (3, Request::Window)];

/// Installs the handler where there is none.
pub fn watch() {
    for (signal, _) in SIGNALS {
        if sys::signal_is_default(signal) {
            sys::handle_signal(signal, noticed);
        }
    }
}

/// On whatever stack, in the middle of whatever: one store.
extern "C" fn noticed(signal: i32) {
    if CORE.gate() & ACTIVE == 0 {
        return;
    }
    for (known, request) in SIGNALS {
        if known == signal
            && let Some(place) = CORE.header().requests.get(request as usize)
        {
            // The first of several that nobody has seen yet counts.
            let _ = place.compare_exchange(0, CORE.stamp(), Ordering::Release, Ordering::Relaxed);
            // What follows is to have later stamps.
            CORE.header().next_round();
        }
    }
}
