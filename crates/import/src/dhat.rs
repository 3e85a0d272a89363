//! DHAT's JSON, version 2, of Valgrind and of the crate dhat.
use crate::{Frame, HeapProfile, Kind, Stack, VALUES, Value};
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
    file.ftbl.iter().for_each(|text| {
        add_frame(&mut profile, text);
    });
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
        profile.add_stack(Stack { frames: point.fs, values })?;
    }
    Ok(profile)
}

/// Reads `0x4005AB: main (a.c:12)`, `0x4005AB: main (in /bin/a)` or `0x4005AB: ??? (in /bin/a)`. Returns the frame's number.
pub(crate) fn add_frame(profile: &mut HeapProfile, text: &str) -> u32 {
    let (address, rest) = match text.strip_prefix("0x").and_then(|text| text.split_once(": ")) {
        Some((digits, rest)) => (u64::from_str_radix(digits, 16).unwrap_or(0), rest),
        None => (0, text),
    };
    let place = rest.rsplit_once(" (").and_then(|(name, place)| Some((name, place.strip_suffix(')')?)));
    let (function, place) = place.map_or((rest, ""), |(name, place)| (name, place));
    if function == "???" {
        profile.frames.push(Frame { address, ..Frame::default() });
        return profile.frames.len() as u32 - 1;
    }
    if place.is_empty() || place.starts_with("in ") {
        return profile.add_frame(address, function, "", 0);
    }
    // The crate dhat adds a column.
    let mut parts = place.split(':');
    let file = parts.next().unwrap_or_default();
    let line = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    profile.add_frame(address, function, file, line)
}
