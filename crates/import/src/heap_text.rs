//! The heap profiles of gperftools (and of tcmalloc's sampler) and of jemalloc: text with addresses.
//!
//! Must hold: if only some allocations were sampled, numbers are scaled up as the tools' own readers do it. A block of
//! size S is sampled with the probability 1 - exp(-S / rate). tcmalloc's sampler writes a line for each block, so fractions
//! of blocks are added up by stack before they are cut off.
use crate::{Frame, HeapProfile, Kind, LONGEST_PATH, MOST_MODULES, Module, Stack, VALUES, Value, Values};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Live blocks and bytes, then all of them.
type Counts = [u64; 4];

pub(crate) fn read_gperftools(text: &str) -> Result<HeapProfile, String> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let (_, kind) = header.rsplit_once('@').ok_or("its first line is cut off")?;
    let rate = match kind.trim().split_once('/') {
        Some(("heap_v2", rate)) => rate.parse().map_err(|_| "its first line has no sampling rate")?,
        // The older form has twice the rate.
        Some(("heap", rate)) => rate.parse::<u64>().map_err(|_| "its first line has no sampling rate")? / 2,
        _ if kind.trim() == "heapprofile" => 1,
        _ => return Err(format!("it is of the unknown kind {}", kind.trim())),
    };
    let mut reader = Reader::new(Kind::Gperftools, rate);
    // The heap profiler counts every call. tcmalloc's sampler repeats the live blocks instead.
    reader.has_all = rate == 1;
    for line in lines.by_ref() {
        if line.starts_with("MAPPED_LIBRARIES") {
            break;
        }
        let Some((counts, addresses)) = line.split_once('@') else { continue };
        reader.stack(counts_of(counts)?, addresses)?;
    }
    Ok(reader.finish(lines))
}

pub(crate) fn read_jemalloc(text: &str) -> Result<HeapProfile, String> {
    let mut lines = text.lines();
    let rate = lines.next().and_then(|line| line.strip_prefix("heap_v2/")).and_then(|rate| rate.trim().parse().ok());
    let mut reader = Reader::new(Kind::Jemalloc, rate.ok_or("its first line has no sampling rate")?);
    let mut addresses = None;
    for line in lines.by_ref() {
        if line.starts_with("MAPPED_LIBRARIES") {
            break;
        }
        if let Some(stack) = line.strip_prefix('@') {
            addresses = Some(stack);
        } else if let (Some(counts), Some(stack)) = (line.trim_start().strip_prefix("t*:"), addresses) {
            reader.stack(counts_of(counts)?, stack)?;
        }
    }
    Ok(reader.finish(lines))
}

/// Reads `BLOCKS: BYTES [ALL BLOCKS: ALL BYTES]`.
fn counts_of(text: &str) -> Result<Counts, String> {
    let numbers = text.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty());
    let numbers: Option<Vec<u64>> = numbers.map(|word| word.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| {
        format!("a line does not have four numbers: {}", text.trim().chars().take(60).collect::<String>())
    })
}

struct Reader {
    profile: HeapProfile,
    rate: u64,
    frames: HashMap<u64, u32>,
    has_all: bool,
    /// If blocks were sampled: the estimates of each stack of the profile, and the stacks by the hashes of their frames.
    estimates: Vec<[f64; 4]>,
    by_hash: HashMap<u64, usize>,
}

impl Reader {
    fn new(kind: Kind, rate: u64) -> Self {
        let mut profile = HeapProfile::new(kind);
        profile.sampled_every = Some(rate).filter(|rate| *rate > 1);
        let (estimates, by_hash) = (Vec::new(), HashMap::new());
        Reader { profile, rate, frames: HashMap::new(), has_all: false, estimates, by_hash }
    }

    fn stack(&mut self, counts: Counts, addresses: &str) -> Result<(), String> {
        let mut frames = Vec::new();
        for word in addresses.split_whitespace() {
            let digits = word.strip_prefix("0x").unwrap_or(word);
            let address = u64::from_str_radix(digits, 16).map_err(|_| format!("an address is {word}"))?;
            let next = self.profile.frames.len() as u32;
            let number = *self.frames.entry(address).or_insert(next);
            if number == next {
                self.profile.frames.push(Frame { address, ..Frame::default() });
            }
            frames.push(number);
        }
        let [live, live_bytes, all, all_bytes] = counts;
        // jemalloc without prof_accum writes zeros.
        let repeats = self.profile.kind == Kind::Gperftools && (all, all_bytes) == (live, live_bytes);
        self.has_all |= all != 0 && !repeats;
        if self.rate <= 1 {
            return self.profile.add_stack(Stack { frames, values: values_of(counts) });
        }
        let (live, all) = (scaled(live, live_bytes, self.rate), scaled(all, all_bytes, self.rate));
        let estimate = [live.0, live.1, all.0, all.1];
        let at = self.sampled_stack(frames)?;
        self.estimates[at].iter_mut().zip(estimate).for_each(|(sum, value)| *sum += value);
        Ok(())
    }

    /// Returns the index of the stack with these frames, and adds it if it is new.
    fn sampled_stack(&mut self, frames: Vec<u32>) -> Result<usize, String> {
        let mut hasher = DefaultHasher::new();
        frames.hash(&mut hasher);
        let next = self.profile.stacks.len();
        let known = *self.by_hash.entry(hasher.finish()).or_insert(next);
        if self.profile.stacks.get(known).is_some_and(|stack| stack.frames == frames) {
            return Ok(known);
        }
        self.profile.add_stack(Stack { frames, values: [0; VALUES] })?;
        self.estimates.push([0.0; 4]);
        Ok(next)
    }

    /// `maps`: the lines of /proc/PID/maps.
    fn finish<'a>(self, maps: impl Iterator<Item = &'a str>) -> HeapProfile {
        let mut profile = self.profile;
        for (stack, estimates) in profile.stacks.iter_mut().zip(self.estimates) {
            stack.values = values_of(estimates.map(|estimate| estimate as u64));
        }
        profile.known = vec![Value::LiveAllocations, Value::LiveBytes];
        if self.has_all {
            profile.known.extend([Value::Allocations, Value::AllocatedBytes]);
        } else {
            for stack in &mut profile.stacks {
                stack.values[Value::Allocations as usize] = 0;
                stack.values[Value::AllocatedBytes as usize] = 0;
            }
        }
        profile.modules = maps.filter_map(module).take(MOST_MODULES).collect();
        profile.modules.sort_by_key(|module| module.start);
        for frame in &mut profile.frames {
            let after = profile.modules.partition_point(|module| module.start <= frame.address);
            let found = after.checked_sub(1).filter(|at| frame.address < profile.modules[*at].end);
            frame.module = found;
        }
        profile
    }
}

/// Reads `START-END r-xp OFFSET DEVICE INODE PATH`.
fn module(line: &str) -> Option<Module> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let _rights = words.next()?;
    let offset = words.next()?;
    let path = words.nth(2).filter(|path| path.len() <= LONGEST_PATH)?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    Some(Module {
        path: path.to_owned(),
        build_id: Vec::new(),
        start: hex(start)?,
        end: hex(end)?,
        file_offset: hex(offset)?,
    })
}

fn values_of([live, live_bytes, all, all_bytes]: Counts) -> Values {
    let mut values = [0; VALUES];
    values[Value::LiveAllocations as usize] = live;
    values[Value::LiveBytes as usize] = live_bytes;
    values[Value::Allocations as usize] = all;
    values[Value::AllocatedBytes as usize] = all_bytes;
    values
}

/// Estimates how many blocks and bytes there were.
fn scaled(count: u64, bytes: u64, rate: u64) -> (f64, f64) {
    if count == 0 || bytes == 0 {
        return (count as f64, bytes as f64);
    }
    let mean = bytes as f64 / count as f64;
    let scale = 1.0 / (1.0 - (-mean / rate as f64).exp());
    (count as f64 * scale, bytes as f64 * scale)
}
