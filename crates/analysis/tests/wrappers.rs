//! The owner of the memory if a wrapper of the allocator calls other functions, on stacks made by hand.
#![allow(clippy::unwrap_used, reason = "a test")]
use analysis::{CodeClasses, Engine, Query, StackTable, Suppressions};
use format::*;
use std::collections::HashMap;

/// The table of stacks of functions of the program, the outermost first. Each stack allocates one size.
fn table(stacks: &[(&[&str], u64)]) -> StackTable {
    const PROGRAM: &str = "/bin/program";
    let mut names = SymbolsBuilder::default();
    let (mut encoder, mut classes, mut events) = (StackEncoder::new(), AllocClassEncoder::new(), EventEncoder::new());
    names.module(1, SymbolState::Debug, "");
    let mut frames: HashMap<&str, u64> = HashMap::new();
    for (stack, size) in stacks {
        let mut node = 0;
        for name in *stack {
            let next = frames.len() as u64 + 1;
            let frame = *frames.entry(name).or_insert_with(|| {
                let function = Some(names.function(name, name, name));
                names.frame(next, vec![CodeLocation { function, file: None, line: None, inlined: false }]);
                next
            });
            node = encoder.push(node, Frame::new(1, frame, false));
        }
        events.alloc(classes.push(*size, node));
    }
    let session = Session { exe: PROGRAM.into(), ..Session::default() };
    let module = Module { instance: 1, path: PROGRAM.into(), ..Module::default() };
    let blocks = [session.to_block(), Module::to_block(&[module]), encoder.take(), classes.take(), events.take()];
    let mut engine = Engine::new();
    blocks.iter().chain([&names.take().to_block()]).for_each(|block| engine.add(block));
    StackTable::new(engine.definitions(), &CodeClasses::new(PROGRAM), Suppressions::new())
}

/// The owner of each stack, in the order of the stacks.
fn owners(table: &StackTable) -> Vec<&str> {
    let name = |node| table.text(table.level(node).and_then(|level| level.function)).unwrap_or("?");
    table.stacks.iter().map(|stack| name(stack.owner)).collect()
}

fn query(words: &[(&str, &str)]) -> Query {
    Query::new(words.iter().copied()).unwrap()
}

#[test]
fn a_named_wrapper_swallows_all_that_it_calls() {
    let stacks: [(&[&str], u64); 4] = [
        (&["main", "work", "pool_get"], 10),
        (&["main", "work", "pool_get", "grow"], 20),
        // `grow` asks the same pool for its table.
        (&["main", "work", "pool_get", "grow", "pool_get"], 30),
        (&["main", "grow", "other"], 40),
    ];
    let table = table(&stacks);
    assert_eq!(owners(&table), ["pool_get", "grow", "pool_get", "other"]);
    let asked = query(&[("wrapper", "pool_get")]);
    assert_eq!(owners(&table.heeding(&asked)), ["work", "work", "work", "other"]);
    let both = query(&[("wrapper", "pool_get"), ("wrapper", "work")]);
    assert_eq!(owners(&table.heeding(&both)), ["main", "main", "main", "other"]);
}

const USERS: [&str; 12] = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "u9", "u10", "u11"];

/// This many functions call `pool_get` with a size of their own, and one of them makes it call `refill`.
fn pool(users: usize) -> StackTable {
    let mut stacks: Vec<Vec<&str>> = USERS[..users].iter().map(|user| vec!["main", user, "pool_get"]).collect();
    stacks.push(vec!["main", "u0", "pool_get", "refill"]);
    let sized: Vec<(&[&str], u64)> = stacks.iter().zip(100..).map(|(stack, size)| (&stack[..], size)).collect();
    table(&sized)
}

/// Twelve callers make `pool_get` a wrapper by its numbers, nine do not. If both traces are compared, it is one in both,
/// but only right above the allocator: the user did not name it, so `refill` keeps its memory.
#[test]
fn a_wrapper_that_was_found_in_one_trace_counts_for_one_frame_in_both() {
    let (large, small) = (pool(12), pool(9));
    let of_users = |users: usize| [&USERS[..users], &["refill"]].concat();
    let alone = [vec!["pool_get"; 9], vec!["refill"]].concat();
    assert_eq!((owners(&large), owners(&small)), (of_users(12), alone.clone()));
    for words in [&[][..], &[("wrapper", "unknown")]] {
        let (one, other) = large.heeding_both(&small, &query(words));
        assert_eq!((owners(&one), owners(&other)), (of_users(12), of_users(9)));
        let (other, one) = small.heeding_both(&large, &query(words));
        assert_eq!((owners(&one), owners(&other)), (of_users(12), of_users(9)));
        assert_eq!(owners(&small.heeding(&small.beside(&large, &query(words)))), of_users(9));
    }
    let (one, other) = large.heeding_both(&small, &query(&[("not-wrapper", "pool_get")]));
    assert_eq!((owners(&one), owners(&other)), ([vec!["pool_get"; 12], vec!["refill"]].concat(), alone));
    // The name is no pattern, and a named wrapper swallows all that it calls.
    let (_, other) = large.heeding_both(&small, &query(&[("wrapper", "pool_*")]));
    assert_eq!(owners(&other), [&USERS[..9], &["u0"]].concat());
}
