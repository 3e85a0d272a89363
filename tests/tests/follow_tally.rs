//! `--follow`: trees of real programs. They say what they say alone, and every process has the calls that a preloaded library
//! counted in it, whether it was forked or executed a program.
use heaptrack_tests::folder::copy_program;
use heaptrack_tests::processes::processes;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::tally::Tally;
use heaptrack_tests::targets::target;
use heaptrack_tests::view::view;
use heaptrack_tests::{Folder, Outcome, Program, scale};
use std::path::Path;
use std::process::Command;

/// Shell scripts: a name, the text, and the fewest entries that the tree has.
const TREES: &[(&str, &str, usize)] = &[
    ("find", "find /etc -maxdepth 1 -name 'p*' -exec basename {} \\; | sort", 5),
    ("xargs", "seq 60 | xargs -P4 -n3 sh -c 'expr $1 + $2 + $3' x | sort", 42),
    (
        "make",
        "mkdir -p a/b; printf 'all:\\n\\t$(MAKE) -C a\\n\\t@echo top $(words $(shell ls /etc))\\n' > Makefile; \
         printf 'all:\\n\\t$(MAKE) -C b; echo a\\n' > a/Makefile; \
         printf 'all: x y z\\n%:\\n\\t@sleep 0.01; echo $@ | tr a-z A-Z\\n' > a/b/Makefile; make -s -j3 | sort",
        12,
    ),
    (
        "git",
        "git init -q g; cd g; for i in 1 2 3 4 5; do seq $i 999 > f; git add f; \
         git -c user.name=a -c user.email=a@b commit -qm $i; done; git gc --aggressive --prune=now -q; git fsck; \
         git log --oneline | wc -l; git repack -adq; git count-objects",
        40,
    ),
    (
        "perl",
        "perl -e 'use POSIX; my @k; for my $i (1..20) { my $p = fork; if (!$p) { my %h = map { $_ => \"x\" x $_ } 1..200; \
         if ($i % 3 == 0) { POSIX::_exit($i) } if ($i % 3 == 1) { exec \"echo\", \"$i\" } exit $i } push @k, $p } \
         for (@k) { waitpid($_, 0); print $? >> 8, \"\\n\" } print `uname`; open(P, \"-|\", \"seq 5\"); print <P>' | sort",
        30,
    ),
    (
        "ruby",
        "ruby -e 'all = (1..8).map { |i| fork { a = (1..500).map { |x| x.to_s * 10 }; exit!(i) if i.even?; exit(i) } }; \
         all.each { |p| Process.wait(p); puts $?.exitstatus }; puts `uname`; IO.popen(\"-\") { |io| io ? print(io.read) : puts(\"child\") }; \
         Process.daemon(true, true); exit 3'",
        12,
    ),
    // The workers end by themselves. One that is killed may be between a call and its count.
    (
        "multiprocessing",
        "printf '%s\\n' 'import multiprocessing as mp' 'def work(count): return sum(len(bytearray(1000 + n)) for n in range(count))' \
         'if __name__ == \"__main__\":' '    for method in (\"fork\", \"spawn\"):' '        pool = mp.get_context(method).Pool(3)' \
         '        print(method, sum(pool.map(work, range(40))))' '        pool.close()' '        pool.join()' > pools.py; \
         /usr/bin/python3 pools.py",
        8,
    ),
];

/// Compares the calls of all processes.
fn compare(name: &str, tally: &Tally, outcome: &Outcome, fewest: usize) {
    let (recorded, counted) = (Tally::recorded(&outcome.trace), tally.counted());
    assert_eq!(recorded, counted, "{name}: left is ours, right is the library's");
    let summary = view(&outcome.trace, "summary", &[]);
    for kind in ["lost_events", "unknown_frees", "implied_frees"] {
        assert_eq!(summary[kind].as_u64(), Some(0), "{name}: {kind}");
    }
    let entries = processes(&outcome.trace).len();
    assert!(entries >= fewest, "{name}: {entries} entries");
}

#[test]
fn every_process_has_the_calls_that_a_library_counted_in_it() {
    for (name, script, fewest) in TREES {
        let (folder, other, tally) = (Folder::new(), Folder::new(), Tally::new());
        let alone = Program::new("/bin/sh").arg("-c").arg(script).current_dir(folder.path()).alone();
        let program = tally.program("/bin/sh").arg("-c").arg(script).current_dir(other.path());
        let outcome = program.option("--follow").option("--no-symbols").recorded();
        assert_eq!((outcome.code, &outcome.stdout), (alone.code, &alone.stdout), "{name}: {}", outcome.stderr);
        compare(name, &tally, &outcome, *fewest);
    }
}

/// The parent of a daemon ends at once, often before the recorder has seen the fork that made the parent.
#[test]
fn daemons_inherit_from_the_program_that_forked_them() {
    let (count, tally) = (scale::count(1_000) as usize, Tally::new());
    let program = tally.program(target("daemons")).arg(count.to_string());
    let outcome = program.option("--follow").option("--no-symbols").recorded();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    compare("daemons", &tally, &outcome, 2 + 2 * count);
    let all = processes(&outcome.trace);
    let daemons: Vec<_> =
        all.values().filter(|one| one.command == ["daemon"] && one.inherited_allocations > 0).collect();
    assert_eq!(daemons.len(), count);
    for daemon in daemons {
        let parent = &all[&daemon.parent.expect("a parent")];
        assert_eq!(
            (parent.command.as_slice(), daemon.inherited_allocations),
            (&["daemon".to_owned()][..], 50),
            "{daemon:?}"
        );
    }
}

const POSTGRES: &str = "set -eu\n\
    export PATH=/usr/lib/postgresql/15/bin:$PATH LC_ALL=C HOME=$PWD\n\
    initdb -A trust -U postgres -D data > initdb.log\n\
    printf \"listen_addresses = ''\\nunix_socket_directories = '$PWD'\\nlog_connections = on\\nlog_line_prefix = '%%p '\\nfsync = off\\n\" \
    >> data/postgresql.conf\n\
    ./heaptrack --follow --no-symbols -o trace.htz \"$@\" postgres -D data 2> log &\n\
    n=0; until psql -h $PWD -U postgres -c 'select 1' postgres > /dev/null 2>&1; do n=$((n + 1)); [ $n -lt 1000 ]; sleep 0.05; done\n\
    pgbench -h $PWD -U postgres -i -s 1 -q postgres 2> /dev/null\n\
    pgbench -h $PWD -U postgres -c 4 -j 2 -t 250 postgres 2>&1 | grep -E 'processed|failed'\n\
    pgbench -h $PWD -U postgres -C -c 2 -t 20 postgres 2>&1 | grep -E 'processed|failed'\n\
    pg_ctl -D data -m fast -w stop > /dev/null\n\
    wait $!; echo code $?\n";

/// Runs the script as a user that is not root, because postgres refuses to run as root.
fn as_user(folder: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new("/bin/sh");
    }
    let owned = Command::new("chown").arg("-R").arg("postgres").arg(folder).status().expect("chown");
    assert!(owned.success(), "the user postgres comes with the package");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "/bin/sh"]);
    command
}

/// postgres under pgbench: no transaction fails, and every backend has its calls. In a soak only, which installs postgres.
#[test]
fn backends_of_postgres_have_the_calls_that_a_library_counted_in_them() {
    if !scale::soak() {
        return;
    }
    let (folder, tally) = (Folder::new(), Tally::new());
    copy_program(heaptrack(), folder.join("heaptrack"));
    copy_program(target("libtally.so"), folder.join("libtally.so"));
    std::fs::write(folder.join("run.sh"), POSTGRES).expect("writable");
    let status = Command::new("chmod").arg("-R").arg("a+rwX").arg(tally.file()).status().expect("chmod");
    assert!(status.success());
    let output = as_user(folder.path())
        .arg("run.sh")
        .args(tally.words(&folder.join("libtally.so")))
        .current_dir(folder.path())
        .output()
        .expect("a shell");
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let done = |count| {
        format!(
            "number of transactions actually processed: {count}/{count}\nnumber of failed transactions: 0 (0.000%)\n"
        )
    };
    let expected = format!("{}{}code 0\n", done(1000), done(40));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}\n{log}", String::from_utf8_lossy(&output.stderr));
    let trace = folder.join("trace.htz");
    assert_eq!(Tally::recorded(&trace), tally.counted(), "left is ours, right is the library's");
    let received = log.lines().filter(|line| line.contains("connection received"));
    let backends: Vec<u32> =
        received.map(|line| line.split(' ').next().expect("a pid").parse().expect("a pid")).collect();
    let recorded = Tally::recorded(&trace);
    // At least one connection for pgbench's tables, twice one and four of the first run, and one for each of the last 40 transactions.
    assert!(backends.len() >= 46 && backends.iter().all(|pid| recorded.contains_key(pid)), "{backends:?}");
}
