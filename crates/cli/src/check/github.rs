//! The result as annotations of GitHub Actions, which reads them from the output of a step.
use super::budget::Origin;
use super::outcome::{CheckedFile, Judged, Outcome, State};
use super::text;
use std::io::{self, Write};

pub fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    for (file, judged) in outcome.judged().filter(|(_, judged)| judged.state != State::Kept) {
        writeln!(out, "{}", annotation(file, judged))?;
    }
    for (file, note) in outcome.files.iter().flat_map(|file| file.notes.iter().map(move |note| (file, note))) {
        writeln!(out, "::notice::{}", data(&format!("{}: {note}", file.path.display())))?;
    }
    writeln!(out, "heaptrack check: {}", outcome.sentence())
}

fn annotation(file: &CheckedFile, judged: &Judged) -> String {
    let mut properties = Vec::new();
    let place = judged.places.iter().find_map(|place| place.in_repository.clone());
    let place = place.or_else(|| match &judged.budget.origin {
        Origin::File { path, line } => Some((path.to_string_lossy().into_owned(), *line as u32)),
        _ => None,
    });
    if let Some((path, line)) = place {
        properties.push(format!("file={}", property(&path)));
        properties.push(format!("line={line}"));
    }
    properties.push(format!("title={}", property(&format!("heaptrack: {}", judged.budget.name()))));
    let mut lines = vec![format!("{} ({})", judged.sentence(), file.path.display())];
    lines.extend(judged.places.iter().map(|place| text::line(judged, place)));
    format!("::error {}::{}", properties.join(","), data(&lines.join("\n")))
}

/// Escapes the message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_cannot_end_a_command() {
        assert_eq!(data("5%\nb"), "5%25%0Ab");
        assert_eq!(property("a::b,c"), "a%3A%3Ab%2Cc");
    }
}
