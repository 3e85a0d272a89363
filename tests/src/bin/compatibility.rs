//! Visits the zoo once each way and writes `docs/compatibility.md` (`make compatibility`), or shows single animals by name.
use heaptrack_tests::zoo::table::ANIMALS;
use heaptrack_tests::zoo::{Animal, Seen, Way};

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let mut failed = false;
    for name in &names {
        for way in [Way::Launched, Way::Attached] {
            let start = std::time::Instant::now();
            let seen = Animal::by_name(name).check(way);
            println!("{name} {} {way:?} {:.1?}", Animal::by_name(name).version_text(), start.elapsed());
            match seen {
                Ok(seen) => show(&seen),
                Err(what) => {
                    failed = true;
                    println!("  WRONG: {what}");
                }
            }
        }
    }
    let _ = ANIMALS;
    std::process::exit(i32::from(failed));
}

fn show(seen: &Seen) {
    println!(
        "  {} allocations, root {:.4}, explained {:.4} {}",
        seen.allocations, seen.at_root, seen.explained, seen.note
    );
    for (end, count) in seen.others.iter().take(6) {
        println!("    {count} {end}");
    }
}
