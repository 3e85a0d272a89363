//! The events of a profile, by process: the profiler has a track for each.
//!
//! Receives: events. Must hold: a block counts at the process that allocated it, also if another one frees it, so that the
//! tracks add up to the whole.
use super::course::{Course, Point};
use super::groups::{Group, Groups, OUTSIDE};
use analysis::{BlockEvent, BlockEventKind, Definitions, Range};
use format::{IntMap, Process};

/// The events of a profile.
pub struct Events<'a> {
    definitions: &'a Definitions,
    range: Range,
    tracks: Vec<Track>,
    /// Process, or `UNKNOWN` -> its place in `tracks`.
    track_of: IntMap<u32, usize>,
    bases: IntMap<Option<u32>, u64>,
    /// The course of all processes together. `None` if there are not several.
    together: Option<Course>,
    /// The number of the first block that was allocated within the range. Those before it are older.
    first: Option<u64>,
}

/// No process has this index.
const UNKNOWN: u32 = u32::MAX;

/// The events of one process.
pub(super) struct Track {
    /// `None` if the trace is of one process, or if the part of the file with the thread's process is lost.
    pub(super) process: Option<u32>,
    pub(super) groups: Groups,
    pub(super) course: Course,
}

impl<'a> Events<'a> {
    /// `bases`: what was live when the range began, by the index of the process that allocated it.
    pub fn new(definitions: &'a Definitions, range: Range, bases: IntMap<Option<u32>, u64>) -> Self {
        let is_tree = !definitions.processes.is_empty();
        let base = bases.values().copied().fold(0, u64::saturating_add);
        let mut events = Events {
            definitions,
            range,
            tracks: Vec::new(),
            track_of: IntMap::default(),
            bases,
            together: is_tree.then(|| Course::new(range, base)),
            first: None,
        };
        let based: Vec<Option<u32>> = events.bases.keys().copied().collect();
        for process in based {
            events.track(process);
        }
        events
    }

    /// Adds an event. Those of a trace must come in their order.
    pub fn add(&mut self, event: &BlockEvent) {
        if event.kind == BlockEventKind::Alloc {
            self.first.get_or_insert(event.sequence);
        }
        let is_older = self.first.is_none_or(|first| event.sequence < first);
        if let Some(together) = &mut self.together {
            together.add(event);
        }
        let process = self.definitions.process_of_thread.get(&event.born_thread).copied();
        let track = self.track(process);
        track.groups.add(event, is_older);
        track.course.add(event);
    }

    #[inline]
    fn track(&mut self, process: Option<u32>) -> &mut Track {
        let next = self.tracks.len();
        let at = *self.track_of.entry(process.unwrap_or(UNKNOWN)).or_insert(next);
        if at == next {
            let base = self.bases.get(&process).copied().unwrap_or(0);
            self.tracks.push(Track {
                process,
                groups: Groups::new(self.range, self.definitions.site_count(), self.definitions.processes.len()),
                course: Course::new(self.range, base),
            });
        }
        &mut self.tracks[at]
    }

    /// The tracks in the order of the processes, at least one, and the course of all processes if there are several.
    pub(super) fn finish(mut self) -> (Vec<Track>, Option<Vec<Point>>) {
        if self.tracks.is_empty() {
            let first = self.definitions.processes.keys().next().copied();
            self.track(first);
        }
        // A process that is not known comes last.
        self.tracks.sort_by_key(|track| track.process.unwrap_or(UNKNOWN));
        let together = self.together.filter(|_| self.tracks.len() > 1).map(Course::finish);
        (self.tracks, together)
    }
}

/// The process that a track shows.
pub(super) struct Label {
    pub(super) name: String,
    /// The profiler shows all tracks with the same text as one process, so it has a suffix if a number was used again.
    pub(super) pid: String,
    pub(super) tid: u32,
    /// Since the range began.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

/// The labels of tracks, in their order.
pub(super) fn labels(definitions: &Definitions, range: &Range, tracks: &[Track]) -> Vec<Label> {
    let length_ns = range.to_ns - range.from_ns;
    let mut used: IntMap<u32, u32> = IntMap::default();
    let mut label = |name: &str, pid: u32, (start_ns, end_ns): (u64, u64)| {
        let times = used.entry(pid).or_default();
        *times += 1;
        let pid_text = if *times == 1 { pid.to_string() } else { format!("{pid}.{times}") };
        Label { name: name.to_owned(), pid: pid_text, tid: pid, start_ns, end_ns }
    };
    let within = |at_ns: u64| at_ns.saturating_sub(range.from_ns).min(length_ns);
    let lived = |process: &Process| (within(process.start_ns), process.end.map_or(length_ns, |end| within(end.at_ns)));
    let session = &definitions.session;
    let path = session.command.first().map_or(session.exe.as_str(), String::as_str);
    let one = |track: &Track| match track.process.and_then(|process| definitions.processes.get(&process)) {
        Some(process) => label(process.name(), process.pid, lived(process)),
        None if definitions.processes.is_empty() => {
            label(path.rsplit('/').next().unwrap_or(path), session.pid, (0, length_ns))
        }
        None => label("unknown process", 0, (0, length_ns)),
    };
    tracks.iter().map(one).collect()
}

/// For each place that was not freed, the track with the most bytes of its first stack. Both lists are in their order.
pub(super) fn track_of_leaks(groups: &[Vec<Group>], leaks: &[analysis::view::Leak]) -> Vec<usize> {
    let mut most: IntMap<u32, (u64, usize)> = IntMap::default();
    for (track, groups) in groups.iter().enumerate() {
        let mut held: IntMap<u32, u64> = IntMap::default();
        for group in groups.iter().filter(|group| group.died == OUTSIDE) {
            let sum = held.entry(group.site).or_default();
            *sum = sum.saturating_add(group.bytes);
        }
        for (site, bytes) in held {
            let known = most.entry(site).or_insert((bytes, track));
            if bytes > known.0 {
                *known = (bytes, track);
            }
        }
    }
    leaks.iter().map(|leak| most.get(&leak.stack).map_or(0, |(_, track)| *track)).collect()
}
