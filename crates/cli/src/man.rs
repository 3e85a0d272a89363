//! `heaptrack man`: the manual pages, as roff.
//!
//! Receives: the name of a command, or a folder for all pages. Returns: a page on stdout, or files. Must hold: a page
//! says everything that `--help` says, because it is made from the same text. The paragraphs below the options become
//! sections by their first words.
use crate::destination::{Content, Destination};
use crate::{
    analyze, attach, cargo_heaptrack, check, completions, detach, diff, export, heaptrace, lib_install, mcp, merge,
    print, print_out, record, report,
};
use crate::{dataset, snapshot, symbolize, trim, tui, viewer};
use anyhow::Context;
use clap::{CommandFactory, Parser};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Examples:
  heaptrack man | man -l -                     the page of heaptrack itself
  heaptrack man print | man -l -               the page of `heaptrack print`
  heaptrack man --all ~/.local/share/man/man1  all pages, as files: heaptrack.1, heaptrack-print.1, ...

Exit code: 0; 2 wrong usage, or a folder that cannot be written to.";

/// Prints a manual page, or writes all of them to a folder.
#[derive(Debug, Parser)]
#[command(name = "heaptrack man", bin_name = "heaptrack man", version, after_help = HELP)]
pub struct Man {
    /// The command; heaptrack itself if none is given.
    #[arg(value_name = "COMMAND", value_parser = known_command)]
    command: Option<String>,
    /// Write all manual pages to this folder, which is created if it does not exist.
    #[arg(long, value_name = "FOLDER", conflicts_with = "command", value_hint = clap::ValueHint::DirPath)]
    all: Option<PathBuf>,
}

pub fn run(options: &Man) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &options.all {
        write_all(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = options.command.as_deref().unwrap_or("heaptrack");
    let pages = pages();
    let page = pages.iter().find(|page| page.is_called(wanted)).context("there is no such command")?;
    print_out(&page.roff(&pages)?)
}

fn known_command(text: &str) -> Result<String, String> {
    let pages = pages();
    if pages.iter().any(|page| page.is_called(text)) {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = pages.iter().map(|page| page.name.trim_start_matches("heaptrack-")).collect();
    Err(format!("the commands are {}", names.join(", ")))
}

fn write_all(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    let pages = pages();
    for page in &pages {
        let text = page.roff(&pages)?;
        let file = folder.join(format!("{}.1", page.name));
        let output = Destination::new(&file, OsStr::new("heaptrack.1"), Content::Other, &[])?;
        output.write(Content::Other, |out| Ok(out.write_all(&text)?))?;
    }
    Ok(())
}

/// One manual page.
struct Page {
    /// As in `heaptrack-print.1`.
    name: String,
    command: clap::Command,
}

/// All commands.
pub fn commands() -> [clap::Command; 22] {
    [
        record::Record::command(),
        attach::Attach::command(),
        detach::Detach::command(),
        snapshot::Snapshot::command(),
        print::Print::command(),
        diff::Diff::command(),
        check::Check::command(),
        cargo_heaptrack::CargoHeaptrack::command(),
        heaptrace::command(),
        analyze::Analyze::command(),
        tui::Tui::command(),
        report::Report::command(),
        viewer::Viewer::command(),
        dataset::Dataset::command(),
        symbolize::Symbolize::command(),
        lib_install::Lib::command(),
        export::Export::command(),
        trim::Trim::command(),
        merge::Merge::command(),
        mcp::Mcp::command(),
        completions::Completions::command(),
        Man::command(),
    ]
}

fn pages() -> Vec<Page> {
    commands().map(|command| Page { name: command.get_name().replace(' ', "-"), command }).into()
}

impl Page {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.strip_prefix("heaptrack-") == Some(name)
    }

    fn roff(&self, pages: &[Page]) -> io::Result<Vec<u8>> {
        let man = clap_mangen::Man::new(self.command.clone().display_name(&self.name)).title(&self.name);
        let mut out = Vec::new();
        man.render_title(&mut out)?;
        man.render_name_section(&mut out)?;
        man.render_synopsis_section(&mut out)?;
        man.render_description_section(&mut out)?;
        man.render_options_section(&mut out)?;
        let below = self.command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for section in sections(&below) {
            section.write(&mut out)?;
        }
        man.render_version_section(&mut out)?;
        let others: Vec<String> = pages
            .iter()
            .filter(|page| page.name != self.name)
            .map(|page| format!("\\fB{}\\fR(1)", escaped(&page.name)))
            .collect();
        writeln!(out, ".SH \"SEE ALSO\"\n{}", others.join(", "))?;
        Ok(out)
    }
}

/// A section of a page that is made from the text below the options.
struct Section<'a> {
    title: &'static str,
    lines: Vec<&'a str>,
}

/// A section in which each line of the text is a statement of its own.
const VALUES: &str = "VALUES";

/// The first words of a paragraph, and the section that the paragraph belongs to.
const TITLES: [(&str, &str); 8] = [
    ("Subcommands", "COMMANDS"),
    ("Where options apply", "WHERE OPTIONS APPLY"),
    ("Times:", VALUES),
    ("While it runs:", "SIGNALS"),
    ("Examples:", "EXAMPLES"),
    ("Example:", "EXAMPLES"),
    ("Environment:", "ENVIRONMENT"),
    ("Exit code:", "EXIT STATUS"),
];

/// Splits a text at its empty lines.
fn sections(text: &str) -> Vec<Section<'_>> {
    let paragraphs = text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty());
    let section =
        |paragraph: &'_ str| TITLES.iter().find(|(start, _)| paragraph.starts_with(start)).map(|(_, title)| *title);
    paragraphs
        .map(|paragraph| {
            let title = section(paragraph).unwrap_or("NOTES");
            let lines = paragraph.lines();
            // The first line of examples only repeats the title of the section.
            let skipped = usize::from(matches!(title, "EXAMPLES"));
            Section { title, lines: lines.skip(skipped).collect() }
        })
        .collect()
}

impl Section<'_> {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, ".SH \"{}\"", self.title)?;
        // A text that is indented is a table or a list of commands, whose lines must stay as they are.
        let is_table = self.lines.iter().any(|line| line.starts_with("  "));
        if is_table {
            writeln!(out, ".nf")?;
        }
        for line in &self.lines {
            let line = if self.title == "EXIT STATUS" { line.trim_start_matches("Exit code: ") } else { line };
            let line = escaped(line);
            // A dot or an apostrophe at the start of a line would be a request.
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            writeln!(out, "{guard}{line}")?;
            if self.title == VALUES {
                writeln!(out, ".br")?;
            }
        }
        if is_table { writeln!(out, ".fi") } else { Ok(()) }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_examples_and_an_exit_status() {
        let pages = pages();
        assert_eq!(pages.len(), 22);
        for page in &pages {
            let text = String::from_utf8(page.roff(&pages).unwrap()).unwrap();
            for section in ["NAME", "SYNOPSIS", "OPTIONS", "\"EXAMPLES\"", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
                assert!(text.contains(&format!(".SH {section}\n")), "{}: {section}\n{text}", page.name);
            }
            assert!(!text.contains("\"NOTES\"\n.SH"), "{}: an empty section", page.name);
        }
    }

    /// Every line of the text below the options of `--help`, and every long option, is in the page.
    #[test]
    fn a_page_has_all_that_help_has() {
        let pages = pages();
        for page in &pages {
            let text = String::from_utf8(page.roff(&pages).unwrap()).unwrap();
            let text = text.replace("\\-", "-").replace("\\*(Aq", "'").replace("\\e", "\\").replace("\\(aq", "'");
            let help = page.command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| !line.starts_with("Example")) {
                let line = line.trim().trim_start_matches("Exit code: ");
                assert!(text.contains(line), "{}: {line}", page.name);
            }
            for option in page.command.get_arguments().filter_map(|arg| arg.get_long()) {
                assert!(text.contains(&format!("--{option}")), "{}: --{option}", page.name);
            }
        }
    }

    #[test]
    fn a_page_is_found_by_the_name_of_its_command() {
        for name in ["heaptrack", "print", "heaptrack-print", "heaptrace", "man"] {
            assert!(known_command(name).is_ok(), "{name}");
        }
        assert!(known_command("ls").unwrap_err().contains("print, diff"));
    }
}
