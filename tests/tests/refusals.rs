//! Unusual environments and programs that cannot be recorded. heaptrack records them, or one sentence says why not, and
//! then no file is written.
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{target, workspace};
use heaptrack_tests::{Folder, Program, Report, process};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Asserts that heaptrack refuses the program with this exit code and writes no file. Returns the message.
fn refuse(program: &Path, code: i32) -> String {
    let folder = Folder::new();
    let output = Command::new(heaptrack()).arg(program).current_dir(folder.path()).output().unwrap();
    assert_refusal(&output, code);
    assert_eq!(folder.names(), Vec::<String>::new(), "nothing is written");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_refusal(output: &Output, code: i32) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(process::code(output.status), code, "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "one sentence: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(output.stdout.is_empty(), "the program ran: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_missing_program() {
    refuse(Path::new("no-such-program-anywhere"), 127);
    refuse(Path::new("/no/such/program"), 127);
}

#[test]
fn a_file_that_is_not_executable() {
    let folder = Folder::new();
    let file = folder.join("data");
    std::fs::write(&file, "hello\n").unwrap();
    refuse(&file, 126);
    refuse(folder.path(), 126);
}

#[test]
fn a_static_program_without_symbols() {
    let said = refuse(&target("attach_phases_stripped"), 126);
    assert!(said.contains("linked statically and has no symbols") && said.contains("--debug-path"), "{said}");
}

/// Its free is too short to be patched.
#[test]
fn a_program_with_a_malloc_that_cannot_be_patched() {
    for name in ["attach_short_program", "attach_short_static"] {
        let said = refuse(&target(name), 126);
        assert!(said.contains(&format!("{name} cannot be patched: ")), "{said}");
    }
}

/// The function `mi_malloc` is exported, not exported, or absent. There is no `mi_free`, so it is not hooked.
#[test]
fn a_program_with_half_an_allocator_is_recorded_and_warned_of() {
    const PROGRAM: &str =
        "void *mi_malloc(unsigned long n) { return n ? (void *)0 : \"\"; } int main(void) { return 7; }";
    let folder = Folder::new();
    let source = folder.join("program.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let cases = [(&["-rdynamic"][..], true), (&[], true), (&["-rdynamic", "-Dmi_malloc=quick_malloc"], false)];
    for (number, (options, is_warned)) in cases.into_iter().enumerate() {
        let program = folder.join(&format!("program{number}"));
        assert!(Command::new("cc").args(options).arg("-o").args([&program, &source]).status().unwrap().success());
        let trace = folder.join("trace.htz");
        let output = Command::new(heaptrack()).arg("-o").args([&trace, &program]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(process::code(output.status), 7, "{said}");
        assert_eq!(
            said.contains("has an allocator of its own (mimalloc, mi_malloc), which is not hooked."),
            is_warned,
            "{options:?}: {said}"
        );
    }
}

/// Makes a copy of `hello` whose ELF header is that of another machine. heaptrack reads no other part of it.
fn foreign(folder: &Folder, class: u8, machine: u16) -> PathBuf {
    let mut bytes = std::fs::read(target("hello")).unwrap();
    bytes[4] = class;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    let file = folder.join(&format!("foreign-{machine}"));
    std::fs::write(&file, bytes).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[test]
fn a_program_of_another_architecture() {
    const EM_386: u16 = 3;
    const EM_AARCH64: u16 = 183;
    let folder = Folder::new();
    refuse(&foreign(&folder, 2, EM_AARCH64), 126);
    refuse(&foreign(&folder, 1, EM_386), 126);
}

#[test]
fn garbage_with_an_elf_header() {
    let folder = Folder::new();
    for length in [4, 20, 64, 200] {
        let bytes = std::fs::read(target("hello")).unwrap();
        let file = folder.join(&format!("cut-{length}"));
        std::fs::write(&file, &bytes[..length]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        refuse(&file, 126);
    }
}

/// A folder outside of root's own folders, which the user `nobody` can read and write.
fn public_folder() -> Folder {
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

fn as_nobody(folder: &Folder, program: &Path) -> Output {
    let copy = folder.join("heaptrack");
    std::fs::copy(heaptrack(), &copy).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .arg(program)
        .current_dir(folder.path())
        .env("HOME", "/nonexistent")
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .expect("setpriv");
    std::fs::remove_file(copy).unwrap();
    output
}

#[test]
fn a_setuid_program_as_nobody() {
    let folder = public_folder();
    let program = folder.join("hello");
    std::fs::copy(target("hello"), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let output = as_nobody(&folder, &program);
    assert_refusal(&output, 126);
    assert_eq!(folder.names(), ["hello"], "nothing is written");
}

#[test]
fn an_ordinary_program_as_nobody() {
    let folder = public_folder();
    let program = folder.join("hello");
    std::fs::copy(target("hello"), &program).unwrap();
    let output = as_nobody(&folder, &program);
    assert_eq!(process::code(output.status), 0, "{}", String::from_utf8_lossy(&output.stderr));
    let traces: Vec<String> = folder.names().into_iter().filter(|name| name.ends_with(".htz")).collect();
    assert_eq!(traces.len(), 1);
    assert_eq!(Report::of(&folder.join(&traces[0])).of_size(10).allocations, 1);
}

/// Runs a shell script in its own mount namespace. `$HT` and `$HELLO` are copies in a small file system on /mnt. The
/// folder `$OUT` stays reachable through an open descriptor, whatever is mounted over its path.
fn in_namespace(script: &str) -> (Output, PathBuf) {
    let out = workspace().join("target/test-namespaces").join(format!("{}-{:x}", std::process::id(), script.len()));
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir_all(&out).unwrap();
    let prepare = "mount -t tmpfs -o mode=755 none /mnt; cp \"$HT_FILE\" /mnt/heaptrack; cp \"$HELLO_FILE\" /mnt/hello; \
         HT=/mnt/heaptrack HELLO=/mnt/hello; exec 9<\"$OUT_PATH\"; OUT=/dev/fd/9; ";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-ec", &format!("{prepare}{script}")])
        .env("HT_FILE", heaptrack().canonicalize().unwrap())
        .env("HELLO_FILE", target("hello"))
        .env("OUT_PATH", &out)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("TMPDIR")
        .output()
        .expect("unshare");
    (output, out)
}

fn assert_recorded(output: &Output, trace: &Path) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (process::code(output.status), String::from_utf8_lossy(&output.stdout).as_ref()),
        (0, "hello 1 \n"),
        "{said}"
    );
    assert!(!said.contains("preload"), "the loader printed an error: {said}");
    assert_eq!(Report::of(trace).of_size(10).allocations, 1);
}

#[test]
fn tmp_is_noexec() {
    let (output, out) = in_namespace(
        "mount -t tmpfs -o noexec none /tmp; cd /tmp; $HT -o t.htz $HELLO; cp t.htz $OUT/; rm t.htz; ls -A > $OUT/left",
    );
    assert_recorded(&output, &out.join("t.htz"));
    assert_eq!(std::fs::read_to_string(out.join("left")).unwrap(), "", "no file is left");
}

#[test]
fn every_folder_is_noexec() {
    let (output, out) = in_namespace(
        "for folder in /tmp /dev/shm /run; do mount -t tmpfs -o noexec none $folder; done; \
         cd /tmp; $HT -o t.htz $HELLO; cp t.htz $OUT/",
    );
    assert_recorded(&output, &out.join("t.htz"));
}

#[test]
fn a_read_only_root() {
    // The output goes to a small writable file system, as in a container with a read-only root.
    let (output, out) = in_namespace(
        "mkdir /mnt/data; mount --bind \"$OUT_PATH\" /mnt/data; mount -o remount,bind,ro /; cd /; $HT -o /mnt/data/t.htz $HELLO",
    );
    assert_recorded(&output, &out.join("t.htz"));
}

#[test]
fn nowhere_to_write() {
    let (output, _) = in_namespace("mount -o remount,bind,ro /; cd /; exec $HT $HELLO");
    assert_refusal(&output, 126);
}

#[test]
fn no_proc() {
    let (output, out) = in_namespace("cd \"$OUT_PATH\"; mount -t tmpfs none /proc; exec $HT -o t.htz $HELLO");
    if output.status.success() {
        assert_recorded(&output, &out.join("t.htz"));
    } else {
        assert_refusal(&output, 126);
        assert!(!out.join("t.htz").exists(), "nothing is written");
    }
}

#[test]
fn ld_preload_is_already_set() {
    // Our library is added in front, and the program sees the original value of LD_PRELOAD.
    let facts = Program::target("facts").env("LD_PRELOAD", target("libbump.so"));
    let outcome = facts.same_output();
    assert!(outcome.stdout.contains("environment LD_PRELOAD="), "{}", outcome.stdout);
    let hello = Program::target("hello").env("LD_PRELOAD", target("libbump.so"));
    assert_eq!(hello.recorded().whole_report().of_size(10).allocations, 1);
}

#[test]
fn ld_preload_names_a_file_that_is_not_there() {
    let program = Program::target("hello").env("LD_PRELOAD", "/nonexistent/lib.so");
    let (alone, recorded) = (program.alone(), program.recorded());
    assert_eq!(recorded.stdout, alone.stdout);
    assert_eq!(recorded.report().of_size(10).allocations, 1);
}
