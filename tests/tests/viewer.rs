//! The engine that browsers have answers as `heaptrack print --view` does, byte for byte. Here it is compiled natively;
//! `viewer_wasm.rs` asks the WebAssembly.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::viewer::{Asked, traces};
use heaptrack_tests::{Chance, Folder, process, scale};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use viewer::Viewer;

/// All traces in one engine.
struct Native {
    viewer: Viewer,
    numbers: HashMap<PathBuf, usize>,
}

impl Native {
    fn new(traces: &[PathBuf]) -> Self {
        let mut viewer = Viewer::new();
        let open = |path: &PathBuf| {
            let file = Arc::new(File::open(path).expect("the trace"));
            (path.clone(), viewer.open(&path.to_string_lossy(), file))
        };
        let numbers = traces.iter().map(open).collect();
        Native { viewer, numbers }
    }

    fn answer(&mut self, asked: &Asked) -> Result<String, String> {
        let number = |path: &Path| self.numbers[path];
        let base = asked.base.as_deref();
        let name = base.map(|base| base.to_string_lossy().into_owned());
        let mut words: Vec<(&str, &str)> = asked.words.iter().map(|(word, value)| (*word, value.as_str())).collect();
        words.extend(name.iter().map(|name| ("compare", name.as_str())));
        let (trace, base) = (number(&asked.trace), base.map(number));
        self.viewer.view(trace, asked.view, &words, base)
    }
}

#[test]
fn answers_are_those_of_print() {
    let folder = Folder::new();
    let traces = traces(&folder);
    assert!(traces.len() >= 20, "{} traces", traces.len());
    let mut engine = Native::new(&traces);
    let mut chance = Chance::new("viewer");
    let mut answered = 0;
    for _ in 0..scale::count(1000) {
        let asked = Asked::random(&mut chance, &traces);
        let (wanted, found) = (asked.printed(), engine.answer(&asked));
        match (&wanted, &found) {
            (Some(wanted), Ok(found)) => {
                assert!(wanted == found.as_bytes(), "{asked:?}:\n{}\n{found}", String::from_utf8_lossy(wanted));
                answered += 1;
            }
            (None, Err(_)) => {}
            _ => panic!("{asked:?}: print answers: {}, the engine: {found:?}", wanted.is_some()),
        }
    }
    assert!(answered >= scale::count(1000) / 3, "only {answered} questions had an answer");
}

/// A copy of the binary, and a viewer beside it if there is one.
struct Installed {
    folder: Folder,
    trace: PathBuf,
}

impl Installed {
    fn new() -> Self {
        let folder = Folder::new();
        for name in ["bin", "share/heaptrack"] {
            std::fs::create_dir_all(folder.join(name)).expect("a folder");
        }
        std::fs::copy(heaptrack(), folder.join("bin/heaptrack")).expect("a copy");
        Installed { folder, trace: workspace().join("crates/format/tests/data/v1.htz") }
    }

    /// Installs a page with this place for a trace, which says that this program made it.
    fn install(&self, generator: &str) {
        let page = format!("<meta name=\"generator\" content=\"{generator}\">\n<!--carried-->\n<p>the engine</p>\n");
        std::fs::write(self.folder.join("share/heaptrack/heaptrack-viewer.html"), page).expect("a file");
    }

    /// Writes a report. Returns it, and what the command said.
    fn report(&self, options: &[&str]) -> (String, String) {
        let mut command = Command::new(self.folder.join("bin/heaptrack"));
        command.arg("report").args(options).arg(&self.trace).args(["-o", "out.html"]).current_dir(self.folder.path());
        let output = command.output().expect("heaptrack");
        assert_eq!(process::code(output.status), 0, "{command:?}");
        let html = std::fs::read_to_string(self.folder.join("out.html")).expect("a report");
        (html, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// `viewer_wasm.rs` opens such reports in browsers.
#[test]
fn a_report_has_the_trace_if_the_viewer_of_this_version_is_installed() {
    let installed = Installed::new();
    let place = installed.folder.join("share/heaptrack/heaptrack-viewer.html");
    let because = "heaptrack: This report has prepared answers instead of the trace, as with --summary-only, because";
    let is_summary = |html: &str| html.contains("id=\"report-data\"") && !html.contains("id=\"carried-trace\"");

    let (html, said) = installed.report(&[]);
    assert!(is_summary(&html) && said.starts_with(&format!("{because} {} is missing.\n", place.display())), "{said}");

    installed.install("heaptrack 0.1");
    let (html, said) = installed.report(&[]);
    let found = installed.folder.join("bin/../share/heaptrack/heaptrack-viewer.html");
    let reason = format!("{because} {} is of another version of heaptrack.\n", found.display());
    assert!(is_summary(&html) && said.starts_with(&reason), "{said}");

    let version = Command::new(heaptrack()).arg("--version").output().expect("heaptrack");
    installed.install(String::from_utf8_lossy(&version.stdout).trim());
    let (html, said) = installed.report(&[]);
    assert!(!html.contains("report-data") && html.ends_with("<p>the engine</p>\n"), "{html}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let packed = html.split_once("id=\"carried-trace\">").expect("a trace").1.split_once('<').expect("its end").0;
    // `-f` passes bytes on that are not packed.
    let mut decode = Command::new("sh");
    decode.args(["-c", "base64 -d | gzip -cdf"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut decode = decode.spawn().expect("a shell");
    decode.stdin.take().expect("a pipe").write_all(packed.as_bytes()).expect("a text");
    let carried = decode.wait_with_output().expect("the bytes").stdout;
    assert!(carried == std::fs::read(&installed.trace).expect("the trace"), "the bytes of the trace");

    let (html, said) = installed.report(&["--summary-only"]);
    assert!(is_summary(&html) && said.lines().count() == 1, "{said}");
    let (html, said) = installed.report(&["--max-size", "1k"]);
    assert!(
        is_summary(&html) && said.starts_with(because) && said.contains("more than 0.001 MB (--max-size)"),
        "{said}"
    );
}

/// The module for node and browsers is released with the crate.
#[test]
fn the_module_has_the_version_of_the_crate() {
    let text = std::fs::read_to_string(workspace().join("js/package.json")).expect("a file");
    let package: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
}
