//! massif's output. Only its trees have stacks: that of the highest snapshot with a tree, and that of the last snapshot if
//! it has one. massif marks a snapshot as the peak when memory shrinks, so a program that frees nothing has no such mark,
//! and a later snapshot may be higher than the marked one.
use crate::dhat::add_frame;
use crate::{HeapProfile, Kind, Stack, VALUES, Value};
use std::collections::HashMap;

/// What a snapshot has, besides its tree.
#[derive(Default)]
struct Snapshot<'a> {
    bytes: u64,
    kind: &'a str,
    tree: Vec<&'a str>,
}

impl Snapshot<'_> {
    /// massif says `empty`, `detailed` or `peak`.
    fn has_tree(&self) -> bool {
        !matches!(self.kind, "" | "empty")
    }
}

pub(crate) fn read(text: &str) -> Result<HeapProfile, String> {
    let mut profile = HeapProfile::new(Kind::Massif);
    let mut snapshots: Vec<Snapshot<'_>> = Vec::new();
    for line in text.lines() {
        let pair = line.split_once('=');
        match (snapshots.last_mut(), pair) {
            (_, Some(("snapshot", _))) => snapshots.push(Snapshot::default()),
            (Some(snapshot), Some(("mem_heap_B", bytes))) => {
                snapshot.bytes = bytes.parse().map_err(|_| format!("a snapshot has {bytes} bytes"))?;
            }
            (Some(snapshot), Some(("heap_tree", kind))) => snapshot.kind = kind,
            (Some(snapshot), _) if line.trim_start().starts_with('n') => snapshot.tree.push(line),
            (None, _) => {
                if let Some(command) = line.strip_prefix("cmd: ") {
                    profile.command = command.to_owned();
                }
            }
            _ => {}
        }
    }
    let last = snapshots.len().checked_sub(1).ok_or("it has no snapshot")?;
    let trees = snapshots.iter().filter(|snapshot| snapshot.has_tree());
    let peak = trees.max_by_key(|snapshot| snapshot.bytes).ok_or("none of its snapshots has a tree")?;
    let most = snapshots.iter().map(|snapshot| snapshot.bytes).max().unwrap_or(0);
    if most > peak.bytes {
        let bytes = peak.bytes;
        profile.note =
            Some(format!("massif has no stacks of its highest snapshot, only of one with {bytes} of {most} bytes"));
    }
    let mut frames: HashMap<String, u32> = HashMap::new();
    profile.known = vec![Value::PeakBytes];
    add(&mut profile, &mut frames, peak, Value::PeakBytes)?;
    if snapshots[last].has_tree() {
        profile.known.push(Value::LiveBytes);
        add(&mut profile, &mut frames, &snapshots[last], Value::LiveBytes)?;
    }
    Ok(profile)
}

/// A node that is not finished: its frame, the bytes that its callers have not claimed, and the number of callers to come.
struct Open {
    frame: Option<u32>,
    left: u64,
    callers: u64,
}

/// Adds the stacks of a tree. Its first node is the total, and a node's callers are below it.
fn add(
    profile: &mut HeapProfile,
    frames: &mut HashMap<String, u32>,
    snapshot: &Snapshot<'_>,
    value: Value,
) -> Result<(), String> {
    let mut open: Vec<Open> = Vec::new();
    for line in &snapshot.tree {
        close(profile, &mut open, value)?;
        let malformed =
            || format!("a node of a tree is malformed: {}", line.trim().chars().take(60).collect::<String>());
        let (callers, rest) = line.trim_start().trim_start_matches('n').split_once(": ").ok_or_else(malformed)?;
        let (bytes, label) = rest.split_once(' ').ok_or_else(malformed)?;
        let (callers, bytes): (u64, u64) =
            (callers.parse().map_err(|_| malformed())?, bytes.parse().map_err(|_| malformed())?);
        let frame = (!open.is_empty()).then(|| number(profile, frames, label));
        if let Some(parent) = open.last_mut() {
            parent.callers = parent.callers.saturating_sub(1);
            parent.left = parent.left.saturating_sub(bytes);
        }
        open.push(Open { frame, left: bytes, callers });
    }
    while !open.is_empty() {
        open.iter_mut().for_each(|node| node.callers = 0);
        close(profile, &mut open, value)?;
    }
    Ok(())
}

/// Ends the innermost nodes whose callers have all been read. What they have left was allocated by stacks that end there.
fn close(profile: &mut HeapProfile, open: &mut Vec<Open>, value: Value) -> Result<(), String> {
    while open.last().is_some_and(|node| node.callers == 0) {
        let left = open.last().map_or(0, |node| node.left);
        if left > 0 {
            let mut values = [0; VALUES];
            values[value as usize] = left;
            // The innermost frame is the first node below the total.
            let frames = open.iter().filter_map(|node| node.frame).collect();
            profile.add_stack(Stack { frames, values })?;
        }
        open.pop();
    }
    Ok(())
}

fn number(profile: &mut HeapProfile, frames: &mut HashMap<String, u32>, label: &str) -> u32 {
    if let Some(known) = frames.get(label) {
        return *known;
    }
    let next = match label.strip_prefix("in ") {
        // "in 3 places, all below massif's threshold (1.00%)"
        Some(places) => {
            let places = places.split(',').next().unwrap_or(places);
            profile.add_frame(0, &format!("[{places} below massif's threshold]"), "", 0)
        }
        None => add_frame(profile, label),
    };
    frames.insert(label.to_owned(), next);
    next
}
