//! The whole collector on a real memfd. Threads of this process play the target; the expected totals are exact.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod target;

use channel::{Clock, FrameKey, Kind, encode_alloc, encode_free, encode_path};
use collector::{Mapping, Outcome, Plan, Recording, Stats};
use format::{Block, Event, Exit, Freed, Reader};
use std::alloc::Layout;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};

/// What a replay of the file found.
#[derive(Debug, Default)]
struct Replay {
    allocations: u64,
    allocated_bytes: u64,
    frees: u64,
    by_realloc: u64,
    implied: u64,
    unknown: u64,
    live: HashMap<u64, u32>,
    threads: HashMap<u32, format::Thread>,
    events_by_thread: HashMap<u32, u64>,
    modules: Vec<format::Module>,
    alloc_classes: Vec<format::AllocClass>,
    stacks: Vec<format::StackNode>,
    samples: usize,
    checkpoints: usize,
    session: Option<format::Session>,
    summary: Option<format::Summary>,
    losses: format::Losses,
    last_ns: u64,
    file_bytes: u64,
}

fn replay(path: &Path) -> Replay {
    let mut reader = Reader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut found = Replay { file_bytes: std::fs::metadata(path).unwrap().len(), ..Replay::default() };
    let mut thread;
    while let Some(block) = reader.next_block().unwrap() {
        match block.decode().unwrap() {
            Block::Session(session) => found.session = Some(session),
            Block::Modules(modules) => found.modules.extend(modules),
            Block::Threads(threads) => found.threads.extend(threads.into_iter().map(|t| (t.index, t))),
            Block::Stacks(stacks) => found.stacks.extend(stacks.nodes),
            Block::AllocClasses(alloc_classes) => found.alloc_classes.extend(alloc_classes.alloc_classes),
            Block::Samples(samples) => found.samples += samples.len(),
            Block::Losses(losses) => found.losses = losses,
            Block::Checkpoint(checkpoint) => {
                found.checkpoints += 1;
                let mut live: HashMap<u32, u64> = HashMap::new();
                found.live.values().for_each(|alloc_class| *live.entry(*alloc_class).or_default() += 1);
                assert_eq!(checkpoint.live.iter().copied().collect::<HashMap<_, _>>(), live);
                assert_eq!(checkpoint.next_sequence, found.allocations);
            }
            Block::Summary(summary) => found.summary = Some(summary),
            Block::Events(mut events) => {
                thread = events.thread();
                while let Some(event) = events.read().unwrap() {
                    if matches!(event, Event::Alloc { .. } | Event::Free { .. } | Event::UnknownFree) {
                        *found.events_by_thread.entry(thread).or_default() += 1;
                    }
                    match event {
                        Event::Alloc { sequence, alloc_class } => {
                            assert_eq!(sequence, found.allocations);
                            found.allocations += 1;
                            found.allocated_bytes += found.alloc_classes[alloc_class as usize].size;
                            found.live.insert(sequence, alloc_class);
                        }
                        Event::Free { sequence, how } => {
                            assert!(found.live.remove(&sequence).is_some(), "freed twice");
                            found.frees += 1;
                            found.implied += (how == Freed::Implied) as u64;
                            found.by_realloc += (how == Freed::Realloc) as u64;
                        }
                        Event::UnknownFree => found.unknown += 1,
                        Event::Release { .. } => panic!("one process releases nothing"),
                        Event::Thread(index) => {
                            assert!(found.threads.contains_key(&index), "a thread before its definition");
                            thread = index;
                        }
                        Event::Time(ns) => {
                            assert!(ns >= found.last_ns);
                            found.last_ns = ns;
                        }
                        Event::Image(_) => found.live.clear(),
                        Event::LatestGone => panic!("nothing was folded"),
                    }
                }
            }
            _ => (),
        }
    }
    found
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("collector-test.{}.{name}.htz", std::process::id()))
}

/// A recording to a file of its own. This process is the target.
struct Session {
    path: PathBuf,
    recording: Recording,
}

impl Session {
    fn start(name: &str, clock: Clock) -> Self {
        Self::with_threads(name, clock, 1)
    }

    /// A recording by so many threads.
    fn with_threads(name: &str, clock: Clock, threads: usize) -> Self {
        let path = file(name);
        let recording =
            Recording::start(Plan { threads: target::exactly(threads), ..target::plan(&path, clock) }).unwrap();
        target::start(recording.mapping());
        Session { path, recording }
    }

    fn mapping(&self) -> &Arc<Mapping> {
        self.recording.mapping()
    }

    fn thread(&self, index: u32) -> target::Thread {
        target::Thread::new(self.mapping(), index)
    }

    /// Runs `body` in a thread of the target. Returns when the thread is gone and the collector has freed its slot.
    fn run_thread(&self, body: impl FnOnce(&mut target::Thread) + Send) {
        let mapping = self.mapping();
        std::thread::scope(|scope| {
            scope.spawn(|| body(&mut target::Thread::new(mapping, 0)));
        });
        let slot = mapping.region().slot(0).unwrap();
        while slot.owner().state() != channel::SlotState::Free {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Ends the recording, and replays and removes its file.
    fn finish(self, exit: Exit) -> (Outcome, Replay) {
        let outcome = self.recording.finish(exit.into()).unwrap();
        let found = replay(&self.path);
        std::fs::remove_file(self.path).unwrap();
        (outcome, found)
    }
}

/// One event of a program with eight threads, as it stands in their rings.
struct Written {
    ring: usize,
    words: Vec<u64>,
}

/// Makes the events of a program whose threads free each other's blocks, with stamps from `start` on. Some frees have a later stamp than the
/// next allocation of their address, and some an earlier one than their own allocation, as it happens when threads hand an address to each
/// other quickly. Some frees have no allocation.
fn written(start: u64, count: u64) -> Vec<Written> {
    let mut rng = fastrand::Rng::with_seed(20);
    let mut live: HashSet<u64> = HashSet::new();
    let mut numbers = [0u32; 8];
    let mut events: Vec<(u64, Written)> = Vec::new();
    let free =
        |stamp, ring, address| (stamp, Written { ring, words: encode_free(Kind::Free, stamp, address).to_vec() });
    let mut alloc = |rng: &mut fastrand::Rng, stamp, ring: usize, address| {
        let (number, mut words) = (&mut numbers[ring], Vec::new());
        if *number == 0 || rng.u8(..50) == 0 {
            *number += 3;
            let frames = [rng.u64(..40), rng.u64(..10), ring as u64].map(|n| FrameKey::new(0, 100 + n, false).0);
            words.extend(encode_path(*number, frames.len(), 0));
            words.extend(frames);
        }
        words.extend(encode_alloc(stamp, address, 8 + rng.u64(..20) * 8, *number + rng.u32(..3)));
        (stamp, Written { ring, words })
    };
    while (events.len() as u64) < count {
        let (stamp, address) = (start + events.len() as u64 * 100, 0x1000 + rng.u64(..5000) * 64);
        let (ring, other) = (rng.usize(..4), 4 + rng.usize(..4));
        match (live.remove(&address), rng.u16(..2000)) {
            // Another thread gets the address again, and its stamp is earlier than that of the free.
            (true, ..100) => {
                live.insert(address);
                events.push(free(stamp + 150, ring, address));
                events.push(alloc(&mut rng, stamp + 100, other, address));
            }
            (true, _) => events.push(free(stamp, ring, address)),
            // Another thread frees the block, and its stamp is earlier than that of the allocation.
            (false, ..100) => {
                events.push(alloc(&mut rng, stamp + 150, ring, address));
                events.push(free(stamp + 100, other, address));
            }
            (false, 100) => events.push(free(stamp, ring, address + 8)),
            (false, _) => {
                live.insert(address);
                events.push(alloc(&mut rng, stamp, ring, address));
            }
        }
    }
    // A ring has its events in the order of their stamps.
    events.sort_by_key(|(stamp, _)| *stamp);
    events.into_iter().map(|(_, written)| written).collect()
}

/// Records the same events with so many threads. Returns what the trace says, event by event, without times.
fn recorded_by(threads: usize, count: u64) -> (Vec<String>, format::Totals) {
    let session = Session::with_threads(&format!("by{threads}"), Clock::Tsc, threads);
    let held = session.thread(8);
    let mut rings: Vec<target::Thread> = (0..8).map(|index| session.thread(index)).collect();
    let start = target::stamp();
    // Nothing can be ordered until this thread leaves its call, so there is much to do at once.
    held.stop_inside(start);
    let events = written(start, count);
    let count = events.len() as u64;
    for Written { ring, words } in events {
        rings[ring].put(&words);
    }
    held.stop_inside(0);
    while Stats::get(&session.recording.stats().events) < count {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(Stats::get(&session.recording.stats().threads), if threads == 1 { 0 } else { threads.min(3) as u64 });
    let outcome = session.recording.finish(Exit::Code(0).into()).unwrap();
    let events = events_of(&session.path);
    std::fs::remove_file(session.path).unwrap();
    (events, outcome.totals)
}

/// Returns all events of a trace but the times, with sizes and stacks instead of numbers.
fn events_of(path: &Path) -> Vec<String> {
    let mut reader = Reader::new(std::fs::File::open(path).unwrap()).unwrap();
    let (mut events, mut classes, mut stacks) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(block) = reader.next_block().unwrap() {
        match block.decode().unwrap() {
            Block::Stacks(new) => stacks.extend(new.nodes),
            Block::AllocClasses(new) => classes.extend(new.alloc_classes),
            Block::Events(mut block) => {
                while let Some(event) = block.read().unwrap() {
                    events.push(match event {
                        Event::Alloc { sequence, alloc_class } => {
                            let class: &format::AllocClass = &classes[alloc_class as usize];
                            let mut frames = Vec::new();
                            let mut stack = class.stack;
                            while stack != 0 {
                                let node: &format::StackNode = &stacks[stack as usize - 1];
                                frames.push(node.frame.0);
                                stack = node.parent;
                            }
                            format!("{sequence}: {} at {frames:?}", class.size)
                        }
                        Event::Time(_) => continue,
                        other => format!("{other:?}"),
                    });
                }
            }
            _ => (),
        }
    }
    events
}

#[test]
fn a_trace_does_not_depend_on_the_number_of_threads() {
    const EVENTS: u64 = 300_000;
    let (expected, totals) = recorded_by(1, EVENTS);
    assert_eq!(totals.allocations + totals.deallocations + totals.unknown_frees, written(0, EVENTS).len() as u64);
    assert_eq!(totals.implied_frees, 0, "the events in the wrong order were put right");
    assert!(totals.unknown_frees > 0 && totals.unknown_frees < 1000, "those of unknown blocks only: {totals:?}");
    for threads in [2, 3, 4] {
        let (events, found) = recorded_by(threads, EVENTS);
        let first = events.iter().zip(&expected).position(|(event, expected)| event != expected);
        assert_eq!(first.map(|at| (at, &events[at], &expected[at])), None, "{threads} threads");
        assert_eq!(events.len(), expected.len(), "{threads} threads");
        let counts = |totals: format::Totals| format::Totals {
            runtime_ns: 0,
            peak_time_ns: 0,
            peak_rss_bytes: 0,
            overhead_bytes: 0,
            ..totals
        };
        assert_eq!(counts(found), counts(totals), "{threads} threads");
    }
}

/// Eight threads make real allocations. They free every third one themselves, and send the others to random threads
/// that free them.
fn cross_thread(clock: Clock, per_thread: u64, threads: usize) {
    let session = Session::with_threads(&format!("cross{threads}"), clock, threads);
    let mapping = session.mapping();
    let (senders, inboxes): (Vec<_>, Vec<_>) = (0..8).map(|_| mpsc::channel::<(usize, usize)>()).unzip();
    let inboxes: Vec<_> = inboxes.into_iter().map(|inbox| Mutex::new(Some(inbox))).collect();
    let bytes = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (index, inbox) in inboxes.iter().enumerate() {
            let (senders, bytes) = (senders.clone(), &bytes);
            scope.spawn(move || {
                let inbox = inbox.lock().unwrap().take().unwrap();
                let mut thread = target::Thread::new(mapping, index as u32);
                let mut rng = fastrand::Rng::with_seed(index as u64 + 1);
                let freed = |thread: &mut target::Thread, address: usize, size: usize| {
                    thread.free(address as u64);
                    let layout = Layout::from_size_align(size, 16).unwrap();
                    // SAFETY: another thread allocated it with this layout (below) and sent it to this thread only.
                    unsafe { std::alloc::dealloc(address as *mut u8, layout) };
                };
                for n in 0..per_thread {
                    let size = 16 + rng.usize(..20) * 8;
                    let layout = Layout::from_size_align(size, 16).unwrap();
                    // SAFETY: the size is not zero.
                    let address = unsafe { std::alloc::alloc(layout) } as usize;
                    if n == 0 {
                        let frame = FrameKey::new(0, 100 + index as u64, false);
                        thread.alloc_new(address as u64, size as u64, 7, 0, &[frame.0]);
                    } else {
                        thread.alloc(address as u64, size as u64, 7);
                    }
                    bytes.fetch_add(size as u64, Ordering::Relaxed);
                    if n % 3 == 0 {
                        freed(&mut thread, address, size);
                    } else {
                        let to = rng.usize(..8);
                        senders[to].send((address, size)).unwrap();
                    }
                    while let Ok((address, size)) = inbox.try_recv() {
                        freed(&mut thread, address, size);
                    }
                }
                drop(senders);
                for (address, size) in inbox {
                    freed(&mut thread, address, size);
                }
            });
        }
        drop(senders);
    });
    let (outcome, found) = session.finish(Exit::Code(3));
    let total = per_thread * 8;
    assert_eq!((found.allocations, found.frees), (total, total));
    assert_eq!((found.unknown, found.implied, found.live.len()), (0, 0, 0));
    assert_eq!(found.allocated_bytes, bytes.load(Ordering::Relaxed));
    assert_eq!(found.threads.len(), 8);
    assert_eq!(found.stacks.len(), 8);
    assert_eq!(found.losses, format::Losses::default());
    let summary = found.summary.unwrap();
    assert_eq!((summary.complete, summary.exit), (true, Exit::Code(3)));
    assert_eq!(summary.totals, outcome.totals);
    assert_eq!((outcome.totals.allocations, outcome.totals.deallocations), (total, total));
    assert_eq!((outcome.totals.leaked_bytes, outcome.totals.leaked_allocations), (0, 0));
    assert_eq!(outcome.events, 2 * total);
    assert_eq!(outcome.file_bytes, found.file_bytes);
    let session = found.session.unwrap();
    assert_eq!((session.pid, session.command.len()), (std::process::id(), 2));
}

#[test]
fn eight_threads_free_each_others_blocks() {
    for threads in 1..=3 {
        cross_thread(Clock::Tsc, 150_000, threads);
    }
}

#[test]
fn one_thread_in_detail() {
    let session = Session::start("detail", Clock::Tsc);
    let mut thread = session.thread(0);
    let (leaf, root) = (50, 51);
    thread.alloc_new(0x1000, 100, leaf, 0, &[FrameKey::new(1, 0x20, false).0, FrameKey::new(1, 0x10, false).0]);
    thread.free(0x1000);
    thread.alloc(0x1000, 50, leaf);
    thread.alloc(0x2000, 70, root);
    thread.realloc_free(0x2000);
    thread.alloc(0x3000, 80, root);
    thread.free(0x9000);
    thread.alloc(0x1000, 1, root);
    thread.alloc(0x4000, 9, 12345);
    let (outcome, found) = session.finish(Exit::Signal(9));
    assert_eq!((found.allocations, found.frees, found.unknown, found.implied, found.by_realloc), (6, 3, 1, 1, 1));
    let totals = outcome.totals;
    assert_eq!((totals.allocated_bytes, totals.temporary), (310, 1));
    assert_eq!((totals.leaked_bytes, totals.leaked_allocations), (90, 3));
    assert_eq!((totals.peak_bytes, totals.peak_allocations), (130, 2));
    assert_eq!((totals.unknown_frees, totals.implied_frees), (1, 1));
    assert_eq!(found.losses.by_cause, [("unreadable_stack".to_owned(), 1)]);
    assert_eq!(found.losses.implied_frees, 1);
    assert_eq!(
        found.alloc_classes.iter().map(|alloc_class| (alloc_class.size, alloc_class.stack)).collect::<Vec<_>>(),
        [(100, 2), (50, 2), (70, 1), (80, 1), (1, 1), (9, 0)]
    );
    assert_eq!(found.stacks[1].parent, 1);
}

#[test]
fn a_new_image_ends_all_blocks() {
    let session = Session::start("image", Clock::Tsc);
    let mut thread = session.thread(0);
    thread.image(1);
    thread.alloc(0x1000, 100, 0);
    thread.image(2);
    thread.free(0x1000);
    thread.alloc(0x1000, 7, 0);
    let (outcome, found) = session.finish(Exit::Code(0));
    assert_eq!((outcome.totals.unknown_frees, outcome.totals.implied_frees), (1, 0));
    assert_eq!((outcome.totals.leaked_bytes, outcome.totals.peak_bytes), (7, 100));
    assert_eq!(found.live.len(), 1);
}

/// A thread that stands still inside a hook holds back the watermark, but not the other threads.
#[test]
fn a_thread_stopped_inside_a_hook_blocks_nobody() {
    let session = Session::start("stopped", Clock::Tsc);
    let stopped = session.thread(0);
    stopped.stop_inside(target::stamp());
    let mut busy = session.thread(1);
    // 6.25 million words are 50 MB, which is more than the 24 MB that the queues keep in memory.
    let events = 2_500_000u64;
    for n in 0..events / 2 {
        busy.alloc(0x1000 + n * 16, 16, 0);
        busy.free(0x1000 + n * 16);
    }
    let seen = collector::Stats::get(&session.recording.stats().events);
    assert_eq!(seen, 0, "the order of no event is known yet");
    stopped.stop_inside(0);
    let (outcome, found) = session.finish(Exit::Code(0));
    assert_eq!(outcome.events, events);
    assert_eq!((found.allocations, found.frees), (events / 2, events / 2));
}

#[test]
fn a_slot_with_nonsense_is_a_counted_loss() {
    let session = Session::start("hostile", Clock::Tsc);
    let (mut honest, mut garbage, _jumped) = (session.thread(0), session.thread(1), session.thread(2));
    garbage.put(&[u64::MAX; 5]);
    session.mapping().region().slot(2).unwrap().head.store(1 << 60, Ordering::Release);
    for n in 0..100_000 {
        honest.alloc(0x1000 + n * 16, 16, 0);
    }
    let (outcome, found) = session.finish(Exit::Code(0));
    assert_eq!(outcome.totals.allocations, 100_000);
    assert!(outcome.losses.lost_events >= 2);
    assert_eq!(found.allocations, 100_000);
}

#[test]
fn a_full_disk_ends_the_file_and_not_the_session() {
    let path = file("full");
    let mut plan = target::plan(&path, Clock::Tsc);
    plan.file = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    // Not even the file's header can be written, so the error comes before the program starts.
    assert!(Recording::start(plan).is_err());
    std::fs::remove_file(path).unwrap();
}

/// Instead of one allocation of a thousand, the thread writes words that the collector skips.
#[test]
fn a_record_that_does_not_arrive_is_a_counted_loss() {
    for removed in [None, Some(0), Some(500), Some(999)] {
        let session = Session::start("audit", Clock::Tsc);
        session.run_thread(|thread| {
            for n in 0..1000 {
                if Some(n) == removed {
                    thread.put(&[channel::Kind::Skip as u64; channel::ALLOC_WORDS]);
                } else {
                    thread.alloc(0x1000 + 16 * n, 16, 0);
                }
            }
        });
        let missing = removed.is_some() as u64;
        // The process lives on, so the thread was not killed with it in the middle of a call.
        while collector::Stats::get(&session.recording.stats().lost_events) < missing {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let (outcome, found) = session.finish(Exit::Code(0));
        assert_eq!(outcome.totals.allocations, 1000 - missing);
        assert_eq!(outcome.losses.lost_events, missing);
        let expected: Vec<(String, u64)> = removed.iter().map(|_| ("missing".to_owned(), 1)).collect();
        assert_eq!(outcome.losses.by_cause, expected);
        assert_eq!(found.losses.lost_events, missing, "the trace says so, too");
    }
}

#[test]
fn threads_that_are_gone_give_their_slots_back() {
    let session = Session::start("threads", Clock::Tsc);
    session.run_thread(|thread| thread.alloc(0x1000, 16, 0));
    session.thread(0).free(0x1000);
    let (outcome, found) = session.finish(Exit::Code(0));
    assert_eq!((outcome.totals.allocations, outcome.totals.deallocations), (1, 1));
    assert_eq!(found.threads.len(), 2);
}

/// SIGKILL and `exit` end the threads of a process one after the other. The collector may find some of them gone before
/// the end.
#[test]
fn a_call_that_the_end_of_the_process_cuts_off_is_no_loss() {
    let session = Session::start("cut-off", Clock::Tsc);
    let mapping = session.mapping();
    session.run_thread(|thread| {
        (0..1000).for_each(|n| thread.alloc(0x1000 + 16 * n, 16, 0));
        mapping.region().slot(0).unwrap().begun.fetch_add(1, Ordering::Relaxed);
    });
    let (outcome, _) = session.finish(Exit::Code(0));
    assert_eq!((outcome.totals.allocations, outcome.losses.lost_events), (1000, 0));
}
