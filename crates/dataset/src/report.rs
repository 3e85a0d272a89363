//! `heaptrack dataset report`: the answers to the common questions, as text or JSON.
use crate::manifest::Dataset;
use crate::out;
use crate::partition_name::check_date;
use crate::questions::{self, Grown, LabelCost, LeakingHost, NewSite, TopPeak};
use analysis::numbers::{bytes, several};
use clap::Parser;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// Answers the common questions about a dataset: what grew, the highest peaks, which hosts leak, new sites, costs by label.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset report", bin_name = "heaptrack dataset report")]
pub struct Report {
    /// The folder of the dataset.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: PathBuf,
    /// The last day of the week that is compared with the week before. Without it, the last day of the dataset.
    #[arg(long, value_name = "DATE")]
    pub until: Option<String>,
    /// Also list the functions that allocate since this version, and did not before.
    #[arg(long, value_name = "VERSION")]
    pub since_version: Option<String>,
    /// The most rows of lists by function.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The keys are a contract with scripts (docs/fleet.md).
#[derive(Serialize)]
struct Answers {
    schema: u32,
    traces: usize,
    /// Those whose blocks were sampled. Their numbers are estimates.
    sampled_traces: usize,
    top_peak: Vec<TopPeak>,
    grown: Vec<Grown>,
    leaking_hosts: Vec<LeakingHost>,
    new_sites: Option<Vec<NewSite>>,
    label_costs: Vec<LabelCost>,
}

pub fn run(options: &Report) -> anyhow::Result<()> {
    options.until.as_deref().map(check_date).transpose()?;
    let dataset = Dataset::open(&options.folder)?;
    let new_sites =
        options.since_version.as_deref().map(|version| questions::new_sites(&dataset, version, options.top));
    let (traces, sampled_traces) = questions::traces(&dataset)?;
    let answers = Answers {
        schema: 1,
        traces,
        sampled_traces,
        top_peak: questions::top_peak(&dataset)?,
        grown: questions::grown(&dataset, options.until.as_deref(), options.top)?,
        leaking_hosts: questions::leaking_hosts(&dataset)?,
        new_sites: new_sites.transpose()?,
        label_costs: questions::label_costs(&dataset)?,
    };
    match options.json {
        true => out(&format!("{}\n", serde_json::to_string(&answers)?)),
        false => out(&text(&answers, options)?),
    }
}

fn text(answers: &Answers, options: &Report) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let out = &mut text;
    write!(out, "{}", several(answers.traces as u64, "trace"))?;
    match answers.sampled_traces {
        0 => writeln!(out)?,
        count => writeln!(out, ", {count} of them sampled: their numbers are estimates")?,
    }
    writeln!(out, "\nHighest peak, by service and version")?;
    for row in answers.top_peak.iter().take(options.top) {
        let mean = bytes(row.sum_of_peak_bytes / row.traces.max(1));
        let name = named(&row.service, &row.version);
        writeln!(out, "{:>12}  mean {mean} of {}  {name}", bytes(row.largest_peak_bytes), traces(row.traces))?;
    }
    writeln!(out, "\nFunctions that grew in a week, bytes at the peak of a trace")?;
    for row in &answers.grown {
        let growth = format!("+{}", bytes(row.growth_per_trace));
        writeln!(out, "{growth:>12}  {}  {}", row.service, row.function)?;
    }
    writeln!(out, "\nHosts that leak")?;
    for row in answers.leaking_hosts.iter().take(options.top) {
        let (traces, places) = (traces(row.traces), several(row.sites.unsigned_abs(), "place"));
        writeln!(out, "{:>12}  {traces}, {places}  {} on {}", bytes(row.leaked_bytes), row.service, row.host)?;
    }
    if let (Some(rows), Some(version)) = (&answers.new_sites, &options.since_version) {
        writeln!(out, "\nFunctions that allocate since version {version}, bytes at the peak of all traces")?;
        for row in rows {
            let traces = traces(row.traces);
            writeln!(out, "{:>12}  {traces}  {}  {}", bytes(row.peak_bytes), row.service, row.function)?;
        }
    }
    writeln!(out, "\nCost by label: sum of peaks, sum of allocated bytes")?;
    for row in answers.label_costs.iter().take(options.top) {
        let (peak, allocated) = (bytes(row.peak_bytes), bytes(row.allocated_bytes));
        writeln!(out, "{peak:>12} {allocated:>12}  {}  {}={}", traces(row.traces), row.key, row.value)?;
    }
    Ok(text)
}

fn named(service: &str, version: &str) -> String {
    if version.is_empty() { service.to_owned() } else { format!("{service} {version}") }
}

fn traces(count: i64) -> String {
    several(count.unsigned_abs(), "trace")
}
