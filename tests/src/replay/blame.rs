//! The owner of each stack, by docs/blame.md alone. Shares no code with the engine.
use super::trace::{Level, Trace};
use crate::targets::workspace;
use std::collections::{BTreeMap, BTreeSet};

/// A function and its module.
pub type Name = (String, Option<String>);

/// The owner of a stack: the index of a level, and whether it counts as the user's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub at: usize,
    pub is_own: bool,
}

/// What a trace says about wrappers, for one query.
#[derive(Clone, Debug, Default)]
pub struct Blame {
    /// By stack. `None` if the stack has no levels.
    pub owners: Vec<Option<Owner>>,
    /// By function: the reason, the callers, the sizes, the number of stacks.
    pub wrappers: BTreeMap<Name, (&'static str, usize, usize, usize)>,
}

/// The names of docs/blame.md, and the endings of names.
fn documented() -> (Vec<String>, Vec<String>) {
    let page = std::fs::read_to_string(workspace().join("docs/blame.md")).expect("docs/blame.md");
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let table = page.split("<!-- known names -->\n").nth(1).expect("the table of names");
    let names = table.lines().skip(2).flat_map(|line| quoted(line.split(" | ").nth(1).expect("two columns")));
    let endings = page.split("whose name ends in ").nth(1).expect("the endings").split(" (in any case)").next();
    (names.collect(), quoted(endings.expect("the endings")))
}

/// `*` stands for any text.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|from| is_like(rest, &text[from..])),
        Some((first, rest)) => text.first() == Some(first) && is_like(rest, &text[1..]),
    }
}

fn name(level: &Level) -> Option<Name> {
    level.class?;
    Some((level.function.clone()?, level.module.clone()))
}

fn is_system(level: &Level) -> bool {
    matches!(level.class, Some("libc" | "kernel") | None)
}

struct Judge<'a> {
    trace: &'a Trace,
    reasons: BTreeMap<Name, &'static str>,
    refused: BTreeSet<Name>,
}

impl Judge<'_> {
    fn reason(&self, level: &Level) -> Option<&'static str> {
        self.reasons.get(&name(level)?).copied()
    }

    fn is_explicit(&self, level: &Level) -> bool {
        matches!(self.reason(level), Some("query"))
    }

    /// The nearest caller of the function at `at` that is another function.
    fn caller(levels: &[Level], at: usize) -> Option<Name> {
        let own = name(&levels[at]);
        levels[at..].iter().map(name).find(|other| *other != own).flatten()
    }

    /// One round of the search by numbers and by endings.
    fn round(&mut self, endings: &[String]) -> bool {
        #[derive(Default)]
        struct Seen {
            short: String,
            callers: BTreeSet<Name>,
            sizes: BTreeSet<u64>,
            above: usize,
        }
        let mut seen: BTreeMap<Name, Seen> = BTreeMap::new();
        for (levels, sizes) in self.trace.there() {
            let Some(at) = levels.iter().position(|level| self.reason(level).is_none()) else { continue };
            let Some(function) = name(&levels[at]).filter(|_| !is_system(&levels[at])) else { continue };
            let entry = seen.entry(function).or_default();
            entry.short = levels[at].short.clone().unwrap_or_default();
            entry.callers.extend(Self::caller(levels, at));
            entry.sizes.extend(sizes);
            entry.above += 1;
        }
        let mut found = Vec::new();
        for (function, Seen { short, callers, sizes, above }) in seen {
            if self.refused.contains(&function) {
                continue;
            }
            let last = short.rsplit("::").next().unwrap_or_default().to_lowercase();
            let everywhere = || {
                let has = |levels: &&Vec<Level>| levels.iter().any(|level| name(level).as_ref() == Some(&function));
                self.trace.there().map(|(levels, _)| levels).filter(has).count()
            };
            if callers.len() >= 2 && endings.iter().any(|ending| last.ends_with(ending)) {
                found.push((function, "name"));
            } else if callers.len() >= 10 && sizes.len() >= 10 && above * 100 >= everywhere() * 90 {
                found.push((function, "numbers"));
            }
        }
        let is_any = !found.is_empty();
        self.reasons.extend(found);
        is_any
    }

    fn owner(&self, levels: &[Level]) -> Option<Owner> {
        let begin = levels.iter().rposition(|level| self.is_explicit(level)).map_or(0, |at| at + 1);
        let all: Vec<usize> = (begin..levels.len()).collect();
        let is_free = |at: &usize| self.reason(&levels[*at]).is_none();
        let is_named = |at: &usize| name(&levels[*at]).is_some();
        let is_own = |at: &usize| levels[*at].class == Some("program");
        let own = |at: usize| Some(Owner { at, is_own: true });
        let mine: Vec<usize> = all.iter().copied().filter(is_own).filter(is_free).collect();
        if let Some(named) = mine.iter().copied().find(is_named) {
            return own(named);
        }
        if let Some(first) = mine.first().copied() {
            let mut inner = all.iter().copied().filter(|at| *at < first && is_named(at) && is_free(at));
            let mut outer =
                all.iter().copied().filter(|at| *at > first && is_named(at) && is_free(at) && !is_system(&levels[*at]));
            return own(inner.next_back().or_else(|| outer.next()).unwrap_or(first));
        }
        if let Some(last) = (0..levels.len()).rfind(is_own) {
            return own(last);
        }
        let named: Vec<usize> = all.iter().copied().filter(|at| is_named(at) && is_free(at)).collect();
        let telling = named.iter().copied().find(|at| !is_system(&levels[*at]));
        let entered = telling.filter(|at| levels[*at].class == Some("runtime")).and_then(|telling| {
            all.iter().copied().rfind(|at| *at < telling && levels[*at].class == Some("dependency"))
        });
        let nameless = all.iter().copied().find(|at| is_free(at) && !is_system(&levels[*at]));
        let at = entered.or(telling).or(nameless).or(named.first().copied()).or(all.first().copied());
        at.or(levels.len().checked_sub(1)).map(|at| Owner { at, is_own: false })
    }
}

/// Why a function is a wrapper, its callers, the sizes that it allocated, and the number of its stacks.
type Found = (&'static str, BTreeSet<Name>, BTreeSet<u64>, usize);

impl Trace {
    /// The stacks that are in the file, with their sizes.
    fn there(&self) -> impl Iterator<Item = (&Vec<Level>, &BTreeSet<u64>)> {
        self.stacks.iter().zip(&self.sizes).filter(|(_, sizes)| !sizes.is_empty())
    }

    pub fn blame(&self, wrappers: &[String], others: &[String]) -> Blame {
        let (known, endings) = documented();
        let mut judge = Judge { trace: self, reasons: BTreeMap::new(), refused: BTreeSet::new() };
        for level in self.stacks.iter().flatten() {
            let Some(function) = name(level) else { continue };
            let short = level.short.as_deref().unwrap_or(&function.0);
            let is_any = |list: &[String]| {
                list.iter()
                    .any(|pattern| [short, &function.0].iter().any(|text| is_like(pattern.as_bytes(), text.as_bytes())))
            };
            if is_any(others) {
                judge.refused.insert(function);
            } else if is_any(wrappers) {
                judge.reasons.insert(function, "query");
            } else if !is_system(level) && known.iter().any(|name| is_like(name.as_bytes(), short.as_bytes())) {
                judge.reasons.insert(function, "name");
            }
        }
        let _ = judge.round(&endings) && judge.round(&endings);
        let owners: Vec<Option<Owner>> = self.stacks.iter().map(|levels| judge.owner(levels)).collect();
        let wrappers = self.listed(&judge, &owners);
        Blame { owners, wrappers }
    }

    fn listed(
        &self,
        judge: &Judge<'_>,
        owners: &[Option<Owner>],
    ) -> BTreeMap<Name, (&'static str, usize, usize, usize)> {
        let mut found: BTreeMap<Name, Found> = BTreeMap::new();
        for ((levels, sizes), owner) in self.stacks.iter().zip(&self.sizes).zip(owners) {
            let Some(owner) = owner.filter(|_| !sizes.is_empty()) else { continue };
            let mut here = BTreeSet::new();
            for at in 0..owner.at {
                let (Some(reason), Some(function)) = (judge.reason(&levels[at]), name(&levels[at])) else { continue };
                let is_rival = !owner.is_own || reason == "query" || levels[at].class == Some("program");
                if !is_rival || !here.insert(function.clone()) {
                    continue;
                }
                let row = found.entry(function).or_insert((reason, BTreeSet::new(), BTreeSet::new(), 0));
                row.1.extend(Judge::caller(levels, at));
                row.2.extend(sizes);
                row.3 += 1;
            }
        }
        found
            .into_iter()
            .map(|(name, (reason, callers, sizes, stacks))| (name, (reason, callers.len(), sizes.len(), stacks)))
            .collect()
    }
}
