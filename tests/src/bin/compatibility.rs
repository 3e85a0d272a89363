//! Runs every animal of the zoo launched and attached.
//!
//!   compatibility --write FILE   runs all animals and writes the table of `docs/compatibility.md` (`make compatibility`)
//!   compatibility NAME...        runs these animals and prints the results as text
use heaptrack_tests::zoo::table::ANIMALS;
use heaptrack_tests::zoo::{Animal, Seen, Way};
use std::process::ExitCode;

const WAYS: [Way; 2] = [Way::Launched, Way::Attached];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wrong = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--write", file] => write(file),
        ref names => names.iter().map(|name| show(Animal::by_name(name))).sum(),
    };
    ExitCode::from(u8::from(wrong > 0))
}

/// Returns the number of failed runs, out of two.
fn show(animal: &Animal) -> usize {
    let mut wrong = 0;
    for way in WAYS {
        let start = std::time::Instant::now();
        let seen = animal.check(way);
        println!("{} {} {way:?}, {:.1?}", animal.name, animal.version_text(), start.elapsed());
        match seen {
            Ok(seen) => println!(
                "  {} allocations, {:.4} to the root, {:.4} explained {:?} {:?}",
                seen.allocations, seen.at_root, seen.explained, seen.reasons, seen.unseen
            ),
            Err(what) => {
                wrong += 1;
                println!("  WRONG: {what}");
            }
        }
    }
    wrong
}

const HEAD: &str = "# Programs that heaptrack was tried on

Real programs that treat stacks, signals, threads and memory each in its own way (`tests/zoo`, `tests/src/zoo/table.rs`). Each was
run alone, recorded from its start (*launched*) and attached to while its special machinery existed.

*Consistent* means: output, stderr (but not the logs of servers) and exit code were those of the run alone, the trace is complete, no event was lost, no free was
implied (launched: nor unknown), and allocations minus frees are what lives. *Exact* means: consistent, and the totals were those of the
*oracle*:

- *own calls and frees*: the program makes 10,000 calls of malloc for 4321 bytes, a size that occurs nowhere else in it, and frees all of
  these blocks; exactly these are in the trace. *Own calls*: the same, but a garbage collector decides when to free.
- *DHAT*: Valgrind counted the same program from its start. For an attached run there is no such count.
- *none*: no independent count exists.

*Stacks* is the share of the allocations whose stack reaches the first function of its thread (launched, attached). All others end where *notes*
says; no stack ended anywhere else. The frames between were not compared with another unwinder here.

`make compatibility` makes this page. `make test` visits the animals marked with *, `make soak` all of them, 20 times each way.

| program | version | what is special | launched | attached | oracle | stacks | notes |
|---|---|---|---|---|---|---|---|
";

fn write(file: &str) -> usize {
    let mut page = HEAD.to_owned();
    let mut wrong = 0;
    for animal in ANIMALS {
        let seen = WAYS.map(|way| animal.check(way));
        for what in seen.iter().filter_map(|seen| seen.as_ref().err()) {
            wrong += 1;
            println!("{what}");
        }
        println!("{}", animal.name);
        page += &row(animal, &seen);
    }
    std::fs::write(file, page).unwrap_or_else(|error| panic!("{file}: {error}"));
    wrong
}

fn row(animal: &Animal, seen: &[Result<Seen, String>; 2]) -> String {
    let went = |seen: &Result<Seen, String>, way: Way| match seen {
        Ok(_) if animal.oracle.counts(way) => "exact",
        Ok(_) => "consistent",
        Err(_) => "**wrong**",
    };
    let share = |seen: &Result<Seen, String>| match seen {
        // Rounded down, so that 100 % means all of them.
        Ok(seen) => format!("{} %", (seen.at_root * 100.0).floor()),
        Err(_) => "-".to_owned(),
    };
    let mut notes: Vec<String> = Vec::new();
    for seen in seen.iter().flatten() {
        notes.extend(seen.reasons.iter().map(|&reason| reason.to_owned()));
        notes.extend(seen.unseen.iter().map(|kind| format!("the trace says what is not seen: `{kind}`")));
    }
    notes.extend((!animal.note.is_empty()).then(|| animal.note.to_owned()));
    let mut told: Vec<String> = Vec::new();
    for note in notes {
        if !told.contains(&note) {
            told.push(note);
        }
    }
    format!(
        "| {}{} | {} | {} | {} | {} | {} | {}, {} | {} |\n",
        animal.name,
        if animal.in_make_test { " *" } else { "" },
        animal.version_text(),
        animal.about,
        went(&seen[0], Way::Launched),
        went(&seen[1], Way::Attached),
        animal.oracle.words(),
        share(&seen[0]),
        share(&seen[1]),
        told.join("; ")
    )
}
