//! DHAT's JSON, version 2, of Valgrind and of the crate dhat.
use crate::{Frame, HeapProfile, Kind, Line, Stack, VALUES, Value};
use serde::Deserialize;

const NS_PER_SECOND: f64 = 1e9;

#[derive(Deserialize)]
struct File {
    #[serde(rename = "dhatFileVersion")]
    version: u64,
    #[serde(default)]
    bklt: bool,
    #[serde(default)]
    cmd: String,
    #[serde(default)]
    pid: u32,
    /// The unit of times, and the end.
    #[serde(default)]
    tu: String,
    #[serde(default)]
    te: u64,
    pps: Vec<Point>,
    ftbl: Vec<String>,
}

#[derive(Deserialize)]
struct Point {
    tb: u64,
    tbk: u64,
    #[serde(default)]
    gb: u64,
    #[serde(default)]
    gbk: u64,
    #[serde(default)]
    eb: u64,
    #[serde(default)]
    ebk: u64,
    fs: Vec<u32>,
}

pub(crate) fn read(bytes: &[u8]) -> Result<HeapProfile, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| format!("it cannot be read: {error}"))?;
    if file.version != 2 {
        return Err(format!("its version is {}, and only version 2 is known", file.version));
    }
    let mut profile = HeapProfile::new(Kind::Dhat);
    profile.command = file.cmd;
    profile.pid = file.pid;
    // Valgrind counts instructions, the crate dhat microseconds.
    let unit = if file.tu == "µs" { NS_PER_SECOND / 1e6 } else { 0.0 };
    profile.duration_ns = (file.te as f64 * unit) as u64;
    profile.known = vec![Value::Allocations, Value::AllocatedBytes];
    if file.bklt {
        profile.known.extend([Value::LiveAllocations, Value::LiveBytes, Value::PeakAllocations, Value::PeakBytes]);
    }
    profile.frames = file.ftbl.iter().map(|text| frame(text)).collect();
    for point in file.pps {
        if point.fs.iter().any(|frame| *frame as usize >= profile.frames.len()) {
            return Err("a stack refers to a frame that is not there".into());
        }
        let mut values = [0; VALUES];
        values[Value::Allocations as usize] = point.tbk;
        values[Value::AllocatedBytes as usize] = point.tb;
        values[Value::LiveAllocations as usize] = point.ebk;
        values[Value::LiveBytes as usize] = point.eb;
        values[Value::PeakAllocations as usize] = point.gbk;
        values[Value::PeakBytes as usize] = point.gb;
        profile.stacks.push(Stack { frames: point.fs, values });
    }
    Ok(profile)
}

/// Reads `0x4005AB: main (a.c:12)`, `0x4005AB: main (in /bin/a)` or `0x4005AB: ??? (in /bin/a)`.
pub(crate) fn frame(text: &str) -> Frame {
    let (address, rest) = match text.strip_prefix("0x").and_then(|text| text.split_once(": ")) {
        Some((digits, rest)) => (u64::from_str_radix(digits, 16).unwrap_or(0), rest),
        None => (0, text),
    };
    let (function, place) =
        match rest.rsplit_once(" (").and_then(|(name, place)| Some((name, place.strip_suffix(')')?))) {
            Some((name, place)) => (name, Some(place)),
            None => (rest, None),
        };
    let mut line = Line { function: function.to_owned(), ..Line::default() };
    if let Some(place) = place.filter(|place| !place.starts_with("in ")) {
        // The crate dhat adds a column.
        let mut parts = place.split(':');
        line.file = parts.next().unwrap_or_default().to_owned();
        line.line = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    }
    let lines = if function == "???" { Vec::new() } else { vec![line] };
    Frame { address, module: None, lines }
}
