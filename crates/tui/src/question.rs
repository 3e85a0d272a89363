//! What the user asks: the time, the filters, the measure, and what is compared. Every change can be undone.
use analysis::{BadQuery, Cost, Query};

/// What the numbers are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Session,
    Range,
    Moment,
}

/// The part of the session that is shown. Times are as `Query` reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Time {
    #[default]
    Whole,
    At(String),
    Range {
        from: Option<String>,
        to: Option<String>,
    },
}

/// Which levels of stacks are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Levels {
    /// `Mine` if at least half of the allocations and live blocks have a level in the user's own code, otherwise `All`.
    #[default]
    Auto,
    Mine,
    All,
}

/// Everything that decides which data is shown, except the view.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) time: Time,
    /// Words of a query that can be repeated or removed, with their values.
    pub(crate) filters: Vec<(&'static str, String)>,
    /// A file, or `@` and a time.
    pub(crate) compare: Option<String>,
    pub(crate) levels: Levels,
    pub(crate) cost: Cost,
}

impl Default for Question {
    fn default() -> Self {
        Question { time: Time::Whole, filters: Vec::new(), compare: None, levels: Levels::Auto, cost: Cost::Peak }
    }
}

impl Question {
    pub(crate) const fn mode(&self) -> Mode {
        match self.time {
            Time::Whole => Mode::Session,
            Time::At(_) => Mode::Moment,
            Time::Range { .. } => Mode::Range,
        }
    }

    /// The measure, or a similar one if the chosen one makes no sense for this time.
    pub(crate) fn cost(&self) -> Cost {
        let known = measures(self.mode());
        match self.cost {
            cost if known.contains(&cost) => cost,
            Cost::Leaked => Cost::Live,
            Cost::Live if self.mode() == Mode::Session => Cost::Leaked,
            _ => known.first().copied().unwrap_or(Cost::Peak),
        }
    }

    /// Chooses the measure that is this many places further on.
    pub(crate) fn step_cost(&mut self, by: usize) {
        let known = measures(self.mode());
        let now = known.iter().position(|cost| *cost == self.cost()).unwrap_or(0);
        self.cost = known[(now + by) % known.len()];
    }

    /// The query without its measure and its levels. `with_time`: only the part of the session that is shown.
    pub(crate) fn selection(&self, with_time: bool) -> Result<Query, BadQuery> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        match &self.time {
            _ if !with_time => {}
            Time::Whole => {}
            Time::At(at) => pairs.push(("at", at)),
            Time::Range { from, to } => {
                pairs.extend(from.as_deref().map(|from| ("from", from)));
                pairs.extend(to.as_deref().map(|to| ("to", to)));
            }
        }
        pairs.extend(self.filters.iter().map(|(word, value)| (*word, value.as_str())));
        Query::new(pairs)
    }

    /// The query of a view that shows the levels of stacks. `mine`: only those of the user's own code.
    pub(crate) fn query(&self, mine: bool) -> Result<Query, BadQuery> {
        let mut query = self.selection(true)?;
        query.set("cost", self.cost().name())?;
        query.set("collapse", "recursion")?;
        if mine {
            query.set("hide", "all-but-mine")?;
        }
        query.check()?;
        Ok(query)
    }

    /// The query of a comparison.
    pub(crate) fn difference(&self) -> Result<Option<Query>, BadQuery> {
        let Some(compare) = &self.compare else { return Ok(None) };
        let mut query = self.selection(true)?;
        query.set("compare", compare)?;
        let cost = self.cost();
        let cost = if query.is_of_an_instant() && !cost.is_known_at_an_instant() { Cost::Live } else { cost };
        query.set("cost", cost.name())?;
        query.check()?;
        Ok(Some(query))
    }

    /// Adds a filter, unless it is there already. Only one range of sizes and one of lifetimes can be chosen.
    pub(crate) fn add(&mut self, word: &'static str, value: String) {
        if word == "size" || word == "lifetime" {
            self.filters.retain(|(known, _)| *known != word);
        }
        if !self.filters.iter().any(|(known, text)| *known == word && *text == value) {
            self.filters.push((word, value));
        }
    }

    /// What is shown, in the words of the page.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![match &self.time {
            Time::Whole => "whole session".to_owned(),
            Time::At(at) if at == "peak" => "live at the peak".to_owned(),
            Time::At(at) => format!("live at {}", shown(at)),
            Time::Range { from, to } => {
                let end = |time: &Option<String>, missing: &str| time.as_deref().map_or(missing.to_owned(), shown);
                format!("range {} – {}", end(from, "start"), end(to, "end"))
            }
        }];
        words.extend(self.filters.iter().map(|(word, value)| match *word {
            "include" => value.clone(),
            "exclude" => format!("excluding {value}"),
            "wrapper" => format!("{value} as allocator"),
            "size" => format!("size {value} B"),
            "lifetime" => format!("lived {value}"),
            _ => format!("{word} {value}"),
        }));
        words.extend(self.compare.as_ref().map(|base| match base.strip_prefix('@') {
            Some(time) => format!("compared to {}", shown(time)),
            None => format!("compared to {}", base.rsplit('/').next().unwrap_or(base)),
        }));
        words
    }
}

/// A time as people read it, if it is in nanoseconds.
fn shown(time: &str) -> String {
    let ns = time.strip_suffix("ns").and_then(|number| number.parse().ok());
    ns.map_or_else(|| time.to_owned(), crate::units::time)
}

/// The measures that make sense, in the order of the page.
pub(crate) const fn measures(mode: Mode) -> &'static [Cost] {
    match mode {
        Mode::Session => &[Cost::Peak, Cost::Leaked, Cost::Allocations, Cost::Temporary, Cost::Allocated],
        Mode::Range => {
            &[Cost::Peak, Cost::Growth, Cost::Kept, Cost::Live, Cost::Allocations, Cost::Temporary, Cost::Allocated]
        }
        Mode::Moment => &[Cost::Live],
    }
}

/// The name of a measure, as on the page.
pub(crate) const fn cost_name(cost: Cost, mode: Mode) -> &'static str {
    match (cost, mode) {
        (Cost::Peak, Mode::Session) => "Peak",
        (Cost::Peak, Mode::Range) => "Peak in range",
        (Cost::Live, Mode::Session | Mode::Range) => "Live at end",
        (Cost::Peak | Cost::Live, Mode::Moment) => "Live",
        (Cost::Leaked, _) => "Leaked",
        (Cost::Allocations, _) => "Allocations",
        (Cost::Temporary, _) => "Temporary",
        (Cost::Allocated, _) => "Allocated",
        (Cost::Deallocations, _) => "Frees",
        (Cost::Kept, _) => "Kept",
        (Cost::Growth, _) => "Growth",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_always_fits_the_time() {
        let mut question = Question { cost: Cost::Leaked, ..Question::default() };
        assert_eq!(question.cost(), Cost::Leaked);
        question.time = Time::Range { from: Some("1s".into()), to: None };
        assert_eq!(question.cost(), Cost::Live);
        question.time = Time::At("peak".into());
        for cost in Cost::VALUES {
            question.cost = cost;
            assert!(question.query(true).is_ok(), "{cost:?}");
        }
        question.step_cost(1);
        assert_eq!(question.cost(), Cost::Live);
    }

    #[test]
    fn filters_become_words_of_the_query() {
        let mut question = Question { time: Time::Range { from: None, to: Some("2s".into()) }, ..Question::default() };
        question.add("include", "a".into());
        question.add("include", "a".into());
        question.add("size", "1..2".into());
        question.add("size", "3..4".into());
        let query = question.query(false).unwrap();
        assert_eq!((query.include.len(), query.size.unwrap().min, query.cost()), (1, 3, Cost::Peak));
        assert!(question.selection(false).unwrap().to.is_none());
        assert_eq!(question.words(), ["range start – 2s", "a", "size 3..4 B"]);
        question.add("include", "/(/".into());
        assert!(question.query(false).is_err(), "not a regular expression");
    }

    #[test]
    fn a_comparison_with_a_moment_is_about_live_blocks() {
        let question = Question { compare: Some("@1s".into()), cost: Cost::Peak, ..Question::default() };
        assert_eq!(question.difference().unwrap().unwrap().cost(), Cost::Live);
        let question = Question { compare: Some("old.htz".into()), cost: Cost::Temporary, ..Question::default() };
        assert_eq!(question.difference().unwrap().unwrap().cost(), Cost::Temporary);
    }
}
