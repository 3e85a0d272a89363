//! Prints the places that hold memory at the end, with their verdicts: `cargo run --example leaks -- FILE`.
#![allow(clippy::print_stdout)]
use heaptrack_trace::{Error, Selection, Trace};

fn main() -> Result<(), Error> {
    for path in std::env::args().skip(1) {
        let trace = Trace::open(&path)?;
        for leak in trace.leaks(&Selection::everything())? {
            let own = trace.stack(leak.site).find(|level| level.is_own_code);
            let name = own.and_then(|level| level.short).unwrap_or("??");
            println!("{:?}\t{}\t{}\t{name}\t{}", leak.verdict, leak.live_bytes, leak.live_allocations, leak.reason);
        }
        trace.not_seen().iter().for_each(|sentence| println!("{sentence}"));
    }
    Ok(())
}
