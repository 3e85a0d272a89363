//! The text report of a heap profile of another tool. It shows only what such a file knows.
use super::extra_sections;
use super::loaded_trace::LoadedTrace;
use super::options::Print;
use super::paint::Paint;
use super::text_report::header;
use super::units::{blocks, bytes};
use analysis::view::View;
use analysis::{Cost, Costs, Definitions, KnownCosts, Level, Query, SiteId, to_signed};
use heaptrack_trace::lens::Shown;
use std::cmp::Reverse;
use std::io::{self, Write};

/// The lists of the report, and their headings.
const LISTS: [(Cost, &str); 4] = [
    (Cost::Live, "LIVE WHEN THE PROFILE WAS WRITTEN"),
    (Cost::Peak, "PEAK MEMORY CONSUMERS"),
    (Cost::Allocated, "MOST MEMORY ALLOCATED"),
    (Cost::Allocations, "MOST CALLS TO ALLOCATION FUNCTIONS"),
];

impl LoadedTrace {
    pub fn is_profile(&self) -> bool {
        self.trace.engine().definitions().profile.is_some()
    }

    /// Refuses options that need events, which a heap profile does not have.
    pub fn check_asked(&self, options: &Print, view: Option<View>) -> anyhow::Result<()> {
        let refused = match view {
            Some(view) if !KnownCosts::can_show(view) => format!("--view {}", view.name()),
            _ if options.print_histogram.is_some() => "--print-histogram".into(),
            _ if options.print_massif.is_some() => "--print-massif".into(),
            _ if options.print_leaks => "--print-leaks".into(),
            _ => return Ok(()),
        };
        let path = self.trace.path().display();
        anyhow::bail!("{refused} needs events, and {path} is a heap profile, which has only sums")
    }

    pub fn write_profile_text(
        &self,
        known: KnownCosts,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        header(out, &[self])?;
        let definitions = self.trace.engine().definitions();
        writeln!(out, "{}: sums by stack, without times and single blocks", definitions.session.tool)?;
        if let Some(note) = &definitions.losses.note {
            writeln!(out, "{note}")?;
        }
        let unknown = LISTS.iter().filter(|(cost, _)| !known.knows(*cost)).map(|(cost, _)| cost.name());
        let unknown: Vec<&str> = unknown.collect();
        if !unknown.is_empty() {
            writeln!(out, "not known: {}", unknown.join(", "))?;
        }
        writeln!(out)?;
        if let Some(note) = self.why_empty(query) {
            writeln!(out, "{note}\n")?;
        }
        let is_wanted = |cost: Cost| query.cost.map_or(known.knows(cost), |asked| asked == cost);
        let lists: Vec<_> = LISTS.into_iter().filter(|(cost, _)| is_wanted(*cost)).collect();
        for (cost, heading) in &lists {
            self.write_list(*cost, heading, options, query, paint, out)?;
        }
        let costs: Vec<_> =
            lists.iter().take(1).map(|(cost, heading)| (*cost, format!("IN YOUR OWN CODE, {heading}"))).collect();
        extra_sections::blamed(out, &self.profile, &self.table, query, &costs, options.rows(), paint)?;
        self.write_totals(known, out)?;
        Ok(())
    }

    fn write_list(
        &self,
        cost: Cost,
        heading: &str,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let definitions = self.trace.engine().definitions();
        let lens = self.lens(query);
        let mut stacks: Vec<&(SiteId, Costs)> =
            self.profile.stacks.iter().filter(|(_, costs)| cost.of(costs, false) != 0).collect();
        stacks.sort_by_key(|(_, costs)| Reverse(cost.of(costs, false)));
        writeln!(out, "{}", paint.heading(heading))?;
        for (site, costs) in stacks.iter().take(options.rows()) {
            writeln!(out, "{} from", paint.number(&amount(definitions, cost, costs)))?;
            let levels = definitions.levels(definitions.stack_of(*site));
            let Shown { levels, left_out } = lens.shown(levels);
            for (number, (_, level)) in levels.iter().enumerate() {
                let indent = if number == 0 { "" } else { "    " };
                writeln!(out, "{indent}{}", place(level))?;
            }
            if left_out > 0 {
                writeln!(out, "    and {left_out} outer levels (--depth)")?;
            }
            writeln!(out)?;
        }
        let rest = stacks.len().saturating_sub(options.rows());
        if rest > 0 {
            writeln!(out, "and {rest} more stacks\n")?;
        }
        Ok(())
    }

    fn write_totals(&self, known: KnownCosts, out: &mut impl Write) -> io::Result<()> {
        let definitions = self.trace.engine().definitions();
        let costs = &self.profile.totals;
        let lines = [
            (Cost::Live, "total memory live"),
            (Cost::Peak, "peak heap memory consumption"),
            (Cost::Allocated, "total memory allocated"),
        ];
        for (cost, what) in lines.into_iter().filter(|(cost, _)| known.knows(*cost)) {
            writeln!(out, "{what}: {}", amount(definitions, cost, costs))?;
        }
        Ok(())
    }
}

/// Bytes, and blocks if their number is known.
fn amount(definitions: &Definitions, cost: Cost, costs: &Costs) -> String {
    let (value, count) = match cost {
        Cost::Allocations => return format!("{} calls", costs.allocations),
        Cost::Peak => (costs.peak_bytes, definitions.has_cost("peak_allocations").then_some(costs.peak_allocations)),
        Cost::Allocated => (costs.allocated_bytes, definitions.has_cost("allocations").then_some(costs.allocations)),
        _ => (costs.live_bytes, definitions.has_cost("live_allocations").then_some(costs.live_allocations)),
    };
    let value = bytes(to_signed(value));
    count.map_or_else(|| value.clone(), |count| format!("{value} in {}", blocks(to_signed(count))))
}

fn place(level: &Level<'_>) -> String {
    let name = level.marker().or(level.short).or(level.function);
    let unnamed = || format!("{:#x}", level.frame.offset());
    let name = name.map_or_else(unnamed, str::to_owned);
    match (level.file, level.line, level.module) {
        (Some(file), Some(line), _) => format!("{name}  {file}:{line}"),
        (Some(file), None, _) => format!("{name}  {file}"),
        (None, _, Some(module)) => format!("{name}  in {module}"),
        (None, _, None) => name,
    }
}
