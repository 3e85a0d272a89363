//! `heaptrack test-sections FILE`: what each test of a recorded test run did to the heap. For the plugin in `python/`; people do
//! not type it.
//!
//! Receives: a trace that still grows, and requests on stdin, one in each line: the marks around a test. Returns: a line of JSON for
//! each request. Must hold: the numbers are those of all events between the two marks, and of no other event.
//!
//! A mark is made by the program itself: it allocates two blocks of sizes that hold the number of the mark, and frees them
//! (`Marks`). Time stamps would not do, because the trace has a time only for every 0.1 ms, and events after a pause may be stamped
//! early. The order of events is exact (decision 84).
mod marks;

use crate::destination::to_stdout;
use crate::trouble::unreadable;
use analysis::view::{by_blamed, label};
use analysis::{CodeClasses, Cost, Costs, Profile, Query, StackTable, Suppressions, When};
use anyhow::{Context, anyhow, bail};
use clap::Parser;
use heaptrack_trace::{Growth, OpenOptions, OpenTrace};
use marks::{Mark, Marks};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The subcommand.
pub const NAME: &str = "test-sections";
/// How often the trace is read while a mark is missing. Recorders write at least every 100 ms.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long to wait for a mark. A recorder that is this late is not coming back.
const LONGEST: Duration = Duration::from_secs(30);
/// How long to wait for the names of functions, which the recorder looks up every 4 s.
const NAMES: Duration = Duration::from_secs(8);
/// The most places of a list.
const PLACES: usize = 5;

/// Answers questions about the tests of a recorded test run.
#[derive(Debug, Parser)]
#[command(name = "heaptrack test-sections", bin_name = "heaptrack test-sections")]
pub struct TestSections {
    /// The trace.
    file: PathBuf,
}

/// The marks around a test.
#[derive(Deserialize)]
struct Request {
    from: u64,
    to: u64,
    /// Whether places are wanted. They need the names of functions, which come late.
    #[serde(default)]
    places: bool,
}

pub fn run(options: &TestSections) -> anyhow::Result<ExitCode> {
    let mut sections = Sections::open(options)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read requests")?;
        let answer = serde_json::from_str(&line).map_err(anyhow::Error::from).and_then(|asked| sections.answer(&asked));
        let answer = answer.unwrap_or_else(|error| json!({ "error": crate::trouble::sentence(&error) }));
        to_stdout(|out| Ok(writeln!(out, "{answer}")?))?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Sections {
    trace: OpenTrace,
    marks: Marks,
    /// How long to wait for names.
    patience: Duration,
}

impl Sections {
    fn open(options: &TestSections) -> anyhow::Result<Self> {
        let open = OpenOptions::new().indexed(true).followed(true);
        let trace = open.open(&options.file, |_, _| ()).map_err(|error| unreadable(&options.file, &error))?;
        Ok(Sections { trace, marks: Marks::default(), patience: NAMES })
    }

    fn answer(&mut self, asked: &Request) -> anyhow::Result<Value> {
        let to = self.wait_for(asked.to)?;
        let from = self.wait_for(asked.from)?;
        if from.after.0 > to.before.0 {
            bail!("mark {} is not before mark {}", asked.from, asked.to);
        }
        let lost = self.trace.engine().totals().lost_events;
        if lost > 0 {
            bail!("{} missing in the trace", crate::trouble::counted(lost, "event is", "events are"));
        }
        if asked.places {
            self.wait_for_names(from, to)?;
        }
        let profile = self.profile(from, to)?;
        let Costs { peak_bytes, base_bytes, kept_bytes, kept_allocations, .. } = profile.totals;
        let mut answer = json!({
            "peak_bytes": peak_bytes.saturating_sub(base_bytes),
            "leaked_bytes": kept_bytes,
            "leaked_allocations": kept_allocations,
            "allocations": profile.totals.allocations,
            "temporary": profile.totals.temporary,
        });
        if asked.places {
            let table = self.table();
            answer["places"] = json!({
                "peak": places(&profile, &table, |costs| costs.peak_bytes.saturating_sub(costs.base_bytes)),
                "leaked": places(&profile, &table, |costs| costs.kept_bytes),
                "allocations": places(&profile, &table, |costs| costs.allocations),
                "temporary": places(&profile, &table, |costs| costs.temporary),
            });
        }
        Ok(answer)
    }

    fn profile(&self, from: Mark, to: Mark) -> anyhow::Result<Profile> {
        let when = |(events, time_ns)| Some(When::Event { events, time_ns });
        let mut query = Query::default();
        (query.from, query.to) = (when(from.after), when(to.before));
        self.trace.profile(&query).map_err(|error| unreadable(self.trace.path(), &error))
    }

    fn table(&self) -> StackTable {
        let classes = CodeClasses::new(&self.trace.engine().definitions().session.exe);
        self.trace.table(&classes, Suppressions::new())
    }

    /// Returns the mark of this number, as soon as the recorder has written it.
    fn wait_for(&mut self, number: u64) -> anyhow::Result<Mark> {
        let start = Instant::now();
        self.marks.find(&self.trace)?;
        loop {
            if let Some(mark) = self.marks.get(number) {
                return Ok(mark);
            }
            if start.elapsed() > LONGEST {
                return Err(anyhow!("mark {number} is not in {}", self.trace.path().display()));
            }
            self.read_more()?;
        }
    }

    /// Reads what was written since, or waits a moment.
    fn read_more(&mut self) -> anyhow::Result<()> {
        match self.trace.read_more() {
            Growth::Grew => self.marks.find(&self.trace),
            Growth::Same if self.trace.is_live() => {
                std::thread::sleep(LOOK_EVERY);
                Ok(())
            }
            Growth::Same => bail!("the recording of {} has ended", self.trace.path().display()),
            Growth::Replaced => bail!("the trace was replaced by a shorter one (--max-size, --keep-last)"),
        }
    }

    /// Waits until the stacks that matter have names, but not for long: code may have none.
    fn wait_for_names(&mut self, from: Mark, to: Mark) -> anyhow::Result<()> {
        let start = Instant::now();
        while start.elapsed() < self.patience && self.trace.is_live() {
            let (profile, table) = (self.profile(from, to)?, self.table());
            let has_name = |site: &u32| {
                let stack = table.stack(*site);
                table.level(stack.owner).is_some_and(|level| level.function.is_some())
            };
            let mut stacks = profile.stacks;
            stacks.sort_by_key(|(_, costs)| std::cmp::Reverse(costs.peak_bytes.max(costs.allocated_bytes)));
            if stacks.iter().take(PLACES).all(|(site, _)| has_name(site)) {
                return Ok(());
            }
            self.read_more()?;
        }
        // This code has no names, so the next test does not wait as long.
        self.patience /= 2;
        Ok(())
    }
}

/// The code to blame for a value, the highest first.
fn places(profile: &Profile, table: &StackTable, value: impl Fn(&Costs) -> u64) -> Vec<Value> {
    // Every stack that allocated or held anything is in the list by allocations or in the one by the peak.
    let mut rows = by_blamed(profile, table, &Query::default(), Cost::Allocations);
    rows.retain(|row| value(&row.sum.costs) > 0);
    rows.sort_by_key(|row| std::cmp::Reverse(value(&row.sum.costs)));
    let place = |row: &analysis::view::Blamed| {
        let level = table.level(row.node);
        json!({
            "function": label(table, level),
            "file": level.and_then(|level| table.text(level.file)),
            "line": level.and_then(|level| level.line),
            "value": value(&row.sum.costs),
        })
    };
    rows.iter().take(PLACES).map(place).collect()
}
