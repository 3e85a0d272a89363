//! Numbers values in the order in which they are first seen.
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Returns the number of `value`, which is its place in `all`. A new value is added to both.
pub(crate) fn number_of<T: Clone + Eq + Hash, S: BuildHasher>(
    value: T,
    known: &mut HashMap<T, u32, S>,
    all: &mut Vec<T>,
) -> u32 {
    let next = all.len() as u32;
    *known.entry(value).or_insert_with_key(|value| {
        all.push(value.clone());
        next
    })
}
