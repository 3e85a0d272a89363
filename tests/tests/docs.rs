//! Checks the documents. Every command in a block marked `sh run` is run, in order, in a copy of the page's example.
//! `docs/names.rs` checks that every path and every test that a document names exists, `docs/options.rs` that the options in
//! commands for production exist.
#[path = "docs/names.rs"]
mod names;
#[path = "docs/options.rs"]
mod options;

use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::{Folder, Report, process};
use std::path::Path;
use std::process::Command;

fn page(name: &str) -> String {
    std::fs::read_to_string(workspace().join("docs").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The blocks of commands of a page that are marked `sh run`.
fn commands(page: &str) -> Vec<&str> {
    page.split("```sh run\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let path = entry.unwrap().path();
        let place = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &place);
        } else {
            std::fs::copy(&path, &place).unwrap();
        }
    }
}

/// Runs a page's commands in a copy of its example, all in one shell, as a reader would.
fn run(name: &str, example: &str) -> (Folder, String) {
    let folder = Folder::new();
    copy(&workspace().join("examples").join(example), &folder.join("work"));
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    for link in ["heaptrack", "heaptrack_print", "cargo-heaptrack"] {
        std::os::unix::fs::symlink(heaptrack().canonicalize().unwrap(), folder.join("bin").join(link)).unwrap();
    }
    let page = page(name);
    let commands = commands(&page);
    assert!(!commands.is_empty(), "{name} has no commands to run");
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &commands.concat()])
        .current_dir(folder.join("work"))
        .env("PATH", path)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("bash");
    let (out, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(process::code(output.status), 0, "{name}: {out}\n{said}");
    (folder, out)
}

#[test]
fn custom_allocators() {
    let (folder, out) = run("custom-allocators.md", "c");
    assert!(
        out.contains("10000 items, 100 kept\n") && out.contains("REPORTED BY THE PROGRAM ITSELF, NOT COUNTED ABOVE\n"),
        "{out}"
    );
    let report = Report::of(&folder.join("work/pool.htz"));
    let totals = &report.json()["custom"]["totals"];
    assert_eq!((&totals["allocations"], &totals["leaked_allocations"]), (&10000.into(), &100.into()));
}

#[test]
fn nim() {
    let (folder, out) = run("nim.md", "nim");
    assert_eq!(out.matches("kept 60\n").count(), 3, "{out}");
    assert!(Report::of(&folder.join("work/with-malloc.htz")).json()["custom"].is_null());
    let report = Report::of(&folder.join("work/reported.htz"));
    assert!(report.json()["custom"]["totals"]["allocations"].as_u64().unwrap() > 6000);
}

#[test]
fn rust() {
    let (folder, out) = run("rust.md", "rust");
    assert!(out.starts_with("imported 20000, cached 2000\n"), "{out}");
    let report = Report::of(&folder.join("work/forest.htz"));
    // The strings of the cache, listed under the innermost function of the program itself.
    let leaked = report.json()["leaked"].as_array().unwrap();
    let blamed = |site: &serde_json::Value| site["frames"][site["blamed"].as_u64().unwrap_or(0) as usize].clone();
    let cached: Vec<_> =
        leaked.iter().filter(|site| blamed(site)["function"] == "forest::cache::{{closure}}").collect();
    assert_eq!(cached.iter().map(|site| site["leaked_allocations"].as_u64().unwrap()).sum::<u64>(), 2000);
    let place = blamed(cached[0]);
    assert!(place["file"].as_str().unwrap().ends_with("src/main.rs") && place["line"].is_number(), "{place}");
    // Inlined functions are listed.
    let all = report.json()["allocations"].to_string();
    assert!(all.contains("forest::message"), "an inlined function");
}

#[test]
fn node() {
    let (folder, out) = run("node.md", "node");
    assert!(out.starts_with("you asked for /hello\n"), "{out}");
    let report = Report::of(&folder.join("work/service.heapdump.htz"));
    assert!(report.complete());
    let json = report.json();
    assert_eq!(json["command"][0], "node");
    let now: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("work/now.json")).unwrap()).unwrap();
    assert!(now["totals"]["allocations"].as_u64().unwrap() <= report.total("allocations"));
    // zlib's memory is listed under the name of the function that allocated it.
    assert!(json["allocations"].to_string().to_lowercase().contains("zlib"), "node's own names");
}

/// The text of a page's block after these words.
fn shown(page: &str, after: &str) -> String {
    let rest = page.split_once(after).unwrap_or_else(|| panic!("no {after:?}")).1;
    rest.split_once("```text\n").unwrap().1.split("```").next().unwrap().to_owned()
}

#[test]
fn continuous_integration() {
    let (folder, out) = run("ci.md", "ci");
    let page = page("ci.md");
    for after in ["heaptrack check --max-peak 10k", "The regression (`--keep`) breaks"] {
        assert!(out.contains(&shown(&page, after)), "{after}: {out}");
    }
    assert!(out.contains("2 of 3 budgets broken\n"), "{out}");
    let summary = std::fs::read_to_string(folder.join("work/app/slower.md")).unwrap();
    let rust = shown(&page, "The regression of the example");
    for line in rust.lines().filter(|line| !line.contains("[...]")) {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(out.contains("\n5 budgets kept\n"), "{out}");
    assert!(summary.contains("100.0% ████████████████████████ main > parse"), "{summary}");
}
