//! Drains the shared memory of a target, orders and pairs its events, writes the trace.
mod blocks;
mod clock;
mod error;
mod mapping;
mod merge;
mod queue;
mod spill;
mod infos;
mod modules;
mod process;
mod stacks;
mod threads;
