//! Real programs, profiled by DHAT, massif, gperftools, jemalloc and by us. Totals are equal where they mean the same; where
//! they do not, the difference is the one that docs/formats.md explains, to the byte.
use heaptrack_tests::profilers::{self, size_class};
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::{Folder, Program, scale, view};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

const SQL: &str = "create table t(a,b); with recursive n(i) as (select 1 union all select i+1 from n where i<2000) insert into t select i, printf('row %d of many',i) from n; select count(*), max(length(b)) from t group by a%7;";
const AWK: &str =
    "BEGIN { for (i = 0; i < 3000; i++) { a[i] = sprintf(\"%d-%d\", i, i * i); b = b a[i] } print length(b) }";

struct Profiled {
    name: &'static str,
    program: Program,
    /// The blocks and bytes that constructors of the program's libraries allocate. gperftools begins to count after them.
    early: (u64, u64),
}

/// Programs that make the same calls in every run, whatever is in their environment. In a soak all, otherwise two.
fn programs(folder: &Folder) -> Vec<Profiled> {
    let numbers = folder.join("numbers");
    std::fs::write(&numbers, (1..=20_000).map(|number| format!("{number}\n")).collect::<String>()).unwrap();
    let made = |name, early, words: &[&str]| {
        let program = Program::new(name).args(words).env("LC_ALL", "C");
        Profiled { name, program, early }
    };
    let numbers = numbers.to_str().unwrap();
    let all = vec![
        made("sqlite3", (0, 0), &[":memory:", SQL]),
        made("jq", (1, 1), &["-n", "[range(300) | {a: ., b: (tostring * 5)}] | map(.b) | length"]),
        made("mawk", (0, 0), &[AWK]),
        made("xz", (0, 0), &["-1", "-T1", "-c", "-k", numbers]),
        made("sort", (0, 0), &["--parallel=1", "-S", "1M", "-r", numbers]),
        made("objdump", (0, 0), &["-d", "/bin/true"]),
    ];
    let count = if scale::soak() { all.len() } else { 2 };
    all.into_iter().take(count).collect()
}

/// Blocks and bytes.
type Sum = (Option<u64>, Option<u64>);

struct Totals {
    all: Sum,
    peak: Sum,
    live: Sum,
}

/// The totals of a trace or of a profile, with known leaks.
fn totals(file: &Path) -> Totals {
    let json: Value = serde_json::from_str(&view::text(file, &["--json", "--no-suppressions"])).unwrap();
    let total = |name: &str| json["totals"].get(name).unwrap_or_else(|| panic!("no total {name}")).as_u64();
    Totals {
        all: (total("allocations"), total("allocated_bytes")),
        peak: (total("peak_allocations"), total("peak_bytes")),
        live: (total("leaked_allocations"), total("leaked_bytes")),
    }
}

fn plus(sum: Sum, (blocks, bytes): (i64, i64)) -> Sum {
    let add = |value: Option<u64>, more: i64| value.map(|value| value.strict_add_signed(more));
    (add(sum.0, blocks), add(sum.1, bytes))
}

/// What the size classes of jemalloc add to the bytes of all blocks, and to those of the blocks that stay.
fn rounded_up(trace: &Path) -> (i64, i64) {
    let mut export = Command::new(heaptrack());
    export.args(["export", "--to", "csv", "--rows", "events"]).arg(trace);
    let table = String::from_utf8(export.output().unwrap().stdout).unwrap();
    let column = |name: &str| table.lines().next().unwrap().split(',').position(|cell| cell == name).unwrap();
    let [event, block, size] = ["event", "block", "size"].map(column);
    let (mut all, mut live) = (0, HashMap::new());
    for row in table.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        if cells[event] == "alloc" {
            let size: u64 = cells[size].parse().unwrap();
            let more = (size_class(size) - size) as i64;
            all += more;
            live.insert(cells[block].to_owned(), more);
        } else {
            live.remove(cells[block]);
        }
    }
    (all, live.into_values().sum())
}

/// libjemalloc.so brings the C++ library, which allocates 72,704 bytes for exceptions when it is loaded.
const JEMALLOCS_OWN: i64 = size_class(72_704) as i64;

fn agree(profiled: &Profiled) {
    let Profiled { name, program, early } = profiled;
    let recorded = program.same_output();
    recorded.whole_report();
    let ours = totals(&recorded.trace);
    let folders: [Folder; 4] = std::array::from_fn(|_| Folder::new());

    let dhat = totals(&profilers::dhat(program, &folders[0]));
    assert_eq!((dhat.all, dhat.peak, dhat.live), (ours.all, ours.peak, ours.live), "{name}, DHAT");

    let massif = totals(&profilers::massif(program, &folders[1]));
    assert_eq!((massif.all, massif.peak), ((None, None), (None, ours.peak.1)), "{name}, massif");

    let gperftools = totals(&profilers::gperftools(program, &folders[2]));
    let early = (-(early.0 as i64), -(early.1 as i64));
    assert_eq!((gperftools.all, gperftools.live), (plus(ours.all, early), ours.live), "{name}, gperftools");
    assert_eq!(gperftools.peak, (None, None), "{name}, gperftools");

    let jemalloc = totals(&profilers::jemalloc(program, &folders[3]));
    let (all, live) = rounded_up(&recorded.trace);
    assert_eq!(jemalloc.all, plus(ours.all, (1, all + JEMALLOCS_OWN)), "{name}, jemalloc");
    assert_eq!(jemalloc.live, plus(ours.live, (1, live + JEMALLOCS_OWN)), "{name}, jemalloc");
    assert_eq!(jemalloc.peak, (None, None), "{name}, jemalloc");
}

#[test]
fn real_programs_have_the_same_totals_in_all_profilers() {
    let folder = Folder::new();
    programs(&folder).iter().for_each(agree);
}

/// The variables that a program gets, in the order of their names.
fn variables(mut command: Command) -> BTreeMap<String, String> {
    let done = command.arg("/usr/bin/env").arg("-0").output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Perl copies its environment, and profilers add variables to it. A recording of Perl with the variables that Valgrind
/// sets has the totals of DHAT.
#[test]
fn a_program_that_copies_its_environment_has_the_blocks_of_the_profilers_variables() {
    let script = "my %h; for my $i (1..3000) { push @{$h{$i % 50}}, 'y' x ($i % 200) } print scalar keys %h";
    let perl = Program::new("/usr/bin/perl").args(["-e", script]).env("PERL_HASH_SEED", "0").env("LC_ALL", "C");
    let (mut plain, mut under_valgrind) = (Command::new("/usr/bin/env"), Command::new("valgrind"));
    under_valgrind.args(["-q", "--tool=dhat", "--dhat-out-file=/dev/null"]);
    [&mut plain, &mut under_valgrind].into_iter().for_each(|command| perl.settings(command));
    let (plain, under_valgrind) = (variables(plain), variables(under_valgrind));
    let added = under_valgrind.into_iter().filter(|(name, value)| plain.get(name) != Some(value));
    // Another variable of the same length takes the place of LD_PRELOAD, whose libraries are only for Valgrind.
    let with_them = added.fold(perl.clone(), |perl, (name, value)| perl.env(&name.replace("LD_PRE", "LX_PRE"), value));

    let folder = Folder::new();
    let dhat = totals(&profilers::dhat(&perl, &folder));
    let [alone, with_them] = [perl, with_them].map(|program| totals(&program.recorded().trace));
    assert_eq!((dhat.all, dhat.peak, dhat.live), (with_them.all, with_them.peak, with_them.live));
    assert!(alone.all.0 < dhat.all.0, "{:?} {:?}", alone.all, dhat.all);
}
