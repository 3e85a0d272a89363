//! The formats of `heaptrack export`, and the value of `--to`, which names a format or the end of a range.
use analysis::{NOT_A_TIME, When};
use clap::ValueEnum;
use clap::builder::{PossibleValue, TypedValueParser};
use std::ffi::OsStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The format of KDE's heaptrack.
    Heaptrack,
    /// A line for each stack, for flame graph tools.
    Folded,
    /// A flame graph.
    Svg,
    /// The format of Valgrind's massif.
    Massif,
    /// For go tool pprof, Pyroscope, Parca, Perfetto and others.
    Pprof,
    /// For speedscope.
    Speedscope,
    /// For the Firefox Profiler.
    Firefox,
    /// The format of Valgrind's DHAT.
    Dhat,
    /// The heap profile of gperftools.
    Gperftools,
    /// A table with a header.
    Csv,
    /// A table, one JSON object per line.
    Jsonl,
}

impl Format {
    pub const ALL: &[Format] = &[
        Format::Heaptrack,
        Format::Folded,
        Format::Svg,
        Format::Massif,
        Format::Pprof,
        Format::Speedscope,
        Format::Firefox,
        Format::Dhat,
        Format::Gperftools,
        Format::Csv,
        Format::Jsonl,
    ];

    /// The value of `--to`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Heaptrack => "heaptrack",
            Format::Folded => "folded",
            Format::Svg => "svg",
            Format::Massif => "massif",
            Format::Pprof => "pprof",
            Format::Speedscope => "speedscope",
            Format::Firefox => "firefox",
            Format::Dhat => "dhat",
            Format::Gperftools => "gperftools",
            Format::Csv => "csv",
            Format::Jsonl => "jsonl",
        }
    }

    /// The ending of a file that is written into a folder.
    pub const fn ending(self) -> &'static str {
        match self {
            Format::Heaptrack => ".zst",
            Format::Folded => ".folded",
            Format::Svg => ".svg",
            Format::Massif => ".massif",
            Format::Pprof => ".pb.gz",
            Format::Speedscope => ".speedscope.json",
            Format::Firefox => ".firefox.json.gz",
            Format::Dhat => ".dhat.json",
            Format::Gperftools => ".heap",
            Format::Csv => ".csv",
            Format::Jsonl => ".jsonl",
        }
    }

    /// Returns the names of formats, as a list for people.
    pub fn names(formats: &[Format]) -> String {
        formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }
}

/// A value of `--to`. No time looks like the name of a format.
#[derive(Clone, Debug, PartialEq)]
pub enum To {
    Format(Format),
    /// The end of the range, as `--to` of `print`.
    Time(String),
}

#[derive(Clone)]
pub struct ToParser;

impl TypedValueParser for ToParser {
    type Value = To;

    fn parse_ref(&self, _: &clap::Command, _: Option<&clap::Arg>, value: &OsStr) -> Result<To, clap::Error> {
        let text = value.to_string_lossy();
        if let Ok(format) = Format::from_str(&text, false) {
            return Ok(To::Format(format));
        }
        if When::parse(&text).is_some() {
            return Ok(To::Time(text.into_owned()));
        }
        let names = Format::names(Format::value_variants());
        let sentence = format!("--to {text}: not a format ({names}), and {NOT_A_TIME}\n");
        Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, sentence))
    }

    /// For `--help` and for completion.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Format::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}
