//! The plugin for pytest in `python/`: installed with pip, each test has its own numbers, and a broken budget fails its test.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::workspace;
use heaptrack_tests::{Folder, process, view};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The folder into which pip installed the plugin from the tree. The build writes files beside the sources, so they are copied.
fn plugin() -> &'static PathBuf {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let folder = workspace().join("target/pytest-heaptrack");
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(folder.join("source")).unwrap();
        for file in ["pyproject.toml", "README.md", "pytest_heaptrack.py"] {
            fs::copy(workspace().join("python").join(file), folder.join("source").join(file)).unwrap();
        }
        let target = folder.join("installed");
        let mut pip = Command::new("/usr/bin/python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]);
        pip.args(["--disable-pip-version-check", "--root-user-action", "ignore", "--target"]).arg(&target);
        pip.arg(folder.join("source")).env("PYTHONPATH", workspace().join("target/python-tools"));
        let output = pip.output().expect("pip");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target
    })
}

struct Suite {
    folder: Folder,
}

impl Suite {
    fn new(tests: &str) -> Self {
        let suite = Suite { folder: Folder::new() };
        fs::write(suite.folder.join("test_it.py"), tests).unwrap();
        fs::create_dir(suite.folder.join("bin")).unwrap();
        std::os::unix::fs::symlink(heaptrack().canonicalize().unwrap(), suite.folder.join("bin/heaptrack")).unwrap();
        suite
    }

    /// The suite of docs/ci.md.
    fn example() -> Self {
        let suite = Suite::new("");
        fs::remove_file(suite.folder.join("test_it.py")).unwrap();
        for file in ["words.py", "test_words.py"] {
            fs::copy(workspace().join("examples/ci/suite").join(file), suite.folder.join(file)).unwrap();
        }
        suite
    }

    /// Runs pytest. Returns its exit code and what it printed.
    fn pytest(&self, words: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
        let path = format!("{}:{}", self.folder.join("bin").display(), std::env::var("PATH").unwrap());
        let packages = format!("{}:{}", plugin().display(), workspace().join("target/python-tools").display());
        let mut pytest = Command::new("/usr/bin/python3");
        pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]).args(words).current_dir(self.folder.path());
        pytest.env("PATH", path).env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = pytest.envs(environment.iter().copied()).output().expect("pytest");
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        (process::code(output.status), String::from_utf8_lossy(&said).into_owned())
    }
}

#[test]
fn a_regression_fails_its_test_and_without_it_the_suite_passes() {
    let suite = Suite::example();
    let (code, said) = suite.pytest(&["--heaptrack"], &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("2 passed") && said.contains("test_words.py::test_a_thousand_lines\n"), "{said}");
    let trace = suite.folder.join(".pytest_heaptrack/pytest.htz");
    // All stacks of pytest would be gigabytes of JSON.
    let report = view::text(&trace, &["--json", "--limit", "1", "--depth", "1"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&report).unwrap()["complete"], true);
    let (code, said) = suite.pytest(&["--heaptrack", "--junitxml=r.xml"], &[("KEEP", "1")]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("1 failed, 1 passed"), "{said}");
    assert!(
        said.contains("\nheap budget broken: peak is 1.") && said.contains(" MB, above the limit of 100.0 kB\n"),
        "{said}"
    );
    assert!(said.contains("\nheap budget broken: leaked is 1.") && said.contains("MB  "), "{said}");
    // pytest's own result file has the failure as well.
    let script = "import sys\nfrom junitparser import JUnitXml\nsuite, = JUnitXml.fromfile(sys.argv[1])\nprint(suite.tests, suite.failures)";
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script]).arg(suite.folder.join("r.xml"));
    let output = python.env("PYTHONPATH", workspace().join("target/python-tools")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2 1\n");
    // Without heaptrack, budgets are not checked.
    assert_eq!(suite.pytest(&[], &[("KEEP", "1")]).0, 0);
}

/// Blocks of known sizes, taken with malloc itself.
const KNOWN: &str = r#"
import ctypes, threading, unittest, pytest
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]

def take(count, size, keep=0):
    blocks = (ctypes.c_void_p * count)()
    for at in range(count):
        blocks[at] = libc.malloc(size)
    for at in range(keep, count):
        libc.free(blocks[at])

def test_before():
    pass

def test_peak():
    take(100, 50000)

def test_between():
    pass

def test_kept():
    take(100, 70000, keep=10)

def test_thread():
    threads = [threading.Thread(target=take, args=(100, 30000, 5)) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()

class Old(unittest.TestCase):
    def test_old(self):
        take(10, 90000)

def test_after():
    pass
"#;

#[test]
fn each_test_has_its_own_numbers() {
    let suite = Suite::new(KNOWN);
    let (code, said) = suite.pytest(&["--heaptrack", "--heaptrack-top=20"], &[]);
    assert_eq!(code, 0, "{said}");
    let helper = suite.folder.join(".pytest_heaptrack/pytest.htz");
    // The tests are numbered in their order; the marks of the N-th one are 2 N and 2 N + 1.
    let mut sections = Command::new(heaptrack());
    sections.arg("test-sections").arg(&helper).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = sections.spawn().unwrap();
    let requests: String = (0..7).map(|test| format!("{{\"from\":{},\"to\":{}}}\n", 2 * test, 2 * test + 1)).collect();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), requests.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let answers: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Peak, kept bytes and blocks of each test. The second thread of `test_thread` begins when the first one has freed all but
    // 5 blocks.
    let known = [
        (0, 0, 0),
        (5_000_000, 0, 100),
        (0, 0, 0),
        (7_000_000, 700_000, 100),
        (3_150_000, 300_000, 200),
        (900_000, 0, 10),
        (0, 0, 0),
    ];
    for (answer, (peak, leaked, allocations)) in answers.iter().zip(known) {
        let number = |name: &str| answer[name].as_u64().unwrap_or_else(|| panic!("{answer}"));
        // The objects of Python that `take` and a thread need. An empty test has only those of pytest.
        let (more_bytes, more_allocations) = if allocations == 0 { (1_000, 60) } else { (25_000, 2_000) };
        assert!((peak..peak + more_bytes).contains(&number("peak_bytes")), "{answer}");
        assert!((leaked..leaked + more_bytes).contains(&number("leaked_bytes")), "{answer}");
        assert!((allocations..allocations + more_allocations).contains(&number("allocations")), "{answer}");
    }
    assert_eq!(answers.len(), 7);
    assert!(said.contains("    7.0 MB ") && said.contains("test_it.py::test_kept\n"), "{said}");
}

#[test]
fn failures_are_those_of_pytest() {
    let tests = "import pytest\n\
        @pytest.mark.xfail(strict=True)\n@pytest.mark.heap_budget('1kB')\ndef test_expected():\n    bytearray(100_000)\n\
        @pytest.mark.heap_budget('1MB', allocations=10_000)\ndef test_fails_itself():\n    assert 1 == 2\n\
        @pytest.mark.heap_budget(allocations=500)\ndef test_many():\n    [object() for _ in range(1000)]\n\
        def test_not_reached():\n    pass\n";
    let suite = Suite::new(tests);
    let (code, said) = suite.pytest(&["--heaptrack", "--maxfail=2"], &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("assert 1 == 2") && said.contains("2 failed, 1 xfailed"), "{said}");
    assert!(
        said.contains("heap budget broken: allocations is 1") && said.contains(", above the limit of 500\n"),
        "{said}"
    );
    assert!(said.contains("stopping after 2 failures"), "{said}");
}

#[test]
fn wrong_usage_is_an_error() {
    for (marker, expected) in [
        ("'10Q'", "'10Q' is not a valid size"),
        ("peek=3", "heap_budget has no peek; it has peak, leaked, allocations, temporary"),
        ("", "heap_budget needs a limit"),
        ("allocations='4Ki'", "'4Ki' is not a valid number"),
        ("'1MB', '2MB'", "one limit without a name"),
        ("-1", "-1 is not a valid size"),
    ] {
        let suite =
            Suite::new(&format!("import pytest\n@pytest.mark.heap_budget({marker})\ndef test_it():\n    pass\n"));
        let (code, said) = suite.pytest(&[], &[]);
        assert_eq!(code, 4, "{marker}: {said}");
        assert!(said.contains("test_it.py::test_it: heap_budget") && said.contains(expected), "{marker}: {said}");
    }
    let suite = Suite::new("def test_it():\n    pass\n");
    let (code, said) = suite.pytest(&["--heaptrack", "-n", "2"], &[]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("--heaptrack cannot be combined with -n"), "{said}");
    assert_eq!(suite.pytest(&["--heaptrack", "-n", "0"], &[]).0, 0);
    let (code, said) = suite.pytest(&["--heaptrack", "--heaptrack-binary=no-such-program"], &[]);
    assert!(code == 4 && said.contains("cannot find no-such-program"), "{said}");
    assert_eq!(suite.pytest(&["--heaptrack", "no_such_test.py"], &[]).0, 4);
}
