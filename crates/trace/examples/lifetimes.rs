//! Prints how many blocks lived for less than 1 ms, less than 1 s, longer, and to the end: `cargo run --example lifetimes -- FILE`.
#![allow(clippy::print_stdout)]
use heaptrack_trace::{Error, Selection, Trace};

fn main() -> Result<(), Error> {
    for path in std::env::args().skip(1) {
        let trace = Trace::open(&path)?;
        let [mut short, mut medium, mut long, mut live] = [0u64; 4];
        trace.each_block(&Selection::everything(), |block| {
            let lifetime = block.end.map(|(end_ns, _)| end_ns - block.allocated_ns);
            match lifetime {
                None => live += 1,
                Some(0..1_000_000) => short += 1,
                Some(1_000_000..1_000_000_000) => medium += 1,
                Some(_) => long += 1,
            }
        })?;
        println!("{short}\t{medium}\t{long}\t{live}");
    }
    Ok(())
}
