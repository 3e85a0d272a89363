//! The result as JUnit XML: a suite for each file, a test case for each budget. A broken budget is a failure, one that
//! cannot be judged is an error.
use super::outcome::{CheckedFile, Judged, Outcome, State};
use super::text;
use export::escape_xml as escaped;
use std::io::{self, Write};

pub fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    let (tests, failures, errors) =
        (outcome.judged().count(), outcome.count(State::Broken), outcome.count(State::Unknown));
    writeln!(
        out,
        "<testsuites name=\"heaptrack check\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">"
    )?;
    outcome.files.iter().try_for_each(|file| write_suite(file, out))?;
    writeln!(out, "</testsuites>")
}

fn write_suite(file: &CheckedFile, out: &mut dyn Write) -> io::Result<()> {
    let count = |state: State| file.judged.iter().filter(|judged| judged.state == state).count();
    let path = escaped(&file.path.to_string_lossy());
    writeln!(
        out,
        "  <testsuite name=\"{path}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\" time=\"{:.3}\">",
        file.judged.len(),
        count(State::Broken),
        count(State::Unknown),
        file.totals.runtime_ns as f64 / 1e9,
    )?;
    file.judged.iter().try_for_each(|judged| write_case(&path, judged, out))?;
    if !file.notes.is_empty() {
        writeln!(out, "    <system-out>{}</system-out>", escaped(&file.notes.join("\n")))?;
    }
    writeln!(out, "  </testsuite>")
}

fn write_case(path: &str, judged: &Judged, out: &mut dyn Write) -> io::Result<()> {
    let name = escaped(&judged.budget.name());
    write!(out, "    <testcase classname=\"{path}\" name=\"{name}\" time=\"0\"")?;
    let tag = match judged.state {
        State::Kept => return writeln!(out, "/>"),
        State::Broken => "failure",
        State::Unknown => "error",
    };
    let mut lines: Vec<String> = judged.places.iter().map(|place| text::line(judged, place)).collect();
    lines.push(format!("limit from {}", judged.budget.origin));
    writeln!(
        out,
        ">\n      <{tag} type=\"{}\" message=\"{}\">{}</{tag}>\n    </testcase>",
        judged.budget.metric.name(),
        escaped(&judged.sentence()),
        escaped(&lines.join("\n")),
    )
}
