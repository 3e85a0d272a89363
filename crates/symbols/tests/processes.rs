//! JIT code of several processes: each process has a perf map of its own.
#![allow(clippy::unwrap_used, reason = "a test")]
use format::{Frame, Module, RawBlock, StackEncoder, Symbols};
use symbols::{Budget, Search, Wanted, resolve_all};

/// The names that are found for code at the same address in each of these modules.
fn names(pids: &[u32], threads: usize) -> Vec<(u16, Vec<String>)> {
    let modules: Vec<Module> = (1u16..)
        .zip(pids)
        .map(|(instance, pid)| Module { instance, path: Module::path_of_code(*pid), end: 1 << 47, ..Module::default() })
        .collect();
    let mut stacks = StackEncoder::new();
    for module in &modules {
        stacks.push(0, Frame::new(module.instance, 0x1008, false));
    }
    let blocks: [RawBlock; 2] = [Module::to_block(&modules), stacks.take()];
    let mut wanted = Wanted::new();
    blocks.iter().for_each(|block| wanted.add(block));
    let mut found: Vec<(u16, Vec<String>)> = Vec::new();
    let budget = Budget { threads, time: None, memory: None };
    resolve_all(wanted.take(), Search::default(), None, None, budget, |piece, _| {
        let Some(Symbols { modules, functions, strings, .. }) = piece else { return };
        for module in modules {
            let full = |index: u32| strings[functions[index as usize].full as usize].clone();
            let places = module.frames.iter().flat_map(|(_, places)| places);
            found.push((module.instance, places.filter_map(|place| place.function).map(full).collect()));
        }
    });
    found.sort();
    found
}

/// Without a thread for the work (none could be started), the caller does it. It has more modules than a channel has room for.
#[test]
fn code_at_the_same_address_has_the_name_that_its_own_process_gave_it() {
    // Pids that no process can have, so that no other program writes these files.
    let pids = [1, 2, 3, 4, 5, 6].map(|number| u32::MAX - 8 * std::process::id() - number);
    let path = |pid: u32| format!("/tmp/perf-{pid}.map");
    std::fs::write(path(pids[0]), "1000 10 first\n").unwrap();
    std::fs::write(path(pids[5]), "1000 10 last\n").unwrap();
    let found = [0, 1, 3].map(|threads| names(&pids, threads));
    std::fs::remove_file(path(pids[0])).unwrap();
    std::fs::remove_file(path(pids[5])).unwrap();
    let unnamed = (2..6).map(|instance| (instance, vec![]));
    let expected: Vec<_> =
        [(1, vec!["first".to_owned()])].into_iter().chain(unnamed).chain([(6, vec!["last".to_owned()])]).collect();
    found.iter().for_each(|found| assert_eq!(*found, expected));
}
