//! `heaptrack print`: a trace as text for people or JSON for machines, on stdout.
//!
//! Works on what is there: a finished trace, one that is being written, one that was cut or damaged. What was lost is
//! said in the output; only a file that is no trace at all is an error (one sentence, exit code 2).
mod custom;
mod json;
mod text;

use crate::args::Print;
use crate::source;
use analysis::{BadRule, Classes, Lookup, Replay, Report};
use anyhow::Context;
use format::{Damage, Source};
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Wrong usage or bad file.
const BAD_FILE: u8 = 2;

/// A replayed trace and how well its file could be read.
pub struct Trace {
    pub report: Report,
    pub damage: Vec<Damage>,
    pub damage_count: u64,
    /// The writer came to its end.
    pub finished: bool,
    /// Whose code a frame is.
    pub classes: Classes,
    /// The same for the blocks that the program reported itself, if it did.
    pub custom: Option<Box<Trace>>,
}

impl Trace {
    pub fn open(path: &Path) -> Result<Self, format::Error> {
        let mut reader = source::open(path)?;
        let mut trace = Self::replay(&mut reader)?;
        if reader.has_custom() {
            trace.custom = Some(Box::new(custom::trace(path)?));
        }
        Ok(trace)
    }

    pub fn read<R: Read>(mut reader: Source<R>) -> Result<Self, format::Error> {
        Self::replay(&mut reader)
    }

    fn replay<R: Read>(reader: &mut Source<R>) -> Result<Self, format::Error> {
        let mut replay = Replay::new();
        while let Some(block) = reader.next_block()? {
            replay.add(block);
        }
        let report = replay.finish();
        Ok(Trace {
            classes: Classes::new(&report.session.exe),
            report,
            damage: reader.damage().to_vec(),
            damage_count: reader.damage_count(),
            finished: reader.finished(),
            custom: None,
        })
    }

    /// The user's own rules come before ours.
    pub fn with_rules(mut self, rules: &str) -> Result<Self, BadRule> {
        self.classes.add_rules(rules)?;
        if let Some(custom) = self.custom.take() {
            self.custom = Some(Box::new(custom.with_rules(rules)?));
        }
        Ok(self)
    }

    /// All that happened is in the report.
    pub fn complete(&self) -> bool {
        let ended = self.report.summary.is_some_and(|summary| summary.complete);
        ended && self.finished && self.damage_count == 0 && self.report.faults.is_empty()
    }
}

pub fn run(options: &Print) -> anyhow::Result<ExitCode> {
    let (path, as_json) = (options.file.as_path(), options.json);
    let rules = match &options.rules {
        Some(file) => fs::read_to_string(file).with_context(|| format!("{}", file.display()))?,
        None => String::new(),
    };
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = match options.event {
        Some(number) => match find(path, number) {
            Ok(Some(allocation)) => json::allocation(&mut out, &allocation),
            Ok(None) => return Ok(refuse(path, &format!("it has no allocation number {number}"))),
            Err(error) => return Ok(refuse(path, &error.to_string())),
        },
        None => match Trace::open(path).map(|trace| trace.with_rules(&rules)) {
            Ok(Err(bad)) => return Err(bad.into()),
            Ok(Ok(trace)) if as_json => json::report(&mut out, &trace),
            Ok(Ok(trace)) => text::report(&mut out, &trace),
            Err(error) => return Ok(refuse(path, &error.to_string())),
        },
    };
    match written.and_then(|()| out.flush()) {
        // `heaptrack print | head` is no mistake.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // What is left in the buffer has no reader.
            drop(out.into_parts());
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error.into()),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn find(path: &Path, number: u64) -> Result<Option<analysis::Allocation>, format::Error> {
    let Some(sequence) = number.checked_sub(1) else { return Ok(None) };
    let mut reader = source::open(path)?;
    let mut lookup = Lookup::new(sequence);
    while let Some(block) = reader.next_block()? {
        // A malformed block is as good as a lost one here.
        lookup.add(block).ok();
    }
    Ok(lookup.finish())
}

fn refuse(path: &Path, reason: &str) -> ExitCode {
    // Nobody can be told if stderr is closed.
    let reason = reason.split(" (os error").next().unwrap_or(reason);
    writeln!(io::stderr(), "heaptrack: cannot read {}: {reason}", path.display()).ok();
    ExitCode::from(BAD_FILE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use format::{EventEncoder, FileWriter, Frame, InfoEncoder, Module, RawBlock, Session, StackEncoder, Summary};
    use format::{Place, SymbolState, SymbolsBuilder};
    use serde_json::{Value, json};
    use std::io::Cursor;

    /// Two stacks of a program, one of them through JIT code and a cut.
    fn blocks() -> Vec<RawBlock> {
        let mut stacks = StackEncoder::new();
        let main = stacks.push(0, Frame::new(1, 0x1139, false));
        let cut = stacks.push(main, Frame::CUT);
        let jit = stacks.push(cut, Frame::new(0, 0x7f00_0000_1000, false));
        let mut infos = InfoEncoder::new();
        let (small, large) = (infos.push(10, main), infos.push(1000, jit));
        let mut events = EventEncoder::new();
        events.alloc(large);
        events.alloc(small);
        let third = events.alloc(small);
        events.free(third);
        let session = Session {
            command: vec!["./a \"b\"".into(), "c".into()],
            exe: "/bin/a".into(),
            pid: 77,
            ..Session::default()
        };
        let module = Module { instance: 1, path: "/bin/a".into(), ..Module::default() };
        vec![
            session.to_block(),
            Module::to_block(&[module]),
            stacks.take(),
            infos.take(),
            events.take(),
            Summary { complete: true, ..Summary::default() }.to_block(),
        ]
    }

    fn file(blocks: &[RawBlock]) -> Vec<u8> {
        let mut writer = FileWriter::new(Vec::new(), 1).unwrap();
        for block in blocks {
            writer.write(block).unwrap();
        }
        writer.finish().unwrap()
    }

    fn json_of(bytes: &[u8]) -> Value {
        let mut out = Vec::new();
        json::report(&mut out, &Trace::read(Source::new(Cursor::new(bytes)).unwrap()).unwrap()).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    fn frame(function: Option<&str>, module: Option<&str>, offset: Option<u64>) -> Value {
        json!({
            "function": function, "short": function, "file": null, "line": null, "module": module, "offset": offset,
            "inlined": false, "class": offset.map(|_| if module.is_some() { "program" } else { "runtime" }),
        })
    }

    #[test]
    fn json_is_the_contract() {
        let found = json_of(&file(&blocks()));
        assert_eq!(found["schema"], 1);
        assert_eq!(found["command"], json!(["./a \"b\"", "c"]));
        assert_eq!((&found["pid"], &found["attached"], &found["complete"]), (&json!(77), &json!(false), &json!(true)));
        assert_eq!(
            found["totals"],
            json!({
                "allocations": 3, "deallocations": 1, "allocated_bytes": 1020, "temporary": 1, "leaked_bytes": 1010,
                "leaked_allocations": 2, "peak_bytes": 1020, "peak_allocations": 3, "peak_time_ns": 0,
                "peak_rss_bytes": 0, "overhead_bytes": 0, "runtime_ns": 0, "unknown_frees": 0, "implied_frees": 0,
                "lost_events": 0,
            })
        );
        let program = json!({
            "allocations": 2, "allocated_bytes": 20, "temporary": 1, "leaked_bytes": 10, "leaked_allocations": 1,
            "peak_bytes": 20, "peak_allocations": 2, "blamed": 0, "frames": [frame(None, Some("/bin/a"), Some(0x1139))],
        });
        let deep = json!({
            "allocations": 1, "allocated_bytes": 1000, "temporary": 0, "leaked_bytes": 1000, "leaked_allocations": 1,
            "peak_bytes": 1000, "peak_allocations": 1, "blamed": 2, "frames": [
                frame(None, None, Some(0x7f00_0000_1000)),
                frame(Some("[frames left out]"), None, None),
                frame(None, Some("/bin/a"), Some(0x1139)),
            ],
        });
        assert_eq!(found["peak"], json!([deep, program]));
        assert_eq!(found["leaked"], json!([deep, program]));
        assert_eq!(found["allocations"], json!([program, deep]));
        assert_eq!(found["temporary"], json!([program]));
    }

    #[test]
    fn named_frames_are_expanded_and_one_is_blamed() {
        let mut names = SymbolsBuilder::default();
        names.module(1, SymbolState::Debug, "");
        let inner = Some(names.function("_Z1f", "std::f(int)", "std::f"));
        let outer = Some(names.function("main", "main", "main"));
        let (library, own) = (Some(names.string("/usr/include/c++/12/f.h")), Some(names.string("/home/me/a.cc")));
        let places = vec![
            Place { function: inner, file: library, line: Some(3), inlined: true },
            Place { function: outer, file: own, line: Some(9), inlined: false },
        ];
        names.frame(0x1139, places);
        names.module(0, SymbolState::Symbols, "");
        let script = Some(names.function("JS:*go /x.js:2:1", "go", "go"));
        let at = Some(names.string("/x.js"));
        names.frame(0x7f00_0000_1000, vec![Place { function: script, file: at, line: Some(2), inlined: false }]);
        let mut blocks = blocks();
        blocks.push(names.take().to_block());
        let bytes = file(&blocks);
        let found = json_of(&bytes);
        assert_eq!((&found["complete"], &found["damage"]), (&json!(true), &json!([])));
        assert_eq!(found["temporary"][0]["blamed"], 1);
        assert_eq!(
            found["temporary"][0]["frames"],
            json!([
                { "function": "std::f(int)", "short": "std::f", "file": "/usr/include/c++/12/f.h", "line": 3,
                  "module": "/bin/a", "offset": 0x1139, "inlined": true, "class": "runtime" },
                { "function": "main", "short": "main", "file": "/home/me/a.cc", "line": 9,
                  "module": "/bin/a", "offset": 0x1139, "inlined": false, "class": "program" },
            ])
        );
        let mut out = Vec::new();
        text::report(&mut out, &Trace::read(Source::new(Cursor::new(&bytes)).unwrap()).unwrap()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let stack = "\n            > go  /x.js:2\n              [frames left out]\n              \
                     std::f  /usr/include/c++/12/f.h:3\n              main  /home/me/a.cc:9\n";
        assert!(text.contains(stack), "{text}");
    }

    #[test]
    fn a_cut_file_is_told_up_to_there() {
        let bytes = file(&blocks()[..5]);
        let found = json_of(&bytes[..bytes.len() - 60]);
        assert_eq!((&found["complete"], &found["damage"]), (&json!(false), &json!([])));
        assert_eq!(found["totals"]["allocations"], 3);
    }

    #[test]
    fn lost_definitions_are_told() {
        let mut blocks = blocks();
        blocks.remove(3);
        let found = json_of(&file(&blocks));
        assert_eq!(found["complete"], false);
        assert_eq!(found["damage"][0]["reason"], "4 events refer to parts that are lost");
        assert_eq!(found["totals"]["allocations"], 0);
    }

    #[test]
    fn text_has_totals_and_stacks() {
        let mut out = Vec::new();
        text::report(&mut out, &Trace::read(Source::new(Cursor::new(file(&blocks()))).unwrap()).unwrap()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("recorded ./a \"b\" c (pid 77)\n"), "{text}");
        assert!(text.contains("\n  allocations                3  of 1020 B\n"), "{text}");
        assert!(text.contains("\n  leaked                1010 B  in 2 blocks\n"), "{text}");
        assert!(text.contains("\n              0x7f0000001000\n              [frames left out]\n"), "{text}");
        assert!(text.contains("\n            > /bin/a+0x1139\n"), "{text}");
    }
}
