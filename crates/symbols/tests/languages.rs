//! Compares our demangling with binutils' `c++filt`, on all D names of the D standard library and on all C++ names of
//! node.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
mod common;
use common::*;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use symbols::{Hint, demangle};

fn names(path: &Path, table: &str, prefix: &str) -> Vec<String> {
    let list = readelf(&[table], path);
    let functions = list.lines().filter(|line| line.contains(" FUNC ") && !line.contains(" UND "));
    let name = |line: &str| line.split_whitespace().nth(7).and_then(|name| name.split('@').next()).map(str::to_owned);
    let mut found: Vec<String> = functions.filter_map(name).filter(|name| name.starts_with(prefix)).collect();
    found.sort();
    found.dedup();
    found
}

fn filter(style: &str, names: &[String]) -> Vec<String> {
    let mut command = Command::new("c++filt");
    let mut child = command.args(["-s", style]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = names.join("\n") + "\n";
    let feeder = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The path of names in a D declaration, without brackets, and with the name of a template's function once.
fn path_of(text: &str) -> Vec<String> {
    let mut depth = 0usize;
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let mut path: Vec<String> = Vec::new();
    for part in plain.split('.') {
        let word = |word: &&str| !["const", "immutable", "shared", "inout", ""].contains(word);
        let part = part.split(' ').rfind(word).unwrap_or_default();
        let (name, is_template) = part.split_once('!').map_or((part, false), |(name, _)| (name, true));
        let again = path.last().and_then(|last| last.strip_suffix('!')) == Some(name);
        if !again {
            path.push(if is_template { format!("{name}!") } else { name.to_owned() });
        }
    }
    path
}

#[test]
fn d_names_of_its_standard_library() {
    let folder = std::fs::read_dir("/usr/lib/x86_64-linux-gnu").unwrap();
    let is_phobos = |path: &std::path::PathBuf| path.to_string_lossy().contains("libgphobos.so.");
    let library = folder.map(|entry| entry.unwrap().path()).find(is_phobos).unwrap();
    let raw = names(&library, "--dyn-syms", "_D");
    let theirs = filter("dlang", &raw);
    // c++filt leaves names that it cannot demangle unchanged. They are not compared.
    let known: Vec<_> = raw.iter().zip(&theirs).filter(|(raw, their)| raw != their).collect();
    let same = |(raw, their): &&(&String, &String)| path_of(&demangle(raw, Hint::None).full) == path_of(their);
    let (total, equal) = (known.len(), known.iter().filter(same).count());
    println!("{equal} of {total}");
    assert!(total > 5000, "{total}");
    let first = known.iter().find(|pair| !same(pair));
    assert!(equal * 200 >= total * 199, "{equal} of {total}; {first:?}");
}

/// Two demanglers write the same type differently, so only the set of names that they can read is compared.
#[test]
fn cpp_names_of_node() {
    let raw = names(&which("node"), "-s", "_Z");
    let theirs = filter("gnu-v3", &raw);
    let readable = theirs.iter().filter(|name| !name.starts_with("_Z")).count();
    let unread = |(raw, their): &(&String, &String)| {
        !their.starts_with("_Z") && demangle(raw, Hint::None).full.starts_with("_Z")
    };
    let unread: Vec<_> = raw.iter().zip(&theirs).filter(unread).collect();
    println!("{} of {readable} stay mangled", unread.len());
    assert!(readable > 20_000, "{readable}");
    assert!(unread.len() * 1000 <= readable, "{} of {readable}; {:?}", unread.len(), unread.first());
    // A short name is neither empty nor longer than the full name.
    for raw in raw.iter().step_by(7) {
        let name = demangle(raw, Hint::None);
        assert!(!name.short.is_empty() && name.short.len() <= name.full.len(), "{name:?}");
    }
}
