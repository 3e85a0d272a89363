//! Makes sampled traces out of an exact one, by the sampler that runs in targets, and compares what they estimate.
use crate::run::heaptrack;
use channel::{Sampler, SamplingSetup};
use format::{Block, BlockKind, Event, EventEncoder, FileWriter, RawBlock, Reader, Sampling, Session};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Totals that a sampled recording estimates, and the bytes on which it depends how many blocks are taken.
pub const TOTALS: [(&str, &str); 6] = [
    ("allocations", "allocated_bytes"),
    ("allocated_bytes", "allocated_bytes"),
    ("leaked_allocations", "leaked_bytes"),
    ("leaked_bytes", "leaked_bytes"),
    ("peak_allocations", "peak_bytes"),
    ("peak_bytes", "peak_bytes"),
];

/// Writes the trace that a recording with `--sample` of the same run would have written. Each thread has a sampler of its
/// own, as in a target.
pub fn resample(exact: &Path, sampled: &Path, setup: SamplingSetup) {
    let mut reader = Reader::open(exact).expect("a trace");
    let mut writer = FileWriter::new(File::create(sampled).expect("writable"), 1).expect("writable");
    let mut state = Resampling::new(setup);
    while let Some(block) = reader.next_block().expect("readable") {
        let block = block.clone();
        match block.decode().expect("intact") {
            Block::Session(session) => {
                let sampling = Some(Sampling { rate: setup.rate, exact_above: setup.exact_above });
                writer.write(&Session { sampling, ..session }.to_block()).expect("writable");
            }
            Block::AllocClasses(classes) => {
                state.sizes.extend(classes.alloc_classes.iter().map(|class| class.size));
                writer.write(&block).expect("writable");
            }
            Block::Events(mut events) => {
                while let Some(event) = events.read().expect("intact") {
                    state.event(event);
                }
                let block: RawBlock = state.encoder.take();
                writer.write(&block).expect("writable");
            }
            _ if matches!(block.kind, BlockKind::Checkpoint | BlockKind::Index | BlockKind::MemoryParts) => {}
            _ => drop(writer.write(&block).expect("writable")),
        }
    }
    writer.finish().expect("writable");
}

struct Resampling {
    setup: SamplingSetup,
    sizes: Vec<u64>,
    encoder: EventEncoder,
    thread: u32,
    samplers: HashMap<u32, Sampler>,
    /// The sequence numbers of blocks that were taken: in the exact trace, and in the sampled one.
    taken: HashMap<u64, u64>,
    /// The latest block of each thread, in the exact trace.
    latest: HashMap<u32, u64>,
}

impl Resampling {
    fn new(setup: SamplingSetup) -> Self {
        Resampling {
            setup,
            sizes: Vec::new(),
            encoder: EventEncoder::new(),
            thread: 0,
            samplers: HashMap::new(),
            taken: HashMap::new(),
            latest: HashMap::new(),
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Thread(thread) => {
                self.thread = thread;
                self.encoder.thread(thread);
            }
            Event::Time(ns) => self.encoder.time(ns),
            Event::Image(image) => self.encoder.image(image),
            Event::Alloc { sequence, alloc_class } => {
                let setup = self.setup;
                let sampler =
                    self.samplers.entry(self.thread).or_insert_with_key(|thread| Sampler::new(setup, (*thread).into()));
                self.latest.insert(self.thread, sequence);
                if sampler.takes(self.sizes[alloc_class as usize]) {
                    self.taken.insert(sequence, self.encoder.alloc(alloc_class));
                }
            }
            Event::Free { sequence, how } => {
                let Some(own) = self.taken.remove(&sequence) else { return };
                match how {
                    format::Freed::Call if self.latest.get(&self.thread) == Some(&sequence) => self.encoder.free(own),
                    format::Freed::Call | format::Freed::Realloc => self.encoder.free_by_realloc(own),
                    how => self.encoder.freed_by(own, how),
                }
            }
            Event::UnknownFree | Event::Release { .. } | Event::LatestGone => {}
        }
    }
}

/// How often intervals held the truth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    pub held: u64,
    pub tried: u64,
}

impl Coverage {
    pub fn add(&mut self, truth: u64, estimate: u64, error: u64) {
        self.tried += 1;
        self.held += u64::from(truth.abs_diff(estimate) <= error);
    }

    pub fn merge(&mut self, other: Coverage) {
        self.held += other.held;
        self.tried += other.tried;
    }

    pub fn percent(self) -> f64 {
        self.held as f64 * 100.0 / self.tried as f64
    }
}

/// The totals of a trace, and at most `stacks` of its stacks, those with the most allocations.
pub fn report(trace: &Path, stacks: usize) -> Value {
    let rows = stacks.to_string();
    let arguments = ["print", "--json", "--no-suppressions", "--cost", "allocations", "--limit", &rows];
    let output = Command::new(heaptrack()).args(arguments).arg(trace).output().expect("heaptrack");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub fn total(report: &Value, name: &str) -> u64 {
    report["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", report["totals"]))
}

/// Adds whether each total of `sampled` is within its interval of the one of `exact`. Totals of which less than 20 blocks
/// are expected in the sample are counted separately.
pub fn cover_totals(exact: &Value, sampled: &Value, into: &mut HashMap<String, Coverage>) {
    let rate = sampled["sampling"]["rate_bytes"].as_u64().expect("a rate");
    for (name, bytes) in TOTALS {
        let error = total(sampled, &format!("{name}_error"));
        let few = if total(exact, bytes) < 20 * rate { " of small totals" } else { "" };
        into.entry(format!("{name}{few}")).or_default().add(total(exact, name), total(sampled, name), error);
    }
}

/// Adds the same for each stack of `exact`: its bytes and its blocks. Stacks of which less than 20 blocks are expected in
/// the sample are counted separately. About the blocks of a stack that is not in the sample nothing is said, and its bytes
/// are at most three times the rate.
pub fn cover_stacks(exact: &Value, sampled: &Value, rate: u64, into: &mut HashMap<String, Coverage>) {
    let stacks = |report: &Value| -> HashMap<String, Value> {
        let list = report["allocations"].as_array().expect("a list").clone();
        list.into_iter().map(|entry| (entry["frames"].to_string(), entry)).collect()
    };
    let number = |entry: &Value, name: &str| entry[name].as_u64().expect("a number");
    let found = stacks(sampled);
    for (frames, truth) in stacks(exact) {
        let few = if number(&truth, "allocated_bytes") < 20 * rate { " of small stacks" } else { " of stacks" };
        let Some(entry) = found.get(&frames) else {
            let bytes = into.entry(format!("allocated_bytes{few}")).or_default();
            bytes.add(number(&truth, "allocated_bytes"), 0, 3 * rate);
            continue;
        };
        for name in ["allocations", "allocated_bytes"] {
            let error = number(entry, &format!("{name}_error"));
            into.entry(format!("{name}{few}")).or_default().add(number(&truth, name), number(entry, name), error);
        }
    }
}
