//! Why an answer is empty, as a sentence for people.
use crate::engine::Engine;
use crate::fitting::seconds;
use crate::profile::Profile;
use crate::query::{Cost, Query};
use crate::stack_table::StackTable;

/// Why a profile has no stacks; `None` if it has any.
pub fn why_empty(engine: &Engine, profile: &Profile, query: &Query) -> Option<String> {
    if !profile.stacks.is_empty() {
        return None;
    }
    if engine.definitions().site_count() == 0 {
        return Some("the trace has no allocations".into());
    }
    if let Some(misfit) = query.misfit(engine) {
        return Some(misfit.to_string());
    }
    let patterns = given(query, &["include", "exclude"]);
    if !patterns.is_empty() && !engine.chosen(query).has_any() {
        return Some(format!("no stack matches {}", patterns.join(", ")));
    }
    let filters = given(query, &["include", "exclude", "thread", "process", "allocator", "size", "lifetime"]);
    let what = match profile.range.instant {
        true => format!("nothing was live at {}", seconds(profile.range.from_ns)),
        false => "nothing was allocated, freed or live".to_owned(),
    };
    let when = match (profile.range.instant, query.from.is_some() || query.to.is_some()) {
        (false, true) => {
            let (from, to) = (seconds(profile.range.from_ns), seconds(profile.range.to_ns));
            format!(" between {from} and {to}")
        }
        _ => String::new(),
    };
    let that = if filters.is_empty() { String::new() } else { format!(" that matches {}", filters.join(", ")) };
    Some(format!("{what}{when}{that}"))
}

/// Why no stack has any of this cost; `None` if one has.
pub fn why_none_of(cost: Cost, profile: &Profile, table: &StackTable, query: &Query) -> Option<String> {
    let value = |(site, costs): &(u32, crate::costs::Costs)| {
        cost.of(costs, query.suppressions && table.stack(*site).suppressed.is_some())
    };
    if profile.stacks.iter().any(|stack| value(stack) != 0) {
        return None;
    }
    let live = profile.totals.live_bytes > 0;
    Some(match cost {
        Cost::Leaked if live => "all that was not freed is suppressed as a known leak".into(),
        Cost::Leaked => "nothing leaked".into(),
        Cost::Live => format!("nothing was live at {}", seconds(profile.range.to_ns)),
        Cost::Peak => "nothing was live at the peak".into(),
        Cost::Allocations | Cost::Allocated => "nothing was allocated".into(),
        Cost::Temporary => "no allocation was temporary".into(),
        Cost::Deallocations => "nothing was freed".into(),
        Cost::Kept => "nothing that was allocated in this time was still live at its end".into(),
        Cost::Growth => "nothing grew or shrank".into(),
    })
}

/// The given words of a query among `words`, as they were written.
fn given(query: &Query, words: &[&str]) -> Vec<String> {
    let written = query.given().iter().filter(|(word, _)| words.contains(word));
    let mut list: Vec<String> = written.map(|(word, value)| format!("`{word} {value}`")).collect();
    // KDE's option --filter-bt-function is not a word of the query.
    let named = query.given().iter().filter(|(word, _)| *word == "include").count();
    let others = query.include.iter().skip(named).filter(|_| words.contains(&"include"));
    list.extend(others.map(|pattern| format!("`{pattern}`")));
    list
}
