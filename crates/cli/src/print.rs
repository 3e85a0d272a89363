//! `heaptrack print`: a trace on stdout, as text for people or as JSON for programs.
//!
//! Receives: the options and a trace. It may be finished, still growing, cut off, damaged, or KDE's. Returns: a report
//! of everything that could be read. Must hold: the output says what was lost. Only a file that is no trace at all is
//! an error (one sentence, exit code 2).
mod allocator_section;
mod difference;
mod entry;
mod extra_sections;
mod files;
mod loaded_trace;
mod one_screen;
mod optional_values;
mod options;
mod paint;
mod process_section;
mod profile_text;
mod progress;
#[cfg(test)]
mod tests;
mod text;
mod text_report;
mod units;

pub use files::write_massif;
pub use heaptrack_trace::lens::Lens;
pub use loaded_trace::{check_misfit, code_classes, warn_of_missing};
pub use optional_values::with_values;
pub use options::Print;

use crate::destination::to_stdout;
use crate::memory::{self, Plan};
use crate::sampled;
use crate::trouble::unreadable;
use analysis::view::View;
use analysis::{BadQuery, Compare, Cost, Lookup, Query};
use anyhow::anyhow;
use difference::Before;
use files::Files;
use loaded_trace::LoadedTrace;
use paint::Paint;
use progress::Progress;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub fn run(options: &Print) -> anyhow::Result<ExitCode> {
    to_stdout(|mut out| write(options, &mut out))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn write(options: &Print, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(number) = options.event {
        return write_event(options.file(), number, out);
    }
    let query = options.query().map_err(|bad| anyhow!(as_option(&bad)))?;
    let flame_cost = flame_cost(options)?;
    let files = Files::of(options)?;
    let compared = match &query.compare {
        Some(Compare::File(file)) => Some(Path::new(file)),
        _ => None,
    };
    let traces: Vec<&Path> = [Some(options.file().as_path()), compared].into_iter().flatten().collect();
    if query.compare.is_some() || options.diff.is_some() {
        traces.iter().try_for_each(|file| sampled::refuse(file, "a comparison"))?;
    }
    if options.print_massif.is_some() {
        sampled::refuse(options.file(), "massif's file (-M)")?;
    }
    let plan = memory::check(&traces, query.domain, options.reading(&query))?;
    let view = match (options.view, &options.diff) {
        (None, Some(_)) if options.json => Some(View::Diff),
        (view, _) => view,
    };
    let (asked, base) = load(options, &query, compared, plan)?;
    let query = check_profiles(&[Some(&asked), base.as_ref()], options, view, query, flame_cost)?;
    if let Some(view) = view {
        return asked.write_view(view, &query, base.as_ref(), out);
    }
    warn_of_missing(&asked.trace);
    if options.json {
        asked.write_json(options, &query, out)?;
    } else {
        let paint = Paint::for_stdout();
        let before = asked.compared(&query)?;
        match (&base, &before) {
            (None, None) => asked.write_text(options, &query, paint, out)?,
            (Some(base), _) => asked.write_difference(Before::Other(base), options, &query, paint, out)?,
            (None, Some(before)) => asked.write_difference(Before::Same(before), options, &query, paint, out)?,
        }
    }
    asked.write_files(options, &files, &query, flame_cost)
}

/// Refuses what heap profiles of other tools do not know. Returns the query, with a cost that they know.
fn check_profiles(
    loaded: &[Option<&LoadedTrace>],
    options: &Print,
    view: Option<View>,
    query: Query,
    flame_cost: Cost,
) -> anyhow::Result<Query> {
    let mut query = query;
    for one in loaded.iter().flatten() {
        let Some(known) = one.trace.engine().definitions().profile else { continue };
        one.check_asked(options, view)?;
        let path = one.trace.path().display();
        if options.print_flamegraph.is_some() && !known.knows(flame_cost) {
            anyhow::bail!("--flamegraph-cost-type {}: {path} does not know it", flame_cost.name());
        }
        if let Some(cost) = query.cost.filter(|cost| !known.knows(*cost)) {
            anyhow::bail!("--cost {}: {path} does not know it", cost.name());
        }
        if view.is_some() {
            query.cost = query.cost.or(Some(known.usual()));
        }
    }
    Ok(query)
}

/// Loads the trace, and the one that it is compared with.
fn load(
    options: &Print,
    query: &Query,
    base: Option<&Path>,
    plan: Plan,
) -> anyhow::Result<(LoadedTrace, Option<LoadedTrace>)> {
    let progress = Progress::new(plan.large);
    let asked = || LoadedTrace::new(options.file(), options, query, progress);
    let base = |progress| base.map(|file| LoadedTrace::new(file, options, query, progress)).transpose();
    if !plan.is_parallel {
        return Ok((asked()?, base(progress)?));
    }
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new()
            .name("heaptrack-base".into())
            .spawn_scoped(scope, || base(progress.hidden()))?;
        let asked = asked()?;
        Ok((asked, other.join().map_err(|_| anyhow!("the trace to compare with cannot be read"))??))
    })
}

fn flame_cost(options: &Print) -> anyhow::Result<Cost> {
    let name = options.flamegraph_cost_type.as_str();
    Cost::parse(name).ok_or_else(|| {
        anyhow!("--flamegraph-cost-type {name}: must be one of {}", Cost::ALL.map(|(name, _)| name).join(", "))
    })
}

/// Returns the error of a query, with the option that the user typed instead of the word of the query.
pub fn as_option(bad: &BadQuery) -> String {
    match bad {
        BadQuery::Word { name, value, reason } => {
            let option = if name == "file" { "source-file" } else { name };
            let value = if value.is_empty() { "''" } else { value };
            format!("--{option} {value}: {reason}")
        }
        whole => whole.to_string(),
    }
}

fn write_event(path: &Path, number: u64, out: &mut impl Write) -> anyhow::Result<()> {
    let read = |error: format::Error| unreadable(path, &error);
    let none = || anyhow!("--event {number}: {} has no allocation of this number", path.display());
    let first = || anyhow!("--event 0: allocations are numbered from 1");
    let mut lookup = Lookup::new(number.checked_sub(1).ok_or_else(first)?);
    let mut source = heaptrack_trace::open_source(path).map_err(read)?;
    while let Some(block) = source.next_block().map_err(read)? {
        // A malformed block is treated like a lost one.
        lookup.add(block).ok();
    }
    Ok(heaptrack_trace::print_json::allocation(out, &lookup.finish().ok_or_else(none)?)?)
}
