//! Whether a query fits a trace: whether its times are within the session, its ranges do not end before they begin, and
//! its threads and processes exist.
use crate::engine::Engine;
use crate::moment::When;
use crate::query::{Compare, Query};

/// A word of a query that asks for something that the trace does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The word: `at`, `from`, `thread`, `process` or `compare`.
    pub name: &'static str,
    /// The value as it was written.
    pub value: String,
    /// What is wrong, as the end of a sentence that begins with the word.
    pub reason: String,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{} {}` {}", self.name, self.value, self.reason)
    }
}

impl Query {
    /// The first word that does not fit the trace.
    pub fn misfit(&self, engine: &Engine) -> Option<Misfit> {
        self.needing_events(engine)
            .or_else(|| self.late(engine))
            .or_else(|| self.reversed(engine))
            .or_else(|| self.unknown_thread(engine))
            .or_else(|| self.unknown_process(engine))
            .or_else(|| self.unknown_allocator(engine))
    }

    /// The same query, with a range that ends with the session at the latest. Blocks do not get older after that.
    pub fn within(&self, engine: &Engine) -> Query {
        let mut query = self.clone();
        query.to = self.to.filter(|to| !is_late(*to, engine));
        query
    }

    /// A heap profile of another tool has no events, so no part of its time and of its blocks can be selected.
    fn needing_events(&self, engine: &Engine) -> Option<Misfit> {
        engine.definitions().profile?;
        let words = ["at", "from", "to", "thread", "size", "lifetime", "compare"];
        let is_given = |word: &&str| {
            self.given().iter().any(|(name, value)| name == word && (*name != "compare" || value.starts_with('@')))
        };
        let name = words.into_iter().find(is_given)?;
        let reason = "needs events, and this is a heap profile, which has only sums".to_owned();
        Some(Misfit { name, value: self.written(name), reason })
    }

    fn written(&self, name: &'static str) -> String {
        self.given().iter().find(|(word, _)| *word == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    fn late(&self, engine: &Engine) -> Option<Misfit> {
        let (compared, compared_to) = match self.compare {
            Some(Compare::At(at)) => (Some(at), None),
            Some(Compare::Range(from, to)) => (Some(from), Some(to)),
            _ => (None, None),
        };
        let times = [("at", self.at), ("from", self.from), ("compare", compared), ("compare", compared_to)];
        let (name, _) = times.into_iter().find(|(_, when)| when.is_some_and(|when| is_late(when, engine)))?;
        let reason = format!("is after the end of the trace, which is {} long", seconds(engine.runtime_ns()));
        Some(Misfit { name, value: self.written(name), reason })
    }

    fn reversed(&self, engine: &Engine) -> Option<Misfit> {
        let is_reversed = |from: When, to: When| engine.time_of(from) > engine.time_of(to);
        if let (Some(from), Some(to)) = (self.from, self.to)
            && is_reversed(from, to)
        {
            let reason = format!("is not before the end of the range, {}: nothing would be left", self.written("to"));
            return Some(Misfit { name: "from", value: self.written("from"), reason });
        }
        match self.compare {
            Some(Compare::Range(from, to)) if is_reversed(from, to) => {
                let reason = "ends before it begins: nothing would be left".to_owned();
                Some(Misfit { name: "compare", value: self.written("compare"), reason })
            }
            _ => None,
        }
    }

    fn unknown_allocator(&self, engine: &Engine) -> Option<Misfit> {
        let known: Vec<&str> = engine.definitions().allocators().collect();
        let name = self.allocators.iter().find(|name| !known.contains(&name.as_str()))?;
        let reason = format!("is not in the trace, which has blocks of {}", known.join(", "));
        Some(Misfit { name: "allocator", value: name.clone(), reason })
    }

    fn unknown_thread(&self, engine: &Engine) -> Option<Misfit> {
        let known = &engine.definitions().threads;
        let is_known = |thread: u32| known.contains_key(&thread) || known.is_empty() && thread == 0;
        let thread = self.threads.iter().find(|thread| !is_known(**thread))?;
        let last = known.keys().last().copied().unwrap_or(0);
        let range = if last == 0 { "only thread 0".to_owned() } else { format!("threads 0 to {last}") };
        let reason = format!("is not in the trace, which has {range}");
        Some(Misfit { name: "thread", value: thread.to_string(), reason })
    }
}

impl Query {
    fn unknown_process(&self, engine: &Engine) -> Option<Misfit> {
        let definitions = engine.definitions();
        let unknown = self.processes.iter().find(|name| !definitions.has_process(name))?;
        let reason = format!("is not in the trace, which has {}", definitions.processes_in_words());
        Some(Misfit { name: "process", value: unknown.to_string(), reason })
    }
}

/// Only an absolute time can be too late. Shares of the runtime and named moments are always within it.
fn is_late(when: When, engine: &Engine) -> bool {
    matches!(when, When::Ns(ns) if ns > engine.runtime_ns())
}

/// Returns a time as a text for people, in milliseconds if it is shorter than a second.
pub(crate) fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}
