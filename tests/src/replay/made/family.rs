//! Random events of a tree of processes: they fork, start others, call exec, end, and free what they inherited.
use super::{Lane, TICK_NS};
use crate::Chance;
use format::{Exit, Freed, Process, ProcessEnd, ProcessStart, Processes, RawBlock, Thread, Totals};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Family {
    running: Vec<Member>,
    /// New and changed entries, and new threads, that are not written yet.
    news: Processes,
    threads: u32,
    processes: u32,
    /// Sequence number -> its size, and the process that allocated it.
    born: BTreeMap<u64, (u64, u32)>,
    /// Blocks that the process that allocated them has freed.
    freed_by_owner: BTreeSet<u64>,
    events: u64,
}

/// A process that runs.
struct Member {
    entry: Process,
    thread: u32,
    held: BTreeSet<u64>,
}

const PROGRAMS: [&str; 3] = ["/made/make", "/made/cc1", "/made/ld"];

impl Family {
    /// The first process has all threads that are defined already.
    pub(super) fn new(threads: u32) -> Self {
        let entry = Process { pid: 500, command: vec![PROGRAMS[0].into()], ..Process::default() };
        let threads_of_first = (0..threads).map(|thread| (thread, 0)).collect();
        Family {
            news: Processes { processes: vec![entry.clone()], threads: threads_of_first },
            running: vec![Member { entry, thread: 0, held: BTreeSet::new() }],
            threads,
            processes: 1,
            born: BTreeMap::new(),
            freed_by_owner: BTreeSet::new(),
            events: 0,
        }
    }

    pub(super) fn add_events(&mut self, lane: &mut Lane, chance: &mut Chance, steps: u64, blocks: &mut Vec<RawBlock>) {
        for _ in 0..steps {
            let Some(last) = (self.running.len() as u64).checked_sub(1) else { break };
            let at = chance.between(0, last + 1) as usize;
            match chance.between(0, 100) {
                0..4 => {
                    lane.tick += chance.between(1, 6);
                    lane.events.time(lane.tick * TICK_NS);
                }
                4..6 => self.start(at, ProcessStart::Forked, chance, lane, blocks),
                6 => self.start(at, ProcessStart::Spawned, chance, lane, blocks),
                7 if last > 0 && chance.between(0, 2) == 0 => self.end(at, None, lane),
                8 if last > 0 && chance.between(0, 2) == 0 => self.end(at, Some(Exit::Code(at as i32)), lane),
                9 if chance.between(0, 4) == 0 => self.flush(lane, blocks),
                10 => {
                    lane.events.thread(self.running[at].thread);
                    lane.events.unknown_free();
                    self.events += 1;
                }
                choice if choice < 60 || self.running[at].held.is_empty() => self.alloc(at, chance, lane),
                choice => self.free(at, choice % 2 == 0, chance, lane),
            }
        }
        self.flush(lane, blocks);
    }

    fn flush(&mut self, lane: &mut Lane, blocks: &mut Vec<RawBlock>) {
        let news = std::mem::take(&mut self.news);
        if !news.is_empty() {
            blocks.push(news.to_block());
        }
        blocks.push(lane.events.take());
    }

    fn start(&mut self, at: usize, start: ProcessStart, chance: &mut Chance, lane: &Lane, blocks: &mut Vec<RawBlock>) {
        let parent = &self.running[at];
        let held = if start == ProcessStart::Forked { parent.held.clone() } else { BTreeSet::new() };
        let program = match start {
            ProcessStart::Forked => parent.entry.command[0].clone(),
            _ => PROGRAMS[chance.between(0, 3) as usize].to_owned(),
        };
        let entry = Process {
            index: self.processes,
            pid: 501 + chance.between(0, 6) as u32,
            parent: Some(parent.entry.index),
            start,
            command: vec![program, format!("part {}", self.processes)],
            start_ns: lane.tick * TICK_NS,
            events_before: self.events,
            inherited_allocations: held.len() as u64,
            inherited_bytes: held.iter().map(|sequence| self.born[sequence].0).sum(),
            ..Process::default()
        };
        let thread = self.threads;
        blocks.push(Thread::to_block(&[Thread { index: thread, tid: 100 + thread, image: 1, name: String::new() }]));
        self.news.processes.push(entry.clone());
        self.news.threads.push((thread, entry.index));
        self.running.push(Member { entry, thread, held });
        (self.threads, self.processes) = (self.threads + 1, self.processes + 1);
    }

    /// Ends a process: by an exit, or by exec if `exit` is `None`.
    fn end(&mut self, at: usize, exit: Option<Exit>, lane: &mut Lane) {
        let Member { mut entry, thread, held } = self.running.swap_remove(at);
        lane.events.thread(thread);
        for sequence in held {
            if self.running.iter().any(|other| other.held.contains(&sequence)) {
                continue;
            }
            let how = match exit {
                _ if self.freed_by_owner.contains(&sequence) => Freed::Dropped,
                Some(_) => Freed::Leaked,
                None => Freed::Replaced,
            };
            lane.events.freed_by(sequence, how);
            self.events += 1;
        }
        entry.end = Some(ProcessEnd {
            at_ns: lane.tick * TICK_NS,
            by_exec: exit.is_none(),
            exit: exit.unwrap_or_default(),
            totals: Totals::default(),
        });
        self.news.processes.retain(|news| news.index != entry.index);
        self.news.processes.push(entry);
    }

    fn alloc(&mut self, at: usize, chance: &mut Chance, lane: &mut Lane) {
        let member = &mut self.running[at];
        lane.events.thread(member.thread);
        let alloc_class = chance.between(0, lane.count);
        let sequence = lane.events.alloc(alloc_class as u32);
        self.born.insert(sequence, (lane.sizes[alloc_class as usize], member.entry.index));
        member.held.insert(sequence);
        self.events += 1;
    }

    fn free(&mut self, at: usize, is_youngest: bool, chance: &mut Chance, lane: &mut Lane) {
        let member = &mut self.running[at];
        lane.events.thread(member.thread);
        let held: Vec<u64> = member.held.iter().copied().collect();
        let place = if is_youngest { held.len() - 1 } else { chance.between(0, held.len() as u64) as usize };
        let sequence = held[place];
        member.held.remove(&sequence);
        if self.born[&sequence].1 == member.entry.index {
            self.freed_by_owner.insert(sequence);
        }
        self.events += 1;
        match chance.between(0, 16) {
            _ if self.running.iter().any(|other| other.held.contains(&sequence)) => lane.events.release(sequence),
            0 => lane.events.free_implied(sequence),
            1..4 => lane.events.free_by_realloc(sequence),
            _ => lane.events.free(sequence),
        }
    }
}
