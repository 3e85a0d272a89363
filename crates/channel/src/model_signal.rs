//! Signals in loom's models: a handler that interrupts a writer at one of the points where its order of stores matters.
use std::cell::RefCell;

type Handler = Box<dyn FnOnce()>;

thread_local! {
    /// How many points come before the one at which the handler runs, and the handler. Loom runs all threads of a model
    /// on one thread of the machine, so only one thread of a model may have points.
    static PENDING: RefCell<Option<(u32, Handler)>> = const { RefCell::new(None) };
}

/// The `point`th next point, from 0, runs `handler`, which may leave the writer by a panic.
pub fn interrupt_at(point: u32, handler: impl FnOnce() + 'static) {
    PENDING.with_borrow_mut(|pending| *pending = Some((point, Box::new(handler))));
}

/// Returns true if the handler has not run, and forgets it.
pub fn take_pending() -> bool {
    PENDING.with_borrow_mut(|pending| pending.take().is_some())
}

/// A point at which the handler may run.
pub fn point() {
    let due = PENDING.with_borrow_mut(|pending| match pending {
        Some((0, _)) => pending.take(),
        Some((points, _)) => {
            *points -= 1;
            None
        }
        None => None,
    });
    if let Some((_, handler)) = due {
        handler();
    }
}
