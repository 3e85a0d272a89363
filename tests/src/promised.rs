//! What must be in a trace whose recorder is killed together with the program: everything that the program had done
//! 200 ms before. Time in which the recorder could run but got no processor does not count, because on a busy machine
//! it can be any length.
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

const PROMISE: Duration = Duration::from_millis(200);
const INTERVAL: Duration = Duration::from_millis(5);

struct Look<T> {
    time: Instant,
    /// How long the recorder had waited for a processor by then.
    waited: Duration,
    /// The calls that the program had finished by then.
    finished: T,
}

/// The time that the threads of a process have waited for a processor, including threads that have ended since.
struct Waits {
    pid: u32,
    by_thread: HashMap<String, u64>,
}

impl Waits {
    fn so_far(&mut self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        for thread in threads {
            if let Some(waited) = waited_ns(&thread.path()) {
                self.by_thread.insert(thread.file_name().to_string_lossy().into_owned(), waited);
            }
        }
        Duration::from_nanos(self.by_thread.values().sum())
    }
}

/// The second number of `schedstat`. `None` if the thread is gone.
fn waited_ns(thread: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Watches `finished` for `duration`. Returns its value at the last look that the promise covers if the recorder is
/// killed now, or the default value if there was no such look.
pub fn watch<T: Clone + Default>(recorder: u32, duration: Duration, finished: impl Fn() -> T) -> T {
    let mut waits = Waits { pid: recorder, by_thread: HashMap::new() };
    let mut looks = Vec::new();
    let until = Instant::now() + duration;
    while Instant::now() < until {
        looks.push(Look { time: Instant::now(), waited: waits.so_far(), finished: finished() });
        std::thread::sleep(INTERVAL);
    }
    let waited = waits.so_far();
    let is_due = |look: &&Look<T>| look.time.elapsed() >= PROMISE + waited.saturating_sub(look.waited);
    looks.iter().take_while(is_due).last().map_or_else(T::default, |look| look.finished.clone())
}
