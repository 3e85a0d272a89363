//! One program that is built several times, each time in another folder, with its lines moved, and with some of its
//! files changed.
use crate::targets::sources;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A source file with one static function, which is called `count` times and keeps `size` bytes per call.
pub struct Part {
    pub file: &'static str,
    pub function: &'static str,
    pub count: u32,
    pub size: u32,
    /// True if it is compiled with debug information.
    debug: bool,
}

const fn part(file: &'static str, function: &'static str, count: u32, size: u32) -> Part {
    Part { file, function, count, size, debug: true }
}

/// `make` is in two files. `grow` is in two files with the same name.
pub const BEFORE: &[Part] = &[
    part("red.c", "make", 3, 100),
    part("blue.c", "make", 7, 1000),
    part("net/pool.c", "grow", 6, 10),
    part("gui/pool.c", "grow", 8, 30),
    part("old.c", "keep", 9, 11),
    Part { debug: false, ..part("bare.c", "bare", 13, 17) },
    part("leave.c", "leave", 5, 40),
];

/// A third `make`, a renamed file, a file that now has debug information, a removed file and a new one.
pub const AFTER: &[Part] = &[
    part("green.c", "make", 4, 25),
    part("red.c", "make", 5, 100),
    part("blue.c", "make", 4, 1000),
    part("net/pool.c", "grow", 6, 20),
    part("gui/pool.c", "grow", 1, 30),
    part("new.c", "keep", 9, 12),
    part("bare.c", "bare", 13, 18),
    part("arrive.c", "arrive", 5, 41),
];

/// The changes between the two builds, largest first: function, file in the later build (or in the earlier one if it
/// was removed), bytes before and after.
pub const CHANGES: &[(&str, &str, i64, i64)] = &[
    ("make", "blue.c", 7000, 4000),
    ("grow", "gui/pool.c", 240, 30),
    ("arrive", "arrive.c", 0, 205),
    ("make", "red.c", 300, 500),
    ("leave", "leave.c", 200, 0),
    ("make", "green.c", 0, 100),
    ("grow", "net/pool.c", 60, 120),
    ("bare", "bare.c", 221, 234),
    ("keep", "new.c", 99, 108),
];

/// Builds the program in `folder`, with all its code moved down by `lines` lines.
pub fn build(folder: &Path, parts: &[Part], lines: usize) -> PathBuf {
    let program = folder.join("twins");
    let entry = |part: &Part| part.file.replace(['/', '.'], "_");
    let calls: String = parts.iter().map(|part| format!("CALL({}) ", entry(part))).collect();
    let main = copy("twins.c", folder, "main.c", lines);
    let mut objects = vec![compile(&main, &["-g", &format!("-DENTRIES={calls}")])];
    for part in parts {
        let source = copy("twins_part.c", folder, part.file, lines);
        let Part { function, count, size, .. } = part;
        let words = format!("-DMAKE={function} -DENTRY={} -DCOUNT={count} -DSIZE={size}", entry(part));
        let words: Vec<&str> = words.split(' ').chain(part.debug.then_some("-g")).collect();
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
