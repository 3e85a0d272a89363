//! `cargo heaptrack`: a crate is built, run and tested by cargo itself, and each executable is recorded.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::{Folder, Report, process};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A copy of `examples/ci/words`, in a folder with a space in its name, because cargo gets our own path as well.
struct Crate {
    folder: Folder,
}

impl Crate {
    fn new() -> Self {
        let made = Crate { folder: Folder::new() };
        for file in ["Cargo.toml", "src/lib.rs", "src/main.rs", "tests/many.rs"] {
            let to = made.path(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(workspace().join("examples/ci/words").join(file), to).unwrap();
        }
        std::os::unix::fs::symlink(heaptrack().canonicalize().unwrap(), made.folder.join("cargo-heaptrack")).unwrap();
        made
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.join("a crate").join(file)
    }

    fn run(&self, words: &[&str]) -> Output {
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let mut cargo = Command::new("cargo");
        // The rustup of the tests has chosen a toolchain already.
        cargo.args(words).current_dir(self.path("")).env("PATH", path).env_remove("CARGO_TARGET_DIR");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_") && name != "CARGO_HOME") {
            cargo.env_remove(name);
        }
        // A backtrace of a failing test takes more memory than the test.
        cargo.env_remove("RUSTFLAGS").env("RUST_BACKTRACE", "0").output().expect("cargo")
    }

    /// Runs `cargo heaptrack`. Returns the exit code, and stdout and stderr.
    fn heaptrack(&self, words: &[&str]) -> (i32, String, String) {
        let words: Vec<&str> = ["heaptrack"].iter().chain(words).copied().collect();
        let output = self.run(&words);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (process::code(output.status), text(&output.stdout), text(&output.stderr))
    }

    fn trace(&self, name: &str) -> std::path::PathBuf {
        self.path("target/heaptrack/words").join(name)
    }
}

fn has_frame(trace: &Path, function: &str, file: &str) -> bool {
    let report = Report::of(trace);
    report.json()["allocations"].as_array().unwrap().iter().any(|site| {
        site["frames"].as_array().unwrap().iter().any(|frame| {
            frame["function"] == function && frame["file"].as_str().is_some_and(|path| path.ends_with(file))
        })
    })
}

#[test]
fn a_regression_is_caught_and_without_it_the_check_passes() {
    let words = Crate::new();
    let (code, out, said) = words.heaptrack(&["check", "--quiet"]);
    assert_eq!(code, 0, "{out}{said}");
    assert!(out.ends_with("\n5 budgets kept\n"), "{out}");
    let (code, out, said) = words.heaptrack(&["check", "--quiet", "--features", "keep", "--to", "json"]);
    assert_eq!(code, 1, "{out}{said}");
    let json: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let broken: Vec<(String, String)> = json["files"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|file| file["budgets"].as_array().unwrap().iter().map(move |budget| (file, budget)))
        .filter(|(_, budget)| budget["state"] == "broken")
        .map(|(file, budget)| (file["file"].as_str().unwrap().to_owned(), budget["name"].as_str().unwrap().to_owned()))
        .collect();
    let many = "target/heaptrack/words/many.htz".to_owned();
    assert_eq!(broken, [(many.clone(), "peak".to_owned()), (many, "peak of words::count".to_owned())]);
    // The traces of the last run are judged again, without cargo test.
    let (code, out, _) = words.heaptrack(&["check", "--last"]);
    assert!(code == 1 && !out.contains("running 1 test") && out.contains("limit from Cargo.toml:14\n"), "{out}");
}

#[test]
fn exit_codes_and_output_are_those_of_cargo() {
    let words = Crate::new();
    let main = "fn main() {\n    let text = std::env::args().nth(1).unwrap();\n    println!(\"got {text}\");\n    std::process::exit(7);\n}\n";
    fs::write(words.path("src/main.rs"), main).unwrap();
    let (code, out, said) = words.heaptrack(&["run", "--release", "--", "a b"]);
    assert_eq!((code, out.as_str()), (7, "got a b\n"), "{said}");
    assert!(said.contains("heaptrack: ") && said.contains(" allocations ("), "{said}");
    // The release has lines, although its profile has none.
    assert!(has_frame(&words.trace("words.htz"), "words::main", "src/main.rs"));
    let plain = words.run(&["run", "--quiet", "--", "a b"]);
    let (code, out, said) = words.heaptrack(&["run", "--quiet", "--", "a b"]);
    assert_eq!((code, out.as_bytes(), said.as_bytes()), (7, &plain.stdout[..], &plain.stderr[..]));

    let test = "#[test]\nfn fails() {\n    assert_eq!(words::count(1), 3);\n}\n#[test]\nfn passes() {}\n";
    fs::write(words.path("tests/many.rs"), test).unwrap();
    let (code, out, _) = words.heaptrack(&["test", "--test", "many"]);
    assert_eq!(code, 101);
    assert!(out.contains("1 passed; 1 failed"), "{out}");
    let (code, out, _) = words.heaptrack(&["test", "--test", "many", "--", "passes"]);
    assert_eq!(code, 0);
    assert!(out.contains("1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out"), "{out}");
    // A failed test is a failure, whatever the budgets say.
    let (code, out, _) = words.heaptrack(&["check", "--test", "many"]);
    assert_eq!(code, 101);
    assert!(out.ends_with("budgets kept\n"), "{out}");
    assert_eq!(words.heaptrack(&["test", "--no-such-option"]).0, 1, "as cargo's");
}

/// `cargo bench` builds for speed and without debug information, and gives each executable the word `--bench`.
#[test]
fn benchmarks_are_recorded() {
    let words = Crate::new();
    let manifest = fs::read_to_string(words.path("Cargo.toml")).unwrap();
    fs::write(words.path("Cargo.toml"), manifest + "\n[[bench]]\nname = \"boxes\"\nharness = false\n").unwrap();
    fs::create_dir_all(words.path("benches")).unwrap();
    let bench = "#[inline(never)]\nfn make() {\n    std::hint::black_box(Box::new([0u8; 333]));\n}\nfn main() {\n    (0..50).for_each(|_| make());\n    \
                 println!(\"{} {:?}\", words::count(10), std::env::args().skip(1).collect::<Vec<_>>());\n}\n";
    fs::write(words.path("benches/boxes.rs"), bench).unwrap();
    let (code, out, said) = words.heaptrack(&["bench", "--bench", "boxes", "--", "a b"]);
    assert_eq!((code, out.as_str()), (0, "20 [\"a b\", \"--bench\"]\n"), "{said}");
    let plain = words.run(&["bench", "--bench", "boxes", "--", "a b"]);
    assert_eq!(String::from_utf8_lossy(&plain.stdout), out);
    let trace = words.trace("boxes.htz");
    assert_eq!(Report::of(&trace).counts(333), (50, 0));
    assert!(has_frame(&trace, "boxes::make", "benches/boxes.rs"));
    // Another one fails, and its exit code is cargo's.
    fs::write(words.path("benches/boxes.rs"), "fn main() {\n    std::process::exit(3);\n}\n").unwrap();
    let failed = [
        words.heaptrack(&["bench", "--bench", "boxes"]).0,
        process::code(words.run(&["bench", "--bench", "boxes"]).status),
    ];
    assert_eq!(failed, [3, 3]);
}

#[test]
fn mistakes_in_budgets_are_found_before_tests_run() {
    let words = Crate::new();
    let manifest = fs::read_to_string(words.path("Cargo.toml")).unwrap();
    let with = |old: &str, new: &str| fs::write(words.path("Cargo.toml"), manifest.replace(old, new)).unwrap();
    with("max-peak = \"100k\"", "max-peek = \"100k\"");
    let (code, out, said) = words.heaptrack(&["check"]);
    assert_eq!((code, out.as_str()), (2, ""));
    let expected = "Cargo.toml:14: `max-peek` is not a key of [package.metadata.heaptrack]; its keys are max-peak, ";
    assert!(said.contains(expected), "{said}");
    // A package that has no budget of its own has that of the workspace.
    with("[workspace]\n", "[workspace.metadata.heaptrack]\nmax-allocations = 5\nmax-peak = 1\n");
    let (code, out, said) = words.heaptrack(&["check", "--quiet", "--test", "many"]);
    assert_eq!(code, 1, "{said}");
    assert!(out.contains("BROKEN   allocations: ") && out.contains("kept     peak: "), "{out}");
    let start = manifest.find("[package.metadata").unwrap();
    fs::write(words.path("Cargo.toml"), &manifest[..start]).unwrap();
    let (code, _, said) = words.heaptrack(&["check", "--last"]);
    assert_eq!(code, 2);
    assert!(said.contains("there is nothing to check: no package has budgets"), "{said}");
    fs::remove_dir_all(words.path("target/heaptrack")).unwrap();
    let (code, _, said) = words.heaptrack(&["check", "--last"]);
    assert_eq!(code, 2);
    assert!(said.contains("there are no traces in "), "{said}");
}
