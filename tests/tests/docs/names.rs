//! Every path, every source file and every test that a document names exists.
//!
//! Receives: README.md, ARCHITECTURE.md, CONTRIBUTING.md, and all pages of docs, packaging and fuzz. CHANGELOG.md is
//! left out, because it is about the past. Must hold: a renamed file or test fails here until the documents have its
//! new name.
use heaptrack_tests::targets::workspace;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The folders that a path in a document may start with.
const FOLDERS: [&str; 11] =
    ["ci/", "crates/", "python/", "tests/", "docs/", "fuzz/", "bench/", "demo/", "examples/", "include/", "packaging/"];

/// The files below a folder of the workspace, without those that builds leave there.
fn files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![workspace().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if !path.is_dir() {
                found.push(path);
            } else if !["target", "node_modules", "corpus"].iter().any(|name| path.ends_with(name)) {
                folders.push(path);
            }
        }
    }
    found
}

/// The path and the text of each document.
fn documents() -> Vec<(PathBuf, String)> {
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "fuzz/README.md", "packaging/README.md"];
    let pages = files("docs").into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    let paths = top.iter().map(|name| workspace().join(name)).chain(pages);
    paths.map(|path| (path.clone(), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The words in backticks, outside of code blocks.
fn quoted(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

fn name_of(document: &Path) -> String {
    document.strip_prefix(workspace()).unwrap_or(document).display().to_string()
}

/// True if the path exists; `*` stands for any name in a folder.
fn exists(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let Some((before, after)) = text.split_once('*') else { return path.exists() };
    let (folder, start) = before.rsplit_once('/').unwrap_or(("", before));
    let (end, rest) = after.split_once('/').map_or((after, ""), |(end, rest)| (end, rest));
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut fitting = names.filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(start) && name.ends_with(end)
    });
    fitting.any(|entry| rest.is_empty() || entry.path().join(rest).exists())
}

/// Fails with the whole list of names that lead nowhere, or if fewer names than expected were found in the documents.
fn judge(named: usize, expected: usize, wrong: &[String]) {
    assert!(wrong.is_empty(), "these do not exist:\n{}", wrong.join("\n"));
    assert!(named > expected, "only {named} names were found");
}

/// Judges the names that `find` returns for the path and the text of each document, each with whether it exists.
fn judge_documents(expected: usize, find: impl Fn(&Path, &str) -> Vec<(String, bool)>) {
    let (mut named, mut wrong) = (0, Vec::new());
    for (document, text) in documents() {
        for (name, exists) in find(&document, &text) {
            named += 1;
            if !exists {
                wrong.push(format!("{} names {name}", name_of(&document)));
            }
        }
    }
    judge(named, expected, &wrong);
}

#[test]
fn every_path_in_a_document_exists() {
    let is_part = |c: char| c.is_alphanumeric() || "_-./*".contains(c);
    let is_path = |word: &&str| {
        // `crates/...` and `fuzz/corpus/NAME` are patterns and not paths. The fuzzer creates `fuzz/crashes`, and a
        // build creates `page/dist`.
        let is_exempt = ["...", "NAME", "fuzz/crashes", "page/dist"].iter().any(|part| word.contains(part));
        FOLDERS.iter().any(|folder| word.starts_with(folder)) && !is_exempt
    };
    judge_documents(100, |document, text| {
        let here = document.parent().unwrap();
        let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_end_matches(['.', '/', '-']));
        let is_there = |word: &str| exists(&workspace().join(word)) || exists(&here.join(word));
        words.filter(is_path).map(|word| (word.to_owned(), is_there(word))).collect()
    });
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    judge_documents(100, |document, text| {
        let here = document.parent().unwrap();
        let file = |target: &str| target.split('#').next().unwrap().to_owned();
        let targets = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        let is_file = |target: &&str| !target.contains("://") && !file(target).is_empty();
        targets.filter(is_file).map(|target| (format!("the link {target}"), here.join(file(target)).exists())).collect()
    });
}

/// Under a heading of ARCHITECTURE.md that names crates, `file.rs` and `folder/file.rs` are files of these crates.
#[test]
fn every_source_file_in_the_code_map_exists() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let (mut named, mut wrong) = (0, Vec::new());
    for section in text.split("\n### ").skip(1) {
        let section = section.split("\n## ").next().unwrap();
        let (heading, body) = section.split_once('\n').unwrap();
        let folders: Vec<PathBuf> = quoted(heading).iter().map(|name| workspace().join(name)).collect();
        assert!(!folders.is_empty(), "the heading {heading} names no folder");
        for name in quoted(body) {
            let is_file = [".rs", ".ts", ".tsx"].iter().any(|end| name.ends_with(end));
            if !is_file {
                continue;
            }
            named += 1;
            let places =
                folders.iter().flat_map(|folder| ["", "src", "tests", "page"].map(|part| folder.join(part).join(name)));
            let whole = [workspace().join(name), workspace().join("crates").join(name)];
            if !places.chain(whole).any(|path| path.exists()) {
                wrong.push(format!("ARCHITECTURE.md names {name} under {heading}"));
            }
        }
    }
    judge(named, 100, &wrong);
}

/// All words in our sources that could be the name of a test.
fn names_in_sources() -> HashSet<String> {
    let mut names = HashSet::new();
    for folder in ["crates", "tests", "fuzz", "include", "examples"] {
        let is_source = |path: &PathBuf| {
            path.extension()
                .is_some_and(|end| ["rs", "c", "cpp", "h", "mjs", "ts", "tsx", "py"].iter().any(|e| end == *e))
        };
        for path in files(folder).into_iter().filter(is_source) {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            names.extend(words.filter(|word| word.matches('_').count() >= 2).map(str::to_owned));
        }
    }
    names
}

/// Names in backticks that have the form of a test's name, four words or more, are in the sources.
#[test]
fn every_test_name_in_a_document_exists() {
    let names = names_in_sources();
    let is_name = |word: &str| {
        let is_word =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        word.split('_').count() >= 4 && word.split('_').all(is_word)
    };
    judge_documents(10, |_, text| {
        let words = quoted(text).into_iter().filter(|word| is_name(word));
        words.map(|word| (word.to_owned(), names.contains(word))).collect()
    });
}

/// `file.rs::test` in a document is a test in tests/tests.
#[test]
fn every_test_named_with_its_file_exists() {
    judge_documents(20, |_, text| {
        let words = text.split(|c: char| !(c.is_alphanumeric() || "_.:".contains(c)));
        let found = words.filter_map(|word| {
            let (file, test) = word.split_once(".rs::")?;
            let path = workspace().join("tests/tests").join(format!("{file}.rs"));
            let source = std::fs::read_to_string(path).unwrap_or_default();
            Some((word.to_owned(), source.contains(&format!("fn {test}("))))
        });
        found.collect()
    });
}
