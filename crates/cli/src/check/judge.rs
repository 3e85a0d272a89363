//! Compares a trace with its budgets.
//!
//! Receives: a file and budgets. Returns: for each budget whether it was kept, broken, or cannot be judged. Must hold: a
//! budget is kept only if the file has everything that the budget is about. The numbers are those of `print --json`.
use super::budget::{Budget, Limit, Metric, Origin};
use super::flame;
use super::outcome::{CheckedFile, Comparison, Judged, Place, State};
use super::places::Repository;
use crate::known_leaks::KnownLeaks;
use crate::memory;
use crate::print::{check_misfit, code_classes};
use crate::trouble::{counted, unreadable, without_domain};
use analysis::view::{self, Verdict, by_blamed};
use analysis::{Cost, Costs, Pairing, Profile, Query, StackTable};
use format::{Exit, Totals};
use heaptrack_trace::{OpenOptions, OpenTrace, Reading};
use std::path::Path;

/// The most places that a broken budget lists.
const PLACES: usize = 5;
/// The most functions of a comparison.
const FUNCTIONS: usize = 10;
/// What a baseline limits.
const OF_BASELINE: [Metric; 3] = [Metric::Peak, Metric::Leaked, Metric::Allocations];

/// What is the same for all files.
pub struct Terms<'a> {
    pub budgets: Vec<Budget>,
    /// Which part of the trace counts.
    pub query: Query,
    pub known: KnownLeaks,
    pub rules: Option<&'a Path>,
    pub repository: Repository,
    /// The trace of an earlier run, and by how many per cent its numbers may be exceeded.
    pub baseline: Option<(&'a Path, f64)>,
}

pub fn check(path: &Path, terms: &Terms<'_>) -> anyhow::Result<CheckedFile> {
    for file in [Some(path), terms.baseline.map(|(base, _)| base)].into_iter().flatten() {
        crate::sampled::refuse(file, "a budget")?;
    }
    let asked = Asked::open(path, terms)?;
    let base = terms.baseline.map(|(base, _)| Asked::open(base, terms)).transpose()?;
    let mut budgets = terms.budgets.clone();
    let mut judged = Vec::new();
    if let (Some(base), Some((_, tolerance))) = (&base, terms.baseline) {
        for metric in OF_BASELINE {
            match base.limit(metric, tolerance)? {
                Ok(budget) => budgets.push(budget),
                Err(unknown) => judged.push(unknown),
            }
        }
    }
    for budget in budgets {
        judged.push(asked.judge(budget)?);
    }
    let comparison = base.as_ref().map(|base| asked.comparison(base)).transpose()?;
    let cost =
        judged.iter().find(|judged| judged.state == State::Broken).and_then(|judged| judged.budget.metric.cost());
    let definitions = asked.trace.engine().definitions();
    let usual = definitions.profile.map_or(Cost::Peak, |known| known.usual());
    let cost = cost.filter(|cost| definitions.knows(*cost)).unwrap_or(usual);
    Ok(CheckedFile {
        path: path.to_owned(),
        command: definitions.session.command.join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
        is_complete: asked.missing().is_none(),
        notes: asked.notes(),
        totals: asked.totals()?,
        judged,
        comparison,
        flame: flame::rows(&asked.profile, &asked.table, &asked.query, cost),
    })
}

/// An open trace, and the part of it that counts.
struct Asked<'a> {
    trace: OpenTrace,
    table: StackTable,
    query: Query,
    profile: Profile,
    terms: &'a Terms<'a>,
}

impl<'a> Asked<'a> {
    fn open(path: &Path, terms: &'a Terms<'a>) -> anyhow::Result<Self> {
        memory::check(&[path], terms.query.domain, Reading::Range)?;
        let read = |error: &dyn std::fmt::Display| unreadable(path, error);
        let trace =
            OpenOptions::new().domain(terms.query.domain).open(path, |_, _| ()).map_err(|error| read(&error))?;
        if !trace.has(terms.query.domain) {
            return Err(without_domain(terms.query.domain, path));
        }
        let classes = code_classes(&trace, terms.rules)?;
        let table = trace.table(&classes, terms.known.load(&trace.engine().definitions().suppressions)?);
        check_misfit(&trace, &terms.query)?;
        let query = terms.query.within(trace.engine());
        let whole = query.is_whole().then(|| trace.engine().whole_profile()).flatten();
        let profile = match whole {
            Some(whole) => whole,
            None => trace.profile(&query).map_err(|error| read(&error))?,
        };
        Ok(Asked { trace, table, query, profile, terms })
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        unreadable(self.trace.path(), error)
    }

    /// Returns why numbers of the trace may be too low.
    fn missing(&self) -> Option<String> {
        let definitions = self.trace.engine().definitions();
        if definitions.profile.is_some() {
            return None;
        }
        if self.trace.damage_count() > 0 || !self.trace.engine().faults().is_empty() {
            return Some("the file is damaged".into());
        }
        let lost = self.trace.engine().totals().lost_events;
        if lost > 0 {
            return Some(format!("{} missing in the trace", counted(lost, "event is", "events are")));
        }
        // A file of KDE's does not say whether it is complete.
        if !self.trace.is_complete() && definitions.session.kde().is_none() {
            return Some("the trace is not complete: it was cut, or its recording has not ended".into());
        }
        (self.trace.engine().totals().allocations == 0)
            .then(|| "the trace has no allocations; was the right program recorded?".into())
    }

    fn notes(&self) -> Vec<String> {
        let definitions = self.trace.engine().definitions();
        let mut notes: Vec<String> = definitions.unseen.iter().map(|unseen| unseen.sentence.clone()).collect();
        if definitions.session.kde().is_some() {
            notes.push("a file of KDE's heaptrack does not say whether events are missing".into());
        }
        if definitions.session.attached {
            notes.push("recorded by attaching: the numbers cover only the time from then on".into());
        }
        match definitions.summary.map(|summary| summary.exit) {
            Some(Exit::Signal(signal)) => notes.push(format!("the program was ended by signal {signal}")),
            Some(Exit::Code(code)) if code != 0 => notes.push(format!("the program exited with code {code}")),
            _ => {}
        }
        if definitions.folded_until_ns().is_some() {
            notes.push("--max-size or --keep-last folded the early events: growth is judged by the later ones".into());
        }
        notes
    }

    /// Returns the totals of the part that counts. Known leaks do not count as leaked.
    fn totals(&self) -> anyhow::Result<Totals> {
        let Costs { allocations, deallocations, allocated_bytes, temporary, peak_allocations, .. } =
            self.profile.totals;
        let (leaked_bytes, leaked_allocations) = leaked(&self.profile, &self.table, &self.query);
        Ok(Totals {
            allocations,
            deallocations,
            allocated_bytes,
            temporary,
            leaked_bytes,
            leaked_allocations,
            peak_bytes: self.peak(&self.query)?.unwrap_or(self.profile.totals.peak_bytes),
            peak_allocations,
            peak_time_ns: self.profile.peak_time_ns,
            ..self.trace.engine().totals()
        })
    }

    /// Returns the most bytes that the selected blocks held at the same time.
    fn peak(&self, query: &Query) -> anyhow::Result<Option<u64>> {
        if query.is_whole() {
            return Ok(Some(self.profile.totals.peak_bytes));
        }
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        self.trace.engine().own_peak(&mut blocks, query).map_err(|error| self.unreadable(&error))
    }

    fn judge(&self, budget: Budget) -> anyhow::Result<Judged> {
        let unknown = |budget: Budget, reason: String| Judged {
            budget,
            state: State::Unknown,
            value: None,
            share: None,
            reason: Some(reason),
            is_unmatched: false,
            places: Vec::new(),
        };
        let measured = match self.measure(&budget)? {
            Ok(measured) => measured,
            Err(reason) => return Ok(Judged { is_unmatched: self.is_unmatched(&budget)?, ..unknown(budget, reason) }),
        };
        let Measured { value, of, .. } = measured;
        let share = match budget.limit {
            Limit::Share(_) if of == 0 => Some(0.0),
            Limit::Share(_) => Some(value as f64 * 100.0 / of as f64),
            Limit::Most(_) => None,
        };
        let is_broken = match (budget.limit, share) {
            (Limit::Most(limit), _) => value > limit,
            (Limit::Share(limit), share) => share.is_some_and(|share| share > limit),
        };
        if !is_broken {
            // What is missing can only be more.
            return Ok(match self.missing().or_else(|| self.why_partly(&budget)) {
                Some(reason) => unknown(budget, reason),
                None => {
                    let (value, places) = (Some(value), Vec::new());
                    Judged { budget, state: State::Kept, value, share, reason: None, is_unmatched: false, places }
                }
            });
        }
        let (state, places) = (State::Broken, measured.places);
        Ok(Judged { budget, state, value: Some(value), share, reason: None, is_unmatched: false, places })
    }

    /// Returns the query for the stacks of a budget.
    fn query_of(&self, budget: &Budget) -> anyhow::Result<Query> {
        let mut query = self.query.clone();
        if let Some(site) = &budget.site {
            query.set("include", site).map_err(|bad| anyhow::anyhow!(crate::print::as_option(&bad)))?;
        }
        Ok(query)
    }

    fn is_unmatched(&self, budget: &Budget) -> anyhow::Result<bool> {
        Ok(budget.site.is_some() && !self.trace.engine().has_match(&self.query_of(budget)?))
    }

    /// Returns the value of a budget's metric, or the reason why it is not known.
    fn measure(&self, budget: &Budget) -> anyhow::Result<Result<Measured, String>> {
        if let Some(reason) = self.why_unknown(budget) {
            return Ok(Err(reason));
        }
        match budget.metric {
            Metric::Growth => return self.growing().map(Ok),
            Metric::Rss => {
                let value = self.trace.engine().totals().peak_rss_bytes;
                return Ok(Ok(Measured { value, of: 0, places: Vec::new() }));
            }
            _ => {}
        }
        let Some(site) = &budget.site else {
            return self.measured(budget.metric, &self.profile, &self.query).map(Ok);
        };
        let query = self.query_of(budget)?;
        if !self.trace.engine().has_match(&query) {
            return Ok(Err(format!("no stack matches {site}")));
        }
        let profile = self.trace.profile(&query).map_err(|error| self.unreadable(&error))?;
        self.measured(budget.metric, &profile, &query).map(Ok)
    }

    fn why_unknown(&self, budget: &Budget) -> Option<String> {
        let definitions = self.trace.engine().definitions();
        let metric = budget.metric;
        let name = budget.name();
        if let Some(known) = definitions.profile {
            let is_known = match metric {
                // What a site held at the program's peak is not its own peak.
                Metric::Peak => known.peak_bytes && budget.site.is_none(),
                Metric::Leaked => known.live_bytes,
                Metric::Allocations => known.allocations,
                Metric::Temporary => known.temporary && known.allocations,
                Metric::Rss | Metric::Growth => false,
            };
            return (!is_known).then(|| format!("this heap profile of another tool does not record it ({name})"));
        }
        if metric != Metric::Rss {
            return None;
        }
        if !self.query.processes.is_empty() {
            return Some("the resident memory of one process of several is not in the trace".into());
        }
        (self.trace.engine().totals().peak_rss_bytes == 0).then(|| "the trace has no resident memory".into())
    }

    /// Returns why a value covers only a part of the time.
    fn why_partly(&self, budget: &Budget) -> Option<String> {
        let is_selected = budget.site.is_some() || !self.query.is_whole();
        let is_folded = self.trace.engine().definitions().folded_until_ns().is_some();
        (budget.metric == Metric::Peak && is_selected && is_folded)
            .then(|| "--max-size or --keep-last folded the early events, in which the peak may be".into())
    }

    fn measured(&self, metric: Metric, profile: &Profile, query: &Query) -> anyhow::Result<Measured> {
        let value = match metric {
            Metric::Peak => self.peak(query)?.unwrap_or(profile.totals.peak_bytes),
            Metric::Leaked => leaked(profile, &self.table, query).0,
            Metric::Temporary => profile.totals.temporary,
            _ => profile.totals.allocations,
        };
        let cost = metric.cost().unwrap_or(Cost::Peak);
        let rows = by_blamed(profile, &self.table, query, cost);
        let places = rows.iter().take(PLACES).map(|row| {
            let node = self.terms.repository.place(&self.table, row.node, row.stack);
            Place { value: row.value.unsigned_abs(), ..node }
        });
        Ok(Measured { value, of: profile.totals.allocations, places: places.collect() })
    }

    /// Counts the places with the verdict `grows` that are not known leaks.
    fn growing(&self) -> anyhow::Result<Measured> {
        let mut blocks = self.trace.blocks().map_err(|error| self.unreadable(&error))?;
        let mut trace = self.trace.for_view(&self.table, &mut blocks);
        let leaks = view::judge(&mut trace, &self.query).map_err(|error| self.unreadable(&error))?;
        let growing = leaks.iter().filter(|leak| leak.verdict == Verdict::Grows && leak.suppressed.is_none());
        let places: Vec<Place> = growing
            .map(|leak| Place {
                value: leak.live_bytes,
                reason: Some(leak.reason.clone()),
                ..self.terms.repository.place(&self.table, leak.node, leak.stack)
            })
            .collect();
        Ok(Measured { value: places.len() as u64, of: 0, places })
    }

    /// Returns the budget that this trace, as a baseline, sets for later ones.
    fn limit(&self, metric: Metric, tolerance: f64) -> anyhow::Result<Result<Budget, Judged>> {
        let path = self.trace.path();
        let origin = Origin::Baseline(path.to_owned());
        let budget = |limit| Budget { metric, site: None, limit: Limit::Most(limit), origin: origin.clone() };
        let measured = match (self.missing(), self.measure(&budget(0))?) {
            (None, measured) => measured,
            (Some(reason), _) => Err(reason),
        };
        Ok(match measured {
            Ok(Measured { value, .. }) => {
                let more = (value as f64 * tolerance / 100.0).floor() as u64;
                Ok(budget(value.saturating_add(more)))
            }
            Err(reason) => Err(Judged {
                budget: budget(0),
                state: State::Unknown,
                value: None,
                share: None,
                reason: Some(format!("{}: {reason}", path.display())),
                is_unmatched: false,
                places: Vec::new(),
            }),
        })
    }

    fn comparison(&self, base: &Asked<'_>) -> anyhow::Result<Comparison> {
        let knows = |cost: &Cost| [self, base].iter().all(|one| one.trace.engine().definitions().knows(*cost));
        let cost = [Cost::Peak, Cost::Leaked, Cost::Allocated, Cost::Allocations].into_iter().find(knows);
        let cost = cost.unwrap_or(Cost::Peak);
        let pairing = Pairing::new(&self.table, &base.table);
        let (after, before) = ((&self.profile, &self.table), (&base.profile, &base.table));
        let mut functions = view::diff_functions(after, before, &pairing, &self.query, cost);
        functions.retain(|row| row.delta != 0);
        functions.truncate(FUNCTIONS);
        Ok(Comparison { path: base.trace.path().to_owned(), totals: base.totals()?, functions, cost })
    }
}

struct Measured {
    value: u64,
    /// All allocations of the same part, of which a share is computed.
    of: u64,
    places: Vec<Place>,
}

/// Returns the bytes and blocks that were not freed, without known leaks.
fn leaked(profile: &Profile, table: &StackTable, query: &Query) -> (u64, u64) {
    let counts = |site: u32| !(query.suppressions && table.stack(site).suppressed.is_some());
    let leaked = profile.stacks.iter().filter(|(site, _)| counts(*site));
    leaked.fold((0u64, 0u64), |(bytes, blocks), (_, costs)| {
        (bytes.saturating_add(costs.live_bytes), blocks.saturating_add(costs.live_allocations))
    })
}
