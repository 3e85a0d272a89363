//! `heaptrack dataset diff`: which functions differ between two groups of traces, beyond their noise.
//!
//! Receives: two conditions. Returns: the functions that differ, the largest change first. Must hold: if both groups come
//! from the same population, the probability of any row at all is at most the level (Holm's correction); a function that
//! a trace does not have counts as 0 there. A function has the costs of all stacks that contain it, so a change is found
//! also if the innermost function is the allocator of an interpreter. Sampled traces are compared only with traces of the
//! same rate, because a sample does not have functions that allocate little.
use crate::data_file::scan;
use crate::filter::Filter;
use crate::manifest::{Dataset, Partition};
use crate::out;
use crate::passes::{Outcome, Pass, in_passes};
use crate::rank_sum::{rank_sum_test, smallest_p};
use crate::rows::Texts;
use crate::schema::{FRAMES, SITES, STACKS};
use crate::statistics::{holm, shift};
use analysis::numbers::{bytes, exact, several};
use anyhow::ensure;
use clap::{Parser, ValueEnum};
use foldhash::{HashMap, HashMapExt};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// The most pairs of a function and a trace that are kept at once, which take about 32 bytes each.
const MOST_VALUES: usize = 4_000_000;

/// The name of the row for the sum of all functions.
const WHOLE: &str = "(all functions)";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cost {
    /// Bytes at the peak of the program.
    Peak,
    /// Bytes that were not freed.
    Leaked,
    /// Bytes that were allocated.
    Allocated,
    /// Blocks that were allocated.
    Allocations,
}

impl Cost {
    const fn column(self) -> &'static str {
        match self {
            Cost::Peak => "peak_bytes",
            Cost::Leaked => "leaked_bytes",
            Cost::Allocated => "allocated_bytes",
            Cost::Allocations => "allocations",
        }
    }
}

/// Compares two groups of traces, such as two versions, and lists the functions that differ beyond their noise.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset diff", bin_name = "heaptrack dataset diff")]
pub struct Diff {
    /// The folder of the dataset.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: PathBuf,
    /// The traces to compare with, such as "version=1.4" or "version='1.4' and host!='a'".
    #[arg(long, value_name = "WHERE")]
    pub before: String,
    /// The traces that are compared.
    #[arg(long, value_name = "WHERE")]
    pub after: String,
    /// What is compared.
    #[arg(long, value_enum, default_value_t = Cost::Peak)]
    pub cost: Cost,
    /// The probability of a false alarm, for all functions together.
    #[arg(long, default_value_t = 0.01, value_name = "P")]
    pub level: f64,
    /// Leave out changes of less than this part of the whole cost, in percent.
    #[arg(long, default_value_t = 0.1, value_name = "PERCENT")]
    pub at_least: f64,
    /// The most rows.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Change {
    function: String,
    before_mean: f64,
    after_mean: f64,
    /// The typical difference, and its 95 % confidence interval.
    shift: f64,
    shift_from: f64,
    shift_to: f64,
    /// Corrected for the number of functions.
    p: f64,
}

#[derive(Debug, Serialize)]
struct Answer {
    schema: u32,
    cost: &'static str,
    before: String,
    after: String,
    before_traces: usize,
    after_traces: usize,
    functions_tested: usize,
    /// The smallest corrected p that groups of these sizes can have.
    smallest_p: f64,
    changes: Vec<Change>,
}

/// The selected traces: numbers from 0, first those before.
struct Groups {
    sessions: HashMap<i64, u32>,
    before: usize,
    after: usize,
}

pub fn run(options: &Diff) -> anyhow::Result<()> {
    ensure!(options.level > 0.0 && options.level < 1.0, "--level must be between 0 and 1");
    let dataset = Dataset::open(&options.folder)?;
    let filters = [Filter::parse(&options.before)?, Filter::parse(&options.after)?];
    let groups = Groups::new(&dataset, &filters)?;
    let answer = compare(&dataset, &filters, &groups, options)?;
    match options.json {
        true => out(&format!("{}\n", serde_json::to_string(&answer)?)),
        false => out(&text(&answer, options)?),
    }
}

impl Groups {
    fn new(dataset: &Dataset, filters: &[Filter; 2]) -> anyhow::Result<Self> {
        let mut sessions = filters[0].sessions(dataset)?;
        let before = sessions.len();
        ensure!(before > 0, "no trace has {}", filters[0]);
        let others = filters[1].sessions(dataset)?;
        let after = others.len();
        ensure!(after > 0, "no trace has {}", filters[1]);
        let mut rates = filters[0].sampling_rates(dataset, &sessions)?;
        rates.extend(filters[1].sampling_rates(dataset, &others)?);
        ensure!(
            rates.len() == 1,
            "the traces of these groups were not all recorded with the same --sample, so rare functions differ by that alone"
        );
        for (session, number) in others {
            let other = sessions.insert(session, before as u32 + number);
            ensure!(other.is_none(), "some traces are in both groups: {}, and {}", filters[0], filters[1]);
        }
        Ok(Groups { sessions, before, after })
    }

    /// All numbers of a function, with 0 for traces that do not have it.
    fn split(&self, values: &[(u32, i64)]) -> (Vec<f64>, Vec<f64>) {
        let mut all = vec![0.0; self.before + self.after];
        values.iter().for_each(|(at, value)| all[*at as usize] += *value as f64);
        let after = all.split_off(self.before);
        (all, after)
    }
}

/// A function with its test, before the correction.
struct Tested {
    function: String,
    p: f64,
    values: Vec<(u32, i64)>,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The functions of each stack, each once, as numbers of texts. A function of a pass that is not `pass` is left out.
fn functions_of_stacks(dataset: &Dataset, pass: Pass, texts: &mut Texts) -> anyhow::Result<HashMap<i64, Vec<u32>>> {
    let [frame, function] = ["frame", "function"].map(|name| FRAMES.index(name).unwrap_or(0));
    let mut names: HashMap<i64, u32> = HashMap::new();
    scan(
        dataset,
        &FRAMES,
        &["frame", "function"],
        |_| true,
        |_, rows| {
            for row in 0..rows.len() {
                let name = rows.text(function, row).unwrap_or_default();
                if pass.has(name) {
                    names.insert(rows.int(frame, row).unwrap_or(0), texts.number(name));
                }
            }
            Ok(())
        },
    )?;
    let [stack, frame] = ["stack", "frame"].map(|name| STACKS.index(name).unwrap_or(0));
    let mut functions: HashMap<i64, Vec<u32>> = HashMap::new();
    scan(
        dataset,
        &STACKS,
        &["stack", "frame"],
        |_| true,
        |_, rows| {
            for row in 0..rows.len() {
                let Some(name) = rows.int(frame, row).and_then(|frame| names.get(&frame)) else { continue };
                let known = functions.entry(rows.int(stack, row).unwrap_or(0)).or_default();
                if !known.contains(name) {
                    known.push(*name);
                }
            }
            Ok(())
        },
    )?;
    Ok(functions)
}

fn compare(dataset: &Dataset, filters: &[Filter; 2], groups: &Groups, options: &Diff) -> anyhow::Result<Answer> {
    let names = ["session", "stack", options.cost.column()];
    let [session, stack, cost] = names.map(|name| SITES.index(name).unwrap_or(0));
    let is_wanted = |partition: &Partition| filters.iter().any(|filter| filter.may_have(partition));
    let mut whole = vec![0_i64; groups.before + groups.after];
    let read = |pass: Pass| {
        let mut texts = Texts::default();
        let functions = functions_of_stacks(dataset, pass, &mut texts)?;
        let mut sums: HashMap<(u32, u32), i64> = HashMap::new();
        whole.fill(0);
        scan(dataset, &SITES, &names, is_wanted, |_, rows| {
            for row in 0..rows.len() {
                let Some(at) = rows.int(session, row).and_then(|session| groups.sessions.get(&session)) else {
                    continue;
                };
                let value = rows.int(cost, row).unwrap_or(0);
                whole[*at as usize] += value;
                let is_counted = value != 0 && sums.len() <= MOST_VALUES;
                let levels = rows.int(stack, row).filter(|_| is_counted).and_then(|stack| functions.get(&stack));
                for function in levels.into_iter().flatten() {
                    *sums.entry((*function, *at)).or_default() += value;
                }
            }
            Ok(())
        })?;
        if sums.len() > MOST_VALUES {
            return Ok(Outcome::TooMuch);
        }
        let mut by: Vec<Vec<(u32, i64)>> = vec![Vec::new(); texts.len()];
        sums.into_iter().for_each(|((function, at), value)| by[function as usize].push((at, value)));
        let used = by.into_iter().enumerate().filter(|(_, values)| !values.is_empty());
        let tested = used.map(|(number, values)| {
            let (before, after) = groups.split(&values);
            let function = texts.get(number as u32).unwrap_or_default().to_owned();
            let p = rank_sum_test(&before, &after);
            // The numbers of functions that cannot be reported are not needed any more.
            Tested { function, p, values: if p <= options.level { values } else { Vec::new() } }
        });
        Ok(Outcome::Done(tested.collect::<Vec<_>>()))
    };
    let mut tested: Vec<Tested> = in_passes(read)?.into_iter().flatten().collect();
    let values: Vec<(u32, i64)> = whole.iter().enumerate().map(|(at, value)| (at as u32, *value)).collect();
    let (before, after) = groups.split(&values);
    tested.push(Tested { function: WHOLE.to_owned(), p: rank_sum_test(&before, &after), values });
    let corrected = holm(&tested.iter().map(|row| row.p).collect::<Vec<_>>());
    let count = tested.len();
    let least = mean(&before).max(mean(&after)) * options.at_least / 100.0;
    let reported = tested.into_iter().zip(corrected).filter(|(_, p)| *p <= options.level);
    let changes = reported.map(|(row, p)| change(&row, p, groups));
    let mut changes: Vec<Change> =
        changes.filter(|row| (row.after_mean - row.before_mean).abs() >= least.max(f64::MIN_POSITIVE)).collect();
    let size = |row: &Change| (row.after_mean - row.before_mean).abs();
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.function.cmp(&b.function)));
    changes.truncate(options.top);
    Ok(Answer {
        schema: 1,
        cost: options.cost.column(),
        before: filters[0].to_string(),
        after: filters[1].to_string(),
        before_traces: groups.before,
        after_traces: groups.after,
        functions_tested: count,
        smallest_p: (smallest_p(groups.before, groups.after) * count as f64).min(1.0),
        changes,
    })
}

fn change(row: &Tested, p: f64, groups: &Groups) -> Change {
    let (before, after) = groups.split(&row.values);
    let (shift, shift_from, shift_to) = shift(&before, &after);
    let (before_mean, after_mean) = (mean(&before), mean(&after));
    Change { function: row.function.clone(), before_mean, after_mean, shift, shift_from, shift_to, p }
}

fn text(answer: &Answer, options: &Diff) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let out = &mut text;
    let number = |value: f64| {
        let (value, sign) = (value.round() as i64, if value < 0.0 { "" } else { "+" });
        format!("{sign}{}", if options.cost == Cost::Allocations { exact(value) } else { bytes(value) })
    };
    let traces = |count: usize| several(count as u64, "trace");
    writeln!(out, "before: {} ({})", answer.before, traces(answer.before_traces))?;
    writeln!(out, "after:  {} ({})", answer.after, traces(answer.after_traces))?;
    let (cost, tested) = (answer.cost, answer.functions_tested);
    if answer.smallest_p > options.level {
        writeln!(
            out,
            "Groups this small cannot differ beyond their noise in {tested} tests: add traces, or raise --level."
        )?;
    }
    match answer.changes.len() {
        0 => writeln!(
            out,
            "\nNo function differs in {cost} beyond the noise ({tested} tests, level {}).",
            options.level
        )?,
        _ => writeln!(
            out,
            "\nMean {cost} of a trace, the 95 % interval of the shift, and p corrected for {tested} tests"
        )?,
    }
    for row in &answer.changes {
        let (from, to) = (number(row.shift_from), number(row.shift_to));
        let change = number(row.after_mean - row.before_mean);
        writeln!(out, "{change:>12}  {from} to {to}  p {:.1e}  {}", row.p, row.function)?;
    }
    Ok(text)
}
