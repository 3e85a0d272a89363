//! `heaptrack print`: a trace as text for people or JSON for machines, on stdout.
//!
//! Works on what is there: a finished trace, one that is being written, one that was cut or damaged, one of KDE's. What was lost is
//! said in the output; only a file that is no trace at all is an error (one sentence, exit code 2).
mod again;
mod entry;
mod json;
mod open;
mod options;
mod ours;
mod paint;
mod text;
mod units;

pub use options::{Print, with_values};

use analysis::view::{self, View};
use analysis::{Compare, Cost, Lookup, Pairing, Profile, Query, Table, to_signed};
use anyhow::{Context, anyhow};
use entry::{Numbers, difference, of_profile};
use format::{Domain, Source};
use open::Opened;
use paint::Paint;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use text::{ALLOCATIONS, Ending, LEAKS, PEAKS, STILL_LIVE, Style, TEMPORARY};

/// Wrong usage or bad file.
const BAD_FILE: u8 = 2;

/// A file that cannot be read, as a sentence.
#[derive(Debug)]
struct Unreadable(String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> anyhow::Error {
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or(&reason);
    Unreadable(format!("cannot read {}: {reason}", path.display())).into()
}

/// A trace with all that is needed to answer.
struct Asked {
    opened: Opened,
    table: Table,
    profile: Profile,
    /// The same of the blocks that the program reported itself, if it did.
    custom: Option<Box<Asked>>,
}

pub fn run(options: &Print) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = write(options, &mut out).and_then(|()| out.flush().map_err(Into::into));
    match written {
        // `heaptrack print | head` is no mistake.
        Err(error) if is_broken_pipe(&error) => {
            // What is left in the buffer has no reader.
            drop(out.into_parts());
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if error.is::<Unreadable>() => {
            drop(out.into_parts());
            crate::say(format_args!("heaptrack: {error}"));
            Ok(ExitCode::from(BAD_FILE))
        }
        Err(error) => {
            drop(out.into_parts());
            Err(error)
        }
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_io = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(of_io)
}

fn write(options: &Print, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(number) = options.event {
        return write_event(options.file(), number, out);
    }
    let query = options.query()?;
    let cost = options.flamegraph_cost_type.as_str();
    let flame_cost = Cost::ALL.iter().find(|(name, _)| *name == cost).map(|(_, cost)| *cost);
    let flame_cost = flame_cost.ok_or_else(|| {
        anyhow!("`--flamegraph-cost-type {cost}`: costs are {}", Cost::ALL.map(|(name, _)| name).join(", "))
    })?;
    let mut asked = Asked::new(options.file(), options, &query)?;
    let view = match (options.view, &options.diff) {
        (None, Some(_)) if options.json => Some(View::Diff),
        (view, _) => view,
    };
    let mut base = match &query.compare {
        Some(Compare::File(file)) => Some(Asked::new(Path::new(file), options, &query)?),
        _ => None,
    };
    if let Some(view) = view {
        return asked.write_view(view, &query, base.as_mut(), out);
    }
    asked.warn();
    if options.json {
        let custom = asked.custom.as_deref().map(|custom| custom.json(&query, None));
        json::report(out, &asked.json(&query, custom.as_ref()))?;
    } else {
        let paint = Paint::for_stdout();
        match &base {
            None => asked.write_text(options, &query, paint, out)?,
            Some(base) => asked.write_difference(base, options, &query, paint, out)?,
        }
    }
    asked.write_files(options, &query, flame_cost)
}

fn write_event(path: &Path, number: u64, out: &mut impl Write) -> anyhow::Result<()> {
    let read = |error: format::Error| unreadable(path, &error);
    let none = || unreadable(path, &format!("it has no allocation number {number}"));
    let mut lookup = Lookup::new(number.checked_sub(1).ok_or_else(none)?);
    let mut source = crate::source::open(path).map_err(read)?;
    while let Some(block) = source.next_block().map_err(read)? {
        // A malformed block is as good as a lost one here.
        lookup.add(block).ok();
    }
    Ok(json::allocation(out, &lookup.finish().ok_or_else(none)?)?)
}

impl Asked {
    fn new(path: &Path, options: &Print, query: &Query) -> anyhow::Result<Self> {
        let mut asked = Self::of(query.domain, path, options, query)?;
        if query.domain == Domain::Custom && !asked.opened.has_custom {
            return Err(unreadable(path, &"it has no blocks of custom allocators"));
        }
        if query.domain == Domain::Malloc && asked.opened.has_custom {
            asked.custom = Some(Box::new(Self::of(Domain::Custom, path, options, query)?));
        }
        Ok(asked)
    }

    fn of(domain: Domain, path: &Path, options: &Print, query: &Query) -> anyhow::Result<Self> {
        let mut opened = Opened::open(path, domain).map_err(|error| unreadable(path, &error))?;
        if let Some(file) = &options.rules {
            let rules = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
            opened.classes.add_rules(&rules).with_context(|| format!("{}", file.display()))?;
        }
        let table =
            Table::new(opened.engine.book(), &opened.classes, options.known.load(&opened.engine.book().suppressions)?);
        let whole = query.is_whole().then(|| opened.engine.whole_profile()).flatten();
        let profile = match whole {
            Some(whole) => whole,
            None => {
                let mut again = opened.again().map_err(|error| unreadable(path, &error))?;
                opened.engine.profile(&mut again, query).map_err(|error| unreadable(path, &error))?
            }
        };
        Ok(Asked { opened, table, profile, custom: None })
    }

    fn json<'a>(&'a self, query: &Query, custom: Option<&'a json::Report<'a>>) -> json::Report<'a> {
        let Asked { opened, table, profile, .. } = self;
        json::Report { opened, profile, table, suppress: query.suppressions, custom }
    }

    /// One sentence about what is missing.
    fn warn(&self) {
        let book = self.opened.engine.book();
        let name = self.opened.path.display();
        let faults = self.opened.engine.faults();
        if self.opened.damage_count > 0 || !faults.is_empty() {
            crate::say(format_args!("heaptrack: {name} is damaged in places; what could be read is shown"));
        } else if book.losses.lost_events > 0 && book.has_ended() {
            let lost = book.losses.lost_events;
            crate::say(format_args!("heaptrack: {lost} events are missing in {name}; what is there is shown"));
        } else if !self.opened.complete() && book.session.kde().is_none() {
            crate::say(format_args!("heaptrack: {name} is not complete; what is there is shown"));
        }
    }

    fn write_view(
        &mut self,
        view: View,
        query: &Query,
        base: Option<&mut Asked>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let again = |asked: &Asked| asked.opened.again().map_err(|error| unreadable(&asked.opened.path, &error));
        let mut blocks = again(self)?;
        let mut base_blocks = base.as_ref().map(|base| again(base)).transpose()?;
        let mut trace = view::Trace {
            engine: &self.opened.engine,
            table: &self.table,
            blocks: &mut blocks,
            complete: self.opened.complete(),
        };
        let mut other = match (&base, &mut base_blocks) {
            (Some(base), Some(blocks)) => Some(view::Trace {
                engine: &base.opened.engine,
                table: &base.table,
                blocks,
                complete: base.opened.complete(),
            }),
            _ => None,
        };
        Ok(view::answer(view, query, &mut trace, other.as_mut(), out)?)
    }

    fn write_text(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        let book = self.opened.engine.book();
        let style = Style::new(options, paint);
        header(out, &[self])?;
        writeln!(out, "{}\n", ours::ending(&self.opened))?;
        let entries = of_profile(book, &self.profile, &self.table, query.suppressions);
        if options.print_allocators {
            ALLOCATIONS.write(out, &entries, &style)?;
        }
        if options.print_peaks {
            PEAKS.write(out, &entries, &style)?;
        }
        if options.print_leaks {
            if book.session.attached { STILL_LIVE } else { LEAKS }.write(out, &entries, &style)?;
        }
        if options.print_temporary {
            TEMPORARY.write(out, &entries, &style)?;
        }
        let blamed = [(Cost::Peak, "IN YOUR OWN CODE, AT THE PEAK"), (Cost::Leaked, "IN YOUR OWN CODE, LEAKED")];
        let lists = &blamed[usize::from(!options.print_peaks)..1 + usize::from(options.print_leaks)];
        ours::blamed(out, &self.profile, &self.table, query, lists, paint)?;
        if options.print_leaks {
            let mut blocks = self.opened.again().map_err(|error| unreadable(&self.opened.path, &error))?;
            let mut trace = view::Trace {
                engine: &self.opened.engine,
                table: &self.table,
                blocks: &mut blocks,
                complete: self.opened.complete(),
            };
            let leaks = view::judge(&mut trace, query).map_err(|error| unreadable(&self.opened.path, &error))?;
            ours::verdicts(out, &leaks, &self.table, paint)?;
        }
        let ending = self.ending(query);
        ending.write(out)?;
        ours::details(out, &self.opened, &self.profile)?;
        if let Some(custom) = &self.custom {
            custom.write_custom(options, query, paint, out)?;
        }
        if options.print_suppressions {
            ours::suppressions(out, &view::suppression_rows(&self.profile, &self.table))?;
        }
        Ok(())
    }

    /// Behind malloc's: what the program's own allocators did.
    fn write_custom(&self, options: &Print, query: &Query, paint: Paint, out: &mut impl Write) -> anyhow::Result<()> {
        let style = Style::new(options, paint);
        writeln!(out, "\n{}", paint.heading("CUSTOM ALLOCATORS"))?;
        writeln!(out, "blocks that the program reported itself, not counted above\n")?;
        let entries = of_profile(self.opened.engine.book(), &self.profile, &self.table, query.suppressions);
        for section in [ALLOCATIONS, PEAKS, LEAKS] {
            section.write(out, &entries, &style)?;
        }
        Ok(self.ending(query).write(out)?)
    }

    fn write_difference(
        &self,
        base: &Asked,
        options: &Print,
        query: &Query,
        paint: Paint,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let style = Style::new(options, paint);
        header(out, &[self, base])?;
        writeln!(out)?;
        let after = of_profile(self.opened.engine.book(), &self.profile, &self.table, query.suppressions);
        let before = of_profile(base.opened.engine.book(), &base.profile, &base.table, query.suppressions);
        let pairing = Pairing::new(&self.table, &base.table);
        let entries = difference(after, &before, &pairing);
        let sections = [
            (options.print_allocators, ALLOCATIONS),
            (options.print_peaks, PEAKS),
            (options.print_leaks, LEAKS),
            (options.print_temporary, TEMPORARY),
        ];
        for (is_wanted, section) in sections {
            if is_wanted {
                section.write(out, &entries, &style)?;
            }
        }
        let costs = [
            (options.print_peaks, Cost::Peak, "WHAT CHANGED AT THE PEAK"),
            (true, Cost::Leaked, "WHAT CHANGED IN LEAKED MEMORY"),
            (options.print_allocators, Cost::Allocations, "WHAT CHANGED IN ALLOCATIONS"),
        ];
        for (_, cost, heading) in costs.into_iter().filter(|(is_wanted, _, _)| *is_wanted) {
            let (after, before) = ((&self.profile, &self.table), (&base.profile, &base.table));
            let rows = view::diff_functions(after, before, &pairing, query, cost);
            ours::changes(out, heading, &rows, cost, paint)?;
        }
        let (after, before) = (self.ending(query), base.ending(query));
        let difference = Ending {
            runtime_ns: after.runtime_ns - before.runtime_ns,
            numbers: after.numbers.minus(&before.numbers),
            peak_rss_bytes: after.peak_rss_bytes - before.peak_rss_bytes,
            suppressed_bytes: after.suppressed_bytes - before.suppressed_bytes,
            attached: after.attached,
        };
        Ok(difference.write(out)?)
    }

    fn ending(&self, query: &Query) -> Ending {
        let totals = self.opened.engine.totals();
        let Profile { totals: costs, range, stacks, .. } = &self.profile;
        let known = stacks.iter().filter(|(site, _)| self.table.stack(*site).suppressed.is_some());
        let suppressed = known.map(|(_, costs)| costs.live_bytes).fold(0, u64::saturating_add);
        let suppressed = if query.suppressions { suppressed } else { 0 };
        Ending {
            runtime_ns: to_signed(range.to_ns - range.from_ns),
            numbers: Numbers {
                allocations: costs.allocations as i64,
                temporary: costs.temporary as i64,
                leaked: to_signed(costs.live_bytes - suppressed),
                peak: to_signed(costs.peak_bytes),
            },
            peak_rss_bytes: to_signed(totals.peak_rss_bytes),
            suppressed_bytes: to_signed(suppressed),
            attached: self.opened.engine.book().session.attached,
        }
    }

    /// What `-H`, `-F` and `-M` ask for.
    fn write_files(&self, options: &Print, query: &Query, cost: Cost) -> anyhow::Result<()> {
        let create = |path: &Path| {
            File::create(path).map(BufWriter::new).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(path) = &options.print_histogram {
            let mut out = create(path)?;
            let mut blocks = self.opened.again().map_err(|error| unreadable(&self.opened.path, &error))?;
            let sizes = self.opened.engine.histogram(&mut blocks, query);
            for (size, count) in sizes.map_err(|error| unreadable(&self.opened.path, &error))? {
                writeln!(out, "{size}\t{count}")?;
            }
            out.flush()?;
        }
        if options.print_flamegraph.is_none() && options.print_massif.is_none() {
            return Ok(());
        }
        let report = self.report();
        if let Some(path) = &options.print_flamegraph {
            let mut out = create(path)?;
            let rows = export::folded::rows(&report, |costs| cost.of(costs, false).max(0) as u64);
            export::folded::write(&rows, &mut out)?;
            out.flush()?;
        }
        if let Some(path) = &options.print_massif {
            let mut out = create(path)?;
            let massif = export::massif::Options {
                threshold: options.massif_threshold,
                detailed_every: options.massif_detailed_freq,
                ..export::massif::Options::default()
            };
            let open = || {
                let mut source = Source::open(self.opened.held.path())?;
                source.set_domain(query.domain);
                Ok(source)
            };
            export::massif::write(&open, &report, &massif, &mut out)?;
            out.flush()?;
        }
        Ok(())
    }

    /// As exports want it: what is suppressed is not leaked.
    fn report(&self) -> analysis::Report {
        let book = self.opened.engine.book();
        let sites = self.profile.stacks.iter().map(|(site, costs)| {
            let mut costs = *costs;
            if self.table.stack(*site).suppressed.is_some() {
                (costs.live_bytes, costs.live_allocations) = (0, 0);
            }
            analysis::SiteCosts { stack: book.stack_of(*site), costs }
        });
        analysis::Report {
            book: book.clone(),
            totals: self.opened.engine.totals(),
            faults: self.opened.engine.faults(),
            sites: sites.collect(),
        }
    }
}

fn header(out: &mut impl Write, all: &[&Asked]) -> io::Result<()> {
    for (at, asked) in all.iter().enumerate() {
        let what = if at == 0 { "file" } else { "diff file" };
        let path = asked.opened.path.display();
        writeln!(out, "reading {what} \"{path}\" - please wait, this might take some time...")?;
    }
    for asked in all {
        writeln!(out, "Debuggee command was: {}", asked.opened.engine.book().session.command.join(" "))?;
    }
    writeln!(out, "finished reading file, now analyzing data:\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use format::{EventEncoder, FileWriter, Frame, InfoEncoder, Module, RawBlock, Session, StackEncoder, Summary};
    use format::{Place, SymbolState, SymbolsBuilder};
    use serde_json::{Value, json};

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

    fn print(bytes: &[u8], options: &[&str]) -> String {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("heaptrack-print.{}.{number}.htz", std::process::id()));
        fs::write(&path, bytes).unwrap();
        let words = ["print"].iter().chain(options).map(|word| (*word).into()).chain([path.clone().into_os_string()]);
        let mut out = Vec::new();
        write(&Print::from_words(words.collect()), &mut out).unwrap();
        fs::remove_file(path).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json_of(bytes: &[u8]) -> Value {
        serde_json::from_str(&print(bytes, &["--json"])).unwrap()
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
                "lost_events": 0, "suppressed_bytes": 0, "suppressed_allocations": 0,
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
        assert_eq!(found["temporary"], json!([program, deep]), "all stacks are in all lists");
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
        let text = print(&bytes, &[]);
        let stack = "\ngo\n  at /x.js:2\n  in ??\n1000B consumed over 1 calls from:\n    [frames left out]\n    std::f(int)\n      \
                     at /usr/include/c++/12/f.h:3\n      in /bin/a\n    main\n      at /home/me/a.cc:9\n";
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
    fn text_has_kdes_sections_and_totals() {
        let text = print(&file(&blocks()), &["-l"]);
        for part in [
            "\nDebuggee command was: ./a \"b\" c\n",
            "\nMOST CALLS TO ALLOCATION FUNCTIONS\n2 calls to allocation functions with 20B peak consumption from\n0x1139\n  in /bin/a\n",
            "\nPEAK MEMORY CONSUMERS\n1000B peak memory consumed over 1 calls from\n0x7f0000001000\n  in ??\n",
            "\nMEMORY LEAKS\n1000B leaked over 1 calls from\n",
            "\nMOST TEMPORARY ALLOCATIONS\n1 temporary allocations of 2 allocations in total (50.00%) from\n",
            "\ntotal runtime: 0.00s.\ncalls to allocation functions: 3 (3000/s)\ntemporary memory allocations: 1 (1000/s)\n\
             peak heap memory consumption: 1.02K\npeak RSS (including heaptrack overhead): 0B\ntotal memory leaked: 1.01K\n",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        assert!(!print(&file(&blocks()), &["-p0", "-a", "0"]).contains("CONSUMERS"));
    }

    #[test]
    fn a_diff_with_itself_is_nothing() {
        let path = std::env::temp_dir().join(format!("heaptrack-print.{}.base.htz", std::process::id()));
        let bytes = file(&blocks());
        fs::write(&path, &bytes).unwrap();
        let text = print(&bytes, &["--diff", path.to_str().unwrap()]);
        assert!(text.contains("\nMOST CALLS TO ALLOCATION FUNCTIONS\n\nPEAK MEMORY CONSUMERS\n\n"), "{text}");
        assert!(text.ends_with("total memory leaked: 0B\n") && text.contains("nothing changed"), "{text}");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn every_view_is_json_and_says_its_name() {
        let bytes = file(&blocks());
        for (name, view) in View::ALL {
            let compare: &[&str] = if view == View::Diff { &["--compare", "@start"] } else { &[] };
            let mut options = vec!["--view", name];
            options.extend(compare);
            let found: Value = serde_json::from_str(&print(&bytes, &options)).unwrap();
            assert_eq!((&found["view"], &found["totals"]["allocations"]), (&json!(name), &json!(3)), "{name}");
        }
    }

    #[test]
    fn a_part_of_a_trace_has_its_own_numbers() {
        let found = json_of(&file(&blocks()));
        let bytes = file(&blocks());
        let part: Value = serde_json::from_str(&print(&bytes, &["--json", "--size", "..10"])).unwrap();
        assert_eq!((&part["totals"]["allocations"], &part["totals"]["peak_bytes"]), (&json!(2), &json!(20)));
        assert_eq!(part["peak"], json!([found["peak"][1]]));
        let at: Value = serde_json::from_str(&print(&bytes, &["--json", "--at", "end"])).unwrap();
        assert_eq!((&at["totals"]["allocations"], &at["totals"]["leaked_bytes"]), (&json!(0), &json!(1010)));
        let none: Value = serde_json::from_str(&print(&bytes, &["--json", "--include", "nowhere"])).unwrap();
        assert_eq!((&none["totals"]["allocations"], &none["peak"]), (&json!(0), &json!([])));
    }
}
