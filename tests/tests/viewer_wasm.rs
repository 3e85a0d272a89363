//! The engine as WebAssembly, in node and in browsers: `make soak-viewer`, which builds it first.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::viewer::{Asked, traces};
use heaptrack_tests::{Chance, Folder, kde};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A node that has the module of `js/`, and answers one line for each line (`tests/viewer/ask.mjs`).
struct Node {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Node {
    fn new() -> Self {
        let mut command = Command::new("node");
        command.arg(workspace().join("tests/viewer/ask.mjs")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("node");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Node { child, input, output: BufReader::new(output).lines() }
    }

    fn answer(&mut self, asked: &Asked) -> Result<String, String> {
        let words: Vec<(&str, &str)> = asked.words.iter().map(|(word, value)| (*word, value.as_str())).collect();
        let line = json!({ "trace": asked.trace, "view": asked.view, "words": words, "base": asked.base });
        writeln!(self.input, "{line}").expect("node reads");
        let answer: Value = serde_json::from_str(&self.output.next().expect("a line").expect("a text")).expect("JSON");
        match answer["text"].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(answer["refused"].as_str().expect("a refusal").to_owned()),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_thousand_answers_about_twenty_traces_are_those_of_print() {
    let folder = Folder::new();
    let traces = traces(&folder);
    assert!(traces.len() >= 20, "{} traces", traces.len());
    let mut node = Node::new();
    let mut chance = Chance::new("viewer_wasm");
    let (mut answered, mut refused) = (0, 0);
    while answered < 1000 {
        let asked = Asked::random(&mut chance, &traces);
        match (asked.printed(), node.answer(&asked)) {
            (Some(wanted), Ok(found)) => {
                assert!(wanted == found.as_bytes(), "{asked:?}:\n{}\n{found}", String::from_utf8_lossy(&wanted));
                answered += 1;
            }
            (None, Err(_)) => refused += 1,
            (wanted, found) => panic!("{asked:?}: print answers: {}, the engine: {found:?}", wanted.is_some()),
        }
    }
    println!("{answered} answers; {refused} questions were refused by both");
}

/// Runs a script of `tests/viewer` with a browser of Debian. Its arguments are files of every kind.
fn in_browser(browser: &str, script: &str) {
    let folder = Folder::new();
    let mut files = traces(&folder);
    if script == "report.mjs" {
        files.extend(nameless(&folder));
    }
    let status = Command::new("node")
        .arg(workspace().join("tests/viewer").join(script))
        .args(&files)
        .env("BROWSER", browser)
        .env("HEAPTRACK_BIN", heaptrack())
        .env("TRACES", folder.path())
        .env("SHOTS", workspace().join("target/screenshots"))
        .status();
    assert!(status.expect("node").success());
}

/// Files without names, for which this machine looks up names: a raw file of KDE's heaptrack, and a profile with addresses.
fn nameless(folder: &Folder) -> [PathBuf; 2] {
    let (kde, addresses) = (Folder::new(), folder.join("addresses.gperftools"));
    let raw = folder.join("kde-raw.zst");
    let program = target("exported");
    std::fs::copy(kde::record(&kde, &["--raw"], &[program.to_str().expect("a path")]), &raw).expect("a copy");
    let mut command = Command::new(heaptrack());
    command.args(["export", "--to", "gperftools"]).arg(folder.join("exported.htz")).arg("-o").arg(&addresses);
    assert!(command.status().expect("heaptrack").success());
    [raw, addresses]
}

#[test]
fn the_viewer_works_in_chromium() {
    in_browser("chromium", "page.mjs");
}

#[test]
fn the_viewer_works_in_firefox() {
    in_browser("firefox", "page.mjs");
}

#[test]
fn a_report_answers_everything_in_chromium() {
    in_browser("chromium", "report.mjs");
}

#[test]
fn a_report_answers_everything_in_firefox() {
    in_browser("firefox", "report.mjs");
}

/// A report of the demo, in a system of which only the browsers are installed, in `target/browser-root`. Root and the machine's package archive are needed.
#[test]
fn a_report_answers_where_only_a_browser_is_installed() {
    let (folder, root) = (Folder::new(), workspace().join("target/browser-root"));
    let made = Command::new(workspace().join("tests/viewer/browser-root.sh")).arg(&root).status();
    assert!(made.expect("a shell").success());
    let run = |command: &mut Command| assert!(command.output().expect("a command").status.success(), "{command:?}");
    let demo = workspace().join("demo/shop.cpp");
    run(Command::new("g++").args(["-g", "-O1"]).arg(demo).arg("-o").arg(folder.join("shop")));
    run(Command::new(heaptrack()).args(["-q", "-o", "shop", "./shop"]).current_dir(folder.path()));
    for browser in ["chromium", "firefox"] {
        let status = Command::new("node")
            .arg(workspace().join("tests/viewer/alone.mjs"))
            .arg(&root)
            .env("BROWSER", browser)
            .env("HEAPTRACK_BIN", heaptrack())
            .env("TRACES", folder.path())
            .env("SHOTS", workspace().join("target/screenshots"))
            .status();
        assert!(status.expect("node").success(), "{browser}");
    }
}

/// What `npm pack` packs is enough for a program outside of this folder.
#[test]
fn the_packed_module_opens_a_trace() {
    let folder = Folder::new();
    let js = workspace().join("js");
    let run = |command: &mut Command| {
        let output = command.output().expect("npm and node");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let packed = run(Command::new("npm").args(["pack", "--silent", "--pack-destination"]).arg(folder.path()).arg(&js));
    let module = folder.join("node_modules/heaptrack-trace");
    std::fs::create_dir_all(&module).expect("a folder");
    run(Command::new("tar")
        .args(["xf", packed.trim(), "--strip-components=1", "-C"])
        .arg(&module)
        .current_dir(folder.path()));
    let program = "import { open } from 'heaptrack-trace';
        const trace = await open(process.argv[1]);
        console.log(trace.view('summary').totals.allocations, trace.view('profile', { at: 'peak' }).totals.live_bytes);";
    let trace = workspace().join("crates/format/tests/data/v1.htz");
    let mut node = Command::new("node");
    node.args(["--input-type=module", "-e", program]).arg(trace).current_dir(folder.path());
    assert_eq!(run(&mut node), "5 1048600\n");
}
