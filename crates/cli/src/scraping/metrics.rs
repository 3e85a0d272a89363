//! Sums and the largest places as Prometheus reads them.
//!
//! Must hold: the number of lines is bounded, whatever the program does; the places and `(other)` add up to the sum.
use super::failed;
use analysis::{Costs, Query, StackTable};
use heaptrack_trace::OpenTrace;
use std::collections::HashMap;
use std::fmt::Write;
use web::Refusal;

/// The most places that have a line of their own.
const PLACES: usize = 20;

/// The name of all other places together.
const OTHER: &str = "(other)";

/// A place: the function that is to blame, and its module.
type Place = (String, String);

pub fn text(open: &OpenTrace, table: &StackTable) -> Result<Vec<u8>, Refusal> {
    let totals = open.engine().totals();
    let profile = open.profile(&Query::default().within(open.engine())).map_err(failed)?;
    let mut out = String::new();
    let mut put = |name: &str, kind: &str, about: &str, value: u64| {
        let _ = write!(out, "# HELP {name} {about}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    put(
        "heaptrack_live_bytes",
        "gauge",
        "Bytes in blocks that are allocated and not freed.",
        profile.totals.live_bytes,
    );
    put("heaptrack_live_blocks", "gauge", "Blocks that are allocated and not freed.", profile.totals.live_allocations);
    put("heaptrack_peak_bytes", "gauge", "The most bytes that were live at the same time.", totals.peak_bytes);
    put("heaptrack_allocations_total", "counter", "Blocks that were allocated.", totals.allocations);
    put("heaptrack_allocated_bytes_total", "counter", "Bytes that were allocated.", totals.allocated_bytes);
    put("heaptrack_deallocations_total", "counter", "Blocks that were freed.", totals.deallocations);
    put(
        "heaptrack_temporary_allocations_total",
        "counter",
        "Blocks that were freed before their thread allocated another one.",
        totals.temporary,
    );
    put("heaptrack_lost_events_total", "counter", "Allocations and frees that were not recorded.", totals.lost_events);
    put("heaptrack_recorded_seconds", "gauge", "How long the recording runs.", totals.runtime_ns / 1_000_000_000);
    if let Some(sample) = open.engine().definitions().samples.last() {
        put("heaptrack_resident_bytes", "gauge", "The program's resident memory.", sample.rss_bytes);
    }
    put_places(&mut out, &places(profile.stacks.iter().map(|(site, costs)| (place(table, *site), *costs))));
    Ok(out.into_bytes())
}

fn place(table: &StackTable, site: u32) -> Place {
    let stack = table.stack(site);
    let level = table.level(stack.owner);
    let text = |string: Option<u32>| table.text(string).unwrap_or_default().to_owned();
    level.map_or_else(Place::default, |level| {
        let module = text(level.module);
        (text(level.function), module.rsplit('/').next().unwrap_or_default().to_owned())
    })
}

/// Long names are cut, because some C++ names have thousands of characters.
fn cut(mut text: String) -> String {
    const LONGEST: usize = 200;
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
    }
    text
}

/// The places with the most live bytes, sorted, and all others as one. Names are cut before they are compared, because no two
/// lines may have the same labels.
fn places(stacks: impl Iterator<Item = (Place, Costs)>) -> Vec<(Place, Costs)> {
    let mut sums: HashMap<Place, Costs> = HashMap::new();
    for ((function, module), costs) in stacks {
        sums.entry((cut(function), cut(module))).or_default().add(&costs);
    }
    let mut sums: Vec<(Place, Costs)> = sums.into_iter().collect();
    sums.sort_by(|(a, x), (b, y)| y.live_bytes.cmp(&x.live_bytes).then_with(|| a.cmp(b)));
    let mut other = Costs::default();
    sums.iter().skip(PLACES).for_each(|(_, costs)| other.add(costs));
    let has_more = sums.len() > PLACES;
    sums.truncate(PLACES);
    if has_more {
        sums.push(((OTHER.to_owned(), String::new()), other));
    }
    sums
}

/// The name, the kind, the description and the value.
type PlaceMetric = (&'static str, &'static str, &'static str, fn(&Costs) -> u64);

fn put_places(out: &mut String, places: &[(Place, Costs)]) {
    let values: [PlaceMetric; 3] = [
        ("heaptrack_place_live_bytes", "gauge", "Live bytes by the function that is to blame.", |c| c.live_bytes),
        ("heaptrack_place_live_blocks", "gauge", "Live blocks by the function that is to blame.", |c| {
            c.live_allocations
        }),
        // Not a counter: the places that have a line of their own change, and `(other)` with them.
        ("heaptrack_place_allocations", "gauge", "Allocations by the function that is to blame.", |c| c.allocations),
    ];
    for (name, kind, about, of) in values {
        let _ = write!(out, "# HELP {name} {about}\n# TYPE {name} {kind}\n");
        for ((function, module), costs) in places {
            let (function, module) = (escaped(function), escaped(module));
            let _ = writeln!(out, "{name}{{function=\"{function}\",module=\"{module}\"}} {}", of(costs));
        }
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_the_bound_are_one_line_and_everything_adds_up() {
        let costs = |bytes: u64| Costs { live_bytes: bytes, live_allocations: 1, ..Costs::default() };
        let stacks = (0..50u64).map(|n| (((format!("f{}", n % 30)), "m".to_owned()), costs(n)));
        let places = places(stacks);
        assert_eq!(places.len(), PLACES + 1);
        assert_eq!(places.iter().map(|(_, costs)| costs.live_bytes).sum::<u64>(), (0..50).sum::<u64>());
        assert_eq!(places.last().map(|(place, _)| place.0.as_str()), Some(OTHER));
        // 19 and 49.
        assert_eq!(places.first().map(|(place, costs)| (place.0.as_str(), costs.live_bytes)), Some(("f19", 68)));
    }

    #[test]
    fn two_places_that_are_cut_to_the_same_name_are_one_line() {
        let names = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(200)));
        let costs = Costs { live_bytes: 5, live_allocations: 1, ..Costs::default() };
        let places = places(names.into_iter().map(|name| ((name, "m".to_owned()), costs)));
        let mut text = String::new();
        put_places(&mut text, &places);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("heaptrack_place_live_bytes")).collect();
        assert_eq!(lines, [format!("heaptrack_place_live_bytes{{function=\"{}\",module=\"m\"}} 10", "x".repeat(200))]);
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
