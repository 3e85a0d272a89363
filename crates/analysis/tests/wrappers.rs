//! Who owns the memory if a wrapper of the allocator calls other functions, on stacks made by hand.
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
