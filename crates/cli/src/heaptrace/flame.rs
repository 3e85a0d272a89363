//! Live blocks as folded stacks: one line for each stack, with the root first and the live bytes at the end.
use super::frame_names::{Named, Names};
use super::live_report::{each_shown, sorted};
use super::options::{Key, Options};
use collector::{LiveSite, Snapshot};
use std::fmt::Write;

pub fn text(snapshot: &Snapshot, keys: &[Key], options: &Options, names: &mut Names) -> String {
    let mut out = String::new();
    let key = keys.first().copied().unwrap_or(Key::Size);
    each_shown(&sorted(&snapshot.sites, key), snapshot, options, names, folded, |site, stack| {
        let _ = writeln!(out, "{stack} {}", site.bytes);
    });
    out
}

fn folded(site: &LiveSite, names: &Names) -> String {
    let mut frames = Vec::new();
    for frame in site.frames.iter() {
        frames.extend(levels(&names.get(*frame)));
    }
    if frames.is_empty() {
        frames.push(if site.is_other { "[other]" } else { "[unknown]" }.to_owned());
    }
    frames.reverse();
    frames.join(";")
}

/// Returns the names of a frame's levels, innermost first. Characters that separate frames or lines are replaced.
fn levels(named: &Named) -> Vec<String> {
    let functions = named.levels.iter().filter_map(|level| level.function.as_ref());
    let offset = named.from_start.map(|bytes| format!("+0x{bytes:x}")).unwrap_or_default();
    let mut levels: Vec<String> = functions.map(|function| format!("{function}{offset}")).collect();
    if levels.is_empty() {
        let file = named.module.as_ref().map(|(file, _)| file.as_str()).unwrap_or_default();
        levels.push(format!("{file}<0x{:x}>", named.address));
    }
    levels.iter().map(|level| level.replace(';', ":").replace(['\n', '\r'], " ")).collect()
}
