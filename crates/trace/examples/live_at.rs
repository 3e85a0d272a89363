//! Prints what each stack held at a moment: `cargo run --example live_at -- FILE 1.5s`.
#![allow(clippy::print_stdout)]
use heaptrack_trace::{Error, Trace};

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, moment] = words.as_slice() else {
        println!("usage: live_at FILE MOMENT");
        return Ok(());
    };
    let trace = Trace::open(path)?;
    let mut sites = trace.live_at(moment)?;
    sites.sort_by_key(|site| std::cmp::Reverse(site.costs.live_bytes()));
    for site in sites {
        let (bytes, blocks) = (site.costs.live_bytes().unwrap_or(0), site.costs.live_allocations().unwrap_or(0));
        let names: Vec<&str> = trace.stack(site.id).map(|level| level.short.unwrap_or("??")).collect();
        println!("{bytes}\t{blocks}\t{}", names.join(" < "));
    }
    Ok(())
}
