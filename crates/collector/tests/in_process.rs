//! The whole collector on a real memfd. Threads of this process play the target; the expected totals are exact.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod target;

use channel::{Clock, FrameKey};
use collector::{Mapping, Outcome, Recording};
use format::{Block, Event, Exit, Freed, Reader};
use std::alloc::Layout;
use std::collections::HashMap;
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
        let path = file(name);
        let recording = Recording::start(target::plan(&path, clock)).unwrap();
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

/// Eight threads make real allocations. They free every third one themselves, and send the others to random threads
/// that free them.
fn cross_thread(clock: Clock, per_thread: u64, name: &str) {
    let session = Session::start(name, clock);
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
    cross_thread(Clock::Tsc, 300_000, "cross");
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
