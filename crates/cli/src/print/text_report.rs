//! The text report of one trace, section by section.
use super::allocator_section;
use super::entry::{Entries, Numbers, merged, of_profile};
use super::extra_sections;
use super::loaded_trace::LoadedTrace;
use super::options::Print;
use super::paint::Paint;
use super::process_section;
use super::text::{Ending, Left, Section, Style, seconds};
use analysis::view;
use analysis::{Cost, Profile, Query, to_signed, why_none_of};
use std::io::{self, Write};

impl LoadedTrace {
    pub fn write_text(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        if let Some(known) = self.trace.engine().definitions().profile {
            return self.write_profile_text(known, options, query, paint, out);
        }
        if options.is_one_screen() {
            return self.write_one_screen(options, query, paint, out);
        }
        header(out, &[self])?;
        writeln!(out, "{}\n", extra_sections::ending(&self.trace))?;
        let left = self.left();
        if let Some(note) = self.why_empty(query) {
            writeln!(out, "{note}\n")?;
        } else {
            self.write_lists(&lists(options, query), &left, options, query, paint, out)?;
            self.write_blamed(options, query, &left, paint, out)?;
            if options.print_leaks {
                self.write_verdicts(options, query, paint, out)?;
            }
        }
        if !self.profile.range.instant {
            process_section::write(out, &self.process_tree()?, query, options.given_rows(), paint)?;
        }
        allocator_section::write(out, &self.allocators(query)?, self.profile.range.instant, &left, paint)?;
        self.ending(query).write(out)?;
        if !self.profile.range.instant {
            let leaked_blocks = self.profile.totals.live_allocations - self.suppressed(&self.profile, query).1;
            extra_sections::details(out, &self.trace, &self.table, &self.profile, &left, leaked_blocks)?;
        }
        if let Some(intervals) = &self.intervals {
            extra_sections::intervals(out, intervals)?;
        }
        extra_sections::missing(out, &self.trace)?;
        if let Some(custom) = &self.custom {
            custom.write_custom(options, query, paint, out)?;
        }
        if options.print_suppressions {
            extra_sections::suppressions(out, &view::suppression_rows(&self.profile, &self.table))?;
        }
        Ok(())
    }

    fn write_lists(
        &self,
        costs: &[Cost],
        left: &Left,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let (lens, style) = (self.lens(query), Style::new(options, paint));
        let entries = of_profile(self.trace.engine().definitions(), &lens, &self.profile, &self.table, query);
        let entries = Entries::new(merged(entries));
        costs.iter().try_for_each(|cost| self.section(*cost, left, query).write(out, &entries, &style))
    }

    fn write_blamed(
        &self,
        options: &Print,
        query: &Query,
        left: &Left,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let mut costs = vec![(Cost::Peak, "AT THE PEAK".to_owned())];
        costs.retain(|_| options.print_peaks);
        if options.print_leaks {
            costs.push((Cost::Leaked, left.short_heading.clone()));
        }
        if (query.cost.is_some() || query.at.is_some()) && !costs.iter().any(|(cost, _)| *cost == query.cost()) {
            costs.push((query.cost(), self.heading(query.cost(), left)));
        }
        let costs: Vec<_> = costs.into_iter().map(|(cost, what)| (cost, format!("IN YOUR OWN CODE, {what}"))).collect();
        Ok(extra_sections::blamed(out, &self.profile, &self.table, query, &costs, options.rows(), paint)?)
    }

    fn write_verdicts(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        let leaks = self.judged(query)?;
        Ok(extra_sections::verdicts(out, &leaks, &self.table, options.given_rows(), paint)?)
    }

    /// Returns every place that holds memory at the end, with a verdict. The one with the most memory comes first.
    pub fn judged(&self, query: &Query) -> anyhow::Result<Vec<view::Leak>> {
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        let mut trace = self.trace.for_view(&self.table, &mut blocks);
        // The limit is applied by what shows them, because known leaks must not count as rows.
        let mut all = query.within(self.trace.engine());
        all.limit = 0;
        view::judge(&mut trace, &all).map_err(|error| self.unreadable(&error))
    }

    /// Writes the section about the program's own allocators, after the report about malloc.
    fn write_custom(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(out, "\n{}", paint.heading("CUSTOM ALLOCATORS"))?;
        writeln!(out, "blocks that the program reported itself, not counted above\n")?;
        let left = self.left();
        let mut costs = lists(options, query);
        costs.retain(|cost| *cost != Cost::Temporary || query.cost == Some(Cost::Temporary));
        if !costs.contains(&Cost::Leaked) && query.cost.is_none() && query.at.is_none() {
            costs.push(Cost::Leaked);
        }
        if let Some(note) = self.why_empty(query) {
            writeln!(out, "{note}\n")?;
            costs.clear();
        }
        self.write_lists(&costs, &left, options, query, paint, out)?;
        Ok(self.ending(query).write(out)?)
    }

    pub fn section(&self, cost: Cost, left: &Left, query: &Query) -> Section {
        let none = why_none_of(cost, &self.profile, &self.table, query);
        Section {
            heading: self.heading(cost, left),
            cost,
            left: left.words.clone(),
            if_empty: none.unwrap_or_default(),
        }
    }

    fn heading(&self, cost: Cost, left: &Left) -> String {
        match cost {
            Cost::Allocations => "MOST CALLS TO ALLOCATION FUNCTIONS".into(),
            Cost::Peak => "PEAK MEMORY CONSUMERS".into(),
            Cost::Leaked => left.heading.clone(),
            Cost::Temporary => "MOST TEMPORARY ALLOCATIONS".into(),
            Cost::Live => format!("LIVE AT {}", seconds(self.profile.range.to_ns)),
            Cost::Allocated => "MOST MEMORY ALLOCATED".into(),
            Cost::Deallocations => "MOST DEALLOCATIONS".into(),
            Cost::Kept => "ALLOCATED IN THIS TIME AND STILL LIVE".into(),
            Cost::Growth => "GROWTH".into(),
        }
    }

    pub fn ending(&self, query: &Query) -> Ending {
        self.ending_of(&self.profile, query)
    }

    pub fn ending_of(&self, profile: &Profile, query: &Query) -> Ending {
        let Profile { totals: costs, range, .. } = profile;
        let (suppressed, suppressed_blocks) = self.suppressed(profile, query);
        let live = Numbers::of(costs, Cost::Live, false);
        let leaked = to_signed(costs.live_bytes - suppressed);
        let is_leaked = query.cost() == Cost::Leaked;
        Ending {
            runtime_ns: to_signed(range.to_ns - range.from_ns),
            rate_ns: Some(range.to_ns - range.from_ns),
            numbers: Numbers {
                leaked,
                value: if is_leaked { leaked } else { live.value },
                blocks: if is_leaked { live.blocks - to_signed(suppressed_blocks) } else { live.blocks },
                ..live
            },
            peak_rss_bytes: to_signed(self.trace.engine().totals().peak_rss_bytes),
            suppressed_bytes: to_signed(suppressed),
            left: self.left().state,
            instant_ns: query.is_of_an_instant().then_some(range.to_ns),
            is_change: false,
        }
    }
}

/// Returns the costs of the text report's lists, in their order.
pub fn lists(options: &Print, query: &Query) -> Vec<Cost> {
    let switches = [
        (options.print_allocators, Cost::Allocations),
        (options.print_peaks, Cost::Peak),
        (options.print_leaks, Cost::Leaked),
        (options.print_temporary, Cost::Temporary),
    ];
    let mut lists: Vec<Cost> = switches.iter().filter(|(is_on, _)| *is_on).map(|(_, cost)| *cost).collect();
    let asked = query.cost.or_else(|| query.is_of_an_instant().then_some(Cost::Live));
    lists.extend(asked.filter(|cost| !lists.contains(cost)));
    lists
}

/// Writes the first lines, as KDE's heaptrack_print writes them.
pub fn header(out: &mut impl Write, all: &[&LoadedTrace]) -> io::Result<()> {
    for (at, asked) in all.iter().enumerate() {
        let what = if at == 0 { "file" } else { "diff file" };
        let path = asked.trace.path().display();
        writeln!(out, "reading {what} \"{path}\" - please wait, this might take some time...")?;
    }
    for asked in all {
        writeln!(out, "Debuggee command was: {}", asked.trace.engine().definitions().session.command.join(" "))?;
    }
    writeln!(out, "finished reading file, now analyzing data:\n")
}
