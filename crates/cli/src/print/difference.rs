//! The text of a comparison: with another trace, or with another moment or range of the same trace.
use super::entry::{Entries, difference, difference_of_one, merged, of_profile};
use super::extra_sections;
use super::loaded_trace::LoadedTrace;
use super::options::Print;
use super::paint::Paint;
use super::process_section::shortened;
use super::text::{Section, Style};
use super::text_report::{header, lists};
use crate::status::quoted;
use analysis::numbers::{bytes as human, exact};
use analysis::view;
use analysis::{Cost, Pairing, Profile, Query, to_signed};
use std::io::Write;

/// One screen: the most columns of a file's name, the lists of functions, and the rows of each.
const NAME: usize = 42;
const SECTIONS: usize = 3;
const ROWS: usize = 6;

/// What a trace is compared with.
#[derive(Clone, Copy)]
pub enum Before<'a> {
    /// Another trace.
    Other(&'a LoadedTrace),
    /// Another moment or range of the same trace.
    Same(&'a Profile),
}

impl LoadedTrace {
    pub fn write_difference(
        &self,
        before: Before<'_>,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        if let Before::Other(base) = before
            && (self.is_profile() || base.is_profile())
        {
            return self.write_changes_of_known(base, options, query, paint, out);
        }
        if options.is_one_screen() {
            return self.write_difference_screen(before, query, paint, out);
        }
        let definitions = self.trace.engine().definitions();
        let lens = self.lens(query);
        let after = of_profile(definitions, &lens, &self.profile, &self.table, query);
        let other_lens;
        let entries = match before {
            Before::Other(base) => {
                header(out, &[self, base])?;
                other_lens = base.lens(query);
                let other = base.trace.engine().definitions();
                let before = of_profile(other, &other_lens, &base.profile, &base.table, query);
                difference(after, &before, &Pairing::new(&self.table, &base.table))
            }
            Before::Same(profile) => {
                header(out, &[self])?;
                difference_of_one(after, &of_profile(definitions, &lens, profile, &self.table, query))
            }
        };
        writeln!(out)?;
        let (entries, left, style) = (Entries::new(merged(entries)), self.left(), Style::new(options, paint));
        for cost in lists(options, query) {
            let section = self.section(cost, &left, query);
            Section { if_empty: "nothing changed".into(), ..section }.write(out, &entries, &style)?;
        }
        for cost in changes(options, query) {
            let rows = self.changed_functions(before, query, cost);
            let heading = format!("WHAT CHANGED {}", change_heading(cost));
            extra_sections::changes(out, &heading, &rows, cost, options.given_rows(), paint)?;
        }
        let base = match before {
            Before::Other(base) => base.ending(query),
            Before::Same(profile) => self.ending_of(profile, query),
        };
        Ok(self.ending(query).minus(&base).write(out)?)
    }

    /// The same on one screen: the totals, and the functions that changed most.
    fn write_difference_screen(
        &self,
        before: Before<'_>,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let name = |trace: &LoadedTrace| shortened(&quoted(trace.trace.path()), NAME);
        let base = match before {
            Before::Other(base) => name(base),
            Before::Same(_) => "an earlier part of it".to_owned(),
        };
        writeln!(out, "{}, compared with {base}\n", paint.number(&name(self)))?;
        let old = match before {
            Before::Other(base) => &base.profile,
            Before::Same(profile) => profile,
        };
        writeln!(out, "{:<12}{:>11} {:>11} {:>11}", "", "before", "after", "change")?;
        for (label, cost) in self.compared_totals(query) {
            let total = |trace: &LoadedTrace, profile: &Profile| {
                let known = if cost == Cost::Leaked { trace.suppressed(profile, query).0 } else { 0 };
                cost.of(&profile.totals, false) - to_signed(known)
            };
            let older = if let Before::Other(base) = before { base } else { self };
            let (was, is) = (total(older, old), total(self, &self.profile));
            let number = |value| if cost.is_bytes() { human(value) } else { exact(value) };
            let sign = if is > was { "+" } else { "" };
            let change = format!("{:>11}", format!("{sign}{}", number(is - was)));
            let share =
                if was == 0 { String::new() } else { format!("  {:+.1} %", (is - was) as f64 * 100.0 / was as f64) };
            writeln!(out, "{label:<12}{:>11} {:>11} {}{share}", number(was), number(is), paint.number(&change))?;
        }
        writeln!(out)?;
        for (_, cost) in self.compared_totals(query).into_iter().take(SECTIONS) {
            let rows = self.changed_functions(before, query, cost);
            let heading = format!("WHAT CHANGED {}", change_heading(cost));
            extra_sections::short_changes(out, &heading, &rows, cost, ROWS, paint)?;
        }
        let file = quoted(self.trace.path());
        let command = match before {
            Before::Other(base) => format!("diff --full {} {file}", quoted(base.trace.path())),
            Before::Same(_) => format!("print --full --compare @T {file}"),
        };
        Ok(writeln!(out, "Next:       heaptrack {command}")?)
    }

    /// The totals of a comparison. The first ones have lists of functions.
    fn compared_totals(&self, query: &Query) -> Vec<(&'static str, Cost)> {
        // Of an instant only what was live is known.
        if self.profile.range.instant || query.is_of_an_instant() {
            return vec![("live", Cost::Live)];
        }
        vec![
            ("peak", Cost::Peak),
            ("not freed", Cost::Leaked),
            ("allocations", Cost::Allocations),
            ("short-lived", Cost::Temporary),
            ("allocated", Cost::Allocated),
        ]
    }

    /// Writes what changed in the costs that both files know, if one of them is a heap profile of another tool.
    fn write_changes_of_known(
        &self,
        base: &LoadedTrace,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        header(out, &[self, base])?;
        let both = [self, base].map(|one| one.trace.engine().definitions());
        let usual = [Cost::Live, Cost::Peak, Cost::Allocated, Cost::Allocations];
        let known = usual.into_iter().filter(|cost| both.iter().all(|definitions| definitions.knows(*cost)));
        let costs: Vec<Cost> = query.cost.map_or_else(|| known.collect(), |cost| vec![cost]);
        if costs.is_empty() {
            anyhow::bail!("the two files have no cost in common");
        }
        for cost in costs {
            let rows = self.changed_functions(Before::Other(base), query, cost);
            let heading = format!("WHAT CHANGED {}", change_heading(cost));
            extra_sections::changes(out, &heading, &rows, cost, options.given_rows(), paint)?;
        }
        Ok(())
    }

    fn changed_functions(&self, before: Before<'_>, query: &Query, cost: Cost) -> Vec<view::FunctionDiff> {
        match before {
            Before::Same(profile) => view::diff_of_one(&self.profile, profile, &self.table, query, cost),
            Before::Other(base) => {
                let pairing = Pairing::new(&self.table, &base.table);
                let (after, before) = ((&self.profile, &self.table), (&base.profile, &base.table));
                view::diff_functions(after, before, &pairing, query, cost)
            }
        }
    }
}

/// Returns the costs by which the text of a diff lists functions.
fn changes(options: &Print, query: &Query) -> Vec<Cost> {
    if query.cost.is_some() || query.is_of_an_instant() {
        return lists(options, query);
    }
    let switches =
        [(options.print_peaks, Cost::Peak), (true, Cost::Leaked), (options.print_allocators, Cost::Allocations)];
    switches.iter().filter(|(is_on, _)| *is_on).map(|(_, cost)| *cost).collect()
}

const fn change_heading(cost: Cost) -> &'static str {
    match cost {
        Cost::Peak => "AT THE PEAK",
        Cost::Leaked => "IN LEAKED MEMORY",
        Cost::Live => "IN LIVE MEMORY",
        Cost::Allocations => "IN ALLOCATIONS",
        Cost::Temporary => "IN TEMPORARY ALLOCATIONS",
        Cost::Allocated => "IN ALLOCATED MEMORY",
        Cost::Deallocations => "IN DEALLOCATIONS",
        Cost::Kept => "IN MEMORY THAT STAYED",
        Cost::Growth => "IN GROWTH",
    }
}
