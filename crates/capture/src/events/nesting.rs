//! Hooks of a libc whose functions call each other through the hooks, in a program that was launched: see
//! [`crate::nesting`]. While a function runs, the guard is up, and calls from libc are not recorded.
use super::allocated;
use super::entering::{AtWork, enter, leave};
use super::realloc::resume;
use crate::context::{Context, Next};
use crate::core::{ACTIVE, CORE};
use crate::entry::Range;
use crate::nesting;
use crate::resume_state::{GuardState, ResumeState};

/// Called before an allocating function of `libc` that may call another one.
#[inline(always)]
pub fn before(context: &mut Context, libc: Range) {
    context.resume_state = ResumeState::of_guard(GuardState::UNGUARDED);
    if CORE.gate_or_join() & ACTIVE == 0 {
        return;
    }
    let guard = match enter(&CORE, context.cfa()) {
        Some(mut entered) => {
            let outer = entered.replace_inside(libc);
            if outer == libc { GuardState::GUARDED_INSIDE } else { GuardState::GUARDED }
        }
        None => GuardState::NOT_RECORDED,
    };
    context.resume_state = ResumeState::of_guard(guard);
}

/// Called after a function for which `before` was called. `address` is what it returned.
#[inline(always)]
pub fn after(context: &mut Context, address: u64, size: u64) -> Next {
    let outer = match context.resume_state.guard() {
        GuardState::NOT_RECORDED => return Next::DONE,
        GuardState::GUARDED => Some(Range::NONE),
        GuardState::GUARDED_INSIDE => nesting::libc(),
        _ => None,
    };
    if let Some(outer) = outer
        && let Some(mut entered) = resume(&CORE, context.cfa())
    {
        entered.set_inside(outer);
        leave(&mut entered);
    }
    allocated(context, address, size)
}
