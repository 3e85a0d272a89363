//! What runs inside the target: hooks, stack walk, per-thread rings.
//!
//! Receives: the arguments and results of the program's allocator calls, and the channel. Returns: records in the
//! thread's ring. Must hold, on every line:
//!
//! - **Nothing is allocated from the target's heap**; tables live in the channel.
//! - **No lock that the target can hold is taken**, and no system call is made on the hot path.
//! - **errno, registers and results stay as the real function left them**; system calls are made without libc.
//! - **At most 1 KB of the target's stack**: large scratch memory is in the thread's slot.
//! - **No panic**: the shared object is linked so that a reachable panic is a link error.
//! - **The program runs on** if anything goes wrong. Recording stops, or the loss is counted.
#![cfg_attr(not(test), no_std)]

pub mod allocators;
pub mod api;
mod assembly;
pub mod cfi;
pub mod clock;
pub mod context;
pub mod core;
pub mod dl_find_object;
mod dynamic_section;
pub mod elf;
pub mod ending;
pub mod entry;
pub mod environment;
mod epilogue;
pub mod events;
pub mod exec;
mod exec_site;
#[cfg(fuzzing)]
pub mod expression;
#[cfg(not(fuzzing))]
mod expression;
pub mod families;
mod filters;
pub mod follow;
pub mod fork;
pub mod hooks;
mod host;
mod image;
mod imports;
pub mod leaving;
pub mod left_lists;
pub mod loader;
mod local;
pub mod mappings;
mod memo;
pub mod modules;
pub mod nesting;
pub mod opening;
mod patch;
mod proof;
#[cfg(test)]
mod random_stacks;
pub mod real;
mod resume_state;
mod rule;
pub mod sampling;
pub mod sandbox;
mod signals;
mod starting;
mod strings;
pub mod sys;
mod walk;
