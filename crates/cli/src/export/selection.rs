//! An open trace and the part of it that is exported.
use super::{Export, Format, Rows};
use crate::memory;
use crate::print::{check_misfit, code_classes, warn_of_missing};
use crate::trouble::unreadable;
use analysis::view::Paths;
use analysis::{CodeClasses, Details, KnownCosts, Query, Report, SiteCosts, StackTable};
use anyhow::Context;
use export::{Redaction, Selected};
use format::Domain;
use heaptrack_trace::{OpenOptions, OpenTrace, Reading, TraceFile, has_domain};

pub struct Selection {
    pub trace: OpenTrace,
    pub classes: CodeClasses,
    pub table: StackTable,
    /// The query, with a range that ends with the trace at the latest.
    pub query: Query,
    redaction: Option<Redaction>,
}

/// Opens the trace. Only the domain that was asked for will be read.
pub fn trace_file(options: &Export, domain: Domain, reading: Reading) -> anyhow::Result<TraceFile> {
    let read = |error: format::Error| unreadable(&options.file, &error);
    memory::check(&[&options.file], domain, reading)?;
    let file = TraceFile::open(&options.file).map_err(read)?;
    if domain != Domain::Malloc && !has_domain(&options.file, domain).map_err(read)? {
        let file = options.file.display();
        if domain == Domain::Mapped {
            anyhow::bail!("no mappings of the program of {file} were recorded: leave out --domain mapped");
        }
        let option = if options.part.custom { "--custom" } else { "--domain custom" };
        anyhow::bail!("the program of {file} reported no blocks of custom allocators: leave out {option}");
    }
    Ok(file.with_domain(domain))
}

impl Selection {
    pub fn open(options: &Export, query: &Query) -> anyhow::Result<Self> {
        let is_whole = query.is_whole() && !walks_events(options.format());
        let reading = if is_whole { Reading::Session } else { Reading::Range };
        let file = trace_file(options, query.domain, reading)?;
        let trace = OpenOptions::new().domain(query.domain).open_file(file, |_, _| ());
        let trace = trace.map_err(|error| unreadable(&options.file, &error))?;
        check_misfit(&trace, query)?;
        warn_of_missing(&trace);
        let classes = code_classes(&trace, options.part.rules.as_deref())?;
        let known = options.known.load(&trace.engine().definitions().suppressions)?;
        let mut table = trace.table(&classes, known);
        let redaction = options.redact.as_deref().map(Redaction::new);
        if let Some(redaction) = &redaction {
            redaction.table(&mut table);
        }
        let mut query = query.within(trace.engine());
        if let Some(known) = trace.engine().definitions().profile {
            check_profile(options, &query, known)?;
            query.cost = query.cost.or(Some(known.usual()));
        }
        Ok(Selection { trace, classes, table, query, redaction })
    }

    /// The costs of each stack, without lifetimes and own peaks if the whole session is asked for.
    pub fn costs(&self) -> anyhow::Result<Details> {
        let whole = self.query.is_whole().then(|| self.trace.engine().whole_profile()).flatten();
        let profile = match whole {
            Some(whole) => whole,
            None => self.trace.profile(&self.query).map_err(|error| self.unreadable(&error))?,
        };
        let rows = profile.stacks.iter().map(|(site, costs)| analysis::Detail {
            site: *site,
            costs: *costs,
            ..analysis::Detail::default()
        });
        Ok(Details { range: profile.range, rows: rows.collect(), peak_time_ns: profile.peak_time_ns })
    }

    /// The costs of each stack, with everything that is known about it.
    pub fn details(&self, by_thread: bool) -> anyhow::Result<Details> {
        if self.trace.engine().definitions().profile.is_some() {
            return self.costs();
        }
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        let details = self.trace.engine().details(&mut blocks, &self.query, by_thread);
        details.map_err(|error| self.unreadable(&error))
    }

    /// The costs of each stack and thread. A trace with one thread needs no second walk for that.
    pub fn by_thread(&self) -> anyhow::Result<Details> {
        let threads = &self.trace.engine().definitions().threads;
        if threads.len() > 1 {
            return self.details(true);
        }
        let mut details = self.costs()?;
        let only = threads.keys().next().copied();
        details.rows.iter_mut().for_each(|row| row.thread = only);
        Ok(details)
    }

    /// The costs of each stack, thread and allocator.
    pub fn by_thread_and_allocator(&self) -> anyhow::Result<Details> {
        let definitions = self.trace.engine().definitions();
        if definitions.profile.is_some() || self.trace.domain() != Domain::Malloc {
            return self.by_thread();
        }
        let asked = &self.query.allocators;
        let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|wanted| wanted == name);
        let names = definitions.allocators().enumerate().filter(|(_, name)| is_asked(name));
        let names: Vec<(usize, &str)> = names.collect();
        if let [(index, _)] = names.as_slice() {
            let mut details = self.by_thread()?;
            details.rows.iter_mut().for_each(|row| row.allocator = Some(*index));
            return Ok(details);
        }
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        let mut whole: Option<Details> = None;
        for (index, name) in names {
            let mut query = self.query.clone();
            query.allocators = vec![name.to_owned()];
            let details = self.trace.engine().details(&mut blocks, &query, true);
            let mut details = details.map_err(|error| self.unreadable(&error))?;
            details.rows.iter_mut().for_each(|row| row.allocator = Some(index));
            match &mut whole {
                Some(whole) => whole.rows.append(&mut details.rows),
                None => whole = Some(details),
            }
        }
        whole.map_or_else(|| self.by_thread(), Ok)
    }

    pub fn selected<'a>(&'a self, details: &'a Details) -> Selected<'a> {
        Selected {
            definitions: self.trace.engine().definitions(),
            table: &self.table,
            paths: Paths::new(&self.table, &self.query),
            range: details.range,
            rows: &details.rows,
            peak_time_ns: details.peak_time_ns,
            suppress: self.query.suppressions,
            is_custom: self.trace.domain() != Domain::Malloc,
            redaction: self.redaction.as_ref(),
        }
    }

    /// The costs as `folded` takes them. If `suppress` is set, known leaks do not count as live.
    pub fn into_report(self, suppress: bool) -> anyhow::Result<(Report, CodeClasses, Query)> {
        let details = self.costs()?;
        let Selection { trace, classes, table, query, .. } = self;
        let (mut report, _) = trace.into_report().context("the trace was opened with an index")?;
        let sites = details.rows.iter().map(|row| {
            let mut costs = row.costs;
            if suppress && table.stack(row.site).suppressed.is_some() {
                (costs.live_bytes, costs.live_allocations) = (0, 0);
            }
            SiteCosts { stack: report.definitions.stack_of(row.site), costs }
        });
        report.sites = sites.collect();
        Ok((report, classes, query))
    }

    pub fn unreadable(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        unreadable(self.trace.path(), error)
    }
}

/// Refuses what a heap profile of another tool, which has no events, cannot give.
fn check_profile(options: &Export, query: &Query, known: KnownCosts) -> anyhow::Result<()> {
    let path = options.file.display();
    let format = options.format();
    let needs_events =
        matches!(format, Format::Firefox | Format::Dhat | Format::Massif) || options.rows == Rows::Events;
    if needs_events {
        let what = if options.rows == Rows::Events { "--rows events" } else { "this format" };
        anyhow::bail!("{what} needs events, and {path} is a heap profile, which has only sums");
    }
    if format == Format::Gperftools && !known.live_bytes {
        anyhow::bail!("a profile of gperftools needs live blocks, which {path} does not know");
    }
    match query.cost.filter(|cost| !known.knows(*cost)) {
        None => Ok(()),
        Some(cost) => anyhow::bail!("--cost {}: {path} does not know it", cost.name()),
    }
}

/// Whether the format needs more than the sums that are known when the trace is open.
const fn walks_events(format: Format) -> bool {
    match format {
        Format::Heaptrack | Format::Folded | Format::Svg | Format::Speedscope | Format::Gperftools => false,
        Format::Massif | Format::Pprof | Format::Firefox | Format::Dhat | Format::Csv | Format::Jsonl => true,
    }
}
