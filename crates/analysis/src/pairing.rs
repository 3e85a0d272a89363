//! Pairs the functions of two traces by name, and by file where the name is ambiguous (docs/decisions/0031).
//!
//! Receives: the tables of two traces. Returns: a number for each function, equal in both traces for the same function.
//! Must hold: the order of the traces does not matter. Two files of one trace are never merged. `pairing/names.rs` has
//! names instead of numbers, for the page.
mod names;

use crate::frame_names::Level;
use crate::stack_table::{StackTable, StackTableLevel};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use names::PairNames;

/// One of the two traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    After,
    Before,
}

/// The parts of a level that identify its function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called<'a> {
    pub function: Option<&'a str>,
    pub file: Option<&'a str>,
    pub module: Option<&'a str>,
}

impl<'a> Called<'a> {
    pub fn of(table: &'a StackTable, level: &StackTableLevel) -> Self {
        let text = |string| table.text(string);
        Called { function: text(level.function), file: text(level.file), module: text(level.module) }
    }

    /// The name for code without a function name. All such code of a module counts as one function, because addresses
    /// mean nothing in another build.
    pub fn module_name(&self) -> &'a str {
        let module = self.module.unwrap_or("?");
        module.rsplit('/').next().unwrap_or(module)
    }
}

impl<'a> From<&Level<'a>> for Called<'a> {
    fn from(level: &Level<'a>) -> Self {
        Called { function: level.marker().or(level.function), file: level.file, module: level.module }
    }
}

/// The files of a function. `None` stands for levels without a file.
type Files<'a> = BTreeSet<Option<&'a str>>;

/// Function and file -> number.
type Numbers<'a> = HashMap<(&'a str, Option<&'a str>), u32>;

#[derive(Debug, Default)]
pub struct Pairing<'a> {
    after: Numbers<'a>,
    before: Numbers<'a>,
    /// The numbers of code without a function name, by module.
    modules: HashMap<&'a str, u32>,
}

/// The number of a function that is in neither trace.
const NOTHING: u32 = 0;

impl<'a> Pairing<'a> {
    pub fn new(after: &'a StackTable, before: &'a StackTable) -> Self {
        let all = |table: &'a StackTable| table.levels.iter().map(|level| Called::of(table, level)).collect::<Vec<_>>();
        Self::of(&all(after), &all(before))
    }

    fn of(after: &[Called<'a>], before: &[Called<'a>]) -> Self {
        let mut pairing = Pairing::default();
        let mut next = NOTHING;
        let mut fresh = || {
            next += 1;
            next
        };
        for called in after.iter().chain(before).filter(|called| called.function.is_none()) {
            pairing.modules.entry(called.module_name()).or_insert_with(&mut fresh);
        }
        let (after, before) = (files(after), files(before));
        for (name, files) in &after {
            pairing.after.extend(files.iter().map(|file| ((*name, *file), fresh())));
        }
        let none = Files::new();
        for (name, files) in &before {
            let pairs = pairs(files, after.get(name).unwrap_or(&none));
            for file in files {
                let same = pairs.get(file).and_then(|file| pairing.after.get(&(*name, *file)).copied());
                pairing.before.insert((*name, *file), same.unwrap_or_else(&mut fresh));
            }
        }
        without_a_file(&mut pairing.after, &after);
        without_a_file(&mut pairing.before, &before);
        pairing
    }

    /// A number that is equal for all levels of the same function.
    pub fn number(&self, side: Side, called: Called<'_>) -> u32 {
        let numbers = match side {
            Side::After => &self.after,
            Side::Before => &self.before,
        };
        let number = match called.function {
            Some(function) => numbers.get(&(function, called.file)),
            None => self.modules.get(called.module_name()),
        };
        number.copied().unwrap_or(NOTHING)
    }
}

/// The files of each function in a trace. If a function has one file, levels without a file belong to it.
fn files<'a>(levels: &[Called<'a>]) -> BTreeMap<&'a str, Files<'a>> {
    let mut found: BTreeMap<&str, Files<'_>> = BTreeMap::new();
    for called in levels {
        if let Some(function) = called.function {
            found.entry(function).or_default().insert(called.file);
        }
    }
    for files in found.values_mut().filter(|files| files.len() == 2) {
        files.remove(&None);
    }
    found
}

/// Levels without a file get the number of their function's only file.
fn without_a_file<'a>(numbers: &mut Numbers<'a>, files: &BTreeMap<&'a str, Files<'a>>) {
    for (name, files) in files {
        let only = files.first().filter(|_| files.len() == 1);
        if let Some(number) = only.and_then(|file| numbers.get(&(*name, *file)).copied()) {
            numbers.insert((*name, None), number);
        }
    }
}

/// Pairs the files of one function in two traces.
fn pairs<'a>(one: &Files<'a>, other: &Files<'a>) -> BTreeMap<Option<&'a str>, Option<&'a str>> {
    if let (1, 1, Some(one), Some(other)) = (one.len(), other.len(), one.first(), other.first()) {
        return BTreeMap::from([(*one, *other)]);
    }
    let mut found: BTreeMap<_, _> = one.intersection(other).map(|file| (*file, *file)).collect();
    let mut left: BTreeSet<&str> = one.difference(other).copied().flatten().collect();
    let mut right: BTreeSet<&str> = other.difference(one).copied().flatten().collect();
    let longest = |files: &BTreeSet<&str>| files.iter().map(|file| file.matches('/').count() + 1).max().unwrap_or(0);
    for length in (1..=longest(&left).min(longest(&right))).rev() {
        let mut tails: BTreeMap<&str, [Vec<&str>; 2]> = BTreeMap::new();
        for (side, files) in [&left, &right].into_iter().enumerate() {
            for file in files {
                if let Some(tail) = tail(file, length) {
                    tails.entry(tail).or_default()[side].push(file);
                }
            }
        }
        for [lefts, rights] in tails.into_values() {
            // If several files fit equally well, none of them is paired.
            if let ([one], [other]) = (&lefts[..], &rights[..]) {
                found.insert(Some(one), Some(other));
                left.remove(one);
                right.remove(other);
            }
        }
    }
    found
}

/// The last `length` components of a path, if it has that many.
fn tail(path: &str, length: usize) -> Option<&str> {
    let mut borders = path.rmatch_indices('/').map(|(at, _)| at);
    match borders.nth(length - 1) {
        Some(at) => path.get(at + 1..),
        None => (path.matches('/').count() + 1 == length).then_some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paired(one: &[&'static str], other: &[&'static str]) -> Vec<(&'static str, &'static str)> {
        let files =
            |list: &[&'static str]| list.iter().map(|file| (*file != "?").then_some(*file)).collect::<Files<'_>>();
        let mut found: Vec<_> = pairs(&files(one), &files(other))
            .into_iter()
            .map(|(one, other)| (one.unwrap_or("?"), other.unwrap_or("?")))
            .collect();
        found.sort_unstable();
        found
    }

    /// (files here, files there, which are the same)
    type Case = (&'static [&'static str], &'static [&'static str], &'static [(&'static str, &'static str)]);

    const CASES: &[Case] = &[
        // One file each: the name of the function is enough.
        (&["/a/x.c"], &["/b/x.c"], &[("/a/x.c", "/b/x.c")]),
        (&["/a/x.c"], &["/a/renamed.c"], &[("/a/x.c", "/a/renamed.c")]),
        (&["/a/x.c"], &["?"], &[("/a/x.c", "?")]),
        (&["?"], &["?"], &[("?", "?")]),
        (&["/a/x.c"], &[], &[]),
        // Several files: their names decide.
        (&["/a/x.c", "/a/y.c"], &["/b/x.c", "/b/y.c"], &[("/a/x.c", "/b/x.c"), ("/a/y.c", "/b/y.c")]),
        (&["/a/x.c", "/a/y.c"], &["/b/y.c"], &[("/a/y.c", "/b/y.c")]),
        (&["/a/x.c", "/a/y.c"], &["/b/y.c", "/b/z.c"], &[("/a/y.c", "/b/y.c")]),
        // The same file name in several folders: as many components of the path as are needed.
        (
            &["/a/net/x.c", "/a/gui/x.c"],
            &["/b/c/gui/x.c", "/b/c/net/x.c"],
            &[("/a/gui/x.c", "/b/c/gui/x.c"), ("/a/net/x.c", "/b/c/net/x.c")],
        ),
        // Files that remain after better matches.
        (&["/a/x.c", "/a/sub/x.c"], &["/b/x.c", "/b/sub/x.c"], &[("/a/sub/x.c", "/b/sub/x.c"), ("/a/x.c", "/b/x.c")]),
        (&["x.c", "src/x.c"], &["x.c", "/b/src/x.c"], &[("src/x.c", "/b/src/x.c"), ("x.c", "x.c")]),
        (&["x.c", "src/x.c"], &["x.c"], &[("x.c", "x.c")]),
        // Ambiguous files.
        (&["/a/net/x.c", "/a/gui/x.c"], &["/b/x.c"], &[]),
        (&["/a/x.c", "/a/y.c"], &["?"], &[]),
        (&["/a/x.c", "/a/y.c", "?"], &["/b/x.c", "/b/z.c", "?"], &[("/a/x.c", "/b/x.c"), ("?", "?")]),
    ];

    #[test]
    fn files_are_told_apart_as_far_as_needed() {
        for (one, other, wanted) in CASES {
            assert_eq!(&paired(one, other), wanted, "{one:?} and {other:?}");
        }
    }

    #[test]
    fn which_trace_comes_first_does_not_matter() {
        for (one, other, wanted) in CASES {
            let mut turned: Vec<_> = wanted.iter().map(|(one, other)| (*other, *one)).collect();
            turned.sort_unstable();
            assert_eq!(paired(other, one), turned, "{other:?} and {one:?}");
        }
    }

    #[test]
    fn a_tail_is_whole_components() {
        for (path, length, wanted) in [
            ("/a/b.c", 1, Some("b.c")),
            ("/a/b.c", 2, Some("a/b.c")),
            ("/a/b.c", 3, Some("/a/b.c")),
            ("/a/b.c", 4, None),
            ("b.c", 1, Some("b.c")),
            ("b.c", 2, None),
        ] {
            assert_eq!(tail(path, length), wanted, "{path} {length}");
        }
    }

    const fn called(
        function: Option<&'static str>,
        file: Option<&'static str>,
        module: &'static str,
    ) -> Called<'static> {
        Called { function, file, module: Some(module) }
    }

    #[test]
    fn functions_of_two_builds() {
        let after = [
            called(Some("make"), Some("/new/one.c"), "/new/program"),
            called(Some("make"), Some("/new/two.c"), "/new/program"),
            called(Some("only"), Some("/new/one.c"), "/new/program"),
            called(Some("only"), None, "/new/program"),
            called(None, None, "/new/lib/libx.so"),
            called(Some("fresh"), Some("/new/one.c"), "/new/program"),
        ];
        let before = [
            called(Some("make"), Some("/old/two.c"), "/old/program"),
            called(Some("make"), Some("/old/three.c"), "/old/program"),
            called(Some("only"), None, "/old/program"),
            called(None, None, "/usr/lib/libx.so"),
        ];
        let pairing = Pairing::of(&after, &before);
        let new = after.map(|called| pairing.number(Side::After, called));
        let old = before.map(|called| pairing.number(Side::Before, called));
        assert_eq!([old[0], old[2], old[3]], [new[1], new[2], new[4]]);
        assert_eq!(new[2], new[3], "a level without a file");
        let all: BTreeSet<u32> = new.into_iter().chain(old).collect();
        assert_eq!(all.len(), 6, "one.c, two.c, three.c, only, libx.so, fresh: {new:?} {old:?}");
        assert_eq!(pairing.number(Side::After, Called::default()), NOTHING);
    }
}
