//! The zoo: every animal prints and returns the same alone, recorded from its start and attached to; its numbers are exact.
//!
//! Twelve animals once each way; in a soak all of them, 20 times each way.
use heaptrack_tests::scale;
use heaptrack_tests::zoo::table::ANIMALS;
use heaptrack_tests::zoo::{Animal, Way};

/// Visits every second animal, and says everything that is wrong with any of them.
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
fn first_half() {
    visit(0);
}

#[test]
fn second_half() {
    visit(1);
}
