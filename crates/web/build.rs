//! Builds the page (`page/`, TypeScript) into `OUT_DIR/page`, from where the crate embeds it.
//!
//! Receives one of these: `HEAPTRACK_PAGE`, a folder with the four built files; node and npm; or `page/dist`, the built page that a source
//! package carries and that is used where npm is not installed.
//!
//! Must hold: nothing is written into the source tree; packages are fetched only by the first build and after
//! `package-lock.json` has changed; without npm and without a built page, the error says what to install.
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

const BUILT: [&str; 4] = ["index.html", "page.css", "page.js", "worker.js"];
const INPUTS: [&str; 5] = ["package.json", "package-lock.json", ".npmrc", "tsconfig.json", "build.mjs"];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            for line in sentence.lines() {
                #[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
                {
                    println!("cargo::error={line}");
                }
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let output = env::var_os("OUT_DIR").map(PathBuf::from).ok_or("cargo sets OUT_DIR")?;
    let finished = output.join("page");
    watch("cargo::rerun-if-env-changed=HEAPTRACK_PAGE");
    if let Some(ready) = env::var_os("HEAPTRACK_PAGE").filter(|folder| !folder.is_empty()).map(PathBuf::from) {
        for name in BUILT {
            watch(&format!("cargo::rerun-if-changed={}", ready.join(name).display()));
        }
        return take(&ready, &finished)
            .map_err(|error| format!("HEAPTRACK_PAGE={} has no built page: {error}", ready.display()));
    }
    let source = PathBuf::from("page");
    watch("cargo::rerun-if-changed=page/src");
    for name in INPUTS {
        watch(&format!("cargo::rerun-if-changed=page/{name}"));
    }
    let carried = source.join("dist");
    for name in BUILT.iter().filter(|name| carried.join(name).exists()) {
        watch(&format!("cargo::rerun-if-changed=page/dist/{name}"));
    }
    if !is_installed("npm") && BUILT.iter().all(|name| carried.join(name).exists()) {
        return take(&carried, &finished)
            .map_err(|error| format!("copying the built page of {}: {error}", carried.display()));
    }
    let work = output.join("npm");
    let is_new = refresh(&source, &work).map_err(|error| format!("copying the page's sources: {error}"))?;
    if is_new || !work.join("node_modules").exists() {
        run(&work, "npm", &["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])?;
    }
    run(&work, "node", &["build.mjs", "dist"])?;
    take(&work.join("dist"), &finished).map_err(|error| format!("the page was not built: {error}"))
}

fn watch(line: &str) {
    #[allow(clippy::print_stdout, reason = "how a build script talks to cargo")]
    {
        println!("{line}");
    }
}

fn is_installed(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Copies the sources. Returns true if the list of packages has changed since the last build, or if there was no
/// earlier build.
fn refresh(source: &Path, work: &Path) -> io::Result<bool> {
    let lock = fs::read(source.join("package-lock.json"))?;
    let is_new = fs::read(work.join("package-lock.json")).map_or(true, |known| known != lock);
    if is_new && work.exists() {
        fs::remove_dir_all(work)?;
    }
    fs::create_dir_all(work)?;
    for name in INPUTS {
        fs::copy(source.join(name), work.join(name))?;
    }
    let copied = work.join("src");
    if copied.exists() {
        fs::remove_dir_all(&copied)?;
    }
    copy_folder(&source.join("src"), &copied)?;
    Ok(is_new)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn take(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for name in BUILT {
        fs::copy(from.join(name), to.join(name))?;
    }
    Ok(())
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(arguments).current_dir(folder).output().map_err(|error| {
        format!(
            "the page needs {program} to be built ({error}): install Node.js 18 or newer with npm (tests/setup.sh does), \
             or set HEAPTRACK_PAGE to a folder with a built page"
        )
    })?;
    if done.status.success() {
        return Ok(());
    }
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Err(format!("{program} {} failed:\n{}\n{}", arguments.join(" "), said(&done.stdout), said(&done.stderr)))
}
