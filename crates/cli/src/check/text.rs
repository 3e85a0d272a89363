//! The result for people: a line for each budget, and the code to blame for those that are broken.
use super::budget::{Amount, Metric};
use super::outcome::{CheckedFile, Judged, Outcome, Place, State};
use std::io::{self, Write};

pub fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    for file in &outcome.files {
        write_file(file, out)?;
    }
    writeln!(out, "{}", outcome.sentence())
}

fn write_file(file: &CheckedFile, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}", file.path.display(), file.command)?;
    for judged in &file.judged {
        let state = match judged.state {
            State::Kept => "kept",
            State::Broken => "BROKEN",
            State::Unknown => "UNKNOWN",
        };
        writeln!(out, "  {state:<8} {}: {}", judged.budget.name(), judged.sentence())?;
        if judged.state == State::Kept {
            continue;
        }
        for place in &judged.places {
            writeln!(out, "           {}", line(judged, place))?;
        }
        writeln!(out, "           limit from {}", judged.budget.origin)?;
    }
    for note in &file.notes {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

/// "59.8 kB  remember  shop.cpp:35", for all formats with lines of text.
pub fn line(judged: &Judged, place: &Place) -> String {
    let metric = if judged.budget.metric == Metric::Growth { Metric::Leaked } else { judged.budget.metric };
    let mut line = format!("{}  {}", Amount(metric, place.value), place.function);
    for part in [place.location(), place.reason.clone()].into_iter().flatten() {
        line.push_str("  ");
        line.push_str(&part);
    }
    line
}
