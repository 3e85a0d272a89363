//! Live blocks as text, in the layout of LG's heaptrace (docs/heaptrace.md draws it).
//!
//! Receives: a snapshot. Returns: lines. Must hold: no lines if nothing is live. Every number comes from the snapshot.
//! The report says what is unknown or was not kept.
use super::frame_names::{Level, Named, Names};
use super::options::{Key, Options};
use super::units::{Age, Size};
use crate::memory_lines::memory_lines;
use collector::{LiveSite, Reason, Snapshot};
use std::cmp::Reverse;
use std::fmt::Write;

const RULE: &str = "=================================================================";
const LONGEST_NAME: usize = 128;
/// The number of backtraces whose frames are looked up together.
const CHUNK: usize = 64;

/// Sorts by `key`, largest first, then by the other cost, then by the frames.
pub fn sorted(sites: &[LiveSite], key: Key) -> Vec<&LiveSite> {
    let mut sorted: Vec<&LiveSite> = sites.iter().collect();
    sorted.sort_by_cached_key(|site| {
        let costs = match key {
            Key::Size => (site.bytes, site.count),
            Key::Count => (site.count, site.bytes),
        };
        (Reverse(costs), std::sync::Arc::clone(&site.frames))
    });
    sorted
}

/// Calls `take` with the first `top` sites and their text, without the ignored ones.
pub fn each_shown<'a>(
    sites: &[&'a LiveSite],
    snapshot: &Snapshot,
    options: &Options,
    names: &mut Names,
    render: impl Fn(&LiveSite, &Names) -> String,
    mut take: impl FnMut(&'a LiveSite, String),
) {
    let mut left = options.top;
    for chunk in sites.chunks(CHUNK) {
        names.learn(chunk.iter().flat_map(|site| site.frames.iter().copied()), &snapshot.modules);
        for site in chunk {
            if left == 0 {
                return;
            }
            let text = render(site, names);
            if !options.ignore.iter().any(|rule| text.contains(rule.as_str())) {
                left -= 1;
                take(site, text);
            }
        }
    }
}

pub fn text(snapshot: &Snapshot, name: &str, keys: &[Key], options: &Options, names: &mut Names) -> String {
    let mut out = String::new();
    if snapshot.sites.is_empty() {
        return out;
    }
    let _ = writeln!(out, "{RULE}");
    for key in keys {
        let (pid, key_name) = (snapshot.pid, key.name());
        let _ = writeln!(out, "[heaptrace] dump allocation sorted by '{key_name}' for /proc/{pid}/maps ({name})");
        let mut number = 0;
        each_shown(&sorted(&snapshot.sites, *key), snapshot, options, names, frames, |site, frames| {
            number += 1;
            let age = Age(snapshot.time_ns.saturating_sub(site.oldest_ns));
            let _ = writeln!(
                out,
                "=== backtrace #{number} === [count/peak: {}/{}] [size/peak: {}/{}] [age: {age}]\n{frames}",
                site.count,
                site.peak_count,
                Size(site.bytes),
                Size(site.peak_bytes),
            );
        });
    }
    footer(snapshot, &mut out);
    out
}

fn footer(snapshot: &Snapshot, out: &mut String) {
    let mut line = |label: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "[heaptrace] {label:<28} : {value}");
    };
    let memory = &snapshot.memory;
    line("heap traced num of backtrace", &snapshot.sites.len());
    line("heap traced allocation size", &Size(snapshot.sites.iter().map(|site| site.bytes).sum()));
    line("allocator info (virtual)", &Size(memory.allocator_virtual));
    line("allocator info (resident)", &Size(memory.allocator_resident));
    let sizes = [memory.virtual_size, memory.resident, memory.shared].map(|bytes| Size(bytes).to_string());
    line("statm info (VSS/RSS/shared)", &sizes.join(" / "));
    if let Some(other) = snapshot.sites.iter().find(|site| site.is_other) {
        line("other (too many stacks)", &format_args!("{} in {} blocks", Size(other.bytes), other.count));
    }
    if let Some(instant) = &snapshot.memory_parts {
        for (label, value) in memory_lines(instant, |bytes| Size(bytes).to_string()) {
            line(&label, &value);
        }
    }
    for sentence in snapshot.losses.sentences() {
        line("not seen", &sentence);
    }
    if snapshot.reason == Reason::End && !memory.is_last {
        // The program ended without its exit handlers (`_exit`, a signal).
        match memory.time_ns {
            0 => line("memory was looked at", &"never: the program was too short"),
            then => line("memory was looked at", &format_args!("{} before the end", Age(snapshot.time_ns - then))),
        }
    }
    let _ = writeln!(out, "{RULE}");
}

/// Returns the lines of one backtrace.
fn frames(site: &LiveSite, names: &Names) -> String {
    let mut out = String::new();
    let mut number = 0;
    let mut put = |text: &str| {
        let _ = writeln!(out, "{number} {text}");
        number += 1;
    };
    if site.frames.is_empty() {
        put("[0x000000000000] ?");
    }
    for frame in site.frames.iter() {
        let named = names.get(*frame);
        if named.levels.is_empty() {
            put(&line(&named, None));
        }
        named.levels.iter().for_each(|level| put(&line(&named, Some(level))));
    }
    out
}

fn line(named: &Named, level: Option<&Level>) -> String {
    let mut out = format!("[0x{:012x}]", named.address);
    let Some((module, offset)) = &named.module else {
        out.push_str(" ?");
        return out;
    };
    if let Some((level, function)) = level.and_then(|level| Some((level, level.function.as_ref()?))) {
        let place = place(level);
        let _ = write!(out, " {}{}", cut(function), if place.is_empty() { place } else { format!(" ({place})") });
        if let Some(bytes) = named.from_start {
            let _ = write!(out, " +0x{bytes:x}");
        }
    }
    let _ = write!(out, " ({module} +0x{offset:x})");
    out
}

/// Returns `inlined, FILE:LINE`, with the parts that are known.
fn place(level: &Level) -> String {
    let file = level.file.as_ref().map(|file| match level.line {
        Some(line) => format!("{file}:{line}"),
        None => file.clone(),
    });
    let inlined = level.is_inlined.then(|| "inlined".to_owned());
    inlined.into_iter().chain(file).collect::<Vec<_>>().join(", ")
}

/// Returns the name on one line and cut to 128 characters. A name that was cut ends in three dots.
fn cut(name: &str) -> String {
    let one_line = name.replace(['\n', '\r'], " ");
    if one_line.chars().count() <= LONGEST_NAME {
        return one_line;
    }
    one_line.chars().take(LONGEST_NAME - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_much_as_is_known() {
        let mut named = Named { address: 0x5571_49a5_41bf, ..Named::default() };
        assert_eq!(line(&named, None), "[0x557149a541bf] ?");
        named.module = Some(("/bin/x".into(), 0x11bf));
        assert_eq!(line(&named, None), "[0x557149a541bf] (/bin/x +0x11bf)");
        named.from_start = Some(0x15);
        let mut level = Level { function: Some("main".into()), ..Level::default() };
        assert_eq!(line(&named, Some(&level)), "[0x557149a541bf] main +0x15 (/bin/x +0x11bf)");
        level.file = Some("a.c".into());
        level.line = Some(7);
        assert_eq!(line(&named, Some(&level)), "[0x557149a541bf] main (a.c:7) +0x15 (/bin/x +0x11bf)");
        level.is_inlined = true;
        assert_eq!(line(&named, Some(&level)), "[0x557149a541bf] main (inlined, a.c:7) +0x15 (/bin/x +0x11bf)");
        named.address = 0x1_0000_0000_0000;
        assert!(line(&named, None).starts_with("[0x1000000000000] "));
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(cut(&"ä".repeat(128)), "ä".repeat(128));
        assert_eq!(cut(&"ä".repeat(129)), format!("{}...", "ä".repeat(125)));
    }
}
