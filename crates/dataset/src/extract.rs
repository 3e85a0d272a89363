//! From an opened trace to the rows of all tables.
//!
//! Receives: a trace and what is said about it on the command line. Returns: rows. Must hold: numbers are those of
//! `heaptrack print --json`, which are estimates if blocks were sampled; what a heap profile does not know is null.
use crate::parquet_file::ROW_GROUP;
use crate::rows::{Cell, Rows};
use crate::schema::{BUCKETS, EVENTS, FRAMES, LABELS, LEAKS, MEMORY, PROCESSES, SESSIONS, SITES, STACKS};
use analysis::StackTable;
use foldhash::{HashMap, HashMapExt, HashSet};
use heaptrack_trace::{EventKind, Level, Selection, SiteId, Trace, Verdict};
use serde_json::Value;
use std::path::Path;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The number of time buckets of a session.
const BUCKET_COUNT: &str = "64";

/// What identifies a trace within the dataset, and what the user says about it.
pub struct About<'a> {
    pub batch: i64,
    pub session: i64,
    /// The hash of the file's content.
    pub trace: &'a str,
    pub version: &'a str,
    pub labels: &'a [(String, String)],
}

/// The frames and stacks that the dataset has already.
#[derive(Default)]
pub struct Dictionary {
    pub frames: HashSet<i64>,
    pub stacks: HashSet<i64>,
}

/// The function to which the costs of a stack are assigned.
struct Blamed<'a> {
    function: String,
    file: Option<&'a str>,
    line: Option<u32>,
    module: Option<&'a str>,
}

struct Extractor<'a> {
    trace: &'a Trace,
    about: &'a About<'a>,
    /// The content hash of each stack, by its number in this trace.
    stacks: HashMap<SiteId, i64>,
}

/// Returns the rows of all tables. Tables without rows are left out. Adds new frames and stacks to the dictionary.
pub fn extract(trace: &Trace, about: &About<'_>, known: &mut Dictionary) -> anyhow::Result<Vec<Rows>> {
    let mut extractor = Extractor { trace, about, stacks: HashMap::new() };
    let (sites, suppressed) = extractor.sites()?;
    let (stacks, frames) = extractor.dictionary(known);
    let mut tables = vec![extractor.sessions(suppressed), extractor.labels(), sites, stacks, frames];
    tables.push(extractor.processes()?);
    if !trace.is_heap_profile() {
        tables.push(extractor.buckets()?);
        tables.push(extractor.leaks()?);
        tables.push(extractor.memory()?);
    }
    tables.retain(|rows| !rows.is_empty());
    Ok(tables)
}

impl<'a> Extractor<'a> {
    const fn ids(&self) -> [Cell<'static>; 2] {
        [Cell::Int(self.about.batch), Cell::Int(self.about.session)]
    }

    /// The rows, and the bytes and blocks of known leaks, which do not count as leaked.
    fn sites(&mut self) -> anyhow::Result<(Rows, (u64, u64))> {
        let mut rows = Rows::new(&SITES);
        let mut suppressed = (0, 0);
        for site in self.trace.sites(&Selection::everything())? {
            let stack = stack_hash(self.trace, site.id);
            self.stacks.insert(site.id, stack);
            let blamed = blamed(self.trace, site.id);
            let costs = site.costs;
            let live = (costs.live_bytes(), costs.live_allocations());
            let (leaked, known) = match site.is_suppressed {
                true => {
                    suppressed.0 += live.0.unwrap_or(0);
                    suppressed.1 += live.1.unwrap_or(0);
                    ((live.0.map(|_| 0), live.1.map(|_| 0)), live)
                }
                false => (live, (live.0.map(|_| 0), live.1.map(|_| 0))),
            };
            let [batch, session] = self.ids();
            rows.push(&[
                batch,
                session,
                self.about.version.into(),
                blamed.function.as_str().into(),
                blamed.file.into(),
                blamed.line.map(i64::from).into(),
                blamed.module.into(),
                stack.into(),
                costs.allocations().into(),
                costs.allocated_bytes().into(),
                costs.deallocations().into(),
                costs.temporary().into(),
                leaked.0.into(),
                leaked.1.into(),
                known.0.into(),
                known.1.into(),
                costs.peak_bytes().into(),
                costs.peak_allocations().into(),
            ]);
        }
        Ok((rows, suppressed))
    }

    /// The stacks and frames that are new.
    fn dictionary(&self, known: &mut Dictionary) -> (Rows, Rows) {
        let (mut stacks, mut frames) = (Rows::new(&STACKS), Rows::new(&FRAMES));
        let batch = Cell::Int(self.about.batch);
        let mut sites: Vec<_> = self.stacks.iter().collect();
        sites.sort_unstable();
        for (site, stack) in sites {
            if !known.stacks.insert(*stack) {
                continue;
            }
            for (at, level) in self.trace.stack(*site).enumerate() {
                let frame = frame_hash(&level);
                stacks.push(&[batch, (*stack).into(), (at as i64).into(), frame.into()]);
                if !known.frames.insert(frame) {
                    continue;
                }
                let is_named = level.function.or(level.short).is_some();
                frames.push(&[
                    batch,
                    frame.into(),
                    name(&level).as_str().into(),
                    level.function.into(),
                    level.file.into(),
                    level.line.map(i64::from).into(),
                    level.module.into(),
                    level.offset.filter(|_| !is_named).into(),
                    level.is_inlined.into(),
                    level.is_own_code.into(),
                ]);
            }
        }
        (stacks, frames)
    }

    fn sessions(&self, suppressed: (u64, u64)) -> Rows {
        let mut rows = Rows::new(&SESSIONS);
        let (session, totals) = (self.trace.session(), self.trace.totals());
        let us = |ns: Option<u64>| ns.map(|ns| ns / 1000);
        let program = Path::new(session.executable).file_name().map(|name| name.to_string_lossy().into_owned());
        let program = program.or_else(|| session.command.first().cloned()).unwrap_or_default();
        let file = self.trace.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let command = session.command.join(" ");
        let started = Some(session.started_unix_ns).filter(|ns| *ns > 0);
        let [batch, id] = self.ids();
        rows.push(&[
            batch,
            id,
            self.about.version.into(),
            self.about.trace.into(),
            file.as_str().into(),
            program.as_str().into(),
            command.as_str().into(),
            session.tool.into(),
            i64::from(session.pid).into(),
            us(started).into(),
            us(totals.runtime_ns).into(),
            session.is_attached.into(),
            self.trace.is_complete().into(),
            self.trace.is_heap_profile().into(),
            totals.allocations.into(),
            totals.allocated_bytes.into(),
            totals.deallocations.into(),
            totals.temporary.into(),
            totals.leaked_bytes.map(|bytes| bytes.saturating_sub(suppressed.0)).into(),
            totals.leaked_allocations.map(|blocks| blocks.saturating_sub(suppressed.1)).into(),
            totals.leaked_bytes.map(|_| suppressed.0).into(),
            totals.peak_bytes.into(),
            totals.peak_allocations.into(),
            us(totals.peak_time_ns).into(),
            totals.peak_rss_bytes.into(),
            totals.lost_events.into(),
            self.trace.sampled_every().into(),
        ]);
        rows
    }

    fn labels(&self) -> Rows {
        let mut rows = Rows::new(&LABELS);
        let [batch, session] = self.ids();
        for (key, value) in self.about.labels {
            rows.push(&[batch, session, key.as_str().into(), value.as_str().into()]);
        }
        rows
    }

    fn view(&self, name: &str, selection: &Selection) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.trace.view(name, selection)?)?)
    }

    fn buckets(&self) -> anyhow::Result<Rows> {
        let mut rows = Rows::new(&BUCKETS);
        let view = self.view("timeline", &Selection::new([("points", BUCKET_COUNT), ("top", "1")])?)?;
        let [batch, session] = self.ids();
        for (at, end) in list(&view["time_ns"]).iter().enumerate() {
            let cell = |name: &str| number(&view[name][at]);
            rows.push(&[
                batch,
                session,
                (at as i64).into(),
                (end.as_u64().unwrap_or(0) / 1000).into(),
                cell("live_bytes"),
                cell("live_allocations"),
                cell("live_bytes_end"),
                cell("allocations"),
                cell("allocated_bytes"),
                cell("deallocations"),
                cell("temporary"),
                cell("rss_bytes"),
            ]);
        }
        Ok(rows)
    }

    fn leaks(&self) -> anyhow::Result<Rows> {
        let mut rows = Rows::new(&LEAKS);
        let [batch, session] = self.ids();
        for leak in self.trace.leaks(&Selection::everything())? {
            let blamed = blamed(self.trace, leak.site);
            let stack = self.stacks.get(&leak.site).copied().unwrap_or_else(|| stack_hash(self.trace, leak.site));
            rows.push(&[
                batch,
                session,
                self.about.version.into(),
                verdict(leak.verdict).into(),
                blamed.function.as_str().into(),
                blamed.file.into(),
                blamed.module.into(),
                stack.into(),
                leak.live_bytes.into(),
                leak.live_allocations.into(),
                leak.allocations.into(),
                leak.growth_bytes_per_second.into(),
                leak.reason.as_str().into(),
                leak.suppressed.as_deref().into(),
            ]);
        }
        Ok(rows)
    }

    /// The parts of the resident memory at its highest and at its last instant.
    fn memory(&self) -> anyhow::Result<Rows> {
        let mut rows = Rows::new(&MEMORY);
        let view = self.view("memory", &Selection::everything())?;
        let instants = list(&view["instants"]);
        let highest = view["highest"].as_u64().and_then(|at| instants.get(at as usize));
        let [batch, session] = self.ids();
        for (name, instant) in [("highest", highest), ("last", instants.last())] {
            let Some(instant) = instant else { continue };
            for part in list(&instant["parts"]) {
                rows.push(&[
                    batch,
                    session,
                    name.into(),
                    (instant["time_ns"].as_u64().unwrap_or(0) / 1000).into(),
                    part["kind"].as_str().into(),
                    part["name"].as_str().into(),
                    number(&part["rss_bytes"]),
                    number(&part["pss_bytes"]),
                ]);
            }
        }
        Ok(rows)
    }

    /// The processes of a tree. A trace of one process has that one.
    fn processes(&self) -> anyhow::Result<Rows> {
        let mut rows = Rows::new(&PROCESSES);
        let view = match self.trace.is_heap_profile() {
            true => Value::Null,
            false => self.view("processes", &Selection::everything())?,
        };
        let [batch, session] = self.ids();
        for process in list(&view["processes"]) {
            let us = |name: &str| process[name].as_u64().map(|ns| ns / 1000);
            let totals = &process["totals"];
            let words: Vec<&str> = list(&process["command"]).iter().filter_map(Value::as_str).collect();
            rows.push(&[
                batch,
                session,
                number(&process["index"]),
                number(&process["pid"]),
                number(&process["parent"]),
                process["name"].as_str().into(),
                words.join(" ").as_str().into(),
                process["start"].as_str().into(),
                us("start_ns").into(),
                us("end_ns").into(),
                process["exit"].as_str().into(),
                number(&totals["allocations"]),
                number(&totals["allocated_bytes"]),
                number(&totals["leaked_bytes"]),
                number(&totals["peak_bytes"]),
            ]);
        }
        if rows.is_empty() {
            self.only_process(&mut rows);
        }
        Ok(rows)
    }

    fn only_process(&self, rows: &mut Rows) {
        let (session, totals) = (self.trace.session(), self.trace.totals());
        let name = Path::new(session.executable).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let start = if session.is_attached { "attached" } else { "launched" };
        let [batch, id] = self.ids();
        rows.push(&[
            batch,
            id,
            0_i64.into(),
            i64::from(session.pid).into(),
            Cell::Null,
            name.as_str().into(),
            session.command.join(" ").as_str().into(),
            Some(start).filter(|_| !self.trace.is_heap_profile()).into(),
            0_i64.into(),
            totals.runtime_ns.map(|ns| ns / 1000).into(),
            Cell::Null,
            totals.allocations.into(),
            totals.allocated_bytes.into(),
            totals.leaked_bytes.into(),
            totals.peak_bytes.into(),
        ]);
    }
}

/// Calls `each` with the events, a part after the other, so that memory is bounded.
pub fn events(
    trace: &Trace,
    about: &About<'_>,
    mut each: impl FnMut(&Rows) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stacks: Vec<i64> = (0..trace.stack_count()).map(|site| stack_hash(trace, site)).collect();
    let mut rows = Rows::new(&EVENTS);
    let mut result = Ok(());
    trace.each_event(&Selection::everything(), |event| {
        if result.is_err() {
            return;
        }
        let kind = match event.kind {
            EventKind::Alloc => "alloc",
            EventKind::Free { is_temporary: true } => "free_temporary",
            EventKind::Free { .. } => "free",
            _ => "gone",
        };
        rows.push(&[
            about.batch.into(),
            about.session.into(),
            (event.time_ns / 1000).into(),
            kind.into(),
            event.block.into(),
            stacks.get(event.site as usize).copied().into(),
            event.size.into(),
            i64::from(event.thread).into(),
            (event.allocated_ns / 1000).into(),
        ]);
        if rows.len() == ROW_GROUP {
            result = each(&rows);
            rows = Rows::new(&EVENTS);
        }
    })?;
    result?;
    each(&rows)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> Cell<'static> {
    value.as_i64().or_else(|| value.as_u64().map(|_| i64::MAX)).into()
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Grows => "grows",
        Verdict::Bounded => "bounded",
        Verdict::Once => "once",
        Verdict::Exit => "exit",
        Verdict::Tail => "tail",
        Verdict::Unclear => "unclear",
        _ => "unknown",
    }
}

/// The innermost level of the user's own code, or else the innermost level.
fn blamed(trace: &Trace, site: SiteId) -> Blamed<'_> {
    let table: &StackTable = trace.parts().1;
    let stack = table.stack(site);
    let at = stack.blamed.and_then(|blamed| table.path(stack.node).position(|node| node == blamed)).unwrap_or(0);
    match trace.stack(site).nth(at) {
        None => Blamed { function: "?".to_owned(), file: None, line: None, module: None },
        Some(level) => Blamed { function: name(&level), file: level.file, line: level.line, module: level.module },
    }
}

/// The short name. Code without a name counts as one function per module.
fn name(level: &Level<'_>) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    match (level.short.or(level.function), level.module) {
        (Some(name), _) => name.to_owned(),
        (None, Some(module)) => format!("[{}]", base(module)),
        (None, None) => "?".to_owned(),
    }
}

/// Equal levels of different traces have the same number. The offset is part of it only if there is no name.
fn frame_hash(level: &Level<'_>) -> i64 {
    let mut hash = Xxh3::new();
    let is_named = level.function.or(level.short).is_some();
    for text in [level.function, level.short, level.file, level.module] {
        hash.update(&[text.is_some().into()]);
        hash.update(text.unwrap_or_default().as_bytes());
        hash.update(&[0]);
    }
    hash.update(&level.line.unwrap_or(u32::MAX).to_le_bytes());
    hash.update(&level.offset.filter(|_| !is_named).unwrap_or(u64::MAX).to_le_bytes());
    hash.update(&[level.is_inlined.into(), level.is_own_code.into()]);
    positive(hash.digest())
}

fn stack_hash(trace: &Trace, site: SiteId) -> i64 {
    let mut bytes = Vec::new();
    trace.stack(site).for_each(|level| bytes.extend_from_slice(&frame_hash(&level).to_le_bytes()));
    positive(xxh3_64(&bytes))
}

/// A number that is not negative, because some engines print ids.
pub const fn positive(hash: u64) -> i64 {
    (hash >> 1) as i64
}
