//! The result of a check, before it is written in one of the formats.
use super::budget::{Budget, Limit, Metric};
use crate::status::Bytes;
use analysis::view::FunctionDiff;
use format::Totals;
use std::path::PathBuf;

/// Whether a budget was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Kept,
    Broken,
    /// The file does not tell. This fails the check, because a budget that was not compared must not pass.
    Unknown,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            State::Kept => "kept",
            State::Broken => "broken",
            State::Unknown => "unknown",
        }
    }
}

/// A place in the code, and its part of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub value: u64,
    /// Why the place counts, for places that grow.
    pub reason: Option<String>,
    /// The innermost file of the stack that belongs to the repository, relative to it, and the line.
    pub in_repository: Option<(String, u32)>,
}

impl Place {
    /// "src/a.c:12", or the name of the file alone.
    pub fn location(&self) -> Option<String> {
        let file = self.file.as_deref()?;
        Some(match self.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        })
    }
}

/// A budget and what became of it.
#[derive(Clone, Debug)]
pub struct Judged {
    pub budget: Budget,
    pub state: State,
    /// `None` if the file does not tell.
    pub value: Option<u64>,
    /// The value in per cent, if the limit is a share.
    pub share: Option<f64>,
    /// Why the budget cannot be judged.
    pub reason: Option<String>,
    /// The budget is for a site, and no stack of the file matches its pattern.
    pub is_unmatched: bool,
    /// The code to blame, the highest value first. Empty for a budget that was kept.
    pub places: Vec<Place>,
}

impl Judged {
    /// What happened, as a sentence for people, without the name of the budget.
    pub fn sentence(&self) -> String {
        if self.state == State::Unknown {
            return format!("cannot be judged: {}", self.reason.as_deref().unwrap_or_default());
        }
        if self.budget.metric == Metric::Growth {
            return match self.value {
                Some(0) => "no place grows until the end".into(),
                Some(1) => "1 place grows until the end".into(),
                value => format!("{} places grow until the end", value.unwrap_or_default()),
            };
        }
        let (value, limit) = (self.shown_value(), self.shown_limit());
        match self.state {
            State::Broken => format!("{value}, above the limit of {limit}"),
            _ => format!("{value}, the limit is {limit}"),
        }
    }

    /// Values that differ never look the same: then they have all their digits.
    fn shown_value(&self) -> String {
        match (self.share, self.value) {
            (Some(share), _) => format!("{share:.2}%"),
            (None, Some(value)) => self.shown(value),
            (None, None) => "an unknown amount".to_owned(),
        }
    }

    fn shown_limit(&self) -> String {
        match self.budget.limit {
            Limit::Share(share) => format!("{share}%"),
            Limit::Most(limit) => self.shown(limit),
        }
    }

    fn shown(&self, amount: u64) -> String {
        if !self.budget.metric.is_bytes() {
            return amount.to_string();
        }
        let short = |amount: u64| Bytes(amount).to_string();
        let is_ambiguous = match (self.value, self.budget.limit) {
            (Some(value), Limit::Most(limit)) => value != limit && short(value) == short(limit),
            _ => false,
        };
        if is_ambiguous { format!("{amount} B") } else { short(amount) }
    }
}

/// What changed since the baseline.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub path: PathBuf,
    pub totals: Totals,
    /// By the peak, or the cost that both files know.
    pub functions: Vec<FunctionDiff>,
    pub cost: analysis::Cost,
}

/// A box of a flame graph that is written as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlameRow {
    pub depth: usize,
    pub name: String,
    pub value: u64,
}

#[derive(Clone, Debug)]
pub struct Flame {
    pub cost: analysis::Cost,
    pub total: u64,
    pub rows: Vec<FlameRow>,
}

/// One file and all its budgets.
#[derive(Clone, Debug)]
pub struct CheckedFile {
    pub path: PathBuf,
    pub command: String,
    pub is_complete: bool,
    /// What readers of the result should know, as sentences.
    pub notes: Vec<String>,
    pub totals: Totals,
    pub judged: Vec<Judged>,
    pub comparison: Option<Comparison>,
    pub flame: Flame,
}

/// The whole result.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub files: Vec<CheckedFile>,
}

impl Outcome {
    pub fn judged(&self) -> impl Iterator<Item = (&CheckedFile, &Judged)> {
        self.files.iter().flat_map(|file| file.judged.iter().map(move |judged| (file, judged)))
    }

    pub fn count(&self, state: State) -> u64 {
        self.judged().filter(|(_, judged)| judged.state == state).count() as u64
    }

    pub fn is_kept(&self) -> bool {
        self.judged().all(|(_, judged)| judged.state == State::Kept)
    }

    /// Leaves out the budgets of sites in files without a match, if another file has a match. For the executables of one
    /// package, which have the same budgets.
    pub fn forget_unmatched(&mut self) {
        let is_matched = |judged: &Judged| judged.budget.site.is_some() && !judged.is_unmatched;
        let matched: Vec<Budget> =
            self.judged().filter(|(_, judged)| is_matched(judged)).map(|(_, judged)| judged.budget.clone()).collect();
        for file in &mut self.files {
            file.judged.retain(|judged| !judged.is_unmatched || !matched.contains(&judged.budget));
        }
    }

    /// The result of all budgets as a sentence.
    pub fn sentence(&self) -> String {
        let all = self.judged().count() as u64;
        let budgets = crate::trouble::counted(all, "budget", "budgets");
        let (broken, unknown) = (self.count(State::Broken), self.count(State::Unknown));
        match (broken, unknown) {
            (0, 0) => format!("{budgets} kept"),
            (broken, 0) => format!("{broken} of {budgets} broken"),
            (0, unknown) => format!("{unknown} of {budgets} cannot be judged"),
            (broken, unknown) => format!("{broken} of {budgets} broken, {unknown} cannot be judged"),
        }
    }
}
