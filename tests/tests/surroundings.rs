//! A program inherits exactly the same environment, descriptors, signals and limits with heaptrack as without it.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program, Report, process};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `surroundings` in unusual surroundings (`kinds`), after `prefix`, and returns what it wrote down. Its standard
/// streams are /dev/null in both runs, because the number of a pipe differs each time.
fn written(folder: &Folder, kinds: &str, prefix: &[OsString], rest: &[&str]) -> String {
    written_by("surroundings", folder, kinds, prefix, rest)
}

/// As `written`, by another build of the program.
fn written_by(name: &str, folder: &Folder, kinds: &str, prefix: &[OsString], rest: &[&str]) -> String {
    let out = folder.join("out");
    let _ = std::fs::remove_file(&out);
    let mut command = Command::new(target("surroundings"));
    command.arg("launch").arg(kinds).args(prefix).arg(target(name)).arg(&out).args(rest);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert_eq!(process::code(status), 9, "{command:?}");
    std::fs::read_to_string(&out).expect("what the program wrote down")
}

fn recorder(trace: &Path) -> Vec<OsString> {
    [heaptrack().as_os_str(), "-o".as_ref(), trace.as_os_str(), "--".as_ref()].map(OsString::from).into()
}

/// Asserts that nothing differs, and that every image was recorded.
fn assert_same(kinds: &str, rest: &[&str]) -> String {
    let folder = Folder::new();
    let trace = folder.join("trace.htz");
    let alone = written(&folder, kinds, &[], rest);
    let recorded = written(&folder, kinds, &recorder(&trace), rest);
    assert_eq!(recorded, alone, "{kinds} {rest:?}");
    let images = alone.matches("\n--\n").count() as u64;
    assert_eq!(images, 1 + rest.len() as u64);
    assert_eq!(Report::of(&trace).of_size(4321).allocations, 3 * images, "{kinds} {rest:?}");
    alone
}

/// A static program gets nothing of us into its environment, not even for a moment, and no descriptor stays.
#[test]
fn a_static_program_has_the_same_surroundings() {
    let (folder, name) = (Folder::new(), "surroundings_static");
    let trace = folder.join("trace.htz");
    let descriptors = ["close:0", "close:1+2", "close:0+1+2"];
    for kinds in ENVIRONMENTS.into_iter().chain(descriptors) {
        let alone = written_by(name, &folder, kinds, &[], &[]);
        assert_eq!(written_by(name, &folder, kinds, &recorder(&trace), &[]), alone, "{kinds}");
        assert_eq!(Report::of(&trace).of_size(4321).allocations, 3, "{kinds}");
    }
}

const ENVIRONMENTS: [&str; 5] = ["empty", "twice", "bare", "many", "bare,twice,set:HEAPTRACK_CHANNEL=mine,many"];

#[test]
fn the_environment_keeps_its_order_duplicates_and_odd_entries() {
    for kinds in ENVIRONMENTS {
        assert_same(kinds, &[]);
    }
    let text = assert_same("twice,bare", &[]);
    for entry in ["<B=1>\nentry <A=>\nentry <B=2>\nentry <B=1>", "<no_equals_sign>\nentry <>\nentry <=nameless>"] {
        assert!(text.contains(entry), "the precondition of this test does not hold: {text}");
    }
}

#[test]
fn the_environment_stays_the_same_after_an_exec_in_place() {
    for kinds in ENVIRONMENTS {
        assert_same(kinds, &["exec"]);
    }
    assert_same("twice", &["execenv"]);
}

#[test]
fn libraries_that_the_user_preloads_stay() {
    let bump = target("libbump.so");
    let bump = bump.display();
    let one = format!("set:LD_PRELOAD={bump}");
    for kinds in [
        one.clone(),
        format!("{one},set:X=,set:LD_PRELOAD=,set:Y="),
        format!("set:LD_PRELOAD=,{one},{one}"),
        format!("{one}:{bump},set:LD_PRELOAD={bump} {bump}"),
    ] {
        assert_same(&kinds, &[]);
        assert_same(&kinds, &["exec"]);
        assert_same(&kinds, &["execenv"]);
    }
}

#[test]
fn closed_descriptors_stay_closed_and_none_of_ours_is_seen() {
    for numbers in ["0", "1", "2", "0+1", "1+2", "0+2", "0+1+2"] {
        let text = assert_same(&format!("close:{numbers}"), &["exec"]);
        let is_standard = |line: &&str| (0..3).any(|number| line.starts_with(&format!("descriptor {number} ")));
        let open = text.split("\n--\n").next().unwrap().lines().filter(is_standard).count();
        assert_eq!(open, 3 - numbers.split('+').count(), "the precondition of this test does not hold: {text}");
    }
}

#[test]
fn signals_are_ignored_and_blocked_as_before() {
    let all: Vec<String> = (1..=64).filter(|number| ![9, 19].contains(number)).map(|n| n.to_string()).collect();
    let all = all.join("+");
    for kinds in ["ignore:13", "ignore:2+3", "block:10+32+33+64"] {
        assert_same(kinds, &["exec"]);
    }
    let text = assert_same(&format!("ignore:{all},block:{all}"), &["exec"]);
    assert!(text.contains("signal 32 ignored") && text.contains("blocked fffffffffffbfeff"), "{text}");
}

/// Under `heaptrace` nothing differs except the handlers of its signals.
#[test]
fn under_heaptrace_only_its_signals_differ() {
    let prefix = [heaptrack().as_os_str(), "heaptrace".as_ref()].map(OsString::from);
    let without_signals = |text: &str| {
        let keep = |line: &&str| !["signal 3 ", "signal 10 ", "signal 12 "].iter().any(|name| line.starts_with(name));
        text.lines().filter(keep).map(str::to_owned).collect::<Vec<_>>()
    };
    for kinds in unusual() {
        for rest in [&[][..], &["exec"]] {
            let folder = Folder::new();
            let alone = written(&folder, &kinds, &[], rest);
            let watched = written(&folder, &kinds, &prefix, rest);
            assert_eq!(without_signals(&watched), without_signals(&alone), "{kinds} {rest:?}");
        }
    }
}

/// Surroundings in which a program starts with few or unusual variables, descriptors and signals.
fn unusual() -> [String; 6] {
    let preloaded = format!("set:A=1,set:LD_PRELOAD={},set:B=2", target("libbump.so").display());
    ["empty", "twice,bare", "close:0+1+2", "ignore:2+13,block:64", "many", &preloaded].map(str::to_owned)
}

/// With `--follow`, too, and in a program that replaces another one.
#[test]
fn a_followed_program_has_the_same_surroundings() {
    for kinds in unusual() {
        for rest in [&[][..], &["exec"], &["execenv"]] {
            let folder = Folder::new();
            let trace = folder.join("trace.htz");
            let mut prefix = recorder(&trace);
            prefix.insert(1, "--follow".into());
            let alone = written(&folder, &kinds, &[], rest);
            assert_eq!(written(&folder, &kinds, &prefix, rest), alone, "{kinds} {rest:?}");
            let images = alone.matches("\n--\n").count() as u64;
            assert_eq!(Report::of(&trace).of_size(4321).allocations, 3 * images, "{kinds} {rest:?}");
        }
    }
}

/// Our variables are removed before any constructor runs, and not while a constructor changes the environment.
#[test]
fn a_constructor_that_sets_a_variable() {
    let outcome = Program::target("early_setenv").same_output();
    assert!(outcome.stdout.contains("SET_EARLY=yes\n"), "{}", outcome.stdout);
}
