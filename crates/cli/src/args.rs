//! The command line.
//!
//! Receives: the words as the shell split them. Returns: what to do. Must hold: the first word that is not an option is
//! the program, and all words after it are its arguments, unchanged. The name of a subcommand counts only as the first
//! word, so `heaptrack ./print` and `heaptrack -- print` run programs.
use crate::analyze::Analyze;
use crate::attach::Attach;
use crate::cargo_heaptrack::{self, CargoHeaptrack};
use crate::check::Check;
use crate::completions::Completions;
use crate::dataset::Dataset;
use crate::detach::Detach;
use crate::diff::Diff;
use crate::export::Export;
use crate::lib_install::Lib;
use crate::man::Man;
use crate::mcp::Mcp;
use crate::merge::Merge;
use crate::print::Print;
use crate::record::Record;
use crate::recording_options;
use crate::report::Report;
use crate::snapshot::Snapshot;
use crate::symbolize::Symbolize;
use crate::test_sections::{self, TestSections};
use crate::trim::Trim;
use crate::tui::{RecordedTui, Tui};
use crate::viewer::Viewer;
use crate::wrong_usage::Wrong;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::path::Path;

#[derive(Debug)]
pub enum Invocation {
    Record(Record),
    Attach(Attach),
    Detach(Detach),
    Snapshot(Snapshot),
    Print(Box<Print>),
    Check(Box<Check>),
    Cargo(CargoHeaptrack),
    TestSections(TestSections),
    Symbolize(Symbolize),
    /// The words of the command line, with the name of the command first.
    Heaptrace(Vec<OsString>),
    Lib(Lib),
    Export(Box<Export>),
    Trim(Trim),
    Merge(Merge),
    Analyze(Analyze),
    Tui(Tui),
    RecordedTui(RecordedTui),
    Report(Report),
    Completions(Completions),
    Man(Man),
    Mcp(Mcp),
    Viewer(Viewer),
    Dataset(Dataset),
}

/// Ends the process on wrong usage (2), `--help` and `--version` (0).
pub fn parse(words: impl Iterator<Item = OsString>) -> Invocation {
    try_parse(words).unwrap_or_else(|wrong| wrong.exit())
}

/// Returns `Err` on wrong usage, `--help` and `--version`.
pub fn try_parse(words: impl Iterator<Item = OsString>) -> Result<Invocation, Wrong> {
    let mut words: Vec<OsString> = words.collect();
    let name = words.first().and_then(|word| Path::new(word).file_name()).and_then(|name| name.to_str());
    match name {
        Some("heaptrack_print") => return Ok(Invocation::Print(Box::new(Print::for_kdes_name(words)?))),
        Some("heaptrace") => return Ok(Invocation::Heaptrace(words)),
        Some("cargo-heaptrack") => return Ok(Invocation::Cargo(CargoHeaptrack::from_words(words)?)),
        Some("heaptrack_gui") => return Ok(Invocation::Analyze(Analyze::try_parse_from(words)?)),
        _ => {}
    }
    let first = words.get(1).and_then(|word| word.to_str()).unwrap_or_default().to_owned();
    if first == cargo_heaptrack::RUNNER {
        return cargo_heaptrack::run_as_runner(&words[2..])
            .map_err(|error| Wrong::Option(crate::trouble::sentence(&error)));
    }
    if first == "record" {
        words.remove(1);
    } else if let Some(invocation) = subcommand(&first, &words)? {
        return Ok(invocation);
    }
    let words = fence_off(words, &Record::command());
    let record: Record = recording_options::parse(words.clone())?;
    if record.tui {
        return Ok(Invocation::RecordedTui(recorded_tui(words, &record)));
    }
    Ok(match Attach::of(&record) {
        Some(attach) => Invocation::Attach(attach),
        None => Invocation::Record(record),
    })
}

/// Takes `--tui` out of the words of a recording. It stands before the program, so it is the first such word.
fn recorded_tui(mut words: Vec<OsString>, record: &Record) -> RecordedTui {
    if let Some(at) = words.iter().position(|word| word == "--tui") {
        words.remove(at);
    }
    let program = record.command.first().map(|word| word.to_string_lossy().into_owned());
    RecordedTui { words: words.split_off(1), program }
}

/// Parses the subcommand that the first word names, or returns `None` if it names none. `words` are all words of the
/// command line.
fn subcommand(first: &str, words: &[OsString]) -> Result<Option<Invocation>, Wrong> {
    let words = || words[1..].to_vec();
    Ok(Some(match first {
        "attach" => Invocation::Attach(recording_options::parse(words())?),
        "detach" => Invocation::Detach(Detach::try_parse_from(words())?),
        "snapshot" => Invocation::Snapshot(Snapshot::try_parse_from(words())?),
        "print" => Invocation::Print(Box::new(Print::from_words(words())?)),
        "check" => Invocation::Check(Box::new(Check::try_parse_from(words())?)),
        test_sections::NAME => Invocation::TestSections(TestSections::try_parse_from(words())?),
        "diff" => Invocation::Print(Box::new(Diff::from_words(words())?)),
        "heaptrace" => Invocation::Heaptrace(words()),
        "analyze" | "-a" | "--analyze" => Invocation::Analyze(Analyze::try_parse_from(words())?),
        "tui" => Invocation::Tui(Tui::try_parse_from(words())?),
        "report" => Invocation::Report(Report::try_parse_from(words())?),
        "symbolize" => Invocation::Symbolize(Symbolize::try_parse_from(words())?),
        "lib" => Invocation::Lib(Lib::try_parse_from(words())?),
        "export" => Invocation::Export(Box::new(Export::from_words(words())?)),
        "trim" => Invocation::Trim(Trim::try_parse_from(words())?),
        "merge" => Invocation::Merge(Merge::try_parse_from(words())?),
        "completions" => Invocation::Completions(Completions::try_parse_from(words())?),
        "mcp" => Invocation::Mcp(Mcp::try_parse_from(words())?),
        // Its program has options of its own, also --help.
        "dataset" => Invocation::Dataset(Dataset { words: words().split_off(1) }),
        "viewer" => Invocation::Viewer(Viewer::try_parse_from(words())?),
        "man" => Invocation::Man(Man::try_parse_from(words())?),
        _ => return Ok(None),
    }))
}

/// Puts `--` before the program, so that no option of the program is taken for ours.
pub fn fence_off(mut words: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let bytes = word.as_encoded_bytes();
        if bytes == b"--" {
            return words;
        }
        if bytes.first() != Some(&b'-') || bytes.len() == 1 {
            words.insert(at, "--".into());
            return words;
        }
        at += if takes_next(command, bytes) { 2 } else { 1 };
    }
    words
}

/// Returns true if the value of an option is the next word, as for `-o`, `-qo` and `--output`, but not for `-oNAME` and
/// `--output=NAME`.
pub fn takes_next(command: &clap::Command, option: &[u8]) -> bool {
    // A value that must follow an equals sign is in the same word.
    let takes_value = |found: Option<&clap::Arg>| {
        found.is_some_and(|arg| arg.get_action().takes_values() && !arg.is_require_equals_set())
    };
    if let Some(long) = option.strip_prefix(b"--") {
        let named = |arg: &&clap::Arg| {
            let names = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
            names.into_iter().any(|name| name.as_bytes() == long)
        };
        return takes_value(command.get_arguments().find(named));
    }
    for (position, letter) in option.iter().enumerate().skip(1) {
        let named = |arg: &&clap::Arg| arg.get_short() == Some(*letter as char);
        if takes_value(command.get_arguments().find(named)) {
            return position + 1 == option.len();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording_options::OnFull;
    use std::path::PathBuf;
    use std::time::Duration;

    fn record(line: &str) -> Result<Record, clap::Error> {
        Record::try_parse_from(fence_off(line.split(' ').map(OsString::from).collect(), &Record::command()))
    }

    fn program(line: &str) -> Vec<String> {
        record(line).unwrap().command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn sizes_have_units() {
        let size =
            |text: &str| record(&format!("heaptrack --max-size {text} ls")).map(|record| record.recording.max_size);
        assert_eq!(size("2G").unwrap(), Some(2_000_000_000));
        assert_eq!(size("1.5MiB").unwrap(), Some(1_572_864));
        assert_eq!(size("1000000").unwrap(), Some(1_000_000));
        for wrong in ["999999", "1", "M", "2Q", "x", "1e400G", "-3G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_is_consistent() {
        crate::man::commands().into_iter().for_each(clap::Command::debug_assert);
    }

    #[test]
    fn the_first_plain_word_ends_our_options() {
        assert_eq!(program("heaptrack ls -o x --help"), ["ls", "-o", "x", "--help"]);
        assert_eq!(program("heaptrack -q -o name ls -q -- -x"), ["ls", "-q", "--", "-x"]);
        assert_eq!(program("heaptrack -qo name ls -d"), ["ls", "-d"]);
        assert_eq!(program("heaptrack -oname --on-full drop ls"), ["ls"]);
        assert_eq!(program("heaptrack --max-stall=5 --output=a -- -ls --"), ["-ls", "--"]);
    }

    #[test]
    fn options_have_their_values() {
        let options = record("heaptrack --raw --max-stall 1.5 -o %h.%p ls").unwrap();
        assert!(options.recording.no_symbols);
        assert_eq!((options.recording.on_full, options.recording.max_stall), (OnFull::Wait, 1500));
        assert_eq!(record("heaptrack --on-full=drop ls").unwrap().recording.on_full, OnFull::Drop);
        assert_eq!(options.recording.output.unwrap(), PathBuf::from("%h.%p"));
    }

    #[test]
    fn wrong_usage_is_an_error() {
        for line in
            ["heaptrack", "heaptrack -o", "heaptrack --no-such ls", "heaptrack -q", "heaptrack --max-stall=x ls"]
        {
            assert_eq!(record(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn options_of_a_recording_that_change_nothing_are_refused() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in ["attach --on-full drop --max-stall 1s 7", "attach --max-stall=1s --on-full=drop 7"] {
            let refused = recording_options::parse::<Attach>(words(line));
            assert!(matches!(refused, Err(Wrong::Option(sentence)) if sentence.starts_with("--max-stall")), "{line}");
        }
        assert!(recording_options::parse::<Attach>(words("attach --on-full drop 7")).is_ok());
        let search = |line: &str| recording_options::parse::<Attach>(words(line)).unwrap().recording.search;
        let trouble = search("attach --debug-path /no/such/folder 7").trouble(false);
        assert_eq!(trouble.as_deref(), Some("--debug-path /no/such/folder: there is no such folder"));
        let trouble = search("attach --sysroot /etc/passwd 7").trouble(false);
        assert_eq!(trouble.as_deref(), Some("--sysroot /etc/passwd: there is no such folder"));
        assert_eq!(search("attach --sysroot / 7").trouble(false), None);
        assert!(search("attach --sysroot / 7").trouble(true).is_some_and(|trouble| trouble.contains("--no-symbols")));
        assert!(record("heaptrack --live --debug ls").is_err());
    }

    #[test]
    fn attaching_is_an_option_or_a_subcommand() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from));
        let Invocation::Attach(options) = parse("heaptrack -p 42 --duration 2min") else { panic!("attach") };
        assert_eq!(options.duration, Some(Duration::from_secs(120)));
        let Invocation::Attach(options) = parse("heaptrack --duration 1.5m -qp 42 -o x") else { panic!("attach") };
        assert_eq!((options.pid, options.duration, options.recording.quiet), (42, Some(Duration::from_secs(90)), true));
        let Invocation::Attach(options) = parse("heaptrack attach 42 --duration=30s") else { panic!("attach") };
        assert_eq!((options.pid, options.duration), (42, Some(Duration::from_secs(30))));
        assert!(matches!(parse("heaptrack detach 42"), Invocation::Detach(d) if d.pid == 42));
        for line in ["heaptrack -p x", "heaptrack -p 1 ls", "heaptrack --duration 1 ls", "heaptrack -p 1 --duration x"]
        {
            assert_eq!(record(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn subcommands_count_only_as_the_first_word() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from));
        assert!(matches!(parse("heaptrack print x.htz"), Invocation::Print(_)));
        assert!(matches!(parse("/usr/bin/heaptrack_print x.htz"), Invocation::Print(_)));
        assert!(matches!(parse("heaptrack -a x.htz y.htz"), Invocation::Analyze(a) if a.files.len() == 2));
        assert!(matches!(parse("heaptrack_gui -d base.htz x.htz"), Invocation::Analyze(a) if a.compare.is_some()));
        assert!(matches!(parse("heaptrack report x.htz -o y.html"), Invocation::Report(_)));
        assert!(matches!(parse("heaptrack viewer -o y.html"), Invocation::Viewer(_)));
        assert!(matches!(parse("heaptrack dataset report d --json"), Invocation::Dataset(d) if d.words.len() == 3));
        assert!(
            matches!(parse("heaptrack --live ./analyze x"), Invocation::Record(r) if r.recording.live && r.command.len() == 2)
        );
        assert!(matches!(parse("heaptrack man print"), Invocation::Man(_)));
        assert!(matches!(parse("heaptrack tui x.htz"), Invocation::Tui(t) if t.file.is_some()));
        assert!(matches!(parse("heaptrack tui -p 7"), Invocation::Tui(t) if t.pid == Some(7)));
        let Invocation::RecordedTui(shown) = parse("heaptrack -o x --tui ./a --tui") else { panic!("--tui") };
        assert_eq!((shown.words.join(" ".as_ref()), shown.program), ("-o x -- ./a --tui".into(), Some("./a".into())));
        assert!(matches!(parse("heaptrack -- man ls"), Invocation::Record(r) if r.command == ["man", "ls"]));
        assert!(matches!(parse("heaptrack -- print"), Invocation::Record(r) if r.command == ["print"]));
        assert!(matches!(parse("heaptrack -q print x"), Invocation::Record(r) if r.command == ["print", "x"]));
        assert!(matches!(parse("heaptrack ./print"), Invocation::Record(r) if r.command == ["./print"]));
        assert!(matches!(parse("heaptrack record print"), Invocation::Record(r) if r.command == ["print"]));
    }
}
