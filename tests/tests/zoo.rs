//! The zoo: every animal prints and exits the same way alone, recorded from its start and attached to, and its numbers
//! are those of its oracle.
//!
//! `make test` runs twelve animals once each way. A soak runs all of them 20 times each way.
use heaptrack_tests::scale;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::zoo::table::ANIMALS;
use heaptrack_tests::zoo::{Animal, Way};
use std::collections::BTreeSet;

/// Visits every second animal, and reports everything that is wrong with any of them.
fn visit(half: usize) {
    let rounds = if scale::soak() { 20 } else { 1 };
    let all: Vec<&Animal> = ANIMALS.iter().filter(|animal| animal.in_make_test || scale::soak()).collect();
    let mut wrong = Vec::new();
    for animal in all.iter().skip(half).step_by(2) {
        for round in 0..rounds {
            for way in [Way::Launched, Way::Attached] {
                if let Err(what) = animal.check(way) {
                    wrong.push(format!("round {round}: {what}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n---\n"));
}

#[test]
fn the_first_half_of_the_zoo_is_recorded_and_attached_to() {
    visit(0);
}

#[test]
fn the_second_half_of_the_zoo_is_recorded_and_attached_to() {
    visit(1);
}

fn file(path: &str) -> String {
    std::fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_folder_of_the_zoo_is_in_the_table() {
    let names: BTreeSet<&str> = ANIMALS.iter().map(|animal| animal.name).collect();
    assert_eq!(names.len(), ANIMALS.len(), "every name occurs once");
    assert_eq!(ANIMALS.iter().filter(|animal| animal.in_make_test).count(), 12);
    // The code that animals share, and the package of the animals in Rust.
    let mut folders = BTreeSet::from(["blocks".to_owned(), "rust".to_owned()]);
    let without_sources =
        ["rust_tokio", "rust_corosensei", "rust_may", "rust_jemalloc", "rust_mimalloc", "cargo", "git", "xz"];
    folders.extend(names.iter().filter(|name| !without_sources.contains(name)).map(|&name| name.to_owned()));
    let there = std::fs::read_dir(workspace().join("tests/zoo")).unwrap();
    let there: BTreeSet<String> = there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(folders, there, "every folder of tests/zoo has a row, and every row its folder");
}

/// `tests/setup.sh` installs the packages of the twelve animals of `make test`, and with `soak` those of all animals.
#[test]
fn setup_installs_the_packages_of_every_animal() {
    let (table, script) = (file("tests/packages.txt"), file("tests/setup.sh"));
    let rows = table.lines().filter(|line| line.starts_with("build ") || line.starts_with("test "));
    let always: Vec<&str> = rows.map(|line| line.split_whitespace().nth(1).expect("a package")).collect();
    let soak = script.lines().find_map(|line| line.strip_prefix("zoo=\"")).expect("the list `zoo`");
    let soak: Vec<&str> = soak.trim_end_matches('"').split(' ').collect();
    // These packages are part of every Debian system.
    let is_there = |package: &str| ["bash", "perl"].contains(&package) || always.contains(&package);
    for animal in ANIMALS {
        for &package in animal.packages {
            let in_soak = !animal.in_make_test && soak.contains(&package);
            assert!(is_there(package) || in_soak, "{}: {package} is not in tests/setup.sh", animal.name);
        }
    }
    for package in &soak {
        assert!(ANIMALS.iter().any(|animal| animal.packages.contains(&&**package)), "no animal needs {package}");
    }
}

#[test]
fn the_document_has_every_animal() {
    let page = file("docs/compatibility.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), ANIMALS.len(), "run `make compatibility`");
    for (row, animal) in rows.iter().zip(ANIMALS) {
        let mark = if animal.in_make_test { " *" } else { "" };
        assert_eq!(row[0], format!("{}{mark}", animal.name), "run `make compatibility`");
        assert_eq!(
            (row[2], row[5]),
            (animal.about, animal.oracle.words()),
            "{}: run `make compatibility`",
            animal.name
        );
    }
}
