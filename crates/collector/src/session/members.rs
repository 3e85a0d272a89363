//! The processes of a followed tree besides the first one.
//!
//! Receives: the hub's offers that processes take. Returns: the rings of these processes, to the same merge as those of the first process. Must
//! hold: shared memory that is on offer takes part in the watermark, so that no event of a new process comes too late; offers that were
//! taken are replaced; a process that ended is ended in the trace after its last event.
use super::Collector;
use crate::drain::{Drain, Drained};
use crate::ends::{Ended, Ends};
use crate::mapping::{HubPage, Mapping, Setup, SharedHeader, thread_exists};
use crate::merge::Merge;
use crate::modules::text;
use crate::proc_files::Process;
use crate::stats::Stats;
use crate::tree::{Joining, Number};
use channel::{Hub, LONGEST_COMMAND, Loss, OfferState, Stamp};
use format::{Exit, Losses, ProcessStart};
use rustix::thread::futex;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of open offers while no process joins, and while many do.
const FEW: usize = 4;
const MANY: usize = channel::OFFERS;
/// How long a program that was executed may take until it joins. It waits for shared memory for three seconds at most.
const JOIN_PATIENCE_NS: u64 = 5_000_000_000;
/// How long after its fork a child can execute a program before its pid is known, which its parent tells. Later, a process with this
/// pid may be another one.
const FORK_PATIENCE_NS: u64 = 1_000_000_000;
/// How long the events of others wait for a process that ends itself.
const EXIT_PATIENCE_NS: u64 = 100_000_000;
/// The most processes that are recorded at the same time.
const MOST: usize = 1024;

/// A process that has shared memory.
struct Member {
    pid: u32,
    number: Number,
    header: SharedHeader,
    drain: Drain,
    files: Process,
    /// The path of its program, as the kernel named it at first.
    exe: Option<String>,
    /// The stamp at which it was found to have ended, or to have called exec.
    ended_at: Option<Stamp>,
    by_exec: bool,
    exit: Exit,
}

/// A process that was forked and has no shared memory yet.
struct Silent {
    pid: u32,
    number: Number,
    files: Process,
    /// The stamp at which it was found to have ended, or to have called exec.
    ended_at: Option<Stamp>,
    by_exec: bool,
    exit: Exit,
}

pub(super) struct Members {
    page: Arc<HubPage>,
    /// `None` if the kernel cannot tell; then /proc is looked at in every round.
    ends: Option<Ends>,
    setup: Setup,
    /// By the place of the offer.
    spares: Vec<Option<Arc<Mapping>>>,
    wanted: usize,
    members: Vec<Member>,
    silent: Vec<Silent>,
    /// The first process, while its first program runs.
    first: Option<First>,
    /// The first program was replaced with exec by another one.
    pub(super) is_first_replaced: bool,
    /// Processes that have executed a program which could not be patched, and when. An entry stays until the process is known here.
    left: Vec<(u32, Stamp)>,
    /// Losses of processes that have ended, by cause, and events that were begun and did not arrive.
    lost: [u64; Loss::COUNT],
    missing: u64,
    stopped_slots: u64,
    waited_ns: u64,
}

struct First {
    pid: u32,
    files: Process,
    number: Number,
    /// The path of its program, as the kernel named it at first.
    exe: Option<String>,
    /// The stamp at which it was found to have ended, or to have called exec.
    ended_at: Option<Stamp>,
    by_exec: bool,
    exit: Exit,
}

impl Members {
    pub(super) fn new(page: Arc<HubPage>, setup: Setup) -> Self {
        let spares = page.hub().offers.iter().map(|_| None).collect();
        Members {
            ends: Ends::start(page.hub()),
            page,
            setup,
            spares,
            wanted: FEW,
            members: Vec::new(),
            silent: Vec::new(),
            first: None,
            is_first_replaced: false,
            left: Vec::new(),
            lost: [0; Loss::COUNT],
            missing: 0,
            stopped_slots: 0,
            waited_ns: 0,
        }
    }

    pub(super) fn hub(&self) -> &'static Hub {
        self.page.hub()
    }

    /// Returns true if processes have ended since the last call.
    pub(super) fn take_news(&self) -> bool {
        self.ends.as_ref().is_some_and(Ends::take_news)
    }

    fn watch(&self, pid: u32) {
        if let Some(ends) = &self.ends {
            ends.watch(pid);
        }
    }

    /// Forgets the end of a process, unless another entry has its pid.
    fn forget(&self, pid: u32) {
        let is_needed = self.members.iter().any(|one| one.pid == pid) || self.silent.iter().any(|one| one.pid == pid);
        if let Some(ends) = self.ends.as_ref().filter(|_| !is_needed) {
            ends.forget(pid);
        }
    }

    /// All shared memory but that of the first process.
    pub(super) fn mappings(&self) -> Vec<&Arc<Mapping>> {
        self.members.iter().map(|member| member.drain.mapping()).chain(self.spares.iter().flatten()).collect()
    }

    /// The path of the program of a process that forks. The kernel may know another program by now.
    fn exe_of(&self, pid: u32) -> Option<String> {
        let member = self.members.iter().rev().find(|member| member.pid == pid).and_then(|member| member.exe.clone());
        member.or_else(|| self.first.as_ref().filter(|first| first.pid == pid)?.exe.clone())
    }

    /// Ends the programs that were replaced by one which could not be patched. If such a process is not known and `oldest` is
    /// later, it is forgotten.
    fn end_left(&mut self, oldest: Stamp) {
        self.left.extend(self.page.take_left());
        for (pid, at) in std::mem::take(&mut self.left) {
            let silent = self.silent.iter_mut().filter(|one| one.pid == pid);
            let first = self.first.iter_mut().filter(|one| one.pid == pid);
            let member = self.members.iter_mut().rev().find(|one| one.pid == pid);
            let ends = silent
                .map(|one| (&mut one.ended_at, &mut one.by_exec))
                .chain(first.map(|one| (&mut one.ended_at, &mut one.by_exec)))
                .chain(member.map(|one| (&mut one.ended_at, &mut one.by_exec)));
            let mut is_known = false;
            for (ended_at, by_exec) in ends {
                is_known = true;
                *by_exec = true;
                *ended_at = Some(ended_at.unwrap_or(at).min(at));
            }
            // The pid of a child is known when its parent's event is merged.
            if !is_known && at >= oldest {
                self.left.push((pid, at));
            }
        }
    }

    /// Offers shared memory to processes that start.
    pub(super) fn offer(&mut self) {
        let hub = self.page.hub();
        let open = self.spares.iter().flatten().count();
        let missing = self.wanted.min(MOST.saturating_sub(self.members.len())).saturating_sub(open);
        if missing == 0 {
            return;
        }
        let places = self.spares.iter_mut().zip(&hub.offers).filter(|(spare, _)| spare.is_none());
        for (spare, offer) in places.take(missing) {
            // If there is not enough memory now, offers are made later.
            let Ok(mapping) = Mapping::create_named(&self.setup, self.page.offer_name) else { break };
            mapping.region().header().collector_alive.store(1, Ordering::Release);
            offer.put(mapping.fd().as_raw_fd() as u32);
            let mapping = Arc::new(mapping);
            self.page.add_mapping(&mapping);
            *spare = Some(mapping);
        }
        hub.served.fetch_add(1, Ordering::AcqRel);
        let _ = futex::wake(&hub.served, futex::Flags::empty(), i32::MAX as u32);
    }

    /// Returns the shared memory that processes took since the last call, and their pids.
    fn taken(&mut self) -> Vec<(u32, Arc<Mapping>)> {
        let mut taken = Vec::new();
        for (spare, offer) in self.spares.iter_mut().zip(&self.page.hub().offers) {
            let Some(mapping) = spare else { continue };
            let pid = mapping.region().header().target_pid.load(Ordering::Acquire);
            if pid != 0 {
                offer.clear();
                taken.extend(spare.take().map(|mapping| (pid, mapping)));
            } else if let OfferState::Taken { pid, .. } = offer.state()
                && !thread_exists(pid, pid)
            {
                // The process that took it died before it could join, so the offer can be used again.
                offer.put(mapping.fd().as_raw_fd() as u32);
            }
        }
        // A process may have forked and replaced itself since the last call.
        taken.sort_by_key(|(_, mapping)| mapping.region().header().origin.order.load(Ordering::Relaxed));
        self.wanted = (self.wanted + 2 * taken.len()).clamp(FEW, MANY);
        if taken.is_empty() && self.wanted > FEW {
            self.wanted -= 1;
        }
        taken
    }

    pub(super) fn empty_rings(&mut self, merge: &mut Merge, drained: &mut Drained) {
        for member in &mut self.members {
            let one = member.drain.empty_rings(merge.ordering());
            drained.words += one.words;
            drained.fullest = drained.fullest.max(one.fullest);
            drained.is_partial |= one.is_partial;
        }
    }

    pub(super) fn drains(&mut self) -> impl Iterator<Item = &mut Drain> {
        self.members.iter_mut().map(|member| &mut member.drain)
    }

    pub(super) fn is_any_half_full(&self) -> bool {
        self.members.iter().any(|member| member.drain.is_any_half_full())
    }

    fn begun(&self) -> Vec<Vec<u64>> {
        self.members.iter().map(|member| member.drain.begun()).collect()
    }

    /// Adds what was lost in all processes but the first.
    pub(super) fn add_losses(&self, losses: &mut Losses) {
        let mut add = |name: &str, count: u64, is_event: bool| {
            if count == 0 {
                return;
            }
            match losses.by_cause.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = known.saturating_add(count),
                None => losses.by_cause.push((name.to_owned(), count)),
            }
            losses.lost_events = losses.lost_events.saturating_add(if is_event { count } else { 0 });
        };
        for cause in Loss::ALL {
            let of = |member: &Member| member.header.losses[cause as usize].load(Ordering::Relaxed);
            let count = self.lost[cause as usize] + self.members.iter().map(of).sum::<u64>();
            add(cause.name(), count, cause.is_event());
        }
        add(
            "unreadable_ring",
            self.stopped_slots + self.members.iter().map(|one| one.drain.stopped_slots()).sum::<u64>(),
            true,
        );
        add("missing", self.missing + self.members.iter().map(|one| one.drain.missing()).sum::<u64>(), true);
    }

    pub(super) fn waited_ns(&self) -> u64 {
        let of = |member: &Member| member.header.waited_ns.load(Ordering::Relaxed);
        self.waited_ns + self.members.iter().map(of).sum::<u64>()
    }

    /// The resident memory of all processes but the first.
    pub(super) fn rss_bytes(&self) -> u64 {
        self.members.iter().filter_map(|member| member.files.rss_bytes()).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.members.len() + self.silent.len() + self.first.is_some() as usize
    }

    /// Keeps what is known of a process that has ended.
    fn bury(&mut self, member: &Member) {
        for (sum, count) in self.lost.iter_mut().zip(&member.header.losses) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.missing += member.drain.missing();
        self.stopped_slots += member.drain.stopped_slots();
        self.waited_ns += member.header.waited_ns.load(Ordering::Relaxed);
    }
}

/// A text that the process stored.
fn stored(mapping: &Mapping, place: &AtomicU64) -> Option<String> {
    let place = place.load(Ordering::Relaxed);
    text(&mapping.region(), (place >> 32) as u32, place as u32).filter(|text| !text.is_empty())
}

/// The command line as the process stored it at its start. The kernel is asked if the process stored nothing or not all of it
/// (`capture::follow`). The kernel's text is not the first choice: it is cut short if the process ends while it is read, and
/// it is that of the next program after an exec.
fn command(mapping: &Mapping, files: &Process) -> Vec<String> {
    let stored = stored(mapping, &mapping.region().header().origin.command).unwrap_or_default();
    let words: Vec<String> = stored.split_terminator('\0').map(str::to_owned).collect();
    if stored.ends_with('\0') && stored.len() < LONGEST_COMMAND as usize {
        return words;
    }
    let known = files.command();
    if known.join("\0").starts_with(&stored) { known } else { words }
}

/// The stamp at which a process with several threads began to end itself.
fn exits_at(header: &SharedHeader) -> Option<Stamp> {
    Some(header.exits_at.load(Ordering::Acquire)).filter(|stamp| *stamp != 0)
}

/// How a process ended: as the kernel says, or as a process with several threads said itself.
fn exit_of(end: Ended, header: &SharedHeader) -> Exit {
    match (end.exit, exits_at(header)) {
        (Exit::Unknown, Some(_)) => Exit::Code((header.exit_code.load(Ordering::Relaxed) & 0xff) as i32),
        (exit, _) => exit,
    }
}

/// Returns how a process has ended, or `None` if it runs.
fn end_of(ends: &Option<Ends>, pid: u32, files: &Process, now: Stamp) -> Option<Ended> {
    match ends.as_ref().and_then(|ends| ends.of(pid)) {
        Some(end) => end,
        None => files.has_ended().then_some(Ended { exit: Exit::Unknown, noticed_at: now }),
    }
}

/// When the process has executed a program that is not recorded. `None` if it has not. Until the process has another program than `exe`, the exec may
/// still fail. A program that can be recorded joins soon; if it has not until `latest`, it will not.
fn left_at(
    header: &SharedHeader,
    files: &Process,
    exe: &Option<String>,
    has_ended: bool,
    latest: Stamp,
) -> Option<Stamp> {
    let left_at = header.left_at.load(Ordering::Acquire);
    let image = header.image.load(Ordering::Acquire);
    let is_leaving = image != 0 && header.leaving.load(Ordering::Acquire) == image;
    let is_unrecorded = || header.unrecorded_exec.load(Ordering::Acquire) != 0;
    let has_left = is_leaving && (has_ended || (is_unrecorded() || left_at < latest) && files.exe() != *exe);
    has_left.then_some(left_at)
}

impl Collector {
    /// True if the first program of a followed tree was replaced with exec by one that is recorded.
    pub(crate) fn is_first_replaced(&self) -> bool {
        self.members.as_ref().is_some_and(|members| members.is_first_replaced)
    }

    pub(crate) fn hub(&self) -> Option<&'static Hub> {
        self.members.as_ref().map(Members::hub)
    }

    /// The first process of the tree has started.
    pub(super) fn join_first(&mut self, pid: u32) {
        let Some(members) = &mut self.members else { return };
        let joining = Joining {
            pid,
            parent_pid: 0,
            fork: 0,
            start: if self.plan.attached.is_some() { ProcessStart::Attached } else { ProcessStart::Launched },
            command: self.plan.command.clone(),
            exe: self.plan.exe.clone(),
            mapping: Arc::clone(&self.mapping),
            files: Process::new(pid),
        };
        if let Some(number) = self.recorder.join(joining) {
            members.watch(pid);
            let files = Process::new(pid);
            let exe = Some(self.plan.exe.clone());
            let (ended_at, by_exec, exit) = (None, false, Exit::Unknown);
            members.first = Some(First { pid, files, number, exe, ended_at, by_exec, exit });
        }
    }

    /// Adds the processes that took shared memory, and ends programs that were replaced by one which could not be patched.
    pub(super) fn welcome(&mut self) {
        let oldest = self.last_watermark.saturating_sub(self.recorder.timeline.stamps_in(FORK_PATIENCE_NS));
        let Some(members) = &mut self.members else { return };
        for (number, pid) in self.recorder.take_new_pids() {
            members.watch(pid);
            let (ended_at, by_exec, exit) = (None, false, Exit::Unknown);
            members.silent.push(Silent { pid, number, files: Process::new(pid), ended_at, by_exec, exit });
        }
        for (pid, mapping) in members.taken() {
            let (header, files) = (SharedHeader::of(&mapping), Process::new(pid));
            let is_forked = header.origin.is_forked.load(Ordering::Relaxed) != 0;
            let of_parent = members.exe_of(header.origin.parent_pid.load(Ordering::Relaxed)).filter(|_| is_forked);
            let exe = of_parent.or_else(|| stored(&mapping, &header.origin.exe)).or_else(|| files.exe());
            let joining = Joining {
                pid,
                parent_pid: header.origin.parent_pid.load(Ordering::Relaxed),
                fork: header.origin.fork.load(Ordering::Relaxed),
                start: if is_forked { ProcessStart::Forked } else { ProcessStart::Spawned },
                command: command(&mapping, &files),
                exe: stored(&mapping, &header.origin.exe).or_else(|| files.exe()).unwrap_or_default(),
                mapping: Arc::clone(&mapping),
                files: Process::new(pid),
            };
            let Some(number) = self.recorder.join(joining) else { continue };
            members.silent.retain(|silent| silent.pid != pid);
            members.watch(pid);
            members.members.push(Member {
                pid,
                number,
                header,
                exe,
                drain: Drain::new(mapping, number),
                files,
                ended_at: None,
                by_exec: false,
                exit: Exit::Unknown,
            });
        }
        members.end_left(oldest);
        members.offer();
        Stats::set(&self.stats.processes, members.count() as u64);
    }

    /// Finds processes that have ended. Called before new processes join and before the rings are emptied. So a process that has taken shared
    /// memory joins before it is ended, and all its events are drained in this round.
    pub(super) fn find_ended(&mut self, now: Stamp) {
        let latest = now.saturating_sub(self.recorder.timeline.stamps_in(JOIN_PATIENCE_NS));
        let Some(members) = &mut self.members else { return };
        if let Some(first) = &mut members.first {
            let is_replaced = members.members.iter().any(|one| one.pid == first.pid);
            let end = end_of(&members.ends, first.pid, &first.files, now);
            let left_at = left_at(&self.header, &first.files, &first.exe, end.is_some(), latest);
            if first.ended_at.is_none() && (is_replaced || left_at.is_some() || end.is_some()) {
                let ended_at = || end.map_or(now, |end| end.at(exits_at(&self.header)));
                first.ended_at = Some(left_at.unwrap_or_else(ended_at));
                first.by_exec = is_replaced || left_at.is_some();
                first.exit = end.map_or(Exit::Unknown, |end| exit_of(end, &self.header));
            }
        }
        for silent in members.silent.iter_mut().filter(|silent| silent.ended_at.is_none()) {
            if let Some(end) = end_of(&members.ends, silent.pid, &silent.files, now) {
                (silent.ended_at, silent.exit) = (Some(end.noticed_at), end.exit);
            }
        }
        let pids: Vec<u32> = members.members.iter().map(|member| member.pid).collect();
        for (at, member) in members.members.iter_mut().enumerate() {
            // A later member with the same pid is the program that replaced this one.
            let is_replaced = pids.get(at + 1..).is_some_and(|later| later.contains(&member.pid));
            if member.ended_at.is_some() {
                continue;
            }
            let end = end_of(&members.ends, member.pid, &member.files, now);
            let left_at = left_at(&member.header, &member.files, &member.exe, end.is_some(), latest);
            if is_replaced || left_at.is_some() || end.is_some() {
                let ended_at = || end.map_or(now, |end| end.at(exits_at(&member.header)));
                member.ended_at = Some(left_at.unwrap_or_else(ended_at));
                member.by_exec |= left_at.is_some();
                member.exit = end.map_or(Exit::Unknown, |end| exit_of(end, &member.header));
            }
        }
    }

    /// Returns the stamp up to which events can be merged now. While a process with several threads ends itself, that is the stamp at
    /// which it began, because the events of others may be after its end, which is known in a moment.
    pub(super) fn before_exits(&self, watermark: Stamp, now: Stamp) -> Stamp {
        let Some(members) = &self.members else { return watermark };
        let first = members.first.iter().filter(|one| one.ended_at.is_none()).map(|_| &self.header);
        let others = members.members.iter().filter(|one| one.ended_at.is_none()).map(|one| &one.header);
        let longest = self.recorder.timeline.stamps_in(EXIT_PATIENCE_NS);
        let exits = first.chain(others).filter_map(exits_at).filter(|stamp| now.saturating_sub(*stamp) < longest);
        exits.fold(watermark, Stamp::min)
    }

    /// The stamps before the watermark at which processes were found to have ended, in their order.
    pub(super) fn ends_before(&self, watermark: Stamp) -> Vec<Stamp> {
        let Some(members) = &self.members else { return Vec::new() };
        let first = members.first.iter().filter_map(|one| one.ended_at);
        let silent = members.silent.iter().filter_map(|one| one.ended_at);
        let all = first.chain(silent).chain(members.members.iter().filter_map(|one| one.ended_at));
        let mut stamps: Vec<Stamp> = all.filter(|stamp| *stamp < watermark).collect();
        stamps.sort_unstable();
        stamps.dedup();
        stamps
    }

    /// Ends the processes that were found to have ended at `until` or before, and whose events are all merged.
    pub(super) fn end_processes(&mut self, until: Stamp) {
        let Some(mut members) = self.members.take() else { return };
        let is_over = |ended_at: Option<Stamp>| ended_at.is_some_and(|stamp| stamp <= until);
        if let Some(First { pid, number, ended_at: Some(stamp), by_exec, exit, .. }) = members.first
            && is_over(Some(stamp))
            && self.drain.is_empty(&self.merge)
        {
            let by_exec = by_exec || members.members.iter().any(|member| member.pid == pid);
            members.first = None;
            members.is_first_replaced = by_exec;
            self.recorder.end_process(number, by_exec, if by_exec { Exit::Unknown } else { exit }, stamp);
        }
        let over: Vec<u32> = members.silent.iter().filter(|one| is_over(one.ended_at)).map(|one| one.pid).collect();
        members.silent.retain(|silent| {
            if let Some(stamp) = silent.ended_at.filter(|stamp| *stamp <= until) {
                self.recorder.end_process(silent.number, silent.by_exec, silent.exit, stamp);
            }
            !is_over(silent.ended_at)
        });
        over.into_iter().for_each(|pid| members.forget(pid));
        // A program that has replaced itself and ended may have joined only now.
        let pids: Vec<u32> = members.members.iter().map(|member| member.pid).collect();
        for (at, member) in members.members.iter_mut().enumerate() {
            member.by_exec |= pids.get(at + 1..).is_some_and(|later| later.contains(&member.pid));
        }
        let merge = &mut self.merge;
        let (over, running): (Vec<Member>, Vec<Member>) = std::mem::take(&mut members.members)
            .into_iter()
            .partition(|member| is_over(member.ended_at) && member.drain.is_empty(merge));
        members.members = running;
        for member in over {
            members.bury(&member);
            let exit = if member.by_exec { Exit::Unknown } else { member.exit };
            self.recorder.end_process(member.number, member.by_exec, exit, member.ended_at.unwrap_or(0));
            members.forget(member.pid);
            self.recorder.forget_rings(member.number, member.drain.numbers());
            member.drain.numbers().for_each(|number| merge.ordering().drop_slot(number));
        }
        self.members = Some(members);
    }

    /// What is asked of the kernel from time to time, for all processes but the first.
    pub(super) fn look_at_members(&mut self) {
        let Some(members) = &mut self.members else { return };
        for member in &mut members.members {
            member.drain.reap(&member.files, &self.merge);
            let is_known = member.header.no_syscalls.load(Ordering::Acquire) != 0;
            if !is_known && member.files.has_own_filter() {
                member.header.no_syscalls.fetch_or(channel::NO_CALLS_SEEN, Ordering::AcqRel);
            }
        }
    }

    /// Stops recording in all processes. Returns what their threads had begun, for `audit_members`.
    pub(super) fn stop_members(&mut self) -> Vec<Vec<u64>> {
        let Some(members) = &self.members else { return Vec::new() };
        for mapping in members.mappings() {
            mapping.region().header().phase.store(channel::Phase::Stopped as u32, Ordering::Release);
        }
        members.begun()
    }

    pub(super) fn audit_members(&mut self, begun: &[Vec<u64>]) {
        let Some(members) = &mut self.members else { return };
        for (member, begun) in members.members.iter_mut().zip(begun) {
            member.drain.audit_all(&self.merge, begun);
        }
    }

    /// The recording is over. What the processes hold stays live in the trace. `exit`: how the first process ended, as far as the
    /// caller knows. Returns how it ended.
    pub(super) fn finish_members(&mut self, exit: Exit) -> Exit {
        if let Some((ends, first)) = self.members.as_ref().and_then(|one| one.ends.as_ref().zip(one.first.as_ref())) {
            ends.look(first.pid);
        }
        self.find_ended(self.last_watermark);
        let Some(mut members) = self.members.take() else { return exit };
        let noticed = members.first.as_ref().map(|first| first.exit).or_else(|| self.recorder.exit_of_first());
        let exit = if exit == Exit::Unknown { noticed.unwrap_or(exit) } else { exit };
        match &members.first {
            Some(First { number, ended_at: Some(stamp), by_exec: true, .. }) => {
                members.is_first_replaced = true;
                self.recorder.end_process(*number, true, Exit::Unknown, *stamp);
            }
            Some(first) => self.recorder.finish_process(first.number, exit),
            None => (),
        }
        for member in &members.members {
            if let (Some(stamp), true) = (member.ended_at, member.by_exec) {
                self.recorder.end_process(member.number, true, Exit::Unknown, stamp);
                continue;
            }
            let exit = if member.ended_at.is_some() { member.exit } else { Exit::Detached };
            self.recorder.finish_process(member.number, exit);
        }
        for silent in &members.silent {
            self.recorder.finish_process(silent.number, Exit::Detached);
        }
        self.recorder.set_exit_of_first(exit);
        self.members = Some(members);
        exit
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::mapping::tests::tight;

    /// The kernel's text of a process that ends meanwhile is cut, and after an exec it is that of another program.
    #[test]
    fn the_command_is_what_the_process_stored() {
        let mapping = Mapping::create(&tight()).unwrap();
        let ourselves = Process::new(std::process::id());
        let store = |text: &str| {
            text.bytes().zip(mapping.region().names()).for_each(|(byte, place)| place.store(byte, Ordering::Relaxed));
            mapping.region().header().origin.command.store(text.len() as u64, Ordering::Relaxed);
        };
        assert_eq!(command(&mapping, &ourselves), ourselves.command(), "nothing is stored");
        store("make\0-j2\0");
        assert_eq!(command(&mapping, &ourselves), ["make", "-j2"]);
        let cut = &ourselves.command()[0][..5];
        store(cut);
        assert_eq!(command(&mapping, &ourselves), ourselves.command(), "the stored text is its beginning");
    }
}
