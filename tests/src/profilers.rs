//! Other heap profilers, run on a program that we record, too. Each writes its file into a folder.
use crate::folder::Folder;
use crate::run::Program;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

fn valgrind(program: &Program, folder: &Folder, tool: &str, options: &[&str]) -> PathBuf {
    let file = folder.join(&format!("{tool}.out"));
    let mut command = Command::new("valgrind");
    program.settings(&mut command);
    // The freeres passes would free libc's own blocks at the end, which no ordinary run does.
    command.args(["-q", "--run-libc-freeres=no", "--run-cxx-freeres=no"]).arg(format!("--tool={tool}"));
    command.args(options).arg(format!("--{tool}-out-file={}", file.display())).arg(&program.path);
    finish(command, program);
    file
}

fn finish(mut command: Command, program: &Program) {
    command.args(&program.arguments).stdin(Stdio::null());
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

pub fn dhat(program: &Program, folder: &Folder) -> PathBuf {
    valgrind(program, folder, "dhat", &[])
}

/// Every snapshot has a tree, and the peak is exact. (By default massif accepts a peak that is up to 1 % too low.)
pub fn massif(program: &Program, folder: &Folder) -> PathBuf {
    massif_with(program, folder, &["--detailed-freq=1", "--threshold=0", "--peak-inaccuracy=0.0"])
}

pub fn massif_with(program: &Program, folder: &Folder, options: &[&str]) -> PathBuf {
    valgrind(program, folder, "massif", options)
}

/// Runs a program with an allocator that writes a heap profile.
fn preloaded(program: &Program, folder: &Folder, library: &str, variables: &[(&str, &str)]) -> PathBuf {
    let mut command = Command::new(&program.path);
    program.settings(&mut command);
    command.env("LD_PRELOAD", format!("{LIBRARIES}/{library}")).envs(variables.iter().copied());
    finish(command, program);
    let profile = folder.names().into_iter().find(|name| name.ends_with(".heap"));
    folder.join(&profile.unwrap_or_else(|| panic!("{library} wrote no profile")))
}

/// The profile is written only at the end.
pub fn gperftools(program: &Program, folder: &Folder) -> PathBuf {
    let prefix = folder.join("profile");
    let end_only = [("HEAP_PROFILE_INUSE_INTERVAL", "0"), ("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")];
    let variables = [&end_only[..], &[("HEAPPROFILE", prefix.to_str().expect("text"))]].concat();
    preloaded(program, folder, "libtcmalloc.so", &variables)
}

/// What tcmalloc's sampler has of the program `heap_sample`, in one of `rate` bytes.
pub fn tcmalloc_sampler(folder: &Folder, rate: u64) -> PathBuf {
    let file = folder.join("sampled.heap");
    let program = Program::target("heap_sample").arg(&file).env("TCMALLOC_SAMPLE_PARAMETER", rate.to_string());
    let mut command = Command::new(&program.path);
    program.settings(&mut command);
    finish(command, &program);
    file
}

/// Every block is counted, and those that were freed, too.
pub fn jemalloc(program: &Program, folder: &Folder) -> PathBuf {
    let prefix = folder.join("profile");
    let conf = format!("prof:true,lg_prof_sample:0,prof_final:true,prof_accum:true,prof_prefix:{}", prefix.display());
    preloaded(program, folder, "libjemalloc.so", &[("MALLOC_CONF", &conf)])
}

/// The bytes that jemalloc counts for a block of this size: 8, multiples of 16 up to 128, then four sizes for each doubling.
pub const fn size_class(size: u64) -> u64 {
    match size {
        0..=8 => 8,
        9..=128 => size.next_multiple_of(16),
        _ => size.next_multiple_of(size.next_power_of_two() / 8),
    }
}
