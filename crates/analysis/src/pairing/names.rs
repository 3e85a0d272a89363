//! Names for the functions of several traces, equal for the same function.
//!
//! Receives: the table of a base, and those of runs that are compared with it. Returns: a name for each function of the base
//! and of the last run. Must hold: a name stays the same when a trace grows, unless another function with its name
//! appears. Each run is paired with the base, so pairs are those of `Pairing`. Functions that the base does not have are
//! paired with those of earlier runs, by the same rule.
use super::{Called, Files, files, pairs};
use crate::stack_table::StackTable;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Separates a function from its file in a name. The base has the function in this file.
const IN_BASE: &str = "\n";
/// The base does not have the function.
const NOT_IN_BASE: &str = "\n+";

#[derive(Debug, Serialize)]
pub struct PairNames {
    base: Names,
    run: Names,
}

/// The names of one trace, in lists of equal length.
#[derive(Debug, Default, Serialize)]
struct Names {
    /// `None` for code without a name.
    function: Vec<Option<String>>,
    /// The file of the function, or the module of code without a name. `None` if it is not known.
    place: Vec<Option<String>>,
    name: Vec<String>,
}

type ByFunction<'a> = BTreeMap<&'a str, Files<'a>>;

impl PairNames {
    /// `runs` are earlier runs and, as the last one, the run whose names are returned.
    pub fn new(base: &StackTable, runs: &[&StackTable]) -> Self {
        let base = all(base);
        let runs: Vec<Vec<Called<'_>>> = runs.iter().map(|run| all(run)).collect();
        Self::of(&base, &runs)
    }

    fn of(base: &[Called<'_>], runs: &[Vec<Called<'_>>]) -> Self {
        let known = files(base);
        let mut extra: ByFunction<'_> = BTreeMap::new();
        let mut names = Names::default();
        for (number, run) in runs.iter().enumerate() {
            let own = files(run);
            let mut name_of: BTreeMap<(&str, Option<&str>), String> = BTreeMap::new();
            for (function, files) in &own {
                let same = paired(files, known.get(function));
                let alone: Files<'_> = files.iter().copied().filter(|file| !same.contains_key(file)).collect();
                let earlier = extra.entry(function).or_default();
                let shared = paired(&alone, Some(earlier));
                earlier.extend(alone.iter().filter(|file| !shared.contains_key(*file)));
                for file in files {
                    let name = match same.get(file) {
                        Some(in_base) => name(function, IN_BASE, *in_base),
                        None => name(function, NOT_IN_BASE, shared.get(file).copied().unwrap_or(*file)),
                    };
                    name_of.insert((function, *file), name);
                }
            }
            if number + 1 == runs.len() {
                names = Names::of(run, &own, |function, file| name_of.get(&(function, file)).cloned());
            }
        }
        let in_base = Names::of(base, &known, |function, file| Some(name(function, IN_BASE, file)));
        PairNames { base: in_base, run: names }
    }
}

impl Names {
    /// `name_of` returns the name of a function in one of its files.
    fn of(
        levels: &[Called<'_>],
        known: &ByFunction<'_>,
        name_of: impl Fn(&str, Option<&str>) -> Option<String>,
    ) -> Self {
        let mut names = Names::default();
        let different: BTreeSet<(Option<&str>, Option<&str>)> = levels
            .iter()
            .map(|called| (called.function, if called.function.is_some() { called.file } else { called.module }))
            .collect();
        for (function, place) in different {
            let name = match function {
                // If the function has one file, a level without a file belongs to it.
                Some(function) => {
                    let files = known.get(function);
                    let only = files.filter(|files| files.len() == 1).and_then(|files| files.first());
                    name_of(function, only.copied().unwrap_or(place))
                }
                None => Some(format!("\n{}", Called { module: place, ..Called::default() }.module_name())),
            };
            names.function.push(function.map(str::to_owned));
            names.place.push(place.map(str::to_owned));
            names.name.push(name.unwrap_or_default());
        }
        names
    }
}

fn all(table: &StackTable) -> Vec<Called<'_>> {
    table.levels.iter().map(|level| Called::of(table, level)).collect()
}

fn name(function: &str, separator: &str, file: Option<&str>) -> String {
    format!("{function}{separator}{}", file.unwrap_or_default())
}

fn paired<'a>(files: &Files<'a>, other: Option<&Files<'a>>) -> BTreeMap<Option<&'a str>, Option<&'a str>> {
    other.map(|other| pairs(files, other)).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pairing::{Pairing, Side};

    fn called(function: &'static str, file: &'static str) -> Called<'static> {
        let file = Some(file).filter(|file| !file.is_empty());
        Called { function: Some(function), file, module: Some("/m/app") }
    }

    fn names(names: &Names) -> Vec<(&str, &str, &str)> {
        let text = |list: &'_ [Option<String>], at: usize| list[at].as_deref().unwrap_or("").to_owned().leak() as &str;
        (0..names.name.len())
            .map(|at| (text(&names.function, at), text(&names.place, at), names.name[at].as_str()))
            .collect()
    }

    #[test]
    fn functions_of_a_run_have_the_names_of_the_base() {
        let base = [called("make", "/old/two.c"), called("make", "/old/three.c"), called("only", "")];
        let nameless = Called { module: Some("/new/lib/libx.so"), ..Called::default() };
        let run = vec![
            called("make", "/new/one.c"),
            called("make", "/new/two.c"),
            called("only", "/new/one.c"),
            called("only", ""),
            nameless,
        ];
        let found = PairNames::of(&base, std::slice::from_ref(&run));
        assert_eq!(
            names(&found.run),
            [
                ("", "/new/lib/libx.so", "\nlibx.so"),
                ("make", "/new/one.c", "make\n+/new/one.c"),
                ("make", "/new/two.c", "make\n/old/two.c"),
                ("only", "", "only\n"),
                ("only", "/new/one.c", "only\n"),
            ]
        );
        assert_eq!(
            names(&found.base),
            [
                ("make", "/old/three.c", "make\n/old/three.c"),
                ("make", "/old/two.c", "make\n/old/two.c"),
                ("only", "", "only\n"),
            ]
        );
        // The same pairs as those of `diff`.
        let pairing = Pairing::of(&run, &base);
        let name_of = |names: &Names, called: &Called<'_>| {
            let place = if called.function.is_some() { called.file } else { called.module };
            let same =
                |at: &usize| names.function[*at].as_deref() == called.function && names.place[*at].as_deref() == place;
            names.name[(0..names.name.len()).find(same).unwrap()].clone()
        };
        for one in &run {
            for other in &base {
                let is_same = pairing.number(Side::After, *one) == pairing.number(Side::Before, *other);
                assert_eq!(name_of(&found.run, one) == name_of(&found.base, other), is_same, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn functions_that_the_base_lacks_are_paired_with_earlier_runs() {
        let base = [called("main", "/a/main.c")];
        let first = vec![called("fresh", "/b/x.c"), called("fresh", "/b/y.c")];
        let second = vec![called("fresh", "/c/x.c"), called("fresh", "/c/z.c"), called("main", "/c/main.c")];
        let found = PairNames::of(&base, &[first, second]);
        assert_eq!(
            names(&found.run),
            [
                ("fresh", "/c/x.c", "fresh\n+/b/x.c"),
                ("fresh", "/c/z.c", "fresh\n+/c/z.c"),
                ("main", "/c/main.c", "main\n/a/main.c"),
            ]
        );
    }
}
