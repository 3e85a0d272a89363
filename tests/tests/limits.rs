//! Programs that live within resource limits stay within them under heaptrack, plus the promised maximum of our own
//! use.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, Program, Report, process};
use std::process::{Command, Output};

/// The memory that recording may add to the target: 6 MB, and 2 MB per thread.
const fn allowance_kb(threads: u64) -> u64 {
    (6 + 2 * threads) * 1024
}

fn shell(script: &str, folder: &Folder) -> Output {
    Command::new("bash")
        .args(["-c", script])
        .env("HT", heaptrack().canonicalize().unwrap())
        .env("HOLD", target("hold"))
        .current_dir(folder.path())
        .output()
        .unwrap()
}

/// Runs `ulimit ...; heaptrack hold ...` and checks the program's own output.
fn within(limit: &str, arguments: &str, expected: &str) -> (Folder, String) {
    let folder = Folder::new();
    let script = format!("{limit}; exec \"$HT\" -o t.htz \"$HOLD\" {arguments}");
    let output = shell(&script, &folder);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{said}");
    assert_eq!(process::code(output.status), 0, "{said}");
    (folder, said)
}

/// The smallest `ulimit -v` (in kB, rounded up to 64) in which the program runs alone.
fn smallest_address_space(arguments: &str) -> u64 {
    let folder = Folder::new();
    let lives = |kb: u64| shell(&format!("ulimit -v {kb}; exec \"$HOLD\" {arguments}"), &folder).status.success();
    let (mut low, mut high) = (1024, 1 << 20);
    while high - low > 64 {
        let middle = (low + high) / 2;
        if lives(middle) { high = middle } else { low = middle }
    }
    high
}

#[test]
fn an_address_space_limit() {
    let limit = smallest_address_space("100") + allowance_kb(1);
    let (folder, _) = within(&format!("ulimit -v {limit}"), "100", "held 1600 of 1600, wrote 0\n");
    assert_eq!(Report::of(&folder.join("t.htz")).of_size(65536).allocations, 1600);
}

#[test]
fn an_address_space_limit_set_inside() {
    // The program sets the limit after heaptrack has mapped its memory, and before an exec. At worst the new image is
    // not recorded.
    let limit = smallest_address_space("100") + allowance_kb(1);
    let folder = Folder::new();
    let script = format!("exec \"$HT\" -o t.htz bash -c 'ulimit -v {limit}; exec \"$HOLD\" 100'");
    let output = shell(&script, &folder);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "held 1600 of 1600, wrote 0\n", "{said}");
    assert_eq!(process::code(output.status), 0, "{said}");
}

#[test]
fn a_file_size_limit() {
    // The limit also cuts our own file. The program sees exactly what it sees alone.
    let (_folder, _) = within("ulimit -f 1", "10 500 data", "held 160 of 160, wrote 500\n");
    let (_folder, _) = within("ulimit -f 1", "10 5000 data", "held 160 of 160, wrote 1024\n");
    // No earlier run has left the library, and it cannot be written. So nothing is recorded.
    let empty = Folder::new();
    let set_up = format!("export TMPDIR={0} XDG_RUNTIME_DIR={0}; ulimit -f 1", empty.path().display());
    let (_folder, said) = within(&set_up, "10 500 data", "held 160 of 160, wrote 500\n");
    assert!(said.contains("not recorded, the limit on file sizes (ulimit -f) leaves no room"), "{said}");
}

#[test]
fn a_stack_limit() {
    within("ulimit -s 128", "1", "held 16 of 16, wrote 0\n");
}

#[test]
fn a_limit_of_few_file_descriptors() {
    within("ulimit -n 16", "1", "held 16 of 16, wrote 0\n");
}

/// The number after the equals sign.
fn number(stdout: &str) -> u64 {
    stdout.trim().split_once('=').unwrap().1.parse().unwrap()
}

#[test]
fn a_hook_takes_no_more_stack_than_promised() {
    let program = Program::target("stack_use");
    let (alone, recorded) = (number(&program.alone().stdout), number(&program.recorded().stdout));
    assert!(recorded <= alone + 1024, "{recorded} bytes, alone {alone}");
}

#[test]
fn the_target_grows_by_no_more_than_promised() {
    for threads in [1u64, 4, 16] {
        let program = Program::target("weight").arg(threads.to_string());
        let alone = number(&program.alone().stdout);
        let outcome = program.recorded();
        let recorded = number(&outcome.stdout);
        assert!(recorded <= alone + allowance_kb(threads), "{threads} threads: {recorded} kB, alone {alone} kB");
        let overhead = outcome.whole_report().total("overhead_bytes") / 1024;
        assert!(overhead <= allowance_kb(threads), "{threads} threads: overhead {overhead} kB");
    }
}

#[test]
fn the_recorder_grows_by_no_more_than_promised() {
    for blocks in [0u64, 2_000_000] {
        let program = Program::target("weight").arg("1").arg(blocks.to_string());
        let running = program.start();
        let mut peak = 0;
        while let Some(state) = process::state(running.pid()) {
            peak = peak.max(process::status_bytes(running.pid(), "VmHWM:").unwrap_or(0));
            if state == 'Z' {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let outcome = running.finish();
        assert_eq!(outcome.whole_report().of_size(16).leaked_allocations, blocks);
        assert!(peak <= (64 << 20) + 40 * blocks, "{blocks} blocks: the recorder took {peak} bytes");
    }
}

#[test]
fn a_memory_cgroup() {
    let root = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .into_iter()
        .map(std::path::Path::new)
        .find(|path| path.join("memory.limit_in_bytes").exists() || path.join("cgroup.subtree_control").exists());
    let root = root.expect("a memory cgroup");
    let group = root.join(format!("heaptrack-test-{}", std::process::id()));
    std::fs::create_dir_all(&group).expect("a cgroup of our own");
    let file = ["memory.limit_in_bytes", "memory.max"].into_iter().map(|name| group.join(name)).find(|f| f.exists());
    // The program uses 100 MB. The group has room for it, our part in the target, and the recorder.
    std::fs::write(file.expect("a memory limit"), ((100 + 8 + 64 + 8) << 20).to_string()).unwrap();
    let procs = group.join("cgroup.procs");
    let limit = format!("echo $$ > {}", procs.display());
    let (folder, _) = within(&limit, "100", "held 1600 of 1600, wrote 0\n");
    assert_eq!(Report::of(&folder.join("t.htz")).of_size(65536).allocations, 1600);
    std::fs::remove_dir(&group).unwrap();
}

#[test]
fn a_full_disk() {
    let out = workspace().join("target/test-namespaces").join(format!("disk-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out).unwrap();
    let script = "mount -t tmpfs -o size=2m none /mnt; code=0; \"$HT\" -o /mnt/t.htz \"$THREADS\" 4 4000000 || code=$?; \
         cp /mnt/t.htz \"$OUT\"/; exit $code";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-ec", script])
        .env("HT", heaptrack().canonicalize().unwrap())
        .env("THREADS", target("threads"))
        .env("OUT", &out)
        .output()
        .expect("unshare");
    let (stdout, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(process::code(output.status), 0, "the program's own code: {said}");
    assert!(stdout.starts_with("allocations=2000"), "{stdout}");
    assert!(said.contains("are left on the trace's disk"), "the warning comes in time: {said}");
    assert!(said.contains("No space left"), "the loss is reported: {said}");
    let report = Report::of(&out.join("t.htz"));
    assert!(report.total("allocations") > 0, "the file up to there opens");
    assert!(!report.complete() || report.total("lost_events") > 0);
}
