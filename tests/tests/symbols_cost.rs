//! The memory that names cost, in the recorder and in `heaptrack symbolize`.
use heaptrack_tests::Folder;
use heaptrack_tests::run::heaptrack;
use std::path::Path;
use std::process::Command;

/// Python prints the highest memory use of its child and grandchildren, in bytes.
const MEASURE: &str = "
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, code)
";

/// Allocates from many places in the interpreter.
const JOB: &str = "
import json, re, decimal, collections, argparse, email, logging
text = json.dumps([{'name': str(i), 'tags': list(range(i % 7))} for i in range(2000)])
for _ in range(3): json.loads(text)
";

/// The highest resident size of any process that the command starts.
fn peak(command: &[&std::ffi::OsStr], folder: &Path) -> u64 {
    let mut measured = Command::new("/usr/bin/python3");
    measured.current_dir(folder).args(["-c", MEASURE]).args(command).env("PYTHONMALLOC", "malloc");
    let output = measured.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = said.split_whitespace();
    let bytes = words.next().and_then(|word| word.parse().ok());
    assert_eq!(words.next(), Some("0"), "{said} {}", String::from_utf8_lossy(&output.stderr));
    bytes.unwrap()
}

/// The recorder may use 64 MB and 40 bytes for each live block, including names. Debian's debug information of python3
/// and libc, which the tests install, is 25 MB when unpacked.
#[test]
fn names_fit_into_the_recorders_memory() {
    let folder = Folder::new();
    let binary = heaptrack().canonicalize().unwrap();
    let program = ["/usr/bin/python3".as_ref(), "-c".as_ref(), JOB.as_ref()];
    let alone = peak(&program, folder.path());
    let options = ["-o".as_ref(), "t.htz".as_ref()];
    let recorded = peak(&[&[binary.as_os_str()], &options[..], &program[..]].concat(), folder.path());
    // As text, because the JSON of all stacks of all imports has a hundred megabytes.
    let print = Command::new(&binary).args(["print", "--full"]).arg(folder.join("t.htz")).output().unwrap();
    let report = String::from_utf8_lossy(&print.stdout).into_owned();
    let lines: Vec<&str> = report.lines().map(str::trim_start).collect();
    let is_named = |pair: &[&str]| {
        pair.concat().contains("_PyEval_EvalFrameDefault") && pair.concat().contains("/Python/ceval.c:")
    };
    assert!(lines.windows(2).any(is_named), "the debug information was read: {report}");
    let line = lines.iter().find_map(|line| line.strip_prefix("blocks at the peak: ")).unwrap();
    let blocks = line.split(',').next().and_then(|number| number.parse::<u64>().ok());
    let bound = (64 << 20) + 40 * blocks.unwrap();
    assert!(alone < bound, "the program itself takes more: {alone}");
    assert!(recorded <= bound, "{recorded} of {bound} bytes");
    // Afterwards with `symbolize`, for a trace without names.
    let options = ["-o".as_ref(), "plain.htz".as_ref(), "--no-symbols".as_ref()];
    peak(&[&[binary.as_os_str()], &options[..], &program[..]].concat(), folder.path());
    let later = peak(&[binary.as_os_str(), "symbolize".as_ref(), "plain.htz".as_ref()], folder.path());
    assert!(later <= 64 << 20, "{later} bytes");
}
