//! Imports N headers (`--headers N`, 10,000 by default) into a map and caches the message of every tenth.
use std::collections::BTreeMap;

struct Header {
    parent: u64,
    message: String,
}

/// Small enough to be inlined. Stacks show it nevertheless.
fn message(number: u64) -> String {
    format!("header {number}")
}

fn import(headers: u64) -> BTreeMap<u64, Header> {
    (1..=headers).map(|number| (number, Header { parent: number - 1, message: message(number) })).collect()
}

#[inline(never)]
fn cache(chain: &BTreeMap<u64, Header>) -> Vec<String> {
    chain.values().filter(|header| header.parent % 10 == 0).map(|header| header.message.clone()).collect()
}

fn main() {
    let mut words = std::env::args().skip_while(|word| word != "--headers").skip(1);
    let headers = words.next().and_then(|word| word.parse().ok()).unwrap_or(10_000);
    let chain = import(headers);
    // A cache that is used until the program ends. It is never freed, but it is no leak.
    let cached: &'static [String] = Vec::leak(cache(&chain));
    println!("imported {}, cached {}", chain.len(), cached.len());
}
