//! How much a trace holds, and how much memory its readers need, found out before its events are read.
//!
//! Receives: an open file. Returns: the numbers of allocation classes, stacks and live blocks, and from these the memory
//! that a reader needs. Must hold: only a few blocks of the file are read; the most live blocks are at least those that
//! a replay would count.
use crate::shared_bytes::{ReadAt, SharedBytes};
use format::{Block, BlockKind, Domain, Index, IndexEntry, LiveBlocks, Reader, Summary};
#[cfg(unix)]
use std::fs::File;
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;

/// What is known of a trace before its events are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Its allocation classes.
    pub alloc_classes: u64,
    /// Nodes of the stack tree.
    pub stack_nodes: u64,
    /// Its allocations.
    pub allocations: u64,
    /// Bytes of names, unpacked.
    pub name_bytes: u64,
    /// Blocks of the file.
    pub file_blocks: u64,
    /// At some moment, this many allocations were live.
    pub live_at_least: u64,
    /// At no moment, more allocations than this were live.
    pub live_at_most: u64,
    /// The checkpoints, in the order of time.
    pub moments: Vec<ExtentMoment>,
}

/// A checkpoint of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentMoment {
    /// When it is.
    pub time_ns: u64,
    /// The allocations up to then.
    pub allocations: u64,
    /// Live blocks.
    pub live: u64,
    /// The most live blocks up to here.
    pub live_at_most: u64,
}

/// What a reader keeps of each live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Its allocation class: the whole session, and exports that need only its sums.
    Session,
    /// Also its thread and its time: ranges, moments, verdicts, most views, and exports by thread or by event.
    Range,
    /// As `Range`, and twice as much at the start of the range: `trim`.
    Trim,
}

/// What is there independent of the trace: the program, buffers, and the blocks that wait between two threads.
const BASE: u64 = 48 << 20;
/// The memory for each allocation class and each node of a stack, while the tables that hold them grow.
const PER_ALLOC_CLASS: u64 = 192;
const PER_STACK_NODE: u64 = 640;
/// The memory for each unpacked byte of names: the texts are held by the definitions and by the table of stacks.
const PER_NAME_BYTE: u64 = 6;
/// The memory for each block of the file: its entry in the index.
const PER_FILE_BLOCK: u64 = 128;

impl Extent {
    /// Reads the extent of a trace. `None` for a file of KDE's heaptrack, which does not say how much it holds, and for a
    /// file that cannot be read.
    #[cfg(unix)]
    pub fn of(path: impl AsRef<Path>, domain: Domain) -> Option<Self> {
        // A pipe or a device could block for ever when it is opened.
        if !std::fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        Self::of_bytes(Arc::new(File::open(path).ok()?), domain)
    }

    /// As [`Extent::of`], for bytes.
    pub fn of_bytes(bytes: Arc<dyn ReadAt>, domain: Domain) -> Option<Self> {
        let mut reader = Reader::new(SharedBytes::new(bytes)).ok()?;
        reader.set_domain(domain);
        let index = match reader.index().ok()? {
            Some(index) => index,
            None => reader.headers().ok()?,
        };
        Some(Self::read(&mut reader, &index, domain))
    }

    fn read(reader: &mut Reader<SharedBytes>, index: &Index, domain: Domain) -> Self {
        let entries = |kind: BlockKind| index.entries.iter().filter(move |entry| kind_of(entry, domain) == Some(kind));
        let events_after = |offset: u64| -> u64 {
            let later = entries(BlockKind::Events).filter(|entry| entry.offset >= offset);
            // An allocation takes at least two bytes before it is packed.
            later.map(|entry| entry.raw_len as u64 / 2).sum()
        };
        let mut extent = Extent { file_blocks: index.entries.len() as u64, ..Extent::default() };
        extent.name_bytes = entries(BlockKind::Symbols).map(|entry| entry.raw_len as u64).sum();
        if let Some(Block::AllocClasses(last)) =
            entries(BlockKind::AllocClasses).next_back().and_then(|entry| block(reader, entry))
        {
            extent.alloc_classes = (last.first as u64).saturating_add(last.alloc_classes.len() as u64);
        }
        if let Some(Block::Stacks(last)) = entries(BlockKind::Stacks).next_back().and_then(|entry| block(reader, entry))
        {
            extent.stack_nodes = (last.first as u64).saturating_add(last.nodes.len() as u64);
        }
        let mut live = LiveBound::default();
        let mut counted = 0;
        for entry in entries(BlockKind::Checkpoint) {
            if let Some(Block::Checkpoint(point)) = block(reader, entry) {
                live.reach(point.totals.allocations, point.totals.leaked_allocations);
                extent.moments.push(ExtentMoment {
                    time_ns: point.time_ns,
                    allocations: live.allocations,
                    live: live.live,
                    live_at_most: live.at_most,
                });
                counted = entry.offset;
            }
        }
        let rest = events_after(counted);
        let end = match entries(BlockKind::Summary).next_back().and_then(|entry| block(reader, entry)) {
            Some(Block::Summary(Summary { totals, .. })) => {
                live.at_least = live.at_least.max(totals.peak_allocations);
                totals.allocations.min(live.allocations.saturating_add(rest))
            }
            _ => live.allocations.saturating_add(rest),
        };
        live.reach(end, 0);
        extent.allocations = live.allocations;
        (extent.live_at_least, extent.live_at_most) = (live.at_least.min(live.at_most), live.at_most);
        extent
    }

    /// The most memory that a reader needs, in bytes.
    pub fn most_bytes(&self, reading: Reading) -> u64 {
        self.bytes(reading, self.live_at_most, self.allocations)
    }

    /// The memory that a reader needs for the blocks that are known to have been live at the same time.
    pub fn least_bytes(&self, reading: Reading) -> u64 {
        self.bytes(reading, self.live_at_least, self.allocations)
    }

    /// The extent of the trace up to a time.
    #[must_use]
    pub fn until(&self, time_ns: u64) -> Self {
        let Some(end) = self.moments.iter().position(|moment| moment.time_ns >= time_ns) else { return self.clone() };
        let mut extent = Extent { moments: self.moments[..=end].to_vec(), ..self.clone() };
        if let Some(last) = extent.moments.pop() {
            (extent.allocations, extent.live_at_most) = (last.allocations, last.live_at_most);
        }
        extent.live_at_least = extent.moments.iter().map(|moment| moment.live).max().unwrap_or(0);
        extent
    }

    /// The latest checkpoint up to which `trim` needs at most this much memory. `None` if there is none.
    pub fn latest_within(&self, bytes: u64) -> Option<ExtentMoment> {
        let fits =
            |moment: &&ExtentMoment| self.bytes(Reading::Range, moment.live_at_most, moment.allocations) <= bytes;
        self.moments.iter().rev().find(fits).copied()
    }

    fn bytes(&self, reading: Reading, live: u64, allocations: u64) -> u64 {
        let blocks = match reading {
            Reading::Session => LiveBlocks::<u32>::most_bytes(live, allocations),
            Reading::Range => analysis::most_bytes_of_live_blocks(live, allocations),
            Reading::Trim => analysis::most_bytes_of_live_blocks(live, allocations).saturating_mul(2),
        };
        let tables = self
            .alloc_classes
            .saturating_mul(PER_ALLOC_CLASS)
            .saturating_add(self.stack_nodes.saturating_mul(PER_STACK_NODE))
            .saturating_add(self.name_bytes.saturating_mul(PER_NAME_BYTE))
            .saturating_add(self.file_blocks.saturating_mul(PER_FILE_BLOCK));
        blocks.saturating_add(tables).saturating_add(BASE)
    }
}

/// Bounds of the number of live blocks, from moments at which it is known.
#[derive(Default)]
struct LiveBound {
    at_least: u64,
    at_most: u64,
    /// Live at the last moment, and (below) allocations up to it.
    live: u64,
    allocations: u64,
}

impl LiveBound {
    /// Adds the next moment. Between two moments, the number is highest if all allocations come before all frees.
    fn reach(&mut self, allocations: u64, live: u64) {
        let between = allocations.saturating_sub(self.allocations);
        self.at_most = self.at_most.max(self.live.saturating_add(between));
        self.at_least = self.at_least.max(live);
        (self.live, self.allocations) = (live, allocations.max(self.allocations));
    }
}

/// The kind that a block has for a reader of this domain.
fn kind_of(entry: &IndexEntry, domain: Domain) -> Option<BlockKind> {
    BlockKind::from_number(entry.kind)?.in_domain(domain)
}

/// `None` if the block cannot be read.
fn block<'a>(reader: &'a mut Reader<SharedBytes>, entry: &IndexEntry) -> Option<Block<'a>> {
    reader.seek(entry.offset).ok()?;
    reader.next_block().ok()??.decode().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::{AllocClassEncoder, Checkpoint, EventEncoder, FileWriter, Frame, StackEncoder, Totals};
    use std::path::PathBuf;

    /// A file that is removed at the end of the test.
    struct Trace(PathBuf);

    impl Drop for Trace {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// For each step: this many allocations, then this many frees of the oldest blocks, then a checkpoint.
    fn trace(name: &str, steps: &[(u64, u64)]) -> Trace {
        let path = std::env::temp_dir().join(format!("heaptrack-extent-{name}.{}", std::process::id()));
        let mut out = FileWriter::new(File::create(&path).unwrap(), 1).unwrap();
        let (mut stacks, mut classes, mut events) =
            (StackEncoder::new(), AllocClassEncoder::new(), EventEncoder::new());
        let mut stack = 0;
        for level in 0..7 {
            stack = stacks.push(stack, Frame::new(0, 0x1000 + level, false));
        }
        out.write(&stacks.take()).unwrap();
        for size in 0..5 {
            classes.push(size, stack);
        }
        out.write(&classes.take()).unwrap();
        let mut totals = Totals::default();
        for (number, (allocations, frees)) in steps.iter().enumerate() {
            for _ in 0..*allocations {
                events.alloc(4);
            }
            totals.peak_allocations = totals.peak_allocations.max(totals.leaked_allocations + allocations);
            (totals.deallocations..totals.deallocations + frees).for_each(|number| events.free(number));
            out.write(&events.take()).unwrap();
            totals.allocations += allocations;
            totals.deallocations += frees;
            totals.leaked_allocations = totals.allocations - totals.deallocations;
            let time_ns = number as u64 * 1000;
            out.write(&Checkpoint { time_ns, totals, ..Checkpoint::default() }.to_block()).unwrap();
        }
        out.write(&Summary { totals, ..Summary::default() }.to_block()).unwrap();
        out.finish().unwrap();
        Trace(path)
    }

    #[test]
    fn a_finished_trace_says_what_it_holds() {
        let trace = trace("finished", &[(1000, 400), (500, 1000), (300, 0)]);
        let extent = Extent::of(&trace.0, Domain::Malloc).unwrap();
        assert_eq!((extent.alloc_classes, extent.stack_nodes, extent.allocations), (5, 8, 1800));
        assert_eq!((extent.live_at_least, extent.live_at_most), (1100, 1100), "600 live blocks and 500 new ones");
        let moment =
            |time_ns, allocations, live, live_at_most| ExtentMoment { time_ns, allocations, live, live_at_most };
        assert_eq!(
            extent.moments,
            [moment(0, 1000, 600, 1000), moment(1000, 1500, 100, 1100), moment(2000, 1800, 400, 1100)]
        );
        let until = extent.until(1);
        assert_eq!((until.allocations, until.live_at_least, until.live_at_most), (1500, 600, 1100));
        assert_eq!(extent.until(2001).live_at_most, 1100);
        assert_eq!(Extent::of(&trace.0, Domain::Custom).unwrap().live_at_most, 0);
    }

    #[test]
    fn an_unfinished_trace_is_bounded_by_its_bytes() {
        let trace = trace("cut", &[(1000, 400), (90_000, 90_000)]);
        let whole = Extent::of(&trace.0, Domain::Malloc).unwrap();
        let index = Reader::open(&trace.0).unwrap().index().unwrap().unwrap();
        let mut checkpoints =
            index.entries.iter().filter(|entry| kind_of(entry, Domain::Malloc) == Some(BlockKind::Checkpoint));
        // The file ends before its second checkpoint, so 90,000 allocations follow the first one.
        let end = checkpoints.nth(1).unwrap().offset;
        File::options().write(true).open(&trace.0).unwrap().set_len(end).unwrap();
        let cut = Extent::of(&trace.0, Domain::Malloc).unwrap();
        assert_eq!((whole.live_at_least, whole.live_at_most, cut.live_at_least), (90_600, 90_600, 600));
        assert!((90_600..2 * 90_600).contains(&cut.live_at_most), "{cut:?}");
        assert_eq!((cut.alloc_classes, cut.stack_nodes), (5, 8));
    }

    #[test]
    fn the_bound_is_never_below_the_truth() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..30 {
            let (mut steps, mut live, mut highest) = (Vec::new(), 0, 0);
            for _ in 0..random(6) {
                let allocations = random(500);
                let frees = random(live + allocations + 1);
                highest = highest.max(live + allocations);
                live = live + allocations - frees;
                steps.push((allocations, frees));
            }
            let trace = trace("random", &steps);
            let extent = Extent::of(&trace.0, Domain::Malloc).unwrap();
            assert_eq!((extent.live_at_least, extent.live_at_most), (highest, highest), "{steps:?}");
        }
    }

    #[test]
    fn the_need_of_a_billion_events_is_known() {
        let extent = Extent {
            allocations: 550_000_000,
            live_at_least: 100_000_000,
            live_at_most: 100_000_000,
            ..Extent::default()
        };
        let megabytes = |reading| extent.most_bytes(reading) / 1_000_000;
        assert_eq!([Reading::Session, Reading::Range, Reading::Trim].map(megabytes), [832, 2686, 5322]);
    }

    #[test]
    fn other_files_have_no_extent() {
        assert_eq!(Extent::of("/tmp", Domain::Malloc), None);
        assert_eq!(Extent::of("/dev/null", Domain::Malloc), None);
        assert_eq!(Extent::of("/proc/self/cmdline", Domain::Malloc), None);
    }
}
