//! Sums by function in bounded memory: if there are too many functions, the data is read several times, each time for
//! a part of them.
use xxhash_rust::xxh3::xxh3_64;

/// One reading of the data. A function belongs to exactly one pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    index: u64,
    count: u64,
}

impl Pass {
    pub fn has(&self, function: &str) -> bool {
        self.count == 1 || xxh3_64(function.as_bytes()) % self.count == self.index
    }
}

/// What a pass returns.
pub enum Outcome<T> {
    Done(T),
    /// There are too many functions for one pass.
    TooMuch,
}

/// Calls `read` for each pass, with as many passes as needed.
pub fn in_passes<T>(mut read: impl FnMut(Pass) -> anyhow::Result<Outcome<T>>) -> anyhow::Result<Vec<T>> {
    let mut count = 1;
    loop {
        match all(count, &mut read)? {
            Outcome::Done(results) => return Ok(results),
            Outcome::TooMuch => count *= 4,
        }
    }
}

fn all<T>(count: u64, read: &mut impl FnMut(Pass) -> anyhow::Result<Outcome<T>>) -> anyhow::Result<Outcome<Vec<T>>> {
    let mut results = Vec::new();
    for index in 0..count {
        match read(Pass { index, count })? {
            Outcome::Done(result) => results.push(result),
            Outcome::TooMuch => return Ok(Outcome::TooMuch),
        }
    }
    Ok(Outcome::Done(results))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_function_is_in_one_pass() {
        let names: Vec<String> = (0..1000).map(|number| format!("function_{number}")).collect();
        let parts = in_passes(|pass| {
            let part: Vec<&String> = names.iter().filter(|name| pass.has(name)).collect();
            Ok(if part.len() > 100 { Outcome::TooMuch } else { Outcome::Done(part) })
        });
        let parts = parts.unwrap();
        assert_eq!(parts.len(), 16);
        let all: Vec<&String> = parts.into_iter().flatten().collect();
        assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (1000, 1000));
    }
}
