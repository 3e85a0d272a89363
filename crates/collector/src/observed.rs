//! The facts that are known at the end about places where a program may have allocated without being recorded.
//!
//! The collector has the facts. The front end looks at the modules' files and makes sentences of both.
use crate::session::Collector;
use channel::{Header, Hub, UnrecordedExec};
use format::{MemoryInstant, Module, Unseen};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Called once, at the end of a session, on the collecting thread.
pub type Inspect = Box<dyn FnOnce(&Observed<'_>) -> Vec<Unseen> + Send>;

#[derive(Debug)]
pub struct Observed<'a> {
    pub pid: u32,
    /// The program was running already when the recording started.
    pub is_attached: bool,
    /// The program has installed a system call filter of its own.
    pub is_sandboxed: bool,
    pub replaced: Option<Replaced>,
    /// How often an allocator freed many blocks at once of which it is not known which they were.
    pub unknown_heap_ends: u64,
    /// The last look at the memory, if the program's mappings and all blocks were recorded: a large block that was not
    /// sampled is a mapping of its own, too.
    pub last_look: Option<Arc<MemoryInstant>>,
    /// Every module that was ever loaded, with its `channel::ModuleFlags`.
    pub modules: Vec<(&'a Module, u32)>,
    pub unrecorded: UnrecordedProcesses,
}

/// The processes of a followed tree that ran unrecorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnrecordedProcesses {
    /// The name of a program, why it was not recorded, and how often it ran.
    pub programs: Vec<(String, UnrecordedExec, u32)>,
    /// Runs of further programs.
    pub more: u32,
    /// Processes that could not join.
    pub missed: u32,
}

impl UnrecordedProcesses {
    pub(crate) fn of(hub: &Hub) -> Self {
        let places = hub.unrecorded.iter().filter_map(|place| {
            let why = UnrecordedExec::from_word(place.why.load(Ordering::Acquire))?;
            let count = place.count.load(Ordering::Relaxed);
            (count > 0).then(|| (text_of(&place.name), why, count))
        });
        UnrecordedProcesses {
            programs: places.collect(),
            more: hub.more_unrecorded.load(Ordering::Relaxed),
            missed: hub.missed.load(Ordering::Relaxed),
        }
    }
}

/// The program executed another one that did not record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The path of the new program, or the name that was searched in PATH. Empty if the exec was by a descriptor, or if
    /// the target was in a sandbox, where the capture library may not read the path.
    pub by: String,
    pub time_ns: u64,
    /// The reason, if the target found it before the exec.
    pub why: Option<UnrecordedExec>,
}

impl Collector {
    pub(crate) fn observed(&self, replaced: Option<Replaced>) -> Observed<'_> {
        let region = self.mapping.region();
        let raw = region.modules();
        let flags = |module: &Module| {
            raw.get((module.instance as usize).wrapping_sub(1)).map_or(0, |raw| raw.flags.load(Ordering::Relaxed))
        };
        let explains_mappings = self.header.records_maps != 0 && self.plan.setup.sampling.rate == 0;
        Observed {
            pid: self.header.target_pid.load(Ordering::Acquire),
            is_attached: self.plan.attached.is_some(),
            is_sandboxed: self.header.no_syscalls.load(Ordering::Acquire) != 0,
            replaced,
            unknown_heap_ends: self.recorder.unknown_heap_ends(),
            last_look: self.memory_looks.latest().filter(|_| explains_mappings),
            unrecorded: self.hub().map(UnrecordedProcesses::of).unwrap_or_default(),
            modules: self.recorder.modules().iter().map(|module| (module, flags(module))).collect(),
        }
    }

    /// If the last image executed a program that did not record, its blocks are gone: they are neither freed nor
    /// leaked.
    pub(crate) fn end_replaced_image(&mut self) -> Option<Replaced> {
        let image = self.header.image.load(Ordering::Acquire);
        if self.is_first_replaced() || image == 0 || self.header.leaving.load(Ordering::Acquire) != image {
            return None;
        }
        let stamp = self.header.left_at.load(Ordering::Relaxed);
        self.recorder.end_image(stamp, image.saturating_add(1));
        let why = UnrecordedExec::from_word(self.header.unrecorded_exec.load(Ordering::Relaxed));
        Some(Replaced { by: left_for(&self.header), time_ns: self.recorder.timeline.ns(stamp), why })
    }
}

fn left_for(header: &Header) -> String {
    text_of(&header.left_for)
}

/// A text that a target has stored, up to its first zero byte.
fn text_of(words: &[AtomicU64]) -> String {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    String::from_utf8_lossy(&bytes).into_owned()
}
