//! What is on the stacks of stopped threads.
//!
//! Given: all threads, stopped. Gives back: whether one of them is, or will return, into given addresses. What must hold: a
//! thread that is there is found, whatever stack it is on; one that is not there may be taken for one that is.
use crate::frame;
use crate::maps::{Mapping, Maps};
use crate::memory::Memory;
use crate::ptrace::{self, Tid};
use libc::user_regs_struct;

/// Of a stack that a thread is on. With many threads less, for all of them stand still meanwhile.
const DEPTH: u64 = 256 << 10;
const LEAST_DEPTH: u64 = 32 << 10;
const ALL_STACKS: u64 = 16 << 20;
/// Of a stack that a thread has left for another one, where nobody knows how deep it is.
const WHOLE: u64 = 8 << 20;

/// A stopped thread's registers, and the words of its stacks.
#[derive(Debug)]
pub struct Thread {
    pub tid: Tid,
    pub registers: user_regs_struct,
    stacks: Vec<Vec<u64>>,
}

/// Only what runs can be moved, so threads that are gone meanwhile are left out.
pub fn threads(tids: &[Tid], maps: &Maps, memory: &Memory) -> Vec<Thread> {
    let depth = (ALL_STACKS / tids.len().max(1) as u64).clamp(LEAST_DEPTH, DEPTH);
    tids.iter().filter_map(|tid| Thread::of(*tid, maps, memory, depth)).collect()
}

impl Thread {
    fn of(tid: Tid, maps: &Maps, memory: &Memory, depth: u64) -> Option<Thread> {
        let registers = ptrace::registers(tid).ok()?;
        let mut stacks = Vec::new();
        let here = maps.at(registers.rsp);
        stacks.extend(here.map(|mapping| words(memory, registers.rsp & !7, mapping.end.min(registers.rsp + depth))));
        // A signal handler may run on a stack of its own; what it interrupted is then on the thread's first one.
        let home = maps.at(registers.fs_base);
        let is_at_home =
            |mapping: &Mapping| mapping.name == "[stack]" || home.is_some_and(|home| home.start == mapping.start);
        if !here.is_some_and(is_at_home) {
            let own = home.filter(|home| home.is_anonymous() && home.len() <= WHOLE + (64 << 10));
            let first = maps.0.iter().find(|mapping| mapping.name == "[stack]");
            for mapping in own.into_iter().chain(first) {
                stacks.push(words(memory, mapping.start.max(mapping.end.saturating_sub(WHOLE)), mapping.end));
            }
        }
        Some(Thread { tid, registers, stacks })
    }

    /// It runs there, or a word on its stacks leads there.
    pub fn may_return_to(&self, is_there: impl Fn(u64) -> bool) -> bool {
        is_there(self.registers.rip) || self.stacks.iter().flatten().any(|word| is_there(*word))
    }

    /// A signal handler of it will return there.
    pub fn is_interrupted_in(&self, restorer: u64, is_there: impl Fn(u64) -> bool) -> bool {
        let saved = (frame::RIP / 8) as usize;
        self.stacks.iter().any(|words| {
            let frames = words.iter().enumerate().filter(|(_, word)| **word == restorer);
            frames.into_iter().any(|(at, _)| words.get(at + saved).is_some_and(|rip| is_there(*rip)))
        })
    }
}

fn words(memory: &Memory, from: u64, to: u64) -> Vec<u64> {
    let mut bytes = vec![0; to.saturating_sub(from) as usize & !7];
    let length = memory.read_some(from, &mut bytes) & !7;
    bytes.truncate(length);
    bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes)).collect()
}
