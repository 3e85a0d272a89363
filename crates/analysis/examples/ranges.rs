//! Measures how long questions about an open trace take: `ranges FILE [QUESTIONS]`. The ranges are random; the seed is
//! printed.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
use analysis::{Blocks, Engine, Query};
use format::{BlockKind, RawBlock, Reader};
use std::fs::File;
use std::time::{Duration, Instant};

struct Places {
    reader: Reader<File>,
    places: Vec<u64>,
}

impl Blocks for Places {
    fn events(&mut self, number: usize) -> Option<&RawBlock> {
        let place = *self.places.get(number)?;
        if self.reader.offset() != place {
            self.reader.seek(place).ok()?;
        }
        self.reader.next_block().ok()?
    }
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap().split_whitespace().nth(1).unwrap().to_owned()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let path = words.next().unwrap();
    let questions = words.next().map_or(20, |word| word.parse().unwrap());
    let seed: u64 = std::env::var("HEAPTRACK_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("HEAPTRACK_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (wall, start) = (Instant::now(), cpu());
    let mut engine = Engine::indexed();
    let mut reader = Reader::open(&path).unwrap();
    let mut places = Vec::new();
    loop {
        let place = reader.offset();
        let Some(block) = reader.next_block().unwrap() else { break };
        if block.kind == BlockKind::Events {
            places.push(place);
        }
        engine.add(block);
    }
    let events = engine.totals().allocations + engine.totals().deallocations;
    println!(
        "opened {events} events in {:.2} s, {:.2} s of CPU, {} KB",
        wall.elapsed().as_secs_f64(),
        (cpu() - start).as_secs_f64(),
        memory()
    );
    let mut blocks = Places { reader: Reader::open(&path).unwrap(), places };
    let runtime = engine.runtime_ns();
    let mut times: Vec<(Duration, Duration)> = (0..questions)
        .map(|_| {
            let (a, b) = (rng.u64(1..=runtime), rng.u64(1..=runtime));
            let query = Query::new(
                [("from", format!("{}ns", a.min(b))), ("to", format!("{}ns", a.max(b)))]
                    .iter()
                    .map(|(name, value)| (*name, value.as_str())),
            )
            .unwrap();
            let (wall, start) = (Instant::now(), cpu());
            engine.profile(&mut blocks, &query).unwrap();
            (cpu() - start, wall.elapsed())
        })
        .collect();
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{questions} ranges: CPU median {:.1} ms, most {:.1} ms; wall most {:.1} ms; {} KB",
        ms(times[times.len() / 2].0),
        ms(times[times.len() - 1].0),
        times.iter().map(|(_, wall)| ms(*wall)).fold(0.0, f64::max),
        memory()
    );
}
