//! Builds the programs in `tests/targets`, once for each version of their sources.
//!
//! All of them go to one folder, which is named by a hash of all sources and recipes. So libraries are next to the
//! programs that use them, and any change causes a new build.
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Programs that need more than `cc -g -O1 NAME.c`: (name, source, flags, targets that must be built before).
const SPECIAL: &[(&str, &str, &[&str], &[&str])] = &[
    ("no_frame_pointer", "no_frame_pointer.c", &["-O2", "-fomit-frame-pointer"], &[]),
    ("trampoline", "trampoline.c", &["-O1", "-fomit-frame-pointer"], &[]),
    ("collected", "collected.c", &["-lgc"], &[]),
    ("hello_static", "hello.c", &["-static"], &[]),
    ("sampled_calls_static", "sampled_calls.c", &["-static"], &[]),
    ("libearly_setenv.so", "libearly_setenv.c", &["-shared", "-fPIC"], &[]),
    ("early_setenv", "early_setenv.c", &["-L.", "-learly_setenv", "-Wl,-rpath,$ORIGIN"], &["libearly_setenv.so"]),
    ("plain_musl", "plain.c", MUSL, &[]),
    ("plain_musl_no_pie", "plain.c", &["musl", "-no-pie"], &[]),
    ("family_static", "family.c", MUSL_STATIC, &[]),
    ("starts_musl", "starts.c", MUSL, &[]),
    ("ends", "ends.c", &["-pthread"], &[]),
    ("ends_musl", "ends.c", MUSL, &[]),
    ("ends_static", "ends.c", &["-static", "-pthread"], &[]),
    ("ends_musl_static", "ends.c", MUSL_STATIC, &[]),
    ("surroundings_static", "surroundings.c", &["-static"], &[]),
    ("libplug_first.so", "libplug.c", PLUG_FIRST, &[]),
    ("libplug_second.so", "libplug.c", PLUG_SECOND, &[]),
    ("coroutines", "coroutines.c", &["-Wl,-z,now"], &[]),
    ("libbump.so", "libbump.c", &["-shared", "-fPIC"], &[]),
    ("signals", "signals.c", &["-L.", "-lbump", "-Wl,-rpath,$ORIGIN"], &["libbump.so"]),
    ("handler_frees", "handler_frees.c", &["-L.", "-lbump", "-Wl,-rpath,$ORIGIN"], &["libbump.so"]),
    ("heap_sample", "heap_sample.cpp", &["-ltcmalloc"], &[]),
    ("addon.node", "addon.c", &["-shared", "-fPIC", "-I/usr/include/node"], &[]),
    ("attach_phases_static", "attach_phases.c", &["-static"], &[]),
    ("attach_phases_static_pie", "attach_phases.c", &["-static-pie"], &[]),
    ("attach_phases_no_pie", "attach_phases.c", &["-O2", "-no-pie"], &[]),
    ("attach_phases_stripped", "attach_phases.c", &["-static", "-s"], &[]),
    ("attach_phases_musl", "attach_phases.c", MUSL, &[]),
    ("attach_phases_musl_static", "attach_phases.c", MUSL_STATIC, &[]),
    ("attach_phases_jemalloc", "attach_phases.c", &["-ljemalloc"], &[]),
    ("attach_phases_tcmalloc", "attach_phases.c", &["-ltcmalloc"], &[]),
    ("attach_phases_mimalloc", "attach_phases.c", &["-lmimalloc"], &[]),
    ("libshort.so", "libshort.c", &["-O2", "-shared", "-fPIC"], &[]),
    ("attach_phases_short", "attach_phases.c", SHORT_LAZY, &["libshort.so"]),
    ("attach_phases_short_now", "attach_phases.c", SHORT_NOW, &["libshort.so"]),
    ("attach_throw_short", "attach_throw.cpp", SHORT_LAZY, &["libshort.so"]),
    ("attach_pointers", "attach_pointers.c", SHORT_LAZY, &["libshort.so"]),
    ("attach_short_program", "libshort.c", &["-DPROGRAM"], &[]),
    ("attach_short_static", "libshort.c", &["-static", "-DPROGRAM"], &[]),
    ("attach_sized_static", "libshort.c", &["-O2", "-static", "-DPROGRAM", "-DSIZED"], &[]),
    ("attach_alias_static", "libshort.c", &["-O2", "-static", "-DPROGRAM", "-DALIAS"], &[]),
    ("attach_phases_asan", "attach_phases.c", &["-fsanitize=address"], &[]),
    ("libwrap.so", "libwrap.c", &["-O2", "-shared", "-fPIC"], &[]),
    ("libtally.so", "libtally.c", &["-shared", "-fPIC"], &[]),
    ("attach_phases_wrap", "attach_phases.c", WRAP, &["libwrap.so"]),
    ("attach_handover_wrap", "attach_handover.c", WRAP, &["libwrap.so"]),
    ("attach_handover_musl", "attach_handover.c", MUSL, &[]),
    ("attach_handover_musl_static", "attach_handover.c", MUSL_STATIC, &[]),
    ("attach_fault", "attach_fault.c", &["-O2"], &[]),
    ("attach_bare", "attach_bare.c", &["-nostdlib", "-static"], &[]),
    ("attach_late_exec", "attach_late_exec.c", &["-nostdlib", "-static"], &[]),
    ("attach_bare_calls", "attach_bare.c", &["-nostdlib", "-static", "-DCALLS"], &[]),
    ("attach_phases_32", "attach_tiny.c", &["-m32", "-nostdlib", "-static", "-fno-pic"], &[]),
    ("tiny_32", "attach_tiny.c", &["-m32", "-nostdlib", "-static", "-fno-pic", "-DENDS"], &[]),
    ("counting_static", "counting.c", &["-static", "-Wl,--build-id"], &[]),
    ("counting_static_pie", "counting.c", &["-static-pie", "-Wl,--build-id"], &[]),
    ("counting_musl", "counting.c", &["musl", "-Wl,--eh-frame-hdr"], &[]),
    ("counting_musl_pointers", "counting.c", &["musl", "-fno-omit-frame-pointer"], &[]),
    ("counting_musl_static", "counting.c", &["musl", "-static", "-Wl,--build-id"], &[]),
    ("boxes_static", "boxes.rs", &["-C", "target-feature=+crt-static"], &[]),
    ("operators_static", "operators.cpp", &["-static"], &[]),
    ("early_malloc", "early_malloc.c", &["-nostdlib", "-static", "-fno-builtin", "-fno-stack-protector"], &[]),
    ("fork_in_handler_static", "fork_in_handler.c", &["-static"], &[]),
    ("children_static", "children.c", &["-static"], &[]),
    ("counter_static", "counter.c", &["-static"], &[]),
    ("execs_static", "execs.c", &["-static"], &[]),
    ("counting_jemalloc", "counting.c", &["-l:libjemalloc_pic.a", "-lm", "-ldl", "-lstdc++"], &[]),
    ("counting_jemalloc_static", "counting.c", &["-static", "-l:libjemalloc_pic.a", "-lm", "-lstdc++"], &[]),
    ("memory_causes_jemalloc", "memory_causes.c", &["-ljemalloc"], &[]),
    ("memory_stats_jemalloc", "memory_stats.c", &["-DJEMALLOC", "-ljemalloc"], &[]),
    ("memory_stats_mimalloc", "memory_stats.c", &["-DMIMALLOC", "-lmimalloc"], &[]),
    ("attach_new_jemalloc", "attach_new.cpp", &["-ljemalloc"], &[]),
    ("attach_new_tcmalloc", "attach_new.cpp", &["-ltcmalloc"], &[]),
    ("attach_new_tcmalloc_minimal", "attach_new.cpp", &["-ltcmalloc_minimal"], &[]),
    ("attach_new_mimalloc", "attach_new.cpp", &["-lmimalloc"], &[]),
    ("libown.so", "libown.cpp", &["-O2", "-shared", "-fPIC"], &[]),
    ("attach_new_own", "attach_new.cpp", &["-L.", "-lown", "-Wl,-rpath,$ORIGIN"], &["libown.so"]),
    (
        "libalias.so",
        "libown.cpp",
        &["-O2", "-shared", "-fPIC", "-DALIASES", "-Wno-attribute-alias", "-Wno-missing-attributes"],
        &[],
    ),
    ("attach_switch", "attach_switch.c", &["-L.", "-lown", "-Wl,-rpath,$ORIGIN"], &["libown.so"]),
    ("attach_new_alias", "attach_new.cpp", &["-L.", "-lalias", "-Wl,-rpath,$ORIGIN"], &["libalias.so"]),
    ("attach_throw_jemalloc", "attach_throw.cpp", &["-ljemalloc"], &[]),
    ("attach_throw_tcmalloc", "attach_throw.cpp", &["-ltcmalloc"], &[]),
    ("operators_jemalloc", "operators.cpp", &["-ljemalloc"], &[]),
    ("operators_tcmalloc", "operators.cpp", &["-ltcmalloc"], &[]),
    ("operators_mimalloc", "operators.cpp", &["-lmimalloc"], &[]),
    ("operators_own", "operators.cpp", &["-L.", "-lown", "-Wl,-rpath,$ORIGIN"], &["libown.so"]),
    ("libnested.so", "libnested.cpp", &["-O2", "-shared", "-fPIC", "-fno-builtin"], &[]),
    ("operators_nested", "operators.cpp", &["-L.", "-lnested", "-Wl,-rpath,$ORIGIN"], &["libnested.so"]),
    ("libinterrupted.so", "libinterrupted.cpp", &["-O2", "-shared", "-fPIC", "-fno-builtin"], &[]),
    ("interrupted", "interrupted.c", &["-L.", "-linterrupted", "-Wl,-rpath,$ORIGIN"], &["libinterrupted.so"]),
    ("operators_leak", "operators.cpp", &["-fsanitize=leak"], &[]),
    ("operators_thread", "operators.cpp", &["-fsanitize=thread"], &[]),
    ("operators_now", "operators.cpp", &["-ljemalloc", "-Wl,-z,now", "-fno-plt"], &[]),
    ("families_jemalloc", "families.c", &["-DJEMALLOC", "-ljemalloc"], &[]),
    ("families_tcmalloc", "families.c", &["-DTCMALLOC", "-ltcmalloc"], &[]),
    ("families_mimalloc", "families.c", &["-DMIMALLOC", "-lmimalloc"], &[]),
    ("libfailing.so", "libfailing.cpp", &["-O2", "-shared", "-fPIC"], &[]),
    ("left_operators", "left_operators.cpp", &["-L.", "-lfailing", "-Wl,-rpath,$ORIGIN"], &["libfailing.so"]),
    ("new_left_jemalloc", "new_left.cpp", &["-ljemalloc"], &[]),
    ("new_left_own", "new_left.cpp", &["-DOWN", "-ljemalloc"], &[]),
    ("weak_names_cpp", "weak_names.c", &["-Wl,--no-as-needed", "-lstdc++"], &[]),
    ("names_musl", "names.c", MUSL, &[]),
    ("old_cfree_lazy", "old_cfree.c", &["-Wl,-z,lazy"], &[]),
    ("old_cfree_now", "old_cfree.c", &["-Wl,-z,now"], &[]),
    ("libsized.so", "libsized.c", &["-shared", "-fPIC"], &[]),
    ("sized_frees", "sized_frees.c", &["-L.", "-lsized", "-Wl,-rpath,$ORIGIN"], &["libsized.so"]),
    ("libwork.so", "libwork.cpp", &["-shared", "-fPIC"], &[]),
    ("libhidden.so", "libhidden.c", &["-shared", "-fPIC"], &[]),
    ("libown_names.so", "libown_names.c", &["-O2", "-shared", "-fPIC", "-Wl,--build-id"], &[]),
    ("own_names", "own_names.c", &["-O2", "-Wl,--build-id"], &[]),
    ("own_names_no_pie", "own_names.c", &["-O2", "-no-pie"], &[]),
    ("mimalloc_addon.node", "mimalloc_addon.c", &["-shared", "-fPIC", "-I/usr/include/node", "-lmimalloc"], &[]),
    ("bulk_frees_mimalloc", "bulk_frees.c", &["-DMIMALLOC", "-lmimalloc"], &[]),
    ("bulk_frees_jemalloc", "bulk_frees.c", &["-ljemalloc"], &[]),
    ("bulk_frees_own", "bulk_frees.c", &["-l:libjemalloc_pic.a", "-lm", "-ldl", "-lstdc++"], &[]),
    ("maps_jemalloc", "maps.c", &["-Wl,--no-as-needed", "-ljemalloc"], &[]),
    ("maps_mimalloc", "maps.c", &["-Wl,--no-as-needed", "-lmimalloc"], &[]),
    ("maps_musl", "maps.c", MUSL, &[]),
    ("maps_own_jemalloc", "maps.c", &["-l:libjemalloc_pic.a", "-lm", "-ldl", "-lstdc++"], &[]),
    ("maps_64_musl", "maps_64.c", MUSL, &[]),
    ("background_thread", "background_thread.c", &["-ljemalloc"], &[]),
    ("opens_jemalloc", "opens.c", &["-Wl,--no-as-needed", "-ljemalloc"], &[]),
    ("libred.so", "libred.c", &["-shared", "-fPIC"], &[]),
    ("libblue.so", "libblue.c", &["-shared", "-fPIC"], &[]),
    ("deps/libinner.so", "libinner.c", &["-shared", "-fPIC"], &[]),
    (
        "libplugin.so",
        "libplugin.c",
        &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN/deps", "-Wl,--enable-new-dtags"],
        &["deps/libinner.so"],
    ),
];

/// Linked with `libshort.so`. The loader binds its functions at the first call (`SHORT_LAZY`) or before the program
/// starts (`SHORT_NOW`).
const SHORT_LAZY: &[&str] = &["-L.", "-lshort", "-Wl,-rpath,$ORIGIN", "-Wl,-z,lazy"];
const SHORT_NOW: &[&str] = &["-L.", "-lshort", "-Wl,-rpath,$ORIGIN", "-Wl,-z,now"];

const WRAP: &[&str] = &["-L.", "-lwrap", "-Wl,-rpath,$ORIGIN"];

/// As its first flag this selects musl's compiler instead of `cc`.
const MUSL: &[&str] = &["musl"];
const PLUG_FIRST: &[&str] = &["-shared", "-fPIC", "-DINNER=first_inner", "-DOUTER=first_outer"];
const PLUG_SECOND: &[&str] = &["-shared", "-fPIC", "-DINNER=second_inner", "-DOUTER=second_outer"];
const MUSL_STATIC: &[&str] = &["musl", "-static"];

/// Returns the path of a target, and builds it if it does not exist yet.
pub fn target(name: &str) -> PathBuf {
    static BUILT: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(|| Mutex::new(HashMap::new())).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = built.get(name) {
        return path.clone();
    }
    let path = build(name);
    built.insert(name.to_owned(), path.clone());
    path
}

fn build(name: &str) -> PathBuf {
    let special = SPECIAL.iter().find(|row| row.0 == name);
    for needed in special.map_or(&[][..], |row| row.3) {
        build(needed);
    }
    let path = folder().join(name);
    if path.exists() {
        return path;
    }
    std::fs::create_dir_all(path.parent().expect("has a parent")).expect("a folder for targets");
    let (source, flags) = match special {
        Some(row) => (sources().join(row.1), row.2),
        None => (source_of(name), &[][..]),
    };
    compile(&source, &path, flags);
    path
}

/// Compiles to a temporary name first, because another test process may be building the same target.
fn compile(source: &Path, path: &Path, flags: &[&str]) {
    let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut command = match source.extension().and_then(|e| e.to_str()) {
        Some("rs") => {
            let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
            command.args(["--edition", "2024", "-g", "-O"]);
            command
        }
        Some("cpp") => c_compiler("c++"),
        _ if flags.first() == Some(&"musl") => c_compiler("musl-gcc"),
        _ => c_compiler("cc"),
    };
    let flags = flags.strip_prefix(&["musl"]).unwrap_or(flags);
    command.current_dir(folder()).arg(source).arg("-o").arg(&unfinished).args(flags);
    // The target's own behaviour must not depend on how the harness itself was built.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&done.stderr));
    // If another process has built the target meanwhile, its file may be running, so that file stays.
    if let Err(error) = std::fs::hard_link(&unfinished, path) {
        assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{}: {error}", path.display());
    }
    std::fs::remove_file(&unfinished).expect("the unfinished target is removed");
}

fn c_compiler(name: &str) -> Command {
    let mut command = Command::new(name);
    command.args(["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    // Before the system's folder, which may have the header of KDE's heaptrack.
    command.arg("-I").arg(include());
    command
}

fn source_of(name: &str) -> PathBuf {
    ["c", "cpp", "rs"]
        .iter()
        .map(|extension| sources().join(format!("{name}.{extension}")))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no target is called {name}"))
}

fn include() -> PathBuf {
    workspace().join("include")
}

pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("targets")
}

/// The workspace's root.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace")
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let files = |folder: PathBuf| std::fs::read_dir(folder).expect("a folder of the workspace");
        let mut names: Vec<PathBuf> =
            files(sources()).chain(files(include())).map(|entry| entry.expect("readable").path()).collect();
        names.sort();
        let mut hasher = DefaultHasher::new();
        for name in &names {
            hasher.write(name.file_name().expect("a file").as_encoded_bytes());
            hasher.write(&std::fs::read(name).expect("readable"));
        }
        hasher.write(format!("{SPECIAL:?}").as_bytes());
        let path = workspace().join("target/test-targets").join(format!("{:016x}", hasher.finish()));
        std::fs::create_dir_all(&path).expect("a folder for targets");
        path
    })
}
