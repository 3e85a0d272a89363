//! The files that `-H`, `-F` and `-M` ask for, besides what goes to stdout.
use super::loaded_trace::LoadedTrace;
use super::options::Print;
use crate::destination::{Content, Destination, named_after};
use crate::trouble::unreadable;
use analysis::{BlockEvent, Cost, Costs, Query};
use heaptrack_trace::OpenTrace;
use std::io::Write;
use std::path::{Path, PathBuf};

pub struct Files {
    histogram: Option<Destination>,
    flamegraph: Option<Destination>,
    massif: Option<Destination>,
}

impl Files {
    pub fn of(options: &Print) -> anyhow::Result<Self> {
        let inputs = [Some(options.file()), options.diff.as_ref(), options.rules.as_ref()];
        let inputs = inputs.into_iter().chain([options.known.suppressions.as_ref()]).flatten();
        let inputs: Vec<&Path> = inputs.map(|path| path.as_path()).collect();
        let find = |option: &Option<PathBuf>, ending: &str| {
            let name = named_after(options.file(), ending);
            option.as_ref().map(|path| Destination::new(path, &name, Content::Other, &inputs)).transpose()
        };
        Ok(Files {
            histogram: find(&options.print_histogram, ".histogram")?,
            flamegraph: find(&options.print_flamegraph, ".folded")?,
            massif: find(&options.print_massif, ".massif")?,
        })
    }
}

impl LoadedTrace {
    pub fn write_files(&self, options: &Print, files: &Files, query: &Query, cost: Cost) -> anyhow::Result<()> {
        if let Some(file) = &files.histogram {
            self.write_histogram(file, query)?;
        }
        if let Some(file) = &files.flamegraph {
            let report = self.report(query.suppressions && cost == Cost::Leaked);
            let lens = self.lens(query);
            let value = |costs: &Costs| cost.of(costs, false).max(0) as u64;
            let rows = export::folded::rows_of(&report, value, |levels| {
                lens.shown(levels).levels.into_iter().map(|(_, level)| level).collect()
            });
            file.write(Content::Other, |out| Ok(export::folded::write(&rows, out)?))?;
        }
        if let Some(file) = &files.massif {
            let massif = export::massif::Options {
                threshold: options.massif_threshold,
                detailed_every: options.massif_detailed_freq,
                ..export::massif::Options::default()
            };
            file.write(Content::Other, |out| write_massif(&self.trace, &Query::default(), &massif, out))?;
        }
        Ok(())
    }

    fn write_histogram(&self, file: &Destination, query: &Query) -> anyhow::Result<()> {
        let engine = self.trace.engine();
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        let sizes = engine.histogram(&mut blocks, &query.within(engine)).map_err(|error| self.unreadable(&error))?;
        file.write(Content::Other, |out| {
            sizes.iter().try_for_each(|(size, count)| Ok(writeln!(out, "{size}\t{count}")?))
        })
    }

    /// Returns the profile as the exports take it. With `suppress`, known leaks do not count as live, because the
    /// caller asks only for leaks.
    fn report(&self, suppress: bool) -> analysis::Report {
        let engine = self.trace.engine();
        let definitions = engine.definitions();
        let sites = self.profile.stacks.iter().map(|(site, costs)| {
            let mut costs = *costs;
            if suppress && self.table.stack(*site).suppressed.is_some() {
                (costs.live_bytes, costs.live_allocations) = (0, 0);
            }
            analysis::SiteCosts { stack: definitions.stack_of(*site), costs }
        });
        analysis::Report {
            definitions: definitions.clone(),
            totals: engine.totals(),
            faults: engine.faults(),
            sites: sites.collect(),
        }
    }
}

/// Writes massif's file about the blocks that the query selects.
pub fn write_massif(
    trace: &OpenTrace,
    query: &Query,
    options: &export::massif::Options,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let again = |error: &dyn std::fmt::Display| unreadable(trace.path(), error);
    let (engine, range) = (trace.engine(), trace.engine().range(query));
    // Only a range that begins later has blocks from before.
    let base: Vec<_> = match query.from {
        None => Vec::new(),
        Some(_) => {
            let profile = trace.profile(query).map_err(|error| again(&error))?;
            profile.stacks.iter().map(|(site, costs)| (*site, costs.base_bytes)).collect()
        }
    };
    let input = export::massif::Input { definitions: engine.definitions(), range, base: &base };
    let mut blocks = trace.blocks().map_err(|error| again(&error))?;
    let mut walk = |each: &mut dyn FnMut(&BlockEvent)| {
        engine.each_block_event(&mut blocks, query, each)?;
        Ok(())
    };
    export::massif::write(&input, &mut walk, options, out).map_err(|error| match error {
        export::Error::Write(error) => error.into(),
        read => again(&read),
    })
}
