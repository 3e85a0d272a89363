//! One program that is built several times, each time in another folder, with its lines moved, and with some of its
//! files changed.
use crate::targets::sources;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The two versions of the program.
#[derive(Clone, Copy)]
pub enum Version {
    Before,
    After,
}

/// How often a function is called, and how many bytes it keeps per call.
type Calls = (u32, u32);

/// The file is not in this version.
const ABSENT: Calls = (0, 0);

/// A source file with one static function.
struct Part {
    file: &'static str,
    function: &'static str,
    /// In each version.
    calls: [Calls; 2],
    /// True for the versions in which it is compiled with debug information.
    debug: [bool; 2],
}

const fn part(file: &'static str, function: &'static str, before: Calls, after: Calls) -> Part {
    Part { file, function, calls: [before, after], debug: [true; 2] }
}

/// `make` is in two files, and later in three. `grow` is in two files with the same name. One file is renamed, one has
/// debug information only in the later version, one is removed, and one is new.
const PARTS: &[Part] = &[
    part("green.c", "make", ABSENT, (4, 25)),
    part("red.c", "make", (3, 100), (5, 100)),
    part("blue.c", "make", (7, 1000), (4, 1000)),
    part("net/pool.c", "grow", (6, 10), (6, 20)),
    part("gui/pool.c", "grow", (8, 30), (1, 30)),
    part("old.c", "keep", (9, 11), ABSENT),
    part("new.c", "keep", ABSENT, (9, 12)),
    Part { debug: [false, true], ..part("bare.c", "bare", (13, 17), (13, 18)) },
    part("leave.c", "leave", (5, 40), ABSENT),
    part("arrive.c", "arrive", ABSENT, (5, 41)),
];

/// The changes between the two versions, largest first: function, file in the later version (or in the earlier one if
/// it was removed), bytes before and after.
pub const CHANGES: &[(&str, &str, [i64; 2])] = &[
    ("make", "blue.c", [7000, 4000]),
    ("grow", "gui/pool.c", [240, 30]),
    ("arrive", "arrive.c", [0, 205]),
    ("make", "red.c", [300, 500]),
    ("leave", "leave.c", [200, 0]),
    ("make", "green.c", [0, 100]),
    ("grow", "net/pool.c", [60, 120]),
    ("bare", "bare.c", [221, 234]),
    ("keep", "new.c", [99, 108]),
];

/// Builds the program in `folder`, with all its code moved down by `lines` lines.
pub fn build(folder: &Path, version: Version, lines: usize) -> PathBuf {
    let program = folder.join("twins");
    let version = version as usize;
    let parts: Vec<&Part> = PARTS.iter().filter(|part| part.calls[version] != ABSENT).collect();
    let entry = |part: &Part| part.file.replace(['/', '.'], "_");
    let calls: String = parts.iter().map(|part| format!("CALL({}) ", entry(part))).collect();
    let main = copy("twins.c", folder, "main.c", lines);
    let mut objects = vec![compile(&main, &["-g", &format!("-DENTRIES={calls}")])];
    for part in parts {
        let source = copy("twins_part.c", folder, part.file, lines);
        let (function, (count, size)) = (part.function, part.calls[version]);
        let words = format!("-DMAKE={function} -DENTRY={} -DCOUNT={count} -DSIZE={size}", entry(part));
        let words: Vec<&str> = words.split(' ').chain(part.debug[version].then_some("-g")).collect();
        objects.push(compile(&source, &words));
    }
    let linked = Command::new("cc").arg("-o").arg(&program).args(&objects).status();
    assert!(linked.expect("cc runs").success());
    program
}

fn copy(template: &str, folder: &Path, file: &str, lines: usize) -> PathBuf {
    let path = folder.join(file);
    std::fs::create_dir_all(path.parent().expect("is in a folder")).expect("a folder for sources");
    let text = std::fs::read_to_string(sources().join(template)).expect("a source");
    std::fs::write(&path, "\n".repeat(lines) + &text).expect("a source is written");
    path
}

fn compile(source: &Path, words: &[&str]) -> PathBuf {
    let object = source.with_extension("o");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-c"]).args(words).arg(source).arg("-o").arg(&object);
    assert!(compiler.status().expect("cc runs").success(), "{compiler:?}");
    object
}
