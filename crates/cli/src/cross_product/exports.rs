//! Tries every option of `export` with every format.
use super::made::Files;
use super::{sentence, words};
use crate::export::{Export, Format};
use clap::CommandFactory;
use std::ffi::OsString;

/// An option, its value, and the other options that it needs to make a difference.
type Tried = (&'static str, String, &'static str);

fn tried(files: &Files, to: Format) -> Vec<Tried> {
    let (known, rules) = (files.word("known"), files.word("rules"));
    let is_one_cost = matches!(to, Format::Folded | Format::Svg);
    let leaked = if is_one_cost { "--cost leaked" } else { "" };
    // The peak lies between the two times.
    let counted = if is_one_cost { "--cost allocations" } else { "" };
    let hides = matches!(to, Format::Folded | Format::Svg | Format::Pprof | Format::Speedscope);
    let hidden = if hides { "--hide all-but-mine" } else { "" };
    let option = |option: &'static str, value: &str| (option, value.to_owned(), "");
    vec![
        option("--custom", ""),
        option("--domain", "custom"),
        option("--at", "2s"),
        ("--from", "1s".into(), counted),
        ("--to", "2s".into(), counted),
        option("--include", "parse"),
        option("--exclude", "parse"),
        option("--filter-bt-function", "parse"),
        option("--thread", "1"),
        option("--process", "7"),
        option("--allocator", "jemalloc"),
        option("--size", "..50"),
        option("--lifetime", "..1s"),
        option("--cost", "allocations"),
        option("--hide", "libc"),
        option("--collapse", "recursion"),
        ("--rules", rules, hidden),
        ("--suppressions", known, leaked),
        ("--disable-embedded-suppressions", String::new(), leaked),
        ("--disable-builtin-suppressions", String::new(), leaked),
        ("--no-suppressions", String::new(), leaked),
        option("--rows", "events"),
        option("--redact", ""),
        option("--massif-threshold", "60"),
        option("--massif-detailed-freq", "1"),
    ]
}

/// Returns what an export writes, or the sentence that refuses it.
fn export(files: &Files, to: Format, options: &[String]) -> Result<String, String> {
    // The same name with and without an option, because `.gz` in it would compress the file.
    let out = files.path("exported.gz");
    let mut line: Vec<OsString> = ["export", "--to", to.name(), "-o"].map(OsString::from).into();
    line.push(out.clone().into());
    line.extend(options.iter().map(OsString::from));
    line.push(files.path("app.htz").into());
    let export = Export::from_words(line).map_err(sentence)?;
    crate::export::run(&export).map_err(|error| error.to_string())?;
    Ok(files.take(&out))
}

#[test]
fn no_option_of_export_is_ignored() {
    let files = Files::new("cross-product-export");
    let mut faults = Vec::new();
    let mut heeded = 0;
    for to in Format::ALL {
        for (option, value, with) in tried(&files, *to) {
            let plain = words(with);
            let mut asked = vec![option.to_owned()];
            asked.extend(Some(value).filter(|value| !value.is_empty()));
            let written = export(&files, *to, &[plain.clone(), asked].concat());
            match (written, export(&files, *to, &plain)) {
                (Ok(written), Ok(without)) if written != without => heeded += 1,
                (Ok(_), _) => faults.push(format!("--to {}: {option} is ignored", to.name())),
                (Err(sentence), _) if sentence.contains(option) => {}
                (Err(sentence), _) => faults.push(format!("--to {} {option}: {sentence}", to.name())),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Every row of the table of `support.rs`, without `--output`.
    assert_eq!(heeded, crate::support::export_rows() - Format::ALL.len());
}

#[test]
fn every_option_of_export_is_in_the_cross_product() {
    let files = Files::new("cross-product-export-options");
    let mut tried: Vec<String> =
        tried(&files, Format::Csv).into_iter().map(|(option, ..)| option.trim_start_matches("--").into()).collect();
    tried.extend(["output", "version"].map(String::from));
    tried.sort_unstable();
    let command = Export::command();
    let mut known: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
    known.extend(["version"]);
    known.sort_unstable();
    known.dedup();
    assert_eq!(tried, known);
}

#[test]
fn to_is_a_format_and_a_time() {
    let files = Files::new("export-to");
    let run = |line: &str| {
        let line = format!("export {line} {}", files.word("app.htz"));
        Export::from_words(line.split(' ').map(OsString::from).collect()).map_err(sentence)
    };
    assert!(run("--to csv --to 2s").is_ok() && run("--to 50% --to csv --from 1s").is_ok());
    for (line, wrong) in [
        ("--to 2s", "--to: the format is missing"),
        ("--to csv --to pprof", "--to: there can be one format only"),
        ("--to csv --to 1s --to 2s", "--to: there can be one time only"),
        ("--to csv --to soon", "--to soon: not a format"),
        ("--to heaptrack --to 2s", "--to T changes nothing in --to heaptrack; it is for"),
        ("--to csv --at 1s --to 2s", "--at is one instant"),
        ("--to csv --rows events --at 1s", "--at changes nothing in a table of events"),
        ("--to pprof --rules x", "--rules changes nothing in --to pprof without --hide"),
        ("--to dhat --hide libc", "--hide changes nothing in --to dhat"),
    ] {
        let said = run(line).map(drop).unwrap_err();
        assert!(said.contains(wrong), "{line}: {said}");
    }
    for (line, wrong) in [
        ("--to pprof --cost leaked", "--cost leaked: pprof has peak, live"),
        ("--to speedscope --cost growth", "--cost growth: growth can be negative"),
        ("--to csv --from 9s", "--from 9s is after the end of the trace"),
        ("--to jsonl --thread 7", "--thread 7 is not in the trace"),
    ] {
        let said = crate::export::run(&run(line).unwrap()).unwrap_err().to_string();
        assert!(said.contains(wrong), "{line}: {said}");
    }
}
