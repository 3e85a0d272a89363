//! One question has one answer. Random queries on random and real traces go through text, JSON, every view, every
//! export and the server, and each answer is compared with a naive replay that shares no code with the engine.
//! docs/analysis.md, "What must hold", lists what is checked here.
use format::Domain;
use heaptrack_tests::replay::outputs::{
    check_folded, check_histogram, check_json, check_json_allocators, check_kde, check_massif, check_slices, check_svg,
    check_text,
};
use heaptrack_tests::replay::views::{VIEWS, Verdict, Witness, number, same, shown_stack};
use heaptrack_tests::replay::{Costs, Merge, Query, Support, Trace, When, made, trace};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::scale::count;
use heaptrack_tests::server::Server;
use heaptrack_tests::targets::{sources, workspace};
use heaptrack_tests::view::{self, view};
use heaptrack_tests::{Chance, Folder};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Known leaks besides the program's own suppressions and the built-in ones.
const KNOWN: &str = "leak:again\nleak:dl_open\n";

/// The names of outputs in the table of docs/views.md.
const TEXT: &str = "the text report";
const FOLDED: &str = "folded stacks (-F)";
const HISTOGRAM: &str = "the histogram (-H)";

/// One domain of a trace file.
struct Subject {
    file: PathBuf,
    domain: Domain,
    trace: Trace,
}

/// The traces that are asked about, and the options that every command gets.
struct Library {
    folder: Folder,
    /// The options `--rules` and `--suppressions`.
    options: Vec<String>,
    subjects: Vec<Subject>,
    support: Support,
}

impl Library {
    fn new() -> Self {
        let folder = Folder::new();
        let (rules, known) = (folder.join("rules"), folder.join("known"));
        std::fs::write(&rules, trace::rules()).unwrap();
        std::fs::write(&known, KNOWN).unwrap();
        let options = vec![format!("--rules={}", rules.display()), format!("--suppressions={}", known.display())];
        Library { folder, options, subjects: Vec::new(), support: Support::read() }
    }

    /// Made traces and recorded programs, and the chance that made them.
    fn filled(what: &str, how_many: u64) -> (Chance, Self) {
        let (mut chance, mut library) = (Chance::new(what), Library::new());
        library.add_made(&mut chance, how_many);
        record_programs(&mut library);
        (chance, library)
    }

    /// Adds a file with all its domains.
    fn add(&mut self, file: PathBuf) {
        let has_custom = {
            let mut reader = format::Reader::open(&file).unwrap();
            while reader.next_block().unwrap().is_some() {}
            reader.has(Domain::Custom)
        };
        for domain in [Domain::Malloc, Domain::Custom].into_iter().take(1 + has_custom as usize) {
            self.subjects.push(Subject { trace: Trace::read(&file, domain), file: file.clone(), domain });
        }
    }

    fn add_made(&mut self, chance: &mut Chance, how_many: u64) {
        for number in 0..how_many {
            let file = self.folder.join(&format!("made{number}.htz"));
            let steps = [20, 300, 1500][chance.between(0, 3) as usize];
            std::fs::write(&file, made::file(&made::blocks(chance, steps))).unwrap();
            self.add(file);
        }
    }

    fn record(&mut self, name: &str, words: &[&str]) {
        let file = self.folder.join(&format!("{name}.htz"));
        let recorded = Command::new(heaptrack()).args(["-q", "-o"]).arg(&file).arg("--").args(words).output().unwrap();
        assert!(recorded.status.success(), "{name}: {}", String::from_utf8_lossy(&recorded.stderr));
        self.add(file);
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.subjects.iter().map(|subject| subject.file.clone()).collect();
        files.dedup();
        files
    }

    fn any(&self, chance: &mut Chance) -> &Subject {
        &self.subjects[chance.between(0, self.subjects.len() as u64) as usize]
    }
}

impl Subject {
    fn query(&self, chance: &mut Chance) -> Query {
        Query { custom: self.domain == Domain::Custom, ..Query::random(chance, &self.trace) }
    }
}

/// Programs with threads, with an exec, with an allocator of their own, with five allocators, and one that is not from this project.
fn record_programs(library: &mut Library) {
    let threads = heaptrack_tests::targets::target("threads");
    library.record("threads", &[threads.to_str().unwrap(), "3", "3000"]);
    let pool = library.folder.join("app-pool");
    let include = format!("-I{}", workspace().join("include").display());
    let built =
        Command::new("cc").args(["-g", "-O1", &include]).arg(sources().join("pool.c")).arg("-o").arg(&pool).status();
    assert!(built.unwrap().success());
    library.record("pool", &[pool.to_str().unwrap(), "2000"]);
    let allocators = heaptrack_tests::targets::target("own_names");
    library.record("allocators", &[allocators.to_str().unwrap()]);
    library.record("exec", &["env", "sort", "/etc/passwd"]);
    let sql = "create table t(a, b); insert into t values (1, 'one'), (2, 'two'); select a, max(b) from t group by a;";
    library.record("sqlite3", &["sqlite3", ":memory:", sql]);
}

/// The options for an output, which is named as in the table of docs/views.md.
fn options_of(library: &Library, output: &str, query: &Query) -> Vec<String> {
    let name = |option: &str| option.trim_start_matches("--").split('=').next().unwrap().to_owned();
    let files = library.options.iter().filter(|option| library.support.has(&name(option), output));
    files.cloned().chain(query.options()).collect()
}

fn fail(subject: &Subject, view: &str, query: &Query, why: &str) -> ! {
    panic!("{}, {view} {}:\n{why}", subject.file.display(), query.options().join(" "));
}

fn print_view(library: &Library, subject: &Subject, name: &str, query: &Query) -> Value {
    let options = options_of(library, &format!("--view {name}"), query);
    view(&subject.file, name, &options.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Checks that `print` exits with code 2 and one of these sentences.
fn check_refusal(subject: &Subject, options: &[String], sentences: &[String]) -> Verdict {
    let refused = view::print(&subject.file, &options.iter().map(String::as_str).collect::<Vec<_>>());
    let said = String::from_utf8(refused.stderr).unwrap();
    let is_one = sentences.iter().any(|sentence| said == format!("heaptrack: {sentence}\n"));
    same("exit code and output", (refused.status.code(), refused.stdout.len()), (Some(2), 0))?;
    if is_one { Ok(()) } else { Err(format!("it said\n{said}instead of one of\n{}", sentences.join("\n"))) }
}

/// Checks that `print --view` answers as the replay does, or refuses if it must.
fn check_print_view(library: &Library, subject: &Subject, witness: &Witness<'_>, name: &str, query: &Query) -> Verdict {
    let output = format!("--view {name}");
    let sentences = library.support.refusals_of_print(query, &output, &subject.trace, &subject.file);
    if sentences.is_empty() {
        return witness.check(name, query, &print_view(library, subject, name, query));
    }
    let mut options = vec!["--view".to_owned(), name.to_owned()];
    options.extend(options_of(library, &output, query));
    check_refusal(subject, &options, &sentences)
}

/// Changes most queries so that they are answered. The others must be refused.
fn mostly_fit(library: &Library, chance: &mut Chance, name: &str, query: Query) -> Query {
    if chance.between(0, 10) == 0 { query } else { library.support.fit(query, &[&format!("--view {name}")]) }
}

/// Ten thousand questions in a soak. Most go to the server, which answers from its index, and some to `print --view`,
/// which walks all events.
#[test]
fn every_view_says_what_the_naive_replay_says() {
    let (mut chance, library) = Library::filled("views", 12);
    let files = library.files();
    let server = Server::start(&files, &library.options);
    let number_of = |subject: &Subject| files.iter().position(|file| *file == subject.file).unwrap().to_string();
    let ask = |subject: &Subject, view: &str, query: &Query| {
        let mut words = query.parameters();
        words.push(("trace", number_of(subject)));
        heaptrack_tests::process::wait_for("the other domain", || {
            let (status, answer) = server.get(view, &words);
            (status != 503).then_some((status, answer))
        })
    };
    let check_answer = |subject: &Subject, witness: &Witness<'_>, view: &str, query: &Query| {
        let (status, answer) = ask(subject, view, query);
        let sentences = library.support.refusals_of_server(query, view);
        if sentences.is_empty() {
            same("status", status, 200).map_err(|why| format!("{why}: {answer}"))?;
            let late = query.late(&subject.trace).map(|(name, value, why)| format!("`{name} {value}` {why}"));
            if late.is_some() {
                same("note", answer["note"].as_str(), late.as_deref())?;
            }
            return witness.check(view, query, &answer);
        }
        let said = answer["error"].as_str().unwrap_or_default();
        let is_one = sentences.iter().any(|sentence| sentence == said);
        same("a refusal", (status, is_one), (400, true)).map_err(|why| format!("{why}: {answer}, {sentences:?}"))
    };
    let mut witnesses: BTreeMap<(PathBuf, bool), Witness<'_>> = BTreeMap::new();
    for subject in &library.subjects {
        let query = Query { custom: subject.domain == Domain::Custom, ..Query::default() };
        let served = ask(subject, "stacks", &query).1;
        let printed = print_view(&library, subject, "stacks", &query);
        same("stacks of the server and of print", &served, &printed)
            .unwrap_or_else(|why| fail(subject, "stacks", &query, &why));
        let witness = Witness::new(&subject.trace, &served).unwrap_or_else(|why| fail(subject, "stacks", &query, &why));
        witnesses.insert((subject.file.clone(), query.custom), witness);
    }
    let mut last: Option<(&Subject, &str, Query)> = None;
    for number in 0..count(10_000) {
        let (subject, name, query) = match last.take().filter(|_| chance.between(0, 4) == 0) {
            Some((subject, name, query)) => {
                let other = subject.query(&mut chance);
                (subject, name, query.with_a_part_of(other, &mut chance))
            }
            None => {
                let subject = library.any(&mut chance);
                let name = VIEWS[chance.between(0, VIEWS.len() as u64) as usize];
                let mut query = subject.query(&mut chance);
                if name == "diff" || name == "profile" && chance.between(0, 2) == 0 {
                    query = query.compared(&mut chance, &subject.trace);
                }
                (subject, name, query)
            }
        };
        let query = mostly_fit(&library, &mut chance, name, query);
        last = Some((subject, name, query.clone()));
        let witness = &witnesses[&(subject.file.clone(), query.custom)];
        let verdict = match number % 20 {
            0 => check_print_view(&library, subject, witness, name, &query),
            _ => check_answer(subject, witness, name, &query),
        };
        verdict.unwrap_or_else(|why| fail(subject, name, &query, &why));
    }
}

/// A trace that is long enough for the server's index to have several slices.
#[test]
fn an_index_changes_no_answer() {
    let mut chance = Chance::new("index");
    let mut library = Library::new();
    let threads = heaptrack_tests::targets::target("threads");
    library.record("threads", &[threads.to_str().unwrap(), "3", "300000"]);
    let server = Server::start(&library.files(), &library.options);
    let subject = &library.subjects[0];
    let witness = Witness::new(&subject.trace, &server.get("stacks", &[]).1).unwrap();
    for _ in 0..count(300) {
        let name = ["profile", "timeline", "sizes", "threads"][chance.between(0, 4) as usize];
        let query = library.support.fit(subject.query(&mut chance), &[&format!("--view {name}")]);
        let (_, answer) = server.get(name, &query.parameters());
        witness.check(name, &query, &answer).unwrap_or_else(|why| fail(subject, name, &query, &why));
    }
}

/// Checks the part of `print --json` about blocks that the program reported itself. The same query selects them.
fn check_custom(library: &Library, subject: &Subject, query: &Query, part: &Value) -> Verdict {
    let is_custom = |other: &&Subject| other.file == subject.file && other.domain == Domain::Custom;
    let Some(custom) = library.subjects.iter().find(is_custom).filter(|_| subject.domain == Domain::Malloc) else {
        return same("blocks of custom allocators", part, &Value::Null);
    };
    let stacks = print_view(library, custom, "stacks", &Query { custom: true, ..Query::default() });
    let witness = Witness::new(&custom.trace, &stacks)?;
    check_json(&witness.ask(query), part).map_err(|why| format!("custom allocators: {why}"))
}

/// `print` with a query: its text, its JSON, and the files that it writes for other tools.
#[test]
fn text_json_and_files_of_print_say_what_the_naive_replay_says() {
    let (mut chance, library) = Library::filled("print", 8);
    for _ in 0..count(1000) {
        let subject = library.any(&mut chance);
        let is_text = chance.between(0, 2) == 0;
        let random = subject.query(&mut chance);
        // The unit tests of `print` check text with `--merge` and `--depth`.
        let random = if is_text { Query { merge: Merge::Function, depth: 0, ..random } } else { random };
        // At an instant nothing is allocated, so there is no histogram.
        let has_histogram = random.at.is_none() && chance.between(0, 2) == 0;
        let query = match (is_text, has_histogram) {
            (false, _) => library.support.fit(random, &["--json"]),
            (true, false) => library.support.fit(random, &[TEXT, FOLDED]),
            (true, true) => library.support.fit(random, &[TEXT, FOLDED, HISTOGRAM]),
        };
        let output = if is_text { TEXT } else { "--json" };
        let stacks = print_view(&library, subject, "stacks", &Query { custom: query.custom, ..Query::default() });
        let witness = Witness::new(&subject.trace, &stacks).unwrap();
        let asked = witness.ask(&query);
        let mut options = options_of(&library, output, &query);
        let refusals = library.support.refusals_of_print(&query, output, &subject.trace, &subject.file);
        let verdict = if !refusals.is_empty() {
            options.extend((!is_text).then(|| "--json".into()));
            check_refusal(subject, &options, &refusals)
        } else if is_text {
            let (folded, histogram) = (library.folder.join("folded"), library.folder.join("histogram"));
            let cost =
                ["peak", "leaked", "live", "allocations", "temporary", "allocated"][chance.between(0, 6) as usize];
            options.extend(["-n", "100000", "-F"].map(str::to_owned));
            options.extend([folded.display().to_string(), "--flamegraph-cost-type".into(), cost.into()]);
            if query.at.is_none() {
                options.extend(["-a1", "-p1", "-l1", "-T1"].map(str::to_owned));
            }
            if has_histogram {
                options.extend(["-H".into(), histogram.display().to_string()]);
            }
            let text = view::text(&subject.file, &options.iter().map(String::as_str).collect::<Vec<_>>());
            check_text(&asked, &text)
                .and_then(|()| check_folded(&asked, cost, &std::fs::read_to_string(&folded).unwrap()))
                .and_then(|()| match has_histogram {
                    true => check_histogram(&asked, &std::fs::read_to_string(&histogram).unwrap()),
                    false => Ok(()),
                })
        } else {
            options.push("--json".into());
            let text = view::text(&subject.file, &options.iter().map(String::as_str).collect::<Vec<_>>());
            let report: Value = serde_json::from_str(&text).unwrap();
            let checks = check_json(&asked, &report).and_then(|()| check_json_allocators(&asked, &report));
            checks.and_then(|()| check_custom(&library, subject, &query, &report["custom"]))
        };
        verdict.unwrap_or_else(|why| fail(subject, if is_text { "text" } else { "--json" }, &query, &why));
    }
}

/// Runs `heaptrack export` and returns the text.
fn export(library: &Library, subject: &Subject, to: &str, options: &[&str]) -> String {
    let mut command = Command::new(heaptrack());
    command.args(["export", "--to", to]).args(options).arg(&subject.file);
    if matches!(to, "folded" | "svg") {
        command.arg(&library.options[1]);
    }
    if subject.domain == Domain::Custom {
        command.arg("--custom");
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn exports_say_what_the_naive_replay_says() {
    let (_, library) = Library::filled("exports", count(80));
    for subject in &library.subjects {
        let query = Query { custom: subject.domain == Domain::Custom, ..Query::default() };
        let stacks = print_view(&library, subject, "stacks", &query);
        let witness = Witness::new(&subject.trace, &stacks).unwrap();
        let unsuppressed = Query { no_suppressions: true, ..query.clone() };
        let mut verdicts = Vec::new();
        for cost in ["peak", "leaked", "allocations", "temporary", "allocated"] {
            let text = export(&library, subject, "folded", &["--cost", cost]);
            verdicts.push(check_folded(&witness.ask(&query), cost, &text));
            let text = export(&library, subject, "folded", &["--cost", cost, "--no-suppressions"]);
            verdicts.push(check_folded(&witness.ask(&unsuppressed), cost, &text));
            verdicts.push(check_svg(&witness.ask(&query), cost, &export(&library, subject, "svg", &["--cost", cost])));
        }
        verdicts.push(check_massif(&subject.trace, &export(&library, subject, "massif", &["--massif-threshold", "0"])));
        verdicts.push(check_kde(&subject.trace, &export(&library, subject, "heaptrack", &[])));
        for verdict in verdicts {
            verdict.unwrap_or_else(|why| fail(subject, "export", &query, &why));
        }
    }
}

/// The words of a query that `export` takes besides those about how stacks are shown.
fn export_options(query: &Query) -> Vec<String> {
    let options = query.options();
    options.into_iter().filter(|option| !option.starts_with("--domain")).collect()
}

/// Tables of stacks are the view `profile`, and tables of events add up to it. `every_view_says_what_the_naive_replay_says` checks
/// that view.
#[test]
fn tables_say_what_the_view_profile_says() {
    let (mut chance, library) = Library::filled("tables", 20);
    for _ in 0..count(300) {
        let subject = library.any(&mut chance);
        let query = library.support.fit(subject.query(&mut chance), &["--view profile"]);
        if !library.support.refusals_of_print(&query, "--view profile", &subject.trace, &subject.file).is_empty() {
            continue;
        }
        let view = print_view(&library, subject, "profile", &query);
        let options = export_options(&query);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let sites: Vec<Value> = export(&library, subject, "jsonl", &options)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let column = |name: &str| sites.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
        assert_eq!(json!(column("site")), view["stack"], "{query:?}");
        let costs = view.as_object().unwrap().iter().filter(|(name, list)| list.is_array() && *name != "stack");
        for (name, list) in costs {
            let is_known = query.at.is_none() || matches!(name.as_str(), "live_bytes" | "live_allocations");
            let expected = if is_known { list.clone() } else { json!(vec![Value::Null; sites.len()]) };
            assert_eq!(json!(column(name)), expected, "{}: {name} {query:?}", subject.file.display());
        }
        if query.at.is_some() {
            continue;
        }
        let options: Vec<&str> = options.iter().copied().filter(|option| !option.contains("suppressions")).collect();
        let options = [&options[..], &["--rows", "events"]].concat();
        let mut sums: BTreeMap<(String, u64), u64> = BTreeMap::new();
        for line in export(&library, subject, "jsonl", &options).lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            *sums.entry((row["event"].as_str().unwrap().to_owned(), number(&row["site"]))).or_default() +=
                number(&row["size"]);
        }
        for row in &sites {
            let sum = |event: &str| sums.get(&(event.to_owned(), number(&row["site"]))).copied().unwrap_or(0);
            let costs = (number(&row["allocated_bytes"]), number(&row["freed_bytes"]));
            assert_eq!((sum("alloc"), sum("free")), costs, "{}: {row} {query:?}", subject.file.display());
        }
    }
}

/// The data that `heaptrack report --summary-only` puts into its page.
fn report_data(library: &Library, file: &Path) -> Value {
    let (page, packed) = (library.folder.join("report.html"), library.folder.join("report.gz.txt"));
    let mut command = Command::new(heaptrack());
    let done = command
        .args(["report", "--summary-only"])
        .args(&library.options)
        .arg(file)
        .arg("-o")
        .arg(&page)
        .output()
        .unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    let html = std::fs::read_to_string(&page).unwrap();
    let data = html.split("id=\"report-data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    std::fs::write(&packed, data).unwrap();
    let shell = format!("base64 -d {} | gunzip", packed.display());
    let unpacked = Command::new("sh").args(["-c", &shell]).output().unwrap();
    serde_json::from_slice(&unpacked.stdout).unwrap()
}

/// The page without a server has the same answers about the whole session, and its slices add up to them.
#[test]
fn reports_say_what_the_naive_replay_says() {
    let (_, library) = Library::filled("reports", count(40));
    for subject in &library.subjects {
        let data = report_data(&library, &subject.file);
        let part = if subject.domain == Domain::Custom { &data["custom"] } else { &data };
        let witness = Witness::new(&subject.trace, &part["answers"]["stacks"]).unwrap();
        for name in ["profile", "timeline", "sizes", "lifetimes", "threads", "leaks", "source", "suppressions"] {
            let top = (name == "timeline").then_some(20);
            let query = Query { points: 256, top, ..Query::default() };
            let verdict = witness.check(name, &query, &part["answers"][name]);
            verdict.unwrap_or_else(|why| fail(subject, &format!("report, {name}"), &query, &why));
        }
        check_slices(&subject.trace, &part["slices"])
            .unwrap_or_else(|why| fail(subject, "report, slices", &Query::default(), &why));
        let whole = &part["answers"]["profile"];
        for cost in ["allocations", "allocated_bytes", "deallocations", "freed_bytes", "temporary", "lifetime_ns"] {
            assert_eq!(
                view::column(&part["slices"], cost),
                view::total(whole, cost),
                "{}, {cost}",
                subject.file.display()
            );
        }
    }
}

/// A time from `from` to `to`, often exactly that of an event, where one nanosecond makes a difference.
fn time_within(chance: &mut Chance, trace: &Trace, from: u64, to: u64) -> u64 {
    let any = chance.between(from, to + 1);
    let event = trace.times.get(chance.between(0, trace.times.len().max(1) as u64) as usize).copied();
    event.filter(|ns| (from..=to).contains(ns) && chance.between(0, 2) == 0).unwrap_or(any)
}

/// The start and the end of a trimmed trace: two different times.
fn two_times(chance: &mut Chance, trace: &Trace) -> (u64, u64) {
    let latest = trace.runtime_ns.max(2);
    let (one, other) = (time_within(chance, trace, 1, latest), time_within(chance, trace, 1, latest + 200_000));
    let (from, to) = (one.min(other), one.max(other));
    (from, to.max(from + 1))
}

/// A random question about the time from `from` to `to`.
fn question_within(chance: &mut Chance, trace: &Trace, from: u64, to: u64) -> Query {
    let (first, second) = (time_within(chance, trace, from, to), time_within(chance, trace, from, to));
    let (first, second) = (When::Ns(first.min(second)), When::Ns(first.max(second)));
    let query = Query { at: None, from: Some(first), to: Some(second), ..Query::random(chance, trace) };
    if chance.between(0, 5) == 0 { Query { at: Some(first), from: None, to: None, ..query } } else { query }
}

fn run(words: &[&str]) {
    let done = Command::new(heaptrack()).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A trace that was made from another one. Only its length and its view `stacks` are read from it. All expected numbers
/// come from the original trace.
fn made_of_another(library: &Library, file: PathBuf) -> (Subject, Value) {
    let mut made = Subject { file, domain: Domain::Malloc, trace: Trace::default() };
    let stacks = print_view(library, &made, "stacks", &Query::default());
    made.trace.runtime_ns = number(&stacks["range"]["to_ns"]);
    (made, stacks)
}

/// The trace with the sizes that another one has of each stack. A trimmed trace has fewer stacks and sizes, so fewer
/// functions are wrappers by their numbers. A stack without sizes is not there.
fn with_sizes_of(trace: &Trace, other: &Trace) -> Trace {
    let mut known: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for (levels, sizes) in other.stacks.iter().zip(&other.sizes) {
        known.entry(shown_stack(levels)).or_default().extend(sizes);
    }
    let sizes = trace.stacks.iter().map(|levels| known.get(&shown_stack(levels)).cloned().unwrap_or_default());
    Trace { sizes: sizes.collect(), ..trace.clone() }
}

/// A trimmed trace has the same answers about its time. After `symbolize`, and in a merge of one trace, all answers are
/// the same.
#[test]
fn a_trace_made_of_another_answers_as_the_other() {
    let (mut chance, library) = Library::filled("made of another", count(80));
    for subject in library.subjects.iter().filter(|subject| subject.domain == Domain::Malloc) {
        let Subject { file, trace, .. } = subject;
        let (from, to) = two_times(&mut chance, trace);
        let (trimmed, merged) = (library.folder.join("trimmed.htz"), library.folder.join("merged.htz"));
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let (source, trimmed_name, merged_name) = (path(file), path(&trimmed), path(&merged));
        run(&["trim", &source, "--from", &format!("{from}ns"), "--to", &format!("{to}ns"), "-o", &trimmed_name]);
        run(&["merge", &source, "-o", &merged_name]);
        run(&["symbolize", &source]);
        for (name, made, within) in
            [("trim", &trimmed, (from, to)), ("merge", &merged, (1, to)), ("symbolize", file, (1, to))]
        {
            let (made, stacks) = made_of_another(&library, made.clone());
            let of_made = Trace::read(&made.file, Domain::Malloc);
            let trace = &with_sizes_of(trace, &of_made);
            let witness = Witness::new(trace, &stacks).unwrap();
            for _ in 0..4 {
                let mut query = question_within(&mut chance, trace, within.0, within.1);
                // A trimmed trace does not have the processes that started later.
                query.processes.retain(|name| of_made.has_process(name));
                let view = ["profile", "bottom-up", "timeline", "lifetimes"][chance.between(0, 4) as usize];
                let query = mostly_fit(&library, &mut chance, view, query);
                let verdict = check_print_view(&library, &made, &witness, view, &query);
                verdict.unwrap_or_else(|why| fail(subject, name, &query, &why));
            }
        }
        std::fs::remove_file(trimmed).unwrap();
        std::fs::remove_file(merged).unwrap();
    }
}

/// A trimmed trace has the blocks that were live at its start, all events of its time, and nothing else.
#[test]
fn a_trimmed_trace_has_only_what_was_live_and_its_own_time() {
    let mut chance = Chance::new("trimmed");
    let mut library = Library::new();
    library.add_made(&mut chance, count(80));
    let trimmed = library.folder.join("trimmed.htz");
    for subject in library.subjects.iter().filter(|subject| subject.domain == Domain::Malloc) {
        for _ in 0..20 {
            let (from, to) = two_times(&mut chance, &subject.trace);
            let (source, target) = (subject.file.to_str().unwrap(), trimmed.to_str().unwrap());
            run(&["trim", source, "--from", &format!("{from}ns"), "--to", &format!("{to}ns"), "-o", target]);
            let totals = &view(&trimmed, "profile", &[])["totals"];
            std::fs::remove_file(&trimmed).unwrap();
            let query = Query { from: Some(When::Ns(from)), to: Some(When::Ns(to)), ..Query::default() };
            let (range, stacks) = subject.trace.by_stack(&query);
            let is_left =
                |end: trace::End| !range.whole_end && end.leaked && range.begin <= end.at && end.at < range.end;
            let left = subject.trace.blocks.iter().filter(|block| block.end.is_some_and(is_left));
            let sum = |of: fn(&Costs) -> u64| stacks.iter().map(of).sum::<u64>();
            for (name, expected) in [
                ("allocations", sum(|costs| costs.base_allocations + costs.allocations)),
                ("allocated_bytes", sum(|costs| costs.base_bytes + costs.allocated_bytes)),
                ("deallocations", sum(|costs| costs.deallocations)),
                ("freed_bytes", sum(|costs| costs.freed_bytes)),
                ("lifetime_ns", sum(|costs| costs.lifetime_ns)),
                ("temporary", sum(|costs| costs.temporary)),
                // The new trace ends there. So what processes had not freed when they ended is leaked in it.
                ("live_bytes", sum(|costs| costs.live_bytes) + left.clone().map(|block| block.size).sum::<u64>()),
                ("peak_bytes", sum(|costs| costs.peak_bytes)),
            ] {
                same(name, number(&totals[name]), expected)
                    .unwrap_or_else(|why| fail(subject, "a trimmed trace", &query, &why));
            }
        }
    }
}

/// A trace that was folded by `--max-size` has the same answers about the time after the cut. About the whole session
/// it has the same answers except for lifetimes and values over time.
#[test]
fn a_folded_trace_answers_as_the_whole_one() {
    let mut chance = Chance::new("folded");
    let mut library = Library::new();
    for _ in 0..count(150) {
        let bytes = made::file(&made::blocks(&mut chance, 600));
        let (whole, short) = (library.folder.join("whole.htz"), library.folder.join("short.htz"));
        std::fs::write(&whole, &bytes).unwrap();
        let mut out = format::FileWriter::new(Vec::new(), 1).unwrap();
        let mut reader = format::Reader::new(Cursor::new(&bytes)).unwrap();
        let until =
            format::fold(&mut reader, chance.between(0, bytes.len() as u64), bytes.len() as u64, &mut out).unwrap();
        std::fs::write(&short, out.finish().unwrap()).unwrap();
        let trace = Trace::read(&whole, Domain::Malloc);
        let (short, stacks) = made_of_another(&library, short);
        let witness = Witness::new(&trace, &stacks).unwrap();
        let random = Query::random(&mut chance, &trace);
        let (include, exclude, threads, size) = (random.include, random.exclude, random.threads, random.size);
        let query = Query { include, exclude, threads, size, ..Query::default() };
        let view = ["bottom-up", "callers", "flame", "sizes", "threads", "source"][chance.between(0, 6) as usize];
        let answer = print_view(&library, &short, view, &query);
        witness.check(view, &query, &answer).unwrap_or_else(|why| fail(&short, view, &query, &why));
        let until = until.unwrap_or(0) + 1;
        let query = question_within(&mut chance, &trace, until, until.max(trace.runtime_ns));
        let view = ["profile", "timeline", "lifetimes", "top-down"][chance.between(0, 4) as usize];
        let query = mostly_fit(&library, &mut chance, view, query);
        let verdict = check_print_view(&library, &short, &witness, view, &query);
        verdict.unwrap_or_else(|why| fail(&short, view, &query, &why));
    }
    library.subjects.clear();
}

/// KDE's file has the same costs, except for what its format cannot hold: threads, lifetimes, and therefore which
/// blocks were temporary.
#[test]
fn a_trace_in_kdes_format_has_the_same_totals() {
    let (_, library) = Library::filled("KDE", count(80));
    for subject in library.subjects.iter().filter(|subject| subject.domain == Domain::Malloc) {
        let file = library.folder.join("exported.zst");
        run(&["export", "--to", "heaptrack", subject.file.to_str().unwrap(), "-o", file.to_str().unwrap()]);
        let json: Value = serde_json::from_str(&view::text(&file, &["--json", "--no-suppressions"])).unwrap();
        let whole = Query { no_suppressions: true, ..Query::default() };
        let (_, costs) = subject.trace.by_stack(&whole);
        let sum = |of: fn(&Costs) -> u64| costs.iter().map(of).sum::<u64>();
        let by_exec = subject.trace.blocks.iter().filter(|block| block.end.is_some_and(|end| !end.freed)).count();
        let left = subject.trace.blocks.iter().filter(|block| block.end.is_some_and(|end| end.leaked));
        let left: Vec<u64> = left.map(|block| block.size).collect();
        for (name, expected) in [
            ("allocations", sum(|costs| costs.allocations)),
            ("deallocations", sum(|costs| costs.deallocations) + by_exec as u64),
            ("allocated_bytes", sum(|costs| costs.allocated_bytes)),
            // In KDE's file, blocks that were not freed when their process ended are freed there.
            ("leaked_bytes", sum(|costs| costs.live_bytes) - left.iter().sum::<u64>()),
            ("leaked_allocations", sum(|costs| costs.live_allocations) - left.len() as u64),
            ("peak_bytes", sum(|costs| costs.peak_bytes)),
        ] {
            assert_eq!(number(&json["totals"][name]), expected, "{}, {name}", subject.file.display());
        }
    }
}

/// In a comparison of two traces, the sums of the values before, of the values after and of the differences are those
/// of the traces, for every cost.
#[test]
fn a_comparison_of_two_traces_is_their_difference() {
    let mut chance = Chance::new("two traces");
    let mut library = Library::new();
    library.add_made(&mut chance, 6);
    for _ in 0..count(200) {
        let (before, after) = (library.any(&mut chance), library.any(&mut chance));
        let cost = heaptrack_tests::replay::query::COSTS[chance.between(0, 9) as usize];
        let query = Query { cost: Some(cost), no_suppressions: chance.between(0, 3) == 0, ..Query::default() };
        let base = format!("--diff={}", before.file.display());
        let words: Vec<String> = options_of(&library, "--view diff", &query).into_iter().chain([base]).collect();
        let diff = view(&after.file, "diff", &words.iter().map(String::as_str).collect::<Vec<_>>());
        let total = |subject: &Subject| {
            let stacks = print_view(&library, subject, "stacks", &Query::default());
            // The comparison is only about malloc's blocks.
            let trace = Trace::read(&subject.file, Domain::Malloc);
            let witness = Witness::new(&trace, &stacks).unwrap();
            let asked = witness.ask(&query);
            asked.stacks().map(|(stack, costs)| costs.value(cost, asked.suppressed[stack])).sum::<i64>()
        };
        let sum = |name: &str| {
            diff["functions"].as_array().unwrap().iter().map(|row| row[name].as_i64().unwrap()).sum::<i64>()
        };
        assert_eq!((sum("before"), sum("after")), (total(before), total(after)), "{cost}: {words:?}");
        assert_eq!(sum("delta"), total(after) - total(before), "{cost}: {words:?}");
    }
}

/// Five live blocks, two of which belong to a known leak. Two more blocks were freed.
fn known_leak() -> (Folder, PathBuf) {
    use format::{
        AllocClassEncoder, CodeLocation, EventEncoder, Frame, Module, StackEncoder, Summary, SymbolState,
        SymbolsBuilder,
    };
    let mut stacks = StackEncoder::new();
    let (main, pool) = (stacks.push(0, Frame::new(1, 0x10, false)), stacks.push(0, Frame::new(1, 0x20, false)));
    let mut alloc_classes = AllocClassEncoder::new();
    let (small, large) = (alloc_classes.push(10, main), alloc_classes.push(1000, pool));
    let mut names = SymbolsBuilder::default();
    names.module(1, SymbolState::Debug, "");
    for (offset, name) in [(0x10, "main"), (0x20, "pool_init")] {
        let function = Some(names.function(name, name, name));
        names.frame(offset, vec![CodeLocation { function, file: None, line: None, inlined: false }]);
    }
    let mut events = EventEncoder::new();
    for alloc_class in [small, large, small, large, small] {
        events.alloc(alloc_class);
    }
    events.time(1_000_000);
    for alloc_class in [small, large] {
        let block = events.alloc(alloc_class);
        events.free(block);
    }
    let blocks = [
        format::Suppressions("leak:pool_init\n".into()).to_block(),
        Module::to_block(&[Module { instance: 1, path: "/made/app".into(), ..Module::default() }]),
        stacks.take(),
        alloc_classes.take(),
        names.take().to_block(),
        events.take(),
        Summary { complete: true, ..Summary::default() }.to_block(),
    ];
    let folder = Folder::new();
    let file = folder.join("known.htz");
    std::fs::write(&file, made::file(&blocks)).unwrap();
    (folder, file)
}

#[test]
fn leaked_is_without_known_leaks_in_every_output() {
    let (folder, file) = known_leak();
    let said = view::text(&file, &["-l"]);
    for line in
        ["total memory leaked: 30B", "suppressed leaks: 2.00K", "blocks leaked: 3", "30B leaked over 4 calls from"]
    {
        assert!(said.contains(&format!("\n{line}\n")), "{line}: {said}");
    }
    let report: Value = serde_json::from_str(&view::text(&file, &["--json"])).unwrap();
    let of = |totals: &Value| {
        ["leaked_bytes", "leaked_allocations", "suppressed_bytes", "suppressed_allocations"]
            .map(|name| number(&totals[name]))
    };
    assert_eq!(of(&report["totals"]), [30, 3, 2000, 2]);
    assert_eq!(
        report["leaked"].as_array().unwrap().iter().map(of).collect::<Vec<_>>(),
        [[30, 3, 0, 0], [0, 0, 2000, 2]]
    );
    for name in VIEWS {
        let answer = view(&file, name, if name == "diff" { &["--compare=@start"] } else { &[] });
        assert_eq!(of(&answer["totals"]), [30, 3, 2000, 2], "{name}");
    }
    let threads = view(&file, "threads", &[]);
    let costs = &threads["threads"][0]["costs"];
    assert_eq!((number(&costs["leaked_bytes"]), number(&costs["live_bytes"])), (30, 2030));
    let folded = folder.join("folded");
    for (cost, options, expected) in
        [("leaked", "", 30), ("live", "", 2030), ("leaked", "--no-suppressions", 2030), ("growth", "", 2030)]
    {
        let mut words = vec!["--flamegraph-cost-type", cost, "-F", folded.to_str().unwrap()];
        words.extend((!options.is_empty()).then_some(options));
        view::text(&file, &words);
        let text = std::fs::read_to_string(&folded).unwrap();
        let sum: u64 = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, expected, "{cost} {options}");
    }
}

#[test]
fn a_moment_has_only_what_lives() {
    let (_folder, file) = known_leak();
    for at in ["--at=500us", "--at=end"] {
        let sizes = view(&file, "sizes", &[at]);
        assert_eq!((&sizes["peak_bytes"], &sizes["live_bytes"]), (&json!([0, 0]), &json!([30, 2000])), "{at}");
        assert_eq!(sizes["top"][0][0]["peak_bytes"], 0, "{at}");
        let threads = view(&file, "threads", &[at]);
        let costs = &threads["threads"][0]["costs"];
        let values = ["peak_bytes", "base_bytes", "allocations", "live_bytes"].map(|name| number(&costs[name]));
        assert_eq!(values, [0, 0, 0, 2030], "{at}");
        assert_eq!(number(&threads["totals"]["peak_time_ns"]), 0, "{at}");
    }
}

#[test]
fn a_comparison_with_a_moment_is_of_what_lives() {
    let (_folder, file) = known_leak();
    let diff = view(&file, "diff", &["--compare=@500us"]);
    assert_eq!((&diff["cost"], &diff["base_total"]), (&json!("live"), &json!(2030)));
    let row = |row: &Value| (row["before"].as_i64().unwrap(), row["after"].as_i64().unwrap());
    let mut rows: Vec<(i64, i64)> = diff["functions"].as_array().unwrap().iter().map(row).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(30, 30), (2000, 2000)]);
}

/// A realloc carries the content on, so the old block could not have been avoided and does not count as temporary.
#[test]
fn a_realloc_makes_no_block_temporary() {
    use format::{AllocClassEncoder, EventEncoder, Frame, StackEncoder, Summary};
    let mut stacks = StackEncoder::new();
    let main = stacks.push(0, Frame::new(0, 0x10, false));
    let mut alloc_classes = AllocClassEncoder::new();
    let sizes: Vec<u32> = (1..=10).map(|size| alloc_classes.push(size * 100, main)).collect();
    let mut events = EventEncoder::new();
    let mut block = events.alloc(sizes[0]);
    for alloc_class in &sizes[1..] {
        events.free_by_realloc(block);
        block = events.alloc(*alloc_class);
    }
    events.free(block);
    let blocks = [
        stacks.take(),
        alloc_classes.take(),
        events.take(),
        Summary { complete: true, ..Summary::default() }.to_block(),
    ];
    let folder = Folder::new();
    let (file, kde) = (folder.join("grown.htz"), folder.join("grown.zst"));
    std::fs::write(&file, made::file(&blocks)).unwrap();
    let temporary = |file: &Path| view::total(&view(file, "profile", &[]), "temporary");
    assert_eq!(temporary(&file), 1, "only the last block is temporary: free frees it right after it was allocated");
    run(&["export", "--to", "heaptrack", file.to_str().unwrap(), "-o", kde.to_str().unwrap()]);
    assert_eq!(temporary(&kde), 10, "KDE's format has no realloc, so each one counts as a free of a temporary block");
}
