//! `heaptrack tui` in a terminal of tmux: every view, its numbers, sizes of the screen, signals, and live recordings.
use format::{AllocClassEncoder, EventEncoder, Exit, FileWriter, Frame, Session, StackEncoder, Summary, Totals};
use heaptrack_tests::attach::Target;
use heaptrack_tests::process::{signal, status_bytes};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::tmux::Tmux;
use heaptrack_tests::view::{total, view};
use heaptrack_tests::{Folder, Outcome, Program, scale};
use serde_json::Value;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NORMAL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (120, 45);

fn name(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// All digits, in groups of three.
fn exact(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// A number of bytes below 1 MB, as the page shows it.
fn bytes(value: u64) -> String {
    match value {
        0..1000 => format!("{value} B"),
        1000..10_000 => format!("{:.2} kB", value as f64 / 1e3),
        _ => format!("{:.1} kB", value as f64 / 1e3),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

fn leaky() -> Outcome {
    let outcome = Program::target("leaky").recorded();
    assert_eq!(outcome.code, 0);
    outcome
}

/// The line of the screen that has all of these texts.
fn line<'a>(screen: &'a str, texts: &[&str]) -> &'a str {
    let found = screen.lines().find(|line| texts.iter().all(|text| line.contains(text)));
    found.unwrap_or_else(|| panic!("no line has {texts:?}:\n{screen}"))
}

#[test]
fn every_view_has_the_numbers_of_print() {
    let outcome = leaky();
    let trace = outcome.trace.as_path();
    let screen = Tmux::heaptrack(LARGE, &[], &["tui", name(trace)]);
    summary(trace, &screen.shows(&["Held at the peak", "Most allocations", "Not freed", "Temporary"]));
    trees(trace, &screen);
    your_code(trace, &screen);
    leaks(trace, &screen);
    histograms(trace, &screen);
    threads(trace, &screen);
    source(&screen);
    screen.keys(&["0"]);
    screen.shows(&["This trace is of one process."]);
    screen.keys(&["="]);
    screen.shows(&["Nothing to compare with yet"]);
    screen.keys(&["?"]);
    screen.shows(&["Keys (Esc closes)", "show the keys", "expand the most expensive path"]);
    screen.keys(&["q"]);
    assert_eq!(screen.code(), 0);
}

/// A trace of a sample is marked, its totals have their intervals, and it cannot be compared with another trace. It is
/// shown while it is recorded, too.
#[test]
fn a_sample_is_marked_and_has_intervals() {
    let sample = Program::target("leaky").option("--sample").option("1k").recorded();
    assert_eq!(sample.code, 0, "{}", sample.stderr);
    let trace = sample.trace.as_path();
    let screen = Tmux::heaptrack(LARGE, &[], &["tui", name(trace)]);
    let shown =
        screen.shows(&["sampled: estimates", "Held at the peak", "Blocks were sampled, once in 1.00 kB on average"]);
    let json = view(trace, "summary", &[]);
    let error = |cost: &str| number(&json["totals_error"][cost]);
    assert!(error("leaked_bytes") > 0);
    let leaked = format!(
        "leaked {} ± {} in {} ± {} blocks",
        bytes(total(&json, "leaked_bytes")),
        bytes(error("leaked_bytes")),
        exact(total(&json, "leaked_allocations")),
        exact(error("leaked_allocations"))
    );
    let unbroken = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unbroken.contains(&leaked), "{leaked}: {shown}");
    screen.keys(&["q"]);
    assert_eq!(screen.code(), 0);
    let screen = Tmux::heaptrack(LARGE, &[], &["tui", name(trace), "--compare", name(trace)]);
    screen.shows(&["a comparison of traces needs every block"]);
    screen.keys(&["q"]);
    assert_eq!(screen.code(), 0);
    let (folder, program) = (Folder::new(), heaptrack_tests::targets::target("leaky"));
    let out = folder.join("live.htz");
    let words = ["--tui", "--sample", "1k", "-o", name(&out), name(&program)];
    let screen = Tmux::heaptrack(LARGE, &[], &words);
    screen.shows(&["sampled: estimates", "±"]);
    screen.keys(&["q"]);
    assert_eq!(screen.code(), 0);
}

fn summary(trace: &Path, screen: &str) {
    let json = view(trace, "summary", &[]);
    let totals = format!(
        "leaked {} in {} blocks",
        bytes(total(&json, "leaked_bytes")),
        exact(total(&json, "leaked_allocations"))
    );
    line(screen, &[&format!("Peak {} at", bytes(total(&json, "peak_bytes"))), &totals]);
    for (title, cost) in [("Held at the peak", "peak_bytes"), ("Not freed", "leaked_bytes")] {
        line(screen, &[&format!("{title}  {}", bytes(total(&json, cost)))]);
    }
    line(screen, &[&format!("Most allocations  {}", exact(total(&json, "allocations")))]);
    let owner = &json["lists"]["peak"][0];
    line(screen, &[&bytes(number(&owner["value"])), owner["short"].as_str().unwrap()]);
}

fn trees(trace: &Path, screen: &Tmux) {
    let options = ["--hide", "all-but-mine", "--collapse", "recursion"];
    for (key, name) in [("3", "bottom-up"), ("4", "top-down")] {
        screen.keys(&[key]);
        screen.shows(&["Function", "Self: "]);
        screen.keys(&["g", "e"]);
        let json = view(trace, name, &options);
        let mut row = &json["roots"][0];
        let roots = json["roots"].as_array().unwrap();
        for root in roots.iter().take(5).filter(|root| !root["short"].is_null()) {
            let costs = &root["total"];
            let texts = [bytes(number(&costs["peak_bytes"])), exact(number(&costs["allocations"]))];
            screen.shows(&[root["short"].as_str().unwrap(), &texts[0], &texts[1]]);
        }
        let peak = number(&row["total"]["peak_bytes"]);
        let shown = screen.shows(&[&format!(
            "Peak: {}",
            if peak < 1000 { bytes(peak) } else { format!("{} ({} B)", bytes(peak), exact(peak)) }
        )]);
        // The most expensive path is open.
        while let Some(child) = row["children"].get(0) {
            line(&shown, &[child["short"].as_str().unwrap(), &bytes(number(&child["total"]["peak_bytes"]))]);
            row = child;
        }
    }
    screen.keys(&["2"]);
    let json = view(trace, "top-down", &options);
    let main = json["roots"].as_array().unwrap().iter().find(|row| row["short"] == "main").unwrap();
    screen.shows(&["all  ", &format!("main  {}", bytes(number(&main["total"]["peak_bytes"])))]);
    screen.keys(&["Down", "Enter"]);
    screen.shows(&["main"]);
    screen.keys(&["Escape"]);
}

fn your_code(trace: &Path, screen: &Tmux) {
    screen.keys(&["5"]);
    for (cost, title, is_bytes) in
        [("peak", "Peak", true), ("leaked", "Leaked", true), ("allocations", "Allocations", false)]
    {
        let json = view(trace, "summary", &["--limit", "100"]);
        let rows = json["lists"][cost].as_array().unwrap();
        let shown = screen.shows(&["Your code", &format!("{title} · whole session"), &format!("{} row", rows.len())]);
        for row in rows.iter().filter(|row| row["class"] == "program") {
            let value = number(&row["value"]);
            let value = if is_bytes { bytes(value) } else { exact(value) };
            line(&shown, &[row["short"].as_str().unwrap(), &value]);
        }
        screen.keys(&["c"]);
    }
    screen.keys(&["C", "C", "C"]);
    screen.shows(&["Peak · whole session"]);
}

fn leaks(trace: &Path, screen: &Tmux) {
    screen.keys(&["6"]);
    let shown = screen.shows(&["leak or not?", "start_up"]);
    let json = view(trace, "leaks", &[]);
    // The verdicts are the engine's. On a busy machine they depend on how long the program took to end.
    let labels = [
        ("once", "one-time"),
        ("grows", "grows"),
        ("bounded", "levelled off"),
        ("tail", "in use at end"),
        ("exit", "freed at exit"),
    ];
    for site in json["sites"].as_array().unwrap().iter().filter(|site| site["class"] == "program") {
        let (_, label) = labels.iter().find(|(name, _)| site["verdict"] == *name).expect("a verdict");
        let kept = format!("{} of {}", number(&site["live_allocations"]), number(&site["allocations"]));
        line(&shown, &[site["short"].as_str().unwrap(), &bytes(number(&site["live_bytes"])), label, &kept]);
    }
    let judged = json["sites"].as_array().unwrap().iter().filter(|site| site["class"] == "program").count();
    assert!(judged >= 4, "start_up, forget, remember and in_flight hold blocks: {json}");
}

fn histograms(trace: &Path, screen: &Tmux) {
    screen.keys(&["7"]);
    let shown = screen.shows(&["Allocations", "64–127 B"]);
    let json = view(trace, "sizes", &[]);
    for (at, from) in json["from"].as_array().unwrap().iter().enumerate().filter(|(_, from)| number(from) < 512) {
        let (to, allocations) = (number(&json["to"][at]), number(&json["allocations"][at]));
        let size = if number(from) == to { format!("{to} B") } else { format!("{}–{to} B", number(from)) };
        line(&shown, &[&size, &exact(allocations), &bytes(number(&json["live_bytes"][at]))]);
    }
    screen.keys(&["8"]);
    let json = view(trace, "lifetimes", &[]);
    let shown = screen.shows(&["Freed blocks", "Live blocks"]);
    let longest = json["deallocations"].as_array().unwrap().last().unwrap();
    line(
        &shown,
        &[&exact(number(longest)), &exact(number(json["live_allocations"].as_array().unwrap().last().unwrap()))],
    );
}

fn threads(trace: &Path, screen: &Tmux) {
    screen.keys(&["9"]);
    let json = view(trace, "threads", &[]);
    let thread = &json["threads"][0];
    let costs = &thread["costs"];
    let shown = screen.shows(&["Thread  "]);
    line(
        &shown,
        &[
            "leaky",
            &number(&thread["tid"]).to_string(),
            &exact(number(&costs["allocations"])),
            &bytes(number(&costs["peak_bytes"])),
        ],
    );
}

fn source(screen: &Tmux) {
    screen.keys(&["s"]);
    screen.shows(&["File, and its line", "leaky.c"]);
    screen.keys(&["/"]);
    screen.type_text("forget");
    screen.keys(&["Enter"]);
    screen.shows(&["whole session · forget", "leaky.c:"]);
    screen.keys(&["Enter"]);
    // The text of the file, with the costs of its lines.
    let shown = screen.shows(&["int main(int argc", "Self"]);
    line(&shown, &["        forget();", "20.2 kB"]);
    screen.keys(&["Escape", "u"]);
    screen.becomes("no filter", |screen| !screen.contains("session · forget"));
}

#[test]
fn a_small_screen_without_colours_has_everything() {
    let outcome = leaky();
    let screen = Tmux::heaptrack(NORMAL, &[("NO_COLOR", "1")], &["tui", name(&outcome.trace)]);
    screen.shows(&["Held at the peak"]);
    for (key, text) in [
        ("1", "Not freed"),
        ("2", "all  "),
        ("3", "Function"),
        ("4", "Function"),
        ("5", "Your code"),
        ("6", "Verdict"),
        ("7", "Size"),
        ("8", "Lived"),
        ("9", "Thread"),
        ("r", "r Mem s Src"),
        ("s", "File, and its line"),
    ] {
        screen.keys(&[key]);
        let shown = screen.shows(&[text, "heaptrack  ", "1 Sum", "Peak · whole session", "? keys"]);
        assert!(shown.lines().count() <= 24 && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let coloured = screen.coloured_screen();
        // Bold, dim, underlined and reversed are allowed; 30 to 49 and 90 on are colours.
        let codes = coloured.split("\x1b[").skip(1).filter_map(|part| part.split('m').next());
        let is_colour = |code: &str| {
            code.split(';').any(|code| code.parse::<u32>().is_ok_and(|code| matches!(code, 30..=38 | 40..=48 | 90..)))
        };
        let bad: Vec<&str> = codes.filter(|codes| is_colour(codes)).collect();
        assert!(bad.is_empty(), "{key}: {bad:?}");
    }
    screen.keys(&["C-c"]);
    assert_eq!(screen.code(), 0);
    let coloured = Tmux::heaptrack(NORMAL, &[], &["tui", name(&outcome.trace)]);
    coloured.shows(&["Held at the peak"]);
    assert!(coloured.coloured_screen().contains("\x1b[3"), "colours without NO_COLOR");
}

#[test]
fn the_screen_follows_its_size_and_a_terminal_without_utf_8_is_enough() {
    let outcome = leaky();
    let screen = Tmux::heaptrack(NORMAL, &[("LC_ALL", "C")], &["tui", name(&outcome.trace)]);
    screen.shows(&["Held at the peak"]);
    assert!(screen.screen().is_ascii(), "{}", screen.screen());
    for (width, height) in [(200, 60), (45, 12), (120, 40), (80, 24)] {
        screen.resize(width, height);
        screen.becomes("a whole screen of the new size", |screen| {
            let lines: Vec<&str> = screen.lines().collect();
            let is_whole =
                lines.len() == height as usize && lines.last().is_some_and(|line| line.starts_with("? keys"));
            is_whole && screen.starts_with("heaptrack  ") && screen.contains("Held at the peak")
        });
    }
    screen.resize(30, 6);
    screen.shows(&["too small"]);
    screen.resize(80, 24);
    screen.shows(&["Held at the peak"]);
    screen.keys(&["q"]);
    assert_eq!(screen.code(), 0);
}

#[test]
fn times_and_filters_narrow_down_and_can_be_undone() {
    let outcome = leaky();
    let trace = outcome.trace.as_path();
    let screen = Tmux::heaptrack(LARGE, &[], &["tui", name(trace)]);
    screen.shows(&["Held at the peak", "▲"]);
    let at = |time: &str| bytes(total(&view(trace, "summary", &["--at", time]), "live_bytes"));
    screen.keys(&["@"]);
    screen.type_text("50%");
    screen.keys(&["Enter"]);
    screen.shows(&["live at 50%", &format!("Live {} in", at("50%"))]);
    screen.keys(&["p"]);
    screen.shows(&["live at the peak", &format!("Live {} in", at("peak"))]);
    screen.keys(&["@"]);
    screen.type_text("25%..75%");
    screen.keys(&["Enter"]);
    let range = view(trace, "summary", &["--from", "25%", "--to", "75%"]);
    screen.shows(&["range 25% – 75%", &format!("Most allocations  {}", exact(total(&range, "allocations")))]);
    screen.keys(&["@"]);
    screen.type_text("soon");
    screen.keys(&["Enter"]);
    screen.shows(&["`soon` is not a valid time"]);
    screen.keys(&["Escape", "u", "u", "u"]);
    screen.shows(&["Peak · whole session"]);
    // Show only what the selected row is about.
    screen.keys(&["6"]);
    screen.shows(&["forget"]);
    screen.keys(&["g", "i"]);
    let shown = screen.shows(&["whole session · function:"]);
    let function = shown.split("function:").nth(1).unwrap().split([' ', '\n']).next().unwrap().to_owned();
    screen.keys(&["1"]);
    let only = view(trace, "summary", &["--include", &format!("function:{function}")]);
    screen.shows(&[&format!("{} allocations of", exact(total(&only, "allocations")))]);
    screen.keys(&["u", "/"]);
    screen.type_text("/(/");
    screen.keys(&["Enter"]);
    screen.shows(&["is not a valid regular expression"]);
    screen.keys(&["Escape"]);
    // The mouse: a drag over the timeline is a range, and a click on a tab is a view.
    screen.mouse(0, 30, 5, false);
    screen.mouse(32, 60, 5, false);
    screen.mouse(0, 60, 5, true);
    screen.shows(&["range ", "Peak in range"]);
    screen.mouse(0, 1, 1, false);
    screen.mouse(0, 1, 1, true);
    screen.shows(&["Held at the range's peak"]);
}

#[test]
fn two_traces_and_two_times_are_compared() {
    let (before, after) = (leaky(), Program::target("leaky").recorded());
    let screen = Tmux::heaptrack(LARGE, &[], &["tui", name(&after.trace), "--compare", name(&before.trace)]);
    let json = view(&after.trace, "diff", &["--diff", name(&before.trace)]);
    let count = json["functions"].as_array().unwrap().len();
    let shown = screen.shows(&["What changed", "Before", &format!("{count} row")]);
    for row in json["functions"].as_array().unwrap().iter().take(3) {
        let both = [bytes(number(&row["before"])), bytes(number(&row["after"]))];
        line(&shown, &[row["short"].as_str().unwrap(), &both[0], &both[1]]);
    }
    screen.keys(&["b"]);
    screen.type_text("@25%");
    screen.keys(&["Enter"]);
    let json = view(&after.trace, "diff", &["--compare", "@25%"]);
    let changed = &json["functions"][0];
    let shown = screen.shows(&["compared to 25%", changed["short"].as_str().unwrap()]);
    let delta = changed["delta"].as_i64().unwrap();
    let sign = if delta > 0 { '+' } else { '-' };
    line(&shown, &[changed["short"].as_str().unwrap(), &format!("{sign}{}", bytes(delta.unsigned_abs()))]);
    screen.keys(&["b"]);
    screen.type_text("/no/such/file");
    screen.keys(&["Enter"]);
    screen.shows(&["/no/such/file cannot be read: No such file or directory"]);
}

#[test]
fn the_processes_of_a_tree_are_listed() {
    let outcome = Program::target("trace_tree").arg("3").option("--follow").recorded();
    let screen = Tmux::heaptrack(LARGE, &[], &["tui", name(&outcome.trace)]);
    screen.shows(&["Held at the peak"]);
    screen.keys(&["0"]);
    let json = view(&outcome.trace, "processes", &[]);
    let rows = json["processes"].as_array().unwrap();
    let shown = screen.shows(&["Held at peak", &format!("{} rows", rows.len())]);
    for row in rows {
        line(&shown, &[&format!("trace_tree  {}", number(&row["pid"])), &bytes(number(&row["costs"]["leaked_bytes"]))]);
    }
    screen.keys(&["c", "G", "Enter"]);
    let only = view(&outcome.trace, "summary", &["--process", &format!("#{}", rows.len() - 1)]);
    screen.shows(&["Your code", &format!("process #{}", rows.len() - 1), &bytes(total(&only, "leaked_bytes"))]);
}

#[test]
fn the_memory_has_instants_parts_and_callers() {
    let recorded = Program::new("sleep").arg("0.3").recorded();
    let trace = recorded.trace.as_path();
    let json = view(trace, "memory", &[]);
    let instants = json["instants"].as_array().expect("a list");
    let highest = &instants[number(&json["highest"]) as usize];
    let megabytes = |value: &Value| match number(value) {
        bytes @ 1_000_000.. => format!("{:.2} MB", bytes as f64 / 1e6),
        small => bytes(small),
    };
    let screen = Tmux::heaptrack(LARGE, &[], &["tui", name(trace)]);
    screen.shows(&["Held at the peak"]);
    screen.keys(&["r"]);
    let shown = screen.shows(&["Measured at", "Live blocks", &format!("{} row", instants.len())]);
    line(&shown, &["highest", &megabytes(&highest["rss_bytes"])]);
    screen.keys(&["g", "Enter"]);
    let first = &instants[0];
    let parts = first["parts"].as_array().expect("a list");
    let sums = format!(
        "Sum of {} parts: RSS {} ({} B)",
        parts.len(),
        megabytes(&first["parts_rss_bytes"]),
        exact(number(&first["rss_bytes"]))
    );
    let shown = screen.shows(&["Parts at ", "live at ", &sums, &format!("{} rows", parts.len())]);
    let mut largest: Vec<&Value> = parts.iter().collect();
    largest.sort_by_key(|part| std::cmp::Reverse(number(&part["rss_bytes"])));
    for part in largest.iter().take(5) {
        line(&shown, &[&megabytes(&part["rss_bytes"]), &megabytes(&part["pss_bytes"])]);
    }
    let blocks = largest.iter().position(|part| part["kind"] == "blocks").expect("live blocks");
    screen.keys(&vec!["Down"; blocks]);
    screen.shows(&["live blocks: "]);
    screen.keys(&["Enter"]);
    screen.shows(&["Function", "live at "]);
    screen.keys(&["u", "r"]);
    screen.shows(&["Measured at"]);
}

#[test]
fn the_terminal_is_given_back_whatever_happens() {
    let outcome = leaky();
    for (how, expected) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let screen = Tmux::heaptrack(NORMAL, &[], &["tui", name(&outcome.trace)]);
        screen.shows(&["Held at the peak"]);
        signal(how, &[screen.process("heaptrack")]);
        assert_eq!(screen.code(), expected, "{how}");
    }
    let shell = Tmux::shell(NORMAL);
    shell.shows(&["ready"]);
    shell.type_text(&format!("{} tui {}\n", heaptrack().display(), name(&outcome.trace)));
    shell.shows(&["Held at the peak"]);
    shell.keys(&["C-z"]);
    shell.becomes("the shell", |screen| screen.contains("Stopped") && !screen.contains("Held at the peak"));
    shell.type_text("fg\n");
    shell.shows(&["Held at the peak", "? keys"]);
    shell.keys(&["6"]);
    shell.shows(&["Verdict"]);
    shell.keys(&["q"]);
    shell.becomes("the shell", |screen| screen.contains("ready") && !screen.contains("Verdict"));
}

#[test]
fn what_cannot_be_shown_is_refused_with_one_sentence() {
    let outcome = leaky();
    let trace = name(&outcome.trace);
    let folder = Folder::new();
    std::fs::write(folder.join("garbage"), "not a trace").unwrap();
    let piped = Command::new(heaptrack()).args(["tui", trace]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&piped.stderr).into_owned();
    assert_eq!((piped.status.code(), piped.stdout.len()), (Some(2), 0));
    assert_eq!(said, "heaptrack: stdout is not a terminal; `heaptrack print FILE` writes a report instead\n");
    let garbage = folder.join("garbage");
    for (env, file, sentence) in [
        ("TERM=dumb", trace, "this terminal cannot be drawn on (TERM=dumb)"),
        ("TERM=xterm", "/no/such/file", "cannot read /no/such/file: No such file or directory"),
        ("TERM=xterm", name(&garbage), "garbage: "),
    ] {
        let env = env.split_once('=').unwrap();
        let screen = Tmux::heaptrack((150, 24), &[env], &["tui", file]);
        let shown = screen.shows(&[sentence]);
        assert_eq!(screen.code(), 2, "{shown}");
        assert_eq!(shown.lines().filter(|line| line.starts_with("heaptrack:")).count(), 1, "{shown}");
    }
}

#[test]
fn a_running_program_is_followed_paused_and_looked_at_from_now_on() {
    let target = Target::start("attach_phases", &["2"]);
    target.settle();
    let pid = target.pid.to_string();
    let folder = Folder::new();
    let trace = folder.join("x.htz");
    let env = [("TMPDIR", name(folder.path()))];
    let screen = Tmux::heaptrack(LARGE, &env, &["--tui", "-p", &pid, "-o", name(&trace)]);
    screen.shows(&["live · attached", &format!("pid {pid}"), "since now"]);
    screen.keys(&["Space"]);
    screen.shows(&["paused · attached", "go on"]);
    screen.keys(&["Space"]);
    screen.shows(&["live · attached"]);
    screen.keys(&["n"]);
    screen.shows(&["Peak in range · range ", "– end"]);
    screen.keys(&["q"]);
    screen.shows(&[&format!("detached from {pid}")]);
    assert_eq!(screen.code(), 0);
    assert_eq!(folder.names(), ["x.htz"], "the file for the recorder's messages is removed");
    assert!(target.is_alive());
    let screen = Tmux::heaptrack(LARGE, &env, &["tui", "-p", "1999999999"]);
    screen.shows(&["heaptrack: "]);
    assert_eq!(screen.code(), 3);
}

#[test]
fn a_program_is_recorded_and_shown_at_the_same_time() {
    let program = heaptrack_tests::targets::target("leaky");
    let folder = Folder::new();
    let trace = folder.join("x.htz");
    let env = [("TMPDIR", name(folder.path()))];
    // 200 rounds of 20 ms.
    let screen = Tmux::heaptrack(LARGE, &env, &["--tui", "-o", name(&trace), name(&program), "20"]);
    screen.shows(&["live", "since now"]);
    screen.keys(&["q"]);
    screen.shows(&["leaky still runs: t terminates it"]);
    screen.keys(&["Escape", "6"]);
    // The program ends while it is looked at.
    let shown = screen
        .becomes("the verdicts at the end", |screen| screen.contains("200 of 200") && !screen.contains("live · pid"));
    line(&shown, &["forget", "grows"]);
    screen.keys(&["o"]);
    screen.shows(&["leaky done"]);
    screen.keys(&["Escape", "q"]);
    screen.shows(&["what the program printed is in"]);
    assert_eq!(screen.code(), 0);
    let json = view(&trace, "leaks", &[]);
    assert!(json["sites"].as_array().unwrap().iter().any(|site| site["live_allocations"] == 200));
    // The exit code of a program that was terminated is its own.
    let trace = folder.join("y.htz");
    let screen = Tmux::heaptrack(LARGE, &env, &["--tui", "-o", name(&trace), "sleep", "600"]);
    screen.shows(&["live"]);
    screen.keys(&["q"]);
    screen.shows(&["sleep still runs"]);
    screen.keys(&["t"]);
    assert_eq!(screen.code(), 143);
    let screen = Tmux::heaptrack(LARGE, &env, &["--tui", "/no/such/program"]);
    screen.shows(&["heaptrack: "]);
    assert_eq!(screen.code(), 127);
}

/// A trace with this many events at `SITES` places. Each place holds up to 50 blocks.
fn write_many_events(path: &Path, count: u64) {
    let mut out = FileWriter::new(BufWriter::new(File::create(path).unwrap()), 1).unwrap();
    out.write(&Session { command: vec!["many".into()], ..Session::default() }.to_block()).unwrap();
    let (mut stacks, mut classes) = (StackEncoder::new(), AllocClassEncoder::new());
    let ids: Vec<_> = (0..SITES).map(|site| stacks.push(0, Frame::new(0, 0x1000 + site * 16, false))).collect();
    out.write(&stacks.take()).unwrap();
    let ids: Vec<_> = ids.into_iter().zip(1..).map(|(stack, size)| classes.push(size * 8, stack)).collect();
    out.write(&classes.take()).unwrap();
    let mut events = EventEncoder::new();
    let mut totals = Totals::default();
    let live = SITES * 50;
    let mut held = std::collections::VecDeque::new();
    for made in 0..count / 2 {
        if made >= live {
            events.free(held.pop_front().unwrap());
            totals.deallocations += 1;
        }
        held.push_back(events.alloc(ids[(made * 7 % SITES) as usize]));
        totals.allocations += 1;
        if events.len() >= 512 << 10 {
            events.time(made * 200);
            out.write(&events.take()).unwrap();
        }
    }
    out.write(&events.take()).unwrap();
    totals.leaked_allocations = held.len() as u64;
    totals.peak_allocations = live;
    totals.runtime_ns = count * 100;
    out.write(&Summary { complete: true, exit: Exit::Code(0), totals }.to_block()).unwrap();
    out.finish().unwrap();
}

const SITES: u64 = 2000;

#[test]
fn a_large_trace_is_scrolled_without_delay_in_little_memory() {
    let count = scale::count(100_000_000);
    let folder = Folder::new();
    let trace = folder.join("many.htz");
    write_many_events(&trace, count);
    let screen = Tmux::heaptrack(NORMAL, &[], &["tui", name(&trace)]);
    screen.shows(&["Held at the peak", "▲"]);
    screen.keys(&["5"]);
    screen.shows(&["Your code", &format!("{} rows", exact(SITES))]);
    let began = Instant::now();
    for _ in 0..20 {
        screen.keys(&["Down", "Down", "Down", "Down", "Down", "Down", "Down", "Down", "Down", "Down"]);
    }
    screen.keys(&["d"]);
    let place = |rank: u64| format!("0x{:x}", 0x1000 + (SITES - 1 - rank) * 16);
    // The row after 200 steps is selected.
    screen.shows(&[&format!("{} rows · ", exact(SITES)), &place(200)]);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(200 / 60 + 2), "200 lines took {took:?}, which is less than 60 a second");
    let most = status_bytes(screen.process("heaptrack"), "VmHWM:").expect("the process runs");
    assert!((1 << 20..100_000_000).contains(&most), "{most} bytes");
    screen.keys(&["q"]);
    assert_eq!(screen.code(), 0);
}
