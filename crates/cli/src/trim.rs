//! `heaptrack trim`: a trace of a part of the time. What exactly is in it: `format::trim`.
use crate::args::Trim;
use analysis::When;
use anyhow::Context;
use format::FileWriter;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Written once, read often.
pub const LEVEL: i32 = 9;

pub fn run(options: &Trim) -> anyhow::Result<ExitCode> {
    let file = &options.file;
    let of = || file.display().to_string();
    let (from, to) = (point(&options.from)?, point(&options.to)?);
    let (from, to) = times(file, from, to).with_context(of)?;
    if from.is_some_and(|from| from >= to) {
        anyhow::bail!("--from {} is not before --to {}: nothing would be left", options.from, options.to);
    }
    let output = with_extension(&options.output);
    refuse_same(file, &output)?;
    let mut summary = format::Summary::default();
    crate::export::to_file(&output, |out| {
        let mut writer = FileWriter::new(out, LEVEL)?;
        summary = format::trim(&mut crate::source::open(file)?, from, to, &mut writer).with_context(of)?;
        writer.finish()?;
        Ok(())
    })?;
    crate::source::say_custom_is_left_out(file).with_context(of)?;
    let totals = summary.totals;
    crate::say(format_args!("heaptrack: {}: {} allocations", output.display(), totals.allocations));
    Ok(ExitCode::SUCCESS)
}

fn point(text: &str) -> anyhow::Result<When> {
    When::parse(text).with_context(|| format!("{text} is no time: write 1.5s, 200ms, 50%, start, peak or end"))
}

/// In nanoseconds; `None`: from the first event on.
fn times(file: &Path, from: When, to: When) -> Result<(Option<u64>, u64), format::Error> {
    let needs_totals = |when| matches!(when, When::Peak | When::Percent(_));
    let totals = match needs_totals(from) || needs_totals(to) {
        true => crate::export::report(crate::source::open(file)?)?.totals,
        false => format::Totals::default(),
    };
    let ns = |when| match when {
        When::Start => Some(0),
        When::End => None,
        When::Ns(ns) => Some(ns),
        When::Peak => Some(totals.peak_time_ns),
        When::Percent(share) => Some((totals.runtime_ns as f64 * share / 100.0) as u64),
    };
    let from = match from {
        When::Start => None,
        other => Some(ns(other).unwrap_or(u64::MAX)),
    };
    Ok((from, ns(to).unwrap_or(u64::MAX)))
}

/// Ours are called `.htz`.
pub fn with_extension(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "htz") {
        return path.to_owned();
    }
    let mut name = OsString::from(path);
    name.push(".htz");
    PathBuf::from(name)
}

/// What is read must not be written to.
pub fn refuse_same(input: &Path, output: &Path) -> anyhow::Result<()> {
    let same = fs::canonicalize(input).ok().zip(fs::canonicalize(output).ok()).is_some_and(|(one, other)| one == other);
    if same {
        anyhow::bail!("{} would be written over: give another name with -o", output.display());
    }
    Ok(())
}
