//! What changed between two traces made by hand: functions by name and file, with exact numbers.
#![allow(clippy::unwrap_used, reason = "a test")]
use analysis::view::{FunctionDiff, diff_functions};
use analysis::{CodeClasses, Cost, Engine, Pairing, Profile, Query, StackTable, Suppressions};
use format::*;

/// A function, its file, the module that it is in, and how many bytes it keeps.
type Row = (Option<&'static str>, Option<&'static str>, &'static str, u64);

/// A trace in which `main` calls each of these functions.
fn trace(program: &str, rows: &[Row]) -> (Profile, StackTable) {
    let mut names = SymbolsBuilder::default();
    let (mut stacks, mut alloc_classes, mut events) =
        (StackEncoder::new(), AllocClassEncoder::new(), EventEncoder::new());
    let mut modules = vec![Module { instance: 1, path: program.into(), ..Module::default() }];
    names.module(1, SymbolState::Debug, "");
    let main = names.function("main", "main", "main");
    names.frame(1, vec![CodeLocation { function: Some(main), file: None, line: None, inlined: false }]);
    let root = stacks.push(0, Frame::new(1, 1, false));
    for (offset, (function, file, module, size)) in (2..).zip(rows) {
        modules.push(Module { instance: offset, path: (*module).into(), ..Module::default() });
        names.module(offset, SymbolState::Debug, "");
        if let Some(function) = function {
            let function = Some(names.function(function, function, function));
            let file = file.map(|file| names.string(file));
            names.frame(u64::from(offset), vec![CodeLocation { function, file, line: Some(7), inlined: false }]);
        }
        let leaf = stacks.push(root, Frame::new(offset, u64::from(offset), false));
        events.alloc(alloc_classes.push(*size, leaf));
    }
    let session = Session { exe: program.into(), ..Session::default() };
    let blocks = [session.to_block(), Module::to_block(&modules), stacks.take(), alloc_classes.take(), events.take()];
    let mut engine = Engine::new();
    blocks.iter().chain([&names.take().to_block()]).for_each(|block| engine.add(block));
    let table = StackTable::new(engine.definitions(), &CodeClasses::new(program), Suppressions::new());
    (engine.whole_profile().unwrap(), table)
}

fn changes(after: &(Profile, StackTable), before: &(Profile, StackTable)) -> Vec<FunctionDiff> {
    let pairing = Pairing::new(&after.1, &before.1);
    let query = Query::new([("by", "function")]).unwrap();
    diff_functions((&after.0, &after.1), (&before.0, &before.1), &pairing, &query, Cost::Live)
}

/// Short name, file, before, after.
fn told(rows: &[FunctionDiff]) -> Vec<(&str, &str, i64, i64)> {
    rows.iter().map(|row| (&row.short[..], row.file.as_deref().unwrap_or("?"), row.before, row.after)).collect()
}

const OLD: &[Row] = &[
    (Some("make"), Some("/old/red.c"), "/old/bin", 1_000),
    (Some("make"), Some("/old/blue.c"), "/old/bin", 2_000),
    (Some("renamed"), Some("/old/was.c"), "/old/bin", 300),
    (Some("stripped"), None, "/old/libs.so", 40),
    (None, None, "/old/libnameless.so", 5),
    (None, None, "/old/libnameless.so", 6),
];
const NEW: &[Row] = &[
    (Some("make"), Some("/new/src/blue.c"), "/new/bin", 2_500),
    (Some("make"), Some("/new/src/green.c"), "/new/bin", 7_000),
    (Some("renamed"), Some("/new/src/is.c"), "/new/bin", 301),
    (Some("stripped"), Some("/new/src/s.c"), "/new/libs.so", 42),
    (None, None, "/elsewhere/libnameless.so", 20),
];

#[test]
fn functions_match_by_name_and_file() {
    let (old, new) = (trace("/old/bin", OLD), trace("/new/bin", NEW));
    let expected = [
        ("make", "/new/src/green.c", 0, 7_000),
        ("make", "/old/red.c", 1_000, 0),
        ("make", "/new/src/blue.c", 2_000, 2_500),
        ("libnameless.so", "?", 11, 20),
        ("stripped", "/new/src/s.c", 40, 42),
        ("renamed", "/new/src/is.c", 300, 301),
    ];
    assert_eq!(told(&changes(&new, &old)), expected);
}

#[test]
fn the_other_way_round_is_the_same() {
    let (old, new) = (trace("/old/bin", OLD), trace("/new/bin", NEW));
    let (there, back) = (changes(&new, &old), changes(&old, &new));
    let mut there: Vec<_> = there.iter().map(|row| (&row.short, row.before, row.after)).collect();
    let mut back: Vec<_> = back.iter().map(|row| (&row.short, row.after, row.before)).collect();
    there.sort();
    back.sort();
    assert_eq!(there, back);
}

#[test]
fn a_trace_does_not_differ_from_itself() {
    let (one, two) = (trace("/old/bin", OLD), trace("/old/bin", OLD));
    let rows = changes(&one, &two);
    assert!(rows.iter().all(|row| row.delta == 0), "{rows:?}");
    assert_eq!(rows.len(), 5, "both functions of libnameless.so are one row: {rows:?}");
}
