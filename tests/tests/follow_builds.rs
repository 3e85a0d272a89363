//! `--follow`: a build of a C++ project by `make -j2`. Every program of it has the counts that DHAT has for it.
//!
//! Shells, make and the compiler drivers copy their environment, and Valgrind adds to the environment of every program. So
//! both runs get what Valgrind adds. And both get whole paths of programs, because Valgrind starts a program by its whole path.
use format::ProcessStart;
use heaptrack_tests::dhat::{self, Counts, One};
use heaptrack_tests::processes::processes;
use heaptrack_tests::replay::tree;
use heaptrack_tests::view::{total, view};
use heaptrack_tests::{Folder, Program, scale};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

/// Kinds of source files. `PART` is the number of the file. The one that `make test` compiles besides `main.cpp` is quick to compile, because
/// Valgrind is slow.
const KINDS: [&str; 4] = [
    "#include <vector>\n#include <algorithm>\n\
     int partPART(int seed) {\n\
     \x20   std::vector<int> all;\n\
     \x20   for (int i = 0; i < 100; i++) all.push_back(seed * i % 17);\n\
     \x20   std::sort(all.begin(), all.end());\n\
     \x20   return all[50];\n\
     }\n",
    "template <class T> struct Box { T value; Box *next; };\n\
     template <class T> T sum(const Box<T> *box) { return box ? box->value + sum(box->next) : T(); }\n\
     int partPART(int seed) {\n\
     \x20   Box<int> last{seed, nullptr}, first{PART, &last};\n\
     \x20   return sum(&first);\n\
     }\n",
    "#include <map>\n#include <string>\n\
     int partPART(int seed) {\n\
     \x20   std::map<std::string, int> all;\n\
     \x20   for (int i = 0; i < 100; i++) all[std::to_string(seed * i)] += i;\n\
     \x20   return static_cast<int>(all.size());\n\
     }\n",
    "#include <functional>\n#include <memory>\n\
     int partPART(int seed) {\n\
     \x20   auto shared = std::make_shared<int>(seed);\n\
     \x20   std::function<int(int)> add = [shared](int more) { return *shared + more; };\n\
     \x20   return add(PART);\n\
     }\n",
];

/// Writes a program of this many files, and `main.cpp` is one of them. dash would start commands with vfork, which Valgrind replaces
/// with fork, so what the child allocates in the memory of its parent is not seen there. bash forks.
fn write_project(folder: &Folder, files: usize) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("writable");
    let (mut objects, mut declared, mut sum) = (String::new(), String::new(), String::new());
    for number in 1..files {
        write(&format!("part{number}.cpp"), &KINDS[number % KINDS.len()].replace("PART", &number.to_string()));
        let _ = write!(objects, " part{number}.o");
        let _ = writeln!(declared, "int part{number}(int);");
        let _ = write!(sum, " + part{number}({number})");
    }
    write("main.cpp", &format!("#include <cstdio>\n{declared}int main() {{ std::printf(\"%d\\n\", 0{sum}); }}\n"));
    write(
        "Makefile",
        &format!(
            "SHELL = /bin/bash\nmain: main.o{objects}\n\t/usr/bin/g++ -o $@ $^\n\
             %.o: %.cpp\n\t/bin/mkdir -p made/$*; /usr/bin/g++ -O1 -c -o $@ $< && echo $@ > made/$*/name\n"
        ),
    );
}

/// What Valgrind adds to the environment of every program.
fn added_by_valgrind() -> Vec<String> {
    let valgrind = ["-q", "--tool=dhat", "--trace-children=yes", "--dhat-out-file=/dev/null"];
    let mut command = Command::new("valgrind");
    let output = command.args(valgrind).args(["/usr/bin/env", "-i", "/usr/bin/env"]).output().expect("valgrind");
    let text = String::from_utf8(output.stdout).expect("text");
    // If LD_PRELOAD is set already, Valgrind puts its own libraries and a colon in front of what remains of it.
    text.lines()
        .map(|line| if line.starts_with("LD_PRELOAD=") { format!("{line}:") } else { line.to_owned() })
        .collect()
}

/// A command without the folder of its program and without the names of temporary files.
fn key(command: &[String]) -> String {
    let mut words = command.iter().map(|word| {
        let temporary = word.find("/cc").filter(|_| word.contains("/tmp"));
        temporary.map_or(word.clone(), |at| word[..at].to_owned())
    });
    let first = words.next().unwrap_or_default();
    let name = first.rsplit('/').next().unwrap_or_default().to_owned();
    words.fold(name, |text, word| text + " " + &word)
}

/// GCC's garbage collector keeps a table of 32 KB for each 16 MB of addresses that its pages are in. So the number of tables depends on
/// where the kernel put the pages.
fn without_page_tables(counts: &Counts, tables: u64) -> Counts {
    let bytes = tables * 32 * 1024;
    Counts {
        allocations: counts.allocations - tables,
        allocated_bytes: counts.allocated_bytes - bytes,
        peak_allocations: counts.peak_allocations - tables,
        peak_bytes: counts.peak_bytes - bytes,
        leaked_allocations: counts.leaked_allocations - tables,
        leaked_bytes: counts.leaked_bytes - bytes,
    }
}

/// bash keeps the number of its parent as text, so its bytes depend on how many digits that number has.
fn without_bytes(counts: &Counts) -> Counts {
    Counts { allocated_bytes: 0, peak_bytes: 0, leaked_bytes: 0, ..*counts }
}

const MAKE: &str = "make -j2";

/// Makes two processes of the compiler comparable.
fn same_page_tables(ours: &mut Counts, theirs: &mut Counts) {
    let fewest = ours.allocations.min(theirs.allocations);
    for one in [ours, theirs] {
        let tables = one.allocations - fewest;
        if tables <= 2 {
            *one = without_page_tables(one, tables);
        }
    }
}

/// make gives its own stdin to one job at a time, and another file to a job that starts meanwhile. For that file, this function
/// allocates `REDIRECTION_BYTES`, which are freed when the job has started. So their number depends on when jobs end.
const REDIRECTS: &str = "posix_spawn_file_actions_adddup2";
const REDIRECTION_BYTES: u64 = 256;

fn without_redirections(counts: &Counts, blocks: u64) -> Counts {
    Counts {
        allocations: counts.allocations - blocks,
        allocated_bytes: counts.allocated_bytes - blocks * REDIRECTION_BYTES,
        ..*counts
    }
}

#[test]
fn a_build_has_the_totals_of_dhat() {
    let files = if scale::soak() { 30 } else { 2 };
    let folder = Folder::new();
    write_project(&folder, files);
    let program = Program::new("/usr/bin/env")
        .args(["-i", "PATH=/usr/bin:/bin"])
        .arg(format!("PWD={}", folder.path().display()))
        .args(added_by_valgrind())
        .args(["/usr/bin/make", "-j2"])
        .current_dir(folder.path());
    let mut expected: BTreeMap<String, Counts> = BTreeMap::new();
    for One { command, counts, blocks_of_function } in dhat::run_tree_with(&program, REDIRECTS) {
        let key = key(&command);
        assert!(blocks_of_function == 0 || key == MAKE, "{command:?}");
        let other = expected.insert(key, without_redirections(&counts, blocks_of_function));
        assert!(other.is_none(), "each command runs once: {command:?}");
    }
    let clean =
        Command::new("/bin/sh").arg("-c").arg("./main; rm -rf main made *.o").current_dir(folder.path()).output();
    let sum: String = String::from_utf8(clean.expect("a shell").stdout).expect("text");
    let outcome = program.option("--follow").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let main = Command::new(folder.join("main")).output().expect("the program was built");
    assert_eq!(String::from_utf8_lossy(&main.stdout), sum);
    let mut recorded: BTreeMap<String, Counts> = BTreeMap::new();
    for process in processes(&outcome.trace).values() {
        let end = process.end.expect("its end");
        if process.start != ProcessStart::Forked && !end.by_exec {
            let other = recorded.insert(key(&process.command), Counts::of_totals(&end.totals));
            assert!(other.is_none(), "each command runs once: {:?}", process.command);
        }
    }
    for (command, ours) in &mut recorded {
        if let Some(theirs) = expected.get_mut(command).filter(|_| command.starts_with("cc1plus ")) {
            same_page_tables(ours, theirs);
        }
        if let Some(theirs) = expected.get_mut(command).filter(|_| command.starts_with("bash ")) {
            (*ours, *theirs) = (without_bytes(ours), without_bytes(theirs));
        }
    }
    let redirections = view(&outcome.trace, "summary", &["--process", "make", "--include", REDIRECTS]);
    let make = recorded.get_mut(MAKE).expect("make");
    *make = without_redirections(make, total(&redirections, "allocations"));
    assert_eq!(
        total(&redirections, "allocated_bytes"),
        total(&redirections, "allocations") * REDIRECTION_BYTES,
        "{REDIRECTS}"
    );
    assert_eq!(recorded, expected, "left is ours, right is DHAT's");
    // Of each file: the shell, mkdir, the driver, the compiler and the assembler. Besides: make, the driver, collect2 and ld.
    assert_eq!(recorded.len(), 5 * files + 4);
    let summary = view(&outcome.trace, "summary", &[]);
    let peak = tree::peak(&outcome.trace);
    let found = (total(&summary, "peak_bytes"), total(&summary, "peak_allocations"), total(&summary, "peak_time_ns"));
    assert_eq!(found, (peak.bytes, peak.blocks, peak.ns), "left is the view's, right is the replay's");
    assert_eq!(summary["lost_events"].as_u64(), Some(0));
}
